"""Standard errors for figures of an m × n block of logits, which is not m·n samples.

In: the figure with each block of queries and each block of keys left out in turn. Out: an
`Estimate`, freed of its bias of order 1/m and 1/n, with an error that counts queries and keys.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from simulation.statistics import Estimate

FloatArray = npt.NDArray[np.float64]

MIN_TOKENS = 3  # with fewer there is no leaving out that still has a variance


@dataclass(frozen=True, eq=False)
class TokenBlocks:
    """Contiguous blocks of tokens, and which tokens are kept when each is left out.

    Row 0 of `kept`, shape (blocks + 1, tokens), keeps all tokens; row b + 1 leaves block b out.
    Fewer than three tokens make no blocks: `kept` then has row 0 only.
    """

    sizes: npt.NDArray[np.intp]
    kept: FloatArray

    @classmethod
    def of(cls, tokens: int, blocks: int) -> "TokenBlocks":
        """Cut `tokens` into `blocks` blocks, or into single tokens when there are no more than that.

        Examples
        --------
        >>> TokenBlocks.of(7, 3).sizes, TokenBlocks.of(2, 3).kept
        (array([3, 2, 2]), array([[1., 1.]]))
        """
        if tokens < MIN_TOKENS:
            return cls(np.array([tokens]), np.ones((1, tokens)))
        count = min(blocks, tokens)
        label = np.arange(tokens) * count // tokens
        kept = np.vstack([np.ones(tokens), label[None, :] != np.arange(count)[:, None]])
        return cls(np.bincount(label), kept)

    @property
    def counts(self) -> FloatArray:
        """Return how many tokens each row of `kept` keeps."""
        return np.asarray(self.kept.sum(axis=1))

    @property
    def slices(self) -> list[slice]:
        """Return the blocks as slices of the tokens."""
        ends = np.cumsum(self.sizes)
        return [slice(int(end - size), int(end)) for end, size in zip(ends, self.sizes, strict=True)]


def two_way_estimate(
    table: FloatArray,
    queries: TokenBlocks,
    keys: TokenBlocks,
    *,
    same_tokens: bool = False,
    confidence: float = 0.95,
    correct_bias: bool = True,
    floor: float = -math.inf,
) -> Estimate:
    r"""Return a figure of a block of logits with its two-way delete-a-block jackknife error.

    Parameters
    ----------
    table : ndarray, shape (query blocks + 1, key blocks + 1)
        The figure without query block b and key block c; index 0 leaves nothing out.
    queries, keys : TokenBlocks
        What was left out.
    same_tokens : bool
        Whether query i and key i come from one token, so that their effects go together.
    confidence : float
        Level of the interval, of Student's t with one less than the smaller number of blocks.
    correct_bias : bool
        Whether the estimate is the mean of the pseudo-values or the plain figure.
    floor : float
        The figure cannot be below this; the interval stops there.

    Returns
    -------
    Estimate
        Without error and interval when there are fewer than three queries or keys, or when
        leaving some out leaves nothing to measure (NaN in `table`).

    Notes
    -----
    With pseudo-values :math:`P_{bc} = h_b h_c\theta - (h_b-1)h_c\theta_{-b} - \ldots`,
    h = tokens / block size, taken along one axis or both, the squared error is

    .. math:: V = V_q + V_k + 2 C_{qk} - V_{qk}

    the variance over queries, plus that over keys, plus twice their covariance by token (only
    for `same_tokens`), less the interaction, which both of the first two hold once. For a mean
    over pairs it is the unbiased estimator of the crossed random effects model. Where noise would
    push it below one of :math:`V_q, V_k, V_{qk}`, each of which it contains, the largest stands.
    Blocks are contiguous so that tokens may depend on their neighbours within a block.

    References
    ----------
    Owen (2007), doi:10.1214/07-AOAS122: what goes wrong when crossed data count as m·n samples,
    and why no resampling is exact for them. Cameron, Gelbach and Miller (2011),
    doi:10.1198/jbes.2010.07136: rows plus columns less intersection. Busing, Meijer and van der
    Leeden (1999), doi:10.1023/A:1008800423698: pseudo-values for blocks of unequal size.

    Examples
    --------
    The mean of a 3 × 3 block whose rows differ by 3 and whose columns are alike:

    >>> tokens = TokenBlocks.of(3, 3)
    >>> block = np.array([[0, 0, 0], [3, 3, 3], [6, 6, 6]])
    >>> table = tokens.kept @ block @ tokens.kept.T / np.outer(tokens.counts, tokens.counts)
    >>> two_way_estimate(table, tokens, tokens).text  # sd 3 over sqrt(3) rows
    '3.0 ± 1.7'
    """
    whole = float(table[0, 0])
    if min(table.shape) < MIN_TOKENS + 1:
        return Estimate(whole, None, None, None, "fewer than three queries or keys: no standard error")
    if not np.isfinite(table).all():
        return Estimate(whole, None, None, None, "too few queries or keys to leave some out: no standard error")
    q_share, k_share = queries.sizes / queries.sizes.sum(), keys.sizes / keys.sizes.sum()
    both = _pseudo_values(_pseudo_values(table, q_share).T, k_share).T
    corrected = float(q_share @ both @ k_share)
    square = _squared_error(table, both, q_share, k_share, same_tokens=same_tokens)
    value, error = corrected if correct_bias else whole, math.sqrt(square)
    reach = _t_quantile(confidence, min(both.shape) - 1) * error
    return Estimate(value, error, (max(value - reach, min(value, floor)), value + reach), None)


def one_way_estimate(values: FloatArray, tokens: TokenBlocks, *, confidence: float = 0.95) -> Estimate:
    """Return a figure of tokens with its delete-a-block jackknife error, its bias left as it is.

    `values`, shape (blocks + 1,), holds the figure without each block; index 0 leaves nothing out.

    Examples
    --------
    >>> tokens = TokenBlocks.of(4, 4)
    >>> one_way_estimate(tokens.kept @ [1, 2, 3, 6] / tokens.counts, tokens).text  # sd 2.16 over sqrt(4)
    '3.0 ± 1.1'
    """
    whole = float(values[0])
    if len(values) < MIN_TOKENS + 1 or not np.isfinite(values).all():
        return Estimate(whole, None, None, None, "too few tokens: no standard error")
    share = tokens.sizes / tokens.sizes.sum()
    pseudo = _pseudo_values(values, share)
    error = math.sqrt(float(np.mean(np.square(pseudo - share @ pseudo) * share / (1 - share))))
    reach = _t_quantile(confidence, len(pseudo) - 1) * error
    return Estimate(whole, error, (whole - reach, whole + reach), None)


def _pseudo_values(left_out: FloatArray, share: FloatArray) -> FloatArray:
    """Return h * whole - (h - 1) * left_out along axis 0, h = 1 / share of the block left out."""
    h = (1 / share).reshape(-1, *[1] * (left_out.ndim - 1))
    return np.asarray(h * left_out[:1] - (h - 1) * left_out[1:])


def _squared_error(
    table: FloatArray, both: FloatArray, q_share: FloatArray, k_share: FloatArray, *, same_tokens: bool
) -> float:
    """Return V_q + V_k + 2 C_qk - V_qk, and never less than one of the three variances."""
    q_pseudo, k_pseudo = _pseudo_values(table[:, 0], q_share), _pseudo_values(table[0], k_share)
    q_part, k_part = q_pseudo - q_share @ q_pseudo, k_pseudo - k_share @ k_pseudo
    by_query, by_key = (both @ k_share)[:, None], (q_share @ both)[None, :]
    interaction = both - by_query - by_key + q_share @ both @ k_share
    q_weight, k_weight = q_share / (1 - q_share), k_share / (1 - k_share)
    v_q, v_k = float(np.mean(q_part**2 * q_weight)), float(np.mean(k_part**2 * k_weight))
    v_qk = float(np.mean(interaction**2 * np.outer(q_weight, k_weight)))
    together = float(np.mean(q_part * k_part * q_weight)) if same_tokens else 0.0
    return max(v_q + v_k + 2 * together - v_qk, v_q, v_k, v_qk)


def _t_quantile(confidence: float, degrees_of_freedom: int) -> float:
    return float(special.stdtrit(degrees_of_freedom, (1 + confidence) / 2))
