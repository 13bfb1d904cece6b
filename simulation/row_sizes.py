"""Logits and keys of heads → the size of softmax and of its gradients, a number for each row.

In: logits of heads, scales, keys. Out: arrays (heads, m) for every quantity, right down to
1e-300: products with the tiny sum of the other weights are factored out, never subtracted.
"""

from collections.abc import Collection, Iterable

import numpy as np
import numpy.typing as npt

from simulation.attention_heads import Heads
from simulation.products import product
from simulation.softmax import sizes_of
from simulation.weights import SplitWeights, split_scaled

FloatArray = npt.NDArray[np.float64]

QUANTITIES = (
    "trace",
    "frobenius",
    "spectral_norm",
    "largest_entry",
    "entropy",
    "largest_weight",
    "logit_gradient",
    "query_gradient",
)


def row_sizes(heads: Heads, scales: Collection[float], quantities: Collection[str]) -> list[dict[str, FloatArray]]:
    """Return, for each scale on the logits, the asked quantities as arrays (heads, m).

    `logit_gradient` is the Frobenius norm of dy/dx, x the logits softmax sees, and so equals
    `frobenius`; `query_gradient` that of dy/dq = scale * J K, K the keys as rows.
    """
    rows = split_scaled(heads.logits, tuple(scales))
    found = [_sizes(row, quantities) for row in rows]
    if "query_gradient" in quantities:
        squares = query_gradient_squares(heads.key_slices, rows)
        for scale, row, square, sizes in zip(scales, rows, squares, found, strict=True):
            sizes["query_gradient"] = scale * row.rest[..., 0] * np.sqrt(square)
    return found


def _sizes(row: SplitWeights, quantities: Collection[str]) -> dict[str, FloatArray]:
    wanted = [name for name in quantities if name != "query_gradient"]
    if set(wanted) <= {"trace"}:  # the rest costs ten times as much
        return dict.fromkeys(wanted, row.trace)
    sizes = sizes_of(row, spectral="spectral_norm" in quantities)
    names = {"logit_gradient": "frobenius"}
    return {name: getattr(sizes, names.get(name, name)) for name in wanted}


def query_gradient_squares(key_slices: Iterable[FloatArray], rows: list[SplitWeights]) -> list[FloatArray]:
    r"""Return :math:`\|JK\|_F^2 / rest^2` of each row, for several splits of the same heads, arrays (heads, m).

    Row j of JK is y_j (k_j - k̄), k̄ = Σ y_j k_j. With rest r, shares p and κ = Σ p_j k_j the mean
    of the others: k_top - k̄ = r (k_top - κ), so the squares sum to
    r² [y_top² |k_top - κ|² + Σ p_j² |k_j - k̄|²], where nothing cancels as r goes to 0. Each sum
    runs over the components of the keys, a slice at a time. Keys count from the head's mean, as
    what they share drops out.
    """
    totals = [np.zeros(row.rest.shape[:-1]) for row in rows]
    for whole in key_slices:
        k = whole - whole.mean(axis=-2, keepdims=True)
        lengths = np.square(k).sum(axis=-1)
        totals = [total + _slice_squares(k, lengths, row) for row, total in zip(rows, totals, strict=True)]
    return totals


def _slice_squares(k: FloatArray, lengths: FloatArray, row: SplitWeights) -> FloatArray:
    """Return what one slice of the keys' components, (heads, n, w), adds for each row."""
    p2 = np.square(row.share)
    top = np.take_along_axis(k, row.top, axis=-2)
    others = product(row.share, k)
    apart = top - others
    mean = top - row.rest * apart
    spread = np.einsum("...ij,...j->...i", p2, lengths) - 2 * np.einsum("...i,...i->...", product(p2, k), mean)
    spread += p2.sum(axis=-1) * np.square(mean).sum(axis=-1)
    return np.asarray(np.square(1 - row.rest[..., 0]) * np.square(apart).sum(axis=-1) + np.maximum(spread, 0))
