"""Ways to score queries against keys, side by side on the same draws: `compare_scorings`.

In: scorings, head dimensions, numbers of keys, correlations of a query with its own key, from 0 as at
initialisation to 1. Out: a tidy record for each, with its Monte Carlo standard error and the exact value if known.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from simulation._validation import MAX_D_K, one_of, real_number, shown, whole_number
from simulation.aligned_heads import ALIGNED, Aligned, align, draw_vectors, heads_of_chunk, queries_of
from simulation.comparison_theory import exact_comparison
from simulation.formatting import plus_minus, significant
from simulation.methods import METHODS, make_scoring
from simulation.parallel import Progress, in_order, worker_count
from simulation.results import FlatRecords, versions
from simulation.row_statistics import row_estimate
from simulation.sampling import Seed, child_seed, seed_of
from simulation.scored_rows import ROW_QUANTITIES, row_values
from simulation.scoring import Scoring

FloatArray = npt.NDArray[np.float64]
Rule = Callable[[int, int], Scoring]
Values = dict[tuple[int, str, str], FloatArray]

MAX_KEYS = 2048
MAX_ROWS = 2**20
_LEAST_HEADS = 32
_STATISTICS = {"logit_std": ("rms",), "query_gradient": ("rms", "median")}  # of all others: the mean
_SIGNED = ("logit_mean", "aligned_logit")


@dataclass(frozen=True)
class ComparisonRecord:
    """One measured number; `exact` is None where no exact value is known."""

    scoring: str
    d_k: int
    n_keys: int
    correlation: float
    effective_scale: float
    quantity: str
    statistic: str
    estimate: float
    standard_error: float
    interval: tuple[float, float]
    exact: float | None
    n_rows: int


@dataclass(frozen=True)
class ComparisonResult(FlatRecords["ComparisonRecord"]):
    """What `compare_scorings` measured."""

    records: tuple[ComparisonRecord, ...]
    aligned: str
    seed: int
    confidence: float
    versions: dict[str, str]

    def __str__(self) -> str:
        """Return a table for each d_k, number of keys and correlation: a line for each scoring, exact values below."""
        whose = {"one": "one key of each row, its query's own, is", "all": "all keys of a row are"}[self.aligned]
        lines = [f"seed {self.seed}; {whose} correlated with the query; ± is one standard error, [ ] the exact value"]
        cells: dict[tuple[int, int, float], list[ComparisonRecord]] = {}
        for r in self.records:
            cells.setdefault((r.d_k, r.n_keys, r.correlation), []).append(r)
        for (d_k, n, rho), found in cells.items():
            lines += ["", f"d_k = {d_k}, {n} keys, correlation {rho:g}, {found[0].n_rows:,} rows", *_table(found)]
        return "\n".join(lines)


def _table(records: Sequence[ComparisonRecord]) -> list[str]:
    columns = list(dict.fromkeys((r.quantity, r.statistic) for r in records))
    names = [f"{s} {q}".replace("_", " ") for q, s in columns]
    lines = [f"{'scoring':<14} {'scale':>10}  " + "".join(f"{name:<25}" for name in names).rstrip()]
    rows: dict[str, list[ComparisonRecord]] = {}
    for r in records:
        rows.setdefault(r.scoring, []).append(r)
    for label, found in rows.items():
        measured = "".join(f"{plus_minus(r.estimate, r.standard_error):<25}" for r in found)
        exact = "".join(f"{'' if r.exact is None else f'[{significant(r.exact, 5)}]':<25}" for r in found)
        lines.append(f"{label:<14} {significant(found[0].effective_scale):>10}  {measured}".rstrip())
        lines += [f"{'':<27}{exact}".rstrip()] if exact.strip() else []
    return lines


def compare_scorings(
    scorings: Sequence[str] | Mapping[str, Rule] = tuple(METHODS),
    d_k: Sequence[int] = (64,),
    n_keys: int | Sequence[int] = 128,
    correlation: float | Sequence[float] = (0.0, 0.5),
    *,
    aligned: str = "one",
    quantities: Sequence[str] = ROW_QUANTITIES,
    n_rows: int = 2048,
    rng: Seed = None,
    confidence: float = 0.95,
    workers: int | None = None,
    progress: Progress | None = None,
) -> ComparisonResult:
    """Measure what each way of scoring makes of the same softmax rows, of normal queries and keys.

    Parameters
    ----------
    scorings : sequence of str, or mapping of str to callable
        Keys of `METHODS`, with their default options; or a label for each function of (d_k, n_keys) that
        returns a `Scoring`. Weights of additive scoring are drawn, 32 hidden units for each head.
    d_k : sequence of int
        Head dimensions, each from 1 to 1,000,000, all different.
    n_keys : int or sequence of int
        Keys in each row, from 2 to 2,048.
    correlation : float or sequence of float
        Correlation of q_i with entry i of the aligned keys, from -1 to 1: 0 as at initialisation.
    aligned : {"one", "all"}
        Which keys are aligned: one in each row, its query's own, among independent ones; or all.
    quantities : sequence of str
        Which to measure; see `scored_rows.row_values`. "logit_std" is reported as root mean square,
        "query_gradient" as that and as median, all others as mean.
    n_rows : int
        Rows for each d_k and number of keys, from 32 to 1,048,576; rounded up to whole heads, at least 32.
    rng : int, SeedSequence, Generator or None
        Seed; None draws one, and the result reports it. The stream of a d_k and number of keys depends on the
        seed and on them only: all scorings and correlations see the same draws.
    confidence : float
        Level of each interval.
    workers : int, optional
        Threads; the result does not depend on it.
    progress : callable, optional
        Called with (chunks done, chunks in all).

    Returns
    -------
    ComparisonResult
        Standard errors come from whole heads, in which some 32 queries share their keys.

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    Examples
    --------
    >>> result = compare_scorings(["scaled_dot", "mup"], [64, 1024], 16, 0.5, quantities=["aligned_weight"], rng=0)
    >>> [round(record.exact, 2) for record in result.records]  # √d_k: 0.66 → 1.00; d_k: flat
    [0.66, 0.1, 1.0, 0.1]
    >>> all(abs(r.estimate - r.exact) < 4 * r.standard_error + 1e-6 for r in result.records)
    True
    """
    plan = _plan(scorings, d_k, n_keys, correlation, aligned, quantities, n_rows, confidence)
    seed, threads = seed_of(rng), worker_count(workers)
    cells = [(d, n) for d in plan.d_k for n in plan.n_keys]
    total, done, records = sum(plan.chunks(n) for _, n in cells), 0, []
    for d, n in cells:
        parts: dict[tuple[int, str, str], list[FloatArray]] = {}
        for chunk in in_order(partial(_chunk, plan, d, n, child_seed(seed, d, n)), plan.chunks(n), threads):
            for key, values in chunk.items():
                parts.setdefault(key, []).append(values)
            done += 1
            if progress is not None:
                progress(done, total)
        records += _records(plan, d, n, {key: np.concatenate(values) for key, values in parts.items()})
    return ComparisonResult(tuple(records), plan.aligned, seed, plan.confidence, versions())


def joined(results: Sequence[ComparisonResult]) -> ComparisonResult:
    """Return one result with the records of several, at least one, of the same seed and kind."""
    first, *_ = results
    records = tuple(record for result in results for record in result.records)
    return ComparisonResult(records, first.aligned, first.seed, first.confidence, first.versions)


@dataclass(frozen=True)
class _Plan:
    """The checked arguments."""

    rules: Mapping[str, Rule]
    d_k: tuple[int, ...]
    n_keys: tuple[int, ...]
    correlations: tuple[float, ...]
    aligned: Aligned
    quantities: tuple[str, ...]
    n_rows: int
    confidence: float

    def heads(self, n: int) -> int:
        """Return how many heads are drawn for n keys."""
        return max(_LEAST_HEADS, math.ceil(self.n_rows / queries_of(n)))

    def chunks(self, n: int) -> int:
        """Return in how many chunks they are drawn."""
        return math.ceil(self.heads(n) / heads_of_chunk(n))

    def scorings(self, d: int, n: int) -> dict[str, Scoring]:
        """Return the scorings for a head dimension and number of keys."""
        return {label: rule(d, n) for label, rule in self.rules.items()}


def _plan(
    scorings: Sequence[str] | Mapping[str, Rule],
    d_k: Sequence[int],
    n_keys: int | Sequence[int],
    correlation: float | Sequence[float],
    aligned: str,
    quantities: Sequence[str],
    n_rows: int,
    confidence: float,
) -> _Plan:
    keys = (n_keys,) if np.ndim(n_keys) == 0 else n_keys
    rhos = (correlation,) if np.ndim(correlation) == 0 else correlation
    plan = _Plan(
        rules=_rules(scorings),
        d_k=tuple(whole_number("d_k", d, 1, MAX_D_K) for d in _some("d_k", d_k)),
        n_keys=tuple(whole_number("n_keys", n, 2, MAX_KEYS) for n in _some("n_keys", keys)),
        correlations=tuple(real_number("correlation", rho, -1, 1) for rho in _some("correlation", rhos)),
        aligned=cast("Aligned", one_of("aligned", aligned, ALIGNED)),
        quantities=tuple(one_of("quantities", name, ROW_QUANTITIES) for name in _some("quantities", quantities)),
        n_rows=whole_number("n_rows", n_rows, 32, MAX_ROWS),
        confidence=real_number("confidence", confidence, 0.5, 0.999999),
    )
    made = plan.scorings(plan.d_k[0], plan.n_keys[0]).items()
    if weighted := [label for label, scoring in made if scoring.weights is not None]:
        raise ValueError(f"`scorings` must leave additive weights to be drawn; received weights in {weighted[0]!r}.")
    return plan


def _some(name: str, values: Any) -> list[Any]:
    listed = list(values) if np.ndim(values) == 1 else []
    if not 1 <= len(listed) <= 1000 or len(set(listed)) < len(listed):
        raise ValueError(f"`{name}` must hold 1 to 1,000 different values; received {shown(values)}.")
    return listed


def _rules(scorings: Sequence[str] | Mapping[str, Rule]) -> Mapping[str, Rule]:
    if isinstance(scorings, Mapping) and scorings:
        return dict(scorings)
    names = [one_of("scorings", name, tuple(METHODS)) for name in _some("scorings", scorings)]
    return {name: partial(_by_name, name) for name in names}


def _by_name(name: str, d_k: int, n_keys: int) -> Scoring:
    return make_scoring(name, d_k, n_keys=n_keys)


def _chunk(plan: _Plan, d: int, n: int, seed: int, index: int) -> Values:
    """Return the rows of one chunk, arrays (heads, queries), by place of the correlation, label and quantity."""
    scorings = plan.scorings(d, n)
    additive = any(scoring.kind == "additive" for scoring in scorings.values())
    stream = np.random.SeedSequence(seed, spawn_key=(index,))
    drawn, keep = draw_vectors(d, n, stream, additive=additive), plan.heads(n) - index * heads_of_chunk(n)
    found: Values = {}
    for place, rho in enumerate(plan.correlations):
        heads = align(drawn, rho, plan.aligned)
        for label, scoring in scorings.items():
            values = row_values(heads, scoring, plan.quantities)
            found |= {(place, label, quantity): rows[:keep] for quantity, rows in values.items()}
    return found


def _records(plan: _Plan, d: int, n: int, values: Values) -> list[ComparisonRecord]:
    scorings, records = plan.scorings(d, n), []
    for (place, label, quantity), rows in values.items():
        scoring, rho = scorings[label], plan.correlations[place]
        for statistic in _STATISTICS.get(quantity, ("mean",)):
            exact = exact_comparison(scoring, d, n, rho, plan.aligned, quantity, statistic)
            found = row_estimate(rows, statistic, plan.confidence, exact, signed=quantity in _SIGNED)
            error, interval = found.standard_error, found.interval
            assert error is not None and interval is not None  # noqa: S101, PT018 - rows always have both
            numbers = (found.estimate, error, interval, exact, rows.size)
            records.append(ComparisonRecord(label, d, n, rho, scoring.effective_scale, quantity, statistic, *numbers))
    return records
