"""Page: is it true that q·k has mean 0 and variance d_k, and that dividing by √d_k makes it 1."""

import math
import secrets
from dataclasses import replace

import streamlit as st

from pages import common
from pages.dot_product_words import fit_words, moments_frame, say, show_claims
from simulation import DotProductResult, QueryKeyModel, dot_products, samples_for_precision
from simulation.charts import histogram_chart, ladder_chart, ratio_chart
from simulation.convergence import convergence
from simulation.convergence_charts import convergence_chart, outside
from simulation.formatting import significant
from simulation.model import ENTRIES
from simulation.sweeps import DEFAULT_LADDER, collect_sweep, sweep_rung

common.through_router()

MAX_NUMBERS = 600_000_000  # entries of q one visitor may ask for at once: some 10 s on one core
LADDER_NUMBERS = 100_000_000
MAX_LADDER_D_K = 4096
DIVISORS = ("sqrt(d_k)", "d_k", "nothing", "own number")
D_K = common.Setting("d_k", 64, common.whole(1, 1_000_000))
SAMPLES = common.Setting("samples", 500_000, common.whole(2, 5_000_000))
FAMILY = common.Setting("entries", "normal", common.option(ENTRIES))
DF = common.Setting("df", 5.0, common.real(2.01, 100))
SEED = common.Setting("seed", 0, common.whole(0, common.MAX_SEED))
Q_MEAN = common.Setting("q_mean", 0.0, common.real(-100, 100))
Q_STD = common.Setting("q_std", 1.0, common.real(0.01, 100))
K_MEAN = common.Setting("k_mean", 0.0, common.real(-100, 100))
K_STD = common.Setting("k_std", 1.0, common.real(0.01, 100))
CORRELATION = common.Setting("correlation", 0.0, common.real(-1, 1))
DIVISOR = common.Setting("divide_by", DIVISORS[0], common.option(DIVISORS))
OWN_DIVISOR = common.Setting("divisor", 8.0, common.real(0.001, 1e6))
SETTINGS = (D_K, SAMPLES, FAMILY, DF, SEED, Q_MEAN, Q_STD, K_MEAN, K_STD, CORRELATION, DIVISOR, OWN_DIVISOR)


def main() -> None:
    """Draw the page, top to bottom."""
    st.title("Why divide by $\\sqrt{d_k}$?")
    st.markdown(
        "A transformer compares a *query* $q$ with a *key* $k$, two vectors of $d_k$ numbers, by their dot product "
        "$q\\cdot k=\\sum_i q_i k_i$, and divides it by $\\sqrt{d_k}$. The reason usually given: if all components are "
        "independent with mean 0 and variance 1, then $q\\cdot k$ has mean 0 and **variance $d_k$**, and dividing "
        "brings the variance back to 1. Here real $q$ and $k$ are drawn and the claim is measured."
    )
    bound = common.bind_settings(SETTINGS)
    draw_controls(bound)
    draw_departures(bound)
    if (model := chosen_model()) is None:
        return
    result = measured(model)
    if result is None:
        return
    say(result)
    show_claims(result)
    show_histogram(result)
    show_ladder(model)
    show_convergence(model)
    show_details(result)
    plan(model)
    common.hand_over("dot_products", result.to_frame, result.to_json, code(result), shown_settings())


def draw_controls(bound) -> None:
    """Draw d_k, number of pairs, family of the entries and seed."""
    columns = st.columns([1.2, 1.3, 1.2, 1.2, 0.8], vertical_alignment="bottom")
    columns[0].number_input(
        "Head dimension d_k", 1, 1_000_000, D_K.default, **bound(D_K), help="How many components q and k have."
    )
    columns[1].number_input(
        "Pairs (q, k) to draw",
        2,
        5_000_000,
        SAMPLES.default,
        100_000,
        **bound(SAMPLES),
        help="More pairs, smaller error.",
    )
    columns[2].selectbox("Entries drawn from", ENTRIES, **bound(FAMILY), format_func=str)
    columns[3].number_input("Seed", 0, common.MAX_SEED, SEED.default, **bound(SEED), help="Same seed, same numbers.")
    columns[4].button("New seed", on_click=new_seed, help="An independent repeat.", width="stretch")
    if FAMILY.value() == "student_t":
        st.number_input(
            "Degrees of freedom of Student t",
            2.01,
            100.0,
            DF.default,
            **bound(DF),
            help="At most 4, the entries have no kurtosis and the measured variance no standard error.",
        )


def new_seed() -> None:
    """Put a fresh random seed into the seed control, where it shows and can be reused."""
    st.session_state[SEED.key] = secrets.randbits(32)


