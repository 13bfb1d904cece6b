"""The last three parts of the page "Other scalings": published settings, initialisations, the best scale."""

import math

import streamlit as st

from pages import common
from simulation.best_scale import gradient_sizes, typical_best_std
from simulation.comparison_charts import best_scale_chart
from simulation.comparison_tables import (
    LETTERS,
    best_scales,
    best_scales_table,
    initialisations_table,
    placements_table,
)
from simulation.composition import Composition
from simulation.decay_charts import phase_chart
from simulation.formatting import significant
from simulation.initialisations import INITIALISATIONS, InitialisationDraws, draw_initialisation
from simulation.published import placements
from simulation.row_theory import expected_max_normal
from simulation.sampling import child_seed
from simulation.scoring_theory import freezing_keys, predict_row


def show_published(composition: Composition, d_k: int, n: int) -> None:
    """Place published settings, √d_k and the reader's own scale on the phase diagram."""
    st.subheader("Where published settings lie")
    places, own = placements(), predict_row(composition(d_k, n), d_k, n).std
    spots = [(letter, place.published.n_keys, place.std) for letter, place in zip(LETTERS, places, strict=False)]
    spots += [("yours", n, own)] if own > 0 else []
    low, high = min(0.5, own / 2) if own > 0 else 0.5, max(9.0, 2 * own)
    common.show_chart(phase_chart(n, d_k, spots=spots, reach=(max(low, 1e-3), min(high, 1e4)), height=420))
    st.dataframe(placements_table(places), hide_index=True)
    st.caption(
        "Exact, for independent q and k of unit variance. Bright: softmax passes as much gradient as n keys allow. Dashed: the "
        "freezing line s = √(2 ln n). Different as the recipes look, they end near s = 1, where √d_k puts every head. Only "
        f"scalable softmax moves with n: it meets the line at n = {freezing_keys(0.43):,.0f}. A soft-cap of 50 barely touches "
        "such logits. The row length matters to scalable softmax alone; the others are set apart so that each can be seen."
    )


def show_initialisations(seed: int) -> None:
    """Show what q and k look like before training, by theory and by draws."""
    st.subheader("Do q and k start with variance 1?")
    st.markdown(
        "The footnote assumes it. It depends on how $W_q$ and $W_k$ are drawn; the input $x$ is normalised (LayerNorm), so its "
        "variance is 1. Only Xavier over all heads and T5 give scaled logits of variance 1."
    )
    draws = common.computed(
        ("initialisations", seed),
        "Drawing weights",
        lambda progress: [drawn(i, name, seed, progress) for i, name in enumerate(INITIALISATIONS)],
    )
    if draws is not None:
        st.dataframe(initialisations_table(draws), hide_index=True)
        st.caption(
            f"{draws[0].replicates} heads each, with {draws[0].tokens} queries and keys; errors from whole heads."
        )


def drawn(index: int, name: str, seed: int, progress: common.Progress) -> InitialisationDraws:
    """Draw one initialisation, at the width its source has."""
    width, heads = (768, 12) if name == "gpt2" else (512, 8)
    found = draw_initialisation(name, width, heads, replicates=60, rng=child_seed(seed, index))
    progress(index + 1, len(INITIALISATIONS))
    return found


def show_best_scale(n: int, seed: int) -> None:
    """Answer honestly whether there is a best scale."""
    st.subheader("What is the best scale?")
    stds = [0.25 * 2 ** (i / 4) for i in range(25)]
    found = common.computed(
        ("best", n, seed),
        "Gradients over rows",
        lambda _: (
            gradient_sizes(n, stds, rows=max(400, 60_000 // n), rng=seed),
            typical_best_std(n, rows=min(20_000, 1_000_000 // n), rng=seed),
            best_scales((2, 3, 16, 128, 1024), numbers=500_000, seed=seed),
        ),
    )
    if found is None:
        return
    sizes, best, scales = found
    st.markdown(
        f"It depends on which row you ask. The **mean** gradient has no best scale: with the spread of the logits it rises for "
        f"ever, towards {significant(expected_max_normal(n), 4)} for $n={n}$, carried by ever fewer rows with a near tie. The "
        f"**typical** gradient (geometric mean) is largest at a standard deviation of **{best.text}**, near "
        f"$\\sqrt{{2\\ln n}}$ = {math.sqrt(2 * math.log(n)):.3f}. So $\\sqrt{{d_k}}$, which puts it at 1, is not the optimum: it is "
        "the safe side, where no row of any length freezes."
    )
    common.show_chart(best_scale_chart(n, sizes, best))
    st.dataframe(best_scales_table(scales), hide_index=True)


if __name__ == "__main__":  # Streamlit may open any file of pages/ as a page
    common.through_router()
