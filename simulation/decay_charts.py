"""Charts of gradient decay: against d_k, over rows, in low precision, and the phase diagram.

Every builder is pure: results in, an Altair chart out, with the numbers told in words in its
`description`. Needs the optional packages altair and pandas.
"""

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from simulation.charts import Layered
from simulation.decay import DecayRecord
from simulation.decay_theory import exact_value, gap_exceeds
from simulation.formatting import plus_minus, significant
from simulation.low_precision import ZERO_BITS
from simulation.model import QueryKeyModel
from simulation.row_distribution import RowDistribution
from simulation.row_theory import attention_row, freezing_d_k, gaussian_rows, trace_bound
from simulation.scoring import SCORINGS, scale_factor

NAMES = {"dot": "raw q·k", "scaled_dot": "divided by √d_k"}
_DOMAIN = list(NAMES.values())
_COLOUR = alt.Color("scoring:N", scale=alt.Scale(domain=_DOMAIN), title=None)
_DASH = alt.StrokeDash("scoring:N", scale=alt.Scale(domain=_DOMAIN, range=[[1, 0], [6, 3]]), title=None, legend=None)
_SHAPE = alt.Shape(
    "scoring:N",
    scale=alt.Scale(domain=_DOMAIN, range=["circle", "square"]),
    title=None,
    legend=alt.Legend(orient="top", symbolSize=80),
)
_KEY = alt.Legend(orient="top", symbolSize=80)
_CURVE_POINTS = 49
_CELLS = 42  # of the phase diagram, along the standard deviation


def decay_chart(records: Sequence[DecayRecord], model: QueryKeyModel, *, height: int = 380) -> Layered:
    """Return one statistic of one quantity against d_k on log axes: measured, exact curve, bounds.

    `records` hold one quantity and statistic, both scorings; `model` says of which law they are.
    """
    points = decay_frame(records)
    low, high = int(points["d_k"].min()), int(points["d_k"].max())
    quantity, statistic, n = records[0].quantity, records[0].statistic, records[0].n_keys
    x = alt.X(
        "d_k:Q", title="head dimension d_k", scale=log_scale(0.8 * low, 1.25 * high), axis=dimension_axis(low, high)
    )
    floor, ceiling = max(float(points["estimate"].min()) / 2, 1e-300), 1.5 * float(points["high"].max())
    y_scale = alt.Scale(type="log", domain=[floor, ceiling], nice=False, clamp=True)
    y = alt.Y(
        "estimate:Q",
        title=f"{statistic} of {quantity.replace('_', ' ')}",
        scale=y_scale,
        axis=power_axis(floor, ceiling),
    )
    base = alt.Chart(points[points["estimate"] > 0]).encode(x=x, color=_COLOUR.legend(_KEY))
    bars = base.mark_rule(strokeWidth=2, clip=True).encode(y=alt.Y("low:Q", scale=y_scale), y2="high:Q")
    tooltip = ["scoring:N", "d_k:Q", alt.Tooltip("measured:N", title="measured ± s.e."), "exact:N"]
    marks = base.mark_point(size=70, filled=True, clip=True, opacity=1).encode(y=y, shape=_SHAPE, tooltip=tooltip)
    layers = [bars, marks]
    curve = curve_frame(model, n, quantity, statistic, low, high)
    if len(curve):
        kinds = alt.Opacity("kind:N", scale=alt.Scale(domain=["exact", "bound"], range=[1, 0.45]), legend=None)
        line = alt.Chart(curve[curve["value"] >= floor]).mark_line(clip=True, strokeWidth=1.5)
        group = line.encode(x=x, y=alt.Y("value:Q", scale=y_scale), color=_COLOUR, strokeDash=_DASH)
        layers.insert(0, group.encode(opacity=kinds, detail=["kind:N", "side:N"]))
    if low < freezing_d_k(n) < high:
        freezing = pd.DataFrame({"d_k": [freezing_d_k(n)]})
        layers.append(alt.Chart(freezing).mark_rule(strokeDash=[2, 3]).encode(x=x))
    return alt.layer(*layers).properties(height=height, description=_decay_words(points, quantity, statistic))


