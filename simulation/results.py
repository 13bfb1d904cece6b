"""What experiments hand back: frozen records with estimate, error, interval and exact value.

Every result prints as a table, turns into a tidy pandas frame (`to_frame`) and into JSON and back
(`to_json`, `from_json`). JSON holds no NaN or Infinity: a figure that does not exist is null.
"""

import dataclasses
import math
import platform
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import scipy

from simulation.histograms import Histogram
from simulation.model import QueryKeyModel
from simulation.precision import Precision
from simulation.statistics import STATISTICS, Estimate
from simulation.verdicts import Claim

if TYPE_CHECKING:
    import pandas as pd

R = TypeVar("R")

__version__ = "0.2.0"


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    return {
        "simulation": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }


@dataclass(frozen=True)
class MomentEstimates:
    """Mean, variance, skewness and kurtosis of one quantity."""

    mean: Estimate
    variance: Estimate
    skewness: Estimate
    kurtosis: Estimate

    def items(self) -> Iterator[tuple[str, Estimate]]:
        """Yield (name, estimate) of the four statistics."""
        return ((name, getattr(self, name)) for name in STATISTICS)


@dataclass(frozen=True)
class Fit:
    """How the histogram agrees with the exact law, and how far the law is from a normal one.

    The chi-square test is None where the law has no closed form here. `distance_to_normal` is the
    exact Kolmogorov distance (None likewise), `measured_distance` the one seen at the histogram's
    edges (None for a law without a variance), and `noise` the largest that chance alone shows in
    95 % of runs of this length.
    """

    chi_square: float | None
    degrees_of_freedom: int | None
    p_value: float | None
    distance_to_normal: float | None
    measured_distance: float | None
    noise: float


class Record:
    """JSON and table for results that are frozen dataclasses."""

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain dicts, lists, strings and finite numbers."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def to_json(self, indent: int | None = 2) -> str:
        """Return the result as JSON text; `from_json` reads it back."""
        import json

        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the result that `to_json` wrote."""
        import json

        result: Self = _rebuild(cls, json.loads(text))
        return result


class FlatRecords(Record, Generic[R]):
    """What results share that hold one flat record for each number measured."""

    records: tuple[R, ...]

    def select(self, **wanted: Any) -> list[R]:
        """Return the records whose fields have the wanted values, in the order measured."""
        return [r for r in self.records if all(getattr(r, name) == value for name, value in wanted.items())]

    def to_frame(self) -> "pd.DataFrame":
        """Return a tidy frame, a row for each record; an interval becomes the columns low and high."""
        import pandas as pd

        frame = pd.DataFrame([vars(record) for record in self.records])
        if "interval" in frame:
            frame[["low", "high"]] = frame.pop("interval").tolist()
        return frame


@dataclass(frozen=True)
class DotProductResult(Record):
    """What `dot_products` measured; `before` and `after` are q·k before and after scaling."""

    model: QueryKeyModel
    n_samples: int
    seed: int
    confidence: float
    simultaneous: int
    scale: float
    claims: tuple[Claim, ...]
    before: MomentEstimates
    after: MomentEstimates
    component: MomentEstimates
    histogram: Histogram
    fit: Fit
    versions: dict[str, str]
    precision: Precision | None = None

    def __str__(self) -> str:
        lines = [_headline(self)]
        for label, moments in self._stages():
            lines.append(f"{label}:")
            lines += [f"  {name:<9}{estimate}" for name, estimate in moments.items()]
        lines += ["claims:", *(f"  {claim.sentence}" for claim in self.claims)]
        lines += [str(self.precision)] if self.precision is not None else []
        return "\n".join(lines)

    def _stages(self) -> list[tuple[str, MomentEstimates]]:
        return [("component", self.component), ("before", self.before), ("after", self.after)]

    def records(self) -> list[dict[str, Any]]:
        """Return one plain record for each quantity and statistic."""
        return [
            {
                "d_k": self.model.d_k,
                "entries": self.model.entries,
                "quantity": label,
                "statistic": name,
                "estimate": estimate.estimate,
                "standard_error": estimate.standard_error,
                "low": estimate.interval[0] if estimate.interval else None,
                "high": estimate.interval[1] if estimate.interval else None,
                "exact": estimate.exact,
                "n_samples": self.n_samples,
                "seed": self.seed,
            }
            for label, moments in self._stages()
            for name, estimate in moments.items()
        ]

    def to_frame(self) -> "pd.DataFrame":
        """Return a tidy frame, a row for each quantity and statistic."""
        import pandas as pd

        return pd.DataFrame.from_records(self.records())


@dataclass(frozen=True)
class SweepResult(Record):
    """What `sweep` measured: one `DotProductResult` for each d_k, and the slopes on log axes.

    The slopes are those of ln Var against ln d_k, by weighted least squares; None for one rung or
    where a variance has no standard error.
    """

    results: tuple[DotProductResult, ...]
    seed: int
    slope_before: Estimate | None
    slope_after: Estimate | None
    versions: dict[str, str]

    def __str__(self) -> str:
        head = f"{'d_k':>8}  {'Var[q·k]':>24}{'':14}  {'after scaling':>24}{'':14}  verdicts"
        lines = [head]
        for result in self.results:
            verdicts = " ".join(claim.verdict for claim in result.claims)
            lines.append(
                f"{result.model.d_k:>8}  {result.before.variance!s:<38}  {result.after.variance!s:<38}  {verdicts}"
            )
        for label, slope in (("before", self.slope_before), ("after", self.slope_after)):
            if slope is not None:
                lines.append(f"slope of ln Var against ln d_k {label}: {slope}")
        return "\n".join([*lines, f"seed {self.seed}"])

    def to_frame(self) -> "pd.DataFrame":
        """Return a tidy frame, a row for each d_k, quantity and statistic."""
        import pandas as pd

        return pd.DataFrame.from_records([row for result in self.results for row in result.records()])


def _headline(result: DotProductResult) -> str:
    model = result.model
    named = dataclasses.asdict(model)
    changed = ", ".join(f"{k}={v}" for k, v in named.items() if k != "d_k" and v != getattr(QueryKeyModel(1), k))
    return (
        f"q·k for d_k = {model.d_k} ({changed or 'standard normal entries'}), {result.n_samples:,} pairs, "
        f"seed {result.seed}; ± is one standard error"
    )


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _rebuild(kind: Any, data: Any) -> Any:
    """Build a value of type `kind` from plain data, following the type hints of dataclasses."""
    if data is None:
        return None if type(None) in get_args(kind) else math.nan
    if get_origin(kind) in (Union, types.UnionType):
        return _rebuild(next(option for option in get_args(kind) if option is not type(None)), data)
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        kinds = [inner[0]] * len(data) if inner[-1] is Ellipsis else inner
        return tuple(_rebuild(item_kind, item) for item_kind, item in zip(kinds, data, strict=True))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(**{name: _rebuild(hints[name], item) for name, item in data.items()})
    if get_origin(kind) is np.ndarray:
        return np.asarray(data)
    return float(data) if kind is float else data
