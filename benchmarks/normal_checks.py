"""Do the normals prove themselves? Counts and sums over many draws, held against the exact normal law.

In: chunks of drawn normals, the two numbers of each pair apart. Out: z-scores of moments, tails and
correlations, and Kolmogorov and Smirnov's distance on a grid of exact quantiles.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

FloatArray = npt.NDArray[np.float64]

CELLS = 2**14  # of equal probability; the distance is right to one part in that many where a density is smooth
TAILS = (1.0, 2.0, 3.0, 4.0, 5.0)
_ORDERS = np.arange(1, 9)
_NEXT = (1, 2)  # how far apart neighbours are whose correlation is taken


@dataclass(frozen=True)
class Findings:
    """How far the draws are from a normal law, in standard errors; and the chance of so large a distance."""

    n: int
    moments: dict[int, float]
    tails: dict[float, float]
    correlations: dict[str, float]
    distance: float
    p_value: float

    @property
    def worst(self) -> float:
        """Largest of all z-scores."""
        scores = [*self.moments.values(), *self.tails.values(), *self.correlations.values()]
        return max(map(abs, scores))


def examine(pairs: Iterable[tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]]) -> Findings:
    """Return what chunks of pairs (first numbers, second numbers) show.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = examine((rng.standard_normal(10_000), rng.standard_normal(10_000)) for _ in range(3))
    >>> found.n, found.worst < 5, found.p_value > 1e-4
    (60000, True, True)
    """
    powers, tails, n = np.zeros(len(_ORDERS)), np.zeros((2, len(TAILS))), 0
    cells, products = np.zeros(CELLS, dtype=np.int64), dict.fromkeys(_names(), 0.0)
    for first, second in pairs:
        for x in (first, second):
            y = x.astype(np.float64)
            n += y.size
            power = np.ones_like(y)
            for i in range(len(_ORDERS)):
                power *= y
                powers[i] += np.add.reduce(power)
            cells += _cell_counts(y)
            tails += [[np.count_nonzero(y > t) for t in TAILS], [np.count_nonzero(y < -t) for t in TAILS]]
        for name, value in _products(first.astype(np.float64), second.astype(np.float64)).items():
            products[name] += value
    distance = float(np.abs(np.cumsum(cells) / n - np.arange(1, CELLS + 1) / CELLS).max())
    return Findings(
        n,
        _moment_scores(powers, n),
        _tail_scores(tails, n),
        _product_scores(products, n),
        distance,
        _p_value(distance, n),
    )


def _cell_counts(x: FloatArray) -> npt.NDArray[np.int64]:
    """Return how many numbers lie in each cell of equal probability."""
    guess = np.minimum((special.ndtr(x) * CELLS).astype(np.intp), CELLS - 1)
    return np.bincount(guess, minlength=CELLS)


def _moment_scores(sums: FloatArray, n: int) -> dict[int, float]:
    found = {}
    for r, total in zip(_ORDERS.tolist(), sums, strict=True):
        exact = _moment(r)
        found[r] = float((total / n - exact) / math.sqrt((_moment(2 * r) - exact**2) / n))
    return found


def _moment(r: int) -> float:
    return float(special.factorial2(r - 1)) if r % 2 == 0 else 0.0


def _tail_scores(counts: FloatArray, n: int) -> dict[float, float]:
    """Return z-scores of the counts beyond t on either side, from a Poisson law's square root where they are few."""
    found = {}
    for sign, side in zip((1, -1), counts, strict=True):
        for t, count in zip(TAILS, side, strict=True):
            due = n * float(special.ndtr(-t))
            found[sign * t] = float(2 * (math.sqrt(count + 3 / 8) - math.sqrt(due + 3 / 8)) / math.sqrt(1 - due / n))
    return found


def _names() -> list[str]:
    return ["pair", "squares of a pair", *(f"{kind} at {lag}" for lag in _NEXT for kind in ("neighbours", "squares"))]


def _products(x: FloatArray, y: FloatArray) -> dict[str, float]:
    """Return sums of products that have mean 0 and variance 1 if numbers are independent."""
    u, v = (x * x - 1) / math.sqrt(2), (y * y - 1) / math.sqrt(2)
    found = {"pair": _dot(x, y), "squares of a pair": _dot(u, v)}
    for lag in _NEXT:
        found[f"neighbours at {lag}"] = math.sqrt(0.5) * (_dot(x[lag:], x[:-lag]) + _dot(y[lag:], y[:-lag]))
        found[f"squares at {lag}"] = math.sqrt(0.5) * (_dot(u[lag:], u[:-lag]) + _dot(v[lag:], v[:-lag]))
    return found


def _dot(x: FloatArray, y: FloatArray) -> float:
    """Return the sum of products without BLAS, which would start threads."""
    return float(np.einsum("i,i->", x, y))


def _product_scores(sums: dict[str, float], n: int) -> dict[str, float]:
    """Return sums of n / 2 products over their standard deviation."""
    return {name: value / math.sqrt(n / 2) for name, value in sums.items()}


def _p_value(distance: float, n: int) -> float:
    """Return the chance of so large a distance: Kolmogorov's limit, Stephens' correction; a grid makes it larger."""
    root = math.sqrt(n)
    return float(special.kolmogorov((root + 0.12 + 0.11 / root) * distance))
