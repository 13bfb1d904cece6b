"""Rows of logits → attention weights split into the largest and the others, so that nothing cancels.

The trick behind every small number here: one minus the largest weight is never formed by
subtraction, it is the sum of the other weights.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


class SplitWeights(NamedTuple):
    """Attention weights y of rows, with y_top = 1 - rest and y_others = rest * share."""

    weights: FloatArray  # (..., n)
    top: npt.NDArray[np.intp]  # (..., 1) place of the largest weight
    rest: FloatArray  # (..., 1) sum of the other weights
    share: FloatArray  # (..., n) other weights / rest, 0 at `top`
    log_total: FloatArray  # (..., 1) ln sum exp(logits - largest logit)


def split_weights(logits: FloatArray) -> SplitWeights:
    """Return the split weights of float64 logits, shape (..., n), finite or -inf for a masked key.

    Examples
    --------
    >>> row = split_weights(np.array([0.0, 100.0]))
    >>> float(row.weights[1]), f"{row.rest[0]:.6e}"
    (1.0, '3.720076e-44')
    """
    top = logits.argmax(axis=-1)[..., None]
    with np.errstate(over="ignore"):  # a gap wider than the largest double is -inf: weight 0
        below = logits - np.take_along_axis(logits, top, -1)
    e = np.exp(below)
    np.put_along_axis(e, top, 0.0, -1)
    excess = e.sum(axis=-1, keepdims=True)  # the others, when the largest counts 1
    total = 1 + excess
    weights = e / total
    np.put_along_axis(weights, top, 1 / total, -1)
    share = np.divide(e, excess, out=np.zeros_like(e), where=excess > 0)
    return SplitWeights(weights, top, excess / total, share, np.log1p(excess))