def draw_departures(bound) -> None:
    """Draw the controls that break the footnote's assumptions, folded away."""
    with st.expander("Break the assumptions: means, spreads, correlation, another divisor"):
        st.caption("The claims stay those of the footnote (0, d_k, 0, 1); the exact value of your model stands beside.")
        columns = st.columns(3)
        for column, mean, std, vector in ((columns[0], Q_MEAN, Q_STD, "q"), (columns[1], K_MEAN, K_STD, "k")):
            column.number_input(f"Mean of {vector}_i", -100.0, 100.0, 0.0, 0.1, **bound(mean))
            column.number_input(f"Standard deviation of {vector}_i", 0.01, 100.0, 1.0, 0.1, **bound(std))
        columns[2].number_input("Correlation of q_i with k_i", -1.0, 1.0, 0.0, 0.1, **bound(CORRELATION))
        columns[2].selectbox("Divide q·k by", DIVISORS, **bound(DIVISOR))
        if DIVISOR.value() == "own number":
            columns[2].number_input("Your divisor", 0.001, 1e6, 8.0, **bound(OWN_DIVISOR))


def chosen_model() -> QueryKeyModel | None:
    """Return the model of the controls, or say in one sentence why there is none."""
    family = FAMILY.value()
    if D_K.value() * SAMPLES.value() > MAX_NUMBERS:
        most = max(2, MAX_NUMBERS // D_K.value())
        st.error(
            f"{SAMPLES.value():,} pairs at d_k = {D_K.value():,} are too many for this shared server: at this d_k ask for "
            f"at most {most:,}. The Python package has no such limit."
        )
        st.button(f"Use {most:,} pairs", on_click=lambda: st.session_state.update({SAMPLES.key: most}))
        return None
    try:
        return QueryKeyModel(
            D_K.value(),
            entries=family,
            df=DF.value() if family == "student_t" else None,
            q_mean=Q_MEAN.value(),
            q_std=Q_STD.value(),
            k_mean=K_MEAN.value(),
            k_std=K_STD.value(),
            correlation=CORRELATION.value(),
        )
    except ValueError as error:
        st.error(str(error))
        return None


def chosen_scale(d_k: int) -> float:
    """Return the factor that the chosen divisor puts on q·k."""
    divisors = (math.sqrt(d_k), float(d_k), 1.0, OWN_DIVISOR.value())
    return 1 / dict(zip(DIVISORS, divisors, strict=True))[DIVISOR.value()]


def measured(model: QueryKeyModel) -> DotProductResult | None:
    """Return the result for the controls: stored, or measured now."""
    n, seed, scale = SAMPLES.value(), SEED.value(), chosen_scale(model.d_k)
    return common.computed(
        (model, n, seed, scale),
        f"Drawing {n:,} pairs",
        lambda progress: dot_products(model, n, rng=seed, scale=scale, progress=progress),
    )


def show_histogram(result: DotProductResult) -> None:
    """Show the histograms before and after on one axis, with the exact densities and the fit."""
    st.subheader("What scaling does to the logits")
    log_density = st.toggle("Logarithmic density (shows the tails)", key="log_density")
    common.show_chart(histogram_chart(result, log_density=log_density))
    outside = result.histogram.underflow + result.histogram.overflow
    st.caption(
        f"Bars: measured. Lines: exact density{'' if result.fit.p_value is not None else ' (no closed form for this model)'}. "
        f"{outside:,} of {result.n_samples:,} values lie beyond six standard deviations, outside the bars."
    )
    st.markdown(fit_words(result))


def show_ladder(model: QueryKeyModel) -> None:
    """Measure the variance over a ladder of d_k, a rung at a time, and show it as it grows."""
    st.subheader("The variance against d_k")
    ladder = sorted({*DEFAULT_LADDER, *([model.d_k] if model.d_k <= MAX_LADDER_D_K else [])})
    n = max(2, LADDER_NUMBERS // sum(ladder))
    results: list[DotProductResult] = []
    place = st.empty()
    for d_k in ladder:
        found = rung(replace(model, d_k=d_k), n, len(ladder))
        if found is None:
            break
        results.append(found)
        with place.container():  # drawn anew with every rung
            left, right = st.columns([3, 2])
            common.show_chart(ladder_chart(results), left)
            common.show_chart(ratio_chart(results, height=250), right)
    if not results:
        return
    slope = collect_sweep(results, SEED.value())
    if slope.slope_before and slope.slope_after:
        st.markdown(
            f"On log axes the variance rises with slope **{slope.slope_before.text}** before scaling (exactly "
            f"{significant(slope.slope_before.exact or 0)}) and **{slope.slope_after.text}** after (exactly "
            f"{significant(slope.slope_after.exact or 0)})."
        )
    st.caption(
        f"{n:,} pairs at each d_k, each with its own random stream. Lines: the claims, Var = d_k before and 1 after dividing "
        f"by √d_k. Bars: intervals that hold for all points together. The right chart enlarges the last: measured variance "
        f"after scaling over the claimed 1."
    )


def rung(model: QueryKeyModel, n: int, rungs: int) -> DotProductResult | None:
    """Return one rung of the ladder: stored, or measured now."""
    seed = SEED.value()
    return common.computed(
        ("rung", model, n, seed, rungs),
        f"Ladder: d_k = {model.d_k:,}",
        lambda progress: sweep_rung(model, n, seed, rungs=rungs, progress=progress),
    )


def show_convergence(model: QueryKeyModel) -> None:
    """Show how the variance settles as pairs come in, with the band that may be looked at as often as one likes."""
    st.subheader("As the pairs come in")
    n, seed = min(SAMPLES.value(), max(2, LADDER_NUMBERS // model.d_k)), SEED.value()
    result = common.computed(
        ("convergence", model, n, seed),
        f"Following {n:,} pairs",
        lambda progress: convergence(model, n, rng=seed, progress=progress),
    )
    if result is None:
        return
    common.show_chart(convergence_chart(result))
    points = result.select("variance")
    if points[-1].band is None:
        st.caption("This law has no finite kurtosis, so its variance has no error bar, and the line need not settle.")
        return
    band, interval = outside(points)
    st.caption(
        f"The first {n:,} pairs of the run above, looked at {len(points)} times. Dashed: the {result.confidence:.0%} interval for one "
        "number of pairs chosen beforehand. Whoever watches and stops when it pleases looks at many such intervals, and one of "
        "them misses far more often than 5 % of the time. Solid: a band that holds at all looks together (an asymptotic "
        "confidence sequence); at the left it may leave the picture. "
        f"Here the exact value lay outside the interval at {interval} looks and outside the band at {band}."
    )
    st.download_button(
        "CSV of this chart",
        lambda: result.to_frame().to_csv(index=False),
        "convergence.csv",
        "text/csv",
        on_click="ignore",
        icon=":material/download:",
    )


def show_details(result: DotProductResult) -> None:
    """Show all moments: of one component product, before and after scaling."""
    with st.expander("All moments, and the step on which the derivation rests"):
        st.markdown(
            "The derivation starts from one product: $\\mathrm{E}[q_i k_i]=0$ and $\\mathrm{Var}[q_i k_i]=1$; the sum of $d_k$ "
            "independent ones has $d_k$ times that variance. *Skewness* (0 if symmetric) and *kurtosis* (3 for a normal law) "
            "describe the shape, which scaling leaves alone."
        )
        st.dataframe(moments_frame(result), hide_index=True)


def plan(model: QueryKeyModel) -> None:
    """Say how many pairs give a precision that the reader chooses."""
    st.subheader("How many pairs do you need?")
    percent = st.select_slider(
        "Wanted precision of the variance (± %, at 95 %)", [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0], 1.0
    )
    kurtosis = model.moments().kurtosis
    try:
        needed = samples_for_precision(kurtosis, percent / 100)
    except ValueError:
        st.markdown(
            "No number of pairs can be named: this law has no finite kurtosis, so its variance has no standard error."
        )
        return
    st.markdown(
        f"**{needed:,} pairs** give the variance to ±{percent:g} % (exact: $n=z^2(\\kappa-1)/\\varepsilon^2$ with the exact "
        f"kurtosis $\\kappa$ = {significant(kurtosis, 6)} of $q\\cdot k$)."
    )


def shown_settings() -> list[common.Setting]:
    """Return the settings that matter for what is on the screen, for the link."""
    hidden = {DF} if FAMILY.value() != "student_t" else set()
    hidden |= {OWN_DIVISOR} if DIVISOR.value() != "own number" else set()
    always = {D_K, SAMPLES, FAMILY, SEED}
    return [s for s in SETTINGS if s not in hidden and (s in always or s.value() != s.default)]


def code(result: DotProductResult) -> str:
    """Return the few lines of Python that repeat this result."""
    model = result.model
    named = {
        name: getattr(model, name) for name in ("entries", "df", "q_mean", "q_std", "k_mean", "k_std", "correlation")
    }
    default = QueryKeyModel(1)
    changed = "".join(f", {k}={v!r}" for k, v in named.items() if v != getattr(default, k))
    scale = "" if DIVISOR.value() == DIVISORS[0] else f", scale={result.scale!r}"
    return (
        "from simulation import QueryKeyModel, dot_products\n\n"
        f"model = QueryKeyModel({model.d_k}{changed})\n"
        f"result = dot_products(model, {result.n_samples:_}, rng={result.seed}{scale})\n"
        "print(result)\n"
        "result.to_frame()  # a tidy pandas table"
    )


main()
