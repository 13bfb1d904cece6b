"""Weights split into the largest and the others: against 400 decimal digits, at every gap, mask and tie."""

import decimal
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from simulation.attention_heads import Heads
from simulation.row_sizes import QUANTITIES, row_sizes
from simulation.softmax import jacobian_sizes, softmax
from simulation.weights import split_scaled, split_weights

rows_of_logits = st.tuples(st.integers(1, 3), st.integers(1, 9)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.floats(-1e4, 1e4))
)


def decimal_split(logits):
    """Weights, the sum of all but the largest, and ln sum exp(x - x_max), in 400 digits, as floats."""
    with decimal.localcontext(decimal.Context(prec=400, Emin=-(10**6), Emax=10**6)):
        e = [(Decimal(float(x)) - Decimal(float(max(logits)))).exp() for x in logits]
        top = int(np.argmax(logits))
        rest = sum((value for place, value in enumerate(e) if place != top), Decimal(0)) / sum(e)
        return [float(value / sum(e)) for value in e], float(rest), float(sum(e).ln())


@pytest.mark.parametrize(
    "logits",
    [
        [0.0],
        [3.0, 1.0, -3.0],
        [1.0, 1.0, 1.0, 1.0],
        [37.5, 0.0],
        [600.0, 0.0, -3.0, 599.0],
        [700.0, 0.0, 0.0],
        [-1e4, 1e4, 1e4 - 0.125],
        [1e-12, 0.0, -1e-12],
    ],
)
def test_every_part_has_all_its_digits(logits):
    weights, rest, log_total = decimal_split(logits)
    row = split_weights(np.array(logits))
    np.testing.assert_allclose(row.weights, weights, rtol=1e-15 * (2 + len(logits)), atol=1e-307)
    assert row.rest[0] == pytest.approx(rest, rel=1e-15 * (2 + len(logits)), abs=0)
    assert row.log_total[0] == pytest.approx(log_total, rel=1e-15 * (2 + len(logits)), abs=0)


def test_one_minus_the_largest_weight_would_be_lost():
    """Negative control: subtraction keeps nothing at a gap of 40, the sum of the others keeps all."""
    row = split_weights(np.array([40.0, 0.0]))
    assert 1 - row.weights[0] == 0
    assert row.rest[0] == pytest.approx(4.248354255291589e-18, rel=1e-14)


@given(rows_of_logits)
def test_the_parts_belong_together(logits):
    row, n = split_weights(logits), logits.shape[-1]
    assert (np.take_along_axis(logits, row.top, -1)[:, 0] == logits.max(axis=-1)).all()
    np.testing.assert_allclose(row.weights.sum(axis=-1), 1, rtol=1e-15 * n)
    largest = np.take_along_axis(row.weights, row.top, -1)
    assert (largest == row.weights.max(axis=-1, keepdims=True)).all()
    np.testing.assert_allclose(largest + row.rest, 1, rtol=1e-15 * n)
    assert (np.take_along_axis(row.share, row.top, -1) == 0).all()
    others = row.weights.copy()
    np.put_along_axis(others, row.top, 0.0, -1)
    np.testing.assert_allclose(row.rest * row.share, others, rtol=1e-15 * n, atol=1e-300)
    seen = row.rest[:, 0] > 1e-300
    np.testing.assert_allclose(row.share.sum(axis=-1)[seen], 1, rtol=1e-15 * n)
    assert ((row.log_total >= 0) & (row.log_total <= np.log(n) + 1e-15)).all()


@given(rows_of_logits, st.randoms(use_true_random=False))
def test_the_order_of_keys_only_moves_them(logits, random):
    order = random.sample(range(logits.shape[-1]), logits.shape[-1])
    row, moved = split_weights(logits), split_weights(logits[:, order])
    np.testing.assert_allclose(moved.weights, row.weights[:, order], rtol=1e-14, atol=1e-307)
    np.testing.assert_allclose(moved.rest, row.rest, rtol=1e-14, atol=1e-307)


def test_ties_share_and_the_first_of_them_counts_as_largest():
    row = split_weights(np.array([0.0, 5.0, 5.0, -900.0]))
    assert row.top.tolist() == [1]
    assert row.weights[1] == row.weights[2]
    assert row.rest[0] == pytest.approx(0.50167883, rel=1e-7)  # (e^0 + e^5) / (e^0 + 2 e^5)


def test_a_single_key_has_no_others():
    row = split_weights(np.array([[7.0], [-1e300]]))
    assert (row.weights == 1).all()
    assert (row.rest == 0).all()
    assert (row.share == 0).all()
    assert (row.log_total == 0).all()


