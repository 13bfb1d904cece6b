"""Exact row expectations against the oracle, closed forms, Monte Carlo, and themselves by another route."""

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation import _row_quadrature, row_theory
from simulation.row_theory import (
    RowExpectations,
    attention_row,
    expected_max_normal,
    freezing_d_k,
    gaussian_row,
    gaussian_rows,
    query_gradient_square,
    trace_bound,
)

ORACLE = json.loads((Path(__file__).parent / "data" / "reference.json").read_text(encoding="utf-8"))
FIELDS = ("trace", "frobenius_squared", "entropy", "log_partition", "attended_logit")
STDS = [1e-3, 0.1, 0.4999, 0.5, 0.9, 1.7, 3.3, 6.1, 11.0, 23.0, 47.0, 63.9, 64.0, 500.0, 1e4, 1e6]

# Sums of 30 digits over the logits themselves at two step sizes that agree to 20 digits (mpmath):
# ln Z, trace, ||J||_F^2, ||J z||^2.
THIRTY_DIGITS = {
    (2, 0.3): (0.71516872906478636975, 0.47930227690217890734, 0.23046501490236661718, 0.19638156648650076944),
    (16384, 1.0): (10.204008099078169172, 0.99983416628292025448, 1.6571205261149347e-4, 3.3069699812773727e-4),
    (16384, 8.0): (32.303165154505808769, 0.485590173017366083, 0.088921400705817477736, 0.0031001323845191855823),
    (10**6, 2.5): (16.940266475821971892, 0.99954300976381749592, 4.2625291579429391e-4, 0.0024217046098344393073),
    (10**6, 5.0): (25.846072382903938443, 0.86350681984369767716, 0.049992452686487627515, 0.025003831022312163208),
    (10**9, 3.1): (25.528258605932189886, 0.99998602296371080218, 1.3507005934703203e-5, 1.2682389153589029e-4),
    (10**9, 6.3): (40.011049269687220643, 0.88001528439472091859, 0.042454717501640253857, 0.020409069342189528331),
}


@pytest.fixture
def _clean_caches() -> Iterator[None]:
    """Let a test plant a fault in the quadrature, and leave none of its numbers behind."""
    caches = (_row_quadrature.query_norms, _row_quadrature._panel_coefficients, _row_quadrature._key_laws)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def oracle_row(cell: dict[str, Any]) -> RowExpectations:
    return attention_row(cell["n"], cell["d"], scale=None if cell["scaled"] else 1)


def worst_oracle_error() -> float:
    """Return the largest absolute error over the attention grid: 253 cells, five expectations each."""
    keys = ("E_tr_J", "E_frob2", "E_entropy", "E_logZ", "E_mean_attended_logit")
    return max(
        abs(getattr(oracle_row(cell), field) - cell[key])
        for cell in ORACLE["attention_row_grid"]
        for field, key in zip(FIELDS, keys, strict=True)
    )


def direct(n: int, std: float) -> np.ndarray:
    return np.array(_row_quadrature.direct_row_averages(n, std))


def interpolated(n: int, stds: list[float]) -> np.ndarray:
    return np.array(_row_quadrature.row_averages(n, np.array(stds))).T


# --- against the oracle ------------------------------------------------------------------------


def test_attention_rows_match_the_oracle() -> None:
    assert len(ORACLE["attention_row_grid"]) == 253
    assert worst_oracle_error() < 1e-10
    for cell in ORACLE["attention_row_grid"]:
        assert oracle_row(cell).trace == pytest.approx(cell["E_tr_J"], abs=1e-12)


