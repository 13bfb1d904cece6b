"""What the page "Dot products" says of a result: its sentence, its four claims, its fit, its moments."""

import pandas as pd
import streamlit as st

from pages import common
from simulation import DotProductResult
from simulation.formatting import interval_text, plus_minus, significant

ICONS = {
    "confirmed": ":green[:material/check_circle:]",
    "refuted": ":red[:material/cancel:]",
    "inconclusive": ":orange[:material/help:]",
}
CLAIM_FORMULAS = (
    r"$\mathrm{E}[q\cdot k]=0$",
    r"$\mathrm{Var}[q\cdot k]=d_k$",
    r"$\mathrm{E}\left[\frac{q\cdot k}{\sqrt{d_k}}\right]=0$",
    r"$\mathrm{Var}\left[\frac{q\cdot k}{\sqrt{d_k}}\right]=1$",
)


def say(result: DotProductResult) -> None:
    """Say the answer in a sentence made of the numbers measured."""
    d_k = result.model.d_k
    verdicts = [claim.verdict for claim in result.claims]
    measured = (
        f"Over {result.n_samples:,} pairs at $d_k={d_k:,}$, $q\\cdot k$ has mean {result.before.mean.text} and variance "
        f"**{result.before.variance.text}**; divided by {1 / result.scale:,.6g} the variance is "
        f"**{result.after.variance.text}**."
    )
    if set(verdicts) == {"confirmed"}:
        st.success(f"{measured} All four claims are confirmed to within 1 %.", icon=":material/check_circle:")
    elif "refuted" in verdicts:
        count = verdicts.count("refuted")
        told = {1: "One of the four claims is", 4: "All four claims are"}.get(count, f"{count} of the four claims are")
        exact = result.before.variance.exact
        why = f" Your model implies a variance of exactly {significant(exact, 6)}." if exact is not None else ""
        st.warning(f"{measured} {told} refuted.{why}", icon=":material/cancel:")
    else:
        open_claims = [claim for claim in result.claims if claim.verdict == "inconclusive"]
        needed = max((claim.samples_to_decide or 0 for claim in open_claims), default=0)
        more = f" About {needed:,} pairs would decide." if needed else ""
        undecided = "That is not yet precise enough to decide all four claims."
        if all(claim.standard_error is None for claim in open_claims):
            undecided = (
                "Such heavy tails leave the numbers without an error bar, so no number of pairs decides the rest."
            )
        st.info(f"{measured} {undecided}{more}", icon=":material/help:")
    st.caption(
        f"± is one Monte Carlo standard error: how much the number would move in a repeat. Seed {result.seed}; the intervals "
        f"below hold for all four claims together with {result.confidence:.0%} confidence."
    )


def show_claims(result: DotProductResult) -> None:
    """Show the four claims as cards, each with its verdict and the numbers behind it."""
    st.subheader("The four claims")
    for column, formula, claim in zip(st.columns(4), CLAIM_FORMULAS, result.claims, strict=True):
        with column.container(border=True, height="stretch"):
            st.markdown(formula)
            st.markdown(f"{ICONS[claim.verdict]} **{claim.verdict}**")
            st.markdown(f"measured **{plus_minus(claim.estimate, claim.standard_error)}**")
            exact = "none" if claim.exact is None else significant(claim.exact, 6)
            lines = [f"claimed {claim.expected:g} ± {claim.tolerance:.3g}", f"exact for this model: {exact}"]
            if claim.interval:
                lines.append(f"interval {interval_text(*claim.interval)}")
            elif claim.note:
                lines.append(claim.note)
            if claim.samples_to_decide:
                lines.append(f"about {claim.samples_to_decide:,} pairs would decide")
            st.caption("  \n".join(lines))
    with st.expander("How a verdict is reached"):
        st.markdown(
            "**Confirmed**: the whole interval lies within 1 % of the claim (1 % of the value for a variance, of one standard "
            "deviation for a mean). **Refuted**: the whole interval lies outside. **Inconclusive**: neither; more pairs "
            "would decide. The error is the exact one of the model, from its kurtosis; see *Method*."
        )


def fit_words(result: DotProductResult) -> str:
    """Say how the draws fit the exact law, and how far that law is from a normal one."""
    fit = result.fit
    words = ""
    if fit.p_value is not None:
        agrees = "agree with" if fit.p_value > 0.001 else "do not fit"
        words = (
            f"The draws {agrees} the exact law (chi-square {fit.chi_square:.1f} on {fit.degrees_of_freedom} degrees of freedom, "
            f"p = {fit.p_value:.2g}). "
        )
    if fit.measured_distance is None:
        return words
    exact = f" (exactly {significant(fit.distance_to_normal, 3)})" if fit.distance_to_normal is not None else ""
    return (
        f"{words}Its distribution function differs from a normal one by at most {fit.measured_distance:.2g} as measured{exact}; "
        f"chance alone shows up to {fit.noise:.2g}. *Not exactly normal* is no failure of the claim, which is about the mean "
        "and the variance."
    )


def moments_frame(result: DotProductResult) -> pd.DataFrame:
    """Return the moments as a reader wants them: estimate ± error, interval, exact."""
    names = {"component": "one product q_i k_i", "before": "q·k", "after": "q·k after scaling"}
    rows = []
    for stage, label in names.items():
        for statistic, estimate in getattr(result, stage).items():
            interval = estimate.interval
            rows.append(
                {
                    "quantity": label,
                    "statistic": statistic,
                    "measured ± s.e.": estimate.text,
                    "interval": interval_text(*interval) if interval else estimate.note,
                    "exact": "none" if estimate.exact is None else significant(estimate.exact, 6),
                }
            )
    return pd.DataFrame(rows)


if __name__ == "__main__":  # Streamlit may open any file of pages/ as a page
    common.through_router()
