"""Low precision: rounding against three independent roundings, thresholds, shares against exact chances.

Also the published share of vanished gradients that float32 inflates (A03) and overflow in float16 (B20, B21).
"""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from simulation import low_precision as module
from simulation.attention_heads import draw_rows
from simulation.decay_theory import gap_exceeds
from simulation.low_precision import FORMATS, ZERO_BITS, LowPrecisionResult, low_precision, round_to, zero_gradient
from simulation.model import QueryKeyModel
from simulation.softmax import jacobian_sizes, softmax

LEVEL = 1e-5  # of all shares of one run together: Bonferroni over its exact binomial tests
SHAPES = {"float16": (10, -14), "bfloat16": (7, -126), "float32": (23, -126)}  # bits after the point, least exponent
SPECIAL = [0.0, 2**-24, 2**-25, 2**-25 * (1 + 2**-20), 3 * 2**-26, 2**-14, 1 - 2**-11, 1 - 2**-12, 1 + 2**-11, 65504.0]
SPECIAL += [2**-133, 2**-134, 2**-134 * (1 + 2**-15), 3 * 2**-134, 1 + 2**-8, 1 + 3 * 2**-8, 2**-149, 2**-150, np.inf]


# --- rounding ----------------------------------------------------------------------------------------------------


def nearest(value, name):
    """The nearest number of a format, ties to even, in exact fractions."""
    if value == 0 or not math.isfinite(value):
        return value
    places, least = SHAPES[name]
    step = Fraction(2) ** (max(math.frexp(value)[1] - 1, least) - places)
    rounded = round(Fraction(value) / step) * step  # Python rounds ties to even
    largest = (2 - Fraction(2) ** -places) * Fraction(2) ** (1 - least)
    return math.copysign(math.inf, value) if abs(rounded) > largest else float(rounded)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("value", SPECIAL)
def test_ties_subnormals_and_infinity(name, value):
    for x in (value, -value):
        with np.errstate(over="ignore"):
            found = round_to(x, name)
        assert found == nearest(x, name)
        assert np.signbit(found) == np.signbit(x)


@pytest.mark.parametrize("name", FORMATS)
@given(exponent=st.integers(-140, 15), fraction=st.integers(0, 2**23 - 1))
def test_every_float32_rounds_to_the_nearest(name, exponent, fraction):
    value = float(np.float32(math.ldexp(1 + fraction * 2**-23, exponent)))
    assert round_to([value], name).tolist() == [nearest(value, name)]


@pytest.mark.parametrize("name", FORMATS)
@given(value=st.floats(-6e4, 6e4))
def test_rounding_again_changes_nothing_and_order_is_kept(name, value):
    once, up = round_to([value, np.nextafter(value, np.inf)], name)
    assert round_to(once, name) == once
    assert once <= up
    assert abs(once - value) <= max(
        abs(value) * 2.0 ** -(SHAPES[name][0] + 1), 2.0 ** (SHAPES[name][1] - SHAPES[name][0] - 1)
    )


@pytest.mark.parametrize("value", [1 + 2**-8 + 2**-30, 1 + 3 * 2**-8 - 2**-30, 2**-134 * (1 + 2**-16)])
def test_bfloat16_rounds_once(value):
    """Next to a tie, not on it: by way of float32 it would become one."""
    assert round_to(value, "bfloat16") == nearest(value, "bfloat16")


def test_bfloat16_is_that_of_ml_dtypes(seed):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(seed)
    values = np.ldexp(rng.uniform(-2, 2, 100_000), rng.integers(-150, 120, 100_000))
    values = np.concatenate([values, SPECIAL, softmax(rng.normal(0, 30, (1000, 20))).ravel()])
    single = values.astype(np.float32)  # ml_dtypes rounds float64 twice, by way of float32
    assert (round_to(single, "bfloat16") == single.astype(ml_dtypes.bfloat16).astype(np.float64)).all()


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("name", FORMATS)
def test_rounding_keeps_shape_and_input(name, shape):
    values = np.full(shape, 1 / 3)
    found = round_to(values, name)
    assert found.shape == shape
    assert found.dtype == np.float64
    assert (values == 1 / 3).all()
    assert (abs(found - 1 / 3) > 0).all()


def test_overflow_of_float16_as_published():
    """B20: the exact product overflows even when scaled; scaling q first keeps it. B21: a mask of -65504 may round."""
    with np.errstate(over="ignore"):
        assert (round_to([128 * 256 * 256, 128 * 256 * 256 / math.sqrt(128), 128 * 24 * 24], "float16") == np.inf).all()
        assert round_to([-65504 - 16, -65504 - 15], "float16").tolist() == [-np.inf, -65504]
    scaled_first = round_to(24 / math.sqrt(128), "float16") * 24 * 128
    assert round_to(scaled_first, "float16") == pytest.approx(6516.7, rel=2**-10)
    assert softmax([128 * 256 * 256, 0]).tolist() == [1, 0]  # in float64 nothing overflows


