"""Charts of diagnosed heads: one head's logits, where the variance comes from, attention weights before and after.

Every builder is pure: records and arrays in, an Altair chart out, with the numbers told in words in
its `description`. Needs the optional packages altair and pandas.
"""

import dataclasses
import math
from collections.abc import Sequence

import altair as alt
import numpy as np
import numpy.typing as npt
import pandas as pd

from simulation.charts import Layered
from simulation.diagnosis import HeadDiagnosis
from simulation.diagnosis_text import label
from simulation.formatting import significant
from simulation.histograms import Histogram
from simulation.theory import DotProductLaw

PARTS = {
    "footnote": ("entries", "the footnote's own term, d_k v_q v_k", "#0072B2", "white"),
    "unequal_channels": ("unequal", "channels of unequal variance", "#56B4E9", "black"),
    "correlated_channels": ("correlated", "correlation between channels", "#E69F00", "black"),
    "query_mean": ("query mean", "the mean of the queries", "#33B38C", "black"),
    "key_mean": ("key mean", "the mean of the keys, unseen by softmax", "#B0B0B0", "black"),
}
STAGES = ("before scaling", "after scaling")
MAX_COMPARED = 6
_CURVE_POINTS = 241
_NARROW = 260  # pixels of a bar on a phone, where a character takes some six
_AROUND = 170  # pixels that legend and axis take


def logit_chart(head: HeadDiagnosis, histogram: Histogram, *, height: int = 280) -> Layered:
    """Return one head's logits as a histogram, with the law that the footnote's assumption implies."""
    share = histogram.counts / histogram.n
    density = histogram.density()
    low, high = histogram.edges[:-1], histogram.edges[1:]
    bars = pd.DataFrame({"low": low, "high": high, "density": density, "share": share})
    curve = law_frame(head, histogram)
    top = 1.1 * max(float(density.max()), min(float(curve["density"].max()), 3 * float(density.max())))
    x = alt.X("low:Q", title="logit q·k, before scaling", scale=alt.Scale(nice=False), axis=alt.Axis(tickCount=6))
    y = alt.Y("density:Q", title="probability density")
    y = y.scale(domain=[0, top])
    names = ["measured", "what the footnote implies"]
    colour = alt.Color("name:N", scale=alt.Scale(domain=names, range=["#D55E00", "currentColor"]), title=None)
    dash = alt.StrokeDash("name:N", scale=alt.Scale(domain=names, range=[[1, 0], [6, 3]]), title=None)
    key = alt.Legend(orient="top", symbolType="stroke", symbolStrokeWidth=3, symbolSize=400)
    bars["name"], curve["name"] = names
    steps = (
        alt.Chart(bars)
        .mark_bar(opacity=0.6, clip=True)
        .encode(
            x=x,
            x2="high:Q",
            y=y,
            y2=alt.Y2Datum(0),
            color=colour.legend(key),
            tooltip=[
                alt.Tooltip("low:Q", format=".3g", title="from"),
                alt.Tooltip("high:Q", format=".3g", title="to"),
                alt.Tooltip("share:Q", format=".3%", title="share of logits"),
            ],
        )
    )
    line = alt.Chart(curve).mark_line(clip=True, strokeWidth=2)
    return alt.layer(steps, line.encode(x=x, y=y, color=colour.legend(key), strokeDash=dash.legend(key))).properties(
        height=height, description=_logit_words(head)
    )


def law_frame(head: HeadDiagnosis, histogram: Histogram) -> pd.DataFrame:
    """Return the density of q·k at this d_k under the footnote's assumption, for normal entries."""
    reach = 5 * math.sqrt(head.d_k)
    wide = np.linspace(histogram.edges[0], histogram.edges[-1], _CURVE_POINTS)
    near = np.linspace(-reach, reach, _CURVE_POINTS - 1)  # none at 0, where d_k = 1 has a pole
    points = np.unique(np.concatenate([near, wide[np.abs(wide) > reach]]))
    return pd.DataFrame({"low": points, "density": DotProductLaw(head.d_k).pdf(points)})


def _logit_words(head: HeadDiagnosis) -> str:
    return (
        f"Histogram of the logits of head {label(head)}: mean {significant(head.mean, 3)} and variance "
        f"{significant(head.variance, 3)}, {significant(head.variance_over_d_k, 3)} times d_k; the footnote implies "
        f"mean 0 and variance {head.d_k:,}, drawn as a line."
    )


