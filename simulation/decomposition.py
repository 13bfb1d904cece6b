"""Where the variance of q·k comes from: an exact account of one head's block of logits.

In: the queries (m, d_k) and keys (n, d_k) of a head, in float64. Out: the parts that sum to the
variance over all m × n pairs, and the same with tokens left out, which is what their standard
errors are made of.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulation.jackknife import TokenBlocks
from simulation.products import product

FloatArray = npt.NDArray[np.float64]

BLOCK_LOGITS = 2**16  # logits formed at a time: half a megabyte, which stays in a core's cache
ROUNDING = 1e-13  # of the larger of two numbers: a difference below it says nothing


@dataclass(frozen=True)
class VarianceParts:
    """What the variance of q·k over all pairs of a block is made of; the parts sum to it.

    `footnote` is d_k v_q v_k, what independent channels of equal variance would give;
    `unequal_channels` what channels of unequal variance add (or take away), `correlated_channels`
    what correlation between channels adds; `query_mean` comes from the mean of the queries, and
    `key_mean` from the mean of the keys, which softmax never sees.
    """

    footnote: float
    unequal_channels: float
    correlated_channels: float
    query_mean: float
    key_mean: float

    @property
    def variance(self) -> float:
        """The variance over all pairs: the sum of the parts."""
        return self.row_variance + self.key_mean

    @property
    def row_variance(self) -> float:
        """The mean over queries of the variance over keys: all parts but that of the key mean."""
        return self.footnote + self.alignment + self.query_mean

    @property
    def alignment(self) -> float:
        """tr(S_q S_k) less the footnote's term: unequal and correlated channels together."""
        return self.unequal_channels + self.correlated_channels


def centred(x: FloatArray) -> FloatArray:
    """Return the tokens of `x`, shape (tokens, d_k), less their mean; a large mean costs no digits."""
    away = x - x.mean(axis=0)
    return np.asarray(away - away.mean(axis=0))


