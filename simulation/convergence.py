"""How an estimate settles as pairs come in, with a band that stays valid however often one looks.

In: a model and a number of pairs. Out: mean and variance of q·k after ever more pairs, each with
the interval for a number of pairs fixed beforehand and with a confidence sequence.
"""

import math
from collections.abc import Generator, Iterator
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from simulation._validation import MAX_SAMPLES, real_number, shown, whole_number
from simulation.experiments import drawn_chunk
from simulation.formatting import interval_text, plus_minus
from simulation.model import QueryKeyModel
from simulation.parallel import MAX_GROUP, Crew, Group, Progress, crew_of, groups, results_of
from simulation.results import Record, versions
from simulation.sampling import Seed, chunk_pairs, seed_of
from simulation.statistics import MomentState, normal_quantile, standard_errors

if TYPE_CHECKING:
    import pandas as pd

LOOKS = 40
FIRST_LOOK = 100  # pairs: the band rests on averages being nearly normal
MEASURED = ("mean", "variance")


@dataclass(frozen=True)
class ConvergencePoint:
    """One statistic after `n` pairs.

    `interval` has the stated confidence at an `n` fixed beforehand; `band` has it at all looks
    together. Both are None, like the standard error, where the law has no finite one.
    """

    n: int
    statistic: str
    estimate: float
    standard_error: float | None
    interval: tuple[float, float] | None
    band: tuple[float, float] | None
    exact: float | None


@dataclass(frozen=True)
class ConvergenceResult(Record):
    """What `convergence` measured; the band is tightest at `tightest_at` pairs."""

    model: QueryKeyModel
    n_samples: int
    seed: int
    confidence: float
    tightest_at: int
    points: tuple[ConvergencePoint, ...]
    versions: dict[str, str]

    def select(self, statistic: str) -> list[ConvergencePoint]:
        """Return the points of one statistic, "mean" or "variance", in order of n."""
        return [point for point in self.points if point.statistic == statistic]

    def to_frame(self) -> "pd.DataFrame":
        """Return a tidy frame, a row for each point."""
        import pandas as pd

        frame = pd.DataFrame([vars(point) for point in self.points])
        for name, low, high in (("interval", "low", "high"), ("band", "band_low", "band_high")):
            frame[[low, high]] = [ends or (None, None) for ends in frame.pop(name)]
        return frame.assign(d_k=self.model.d_k, entries=self.model.entries, seed=self.seed)

    def __str__(self) -> str:
        """Return a table of the variance, a line for each look."""
        lines = [
            f"Var[q·k] as pairs come in, d_k = {self.model.d_k}, seed {self.seed}; ± is one standard error",
            f"{'pairs':>15}  {'variance':<24}{f'{self.confidence:.0%} at this n alone':<26}at all looks together",
        ]
        for p in self.select("variance"):
            ends = [interval_text(*pair) if pair else "none" for pair in (p.interval, p.band)]
            lines.append(f"{p.n:>15,}  {plus_minus(p.estimate, p.standard_error):<24}{ends[0]:<26}{ends[1]}")
        return "\n".join(lines)


