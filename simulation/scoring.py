"""q, k → logits: the ways to score a query against keys, and the scale that is in force.

In: float arrays of queries (..., m, d_k) and keys (..., n, d_k), and a `Scoring`, best made by
`methods.make_scoring`. Out: float64 logits, and gradients with respect to q.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from simulation._validation import one_of, real_number, shown, whole_number
from simulation.additive import AdditiveWeights
from simulation.softmax import MAX_JACOBIAN_ENTRIES, softmax_jacobian

FloatArray = npt.NDArray[np.float64]
Kind = Literal["dot", "cosine", "rmsnorm", "key_lengths", "additive"]

SCORINGS: tuple[Literal["dot", "scaled_dot"], ...] = ("dot", "scaled_dot")
_SYMBOLS = {
    "dot": "q·k",
    "cosine": "cos(q, k)",
    "rmsnorm": "RMSNorm(q)·RMSNorm(k)",
    "key_lengths": "q·k / Σ|k|",
    "additive": "vᵀtanh(W_q q + W_k k)",
}


def paired_dot(q: npt.NDArray[np.floating], k: npt.NDArray[np.floating]) -> FloatArray:
    """Return q·k of each pair: arrays (..., d_k) → (...), products and sums in float64.

    Examples
    --------
    >>> paired_dot(np.full((1, 128), 24, np.float16), np.full((1, 128), 24, np.float16))  # inf in float16
    array([73728.])
    """
    return np.asarray(np.einsum("...i,...i->...", q, k, dtype=np.float64, casting="safe"))


def drawn_dot(q: npt.NDArray[np.floating], k: npt.NDArray[np.floating]) -> tuple[npt.NDArray[np.floating], FloatArray]:
    """Return the products q_i k_i of drawn pairs, as precise as the draws, and their float64 sums q·k.

    Arrays (pairs, d_k) → (pairs, d_k) and (pairs,). For float32 draws the products are rounded once
    more, by 3e-8 of themselves on average; that is faster than `paired_dot`, and no less accurate
    about a law than the draws are.

    Examples
    --------
    >>> products, dots = drawn_dot(np.full((1, 64), 3, np.float32), np.full((1, 64), 0.5, np.float32))
    >>> products.dtype.name, products[0, 0].item(), dots
    ('float32', 1.5, array([96.]))
    """
    products = q * k
    return products, np.asarray(np.einsum("ij->i", products, dtype=np.float64, casting="safe"))


def scale_factor(scoring: str, d_k: int) -> float:
    """Return the factor on q·k: 1 for "dot", 1/sqrt(d_k) for "scaled_dot".

    Examples
    --------
    >>> scale_factor("scaled_dot", 64)
    0.125
    """
    name = one_of("scoring", scoring, SCORINGS)
    return 1.0 if name == "dot" else 1 / math.sqrt(whole_number("d_k", d_k, 1, 10**9))


@dataclass(frozen=True)
class Factor:
    """A number from 0 to 1e12 on the similarity of q and k, under the name people give it.

    A `folded` factor sits in W_q from initialisation on, as T5's 1/√d_k: no line of code divides by it.
    """

    name: str
    value: float
    folded: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", real_number(f"factor {self.name}", self.value, 0, 1e12))


@dataclass(frozen=True)
class Scoring:
    """How q and k become a logit: cap · tanh(scale · similarity / cap). Scale first, then cap.

    Parameters
    ----------
    kind : {"dot", "cosine", "rmsnorm", "key_lengths", "additive"}
        Similarity: q·k; its cosine; RMSNorm(q)·RMSNorm(k); q·k over the summed length of all the row's
        keys; vᵀ tanh(W_q q + W_k k).
    factors : tuple of Factor
        Their product is the scale.
    cap : float
        Soft-cap, above 0; infinite for none.
    eps : float
        Least length of a vector under "cosine" (as in torch's normalize); what "rmsnorm" adds to a mean
        square. At 0 a zero vector is refused, above 0 its logits are 0.
    weights : AdditiveWeights, optional
        For kind "additive", where logits need them.

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    Examples
    --------
    >>> t5 = Scoring().times("1/√d_k", 1 / 8, folded=True)
    >>> print(t5.times("1/√d_k", 1 / 8))  # folded into W_q, and divided again
    q·k × 1/√d_k (in W_q) 0.125 × 1/√d_k 0.125 = 0.015625 q·k
    """

    kind: Kind = "dot"
    factors: tuple[Factor, ...] = ()
    cap: float = math.inf
    eps: float = 0.0
    weights: AdditiveWeights | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", one_of("kind", self.kind, tuple(_SYMBOLS)))
        object.__setattr__(self, "factors", tuple(self.factors))
        object.__setattr__(self, "cap", real_number("cap", self.cap, 0, math.inf, open_low=True))
        object.__setattr__(self, "eps", real_number("eps", self.eps, 0, 1))

    @property
    def effective_scale(self) -> float:
        """Product of all factors: what stands between unit-variance q, k and softmax."""
        return math.prod(factor.value for factor in self.factors)

    @property
    def implied_d_k(self) -> float:
        """The head dimension whose 1/√d_k is the effective scale; infinite for scale 0."""
        return math.inf if self.effective_scale == 0 else self.effective_scale**-2

    @property
    def as_coded(self) -> "Scoring":
        """The same without folded factors: for a q that comes out of W_q and holds them already."""
        return replace(self, factors=tuple(factor for factor in self.factors if not factor.folded))

    def times(self, name: str, value: float, *, folded: bool = False) -> "Scoring":
        """Return this scoring with one factor more."""
        return replace(self, factors=(*self.factors, Factor(name, value, folded)))

    def capped(self, cap: float) -> "Scoring":
        """Return this scoring under a soft-cap after the scale; ``inf`` takes it off."""
        return replace(self, cap=cap)

    def __str__(self) -> str:
        """Return every factor by name, and the one number in force."""
        listed = (f" × {f.name}{' (in W_q)' if f.folded else ''} {f.value:.6g}" for f in self.factors)
        cap = "" if math.isinf(self.cap) else f", soft-capped at {self.cap:g}"
        symbol = _SYMBOLS[self.kind]
        return f"{symbol}{''.join(listed) or ' × no factor'} = {self.effective_scale:.6g} {symbol}{cap}"


def logits(q: npt.ArrayLike, k: npt.ArrayLike, scoring: Scoring) -> FloatArray:
    """Return the logits of queries against keys, in float64.

    Parameters
    ----------
    q : array_like, shape (..., m, d_k)
    k : array_like, shape (..., n, d_k)
        Finite numbers of any real type; leading axes broadcast.
    scoring : Scoring
        All its factors apply: give ``scoring.as_coded`` for a q that holds the folded ones already.

    Returns
    -------
    ndarray of float64, shape (..., m, n)

    Raises
    ------
    ValueError
        If shapes do not fit, an entry is not finite, a length to divide by is 0, or a logit overflows.

    Examples
    --------
    >>> logits([[3, 4]], [[4, 3], [0, 0]], Scoring("cosine", eps=1e-12).times("g", 10))
    array([[9.6, 0. ]])
    """
    x = _scaled(*_pair(q, k), scoring)
    return x if math.isinf(scoring.cap) else np.asarray(scoring.cap * np.tanh(x / scoring.cap))


def logits_vjp(q: npt.ArrayLike, k: npt.ArrayLike, scoring: Scoring, upstream: npt.ArrayLike) -> FloatArray:
    """Return the gradient of Σ upstream · logits with respect to q, shape (..., m, d_k).

    For linear scorings it is scale · upstream @ k; norms, tanh and the soft-cap bring their own terms.
    `upstream` has the shape of the logits; the rest, and the errors, are those of `logits`.

    Examples
    --------
    >>> logits_vjp([[1, 0]], [[2, 4]], Scoring().times("1/√d_k", 1 / 2), [[1]])
    array([[1., 2.]])
    """
    (queries, keys), derivatives = _pair(q, k), _finite("upstream", upstream)
    if derivatives.shape != (expected := _shape(queries, keys)):
        raise ValueError(f"`upstream` must have the shape of the logits, {expected}; received {derivatives.shape}.")
    return _vjp(queries, keys, scoring, derivatives)


def weights_gradient(q: npt.ArrayLike, k: npt.ArrayLike, scoring: Scoring) -> FloatArray:
    """Return ∂y/∂q of the attention weights y = softmax(logits), shape (..., m, n, d_k).

    It is scale · J K for linear scorings, J the softmax Jacobian. Arguments and errors as for `logits`;
    at most 33,554,432 numbers.

    Examples
    --------
    >>> weights_gradient([[0]], [[1], [-1]], Scoring())[0]
    array([[ 0.5],
           [-0.5]])
    """
    queries, keys = _pair(q, k)
    shape = (*_shape(queries, keys), keys.shape[-1])
    if math.prod(shape) > MAX_JACOBIAN_ENTRIES:
        raise ValueError(f"`q` and `k` may give at most {MAX_JACOBIAN_ENTRIES:,} derivatives; received shape {shape}.")
    jacobian = softmax_jacobian(logits(queries, keys, scoring))
    return _vjp(queries[..., None, :], keys[..., None, :, :], scoring, jacobian)


def _pair(q: npt.ArrayLike, k: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    queries, keys = _finite("q", q), _finite("k", k)
    if queries.shape[-1] != keys.shape[-1]:
        raise ValueError(f"`q` and `k` must share d_k, their last axis; received {queries.shape} and {keys.shape}.")
    _shape(queries, keys)
    return queries, keys


def _shape(q: FloatArray, k: FloatArray) -> tuple[int, ...]:
    """Return the shape of the logits."""
    try:
        return (*np.broadcast_shapes(q.shape[:-2], k.shape[:-2]), q.shape[-2], k.shape[-2])
    except ValueError:
        raise ValueError(f"`q` and `k` must have leading axes that fit; received {q.shape} and {k.shape}.") from None


def _finite(name: str, value: npt.ArrayLike) -> FloatArray:
    array = np.asarray(value)
    if array.ndim < 2 or array.size == 0 or array.dtype.kind not in "iufb":
        raise ValueError(f"`{name}` must be numbers with two axes or more; received {shown(value)}.")
    if not np.isfinite(array).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"`{name}` must be finite; received {array[place]} at {place}.")
    return array.astype(np.float64)


def _weights(scoring: Scoring, d_k: int) -> AdditiveWeights:
    if scoring.weights is None or scoring.weights.w_q.shape[1] != d_k:
        raise ValueError(f"`scoring` must hold additive weights for d_k = {d_k}; received {shown(scoring.weights)}.")
    return scoring.weights


def _scaled(q: FloatArray, k: FloatArray, scoring: Scoring) -> FloatArray:
    """Return scale · similarity, the logits before the soft-cap."""
    with np.errstate(over="ignore", invalid="ignore"):
        if scoring.kind == "additive":
            similarity = _weights(scoring, q.shape[-1]).scores(q, k)
        else:
            similarity = _normalised("q", q, scoring)[0] @ np.swapaxes(_keys(k, scoring), -1, -2)
        x = np.asarray(similarity * scoring.effective_scale)
    if not np.isfinite(x).all():
        raise ValueError("`q` and `k` must give logits within the range of float64; received larger ones.")
    return x


def _vjp(q: FloatArray, k: FloatArray, scoring: Scoring, upstream: FloatArray) -> FloatArray:
    e = np.exp(-2 * np.abs(_scaled(q, k, scoring) / scoring.cap))
    inner = upstream * (4 * e / np.square(1 + e)) * scoring.effective_scale  # sech², to full precision
    if scoring.kind == "additive":
        return _weights(scoring, q.shape[-1]).scores_vjp(q, k, inner)
    unit, size, radial = _normalised("q", q, scoring)
    straight = inner @ _keys(k, scoring)
    return np.asarray((straight - radial * unit * (unit * straight).sum(axis=-1, keepdims=True)) / size)


def vector_divisor(length: FloatArray, scoring: Scoring, d_k: int) -> tuple[Any, Any]:
    """Return what divides a vector of given length, and the share of a gradient's radial part lost by it."""
    if scoring.kind == "cosine":
        return np.maximum(length, scoring.eps), (length >= scoring.eps).astype(np.float64)
    if scoring.kind == "rmsnorm":
        return np.hypot(length / math.sqrt(d_k), math.sqrt(scoring.eps)), 1 / d_k
    return 1.0, 0.0


def _normalised(name: str, v: FloatArray, scoring: Scoring) -> tuple[FloatArray, Any, Any]:
    """Return v / size, size, and the radial share of `vector_divisor`."""
    if scoring.kind not in ("cosine", "rmsnorm"):
        return v, 1.0, 0.0
    size, radial = vector_divisor(_length(v), scoring, v.shape[-1])
    return v / _nonzero(name, size), size, radial


def _keys(k: FloatArray, scoring: Scoring) -> FloatArray:
    """Return the keys that a plain dot product is to meet."""
    if scoring.kind == "key_lengths":
        return np.asarray(k / _nonzero("k", _length(k).sum(axis=-2, keepdims=True)))
    return _normalised("k", k, scoring)[0]


def _length(v: FloatArray) -> FloatArray:
    """Return |v|, shape (..., 1), with no overflow or underflow of the squares."""
    peak = np.abs(v).max(axis=-1, keepdims=True)
    safe = np.where(peak > 0, peak, 1.0)
    return np.asarray(safe * np.sqrt(np.square(v / safe).sum(axis=-1, keepdims=True)))


def _nonzero(name: str, size: FloatArray) -> FloatArray:
    if (size == 0).any():
        place = tuple(int(i) for i in np.argwhere(size == 0)[0][:-1])
        raise ValueError(f"`{name}` must not be 0 where its length divides, unless eps > 0; received 0 at {place}.")
    return size
