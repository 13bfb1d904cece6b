"""Rows of softmax drawn for `gradient_decay`: a checked plan, and the values of one head dimension.

In: a model, a plan, a seed. Out: arrays (heads, queries) for every scoring and quantity, of a fixed
number of heads, or of as many as a wanted precision takes.
"""

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from simulation._validation import one_of, real_number, whole_number
from simulation.attention_heads import SAMPLERS, Heads, Sampler, draw_heads, draw_rows, heads_in_chunk
from simulation.model import QueryKeyModel
from simulation.parallel import Crew, Group, Progress, group_size, groups, results_of
from simulation.precision import FINEST, Precision
from simulation.row_sizes import QUANTITIES, row_sizes
from simulation.row_statistics import ROW_STATISTICS, row_estimate
from simulation.scoring import SCORINGS, scale_factor

FloatArray = npt.NDArray[np.float64]
Values = dict[tuple[str, str], FloatArray]

MAX_KEYS = 4096
MAX_ROWS = 2**20
_PLAIN_UP_TO = 4096  # above it, "auto" draws normal entries conditionally: same law, no cost in d_k
_MAX_QUERIES = 128
_GROWTH = 1.25  # from one look at the precision to the next


@dataclass(frozen=True)
class Plan:
    """The checked settings of a run, the same for every rung."""

    n_keys: int
    queries: int
    heads: int
    quantities: tuple[str, ...]
    statistics: tuple[str, ...]
    sampler: str
    confidence: float

    def sampler_for(self, model: QueryKeyModel) -> Sampler:
        """Return the sampler that this plan uses for `model`."""
        if self.sampler == "plain" or self.sampler == "conditional":
            return "plain" if self.sampler == "plain" else "conditional"
        applies = model.entries == "normal" and model.q_mean == model.k_mean == 0
        return "conditional" if applies and model.d_k > _PLAIN_UP_TO else "plain"