# --- thresholds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_thresholds_are_those_of_the_oracle_and_of_real_rounding(name, reference):
    known = reference["floating_point_thresholds"][name]
    gap = ZERO_BITS[name] * math.log(2)
    assert gap == pytest.approx(known["y_j_rounds_to_zero_gap"], rel=1e-14)
    below, above = round_to(softmax([[gap - 1e-4, 0.0], [gap + 1e-4, 0.0]]), name)
    assert below[1] > 0
    assert above.tolist() == [1, 0]
    assert zero_gradient(np.array([below, above])).tolist() == [False, True]
    one = known["y_max_rounds_to_one_gap"]
    below, above = round_to(softmax([[one - 1e-2, 0.0], [one + 1e-2, 0.0]]), name)
    assert below[0] < 1 == above[0]


def test_double_precision_keeps_gradients_to_its_own_threshold(reference):
    gap = reference["floating_point_thresholds"]["float64"]["y_j_rounds_to_zero_gap"]
    below, above = jacobian_sizes([[gap - 0.5, 0.0], [gap + 0.01, 0.0]]).trace
    assert below > 0 == above


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, 0.5, 2**-24, 1 - 2**-11]), min_size=3, max_size=3), min_size=1))
def test_a_zero_gradient_is_a_jacobian_of_zeros(rows):
    weights = np.array([row for row in rows if sum(x == 1 for x in row) <= 1] or [[1.0, 0, 0]])
    jacobian = np.eye(3) * weights[:, None, :] - weights[:, :, None] * weights[:, None, :]
    assert (zero_gradient(weights) == (jacobian == 0).all(axis=(1, 2))).all()


# --- shares ------------------------------------------------------------------------------------------------------


def least_p_value(result):
    """The smallest exact binomial p-value of the shares, times their number."""
    tests = [stats.binomtest(round(r.share * result.n_rows), result.n_rows, min(r.exact, 1)) for r in result.records]
    return min(test.pvalue for test in tests) * len(tests)


def test_shares_are_the_exact_chances(seed):
    result = low_precision([16, 64, 512, 2048], [2, 16, 128], n_rows=8000, rng=seed)
    assert len(result.records) == 4 * 3 * 2 * 3
    assert least_p_value(result) > LEVEL
    for record in result.records:
        if record.exact > 1e-6:
            expected = math.sqrt(record.exact * (1 - record.exact) / 8000)
            assert record.standard_error == pytest.approx(expected, rel=1e-9)


def test_scaled_rows_never_lose_their_gradient(seed):
    result = low_precision([16, 128, 10**6], [2, 128], n_rows=5000, rng=seed)
    assert all(r.share == 0 and r.exact < 1e-8 for r in result.records if r.scoring == "scaled_dot")
    assert "scaled_dot  float16   0 ± 1.4e-08              exact below 1e-12" in str(result)


@pytest.mark.parametrize("bits", [-1, 1])
@pytest.mark.parametrize("name", FORMATS)
def test_a_threshold_off_by_one_bit_is_told_apart(name, bits, seed, monkeypatch):
    run = {"formats": [name], "n_rows": 60_000, "rng": seed}
    d_k = 64 if name == "float16" else 3000
    assert least_p_value(low_precision([d_k], [2], **run)) > LEVEL
    monkeypatch.setitem(ZERO_BITS, name, ZERO_BITS[name] + bits * (1 if name == "float16" else 8))
    assert least_p_value(low_precision([d_k], [2], **run)) < LEVEL


# theory.md 3.8, float16 unscaled: simulated there, so good to some standard errors of about 5,000 rows
CHANCES = {
    2: {16: 0.004, 64: 0.125, 128: 0.28, 512: 0.59, 1024: 0.70},
    16: {64: 0.0041, 128: 0.028, 512: 0.21, 1024: 0.35},
    128: {64: 5e-4, 512: 0.107, 1024: 0.21},
    1024: {64: 4e-4, 1024: 0.14},
}


@pytest.mark.parametrize("n", CHANCES)
def test_the_table_of_chances(n):
    for d, published in CHANCES[n].items():
        chance = gap_exceeds(n, d, ZERO_BITS["float16"] * math.log(2), scale=1)
        error = math.sqrt(chance * (1 - chance) / 5000)
        assert abs(chance - published) < 3 * error  # 14 comparisons with fixed numbers: no false alarm by chance


@pytest.mark.parametrize(("n", "d"), [(2, 330), (16, 2218), (128, 4587), (1024, 7032)])
def test_where_the_median_row_is_dead(n, d):
    chances = [gap_exceeds(n, round(d * f), ZERO_BITS["float16"] * math.log(2), scale=1) for f in (0.98, 1.02)]
    assert chances[0] < 0.5 < chances[1]


