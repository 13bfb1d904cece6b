"""Sizes of rows: against explicit matrices, 700 decimal digits, complex steps, and bounds that always hold."""

import decimal
import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from simulation import attention_heads
from simulation.attention_heads import Heads, draw_heads
from simulation.model import QueryKeyModel
from simulation.row_sizes import QUANTITIES, row_sizes
from simulation.scoring import Scoring, weights_gradient
from simulation.softmax import softmax, softmax_jacobian

WITHOUT_KEYS = tuple(name for name in QUANTITIES if name != "query_gradient")

rows_of_logits = st.tuples(st.integers(1, 3), st.integers(2, 9)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.floats(-1e4, 1e4))
)


def sizes_of_head(logits, keys, scales, names):
    """Sizes of one head, arrays (m,), one dict for each scale; `keys` are slices (n, w)."""
    head = Heads(np.array(logits, dtype=float, ndmin=2)[None], tuple(part[None] for part in keys))
    return [{name: values[0] for name, values in found.items()} for found in row_sizes(head, scales, names)]


def sizes_at(logits, scale=1.0):
    """All sizes that need no keys."""
    return sizes_of_head(logits, (), [scale], WITHOUT_KEYS)[0]


def query_gradient(logits, keys, scale=1.0):
    """Query gradient, with the keys in one slice."""
    return sizes_of_head(logits, (keys,), [scale], ("query_gradient",))[0]["query_gradient"]


def drawn(seed, m, n, d, spread=1.0):
    rng = np.random.default_rng([seed, m, n, d])
    q, k = spread * rng.standard_normal((m, d)), rng.standard_normal((n, d))
    return q, k, q @ k.T


def decimal_sizes(logits, keys, scale):
    """Trace, Frobenius norm, and |scale J K|_F of one row, J formed entry by entry in 700 digits."""
    with decimal.localcontext(decimal.Context(prec=700, Emin=-(10**6), Emax=10**6)):
        e = [(Decimal(scale) * Decimal(float(x))).exp() for x in logits]
        y = [value / sum(e) for value in e]
        jacobian = [[y_i * ((i == j) - y_j) for j, y_j in enumerate(y)] for i, y_i in enumerate(y)]
        k = [[Decimal(float(entry)) for entry in key] for key in keys]
        product = [
            [sum(a * b for a, b in zip(row, column, strict=True)) for column in zip(*k, strict=True)]
            for row in jacobian
        ]
        frobenius = sum(entry * entry for row in jacobian for entry in row).sqrt()
        gradient = Decimal(scale) * sum(entry * entry for row in product for entry in row).sqrt()
        return float(sum(jacobian[i][i] for i in range(len(y)))), float(frobenius), float(gradient)


# --- the query gradient ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n", "d"), [(1, 2, 1), (4, 3, 8), (5, 16, 4), (2, 64, 32)])
@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0])
def test_the_query_gradient_is_the_norm_of_the_matrix(m, n, d, scale, seed):
    q, k, logits = drawn(seed, m, n, d)
    expected = np.linalg.norm(scale * softmax_jacobian(scale * logits) @ k, axis=(1, 2))
    np.testing.assert_allclose(query_gradient(logits, k, scale), expected, rtol=1e-11)
    other_way = weights_gradient(q, k, Scoring().times("scale", scale))
    np.testing.assert_allclose(query_gradient(logits, k, scale), np.linalg.norm(other_way, axis=(1, 2)), rtol=1e-11)


@pytest.mark.parametrize(
    ("logits", "size"),
    [
        ([600, 0, -3, -700], 1e-260),
        ([0, 600, 600 - 1e-9, 1], 1),
        ([0, 700, 0, 0], 1e-304),
        ([-1e4, 1e4, 1e4 - 37.5, 1e4 - 40], 1e-16),
        ([5.0, 5.0, 5.0, -200.0], 1),
        ([1.5, 0.25, -2.0, 0.0], 1),
    ],
)
def test_saturated_rows_keep_their_digits(logits, size, seed):
    keys = np.random.default_rng(seed).standard_normal((4, 3))
    for scale in (1.0, 0.5):
        trace, frobenius, gradient = decimal_sizes(logits, keys, scale)
        found = sizes_at(logits, scale)
        assert found["trace"][0] == pytest.approx(trace, rel=1e-13, abs=0)
        assert found["frobenius"][0] == pytest.approx(frobenius, rel=1e-13, abs=0)
        assert query_gradient(logits, keys, scale)[0] == pytest.approx(gradient, rel=1e-12, abs=0)
        assert 0 < gradient < 1e4 * size**scale