@pytest.mark.parametrize("n", sorted({cell["n"] for cell in ORACLE["iid_gaussian_logits_grid"]}))
def test_gaussian_rows_match_the_oracle(n: int) -> None:
    # The oracle rounds phi^n, so its ln Z is good to about n * 3e-14: 4e-10 at n = 16384, where
    # test_thirty_digits shows which of the two is right.
    tolerance = max(1e-10, n * 3e-14)
    for cell in (c for c in ORACLE["iid_gaussian_logits_grid"] if c["n"] == n):
        row, variance = gaussian_row(n, cell["s"]), cell["s"] ** 2
        assert row.trace == pytest.approx(cell["E_tr_J"], abs=1e-11)
        assert row.frobenius_squared == pytest.approx(cell["E_frob2"], abs=1e-11)
        assert row.log_partition == pytest.approx(cell["E_logZ"], abs=tolerance)
        assert row.attended_logit == pytest.approx(variance * cell["E_tr_J"], abs=tolerance * max(variance, 1))
        entropy = cell["E_logZ"] - variance * cell["E_tr_J"]
        assert row.entropy == pytest.approx(entropy, abs=tolerance * max(variance, 1))


@pytest.mark.parametrize(("n", "std"), THIRTY_DIGITS)
def test_thirty_digits(n: int, std: float) -> None:
    log_partition, trace, frobenius_squared, response_squared = THIRTY_DIGITS[n, std]
    averages = _row_quadrature.row_averages(n, np.array([std]))
    assert averages.log_partition[0] == pytest.approx(log_partition, rel=1e-12)
    assert averages.trace[0] == pytest.approx(trace, rel=1e-12)
    assert averages.frobenius_squared[0] == pytest.approx(frobenius_squared, rel=1e-12)
    assert averages.response_squared[0] == pytest.approx(response_squared, rel=1e-11)


@pytest.mark.parametrize("row", ORACLE["n2_attention_row_mp"]["rows"])
def test_two_keys_match_many_digits(row: dict[str, Any]) -> None:
    trace = attention_row(2, row["d"], scale=None if row["scaled"] else 1).trace
    assert trace == pytest.approx(float(row["E_tr_J"]), rel=1e-13)


def test_expected_max_normal() -> None:
    for n, value in ORACLE["E_max_normal"].items():
        assert expected_max_normal(int(n)) == pytest.approx(float(value), rel=1e-13)
    assert expected_max_normal(1) == 0
    assert expected_max_normal(3) == pytest.approx(1.5 / math.sqrt(math.pi), rel=1e-14)
    # 20 digits by mpmath's adaptive quadrature.
    assert expected_max_normal(10**6) == pytest.approx(4.8628974861964627212, rel=1e-13)
    assert expected_max_normal(10**9) == pytest.approx(6.0876845844459586525, rel=1e-13)


# --- closed forms and limits -------------------------------------------------------------------


def test_two_keys_in_two_dimensions() -> None:
    assert attention_row(2, 2).trace == pytest.approx(2 * math.log(2) - 1, rel=1e-13)


@pytest.mark.parametrize("std", [0.2, 1.0, 4.0, 30.0])
def test_two_keys_by_their_difference(std: float) -> None:
    """With two keys everything is a function of x_1 - x_2 ~ N(0, 2 std^2)."""
    gap = np.linspace(-12, 12, 200_001)
    weight = np.exp(-gap * gap / 2)
    weight /= weight.sum()
    first = 1 / (1 + np.exp(-math.sqrt(2) * std * gap))
    product = first * first[::-1]
    row = gaussian_row(2, std)
    assert row.trace == pytest.approx(2 * product @ weight, rel=1e-11)
    assert row.frobenius_squared == pytest.approx(4 * product**2 @ weight, rel=1e-11)
    assert row.entropy == pytest.approx(-2 * (first * np.log(np.maximum(first, 1e-300))) @ weight, rel=1e-11)
    response = _row_quadrature.row_averages(2, np.array([std])).response_squared[0]
    assert response == pytest.approx(4 * (product**2 * gap**2) @ weight, rel=1e-11)


@pytest.mark.parametrize("n", [2, 3, 16, 1024, 10**6, 10**9])
def test_uniform_limit(n: int) -> None:
    row = gaussian_row(n, 0)
    assert row.trace == pytest.approx(1 - 1 / n, rel=1e-14)
    assert row.frobenius_squared == pytest.approx((1 - 1 / n) / n, rel=1e-12)
    assert row.entropy == pytest.approx(math.log(n), rel=1e-13)
    assert row.log_partition == pytest.approx(math.log(n), rel=1e-13)
    assert row.attended_logit == pytest.approx(0, abs=1e-14)
    std = 0.01
    slope = (1 - 1 / n) * (1 - std**2 / n + (6 - n) * std**4 / (2 * n * n))
    assert gaussian_row(n, std).trace == pytest.approx(slope, rel=1e-10)


