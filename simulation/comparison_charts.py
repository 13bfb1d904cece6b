"""Charts of scorings side by side: against d_k, the number of keys or the alignment; and of the best scale.

Every builder is pure: results in, an Altair chart out, with the numbers told in words in its `description`.
Scorings differ in colour, dash and shape. Needs the optional packages altair and pandas.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import altair as alt
import pandas as pd

from simulation.best_scale import GradientSize
from simulation.charts import Layered
from simulation.comparison import ComparisonRecord
from simulation.decay_charts import dimension_axis, log_scale, power_axis
from simulation.formatting import plus_minus, significant
from simulation.row_theory import expected_max_normal
from simulation.statistics import Estimate

AXES = {"d_k": "head dimension d_k", "n_keys": "keys n", "correlation": "correlation ρ of q with its own key"}
QUANTITY_WORDS = {
    "aligned_weight": "weight of the query's own key",
    "aligned_logit": "logit of the query's own key",
    "logit_std": "std of the logits in a row",
    "trace": "trace of the Jacobian",
    "entropy": "entropy of the weights (nats)",
    "largest_weight": "largest weight",
    "query_gradient": "gradient by q, rms",
    "logit_mean": "mean logit",
}
_DASHES = [[1, 0], [8, 3], [3, 3], [8, 2, 2, 2], [2, 2, 6, 2], [12, 3]]
_SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"]
_POSITIVE = ("logit_std", "query_gradient")  # drawn on a logarithmic axis


def comparison_chart(
    records: Sequence[ComparisonRecord], along: str, *, title: str | None = None, height: int = 320
) -> Layered:
    """Return one statistic of one quantity for several scorings: points with intervals, and lines.

    Lines go through the exact values where they are known, faint ones through the points where they are not.

    Parameters
    ----------
    records : sequence of ComparisonRecord
        Of one quantity and statistic; at most six scorings.
    along : {"d_k", "n_keys", "correlation"}
        What varies.
    title : str, optional
        Of the vertical axis.
    height : int
        In pixels.

    Examples
    --------
    >>> from simulation import compare_scorings
    >>> found = compare_scorings(["scaled_dot", "mup"], [4, 16], 8, 0.5, quantities=["aligned_weight"], rng=0)
    >>> chart = comparison_chart(found.records, "d_k")
    >>> chart.to_dict()["description"][:44]
    "Weight of the query's own key, against head "
    """
    frame = comparison_frame(records, along)
    labels, quantity = list(dict.fromkeys(frame["scoring"])), records[0].quantity
    y = _y_axis(frame, quantity, title or QUANTITY_WORDS[quantity])
    key = alt.Legend(orient="top", columns=2, symbolType="stroke", symbolStrokeWidth=3, symbolSize=400, labelLimit=260)
    colour = alt.Color("scoring:N", scale=alt.Scale(domain=labels), title=None, legend=key)
    base = alt.Chart(frame).encode(x=_x_axis(frame, along), color=colour)
    dashes = alt.Scale(domain=labels, range=_DASHES[: len(labels)])
    known = alt.Opacity("known:N", scale=alt.Scale(domain=[True, False], range=[1, 0.4]), legend=None)
    lines = base.mark_line(strokeWidth=2, clip=True, interpolate="monotone").encode(
        y=y("line:Q"),
        strokeDash=alt.StrokeDash("scoring:N", scale=dashes, title=None, legend=key),
        opacity=known,
    )
    bars = base.mark_rule(strokeWidth=2, clip=True).encode(y=y("low:Q"), y2="high:Q")
    shapes = alt.Scale(domain=labels, range=_SHAPES[: len(labels)])
    tooltip = ["scoring:N", alt.Tooltip("at:Q", title=along), alt.Tooltip("measured:N", title="± s.e."), "exact:N"]
    marks = base.mark_point(size=70, filled=True, clip=True, opacity=1).encode(
        y=y("estimate:Q"),
        shape=alt.Shape("way:N", scale=shapes, legend=None),  # under its own name: else the key shows shapes
        tooltip=tooltip,
    )
    return alt.layer(lines, bars, marks).properties(height=height, description=_words(frame, quantity, along))


def comparison_frame(records: Sequence[ComparisonRecord], along: str) -> pd.DataFrame:
    """Return the records as a chart wants them."""
    return pd.DataFrame(
        {
            "scoring": [r.scoring for r in records],
            "way": [r.scoring for r in records],
            "at": [getattr(r, along) for r in records],
            "estimate": [r.estimate for r in records],
            "low": [r.interval[0] for r in records],
            "high": [r.interval[1] for r in records],
            "line": [r.estimate if r.exact is None else r.exact for r in records],
            "known": [r.exact is not None for r in records],
            "measured": [plus_minus(r.estimate, r.standard_error) for r in records],
            "exact": ["unknown" if r.exact is None else significant(r.exact, 6) for r in records],
        }
    )


def _x_axis(frame: pd.DataFrame, along: str) -> alt.X:
    low, high = float(frame["at"].min()), float(frame["at"].max())
    if along == "correlation":
        return alt.X("at:Q", title=AXES[along], scale=alt.Scale(domain=[low, high], nice=False))
    return alt.X(
        "at:Q", title=AXES[along], axis=dimension_axis(int(low), int(high)), scale=log_scale(0.8 * low, 1.25 * high)
    )


def _y_axis(frame: pd.DataFrame, quantity: str, title: str) -> Callable[[str], alt.Y]:
    """Return the vertical axis of a field: logarithmic for sizes that span decades, else with room for the points."""
    low, high = float(frame["low"].min()), float(frame["high"].max())
    positive = frame[frame["estimate"] > 0]["estimate"]
    if quantity in _POSITIVE and len(positive):
        ends = (0.7 * float(positive.min()), 1.4 * high)
        scale = alt.Scale(type="log", domain=list(ends), nice=False, clamp=True)
        decades = [10.0**p for p in range(math.ceil(math.log10(ends[0])), math.floor(math.log10(ends[1])) + 1)]
        plain = 3 <= len(decades) <= 6 and ends[0] > 1e-5 and ends[1] < 1e7
        axis = alt.Axis(values=decades, format="~g") if plain else power_axis(*ends)
        return lambda field: alt.Y(field, title=title, scale=scale, axis=axis)
    room = 0.06 * (max(high, 0) - min(low, 0)) or 1.0
    scale = alt.Scale(domain=[min(low, 0) - (room if low < 0 else 0), high + room], nice=False)
    return lambda field: alt.Y(field, title=title, scale=scale)


def _words(frame: pd.DataFrame, quantity: str, along: str) -> str:
    told = "; ".join(f"{row.scoring} at {row.at:g}: {row.measured}" for row in frame.itertuples())
    words = QUANTITY_WORDS[quantity]
    return f"{words[0].upper()}{words[1:]}, against {AXES[along]}. {told}."


def best_scale_chart(n_keys: int, sizes: Sequence[GradientSize], best: Estimate, *, height: int = 320) -> Layered:
    """Return mean and typical gradient against the std of the logits, with √d_k's place, the peak and √(2 ln n).

    Examples
    --------
    >>> from simulation.best_scale import gradient_sizes, typical_best_std
    >>> chart = best_scale_chart(8, gradient_sizes(8, [0.5, 1, 2, 4], rng=0), typical_best_std(8, rng=0))
    >>> chart.to_dict()["layer"][0]["mark"]["type"]
    'line'
    """
    names = ["mean (exact)", "typical (measured)"]
    rows = [(names[0], size.logit_std, size.mean, "exact") for size in sizes]
    rows += [(names[1], size.logit_std, size.typical.estimate, size.typical.text) for size in sizes]
    frame = pd.DataFrame(rows, columns=["which", "std", "gradient", "value"])
    key = alt.Legend(orient="top", symbolType="stroke", symbolStrokeWidth=3, symbolSize=400)
    ends = [min(size.logit_std for size in sizes), max(size.logit_std for size in sizes)]
    x = alt.X(
        "std:Q",
        title="standard deviation of the logits",
        scale=alt.Scale(type="log", domain=ends, nice=False),
        axis=alt.Axis(values=[0.25, 0.5, 1, 2, 4, 8, 16], format="~g"),
    )
    curves = alt.Chart(frame).encode(
        x=x,
        y=alt.Y("gradient:Q", title="gradient by the unscaled logits", scale=alt.Scale(zero=True)),
        color=alt.Color("which:N", scale=alt.Scale(domain=names), title=None, legend=key),
        strokeDash=alt.StrokeDash("which:N", scale=alt.Scale(domain=names, range=[[1, 0], [6, 3]]), legend=key),
        tooltip=["which:N", alt.Tooltip("std:Q", format=".3g"), alt.Tooltip("gradient:Q", format=".4g"), "value:N"],
    )
    words = (
        f"Gradient against the standard deviation of logits for {n_keys} keys. The mean rises to "
        f"{expected_max_normal(n_keys):.4g} without a maximum; the typical one peaks at {best.text}, where "
        f"√(2 ln n) = {math.sqrt(2 * math.log(n_keys)):.3f}. Dividing by √d_k is at 1."
    )
    layers = (curves.mark_line(strokeWidth=2), *_marks(n_keys, best, float(frame["gradient"].max())))
    return alt.layer(*layers).properties(height=height, description=words)


def _marks(n_keys: int, best: Estimate, top: float) -> list[alt.Chart]:
    """Return named vertical rules at the standard deviations that matter."""
    edge = math.sqrt(2 * math.log(n_keys))
    named = {"name": ["÷ √d_k", "typical best", "√(2 ln n)"], "std": [1.0, best.estimate, edge]}
    marks = pd.DataFrame({**named, "at": [0.06 * top, 0.06 * top, 0.16 * top]})
    layers = [alt.Chart(marks).mark_rule(strokeDash=[3, 3], color="currentColor").encode(x="std:Q")]
    for side, shift, here in (("left", 5, marks["std"] >= best.estimate), ("right", -5, marks["std"] < best.estimate)):
        style: dict[str, Any] = {"align": side, "dx": shift, "fontSize": 12, "color": "currentColor"}
        layers.append(alt.Chart(marks[here]).mark_text(**style).encode(x="std:Q", y="at:Q", text="name:N"))
    return layers
