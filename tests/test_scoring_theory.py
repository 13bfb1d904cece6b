"""Exact values for the ways of scoring: against the oracle, closed forms, quadrature by other routes, and draws.

Statistical tests compare with a tolerance of Z standard errors of their own run, from independent rows: a right
program fails one comparison in 290 000, and there are about 40. TEST_SEED repeats them with other numbers.
"""

import math

import numpy as np
import pytest
from scipy import integrate, optimize, special

from simulation import _scoring_quadrature
from simulation.additive import draw_additive_weights
from simulation.best_scale import typical_best_std
from simulation.methods import METHODS, make_scoring
from simulation.row_theory import attention_row, expected_max_normal, gaussian_row
from simulation.sampling import child_seed, stream
from simulation.scoring import Scoring, logits
from simulation.scoring_theory import aligned_key, freezing_keys, largest_weight_bound, predict_row
from simulation.scoring_variance import additive_variance, key_length_variance
from simulation.softmax import jacobian_sizes, softmax
from simulation.theory import DotProductLaw

Z = 4.65  # two-sided normal tail 3.3e-6


def off_by(values, expected):
    """How many standard errors the mean of independent values is away from what is expected."""
    return abs(np.mean(values) - expected) / (np.std(values, ddof=1) / math.sqrt(len(values)))


def draw_rows(seed, key, d_k, n_keys, rows):
    rng = stream(child_seed(seed, 31, key), 0)
    return rng.standard_normal((rows, 1, d_k)), rng.standard_normal((rows, n_keys, d_k))


def traces(x):
    return jacobian_sizes(x[:, 0], spectral=False).trace


@pytest.fixture
def _clean_caches():
    yield
    for cached in (predict_row, additive_variance):
        cached.cache_clear()


# --- the table of ways: mean, std, kurtosis, bound ----------------------------------------------


@pytest.mark.parametrize("d", [16, 64, 1024])
@pytest.mark.parametrize(
    ("name", "std", "kurtosis", "bound"),
    [
        ("dot", math.sqrt, lambda d: 3 + 6 / d, lambda _: math.inf),
        ("scaled_dot", lambda _: 1.0, lambda d: 3 + 6 / d, lambda _: math.inf),
        ("mup", lambda d: 1 / math.sqrt(d), lambda d: 3 + 6 / d, lambda _: math.inf),
        ("mup_base", lambda d: math.sqrt(64 / d), lambda d: 3 + 6 / d, lambda _: math.inf),
        ("free_scale", lambda d: math.sqrt(d / 224), lambda d: 3 + 6 / d, lambda _: math.inf),
        ("cosine", lambda d: 8 / math.sqrt(d), lambda d: 3 * d / (d + 2), lambda _: 8.0),
        ("qk_rmsnorm", lambda _: 1.0, lambda d: 3 - 6 / (d + 2), math.sqrt),
        ("log_n", lambda _: math.log(16) / math.log(512), lambda d: 3 + 6 / d, lambda _: math.inf),
        ("ssmax", lambda _: 0.43 * math.log(16), lambda d: 3 + 6 / d, lambda _: math.inf),
        ("sqrt_2_log_n", lambda _: math.sqrt(2 * math.log(16)), lambda d: 3 + 6 / d, lambda _: math.inf),
        ("t5", lambda _: 1.0, lambda d: 3 + 6 / d, lambda _: math.inf),
    ],
)
def test_moments_at_initialisation(name, std, kurtosis, bound, d):
    row = predict_row(make_scoring(name, d, n_keys=16), d, 16)
    assert row.mean == 0
    assert row.std == pytest.approx(std(d), rel=1e-11)
    assert row.total_variance == pytest.approx(std(d) ** 2, rel=1e-11)
    assert row.kurtosis == pytest.approx(kurtosis(d), rel=1e-10)
    assert row.bound == pytest.approx(bound(d), rel=1e-14)
    assert row.exact


def test_cosine_moments_match_the_oracle(reference):
    for cell in reference["moments_cosine"]["rows"]:
        row = predict_row(Scoring("cosine"), cell["d"], 1)
        assert row.total_variance == pytest.approx(cell["var"], rel=1e-12)
        assert row.kurtosis == pytest.approx(cell["kurtosis"], rel=1e-12)


