"""Additive scoring vᵀ tanh(W_q q + W_k k): its weights, scores and their gradient.

In: weights, or d_k and the number of hidden units to draw them; q and k. Out: scores, float64.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulation._validation import shown, whole_number
from simulation.sampling import Seed, seed_of, stream

FloatArray = npt.NDArray[np.float64]

MAX_WIDTH = 65_536
_BLOCK = 2**22  # entries of tanh(W_q q + W_k k) held at once: 32 MB


@dataclass(frozen=True, eq=False)
class AdditiveWeights:
    """Weights of additive scoring vᵀ tanh(W_q q + W_k k).

    Parameters
    ----------
    w_q, w_k : array_like, shape (h, d_k)
    v : array_like, shape (h,)

    Raises
    ------
    ValueError
        If shapes do not fit, or an entry is not finite.
    """

    w_q: FloatArray
    w_k: FloatArray
    v: FloatArray

    def __post_init__(self) -> None:
        for name in ("w_q", "w_k", "v"):
            array = np.asarray(getattr(self, name), dtype=np.float64)
            if not np.isfinite(array).all():
                raise ValueError(f"`{name}` must be finite; received {shown(array)}.")
            object.__setattr__(self, name, array)
        if self.w_q.ndim != 2 or not self.w_q.shape == self.w_k.shape == (self.v.size, self.w_q.shape[1]):
            shapes = f"{self.w_q.shape}, {self.w_k.shape}, {self.v.shape}"
            raise ValueError(f"`w_q`, `w_k` and `v` must have shapes (h, d_k), (h, d_k) and (h,); received {shapes}.")

    def scores(self, q: FloatArray, k: FloatArray) -> FloatArray:
        """Return the scores, shape (..., m, n), of q (..., m, d_k) and k (..., n, d_k).

        Hidden units are taken in blocks: 32 MB at most, or the size of the scores if that is more.
        """
        total = np.zeros((1, 1))
        for units in self._blocks(q, k):
            total = total + np.tanh(self._hidden(q, k, units)) @ self.v[units]
        return total

    def scores_vjp(self, q: FloatArray, k: FloatArray, upstream: FloatArray) -> FloatArray:
        """Return the gradient of Σ upstream · scores with respect to q, shape (..., m, d_k)."""
        total = np.zeros((1, 1))
        for units in self._blocks(q, k):
            slopes = (1 - np.square(np.tanh(self._hidden(q, k, units)))) * self.v[units]
            total = total + (upstream[..., None, :] @ slopes)[..., 0, :] @ self.w_q[units]
        return total

    def _hidden(self, q: FloatArray, k: FloatArray, units: slice) -> FloatArray:
        return np.asarray((q @ self.w_q[units].T)[..., :, None, :] + (k @ self.w_k[units].T)[..., None, :, :])

    def _blocks(self, q: FloatArray, k: FloatArray) -> list[slice]:
        pairs = math.prod(np.broadcast_shapes(q.shape[:-2], k.shape[:-2])) * q.shape[-2] * k.shape[-2]
        step = max(1, _BLOCK // pairs)
        return [slice(start, start + step) for start in range(0, self.v.size, step)]


def draw_additive_weights(d_k: int, hidden: int, *, rng: Seed = None) -> AdditiveWeights:
    """Draw W_q, W_k ~ N(0, 1/(2 d_k)) and v ~ N(0, 1/hidden): then W_q q + W_k k has variance 1.

    Parameters
    ----------
    d_k : int
        Width of q and k, from 1 to 65,536.
    hidden : int
        Number h of hidden units, from 1 to 65,536.
    rng : int, SeedSequence, Generator or None
        Seed.

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    Examples
    --------
    >>> draw_additive_weights(64, 16, rng=0).w_q.shape
    (16, 64)
    """
    d = whole_number("d_k", d_k, 1, MAX_WIDTH)
    h = whole_number("hidden", hidden, 1, MAX_WIDTH)
    generator = stream(seed_of(rng), 0)
    w_q, w_k = generator.standard_normal((2, h, d), dtype=np.float32).astype(np.float64) / math.sqrt(2 * d)
    return AdditiveWeights(w_q, w_k, generator.standard_normal(h, dtype=np.float32).astype(np.float64) / math.sqrt(h))