def variance_parts(q: npt.ArrayLike, k: npt.ArrayLike) -> VarianceParts:
    r"""Return the exact account of the variance of q_i · k_j over all pairs (i, j) of a block.

    Parameters
    ----------
    q, k : array_like, shapes (m, d_k) and (n, d_k)
        Queries and keys of one head.

    Returns
    -------
    VarianceParts
        In units of the logits squared.

    Notes
    -----
    With means :math:`\mu` and covariances S (divided by m and n, ddof = 0) of this very sample,

    .. math:: \mathrm{Var}(q\cdot k) = \mathrm{tr}(S_q S_k) + \mu_q^T S_k \mu_q + \mu_k^T S_q \mu_k

    is an identity, not an approximation: every query meets every key, so the terms
    :math:`a_i\cdot b_j`, :math:`\mu_q\cdot b_j`, :math:`a_i\cdot\mu_k` of centred queries a and
    keys b are orthogonal over the block, whatever dependence there is between q and k. The first
    term is split by the diagonals s of the covariances and their means v:
    :math:`d_k v_q v_k`, then :math:`\sum_i s_{q,i}s_{k,i} - d_k v_q v_k`, then what is off the
    diagonal.

    Raises
    ------
    ValueError
        If the shapes do not go together.

    References
    ----------
    Vaswani et al. (2017), footnote 4, arXiv:1706.03762, for the first part; the rest is the
    two-way analysis of variance of the block.

    Examples
    --------
    >>> parts = variance_parts([[1, 0], [-1, 0]], [[3, 5], [5, 5]])
    >>> parts
    VarianceParts(footnote=0.5, unequal_channels=0.5, correlated_channels=0.0, query_mean=0.0, key_mean=16.0)
    >>> parts.variance == float(np.var([[3, 5], [-3, -5]]))
    True
    """
    q, k = np.asarray(q, dtype=np.float64), np.asarray(k, dtype=np.float64)
    if q.ndim != 2 or k.ndim != 2 or q.shape[1] != k.shape[1] or 0 in (*q.shape, *k.shape):
        raise ValueError(
            f"`q` and `k` must have shapes (m, d_k) and (n, d_k), none of them 0; received {q.shape} and {k.shape}."
        )
    a, b = centred(q), centred(k)
    q_variance, k_variance = np.square(a).mean(axis=0), np.square(b).mean(axis=0)
    footnote, channels = float(q_variance.sum() * k_variance.mean()), float(q_variance @ k_variance)
    a_short, b_short = shared_coordinates(a, b)
    spread = float(np.sum(product(a_short.T, a_short) * product(b_short.T, b_short))) / (len(q) * len(k))
    return VarianceParts(
        footnote=footnote,
        unequal_channels=float(_less_rounding(channels - footnote, channels)),
        correlated_channels=float(_less_rounding(spread - channels, spread)),
        query_mean=float(np.square(b @ q.mean(axis=0)).mean()),
        key_mean=float(np.square(a @ k.mean(axis=0)).mean()),
    )


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Sums over the block of z = a_i · b_j, as they stand with blocks of tokens left out.

    Queries a and keys b are centred at their means over all tokens. Rows run over the whole and
    the query blocks left out, columns likewise over keys.
    """

    a: FloatArray  # (m, d_k)
    b: FloatArray  # (n, d_k)
    queries: TokenBlocks
    keys: TokenBlocks
    row_squares: FloatArray  # (m, key blocks + 1): sum of z^2 over the keys kept
    column_squares: FloatArray  # (query blocks + 1, n): sum of z^2 over the queries kept
    row_fourths: FloatArray  # (m,): sum of z^4 over all keys
    column_fourths: FloatArray  # (n,): sum of z^4 over all queries

    @classmethod
    def of(cls, q: FloatArray, k: FloatArray, queries: TokenBlocks, keys: TokenBlocks) -> "LeftOut":
        """Pass once over the block of queries (m, d_k) and keys (n, d_k), a few rows at a time."""
        a, b = centred(q), centred(k)
        row_squares = np.empty((len(q), len(keys.kept)))
        column_squares = np.zeros((len(queries.kept), len(k)))
        row_fourths, column_fourths = np.empty(len(q)), np.zeros(len(k))
        for rows in row_chunks(len(q), len(k)):
            square = np.square(product(a[rows], b.T))
            row_squares[rows] = product(square, keys.kept.T)
            column_squares += product(queries.kept[:, rows], square)
            np.square(square, out=square)
            row_fourths[rows] = square.sum(axis=1)
            column_fourths += square.sum(axis=0)
        return cls(a, b, queries, keys, row_squares, column_squares, row_fourths, column_fourths)


def row_chunks(m: int, n: int) -> list[slice]:
    """Return the rows of an m × n block in slices of at most 65,536 logits, or of one row."""
    step = max(1, BLOCK_LOGITS // n)
    return [slice(start, min(start + step, m)) for start in range(0, m, step)]


def part_tables(q: FloatArray, k: FloatArray, sums: LeftOut) -> dict[str, FloatArray]:
    """Return mean, variance and its parts with each block of queries and of keys left out.

    Each table has shape (query blocks + 1, key blocks + 1), index 0 leaving nothing out, and holds
    the figure exactly as `variance_parts` has it for the tokens kept.
    """
    a, b, (keep_q, keep_k) = sums.a, sums.b, (sums.queries.kept, sums.keys.kept)
    m, n = sums.queries.counts[:, None], sums.keys.counts[None, :]
    a_mean, b_mean = product(keep_q, a) / m, product(keep_k, b) / n.T
    q_mean, k_mean = q.mean(axis=0) + a_mean, k.mean(axis=0) + b_mean
    spread = (
        product(keep_q, sums.row_squares) / (m * n)
        - product(keep_q, np.square(product(a, b_mean.T))) / m
        - product(np.square(product(a_mean, b.T)), keep_k.T) / n
        + np.square(a_mean @ b_mean.T)
    )
    by_query, by_key = product(a, k_mean.T), product(q_mean, b.T)
    key_mean = product(keep_q, np.square(by_query)) / m - np.square(product(keep_q, by_query) / m)
    query_mean = product(np.square(by_key), keep_k.T) / n - np.square(product(by_key, keep_k.T) / n)
    q_variance = product(keep_q, np.square(a)) / m - np.square(a_mean)
    k_variance = product(keep_k, np.square(b)) / n.T - np.square(b_mean)
    footnote, channels = np.outer(q_variance.sum(axis=1), k_variance.mean(axis=1)), q_variance @ k_variance.T
    return {
        "mean": q_mean @ k_mean.T,
        "variance": spread + query_mean + key_mean,
        "footnote": footnote,
        "unequal_channels": _less_rounding(channels - footnote, channels),
        "correlated_channels": _less_rounding(spread - channels, spread),
        "query_mean": query_mean,
        "key_mean": key_mean,
    }


def shared_coordinates(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a and b in at most min(m, n, d) coordinates that keep every product a_i · b_j."""
    if a.shape[1] <= min(len(a), len(b)):
        return a, b
    if len(b) < len(a):
        b, a = shared_coordinates(b, a)
        return a, b
    basis, coordinates = np.linalg.qr(a.T)
    return coordinates.T, b @ basis


def _less_rounding(difference: npt.ArrayLike, whole: npt.ArrayLike) -> FloatArray:
    """Return `difference`, but 0 where it is no more than the rounding of `whole`."""
    return np.asarray(np.where(np.abs(difference) <= ROUNDING * np.abs(whole), 0.0, difference))
