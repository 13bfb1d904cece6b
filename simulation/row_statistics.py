"""Values of rows, grouped in independent heads → mean, rms and quantiles with standard errors.

In: an array (heads, rows of a head). Rows of one head share keys, so errors come from the spread
of whole heads, never from the number of rows.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy import special

from simulation.statistics import Estimate

FloatArray = npt.NDArray[np.float64]

QUANTILES = {"q10": 0.1, "median": 0.5, "q90": 0.9}
ROW_STATISTICS = ("mean", "rms", "q10", "median", "q90")


def row_estimate(
    values: FloatArray, statistic: str, confidence: float, exact: float | None = None, *, signed: bool = False
) -> Estimate:
    """Return one statistic of `values` (heads, rows), its standard error and interval.

    Values are sizes, and no interval reaches below 0, unless they are `signed`.

    Mean and rms: spread of the heads' means (delta method for the rms). Quantiles: Woodruff's
    interval, from the spread of each head's share of rows below the estimate; the standard error
    is the interval's half-width over the t quantile. At least two heads.

    References
    ----------
    Woodruff (1952), "Confidence intervals for medians and other position measures",
    doi:10.1080/01621459.1952.10483443.

    Examples
    --------
    >>> found = row_estimate(np.arange(12.0).reshape(4, 3), "median", 0.95)
    >>> found.estimate, found.interval[0] < 5.5 < found.interval[1]
    (5.5, True)
    """
    heads = len(values)
    t = float(special.stdtrit(heads - 1, (1 + confidence) / 2))
    if statistic in QUANTILES:
        return _quantile_estimate(values, QUANTILES[statistic], t, exact)
    if statistic == "mean":
        estimate, error = _mean(values)
    else:
        top = float(np.abs(values).max()) or 1.0  # squares of 1e-200 would vanish
        square, square_error = _mean(np.square(values / top))
        root = math.sqrt(square)
        estimate, error = top * root, top * square_error / (2 * root) if root else 0.0
    low = estimate - t * error if signed else max(estimate - t * error, 0.0)
    return Estimate(estimate, error, (low, estimate + t * error), exact)


def _mean(values: FloatArray) -> tuple[float, float]:
    means = values.mean(axis=1)
    top = float(np.abs(means).max()) or 1.0  # squares of 1e-200 would vanish
    return float(means.mean()), top * float((means / top).std(ddof=1) / math.sqrt(len(means)))


def _quantile_estimate(values: FloatArray, p: float, t: float, exact: float | None) -> Estimate:
    pooled = np.sort(values, axis=None)
    estimate = float(np.quantile(pooled, p))
    below = np.mean(values <= estimate, axis=1)
    spread = float(below.std(ddof=1) / math.sqrt(len(below)))
    spread = max(spread, 0.5 / values.size)  # all heads alike: one row in doubt
    low, high = np.quantile(pooled, np.clip([p - t * spread, p + t * spread], 0, 1))
    return Estimate(estimate, float(high - low) / (2 * t), (float(low), float(high)), exact)
