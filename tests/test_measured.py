"""`diagnose`: planted departures are recovered within their errors, public cases come out right, never a NaN."""

import dataclasses
import json
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation import decomposition
from simulation.channels import channel_summary
from simulation.decomposition import VarianceParts
from simulation.diagnosis import Diagnosis, HeadDiagnosis, SoftmaxFigures
from simulation.diagnosis_text import TABLE_ROWS
from simulation.dimension import effective_dimension
from simulation.measured import diagnose
from simulation.softmax import jacobian_sizes
from simulation.statistics import Estimate

ERRORS = 6  # Student's t with 15 degrees of freedom goes beyond with probability 2.4e-5
SCALES = ("unscaled", "sqrt_d_k", "own", "unit")


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


def only(result: Diagnosis) -> HeadDiagnosis:
    (head,) = result.heads
    return head


def assert_recovered(head: HeadDiagnosis, **planted: float) -> None:
    for name, value in planted.items():
        estimate: Estimate = getattr(head.estimates, name)
        assert estimate.standard_error is not None, name
        assert abs(estimate.estimate - value) < ERRORS * estimate.standard_error, (name, value, estimate)


def assert_detected(head: HeadDiagnosis, *names: str) -> None:
    """What was planted is told from 0, so that recovering it says something."""
    for name in names:
        estimate: Estimate = getattr(head.estimates, name)
        assert abs(estimate.estimate) > 4 * (estimate.standard_error or math.inf), (name, estimate)


def figures(head: HeadDiagnosis) -> np.ndarray:
    """All softmax figures of a head: entropy, largest weight and tr J at four scales, and the variance in rows."""
    rows = [getattr(head.softmax, name) for name in SCALES]
    return np.array([[f.row_variance, f.entropy, f.largest_weight, f.jacobian_trace] for f in rows if f])


# --- planted departures ------------------------------------------------------------------------


def test_independent_entries_depart_in_nothing(seed: int) -> None:
    rng = np.random.default_rng([seed, 1])
    head = only(diagnose(normal(rng, 256, 48), normal(rng, 256, 48)))
    none = dict.fromkeys(("mean", "unequal_channels", "correlated_channels", "query_mean", "key_mean"), 0.0)
    assert_recovered(
        head, variance=48, row_variance=48, footnote=48, variance_over_d_k=1, effective_dimension=48, **none
    )
    assert_recovered(head, token_correlation=0)
    assert head.q_channels.outliers == head.k_channels.outliers == ()
    assert head.effective_width == 48
    assert head.largest_part == "footnote"


def test_recovers_planted_means(seed: int) -> None:
    rng = np.random.default_rng([seed, 2])
    mu, nu = 0.5 * normal(rng, 48), normal(rng, 48)
    q, k = normal(rng, 256, 48) + mu, 1.5 * normal(rng, 200, 48) + nu
    head = only(diagnose(q, k))
    query_mean, key_mean = 2.25 * float(mu @ mu), float(nu @ nu)
    assert_recovered(head, mean=float(mu @ nu), footnote=48 * 2.25, query_mean=query_mean, key_mean=key_mean)
    assert_recovered(head, row_variance=108 + query_mean, variance=108 + query_mean + key_mean, correlated_channels=0)
    assert_detected(head, "query_mean", "key_mean")
    assert head.cosine_of_means == pytest.approx(mu @ nu / np.linalg.norm(mu) / np.linalg.norm(nu), abs=0.2)


def test_recovers_planted_anisotropy(seed: int) -> None:
    rng = np.random.default_rng([seed, 3])
    std = np.linspace(0.2, 2, 48)
    head = only(diagnose(normal(rng, 256, 48) * std, normal(rng, 256, 48) * std))
    footnote, channels = float((std**2).sum() ** 2 / 48), float((std**4).sum())
    assert_recovered(head, footnote=footnote, unequal_channels=channels - footnote, correlated_channels=0)
    assert_recovered(head, effective_dimension=channels**2 / float((std**8).sum()), variance=channels)
    assert_detected(head, "unequal_channels")


