"""The part of the page "Your q and k" that shows one head, top to bottom."""

import math

import numpy as np
import pandas as pd
import streamlit as st

from pages import common
from pages.own_files import Source, escaped
from simulation.diagnosis import Diagnosis, HeadDiagnosis
from simulation.diagnosis_charts import PARTS, attention_chart, decomposition_chart, logit_chart
from simulation.diagnosis_text import label
from simulation.formatting import interval_text, significant
from simulation.head_logits import logit_histogram, query_weights
from simulation.heads import FloatArray, Heads, Visible

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


def show_head(head: HeadDiagnosis, source: Source, result: Diagnosis) -> None:
    """Show one head: where its variance comes from, its logits, its attention weights, its channels."""
    named = f": {escaped(label(head))}" if head.index else ""
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
        column.markdown(f"**{escaped(queries[i])}** looks at")
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


if __name__ == "__main__":  # Streamlit may open any file of pages/ as a page
    common.through_router()
