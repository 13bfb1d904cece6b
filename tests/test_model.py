"""Exact moments of q·k: against the oracle, against brute force, and where they do not exist."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from simulation import QueryKeyModel
from simulation.model import ENTRIES, entry_moment

FAMILIES = {
    "normal": ("normal", None),
    "uniform(-sqrt3,sqrt3)": ("uniform", None),
    "rademacher": ("rademacher", None),
    "laplace(0,1/sqrt2)": ("laplace", None),
    "student_t5 standardized": ("student_t", 5),
}
ORACLE_NAMES = ("mean", "var", "skew", "kurtosis")


def test_moments_of_independent_components_match_the_oracle(reference):
    rows = [r for r in reference["moments_independent_components"]["rows"] if r["family"] in FAMILIES]
    assert len(rows) == 30  # the exponential family of the oracle is not offered
    for row in rows:
        entries, df = FAMILIES[row["family"]]
        model = QueryKeyModel(
            row["d"], entries, df, q_mean=row["mu_q"], q_std=row["sd_q"], k_mean=row["mu_k"], k_std=row["sd_k"]
        )
        expected = [row[name] for name in ORACLE_NAMES]
        assert model.moments() == pytest.approx(expected, rel=1e-12, abs=1e-15), row


def test_moments_of_correlated_normal_entries_match_the_oracle(reference):
    rows = reference["moments_qk_correlated_gaussian"]["rows"]
    assert len(rows) == 12
    for row in rows:
        found = QueryKeyModel(row["d"], correlation=row["rho"]).moments()
        assert found == pytest.approx([row[name] for name in ORACLE_NAMES], rel=1e-12, abs=1e-15), row


@pytest.mark.parametrize("d_k", [10**power for power in range(7)])
def test_standard_normal_entries_have_variance_d_k_and_kurtosis_3_plus_6_over_d_k(d_k):
    assert QueryKeyModel(d_k).moments() == pytest.approx((0, d_k, 0, 3 + 6 / d_k), rel=1e-14)


@pytest.mark.parametrize("entries", ENTRIES)
@pytest.mark.parametrize("d_k", [1, 2, 17, 64, 4096, 10**6])
def test_variance_is_d_k_for_every_family_and_every_d_k(entries, d_k):
    # A21: no central limit theorem is needed, not even at d_k = 1
    model = QueryKeyModel(d_k, entries, 5 if entries == "student_t" else None)
    assert model.moments()[:2] == pytest.approx((0, d_k), rel=1e-14)
    assert model.component_moments()[:2] == pytest.approx((0, 1), rel=1e-14)


@pytest.mark.parametrize(
    ("entries", "df", "excess"),
    [
        ("normal", None, 6),
        ("uniform", None, 0.24),
        ("rademacher", None, -2),
        ("laplace", None, 33),
        ("student_t", 5, 78),
    ],
)
def test_excess_kurtosis_is_what_the_method_page_says(entries, df, excess):
    for d_k in (1, 64):
        assert QueryKeyModel(d_k, entries, df).moments().kurtosis == pytest.approx(3 + excess / d_k, rel=1e-13)


@pytest.mark.parametrize(
    ("departure", "mean", "variance"),
    [
        ({"q_std": 2, "k_std": 2}, 0, 1024),  # A14: sigma^4 d_k, so 16 after scaling, not 4
        ({"q_mean": 0.5, "k_mean": 0.5}, 16, 96),
        ({"correlation": 0.5}, 32, 80),  # A17
        ({"correlation": 0.1}, 6.4, 64.64),
        ({"correlation": 1}, 64, 128),
        ({"correlation": -1}, -64, 128),
    ],
)
def test_worked_numbers_of_the_departures_at_64(departure, mean, variance):
    assert QueryKeyModel(64, **departure).moments()[:2] == pytest.approx((mean, variance), rel=1e-14)


@given(
    shape=st.tuples(st.floats(-3, 3), st.floats(0.1, 3), st.floats(-3, 3), st.floats(0.1, 3)),
    rho=st.floats(-1, 1),
    entries=st.sampled_from(ENTRIES),
)
def test_mean_and_variance_follow_the_formula_of_the_method_page(shape, rho, entries):
    df = 12 if entries == "student_t" else None
    m_q, s_q, m_k, s_k = shape
    found = QueryKeyModel(32, entries, df, q_mean=m_q, q_std=s_q, k_mean=m_k, k_std=s_k, correlation=rho).moments()
    kappa = entry_moment(entries, df, 4)
    spread = s_q**2 * s_k**2 * (1 + rho**2 * (kappa - 2)) + m_q**2 * s_k**2 + m_k**2 * s_q**2
    assert found.mean == pytest.approx(32 * (m_q * m_k + rho * s_q * s_k), rel=1e-12, abs=1e-12)
    variance = 32 * (spread + 2 * rho * m_q * m_k * s_q * s_k)
    assert found.variance == pytest.approx(variance, rel=1e-9, abs=1e-9 * 32 * spread)


def test_moments_to_order_8_equal_those_of_all_sign_patterns():
    # Rademacher entries at d_k = 2: the law is finite, 2^6 equally likely draws of z, e at rho = 0.6
    rho, tau = 0.6, 0.8
    draws = np.array(list(itertools.product([-1.0, 1.0], repeat=4)))
    z, w = draws[:, :2], rho * draws[:, :2] + tau * draws[:, 2:]
    x = ((0.3 + 1.5 * z) * (-0.7 + 0.9 * w)).sum(axis=1)
    u = (x - x.mean()) / x.std()
    model = QueryKeyModel(2, "rademacher", q_mean=0.3, q_std=1.5, k_mean=-0.7, k_std=0.9, correlation=rho)
    assert model.moments()[:2] == pytest.approx((x.mean(), x.var()), rel=1e-12)
    assert model.standardised_moments() == pytest.approx([np.mean(u**r) for r in range(9)], rel=1e-11, abs=1e-12)


def test_moments_to_order_8_of_independent_normal_entries_have_their_closed_form():
    # q·k = R^(1/2) Z given R = |q|^2, so E x^(2m) = (2m-1)!! E R^m with R chi-square
    for d_k in (1, 2, 64, 10**6):
        even = [math.prod((2 * j - 1) * (d_k + 2 * j - 2) / d_k for j in range(1, m + 1)) for m in range(5)]
        found = QueryKeyModel(d_k).standardised_moments()
        assert found[::2] == pytest.approx(even, rel=1e-12)
        assert found[1::2] == [0, 0, 0, 0]


@pytest.mark.parametrize("order", range(9))
def test_entry_moments_equal_the_integrals_of_their_densities(order):
    laws = {"normal": stats.norm(), "uniform": stats.uniform(-math.sqrt(3), 2 * math.sqrt(3))}
    laws |= {"laplace": stats.laplace(scale=math.sqrt(0.5)), "student_t": stats.t(9, scale=math.sqrt(7 / 9))}
    for entries, law in laws.items():
        low, high = law.support()
        integral, _ = integrate.quad(lambda z, law=law: z**order * law.pdf(z), max(low, 0), high, epsabs=0, limit=200)
        exact = 0 if order % 2 else 2 * integral
        assert entry_moment(entries, 9 if entries == "student_t" else None, order) == pytest.approx(exact, rel=1e-7)


@pytest.mark.parametrize(
    ("df", "correlation", "finite"),
    [
        (2.01, 0, ["variance"]),
        (3, 0, ["variance"]),  # no skewness either: E|t|^3 is infinite
        (4, 0, ["variance", "skewness"]),
        (4.01, 0, ["variance", "skewness", "kurtosis"]),
        (4, 0.5, []),
        (4.01, 0.5, ["variance"]),
        (6.01, 0.5, ["variance", "skewness"]),
        (8, 0.5, ["variance", "skewness"]),
        (8.01, 0.5, ["variance", "skewness", "kurtosis"]),
    ],
)
def test_student_t_has_the_moments_its_tails_allow(df, correlation, finite):
    found = QueryKeyModel(64, "student_t", df, correlation=correlation).moments()
    assert math.isfinite(found.mean)
    assert [name for name in found._fields[1:] if math.isfinite(getattr(found, name))] == finite


@pytest.mark.parametrize(("df", "excess"), [(5, 1.219), (8, 0.270)])
def test_student_t_excess_kurtosis_at_64(df, excess):
    assert QueryKeyModel(64, "student_t", df).moments().kurtosis - 3 == pytest.approx(excess, abs=5e-4)  # C08


def test_many_degrees_of_freedom_approach_normal_entries():
    nearly = QueryKeyModel(8, "student_t", 1e6).moments()
    assert nearly == pytest.approx(QueryKeyModel(8).moments(), rel=1e-4)


def test_large_means_cost_no_digits():
    # raw moments would lose all of them: E x^4 is 10^16 times the fourth cumulant
    model = QueryKeyModel(1, q_mean=1e4, q_std=1, k_mean=1e4, k_std=1)
    variance, fourth = 2e8 + 1, 6 * (1 + 4e8)  # cumulant 4 of (m + z)(m + w) is 6 + 24 m^2
    assert model.moments().variance == pytest.approx(variance, rel=1e-14)
    assert model.moments().kurtosis == pytest.approx(3 + fourth / variance**2, rel=1e-12)
    assert model.moments().skewness == pytest.approx(6e8 / variance**1.5, rel=1e-12)


def test_a_constant_product_has_variance_zero_and_no_shape():
    mean, variance, skewness, kurtosis = QueryKeyModel(4, "rademacher", correlation=1).moments()
    assert (mean, variance) == (4, 0)
    assert math.isnan(skewness)
    assert math.isnan(kurtosis)


def test_small_standard_deviations_scale_the_moments_and_keep_the_shape():
    found = QueryKeyModel(64, q_std=1e-6, k_std=1e-6).moments()
    assert found == pytest.approx((0, 64e-24, 0, 3.09375), rel=1e-12)


def test_only_the_footnotes_assumptions_are_standard():
    assert QueryKeyModel(8, "laplace").is_standard
    for departure in ({"q_mean": 1}, {"k_mean": 1}, {"q_std": 2}, {"k_std": 2}, {"correlation": 0.1}):
        assert not QueryKeyModel(8, **departure).is_standard


def test_entries_are_read_with_their_usual_names():
    assert QueryKeyModel(8, "Gaussian") == QueryKeyModel(8)
    assert QueryKeyModel(8, "Student-T", 5) == QueryKeyModel(8, "t", 5.0)