def convergence(
    model: QueryKeyModel,
    n_samples: int = 1_000_000,
    *,
    rng: Seed = None,
    confidence: float = 0.95,
    tightest_at: int | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> ConvergenceResult:
    """Measure mean and variance of q·k after ever more pairs, at some 40 geometric steps.

    Parameters
    ----------
    model : QueryKeyModel
    n_samples : int
        Independent pairs in the end, from 2 to 10**12.
    rng : int, SeedSequence, Generator or None
        Seed, as for `dot_products`, which draws the same pairs from it.
    confidence : float
        Of an interval at one n, and of a band at all n together, each for one statistic.
    tightest_at : int, optional
        Number of pairs at which the band is as narrow as it can be. A tenth of `n_samples` by
        default: in the end it is 7 % wider then, and far narrower in the beginning.
    workers, executor, progress
        As for `dot_products`; the result does not depend on them.

    Returns
    -------
    ConvergenceResult

    Raises
    ------
    ValueError
        If an argument breaks its rule; TypeError if `model` is no `QueryKeyModel`.

    References
    ----------
    Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (2021), arXiv:2103.06476.

    Examples
    --------
    >>> last = convergence(QueryKeyModel(64), 100_000, rng=0).select("variance")[-1]
    >>> last.n, last.band[0] < last.interval[0] < last.estimate < last.interval[1] < last.band[1]
    (100000, True)
    """
    if not isinstance(model, QueryKeyModel):
        raise TypeError(f"`model` must be a QueryKeyModel; received {shown(model)}.")
    n = whole_number("n_samples", n_samples, 2, MAX_SAMPLES)
    level = real_number("confidence", confidence, 0.5, 0.999999)
    tightest = max(2, n // 10) if tightest_at is None else whole_number("tightest_at", tightest_at, 2, MAX_SAMPLES)
    seed, crew = seed_of(rng), crew_of(workers, executor)
    size = chunk_pairs(model.d_k)
    looks, count = look_pairs(n, size), math.ceil(n / size)
    total, points = MomentState(), list[ConvergencePoint]()
    with closing(_parts(model, n, seed, looks, crew)) as parts:
        for chunks, part in parts:
            total = total.merge(part)
            if total.n in looks:
                points += points_of(model, total, level, tightest)
            if progress is not None and chunks:
                progress(chunks, count)
    return ConvergenceResult(model, n, seed, level, tightest, tuple(points), versions())


def look_pairs(n: int, chunk: int) -> list[int]:
    """Return after how many pairs to look: some 40 rising numbers, evenly spaced on a log axis.

    Beyond the first chunk they are whole chunks, as are the pairs that are drawn together.

    Examples
    --------
    >>> look_pairs(20_000, 8192)[-4:], len(look_pairs(10**9, 8192))
    ([7727, 8192, 16384, 20000], 40)
    """
    if n <= FIRST_LOOK:
        return [n]
    *steps, _ = np.geomspace(FIRST_LOOK, n, LOOKS).tolist()
    return sorted({n, *(round(step) if step <= chunk else min(n, chunk * round(step / chunk)) for step in steps)})


def _parts(
    model: QueryKeyModel, n: int, seed: int, looks: list[int], crew: Crew
) -> Generator[tuple[int, MomentState], None, None]:
    """Yield what adds up from look to look: states, and how many chunks are done when one ends (0 within a chunk)."""
    size = chunk_pairs(model.d_k)
    _, dots = drawn_chunk(model, n, seed, 0)
    inside = [look for look in looks if look < dots.size]
    *pieces, last = np.split(dots, inside)
    yield from ((0, MomentState.of(piece)) for piece in pieces)
    yield 1, MomentState.of(last)
    ends = sorted({math.ceil(look / size) for look in looks if look > size})
    with closing(results_of(partial(_states, model, n, seed), _spans(ends), *crew)) as states:
        yield from ((stop, state) for (_, stop), state in zip(_spans(ends), states, strict=True))


def _spans(ends: list[int]) -> Iterator[Group]:
    """Yield groups of chunks after the first that end at every look: fixed by the work alone."""
    for first, stop in zip([1, *ends[:-1]], ends, strict=False):
        size = min(MAX_GROUP, max(1, (stop - first) // 8))
        yield from groups(stop, first=first, size=size)


def _states(model: QueryKeyModel, n: int, seed: int, group: Group) -> MomentState:
    dots = (drawn_chunk(model, n, seed, index)[1] for index in range(*group))
    return reduce(MomentState.merge, map(MomentState.of, dots))


def points_of(model: QueryKeyModel, state: MomentState, confidence: float, tightest_at: int) -> list[ConvergencePoint]:
    """Return mean and variance of what has been seen, with interval and band."""
    exact = model.moments()
    errors = standard_errors(model.standardised_moments(), exact.variance, state.n)
    z, wide = normal_quantile(confidence), band_factor(state.n, confidence, tightest_at)
    points = []
    for name in MEASURED:
        estimate, error, known = getattr(state, name), errors[name], getattr(exact, name)
        least = -math.inf if name == "mean" else 0.0
        finite = math.isfinite(error) and math.isfinite(estimate)
        interval, band = ((max(estimate - f * error, least), estimate + f * error) for f in (z, wide))
        points.append(
            ConvergencePoint(
                state.n,
                name,
                estimate,
                error if finite else None,
                interval if finite else None,
                band if finite else None,
                known if math.isfinite(known) else None,
            )
        )
    return points


def band_factor(n: int, confidence: float, tightest_at: int) -> float:
    r"""Return how many standard errors wide, to each side, the confidence sequence is after `n` pairs.

    Notes
    -----
    Let :math:`S_n` be a sum of n standardised terms. For standard normal terms
    :math:`e^{\lambda S_n - \lambda^2 n / 2}` is a martingale for every :math:`\lambda`; mixed over
    :math:`\lambda \sim N(0, \rho^2)` it becomes

    .. math:: M_n = (1 + n\rho^2)^{-1/2} \exp\left(\frac{\rho^2 S_n^2}{2 (1 + n\rho^2)}\right),

    nonnegative and of mean 1, so that by Ville's inequality it ever exceeds :math:`1/\alpha` with a
    probability of at most :math:`\alpha`. Solved for :math:`|S_n| / \sqrt n`, with
    :math:`x = 1 + n\rho^2`:

    .. math:: \sqrt{\frac{x}{x - 1} \left(\ln x + 2 \ln\frac{1}{\alpha}\right)} .

    It is least where :math:`x - 1 = \ln x + 2 \ln(1/\alpha)`, which is
    :math:`x = -W_{-1}(-\alpha^2 / e)`; that fixes :math:`\rho` for the wanted n. Averages of other
    laws come ever closer to those of normal terms, so the band is asymptotic: hence no look before
    100 pairs.

    Examples
    --------
    >>> [round(band_factor(n, 0.95, 10_000), 3) for n in (100, 10_000, 1_000_000)]
    [8.944, 3.035, 3.566]
    """
    alpha = 1 - confidence
    best = -float(special.lambertw(-(alpha**2) / math.e, -1).real)
    x = 1 + (best - 1) * n / tightest_at
    return math.sqrt(x / (x - 1) * (math.log(x) - 2 * math.log(alpha)))
