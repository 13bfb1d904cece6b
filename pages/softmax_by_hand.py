"""Page: what do large logits do to softmax and to its gradient. Type a row and see, exactly."""

import numpy as np
import pandas as pd
import streamlit as st

from pages import common
from simulation import jacobian_sizes, softmax, softmax_jacobian
from simulation.formatting import significant
from simulation.softmax_charts import gradient_sizes_chart, jacobian_chart, largest_weight_chart, weights_chart
from simulation.typed_logits import logits_from_text

common.through_router()

MAX_LOGITS = 64
MULTIPLIERS = [float(f"{10 ** (step / 10):.3g}") for step in range(-10, 21)]
PRESETS = {
    "[1, 1, 2]": "1, 1, 2",
    "[10, 10, 20]": "10, 10, 20",
    "[100, 100, 200]": "100, 100, 200",
    "[3, 1, −3]": "3, 1, -3",
    "[30, 10, −30]": "30, 10, -30",
}
SIZE_WORDS = {
    "largest_weight": "largest weight",
    "rest": "1 − largest weight",
    "trace": "trace of J, 1 − Σ y²",
    "frobenius": "Frobenius norm of J",
    "spectral_norm": "spectral norm of J",
    "largest_entry": "largest entry of J",
    "entropy": "entropy of the weights (nats)",
}


def one_multiplier(text: str) -> float:
    """Check a multiplier of the link: one of the slider's values."""
    if text not in [str(value) for value in MULTIPLIERS]:
        raise ValueError(f"one of the slider's values, {MULTIPLIERS[0]} to {MULTIPLIERS[-1]}")
    return float(text)


LOGITS = common.Setting("logits", "3, 1, -3", common.any_text)
MULTIPLIER = common.Setting("multiplier", 1.0, one_multiplier)
SETTINGS = (LOGITS, MULTIPLIER)


def main() -> None:
    """Draw the page, top to bottom."""
    st.title("Softmax by hand")
    st.markdown(
        "*Softmax* turns a row of numbers, the *logits* $x$, into attention weights "
        "$y_i=e^{x_i}/\\sum_j e^{x_j}$ that sum to 1. Training needs its derivatives, the *Jacobian* "
        "$J=\\mathrm{diag}(y)-yy^{\\top}$: how much each weight moves when a logit moves. Multiply the logits and watch one "
        "weight take all, and $J$ vanish."
    )
    bound = common.bind_settings(SETTINGS)
    draw_controls(bound)
    try:
        typed = logits_from_text(LOGITS.value(), most=MAX_LOGITS)
    except ValueError as error:
        st.error(str(error))
        return
    logits = [MULTIPLIER.value() * logit for logit in typed]
    say(logits)
    show_row(logits)
    show_multipliers(typed)
    show_sizes(logits)
    common.hand_over("softmax", lambda: jacobian_frame(logits), lambda: record(logits), code(typed), SETTINGS)


