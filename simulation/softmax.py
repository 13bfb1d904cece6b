"""Logits → attention weights, the softmax Jacobian and its sizes, stable to the last digit.

In: logits of any real type, shape (..., n). Out: float64 weights, Jacobians, sizes. A row whose
largest weight rounds to 1 keeps its true, tiny gradient (see weights.py).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulation._validation import logits_array, real_array
from simulation.weights import SplitWeights, split_weights

FloatArray = npt.NDArray[np.float64]

MAX_JACOBIAN_ENTRIES = 2**25  # 256 MB of float64


def softmax(logits: npt.ArrayLike, axis: int = -1) -> FloatArray:
    """Return the attention weights exp(x_i) / sum_j exp(x_j) in float64.

    Parameters
    ----------
    logits : array_like, shape (..., n, ...)
        Finite numbers of any real type; ``-inf`` marks a masked key, whose weight is 0.
    axis : int
        Axis of the n keys.

    Returns
    -------
    ndarray of float64, shape of `logits`
        Weights that sum to 1 along `axis`. Adding one number to all logits changes nothing.

    Raises
    ------
    ValueError
        If `logits` is empty, not numeric, holds NaN or +inf, or masks all keys of a row.

    Examples
    --------
    >>> softmax([1, 1, 2]).round(4)
    array([0.2119, 0.2119, 0.5761])
    >>> bool((softmax([1000, 1001]) == softmax([0, 1])).all())
    True
    """
    x = real_array(logits)
    rows = logits_array(np.moveaxis(x, axis, -1) if x.ndim else x)
    return np.moveaxis(split_weights(rows).weights, -1, axis)


def softmax_jacobian(logits: npt.ArrayLike) -> FloatArray:
    r"""Return the Jacobian of softmax, J_ij = dy_i/dx_j = y_i (1{i=j} - y_j).

    It is the derivative with respect to the logits themselves: a factor 1/sqrt(d_k) in front of
    q·k enters once more by the chain rule when q or k is the variable.

    Parameters
    ----------
    logits : array_like, shape (..., n)

    Returns
    -------
    ndarray of float64, shape (..., n, n)
        Symmetric, rows sum to 0, diagonal in [0, 1/4].

    Raises
    ------
    ValueError
        As `softmax`; or if the Jacobians would hold more than 33,554,432 numbers.

    Examples
    --------
    >>> softmax_jacobian([3, 1, -3]).round(4)
    array([[ 0.1065, -0.1045, -0.0019],
           [-0.1045,  0.1048, -0.0003],
           [-0.0019, -0.0003,  0.0022]])
    """
    x = logits_array(logits)
    if x.size * x.shape[-1] > MAX_JACOBIAN_ENTRIES:
        raise ValueError(
            f"`logits` of shape {x.shape} would need a Jacobian of {x.size * x.shape[-1]:,} numbers; "
            f"at most {MAX_JACOBIAN_ENTRIES:,} are allowed (jacobian_sizes needs no such matrix)."
        )
    row = split_weights(x)
    jacobian = -row.weights[..., :, None] * row.weights[..., None, :]
    places = np.arange(x.shape[-1])
    jacobian[..., places, places] = _diagonal(row)
    return jacobian


@dataclass(frozen=True)
class JacobianSizes:
    """Sizes of the softmax Jacobian of rows of logits: float64 arrays of shape (...)."""

    trace: FloatArray
    frobenius: FloatArray
    spectral_norm: FloatArray
    largest_entry: FloatArray
    entropy: FloatArray
    largest_weight: FloatArray
    rest: FloatArray  # 1 - largest weight, to full precision


def jacobian_sizes(logits: npt.ArrayLike, *, spectral: bool = True) -> JacobianSizes:
    r"""Return how large the softmax Jacobian is, without forming it.

    Parameters
    ----------
    logits : array_like, shape (..., n)
    spectral : bool
        Whether to solve for the spectral norm too, the costliest of them; NaN if not.

    Returns
    -------
    JacobianSizes
        trace :math:`1 - \sum y_i^2`, Frobenius norm, spectral norm (largest eigenvalue), largest
        absolute entry (always on the diagonal, as y_j <= 1 - y_i), entropy of the weights in
        nats, largest weight, and one minus the largest weight.

    Raises
    ------
    ValueError
        As `softmax`.

    References
    ----------
    Nair (2025), arXiv:2510.23012, for the bound 1/2 on the spectral norm.

    Examples
    --------
    >>> print(f"{jacobian_sizes([100, 100, 200]).trace:.12e}")  # not 0
    1.488030390408e-43
    """
    return sizes_of(split_weights(logits_array(logits)), spectral=spectral)


def sizes_of(row: SplitWeights, *, spectral: bool = True) -> JacobianSizes:
    """Return `jacobian_sizes` of rows already split into largest weight and others."""
    rest, p = row.rest[..., 0], row.share
    p2 = np.square(p)
    sum_p2 = p2.sum(axis=-1)
    largest = np.take_along_axis(row.weights, row.top, -1)[..., 0]
    # ||J||_F^2 = rest^2 * inner, a sum of positive terms
    others = p2 * (np.square(1 - row.rest * p) + np.square(largest)[..., None])
    cross = p2 * np.square(row.rest) * np.maximum(sum_p2[..., None] - p2, 0)
    inner = np.square(largest) * (1 + sum_p2) + others.sum(axis=-1) + cross.sum(axis=-1)
    return JacobianSizes(
        trace=row.trace,
        frobenius=rest * np.sqrt(inner),
        spectral_norm=_spectral_norm(row) if spectral else np.full_like(rest, np.nan),
        largest_entry=_diagonal(row).max(axis=-1),
        entropy=_entropy(row),
        largest_weight=largest,
        rest=rest,
    )


def _diagonal(row: SplitWeights) -> FloatArray:
    """Return y_i (1 - y_i), with 1 - y_i exact at the largest weight."""
    complement = 1 - row.weights
    np.put_along_axis(complement, row.top, row.rest, -1)
    return row.weights * complement


def _entropy(row: SplitWeights) -> FloatArray:
    """Return -sum y ln y = ln total - sum y_i (x_i - x_max), every term of it >= 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        below = np.log(row.weights) + row.log_total  # x_i - x_max
        terms = np.where(row.weights > 0, row.weights * np.minimum(below, 0), 0.0)
    np.put_along_axis(terms, row.top, 0.0, -1)
    return np.asarray(row.log_total[..., 0] - terms.sum(axis=-1))


