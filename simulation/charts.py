"""Results → Altair charts, for pages and notebooks alike.

Every builder is pure: plain results in, a chart out, with the numbers told in words in its
`description`. Before and after scaling differ in colour, dash and shape, so grey print reads too.
Needs the optional packages altair and pandas.
"""

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd

from simulation.experiments import exact_law
from simulation.formatting import plus_minus, significant
from simulation.results import DotProductResult

Layered = alt.LayerChart | alt.FacetChart  # what `properties` of a layered chart returns
STAGES = ("before", "after")
_DOMAIN = list(STAGES)
_LINE_KEY = alt.Legend(orient="top", symbolType="stroke", symbolStrokeWidth=3, symbolSize=400)
_POINT_KEY = alt.Legend(orient="top", symbolSize=80)
_COLOUR = alt.Color("stage:N", scale=alt.Scale(domain=_DOMAIN), title=None)
_DASHES = alt.Scale(domain=_DOMAIN, range=[[1, 0], [6, 3]])
_DASH = alt.StrokeDash("stage:N", scale=_DASHES, title=None)
_SHAPES = alt.Scale(domain=_DOMAIN, range=["circle", "square"])
_SHAPE = alt.Shape("stage:N", scale=_SHAPES, title=None, legend=_POINT_KEY)


def histogram_chart(result: DotProductResult, *, log_density: bool = False, height: int = 320) -> Layered:
    """Return the histograms of q·k before and after scaling on one axis, with the exact densities.

    Parameters
    ----------
    result : DotProductResult
    log_density : bool
        Whether the density axis is logarithmic, which shows the tails.
    height : int
        Height in pixels.

    Examples
    --------
    >>> from simulation import QueryKeyModel, dot_products
    >>> chart = histogram_chart(dot_products(QueryKeyModel(4), 1000, rng=0))
    >>> sorted(chart.to_dict())[:2]
    ['$schema', 'config']
    """
    bars, curves = histogram_frames(result)
    top = float(bars["density"].max())
    scale = alt.Scale(type="log", domainMin=top * 1e-7) if log_density else alt.Scale(domain=[0, 1.08 * top])
    if log_density:
        bars = bars[bars["density"] > 0]
        curves = curves[curves["density"] > top * 1e-7]
    y = alt.Y("density:Q", title="probability density", scale=scale)
    x = alt.X("low:Q", title="logit (q·k before and after scaling)")
    base = alt.Chart(bars).encode(
        x=x,
        color=_COLOUR.legend(_LINE_KEY),
        tooltip=[
            alt.Tooltip("stage:N"),
            alt.Tooltip("low:Q", format=".3g", title="from"),
            alt.Tooltip("high:Q", format=".3g", title="to"),
            alt.Tooltip("measured:N", title="density ± standard error"),
        ],
    )
    steps = base.mark_bar(opacity=0.35, clip=True).encode(
        x2="high:Q", y=y, y2=alt.Y2Datum(top * 1e-7 if log_density else 0)
    )
    exact = (
        alt.Chart(curves)
        .mark_line(clip=True, strokeWidth=2)
        .encode(x=alt.X("low:Q"), y=y, color=_COLOUR.legend(_LINE_KEY), strokeDash=_DASH.legend(_LINE_KEY))
    )
    layers = [steps, exact] if len(curves) else [steps]
    return alt.layer(*layers).properties(height=height, description=_histogram_words(result))


