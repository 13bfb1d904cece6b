"""How many of its d_k dimensions a head's logits really use.

In: the queries and keys of a head, or sums over its block with tokens left out. Out: the effective
dimension, freed of the noise of a finite sample, as it is in the sample, and with tokens left out.
"""

import numpy as np
import numpy.typing as npt

from simulation.decomposition import ROUNDING, LeftOut, centred, shared_coordinates
from simulation.jackknife import MIN_TOKENS, TokenBlocks
from simulation.products import product

FloatArray = npt.NDArray[np.float64]


def effective_dimension(q: npt.ArrayLike, k: npt.ArrayLike) -> float | None:
    r"""Return (tr S_q S_k)^2 / tr((S_q S_k)^2) of one head, freed of the noise of a finite sample.

    It is how many of the d_k dimensions a head's logits really use: d_k for independent channels
    of equal variance, 1 when one direction carries everything. Logits of normal queries and keys
    have excess kurtosis 6 over this number.

    Parameters
    ----------
    q, k : array_like, shapes (m, d_k) and (n, d_k)
        Queries and keys of one head.

    Returns
    -------
    float or None
        None when the sample is too small or too constant to tell.

    Notes
    -----
    Sample covariances put into the formula give about d_k / (1 + d_k/m + d_k/n): 32 for 128
    independent queries and keys at d_k = 64. With z = a_i·b_j of centred queries and keys,

    .. math:: \frac{(\sum z^2)^2 - R - C + F}{\|z z^T\|_F^2 - R - C + F},\qquad
              R = \sum_i\Big(\sum_j z_{ij}^2\Big)^2,\ C = \sum_j\Big(\sum_i z_{ij}^2\Big)^2,\ F = \sum z^4

    keeps only products of different queries with different keys: a ratio of U-statistics, whose
    bias is of second order for every law of the entries.

    References
    ----------
    Chen, Zhang and Zhong (2010), doi:10.1198/jasa.2010.tm09560, for such an estimator of
    tr(Sigma^2).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q, k = rng.standard_normal((2, 128, 64))
    >>> round(effective_dimension(q, k)), round(sample_effective_dimension(q, k))
    (64, 32)
    """
    q, k = np.asarray(q, dtype=np.float64), np.asarray(k, dtype=np.float64)
    if min(len(q), len(k)) < MIN_TOKENS:
        return None
    sums = LeftOut.of(q, k, TokenBlocks.of(len(q), 1), TokenBlocks.of(len(k), 1))
    value = float(effective_dimension_table(sums)[0, 0])
    return None if np.isnan(value) else value


def sample_effective_dimension(q: FloatArray, k: FloatArray) -> float | None:
    """Return (tr S_q S_k)^2 / tr((S_q S_k)^2) of the sample covariances as they are."""
    a, b = shared_coordinates(centred(q), centred(k))
    both = product(product(a.T, a), product(b.T, b))
    square = float(np.sum(both * both.T))
    return float(np.trace(both)) ** 2 / square if square > 0 else None


def effective_dimension_table(sums: LeftOut) -> FloatArray:
    """Return the effective dimension with blocks of queries or of keys left out, as `part_tables`.

    Blocks of both at once are taken as the sum of the two changes; NaN where the sample that is
    left cannot tell. The centres stay those of all tokens, a change of second order.
    """
    a, b = shared_coordinates(sums.a, sums.b)
    keep_q, keep_k = sums.queries.kept, sums.keys.kept
    rows, columns = sums.row_squares, sums.column_squares
    without_queries = _ratio(
        keep_q @ rows[:, 0],
        _overlaps(a, b, sums.queries),
        keep_q @ np.square(rows[:, 0]) + np.square(columns).sum(axis=1) - keep_q @ sums.row_fourths,
    )
    without_keys = _ratio(
        keep_k @ columns[0],
        _overlaps(b, a, sums.keys),
        keep_k @ np.square(columns[0]) + np.square(rows).sum(axis=0) - keep_k @ sums.column_fourths,
    )
    return np.asarray(without_queries[:, None] + without_keys[None, :] - without_queries[0])


def _ratio(total: FloatArray, overlap: FloatArray, repeated: FloatArray) -> FloatArray:
    """Return (total^2 - repeated) / (overlap - repeated) where both are positive, else NaN."""
    above, below = np.square(total) - repeated, overlap - repeated
    known = (above > ROUNDING * np.square(total)) & (below > ROUNDING * overlap)
    return np.divide(above, below, out=np.full_like(above, np.nan), where=known)


def _overlaps(a: FloatArray, b: FloatArray, blocks: TokenBlocks) -> FloatArray:
    """Return tr(Q K Q K), Q = a'a and K = b'b, whole and with each block of `a` left out."""
    seen = product(a, product(b.T, b))  # rows K a_i
    linear = np.sum(product(seen, product(a.T, a)) * seen, axis=1)  # a_i' K Q K a_i
    overlaps = np.full(len(blocks.kept), linear.sum())
    for place, rows in enumerate(blocks.slices[: len(blocks.kept) - 1], start=1):
        overlaps[place] += np.square(product(seen[rows], a[rows].T)).sum() - 2 * linear[rows].sum()
    return overlaps