def test_a_gradient_of_one_minus_the_sum_of_squares_would_be_lost(seed):
    """Negative control of the test above: the formula as it is written in books."""
    y = softmax([600, 0, -3, -700])
    assert 1 - np.square(y).sum() == 0
    keys = np.random.default_rng(seed).standard_normal((4, 3))
    mean = y @ keys
    naive = np.sqrt(np.square(y[:, None] * (keys - mean)).sum())
    exact = decimal_sizes([600, 0, -3, -700], keys, 1)[2]
    assert abs(naive / exact - 1) > 0.1


def test_beyond_the_range_of_doubles_all_is_zero_without_a_warning():
    found = sizes_at([[800.0, 0.0, 1.0], [-1e308, 1e308, 0.0]])
    for name in set(WITHOUT_KEYS) - {"largest_weight"}:
        assert (found[name] == 0).all(), name
    assert (found["largest_weight"] == 1).all()
    assert (query_gradient([[800.0, 0.0, 1.0]], np.ones((3, 2))) == 0).all()


def test_the_query_gradient_is_the_derivative(seed):
    """By complex steps, good to rounding, and by central differences of this very softmax."""
    (q, k, logits), h = drawn(seed, 3, 7, 5), 1e-5
    for scale in (0.2, 1.0):
        x = scale * (q[:, None, :] + 1e-30j * np.eye(5)) @ k.T  # (m, d, n): one component of q moved at a time
        e = np.exp(x - x.real.max(axis=-1, keepdims=True))
        complex_step = (e / e.sum(axis=-1, keepdims=True)).imag / 1e-30
        found = query_gradient(logits, k, scale)
        np.testing.assert_allclose(found, np.linalg.norm(complex_step, axis=(1, 2)), rtol=1e-12)
        ahead, behind = (softmax(scale * (q[:, None, :] + sign * np.eye(5)) @ k.T) for sign in (h, -h))
        # off by h^2 times a third derivative of order 10, and by rounding, 1e-16 / h
        np.testing.assert_allclose(found, np.linalg.norm((ahead - behind) / (2 * h), axis=(1, 2)), rtol=1e-7)
        without_chain_rule = found / scale
        assert scale == 1 or not np.allclose(without_chain_rule, np.linalg.norm(complex_step, axis=(1, 2)), rtol=0.1)


@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e-5])
def test_a_common_offset_of_the_keys_takes_no_digits(spread, seed):
    """J 1 = 0: with k_mean = 10^4 and a small k_std, squares of whole keys would swamp their differences."""
    _, k, logits = drawn(seed, 3, 6, 4)
    keys = 1e4 + spread * k
    np.testing.assert_allclose(query_gradient(logits, keys), query_gradient(logits, keys - 1e4), rtol=1e-10 / spread)


# --- slices and scales -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", [[1], [1, 2, 3], [5, 9], list(range(1, 12))])
def test_slices_of_the_keys_add_up(cuts, seed):
    _, k, logits = drawn(seed, 4, 6, 12)
    whole = sizes_of_head(logits, (k,), [0.3, 1.0], QUANTITIES)
    sliced = sizes_of_head(logits, np.split(k, cuts, axis=1), [0.3, 1.0], QUANTITIES)
    for one, other in zip(whole, sliced, strict=True):
        for name in QUANTITIES:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-12)


def test_heads_too_large_to_keep_equal_the_same_heads_kept(seed, monkeypatch):
    monkeypatch.setattr(attention_heads, "heads_in_chunk", lambda *_: 3)
    monkeypatch.setattr(attention_heads, "_SLICE_NUMBERS", 3 * 10 * 5)
    heads = draw_heads(QueryKeyModel(33), np.random.SeedSequence(seed), 4, 6, "plain")
    slices = list(heads.key_slices)
    assert len(slices) == 7
    kept = Heads(heads.logits, (np.concatenate(slices, axis=-1),))
    for one, other in zip(*(row_sizes(h, [33**-0.5, 1.0], QUANTITIES) for h in (heads, kept)), strict=True):
        np.testing.assert_allclose(one["query_gradient"], other["query_gradient"], rtol=1e-12)


