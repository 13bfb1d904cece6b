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
from simulation.normals import standard_normals
from simulation.products import product
from simulation.sampling import draw_apart
from simulation.weights import RowArray

FloatArray = npt.NDArray[np.float64]
Sampler = Literal["plain", "conditional"]
SAMPLERS: tuple[Sampler, ...] = ("plain", "conditional")

_SLICE_NUMBERS = 2**20  # entries of q and k held at once while heads are drawn
_CHUNK_LOGITS = 2**18


@dataclass(frozen=True)
class Heads:
    """Heads: unscaled logits (heads, m, n), and a way to run over their keys a slice of d_k at a time.

    `key_slices` holds arrays (heads, n, w) whose columns are components of the keys (or of an
    isometric image of them: same inner products, fewer columns); it can be run over again.
    """

    logits: RowArray
    key_slices: Iterable[FloatArray]


@dataclass(frozen=True)
class _Redrawn:
    """Slices of queries and keys that are too many to keep: drawn again from their own stream."""

    model: QueryKeyModel
    seed: np.random.SeedSequence
    size: tuple[int, int, int]  # heads, queries, keys
    keep: int  # how many of the heads are handed on

    def pairs(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        rng = np.random.Generator(np.random.SFC64(self.seed))
        heads, m, n = self.size
        width = max(1, _SLICE_NUMBERS // (heads * (m + n)))
        for start in range(0, self.model.d_k, width):
            w = min(width, self.model.d_k - start)
            drawn = draw_apart(self.model, rng, (heads * m, heads * n), w)
            q, k = (x.reshape(heads, -1, w)[: self.keep].astype(np.float64) for x in drawn)
            yield q, k

    def __iter__(self) -> Iterator[FloatArray]:
        return (k for _, k in self.pairs())


def heads_in_chunk(d_k: int, m: int, n: int, sampler: Sampler) -> int:
    """Return how many heads of m queries and n keys are drawn together: fixed by their size alone."""
    width = d_k if sampler == "plain" else min(d_k, m + n)
    return max(1, min(_CHUNK_LOGITS // (m * n), _SLICE_NUMBERS // ((m + n) * width)))


def draw_heads(
    model: QueryKeyModel, seed: np.random.SeedSequence, m: int, n: int, sampler: Sampler, *, keep: int | None = None
) -> Heads:
    """Draw one chunk of heads, each of `m` queries and `n` keys, from its own stream.

    All `heads_in_chunk` of them are drawn, whatever `keep` says, so that a longer run keeps the
    heads of a shorter one.

    Examples
    --------
    >>> draw_heads(QueryKeyModel(64), np.random.SeedSequence(0), 2, 3, "plain", keep=5).logits.shape
    (5, 2, 3)
    """
    count = heads_in_chunk(model.d_k, m, n, sampler)
    kept = count if keep is None else min(keep, count)
    if sampler == "conditional" and model.d_k > m + n:
        return _compressed_heads(model, np.random.Generator(np.random.SFC64(seed)), (count, m, n), kept)
    drawn = _Redrawn(model, seed, (count, m, n), kept)
    if model.d_k * count * (m + n) <= _SLICE_NUMBERS:
        [(q, k)] = drawn.pairs()
        return Heads(_logits(q, k), (k,))
    return Heads(sum((_logits(q, k) for q, k in drawn.pairs()), np.zeros(())), drawn)


def _logits(q: FloatArray, k: FloatArray) -> FloatArray:
    return product(q, k.swapaxes(-1, -2))


def _compressed_heads(model: QueryKeyModel, rng: np.random.Generator, size: tuple[int, int, int], keep: int) -> Heads:
    """Draw heads of normal entries in coordinates that follow the queries: m + n of them, not d_k.

    Rotate so that query i has components along the first i axes only: Q = L (m × m, lower
    triangular; Bartlett's decomposition of the Wishart matrix QQᵀ). The keys' first m components
    are then plain normals, the other d_k - m enter through their inner products alone, again by
    Bartlett. Exact in law.
    """
    heads, m, n = size
    lower = _bartlett(rng, heads, m, model.d_k)
    along = rng.standard_normal((heads, n, m))
    across = _bartlett(rng, heads, n, model.d_k - m)
    keys = (model.k_std * np.concatenate([along, across], axis=-1))[:keep]
    return Heads(_logits(model.q_std * lower[:keep], keys[..., :m]), (keys,))


def _bartlett(rng: np.random.Generator, heads: int, size: int, freedom: int) -> FloatArray:
    """Return lower triangular L with L Lᵀ ~ Wishart(freedom), (heads, size, size), freedom >= size."""
    lower = np.tril(rng.standard_normal((heads, size, size)), -1)
    places = np.arange(size)
    lower[:, places, places] = np.sqrt(rng.chisquare(freedom - places, (heads, size)))
    return lower


def draw_rows(model: QueryKeyModel, seed: np.random.SeedSequence, rows: int, n: int) -> npt.NDArray[np.float32]:
    """Draw unscaled logits of independent rows, each with its own query and keys: (rows, n), float32.

    Given |q|² ~ chi-square with d_k degrees of freedom, the logits of a row are independent
    N(0, |q|²): the conditional sampler for one query a head.
    """
    rng = np.random.Generator(np.random.SFC64(seed))
    norms = model.q_std * model.k_std * np.sqrt(rng.chisquare(model.d_k, rows))
    logits = standard_normals(rng, rows * n).reshape(rows, n)
    logits *= norms[:, None].astype(np.float32)
    return logits


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
