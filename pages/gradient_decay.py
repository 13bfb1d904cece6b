"""Page: large logits saturate softmax, so its gradient vanishes. How fast, how often, and is it true."""

import math
from dataclasses import replace

import pandas as pd
import streamlit as st

from pages import common
from simulation.decay import DecayRecord, DecayResult, collect_decay, decay_rung
from simulation.decay_charts import decay_chart, distribution_chart, phase_chart, precision_map
from simulation.decay_rows import Plan, plan_of
from simulation.decay_slopes import decay_slopes
from simulation.formatting import interval_text, plus_minus, significant
from simulation.low_precision import FORMATS, low_precision
from simulation.model import ENTRIES, QueryKeyModel
from simulation.row_distribution import row_distribution
from simulation.row_sizes import QUANTITIES
from simulation.row_statistics import ROW_STATISTICS
from simulation.row_theory import expected_max_normal, freezing_d_k, gaussian_row

common.through_router()

KEYS = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
TOPS = [256, 1024, 4096, 16384, 65536, 1_000_000]
MAX_PLAIN_TOP = 16384  # entries other than normal are drawn component by component
STATISTIC_WORDS = {
    "mean": "mean",
    "median": "median: the typical row",
    "rms": "rms: root of the mean square",
    "q10": "10 % quantile",
    "q90": "90 % quantile",
}
QUANTITY_WORDS = {
    "trace": "trace of J, 1 − Σ y²",
    "frobenius": "Frobenius norm of J",
    "spectral_norm": "spectral norm of J",
    "largest_entry": "largest entry of J",
    "query_gradient": "gradient with respect to q, ‖∂y/∂q‖",
    "logit_gradient": "gradient with respect to the logits, ‖∂y/∂x‖",
    "entropy": "entropy of the weights",
    "largest_weight": "largest weight",
}

N_KEYS = common.Setting("keys", 128, common.option([str(n) for n in KEYS]))
TOP = common.Setting("up_to", 1024, common.option([str(d) for d in TOPS]))
FAMILY = common.Setting("row_entries", "normal", common.option(ENTRIES))
QUANTITY = common.Setting("quantity", "query_gradient", common.option(QUANTITIES))
STATISTIC = common.Setting("statistic", "median", common.option(ROW_STATISTICS))
SEED = common.Setting("row_seed", 0, common.whole(0, common.MAX_SEED))
SETTINGS = (N_KEYS, TOP, FAMILY, QUANTITY, STATISTIC, SEED)


def main() -> None:
    """Draw the page, top to bottom."""
    st.title("Does the gradient vanish?")
    st.markdown(
        "The other half of the usual answer: without the division the logits are large, *softmax saturates* (one weight takes "
        "all) and its gradient vanishes. Here whole rows of attention are drawn, one query against $n$ keys, and the size of "
        "the gradient is measured, raw and divided by $\\sqrt{d_k}$, from the same draws. $J$ is the Jacobian of softmax: how "
        "much each weight moves when a logit moves."
    )
    bound = common.bind_settings(SETTINGS)
    draw_controls(bound)
    if FAMILY.value() != "normal" and TOP.value() > MAX_PLAIN_TOP:
        st.error(
            f"Entries other than normal are drawn component by component: here up to d_k = {MAX_PLAIN_TOP:,}; "
            f"received {TOP.value():,}."
        )
        return
    model = QueryKeyModel(1, FAMILY.value(), df=5.0 if FAMILY.value() == "student_t" else None)
    result = measure(model)
    if result is None:
        return
    show_stories(result)
    show_slopes(result)
    show_distribution(model, result)
    show_low_precision()
    show_phases(result)
    common.hand_over("gradient_decay", result.to_frame, result.to_json, code(model, result), SETTINGS)


