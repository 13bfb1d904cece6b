"""The account of the variance against exact fractions, and every left-out figure against leaving out."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from simulation import decomposition
from simulation.decomposition import LeftOut, VarianceParts, part_tables, variance_parts
from simulation.dimension import effective_dimension, effective_dimension_table, sample_effective_dimension
from simulation.head_logits import logit_summary
from simulation.jackknife import TokenBlocks

Head = tuple[np.ndarray, np.ndarray]


@st.composite
def heads(draw: st.DrawFn, most: int = 6) -> Head:
    """Queries and keys in 64ths, with an offset of up to ±1000 for each channel; numbers a fraction holds exactly."""
    m, n, d = (draw(st.integers(1, most)) for _ in range(3))

    def side(tokens: int) -> np.ndarray:
        entries = draw(npst.arrays(np.int64, (tokens, d), elements=st.integers(-1024, 1024)))
        offset = draw(npst.arrays(np.int64, (d,), elements=st.sampled_from([0, 0, 1, -3, 40, 1000])))
        return np.asarray(entries / 64 + offset)

    return side(m), side(n)


def exact_variance(q: np.ndarray, k: np.ndarray) -> Fraction:
    fractions = [[Fraction(float(x)) for x in row] for row in q], [[Fraction(float(x)) for x in row] for row in k]
    logits = [sum((x * y for x, y in zip(a, b, strict=True)), Fraction()) for a in fractions[0] for b in fractions[1]]
    mean = sum(logits, Fraction()) / len(logits)
    return sum(((x - mean) ** 2 for x in logits), Fraction()) / len(logits)


def rounding(q: np.ndarray, k: np.ndarray) -> float:
    """What float64 cannot tell from 0: (1e-14 of the largest product of norms)²."""
    return float(1e-14 * np.linalg.norm(q, axis=1).max() * np.linalg.norm(k, axis=1).max()) ** 2


def normal_head(seed: int, m: int, n: int, d: int) -> Head:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, d)) + 0.5, 2 * rng.standard_normal((n, d)) - 1


# --- the identity ------------------------------------------------------------------------------


@given(heads())
def test_parts_sum_to_the_exact_variance_over_all_pairs(head: Head) -> None:
    q, k = head
    exact = float(exact_variance(q, k))
    assert variance_parts(q, k).variance == pytest.approx(exact, rel=1e-10, abs=rounding(q, k))


@given(heads(most=12))
def test_parts_sum_to_the_variance_measured_from_the_logits(head: Head) -> None:
    q, k = head
    parts, measured = variance_parts(q, k), logit_summary(q, k)
    assert parts.variance == pytest.approx(measured.variance, rel=1e-10, abs=rounding(q, k))


@given(heads())
def test_row_variance_is_all_but_the_key_mean(head: Head) -> None:
    q, k = head
    parts, logits = variance_parts(q, k), (q @ (k - k.mean(axis=0)).T)
    assert parts.row_variance == pytest.approx(logits.var(axis=1).mean(), rel=1e-10, abs=1e-9 * rounding(q, k) ** 0.5)


def test_leaving_a_part_out_breaks_the_identity() -> None:
    """Negative control: each part is needed."""
    q, k = normal_head(0, 30, 40, 8)
    parts = variance_parts(q, k)
    for name in VarianceParts.__dataclass_fields__:
        assert abs(parts.variance - getattr(parts, name) - logit_summary(q, k).variance) > 1e-3 * parts.variance


def test_parts_are_what_their_names_say() -> None:
    q, k = normal_head(1, 50, 60, 5)
    sq, sk = np.cov(q.T, ddof=0), np.cov(k.T, ddof=0)
    parts = variance_parts(q, k)
    footnote = 5 * np.diag(sq).mean() * np.diag(sk).mean()
    assert parts.footnote == pytest.approx(footnote)
    assert parts.unequal_channels == pytest.approx(np.diag(sq) @ np.diag(sk) - footnote)
    assert parts.correlated_channels == pytest.approx(np.trace(sq @ sk) - np.diag(sq) @ np.diag(sk))
    assert parts.query_mean == pytest.approx(q.mean(0) @ sk @ q.mean(0))
    assert parts.key_mean == pytest.approx(k.mean(0) @ sq @ k.mean(0))


@given(heads(), st.integers(-50, 50))
def test_a_shift_of_the_keys_moves_the_key_mean_only(head: Head, shift: int) -> None:
    q, k = head
    before, after = variance_parts(q, k), variance_parts(q, k + shift)
    for name in ("footnote", "unequal_channels", "correlated_channels", "query_mean"):
        assert getattr(after, name) == pytest.approx(getattr(before, name), rel=1e-9, abs=1e-5)


def test_a_joint_rotation_trades_channels_only() -> None:
    q, k = normal_head(2, 40, 50, 6)
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((6, 6)))[0]
    before, after = variance_parts(q, k), variance_parts(q @ turn, k @ turn)
    for name in ("footnote", "alignment", "query_mean", "key_mean"):
        assert getattr(after, name) == pytest.approx(getattr(before, name))
    assert after.unequal_channels != pytest.approx(before.unequal_channels, rel=0.01)


@pytest.mark.parametrize("shape", [(5, 9, 40), (9, 5, 40), (7, 7, 7)])
def test_more_channels_than_tokens(shape: tuple[int, int, int]) -> None:
    q, k = normal_head(4, *shape)
    assert variance_parts(q, k).variance == pytest.approx((q @ k.T).var(), rel=1e-12)


def test_large_means_cost_no_digits() -> None:
    q, k = normal_head(5, 30, 40, 8)
    here, far = variance_parts(q, k), logit_summary(q, k + 2.0**20)
    assert far.variance == pytest.approx(variance_parts(q, k + 2.0**20).variance, rel=1e-12)
    assert variance_parts(q, k + 2.0**20).row_variance == pytest.approx(here.row_variance, rel=1e-9)


@pytest.mark.parametrize(("q", "k"), [([1.0], [1.0]), ([[1.0, 2.0]], [[1.0]]), (np.ones((0, 2)), np.ones((3, 2)))])
def test_refuses_shapes_that_do_not_go_together(q: object, k: object) -> None:
    with pytest.raises(ValueError, match=r"`q` and `k` must have shapes \(m, d_k\) and \(n, d_k\)"):
        variance_parts(q, k)  # type: ignore[arg-type]


# --- with tokens left out ----------------------------------------------------------------------


def test_tables_hold_the_figures_of_the_tokens_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decomposition, "BLOCK_LOGITS", 40)  # several rows, several passes
    q, k = normal_head(6, 14, 11, 4)
    queries, keys = TokenBlocks.of(14, 5), TokenBlocks.of(11, 4)
    tables = part_tables(q, k, LeftOut.of(q, k, queries, keys))
    for b, c in itertools.product(range(6), range(5)):
        kept_q, kept_k = q[queries.kept[b] > 0], k[keys.kept[c] > 0]
        parts = variance_parts(kept_q, kept_k)
        assert tables["mean"][b, c] == pytest.approx((kept_q @ kept_k.T).mean())
        assert tables["variance"][b, c] == pytest.approx(parts.variance)
        for name in VarianceParts.__dataclass_fields__:
            assert tables[name][b, c] == pytest.approx(getattr(parts, name), abs=1e-12)


def u_statistic_dimension(z: np.ndarray) -> float:
    """The effective dimension from products of different queries with different keys, one by one."""
    above = below = 0.0
    for i, other_i in itertools.permutations(range(z.shape[0]), 2):
        for j, other_j in itertools.permutations(range(z.shape[1]), 2):
            above += z[i, j] ** 2 * z[other_i, other_j] ** 2
            below += z[i, j] * z[other_i, j] * z[other_i, other_j] * z[i, other_j]
    return above / below


def test_effective_dimension_is_the_ratio_of_u_statistics() -> None:
    q, k = normal_head(7, 9, 8, 3)
    queries, keys = TokenBlocks.of(9, 3), TokenBlocks.of(8, 4)
    table = effective_dimension_table(LeftOut.of(q, k, queries, keys))
    z = (q - q.mean(0)) @ (k - k.mean(0)).T
    assert effective_dimension(q, k) == pytest.approx(u_statistic_dimension(z))
    for b in range(4):
        assert table[b, 0] == pytest.approx(u_statistic_dimension(z[queries.kept[b] > 0]))
    for c in range(5):
        assert table[0, c] == pytest.approx(u_statistic_dimension(z[:, keys.kept[c] > 0]))


@pytest.mark.parametrize("decay", [1.0, 0.9, 0.5])
def test_effective_dimension_is_free_of_the_noise_of_the_sample(decay: float, seed: int) -> None:
    """Within 6 standard errors of a mean over 60 heads (p < 1e-8) and 2 %; the plain formula is far off."""
    rng = np.random.default_rng([seed, 11])
    std = decay ** np.arange(64)
    exact = (std**4).sum() ** 2 / (std**8).sum()
    pairs = [(rng.standard_normal((128, 64)) * std, rng.standard_normal((128, 64)) * std) for _ in range(60)]
    found = np.array([effective_dimension(q, k) for q, k in pairs], dtype=float)
    assert abs(found.mean() - exact) < 6 * found.std() / 60**0.5 + 0.02 * exact
    if decay == 1:
        plain = np.mean([sample_effective_dimension(q, k) or 0.0 for q, k in pairs])
        assert plain == pytest.approx(64 / (1 + 64 / 128 + 64 / 128), rel=0.05)


def test_effective_dimension_says_when_it_cannot_tell() -> None:
    assert effective_dimension(np.ones((5, 3)), np.ones((5, 3))) is None
    assert effective_dimension(np.eye(2), np.eye(2)) is None
    assert sample_effective_dimension(np.ones((5, 3)), np.ones((5, 3))) is None
