"""Aligned heads and a scoring → what softmax makes of each row: logits, weights, gradient with respect to q.

In: `AlignedHeads`, a `Scoring`, names of quantities. Out: arrays (heads, m). Tiny gradients keep their digits:
the sum of all weights but the largest is factored out, never subtracted.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulation.aligned_heads import AlignedHeads
from simulation.products import product
from simulation.scoring import Scoring, vector_divisor
from simulation.softmax import sizes_of
from simulation.weights import SplitWeights, split_weights

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Scored:
    """One block of rows under one scoring: logits, and what their gradients need."""

    heads: AlignedHeads
    scoring: Scoring
    similarity: FloatArray  # (heads, m, n), before scale and soft-cap
    logits: FloatArray
    row: SplitWeights

    @property
    def slope(self) -> FloatArray:
        """Derivative of the logits with respect to the similarity, for q as it leaves W_q."""
        scale = self.scoring.effective_scale
        e = np.exp(-2 * np.abs(scale * self.similarity / self.scoring.cap))
        return np.asarray(self.scoring.as_coded.effective_scale * 4 * e / np.square(1 + e))  # sech²


def row_values(heads: AlignedHeads, scoring: Scoring, quantities: Sequence[str]) -> dict[str, FloatArray]:
    """Return the asked quantities of every row, arrays (heads, m).

    "logit_mean" and "logit_std" (n - 1 in the divisor) over the keys of a row; "aligned_logit" and
    "aligned_weight", of key i in row i; "entropy", "trace" and "largest_weight" of the weights;
    "query_gradient", the Frobenius norm of ∂y/∂q for q as it comes out of W_q, folded factors included there.

    Examples
    --------
    >>> from simulation.aligned_heads import align, draw_vectors
    >>> heads = align(draw_vectors(64, 16, np.random.SeedSequence(0)), 0.5, "one")
    >>> values = row_values(heads, Scoring().times("1/√d_k", 1 / 8), ["aligned_weight"])
    >>> round(float(values["aligned_weight"].mean()), 1)
    0.7
    """
    hidden = _hidden(heads) if scoring.kind == "additive" else None
    similarity = _similarity(heads, scoring) if hidden is None else _additive_scores(heads, hidden)
    logits = scoring.effective_scale * similarity
    if math.isfinite(scoring.cap):
        logits = scoring.cap * np.tanh(logits / scoring.cap)
    scored = _Scored(heads, scoring, similarity, logits, split_weights(logits))
    found = {name: _SIMPLE[name](scored) for name in quantities if name in _SIMPLE}
    if {"entropy", "trace", "largest_weight"} & set(quantities):
        sizes = sizes_of(scored.row, spectral=False)
        found |= {name: getattr(sizes, name) for name in ("entropy", "trace", "largest_weight")}
    if "query_gradient" in quantities:
        squares = _gradient_squares(scored) if hidden is None else _additive_gradient_squares(scored, hidden)
        found["query_gradient"] = scored.row.rest[..., 0] * np.sqrt(np.maximum(squares, 0))
    return {name: found[name] for name in quantities}


def _own(values: FloatArray) -> FloatArray:
    """Return the value of key i in row i."""
    return np.asarray(np.diagonal(values, axis1=-2, axis2=-1))


_SIMPLE: dict[str, Callable[[_Scored], FloatArray]] = {
    "logit_mean": lambda scored: np.asarray(scored.logits.mean(axis=-1)),
    "logit_std": lambda scored: np.asarray(scored.logits.std(axis=-1, ddof=1)),
    "aligned_logit": lambda scored: _own(scored.logits),
    "aligned_weight": lambda scored: _own(scored.row.weights),
}
ROW_QUANTITIES = (*_SIMPLE, "entropy", "trace", "largest_weight", "query_gradient")


def _divisors(heads: AlignedHeads, scoring: Scoring) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return what divides q, what divides the keys, and the radial share of the gradient."""
    q_size, radial = vector_divisor(np.sqrt(heads.q_square), scoring, heads.drawn.d_k)
    k_size, _ = vector_divisor(np.sqrt(heads.k_square), scoring, heads.drawn.d_k)
    if scoring.kind == "key_lengths":
        k_size = np.sqrt(heads.k_square).sum(axis=-1, keepdims=True)
    return np.asarray(q_size), np.asarray(k_size), np.asarray(radial)


def _similarity(heads: AlignedHeads, scoring: Scoring) -> FloatArray:
    q_size, k_size, _ = _divisors(heads, scoring)
    return np.asarray(heads.dots / (q_size * k_size))


