"""Charts of a row of logits: its attention weights, its Jacobian, and both against a multiplier.

Every builder is pure: logits in, an Altair chart out, with the numbers told in words in its
`description`. All numbers are exact to rounding. Needs the optional packages altair and pandas.
"""

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd

from simulation.formatting import significant
from simulation.softmax import jacobian_sizes, softmax, softmax_jacobian

Layered = alt.LayerChart | alt.FacetChart  # what `properties` of a layered chart returns
SIZES = {
    "trace": "trace",
    "frobenius": "Frobenius norm",
    "spectral_norm": "spectral norm",
    "largest_entry": "largest entry",
}
_MULTIPLIERS = (10 ** np.linspace(-1, 2, 121)).tolist()
_ANNOTATED = 8  # rows up to which values are written into the chart


def weights_chart(logits: Sequence[float], *, height: int = 260) -> Layered:
    """Return the attention weights of a few logits as bars, with their values written above."""
    weights = softmax(logits)
    frame = pd.DataFrame(
        {
            "key": [str(place) for place in range(1, len(weights) + 1)],
            "logit": list(logits),
            "weight": weights,
            "label": [significant(float(weight)) for weight in weights],
        }
    )
    base = alt.Chart(frame).encode(
        x=alt.X("key:N", sort=None, title="key", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("weight:Q", title="attention weight (exact)", scale=alt.Scale(domain=[0, 1.08])),
        tooltip=["key:N", "logit:Q", alt.Tooltip("label:N", title="weight")],
    )
    words = "Attention weights: " + "; ".join(f"key {row.key}: {row.label}" for row in frame.itertuples()) + "."
    layers = [base.mark_bar()]
    if len(frame) <= _ANNOTATED:
        layers.append(base.mark_text(dy=-8).encode(text="label:N"))
    return alt.layer(*layers).properties(height=height, description=words)


def jacobian_chart(logits: Sequence[float], *, height: int = 260) -> Layered:
    """Return the softmax Jacobian as a heat map, annotated when it has at most eight rows."""
    jacobian = softmax_jacobian(logits)
    n = len(jacobian)
    rows, columns = np.divmod(np.arange(n * n), n)
    values = jacobian.ravel()
    top = float(np.abs(values).max())
    frame = pd.DataFrame(
        {
            "row": (rows + 1).astype(str),
            "column": (columns + 1).astype(str),
            "share": values / top if top else values,
            "label": [significant(float(value), 3) for value in values],
        }
    )
    base = alt.Chart(frame).encode(
        x=alt.X("column:N", sort=None, title="logit j", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("row:N", sort=None, title="weight i"),
        tooltip=["row:N", "column:N", alt.Tooltip("label:N", title="∂y_i/∂x_j")],
    )
    colour = alt.Color(
        "share:Q", scale=alt.Scale(scheme="blueorange", domain=[-1, 1]), title="share of the largest entry"
    )
    layers = [base.mark_rect().encode(color=colour.legend(None if n <= _ANNOTATED else alt.Legend(orient="bottom")))]
    if n <= _ANNOTATED:
        ink = alt.condition("abs(datum.share) > 0.6", alt.value("white"), alt.value("black"))
        layers.append(base.mark_text(fontSize=12 if n <= 5 else 9).encode(text="label:N", color=ink))
    words = f"Softmax Jacobian, {n} by {n}, largest entry {significant(top)}; rows: " + " | ".join(
        ", ".join(significant(float(v), 3) for v in row) for row in jacobian[:8]
    )
    return alt.layer(*layers).properties(height=height, description=words)


def multiplier_frame(logits: Sequence[float], multipliers: Sequence[float]) -> pd.DataFrame:
    """Return the largest weight and the sizes of the Jacobian of multiplier * logits, tidy."""
    rows = np.outer(multipliers, logits)
    sizes = jacobian_sizes(rows)
    parts = [
        pd.DataFrame({"multiplier": multipliers, "quantity": label, "value": getattr(sizes, name)})
        for name, label in {"largest_weight": "largest weight", **SIZES}.items()
    ]
    return pd.concat(parts, ignore_index=True)


def largest_weight_chart(logits: Sequence[float], current: float, *, height: int = 200) -> Layered:
    """Return the largest attention weight against a multiplier on the logits, `current` marked."""
    line = multiplier_frame(logits, _MULTIPLIERS)
    here = multiplier_frame(logits, [current])
    line, here = (frame[frame["quantity"] == "largest weight"] for frame in (line, here))
    y = alt.Y("value:Q", title="largest weight", scale=alt.Scale(domain=[0, 1]))
    words = f"Largest attention weight: {significant(float(here['value'].iloc[0]), 6)} at multiplier {current:g}."
    return _against_multiplier(line, here, y).properties(height=height, description=words)


def gradient_sizes_chart(logits: Sequence[float], current: float, *, height: int = 260) -> Layered:
    """Return the sizes of the Jacobian against a multiplier, on log axes, `current` marked.

    Sizes below the smallest double, about 1e-308, are left out: a log axis has no place for 0.
    """
    line = multiplier_frame(logits, _MULTIPLIERS)
    here = multiplier_frame(logits, [current])
    line, here = (frame[(frame["quantity"] != "largest weight") & (frame["value"] > 0)] for frame in (line, here))
    lowest = min(1e-6, float(here["value"].min()) / 100) if len(here) else 1e-308
    scale = alt.Scale(type="log", domain=[max(lowest, 1e-308), 1], nice=False)
    y = alt.Y("value:Q", title="size of the Jacobian", scale=scale, axis=alt.Axis(format=".0e", tickCount=6))
    told = "; ".join(
        f"{name} {significant(value)}" for name, value in zip(here["quantity"], here["value"], strict=True)
    )
    words = f"Sizes of the softmax Jacobian at multiplier {current:g}: {told or 'all below 1e-308'}."
    return _against_multiplier(line, here, y).properties(height=height, description=words)


def _against_multiplier(line: pd.DataFrame, here: pd.DataFrame, y: alt.Y) -> Layered:
    x = alt.X("multiplier:Q", title="multiplier on the logits", scale=alt.Scale(type="log", domain=[0.1, 100]))
    names = [name for name in SIZES.values() if name in set(line["quantity"])]
    key = alt.Legend(orient="top", columns=2, symbolType="stroke", symbolStrokeWidth=3, symbolSize=400)
    colour = alt.Color("quantity:N", scale=alt.Scale(domain=names), title=None, legend=key)
    dashes = alt.Scale(domain=names, range=[[1, 0], [8, 3], [3, 3], [8, 2, 2, 2]])
    dash = alt.StrokeDash("quantity:N", scale=dashes, title=None, legend=key)
    curve = alt.Chart(line).mark_line(strokeWidth=2, clip=True).encode(x=x, y=y)
    if names:
        curve = curve.encode(color=colour, strokeDash=dash)
    marker = alt.Chart(here[:1]).mark_rule(strokeDash=[3, 3]).encode(x=x)
    tooltip = ["quantity:N", alt.Tooltip("multiplier:Q", format=".3g"), alt.Tooltip("value:Q", format=".4g")]
    dots = alt.Chart(here).mark_point(size=60, filled=True, opacity=1).encode(x=x, y=y, tooltip=tooltip)
    return alt.layer(curve, marker, dots)