def draw_controls(bound) -> None:
    """Draw what is measured and over which range."""
    first = st.columns([1.2, 1.2, 1.2, 1], vertical_alignment="bottom")
    first[0].select_slider("Keys n in a row", KEYS, N_KEYS.default, **bound(N_KEYS), help="How many keys compete.")
    first[1].select_slider("d_k up to", TOPS, TOP.default, **bound(TOP), format_func=str)
    first[2].selectbox("Entries drawn from", ENTRIES, **bound(FAMILY), help="student_t has 5 degrees of freedom.")
    first[3].number_input("Seed", 0, common.MAX_SEED, SEED.default, **bound(SEED), help="Same seed, same numbers.")
    second = st.columns(2)
    words = QUANTITY_WORDS
    second[0].selectbox("What is measured", list(words), list(words).index(QUANTITY.default), **bound(QUANTITY))
    second[0].caption(words[QUANTITY.value()])
    second[1].segmented_control(
        "Which row stands for all", list(STATISTIC_WORDS), default=STATISTIC.default, required=True, **bound(STATISTIC)
    )
    second[1].caption(STATISTIC_WORDS[STATISTIC.value()])


def the_plan() -> Plan:
    """Return the plan of the controls: about as much work for many keys as for few."""
    return plan_of(N_KEYS.value(), 4096 if N_KEYS.value() <= 128 else 1024, QUANTITIES, ROW_STATISTICS)


def measure(model: QueryKeyModel) -> DecayResult | None:
    """Measure the ladder rung by rung, drawing the chart anew as each one comes, and say the finding."""
    plan, seed = the_plan(), SEED.value()
    ladder = sorted({TOP.value(), *(4**p for p in range(10) if 4**p <= TOP.value())})
    sentence, chart = st.empty(), st.empty()
    rungs: list[tuple[DecayRecord, ...]] = []
    for d_k in ladder:
        rung_model = replace(model, d_k=d_k)
        rung = common.computed(
            ("decay", rung_model, plan, seed),
            f"{plan.heads * plan.queries:,} rows at d_k = {d_k:,}",
            lambda progress, m=rung_model: decay_rung(m, plan, seed, progress=progress),
        )
        if rung is None:
            break
        rungs.append(rung)
        result = collect_decay(rungs, [replace(model, d_k=d) for d in ladder[: len(rungs)]], plan, seed)
        if len(rungs) >= 2:
            with chart.container():
                draw_decay(result, model)
    if len(rungs) < 2:
        return None
    with sentence.container():
        say(result)
    return result


def draw_decay(result: DecayResult, model: QueryKeyModel) -> None:
    """Draw the chosen quantity and statistic against d_k."""
    chosen = result.select(quantity=QUANTITY.value(), statistic=STATISTIC.value())
    common.show_chart(decay_chart(chosen, model))
    known = "Lines: exact." if any(r.exact is not None for r in chosen) else "No exact curve is known for this choice."
    bounds = (
        " Faint lines: bounds."
        if STATISTIC.value() == "mean" and QUANTITY.value() in ("trace", "largest_weight")
        else ""
    )
    st.caption(
        f"Points: measured on {result.n_rows:,} rows each, with {result.confidence:.0%} intervals from whole heads. {known}{bounds} "
        f"The vertical line is d_k = 2 ln n = {freezing_d_k(N_KEYS.value()):.1f}, where raw rows begin to freeze: a crossover, not "
        "a sharp point."
    )


def pair(result: DecayResult, d_k: int, quantity: str, statistic: str) -> tuple[DecayRecord, DecayRecord]:
    """Return the raw and the scaled record of one number."""
    raw, scaled = (
        result.select(d_k=d_k, quantity=quantity, statistic=statistic, scoring=scoring)[0]
        for scoring in ("dot", "scaled_dot")
    )
    return raw, scaled


