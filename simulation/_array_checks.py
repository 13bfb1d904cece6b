"""What is wrong with entries of queries and keys: not finite, or columns that do not vary.

In: arrays of shape (..., tokens, d_k). Out: counts and places; nothing is changed in place, and
nothing is left out unless asked.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simulation._validation import shown, whole_number

FloatArray = npt.NDArray[np.float64]

_CHUNK = 2**16  # entries looked at together


@dataclass(frozen=True)
class NonFinite:
    """How many entries are not finite, out of how many, and the places and values of the first.

    `count` includes `nan`, `infinite` and what lies beyond a limit, where one was set.
    """

    count: int
    size: int
    places: tuple[tuple[int, ...], ...]
    values: tuple[float, ...]
    nan: int = 0
    infinite: int = 0

    @property
    def kinds(self) -> str:
        """Return the counts by kind, such as "2 NaN, 1 infinite"."""
        beyond = self.count - self.nan - self.infinite
        counts = ((self.nan, "NaN"), (self.infinite, "infinite"), (beyond, "beyond"))
        return ", ".join(f"{count:,} {kind}" for count, kind in counts if count)

    def __str__(self) -> str:
        """Return the finding as one sentence."""
        if not self.count:
            return f"All {self.size:,} entries are finite."
        first = ", ".join(f"{value} at {place}" for value, place in zip(self.values, self.places, strict=True))
        more = " and more" if self.count > len(self.places) else ""
        verb = "is" if self.count == 1 else "are"
        return f"{self.count:,} of {self.size:,} entries {verb} not finite: {first}{more}."


class FiniteTokens(NamedTuple):
    """Tokens without a non-finite entry: their array, which were kept (n,), how many were dropped."""

    array: FloatArray
    kept: npt.NDArray[np.bool_]
    dropped: int


class ConstantColumns(NamedTuple):
    """Columns that do not vary over tokens: all zero, or constant at another value."""

    zero: tuple[int, ...]
    constant: tuple[int, ...]
    d_k: int

    @property
    def effective_d_k(self) -> int:
        """Number of columns that vary."""
        return self.d_k - len(self.zero) - len(self.constant)


def non_finite(array: npt.ArrayLike, most: int = 5) -> NonFinite:
    """Return how many entries are NaN or infinite, and the places of the first `most`.

    Examples
    --------
    >>> print(non_finite([[1.0, np.inf], [np.nan, 2.0]]))
    2 of 4 entries are not finite: inf at (0, 1), nan at (1, 0).
    """
    return wild_entries(real_array(array), most)


def wild_entries(values: npt.NDArray[Any], most: int = 5, *, largest: float = math.inf) -> NonFinite:
    """Return the entries that are NaN, infinite or beyond ±`largest`; a few are converted at a time."""
    most = whole_number("most", most, 0, 10_000)
    nan = infinite = count = 0
    first: list[int] = []
    for start in range(0, values.size, _CHUNK):
        with np.errstate(invalid="ignore"):  # a signalling NaN
            part = values.flat[start : start + _CHUNK].astype(np.float64)
            wild = ~(np.isfinite(part) & (np.abs(part) <= largest))
        if not wild.any():
            continue
        count += int(wild.sum())
        nan += int(np.isnan(part).sum())
        infinite += int(np.isinf(part).sum())
        first += (start + np.flatnonzero(wild)[: most - len(first)]).tolist()
    places = tuple(tuple(int(i) for i in np.unravel_index(place, values.shape)) for place in first)
    return NonFinite(count, values.size, places, tuple(float(values[place]) for place in places), nan, infinite)


def without_non_finite(array: npt.ArrayLike) -> FiniteTokens:
    """Return the array without the tokens that hold a NaN or an infinity.

    A token is left out whole, and in all heads at once, so that the array stays rectangular and
    no entry is replaced by a number nobody measured. Apply `kept` to the other array too where
    query i and key i must stay the same token.

    Parameters
    ----------
    array : array_like, shape (..., n, d_k)

    Returns
    -------
    FiniteTokens
        The array of shape (..., n - dropped, d_k), the tokens kept and the number dropped.

    Raises
    ------
    ValueError
        If there are fewer than two axes, or no token is left.

    Examples
    --------
    >>> without_non_finite([[1.0, 2.0], [np.nan, 0.0]])[::2]
    (array([[1., 2.]]), 1)
    """
    values = _tokens(array)
    finite = np.isfinite(values)
    kept = np.asarray(finite.all(axis=(*range(values.ndim - 2), values.ndim - 1)))
    dropped = int(kept.size - kept.sum())
    if dropped == kept.size:
        raise ValueError(f"`array` must have a token of finite entries only; received none among {kept.size:,}.")
    return FiniteTokens(values if not dropped else np.compress(kept, values, axis=-2), kept, dropped)


def constant_columns(array: npt.ArrayLike) -> ConstantColumns:
    """Return which of the d_k columns do not vary: zero padding, or one value for all tokens.

    A column counts if it does not vary over tokens in any head (its value may differ by head).
    With a single token nothing can vary, so only zero columns are named. NaN varies.

    Parameters
    ----------
    array : array_like, shape (..., n, d_k)

    Raises
    ------
    ValueError
        If there are fewer than two axes or no entries.

    Examples
    --------
    >>> constant_columns([[1.0, 0.0, 5.0], [2.0, 0.0, 5.0]])
    ConstantColumns(zero=(1,), constant=(2,), d_k=3)
    >>> constant_columns([[1.0, 0.0, 5.0], [2.0, 0.0, 5.0]]).effective_d_k
    1
    """
    values = _tokens(array)
    lead = tuple(range(values.ndim - 1))
    with np.errstate(invalid="ignore"):  # a NaN equals nothing
        zero = np.asarray((values == 0).all(axis=lead))
        still = np.asarray((values == values[..., :1, :]).all(axis=lead)) if values.shape[-2] > 1 else zero
    return ConstantColumns(_places(zero), _places(still & ~zero), values.shape[-1])


def real_array(array: npt.ArrayLike) -> FloatArray:
    """Return `array` as float64 of at least one axis and one entry, or raise ValueError; NaN is let through."""
    try:
        raw = np.asarray(array)
    except ValueError:  # rows of unequal length
        raise ValueError(f"`array` must be numbers in rows of equal length; received {shown(array)}.") from None
    if raw.dtype.kind not in "iufb":
        raise ValueError(f"`array` must be real numbers; received {raw.dtype}.")
    if raw.ndim == 0 or raw.size == 0:
        raise ValueError(f"`array` must hold at least one number along an axis; received shape {raw.shape}.")
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return raw.astype(np.float64, copy=False)


def _tokens(array: npt.ArrayLike) -> FloatArray:
    values = real_array(array)
    if values.ndim < 2:
        raise ValueError(f"`array` must have shape (..., n, d_k); received shape {values.shape}.")
    return values


def _places(mask: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(place) for place in np.flatnonzero(mask))
