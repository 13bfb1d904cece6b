"""Draws of attention heads: m queries × n keys → logits, with the keys at hand for gradients.

Two samplers of the same law. `plain` draws every component of q and k. `conditional` (normal
entries only) draws the logits given the queries' inner products and so costs nothing in d_k.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from simulation.model import QueryKeyModel
from simulation.sampling import draw_keys, draw_queries

FloatArray = npt.NDArray[np.float64]
Sampler = Literal["plain", "conditional"]
SAMPLERS: tuple[Sampler, ...] = ("plain", "conditional")

_SLICE_NUMBERS = 2**18  # entries of q and k held at once while a head is drawn


@dataclass(frozen=True)
class Head:
    """One head: unscaled logits (m, n), and a way to run over its keys a slice of d_k at a time.

    `key_slices` yields arrays (n, w) whose columns are components of the keys (or of an isometric
    image of them: same inner products, fewer columns); it can be run over again.
    """

    logits: FloatArray
    slices: Iterable[FloatArray]

    def key_slices(self) -> Iterator[FloatArray]:
        """Yield the keys, a slice of components at a time."""
        return iter(self.slices)


@dataclass(frozen=True)
class _Redrawn:
    """Slices of queries and keys that are too many to keep: drawn again from their own stream."""

    model: QueryKeyModel
    seed: np.random.SeedSequence
    m: int
    n: int

    def pairs(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        rng = np.random.Generator(np.random.SFC64(self.seed))
        width = max(1, _SLICE_NUMBERS // (self.m + self.n))
        for start in range(0, self.model.d_k, width):
            size = min(width, self.model.d_k - start)
            q = draw_queries(self.model, rng, (self.m, size))
            yield q.astype(np.float64), draw_keys(self.model, rng, (self.n, size)).astype(np.float64)

    def __iter__(self) -> Iterator[FloatArray]:
        return (k for _, k in self.pairs())


def draw_head(model: QueryKeyModel, seed: np.random.SeedSequence, m: int, n: int, sampler: Sampler) -> Head:
    """Draw one head of `m` queries and `n` keys from its own stream.

    Examples
    --------
    >>> draw_head(QueryKeyModel(64), np.random.SeedSequence(0), 2, 3, "plain").logits.shape
    (2, 3)
    """
    if sampler == "conditional" and model.d_k > m + n:
        return _compressed_head(model, np.random.Generator(np.random.SFC64(seed)), m, n)
    drawn = _Redrawn(model, seed, m, n)
    logits = np.zeros((m, n))
    if model.d_k * (m + n) <= _SLICE_NUMBERS:
        (q, k), *_ = drawn.pairs()
        return Head(q @ k.T, (k,))
    for q, k in drawn.pairs():
        logits += q @ k.T
    return Head(logits, drawn)


def _compressed_head(model: QueryKeyModel, rng: np.random.Generator, m: int, n: int) -> Head:
    """Draw a head of normal entries in coordinates that follow the queries: m + n of them, not d_k.

    Rotate so that query i has components along the first i axes only: Q = L (m × m, lower
    triangular; Bartlett's decomposition of the Wishart matrix QQᵀ). The keys' first m components
    are then plain normals, the other d_k - m enter through their inner products alone, again by
    Bartlett. Exact in law.
    """
    lower = _bartlett(rng, m, model.d_k)
    along = rng.standard_normal((n, m))
    across = _bartlett(rng, n, model.d_k - m)
    keys = model.k_std * np.hstack([along, across])
    return Head(model.q_std * lower @ keys[:, :m].T, (keys,))


def _bartlett(rng: np.random.Generator, size: int, freedom: int) -> FloatArray:
    """Return lower triangular L with L Lᵀ ~ Wishart(freedom), size × size, freedom >= size."""
    lower = np.tril(rng.standard_normal((size, size)), -1)
    np.fill_diagonal(lower, np.sqrt(rng.chisquare(freedom - np.arange(size))))
    return lower


def draw_rows(model: QueryKeyModel, seed: np.random.SeedSequence, rows: int, n: int) -> FloatArray:
    """Draw unscaled logits of independent rows, each with its own query and keys: (rows, n).

    Given |q|² ~ chi-square with d_k degrees of freedom, the logits of a row are independent
    N(0, |q|²): the conditional sampler for one query a head.
    """
    rng = np.random.Generator(np.random.SFC64(seed))
    norms = model.q_std * model.k_std * np.sqrt(rng.chisquare(model.d_k, rows))
    return norms[:, None] * rng.standard_normal((rows, n), dtype=np.float32).astype(np.float64)


def require_sampler(model: QueryKeyModel, sampler: Sampler) -> None:
    """Raise ValueError where `sampler` does not apply to `model`."""
    if model.correlation != 0:
        raise ValueError(
            "`correlation` must be 0 for attention heads: with m queries and n keys no key belongs to one query; "
            f"received {model.correlation:g}."
        )
    if sampler == "conditional" and not (model.entries == "normal" and model.q_mean == model.k_mean == 0):
        raise ValueError(
            "`sampler` 'conditional' needs normal entries with mean 0, as only for these the logits given |q| are "
            f"independent normals; received entries {model.entries!r}, means {model.q_mean:g} and {model.k_mean:g}."
        )