def test_the_same_seed_gives_the_same_shares_on_any_number_of_workers():
    one, two = (low_precision([64], [300], n_rows=3000, rng=5, workers=w) for w in (1, 3))
    assert one == two
    alone = low_precision([512, 64], [2, 300], n_rows=3000, rng=5, formats=["float16"])
    pick = {(r.scoring, r.share) for r in alone.records if (r.d_k, r.n_keys) == (64, 300)}
    assert pick == {(r.scoring, r.share) for r in one.records if r.number_format == "float16"}


def test_every_cell_has_a_stream_of_its_own(monkeypatch):
    streams = []

    def spy(model, stream, *size):
        streams.append((stream.entropy, stream.spawn_key))
        return draw_rows(model, stream, *size)

    monkeypatch.setattr(module, "_CHUNK", 600)
    monkeypatch.setattr(module, "draw_rows", spy)
    low_precision([16, 64], [2, 3], n_rows=500, rng=1, workers=1)
    assert len(streams) == len(set(streams)) == 2 * (2 + 3)  # chunks of 300 and of 200 rows


def test_a_longer_run_keeps_the_rows_of_a_shorter_one(monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 600)
    counts = [low_precision([512], [2], n_rows=n, rng=1).records[0].share * n for n in (500, 600, 601)]
    assert counts[0] <= counts[1] <= counts[2] <= counts[1] + 1


def test_results_read_back_and_tabulate():
    steps = []
    result = low_precision([64, 512], [2], n_rows=500, rng=0, progress=lambda *step: steps.append(step))
    assert steps == [(1, 2), (2, 2)]
    assert LowPrecisionResult.from_json(result.to_json()) == result
    json.loads(result.to_json(), parse_constant=pytest.fail)
    frame = result.to_frame()
    assert len(frame) == len(result.records) == 12
    assert not frame.isna().any(axis=None)
    assert str(result).count("\n") == 12


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"d_k": []}, "`d_k` and `n_keys` must each hold at least one number"),
        ({"n_keys": []}, "`d_k` and `n_keys` must each hold at least one number"),
        ({"n_keys": [1]}, "`n_keys` must be a whole number from 2 to 4,096; received 1"),
        ({"n_keys": [5000]}, "`n_keys` must be a whole number from 2 to 4,096; received 5000"),
        ({"d_k": [0]}, "`d_k` must be a whole number from 1 to 1,000,000; received 0"),
        ({"n_rows": 99}, "`n_rows` must be a whole number from 100 to 10,000,000; received 99"),
        ({"formats": ["fp8"]}, "`formats` must be one of float16, bfloat16, float32; received 'fp8'"),
        ({"rng": -1}, "`rng` must be a whole number"),
        ({"workers": 0}, "`workers` must be a whole number"),
    ],
)
def test_bad_input_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        low_precision(**({"d_k": [4], "n_keys": [2], "n_rows": 100} | wrong))


# --- A03 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "exact", "inflated"), [(10, 6.7e-5, 7.0e-5), (100, 0.1509, 0.1608), (1000, 0.6674, 0.6941)]
)
def test_float32_inflates_the_share_of_vanished_gradients(d, exact, inflated, seed):
    """A03: the share of y (1 - y) <= 1e-10, 5 keys. Published shares are those of float32, where 1 - y is coarse.

    Both sides are simulations of 100,000 heads, so k sqrt(2) standard errors, k = 4.65 (3e-6 a comparison);
    those of rows drawn here, plus half a unit of the last printed digit.
    """
    rows = 100_000
    logits = draw_rows(QueryKeyModel(d), np.random.SeedSequence([seed, d]), rows, 5)
    y = softmax(logits)
    # 1 - y from the other weights, never by subtraction
    others = np.stack([np.delete(y, i, axis=1).sum(axis=1) for i in range(5)], axis=1)
    single = np.exp((logits - logits.max(axis=1, keepdims=True)).astype(np.float32))
    single /= single.sum(axis=1, keepdims=True)
    for small, published in ((y * others <= 1e-10, exact), (single * (1 - single) <= 1e-10, inflated)):
        shares = small.mean(axis=1)
        error = math.sqrt(2) * shares.std() / math.sqrt(rows)
        assert abs(shares.mean() - published) < 4.65 * error + (5e-7 if d == 10 else 5e-5)
    if d > 10:  # the two are told apart, and scaled rows lose nothing
        assert (single * (1 - single) <= 1e-10).mean() - (y * others <= 1e-10).mean() > 0.005
    assert (softmax(logits / math.sqrt(d)).min(axis=1) > 1e-10).all()