@pytest.mark.parametrize("name", sorted(METHODS))
@pytest.mark.parametrize("n", [1, 2, 16])
def test_every_method_has_a_prediction(name, n):
    row = predict_row(make_scoring(name, 8, n_keys=n), 8, n)
    numbers = (row.mean, row.std, row.total_variance, row.slope, row.trace, row.entropy)
    assert all(math.isfinite(x) for x in numbers)
    assert 0 <= row.trace <= 1 - 1 / n
    assert -1e-12 <= row.entropy <= math.log(n) + 1e-12
    assert row.exact or name in ("additive", "key_lengths")


@pytest.mark.parametrize("kind", ["dot", "cosine", "rmsnorm", "key_lengths", "additive"])
def test_scale_zero_is_uniform_attention(kind):
    row = predict_row(Scoring(kind).times("none", 0), 4, 8)
    assert (row.std, row.trace, row.entropy) == pytest.approx((0, 7 / 8, math.log(8)), abs=1e-12)
    row = predict_row(Scoring(kind="dot", cap=2).times("none", 0), 4, 8)
    assert (row.bound, row.trace) == (0, pytest.approx(7 / 8))


# --- soft-cap ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "variance", "slope"), [(64, 60.86, 0.976), (512, 374.3, 0.850), (4096, 1210.6, 0.516)])
def test_soft_cap_50_of_unscaled_logits(d, variance, slope):
    row = predict_row(Scoring(cap=50), d, 1)
    assert row.total_variance == pytest.approx(variance, abs=0.05 if d > 64 else 0.005)
    assert row.slope == pytest.approx(slope, abs=5e-4)
    # the same by the exact density of q·k, which theory.py has by another route
    z = math.sqrt(d) * np.arange(-12, 12, 0.04)
    expected = float(np.square(50 * np.tanh(z / 50)) @ DotProductLaw(d).pdf(z)) * 0.04 * math.sqrt(d)
    assert row.total_variance == pytest.approx(expected, rel=1e-9)


def test_a_cap_does_not_prevent_freezing():
    # bounded by 50, the largest weight may still be 1 - 1e-40: freezing is not prevented
    assert 1 - largest_weight_bound(15, 16) < 1e-11
    assert predict_row(Scoring(cap=50), 64, 16).trace < 0.25
    assert predict_row(make_scoring("soft_cap", 64), 64, 16).trace == pytest.approx(0.8676, abs=2e-4)


@pytest.mark.parametrize(("d", "n", "name"), [(4, 2, "dot"), (16, 16, "dot"), (64, 1024, "scaled_dot")])
def test_a_wide_cap_changes_nothing(d, n, name):
    # rows by two routes: this module's sums over logits, row_theory's interpolated panels
    plain, capped = (predict_row(make_scoring(name, d).capped(cap), d, n) for cap in (math.inf, 1e6))
    assert capped.trace == pytest.approx(plain.trace, abs=1e-9)
    assert capped.entropy == pytest.approx(plain.entropy, abs=1e-9)
    assert capped.total_variance == pytest.approx(plain.total_variance, rel=1e-9)
    assert capped.kurtosis == pytest.approx(plain.kurtosis, rel=1e-8)


# --- rows that are not normal -------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 5, 16])
def test_cosine_in_one_dimension(n):
    # logits are ±g with equal chance: a binomial sum
    gain, trace, entropy = 1.3, 0.0, 0.0
    for up in range(n + 1):
        weights = softmax([gain] * up + [-gain] * (n - up))
        chance = math.comb(n, up) / 2**n
        trace += chance * (1 - np.square(weights).sum())
        entropy -= chance * float(weights @ np.log(weights))
    row = predict_row(make_scoring("cosine", 1, gain=gain), 1, n)
    assert (row.trace, row.entropy) == pytest.approx((trace, entropy), rel=1e-11)


