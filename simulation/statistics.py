"""Streaming central moments that merge, and the standard errors and intervals that go with them.

In: chunks of numbers, in float64. Out: states whose merge is pure and, in chunk order, exact to
repeat; estimates of mean, variance, skewness, kurtosis; their Monte Carlo standard errors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from simulation._validation import real_number
from simulation.formatting import plus_minus

FloatArray = npt.NDArray[np.float64]

STATISTICS = ("mean", "variance", "skewness", "kurtosis")


@dataclass(frozen=True)
class Estimate:
    """One measured number: estimate, Monte Carlo standard error, interval and exact value.

    `standard_error` and `interval` are None when the law has no finite standard error, `exact`
    when the law has no such moment; `note` then says why.
    """

    estimate: float
    standard_error: float | None
    interval: tuple[float, float] | None
    exact: float | None
    note: str = ""

    def __str__(self) -> str:
        """Return estimate, error and exact value in columns."""
        exact = "-" if self.exact is None else f"{self.exact:.6g}"
        return f"{self.text:>24}  exact {exact}"

    @property
    def text(self) -> str:
        """The estimate with its standard error, "64.09 ± 0.13"; without one, it says so."""
        tail = "" if self.standard_error is not None or math.isnan(self.estimate) else " (no s.e.)"
        return plus_minus(self.estimate, self.standard_error) + tail


@dataclass(frozen=True)
class MomentState:
    """Count, mean and sums of (x - mean)**r for r = 2, 3, 4 of the numbers seen so far."""

    n: int = 0
    mean: float = 0.0
    m2: float = 0.0
    m3: float = 0.0
    m4: float = 0.0

    @classmethod
    def of(cls, values: npt.ArrayLike) -> "MomentState":
        """Return the state of one chunk of numbers, any shape.

        Examples
        --------
        >>> MomentState.of([1, 2, 3, 4, 5, 6, 7, 10]).variance
        8.5
        """
        return cls.of_each(np.asarray(values, dtype=np.float64).reshape(1, -1))[0]

    @classmethod
    def of_each(cls, rows: FloatArray) -> "list[MomentState]":
        """Return the state of each row of float64 numbers, shape (rows, n).

        Examples
        --------
        >>> [state.mean for state in MomentState.of_each(np.array([[1.0, 2.0], [3.0, 5.0]]))]
        [1.5, 4.0]
        """
        n = rows.shape[1]
        if n == 0:
            return [cls()] * len(rows)
        mean = np.add.reduce(rows, axis=1) / n
        centred = rows - mean[:, None]
        rest = np.add.reduce(centred, axis=1) / n  # what rounding left of the mean
        centred -= rest[:, None]
        power = centred * centred
        m2 = np.add.reduce(power, axis=1)
        centred *= power
        power *= power
        sums = (mean + rest, m2, np.add.reduce(centred, axis=1), np.add.reduce(power, axis=1))
        return [cls(n, *values) for values in np.stack(sums, axis=1).tolist()]

    def merge(self, other: "MomentState") -> "MomentState":
        """Return the state of both sets of numbers; an empty side changes nothing.

        References
        ----------
        Pébay (2008), Sandia report SAND2008-6212.
        """
        if not other.n:
            return self
        if not self.n:
            return other
        n = self.n + other.n
        a, b = self.n / n, other.n / n
        delta = other.mean - self.mean
        ab = delta * delta * self.n * b
        m3 = self.m3 + other.m3 + ab * delta * (a - b) + 3 * delta * (a * other.m2 - b * self.m2)
        m4 = (
            self.m4
            + other.m4
            + ab * delta * delta * (a * a - a * b + b * b)
            + 6 * delta * delta * (a * a * other.m2 + b * b * self.m2)
            + 4 * delta * (a * other.m3 - b * self.m3)
        )
        return MomentState(n, self.mean + delta * b, self.m2 + other.m2 + ab, m3, m4)

    @property
    def variance(self) -> float:
        """Sample variance, divided by n - 1 (ddof = 1); NaN for fewer than two numbers."""
        return self.m2 / (self.n - 1) if self.n > 1 else math.nan

    @property
    def skewness(self) -> float:
        """Third standardised moment (divided by n); NaN for a constant."""
        return self.m3 / self.n / (self.m2 / self.n) ** 1.5 if self._has_shape else math.nan

    @property
    def kurtosis(self) -> float:
        """Fourth standardised moment (divided by n; 3 for a normal law); NaN for a constant."""
        return self.m4 / self.n / (self.m2 / self.n) ** 2 if self._has_shape else math.nan

    @property
    def _has_shape(self) -> bool:
        """Whether the spread is above 1e-70: fourth powers of smaller ones are no doubles."""
        return self.n > 0 and self.m2 / self.n > 1e-140


def standard_errors(moments: Sequence[float], variance: float, n: int) -> dict[str, float]:
    r"""Return the Monte Carlo standard errors of mean, variance, skewness and kurtosis.

    Parameters
    ----------
    moments : sequence of float
        Exact standardised moments E z^r, r = 0..8, of the law sampled; ``inf`` or NaN where they
        do not exist.
    variance : float
        Its variance.
    n : int
        Number of independent samples, at least 2.

    Returns
    -------
    dict
        One standard error for each of the four statistics, ``inf`` where the law has none.

    Notes
    -----
    Mean: sd/sqrt(n). Variance: :math:`\sigma^2\sqrt{(\kappa-(n-3)/(n-1))/n}`, exact for every law.
    Skewness and kurtosis: delta method, with influence functions
    :math:`z^3-3z-\tfrac32 g_1(z^2-1)-g_1` and :math:`z^4-g_2-4g_1z-2g_2(z^2-1)`.

    Examples
    --------
    >>> normal = [1, 0, 1, 0, 3, 0, 15, 0, 105]
    >>> {k: round(v, 4) for k, v in standard_errors(normal, 4.0, 10_000).items()}
    {'mean': 0.02, 'variance': 0.0566, 'skewness': 0.0245, 'kurtosis': 0.049}
    """
    if variance == 0:  # a constant has no spread to be wrong about, and no shape
        return {"mean": 0.0, "variance": 0.0, "skewness": math.inf, "kurtosis": math.inf}
    g1, g2 = moments[3], moments[4]
    return {
        "mean": math.sqrt(variance / n),
        "variance": variance * math.sqrt(max((g2 - (n - 3) / (n - 1)) / n, 0.0)),
        "skewness": _delta_error([0.5 * g1, -3, -1.5 * g1, 1], moments, n),
        "kurtosis": _delta_error([g2, -4 * g1, -2 * g2, 0, 1], moments, n),
    }


def _delta_error(influence: Sequence[float], moments: Sequence[float], n: int) -> float:
    """Return sqrt(E[influence(z)^2] / n), the influence function given by its coefficients."""
    square = np.convolve(influence, influence)
    used = np.asarray(moments[: square.size])
    if not np.isfinite(used).all() or not np.isfinite(square).all():
        return math.inf
    spread = float(square @ used)
    if spread < 1e-12:  # random signs: their kurtosis has no spread to first order, and an error of 0 would be false
        return math.inf
    return math.sqrt(spread / n)


def normal_quantile(confidence: float, *, claims: int = 1) -> float:
    """Return z such that `claims` intervals of half-width z hold together with `confidence`.

    Bonferroni: each interval errs with probability (1 - confidence) / claims.

    Examples
    --------
    >>> round(normal_quantile(0.95), 6), round(normal_quantile(0.95, claims=4), 6)
    (1.959964, 2.497705)
    """
    level = real_number("confidence", confidence, 0.5, 0.999999)
    return float(-special.ndtri((1 - level) / (2 * claims)))


def samples_for_precision(kurtosis: float, precision: float = 0.01, confidence: float = 0.95) -> int:
    r"""Return how many independent samples pin the variance down to ± `precision`, relative.

    :math:`n = z^2 (\kappa - 1) / \varepsilon^2`, from the large-n standard error of the sample
    variance of a law with kurtosis :math:`\kappa`.

    Parameters
    ----------
    kurtosis : float
        E z^4 of the law, for example ``QueryKeyModel(64).moments().kurtosis``.
    precision : float
        Relative half-width of the interval, from 1e-6 to 1.
    confidence : float
        Level of the interval, from 0.5 to 0.999999.

    Raises
    ------
    ValueError
        If the kurtosis is not finite: then the sample variance has no standard error.

    Examples
    --------
    >>> samples_for_precision(3 + 6 / 64), samples_for_precision(9)
    (80431, 307317)
    """
    epsilon = real_number("precision", precision, 1e-6, 1)
    if not math.isfinite(kurtosis):
        raise ValueError(
            f"`kurtosis` must be finite: without it the sample variance has no standard error, and no "
            f"number of samples can be named; received {kurtosis}."
        )
    z = normal_quantile(confidence)
    return max(2, math.ceil(z * z * max(kurtosis - 1, 0.0) / epsilon**2))
