"""Softmax, its Jacobian and its sizes: worked numbers, properties that always hold, derivatives."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simulation import jacobian_sizes, softmax, softmax_jacobian

SIZES = ("trace", "frobenius", "spectral_norm", "largest_entry", "entropy", "largest_weight", "rest")
TINY = 1e-300  # below it doubles lose digits, and relative bounds with them

rows = st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=8)
wide_rows = st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=8)
near_rows = st.lists(st.floats(-30, 30), min_size=1, max_size=8)
whole_rows = st.lists(st.integers(-10_000, 10_000), min_size=1, max_size=8)


def at_most(low, high):
    """Whether low <= high, but for rounding."""
    return low <= high * (1 + 1e-12) + TINY


def close(found, expected, rel=1e-12):
    return found == pytest.approx(expected, rel=rel, abs=TINY)


@pytest.mark.parametrize("name", ["[1,1,2]", "[10,10,20]", "[100,100,200]", "[3,1,-3]", "[30,10,-30]", "[0,0,0]"])
def test_the_source_documents(reference, name):
    source = reference["source_documents"][name]
    logits, sizes = source["logits"], jacobian_sizes(source["logits"])
    # the oracle's own digits for [100,100,200] end at the eighth: 1 - 7e-44 is 1 at 50 digits less
    rel = 1e-7 if name == "[100,100,200]" else 1e-12
    assert close(softmax(logits), np.array(source["softmax"], dtype=float))
    assert close(softmax_jacobian(logits), np.array(source["jacobian"], dtype=float), rel)
    for size in ("trace", "frobenius", "spectral_norm"):
        assert close(float(getattr(sizes, size)), float(source[size]), rel), size


def test_a_saturated_row_keeps_its_true_sizes():
    # [100,100,200]: J = t [[1,0,-1],[0,1,-1],[-1,-1,2]] with t the weight of the small logits
    t = math.exp(-100)
    sizes = jacobian_sizes([100, 100, 200])
    expected = {"trace": 4, "frobenius": math.sqrt(10), "spectral_norm": 3, "largest_entry": 2, "rest": 2}
    for name, multiple in expected.items():
        assert close(float(getattr(sizes, name)), multiple * t), name
    assert float(sizes.entropy) == pytest.approx(2 * t * 101, rel=1e-12)
    assert np.abs(softmax_jacobian([100, 100, 200])).max() == pytest.approx(7.440e-44, rel=1e-4)  # A01


@pytest.mark.parametrize(
    ("logits", "weights"),
    [
        ([0.1, -0.2, 0.3, -0.2, 0.5], [0.192498, 0.142606, 0.235117, 0.142606, 0.287173]),  # A02
        ([0.8, -1.6, 2.4, -1.6, 4.0], [0.032608, 0.002958, 0.161510, 0.002958, 0.799965]),
        ([10, 20, 30], [2.0611e-9, 4.5398e-5, 0.9999546001]),  # A07
        ([2.5, 5, 7.5], [0.0061883, 0.0753887, 0.9184230]),
        ([490, 495, 500], [4.5094e-5, 6.6925e-3, 0.9932623568]),  # A09
        ([0, 5, 10], [4.5094e-5, 6.6925e-3, 0.9932623568]),
        ([4.9, 4.95, 5.0], [0.316812, 0.333056, 0.350132]),
        ([1000, 1001, 1002], [0.0900306, 0.2447285, 0.6652410]),
        ([0, 10, 0, 0], [4.539e-5, 0.9998638, 4.539e-5, 4.539e-5]),  # A13
        ([10, 10, 20], [4.5395808e-5, 4.5395808e-5, 0.9999092084]),  # A01
    ],
)
def test_weights_that_people_have_published_or_got_wrong(logits, weights):
    assert softmax(logits) == pytest.approx(np.array(weights), rel=2e-4, abs=6e-7)


@pytest.mark.parametrize(
    ("logits", "name", "expected", "rel"),
    [
        ([0.1, -0.2, 0.3, -0.2, 0.5], "entropy", 1.5713, 1e-4),
        ([0.8, -1.6, 2.4, -1.6, 4.0], "entropy", 0.6191, 1e-4),
        ([10, -20, 30, -20, 50], "rest", 2.0612e-9, 1e-4),
        ([10, -20, 30, -20, 50], "largest_entry", 2.061e-9, 1e-3),
        ([10, -20, 30, -20, 50], "frobenius", 4.12e-9, 1e-3),
        ([300, 400, 500], "rest", 3.72e-44, 1e-3),
        ([1, 2, 3], "trace", 0.4894569, 1e-6),  # A12
        ([1, 2, 3], "frobenius", 0.3893898, 1e-6),
        ([1, 2, 3], "spectral_norm", 0.3709036, 1e-6),
        ([0, 10, 0, 0], "largest_entry", 1.3616e-4, 1e-4),
        ([0, 10, 0, 0], "entropy", 0.0015, 0.01),
    ],
)
def test_sizes_that_people_have_published(logits, name, expected, rel):
    assert float(getattr(jacobian_sizes(logits), name)) == pytest.approx(expected, rel=rel)


def test_jacobians_that_people_have_published_or_got_wrong():
    column = softmax_jacobian([1, 20, 3, 4])[:, 0]  # A05
    assert column == pytest.approx(np.array([5.6028e-9, -5.6028e-9, -2.3195e-16, -6.3051e-16]), rel=1e-4)
    column = softmax_jacobian([0.5, 10, 1.5, 2])[:, 0]
    assert column == pytest.approx(np.array([7.4800e-5, -7.4760e-5, -1.5211e-8, -2.5079e-8]), rel=1e-4)
    expected = [[0.0819251, -0.0220330, -0.0598920], [-0.0220330, 0.1848364, -0.1628034]]
    assert softmax_jacobian([1, 2, 3])[:2] == pytest.approx(np.array(expected), abs=1e-7)  # A12


def test_a_far_gap_keeps_the_tiny_component_of_the_gradient():
    # A27: y (1 - y) written naively gives [0, 5.55e-17], and the row no longer sums to 0
    gradient = softmax_jacobian([37.42994775023705, 0]) @ [1, 0]
    assert gradient == pytest.approx(np.array([5.5511e-17, -5.5511e-17]), rel=1e-4)
    assert gradient.sum() == 0


def test_the_gradient_of_a_weighted_sum_is_not_zero_but_that_of_the_sum_is():
    jacobian, y, w = softmax_jacobian([1, 2, 3]), softmax([1, 2, 3]), np.array([1, 2, 3])  # A29
    assert jacobian @ np.ones(3) == pytest.approx(np.zeros(3), abs=1e-16)
    assert w @ jacobian == pytest.approx(y * (w - w @ y), rel=1e-13)
    assert w @ jacobian == pytest.approx(np.array([-0.141817, -0.140770, 0.282588]), abs=1e-6)


def test_nothing_overflows_at_the_size_of_unscaled_logits():
    x = np.random.default_rng(0).normal(0, 8, (1000, 16))  # A19
    for logits in (x, 1e3 * x, 1e300 * x / np.abs(x).max()):
        assert softmax(logits).sum(axis=-1) == pytest.approx(np.ones(1000), rel=1e-14)


def test_the_widest_gap_of_doubles_is_one_hot_without_a_warning():
    assert softmax([1e308, -1e308]).tolist() == [1, 0]


@given(rows)
def test_weights_are_shares(logits):
    y = softmax(logits)
    assert ((y >= 0) & (y <= 1)).all()
    assert y.sum() == pytest.approx(1, rel=1e-14)
    assert y[np.argmax(logits)] == y.max()


@given(whole_rows, st.integers(-(10**6), 10**6))
def test_only_differences_of_logits_count(logits, shift):
    moved = [logit + shift for logit in logits]  # exact in float64, so the results are equal bit for bit
    assert (softmax(moved) == softmax(logits)).all()
    assert (softmax_jacobian(moved) == softmax_jacobian(logits)).all()
    for name in SIZES:
        assert getattr(jacobian_sizes(moved), name) == getattr(jacobian_sizes(logits), name)


@given(rows, st.randoms(use_true_random=False))
def test_the_order_of_keys_only_moves_the_weights(logits, random):
    order = list(range(len(logits)))
    random.shuffle(order)
    shuffled = [logits[i] for i in order]
    assert close(softmax(shuffled), softmax(logits)[order])
    for name in SIZES:
        assert close(getattr(jacobian_sizes(shuffled), name), float(getattr(jacobian_sizes(logits), name)), 1e-11)


@given(rows)
def test_a_jacobian_is_symmetric_with_rows_that_sum_to_zero_and_a_bounded_diagonal(logits):
    jacobian = softmax_jacobian(logits)
    diagonal = np.diagonal(jacobian)
    assert (jacobian == jacobian.T).all()
    assert np.abs(jacobian.sum(axis=1)).max() <= 1e-15 * diagonal.max() + TINY
    assert ((diagonal >= 0) & (diagonal <= 0.25 * (1 + 1e-15))).all()
    assert np.abs(jacobian).max() == diagonal.max()
    assert (jacobian - np.diag(diagonal) <= 0).all()


@given(rows)
def test_sizes_are_those_of_the_matrix(logits):
    jacobian, sizes, y = softmax_jacobian(logits), jacobian_sizes(logits), softmax(logits)
    largest = np.abs(jacobian).max()
    assume(largest == 0 or largest > 1e-280)  # next to the smallest doubles digits are lost on both sides
    unit = jacobian / largest if largest else jacobian
    assert close(float(sizes.trace), np.trace(jacobian))
    assert close(float(sizes.largest_entry), largest)
    assert close(float(sizes.frobenius), largest * np.linalg.norm(unit))
    assert close(float(sizes.spectral_norm), largest * np.linalg.eigvalsh(unit)[-1], 1e-11)
    assert np.linalg.eigvalsh(unit)[0] >= -1e-13
    assert float(sizes.largest_weight) == y.max()
    assert float(sizes.rest) == pytest.approx(math.fsum(np.sort(y)[:-1]), rel=1e-13, abs=TINY)


@given(wide_rows)
def test_sizes_keep_the_bounds_of_the_theory(logits):
    sizes, y = jacobian_sizes(logits), np.sort(softmax(logits))[::-1]
    n, norm, diagonal = y.size, float(sizes.spectral_norm), float(sizes.largest_entry)
    assert at_most(y[1], norm)  # interlacing
    assert at_most(norm, y[0])
    assert at_most(n / (n - 1) * diagonal, norm)
    assert at_most(norm, 2 * diagonal)  # Gershgorin
    assert at_most(norm, 0.5)  # Nair 2025
    assert at_most(norm, float(sizes.frobenius))
    assert at_most(float(sizes.frobenius), float(sizes.trace))
    assert at_most(float(sizes.trace), 1 - 1 / n)
    assert at_most(0, float(sizes.entropy))
    assert at_most(float(sizes.entropy), math.log(n))


@given(near_rows)
def test_moment_formulas_hold_where_they_do_not_cancel(logits):
    y, sizes = softmax(logits), jacobian_sizes(logits)
    square = np.sum(y**2)
    assert float(sizes.trace) == pytest.approx(1 - square, abs=1e-14)
    assert float(sizes.frobenius) ** 2 == pytest.approx(square - 2 * np.sum(y**3) + square**2, abs=1e-14)
    assert float(sizes.entropy) == pytest.approx(-np.sum(y * np.log(y)), abs=1e-13)


@given(near_rows)
def test_the_jacobian_is_the_derivative_by_complex_step(logits):
    h = 1e-30
    steps = np.array(logits) - max(logits) + 1j * h * np.eye(len(logits))
    weights = np.exp(steps) / np.exp(steps).sum(axis=1, keepdims=True)  # the textbook formula, no shift trick
    assert softmax_jacobian(logits) == pytest.approx((weights.imag / h).T, abs=1e-14)


@given(near_rows)
def test_the_jacobian_is_the_derivative_of_this_very_softmax(logits):
    h = 1e-4
    steps = h * np.eye(len(logits))
    differences = (softmax(logits + steps) - softmax(logits - steps)) / (2 * h)
    assert softmax_jacobian(logits) == pytest.approx(differences.T, abs=1e-8)


def test_equal_weights_on_two_keys_are_the_widest_stretch():
    sizes = jacobian_sizes([[5, 5, -1e4], [0, 0, 0]])
    assert sizes.spectral_norm == pytest.approx(np.array([1 / 2, 1 / 3]), rel=1e-14)
    assert sizes.entropy == pytest.approx(np.log([2, 3]), rel=1e-14)


def test_a_single_key_has_weight_one_and_no_gradient():
    assert softmax([7]).tolist() == [1]
    assert softmax_jacobian([7]).tolist() == [[0]]
    for name in ("trace", "frobenius", "spectral_norm", "largest_entry", "entropy", "rest"):
        assert float(getattr(jacobian_sizes([7]), name)) == 0


def test_batches_of_any_leading_axes_equal_their_rows():
    x = np.random.default_rng(0).normal(0, 10, (2, 3, 4))
    sizes = jacobian_sizes(x)
    assert softmax_jacobian(x).shape == (2, 3, 4, 4)
    for place in np.ndindex(2, 3):
        assert softmax(x)[place].tolist() == softmax(x[place]).tolist()
        assert softmax_jacobian(x)[place].tolist() == softmax_jacobian(x[place]).tolist()
        for name in SIZES:
            assert getattr(sizes, name).shape == (2, 3)
            assert close(float(getattr(sizes, name)[place]), float(getattr(jacobian_sizes(x[place]), name)))
    for axis in (0, 1, -2):
        assert (softmax(x, axis=axis) == np.moveaxis(softmax(np.moveaxis(x, axis, -1)), -1, axis)).all()
    assert softmax(np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", ">f8", ">i2", "i1", "u4", "?", "longdouble"])
def test_any_real_type_and_layout_gives_float64(dtype):
    plain = np.array([[3.0, 1.0, 0.0, 7.0], [0.0, 1.0, 1.0, 0.0]])
    given_type = plain.astype(dtype)
    expected = softmax(given_type.astype(np.float64))
    padded = np.zeros((4, 8), dtype=dtype)
    padded[::2, ::2] = given_type
    for layout in (given_type, np.asfortranarray(given_type), padded[::2, ::2], given_type[::-1][::-1]):
        before = layout.copy()
        layout.flags.writeable = False
        for found in (softmax(layout), softmax_jacobian(layout), jacobian_sizes(layout).trace):
            assert found.dtype == np.float64
            assert found.dtype.isnative
        assert (softmax(layout) == expected).all()
        assert (layout == before).all()


def test_float16_logits_are_lifted_before_anything_is_computed():
    # in float16, 1 - y of the largest weight rounds to 0 from a gap of 8.3 on
    x = np.array([20, 0], dtype=np.float16)
    assert float(jacobian_sizes(x).rest) == pytest.approx(1 / (1 + math.exp(20)), rel=1e-14)


@given(near_rows, st.sets(st.integers(0, 8), max_size=4))
def test_masked_keys_have_weight_zero_and_change_nothing_else(logits, places):
    masked = list(logits)
    for place in sorted(places):
        masked.insert(min(place, len(masked)), -math.inf)
    kept = np.isfinite(masked)
    assert close(softmax(masked)[kept], softmax(logits))
    assert (softmax(masked)[~kept] == 0).all()
    assert close(softmax_jacobian(masked)[np.ix_(kept, kept)], softmax_jacobian(logits))
    assert (softmax_jacobian(masked)[~kept] == 0).all()
    for name in SIZES:
        assert close(getattr(jacobian_sizes(masked), name), float(getattr(jacobian_sizes(logits), name)))


def test_a_hundred_thousand_keys_have_sizes_but_no_matrix():
    n = 100_000
    sizes = jacobian_sizes(np.zeros(n))
    assert float(sizes.trace) == pytest.approx(1 - 1 / n, rel=1e-12)
    assert float(sizes.spectral_norm) == pytest.approx(1 / n, rel=1e-12)
    assert float(sizes.entropy) == pytest.approx(math.log(n), rel=1e-12)
    with pytest.raises(ValueError, match=r"`logits` of shape \(100000,\) would need a Jacobian of 10,000,000,000"):
        softmax_jacobian(np.zeros(n))


def test_the_spectral_norm_is_left_out_on_request():
    assert math.isnan(jacobian_sizes([3, 1, -3], spectral=False).spectral_norm)
    assert jacobian_sizes([3, 1, -3], spectral=False).trace == jacobian_sizes([3, 1, -3]).trace