def test_cosine_in_three_dimensions():
    # uniform on ±g; for two keys tr J = ½ sech²(δ/2), δ triangular on ±2g
    gain = 4.0
    expected, _ = integrate.quad(lambda x: (2 * gain - x) / (4 * gain**2) / math.cosh(x / 2) ** 2, 0, 2 * gain)
    assert predict_row(make_scoring("cosine", 3, gain=gain), 3, 2).trace == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(
    ("key", "scoring", "d", "n"),
    [
        (0, make_scoring("cosine", 8, gain=8), 8, 16),
        (1, make_scoring("cosine", 2, gain=20), 2, 6),
        (2, make_scoring("qk_rmsnorm", 4, eps=0), 4, 32),
        (3, Scoring(cap=5), 16, 8),
        (4, Scoring(cap=0.7), 16, 8),
        (5, make_scoring("cosine", 8, gain=8).capped(3), 8, 16),
        (6, make_scoring("ssmax", 16, n_keys=40), 16, 40),
    ],
)
def test_rows_against_draws(seed, key, scoring, d, n):
    x = logits(*draw_rows(seed, key, d, n, 20_000), scoring)
    row = predict_row(scoring, d, n)
    sizes = jacobian_sizes(x[:, 0], spectral=False)
    assert off_by(np.square(x).mean(axis=(1, 2)), row.total_variance) < Z
    assert off_by(sizes.trace, row.trace) < Z
    assert off_by(sizes.entropy, row.entropy) < Z
    assert np.abs(x).max() <= row.bound * (1 + 1e-12)


def test_draws_reject_normal_logits(seed):
    # the planted fault: cosine logits of d_k = 2 taken for normal ones with the same std
    x = logits(*draw_rows(seed, 1, 2, 6, 20_000), make_scoring("cosine", 2, gain=20))
    assert off_by(traces(x), gaussian_row(6, 20 / math.sqrt(2)).trace) > Z


@pytest.mark.usefixtures("_clean_caches")
@pytest.mark.parametrize("scoring", [Scoring(cap=5), make_scoring("cosine", 8, gain=8), Scoring("rmsnorm", cap=0.5)])
def test_finer_steps_change_nothing(scoring, monkeypatch):
    coarse = predict_row(scoring, 8, 16)
    monkeypatch.setattr(_scoring_quadrature, "_STEP", 0.15)
    predict_row.cache_clear()
    fine = predict_row(scoring, 8, 16)
    for field in ("total_variance", "kurtosis", "trace", "entropy"):
        assert getattr(fine, field) == pytest.approx(getattr(coarse, field), rel=1e-9), field


def test_rows_too_wide_to_compute_say_so():
    row = predict_row(Scoring(cap=600).times("big", 20), 64, 4)
    assert row.trace is row.entropy is None
    assert not row.exact
    assert row.total_variance == pytest.approx(20**2 * 64, rel=0.25)


# --- additive ----------------------------------------------------------------------------------


def test_additive_matches_the_oracle(reference):
    oracle = reference["additive_attention"]
    found = additive_variance()
    assert found.total == pytest.approx(oracle["Xavier_total"], abs=1e-14)
    assert found.within_row == pytest.approx(oracle["Xavier_within_row"], abs=1e-14)
    for variance, value in oracle["E_tanh2"].items():
        v = float(variance)
        for query_part in (0, v / 3, v):
            assert additive_variance(query_part, v - query_part).total == pytest.approx(value, abs=1e-12)
    assert additive_variance(1, 0).within_row == pytest.approx(0, abs=1e-15)
    assert additive_variance(0, 1).within_row == pytest.approx(oracle["E_tanh2"]["1"], abs=1e-12)


def test_finite_d_k_lowers_additive_variance():
    found = [additive_variance(d_k=d).within_row for d in (1, 4, 64, 10**6)]
    assert found == sorted(found)
    assert found[-1] == pytest.approx(additive_variance().within_row, abs=1e-6)


@pytest.mark.parametrize("d", [2, 16])
def test_additive_variance_against_draws(seed, d):
    total, within = [], []
    for i in range(3000):
        rng = stream(child_seed(seed, 33, d), i)
        scoring = Scoring("additive", weights=draw_additive_weights(d, 6, rng=rng))
        x = logits(rng.standard_normal((1, d)), rng.standard_normal((64, d)), scoring)[0]
        total.append(np.square(x).mean())
        within.append(x.var(ddof=1))
    expected = additive_variance(d_k=d)
    assert off_by(total, expected.total) < Z
    assert off_by(within, expected.within_row) < Z
    assert off_by(within, expected.total) > Z  # the planted fault: what softmax sees is not the total


def test_additive_rows_are_nearly_normal(seed):
    row = predict_row(make_scoring("additive", 64), 64, 16)
    assert gaussian_row(16, math.sqrt(additive_variance().within_row)).trace == pytest.approx(0.92458, abs=5e-6)
    assert not row.exact
    q, k = draw_rows(seed, 7, 64, 16, 600)
    weights = [draw_additive_weights(64, 64, rng=child_seed(seed, 34, i)) for i in range(600)]
    rows = [logits(a, b, Scoring("additive", weights=w)) for a, b, w in zip(q, k, weights, strict=True)]
    assert np.mean(traces(np.array(rows))) == pytest.approx(row.trace, abs=0.002)


