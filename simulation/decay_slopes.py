"""The laws of decay, measured: slopes of the unscaled gradients in d_k, beside exact and limiting ones.

In: a `DecayResult`. Out: three slopes with intervals, from the rungs past the freezing point.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from simulation.decay import DecayRecord, DecayResult
from simulation.decay_theory import median_top_gap
from simulation.formatting import plus_minus
from simulation.row_theory import freezing_d_k

PAST_FREEZING = 4.0  # rungs count from this multiple of the freezing point on


@dataclass(frozen=True)
class Slope:
    """One slope: measured, its error and interval; exact over the same rungs; its limit for d_k → ∞."""

    name: str
    formula: str
    estimate: float
    standard_error: float
    interval: tuple[float, float]
    exact: float | None
    limit: float

    @property
    def text(self) -> str:
        """The measured slope with its standard error."""
        return plus_minus(self.estimate, self.standard_error)


def decay_slopes(result: DecayResult) -> list[Slope]:
    """Return the slopes of the unscaled mean trace, rms query gradient and median trace.

    Weighted least squares on ln(estimate), weights from the standard errors, over the rungs with
    d_k past 4 times the freezing point 2 ln n. Fewer than two such rungs give no slope.

    Examples
    --------
    >>> from simulation.decay import gradient_decay
    >>> result = gradient_decay([64, 256, 1024], 16, rng=0, quantities=["trace"], statistics=["mean"])
    >>> [slope] = decay_slopes(result)
    >>> round(slope.exact, 3), slope.limit, abs(slope.estimate - slope.exact) < 4 * slope.standard_error
    (-0.498, -0.5, True)
    """
    n = result.records[0].n_keys
    wanted: tuple[tuple[str, str, str, str, Callable[[int], float], float], ...] = (
        ("mean trace", r"\mathrm{E}\,\mathrm{tr}J\propto d_k^{\,a}", "trace", "mean", math.log, -0.5),
        ("rms query gradient", r"\mathrm{rms}\propto d_k^{\,a}", "query_gradient", "rms", math.log, 0.25),
        (
            "typical trace",
            r"\mathrm{median}\propto e^{\,a\sqrt{d_k}}",
            "trace",
            "median",
            math.sqrt,
            -median_top_gap(n),
        ),
    )
    slopes = []
    for name, formula, quantity, statistic, axis, limit in wanted:
        past = [
            record
            for record in result.select(scoring="dot", quantity=quantity, statistic=statistic)
            if record.d_k >= PAST_FREEZING * freezing_d_k(n) and record.estimate > 0 and record.standard_error > 0
        ]
        if len(past) >= 2:
            slopes.append(_slope(name, formula, past, axis, limit, result.confidence))
    return slopes


def _slope(
    name: str,
    formula: str,
    records: Sequence[DecayRecord],
    axis: Callable[[int], float],
    limit: float,
    confidence: float,
) -> Slope:
    x = np.array([axis(record.d_k) for record in records])
    estimates = np.array([record.estimate for record in records])
    relative = np.array([record.standard_error for record in records]) / estimates
    weight = 1 / relative**2
    centred = x - np.average(x, weights=weight)
    leverage = weight * centred / np.sum(weight * centred**2)
    slope, error = float(leverage @ np.log(estimates)), float(np.sqrt(np.sum((leverage * relative) ** 2)))
    z = float(special.ndtri((1 + confidence) / 2))
    known = [record.exact for record in records if record.exact]
    exact = float(leverage @ np.log(known)) if len(known) == len(records) else None
    return Slope(name, formula, slope, error, (slope - z * error, slope + z * error), exact, limit)