def decay_frame(records: Sequence[DecayRecord]) -> pd.DataFrame:
    """Return the records as a chart wants them."""
    return pd.DataFrame(
        {
            "scoring": [NAMES[r.scoring] for r in records],
            "d_k": [r.d_k for r in records],
            "estimate": [r.estimate for r in records],
            "low": [max(r.interval[0], 1e-300) for r in records],
            "high": [max(r.interval[1], 1e-300) for r in records],
            "measured": [plus_minus(r.estimate, r.standard_error) for r in records],
            "exact": ["unknown" if r.exact is None else significant(r.exact, 6) for r in records],
        }
    )


def curve_frame(model: QueryKeyModel, n: int, quantity: str, statistic: str, low: int, high: int) -> pd.DataFrame:
    """Return the exact curves and bounds between two head dimensions, where they are known."""
    grid = sorted({round(d) for d in np.geomspace(low, high, _CURVE_POINTS)})
    rows = []
    for scoring in SCORINGS:
        for d in grid:
            rung = QueryKeyModel(d, model.entries, model.df, model.q_mean, model.q_std, model.k_mean, model.k_std)
            exact = exact_value(rung, n, scoring, quantity, statistic)
            lines = {} if exact is None else {("exact", ""): exact}
            if model.is_standard and model.entries == "normal" and statistic == "mean":
                lines |= _bounds(n, d, scale_factor(scoring, d), quantity)
            rows += [(NAMES[scoring], d, kind, side, value) for (kind, side), value in lines.items()]
    return pd.DataFrame(rows, columns=["scoring", "d_k", "kind", "side", "value"])


def _bounds(n: int, d_k: int, scale: float, quantity: str) -> dict[tuple[str, str], float]:
    if quantity == "trace":
        return {("bound", "upper"): trace_bound(n, d_k, scale=scale)}
    if quantity == "largest_weight":
        row = attention_row(n, d_k, scale=scale)
        return {("bound", "lower"): row.largest_weight_lower, ("bound", "upper"): row.largest_weight_upper}
    return {}


def _decay_words(points: pd.DataFrame, quantity: str, statistic: str) -> str:
    told = "; ".join(f"d_k = {row.d_k}, {row.scoring}: {row.measured}" for row in points.itertuples())
    return f"The {statistic} of the {quantity.replace('_', ' ')} against d_k. {told}."


def distribution_chart(found: RowDistribution, *, height: int = 260) -> Layered:
    """Return the histograms of a quantity over rows, both scorings, on a logarithmic axis."""
    width = 1 / 8
    frames = [
        pd.DataFrame(
            {
                "scoring": NAMES[scoring],
                "low": [10**low for low in found.low],
                "high": [10 ** (low + width) for low in found.low],
                "share": np.array(counts) / found.n_rows,
            }
        )
        for scoring, counts in zip(found.scorings, found.counts, strict=True)
    ]
    frame = pd.concat(frames, ignore_index=True)
    frame["error"] = np.sqrt(frame["share"] * (1 - frame["share"]) / found.n_rows)
    frame["measured"] = [plus_minus(s, e) for s, e in zip(frame["share"], frame["error"], strict=True)]
    chart = (
        alt.Chart(frame[frame["share"] > 0])
        .mark_bar(opacity=0.5)
        .encode(
            x=alt.X(
                "low:Q",
                scale=alt.Scale(type="log", nice=False),
                title=found.quantity.replace("_", " "),
                axis=power_axis(10 ** found.low[0], 10 ** (found.low[-1] + width)),
            ),
            x2="high:Q",
            y=alt.Y("share:Q", title="share of rows"),
            y2=alt.Y2Datum(0),
            color=_COLOUR.legend(_KEY),
            stroke=alt.Stroke("scoring:N", scale=alt.Scale(domain=_DOMAIN), legend=None),
            strokeDash=_DASH,
            tooltip=["scoring:N", alt.Tooltip("low:Q", format=".2g"), "measured:N"],
        )
    )
    words = "; ".join(
        f"{NAMES[s]}: 90 % of the sum of squares comes from {100 * c.estimate:.0f} % of the rows"
        for s, c in zip(found.scorings, found.carrying, strict=True)
    )
    return alt.layer(chart).properties(
        height=height, description=f"{found.quantity} over rows at d_k = {found.d_k}. {words}."
    )