# --- summed key lengths -------------------------------------------------------------------------


def test_key_lengths_closed_forms():
    assert key_length_variance(64, 1) == 1
    # two half-normal lengths: E (a² + b²)/(a + b)² = 2/π
    assert key_length_variance(1, 2) == pytest.approx(1 / math.pi, rel=2e-5)
    # two Rayleigh lengths, at angle φ: E of 1/(1 + sin 2φ) with density sin 2φ on (0, π/2)
    expected, _ = integrate.quad(lambda phi: math.sin(2 * phi) / (1 + math.sin(2 * phi)), 0, math.pi / 2)
    assert key_length_variance(2, 2) == pytest.approx(expected / 2, rel=1e-9)
    for d in (4, 64):  # many keys: Σ|k| is n E|k|, and E|k|² = d
        mean_length = math.sqrt(2) * math.exp(special.gammaln((d + 1) / 2) - special.gammaln(d / 2))
        assert 10**12 * key_length_variance(d, 10**6) == pytest.approx(d / mean_length**2, rel=2e-6)


@pytest.mark.parametrize(("d", "n"), [(4, 3), (64, 16)])
def test_key_lengths_against_draws(seed, d, n):
    q, k = draw_rows(seed, 8 + n, d, n, 5_000)
    scoring = make_scoring("key_lengths", d)
    x = logits(q, k, scoring)
    assert off_by(np.square(x).mean(axis=(1, 2)), key_length_variance(d, n)) < Z
    assert np.mean(traces(x)) == pytest.approx(predict_row(scoring, d, n).trace, abs=1e-3)
    assert 1 - 1 / n - np.mean(traces(x)) < 1 / n**3  # next to uniform


# --- aligned keys ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "weights", "tolerance"),
    [
        (lambda d: d**-0.5, (0.28, 0.66, 0.986, 1.0), 0.005),
        (lambda d: 8 / d, (0.45, 0.66, 0.75, 0.78), 0.006),
        (lambda d: 1 / d, (0.10, 0.10, 0.10, 0.10), 0.005),
    ],
)
def test_weight_of_one_aligned_key_among_sixteen(scale, weights, tolerance):
    found = [aligned_key(16, d, 0.5, scale(d)).weight for d in (16, 64, 256, 1024)]
    assert found == pytest.approx(weights, abs=tolerance)


@pytest.mark.parametrize(("d", "rho", "mean", "variance"), [(64, 0.5, 32, 80), (64, 0.1, 6.4, 64.64), (64, 1, 64, 128)])
def test_mean_of_an_aligned_logit(d, rho, mean, variance):
    for scale in (1, 1 / 8, 1 / 64):
        key = aligned_key(8, d, rho, scale)
        assert key.mean == pytest.approx(scale * mean)
        assert key.variance == pytest.approx(scale**2 * variance)
        assert key.others_std == pytest.approx(scale * 8)
    assert aligned_key(8, d, rho, d**-0.5).mean == pytest.approx(rho * math.sqrt(d))
    assert aligned_key(8, d, rho, 1 / d).mean == pytest.approx(rho)


@pytest.mark.parametrize(
    ("n", "scale"), [*((n, scale) for n in (1, 2, 16, 10**6) for scale in (0.01, 0.125, 1.0, 30.0)), (2, 1e3)]
)
def test_without_correlation_a_key_gets_its_share(n, scale):
    row = aligned_key(n, 64, 0, scale)
    assert row.weight == pytest.approx(1 / n, rel=1e-10)
    assert row.trace == pytest.approx(attention_row(n, 64, scale=scale).trace, rel=1e-10, abs=1e-15)


@pytest.mark.parametrize(
    ("key", "d", "n", "rho", "scale"), [(0, 4, 8, 0.6, 1), (1, 64, 16, -0.2, 0.125), (2, 16, 5, 1, 0.1)]
)
def test_aligned_weight_against_draws(seed, key, d, n, rho, scale):
    q, k = draw_rows(seed, 40 + key, d, n, 8_000)
    k[:, 0] = rho * q[:, 0] + math.sqrt(1 - rho**2) * k[:, 0]
    x = logits(q, k, Scoring().times("c", scale))
    assert off_by(softmax(x)[:, 0, 0], aligned_key(n, d, rho, scale).weight) < Z
    assert off_by(traces(x), aligned_key(n, d, rho, scale).trace) < Z
    assert off_by(x[:, 0, 0], scale * rho * d) < Z


