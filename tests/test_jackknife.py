"""The two-way jackknife: exact where theory is exact, and its intervals cover; counting logits does not."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from simulation.decomposition import LeftOut, part_tables
from simulation.dimension import effective_dimension_table
from simulation.head_estimates import head_estimates
from simulation.head_logits import row_summary
from simulation.heads import Visible
from simulation.jackknife import TokenBlocks, one_way_estimate, two_way_estimate
from simulation.statistics import Estimate

HEADS = 400
FALSE_ALARM = 1e-5  # chance that a test below fails although coverage is 95 %
FEWEST = int(stats.binom.ppf(FALSE_ALARM, HEADS, 0.95))  # hits out of 400: 360, that is 90 %


def mean_table(block: np.ndarray, queries: TokenBlocks, keys: TokenBlocks) -> np.ndarray:
    return np.asarray(queries.kept @ block @ keys.kept.T / np.outer(queries.counts, keys.counts))


# --- exact -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "blocks"), [(3, 16), (16, 16), (17, 16), (128, 16), (5, 3), (1, 16), (2, 3)])
def test_blocks_are_contiguous_and_cover_all_tokens_once(tokens: int, blocks: int) -> None:
    cut = TokenBlocks.of(tokens, blocks)
    assert cut.sizes.sum() == tokens
    assert cut.sizes.max() - cut.sizes.min() <= 1
    assert cut.kept.shape == (1 if tokens < 3 else min(blocks, tokens) + 1, tokens)
    assert cut.kept[0].all()
    for row, block in zip(cut.kept[1:], cut.slices, strict=False):
        assert not row[block].any()
        assert row.sum() == tokens - (block.stop - block.start)


def test_error_of_a_mean_is_the_crossed_analysis_of_variance() -> None:
    """V = (MS_rows + MS_columns - MS_interaction) / (m n), the unbiased estimator."""
    rng = np.random.default_rng(0)
    m, n = 7, 5
    block = rng.standard_normal((m, n)) + 3 * rng.standard_normal((m, 1)) + 2 * rng.standard_normal(n)
    queries, keys = TokenBlocks.of(m, m), TokenBlocks.of(n, n)
    found = two_way_estimate(mean_table(block, queries, keys), queries, keys)
    rows, columns, grand = block.mean(1, keepdims=True), block.mean(0, keepdims=True), block.mean()
    ms_rows, ms_columns = n * ((rows - grand) ** 2).sum() / (m - 1), m * ((columns - grand) ** 2).sum() / (n - 1)
    ms_both = ((block - rows - columns + grand) ** 2).sum() / ((m - 1) * (n - 1))
    assert found.estimate == pytest.approx(grand)
    assert found.standard_error == pytest.approx(math.sqrt((ms_rows + ms_columns - ms_both) / (m * n)))
    assert found.interval is not None
    reach = stats.t.ppf(0.975, n - 1) * (found.standard_error or 0)
    assert found.interval == pytest.approx((grand - reach, grand + reach))


def spread_table(q: np.ndarray, k: np.ndarray, queries: TokenBlocks, keys: TokenBlocks) -> np.ndarray:
    tables = part_tables(q, k, LeftOut.of(q, k, queries, keys))
    return np.asarray(tables["footnote"] + tables["unequal_channels"] + tables["correlated_channels"])


def test_bias_correction_of_single_tokens_is_ddof_1() -> None:
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((12, 6)), rng.standard_normal((9, 6))
    queries, keys = TokenBlocks.of(12, 16), TokenBlocks.of(9, 16)
    found = two_way_estimate(spread_table(q, k, queries, keys), queries, keys)
    assert found.estimate == pytest.approx(np.trace(np.cov(q.T) @ np.cov(k.T)), rel=1e-12)


@pytest.mark.parametrize(("m", "n"), [(32, 48), (17, 23), (40, 8)])
def test_bias_correction_of_blocks_is_ddof_1_on_average(m: int, n: int, seed: int) -> None:
    """Mean difference over 300 draws within 5 of its standard errors (p < 1e-6); uncorrected, it is far off."""
    rng = np.random.default_rng([seed, m])
    queries, keys = TokenBlocks.of(m, 16), TokenBlocks.of(n, 16)
    corrected, plain = [], []
    for _ in range(300):
        q, k = rng.standard_normal((m, 6)), rng.standard_normal((n, 6))
        exact = np.trace(np.cov(q.T) @ np.cov(k.T))
        table = spread_table(q, k, queries, keys)
        corrected.append(two_way_estimate(table, queries, keys).estimate - exact)
        plain.append(two_way_estimate(table, queries, keys, correct_bias=False).estimate - exact)
    assert abs(np.mean(corrected)) < 5 * np.std(corrected) / math.sqrt(300)
    assert abs(np.mean(plain)) > 20 * np.std(plain) / math.sqrt(300)


def test_effects_of_one_token_on_both_sides_add() -> None:
    """For a figure a_i + a_j of the same tokens the error is twice that of either side."""
    tokens = TokenBlocks.of(9, 9)
    effect = np.random.default_rng(2).standard_normal(9)
    table = mean_table(effect[:, None] + effect[None, :], tokens, tokens)
    one_side = float(effect.std(ddof=1)) / 3
    apart, together = (two_way_estimate(table, tokens, tokens, same_tokens=same) for same in (False, True))
    assert apart.standard_error == pytest.approx(math.sqrt(2) * one_side)
    assert together.standard_error == pytest.approx(2 * one_side)


def test_never_below_the_interaction() -> None:
    """Rows + columns - interaction can come out negative by chance; the error does not."""
    rng = np.random.default_rng(3)
    tokens = TokenBlocks.of(4, 4)
    for _ in range(200):
        block = rng.standard_normal((4, 4))
        found = two_way_estimate(mean_table(block, tokens, tokens), tokens, tokens)
        rest = block - block.mean(1, keepdims=True) - block.mean(0) + block.mean()
        assert (found.standard_error or 0) ** 2 >= 0.999 * (rest**2).sum() / 9 / 16


def test_says_when_there_is_no_error() -> None:
    few, enough = TokenBlocks.of(2, 16), TokenBlocks.of(5, 16)
    found = two_way_estimate(np.ones((1, 6)), few, enough)
    assert (found.estimate, found.standard_error, found.interval) == (1.0, None, None)
    assert "fewer than three" in found.note
    gap = np.ones((6, 6))
    gap[2, 3] = np.nan
    assert two_way_estimate(gap, enough, enough).standard_error is None
    assert one_way_estimate(np.ones(1), few).standard_error is None


def test_interval_stops_at_the_floor() -> None:
    tokens = TokenBlocks.of(3, 3)
    table = mean_table(np.array([[9.0, 0, 0], [0, 0, 0], [0, 0, 1.0]]), tokens, tokens)
    assert (two_way_estimate(table, tokens, tokens).interval or (0, 0))[0] < 0
    assert (two_way_estimate(table, tokens, tokens, floor=0).interval or (1, 0))[0] == 0


def test_one_way_is_the_textbook_jackknife() -> None:
    x = np.random.default_rng(4).standard_normal(40)
    tokens = TokenBlocks.of(40, 40)
    found = one_way_estimate(tokens.kept @ x / tokens.counts, tokens)
    assert found.standard_error == pytest.approx(x.std(ddof=1) / math.sqrt(40))


def test_row_table_leaves_rows_and_keys_out_of_a_mask() -> None:
    """Each entry is the mean, over kept rows with two visible kept keys, of the variance with ddof = 1."""
    rng = np.random.default_rng(5)
    q, k = rng.standard_normal((9, 4)), rng.standard_normal((7, 4)) + 3
    mask = rng.random((9, 7)) < 0.5
    queries, keys = TokenBlocks.of(9, 4), TokenBlocks.of(7, 3)
    table = row_summary(q, k, Visible(9, 7, mask), queries, keys).table
    for b, kept_q in enumerate(queries.kept > 0):
        for c, kept_k in enumerate(keys.kept > 0):
            rows = [k[row & kept_k] @ x for x, row in zip(q[kept_q], mask[kept_q], strict=True)]
            assert table[b, c] == pytest.approx(np.mean([row.var(ddof=1) for row in rows if len(row) > 1]))


# --- coverage ----------------------------------------------------------------------------------

Draw = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


def iid(m: int, n: int, d: int) -> Draw:
    return lambda rng: (rng.standard_normal((m, d)), rng.standard_normal((n, d)))


def one_token_both_sides(n: int, d: int, rho: float) -> Draw:
    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        q = rng.standard_normal((n, d))
        return q, rho * q + math.sqrt(1 - rho**2) * rng.standard_normal((n, d))

    return draw


def estimates(
    draw: Draw, names: tuple[str, ...], rng: np.random.Generator, *, same_tokens: bool, causal: bool = False
) -> dict[str, list[Estimate]]:
    found: dict[str, list[Estimate]] = {name: [] for name in names}
    for _ in range(HEADS):
        q, k = draw(rng)
        queries, keys = TokenBlocks.of(len(q), 16), TokenBlocks.of(len(k), 16)
        rows = row_summary(q, k, Visible(len(q), len(k), causal=causal), queries, keys)
        head = head_estimates(q, k, rows, queries, keys, same_tokens)
        for name in names:
            found[name].append(getattr(head, name))
    return found


def hits(found: list[Estimate], exact: float) -> int:
    return sum(low <= exact <= high for low, high in (e.interval for e in found if e.interval))


@pytest.mark.parametrize(("m", "n", "d"), [(64, 64, 64), (128, 24, 16), (40, 40, 96)])
def test_intervals_cover_for_independent_entries(m: int, n: int, d: int, seed: int) -> None:
    exact = {"mean": 0.0, "variance": d, "row_variance": d, "footnote": d, "unequal_channels": 0.0}
    exact |= {"correlated_channels": 0.0, "query_mean": 0.0, "key_mean": 0.0}
    found = estimates(iid(m, n, d), tuple(exact), np.random.default_rng([seed, m, n, d]), same_tokens=m == n)
    assert {name: hits(found[name], value) for name, value in exact.items() if hits(found[name], value) < FEWEST} == {}


def test_counting_logits_as_samples_does_not_cover(seed: int) -> None:
    """Negative control: sd(s²) = σ² sqrt((κ - 1)/(m n)) fails the same check, and by the design effect."""
    m = n = d = 64
    rng = np.random.default_rng([seed, 5])
    naive, jackknife, variances = [], [], []
    for _ in range(HEADS):
        q, k = iid(m, n, d)(rng)
        logits = q @ k.T
        variance, kurtosis = float(logits.var()), float(stats.kurtosis(logits, axis=None, fisher=False))
        error = variance * math.sqrt((kurtosis - 1) / (m * n))
        naive.append(Estimate(variance, error, (variance - 1.96 * error, variance + 1.96 * error), None))
        blocks = TokenBlocks.of(64, 16)
        table = part_tables(q, k, LeftOut.of(q, k, blocks, blocks))["variance"]
        jackknife.append(two_way_estimate(table, blocks, blocks, same_tokens=True))
        variances.append(variance)
    assert hits(naive, d) < FEWEST <= hits(jackknife, d)
    deff = 1 + (m + n - 2) / (d + 3)  # of independent normal entries
    squares = np.array([[(e.standard_error or 0) ** 2 for e in side] for side in (naive, jackknife)]).mean(axis=1)
    assert squares[1] / squares[0] == pytest.approx(deff, rel=0.15)
    assert np.var(variances) == pytest.approx(squares[1], rel=6 * math.sqrt(2 / HEADS))


def test_intervals_cover_when_q_and_k_come_from_one_token(seed: int) -> None:
    """Targets are the means over blocks of n tokens, whose n pairs of a token with itself count."""
    n, d, rho = 64, 32, 0.6
    draw = one_token_both_sides(n, d, rho)
    itself = d * (1 + rho**2) + (d * rho) ** 2
    exact = {"mean": d * rho / n, "variance": (1 - 1 / n) * d + itself / n, "footnote": d, "token_correlation": rho}
    found = estimates(draw, tuple(exact), np.random.default_rng([seed, 6]), same_tokens=True)
    assert {name: hits(found[name], value) for name, value in exact.items() if hits(found[name], value) < FEWEST} == {}
    apart = estimates(draw, ("footnote",), np.random.default_rng([seed, 6]), same_tokens=False)["footnote"]
    errors = [np.mean([e.standard_error or 0 for e in side]) for side in (apart, found["footnote"])]
    assert errors[0] < 0.9 * errors[1]  # taking the two sides for independent says too little


def test_intervals_cover_under_a_causal_mask(seed: int) -> None:
    found = estimates(
        iid(64, 64, 32), ("row_variance",), np.random.default_rng([seed, 7]), same_tokens=True, causal=True
    )
    assert hits(found["row_variance"], 32) >= FEWEST


def test_effective_dimension_interval_covers(seed: int) -> None:
    rng = np.random.default_rng([seed, 8])
    std = 0.9 ** np.arange(32)
    exact = float((std**4).sum() ** 2 / (std**8).sum())
    blocks, found = TokenBlocks.of(96, 16), []
    for _ in range(HEADS):
        q, k = rng.standard_normal((96, 32)) * std, rng.standard_normal((96, 32)) * std
        table = effective_dimension_table(LeftOut.of(q, k, blocks, blocks))
        found.append(two_way_estimate(table, blocks, blocks, correct_bias=False))
    assert hits(found, exact) >= FEWEST
