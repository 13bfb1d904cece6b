"""The map of all heads: the last axis across, those before it down, one quantity in numbers and colour.

In: a `Diagnosis`. Out: an Altair chart with the numbers told in words in its `description`. Needs the
optional packages altair and pandas.
"""

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import altair as alt
import pandas as pd

from simulation.charts import Layered
from simulation.diagnosis import Diagnosis
from simulation.diagnosis_text import label
from simulation.formatting import significant

WRAP = 16  # heads in a line, where they have one axis only
_WRITTEN_COLUMNS = 16  # columns up to which cells hold their numbers
_WRITTEN_ROWS = 40
_AROUND = 170  # pixels that legend and axis take


class Quantity(NamedTuple):
    """A quantity of the map: its name, what it is relative to, and whether 1 is the ideal or the most."""

    title: str
    ideal: bool
    reach: float  # decades of colour on either side of the ideal


OVERVIEW = {
    "variance": Quantity("variance of q·k over d_k", True, 1.5),
    "spread": Quantity("standard deviation of scaled logits in a row", True, 1.0),
    "entropy": Quantity("entropy of the attention weights, in nats", False, 1.0),
}


def overview_chart(
    result: Diagnosis, quantity: str, *, chosen: str = "", axes: Sequence[str] = (), select: str | None = None
) -> Layered:
    """Return the map of all heads: the last axis across, those before it down, numbers in the cells.

    Parameters
    ----------
    result : Diagnosis
    quantity : str
        One of `OVERVIEW`.
    chosen : str
        Label of the head to frame.
    axes : sequence of str
        Names of the leading axes, such as ("layer", "head").
    select : str, optional
        Name of a selection by click, with the field "head".
    """
    frame = overview_frame(result, quantity)
    what = OVERVIEW[quantity]
    names = list(axes) if len(axes) == len(result.shape) else [f"axis {i}" for i in range(len(result.shape))]
    rows = frame["row"].nunique()
    step = 30 if rows <= 20 else max(8, 600 // rows)
    base = alt.Chart(frame).encode(
        x=alt.X("column:N", sort=None, title=names[-1] if names else None, axis=alt.Axis(labelAngle=0)),
        y=alt.Y("row:N", sort=None, title=", ".join(names[:-1]) or None),
        tooltip=[
            "head:N",
            alt.Tooltip("variance:N", title="Var[q·k]/d_k"),
            alt.Tooltip("spread:N", title="scaled row s.d."),
            alt.Tooltip("entropy:N"),
            alt.Tooltip("largest_weight:N", title="mean largest weight"),
        ],
    )
    heat = base.mark_rect().encode(color=_heat_colour(what, float(frame["shade"].max())))
    if select:
        heat = heat.add_params(alt.selection_point(name=select, fields=["head"], toggle=False))
    layers: list[alt.Chart] = [heat]
    if frame["column"].nunique() <= _WRITTEN_COLUMNS and rows <= _WRITTEN_ROWS:
        ink = alt.condition("datum.dark", alt.value("white"), alt.value("black"))
        layers.append(base.mark_text(fontSize=11).encode(text="text:N", color=ink))
    framed = alt.Chart(frame[frame["head"] == chosen]).encode(
        x=alt.X("column:N", sort=None), y=alt.Y("row:N", sort=None)
    )
    for colour, width in (("black", 5), ("white", 2)):  # seen on every colour, in light and dark
        layers.append(framed.mark_rect(filled=False, stroke=colour, strokeWidth=width))
    return alt.layer(*layers).properties(height=step * rows + _AROUND, description=_overview_words(frame, what))


def overview_frame(result: Diagnosis, quantity: str) -> pd.DataFrame:
    """Return a row for each head: its place, its numbers as text, and how dark its cell is."""
    what = OVERVIEW[quantity]
    records = []
    for cell, head in zip(cells(result), result.heads, strict=True):
        own = head.softmax.own
        values = {"variance": head.variance_over_d_k, "spread": math.sqrt(own.row_variance), "entropy": own.entropy}
        shade = _decades(values[quantity], what.reach) if what.ideal else own.entropy / max(head.entropy_limit, 1e-300)
        texts = {name: significant(value, 3) for name, value in values.items()}
        records.append(
            {
                **cell._asdict(),
                "value": values[quantity],
                "text": _short(values[quantity]),
                "shade": shade,
                "dark": abs(shade) > (0.85 * what.reach if what.ideal else 0.7),
                **texts,
                "largest_weight": significant(own.largest_weight, 3),
            }
        )
    return pd.DataFrame(records)


def _decades(value: float, reach: float) -> float:
    return min(max(math.log10(value), -reach), reach) if value > 0 else -reach


def _short(value: float) -> str:
    """Return two digits or three, which fit a cell on a phone.

    Examples
    --------
    >>> [_short(value) for value in (0, 0.0063, 0.287, 9.86, 22.39, 175.2, 123456.0)]
    ['0', '<.01', '0.29', '9.9', '22.4', '175', '1e+05']
    """
    if 0 < value < 0.01:
        return "<.01"
    if value >= 10_000:
        return f"{value:.0e}"
    return significant(value, 2 if value < 10 else 3)


def _heat_colour(what: Quantity, top: float) -> alt.Color:
    if not what.ideal:
        scale = alt.Scale(scheme="blues", domain=[0, max(1.0, top)])
        expression, values, title = "format(datum.value, '.0%')", [0, 0.5, 1], "share of the most possible"
    else:
        scale = alt.Scale(scheme="blueorange", domain=[-what.reach, 0, what.reach])
        expression, title = "format(pow(10, datum.value), '~g')", "blue below 1, orange above"
        values = [-1, -0.301, 0, 0.301, 1]
    legend = alt.Legend(
        orient="top", direction="horizontal", gradientLength=220, values=values, labelExpr=expression, title=title
    )
    return alt.Color("shade:Q", scale=scale, legend=legend)


def _overview_words(frame: pd.DataFrame, what: Quantity) -> str:
    values, heads = [float(value) for value in frame["value"]], list(frame["head"])
    low, high = values.index(min(values)), values.index(max(values))
    return (
        f"Map of {len(values):,} heads by {what.title}: from {significant(values[low], 3)} in head {heads[low]} to "
        f"{significant(values[high], 3)} in head {heads[high]}, median {significant(median(values), 3)}."
    )


class Cell(NamedTuple):
    """Where a head goes on the map."""

    row: str
    column: str
    head: str


def cells(result: Diagnosis) -> list[Cell]:
    """Return the place of each head: the last axis across, the axes before it down.

    Heads on one axis only are wrapped after sixteen.

    Examples
    --------
    >>> from simulation.measured import diagnose
    >>> q = [[[[0.0]]], [[[0.0]]]]  # two axes before the tokens
    >>> cells(diagnose(q, q))[1]
    Cell(row='1', column='0', head='1, 0')
    """
    wrapped = len(result.shape) == 1 and result.shape[0] > WRAP
    found = []
    for head in result.heads:
        *lead, last = head.index or (0,)
        row, column = ", ".join(map(str, lead)), str(last)
        if wrapped:
            start = last - last % WRAP
            row, column = f"{start}–{min(start + WRAP, result.shape[0]) - 1}", f"+{last - start}"
        found.append(Cell(row, column, label(head)))
    return found
