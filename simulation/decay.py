"""How softmax gradients decay as d_k grows, with and without scaling: `gradient_decay`.

In: a ladder of d_k, the number of keys, the law of the entries. Out: a tidy record for every d_k,
scoring, quantity and statistic, with its Monte Carlo standard error and the exact value if known.
"""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from simulation._validation import ladder_of
from simulation.attention_heads import require_sampler
from simulation.decay_rows import Plan, Values, plan_of, rung_values, values_to_precision, wish_of
from simulation.decay_theory import exact_value
from simulation.formatting import plus_minus, significant
from simulation.model import QueryKeyModel
from simulation.parallel import Progress, crew_of, worker_count
from simulation.precision import Precision
from simulation.results import FlatRecords, versions
from simulation.row_sizes import QUANTITIES
from simulation.row_statistics import ROW_STATISTICS, row_estimate
from simulation.sampling import Seed, child_seed, seed_of
from simulation.statistics import Estimate

DECAY_LADDER = (1, 4, 16, 64, 256, 1024)


@dataclass(frozen=True)
class DecayRecord:
    """One measured number; `exact` is None where no exact value is known."""

    d_k: int
    n_keys: int
    scoring: str
    quantity: str
    statistic: str
    estimate: float
    standard_error: float
    interval: tuple[float, float]
    exact: float | None


@dataclass(frozen=True)
class DecayResult(FlatRecords["DecayRecord"]):
    """What `gradient_decay` measured."""

    records: tuple[DecayRecord, ...]
    entries: str
    sampler: str
    n_rows: int
    queries: int
    seed: int
    confidence: float
    versions: dict[str, str]
    precision: tuple[Precision, ...] = ()

    def __str__(self) -> str:
        """Return a table of the records, one line for each d_k, scoring and quantity."""
        statistics = list(dict.fromkeys(record.statistic for record in self.records))
        lines = [
            f"{'up to ' if self.precision else ''}{self.n_rows:,} rows for each d_k, {self.entries} entries, "
            f"{self.sampler} sampler, seed {self.seed}; ± is one standard error, [ ] the exact value",
            f"{'d_k':>8} {'keys':>5} {'scoring':<11} {'quantity':<15}" + "".join(f"{s:<36}" for s in statistics),
        ]
        groups: dict[tuple[Any, ...], dict[str, DecayRecord]] = {}
        for r in self.records:
            groups.setdefault((r.d_k, r.n_keys, r.scoring, r.quantity), {})[r.statistic] = r
        for (d_k, n, scoring, quantity), found in groups.items():
            cells = "".join(f"{_cell(found[s]):<36}" for s in statistics)
            lines.append(f"{d_k:>8} {n:>5} {scoring:<11} {quantity:<15}{cells}".rstrip())
        return "\n".join([*lines, *map(str, self.precision)])


def _cell(record: DecayRecord) -> str:
    exact = f" [{significant(record.exact, 5)}]" if record.exact is not None else ""
    return plus_minus(record.estimate, record.standard_error) + exact


