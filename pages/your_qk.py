"""Page: which of the footnote's assumptions fails in a real model, in which head, and what softmax makes of it."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import streamlit as st

from pages import common, own_files
from pages.own_files import Source
from simulation.diagnosis import Diagnosis, HeadDiagnosis
from simulation.diagnosis_charts import MAX_COMPARED, PARTS, attention_chart, decomposition_chart, logit_chart
from simulation.diagnosis_map import OVERVIEW, overview_chart
from simulation.diagnosis_overview import overview_sentences
from simulation.diagnosis_text import label, root
from simulation.example_data import load_example
from simulation.formatting import interval_text, significant
from simulation.head_logits import logit_histogram, query_weights
from simulation.heads import FloatArray, Heads, Visible
from simulation.measured import diagnose
from simulation.qk_arrays import QueriesKeys

common.through_router()

EXAMPLE = "all-MiniLM-L6-v2"
MAX_QUERIES = 4
FIGURES = {
    "mean": "mean of q·k",
    "variance": "variance of q·k",
    "variance_over_d_k": "variance / d_k",
    "row_variance": "variance within rows",
    **{name: f"part: {words}" for name, (_, words, *_) in PARTS.items()},
    "effective_dimension": "effective dimension",
    "token_correlation": "correlation of q_i with k_i",
}

QUANTITY = common.Setting("quantity", "variance", common.option(list(OVERVIEW)))


def main() -> None:
    """Draw the page, top to bottom."""
    st.title("Your q and k")
    st.markdown(
        "The footnote assumes that the components of $q$ and $k$ are independent with mean 0 and variance 1. Are they, in a "
        "trained model? Here all logits $q\\cdot k$ of every head are measured: how large their variance is, where it comes "
        "from, and what softmax makes of it."
    )
    mine = own_files.own()
    with st.expander("Put in q and k of your own model", icon=":material/upload_file:", expanded=bool(mine.files)):
        own_files.draw_upload(mine)
        source = own_files.draw_own_source(mine) if mine.files else example_source()
    if source is None or (result := measured(source)) is None:
        return
    heads = {label(head): head for head in result.heads}
    typical = label(result.by_distance[len(heads) // 2])
    chosen = common.Setting("head", typical, one_head(heads))
    settings = () if mine.files else (QUANTITY, chosen)
    bound = common.bind_settings(settings or (QUANTITY,))
    say(result, source)
    picked = choose_head(result, source, chosen, bound, mine) if len(heads) > 1 else next(iter(heads))
    show_head(heads[picked], source, result)
    if len(heads) > 1:
        compare(heads, picked, source, result)
        show_all(result)
    st.caption("  \n".join(f"• {own_files.escaped(note)}" for note in result.notes))
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


def one_head(heads: dict[str, HeadDiagnosis]) -> Callable[[str], str]:
    """Return a check for the name of a head."""

    def check(text: str) -> str:
        if text not in heads:
            raise ValueError(f"the place of a head, from {next(iter(heads))} to {list(heads)[-1]}")
        return text

    return check


def measured(source: Source) -> Diagnosis | None:
    """Return the diagnosis of all heads: stored, or measured now."""
    data = source.data
    heads = math.prod(data.q.shape[:-2])
    return common.computed(
        ("diagnose", source.key),
        f"Measuring {heads:,} head{'s' * (heads > 1)}",
        lambda progress: diagnose(
            data.q, data.k, scale=source.scale, progress=progress, **data.arguments(causal=source.causal)
        ),
        source.shelf,
    )


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


def show_head(head: HeadDiagnosis, source: Source, result: Diagnosis) -> None:
    """Show one head: where its variance comes from, its logits, its attention weights, its channels."""
    named = f": {own_files.escaped(label(head))}" if head.index else ""
    st.subheader(f"One head{named}", anchor="head")
    st.markdown(f"{head.sentence}")
    common.show_chart(decomposition_chart([head]))
    st.caption(
        "Dashed line: the footnote, whose own term would be all there is, at 1 d_k. Grey, the part of the mean of the keys, adds one "
        "number to a whole row of logits: softmax never sees it."
    )
    for remark in head.remarks:
        st.warning(remark, icon=":material/priority_high:")
    heads = Heads(source.data.q, source.data.k, result.group)
    q, k = heads.pair(head.index)
    left, right = st.columns([5, 6])
    with left:
        show_logits(head, q, k)
    with right:
        show_softmax(head)
    show_weights(source, result, q, k)
    show_figures(head, result)
    show_channels(head)


def show_logits(head: HeadDiagnosis, q: FloatArray, k: FloatArray) -> None:
    """Show the histogram of a head's logits against the footnote's law."""
    st.markdown("**Its logits**")
    histogram = logit_histogram(q, k, head)
    common.show_chart(logit_chart(head, histogram))
    outside = histogram.underflow + histogram.overflow
    beyond = f" {outside:,} lie beyond six standard deviations." if outside else ""
    st.caption(
        f"All {len(q):,} × {len(k):,} logits before scaling; dashed: the exact law at d_k = {head.d_k} if all components were "
        f"independent standard normals, cut off where it is too high.{beyond}"
    )


def show_softmax(head: HeadDiagnosis) -> None:
    """Show what softmax makes of the rows under four scales."""
    st.markdown("**What softmax makes of them**")
    st.markdown(head.softmax_sentence)
    by_scale = head.softmax
    same = math.isclose(by_scale.own.scale, by_scale.sqrt_d_k.scale)
    named = {
        "none": by_scale.unscaled,
        "1/√d_k (own)" if same else "1/√d_k": by_scale.sqrt_d_k,
        **({} if same else {"the model's own": by_scale.own}),
        "unit variance": by_scale.unit,
    }
    rows = [
        {
            "scale": name,
            "factor": significant(figures.scale),
            "row s.d.": significant(math.sqrt(figures.row_variance), 3),
            "entropy": significant(figures.entropy, 3),
            "top weight": significant(figures.largest_weight, 3),
            "tr J": significant(figures.jacobian_trace, 3),
        }
        for name, figures in named.items()
        if figures
    ]
    st.dataframe(pd.DataFrame(rows), hide_index=True)
    st.caption(
        f"Means over rows; row s.d.: standard deviation of the scaled logits within a row. Entropy in nats, at most {significant(head.entropy_limit, 3)} here; tr J = 1 − Σ y² is the size of "
        "softmax's gradient, near 0 when one weight takes all."
    )


def show_weights(source: Source, result: Diagnosis, q: FloatArray, k: FloatArray) -> None:
    """Show the attention weights of some queries before and after scaling."""
    st.markdown("**Attention weights of some queries, before and after scaling**")
    words = source.tokens or None
    queries = [words[i] if words else f"token {i}" for i in source.data.q_places]
    keys = [words[i] if words else f"token {i}" for i in source.data.k_places]
    spread = sorted({len(queries) * part // 4 for part in (1, 2, 3)})
    picked = st.multiselect(
        "Queries",
        range(len(queries)),
        spread,
        format_func=lambda i: queries[i],
        max_selections=MAX_QUERIES,
        key=f"queries {source.key}",
    )
    mask = source.data.arguments(causal=source.causal).get("mask")
    visible = Visible(len(q), len(k), mask)
    for column, i in zip(st.columns(max(len(picked), 1)), picked, strict=False):
        weights = query_weights(q, k, visible, i, [1.0, result.scale])
        column.markdown(f"**{own_files.escaped(queries[i])}** looks at")
        if np.isnan(weights).any():
            column.caption("This query sees no key.")
            continue
        common.show_chart(attention_chart(weights, keys, query=queries[i]), column)
    st.caption("Upper bar: softmax of q·k as it is; lower bar: after the model's scale.")


def show_figures(head: HeadDiagnosis, result: Diagnosis) -> None:
    """Show all figures of a head with their errors."""
    with st.expander("All figures of this head, with errors"):
        rows = []
        for name, words in FIGURES.items():
            estimate = getattr(head.estimates, name)
            if estimate is None:
                continue
            exact = getattr(head.parts if name in PARTS else head, name)
            interval = interval_text(*estimate.interval) if estimate.interval else estimate.note
            rows.append(
                {
                    "figure": words,
                    "in this block": "unknown" if exact is None else significant(exact),
                    "estimate ± s.e.": estimate.text,
                    f"{result.confidence:.0%} interval": interval,
                }
            )
        st.dataframe(pd.DataFrame(rows), hide_index=True)
        place = " and ".join(f"{i}" for i in head.largest_logit_at)
        st.markdown(
            f"Largest |q·k|: {significant(head.largest_logit)} (query and key {place}). Norms, mean and largest: q "
            f"{significant(head.q_norm.mean, 3)} and {significant(head.q_norm.largest, 3)}, k "
            f"{significant(head.k_norm.mean, 3)} and {significant(head.k_norm.largest, 3)}. Cosine of q with k: "
            f"{cosine_words(head)}."
        )
        st.caption(
            "The parts of this block sum to its variance exactly. The estimates are freed of the bias of a finite sample: a part that is pure "
            "chance comes out near 0."
        )


def cosine_words(head: HeadDiagnosis) -> str:
    """Return mean and spread of the cosine over pairs."""
    if head.cosine_mean is None or head.cosine_std is None:
        return "undefined, as some vectors are 0"
    return f"mean {significant(head.cosine_mean, 3)}, standard deviation {significant(head.cosine_std, 3)}"


def show_channels(head: HeadDiagnosis) -> None:
    """Show mean, spread and kurtosis of each channel, those that stand out marked."""
    outliers = {"q": head.q_channels.outliers, "k": head.k_channels.outliers}
    count = sum(map(len, outliers.values()))
    with st.expander(f"Channel by channel: {count} outlier{'s' * (count != 1)} among {head.d_k:,} channels of q and k"):
        columns: dict[str, list] = {"channel": list(range(head.d_k))}
        for side, channels in (("q", head.q_channels), ("k", head.k_channels)):
            columns[f"mean of {side}"] = list(channels.mean)
            columns[f"s.d. of {side}"] = [math.sqrt(v) for v in channels.variance]
            columns[f"kurtosis of {side}"] = list(channels.kurtosis)
        columns["remark"] = [channel_remark(head, i) for i in range(head.d_k)]
        number = st.column_config.NumberColumn(format="%.3g")
        st.dataframe(
            pd.DataFrame(columns),
            hide_index=True,
            column_config={name: number for name in columns if name not in ("channel", "remark")},
        )
        st.caption(
            "The footnote expects mean 0 and s.d. 1; kurtosis is 3 for a normal law. An outlier has a mean or an s.d. more than six "
            "robust scales from the median over channels."
        )


def channel_remark(head: HeadDiagnosis, channel: int) -> str:
    """Return what stands out in a channel, in words."""
    found = [
        f"{word} in {side}"
        for side, channels in (("q", head.q_channels), ("k", head.k_channels))
        for word, which in (("outlier", channels.outliers), ("zero", channels.zero), ("constant", channels.constant))
        if channel in which
    ]
    return ", ".join(found)


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
            "variance / d_k": heads[name].estimates.variance_over_d_k.text,
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
