"""The questions of the footnote asked of real queries and keys: which assumption fails, in which head.

In: arrays of q and k as a model computed them. Out: for each head an exact account of the variance
of q·k, what softmax sees of it, and standard errors that count tokens, not logits.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from simulation._validation import real_number, shown, whole_number
from simulation.channels import channel_summary
from simulation.decomposition import variance_parts
from simulation.diagnosis import (
    ChannelSummary,
    Diagnosis,
    Float16Range,
    HeadDiagnosis,
    NormSummary,
    SoftmaxByScale,
)
from simulation.diagnosis_text import reading_notes
from simulation.dimension import sample_effective_dimension
from simulation.head_estimates import head_estimates
from simulation.head_logits import logit_summary, row_summary, softmax_figures
from simulation.heads import FloatArray, Heads, Visible, mask_array
from simulation.jackknife import MIN_TOKENS, TokenBlocks
from simulation.results import versions
from simulation.scoring import scale_factor

DEFAULT_BLOCKS = 16  # of tokens: enough for a standard error, long enough for neighbours that are alike
FLOAT16_MAX = 65504.0
FLOAT16_OVERFLOW = 65520.0  # from here on rounding to float16 gives infinity


@dataclass(frozen=True, eq=False)
class _Settings:
    """What holds for all heads."""

    scale: float
    same_tokens: bool
    confidence: float
    queries: TokenBlocks
    keys: TokenBlocks


def diagnose(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    *,
    scale: float | None = None,
    mask: npt.ArrayLike | None = None,
    causal: bool = False,
    same_tokens: bool | None = None,
    blocks: int = DEFAULT_BLOCKS,
    confidence: float = 0.95,
    progress: Callable[[int, int], None] | None = None,
) -> Diagnosis:
    r"""Measure the logits of real queries and keys, head by head.

    Parameters
    ----------
    q : array_like, shape (..., n_q, d_k)
        Queries, of any real type; computed in float64. Leading axes (layers, batch, heads) as they come.
    k : array_like, shape (..., n_k, d_k)
        Keys. The axis before the tokens may hold fewer key heads than query heads: query head h
        then uses key head h // group.
    scale : float, optional
        The factor that the model puts on q·k; None is 1/sqrt(d_k) of the q passed. The result
        shows the number in force.
    mask : array_like of bool, broadcastable to (..., n_q, n_k), optional
        True where a query may look at a key.
    causal : bool
        Whether query i sees keys j <= i + n_k - n_q only: the last query sees all keys.
    same_tokens : bool, optional
        Whether query i and key i come from the same token; by default when n_q = n_k.
    blocks : int
        Blocks of tokens for the jackknife, from 3 to 1,000; each token is one when there are no more.
    confidence : float
        Level of each interval by itself.
    progress : callable, optional
        Called with (heads done, heads in all).

    Returns
    -------
    Diagnosis
        One `HeadDiagnosis` for each head, in the order of the leading axes, and notes on how the
        arrays were read.

    Raises
    ------
    ValueError
        If an argument breaks its rule: shapes that do not go together, non-finite entries (with
        their number and place), heads that do not divide, a head in which every row is masked.

    Notes
    -----
    Everything is of the logits q·k before any scale, except where a scale is named. The variance
    over all m × n pairs (divided by m n) is split exactly by `variance_parts`, masked pairs
    included; `row_variance`, the mean over rows of the variance over the visible keys (divided by
    their number), is what softmax sees. Standard errors come from leaving out blocks of queries
    and of keys (`two_way_estimate`): m × n logits are not m n samples. With q and k from the same
    tokens, the n pairs of a token with itself are among all pairs and count in every figure.

    Of intervals at 95 %, 94 to 96 % covered the variance, overall and within rows, of independent
    normal entries (8 to 128 tokens), 94 % that of Student t entries with 5 degrees of freedom,
    and 90 to 92 % when neighbouring tokens have correlation 0.7: fewer blocks help then. For a
    part that is pure chance they are wider than need be (98 %).

    At most 65,536 logits (or one row) are formed at a time, whatever n_q and n_k, and heads are
    converted one by one.

    References
    ----------
    Vaswani et al. (2017), footnote 4, arXiv:1706.03762. Ainslie et al. (2023), arXiv:2305.13245,
    for grouped-query attention.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q, k = rng.standard_normal((2, 4, 128, 64))
    >>> k[2] += 1.0  # a mean of the keys moves whole rows: softmax does not see it
    >>> result = diagnose(q, k)
    >>> head = result.head(2)
    >>> head.largest_part, round(head.parts.variance / head.variance, 10)
    ('footnote', 1.0)
    >>> error = head.estimates.key_mean.standard_error
    >>> abs(head.estimates.key_mean.estimate - 64) < 4 * error
    True
    """
    heads = Heads.of(q, k)
    seen = mask_array(mask, heads)
    settings = _settings(heads, scale, same_tokens, blocks, confidence)
    found = []
    for done, (index, head_q, head_k) in enumerate(heads, start=1):
        visible = Visible(heads.n_queries, heads.n_keys, None if seen is None else seen[index], bool(causal))
        found.append(_diagnose_head(index, head_q, head_k, visible, settings))
        if progress is not None:
            progress(done, len(heads))
    result = Diagnosis(
        heads=tuple(found),
        shape=heads.shape,
        n_queries=heads.n_queries,
        n_keys=heads.n_keys,
        d_k=heads.d_k,
        group=heads.group,
        scale=settings.scale,
        masked=seen is not None or bool(causal),
        same_tokens=settings.same_tokens,
        blocks=min(len(settings.queries.sizes), len(settings.keys.sizes)),
        confidence=settings.confidence,
        notes=(),
        versions=versions(),
    )
    return replace(result, notes=reading_notes(result, scale_given=scale is not None))


def _settings(heads: Heads, scale: float | None, same_tokens: bool | None, blocks: int, confidence: float) -> _Settings:
    count = whole_number("blocks", blocks, MIN_TOKENS, 1000)
    alike = heads.n_queries == heads.n_keys
    if same_tokens and not alike:
        raise ValueError(
            f"`same_tokens` must be False when there are not as many keys as queries; received {shown(same_tokens)} "
            f"for {heads.n_queries:,} queries and {heads.n_keys:,} keys."
        )
    return _Settings(
        scale=scale_factor("scaled_dot", heads.d_k) if scale is None else real_number("scale", scale, 1e-12, 1e6),
        same_tokens=alike if same_tokens is None else bool(same_tokens),
        confidence=real_number("confidence", confidence, 0.5, 0.999999),
        queries=TokenBlocks.of(heads.n_queries, count),
        keys=TokenBlocks.of(heads.n_keys, count),
    )


def _diagnose_head(
    index: tuple[int, ...], q: FloatArray, k: FloatArray, visible: Visible, settings: _Settings
) -> HeadDiagnosis:
    logits = logit_summary(q, k)
    rows = row_summary(q, k, visible, settings.queries, settings.keys)
    estimates = head_estimates(q, k, rows, settings.queries, settings.keys, settings.same_tokens, settings.confidence)
    q_channels, k_channels = channel_summary(q), channel_summary(k)
    dimension, correlation = estimates.effective_dimension, estimates.token_correlation
    return HeadDiagnosis(
        index=index,
        d_k=q.shape[1],
        mean=logits.mean,
        variance=logits.variance,
        variance_over_d_k=logits.variance / q.shape[1],
        parts=variance_parts(q, k),
        row_variance=rows.variance,
        row_mean_variance=rows.mean_variance,
        q_variance=float(np.mean(q_channels.variance)),
        k_variance=float(np.mean(k_channels.variance)),
        effective_width=_effective_width(q_channels, k_channels),
        effective_dimension=dimension.estimate if dimension else None,
        sample_effective_dimension=sample_effective_dimension(q, k),
        token_correlation=correlation.estimate if correlation else None,
        cosine_of_means=_cosine(q.mean(axis=0), k.mean(axis=0)),
        largest_logit=logits.largest,
        largest_logit_at=logits.largest_at,
        largest_visible_logit=rows.largest,
        q_norm=_norms(q),
        k_norm=_norms(k),
        cosine_mean=logits.cosine_mean,
        cosine_std=logits.cosine_std,
        softmax=_softmax(q, k, visible, rows.variance, settings.scale),
        entropy_limit=rows.log_keys,
        masked_rows=rows.masked_rows,
        q_channels=q_channels,
        k_channels=k_channels,
        float16=_float16(q, k, logits.largest, settings.scale),
        estimates=estimates,
    )


def _softmax(q: FloatArray, k: FloatArray, visible: Visible, row_variance: float, own: float) -> SoftmaxByScale:
    """Return the softmax figures at the four scales, each computed once."""
    unit = 1 / math.sqrt(row_variance) if row_variance > 0 else None
    root = scale_factor("scaled_dot", q.shape[1])
    wanted = list(dict.fromkeys([1.0, root, own, *([] if unit is None else [unit])]))
    found = dict(zip(wanted, softmax_figures(q, k, visible, wanted, row_variance), strict=True))
    return SoftmaxByScale(
        unscaled=found[1.0],
        sqrt_d_k=found[root],
        own=found[own],
        unit=None if unit is None else found[unit],
    )


def _effective_width(q: ChannelSummary, k: ChannelSummary) -> int:
    """Return how many channels vary both in the queries and in the keys."""
    return len(q.mean) - len({*q.zero, *q.constant, *k.zero, *k.constant})


def _float16(q: FloatArray, k: FloatArray, largest: float, scale: float) -> Float16Range:
    return Float16Range(
        entries=bool(max(np.abs(q).max(), np.abs(k).max()) >= FLOAT16_OVERFLOW),
        product=largest >= FLOAT16_OVERFLOW,
        scaled_first=largest * scale >= FLOAT16_OVERFLOW,
        largest_scale=FLOAT16_MAX / largest if largest > 0 else None,
    )


def _norms(x: FloatArray) -> NormSummary:
    norms = np.linalg.norm(x, axis=1)
    return NormSummary(float(norms.mean()), float(norms.max()))


def _cosine(x: FloatArray, y: FloatArray) -> float | None:
    size = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / size if size > 0 else None