def test_alignment_with_all_keys_is_invisible_but_narrows(seed):
    row = predict_row(make_scoring("scaled_dot", 64), 64, 16, correlation=0.6)
    assert (row.mean, row.total_variance, row.std) == pytest.approx((4.8, 1.36, 0.8))
    assert row.kurtosis == pytest.approx(3 + 6 * (1 + 6 * 0.36 + 0.6**4) / (64 * 1.36**2))
    assert row.trace == attention_row(16, 64, scale=0.1).trace
    q, k = draw_rows(seed, 50, 64, 16, 8_000)
    x = logits(q, 0.6 * q + 0.8 * k, make_scoring("scaled_dot", 64))
    assert off_by(traces(x), row.trace) < Z
    assert off_by(x.mean(axis=(1, 2)), row.mean) < Z
    assert off_by(x[:, 0].var(axis=1, ddof=1), row.std**2) < Z
    assert predict_row(make_scoring("mup", 64), 64, 16, correlation=0.6).mean == pytest.approx(0.6)
    identical = predict_row(make_scoring("dot", 4), 4, 3, correlation=1)
    assert (identical.mean, identical.total_variance, identical.std, identical.trace) == pytest.approx((4, 8, 0, 2 / 3))


# --- the number of keys ------------------------------------------------------------------------


def test_scalable_softmax_keeps_this_much_entropy():
    keys = (16, 128, 1024, 8192, 65536)
    found = [gaussian_row(n, make_scoring("ssmax", 1, n_keys=n).effective_scale).entropy / math.log(n) for n in keys]
    assert found == pytest.approx([0.80, 0.64, 0.50, 0.39, 0.30], abs=0.006)
    assert freezing_keys(0.43) == pytest.approx(5.0e4, rel=0.01)
    edge = freezing_keys(0.43)
    assert 0.43 * math.log(edge) == pytest.approx(math.sqrt(2 * math.log(edge)))


def test_log_n_at_65536():
    row = gaussian_row(65536, make_scoring("log_n", 1, n_keys=65536).effective_scale)
    assert row.entropy / math.log(65536) == pytest.approx(0.858, abs=5e-4)
    assert 1 / (1 - row.trace) == pytest.approx(2818, abs=1)
    assert math.log(freezing_keys(1 / math.log(512))) == pytest.approx(2 * math.log(512) ** 2)
    assert freezing_keys(1e-3) == math.inf


def test_sqrt_2_log_n_stays_at_the_edge():
    stds = {n: make_scoring("sqrt_2_log_n", 1, n_keys=n).effective_scale for n in (16, 65536)}
    found = [1 / (1 - gaussian_row(n, std).trace) for n, std in stds.items()]
    assert found == pytest.approx([2.6, 5.4], abs=0.06)


def test_what_bounded_logits_allow():
    for n, gain in ((16, 3.65), (128, 4.72), (1024, 5.76)):
        assert 0.5 * math.log(99 * (n - 1)) == pytest.approx(gain, abs=0.006)
        assert largest_weight_bound(0.5 * math.log(99 * (n - 1)), n) == pytest.approx(0.99)
    # the published initial gain log2(n² - n) leaves room
    for n, gain in ((16, 7.9), (128, 14.0), (1024, 20.0)):
        assert math.log2(n**2 - n) == pytest.approx(gain, abs=0.05)
        assert largest_weight_bound(math.log2(n**2 - n), n) > 0.9999
    assert largest_weight_bound(0, 8) == pytest.approx(1 / 8)
    assert largest_weight_bound(math.inf, 8) == 1
    worst = softmax([3.0, *[-3.0] * 15])[0]
    assert largest_weight_bound(3, 16) == pytest.approx(worst)


def test_causal_mask_averages_over_row_lengths():
    for name, expected in (("scaled_dot", 0.6907), ("dot", 0.1617)):
        values = [predict_row(make_scoring(name, 64), 64, n).trace for n in range(1, 17)]
        assert np.mean(values) == pytest.approx(expected, abs=5e-5)


