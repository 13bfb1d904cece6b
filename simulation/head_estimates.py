"""The figures of one head with their standard errors.

In: queries (m, d_k) and keys (n, d_k) of a head in float64, and blocks of tokens to leave out.
Out: `HeadEstimates`.
"""

import math

import numpy as np

from simulation.decomposition import FloatArray, LeftOut, centred, part_tables
from simulation.diagnosis import HeadEstimates
from simulation.dimension import effective_dimension_table
from simulation.head_logits import RowSummary
from simulation.jackknife import TokenBlocks, one_way_estimate, two_way_estimate
from simulation.statistics import Estimate

_SQUARES = ("variance", "footnote")  # never negative; a part that is chance may be estimated below 0


def head_estimates(
    q: FloatArray,
    k: FloatArray,
    rows: RowSummary,
    queries: TokenBlocks,
    keys: TokenBlocks,
    same_tokens: bool,
    confidence: float = 0.95,
) -> HeadEstimates:
    """Return the estimates of one head.

    Parameters
    ----------
    q, k : ndarray, shapes (m, d_k) and (n, d_k)
    rows : RowSummary
        The variance within rows, and the same with blocks left out.
    queries, keys : TokenBlocks
        What to leave out; the same blocks of the same tokens if `same_tokens`.
    same_tokens : bool
        Whether query i and key i come from the same token.
    confidence : float
        Level of each interval.
    """

    def estimate(table: FloatArray, *, correct_bias: bool = True, floor: float = -math.inf) -> Estimate:
        return two_way_estimate(
            table,
            queries,
            keys,
            same_tokens=same_tokens,
            confidence=confidence,
            correct_bias=correct_bias,
            floor=floor,
        )

    sums = LeftOut.of(q, k, queries, keys)
    tables = part_tables(q, k, sums)
    found = {name: estimate(table, floor=0 if name in _SQUARES else -math.inf) for name, table in tables.items()}
    constant = Estimate(rows.variance, None, None, None, "no row has two visible keys: no standard error")
    dimension = estimate(effective_dimension_table(sums), correct_bias=False, floor=1)
    return HeadEstimates(
        **found,
        variance_over_d_k=estimate(tables["variance"] / q.shape[1], floor=0),
        row_variance=constant if math.isnan(rows.table[0, 0]) else estimate(rows.table, floor=0),
        effective_dimension=dimension if dimension.standard_error is not None else None,
        token_correlation=_token_correlation(q, k, queries, confidence) if same_tokens else None,
    )


def _token_correlation(q: FloatArray, k: FloatArray, tokens: TokenBlocks, confidence: float) -> Estimate | None:
    """Correlation of q_i with k_i of the same token, over tokens and channels pooled, each channel about its mean."""
    a, b, kept = centred(q), centred(k), tokens.kept
    a_mean, b_mean = (kept @ x / tokens.counts[:, None] for x in (a, b))

    def product(x: FloatArray, y: FloatArray, x_mean: FloatArray, y_mean: FloatArray) -> FloatArray:
        return np.asarray(kept @ (x * y).sum(axis=1) - tokens.counts * (x_mean * y_mean).sum(axis=1))

    size = np.sqrt(product(a, a, a_mean, a_mean)) * np.sqrt(product(b, b, b_mean, b_mean))
    values = np.divide(product(a, b, a_mean, b_mean), size, out=np.full_like(size, np.nan), where=size > 0)
    return None if math.isnan(values[0]) else one_way_estimate(values, tokens, confidence=confidence)
