"""The scale at which the typical softmax gradient is largest; the mean gradient has none.

In: the number of keys. Out: the best std of normal logits, with its error; both gradients against the std.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulation._validation import real_number, whole_number
from simulation.row_theory import gaussian_rows
from simulation.sampling import Seed, seed_of, stream
from simulation.softmax import jacobian_sizes
from simulation.statistics import Estimate, normal_quantile

FloatArray = npt.NDArray[np.float64]


def typical_best_std(n_keys: int, *, rows: int = 20_000, rng: Seed = None) -> Estimate:
    """Estimate the std of normal logits at which the typical gradient α tr J(α z) is largest.

    Typical is the geometric mean over rows z. The mean itself has no best std: it grows for ever.

    Parameters
    ----------
    n_keys : int
        Number of keys, from 2 to 1,000,000.
    rows : int
        Rows drawn, from 100 to 1,000,000; rows · n_keys at most 10,000,000.
    rng : int, SeedSequence, Generator or None
        Seed.

    Returns
    -------
    Estimate
        With the standard error of a root of an estimating equation, 95 % interval, no exact value.

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    Examples
    --------
    >>> best = typical_best_std(2, rng=0)
    >>> abs(best.estimate - 1.26) < 0.005 + 4 * best.standard_error
    True
    """
    from scipy.optimize import brentq

    n = whole_number("n_keys", n_keys, 2, 1_000_000)
    count = whole_number("rows", rows, 100, max(100, 10_000_000 // n))
    z = np.sort(stream(seed_of(rng), 0).standard_normal((count, n)), axis=1)
    below = z[:, :-1] - z[:, -1:]
    best = float(brentq(lambda alpha: _log_slopes(below, alpha).mean(), 0.3, 12.0, xtol=1e-6))
    spread = float(_log_slopes(below, best).std(ddof=1)) / math.sqrt(count)
    steepness = float((_log_slopes(below, best + 1e-3) - _log_slopes(below, best - 1e-3)).mean()) / 2e-3
    error = spread / abs(steepness)
    reach = normal_quantile(0.95) * error
    return Estimate(best, error, (best - reach, best + reach), None, "no closed form")


def _log_slopes(below: FloatArray, alpha: float) -> FloatArray:
    """Return d ln(α tr J(α z)) / dα of rows given by z_j - max z of the others, shape (rows, n - 1).

    With e = exp(α below) and o = Σ e, tr J = (2 o + o² - Σ e²) / (1 + o)².
    """
    e = np.exp(alpha * below)
    others, square = e.sum(axis=1), e * e
    steps = (below * e).sum(axis=1)
    size = others * (2 + others) - square.sum(axis=1)
    growth = 2 * steps * (1 + others) - 2 * (below * square).sum(axis=1)
    return np.asarray(1 / alpha + growth / size - 2 * steps / (1 + others))


@dataclass(frozen=True)
class GradientSize:
    """The gradient α tr J(α z) of rows z of standard normals: its exact mean, and its measured geometric mean."""

    logit_std: float
    mean: float
    typical: Estimate


def gradient_sizes(
    n_keys: int, logit_stds: Sequence[float], *, rows: int = 2_000, rng: Seed = None
) -> list[GradientSize]:
    """Return mean and typical size of the gradient for each standard deviation α of the logits.

    It is half the summed size of all derivatives of the weights by the unscaled logits z. All α see the same rows.

    Parameters
    ----------
    n_keys : int
        Number of keys, from 2 to 1,000,000.
    logit_stds : sequence of float
        Each above 0 and at most 64.
    rows : int
        Rows drawn, from 100 to 1,000,000; rows · n_keys at most 10,000,000.
    rng : int, SeedSequence, Generator or None
        Seed.

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    Examples
    --------
    >>> small, large = gradient_sizes(2, [1, 16], rng=0)
    >>> small.mean < large.mean, small.typical.estimate > large.typical.estimate
    (True, True)
    """
    n = whole_number("n_keys", n_keys, 2, 1_000_000)
    count = whole_number("rows", rows, 100, max(100, 10_000_000 // n))
    stds = [real_number("logit_stds", std, 0, 64, open_low=True) for std in logit_stds]
    z = stream(seed_of(rng), 0).standard_normal((count, n))
    found = []
    for std, row in zip(stds, gaussian_rows(n, stds), strict=True):
        logs = np.log(std * jacobian_sizes(std * z, spectral=False).trace)
        middle, error = float(logs.mean()), float(logs.std(ddof=1)) / math.sqrt(count)
        ends = (math.exp(middle - normal_quantile(0.95) * error), math.exp(middle + normal_quantile(0.95) * error))
        typical = Estimate(math.exp(middle), math.exp(middle) * error, ends, None, "no closed form")
        found.append(GradientSize(std, std * row.trace, typical))
    return found


def share_of_best(n_keys: int, logit_std: float, best: float, *, rows: int = 2_000, rng: Seed = None) -> Estimate:
    """Return the typical gradient at `logit_std` over that at `best`, from the same rows; arguments as above.

    Examples
    --------
    >>> found = share_of_best(2, 1.0, 1.2366, rng=0)  # √d_k gives two keys all but 3 % of the best
    >>> abs(found.estimate - 0.97) < 0.005
    True
    """
    n = whole_number("n_keys", n_keys, 2, 1_000_000)
    count = whole_number("rows", rows, 100, max(100, 10_000_000 // n))
    z = stream(seed_of(rng), 0).standard_normal((count, n))
    here, there = (np.log(std * jacobian_sizes(std * z, spectral=False).trace) for std in (logit_std, best))
    ratio, error = math.exp((here - there).mean()), float((here - there).std(ddof=1)) / math.sqrt(count)
    ends = (ratio * math.exp(-normal_quantile(0.95) * error), ratio * math.exp(normal_quantile(0.95) * error))
    return Estimate(ratio, ratio * error, ends, None, "no closed form")