def test_one_key_has_nothing_to_choose() -> None:
    for row in (gaussian_row(1, 3.0), attention_row(1, 64), attention_row(1, 64, scale=1)):
        assert [getattr(row, field) for field in FIELDS] == [0, 0, 0, 0, 0]
        assert (row.largest_weight_lower, row.largest_weight_upper) == (1, 1)
    assert query_gradient_square(1, 64) == 0
    assert trace_bound(1, 64) == 0
    assert freezing_d_k(1) == 0


@pytest.mark.parametrize("n", [2, 3, 128, 10**6])
def test_frozen_limit(n: int) -> None:
    """As the logits grow, std * trace tends to E max, and the other averages follow the near-ties."""
    std, top = 1e10, expected_max_normal(n)
    row = gaussian_row(n, std)
    assert row.trace * std == pytest.approx(top, rel=1e-9)
    assert row.frobenius_squared * std == pytest.approx(top / 3, rel=1e-9)
    assert row.log_partition / std == pytest.approx(top, rel=1e-9)
    assert row.attended_logit / std == pytest.approx(top, rel=1e-9)
    assert row.entropy * std == pytest.approx(top * math.pi**2 / 6, rel=1e-9)


def test_wide_heads() -> None:
    assert attention_row(128, 10**6).trace == pytest.approx(gaussian_row(128, 1).trace, rel=1e-6)
    # Unscaled: a sum over |q| = sqrt(d) + t/sqrt(2) with Stein's trace, without panels or nodes of ours.
    d = 10**6
    t = np.linspace(-9, 9, 19)
    norm = math.sqrt(d) + t / math.sqrt(2)
    log_density = (d - 1) * np.log(norm / math.sqrt(d)) - (norm**2 - d) / 2
    weights = np.exp(log_density - log_density.max())
    traces = [direct(128, float(r))[4] / r**2 for r in norm]
    assert attention_row(128, d, scale=1).trace == pytest.approx(np.dot(weights, traces) / weights.sum(), rel=1e-10)


def test_freezing_d_k() -> None:
    assert freezing_d_k(1024) == pytest.approx(13.8629436112, rel=1e-11)


# --- one number by two routes ------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 17, 1024, 10**6, 10**9])
def test_stein_identity_and_entropy(n: int) -> None:
    """Attended logit = std^2 trace and ln Z = entropy + attended logit: each side is its own sum."""
    for std, row in zip(STDS, gaussian_rows(n, STDS), strict=True):
        assert row.attended_logit == pytest.approx(std**2 * row.trace, rel=1e-10, abs=1e-14)
        assert row.log_partition == pytest.approx(row.entropy + row.attended_logit, rel=1e-11)


