"""Page: could it be another value than √d_k? Every way in use, measured side by side on the same draws."""

import streamlit as st

from pages import common
from pages.scaling_parts import show_best_scale, show_initialisations, show_published
from simulation.comparison import ComparisonRecord, ComparisonResult, compare_scorings, joined
from simulation.comparison_charts import QUANTITY_WORDS, comparison_chart
from simulation.comparison_tables import ways_table
from simulation.composition import EXTRAS, HEADS, Composition, bound_words, mistakes, own_number
from simulation.formatting import plus_minus, significant
from simulation.methods import METHODS, make_scoring
from simulation.scoring_theory import predict_row

common.through_router()

KEYS = [2, 4, 8, 16, 32, 64, 128, 256]
DIMS = [1, 4, 16, 64, 256, 1024, 4096]
RHOS = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
TABLE = ("logit_std", "aligned_logit", "aligned_weight", "trace", "query_gradient")
LINES = {
    "÷ √d_k": lambda d, _: make_scoring("scaled_dot", d),
    "÷ d_k (µP)": lambda d, _: make_scoring("mup", d),
    "8/d_k (µP tuned at 64)": lambda d, _: make_scoring("mup_base", d, base=64),
}
ALONG = {"keys": "n_keys", "correlation": "correlation", "d_k": "d_k"}

D_K = common.Setting("d_k", 64, common.whole(1, 1_000_000))
N_KEYS = common.Setting("n", 16, common.option([str(n) for n in KEYS]))
RHO = common.Setting("rho", 0.5, common.real(0, 1))
SEED = common.Setting("seed", 0, common.whole(0, common.MAX_SEED))
WAY = common.Setting("way", "cosine", common.option(list(METHODS)))
NUMBER = common.Setting("number", 0.0, common.real(0, 1e6))
EXTRA = common.Setting("extra", "nothing", common.option(list(EXTRAS)))
FACTOR = common.Setting("factor", 1.0, common.real(0, 1e6))
CAP = common.Setting("cap", 0.0, common.real(0, 1000))
SHOW = common.Setting("show", "aligned_weight", common.option(list(QUANTITY_WORDS)))
AGAINST = common.Setting("against", "keys", common.option(list(ALONG)))
SETTINGS = (D_K, N_KEYS, RHO, SEED, WAY, NUMBER, EXTRA, FACTOR, CAP, SHOW, AGAINST)


def main() -> None:
    """Draw the page, top to bottom."""
    st.title("Could it be another value?")
    st.markdown(
        "Must it be $\\sqrt{d_k}$, or would $d_k$, a fixed number or no number at all do as well? Must attention be a dot product? "
        "Here every way in use scores the same draws. Two cases matter. At the start of training $q$ and $k$ are *independent*. "
        "After it, a query and the key it looks for are *aligned*: entry by entry they have a correlation $\\rho$. So each row "
        "holds one key aligned with its query, the *own* key, among $n-1$ independent ones."
    )
    bound = common.bind_settings(SETTINGS)
    draw_controls(bound)
    sentence = st.empty()
    ladder = measure_ladder()
    if ladder is None:
        return
    with sentence.container():
        say(ladder)
    show_two_answers(ladder)
    composition = draw_composer(bound)
    result = show_ways(composition)
    show_sweep(bound, composition)
    show_published(composition, D_K.value(), N_KEYS.value())
    show_initialisations(SEED.value())
    show_best_scale(N_KEYS.value(), SEED.value())
    if result is not None:
        common.hand_over("other_scalings", result.to_frame, result.to_json, code(composition), shown_settings())


def draw_controls(bound) -> None:
    """Draw the sizes, the alignment and the seed."""
    columns = st.columns([1, 1.2, 1.2, 1], vertical_alignment="bottom")
    columns[0].number_input("Head dimension d_k", 1, 1_000_000, D_K.default, **bound(D_K))
    columns[1].select_slider("Keys n in a row", KEYS, N_KEYS.default, **bound(N_KEYS), help="How many keys compete.")
    columns[2].slider(
        "Alignment ρ of the own key", 0.0, 1.0, RHO.default, 0.05, **bound(RHO), help="0: as at the start of training."
    )
    columns[3].number_input("Seed", 0, common.MAX_SEED, SEED.default, **bound(SEED), help="Same seed, same numbers.")


def run(name: str, label: str, key: tuple, **arguments) -> ComparisonResult | None:
    """Return a comparison: stored, or measured now. `key` tells apart what the arguments cannot."""
    n_rows, seed = rows(), SEED.value()
    return common.computed(
        ("scorings", name, n_rows, seed, *key),
        label,
        lambda progress: compare_scorings(n_rows=n_rows, rng=seed, progress=progress, **arguments),
    )


def rows() -> int:
    """Return how many rows are drawn for each size: fewer where a row is long."""
    return 2048 if N_KEYS.value() <= 128 else 1024


# Two right answers ------------------------------------------------------------------------------