def test_recovers_planted_correlation_of_channels(seed: int) -> None:
    """AR(1) over channels: tr(S_q S_k) is 564.81 at ρ = 0.9, d = 64."""
    rng = np.random.default_rng([seed, 4])
    d, rho = 64, 0.9
    root = np.linalg.cholesky(rho ** np.abs(np.subtract.outer(np.arange(d), np.arange(d))))
    head = only(diagnose(normal(rng, 400, d) @ root.T, normal(rng, 400, d) @ root.T))
    spread = d * (1 + rho**2) / (1 - rho**2) - 2 * rho**2 * (1 - rho ** (2 * d)) / (1 - rho**2) ** 2
    assert spread == pytest.approx(564.81, abs=0.01)
    assert_recovered(head, variance=spread, correlated_channels=spread - d, footnote=d, unequal_channels=0)
    assert_detected(head, "correlated_channels")
    assert head.largest_part == "correlated_channels"


def test_recovers_planted_correlation_of_tokens(seed: int) -> None:
    rng = np.random.default_rng([seed, 5])
    q = normal(rng, 256, 48)
    k = 0.6 * q + 0.8 * normal(rng, 256, 48)
    head = only(diagnose(q, k))
    assert_recovered(head, token_correlation=0.6, mean=48 * 0.6 / 256)
    assert_detected(head, "token_correlation")
    assert only(diagnose(q, k, same_tokens=False)).token_correlation is None
    assert only(diagnose(q, k[:-1])).token_correlation is None


def test_names_planted_outlier_channels(seed: int) -> None:
    rng = np.random.default_rng([seed, 6])
    q, k = normal(rng, 128, 64), normal(rng, 128, 64)
    k[:, 7] += 10
    k[:, 21] *= 15
    head = only(diagnose(q, k))
    assert (head.q_channels.outliers, head.k_channels.outliers) == ((), (7, 21))
    assert head.k_channels.mean[7] == pytest.approx(10, abs=0.6)
    assert head.k_channels.variance[21] == pytest.approx(225, rel=0.7)
    assert any(remark.startswith("Outlier channels of k: 7 (mean ") for remark in head.remarks)
    assert "k outliers 7, 21" in str(diagnose(q, k))


def test_outlier_channels_are_rarely_called_without_cause(seed: int) -> None:
    """Independent normal entries: 0.3 % of heads at d_k = 32; 20 of 1,000 has probability below 1e-8."""
    rng = np.random.default_rng([seed, 7])
    assert sum(bool(channel_summary(normal(rng, 64, 32)).outliers) for _ in range(1000)) < 20


def test_kurtosis_is_by_channel_and_not_pooled() -> None:
    """Offsets and widths that differ by channel make pooled entries look heavy-tailed; channels are normal."""
    rng = np.random.default_rng(8)
    k = normal(rng, 4000, 32) * np.where(np.arange(32) == 3, 40, 1)
    pooled = ((k - k.mean()) ** 4).mean() / k.var() ** 2
    kurtosis = np.array(only(diagnose(normal(rng, 8, 32), k)).k_channels.kurtosis, dtype=float)
    assert pooled > 50
    assert np.abs(kurtosis - 3).max() < 6 * math.sqrt(24 / 4000)


def test_zero_padding_lowers_the_width(seed: int) -> None:
    """96 channels padded to 128: Var[q·k] = 96, and 1/sqrt(128) leaves 0.75."""
    rng = np.random.default_rng([seed, 9])
    q, k = normal(rng, 300, 128), normal(rng, 300, 128)
    q[:, 96:] = k[:, 96:] = 0
    result = diagnose(q, k)
    head = only(result)
    assert head.effective_width == 96
    assert head.q_channels.zero == head.k_channels.zero == tuple(range(96, 128))
    assert head.q_channels.kurtosis[100] is None
    assert head.q_channels.outliers == ()
    assert_recovered(head, variance=96, effective_dimension=96)
    assert head.softmax.own.row_variance == pytest.approx(0.75, rel=0.08)
    assert any("width of 96" in note and "1/√96" in note for note in result.notes)
    assert any("96–127" in remark for remark in head.remarks)


