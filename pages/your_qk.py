"""Page: which of the footnote's assumptions fails in a real model, in which head, and what softmax makes of it."""

import math
from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import streamlit as st

from pages import common, own_files
from pages.one_head import show_head
from pages.own_choices import draw_own_source
from pages.own_files import Source, escaped
from simulation.diagnosis import Diagnosis, HeadDiagnosis
from simulation.diagnosis_charts import MAX_COMPARED, PARTS, decomposition_chart
from simulation.diagnosis_map import OVERVIEW, overview_chart
from simulation.diagnosis_overview import overview_sentences
from simulation.diagnosis_text import label, root, variance_text
from simulation.example_data import load_example
from simulation.formatting import significant
from simulation.measured import diagnose
from simulation.qk_arrays import QueriesKeys

common.through_router()

EXAMPLE = "all-MiniLM-L6-v2"
QUANTITY = common.Setting("quantity", "variance", common.option(list(OVERVIEW)))


def main() -> None:
    """Draw the page, top to bottom."""
    st.title("Your q and k")
    st.markdown(
        "A footnote of *Attention Is All You Need* assumes that the components of $q$ and $k$ are independent with mean 0 and "
        "variance 1. Are they, in a trained model? Here all logits $q\\cdot k$ of every head are measured: how large their variance is, where it comes "
        "from, and what softmax makes of it."
    )
    mine = own_files.own()
    with st.expander("Put in q and k of your own model", icon=":material/upload_file:", expanded=bool(mine.files)):
        own_files.draw_upload(mine)
        source = draw_own_source(mine) if mine.files else example_source()
    if source is None or (result := measured(source)) is None:
        return
    heads = {label(head): head for head in result.heads}
    typical = label(result.by_distance[len(heads) // 2])
    chosen = common.Setting("head", typical, place_of(heads))
    settings = () if mine.files else (QUANTITY, chosen)
    bound = common.bind_settings(settings or (QUANTITY,))
    say(result, source)
    picked = choose_head(result, source, chosen, bound, mine) if len(heads) > 1 else next(iter(heads))
    show_head(heads[picked], source, result)
    if len(heads) > 1:
        compare(heads, picked, source, result)
        show_all(result)
    st.caption("  \n".join(f"• {escaped(note)}" for note in result.notes))
    noted = replace(result, notes=(*source.data.doubts, *source.data.notes, *result.notes))
    common.hand_over("diagnosis", result.to_frame, noted.to_json, source.code, settings)


def example_source() -> Source:
    """Return the example that comes with the package, whose model divides by √d_k and masks nothing."""
    example = load_example()
    tokens = tuple(f"{place} {token}" for place, token in enumerate(example["tokens"]))
    code = (
        "from simulation import diagnose, load_example\n\n"
        'example = load_example()\nresult = diagnose(example["q"], example["k"], scale=32**-0.5)'
    )
    data = QueriesKeys.of(example["q"], example["k"])
    return Source(EXAMPLE, data, 32**-0.5, False, "example", None, code, tokens, ("layer", "head"))


def place_of(heads: dict[str, HeadDiagnosis]) -> Callable[[str], str]:
    """Return a check for the name of a head."""

    def check(text: str) -> str:
        if text not in heads:
            raise ValueError(f"the place of a head, from {next(iter(heads))} to {list(heads)[-1]}")
        return text

    return check


def measured(source: Source) -> Diagnosis | None:
    """Return the diagnosis of all heads, stored or measured now; None if stopped, or if a sentence says why not."""
    data = source.data
    heads = math.prod(data.q.shape[:-2])
    try:
        result: Diagnosis | None = common.computed(
            ("diagnose", source.key),
            f"Measuring {heads:,} head{'s' * (heads > 1)}",
            lambda progress: diagnose(
                data.q, data.k, scale=source.scale, progress=progress, **data.arguments(causal=source.causal)
            ),
            source.shelf,
        )
    except ValueError as why:
        st.error(escaped(str(why)))
        return None
    return result


def say(result: Diagnosis, source: Source) -> None:
    """Say the answer in sentences made of the numbers measured."""
    first, *more = overview_sentences(result, source.name)
    st.info(first, icon=":material/insights:")
    st.markdown(" ".join(more))
    if source.shelf is None:
        st.caption(
            f"A sentence encoder of 6 layers with 12 heads of d_k = {result.d_k}, reading {result.n_queries} tokens of Darwin's "
            "*On the Origin of Species*. A *head* is one of the attention units that work side by side in a layer, each with its own q and k. "
            "Layers, heads and tokens count from 0."
        )


def choose_head(result: Diagnosis, source: Source, chosen: common.Setting, bound, mine: own_files.Own) -> str:
    """Draw the map of all heads and the choice of one, by a click or from the list; return its label."""
    st.subheader("All heads")
    quantity = st.segmented_control(
        "What the map shows",
        list(OVERVIEW),
        default=QUANTITY.default,
        required=True,
        **bound(QUANTITY),
    )
    st.caption(map_words(quantity, result))
    labels = [label(head) for head in result.heads]
    if mine.files:
        tied = mine.control("head", chosen.default, labels)
    else:
        tied = {"index": labels.index(chosen.default), **bound(chosen)}
    key = tied["key"]
    place = st.container()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        picked = st.selectbox("Head", labels, help="Or click a cell of the map.", width=220, **tied)
        for words, head in (("a typical one", chosen.default), ("the farthest from unit spread", label(result.worst))):
            st.button(f"{words}: {head}", on_click=pick, args=(key, head, mine), icon=":material/my_location:")
    map_key = f"map {quantity} {picked}"
    common.show_chart(
        overview_chart(result, quantity, chosen=picked, axes=source.axes, select="clicked"),
        place,
        key=map_key,
        on_select=lambda: pick_clicked(map_key, key, mine),
    )
    return picked


def map_words(quantity: str, result: Diagnosis) -> str:
    """Say how to read the map."""
    own = root(result.scale)
    return {
        "variance": "Variance of all logits q·k of a head, divided by d_k. The footnote expects 1 everywhere.",
        "spread": f"Standard deviation, within a row, of the logits times the model's scale, {own}: what softmax sees. The "
        "footnote aims at 1.",
        "entropy": f"Entropy of the attention weights at the model's scale, {own}: at most ln n for n keys, 0 when one key "
        "takes all.",
    }[quantity]


def pick(key: str, head: str, mine: own_files.Own) -> None:
    """Choose a head."""
    st.session_state[key] = head
    mine.said["head"] = head


def pick_clicked(map_key: str, key: str, mine: own_files.Own) -> None:
    """Choose the head that was clicked on the map."""
    clicked = st.session_state[map_key]["selection"].get("clicked", [])
    if clicked:
        pick(key, clicked[0]["head"], mine)


def compare(heads: dict[str, HeadDiagnosis], picked: str, source: Source, result: Diagnosis) -> None:
    """Show where the variance comes from in several heads side by side."""
    st.subheader("Several heads side by side")
    ranked = [label(head) for head in result.by_distance]
    default = list(dict.fromkeys([picked, *(ranked[place] for place in (0, len(ranked) // 4, -1))]))[:4]
    chosen = st.multiselect(
        "Heads to compare", list(heads), default, max_selections=MAX_COMPARED, key=f"compare {source.key}"
    )
    unit = st.segmented_control(
        "Parts in",
        ["percent of each head's variance", "units of d_k"],
        default="percent of each head's variance",
        required=True,
        key="unit",
    )
    if not chosen:
        return
    common.show_chart(decomposition_chart([heads[name] for name in chosen], share=unit != "units of d_k"))
    rows = [
        {
            "head": name,
            "variance / d_k": variance_text(heads[name]),
            **{
                short: f"{significant(getattr(heads[name].parts, part) / heads[name].d_k, 3)}"
                for part, (short, *_) in PARTS.items()
            },
            "scaled s.d. in a row": significant(math.sqrt(heads[name].softmax.own.row_variance), 3),
            "entropy": significant(heads[name].softmax.own.entropy, 3),
        }
        for name in chosen
    ]
    st.dataframe(pd.DataFrame(rows), hide_index=True)
    st.caption("Parts in units of d_k.")


def show_all(result: Diagnosis) -> None:
    """Show the table of all heads."""
    with st.expander(f"Table of all {len(result.heads):,} heads"):
        rows = [
            {
                "head": label(head),
                "variance / d_k": head.variance_over_d_k,
                "± s.e.": head.estimates.variance_over_d_k.standard_error,
                "mean of q·k": head.mean,
                "scaled s.d. in a row": math.sqrt(head.softmax.own.row_variance),
                "entropy": head.softmax.own.entropy,
                "largest weight": head.softmax.own.largest_weight,
                "tr J": head.softmax.own.jacobian_trace,
                "effective dimension": head.effective_dimension,
                "largest |q·k|": head.largest_logit,
                "q norm": head.q_norm.mean,
                "k norm": head.k_norm.mean,
                "outliers of q": " ".join(map(str, head.q_channels.outliers)),
                "outliers of k": " ".join(map(str, head.k_channels.outliers)),
            }
            for head in result.heads
        ]
        frame = pd.DataFrame(rows)
        number = st.column_config.NumberColumn(format="%.3g")
        numbers = {name: number for name in frame.columns if frame[name].dtype.kind == "f"}
        st.dataframe(frame, hide_index=True, column_config=numbers)


main()
