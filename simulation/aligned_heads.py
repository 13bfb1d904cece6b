"""Heads whose rows each hold a key aligned with their query: from initialisation (ρ = 0) to after training.

In: a stream, the size of the heads, d_k. Out: q and keys in coordinates that keep every inner product, and
the products themselves. Exact in law for normal entries, at a cost that stops growing at d_k = m + n.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from simulation.products import product

FloatArray = npt.NDArray[np.float64]
Aligned = Literal["one", "all"]
ALIGNED: tuple[Aligned, ...] = ("one", "all")

HIDDEN = 32  # hidden units of additive scoring; its variance does not depend on them
_CHUNK_LOGITS = 2**16


@dataclass(frozen=True)
class DrawnHeads:
    """Independent normal vectors, not yet aligned, and weights for additive scoring.

    Attributes
    ----------
    q : ndarray, shape (heads, m, w)
    fresh : ndarray, shape (heads, n, w)
        What keys are made of. All vectors of a head are given in w = min(d_k, m + n) coordinates.
    weights : mapping
        "w_q" and "w_k", (heads, h, w), "v", (heads, h), and "gram", (heads, h, h): W_q W_qᵀ over all d_k columns.
        Empty unless asked for.
    d_k : int
    """

    q: FloatArray
    fresh: FloatArray
    weights: Mapping[str, FloatArray]
    d_k: int


@dataclass(frozen=True)
class AlignedHeads:
    """Heads with keys k = ρ q + √(1 - ρ²) · fresh, described by inner products.

    Attributes
    ----------
    drawn : DrawnHeads
    base : ndarray, shape (heads, n, w)
        For `aligned` "one", the keys: key i of a head is aligned with its query i < m and independent of the
        others, so row i holds one aligned key, at place i. For "all", what they are made of: every query has
        keys of its own, all aligned with it.
    base_dots, dots : ndarray, shape (heads, m, n)
        q·base and q·k.
    q_square, k_square : ndarray, shapes (heads, m, 1), and (heads, 1, n) or (heads, m, n)
        Squared lengths.
    on_base, on_q : float
        Each key is on_base · base + on_q · q.
    """

    drawn: DrawnHeads
    base: FloatArray
    base_dots: FloatArray
    dots: FloatArray
    q_square: FloatArray
    k_square: FloatArray
    on_base: float = 1.0
    on_q: float = 0.0

    @cached_property
    def gram(self) -> FloatArray:
        """Inner products of the base vectors, (heads, n, n)."""
        return product(self.base, self.base.swapaxes(-1, -2))


def queries_of(n_keys: int) -> int:
    """Return how many queries share the keys of a head."""
    return min(n_keys, 32)


def heads_of_chunk(n_keys: int) -> int:
    """Return how many heads are drawn together: fixed by the number of keys alone."""
    return max(1, _CHUNK_LOGITS // (n_keys * max(queries_of(n_keys), 32)))


def draw_vectors(d_k: int, n_keys: int, seed: np.random.SeedSequence, *, additive: bool = False) -> DrawnHeads:
    """Draw one chunk of heads from its own stream.

    Examples
    --------
    >>> draw_vectors(1_000_000, 2, np.random.SeedSequence(0)).q.shape
    (1024, 2, 4)
    """
    rng = np.random.Generator(np.random.SFC64(seed))
    heads, m = heads_of_chunk(n_keys), queries_of(n_keys)
    vectors = _normal_rows(rng, heads, m + n_keys, d_k)
    weights = _additive_weights(rng, heads, vectors.shape[-1], d_k) if additive else {}
    return DrawnHeads(vectors[:, :m], vectors[:, m:], weights, d_k)


def _normal_rows(rng: np.random.Generator, heads: int, size: int, d_k: int) -> FloatArray:
    """Return `size` normal vectors of d_k entries, turned so that vector i has none past the first i + 1.

    The turned entries are independent: normals below the diagonal, chi of d_k - i degrees of freedom on it
    (Bartlett's decomposition of the Wishart matrix of inner products). Up to d_k = size, plain normals.
    """
    if d_k <= size:
        return rng.standard_normal((heads, size, d_k))
    lower = np.tril(rng.standard_normal((heads, size, size)), -1)
    places = np.arange(size)
    lower[:, places, places] = np.sqrt(rng.chisquare(d_k - places, (heads, size)))
    return np.asarray(lower)


def _additive_weights(rng: np.random.Generator, heads: int, width: int, d_k: int) -> dict[str, FloatArray]:
    """Draw W_q, W_k ~ N(0, 1/(2 d_k)) in the coordinates of q and k, where they have the same law; v ~ N(0, 1/h)."""
    w_q, w_k = rng.standard_normal((2, heads, HIDDEN, width)) / math.sqrt(2 * d_k)
    gram = product(w_q, w_q.swapaxes(-1, -2))
    if d_k > width:
        unseen = _normal_rows(rng, heads, HIDDEN, d_k - width) / math.sqrt(2 * d_k)
        gram = gram + product(unseen, unseen.swapaxes(-1, -2))
    v = rng.standard_normal((heads, HIDDEN)) / math.sqrt(HIDDEN)
    return {"w_q": w_q, "w_k": w_k, "v": v, "gram": gram}


def align(drawn: DrawnHeads, rho: float, aligned: Aligned) -> AlignedHeads:
    """Return the heads with their keys aligned to a correlation `rho` of q_i with entry i of a key.

    Examples
    --------
    >>> heads = align(draw_vectors(4, 8, np.random.SeedSequence(0)), 1.0, "one")
    >>> bool(np.allclose(heads.dots[0, 3, 3], heads.q_square[0, 3]))  # key 3 is query 3
    True
    """
    q, tilt = drawn.q, math.sqrt((1 - rho) * (1 + rho))
    q_square = np.square(q).sum(axis=-1, keepdims=True)
    if aligned == "one":
        keys = drawn.fresh.copy()
        own = keys[:, : q.shape[1]]
        own *= tilt
        own += rho * q
        dots = product(q, keys.swapaxes(-1, -2))
        return AlignedHeads(drawn, keys, dots, dots, q_square, np.square(keys).sum(axis=-1)[:, None, :])
    fresh_dots = product(q, drawn.fresh.swapaxes(-1, -2))
    k_square = rho**2 * q_square + 2 * rho * tilt * fresh_dots
    k_square += tilt**2 * np.square(drawn.fresh).sum(axis=-1)[:, None, :]
    dots = rho * q_square + tilt * fresh_dots
    return AlignedHeads(drawn, drawn.fresh, fresh_dots, dots, q_square, np.maximum(k_square, 0), tilt, rho)