@pytest.mark.parametrize("n", [2, 5, 128, 16384, 10**6])
def test_panels_interpolate(n: int) -> None:
    expected = np.array([direct(n, std) for std in STDS])
    np.testing.assert_allclose(interpolated(n, STDS), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.usefixtures("_clean_caches")
@pytest.mark.parametrize(
    ("constant", "finer"),
    [("_STEP", 0.1), ("_STEP_NORMAL", 0.25), ("_STEP_PEAK", 0.02), ("_DEPTH", 70.0), ("_NARROW", 0.4)],
)
def test_finer_sums_change_nothing(constant: str, finer: float, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [(n, std) for n in (2, 3, 1024, 10**6) for std in (0.0, 0.1, 0.45, 0.5, 1.5, 4.0, 9.0, 40.0, 2000.0)]
    before = [direct(*cell) for cell in cells]
    _row_quadrature._key_laws.cache_clear()
    monkeypatch.setattr(_row_quadrature, constant, finer)
    np.testing.assert_allclose([direct(*cell) for cell in cells], before, rtol=1e-12, atol=1e-15)


def test_many_rows_equal_single_rows() -> None:
    for std, row in zip(STDS, gaussian_rows(37, STDS), strict=True):
        for field in dataclasses.fields(RowExpectations):
            assert getattr(row, field.name) == pytest.approx(getattr(gaussian_row(37, std), field.name), rel=1e-13)
    assert gaussian_rows(37, []) == ()


# --- Monte Carlo -------------------------------------------------------------------------------


def sampled_gradients(n: int, d: int, scale: float, rows: int) -> dict[str, np.ndarray]:
    """Draw whole queries and keys and return per-row values of everything the theory averages."""
    rng = np.random.default_rng([20240, n, d])
    q, k = rng.standard_normal((rows, d)), rng.standard_normal((rows, n, d))
    x = scale * np.einsum("rnd,rd->rn", k, q)
    total = np.exp(x).sum(axis=1)
    y = np.exp(x) / total[:, None]
    gradient = scale * y[:, :, None] * (k - np.einsum("rn,rnd->rd", y, k)[:, None, :])
    square = (y**2).sum(axis=1)
    return {
        "trace": 1 - square,
        "frobenius_squared": square - 2 * (y**3).sum(axis=1) + square**2,
        "entropy": -(y * np.log(y)).sum(axis=1),
        "log_partition": np.log(total),
        "attended_logit": (x * y).sum(axis=1),
        "largest_weight": y.max(axis=1),
        "query_gradient": (gradient**2).sum(axis=(1, 2)),
    }


def z_score(sample: np.ndarray, expected: float) -> float:
    return float((sample.mean() - expected) / (sample.std() / math.sqrt(len(sample))))


@pytest.mark.parametrize(("n", "d", "scale"), [(5, 1, 1.0), (3, 2, 0.7), (9, 6, 1.0), (24, 8, 8**-0.5), (16, 12, 1.0)])
def test_monte_carlo(n: int, d: int, scale: float) -> None:
    """Six numbers in five cells: |z| < 4.2 for all of them but in one run of 1200; the seed is fixed."""
    sample = sampled_gradients(n, d, scale, rows=40_000)
    row = attention_row(n, d, scale=scale)
    for field in FIELDS:
        assert abs(z_score(sample[field], getattr(row, field))) < 4.2, field
    assert abs(z_score(sample["query_gradient"], query_gradient_square(n, d, scale=scale))) < 4.2
    assert row.largest_weight_lower <= sample["largest_weight"].mean() <= row.largest_weight_upper
    # Negative control: a row of one key fewer must be told apart by the same sample.
    assert abs(z_score(sample["trace"], attention_row(n - 1, d, scale=scale).trace)) > 6


# --- bounds ------------------------------------------------------------------------------------

key_counts = st.one_of(st.integers(1, 200), st.integers(1, 10**9))
head_dimensions = st.one_of(st.integers(1, 300), st.integers(1, 10**6))
scales = st.one_of(st.none(), st.just(1.0), st.floats(1e-4, 1e4))


@settings(max_examples=60, deadline=None)
@given(n=key_counts, d=head_dimensions, scale=scales)
def test_what_always_holds(n: int, d: int, scale: float | None) -> None:
    row = attention_row(n, d, scale=scale)
    slack = 1 + 1e-9
    assert 0 <= row.trace <= trace_bound(n, d, scale=scale) * slack
    assert row.trace**2 / slack <= row.frobenius_squared * max(n - 1, 1)  # tr^2 <= rank * ||.||_F^2
    assert row.frobenius_squared <= row.trace / 2 * slack  # eigenvalues are at most 1/2
    assert 0 <= row.entropy <= math.log(n) * slack
    assert row.attended_logit <= row.log_partition * slack + 1e-14
    assert 1 / n / slack <= row.largest_weight_lower <= row.largest_weight_upper * slack
    assert row.largest_weight_upper <= min(1.0, math.sqrt(1 - row.trace)) * slack
    assert query_gradient_square(n, d, scale=scale) >= 0


def test_trace_bound_is_tight_for_frozen_rows() -> None:
    assert trace_bound(128, 1) == 1 - 1 / 128
    known = expected_max_normal(16) * math.gamma(15.5) / math.gamma(16) / math.sqrt(2)
    assert trace_bound(16, 32, scale=1) == pytest.approx(known, rel=1e-13)
    ratios = [attention_row(16, d, scale=1).trace / trace_bound(16, d, scale=1) for d in (64, 1024, 10**6)]
    assert 0.95 < ratios[0] < ratios[1] < ratios[2] < 1
    assert ratios[2] == pytest.approx(1, abs=1e-5)


def test_largest_weight_bounds_close_in_on_a_uniform_row() -> None:
    row = gaussian_row(1000, 1e-4)
    assert row.largest_weight_lower == pytest.approx(1e-3, rel=1e-6)
    assert row.largest_weight_upper == pytest.approx(1e-3, rel=1e-2)


# --- planted faults: what the tests above would catch ------------------------------------------


def one_key_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = _row_quadrature.direct_row_averages
    monkeypatch.setattr(_row_quadrature, "direct_row_averages", lambda n, std: honest(max(n - 1, 2), std))


def too_few_query_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_row_quadrature, "_RADIAL_NODES", 24)


def too_few_panel_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_row_quadrature, "_NODES", 10)