def draw_controls(bound) -> None:
    """Draw the presets, the logits and the multiplier."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption("From the posts:")
        for label, text in PRESETS.items():
            st.button(label, on_click=use_preset, args=(text,), type="tertiary")
    columns = st.columns([1, 1], vertical_alignment="bottom")
    columns[0].text_input("Logits, parted by commas", LOGITS.default, **bound(LOGITS), max_chars=2000)
    columns[1].select_slider("Multiplier on all logits", MULTIPLIERS, MULTIPLIER.default, **bound(MULTIPLIER))


def use_preset(text: str) -> None:
    """Put a preset into the controls, as it stands in the posts."""
    st.session_state.update({LOGITS.key: text, MULTIPLIER.key: 1.0})


def say(logits: list[float]) -> None:
    """Say the state of this row in a sentence made of its numbers."""
    sizes = jacobian_sizes(logits)
    n, trace, rest = len(logits), float(sizes.trace), float(sizes.rest)
    most = 1 - 1 / n
    if n == 1:
        st.info("With one key the weight is always 1 and there is nothing to learn: the Jacobian is exactly 0.")
        return
    weight = f"{1 - rest:.6g}" if rest > 1e-6 else f"1 − {significant(rest)}"
    if trace == 0:
        share = "smaller than 1e-308, the smallest number of double precision, times"
    else:
        share = f"**{significant(100 * trace / most, 3)} %** of"
    state = "saturated: it lets almost no gradient through" if trace < 0.01 * most else "not saturated"
    st.success(
        f"The largest weight is **{weight}**. The trace of the Jacobian is **{significant(trace)}**, {share} the most that "
        f"{n} keys allow (1 − 1/{n} = {significant(most)}). This row is {state}.",
        icon=":material/function:",
    )
    st.caption("All numbers on this page are exact to rounding: nothing is sampled.")


def show_row(logits: list[float]) -> None:
    """Show the weights beside the Jacobian."""
    left, right = st.columns(2)
    left.subheader("Attention weights y")
    common.show_chart(weights_chart(logits), left)
    right.subheader("Jacobian ∂y_i/∂x_j")
    common.show_chart(jacobian_chart(logits), right)
    st.caption(
        "Each row and column of J sums to 0, its diagonal lies between 0 and 1/4, and no entry is larger than the diagonal's "
        "largest. Derivatives are with respect to the logits; a factor 1/√d_k in front of q·k enters once more by the chain rule."
    )


def show_multipliers(typed: list[float]) -> None:
    """Show largest weight and gradient sizes against the multiplier."""
    st.subheader("Against the multiplier")
    left, right = st.columns(2)
    common.show_chart(largest_weight_chart(typed, MULTIPLIER.value(), height=300), left)
    common.show_chart(gradient_sizes_chart(typed, MULTIPLIER.value(), height=300), right)
    st.caption(
        "The dashed line marks the multiplier chosen; curves that leave the chart go on falling. Only differences of logits matter: adding a number to all of them changes "
        "nothing, so it is the spread of the logits, not their size, that saturates softmax."
    )


def show_sizes(logits: list[float]) -> None:
    """Show the sizes of the Jacobian as a table."""
    sizes = jacobian_sizes(logits)
    rows = [
        {"quantity": words, "exact value": f"{float(getattr(sizes, key)):.10g}"} for key, words in SIZE_WORDS.items()
    ]
    with st.expander("All numbers", expanded=False):
        st.dataframe(pd.DataFrame(rows), hide_index=True)
        st.caption(
            "One minus the largest weight is taken as the sum of the others, so it stays right when the largest rounds to 1: "
            "for [100, 100, 200] the trace is 1.488e-43, not 0."
        )


def jacobian_frame(logits: list[float]) -> pd.DataFrame:
    """Return the Jacobian as a tidy frame: row, column, weight of the row, derivative."""
    jacobian = softmax_jacobian(logits)
    rows, columns = np.indices(jacobian.shape) + 1
    weights = np.repeat(softmax(logits), len(logits))
    return pd.DataFrame(
        {"row": rows.ravel(), "column": columns.ravel(), "weight": weights, "derivative": jacobian.ravel()}
    )


def record(logits: list[float]) -> str:
    """Return the row as JSON, the same as the command ``softmax --json`` prints."""
    sizes = jacobian_sizes(logits)
    figures = {name: float(getattr(sizes, name)) for name in SIZE_WORDS}
    return common.as_json(
        {
            "logits": logits,
            "weights": softmax(logits).tolist(),
            "jacobian": softmax_jacobian(logits).tolist(),
            **figures,
        }
    )


def code(typed: list[float]) -> str:
    """Return the few lines of Python that repeat this row."""
    return (
        "import numpy as np\n"
        "from simulation import jacobian_sizes, softmax, softmax_jacobian\n\n"
        f"logits = {MULTIPLIER.value():g} * np.array({[float(f'{x:.12g}') for x in typed]})\n"
        "print(softmax(logits))\n"
        "print(softmax_jacobian(logits))\n"
        "print(jacobian_sizes(logits))"
    )


main()