def _gradient_squares(scored: _Scored) -> FloatArray:
    r"""Return :math:`\|J D\|_F^2 / rest^2` of each row, D the derivatives of its logits by q.

    Each derivative is a multiple α of the base vector and a multiple β of q: J D = J α B + (J β) qᵀ.
    """
    heads = scored.heads
    q_size, k_size, radial = _divisors(heads, scored.scoring)
    along = scored.slope / (q_size * k_size)
    on_base = heads.on_base * along
    total = _base_squares(scored.row, on_base, heads.gram)
    if heads.on_q == 0 and not radial.any():
        return total
    on_q = heads.on_q * along - radial * scored.slope * scored.similarity / np.square(q_size)
    turn = _jacobian_times(scored.row, on_q)
    cross = _jacobian_times(scored.row, on_base * heads.base_dots)
    return np.asarray(total + (turn * (2 * cross + turn * heads.q_square)).sum(axis=-1))


def _jacobian_times(row: SplitWeights, b: FloatArray) -> FloatArray:
    """Return J b / rest of each row, shape of b."""
    top = np.take_along_axis(b, row.top, -1)
    apart = top - (row.share * b).sum(axis=-1, keepdims=True)
    out = row.share * (b - top + row.rest * apart)
    np.put_along_axis(out, row.top, (1 - row.rest) * apart, -1)
    return np.asarray(out)


def _base_squares(row: SplitWeights, along: FloatArray, gram: FloatArray) -> FloatArray:
    """Return the squared norm of J diag(along) B / rest from the inner products of the rows of B.

    Row j of it is share_j (b_j - mean), b = along · B, mean = (1 - rest) b_top + rest · others with others the
    mean of all b but the top one; the top row is (1 - rest) (b_top - others).
    """
    shares = row.share * along
    with_others = product(shares, gram)  # B · others
    others = (shares * with_others).sum(axis=-1, keepdims=True)
    top_along = np.take_along_axis(along, row.top, -1)
    with_top = top_along * np.take_along_axis(gram, np.broadcast_to(row.top, along.shape), -2)
    top = top_along * np.take_along_axis(with_top, row.top, -1)
    top_others = top_along * np.take_along_axis(with_others, row.top, -1)
    kept = 1 - row.rest
    mean = kept**2 * top + 2 * kept * row.rest * top_others + row.rest**2 * others
    lengths = np.diagonal(gram, axis1=-2, axis2=-1)[:, None, :]
    apart = along * (along * lengths - 2 * (kept * with_top + row.rest * with_others)) + mean
    spread = (np.square(row.share) * np.maximum(apart, 0)).sum(axis=-1)
    return np.asarray(spread + (kept**2 * (top - 2 * top_others + others))[..., 0])


def _hidden(heads: AlignedHeads) -> FloatArray:
    """Return tanh(W_q q + W_k k), shape (heads, m, n, h)."""
    w_q, w_k = (heads.drawn.weights[name].swapaxes(-1, -2) for name in ("w_q", "w_k"))
    q_part = product(heads.drawn.q, w_q)
    inner = q_part[:, :, None, :] + heads.on_base * product(heads.base, w_k)[:, None, :, :]
    if heads.on_q:
        inner += heads.on_q * product(heads.drawn.q, w_k)[:, :, None, :]
    return np.asarray(np.tanh(inner))


def _additive_scores(heads: AlignedHeads, hidden: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("bijh,bh->bij", hidden, heads.drawn.weights["v"]))


def _additive_gradient_squares(scored: _Scored, hidden: FloatArray) -> FloatArray:
    """Return the squares as above; a derivative is Σ_h v_h (1 - tanh²) · row h of W_q."""
    weights, row = scored.heads.drawn.weights, scored.row
    units = scored.slope[..., None] * (1 - np.square(hidden)) * weights["v"][:, None, None, :]
    top = np.take_along_axis(units, row.top[..., None], -2)
    apart = top - np.einsum("bij,bijh->bih", row.share, units)[:, :, None, :]
    rest = row.rest[..., None]
    turned = row.share[..., None] * (units - top + rest * apart)
    np.put_along_axis(turned, row.top[..., None], (1 - rest) * apart, -2)
    b, m, n, h = turned.shape
    mixed = product(turned.reshape(b, m * n, h), weights["gram"]).reshape(turned.shape)
    return np.asarray(np.einsum("bijh,bijh->bi", turned, mixed))