def test_a_constant_channel_is_said_to_be_one() -> None:
    q, k = np.random.default_rng(10).standard_normal((2, 20, 8))
    k[:, 2], q[:, 5] = 3, 0
    head = only(diagnose(q, k))
    assert (head.k_channels.constant, head.k_channels.zero, head.q_channels.zero) == ((2,), (), (5,))
    assert head.effective_width == 6


# --- what softmax sees -------------------------------------------------------------------------


def by_hand(q: np.ndarray, k: np.ndarray, seen: np.ndarray, scale: float) -> list[float]:
    rows = [jacobian_sizes(scale * (k[s] @ x)) for x, s in zip(q, seen, strict=True) if s.any()]
    return [float(np.mean([getattr(row, name) for row in rows])) for name in ("entropy", "largest_weight", "trace")]


@pytest.mark.parametrize("kind", ["all", "causal", "mask"])
def test_softmax_figures_are_means_over_rows(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decomposition, "BLOCK_LOGITS", 50)
    rng = np.random.default_rng(11)
    q, k = normal(rng, 17, 6) + 1, normal(rng, 13, 6) - 2
    mask = rng.random((17, 13)) < 0.4
    mask[[3, 8]] = False
    seen = {"all": np.ones((17, 13), dtype=bool), "causal": np.tri(17, 13, 13 - 17, dtype=bool), "mask": mask}[kind]
    head = only(diagnose(q, k, scale=0.7, causal=kind == "causal", mask=mask if kind == "mask" else None))
    for name, scale in zip(SCALES, (1, 6**-0.5, 0.7, head.row_variance**-0.5), strict=True):
        found: SoftmaxFigures = getattr(head.softmax, name)
        assert found.scale == pytest.approx(scale)
        assert found.row_variance == pytest.approx(scale**2 * head.row_variance)
        assert [found.entropy, found.largest_weight, found.jacobian_trace] == pytest.approx(by_hand(q, k, seen, scale))
    rows = [k[s] @ x for x, s in zip(q, seen, strict=True) if s.any()]
    assert head.row_variance == pytest.approx(np.mean([row.var() for row in rows]))
    assert head.row_mean_variance == pytest.approx(np.var([row.mean() for row in rows]))
    assert head.largest_visible_logit == pytest.approx(max(np.abs(row).max() for row in rows))
    assert head.entropy_limit == pytest.approx(np.mean([math.log(len(row)) for row in rows]))
    assert head.masked_rows == 17 - len(rows)
    assert head.largest_logit_at == divmod(int(np.abs(q @ k.T).argmax()), 13)
    assert head.variance == pytest.approx((q @ k.T).var())  # of the whole block, whatever is masked
    assert head.parts.variance == pytest.approx(head.variance)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [3.0, 1000.0])
def test_a_shift_of_all_keys_changes_no_softmax_figure(causal: bool, size: float, seed: int) -> None:
    rng = np.random.default_rng([seed, 12])
    q, k = normal(rng, 40, 16), normal(rng, 40, 16)
    shift = size * normal(rng, 16)
    before, after = (only(diagnose(q, keys, causal=causal)) for keys in (k, k + shift))
    assert figures(after) == pytest.approx(figures(before), rel=1e-13 * max(size, 10))
    assert after.estimates.row_variance.estimate == pytest.approx(before.estimates.row_variance.estimate, rel=1e-9)
    assert after.variance > 2 * before.variance
    moved = only(diagnose(q + shift, k, causal=causal))  # negative control: the query mean is seen
    assert np.abs(figures(moved) / figures(before) - 1).max() > 0.05


def test_a_hidden_key_has_no_say() -> None:
    """A masked key of 1e10 leaves every softmax figure as it was; a masked NaN is refused, not multiplied by 0."""
    q, k = np.random.default_rng(13).standard_normal((2, 9, 4))
    mask = np.ones((9, 9), dtype=bool)
    mask[:, 2] = False
    wild = k.copy()
    wild[2, 0] = 1e10
    before, after = (only(diagnose(q, keys, mask=mask)) for keys in (k, wild))
    assert (figures(after) == figures(before)).all()
    assert after.estimates.row_variance == before.estimates.row_variance
    assert after.variance > 1e15
    wild[2, 0] = np.nan
    with pytest.raises(ValueError, match=r"`k` must hold finite numbers .* nan at \(2, 0\)"):
        diagnose(q, wild, mask=mask)