def histogram_frames(result: DotProductResult) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the bars (with the standard error of each density) and the exact densities, if known."""
    bars, curves = [], []
    for stage, factor in zip(STAGES, (1.0, result.scale), strict=True):
        histogram = result.histogram.scaled(factor)
        share = histogram.counts / histogram.n
        widths = np.diff(histogram.edges)
        density, error = share / widths, np.sqrt(share * (1 - share) / histogram.n) / widths
        measured = [plus_minus(float(d), float(e)) for d, e in zip(density, error, strict=True)]
        low, high = histogram.edges[:-1], histogram.edges[1:]
        bars.append(pd.DataFrame({"stage": stage, "low": low, "high": high, "density": density, "measured": measured}))
        law = exact_law(result.model, factor)
        if law is not None:
            points = (low[:, None] + np.outer(widths, [0.25, 0.75])).ravel()  # none at 0, where d_k = 1 has a pole
            curves.append(pd.DataFrame({"stage": stage, "low": points, "density": law.pdf(points)}))
    empty = pd.DataFrame({"stage": [], "low": [], "density": []})
    return pd.concat(bars, ignore_index=True), pd.concat(curves, ignore_index=True) if curves else empty


def _histogram_words(result: DotProductResult) -> str:
    before, after = result.before.variance, result.after.variance
    beyond = result.histogram.underflow + result.histogram.overflow
    return (
        f"Histograms of {result.n_samples:,} dot products at d_k = {result.model.d_k}. Before scaling the variance is "
        f"{before.text}, after scaling {after.text}. {beyond:,} values lie beyond six standard deviations."
    )


def ladder_chart(results: Sequence[DotProductResult], *, height: int = 320) -> Layered:
    """Return the variance against d_k on log axes, before and after scaling, with error bars.

    The lines are what the footnote claims: Var = d_k before, 1 after.
    """
    points = ladder_frame(results)
    low, high = points["d_k"].min(), points["d_k"].max()
    claims = pd.DataFrame(
        {"stage": ["before", "before", "after", "after"], "d_k": [low, high] * 2, "claimed": [low, high, 1, 1]}
    )
    x = alt.X("d_k:Q", title="head dimension d_k", scale=_log_scale(low, high), axis=_decades(low, high))
    y_scale = alt.Scale(type="log")
    lines = (
        alt.Chart(claims)
        .mark_line()
        .encode(
            x=x,
            y=alt.Y("claimed:Q", scale=y_scale, title="variance"),
            color=_COLOUR,
            strokeDash=_DASH.legend(None),
        )
    )
    return alt.layer(lines, *_points_with_bars(points, x, y_scale)).properties(
        height=height, description=_ladder_words(points)
    )


def ratio_chart(results: Sequence[DotProductResult], *, height: int = 160) -> Layered:
    """Return measured variance / claimed variance against d_k, after scaling, with its interval."""
    points = ladder_frame(results)
    points = points[points["stage"] == "after"]
    low, high = float(points["d_k"].min()), float(points["d_k"].max())
    x = alt.X("d_k:Q", title="head dimension d_k", scale=_log_scale(low, high), axis=_decades(low, high))
    scale = alt.Scale(zero=False)
    rule = alt.Chart(pd.DataFrame({"one": [1.0]})).mark_rule(strokeDash=[2, 2]).encode(y="one:Q")
    words = "Measured over claimed variance: " + "; ".join(
        f"d_k = {row.d_k}: {row.measured}" for row in points.itertuples()
    )
    layers = _points_with_bars(points, x, scale, title="measured / claimed")
    return alt.layer(rule, *layers).properties(height=height, description=words)


def ladder_frame(results: Sequence[DotProductResult]) -> pd.DataFrame:
    """Return a row for each d_k and stage: the variance, its interval and the exact value."""
    rows = [
        {
            "stage": stage,
            "d_k": result.model.d_k,
            "estimate": estimate.estimate,
            "low": estimate.interval[0] if estimate.interval else None,
            "high": estimate.interval[1] if estimate.interval else None,
            "measured": estimate.text,
            "exact": "none" if estimate.exact is None else significant(estimate.exact, 6),
        }
        for result in results
        for stage, estimate in zip(STAGES, (result.before.variance, result.after.variance), strict=True)
    ]
    return pd.DataFrame(rows)


def _points_with_bars(points: pd.DataFrame, x: alt.X, scale: alt.Scale, title: str = "variance") -> list[alt.Chart]:
    tooltip = ["stage:N", "d_k:Q", alt.Tooltip("measured:N", title="variance ± s.e."), "exact:N"]
    base = alt.Chart(points).encode(x=x, color=_COLOUR.legend(_POINT_KEY))
    bars = base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", scale=scale, title=title), y2="high:Q")
    ends = [
        base.mark_tick(orient="horizontal", size=10, thickness=2).encode(y=alt.Y(f"{end}:Q", title=title))
        for end in ("low", "high")
    ]
    marks = base.mark_point(size=70, filled=True).encode(
        y=alt.Y("estimate:Q", scale=scale, title=title), shape=_SHAPE, tooltip=tooltip
    )
    return [bars, *ends, marks]


def _log_scale(low: float, high: float) -> alt.Scale:
    return alt.Scale(type="log", domain=[0.8 * low, 1.25 * high], nice=False)


def _decades(low: float, high: float) -> alt.Axis:
    """Return an axis with ticks at powers of 4 (few enough for a phone)."""
    ticks = [4**p for p in range(11) if low <= 4**p <= high]
    return alt.Axis(values=ticks, format=",d") if len(ticks) > 1 else alt.Axis(format=",d")


def _ladder_words(points: pd.DataFrame) -> str:
    told = "; ".join(f"d_k = {row.d_k}, {row.stage} scaling: {row.measured}" for row in points.itertuples())
    return f"Variance of q·k against d_k. {told}."