def test_many_heads_equal_one_at_a_time(seed):
    heads = draw_heads(QueryKeyModel(5), np.random.SeedSequence(seed), 3, 4, "plain", keep=6)
    (keys,) = heads.key_slices
    together = row_sizes(heads, [0.4], QUANTITIES)[0]
    for place in range(6):
        alone = sizes_of_head(heads.logits[place], (keys[place],), [0.4], QUANTITIES)[0]
        for name in QUANTITIES:
            np.testing.assert_allclose(together[name][place], alone[name], rtol=1e-12)


def test_several_scales_equal_one_at_a_time(seed):
    _, k, logits = drawn(seed, 3, 5, 4)
    both = sizes_of_head(logits, (k,), [0.5, 2.0], QUANTITIES)
    for scale, found in zip([0.5, 2.0], both, strict=True):
        alone = sizes_of_head(scale * logits, (k,), [1.0], QUANTITIES)[0]
        alone["query_gradient"] = scale * alone["query_gradient"]
        assert set(found) == set(QUANTITIES)
        for name in QUANTITIES:
            np.testing.assert_allclose(found[name], alone[name], rtol=1e-14)


@pytest.mark.parametrize("asked", [("trace",), ("query_gradient",), ("spectral_norm", "logit_gradient"), ()])
def test_only_what_is_asked_for_is_returned(asked, seed):
    _, k, logits = drawn(seed, 3, 5, 4)
    everything = sizes_of_head(logits, (k,), [1.0], QUANTITIES)[0]
    found = sizes_of_head(logits, (k,), [1.0], asked)[0]
    assert set(found) == set(asked)
    assert all((found[name] == everything[name]).all() for name in asked)


# --- what always holds -------------------------------------------------------------------------------------------


def at_most(small, large, rel=1e-12):
    """Whether small <= large, to rounding; subnormal numbers have few digits."""
    return (small <= large * (1 + rel) + 1e-300).all()


@given(rows_of_logits)
def test_sizes_keep_the_bounds_of_the_theory(logits):
    found, n = sizes_at(logits), logits.shape[1]
    trace, frobenius, norm, entry = (found[k] for k in ("trace", "frobenius", "spectral_norm", "largest_entry"))
    assert all(np.isfinite(values).all() and (values >= 0).all() for values in found.values())
    assert at_most(trace, 1 - 1 / n)
    assert at_most(entry * n / (n - 1), norm)
    assert at_most(norm, np.minimum(2 * entry, 0.5))
    assert at_most(norm, frobenius)
    assert at_most(frobenius, trace)
    assert at_most(trace, math.sqrt(n - 1) * frobenius)
    assert (entry <= 0.25).all()
    assert at_most(found["entropy"], math.log(n))
    assert at_most(1 / n, found["largest_weight"])
    assert (found["largest_weight"] <= 1).all()
    assert (found["logit_gradient"] == frobenius).all()


@given(rows_of_logits)
def test_sizes_are_those_of_a_symmetric_matrix_whose_rows_sum_to_zero(logits):
    jacobian, found = softmax_jacobian(logits), sizes_at(logits)
    assert (jacobian == jacobian.swapaxes(-1, -2)).all()
    diagonal = np.diagonal(jacobian, axis1=-2, axis2=-1)
    assert ((diagonal >= 0) & (diagonal <= 0.25)).all()
    assert (abs(jacobian.sum(axis=-1)) <= 1e-15 * logits.shape[1]).all()
    matrix = {
        "trace": (diagonal.sum(axis=-1), 1e-300),
        "frobenius": (np.linalg.norm(jacobian, axis=(-2, -1)), 1e-150),  # squares of smaller entries vanish
        "largest_entry": (abs(jacobian).max(axis=(-2, -1)), 1e-300),
        "spectral_norm": (np.linalg.eigvalsh(jacobian)[..., -1], 1e-15),
    }
    for name, (value, smallest) in matrix.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-11, atol=smallest)


