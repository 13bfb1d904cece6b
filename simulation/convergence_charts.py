"""Convergence → Altair chart: an estimate against the pairs so far, with interval and band.

Pure: a plain result in, a chart out, with the numbers told in words in its `description`. The
interval and the band differ in colour and dash. Needs the optional packages altair and pandas.
"""

from typing import Any

import altair as alt
import pandas as pd

from simulation.charts import Layered
from simulation.convergence import ConvergencePoint, ConvergenceResult
from simulation.formatting import interval_text, plus_minus

BANDS = ("at all looks together", "at one look fixed beforehand")
_COLOURS = alt.Scale(domain=list(BANDS))
_DASHES = alt.Scale(domain=list(BANDS), range=[[1, 0], [6, 3]])
_KEY = alt.Legend(orient="top", symbolType="stroke", symbolStrokeWidth=3, symbolSize=400, labelLimit=320, columns=1)


def convergence_chart(result: ConvergenceResult, statistic: str = "variance", *, height: int = 320) -> Layered:
    """Return the estimate of "mean" or "variance" against the pairs so far, on a log axis.

    Lines on both sides: the interval for one number of pairs fixed beforehand (dashed), and the
    band that holds at all looks together (solid), which may be too wide for the picture at first. The
    dotted rule is the exact value.

    Examples
    --------
    >>> from simulation import QueryKeyModel
    >>> from simulation.convergence import convergence
    >>> chart = convergence_chart(convergence(QueryKeyModel(64), 20_000, rng=0))
    >>> len(chart.to_dict()["layer"])
    4
    """
    points = result.select(statistic)
    frame, ends = convergence_frames(points)
    x = alt.X("pairs:Q", title="pairs so far", scale=alt.Scale(type="log", nice=False), axis=alt.Axis(format="~s"))
    title = "mean of q·k" if statistic == "mean" else "variance of q·k"
    y: dict[str, Any] = {"title": title, "scale": _scale(points)}
    line = alt.Chart(frame).mark_line(strokeWidth=1.5, color="currentColor").encode(x=x, y=alt.Y("estimate:Q", **y))
    marks = (
        alt.Chart(frame)
        .mark_point(size=30, filled=True, opacity=1, color="currentColor")
        .encode(x=x, y=alt.Y("estimate:Q", **y), tooltip=["pairs:Q", "measured:N", "interval:N", "band:N", "exact:Q"])
    )
    limits = (
        alt.Chart(ends)
        .mark_line(strokeWidth=2, clip=True)
        .encode(
            x=x,
            y=alt.Y("value:Q", **y),
            color=alt.Color("valid:N", scale=_COLOURS, title=None, legend=_KEY),
            strokeDash=alt.StrokeDash("valid:N", scale=_DASHES, title=None, legend=_KEY),
            detail="side:N",
        )
    )
    exact = frame[["exact"]].dropna().head(1)
    rule = alt.Chart(exact).mark_rule(strokeDash=[2, 2]).encode(y=alt.Y("exact:Q", **y))
    layers = [*([limits] if len(ends) else []), rule, line, marks]
    return alt.layer(*layers).properties(height=height, description=_words(result, statistic))


def _scale(points: list[ConvergencePoint]) -> alt.Scale:
    """Return a scale that holds all estimates and intervals, and the band of the later half of looks.

    The band of the first looks is several times as wide, and would press the rest flat.
    """
    pairs = [p.interval for p in points] + [p.band for p in points[len(points) // 2 :]]
    values = [value for pair in pairs if pair is not None for value in pair]
    if not values:
        return alt.Scale(zero=False)
    return alt.Scale(domain=[min(values), max(values)], nice=True, zero=False)


def convergence_frames(points: list[ConvergencePoint]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a row for each look, and a row for each end of an interval or band there."""
    rows = [
        {
            "pairs": p.n,
            "estimate": p.estimate,
            "measured": plus_minus(p.estimate, p.standard_error),
            "interval": interval_text(*p.interval) if p.interval else "none",
            "band": interval_text(*p.band) if p.band else "none",
            "exact": p.exact,
        }
        for p in points
    ]
    ends = [
        {"pairs": p.n, "valid": valid, "side": side, "value": value}
        for p in points
        for valid, pair in zip(BANDS, (p.band, p.interval), strict=True)
        if pair is not None
        for side, value in zip(("low", "high"), pair, strict=True)
    ]
    return pd.DataFrame(rows), pd.DataFrame(ends)


def outside(points: list[ConvergencePoint]) -> tuple[int, int]:
    """Return at how many looks the exact value lay outside the band, and outside the interval."""
    pairs = [(p.exact, pair) for p in points for pair in (p.band, p.interval)]
    missed = [exact is not None and pair is not None and not pair[0] <= exact <= pair[1] for exact, pair in pairs]
    return sum(missed[0::2]), sum(missed[1::2])


def _words(result: ConvergenceResult, statistic: str) -> str:
    points = result.select(statistic)
    first, last = points[0], points[-1]
    told = (
        f"The {statistic} of q·k at d_k = {result.model.d_k} against the pairs so far: "
        f"{plus_minus(first.estimate, first.standard_error)} after {first.n:,}, "
        f"{plus_minus(last.estimate, last.standard_error)} after {last.n:,}."
    )
    if last.band is None or last.interval is None:
        return f"{told} This law leaves it without an error bar."
    band, interval = outside(points)
    return (
        f"{told} In the end the interval for a number of pairs fixed beforehand is {interval_text(*last.interval)}, "
        f"the band for all looks together {interval_text(*last.band)}. Of {len(points)} looks, the exact value lay "
        f"outside the band at {band} and outside the interval at {interval}."
    )