def decomposition_chart(heads: Sequence[HeadDiagnosis], *, share: bool = False) -> Layered:
    """Return where the variance of one or several heads comes from, a stacked bar for each.

    Parts in units of d_k, with a line at 1 where the footnote puts all of it; with `share`, in
    percent of each head's variance. Parts below 0 are drawn to the left.
    """
    frame = part_frame(heads, share=share)
    order = [name for name, *_ in PARTS.values()]
    colours = alt.Scale(domain=order, range=[colour for _, _, colour, _ in PARTS.values()])
    title = "share of the head's variance (%)" if share else "part of the variance of q·k, in units of d_k"
    y = alt.Y("head:N", sort=None, title="head" if heads[1:] else None, axis=alt.Axis(labels=bool(heads[1:])))
    ends = frame["end"]
    scale = alt.Scale(domain=[min(0.0, float(ends.min())), max(float(ends.max()), 0.0 if share else 1.02)], nice=False)
    x = alt.X("start:Q", title=title, scale=scale, axis=alt.Axis(tickCount=6))
    legend = alt.Legend(orient="top", columns=3, symbolType="square", symbolSize=150)
    bars = (
        alt.Chart(frame)
        .mark_bar(stroke="white", strokeWidth=1)
        .encode(
            x=x,
            x2="end:Q",
            y=y,
            color=alt.Color("part:N", scale=colours, title=None, legend=legend),
            tooltip=["head:N", alt.Tooltip("words:N", title="part"), "in_d_k:N", "percent:N"],
        )
    )
    ink = {name: colour for name, _, _, colour in PARTS.values()}
    text = alt.Chart(frame[frame["written"] != ""]).mark_text(fontSize=11)
    inks = alt.Color("part:N", scale=alt.Scale(domain=order, range=list(ink.values())), legend=None)
    written = text.encode(x="middle:Q", y=y, text="written:N", color=inks)
    layers = [bars, written]
    if not share:
        expected = alt.Chart(pd.DataFrame({"start": [1.0]})).mark_rule(
            color="currentColor", strokeDash=[5, 3], strokeWidth=2
        )
        layers.append(expected.encode(x=x))
    layered: alt.LayerChart = alt.layer(*layers).resolve_scale(color="independent")
    return layered.properties(height=_AROUND + 50 * len(heads), description=_part_words(heads))


def part_frame(heads: Sequence[HeadDiagnosis], *, share: bool) -> pd.DataFrame:
    """Return a row for each head and part: from where to where it is drawn, and what is written into it."""
    records = []
    for head in heads:
        unit = (head.variance / 100 if share else head.d_k) or 1.0
        right = left = 0.0
        for name, value in dataclasses.asdict(head.parts).items():
            short, words, _, _ = PARTS[name]
            start, size = (right, value / unit) if value >= 0 else (left, value / unit)
            right, left = (start + size, left) if value >= 0 else (right, start + size)
            percent = f"{100 * value / head.variance:.0f} %" if head.variance else "0 %"
            records.append(
                {
                    "head": label(head),
                    "part": short,
                    "words": words,
                    "in_d_k": f"{significant(value / head.d_k, 3)} d_k",
                    "percent": percent,
                    "start": start,
                    "end": start + size,
                    "middle": start + size / 2,
                    "wide": abs(size),
                }
            )
    frame = pd.DataFrame(records)
    span = float(frame["end"].max() - min(frame["end"].min(), 0.0)) or 1.0
    room = frame["wide"] / span * _NARROW
    named = frame["part"] + " " + frame["percent"]
    frame["written"] = np.select([room > 6.2 * named.str.len(), room > 27], [named, frame["percent"]], "")
    return frame


def _part_words(heads: Sequence[HeadDiagnosis]) -> str:
    told = [
        f"head {label(head)}, {significant(head.variance_over_d_k, 3)} d_k: "
        + ", ".join(
            f"{PARTS[name][0]} {significant(value / head.d_k, 3)}"
            for name, value in dataclasses.asdict(head.parts).items()
        )
        for head in heads
    ]
    return f"Parts of the variance of q·k in units of d_k. {'; '.join(told)}."


def attention_chart(
    weights: npt.NDArray[np.float64], keys: Sequence[str], *, query: str, most: int = 7, height: int = 400
) -> Layered:
    """Return the largest attention weights of one query before and after scaling, and all others together.

    Parameters
    ----------
    weights : ndarray, shape (2, n)
        Before and after scaling.
    keys : sequence of str
        A name for each key, no two alike.
    query : str
        Name of the query, for the description.
    most : int
        Keys named.
    """
    frame = attention_frame(weights, keys, most)
    domain = list(STAGES)
    base = alt.Chart(frame).encode(
        y=alt.Y("key:N", sort=None, title=None, axis=alt.Axis(labelLimit=110)),
        yOffset=alt.YOffset("stage:N", scale=alt.Scale(domain=domain)),
        x=alt.X("weight:Q", title="attention weight", scale=alt.Scale(domain=[0, 1.15])),
        tooltip=["key:N", "stage:N", alt.Tooltip("text:N", title="weight")],
    )
    colour = alt.Color(
        "stage:N", scale=alt.Scale(domain=domain), title=None, legend=alt.Legend(orient="top", columns=1)
    )
    bars = base.mark_bar().encode(color=colour)
    text = base.mark_text(align="left", dx=3, fontSize=10, color="currentColor").encode(text="text:N")
    words = "; ".join(f"{row.key}, {row.stage}: {row.text}" for row in frame.itertuples())
    return alt.layer(bars, text).properties(height=height, description=f"Attention weights of {query}. {words}.")


def attention_frame(weights: npt.NDArray[np.float64], keys: Sequence[str], most: int) -> pd.DataFrame:
    """Return a row for each of the largest keys and each stage, largest after scaling first, then the others."""
    n = len(keys)
    named = np.argsort(-weights[1], kind="stable")[: min(most, n)]
    records = [
        {"key": keys[place], "stage": stage, "weight": float(weights[i, place])}
        for place in named
        for i, stage in enumerate(STAGES)
    ]
    if n > len(named):
        rest = np.delete(weights, named, axis=1).sum(axis=1)
        name = f"the other {n - len(named):,}"
        records += [{"key": name, "stage": stage, "weight": float(rest[i])} for i, stage in enumerate(STAGES)]
    frame = pd.DataFrame(records)
    frame["text"] = ["0" if w == 0 else f"{w:.3f}" if w >= 5e-4 else f"{w:.0e}" for w in frame["weight"]]
    return frame