def measure_ladder() -> ComparisonResult | None:
    """Measure the fixed ways over a ladder of d_k, independent and aligned, a rung at a time."""
    n, rho, rungs = N_KEYS.value(), RHO.value(), []
    for d_k in sorted({*DIMS, D_K.value()}):
        rung = run(
            "ladder",
            f"d_k = {d_k:,}",
            (d_k, n, rho),
            scorings=LINES,
            d_k=[d_k],
            n_keys=n,
            correlation=sorted({0.0, rho}),
            quantities=("logit_std", "aligned_logit", "aligned_weight"),
        )
        if rung is None:
            break
        rungs.append(rung)
    return joined(rungs) if any(D_K.value() == record.d_k for rung in rungs for record in rung.records) else None


def say(ladder: ComparisonResult) -> None:
    """Say which value is right for which case, with the numbers."""
    d_k, rho, n = D_K.value(), RHO.value(), N_KEYS.value()

    def told(label: str, correlation: float, quantity: str) -> str:
        found = ladder.select(scoring=label, d_k=d_k, correlation=correlation, quantity=quantity)[0]
        return plus_minus(found.estimate, found.standard_error)

    root, whole = "÷ √d_k", "÷ d_k (µP)"
    st.success(
        f"**Each of two values is right for one case, and none for both.** At $d_k={d_k:,}$ with $n={n}$ keys: independent $q$ and "
        f"$k$ leave logits of standard deviation **{told(root, 0.0, 'logit_std')}** when divided by $\\sqrt{{d_k}}$, whatever "
        f"$d_k$ is, and {told(whole, 0.0, 'logit_std')} when divided by $d_k$. The own key, aligned with $\\rho={rho:g}$, has "
        f"a logit of mean **{told(root, rho, 'aligned_logit')}** under $\\sqrt{{d_k}}$, which grows as $\\rho\\sqrt{{d_k}}$, and of "
        f"**{told(whole, rho, 'aligned_logit')}** under $d_k$, which stays $\\rho$.",
        icon=":material/balance:",
    )
    st.caption("± is one Monte Carlo standard error. All ways see the same draws; rows of one head share keys.")


def show_two_answers(ladder: ComparisonResult) -> None:
    """Show √d_k and d_k for independent and for aligned keys, beside each other."""
    st.subheader("Independent or aligned: two right answers")
    left, right = st.columns(2)
    free = ladder.select(correlation=0.0, quantity="logit_std")
    own = ladder.select(correlation=RHO.value(), quantity="aligned_weight")
    left.markdown("**Independent** $q$ and $k$: $\\sqrt{d_k}$ keeps the spread of the logits at 1.")
    common.show_chart(comparison_chart(free, "d_k", height=300), left)
    right.markdown(
        f"**Aligned**, $\\rho={RHO.value():g}$: only a scale of the order of $1/d_k$ keeps the weight steady."
    )
    common.show_chart(comparison_chart(own, "d_k", height=300), right)
    st.caption(
        f"Points: measured on {free[0].n_rows:,} rows, with 95 % intervals. Lines: exact. Right: 1/n = {1 / N_KEYS.value():.3g} "
        "is the weight that any key gets by chance, 1 a saturated row. Dividing by √d_k saturates as d_k grows, dividing by d_k "
        "stays nearly blind, and 8/d_k, equal to 1/√d_k at 64, settles between."
    )


# A scoring of the reader's own --------------------------------------------------------------------


def draw_composer(bound) -> Composition:
    """Let the reader put a scoring together, and show the one scale that is in force."""
    st.subheader("Compose a scale")
    first = st.columns([1.2, 1, 1.2, 1], vertical_alignment="bottom")
    ways = list(METHODS)
    first[0].selectbox("Way of scoring", ways, ways.index(WAY.default), **bound(WAY))
    option, method = own_number(WAY.value()), METHODS[WAY.value()]
    words = f"Its {option.replace('_', ' ')} (0: {method.options[option]:g})" if option else "Its own number: none"
    first[1].number_input(words, 0.0, 1e6, 0.0, **bound(NUMBER), disabled=option is None)
    first[2].selectbox("Multiplied also by", list(EXTRAS), **bound(EXTRA), help=f"d_model of {HEADS} heads.")
    first[3].number_input("Soft-cap (0: none)", 0.0, 1000.0, 0.0, **bound(CAP))
    if EXTRA.value() == "own number":
        first[2].number_input("Your factor", 0.0, 1e6, 1.0, **bound(FACTOR))
    composition = Composition(WAY.value(), NUMBER.value() or None, EXTRA.value(), FACTOR.value(), CAP.value())
    try:
        show_scale(composition)
    except ValueError as error:
        st.error(f"{error} Below, the way stands with its published number.")
        return Composition(WAY.value())
    return composition