def too_coarse_heights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_row_quadrature, "_STEP", 0.5)


@pytest.mark.usefixtures("_clean_caches")
@pytest.mark.parametrize("plant", [one_key_too_few, too_few_query_norms, too_few_panel_nodes, too_coarse_heights])
def test_oracle_catches(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert worst_oracle_error() > 1e-9


# --- speed and errors --------------------------------------------------------------------------


@pytest.mark.usefixtures("_clean_caches")
def test_speed() -> None:
    """The whole grid from cold caches takes 0.3 s, a call 0.3 ms; ten times that is a regression."""
    start = time.perf_counter()
    worst_rows = [oracle_row(cell) for cell in ORACLE["attention_row_grid"]]
    assert time.perf_counter() - start < 3
    assert len(worst_rows) == 253
    best = min(_seconds(lambda: attention_row(128, 64)) for _ in range(20))
    assert best < 0.01


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gaussian_row(0, 1), r"`n_keys` must be a whole number from 1 to 1,000,000,000; received 0"),
        (lambda: gaussian_row(10**9 + 1, 1), r"`n_keys` must .* received 1000000001"),
        (lambda: gaussian_row(2.5, 1), r"`n_keys` must be a whole number .* received 2\.5"),
        (lambda: gaussian_row(2, -1), r"`logit_std` must be a number from 0 .* received -1"),
        (lambda: gaussian_row(2, math.nan), r"`logit_std` must .* received nan"),
        (lambda: gaussian_row(2, math.inf), r"`logit_std` must .* received inf"),
        (lambda: gaussian_rows(2, [1, -2]), r"`logit_stds` must .* received -2"),
        (lambda: attention_row(2, 0), r"`d_k` must be a whole number from 1 to 1,000,000; received 0"),
        (lambda: attention_row(2, 64, scale=0), r"`scale` must be a number above 0 .* received 0"),
        (lambda: attention_row(2, 64, scale=math.inf), r"`scale` must .* received inf"),
        (lambda: query_gradient_square(2, 64, scale=-1), r"`scale` must .* received -1"),
        (lambda: query_gradient_square(0, 64), r"`n_keys` must .* received 0"),
        (lambda: trace_bound(2, 1.5), r"`d_k` must .* received 1\.5"),
        (lambda: expected_max_normal(0), r"`n` must be a whole number from 1 .* received 0"),
        (lambda: freezing_d_k("many"), r"`n_keys` must .* received 'many'"),
    ],
)
def test_errors_name_the_argument(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_extremes_stay_finite() -> None:
    cells = [(2, 1, 1e-12), (2, 1, 1e12), (10**9, 10**6, 1e12), (10**9, 1, 1e-12), (10**9, 10**6, 1.0)]
    for n, d, scale in cells:
        row = attention_row(n, d, scale=scale)
        assert all(math.isfinite(value) for value in dataclasses.astuple(row))
        assert math.isfinite(query_gradient_square(n, d, scale=scale))
    assert row_theory.MAX_KEYS == 10**9
