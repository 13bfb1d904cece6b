"""Queries and keys laid out as `diagnose` takes them, and what was left out of them.

In: arrays as a file holds them, and which of their axes are tokens and d_k. Out: arrays
(..., tokens, d_k) with every assumption in words, whole or with fewer tokens.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from simulation._array_checks import FloatArray, without_non_finite
from simulation._array_choices import guess_layout, put_axis_last
from simulation._validation import shown, whole_number

Places = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class QueriesKeys:
    """Queries (..., m, d_k) and keys (..., n, d_k) of one model, and how they were read.

    `notes` say what was assumed, `doubts` what only the reader can know, `non_finite` which
    entries are NaN or infinite ("" for none). `q_places` and `k_places` are the tokens' numbers
    before any were left out. `scale` is the model's own, where the file tells it.
    """

    q: FloatArray
    k: FloatArray
    q_places: Places
    k_places: Places
    same_tokens: bool
    offset: int
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    non_finite: str = ""
    scale: float | None = None

    @classmethod
    def of(cls, q: FloatArray, k: FloatArray, **about: Any) -> "QueriesKeys":
        """Bring arrays together of which no token was left out yet."""
        m, n = q.shape[-2], k.shape[-2]
        return cls(q, k, np.arange(m), np.arange(n), m == n, n - m, **about)

    def arguments(self, *, causal: bool = False) -> dict[str, Any]:
        """Return what `diagnose` must know of the tokens that are left: a mask by their numbers if causal."""
        if not causal:
            return {"same_tokens": self.same_tokens}
        visible = self.k_places[None, :] <= self.q_places[:, None] + self.offset
        return {"same_tokens": self.same_tokens, "mask": visible}

    def finite(self) -> "QueriesKeys":
        """Return the tokens without NaN and infinity; where tokens are shared, both lose the same ones."""
        (q, q_kept, _), (k, k_kept, _) = without_non_finite(self.q), without_non_finite(self.k)
        if self.same_tokens:
            q_kept = k_kept = q_kept & k_kept
            if not q_kept.any():
                raise ValueError(f"No token is left that is finite in both q and k, of {q_kept.size:,}.")
            q, k = self.q[..., q_kept, :], self.k[..., k_kept, :]
        lost = f"{(~q_kept).sum():,} of {q_kept.size:,} queries and {(~k_kept).sum():,} of {k_kept.size:,} keys"
        return replace(
            self,
            q=q,
            k=k,
            q_places=self.q_places[q_kept],
            k_places=self.k_places[k_kept],
            notes=(*self.notes, f"left out for entries that are not finite, in all heads: {lost}"),
            non_finite="",
        )

    def thinned(self, most: int) -> "QueriesKeys":
        """Return at most `most` tokens, evenly spaced, with a note if any are left out.

        Examples
        --------
        >>> data = QueriesKeys.of(np.zeros((2, 5, 3)), np.zeros((2, 2, 3))).thinned(3)
        >>> data.q.shape, data.k.shape, data.q_places
        ((2, 3, 3), (2, 2, 3), array([0, 2, 4]))
        """
        most = whole_number("most", most, 1, 2**62)
        m, n = self.q.shape[-2], self.k.shape[-2]
        if max(m, n) <= most:
            return self
        rows, columns = _spread(m, most), _spread(n, most)
        note = (
            f"{len(rows):,} of {m:,} queries and {len(columns):,} of {n:,} keys are used, evenly spaced; entropy and "
            f"largest weight are those of softmax over the keys used"
        )
        return replace(
            self,
            q=self.q[..., rows, :],
            k=self.k[..., columns, :],
            q_places=self.q_places[rows],
            k_places=self.k_places[columns],
            notes=(*self.notes, note),
        )


def _spread(tokens: int, most: int) -> Places:
    return np.arange(tokens) if tokens <= most else np.linspace(0, tokens - 1, most).round().astype(np.intp)


@dataclass(frozen=True, eq=False)
class Arranged:
    """An array with tokens and d_k as its last two axes, and how they were told."""

    array: FloatArray
    notes: tuple[str, ...]
    doubts: tuple[str, ...]


def arranged(
    array: FloatArray, axis: int | None, token_axis: int | None, *, fused: bool = False, d_k: int | None = None
) -> Arranged:
    """Return a view (..., tokens, d_k) of an array; by default these are its last two axes.

    Parameters
    ----------
    array : ndarray of at least two axes
    axis : int, optional
        The axis of d_k, or of the heads side by side if `fused`; negative counts from the end.
    token_axis : int, optional
        The axis that counts tokens, another one.
    fused : bool
        Whether the axis of d_k is still to be cut into heads, so that its length tells nothing.
    d_k : int, optional
        What the file itself tells of the head dimension.

    Raises
    ------
    ValueError
        If there is no such axis, or both are the same.

    Examples
    --------
    >>> found = arranged(np.zeros((128, 2, 12, 64)), None, 0)  # (tokens, batch, heads, d_k)
    >>> found.array.shape, found.doubts
    ((2, 12, 128, 64), ())
    """
    shape = array.shape
    if len(shape) < 2:
        raise ValueError(f"q and k must have at least two axes, tokens and d_k; received shape {shape}.")
    last = len(shape) - 1
    width = last if axis is None else whole_number("axis", axis, -last - 1, last) % len(shape)
    others = [place for place in range(len(shape)) if place != width]
    if token_axis is not None:
        token_axis = whole_number("token_axis", token_axis, -last - 1, last) % len(shape)
    tokens = others[-1] if token_axis is None else token_axis
    if tokens == width:
        raise ValueError(f"`token_axis` must be another axis than that of d_k; received {shown(token_axis)} for both.")
    notes: list[str] = []
    doubts: list[str] = []
    if axis is not None:
        notes.append(f"axis {width} ({shape[width]:,}) is d_k, as you say")
    elif shape[width] == d_k:
        notes.append(f"the last axis ({d_k:,}) is d_k, as the scale in the file tells")
    elif not fused:
        guess = guess_layout([1 if place == token_axis else size for place, size in enumerate(shape)])
        (doubts if guess.ambiguous else notes).append(guess.reason)
    _say_tokens(shape, token_axis, (tokens, width), notes, doubts)
    return Arranged(np.moveaxis(put_axis_last(array, width), others.index(tokens), -2), tuple(notes), tuple(doubts))


def _say_tokens(
    shape: tuple[int, ...], token_axis: int | None, places: tuple[int, int], notes: list[str], doubts: list[str]
) -> None:
    """Say which axis counts tokens, or ask if another one could as well."""
    tokens, _ = places
    longer = [place for place, size in enumerate(shape) if place not in places and size > shape[tokens]]
    if token_axis is not None:
        notes.append(f"axis {tokens} ({shape[tokens]:,}) counts tokens, as you say")
    elif longer:
        doubts.append(
            f"axis {tokens} ({shape[tokens]:,}) is taken to count tokens; axis {longer[0]} ({shape[longer[0]]:,}) is "
            f"longer: please say"
        )
    else:
        notes.append(f"axis {tokens} ({shape[tokens]:,}) is taken to count tokens")