def gradient_decay(
    d_k: Sequence[int] = DECAY_LADDER,
    n_keys: int = 128,
    *,
    n_rows: int = 4096,
    precision: float | None = None,
    precision_of: Sequence[str] = ("trace", "mean"),
    rng: Seed = None,
    quantities: Sequence[str] = QUANTITIES,
    statistics: Sequence[str] = ROW_STATISTICS,
    sampler: str = "auto",
    queries: int | None = None,
    confidence: float = 0.95,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    **departures: Any,
) -> DecayResult:
    """Measure the size of softmax and of its gradients on attention rows, before and after scaling.

    Parameters
    ----------
    d_k : sequence of int
        Head dimensions, each from 1 to 1,000,000, all different.
    n_keys : int
        Keys in each row, from 2 to 4,096.
    n_rows : int
        Rows for each d_k, from 32 to 1,048,576; rounded up to whole heads, at least 16 of them.
    precision : float, optional
        Relative standard error wanted. Each d_k then takes whole chunks of heads until both
        scorings have it, beginning with `n_rows` and looking again at every quarter more, up to
        1,048,576 rows; `result.precision` says what it took.
    precision_of : (str, str)
        The quantity and the statistic that it is wanted of.
    rng : int, SeedSequence, Generator or None
        Seed; None draws one, and the result reports it. The stream of a rung depends on the seed
        and its d_k only; both scorings see the same draws.
    quantities, statistics : sequence of str
        Which to measure; see `row_sizes.QUANTITIES` and `row_statistics.ROW_STATISTICS`.
    sampler : {"auto", "plain", "conditional"}
        Plain draws every component. Conditional, for normal entries with mean 0, draws the logits
        given the queries' lengths: the same law, at a cost free of d_k. Auto: plain up to
        d_k = 4,096, conditional above it where it applies.
    queries : int, optional
        Queries that share the keys of a head; by default as many as keys, at most 128.
    confidence : float
        Level of each interval.
    workers, executor
        As for `dot_products`; the result does not depend on them.
    progress : callable, optional
        Called with (heads done, heads in all) of each rung.
    **departures
        Of `QueryKeyModel`: ``entries``, ``df``, ``q_mean``, ``q_std``, ``k_mean``, ``k_std``.

    Returns
    -------
    DecayResult

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    Examples
    --------
    >>> result = gradient_decay([2], 2, n_rows=2000, rng=0, quantities=["trace"])
    >>> scaled = result.select(scoring="scaled_dot", statistic="mean")[0]
    >>> round(scaled.exact, 12)  # 2 ln 2 - 1
    0.38629436112
    >>> abs(scaled.estimate - scaled.exact) < 4 * scaled.standard_error
    True
    """
    ladder = ladder_of(d_k)
    seed = seed_of(rng)
    plan = plan_of(n_keys, n_rows, quantities, statistics, sampler, queries, confidence)
    wish, crew = wish_of(precision, precision_of, plan), crew_of(workers, executor)
    models = [QueryKeyModel(rung, **departures) for rung in ladder]
    for model in models:
        require_sampler(model, plan.sampler_for(model))
    rungs, took = [], []
    for model in models:
        stream = child_seed(seed, model.d_k)
        if wish is None:
            values = rung_values(model, plan, stream, crew[0], progress, executor)
        else:
            values, reached = values_to_precision(model, plan, stream, wish, crew, progress)
            took.append(reached)
        rungs.append(_records(model, plan, values))
    return collect_decay(rungs, models, plan, seed, took)


def collect_decay(
    rungs: Sequence[Sequence[DecayRecord]],
    models: Sequence[QueryKeyModel],
    plan: Plan,
    seed: int,
    took: Sequence[Precision] = (),
) -> DecayResult:
    """Return the `DecayResult` of rungs measured so far, at least one."""
    return DecayResult(
        records=tuple(record for rung in rungs for record in rung),
        entries=models[0].entries,
        sampler=" and ".join(dict.fromkeys(plan.sampler_for(model) for model in models)),
        n_rows=max((rung.n for rung in took), default=plan.heads * plan.queries),
        queries=plan.queries,
        seed=seed,
        confidence=plan.confidence,
        versions=versions(),
        precision=tuple(took),
    )


def decay_rung(
    model: QueryKeyModel, plan: Plan, seed: int, *, workers: int | None = None, progress: Progress | None = None
) -> tuple[DecayRecord, ...]:
    """Measure one d_k and return its records."""
    return _records(model, plan, rung_values(model, plan, child_seed(seed, model.d_k), worker_count(workers), progress))


def _records(model: QueryKeyModel, plan: Plan, values: Values) -> tuple[DecayRecord, ...]:
    records = []
    for (scoring, quantity), rows in values.items():
        for statistic in plan.statistics:
            exact = exact_value(model, plan.n_keys, scoring, quantity, statistic)
            found = row_estimate(rows, statistic, plan.confidence, exact)
            records.append(_record(model.d_k, plan.n_keys, scoring, quantity, statistic, found))
    return tuple(records)


def _record(d_k: int, n_keys: int, scoring: str, quantity: str, statistic: str, found: Estimate) -> DecayRecord:
    error, interval = found.standard_error, found.interval
    assert error is not None and interval is not None  # noqa: S101, PT018 - rows always have both
    return DecayRecord(d_k, n_keys, scoring, quantity, statistic, found.estimate, error, interval, found.exact)