def test_fully_masked_rows_are_counted_and_left_out() -> None:
    q, k = np.random.default_rng(14).standard_normal((2, 3, 8, 4))
    mask = np.ones((3, 8, 8), dtype=bool)
    mask[1, :5] = False
    result = diagnose(q, k, mask=mask)
    assert [head.masked_rows for head in result.heads] == [0, 5, 0]
    assert any("5 fully masked rows" in note for note in result.notes)
    alone = only(diagnose(q[1, 5:], k[1], scale=0.5))
    assert figures(result.head(1)) == pytest.approx(figures(alone))
    mask[1] = False
    with pytest.raises(ValueError, match="all rows are fully masked"):
        diagnose(q, k, mask=mask)


# --- public cases ------------------------------------------------------------------------------


def assert_mean(result: Diagnosis, name: str, expected: float, scale: str = "own") -> None:
    """The mean over heads is within 6 of its standard errors, and the 2 % of noise of the public value itself."""
    values = [getattr(getattr(head.softmax, scale), name) for head in result.heads]
    assert abs(np.mean(values) - expected) < 6 * np.std(values) / math.sqrt(len(values)) + 0.02 * expected


def test_model_width_for_head_width_leaves_its_signature(seed: int) -> None:
    """Scale 1/sqrt(512) at d_k = 64: variance 1/8, largest weight 0.034, entropy 4.10; right: 0.109 and 3.68."""
    rng = np.random.default_rng([seed, 15])
    result = diagnose(normal(rng, 100, 64, 64), normal(rng, 100, 64, 64), scale=512**-0.5)
    assert result.implied_d_k == pytest.approx(512)
    assert any("1/√512" in note and "0.125 times" in note for note in result.notes)
    assert_mean(result, "row_variance", 0.125 * 63 / 64)
    assert_mean(result, "largest_weight", 0.034)
    assert_mean(result, "entropy", 4.10)
    assert_mean(result, "largest_weight", 0.109, "sqrt_d_k")
    assert_mean(result, "entropy", 3.68, "sqrt_d_k")
    assert np.mean([head.softmax.own.largest_weight for head in result.heads]) < 0.04


def test_no_scale_is_judged_by_what_q_and_k_are(seed: int) -> None:
    """Scale 1 at d_k = 128: sd 11.31 for unit entries, variance 1.037 for entries of sd 0.3, which is fine."""
    rng = np.random.default_rng([seed, 16])
    q, k = normal(rng, 50, 64, 128), normal(rng, 50, 64, 128)
    unit, small = diagnose(q, k, scale=1), diagnose(0.3 * q, 0.3 * k, scale=1)
    assert_mean(unit, "row_variance", 11.31**2 * 63 / 64)
    assert_mean(unit, "largest_weight", 0.85)
    assert_mean(unit, "entropy", 0.39)
    assert_mean(small, "row_variance", 1.037 * 63 / 64)
    assert small.worst.distance < 0.4 < unit.worst.distance


@pytest.mark.parametrize(("d_k", "divisor", "expected"), [(256, 224, 1.142857), (128, 144, 0.8889)])
def test_a_divisor_of_its_own_is_separate_from_d_k(d_k: int, divisor: int, expected: float, seed: int) -> None:
    rng = np.random.default_rng([seed, d_k])
    head = only(diagnose(normal(rng, 400, d_k), normal(rng, 400, d_k), scale=divisor**-0.5))
    own, error = head.estimates.row_variance, head.estimates.row_variance.standard_error or math.inf
    assert abs(own.estimate / divisor - expected) < ERRORS * error / divisor
    assert head.softmax.own.scale == divisor**-0.5


def test_scale_none_is_one_over_root_d_k_of_the_q_passed() -> None:
    q, k = np.ones((3, 10)), np.ones((3, 10))
    assert diagnose(q, k).scale == 10**-0.5
    assert diagnose(q, k, scale=1.0).scale == 1
    assert any("0.3162 = 1/√10 is 1/√d_k of the q passed" in note for note in diagnose(q, k).notes)


