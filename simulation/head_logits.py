"""The logits and attention weights of one head, formed a few rows at a time.

In: the queries (m, d_k) and keys (n, d_k) of a head in float64, and which keys each query sees.
Out: moments, extremes, the variance within rows, and what softmax makes of a row at some scales.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from simulation.decomposition import ROUNDING, centred, row_chunks
from simulation.diagnosis import HeadDiagnosis, SoftmaxFigures
from simulation.heads import BoolArray, FloatArray, Visible
from simulation.histograms import Histogram
from simulation.jackknife import TokenBlocks
from simulation.products import product
from simulation.softmax import jacobian_sizes, softmax
from simulation.statistics import MomentState


@dataclass(frozen=True)
class LogitSummary:
    """What all m × n logits q·k of a head look like, before any scale and any mask."""

    mean: float
    variance: float
    largest: float
    largest_at: tuple[int, int]
    cosine_mean: float | None
    cosine_std: float | None


@dataclass(frozen=True, eq=False)
class RowSummary:
    """What softmax sees: the logits of each row that has a visible key, over its visible keys.

    `table` is the mean over rows of the variance (ddof = 1) with blocks of queries and of keys
    left out, for its standard error; rows with one visible key have none and do not count there.
    """

    variance: float
    mean_variance: float
    largest: float
    log_keys: float
    masked_rows: int
    table: FloatArray


def logit_summary(q: FloatArray, k: FloatArray) -> LogitSummary:
    """Return mean, variance (ddof = 0), largest |q·k| and cosines over all pairs of a block."""
    origin = k.mean(axis=0)
    a, b, middle = centred(q), centred(k), float(q.mean(axis=0) @ origin)
    offset = a @ origin
    q_norm, k_norm = np.linalg.norm(q, axis=1), np.linalg.norm(k, axis=1)
    state, cosines = MomentState(), MomentState()
    largest, at = -1.0, (0, 0)
    for rows in row_chunks(len(q), len(k)):
        logits = product(q[rows], b.T) + offset[rows, None]  # less their mean, so that it costs no digits
        state = state.merge(MomentState.of(logits))
        logits += middle
        size = np.abs(logits)
        place = divmod(int(size.argmax()), len(k))
        if size[place] > largest:
            largest, at = float(size[place]), (rows.start + place[0], place[1])
        lengths = np.outer(q_norm[rows], k_norm)
        cosines = cosines.merge(MomentState.of(logits[lengths > 0] / lengths[lengths > 0]))
    return LogitSummary(
        mean=middle + state.mean,
        variance=state.m2 / state.n,
        largest=largest,
        largest_at=at,
        cosine_mean=cosines.mean if cosines.n else None,
        cosine_std=math.sqrt(cosines.m2 / cosines.n) if cosines.n else None,
    )


def logit_histogram(q: FloatArray, k: FloatArray, summary: HeadDiagnosis, bins: int = 60) -> Histogram:
    """Return the histogram of all m × n logits q·k of a head, within six standard deviations of their mean.

    `summary` is the head's own: it says where its logits lie.
    """
    reach = max(6 * math.sqrt(summary.variance), 1e-6 * abs(summary.mean)) or 0.5
    end = summary.largest_logit * (1 + 1e-9) or reach  # the largest belongs to the last bin, however it was rounded
    low, high = max(summary.mean - reach, -end), min(summary.mean + reach, end)
    edges = np.linspace(low, high, bins + 1)
    histogram = Histogram.empty(edges)
    for rows in row_chunks(len(q), len(k)):
        histogram = histogram.add(product(q[rows], k.T))
    return histogram


def query_weights(q: FloatArray, k: FloatArray, visible: Visible, query: int, scales: Sequence[float]) -> FloatArray:
    """Return the attention weights of one query at each scale, shape (scales, n); NaN if it sees no key.

    Examples
    --------
    >>> query_weights(np.eye(2), np.eye(2), Visible(2, 2), 0, [0, math.log(3)])
    array([[0.5 , 0.5 ],
           [0.75, 0.25]])
    """
    seen = visible.rows(slice(query, query + 1))[0]
    if not seen.any():
        return np.full((len(scales), len(k)), np.nan)
    logits = ((k - k[seen].mean(axis=0)) * q[query]).sum(axis=1)
    return softmax(np.where(seen, np.outer(scales, logits), -np.inf))


def visible_mean(k: FloatArray, visible: Visible) -> FloatArray:
    """Return the mean of the keys that some query sees, shape (d_k,).

    Softmax figures count keys from here: what all keys share adds one number to a whole row, and
    softmax does not see it. A hidden key, however large, has no say in it.

    Raises
    ------
    ValueError
        If no query sees any key.
    """
    if visible.everything:
        return np.asarray(k.mean(axis=0))
    seen = np.zeros(visible.n, dtype=bool)
    for rows in row_chunks(visible.m, visible.n):
        seen |= visible.rows(rows).any(axis=0)
    if not seen.any():
        raise ValueError("`mask` must leave at least one query a key to look at; here all rows are fully masked.")
    return np.asarray(k[seen].mean(axis=0))


def _rows(
    q: FloatArray, k: FloatArray, origin: FloatArray, visible: Visible
) -> Iterator[tuple[slice, FloatArray, BoolArray]]:
    """Yield (rows, logits with keys counted from `origin`, visible keys), a few rows at a time."""
    keys = (k - origin).T
    for rows in row_chunks(len(q), len(k)):
        yield rows, product(q[rows], keys), visible.rows(rows)


def row_summary(q: FloatArray, k: FloatArray, visible: Visible, queries: TokenBlocks, keys: TokenBlocks) -> RowSummary:
    """Return the variance within rows and between row means, and rows that see no key at all."""
    counts, variances, means = np.zeros((3, len(q)))
    sample_variances = np.zeros((len(q), len(keys.kept)))
    origin = visible_mean(k, visible)
    largest, offset = 0.0, q @ origin
    for rows, logits, seen in _rows(q, k, origin, visible):
        largest = max(largest, float(np.abs(logits + offset[rows, None])[seen].max(initial=0)))
        counts[rows] = seen.sum(axis=1)
        divisor = np.maximum(counts[rows], 1)[:, None]
        mean = np.where(seen, logits, 0.0).sum(axis=1, keepdims=True) / divisor
        away = np.where(seen, logits - mean, 0.0)
        means[rows], variances[rows] = mean[:, 0], (np.square(away) / divisor).sum(axis=1)
        sample_variances[rows] = _sample_variances(away, seen, keys)
    used = counts > 0
    means = centred((means + offset)[used, None])
    variance = float(variances[used].mean())
    noise = ROUNDING**2 * float(np.square(q).sum(axis=1).mean()) * float(origin @ origin)
    return RowSummary(
        variance=variance if variance > noise else 0.0,  # keys all alike but for rounding
        mean_variance=float(np.square(means).mean()),
        largest=largest,
        log_keys=float(np.log(counts[used]).mean()),
        masked_rows=int((~used).sum()),
        table=_mean_over_rows(sample_variances, queries),
    )


def _sample_variances(logits: FloatArray, seen: BoolArray, keys: TokenBlocks) -> FloatArray:
    """Return the variance of each row (ddof = 1) without each block of keys; NaN below two keys."""
    count, total, square = (product(x, keys.kept.T) for x in (seen.astype(np.float64), logits, np.square(logits)))
    enough = count > 1
    spread = np.maximum(square - np.square(total) / np.maximum(count, 1), 0)
    return np.divide(spread, count - 1, out=np.full_like(spread, np.nan), where=enough)


def _mean_over_rows(values: FloatArray, queries: TokenBlocks) -> FloatArray:
    """Return the mean over the rows kept that have a value; NaN where none has."""
    exists = ~np.isnan(values)
    total, count = (product(queries.kept, x) for x in (np.where(exists, values, 0.0), exists.astype(np.float64)))
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)


def softmax_figures(
    q: FloatArray, k: FloatArray, visible: Visible, scales: Sequence[float], row_variance: float
) -> list[SoftmaxFigures]:
    """Return entropy, largest weight and tr J at each scale, means over the rows that see a key."""
    sums = {scale: np.zeros(3) for scale in scales}
    used = 0
    for _, logits, seen in _rows(q, k, visible_mean(k, visible), visible):
        some = seen.any(axis=1)
        if not some.any():
            continue
        used += int(some.sum())
        for scale, total in sums.items():
            sizes = jacobian_sizes(np.where(seen, logits * scale, -np.inf)[some], spectral=False)
            total += [sizes.entropy.sum(), sizes.largest_weight.sum(), sizes.trace.sum()]
    return [
        SoftmaxFigures(scale, scale**2 * row_variance, *(float(value / used) for value in sums[scale]))
        for scale in scales
    ]
