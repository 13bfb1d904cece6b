"""Standard errors of row statistics: coverage under a planted correlation within heads, scale, edge cases.

The planted law: value = |location + a + b|, a ~ N(0, 1/2) shared by a head, b ~ N(0, 1/2) of each row, so that
rows are N(location, 1) with correlation 1/2. The location keeps all values positive.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import special, stats

from simulation.attention_heads import draw_heads, heads_in_chunk
from simulation.decay import gradient_decay
from simulation.decay_rows import plan_of, rung_values
from simulation.model import QueryKeyModel
from simulation.row_statistics import QUANTILES, ROW_STATISTICS, row_estimate

LOCATION = 10.0
RUNS, HEADS, ROWS = 1000, 40, 8
TRUTH = {"mean": LOCATION, "rms": math.hypot(LOCATION, 1)} | {
    name: LOCATION + float(special.ndtri(p)) for name, p in QUANTILES.items()
}


def planted(rng, heads=HEADS, rows=ROWS, correlation=0.5):
    shared = math.sqrt(correlation) * rng.standard_normal((heads, 1))
    return LOCATION + shared + math.sqrt(1 - correlation) * rng.standard_normal((heads, rows))


def simulated(statistic, seed, **law):
    """Estimates of independent runs at confidence 0.95."""
    rng = np.random.default_rng([seed, 52])
    return [row_estimate(planted(rng, **law), statistic, 0.95) for _ in range(RUNS)]


def coverage(found, truth):
    return np.mean([low <= truth <= high for low, high in (run.interval for run in found)])


# A coverage of 95 % over 1000 runs has a standard error of 0.0069; k = 4.65 of them, 0.032, is exceeded with
# probability 3e-6. The mean is exact (t). The others are right for many heads: 0.015 more for 40 of them.
SLACK = {"mean": 0.032, "rms": 0.047, "q10": 0.047, "median": 0.047, "q90": 0.047}


@pytest.mark.parametrize("statistic", ROW_STATISTICS)
def test_intervals_cover_under_correlation_within_heads(statistic, seed):
    found = simulated(statistic, seed)
    assert abs(coverage(found, TRUTH[statistic]) - 0.95) < SLACK[statistic]
    # And the standard error is that of the estimates: the sd over 1000 runs is good to 2.3 %, k = 4.65 gives 11 %.
    # Woodruff's interval spans a curved tail and is wider for it, never narrower.
    errors = math.sqrt(np.mean([run.standard_error**2 for run in found]))
    ratio = errors / np.std([run.estimate for run in found])
    assert 0.89 < ratio < (1.3 if statistic in ("q10", "q90") else 1.11)


@pytest.mark.parametrize("statistic", ROW_STATISTICS)
def test_an_error_that_counts_rows_undercovers(statistic, seed):
    """Negative control: each row as a head of its own, as if rows that share keys were independent."""
    rng = np.random.default_rng([seed, 52])
    found = [row_estimate(planted(rng).reshape(-1, 1), statistic, 0.95) for _ in range(RUNS)]
    assert coverage(found, TRUTH[statistic]) < 0.95 - 2 * SLACK[statistic]


@pytest.mark.parametrize("statistic", ROW_STATISTICS)
def test_intervals_cover_for_independent_rows_and_sixteen_heads(statistic, seed):
    found = simulated(statistic, seed, heads=16, rows=20, correlation=0.0)
    assert abs(coverage(found, TRUTH[statistic]) - 0.95) < SLACK[statistic]


@pytest.mark.parametrize("heads", [2, 3, 16, 100])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_means_use_the_t_quantile_of_the_heads(heads, confidence, seed):
    values = planted(np.random.default_rng([seed, heads]), heads=heads)
    found = row_estimate(values, "mean", confidence, exact=10.5)
    assert found.estimate == pytest.approx(values.mean(), rel=1e-14)
    assert found.standard_error == pytest.approx(values.mean(axis=1).std(ddof=1) / math.sqrt(heads), rel=1e-12)
    half = stats.t.ppf((1 + confidence) / 2, heads - 1) * found.standard_error
    assert found.interval == pytest.approx((max(values.mean() - half, 0), values.mean() + half), rel=1e-12)
    assert found.exact == 10.5


def test_the_rms_is_the_delta_method_of_the_mean_square(seed):
    values = planted(np.random.default_rng(seed))
    square = row_estimate(np.square(values), "mean", 0.95)
    found = row_estimate(values, "rms", 0.95)
    assert found.estimate == pytest.approx(math.sqrt(square.estimate), rel=1e-14)
    assert found.standard_error == pytest.approx(square.standard_error / (2 * found.estimate), rel=1e-12)


@pytest.mark.parametrize(("statistic", "p"), QUANTILES.items())
def test_quantiles_are_those_of_all_rows(statistic, p, seed):
    values = planted(np.random.default_rng(seed))
    found = row_estimate(values, statistic, 0.95)
    assert found.estimate == np.quantile(values, p)
    low, high = found.interval
    assert low < found.estimate < high
    t = stats.t.ppf(0.975, HEADS - 1)
    assert found.standard_error == pytest.approx((high - low) / (2 * t), rel=1e-12)
    below = (values <= found.estimate).mean(axis=1)  # Woodruff: the share below, from head to head
    spread = t * below.std(ddof=1) / math.sqrt(HEADS)
    assert (low, high) == pytest.approx(tuple(np.quantile(values, [p - spread, p + spread])), rel=1e-12)


@pytest.mark.parametrize("statistic", ROW_STATISTICS)
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 1e-250, 1e200])
def test_identical_values_have_no_error(statistic, value):
    found = row_estimate(np.full((16, 3), value), statistic, 0.95)
    assert found.estimate == pytest.approx(value, rel=1e-15, abs=0)
    assert found.standard_error == pytest.approx(0, abs=1e-15 * value)
    assert found.interval == pytest.approx((value, value), rel=1e-14, abs=0)


@pytest.mark.parametrize("statistic", ROW_STATISTICS)
@pytest.mark.parametrize("unit", [1e-250, 1e-300, 1e-100, 1e150])
def test_the_unit_of_the_values_carries_over(statistic, unit, seed):
    """A gradient of 1e-250 is a number like any other: its error must not vanish."""
    values = planted(np.random.default_rng(seed))
    plain, tiny = row_estimate(values, statistic, 0.95), row_estimate(unit * values, statistic, 0.95)
    assert tiny.estimate == pytest.approx(unit * plain.estimate, rel=1e-9, abs=0)
    assert tiny.standard_error == pytest.approx(unit * plain.standard_error, rel=1e-9, abs=0)
    assert tiny.interval == pytest.approx(tuple(unit * end for end in plain.interval), rel=1e-9, abs=0)


@pytest.mark.parametrize("statistic", ROW_STATISTICS)
def test_values_that_span_hundreds_of_decades(statistic, seed):
    """As the rows of two keys at d_k = 10^6: most vanish, a few carry the mean."""
    values = np.exp(-np.abs(350 * np.random.default_rng(seed).standard_normal((64, 16))))
    found = row_estimate(values, statistic, 0.95)
    low, high = found.interval
    assert found.standard_error > 0
    assert 0 <= low < found.estimate < high


@pytest.mark.parametrize("statistic", ROW_STATISTICS)
def test_two_heads_are_enough(statistic, seed):
    found = row_estimate(planted(np.random.default_rng(seed), heads=2, rows=50), statistic, 0.95)
    low, high = found.interval
    assert np.isfinite([found.estimate, found.standard_error, low, high]).all()
    assert low <= found.estimate <= high
    assert found.standard_error > 0


def test_heads_that_agree_on_a_quantile_leave_one_row_in_doubt():
    values = np.arange(1.0, 41.0).reshape(-1, 2).T.copy()  # two heads, 10 of 20 rows of each below the median
    found = row_estimate(values, "median", 0.95)
    t = stats.t.ppf(0.975, 1)
    assert found.estimate == 20.5
    assert found.interval == pytest.approx((20.5 - 39 * t / 80, 20.5 + 39 * t / 80), rel=1e-12)
    assert found.standard_error == pytest.approx(39 / 80, rel=1e-12)


@given(
    arrays(np.float64, st.tuples(st.integers(2, 8), st.integers(1, 8)), elements=st.floats(0, 1e6)),
    st.sampled_from(ROW_STATISTICS),
)
def test_an_interval_holds_its_estimate_and_stays_positive(values, statistic):
    found = row_estimate(values, statistic, 0.9)
    low, high = found.interval
    slack = 1e-12 * values.max()
    assert 0 <= low <= found.estimate + slack
    assert found.estimate <= high + slack
    assert found.standard_error >= 0
    assert values.min() - slack <= found.estimate <= values.max() + slack


@given(arrays(np.float64, (4, 3), elements=st.floats(0, 1e6)), st.sampled_from(ROW_STATISTICS))
def test_the_order_of_heads_and_of_their_rows_is_of_no_account(values, statistic):
    one, other = (row_estimate(v, statistic, 0.9) for v in (values, values[::-1, ::-1]))
    assert other.estimate == pytest.approx(one.estimate, rel=1e-12)
    assert other.standard_error == pytest.approx(one.standard_error, rel=1e-9, abs=1e-12 * values.max())


def test_sum_of_squares_of_z_over_many_rungs(seed):
    """Errors are neither too small nor too large: chi-square over 40 rungs, two-sided at 1e-4; twice off is caught."""
    ladder = range(1, 41)
    result = gradient_decay(
        ladder, 8, n_rows=2048, rng=seed, quantities=["trace"], statistics=["mean"], sampler="conditional"
    )
    z = [(r.estimate - r.exact) / r.standard_error for r in result.select(scoring="dot")]
    low, high = stats.chi2(len(z)).ppf([5e-5, 1 - 5e-5])
    assert low < np.sum(np.square(z)) < high
    assert not low < np.sum(np.square(z)) / 4 < high
    assert not low < np.sum(np.square(z)) * 4 < high


def test_intervals_of_sizes_stop_at_zero_and_those_of_signed_values_do_not():
    values = np.array([[0.0, 4.0], [0.0, 0.0], [0.0, 0.0]])
    size, signed = (row_estimate(values, "mean", 0.95, signed=s) for s in (False, True))
    assert size.interval == (0.0, signed.interval[1])
    assert signed.interval[0] == pytest.approx(2 * signed.estimate - signed.interval[1], rel=1e-12)
    assert signed.interval[0] < 0


# --- A24: mean and median tell opposite stories ------------------------------------------------------------------

# The case's figures are a simulation of some 2,000 rows (its mean of 0.205 is 0.2112 +- 0.0003 in 400,000 rows, and
# its median of 7.0e-8 is 3.0e-8). They are met within k = 4.65 standard errors of both runs together, medians on a
# log scale: 22 comparisons with fixed numbers.
K, ROWS_THERE = 4.65, 2000


def met(found, value, rows, half_unit):
    error = math.sqrt(1 + rows / ROWS_THERE) * found.standard_error
    return abs(math.log(found.estimate / value)) < K * error / found.estimate + half_unit / value


def measured(d_k, n, quantity, seed, rows=8192):
    statistics = ("mean", "median")
    result = gradient_decay(
        d_k, n, n_rows=rows, rng=seed, quantities=[quantity], statistics=statistics, sampler="conditional"
    )
    return {(r.d_k, r.scoring, r.statistic): r for r in result.records}


@pytest.mark.parametrize(("n", "weight"), [(5, 0.981), (10, 0.952), (64, 0.875), (512, 0.757)])
def test_the_median_largest_weight_at_64_is_not_one_hot(n, weight, seed):
    found = measured([64], n, "largest_weight", seed, rows=4096)[64, "dot", "median"]
    assert met(found, weight, 4096, 5e-4)


@pytest.mark.parametrize(("n", "share"), [(10, 0.34), (64, 0.19), (512, 0.11)])
def test_few_rows_have_a_weight_above_0_99(n, share, seed):
    plan = plan_of(n, 4096, ["largest_weight"], ["mean"], "conditional")
    values = rung_values(QueryKeyModel(64), plan, seed, 2, None)["dot", "largest_weight"]
    assert met(row_estimate((values > 0.99).astype(float), "mean", 0.95), share, 4096, 5e-3)


def test_the_mean_norm_first_rises_while_the_median_decays(seed):
    found = measured([4, 16, 64, 512, 4096], 64, "frobenius", seed)
    for d_k, mean in ((4, 0.259), (16, 0.296), (64, 0.205), (512, 0.096)):
        assert met(found[d_k, "dot", "mean"], mean, 8192, 5e-4)
    for d_k, median, half in ((16, 0.330, 5e-4), (64, 0.180, 5e-4), (512, 0.0048, 5e-5), (4096, 7.0e-8, 5e-10)):
        assert met(found[d_k, "dot", "median"], median, 8192, half)
    assert met(found[64, "scaled_dot", "mean"], 0.183, 8192, 5e-4)
    assert (
        found[16, "dot", "mean"].estimate > found[4, "dot", "mean"].estimate > found[64, "scaled_dot", "mean"].estimate
    )


@pytest.mark.parametrize(
    ("d_k", "scale", "mean", "median"),
    [(64, 1.0, 1.35, 0.774), (64, 1 / 8, 0.174, 0.165), (1024, 1.0, None, 0.0075), (1024, 1 / 32, None, 0.167)],
)
def test_the_gradient_of_a_random_loss_with_respect_to_q(d_k, scale, mean, median, seed):
    """|dL/dq| for a standard normal upstream gradient g: |scale K^T (y * (g - y.g))|, 64 keys."""
    rng, n, parts = np.random.default_rng([seed, d_k]), 64, []
    for chunk in range(math.ceil(64 / heads_in_chunk(d_k, n, n, "conditional"))):
        stream = np.random.SeedSequence([seed, d_k], spawn_key=(chunk,))
        heads = draw_heads(QueryKeyModel(d_k), stream, n, n, "conditional")
        y, g = special.softmax(scale * heads.logits, axis=-1), rng.standard_normal(heads.logits.shape)
        upstream = scale * y * (g - np.sum(y * g, axis=-1, keepdims=True))
        (keys,) = heads.key_slices
        parts.append(np.linalg.norm(upstream @ keys, axis=-1))
    values = np.concatenate(parts)
    for statistic, value, half in (("mean", mean, 5e-3 * scale), ("median", median, 5e-5 if median < 0.1 else 5e-4)):
        if value is not None:
            assert met(row_estimate(values, statistic, 0.95), value, values.size, half)
