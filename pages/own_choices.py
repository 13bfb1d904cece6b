"""What a visitor says of their own files: which arrays, axes, heads, which scale, and what to leave out.

Out: the `Source` that the page "Your q and k" measures, or one clear sentence.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import streamlit as st

from pages import common
from pages.own_files import MAX_BYTES, Own, Source, escaped, listed
from simulation.qk_arrays import QueriesKeys
from simulation.qk_files import Choices, read_qk

MAX_TOKENS = 1024
MAX_LOGITS = 32_000_000  # over all heads: some 20 s on one core
MAX_HEADS = 1024
MAX_CHANNELS = 131_072  # heads times d_k: what is kept of each channel

KINDS = ("two arrays", "one fused array")
LAYOUTS = {"blocks [Q | K | V]": "blocks", "interleaved, head by head": "interleaved"}
PARTS = {"q, k and v": 3, "q and k": 2}
SCALES = ("as the file says, else 1/√d_k", "1/√d_k", "1/d_k", "nothing", "own number")
HEADERS = {"as it looks": "auto", "names of columns": "yes", "numbers": "no"}
INDICES = {"left out if it only numbers rows": "auto", "kept": "keep", "left out": "drop"}


def draw_own_source(mine: Own) -> Source | None:
    """Draw what the visitor says of their files and return q and k, or say in one sentence what is wrong."""
    try:
        choices = draw_choices(mine)
        if choices is None:
            return None
        names, sources = [name for name, _ in mine.files], [data for _, data in mine.files]
        with st.spinner("Reading"):
            data = mine.once(
                ("arrays", choices),
                lambda: read_qk(*sources, names=names, choices=choices, max_bytes=MAX_BYTES),
            )
        if data.non_finite and not draw_non_finite(mine, data):
            return None
        scale, causal = draw_model(mine, data)
        whole = data.finite() if data.non_finite else data
        used = whole.thinned(most_tokens(whole))
    except ValueError as why:
        st.error(escaped(str(why)))
        return None
    say_how_read(used)
    choices = replace(choices, drop_non_finite=bool(data.non_finite))
    thin = "" if used is whole else f".thinned({most_tokens(whole)})"
    return Source(
        name=escaped(" and ".join(names)),
        data=used,
        scale=scale,
        causal=causal,
        key=(mine.upload, choices, scale, causal),
        shelf=mine.shelf,
        code=_code(names, choices, thin, scale, causal),
    )


def most_tokens(data: QueriesKeys) -> int:
    """Return how many tokens of each head are used, or raise ValueError if there are too many heads."""
    *lead, tokens, d_k = data.q.shape
    heads = int(np.prod(lead, dtype=np.int64))
    if heads > MAX_HEADS or heads * d_k > MAX_CHANNELS:
        raise ValueError(
            f"This shared server takes at most {MAX_HEADS:,} heads and {MAX_CHANNELS:,} channels (heads times d_k); "
            f"received {heads:,} heads of d_k = {d_k:,}. Export fewer layers, or use the command "
            f"`python -m simulation diagnose`, which has no such limit."
        )
    widest = max(tokens, data.k.shape[-2])
    return min(widest, MAX_TOKENS, int((MAX_LOGITS / heads) ** 0.5))


def draw_choices(mine: Own) -> Choices | None:
    """Draw which arrays are q and k, and which of their axes are tokens and d_k."""
    table = draw_table(mine) if any(name.lower().endswith((".csv", ".tsv", ".txt")) for name, _ in mine.files) else {}
    offer = mine.once(("offer", tuple(table.items())), lambda: listed(mine.files, Choices(**table)))
    names = [found.name for found in offer.arrays]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        kind = st.segmented_control(
            "q and k are", KINDS, required=True, **mine.control("kind", KINDS[offer.fused is not None])
        )
        if kind == KINDS[0]:
            q, k = offer.pair or (None, None)
            q = st.selectbox("q", names, placeholder="choose", **mine.control("q", q, names))
            k = st.selectbox("k", names, placeholder="choose", **mine.control("k", k, names))
            named = {"q": q, "k": k}
        else:
            named = draw_fused(mine, names, offer.fused or names[0])
    if None in named.values():
        more = "" if len(names) > 1 else " Add the file with the other one, or say that this one is fused."
        st.info(escaped(f"Say which array is q and which is k: {offer.reason}.{more}"), icon=":material/help:")
        return None
    axes = draw_axes(mine, offer.named(named["q"]).header.shape, fused="layout" in named)
    told = offer.pair == tuple(named.values())
    return Choices(**({} if told else named), **table, **axes)


def draw_fused(mine: Own, names: Sequence[str], likely: str) -> dict[str, Any]:
    """Draw how one array holds q and k side by side."""
    name = st.selectbox("Array", names, **mine.control("fused", likely, names))
    parts = st.segmented_control("It holds", list(PARTS), required=True, **mine.control("parts", "q, k and v"))
    layout = st.segmented_control(
        "Laid out as", list(LAYOUTS), required=True, **mine.control("layout", next(iter(LAYOUTS)))
    )
    heads = st.number_input("Heads", 1, 100_000, step=1, **mine.control("fused heads", 12))
    return {"q": name, "parts": PARTS[parts], "layout": LAYOUTS[layout], "heads": heads}


def draw_axes(mine: Own, shape: tuple[int, ...], *, fused: bool) -> dict[str, Any]:
    """Draw which axis is d_k and which counts tokens; with two axes there may be heads side by side."""
    last = len(shape) - 1
    named = [f"axis {place} ({size:,})" for place, size in enumerate(shape)]
    before = "the one before"
    with st.container(horizontal=True, vertical_alignment="bottom"):
        width = "Axis of the fused projection" if fused else "Axis of d_k"
        auto = "the last"
        axis = st.selectbox(width, [auto, *named], **mine.control("axis", auto, [auto, *named]))
        tokens = st.selectbox(
            "Axis of tokens", [before, *named], **mine.control("token axis", before, [before, *named])
        )
        heads = 1
        if not fused:
            heads = st.number_input(
                "Heads side by side in q",
                1,
                100_000,
                step=1,
                help="For a projection (tokens, heads · d_k) that was not cut into heads.",
                **mine.control("heads", 1),
            )
    said: dict[str, Any] = {}
    if axis in named:
        said["axis"] = named.index(axis)
    if tokens in named:
        said["token_axis"] = named.index(tokens)
    return said | ({"heads": heads} if heads > 1 and last > 0 else {})


def draw_table(mine: Own) -> dict[str, Any]:
    """Draw how a table of text is to be read."""
    with st.container(horizontal=True):
        header = st.selectbox("First line of the table", list(HEADERS), **mine.control("header", "as it looks"))
        index = st.selectbox(
            "A first column of row numbers is", list(INDICES), **mine.control("index", next(iter(INDICES)))
        )
    return {"header": HEADERS[header], "index_column": INDICES[index]}


def draw_model(mine: Own, data: QueriesKeys) -> tuple[float | None, bool]:
    """Draw the scale that the model puts on q·k and whether it masks later tokens."""
    d_k = data.q.shape[-1]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox("The model multiplies q·k by", SCALES, **mine.control("scale", SCALES[0]))
        number = 1.0
        if chosen == SCALES[-1]:
            number = st.number_input("Factor on q·k", 1e-6, 1e6, format="%g", **mine.control("factor", d_k**-0.5))
        causal = st.toggle("Each token sees only those before it (causal)", **mine.control("causal", False))
    scales = (data.scale, None, 1 / d_k, 1.0, number)
    return dict(zip(SCALES, scales, strict=True))[chosen], causal


def draw_non_finite(mine: Own, data: QueriesKeys) -> bool:
    """Say which entries are not finite, and return whether their tokens are to be left out."""
    st.error(escaped(data.non_finite))
    return st.toggle("Leave out the tokens with these entries, in all heads", **mine.control("drop", False))


def say_how_read(data: QueriesKeys) -> None:
    """Say what only the visitor can know, and all that was assumed."""
    for doubt in data.doubts:
        st.warning(escaped(_sentence(doubt)), icon=":material/help:")
    st.caption("How the file was read:  \n" + "  \n".join(f"• {escaped(note)}" for note in data.notes))


def _sentence(note: str) -> str:
    return note[:1].upper() + note[1:].rstrip(".") + "."


def _code(names: Sequence[str], choices: Choices, thin: str, scale: float | None, causal: bool) -> str:
    default = Choices()
    said = ", ".join(f"{name}={value!r}" for name, value in vars(choices).items() if value != getattr(default, name))
    files = ", ".join(repr(name) for name in names)
    factor = "" if scale is None else f", scale={scale!r}"
    return (
        "from simulation import diagnose\nfrom simulation.qk_files import Choices, read_qk\n\n"
        f"data = read_qk({files}, choices=Choices({said})){thin}\n"
        f"result = diagnose(data.q, data.k{factor}, **data.arguments({'causal=True' if causal else ''}))"
    )


if __name__ == "__main__":  # Streamlit may open any file of pages/ as a page
    common.through_router()