def _spectral_norm(row: SplitWeights) -> FloatArray:
    """Return the largest eigenvalue of J, from the secular equation in mu = lambda / rest.

    Interlacing puts it between the two largest weights, and max J_ii <= lambda_1 <= 2 max J_ii
    (Gershgorin) narrows that. There (mu - y_top) / (y_top - rest mu) = sum_j p_j^2 / (mu - p_j)
    has exactly one root; multiplied by the two nearest poles it is smooth and nearly a parabola,
    so Newton's method is at rounding after some six steps.
    """
    y, rest, p = np.take_along_axis(row.weights, row.top, -1), row.rest, row.share
    p_max = p.max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        diagonal = np.maximum(y, (p * (1 - rest * p)).max(axis=-1, keepdims=True))
        low = np.maximum(p_max, diagonal)
        high = np.minimum(np.where(rest > 0, y / rest, np.inf), 2 * diagonal)
        mu = 0.5 * (low + high)
        for _ in range(10):
            above = mu - p_max
            poles = np.where(p > 0, np.square(p) / (mu - p), 0.0)
            total = poles.sum(axis=-1, keepdims=True)
            slope = np.where(p > 0, poles / (mu - p), 0.0).sum(axis=-1, keepdims=True)
            left = y - rest * mu
            value = (mu - y) * above - left * above * total
            change = 2 * mu - y - p_max + rest * above * total - left * (total - above * slope)
            low, high = np.where(value < 0, mu, low), np.where(value < 0, high, mu)
            step = mu - value / change
            mu = np.where(step >= low, np.minimum(step, high), 0.5 * (low + high))
    return np.asarray(rest * mu)[..., 0]
