"""What is kept of drawn pairs: streaming moments and a histogram, merged and written down exactly.

In: chunks of q·k before and after scaling and of single products. Out: a summary of fixed size
whose merge is pure, and the same as plain numbers for a checkpoint, and back, bit for bit.
"""

import dataclasses
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulation.checkpoints import Part
from simulation.histograms import Histogram
from simulation.parallel import Crew, Group, Progress, group_size, groups, results_of
from simulation.statistics import MomentState

_MOMENTS = ("before", "after", "component")
_OUTSIDE = ("underflow", "overflow", "nonfinite")


@dataclass(frozen=True)
class PairSummary:
    """Moments of q·k before and after scaling and of one product each, and the histogram before."""

    before: MomentState
    after: MomentState
    component: MomentState
    histogram: Histogram

    @classmethod
    def empty(cls, edges: Histogram) -> "PairSummary":
        """Return the summary of no pairs, on the edges of an empty histogram."""
        return cls(MomentState(), MomentState(), MomentState(), edges)

    def merge(self, other: "PairSummary") -> "PairSummary":
        """Return the summary of both sets of pairs."""
        return PairSummary(
            self.before.merge(other.before),
            self.after.merge(other.after),
            self.component.merge(other.component),
            self.histogram.merge(other.histogram),
        )

    def to_state(self) -> dict[str, Any]:
        """Return all numbers but the edges, which follow from the model.

        Examples
        --------
        >>> edges = Histogram.empty([0, 1, 2])
        >>> x = MomentState.of([0.1, 0.7])
        >>> summary = PairSummary(x, x, x, edges.add([0.1, 0.7]))
        >>> PairSummary.from_state(summary.to_state(), edges) == summary
        True
        """
        histogram = self.histogram
        return {
            **{name: list(dataclasses.astuple(getattr(self, name))) for name in _MOMENTS},
            "counts": histogram.counts.tolist(),
            **{name: getattr(histogram, name) for name in _OUTSIDE},
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], edges: Histogram) -> "PairSummary":
        """Return the summary that `to_state` wrote, on the edges of an empty histogram.

        Raises
        ------
        KeyError, TypeError, ValueError
            If the state was written by something else.
        """
        counts = np.array([_count(value) for value in state["counts"]], dtype=np.int64)
        if counts.shape != edges.counts.shape:
            raise ValueError(f"`counts` must hold {edges.counts.size} numbers; received {counts.size}.")
        outside = {name: _count(state[name]) for name in _OUTSIDE}
        before, after, component = (_moments(*state[name]) for name in _MOMENTS)
        return cls(before, after, component, Histogram(edges.edges, counts, **outside))


def merged(
    task: Callable[[Group], PairSummary],
    count: int,
    edges: Histogram,
    crew: Crew,
    progress: Progress | None,
    part: Part | None,
) -> PairSummary:
    """Merge `count` chunks, group by group, from where the checkpoint's part was left."""

    def restored(state: dict[str, Any]) -> tuple[int, PairSummary]:
        chunks = _count(state["chunks"])
        if chunks > count or (chunks < count and chunks % group_size(count)):
            raise ValueError(f"`chunks` must end a group; received {chunks}.")
        return chunks, PairSummary.from_state(state, edges)

    def state() -> dict[str, Any]:
        return {"chunks": found[0], **found[1].to_state()}

    found = (part and part.restored(restored)) or (0, PairSummary.empty(edges))
    first = found[0]
    try:
        with closing(results_of(task, groups(count, first=first), *crew)) as results:
            for (_, stop), result in zip(groups(count, first=first), results, strict=True):
                found = (stop, found[1].merge(result))  # at once, for a run that is interrupted here
                if part is not None:
                    part.keep(state)
                if progress is not None:
                    progress(stop, count)
    finally:
        if part is not None and found[0] > first:
            part.keep(state, now=True)
    return found[1]


def _moments(n: Any, *sums: Any) -> MomentState:
    mean, m2, m3, m4 = (float(value) for value in sums)
    return MomentState(_count(n), mean, m2, m3, m4)


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"a count must be a whole number of at least 0; received {value!r}.")
    return value