def say(result: DecayResult) -> None:
    """Say the finding for the typical query gradient, with its numbers."""
    dims = list(dict.fromkeys(record.d_k for record in result.records))
    pairs = {d: pair(result, d, "query_gradient", "median") for d in dims}
    peak = max(dims, key=lambda d: pairs[d][0].estimate / pairs[d][1].estimate)
    last = dims[-1]
    n = N_KEYS.value()

    def compare(d: int) -> str:
        raw, scaled = pairs[d]
        ratio = raw.estimate / scaled.estimate
        if raw.estimate == 0:
            size = "more than 1e300 times smaller"
        elif ratio >= 1:
            size = f"{significant(ratio, 2)} times larger"
        else:
            size = f"{significant(1 / ratio, 2)} times smaller"
        return (
            f"at $d_k={d:,}$ the typical raw gradient with respect to $q$ is **{size}** than the scaled one "
            f"({plus_minus(raw.estimate, raw.standard_error)} against {plus_minus(scaled.estimate, scaled.standard_error)})"
        )

    ever_larger = pairs[peak][0].estimate > 1.05 * pairs[peak][1].estimate
    told = [compare(d) for d in dict.fromkeys([peak, last] if ever_larger else [last])]
    st.info(f"With $n={n}$ keys, {'; '.join(told)}. ± is one standard error.", icon=":material/trending_down:")


def show_stories(result: DecayResult) -> None:
    """Show that mean, rms and typical row tell different stories at the largest d_k."""
    last = result.records[-1].d_k
    st.subheader("Three stories about the same rows")
    st.markdown(
        f"At $d_k={last:,}$. The *mean* of the raw trace falls only as $1/\\sqrt{{d_k}}$; the *typical* row dies exponentially in "
        "$\\sqrt{d_k}$; the *rms* gradient with respect to $q$ even grows, carried by a few rows with a near tie. Scaling buys "
        "uniformity: mean, rms and typical row agree."
    )
    rows = []
    for quantity in ("trace", "query_gradient"):
        for statistic in ("mean", "rms", "median"):
            raw, scaled = pair(result, last, quantity, statistic)
            rows.append(
                {
                    "quantity": QUANTITY_WORDS[quantity],
                    "statistic": statistic,
                    "raw q·k": plus_minus(raw.estimate, raw.standard_error),
                    "exact (raw)": "unknown" if raw.exact is None else significant(raw.exact, 5),
                    "divided by √d_k": plus_minus(scaled.estimate, scaled.standard_error),
                    "exact (scaled)": "unknown" if scaled.exact is None else significant(scaled.exact, 5),
                }
            )
    st.dataframe(pd.DataFrame(rows), hide_index=True)


def show_slopes(result: DecayResult) -> None:
    """Show the measured slopes beside theory."""
    slopes = decay_slopes(result)
    if not slopes:
        return
    st.subheader("How fast")
    lines = [
        f"- **{slope.name}** $({slope.formula})$: $a$ = **{slope.text}**, interval {interval_text(*slope.interval)}"
        + (f", exactly {significant(slope.exact, 3)} over these $d_k$" if slope.exact is not None else "")
        + f"; limit for large $d_k$: {significant(slope.limit, 3)}"
        for slope in slopes
    ]
    st.markdown("\n".join(lines))
    st.caption(
        "Weighted least squares over the raw rungs past four times 2 ln n. The limits are asymptotic: finite d_k differ."
    )


def show_distribution(model: QueryKeyModel, result: DecayResult) -> None:
    """Show how the chosen quantity spreads over rows at one d_k."""
    st.subheader("Over the rows at one d_k")
    dims = list(dict.fromkeys(record.d_k for record in result.records))
    d_k = st.select_slider("d_k", dims, dims[min(3, len(dims) - 1)], key="row_d_k") if len(dims) > 1 else dims[0]
    plan, quantity, seed = the_plan(), QUANTITY.value(), SEED.value()
    plan = replace(plan, quantities=(quantity,))
    rung_model = replace(model, d_k=d_k)
    found = common.computed(
        ("rows", rung_model, plan, seed),
        f"Rows at d_k = {d_k:,}",
        lambda progress: row_distribution(rung_model, plan, quantity, seed, progress=progress),
    )
    if found is None:
        return
    common.show_chart(distribution_chart(found))
    raw, scaled = (100 * c.estimate for c in found.carrying)
    errors = [100 * (c.standard_error or 0) for c in found.carrying]
    st.markdown(
        f"90 % of the sum of squares comes from **{plus_minus(raw, errors[0])} %** of the raw rows and "
        f"**{plus_minus(scaled, errors[1])} %** of the scaled ones."
        + (f" {found.zero[0]:,} raw rows lie below 1e-308 and are not drawn." if found.zero[0] else "")
    )


