"""The ladder of head dimensions: slopes, rungs that stand alone, and laziness."""

import math

import numpy as np
import pytest

from simulation import QueryKeyModel, dot_products, iter_sweep, sweep, sweeps
from simulation.sweeps import DEFAULT_LADDER, SWEEP_TOLERANCE, collect_sweep

LADDER = [1, 4, 16, 64]


def test_the_variance_grows_as_d_k_and_scaling_makes_it_flat(seed):
    # 5 standard errors: each fails by chance once in 10^6 seeds
    result = sweep(LADDER, 20_000, rng=seed)
    for slope, exact in ((result.slope_before, 1), (result.slope_after, 0)):
        assert slope.exact == pytest.approx(exact, abs=1e-12)
        assert abs(slope.estimate - exact) < 5 * slope.standard_error
        assert 0 < slope.standard_error < 0.01
    assert result.slope_before.estimate - result.slope_after.estimate == pytest.approx(1, rel=1e-12)
    assert [r.model.d_k for r in result.results] == LADDER


def test_the_slope_is_that_of_weighted_least_squares():
    result = sweep(LADDER, 5000, rng=1, entries="laplace")
    variances = [r.before.variance for r in result.results]
    weights = [v.exact / v.standard_error for v in variances]
    x, y = np.log(LADDER), np.log([v.estimate for v in variances])
    (slope, _), covariance = np.polyfit(x, y, 1, w=weights, cov="unscaled")
    assert result.slope_before.estimate == pytest.approx(slope, rel=1e-10)
    assert result.slope_before.standard_error == pytest.approx(math.sqrt(covariance[0, 0]), rel=1e-10)


@pytest.mark.parametrize("departure", [{"q_mean": 0.5, "k_mean": 0.5}, {"correlation": 0.5}, {"q_std": 3}])
def test_departures_change_the_level_and_not_the_slope(departure, seed):
    result = sweep([4, 16, 64], 5000, rng=seed, **departure)
    assert result.slope_before.exact == pytest.approx(1, abs=1e-12)
    assert abs(result.slope_before.estimate - 1) < 5 * result.slope_before.standard_error


def test_a_rung_can_be_repeated_alone_from_its_seed():
    rung = sweep(LADDER, 3000, rng=7).results[2]
    alone = dot_products(QueryKeyModel(16), 3000, rng=rung.seed, tolerance=SWEEP_TOLERANCE, simultaneous=16)
    assert rung == alone


def test_a_rung_does_not_depend_on_the_others():
    short, long = sweep([64], 3000, rng=7), sweep([256, 64, 1], 3000, rng=7)
    for name in ("mean", "variance", "kurtosis"):
        alone, among = (getattr(r.before, name) for r in (short.results[0], long.results[1]))
        assert (alone.estimate, alone.standard_error) == (among.estimate, among.standard_error)
    assert short.results[0].histogram == long.results[1].histogram


def test_rungs_have_streams_of_their_own():
    seeds = [r.seed for r in sweep([1, 2, 3, 4], 10, rng=7).results]
    assert len({*seeds, 7}) == 5


def test_intervals_hold_together_over_all_rungs():
    result = sweep([4, 16], 1000, rng=0)
    assert [r.simultaneous for r in result.results] == [8, 8]
    assert sweep([4], 1000, rng=0).results[0].simultaneous == 4


def test_the_same_seed_repeats_a_sweep_and_a_blank_one_is_reported():
    blank = sweep([1, 8], 500)
    assert sweep([1, 8], 500, rng=blank.seed) == blank
    assert sweep([1, 8], 500).seed != blank.seed
    assert sweep([1, 8], 500, rng=3, workers=1) == sweep([1, 8], 500, rng=3, workers=3)


def test_results_come_one_by_one(monkeypatch):
    ran = []

    def counted(model, *arguments, **options):
        ran.append(model.d_k)
        return dot_products(model, *arguments, **options)

    monkeypatch.setattr(sweeps, "dot_products", counted)
    results = iter_sweep([1, 2, 4], 100, rng=5)
    first = next(results)
    assert (first.model.d_k, ran) == (1, [1])
    assert collect_sweep([first, *results], 5) == sweep([1, 2, 4], 100, rng=5)


def test_a_bad_rung_is_refused_before_anything_is_drawn(monkeypatch):
    monkeypatch.setattr(sweeps, "dot_products", lambda *_, **__: pytest.fail("drawn"))
    with pytest.raises(ValueError, match=r"`d_k` must be a whole number .* received 0"):
        iter_sweep([1, 0], 100)
    with pytest.raises(ValueError, match=r"`entries` must be one of .* received 'cauchy'"):
        sweep([1, 2], 100, entries="cauchy")


def test_without_errors_or_with_one_rung_there_is_no_slope():
    assert sweep([8], 100, rng=0).slope_before is None
    heavy = sweep([1, 8], 1000, rng=0, entries="student_t", df=3)
    assert heavy.slope_before is None
    assert heavy.slope_after is None


def test_a_measured_variance_of_zero_gives_no_infinite_slope():
    for seed in range(6):
        slope = sweep([1, 2], 2, rng=seed, entries="rademacher").slope_before
        assert slope is None or math.isfinite(slope.estimate)


@pytest.mark.parametrize("ladder", [(1, 2), range(1, 3), np.array([1, 2])])
def test_any_sequence_of_whole_numbers_is_a_ladder(ladder):
    assert sweep(ladder, 50, rng=0) == sweep([1, 2], 50, rng=0)


def test_the_default_ladder_spans_three_decades():
    assert list(DEFAULT_LADDER) == sorted(set(DEFAULT_LADDER))
    assert (DEFAULT_LADDER[0], DEFAULT_LADDER[-1]) == (1, 1024)
