"""How a quantity spreads over attention rows at one d_k: a histogram on a logarithmic axis.

In: a model, the number of keys, a quantity. Out: counts of rows in fixed decades' parts, for both
scorings, with the share of rows that carry most of the squared gradient.
"""

from dataclasses import dataclass

import numpy as np

from simulation.decay_rows import Plan, rung_values
from simulation.model import QueryKeyModel
from simulation.parallel import Progress, worker_count
from simulation.results import Record, versions
from simulation.row_statistics import row_estimate
from simulation.sampling import child_seed
from simulation.scoring import SCORINGS
from simulation.statistics import Estimate

BINS_A_DECADE = 8
LOWEST = -308


@dataclass(frozen=True)
class RowDistribution(Record):
    """Counts of rows by log10 of a quantity; `low` are the lower ends of bins 1/8 decade wide.

    `carrying` is the share of rows that carry 90 % of the sum of squares, with its error from the
    spread over heads; `zero` counts rows below 1e-308.
    """

    d_k: int
    quantity: str
    scorings: tuple[str, ...]
    low: tuple[float, ...]
    counts: tuple[tuple[int, ...], ...]
    zero: tuple[int, ...]
    carrying: tuple[Estimate, ...]
    n_rows: int
    versions: dict[str, str]


def row_distribution(
    model: QueryKeyModel,
    plan: Plan,
    quantity: str,
    seed: int,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> RowDistribution:
    """Return how `quantity` spreads over the rows of the rung that `gradient_decay` measures with `seed`.

    Examples
    --------
    >>> from simulation.decay_rows import plan_of
    >>> found = row_distribution(QueryKeyModel(16), plan_of(4, 64, ["trace"], ["mean"], "plain"), "trace", 0)
    >>> [sum(counts) + zero for counts, zero in zip(found.counts, found.zero)]
    [64, 64]
    """
    values = rung_values(model, plan, child_seed(seed, model.d_k), worker_count(workers), progress)
    arrays = [values[scoring, quantity] for scoring in SCORINGS]
    edges = np.arange(LOWEST * BINS_A_DECADE, 4 * BINS_A_DECADE + 1) / BINS_A_DECADE
    counts = []
    for array in arrays:
        positive = array[array > 10.0**LOWEST]
        counts.append(np.histogram(np.log10(positive), bins=edges)[0])
    used = np.flatnonzero(np.sum(counts, axis=0))
    first, last = (used[0], used[-1] + 1) if used.size else (0, 1)
    return RowDistribution(
        d_k=model.d_k,
        quantity=quantity,
        scorings=tuple(SCORINGS),
        low=tuple(edges[first:last].tolist()),
        counts=tuple(tuple(count[first:last].tolist()) for count in counts),
        zero=tuple(int((array <= 10.0**LOWEST).sum()) for array in arrays),
        carrying=tuple(_carrying(array, plan.confidence) for array in arrays),
        n_rows=plan.heads * plan.queries,
        versions=versions(),
    )


def _carrying(values: "np.typing.NDArray[np.float64]", confidence: float) -> Estimate:
    """Return the share of rows that carry 90 % of the sum of squares."""
    squares = np.square(values / (float(values.max()) or 1.0))
    descending = np.sort(squares, axis=None)[::-1]
    carried = np.cumsum(descending)
    place = int(np.searchsorted(carried, 0.9 * carried[-1]))
    return row_estimate((squares >= descending[place]).astype(np.float64), "mean", confidence)