def show_low_precision() -> None:
    """Show how often the gradient rounds to exactly zero in low precision."""
    st.subheader("In low precision")
    st.markdown(
        "Rounded to a number format, a saturated row becomes one-hot and its gradient **exactly 0**. The map shows the exact "
        "chance for raw rows of normal q and k; for scaled rows it is below 1e-12 at every size shown."
    )
    chosen = st.segmented_control("Number format", FORMATS, default="float16", required=True, key="number_format")
    dims, keys = (16, 64, 256, 1024, 4096), (2, 16, 128, 1024)
    common.show_chart(precision_map(keys, dims, chosen))
    seed = SEED.value()
    found = common.computed(
        ("zero", seed),
        "Rounding rows",
        lambda progress: low_precision((64, 1024), (2, 128), n_rows=8_000, rng=seed, progress=progress),
    )
    if found is None:
        return
    told = [
        f"n = {r.n_keys}, d_k = {r.d_k}: {plus_minus(100 * r.share, 100 * r.standard_error)} % (exactly {100 * r.exact:.3g} %)"
        for r in found.records
        if (r.scoring, r.number_format) == ("dot", chosen)
    ]
    st.caption(f"Checked by really rounding {found.n_rows:,} rows each: {'; '.join(told)}.")


def show_phases(result: DecayResult) -> None:
    """Show where raw, √d_k and 1/d_k attention lie over keys and spread of the logits."""
    st.subheader("Where attention lives")
    dims = list(dict.fromkeys(record.d_k for record in result.records))
    d_k = (
        st.select_slider("d_k marked", dims, dims[min(3, len(dims) - 1)], key="phase_d_k") if len(dims) > 1 else dims[0]
    )
    common.show_chart(phase_chart(N_KEYS.value(), d_k))
    st.markdown(stein_words(N_KEYS.value(), d_k))
    st.caption(
        "Exact, for normal logits: bright where the gradient is as large as n keys allow, dark where it is not. Dashed: the "
        "freezing line s = √(2 ln n). Dividing by √d_k puts every head at s = 1, far below the line for any n."
    )


def stein_words(n: int, d_k: int) -> str:
    """Say how Stein's identity checks the exact values, from two integrals computed apart."""
    std = math.sqrt(d_k)
    row = gaussian_row(n, std)
    other = std**2 * row.trace
    return (
        f"The exact values check themselves by Stein's identity, $\\mathrm{{E}}\\sum x_i y_i=s^2\\,\\mathrm{{E}}\\,"
        f"\\mathrm{{tr}}J$: at $n={n}$ and the raw spread $s=\\sqrt{{{d_k}}}$ the left side is {row.attended_logit:.10g} and "
        f"the right {other:.10g}, from integrals computed apart. Hence $\\mathrm{{E}}\\,\\mathrm{{tr}}J$ is at most "
        f"$\\mathrm{{E}}\\max/s$ = {expected_max_normal(n) / std:.4g} here, and is {row.trace:.4g}."
    )


def code(model: QueryKeyModel, result: DecayResult) -> str:
    """Return the few lines of Python that repeat this result."""
    dims = list(dict.fromkeys(record.d_k for record in result.records))
    entries = "" if model.entries == "normal" else f", entries={model.entries!r}"
    df = "" if model.df is None else f", df={model.df:g}"
    return (
        "from simulation import gradient_decay\n\n"
        f"result = gradient_decay({dims}, {N_KEYS.value()}, n_rows={result.n_rows}, rng={result.seed}{entries}{df})\n"
        f"result.select(quantity={QUANTITY.value()!r}, statistic={STATISTIC.value()!r})\n"
        "result.to_frame()  # a tidy pandas table"
    )


main()
