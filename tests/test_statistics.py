"""Streaming moments that merge, their standard errors and intervals, and the planner."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from simulation import QueryKeyModel, samples_for_precision
from simulation.statistics import Estimate, MomentState, normal_quantile, standard_errors

numbers = st.lists(st.floats(-1e3, 1e3), max_size=30)
FIELDS = ("mean", "m2", "m3", "m4")


def same_state(found, expected, spread):
    """Equal counts, and sums equal to rounding for numbers of size `spread`."""
    assert found.n == expected.n
    for name, power in zip(FIELDS, (1, 2, 3, 4), strict=True):
        allowed = 1e-12 * (found.n + 1) * spread**power
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-11, abs=allowed), name


def test_moments_of_a_few_numbers():
    x = [1, 2, 3, 4, 5, 6, 7, 10]
    state = MomentState.of(x)
    assert (state.n, state.mean) == (8, 4.75)
    assert state.variance == 8.5  # C06: divided by n - 1; by n it would be 7.4375
    assert state.variance == 7.4375 * 8 / 7
    assert state.skewness == pytest.approx(stats.skew(x), rel=1e-14)
    assert state.kurtosis == pytest.approx(stats.kurtosis(x, fisher=False), rel=1e-14)


def test_what_is_undefined_is_nan_and_never_zero():
    empty, single, constant = MomentState(), MomentState.of([5]), MomentState.of([5, 5, 5])
    assert (single.n, single.mean, constant.variance) == (1, 5, 0)
    for value in (empty.variance, single.variance, empty.skewness, constant.skewness, constant.kurtosis):
        assert math.isnan(value)


@given(numbers, st.integers(1, 7))
def test_merging_chunks_equals_one_pass(values, size):
    chunks = [values[i : i + size] for i in range(0, len(values), size)]
    merged = MomentState()
    for chunk in chunks:
        merged = merged.merge(MomentState.of(chunk))
    same_state(merged, MomentState.of(values), 1e3)


@given(numbers, numbers, numbers)
def test_chunks_merge_in_any_order_and_grouping(a, b, c):
    whole = MomentState.of([*a, *b, *c])
    for x, y, z in itertools.permutations([MomentState.of(part) for part in (a, b, c)]):
        same_state(x.merge(y).merge(z), whole, 1e3)
        same_state(x.merge(y.merge(z)), whole, 1e3)


@given(numbers)
def test_an_empty_side_changes_nothing(values):
    state = MomentState.of(values)
    assert state.merge(MomentState()) == state  # C04: no NaN, on either side
    assert MomentState().merge(state) == state
    assert MomentState.of([]) == MomentState()


def test_merging_leaves_both_sides_as_they_were():
    left, right = MomentState.of([1, 2]), MomentState.of([5])
    left.merge(right)
    assert (left, right) == (MomentState.of([1, 2]), MomentState.of([5]))


@pytest.mark.parametrize("shift", [1e4, 1e8, -1e8])
def test_a_large_mean_costs_the_variance_no_digits(shift):
    x = np.random.default_rng(0).integers(-8, 9, 40_000).astype(np.float64)  # sums of shifted values stay exact
    exact = MomentState.of(x)
    chunks = [MomentState.of(part + shift) for part in np.split(x, 40)]
    merged = chunks[0]
    for chunk in chunks[1:]:
        merged = merged.merge(chunk)
    for found in (MomentState.of(x + shift), merged):
        assert found.variance == pytest.approx(exact.variance, rel=1e-10)
        assert found.kurtosis == pytest.approx(exact.kurtosis, rel=1e-9)
        assert found.skewness == pytest.approx(exact.skewness, abs=1e-8)


def test_the_sum_of_squares_written_naively_would_lose_them_all():
    x = np.random.default_rng(0).integers(-8, 9, 40_000) + 1e8  # negative control of the test above
    assert abs((np.mean(x**2) - np.mean(x) ** 2) / MomentState.of(x).variance - 1) > 1e-3


def test_half_precision_is_lifted_before_it_is_summed():
    x = np.arange(1024, dtype=np.float16).repeat(256)  # C05: numpy's float16 standard deviation is inf here
    assert math.sqrt(MomentState.of(x).variance) == pytest.approx(math.sqrt((1024**2 - 1) / 12), rel=1e-5)
    assert MomentState.of(x).mean == 511.5


def test_single_precision_chunks_do_not_stop_growing_at_2_to_the_24():
    ones = MomentState.of(np.ones(2**20, np.float32))  # C01
    total = MomentState()
    for _ in range(40):
        total = total.merge(ones)
    assert (total.n, total.mean, total.m2) == (40 * 2**20, 1, 0)


def test_numbers_too_small_for_a_fourth_power_have_no_shape_rather_than_a_wrong_one():
    small = np.array([1, 2, 4, 9]) * 1e-60
    assert MomentState.of(small).kurtosis == pytest.approx(MomentState.of([1, 2, 4, 9]).kurtosis, rel=1e-12)
    assert math.isnan(MomentState.of(small * 1e-40).kurtosis)


def test_standard_errors_of_a_normal_law_are_the_classical_ones():
    normal, n = [1, 0, 1, 0, 3, 0, 15, 0, 105], 10_000
    found = standard_errors(normal, 4.0, n)
    assert found["mean"] == pytest.approx(2 / math.sqrt(n), rel=1e-14)
    assert found["variance"] == pytest.approx(4 * math.sqrt(2 / (n - 1)), rel=1e-12)
    assert found["skewness"] == pytest.approx(math.sqrt(6 / n), rel=1e-14)
    assert found["kurtosis"] == pytest.approx(math.sqrt(24 / n), rel=1e-14)


def test_the_standard_error_of_the_variance_matches_the_oracle(reference):
    for row in reference["variance_estimator"]["rows"]:
        moments = QueryKeyModel(row["d"]).standardised_moments()
        for n, expected in row["rel_var_s2"].items():
            assert standard_errors(moments, 1.0, int(n))["variance"] ** 2 == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("model", [QueryKeyModel(3, correlation=0.7), QueryKeyModel(2, "laplace", q_mean=1, k_mean=2)])
def test_standard_errors_of_shape_are_cramers_for_a_skewed_law(model):
    # Cramér (1946), Mathematical Methods of Statistics, 27.7: large-n variances from moments to order 8
    m = model.standardised_moments()
    found = standard_errors(m, 1.0, 1000)
    skewness = m[6] - 6 * m[4] + 9 + m[3] ** 2 * (9 * m[4] + 35) / 4 - 3 * m[3] * m[5]
    kurtosis = m[8] - 4 * m[4] * m[6] - 8 * m[3] * m[5] + 4 * m[4] ** 3 - m[4] ** 2 + 16 * m[3] ** 2 * (m[4] + 1)
    assert abs(m[3]) > 0.3
    assert found["skewness"] == pytest.approx(math.sqrt(skewness / 1000), rel=1e-12)
    assert found["kurtosis"] == pytest.approx(math.sqrt(kurtosis / 1000), rel=1e-12)


def test_standard_errors_of_skewness_and_kurtosis_at_64_as_on_the_method_page():
    for d_k, expected in ((1, 5760), (64, 31.3)):
        found = standard_errors(QueryKeyModel(d_k).standardised_moments(), 1.0, 100)["kurtosis"]
        assert 100 * found**2 == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("model", [QueryKeyModel(8, "laplace"), QueryKeyModel(16, correlation=0.6)])
def test_standard_errors_are_the_spread_of_repeated_runs(model, seed):
    # 800 runs of 2,000 pairs. A ratio of variances has s.e. sqrt((kurtosis - 1)/800), about 6 % here
    # (kurtosis of the estimates at most 4); 5 of these, and 10 % for the delta method at n = 2,000.
    rng = np.random.default_rng(seed)
    z, e = (_entries(model, rng, (800, 2000, model.d_k)) for _ in range(2))
    k = model.correlation * z + math.sqrt(1 - model.correlation**2) * e
    states = [MomentState.of(run) for run in np.einsum("rni,rni->rn", z, k)]
    errors = standard_errors(model.standardised_moments(), model.moments().variance, 2000)
    for name in ("mean", "variance", "skewness"):
        spread = np.std([getattr(state, name) for state in states], ddof=1)
        assert (spread / errors[name]) ** 2 == pytest.approx(1, abs=0.4), name


def _entries(model, rng, shape):
    if model.entries == "laplace":
        return rng.laplace(0, math.sqrt(0.5), shape).astype(np.float32)
    return rng.standard_normal(shape, dtype=np.float32)


def coverage(d_k, n, repeats, rng):
    """Shares of `repeats` 95 % intervals for the variance that hold d_k: by exact kurtosis, by chi-square."""
    radius = rng.chisquare(d_k, (repeats, n))  # q·k given |q|^2 = radius is N(0, radius)
    s2 = np.array([MomentState.of(run).variance for run in rng.standard_normal((repeats, n)) * np.sqrt(radius)])
    error = standard_errors(QueryKeyModel(d_k).standardised_moments(), float(d_k), n)["variance"]
    by_kurtosis = np.abs(s2 - d_k) <= normal_quantile(0.95) * error
    low, high = stats.chi2.ppf([0.025, 0.975], n - 1)
    by_chi_square = ((n - 1) * s2 / high <= d_k) & (d_k <= (n - 1) * s2 / low)
    return by_kurtosis.mean(), by_chi_square.mean()


@pytest.mark.parametrize("d_k", [1, 4, 64])
def test_intervals_with_the_exact_kurtosis_cover_and_chi_square_ones_do_not(reference, d_k, seed):
    # C14. 2,000 repeats of n = 1,000: one s.e. of a coverage is 0.5 % at 95 % and 1.05 % at 67 %.
    # Bounds of 5 s.e. and 1 % for finite n: wrong by chance less than once in 10^6 seeds.
    exact, chi_square = coverage(d_k, 1000, 2000, np.random.default_rng(seed))
    assert exact == pytest.approx(0.95, abs=0.035)
    row = next(r for r in reference["variance_estimator"]["rows"] if r["d"] == d_k)
    assert chi_square == pytest.approx(row["chi2_interval_asymptotic_coverage"], abs=0.0625)
    if d_k == 1:
        assert chi_square < 0.75  # the negative control: this check refuses the usual interval


@pytest.mark.parametrize("df", [2.1, 3, 4])
def test_without_a_kurtosis_the_variance_has_no_standard_error(df):
    found = standard_errors(QueryKeyModel(64, "student_t", df).standardised_moments(), 64.0, 1000)
    assert found["mean"] == pytest.approx(math.sqrt(64 / 1000))
    assert [found[name] for name in ("variance", "skewness", "kurtosis")] == [math.inf] * 3
    with pytest.raises(ValueError, match="`kurtosis` must be finite"):
        samples_for_precision(QueryKeyModel(64, "student_t", df).moments().kurtosis)


def test_the_errors_of_skewness_and_kurtosis_need_moments_of_order_6_and_8():
    for df, finite in ((6, []), (6.1, ["skewness"]), (8, ["skewness"]), (8.1, ["skewness", "kurtosis"])):
        found = standard_errors(QueryKeyModel(4, "student_t", df).standardised_moments(), 4.0, 100)
        assert [name for name in ("skewness", "kurtosis") if math.isfinite(found[name])] == finite


def test_a_constant_has_no_error_in_mean_and_variance_and_no_shape():
    found = standard_errors([math.nan] * 9, 0.0, 10)
    assert found == {"mean": 0, "variance": 0, "skewness": math.inf, "kurtosis": math.inf}


def test_the_plan_matches_the_oracle(reference):
    for row in reference["variance_estimator"]["rows"]:
        kurtosis = QueryKeyModel(row["d"]).moments().kurtosis
        for precision, n in row["n_for_relative_halfwidth"].items():
            assert samples_for_precision(kurtosis, float(precision)) == n, (row["d"], precision)
    assert samples_for_precision(3 + 6 / 64) == 80_431
    assert samples_for_precision(9) == 307_317


@given(st.floats(1.001, 100), st.floats(1e-4, 0.5), st.floats(0.5, 0.9999))
def test_the_planned_number_just_reaches_the_precision(kurtosis, precision, confidence):
    n, z = samples_for_precision(kurtosis, precision, confidence), normal_quantile(confidence)
    assert z * math.sqrt((kurtosis - 1) / n) <= precision * (1 + 1e-12)
    assert n == 2 or z * math.sqrt((kurtosis - 1) / (n - 1)) > precision * (1 - 1e-12)


def test_joint_intervals_are_wider():
    assert normal_quantile(0.95) == pytest.approx(1.959964, abs=1e-6)
    assert normal_quantile(0.95, claims=4) == pytest.approx(-stats.norm.ppf(0.05 / 8), rel=1e-12)


def test_an_estimate_prints_its_error_and_its_exact_value():
    text = str(Estimate(64.0926, 0.1312, (63.8, 64.3), 64.0))
    assert "64.09 ± 0.13" in text
    assert "64" in text.split("exact")[1]
    assert "no s.e." in str(Estimate(3.0, None, None, None, "no finite standard error"))
    assert "undefined" in str(Estimate(math.nan, None, None, None, "a constant"))
