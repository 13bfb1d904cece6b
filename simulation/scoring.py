"""q, k → logits: what stands between the dot product and softmax.

In: float arrays of queries and keys. Out: float64 dot products, and the factor that each scoring
puts on them.
"""

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from simulation._validation import one_of, whole_number

FloatArray = npt.NDArray[np.float64]

Scoring = Literal["dot", "scaled_dot"]
SCORINGS: tuple[Scoring, ...] = ("dot", "scaled_dot")


def paired_dot(q: npt.NDArray[np.floating], k: npt.NDArray[np.floating]) -> FloatArray:
    """Return q·k of each pair: arrays (..., d_k) → (...), products and sums in float64.

    Examples
    --------
    >>> paired_dot(np.full((1, 128), 24, np.float16), np.full((1, 128), 24, np.float16))  # inf in float16
    array([73728.])
    """
    return np.asarray(np.einsum("...i,...i->...", q, k, dtype=np.float64, casting="safe"))


def scale_factor(scoring: str, d_k: int) -> float:
    """Return the factor on q·k: 1 for "dot", 1/sqrt(d_k) for "scaled_dot".

    Examples
    --------
    >>> scale_factor("scaled_dot", 64)
    0.125
    """
    name = one_of("scoring", scoring, SCORINGS)
    return 1.0 if name == "dot" else 1 / math.sqrt(whole_number("d_k", d_k, 1, 10**9))