def test_the_axis_read_as_d_k_is_shown() -> None:
    rng = np.random.default_rng(17)
    q, k = normal(rng, 10, 64), normal(rng, 10, 64)
    right, transposed = diagnose(q, k), diagnose(q.T, k.T)
    assert (right.d_k, transposed.d_k) == (64, 10)
    assert "10 queries, 10 keys, and d_k = 64, the last axis" in right.notes[0]
    assert only(right).variance == pytest.approx(64, rel=0.4)
    assert only(transposed).variance == pytest.approx(10, rel=0.4)


def test_float16_overflow_and_order_of_scale_and_product() -> None:
    high, low = (only(diagnose(*np.full((2, 4, 128), x, np.float16))) for x in (256, 24))
    assert high.largest_logit == high.mean == 8_388_608
    assert (high.float16.entries, high.float16.product, high.float16.scaled_first) == (False, True, True)
    assert low.mean == 73_728
    assert low.mean * low.softmax.own.scale == pytest.approx(6516.70, abs=0.01)
    assert (low.float16.product, low.float16.scaled_first) == (True, False)
    assert low.float16.largest_scale == 65504 / 73728
    assert any("stays finite" in remark for remark in low.remarks)
    assert any("still overflows" in remark for remark in high.remarks)


@pytest.mark.parametrize(("entry", "overflows"), [(65503.0, False), (65519.0, False), (65520.0, True)])
def test_float16_overflow_is_that_of_numpy(entry: float, overflows: bool) -> None:
    with np.errstate(over="ignore"):
        assert np.isinf(np.float16(entry)) == overflows
    found = only(diagnose([[entry]], [[1.0]])).float16
    assert (found.entries, found.product, found.scaled_first) == (overflows,) * 3


def test_moments_are_taken_in_float64_whatever_comes_in(seed: int) -> None:
    """Entries of sd 300: in float16 the square of one already overflows."""
    rng = np.random.default_rng([seed, 18])
    q, k = ((300 * normal(rng, 200, 16)).astype(np.float16) for _ in range(2))
    with np.errstate(over="ignore", invalid="ignore"):
        assert not np.isfinite(np.square(q).sum(dtype=np.float16))
    head = only(diagnose(q, k))
    assert head.variance == pytest.approx((q.astype(float) @ k.astype(float).T).var(), rel=1e-12)
    assert_recovered(head, variance=16 * 300.0**4)


def test_a_bad_head_stands_out_and_is_not_pooled_away(seed: int) -> None:
    rng = np.random.default_rng([seed, 19])
    q, k = normal(rng, 6, 12, 32, 16), normal(rng, 6, 12, 32, 16)
    q[4, 7] *= 20
    result = diagnose(q, k)
    assert result.worst.index == (4, 7)
    assert result.worst.q_norm.mean == pytest.approx(20 * result.head(0, 0).q_norm.mean, rel=0.2)
    assert result.worst.cosine_std == pytest.approx(0.25, rel=0.2)  # direction is as ever: it is the size
    lines = str(result).splitlines()
    assert lines[2].split()[:2] == ["4,", "7"]
    assert "← worst" in lines[2]


