"""The exact law of q·k: against the oracle, closed forms of SciPy, and its own integrals."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from simulation import DotProductLaw, QueryKeyModel, distance_to_normal, exact_law

FUNCTIONS = ("pdf", "cdf", "sf")
correlations = st.floats(-0.95, 0.95)
dimensions = st.sampled_from([1, 2, 3, 8, 64, 1000, 10**6])


def log_bessel_density(x, d_k, rho=0.0):
    """ln of the closed form, with K_ν from SciPy: an independent way to the same density."""
    nu, width = (d_k - 1) / 2, 1 - rho**2
    size = np.abs(x) / width
    log_bessel = np.log(special.kve(nu, size)) - size
    constant = 0.5 * math.log(math.pi * width) + nu * math.log(2) + special.gammaln(d_k / 2)
    return rho * x / width + nu * np.log(np.abs(x)) + log_bessel - constant


def moment_integrals(law, orders, reach):
    """∫ x^r f(x) dx over the line by a trapezoid sum in ln|x|, which takes the pole at 0 in its stride."""
    u = np.arange(-45.0, math.log(reach), 0.005)
    x = np.exp(u)
    right, left = law.pdf(x) * x, law.pdf(-x) * x
    return [float(np.sum(x**r * (right + (-1) ** r * left)) * 0.005) for r in orders]


def test_all_72_points_of_the_oracle(reference):
    points = reference["qk_distribution"]["points"]
    assert len(points) == 72
    for point in points:
        law, x = DotProductLaw(point["d"]), float(point["x"])
        for name in FUNCTIONS:
            assert float(getattr(law, name)(x)) == pytest.approx(float(point[name]), rel=1e-10), (name, point)


def test_points_of_one_d_k_give_the_same_together_as_alone(reference):
    points = [p for p in reference["qk_distribution"]["points"] if p["d"] == 16]
    law, x = DotProductLaw(16), np.array([[float(p["x"]), -float(p["x"])] for p in points])
    for name in FUNCTIONS:
        alone = np.array([[float(getattr(law, name)(value)) for value in pair] for pair in x])
        assert getattr(law, name)(x) == pytest.approx(alone, rel=1e-12)
        assert getattr(law, name)(x).shape == x.shape
        assert getattr(law, name)([]).shape == (0,)


def test_quantiles_of_the_oracle(reference):
    rows = reference["qk_quantiles"]
    assert len(rows) == 10
    for row in rows:
        expected = np.array([row[name] for name in ("q75", "q90", "q975", "q995")])
        levels = np.array([0.75, 0.9, 0.975, 0.995])
        law = DotProductLaw(row["d"])
        assert law.quantile(levels) == pytest.approx(expected, rel=1e-10), row
        assert law.quantile(1 - levels) == pytest.approx(-expected, rel=1e-10), row
        assert float(law.quantile(0.5)) == 0


def test_distance_to_normal_of_the_oracle(reference):
    oracle = reference["kolmogorov_to_normal"]
    assert len(oracle["rows"]) == 11
    for row in oracle["rows"]:
        # a difference of probabilities near 0.8, so the error is absolute (the oracle's own: 1.2e-13 at 256)
        assert distance_to_normal(row["d"]) == pytest.approx(row["kolmogorov"], abs=2e-13)
    assert distance_to_normal(10**5) * 10**5 == pytest.approx(float(oracle["limit_d_times"]), rel=1e-5)


def test_the_distance_is_the_largest_gap_on_a_grid():
    t = np.linspace(-5, 5, 4001)
    for d_k in (1, 7, 300):
        gaps = np.abs(DotProductLaw(d_k, 1 / math.sqrt(d_k)).cdf(t) - special.ndtr(t))
        assert gaps.max() <= distance_to_normal(d_k)
        assert gaps.max() == pytest.approx(distance_to_normal(d_k), rel=1e-5)


def test_one_component_has_the_bessel_density_and_a_pole_at_zero():
    law, x = DotProductLaw(1), np.array([1e-300, 1e-100, 1e-10, 0.1, 1, 10, 100, 600])
    assert law.pdf(x) == pytest.approx(special.k0e(x) * np.exp(-x) / math.pi, rel=1e-11)
    assert law.pdf([0.0, 1.0])[0] == math.inf
    assert float(law.cdf(0)) == pytest.approx(0.5, rel=1e-14)


def test_two_components_have_the_laplace_law_into_the_far_tail():
    law, x = DotProductLaw(2), np.array([1e-12, 0.5, 3, 40, 300, 700])
    assert law.pdf(-x) == pytest.approx(np.exp(-x) / 2, rel=1e-11)
    assert law.sf(x) == pytest.approx(np.exp(-x) / 2, rel=1e-11)
    assert law.cdf(-x) == pytest.approx(np.exp(-x) / 2, rel=1e-11)
    assert float(law.quantile(1e-12)) == pytest.approx(math.log(2e-12), rel=1e-12)


@pytest.mark.parametrize("d_k", [3, 4, 8, 64, 128])
def test_the_density_is_the_bessel_form_of_scipy(d_k):
    x = np.array([0.25, 1, 3, 10, 30]) * math.sqrt(d_k)
    assert np.log(DotProductLaw(d_k).pdf(x)) == pytest.approx(log_bessel_density(x, d_k), abs=1e-11)


@pytest.mark.parametrize("rho", [0.1, -0.5, 0.9, 0.999, -0.9999])
@pytest.mark.parametrize("d_k", [1, 2, 5, 64])
def test_the_correlated_density_is_the_bessel_form_of_scipy(d_k, rho):
    x = rho * d_k + math.sqrt(d_k) * np.array([-2.1, -0.7, 0.3, 2.9])
    expected = log_bessel_density(x, d_k, rho)
    representable = expected > -700
    found = DotProductLaw(d_k, correlation=rho).pdf(x)
    assert np.log(found[representable]) == pytest.approx(expected[representable], abs=2e-10)
    assert (found[~representable] < 1e-300).all()


@pytest.mark.parametrize("d_k", [1, 2, 3, 64, 1000])
def test_the_density_integrates_to_one_and_to_the_exact_moments(d_k):
    found = moment_integrals(DotProductLaw(d_k), (0, 1, 2, 4), 60 * math.sqrt(d_k))
    assert found == pytest.approx([1, 0, d_k, 3 * d_k**2 + 6 * d_k], rel=1e-11, abs=1e-11)


@pytest.mark.parametrize(("d_k", "rho"), [(1, 0.5), (1, -0.9), (8, 0.99), (64, 0.5), (64, -0.1)])
def test_the_correlated_density_integrates_to_the_exact_moments(d_k, rho):
    exact = QueryKeyModel(d_k, correlation=rho).moments()
    total, mean, square = moment_integrals(DotProductLaw(d_k, correlation=rho), (0, 1, 2), 90 * math.sqrt(d_k))
    assert (total, mean) == pytest.approx((1, exact.mean), rel=1e-10)
    assert square - mean**2 == pytest.approx(exact.variance, rel=1e-9)


def test_a_million_components_follow_the_edgeworth_expansion():
    d_k, t = 10**6, np.array([-5, -1.0, 0, 0.742, 3, 8])
    law = DotProductLaw(d_k, 1e-3)
    bell = np.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    fourth = t**4 - 6 * t**2 + 3  # He4; the next term is of order 1/d_k^2
    assert law.pdf(t) == pytest.approx(bell * (1 + fourth / (4 * d_k)), rel=1e-8)
    third = t**3 - 3 * t
    assert law.cdf(t) == pytest.approx(special.ndtr(t) - third * bell / (4 * d_k), abs=2e-12)
    assert float(law.sf(8.0)) == pytest.approx(special.ndtr(-8) * 1.0009, rel=2e-4)


@given(d_k=dimensions, rho=correlations, t=st.floats(-12, 12), scale=st.floats(1e-3, 1e3))
def test_cdf_and_sf_add_up_and_mirror(d_k, rho, t, scale):
    law, mirror = DotProductLaw(d_k, scale, rho), DotProductLaw(d_k, scale, -rho)
    x = scale * (rho * d_k + t * math.sqrt(d_k))
    below, above = float(law.cdf(x)), float(law.sf(x))
    assert 0 <= below <= 1 + 1e-12
    assert 0 <= above <= 1 + 1e-12
    assert below + above == pytest.approx(1, abs=1e-12)
    assert float(mirror.sf(-x)) == pytest.approx(below, rel=1e-12)
    assert float(mirror.pdf(-x)) == pytest.approx(float(law.pdf(x)), rel=1e-12)


@given(d_k=dimensions, rho=correlations, t=st.floats(-8, 8), step=st.floats(1e-3, 3))
def test_cdf_rises_and_sf_falls(d_k, rho, t, step):
    law = DotProductLaw(d_k, correlation=rho)
    x = rho * d_k + math.sqrt(d_k) * np.array([t, t + step])
    for low, high in (law.cdf(x), law.sf(x)[::-1]):
        assert high >= low * (1 - 1e-12)


@settings(max_examples=40)
@given(d_k=dimensions, rho=correlations, p=st.floats(-12, -0.31).map(lambda e: 10**e))
def test_quantiles_invert_the_distribution_function_on_both_sides(d_k, rho, p):
    law = DotProductLaw(d_k, 0.7, rho)
    assert float(law.cdf(law.quantile(p))) == pytest.approx(p, rel=1e-9)
    assert float(law.sf(law.quantile(1 - p))) == pytest.approx(1 - (1 - p), rel=1e-9)


@pytest.mark.parametrize(
    ("d_k", "inside"), [(1, 0.791), (2, 0.757), (4, 0.729), (16, 0.697), (64, 0.686), (512, 0.683)]
)
def test_the_share_within_one_standard_deviation(d_k, inside):
    law = DotProductLaw(d_k)  # A16: not 0.6827 for small d_k, so the law is not normal
    assert float(law.cdf(d_k**0.5) - law.cdf(-(d_k**0.5))) == pytest.approx(inside, abs=6e-4)


def test_sqrt_d_k_is_a_standard_deviation_and_no_bound():
    law = DotProductLaw(64)  # A18
    assert 2 * float(law.sf(500)) < 1e-150
    assert float(law.cdf(16) - law.cdf(-16)) == pytest.approx(0.954, abs=1e-3)
    assert 1 < float(law.sf(40)) * 1e6 < 2  # a millionth of all pairs is past 5 standard deviations


def test_the_scale_stretches_the_law():
    x = np.array([-3.0, 0.1, 2.0])
    for rho in (0.0, 0.6):
        unit, wide = DotProductLaw(5, 1.0, rho), DotProductLaw(5, 4.0, rho)
        assert wide.pdf(4 * x) == pytest.approx(unit.pdf(x) / 4, rel=1e-14)
        assert wide.cdf(4 * x) == pytest.approx(unit.cdf(x), rel=1e-14)
        assert wide.quantile([0.1, 0.6]) == pytest.approx(4 * unit.quantile([0.1, 0.6]), rel=1e-14)


def test_the_law_of_a_model_carries_its_standard_deviations_and_correlation():
    law = exact_law(QueryKeyModel(8, q_std=2, k_std=3, correlation=0.5), 0.25)
    assert law == DotProductLaw(8, 1.5, 0.5)
    for model in (QueryKeyModel(8, "uniform"), QueryKeyModel(8, q_mean=0.1), QueryKeyModel(8, k_mean=0.1)):
        assert exact_law(model) is None


def test_a_correlation_of_one_has_no_law_here_and_does_not_fail():
    assert exact_law(QueryKeyModel(64, correlation=1.0)) is None


def test_the_ends_of_the_line_have_their_limits():
    law, x = DotProductLaw(64), np.array([-math.inf, 1.0, math.inf])
    assert law.cdf(x) == pytest.approx([0, float(law.cdf(1.0)), 1])
    assert law.sf(x) == pytest.approx([1, float(law.sf(1.0)), 0])
    assert law.pdf(x) == pytest.approx([0, float(law.pdf(1.0)), 0])


def test_points_that_are_no_numbers_get_none_and_spoil_no_others():
    law, x = DotProductLaw(64), np.array([math.nan, 1.0])
    for name in FUNCTIONS:
        values = getattr(law, name)(x)
        assert math.isnan(values[0]), name
        assert values[1] == pytest.approx(float(getattr(law, name)(1.0)), rel=1e-12)


@pytest.mark.parametrize("x", [1e7, 1e300])
def test_points_past_every_tail_have_their_limits(x):
    law = DotProductLaw(64)
    assert [float(law.cdf(x)), float(law.sf(x)), float(law.pdf(x))] == pytest.approx([1, 0, 0], abs=1e-12)


@pytest.mark.parametrize("x", [1e-320, 3e-158, 1e-30])
def test_points_next_to_zero_are_no_trouble(x):
    assert float(DotProductLaw(2).pdf(x)) == pytest.approx(0.5, rel=1e-14)
    assert float(DotProductLaw(2).cdf(-x)) == pytest.approx(0.5, rel=1e-14)


@pytest.mark.parametrize(("d_k", "rho", "p"), [(64, 0, 1e-200), (64, 0.9, 1e-50)])
def test_quantiles_reach_into_the_far_tail(d_k, rho, p):
    law = DotProductLaw(d_k, correlation=rho)
    assert float(law.cdf(law.quantile(p))) == pytest.approx(p, rel=1e-9)