def test_gaps_too_wide_for_doubles_are_one_hot_without_a_warning():
    row = split_weights(np.array([[1.7e308, -1.7e308], [746.0, 0.0]]))
    assert (row.weights == [[1, 0], [1, 0]]).all()
    assert (row.rest == 0).all()
    assert (row.share == 0).all()


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 1, 1, 5), (0, 3)])
def test_leading_axes_are_rows(shape):
    logits = np.random.default_rng(0).normal(0, 9, shape)
    row = split_weights(logits)
    assert row.weights.shape == row.share.shape == shape
    assert row.top.shape == row.rest.shape == row.log_total.shape == (*shape[:-1], 1)
    for place in np.ndindex(shape[:-1]):
        alone = split_weights(logits[place])
        assert (alone.weights == row.weights[place]).all()
        assert alone.rest == row.rest[place]


def test_the_input_is_left_alone():
    logits = np.array([[1.0, 2.0, 3.0]])
    split_weights(logits)
    assert logits.tolist() == [[1, 2, 3]]


# --- several scales ----------------------------------------------------------------------------------------------

PARTS = ("weights", "top", "rest", "share", "log_total", "trace")


@pytest.mark.parametrize(
    "scales",
    [
        (1.0, 0.125),
        (0.125, 1.0),
        (1.0, 1 / 32),
        (1.0, 24**-0.5),
        (1.0, 1.0),
        (2.0, 0.25, 4.0, 0.3),
        (0.5,),
        (1.0, 1 / 16),
    ],
)
def test_scaled_splits_equal_splits_of_scaled_logits(scales, seed):
    """Also where the exponentials of one scale are squares of another's: 16 roundings at most."""
    logits = np.random.default_rng(seed).normal(0, 30, (5, 4, 7))
    logits[0, 0, 2] = -np.inf
    for scale, row in zip(scales, split_scaled(logits, scales), strict=True):
        alone = split_weights(scale * logits)
        for part in PARTS:
            # the product scale * logit is rounded in another place: up to 200 units of 1e-16 in the exponent
            np.testing.assert_allclose(getattr(row, part), getattr(alone, part), rtol=1e-13, atol=1e-300)


@pytest.mark.parametrize("small", [0.5, 1 / 8, 1 / 16, 0.3])
def test_scaled_splits_keep_the_digits_of_tiny_weights(small):
    logits = np.array([600.0, 0.0, -3.0, 599.0, -90.0])
    for scale, row in zip((1.0, small), split_scaled(logits, (1.0, small)), strict=True):
        weights, rest, log_total = decimal_split([scale * x for x in logits])
        np.testing.assert_allclose(row.weights, weights, rtol=2e-13, atol=0)
        assert row.rest[0] == pytest.approx(rest, rel=2e-13, abs=0)
        assert row.log_total[0] == pytest.approx(log_total, rel=2e-13, abs=0)


@given(rows_of_logits)
def test_the_trace_is_one_minus_the_sum_of_squares(logits):
    row = split_weights(logits)
    assert row.trace.shape == logits.shape[:-1]
    np.testing.assert_allclose(row.trace, 1 - np.square(row.weights).sum(axis=-1), rtol=1e-13, atol=4e-16)


@pytest.mark.parametrize("layout", ["C", "F"])
def test_the_layout_in_memory_is_of_no_account(layout, seed):
    logits = np.random.default_rng(seed).normal(0, 5, (3, 4, 6))
    turned = np.array(logits, order=layout)[::-1, :, ::-1]
    row, plain = split_weights(turned), split_weights(np.ascontiguousarray(turned))
    for part in PARTS:
        assert (getattr(row, part) == getattr(plain, part)).all()


# --- masked keys: B21 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [[0], [1, 3], [0, 1, 2]])
def test_masked_keys_change_nothing(masked, seed):
    rng = np.random.default_rng(seed)
    logits, keys = rng.normal(0, 3, (1, 1, 5)), rng.standard_normal((1, 5, 3))
    kept = np.delete(np.arange(5), masked)
    logits[..., masked] = -np.inf
    assert (split_weights(logits).weights[..., masked] == 0).all()
    (found,) = row_sizes(Heads(logits, (keys,)), [0.5], QUANTITIES)
    (without,) = row_sizes(Heads(logits[..., kept], (keys[:, kept],)), [0.5], QUANTITIES)
    for name in QUANTITIES:
        np.testing.assert_allclose(found[name], without[name], rtol=1e-12)


@pytest.mark.parametrize("function", [softmax, jacobian_sizes])
def test_a_fully_masked_row_is_refused_and_not_averaged_as_nan(function):
    with pytest.raises(ValueError, match="one key unmasked in each row; received a row of -inf only"):
        function([[1.0, 2.0, 3.0], [-np.inf, -np.inf, -np.inf]])
