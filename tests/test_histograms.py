"""Histograms on fixed edges: nothing lost, merging exact; Pearson's test against SciPy's."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from simulation.histograms import Histogram, chi_square_fit

EDGES = [-2.0, -1.0, 0.0, 0.5, 2.0]
values = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40)


def counted(x):
    return Histogram.empty(EDGES).add(x)


@given(values)
def test_every_value_is_counted_once(x):
    h = counted(x)
    assert h.n == len(x)
    assert h.nonfinite == sum(not math.isfinite(value) for value in x)
    finite = [value for value in x if math.isfinite(value)]
    assert h.underflow == sum(value < -2 for value in finite)
    assert h.overflow == sum(value >= 2 for value in finite)
    for i in range(4):
        assert h.counts[i] == sum(EDGES[i] <= value < EDGES[i + 1] for value in finite)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_counted_and_never_dropped(odd):
    h = counted([1, 1.5, odd])  # C09
    assert (h.n, h.nonfinite, h.underflow, h.overflow) == (3, 1, 0, 0)
    assert h.counts.tolist() == [0, 0, 0, 2]


def test_bins_are_closed_below_and_open_above():
    h = counted([-2, -1, 0, 0.5, 2])
    assert h.counts.tolist() == [1, 1, 1, 1]
    assert (h.underflow, h.overflow) == (0, 1)


@given(values, values, values)
def test_merging_in_any_order_equals_counting_at_once(a, b, c):
    whole = counted([*a, *b, *c])
    assert counted(a).merge(counted(b)).merge(counted(c)) == whole
    assert counted(c).merge(counted(b).merge(counted(a))) == whole
    assert counted(a).add(b).add(c) == whole
    assert whole.merge(Histogram.empty(EDGES)) == whole


def test_adding_leaves_the_histogram_as_it_was():
    h = counted([0.1])
    h.add([0.2, 0.3])
    h.merge(h)
    assert h == counted([0.1])


def test_histograms_on_other_edges_do_not_merge():
    with pytest.raises(ValueError, match="`other` must have the same edges"):
        counted([0]).merge(Histogram.empty([0, 1]))


@given(values)
def test_the_density_integrates_to_the_share_inside(x):
    h = counted(x)
    inside = h.n - h.underflow - h.overflow - h.nonfinite
    share = inside / len(x) if x else 0
    assert np.sum(h.density() * np.diff(h.edges)) == pytest.approx(share, rel=1e-12)


def test_scaling_moves_the_edges_and_keeps_the_counts():
    x = np.random.default_rng(0).normal(size=1000)
    scaled = counted(x).scaled(0.25)
    assert scaled == Histogram.empty(np.array(EDGES) * 0.25).add(x * 0.25)
    assert np.sum(scaled.density() * np.diff(scaled.edges)) == pytest.approx(scaled.counts.sum() / 1000)


def test_equality_sees_every_count():
    h = counted([0.1])
    assert h == counted([0.2])
    for other in (counted([]), counted([0.7]), counted([5]), counted([-5]), counted([math.nan]), h.scaled(2)):
        assert h != other
    assert h != "histogram"


@pytest.mark.parametrize("dtype", ["f2", ">f4", "i8", "?"])
def test_any_real_type_and_shape_is_counted(dtype):
    x = np.array([[0, 1], [1, 0]]).astype(dtype)
    assert counted(x).counts.tolist() == [0, 0, 2, 2]


def test_the_fit_is_pearsons_where_no_bin_is_pooled():
    counts, probabilities = [60, 25, 15, 100], [0.3, 0.15, 0.05, 0.5]
    expected = stats.chisquare(counts, np.array(probabilities) * 200)
    found = chi_square_fit(counts, probabilities)
    assert found["statistic"] == pytest.approx(expected.statistic, rel=1e-13)
    assert found["p_value"] == pytest.approx(expected.pvalue, rel=1e-12)
    assert found["degrees_of_freedom"] == 3


def test_poor_bins_are_pooled_with_their_neighbours():
    found = chi_square_fit([3, 9, 70, 14, 4], [0.04, 0.08, 0.74, 0.11, 0.03])
    expected = stats.chisquare([12, 70, 18], [12, 74, 14])
    assert found["statistic"] == pytest.approx(expected.statistic, rel=1e-13)
    assert found["p_value"] == pytest.approx(expected.pvalue, rel=1e-12)


def test_one_pooled_bin_says_nothing():
    for counts in ([3, 4], [0, 0]):
        assert chi_square_fit(counts, [0.5, 0.5])["p_value"] == 1


def test_p_values_of_the_right_law_are_uniform_and_of_a_wrong_one_tiny(seed):
    rng, shares = np.random.default_rng(seed), np.full(20, 0.05)
    right = [chi_square_fit(rng.multinomial(2000, shares), shares)["p_value"] for _ in range(400)]
    assert stats.kstest(right, "uniform").pvalue > 1e-4  # fails by chance once in 10^4 seeds
    tilted = shares * np.linspace(0.8, 1.2, 20)
    wrong = [chi_square_fit(rng.multinomial(20_000, tilted), shares)["p_value"] for _ in range(20)]
    assert max(wrong) < 1e-6