@given(rows_of_logits, st.integers(0, 2**32))
def test_the_query_gradient_is_bounded_and_sees_differences_of_keys_only(logits, number):
    keys = np.random.default_rng(number).standard_normal((logits.shape[1], 3))
    found, sizes = query_gradient(logits, keys), sizes_at(logits)
    centred = keys - keys.mean(axis=0)  # J 1 = 0
    assert at_most(found, sizes["spectral_norm"] * np.linalg.norm(centred), rel=1e-9)
    for same in (
        query_gradient(logits, keys + np.array([3.0, -1.0, 0.5])),
        query_gradient(logits, 7 * keys) / 7,
        query_gradient(logits[:, ::-1], keys[::-1]),
    ):
        np.testing.assert_allclose(same, found, rtol=1e-9, atol=1e-300)
    assert at_most(query_gradient(logits, np.ones_like(keys)), 1e-7 * sizes["trace"])


@given(rows_of_logits, st.integers(-10_000, 10_000))
def test_only_differences_of_logits_count(logits, shift):
    whole = np.round(logits)  # a shift rounds nothing
    moved = sizes_at(whole + shift)
    assert all((moved[name] == values).all() for name, values in sizes_at(whole).items())


# --- cases -------------------------------------------------------------------------------------------------------


def test_the_decay_has_no_floor_where_the_largest_weight_rounds_to_one():
    """A27: at gap 37.43 the naive y (1 - y) of the larger weight is 0; here the decay goes on to the end of doubles."""
    found = sizes_at([[37.42994775023705, 0.0]])
    assert found["trace"][0] == pytest.approx(2 * 5.5511e-17, rel=1e-4)
    assert found["largest_entry"][0] == pytest.approx(5.5511e-17, rel=1e-4)
    y = softmax([37.42994775023705, 0.0])
    assert y[0] * (1 - y[0]) == 0  # what the sizes must not be made of
    gaps = np.arange(1.0, 700.0)
    trace = sizes_at(np.column_stack([gaps, 0 * gaps]))["trace"]
    np.testing.assert_allclose(trace, 0.5 / np.cosh(gaps / 2) ** 2, rtol=1e-13)


def test_the_gradient_is_of_the_weights_and_not_of_their_sum(seed):
    """A29: the sum of the weights has gradient 0 for every q; the norm of the whole Jacobian has not."""
    keys = np.random.default_rng(seed).standard_normal((3, 4))
    jacobian = softmax_jacobian([1, 2, 3])
    np.testing.assert_allclose(np.ones(3) @ jacobian @ keys, 0, atol=1e-15)
    assert np.array([1, 2, 3]) @ jacobian == pytest.approx(np.array([-0.141817, -0.140770, 0.282588]), abs=1e-6)
    assert query_gradient([1, 2, 3], keys)[0] == pytest.approx(np.linalg.norm(jacobian @ keys), rel=1e-12)
    assert query_gradient([1, 2, 3], keys)[0] > 0.01


@pytest.mark.parametrize(
    ("cap", "values", "slopes"),
    [
        (50, [7.9324, 21.1771, 38.0797, 48.2014, 50.0000], [0.9749, 0.8206, 0.4200, 0.07065, 8.2e-9]),
        (30, [7.8156, 19.1140, 27.9333, 29.9237, 30.0], [0.9321, 0.5941, 0.1330, 0.00508, 1.3e-14]),
    ],
)
def test_a_soft_cap_puts_its_slope_on_top_of_the_decay(cap, values, slopes):
    """B24: one key at logit x, one at 0 and J's entries from this module's sizes, so the quotient is sech^2(x/cap)."""
    for x, value, slope in zip([8, 22.6, 50, 100, 500], values, slopes, strict=True):
        gradient = weights_gradient([[x]], [[1.0], [0.0]], Scoring().capped(cap))
        capped = query_gradient([value, 0.0], np.array([[1.0], [0.0]]))[0]
        # `value` is printed to 4 decimals, the slope to 2 to 4 digits
        assert np.linalg.norm(gradient) == pytest.approx(slope * capped, rel=0.04 if slope < 1e-3 else 1e-3)