def show_scale(composition: Composition) -> None:
    """Show the effective scale as one number with its factors, and what it means."""
    d_k, n = D_K.value(), N_KEYS.value()
    scoring, method = composition(d_k, n), METHODS[composition.way]
    st.markdown(f"**{method.title}**: ${method.latex}$. {method.right_when}")
    spread = predict_row(scoring, d_k, n).std
    columns = st.columns(3)
    columns[0].metric("Scale in force", significant(scoring.effective_scale, 4), border=True)
    same = significant(scoring.implied_d_k, 4) if scoring.kind == "dot" and scoring.effective_scale else "—"
    columns[1].metric("It is 1/√d_k for d_k =", same, border=True, help="For dot products only.")
    columns[2].metric("Std of logits, exact", significant(spread, 4), border=True, help="For independent q and k.")
    st.markdown(f"`{scoring}`")
    for mistake in mistakes(scoring, d_k):
        st.warning(mistake, icon=":material/warning:")
    if told := bound_words(scoring, d_k, n):
        st.caption(told)


def lines(composition: Composition) -> dict:
    """Return the ways that charts show: three fixed ones and the reader's."""
    return {**LINES, "yours": composition}


def show_ways(composition: Composition) -> ComparisonResult | None:
    """Show every way with formula, prediction and measurement, and when it is right."""
    st.subheader("Every way, side by side")
    d_k, n, rho = D_K.value(), N_KEYS.value(), RHO.value()
    named = {name: Composition(name) for name in METHODS}
    result = run(
        "ways",
        f"{len(named) + 1} ways at d_k = {d_k:,}",
        (composition, d_k, n, rho),
        scorings={**named, "yours": composition},
        d_k=[d_k],
        n_keys=n,
        correlation=sorted({0.0, rho}),
        quantities=TABLE,
    )
    if result is None:
        return None
    table = ways_table(result, d_k, rho, own=str(composition(d_k, n)))
    st.dataframe(table, hide_index=True, height=35 * (len(table) + 1) + 3)
    st.caption(
        "Standard deviation, trace and gradient for independent q and k: what softmax gets at the start. Own key: aligned. "
        f"No trace exceeds 1 − 1/n = {1 - 1 / n:.4g}. T5's gradient is with respect to the q that leaves W_q, which holds the "
        "scale already: equal weights, a √d_k times larger gradient."
    )
    with st.expander("The formulas, when each is right, and where it is from"):
        st.markdown(
            "\n".join(f"- **{way.title}** ${way.latex}$. {way.right_when} *{way.source}*" for way in METHODS.values())
        )
    return result


def show_sweep(bound, composition: Composition) -> None:
    """Show one quantity against keys, alignment or d_k, for the fixed ways and the reader's."""
    st.subheader("Against keys, alignment, d_k")
    first = st.columns(2)
    words = list(QUANTITY_WORDS)
    first[0].selectbox("Quantity", words, words.index(SHOW.default), **bound(SHOW))
    first[0].caption(QUANTITY_WORDS[SHOW.value()])
    first[1].segmented_control("Against", list(ALONG), default=AGAINST.default, required=True, **bound(AGAINST))
    sizes = {"d_k": [D_K.value()], "n_keys": [N_KEYS.value()], "correlation": [RHO.value()]}
    along = ALONG[AGAINST.value()]
    sizes |= {along: {"d_k": DIMS, "n_keys": KEYS, "correlation": RHOS}[along]}
    key = (composition, SHOW.value(), *(tuple(values) for values in sizes.values()))
    found = run(
        "sweep", f"Against {AGAINST.value()}", key, scorings=lines(composition), quantities=[SHOW.value()], **sizes
    )
    if found is None:
        return
    shown: list[ComparisonRecord] = [r for r in found.records if r.statistic != "median"]
    common.show_chart(comparison_chart(shown, along))
    fixed = {"d_k": f"d_k = {D_K.value():,}", "n_keys": f"n = {N_KEYS.value()}", "correlation": f"ρ = {RHO.value():g}"}
    held = ", ".join(text for name, text in fixed.items() if name != along)
    same = " At d_k = 64, 8/d_k is 1/√d_k: the two coincide." if D_K.value() == 64 and along != "d_k" else ""
    st.caption(
        f"With {held}. *yours* is the scale composed above. Strong lines: exact. Faint lines only join the points.{same}"
    )


# Handing over -------------------------------------------------------------------------------------


def shown_settings() -> list[common.Setting]:
    """Return the settings that matter for what is on the screen, for the link."""
    always = {D_K, N_KEYS, RHO, SEED}
    return [setting for setting in SETTINGS if setting in always or setting.value() != setting.default]


def code(composition: Composition) -> str:
    """Return the few lines of Python that repeat the table."""
    sizes = f"[{D_K.value()}], {N_KEYS.value()}, {sorted({0.0, RHO.value()})}, n_rows={rows()}, rng={SEED.value()}"
    return (
        "from simulation import compare_scorings\n"
        "from simulation.composition import Composition\n"
        "from simulation.methods import METHODS\n\n"
        f"result = compare_scorings(list(METHODS), {sizes})\n"
        f"yours = compare_scorings({{'yours': {composition}}}, {sizes})\n"
        "print(result)\n"
        "result.to_frame()  # a tidy pandas table"
    )


main()