def test_rotary_positions_leave_the_row_as_it_is(seed):
    q, k = draw_rows(seed, 60, 8, 12, 20_000)
    angles = np.arange(12)[:, None] * 10_000.0 ** (-np.arange(4) / 4)
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = k[..., :4], k[..., 4:]
    rotated = np.concatenate([cos * first - sin * second, sin * first + cos * second], axis=-1)
    x = logits(q, rotated, make_scoring("scaled_dot", 8))
    assert off_by(traces(x), predict_row(make_scoring("scaled_dot", 8), 8, 12).trace) < Z


# --- the best scale ----------------------------------------------------------------------------


def test_the_mean_gradient_has_no_best_scale():
    for n in (2, 16, 128):
        found = [alpha * gaussian_row(n, alpha).trace for alpha in (0.5, 1, 2, 4, 8, 16, 64)]
        assert found == sorted(found)
        assert found[-1] < expected_max_normal(n)
        assert found[-1] == pytest.approx(expected_max_normal(n), rel=1e-3)


def test_the_typical_gradient_of_two_keys(seed):
    # α ½ sech²(α z/√2) is largest on the geometric mean where 1/α = E √2 z tanh(α z/√2)
    z = np.linspace(-10, 10, 4001)
    p = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
    exact = optimize.brentq(lambda a: 1 / a - p @ (math.sqrt(2) * z * np.tanh(a * z / math.sqrt(2))), 0.5, 3)
    assert exact == pytest.approx(1.2366, abs=5e-5)
    best = typical_best_std(2, rows=50_000, rng=child_seed(seed, 35))
    assert abs(best.estimate - exact) < Z * best.standard_error
    assert best.standard_error < 0.006
    assert best.interval[0] < best.estimate < best.interval[1]


def test_the_typical_gradient_tracks_sqrt_2_log_n(seed):
    for n, close in ((3, 1.545), (16, 2.432), (128, 3.206)):  # runs of 10^6, 6·10^5 and 8·10^4 rows
        best = typical_best_std(n, rows=10_000, rng=child_seed(seed, 36))
        assert abs(best.estimate - close) < Z * best.standard_error + 0.02
        assert best.estimate == pytest.approx(math.sqrt(2 * math.log(n)), rel=0.12)
        assert best.estimate > 1 + Z * best.standard_error  # √d_k, with std 1, is the safer side of it


def test_standard_errors_of_the_best_scale(seed):
    runs = [typical_best_std(4, rows=500, rng=child_seed(seed, 37, i)) for i in range(80)]
    spread = np.std([run.estimate for run in runs], ddof=1)
    assert np.mean([run.standard_error for run in runs]) == pytest.approx(spread, rel=0.4)  # 5 standard deviations


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: predict_row(Scoring(), 0, 2), r"`d_k` must be a whole number from 1"),
        (lambda: predict_row(Scoring(), 2, 0), r"`n_keys` must be a whole number from 1"),
        (lambda: predict_row(Scoring(), 2, 2, correlation=2), r"`correlation` must be a number from -1 to 1"),
        (lambda: predict_row(Scoring("cosine"), 2, 2, correlation=0.5), r"`correlation` must be 0 unless .* linear"),
        (lambda: predict_row(Scoring("additive", cap=3), 2, 2), r"`scoring` must have no soft-cap for kind additive"),
        (lambda: predict_row(Scoring(cap=1e12).times("c", 1e12), 2, 2), r"`scoring` must have a scale and a cap"),
        (lambda: additive_variance(-1), r"`query_part` must be a number from 0 to 16; received -1"),
        (lambda: additive_variance(d_k=0), r"`d_k` must be"),
        (lambda: key_length_variance(0, 3), r"`d_k` must be"),
        (lambda: key_length_variance(3, 0), r"`n_keys` must be"),
        (lambda: aligned_key(2, 4, 0.5, 0), r"`scale` must be a number above 0"),
        (lambda: aligned_key(2, 4, 1.5, 1), r"`correlation` must be a number from -1 to 1"),
        (lambda: freezing_keys(0), r"`per_log_key` must be a number above 0"),
        (lambda: largest_weight_bound(-1, 2), r"`bound` must be a number from 0"),
        (lambda: typical_best_std(1), r"`n_keys` must be a whole number from 2"),
        (lambda: typical_best_std(1000, rows=20_000), r"`rows` must be a whole number from 100 to 10,000"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