def plan_of(
    n_keys: int,
    n_rows: int,
    quantities: Sequence[str],
    statistics: Sequence[str],
    sampler: str = "auto",
    queries: int | None = None,
    confidence: float = 0.95,
) -> Plan:
    """Return the checked plan of a run; arguments as for `gradient_decay`."""
    for name, asked in (("quantities", quantities), ("statistics", statistics)):
        if len(asked) == 0:
            raise ValueError(f"`{name}` must name at least one; received {asked!r}.")
    n = whole_number("n_keys", n_keys, 2, MAX_KEYS)
    rows = whole_number("n_rows", n_rows, 32, MAX_ROWS)
    m = min(n, _MAX_QUERIES, rows // 16) if queries is None else whole_number("queries", queries, 1, MAX_KEYS)
    return Plan(
        n_keys=n,
        queries=m,
        heads=max(16, math.ceil(rows / m)),
        quantities=tuple(one_of("quantities", name, QUANTITIES) for name in quantities),
        statistics=tuple(one_of("statistics", name, ROW_STATISTICS) for name in statistics),
        sampler=one_of("sampler", sampler, ("auto", *SAMPLERS)),
        confidence=real_number("confidence", confidence, 0.5, 0.999999),
    )


@dataclass(frozen=True)
class Wish:
    """The precision wanted of one statistic of one quantity, under both scorings."""

    relative_error: float
    quantity: str
    statistic: str

    def reached(self, values: Values, confidence: float) -> float:
        """Return the larger relative standard error of the two scorings."""
        found = [row_estimate(values[scoring, self.quantity], self.statistic, confidence) for scoring in SCORINGS]
        return max((e.standard_error or 0.0) / e.estimate if e.estimate else math.inf for e in found)


def wish_of(precision: float | None, of: Sequence[str], plan: Plan) -> Wish | None:
    """Return the checked wish for a precision; arguments as for `gradient_decay`."""
    if precision is None:
        return None
    wanted = real_number("precision", precision, FINEST, 1)
    if isinstance(of, str) or len(of) != 2:
        raise ValueError(f"`precision_of` must be a quantity and a statistic; received {of!r}.")
    return Wish(wanted, one_of("precision_of", of[0], plan.quantities), one_of("precision_of", of[1], plan.statistics))


def rung_values(
    model: QueryKeyModel,
    plan: Plan,
    seed: int,
    workers: int,
    progress: Progress | None,
    executor: Executor | None = None,
) -> Values:
    """Return arrays (heads, queries) for every scoring and quantity."""
    chunks = math.ceil(plan.heads / _heads_in_chunk(model, plan))
    return _joined(_chunks_of(model, plan, seed, (0, chunks), (workers, executor), progress))


def values_to_precision(
    model: QueryKeyModel, plan: Plan, seed: int, wish: Wish, crew: Crew, progress: Progress | None
) -> tuple[Values, Precision]:
    """Draw whole chunks until `wish` is met, looking at sizes that grow by a quarter, up to MAX_ROWS rows."""
    size = _heads_in_chunk(model, plan)
    most = max(MAX_ROWS // (size * plan.queries), math.ceil(16 / size))
    done, stop, parts = 0, min(math.ceil(plan.heads / size), most), list[Values]()
    while True:
        whole = replace(plan, heads=stop * size)
        parts = [_joined(parts + _chunks_of(model, whole, seed, (done, stop), crew, progress))]
        reached = wish.reached(parts[0], plan.confidence)
        if reached <= wish.relative_error or stop == most:
            break
        done, stop = stop, min(most, math.ceil(stop * _GROWTH))
    of = f"the {wish.statistic} {wish.quantity} at d_k = {model.d_k}"
    rows, limited = whole.heads * plan.queries, reached > wish.relative_error
    return parts[0], Precision(of, wish.relative_error, reached, rows, "rows", limited)


def _heads_in_chunk(model: QueryKeyModel, plan: Plan) -> int:
    return heads_in_chunk(model.d_k, plan.queries, plan.n_keys, plan.sampler_for(model))


def _chunks_of(
    model: QueryKeyModel, plan: Plan, seed: int, span: Group, crew: Crew, progress: Progress | None
) -> list[Values]:
    """Draw the chunks of `span`, which travel in groups."""
    first, stop = span
    size = group_size(stop)
    parts = []
    with closing(
        results_of(partial(_group_values, model, plan, seed), groups(stop, first=first, size=size), *crew)
    ) as found:
        for (_, done), part in zip(groups(stop, first=first, size=size), found, strict=True):
            parts.append(part)
            if progress is not None:
                progress(done, stop)
    return parts


def _joined(parts: Sequence[Values]) -> Values:
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _group_values(model: QueryKeyModel, plan: Plan, seed: int, group: Group) -> Values:
    return _joined([_chunk_values(model, plan, seed, index) for index in range(*group)])


def _chunk_values(model: QueryKeyModel, plan: Plan, seed: int, index: int) -> Values:
    stream = np.random.SeedSequence(seed, spawn_key=(index,))
    sampler, (m, n) = plan.sampler_for(model), (plan.queries, plan.n_keys)
    size = heads_in_chunk(model.d_k, m, n, sampler)
    keep = min(size, plan.heads - index * size)
    if sampler == "conditional" and "query_gradient" not in plan.quantities:
        heads = Heads(draw_rows(model, stream, size * m, n).reshape(size, m, n)[:keep], ())
    else:
        drawn = draw_heads(model, stream, m, n, sampler, keep=keep)
        heads = replace(drawn, logits=drawn.logits.astype(np.float32))  # as coarse as what was drawn
    scales = [scale_factor(scoring, model.d_k) for scoring in SCORINGS]
    sizes = row_sizes(heads, scales, plan.quantities)
    return {(scoring, name): sizes[i][name] for i, scoring in enumerate(SCORINGS) for name in plan.quantities}