def test_grouped_queries_meet_key_head_h_over_group(seed: int) -> None:
    rng = np.random.default_rng([seed, 20])
    q, k = normal(rng, 1, 32, 16, 128), normal(rng, 1, 8, 16, 128)
    k *= np.arange(1, 9)[None, :, None, None]
    result = diagnose(q, k)
    assert (len(result.heads), result.group) == (32, 4)
    assert "h // 4" in " ".join(result.notes)
    for h, head in enumerate(result.heads):
        assert head.variance == pytest.approx((q[0, h] @ k[0, h // 4].T).var())
        assert head.variance_over_d_k == pytest.approx((h // 4 + 1) ** 2, rel=0.4)
    tiled = [(q[0, h] @ k[0, h % 8].T).var() for h in range(32)]
    assert not np.allclose([head.variance for head in result.heads], tiled, rtol=0.5)


def test_norms_cosines_and_extremes() -> None:
    rng = np.random.default_rng(21)
    q, k = normal(rng, 7, 5), normal(rng, 9, 5)
    q[3] = 0
    head, logits = only(diagnose(q, k)), q @ k.T
    norms = np.linalg.norm(q, axis=1), np.linalg.norm(k, axis=1)
    cosines = (logits / np.outer(np.where(norms[0] > 0, norms[0], 1), norms[1]))[[0, 1, 2, 4, 5, 6]]
    assert (head.cosine_mean, head.cosine_std) == pytest.approx((cosines.mean(), cosines.std()))
    assert (head.q_norm.mean, head.k_norm.largest) == pytest.approx((norms[0].mean(), norms[1].max()))
    assert head.largest_logit == pytest.approx(np.abs(logits).max())
    assert head.largest_logit_at == tuple(np.argwhere(np.abs(logits) == np.abs(logits).max())[0])
    assert head.mean == pytest.approx(logits.mean())
    assert head.row_variance + head.row_mean_variance == pytest.approx(head.variance)
    assert (head.q_variance, head.k_variance) == pytest.approx((q.var(0).mean(), k.var(0).mean()))


def test_estimates_divide_by_one_less_and_the_block_by_all() -> None:
    """With single tokens left out the corrected variance within rows is that with ddof = 1, to rounding."""
    q, k = np.random.default_rng(27).standard_normal((2, 12, 5))
    head, logits = only(diagnose(q, k)), q @ k.T
    assert head.row_variance == pytest.approx(logits.var(axis=1).mean())
    assert head.estimates.row_variance.estimate == pytest.approx(logits.var(axis=1, ddof=1).mean(), rel=1e-12)
    assert head.effective_dimension == pytest.approx(effective_dimension(q, k))
    assert head.estimates.mean.estimate == pytest.approx(head.mean)


# --- never a NaN, never the whole block --------------------------------------------------------


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [x for item in value.values() for x in numbers(item)]
    if isinstance(value, (list, tuple)):
        return [x for item in value for x in numbers(item)]
    return [value] if isinstance(value, float) else []


@settings(max_examples=60)
@given(
    shape=st.tuples(*[st.integers(1, 6)] * 3),
    values=st.sampled_from(["zeros", "same", "small", "normal", "large"]),
    causal=st.booleans(),
    number=st.integers(0, 10**6),
)
def test_small_and_degenerate_heads_give_values(
    shape: tuple[int, int, int], values: str, causal: bool, number: int
) -> None:
    (m, n, d), rng = shape, np.random.default_rng(number)
    size = {"zeros": 0.0, "same": 0.1, "small": 1e-9, "normal": 1.0, "large": 1e25}[values]
    q, k = (np.full((x, d), size) if values == "same" else size * normal(rng, x, d) for x in (m, n))
    result = diagnose(q, k, causal=causal)
    assert np.isfinite(numbers(dataclasses.asdict(result))).all()
    head = only(result)
    assert head.sentence.endswith(".")
    assert head.softmax_sentence.endswith(".")
    assert "nan" not in str(result).lower()
    assert Diagnosis.from_json(result.to_json()) == result


def test_one_key_or_one_query_is_a_value_without_error() -> None:
    rng = np.random.default_rng(22)
    q, k = normal(rng, 5, 8), normal(rng, 1, 8)
    one_key, one_query = only(diagnose(q, k)), only(diagnose(k, q))
    assert one_key.row_variance == 0
    assert one_key.softmax.unit is None
    assert (one_key.softmax.own.entropy, one_key.softmax.own.largest_weight) == (0, 1)
    assert one_key.variance == pytest.approx(one_key.parts.key_mean)
    assert one_query.variance == pytest.approx(one_query.parts.query_mean)
    for head in (one_key, one_query):
        assert head.estimates.variance.standard_error is None
        assert head.estimates.variance.interval is None
    assert any("no standard errors" in note for note in diagnose(q, k).notes)


def test_memory_holds_a_bounded_block_of_logits() -> None:
    q, k = np.random.default_rng(23).standard_normal((2, 3000, 4))
    tracemalloc.start()
    diagnose(q, k, causal=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6 < 8 * 3000 * 3000  # the block alone would be 72 MB


def test_block_size_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k = np.random.default_rng(24).standard_normal((2, 3, 20, 6))
    whole = diagnose(q, k, causal=True)
    monkeypatch.setattr(decomposition, "BLOCK_LOGITS", 30)
    pieces = diagnose(q, k, causal=True)
    assert numbers(dataclasses.asdict(pieces)) == pytest.approx(numbers(dataclasses.asdict(whole)), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 0}, "`scale` must be a number from 1e-12"),
        ({"scale": math.nan}, "`scale` must be"),
        ({"blocks": 2}, "`blocks` must be a whole number from 3 to 1,000"),
        ({"confidence": 1}, "`confidence` must be"),
        ({"same_tokens": True}, "`same_tokens` must be False when there are not as many keys as queries"),
    ],
)
def test_refuses_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        diagnose(np.ones((4, 3)), np.ones((5, 3)), **options)


# --- what is handed back -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def example() -> Diagnosis:
    rng = np.random.default_rng(25)
    q, k = normal(rng, 5, 6, 24, 16), normal(rng, 5, 3, 24, 16)
    k[2] += 2
    return diagnose(q, k, scale=0.2, causal=True)


def test_json_holds_parts_that_sum_to_the_variance(example: Diagnosis) -> None:
    read = json.loads(example.to_json(), parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert (read["d_k"], read["scale"], read["shape"]) == (16, 0.2, [5, 6])
    assert set(read["versions"]) >= {"simulation", "numpy"}
    assert [head["index"] for head in read["heads"]] == [[layer, h] for layer in range(5) for h in range(6)]
    for head in read["heads"]:
        assert sum(head["parts"].values()) == pytest.approx(head["variance"], rel=1e-12)
        assert {"mean", "row_variance", "effective_dimension", "softmax", "estimates"} <= set(head)
    assert Diagnosis.from_json(example.to_json()) == example


def test_frame_has_a_row_for_each_head(example: Diagnosis) -> None:
    frame = example.to_frame()
    assert len(frame) == 30
    assert frame[["axis_0", "axis_1"]].drop_duplicates().shape == (30, 2)
    parts = frame[list(VarianceParts.__dataclass_fields__)].sum(axis=1)
    assert np.allclose(parts, frame["variance"])
    assert (frame["variance_se"] > 0).all()
    assert (frame["own_scale"] == 0.2).all()
    assert np.allclose(frame["unit_row_variance"], 1)


def test_table_names_the_worst_head_first_and_does_not_run_on(example: Diagnosis) -> None:
    text = str(example)
    distances = [abs(math.log(head.softmax.own.row_variance)) for head in example.by_distance]
    assert distances == sorted(distances, reverse=True)
    assert f"head {', '.join(map(str, example.worst.index))}: The variance of q·k is" in text
    assert f"… {30 - TABLE_ROWS} more heads" in text
    assert "scale 0.2 = 1/√25" in text
    assert "not as many samples" in text


def test_sentence_says_where_the_variance_comes_from(example: Diagnosis) -> None:
    head = example.head(2, 0)
    error = head.estimates.variance_over_d_k.text.split(" ± ")[1]
    assert head.sentence.startswith(f"The variance of q·k is {head.sentence.split()[5]} ± {error} d_k, of which ")
    assert head.largest_part == "key_mean"
    share = 100 * head.parts.key_mean / head.variance
    assert f"({share:.0f} %) comes from the mean of the keys (which softmax never sees)" in head.sentence
    assert "0.2 = 1/√25" in head.softmax_sentence
    with pytest.raises(KeyError, match=r"no head \(7, 0\)"):
        example.head(7, 0)


def test_progress_counts_heads() -> None:
    seen: list[tuple[int, int]] = []
    diagnose(np.ones((2, 3, 4, 5)), np.ones((2, 3, 4, 5)), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, 6) for i in range(1, 7)]


def test_intervals_follow_the_confidence() -> None:
    q, k = np.random.default_rng(26).standard_normal((2, 30, 8))
    wide, narrow = (only(diagnose(q, k, confidence=c)).estimates.row_variance for c in (0.99, 0.8))
    assert wide.standard_error == narrow.standard_error
    assert wide.interval is not None
    assert narrow.interval is not None
    assert wide.interval[0] < narrow.interval[0] < narrow.estimate < narrow.interval[1] < wide.interval[1]
