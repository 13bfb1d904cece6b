"""Claim + estimate + its interval → confirmed, refuted or inconclusive.

A claim has an expected value and a tolerance. It is confirmed when the whole interval lies within
the tolerance, refuted when the whole interval lies outside, and inconclusive otherwise.
"""

import math
from dataclasses import dataclass
from typing import Literal

from simulation.formatting import plus_minus, significant
from simulation.statistics import Estimate, normal_quantile

Verdict = Literal["confirmed", "refuted", "inconclusive"]

DEFAULT_TOLERANCE = 0.01
DECISION_POWER = 0.975  # chance that the number of samples named for an inconclusive claim decides it


@dataclass(frozen=True)
class Claim:
    """One claim, the estimate it is held against, and the verdict.

    `exact` is the value that the model itself implies (None if it does not exist), `standard_error`
    and `interval` are None when the law has no finite standard error; `samples_to_decide` is set
    for an inconclusive claim that more samples can decide.
    """

    name: str
    statement: str
    expected: float
    exact: float | None
    estimate: float
    standard_error: float | None
    interval: tuple[float, float] | None
    tolerance: float
    verdict: Verdict
    samples_to_decide: int | None = None
    note: str = ""

    @property
    def sentence(self) -> str:
        """The verdict in plain words, with its numbers."""
        if self.standard_error is None:
            return f"{self.statement}: {self.verdict}. Measured {significant(self.estimate)}; {self.note}."
        tail = ""
        if self.samples_to_decide:
            tail = f" About {self.samples_to_decide:,} samples would decide."
        return (
            f"{self.statement}: {self.verdict}. Measured {plus_minus(self.estimate, self.standard_error)} "
            f"(one standard error), claimed {self.expected:g} ± {self.tolerance:g}.{tail}"
        )


def judge(interval: tuple[float, float] | None, expected: float, tolerance: float) -> Verdict:
    """Return the verdict on `expected` ± `tolerance`, given the interval of the estimate.

    Examples
    --------
    >>> judge((0.995, 1.004), 1, 0.01), judge((1.02, 1.03), 1, 0.01), judge((0.98, 1.02), 1, 0.01)
    ('confirmed', 'refuted', 'inconclusive')
    """
    if interval is None:
        return "inconclusive"
    low, high = interval
    if expected - tolerance <= low and high <= expected + tolerance:
        return "confirmed"
    if high < expected - tolerance or low > expected + tolerance:
        return "refuted"
    return "inconclusive"


@dataclass(frozen=True)
class Rule:
    """How claims are judged: relative tolerance, joint confidence of how many intervals, run length."""

    tolerance: float
    confidence: float
    simultaneous: int
    n_samples: int

    @property
    def z(self) -> float:
        """Half-width of each interval in standard errors."""
        return normal_quantile(self.confidence, claims=self.simultaneous)

    def hold(self, name: str, statement: str, expected: float, unit: float, found: Estimate) -> Claim:
        """Return the claim that a quantity is `expected`, to within tolerance * `unit`, with its verdict."""
        band = self.tolerance * unit
        verdict = judge(found.interval, expected, band)
        return Claim(
            name=name,
            statement=statement,
            expected=expected,
            exact=found.exact,
            estimate=found.estimate,
            standard_error=found.standard_error,
            interval=found.interval,
            tolerance=band,
            verdict=verdict,
            samples_to_decide=self._samples(found, expected, band) if verdict == "inconclusive" else None,
            note=found.note,
        )

    def _samples(self, found: Estimate, expected: float, band: float) -> int | None:
        """Return how many samples decide with probability 0.975, or None if no number does.

        What counts is the distance of the exact value from the nearer edge of the tolerance; the
        standard error shrinks as 1/sqrt(n).
        """
        if found.standard_error is None or found.exact is None:
            return None
        gap = abs(abs(found.exact - expected) - band)
        reach = (self.z + normal_quantile(2 * DECISION_POWER - 1)) * found.standard_error
        needed = self.n_samples * (reach / gap) ** 2 if gap else math.inf
        return math.ceil(needed) if needed < 1e15 else None
