"""Rows of logits → attention weights split into the largest and the others, so that nothing cancels.

The trick behind every small number here: one minus the largest weight is never formed by
subtraction, it is the sum of the other weights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
RowArray = npt.NDArray[np.float64] | npt.NDArray[np.float32]

_SQUARINGS = 4  # each doubles the error: 16 roundings at most
_FLOAT32_SQUARINGS = 6  # 64 of float32: as much as it rounds the logits 64 times as large
_FLOAT32_GAP = 87.0  # exp(-87) is float32's smallest normal number


@dataclass(frozen=True, eq=False)
class SplitWeights:
    """Attention weights y of rows, with y_top = 1 - rest and y_others = rest * share.

    Only what is asked for is computed, once.
    """

    others: FloatArray  # (..., n) exp(logits - largest logit), 0 at `top`
    top: npt.NDArray[np.intp]  # (..., 1) place of the largest weight
    excess: FloatArray  # (..., 1) sum of `others`

    @cached_property
    def weights(self) -> FloatArray:
        """Weights y, (..., n)."""
        weights = self.others / (1 + self.excess)
        np.put_along_axis(weights, self.top, 1 / (1 + self.excess), -1)
        return weights

    @cached_property
    def rest(self) -> FloatArray:
        """Sum of the weights but the largest, (..., 1)."""
        return self.excess / (1 + self.excess)

    @cached_property
    def share(self) -> FloatArray:
        """Other weights / rest, 0 at `top`, (..., n)."""
        return np.divide(self.others, self.excess, out=np.zeros_like(self.others), where=self.excess > 0)

    @cached_property
    def log_total(self) -> FloatArray:
        """Logarithm of the sum of exp(logits - largest logit), (..., 1)."""
        return np.log1p(self.excess)

    @cached_property
    def trace(self) -> FloatArray:
        """Trace of the softmax Jacobian, 1 - sum y**2, (...): rest (2 - rest - rest * sum share**2)."""
        excess = self.excess[..., 0]
        rest = self.rest[..., 0]
        squares = np.asarray(np.vecdot(self.others, self.others))  # 0 for the tiniest of rests, next to 2
        return np.asarray(rest * (2 - rest - np.divide(squares, excess, out=squares, where=excess > 0) / (1 + excess)))


def split_weights(logits: FloatArray) -> SplitWeights:
    """Return the split weights of float64 logits, shape (..., n), finite or -inf for a masked key.

    Examples
    --------
    >>> row = split_weights(np.array([0.0, 100.0]))
    >>> float(row.weights[1]), f"{row.rest[0]:.6e}"
    (1.0, '3.720076e-44')
    """
    return split_scaled(logits, (1.0,))[0]


def split_scaled(logits: RowArray, scales: Sequence[float]) -> list[SplitWeights]:
    """Return `split_weights` of scale * logits for each scale, all above 0.

    Where one scale is 2, 4, 8 or 16 times the one below it, its exponentials are squares of those.
    Logits in float32 are taken to be as coarse as that, and so may be the exponentials for the
    smallest scale (squared up to 64 times that scale); their sums and all else are float64.

    Examples
    --------
    >>> [f"{row.rest[0]:.6e}" for row in split_scaled(np.array([0.0, 100.0]), (1.0, 0.5))]
    ['3.720076e-44', '1.928750e-22']
    """
    n = logits.shape[-1]
    top = logits.argmax(axis=-1)[..., None]
    places = np.arange(top.size) * n + top.ravel()
    ones = np.ones(n)
    found: dict[float, SplitWeights] = {}
    last: tuple[float, FloatArray] | None = None
    with np.errstate(over="ignore"):  # a gap wider than the largest double is -inf: weight 0
        below = np.subtract(logits, logits.reshape(-1)[places].reshape(top.shape), order="C")
        squarings = _SQUARINGS if below.dtype == np.float64 else _FLOAT32_SQUARINGS
        for scale in sorted(set(scales)):
            others = _exponentials(below, scale, last, squarings)
            others.reshape(-1)[places] = 0.0
            last = (scale, others)
            found[scale] = SplitWeights(others, top, np.asarray(np.vecdot(others, ones))[..., None])
    return [found[scale] for scale in scales]


def _exponentials(below: RowArray, scale: float, last: tuple[float, FloatArray] | None, most: int) -> FloatArray:
    """Return exp(scale * below), from those of the `last` scale where at most `most` squarings of them will do."""
    squarings = math.log2(scale / last[0]) if last else 0.0
    if last is None and below.dtype == np.float32 and scale * below.min(initial=0.0) > -_FLOAT32_GAP:
        coarse = np.float32(scale) * below
        return np.exp(coarse, out=coarse).astype(np.float64)
    if last is None or squarings not in range(1, most + 1):
        found = np.multiply(below, scale, dtype=np.float64)
        return np.exp(found, out=found)
    found = np.square(last[1])
    for _ in range(int(squarings) - 1):
        np.square(found, out=found)
    return found