def precision_map(keys: Sequence[int], dims: Sequence[int], number_format: str, *, height: int = 260) -> Layered:
    """Return the exact chance that a raw row's gradient is exactly zero, over d_k and keys."""
    threshold = ZERO_BITS[number_format] * math.log(2)
    rows = [(str(n), str(d), gap_exceeds(n, d, threshold, scale=1.0)) for n in keys for d in dims]
    frame = pd.DataFrame(rows, columns=["keys", "d_k", "chance"])
    frame["label"] = ["0" if c < 5e-4 else f"{c:.2g}" for c in frame["chance"]]
    base = alt.Chart(frame).encode(
        x=alt.X("d_k:N", sort=None, title="head dimension d_k", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("keys:N", sort=None, title="keys n"),
        tooltip=["keys:N", "d_k:N", alt.Tooltip("chance:Q", format=".3g")],
    )
    heat = base.mark_rect().encode(
        color=alt.Color("chance:Q", scale=alt.Scale(scheme="blues", domain=[0, 1]), legend=None)
    )
    ink = alt.condition("datum.chance > 0.55", alt.value("white"), alt.value("black"))
    words = "; ".join(f"n = {n}, d_k = {d}: {c:.2g}" for n, d, c in rows)
    return alt.layer(heat, base.mark_text().encode(text="label:N", color=ink)).properties(
        height=height, description=f"Chance that the {number_format} gradient of a raw row is exactly zero. {words}."
    )


def phase_chart(
    n_keys: int,
    d_k: int,
    *,
    spots: Sequence[tuple[str, float, float]] | None = None,
    reach: tuple[float, float] = (0.05, 64),
    height: int = 340,
) -> Layered:
    """Return E tr J over keys and the logits' standard deviation from `reach`, with the freezing line.

    Points mark `spots`, as (name, keys, standard deviation): by default raw (s = √d_k), scaled (s = 1) and 1/d_k
    (s = 1/√d_k) attention for one d_k and n.
    """
    root = math.sqrt(d_k)
    marked = [("raw", n_keys, root), ("1/√d_k", n_keys, 1.0), ("1/d_k", n_keys, 1 / root)] if spots is None else spots
    keys = [2**p for p in range(1, 13)]
    ratio = (reach[1] / reach[0]) ** (1 / (2 * (_CELLS - 1)))
    y_scale = log_scale(reach[0] / ratio, reach[1] * ratio)
    x = alt.X(
        "n0:Q",
        scale=log_scale(keys[0] / math.sqrt(2), keys[-1] * math.sqrt(2)),
        title="keys n",
        axis=alt.Axis(values=keys[::2], format=",d"),
    )
    ticks = alt.Axis(format="~g", values=[0.1, 1, 10]) if spots is None else power_axis(*reach)
    y = alt.Y("s0:Q", scale=y_scale, title="standard deviation s of the logits", axis=ticks)
    line = pd.DataFrame({"n0": keys, "s0": [math.sqrt(2 * math.log(n)) for n in keys]})
    freezing = alt.Chart(line).mark_line(color="white", strokeDash=[6, 4], strokeWidth=2.5, clip=True).encode(x=x, y=y)
    names = _spots(pd.DataFrame(marked, columns=["name", "n0", "s0"]), y_scale, keys[-1])
    told = "; ".join(f"{name} at n = {n:g}, s = {s:.3g}" for name, n, s in marked)
    words = (
        f"Phase diagram of E tr J. At n = {n_keys} the freezing line is at s = {math.sqrt(2 * math.log(n_keys)):.2f}. "
        f"Marked, with d_k = {d_k}: {told}."
    )
    layers = (_heat(keys, reach, ratio).encode(x=x, y=y), freezing, *names)
    return alt.layer(*layers).properties(height=height, description=words)


def _heat(keys: Sequence[int], reach: tuple[float, float], ratio: float) -> alt.Chart:
    """Return the cells of the phase diagram, without their axes."""
    stds = np.geomspace(*reach, _CELLS)
    cells = [
        (n / math.sqrt(2), n * math.sqrt(2), s / ratio, s * ratio, n, s, row.trace / (1 - 1 / n))
        for n in keys
        for s, row in zip(stds, gaussian_rows(n, stds), strict=True)
    ]
    frame = pd.DataFrame(cells, columns=["n0", "n1", "s0", "s1", "n", "s", "share"])
    key = alt.Legend(orient="top", titleLimit=300)  # beside the chart it would leave a phone no room
    scale = alt.Scale(scheme="viridis", domain=[0, 1])
    share = alt.Color("share:Q", scale=scale, title="E tr J / (1 − 1/n)", legend=key)
    tooltip = ["n:Q", alt.Tooltip("s:Q", format=".3g"), alt.Tooltip("share:Q", format=".4f")]
    cells_chart: alt.Chart = alt.Chart(frame).mark_rect().encode(x2="n1:Q", y2="s1:Q", color=share, tooltip=tooltip)
    return cells_chart


def _spots(frame: pd.DataFrame, y_scale: alt.Scale, most_keys: int) -> list[alt.Chart]:
    """Return points with names beside them, to the left of points near the right edge."""
    y = alt.Y("s0:Q", scale=y_scale)
    marks = alt.Chart(frame).mark_point(
        size=110, filled=True, color="white", stroke="black", strokeWidth=1.5, opacity=1
    )
    layers = [marks.encode(x="n0:Q", y=y, shape=alt.value("circle"), tooltip=["name:N", "n0:Q", "s0:Q"])]
    for side, shift, here in (("left", 10, frame["n0"] < most_keys / 4), ("right", -10, frame["n0"] >= most_keys / 4)):
        name = alt.Chart(frame[here]).encode(x="n0:Q", y=y, text="name:N")
        style: dict[str, Any] = {"dx": shift, "align": side, "fontSize": 13, "clip": True}
        layers += [name.mark_text(**style, color="white", stroke="white", strokeWidth=4)] if here.any() else []
        layers += [name.mark_text(**style, color="black")] if here.any() else []
    return layers


def log_scale(low: float, high: float) -> alt.Scale:
    """Return a logarithmic scale with these ends."""
    return alt.Scale(type="log", domain=[low, high], nice=False)


def dimension_axis(low: int, high: int) -> alt.Axis:
    """Return an axis with ticks at powers of 4, few enough for a phone."""
    ticks = [4**p for p in range(11) if low <= 4**p <= high]
    return alt.Axis(values=ticks, format=",d") if len(ticks) > 1 else alt.Axis(format=",d")


def power_axis(low: float, high: float) -> alt.Axis:
    """Return an axis with few ticks at powers of ten, or at 1, 2, 5 within a decade or two."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    if last - first <= 3:
        ticks = [float(f"{m}e{p}") for p in range(first, last + 1) for m in (1, 2, 5)]
        return alt.Axis(values=[tick for tick in ticks if low <= tick <= high], format="~g")
    step = max(1, math.ceil((last - first) / 6))
    return alt.Axis(values=[float(f"1e{p}") for p in range(first, last + 1, step)], format=".0e")
