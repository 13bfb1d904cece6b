"""Arrays of queries and keys → heads, one at a time in float64, and what each query may look at.

In: arrays (..., n_q, d_k) and (..., n_k, d_k) of any real type, a mask. Out: the queries and keys of
each head; every complaint about shapes, groups, masks and non-finite numbers is made here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simulation._array_checks import wild_entries
from simulation._validation import shown

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

LARGEST_ENTRY = 1e30  # fourth powers of q·k stay far from overflow in float64


@dataclass(frozen=True, eq=False)
class Heads:
    """Queries and keys of all heads, checked but not yet converted.

    Iterating yields (index, q, k) of one head at a time: the index over the leading axes of the
    queries, then float64 arrays of shapes (m, d_k) and (n, d_k).
    """

    q: npt.NDArray[Any]
    k: npt.NDArray[Any]
    group: int

    @classmethod
    def of(cls, q: npt.ArrayLike, k: npt.ArrayLike) -> "Heads":
        """Check the arrays of queries and keys and bring them together.

        Parameters
        ----------
        q, k : array_like, shapes (..., m, d_k) and (..., n, d_k)
            The leading axes are equal, except that the last of them may hold fewer key heads than
            query heads: query head h then uses key head h // group.

        Raises
        ------
        ValueError
            If the arrays are not real numbers, empty, of shapes that do not go together, or hold
            a NaN, an infinity or a number beyond ±1e30.

        Examples
        --------
        >>> heads = Heads.of(np.zeros((4, 3, 8)), np.arange(2 * 5 * 8).reshape(2, 5, 8))
        >>> heads.group, [(index, int(k[0, 0])) for index, q, k in heads]
        (2, [((0,), 0), ((1,), 0), ((2,), 40), ((3,), 40)])
        """
        heads = cls(_real_array("q", q), _real_array("k", k), 1)
        group = _group_size(heads.q.shape, heads.k.shape)
        _refuse_wild_numbers("q", heads.q)
        _refuse_wild_numbers("k", heads.k)
        return cls(heads.q, heads.k, group)

    @property
    def shape(self) -> tuple[int, ...]:
        """The leading axes of the queries: layers, heads, batch, as they came."""
        return self.q.shape[:-2]

    @property
    def n_queries(self) -> int:
        """Queries in each head."""
        return int(self.q.shape[-2])

    @property
    def n_keys(self) -> int:
        """Keys in each head."""
        return int(self.k.shape[-2])

    @property
    def d_k(self) -> int:
        """Head dimension: the last axis of both arrays."""
        return int(self.q.shape[-1])

    def __len__(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def __iter__(self) -> Iterator[tuple[tuple[int, ...], FloatArray, FloatArray]]:
        for index in np.ndindex(self.shape):
            yield index, *self.pair(index)

    def pair(self, index: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """Return the queries and keys of one head: query head h uses key head h // group."""
        key_index = (*index[:-1], index[-1] // self.group) if index else ()
        return self.q[index].astype(np.float64), self.k[key_index].astype(np.float64)


@dataclass(frozen=True, eq=False)
class Visible:
    """Which keys each query of one m × n block may look at."""

    m: int
    n: int
    mask: BoolArray | None = None
    causal: bool = False

    @property
    def everything(self) -> bool:
        """Whether nothing is masked."""
        return self.mask is None and not self.causal

    def rows(self, rows: slice) -> BoolArray:
        """Return the visible keys of some queries, shape (rows, n); the m × n mask is never formed.

        Examples
        --------
        >>> Visible(2, 3, causal=True).rows(slice(0, 2)).astype(int)
        array([[1, 1, 0],
               [1, 1, 1]])
        """
        first, last, _ = rows.indices(self.m)
        visible = np.ones((last - first, self.n), dtype=bool)
        if self.causal:  # the last query sees all keys, as when earlier keys come from a cache
            visible &= np.arange(self.n) <= np.arange(first, last)[:, None] + self.n - self.m
        if self.mask is not None:
            visible &= self.mask[rows]
        return visible


def mask_array(mask: npt.ArrayLike | None, heads: Heads) -> BoolArray | None:
    """Return `mask` broadcast to (..., m, n), a view; True where a query may look at a key.

    Raises
    ------
    ValueError
        If it is not boolean or does not broadcast.
    """
    if mask is None:
        return None
    array = np.asarray(mask)
    if array.dtype != np.bool_:
        raise ValueError(
            f"`mask` must be boolean, True where a query may look at a key (for an additive mask, `mask == 0`); "
            f"received an array of {array.dtype}."
        )
    shape = (*heads.shape, heads.n_queries, heads.n_keys)
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(
            f"`mask` must broadcast to (..., queries, keys) = {shape}; received shape {array.shape}."
        ) from None


def _real_array(name: str, value: npt.ArrayLike) -> npt.NDArray[Any]:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, tensors that cannot be read
        raise ValueError(f"`{name}` must be an array of real numbers; received {shown(value)} ({error}).") from None
    if array.dtype.kind not in "iuf" and array.dtype.name != "bfloat16":
        raise ValueError(f"`{name}` must be an array of real numbers; received an array of {array.dtype}.")
    if array.ndim < 2 or 0 in array.shape:
        raise ValueError(
            f"`{name}` must have shape (..., tokens, d_k), at least two axes and none of them empty; "
            f"received shape {array.shape}."
        )
    return array


def _group_size(q: tuple[int, ...], k: tuple[int, ...]) -> int:
    """Return how many query heads share a key head."""
    shapes = f"received q of shape {q} and k of shape {k}"
    if q[-1] != k[-1]:
        raise ValueError(f"`q` and `k` must have the same d_k, their last axis; {shapes}.")
    if len(q) != len(k) or q[:-3] != k[:-3]:
        raise ValueError(
            f"`q` and `k` must have the same leading axes, (..., heads, tokens, d_k), where only the number of "
            f"heads may differ; {shapes}."
        )
    if len(q) == 2:
        return 1
    if q[-3] % k[-3]:
        raise ValueError(
            f"`q` must have a whole number of query heads for each key head (the third axis from the end); "
            f"{q[-3]} is no multiple of {k[-3]}, {shapes}."
        )
    return q[-3] // k[-3]


def _refuse_wild_numbers(name: str, array: npt.NDArray[Any]) -> None:
    """Raise ValueError with count and place of numbers that are not finite or beyond ±1e30."""
    found = wild_entries(array, most=1, largest=LARGEST_ENTRY)
    if found.count:
        raise ValueError(
            f"`{name}` must hold finite numbers within ±{LARGEST_ENTRY:g}; received {found.values[0]} at "
            f"{found.places[0]} ({found.kinds}, of {found.size:,} numbers)."
        )
