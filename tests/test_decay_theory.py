"""Exact values of decay: the oracle's medians, the tables of the theory, and gaps by three independent routes."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from simulation import decay_theory
from simulation.decay_theory import exact_value, gap_exceeds, median_top_gap
from simulation.model import QueryKeyModel
from simulation.row_sizes import QUANTITIES
from simulation.row_statistics import ROW_STATISTICS
from simulation.row_theory import attention_row

Z = 4.65  # two-sided normal tail 3.3e-6: 23 comparisons, one false alarm in 13,000 seeds
DOT, SCALED = "dot", "scaled_dot"

# theory.md 3.2: E tr J for d = 1, 4, 16, 64, 128, 512, 1024
HEAD_DIMENSIONS = (1, 4, 16, 64, 128, 512, 1024)
MEAN_TRACE = {
    (2, SCALED): (0.401017, 0.376186, 0.366743, 0.364078, 0.363622, 0.363277, 0.363220),
    (3, SCALED): (0.556736, 0.531675, 0.522116, 0.519381, 0.518910, 0.518554, 0.518494),
    (16, SCALED): (0.872588, 0.868365, 0.867673, 0.867572, 0.867559, 0.867551, 0.867549),
    (128, SCALED): (0.972716, 0.977242, 0.979103, 0.979628, 0.979718, 0.979786, 0.979797),
    (1024, SCALED): (0.994010, 0.996614, 0.997202, 0.997326, 0.997346, 0.997360, 0.997362),
    (2, DOT): (0.401017, 0.264356, 0.139921, 0.070429, 0.049837, 0.024930, 0.017630),
    (3, DOT): (0.556736, 0.385469, 0.208994, 0.105588, 0.074742, 0.037395, 0.026444),
    (16, DOT): (0.872588, 0.710343, 0.427952, 0.219898, 0.155864, 0.078027, 0.055181),
    (128, DOT): (0.972716, 0.890307, 0.611579, 0.322324, 0.228834, 0.114630, 0.081071),
    (1024, DOT): (0.994010, 0.960395, 0.740208, 0.402584, 0.286296, 0.143499, 0.101492),
}


# --- means and rms -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "scoring"), MEAN_TRACE)
def test_the_table_of_mean_traces(n, scoring):
    found = [exact_value(QueryKeyModel(d), n, scoring, "trace", "mean") for d in HEAD_DIMENSIONS]
    assert found == pytest.approx(MEAN_TRACE[n, scoring], abs=5.1e-7)  # printed to six decimals


def test_means_are_those_of_the_oracle(reference):
    for cell in reference["attention_row_grid"]:
        model, scoring = QueryKeyModel(cell["d"]), SCALED if cell["scaled"] else DOT
        known = {("trace", "mean"): cell["E_tr_J"], ("entropy", "mean"): cell["E_entropy"]}
        known |= {(name, "rms"): math.sqrt(cell["E_frob2"]) for name in ("frobenius", "logit_gradient")}
        for (quantity, statistic), value in known.items():
            assert exact_value(model, cell["n"], scoring, quantity, statistic) == pytest.approx(value, abs=1e-10)


def test_two_keys_and_two_dimensions_have_a_closed_form():
    assert exact_value(QueryKeyModel(2), 2, SCALED, "trace", "mean") == pytest.approx(2 * math.log(2) - 1, rel=1e-13)


@pytest.mark.parametrize(("d", "raw", "scaled"), [(64, 2.212, 0.13787), (512, 4.1927, 0.1370)])
def test_the_rms_query_gradient_grows_unscaled_and_stays_scaled(d, raw, scaled):
    model = QueryKeyModel(d)
    assert exact_value(model, 128, DOT, "query_gradient", "rms") == pytest.approx(raw, rel=2e-4)
    assert exact_value(model, 128, SCALED, "query_gradient", "rms") == pytest.approx(scaled, rel=3e-4)


def test_standard_deviations_move_into_the_scale():
    """logits scale * q_std * k_std; one factor of k_std for the keys of J K."""
    odd, plain = QueryKeyModel(16, q_std=0.5, k_std=3), QueryKeyModel(16)
    assert exact_value(odd, 8, DOT, "trace", "mean") == pytest.approx(attention_row(8, 16, scale=1.5).trace, rel=1e-13)
    assert exact_value(QueryKeyModel(16, q_std=0.5, k_std=2), 8, DOT, "query_gradient", "rms") == pytest.approx(
        2 * exact_value(plain, 8, DOT, "query_gradient", "rms"), rel=1e-13
    )
    one, other = (exact_value(m, 2, SCALED, "entropy", "q90") for m in (QueryKeyModel(9, q_std=3), QueryKeyModel(9)))
    assert exact_value(QueryKeyModel(9), 2, DOT, "entropy", "q90") == pytest.approx(one, rel=1e-12)
    assert one != pytest.approx(other, rel=1e-2)


# --- two keys: quantiles -----------------------------------------------------------------------------------------


def test_medians_of_two_keys_are_those_of_the_oracle(reference):
    for row in reference["qk_quantiles"]:
        for scoring, name in ((DOT, "n2_median_trJ_unscaled"), (SCALED, "n2_median_trJ_scaled")):
            median = exact_value(QueryKeyModel(row["d"]), 2, scoring, "trace", "median")
            assert median == pytest.approx(row[name], rel=1e-10, abs=0)
    assert exact_value(QueryKeyModel(1024), 2, DOT, "trace", "median") == pytest.approx(1.1295e-13, rel=1e-4)


def test_the_median_largest_weight_of_two_keys(reference):
    for row in reference["qk_quantiles"]:
        weight = exact_value(QueryKeyModel(row["d"]), 2, DOT, "largest_weight", "median")
        assert weight == pytest.approx(1 / (1 + math.exp(-math.sqrt(2) * row["q75"])), rel=1e-10)


@pytest.mark.parametrize("quantity", [name for name in QUANTITIES if name != "query_gradient"])
@pytest.mark.parametrize("scoring", [DOT, SCALED])
def test_quantiles_of_two_keys_against_rows_drawn_here(quantity, scoring, seed):
    """The share of rows below the exact quantile is p: k standard errors of a share."""
    rng, rows, d = np.random.default_rng([seed, 2]), 40_000, 6
    q, k = rng.standard_normal((rows, d)), rng.standard_normal((2, rows, d))
    gap = np.abs(np.einsum("rd,rd->r", q, k[0] - k[1])) * (1 if scoring == DOT else d**-0.5)
    y = 1 / (1 + np.exp(gap))
    both = y * (1 - y)
    entropy = -y * np.log(y) - (1 - y) * np.log1p(-y)
    values = {"largest_weight": 1 - y, "largest_entry": both, "entropy": entropy}.get(quantity, 2 * both)
    for statistic, p in (("q10", 0.1), ("median", 0.5), ("q90", 0.9)):
        exact = exact_value(QueryKeyModel(d), 2, scoring, quantity, statistic)
        assert abs((values <= exact).mean() - p) < Z * math.sqrt(p * (1 - p) / rows), statistic


def test_none_where_nothing_is_known():
    model = QueryKeyModel(16)
    known = {("trace", "mean"), ("entropy", "mean")}
    known |= {(name, "rms") for name in ("frobenius", "logit_gradient", "query_gradient")}
    for quantity in QUANTITIES:
        for statistic in ROW_STATISTICS:
            quantile = statistic in ("q10", "median", "q90")
            three = exact_value(model, 3, DOT, quantity, statistic)
            assert (three is not None) == ((quantity, statistic) in known)
            two = exact_value(model, 2, DOT, quantity, statistic)
            assert (two is not None) == ((quantity, statistic) in known or (quantile and quantity != "query_gradient"))


@pytest.mark.parametrize(
    "model", [QueryKeyModel(16, "uniform"), QueryKeyModel(16, q_mean=0.5), QueryKeyModel(16, k_mean=0.5)]
)
def test_none_for_other_laws(model):
    assert exact_value(model, 2, DOT, "trace", "mean") is None
    assert exact_value(model, 2, SCALED, "trace", "median") is None


# --- gaps --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 5, 64, 1024, 10**6])
@pytest.mark.parametrize("deviations", [0.01, 1.0, 4.0])
def test_gaps_of_two_keys_by_one_integral(d, deviations):
    """x_1 - x_2 given |q| = r is N(0, 2 r^2): E erfc(t / 2r) over chi, by adaptive quadrature."""
    t = deviations * math.sqrt(d)
    inside = list(stats.chi(d).ppf([1e-6, 1e-3, 0.5, 0.999, 1 - 1e-6]))
    low, high = max(0.0, math.sqrt(d) - 9), math.sqrt(d) + 9

    def integrand(r):
        return math.erfc(t / (2 * r)) * stats.chi.pdf(r, d) if r > 0 else 0.0

    exact, _ = integrate.quad(integrand, low, high, points=inside, epsabs=1e-13, epsrel=1e-12, limit=400)
    assert gap_exceeds(2, d, t, scale=1.0) == pytest.approx(
        exact, abs=2e-9 if d > 10**5 else 2e-12
    )  # chi.pdf loses digits
    assert gap_exceeds(2, d, t / 7, scale=1 / 7) == pytest.approx(gap_exceeds(2, d, t, scale=1.0), rel=1e-12)


@pytest.mark.parametrize(
    ("n", "d", "threshold"), [(3, 1, 0.5), (3, 30, 4.0), (16, 8, 2.0), (128, 64, 1.5), (700, 20, 3.0)]
)
def test_gaps_against_rows_drawn_here(n, d, threshold, seed):
    rng, rows = np.random.default_rng([seed, n, d]), 2 * 10**6 // (n + 200)
    x = np.sqrt(rng.chisquare(d, rows))[:, None] * rng.standard_normal((rows, n))
    top = np.partition(x, (n - 2, n - 1), axis=1)[:, -2:]
    share = np.mean(top[:, 1] - top[:, 0] > threshold)
    chance = gap_exceeds(n, d, threshold, scale=1.0)
    assert 0.05 < chance < 0.95
    error = math.sqrt(chance * (1 - chance) / rows)
    assert abs(share - chance) < Z * error
    if n == 3:  # negative control: a key fewer
        assert abs(share - gap_exceeds(n - 1, d, threshold, scale=1.0)) > 2 * Z * error


@pytest.mark.parametrize(
    ("n", "gap"), [(3, 0.7), (16, 1.5), (128, 0.05), (1024, 0.05), (4096, 0.2), (4096, 1.0), (2, 12.0), (16, 25.0)]
)
def test_top_gaps_by_adaptive_quadrature(n, gap):
    def integrand(x):
        return n * stats.norm.pdf(x) * stats.norm.cdf(x - gap) ** (n - 1)

    exact, _ = integrate.quad(integrand, max(-9, gap / 2 - 9), gap + 14, points=[gap / 2, gap], epsabs=0, limit=300)
    promised = {"rel": 0, "abs": 2e-12} if exact > 1e-6 else {"rel": 1e-9, "abs": 0}
    assert decay_theory._top_gap_tail(n, np.array([gap]))[0] == pytest.approx(exact, **promised)


def test_every_gap_exceeds_zero_and_none_exceeds_a_great_one():
    for n in (2, 3, 128):
        for d in (1, 16, 10**6):
            assert gap_exceeds(n, d, 0.0, scale=1.0) == pytest.approx(1, abs=1e-12)
            assert gap_exceeds(n, d, 1e9, scale=1.0) < 1e-12
    chances = [gap_exceeds(16, 64, t, scale=1.0) for t in np.linspace(0, 60, 40)]
    assert (np.diff(chances) < 0).all()


# theory.md 3.4 has these from a simulation, in two to three digits
@pytest.mark.parametrize(("n", "simulated"), [(2, 0.954), (3, 0.685), (16, 0.368), (128, 0.256), (1024, 0.207)])
def test_the_rates_of_the_typical_decay(n, simulated, seed):
    rate = median_top_gap(n)
    assert rate == pytest.approx(simulated, abs=0.006)
    rows = 2 * 10**6 // (n + 100)
    x = np.partition(np.random.default_rng([seed, n]).standard_normal((rows, n)), (n - 2, n - 1), axis=1)[:, -2:]
    assert abs(np.mean(x[:, 1] - x[:, 0] <= rate) - 0.5) < Z * math.sqrt(0.25 / rows)


def test_the_rate_of_two_keys_is_a_normal_quantile():
    assert median_top_gap(2) == pytest.approx(math.sqrt(2) * stats.norm.ppf(0.75), rel=1e-9)
    assert all(0 < median_top_gap(n) < median_top_gap(n - 1) for n in (3, 10, 100, 4096))
