"""The exact law of q·k for normal entries: density, distribution function, quantiles.

In: d_k, the scale on q·k and the correlation of q_i with k_i. Out: values with full relative
accuracy in the body and in both tails, from d_k = 1 (a pole at 0) to 1,000,000.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special

from simulation._validation import MAX_D_K, real_number, whole_number

FloatArray = npt.NDArray[np.float64]

_DEPTH = 60.0  # an integrand e^-60 below its peak adds nothing in double precision
_BLOCK = 64  # points averaged on one grid of nodes
_MAX_CORRELATION = 0.9999  # beyond it the conditional normal is too narrow for a modest grid


@dataclass(frozen=True)
class DotProductLaw:
    r"""Law of ``scale * q·k`` for independent pairs (q_i, k_i) of standard normals.

    Given :math:`R = |q|^2 \sim \chi^2_{d}`, q·k is :math:`N(\rho R, (1-\rho^2) R)`. Every value is
    an average over R, taken by the trapezoid rule in ln R: the integrand is analytic and decays
    on both sides, so the sum converges exponentially, and all its terms are positive, so tails
    keep their digits.

    Parameters
    ----------
    d_k : int
        Head dimension, from 1 to 1,000,000.
    scale : float
        Factor on q·k (and on both standard deviations), above 0; 1/sqrt(d_k) after scaling.
    correlation : float
        Correlation of q_i with k_i, from -0.9999 to 0.9999.

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    References
    ----------
    Gaunt (2018), "A note on the distribution of the product of zero-mean correlated normal
    random variables", arXiv:1807.03981.

    Examples
    --------
    >>> law = DotProductLaw(2)  # a Laplace law: half exp(-|x|)
    >>> round(float(law.pdf(1.0)), 12), round(float(law.quantile(0.75)), 12)
    (0.183939720586, 0.69314718056)
    """

    d_k: int
    scale: float = 1.0
    correlation: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "d_k", whole_number("d_k", self.d_k, 1, MAX_D_K))
        object.__setattr__(self, "scale", real_number("scale", self.scale, 0, 1e12, open_low=True))
        rho = real_number("correlation", self.correlation, -_MAX_CORRELATION, _MAX_CORRELATION)
        object.__setattr__(self, "correlation", rho)

    def pdf(self, x: npt.ArrayLike) -> FloatArray:
        """Return the density at `x` (any shape); ``inf`` at 0 for d_k = 1."""
        return self._average(x, density=True) / self.scale

    def cdf(self, x: npt.ArrayLike) -> FloatArray:
        """Return P(scale * q·k <= x), shape of `x`."""
        return self._average(x, density=False)

    def sf(self, x: npt.ArrayLike) -> FloatArray:
        """Return P(scale * q·k > x), shape of `x`, with full relative accuracy in the upper tail."""
        return self._mirrored().cdf(-np.asarray(x, dtype=np.float64))

    def quantile(self, p: npt.ArrayLike) -> FloatArray:
        """Return the x with cdf(x) = p for p strictly between 0 and 1, shape of `p`.

        Raises
        ------
        ValueError
            If a probability is not strictly between 0 and 1.
        """
        probabilities = np.asarray(p, dtype=np.float64)
        if not ((probabilities > 0) & (probabilities < 1)).all():
            raise ValueError(f"`p` must lie strictly between 0 and 1; received {p!r}.")
        return np.asarray(np.vectorize(self._quantile, otypes=[np.float64])(probabilities))

    def _mirrored(self) -> "DotProductLaw":
        return DotProductLaw(self.d_k, self.scale, -self.correlation)

    def _average(self, x: npt.ArrayLike, *, density: bool) -> FloatArray:
        """Average the conditional normal density or probability over R, in blocks of similar |x|."""
        points = np.asarray(x, dtype=np.float64) / self.scale
        flat = points.ravel()
        out = np.full_like(flat, np.nan)
        # further out everything underflows: the tails fall as exp(-|x|), or as a normal law's while d_k is large
        end = 2000 + 100 * math.sqrt(self.d_k) + abs(self.correlation) * self.d_k
        out[flat > end] = 0.0 if density else 1.0
        out[flat < -end] = 0.0
        order = np.argsort(np.abs(flat))
        order = order[np.abs(flat[order]) <= end]
        for start in range(0, order.size, _BLOCK):
            block = order[start : start + _BLOCK]
            out[block] = _mixture(flat[block], self.d_k, self.correlation, density=density)
        return out.reshape(points.shape)

    def _quantile(self, p: float) -> float:
        """Return one quantile, solved in ln p below the median so that far tails converge too."""
        from scipy.optimize import brentq

        if p > 0.5:
            return -float(self._mirrored().quantile(1 - p))
        if p == 0.5 and self.correlation == 0:
            return 0.0
        mean = self.d_k * self.correlation
        sd = math.sqrt(self.d_k * (1 + self.correlation**2))
        low, high = mean - sd, mean + sd
        unit = DotProductLaw(self.d_k, 1.0, self.correlation)

        def excess(x: float) -> float:
            below = float(unit.cdf(x))
            return (math.log(below) if below else -1000.0) - math.log(p)

        while excess(low) > 0:
            low -= 2 * (high - low)
        while excess(high) < 0:
            high += high - low
        root: float = brentq(excess, low, high, xtol=1e-14 * sd, rtol=1e-15)
        return self.scale * root


def _mixture(x: FloatArray, d_k: int, rho: float, *, density: bool) -> FloatArray:
    """Average over v = ln(R/d_k); weights exp(-(d_k/2)(e^v - 1 - v)), one grid for all `x`."""
    low, high, count = _span(x, d_k, rho)
    v = np.linspace(low, high, count)[:, None]
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        spread = np.sqrt((1 - rho * rho) * d_k) * np.exp(v / 2)
        z = (x - rho * d_k * np.exp(v)) / spread
        log_weight = -0.5 * d_k * (np.expm1(v) - v) - _log_weight_sum(d_k)
        log_weight += math.log((high - low) / (count - 1))
        if density:
            total = np.exp(log_weight - 0.5 * z * z) / (math.sqrt(2 * math.pi) * spread)
            pole = (x == 0) & (d_k == 1)
            return np.where(pole, np.inf, total.sum(axis=0))
        return np.asarray(np.exp(log_weight + special.log_ndtr(z)).sum(axis=0))


def _span(x: FloatArray, d_k: int, rho: float) -> tuple[float, float, int]:
    """Return the ends and number of nodes that cover and resolve every integrand.

    These are the weight alone and the weight times the conditional density.

    Up to a constant, ln(weight x density) = half v - a e^v - b e^-v, and `both` is sqrt(a b).
    """
    size = np.maximum(np.array([np.abs(x).min(), np.abs(x).max()]), 1e-300)
    a = 0.5 * d_k / (1 - rho * rho)
    both = 0.5 * size / (1 - rho * rho)
    half = 0.5 * (d_k - 1)
    right = 0.5 * half + np.hypot(0.5 * half, both)  # a e^v at the peak
    left = both * (both / right)  # b e^-v at the peak
    peak = np.log(right) - math.log(a)
    low = min(float(np.min(peak - _reach(left, right))), -float(_reach(0.0, 0.5 * d_k)))
    high = max(float(np.max(peak + _reach(right, left))), float(_reach(0.5 * d_k, 0.0)))
    step = min(0.2, 0.35 / math.sqrt(float(np.max(right + left))))
    return low, high, 2 + int((high - low) / step)


def _reach(fast: npt.ArrayLike, slow: npt.ArrayLike) -> FloatArray:
    """Return t > 0 with fast (e^t - 1 - t) + slow (e^-t - 1 + t) >= _DEPTH, from simple lower bounds."""
    with np.errstate(divide="ignore", over="ignore"):
        f, s = (np.maximum(np.asarray(c, dtype=np.float64), 0.0) for c in (fast, slow))
        by_fast = np.minimum(np.sqrt(2 * _DEPTH / f), np.maximum(1.7, np.log(2 * _DEPTH / f)))
        quadratic = np.sqrt(3 * _DEPTH / s)
        by_slow = np.where(quadratic <= 1, quadratic, 1 + _DEPTH / s)
    return np.minimum(by_fast, by_slow)


@lru_cache(maxsize=64)
def _log_weight_sum(d_k: int) -> float:
    """Return ln of the integral of exp(-(d/2)(e^v - 1 - v)) over v."""
    low, high, count = -float(_reach(0.0, 0.5 * d_k)), float(_reach(0.5 * d_k, 0.0)), 4001
    v = np.linspace(low, high, count)
    return math.log(float(np.exp(-0.5 * d_k * (np.expm1(v) - v)).sum()) * (high - low) / (count - 1))


def log_length_nodes(d_k: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes of v = ln(R/d_k), R ~ chi-square(d_k), and weights that sum to 1 and average over R."""
    low, high = -float(_reach(0.0, 0.5 * d_k)), float(_reach(0.5 * d_k, 0.0))
    v = np.linspace(low, high, 2 + int((high - low) / min(0.2, 0.35 / math.sqrt(0.5 * d_k))))
    weights = np.exp(-0.5 * d_k * (np.expm1(v) - v))
    return v, weights / weights.sum()


@lru_cache(maxsize=256)
def distance_to_normal(d_k: int) -> float:
    """Return the Kolmogorov distance between the law of q·k/sqrt(d_k) and N(0, 1).

    Exact for normal entries (no sampling); about 0.1376/d_k, the first Edgeworth term.

    Examples
    --------
    >>> round(distance_to_normal(64), 12)
    0.002152243325
    """
    from scipy.optimize import minimize_scalar

    law = DotProductLaw(d_k, 1 / math.sqrt(d_k))

    def gap(t: float) -> float:
        return float(special.ndtr(-t) - law.sf(t))

    found = minimize_scalar(lambda t: -gap(t), bounds=(0.2, 1.0), method="bounded", options={"xatol": 1e-9})
    return float(-found.fun)
