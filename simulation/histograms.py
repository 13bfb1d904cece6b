"""Histograms on fixed edges that merge, and the test of their counts against a law.

In: chunks of numbers and edges fixed beforehand. Out: counts, densities, Pearson's chi-square.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from simulation._validation import shown

FloatArray = npt.NDArray[np.float64]

_FEW = 512  # numbers that are counted sooner than a guess is made
_NEAR = 1e-6  # of a bin's width: so close to an edge a guess is not trusted


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts between fixed edges, with what fell below, above, or was not a finite number.

    `edges` has shape (bins + 1,), `counts` shape (bins,). A bin holds edge_i <= x < edge_{i+1}.
    """

    edges: FloatArray
    counts: npt.NDArray[np.int64]
    underflow: int = 0
    overflow: int = 0
    nonfinite: int = 0

    @classmethod
    def empty(cls, edges: npt.ArrayLike) -> "Histogram":
        """Return a histogram with no counts yet on rising `edges`."""
        values = np.asarray(edges, dtype=np.float64)
        if values.ndim != 1 or values.size < 2 or not (np.diff(values) > 0).all():
            raise ValueError(f"`edges` must be at least two rising numbers; received {shown(edges)}.")
        return cls(values, np.zeros(values.size - 1, dtype=np.int64))

    def add(self, values: npt.ArrayLike) -> "Histogram":
        """Return this histogram with `values` counted in.

        Examples
        --------
        >>> h = Histogram.empty([0, 1, 2]).add([-1, 0, 0.5, 1, 2, float("nan")])
        >>> h.counts.tolist(), h.underflow, h.overflow, h.nonfinite
        ([2, 1], 1, 1, 1)
        """
        x = np.asarray(values, dtype=np.float64).ravel()
        finite = x[is_finite] if not (is_finite := np.isfinite(x)).all() else x
        counts = np.bincount(self._places(finite), minlength=self.edges.size + 1)
        added = Histogram(self.edges, counts[1:-1], int(counts[0]), int(counts[-1]), x.size - finite.size)
        return self.merge(added)

    def _places(self, x: FloatArray) -> npt.NDArray[np.intp]:
        """Return how many edges are <= x for each finite x, as `numpy.searchsorted` does, but sooner."""
        if self._width is None or x.size < _FEW:
            return np.searchsorted(self.edges, x, side="right")
        low = self.edges[0] - self._width
        guess = np.maximum(x, low + self._width / 2)
        np.minimum(guess, self.edges[-1] + self._width / 2, out=guess)
        guess -= low
        guess /= self._width
        places: npt.NDArray[np.intp] = guess.astype(np.intp)
        guess -= np.rint(guess)
        near = np.abs(guess, out=guess) < _NEAR
        if near.any():
            places[near] = np.searchsorted(self.edges, x[near], side="right")
        return places

    @cached_property
    def _width(self) -> float | None:
        """Width of the bins, or None if they are not alike to a tenth of `_NEAR`, or too fine for doubles."""
        width = float((self.edges[-1] / self.counts.size) - (self.edges[0] / self.counts.size))
        if not 1e-9 * float(np.abs(self.edges).max()) < width < 1e300:
            return None
        off = self.edges - self.edges[0] - width * np.arange(self.edges.size)
        return width if np.abs(off).max() < 0.1 * _NEAR * width else None

    def merge(self, other: "Histogram") -> "Histogram":
        """Return the sum of two histograms on the same edges."""
        if self.edges is not other.edges and not np.array_equal(self.edges, other.edges):
            raise ValueError("`other` must have the same edges; received different ones.")
        return Histogram(
            self.edges,
            self.counts + other.counts,
            self.underflow + other.underflow,
            self.overflow + other.overflow,
            self.nonfinite + other.nonfinite,
        )

    @property
    def n(self) -> int:
        """Number of values counted, those outside the edges and not finite included."""
        return int(self.counts.sum()) + self.underflow + self.overflow + self.nonfinite

    def scaled(self, factor: float) -> "Histogram":
        """Return the histogram of `factor` times the values, factor > 0."""
        return Histogram(self.edges * factor, self.counts, self.underflow, self.overflow, self.nonfinite)

    def density(self) -> FloatArray:
        """Return counts / (n * bin width), shape (bins,): what a density is compared with."""
        return self.counts / (max(self.n, 1) * np.diff(self.edges))

    def __eq__(self, other: object) -> bool:
        """Whether edges and all counts are the same."""
        if not isinstance(other, Histogram):
            return NotImplemented
        outside = ("underflow", "overflow", "nonfinite")
        same_outside = all(getattr(self, name) == getattr(other, name) for name in outside)
        return same_outside and np.array_equal(self.edges, other.edges) and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]


def chi_square_fit(counts: npt.ArrayLike, probabilities: npt.ArrayLike, *, least: float = 10.0) -> dict[str, Any]:
    """Return Pearson's chi-square test of counts against the probabilities of their bins.

    Neighbouring bins are pooled until each expects at least `least` counts.

    Returns
    -------
    dict
        ``statistic``, ``degrees_of_freedom`` and ``p_value``; the last two are 0 and 1 when only
        one pooled bin is left.

    Examples
    --------
    >>> chi_square_fit([60, 40], [0.5, 0.5])["statistic"]
    4.0
    """
    pooled: list[tuple[float, float]] = []
    seen = due = 0.0
    total = float(np.sum(counts))
    for count, probability in zip(np.asarray(counts), np.asarray(probabilities), strict=True):
        seen, due = seen + float(count), due + float(probability) * total
        if due >= least:
            pooled.append((seen, due))
            seen = due = 0.0
    if pooled:  # what is left over joins the last bin
        pooled[-1] = (pooled[-1][0] + seen, pooled[-1][1] + due)
    statistic = math.fsum((seen - due) ** 2 / due for seen, due in pooled)
    dof = max(len(pooled) - 1, 0)
    p_value = float(special.chdtrc(dof, statistic)) if dof else 1.0
    return {"statistic": statistic, "degrees_of_freedom": dof, "p_value": p_value}
