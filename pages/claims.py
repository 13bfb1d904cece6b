"""Page: what people say about √d_k, each statement with the number that decides it."""

import re

import pandas as pd
import streamlit as st

from pages import common
from simulation.claim_checks import Number
from simulation.claims import GROUPS, Evidence, Statement, statements

common.through_router()

ICONS = {
    "true": ":green[:material/check_circle:]",
    "conditional": ":orange[:material/rule:]",
    "false": ":red[:material/cancel:]",
}
TITLES = {name.removesuffix(".py"): title for name, title, _ in common.PAGES}
WORDS = {"all": None, "true": "true", "under conditions": "conditional", "false": "false"}

GROUP = common.Setting("group", "all", common.option(list(WORDS)))
FIND = common.Setting("find", "", common.any_text)
SETTINGS = (GROUP, FIND)

Numbers = dict[str, list[Number]]


def main() -> None:
    """Draw the page, top to bottom."""
    st.title("True, or only repeated?")
    st.markdown(
        "What posts, lectures, papers and bug reports say about $\\sqrt{d_k}$, each held against a number. Behind every number "
        "stands the range in which the statement needs it to be: a statement is *true* if all its numbers lie in their ranges, "
        "*false* if none does, *true under conditions* if some do. The button opens the page that shows it, with these settings."
    )
    bound = common.bind_settings(SETTINGS)
    numbers = common.computed(("claims",), "Computing the numbers", compute)
    if numbers is None:
        return
    say(numbers)
    columns = st.columns([1, 1], vertical_alignment="bottom")
    columns[0].segmented_control("Show", list(WORDS), default=GROUP.default, required=True, **bound(GROUP))
    columns[1].text_input("Find", FIND.default, **bound(FIND), placeholder="for example: variance", max_chars=100)
    show_groups(numbers)
    common.hand_over("claims", lambda: frame(numbers), lambda: record(numbers), code(), SETTINGS)


def compute(progress: common.Progress) -> Numbers:
    """Compute every number: most exactly, some by short draws with a fixed seed."""
    found: Numbers = {}
    for done, statement in enumerate(statements(), start=1):
        found[statement.id] = statement.numbers()
        progress(done, len(statements()))
    return found


def say(numbers: Numbers) -> None:
    """Say how many statements are true."""
    verdicts = [statement.verdict_of(numbers[statement.id]) for statement in statements()]
    told = {group: verdicts.count(group) for group in GROUPS}
    drawn = sum(evidence.is_drawn for statement in statements() for evidence in statement.evidence)
    total = sum(len(statement.evidence) for statement in statements())
    st.success(
        f"Of {len(verdicts)} statements **{told['true']} are true**, **{told['conditional']} are true under conditions** and "
        f"**{told['false']} are false**. {total - drawn} of their {total} numbers are exact, {drawn} are drawn and carry their "
        "standard error (±).",
        icon=":material/fact_check:",
    )


def show_groups(numbers: Numbers) -> None:
    """Show the statements that are asked for, group by group."""
    wanted, text = WORDS[GROUP.value()], FIND.value().strip().lower()
    shown = 0
    for group, title in GROUPS.items():
        if wanted not in (None, group):
            continue
        found = [
            statement
            for statement in statements()
            if statement.verdict_of(numbers[statement.id]) == group and is_found(statement, text)
        ]
        shown += len(found)
        if found:
            st.subheader(f"{title} ({len(found)})")
        for statement in found:
            show_statement(statement, numbers[statement.id])
    if not shown:
        st.info(f"No statement holds “{FIND.value()}” here.", icon=":material/search_off:")


def is_found(statement: Statement, text: str) -> bool:
    """Return whether a text occurs in a statement, its explanation or its source."""
    return text in f"{statement.statement} {statement.explanation} {statement.source}".lower()


def show_statement(statement: Statement, numbers: list[Number]) -> None:
    """Show one statement as a card: verdict, numbers, why, source, and the way to see it."""
    with st.container(border=True):
        st.markdown(f"{ICONS[statement.verdict_of(numbers)]} **{plain(statement.statement)}**")
        rows = zip(statement.evidence, numbers, strict=True)
        st.markdown("\n".join(f"- {line(evidence, number)}" for evidence, number in rows))
        st.markdown(plain(statement.explanation))
        with st.container(horizontal=True, vertical_alignment="center"):
            open_button(statement)
            st.caption(f"Said in: {linked(statement.source)}")


def open_button(statement: Statement) -> None:
    """Draw the button that opens a page with the settings of a statement and all others at their defaults.

    A page keeps what the visitor last chose on it, so that goes back first.
    """
    label, icon = f"See it on “{TITLES[statement.page]}”", ":material/arrow_forward:"
    if st.button(label, key=f"see {statement.id}", type="tertiary", icon=icon, on_click=take_back):
        st.switch_page(common.HERE / f"{statement.page}.py", query_params=statement.link)


def take_back() -> None:
    """Put every setting of the pages visited back to its default, but for this page's own."""
    own = {setting.key for setting in SETTINGS}
    for key, default in st.session_state.get("_defaults", {}).items():
        if key not in own and st.session_state.get(key, default) != default:
            st.session_state[key] = default


def line(evidence: Evidence, number: Number) -> str:
    """Return a number in words, with the range that the statement needs."""
    mark = ":green[holds]" if evidence.holds(number) else ":red[does not hold]"
    return f"{plain(evidence.label)}: **{number.text}**; needed: {evidence.range_text}; {mark}"


def linked(source: str) -> str:
    """Return a source with its arXiv numbers and DOIs as links; plain addresses become links by themselves."""
    source = re.sub(r"arXiv:(\d{4}\.\d{5})", r"[arXiv:\1](https://arxiv.org/abs/\1)", source)
    return re.sub(r"doi:(10\.\S+\w)", r"[doi:\1](https://doi.org/\1)", source)


def plain(text: str) -> str:
    """Return text with the signs escaped that Markdown would read as its own."""
    for sign in "_*[]~$":
        text = text.replace(sign, f"\\{sign}")
    return text


def frame(numbers: Numbers) -> pd.DataFrame:
    """Return a tidy frame, a row for each number."""
    return pd.DataFrame(
        [
            {
                "id": statement.id,
                "statement": statement.statement,
                "verdict": statement.verdict_of(numbers[statement.id]),
                "number": evidence.label,
                "value": number.value,
                "standard_error": number.standard_error,
                "needed_from": evidence.low,
                "needed_to": evidence.high,
                "holds": evidence.holds(number),
                "source": statement.source,
            }
            for statement in statements()
            for evidence, number in zip(statement.evidence, numbers[statement.id], strict=True)
        ]
    )


def record(numbers: Numbers) -> str:
    """Return the same as JSON; open ends of a range are null."""
    table = frame(numbers).astype(object)
    return common.as_json(
        {"claims": table.where(table.notna() & ~table.isin([float("inf"), -float("inf")]), None).to_dict("records")}
    )


def code() -> str:
    """Return the few lines of Python that repeat the verdicts."""
    return (
        "from simulation.claims import statements\n\n"
        "for statement in statements():\n"
        "    numbers = statement.numbers()\n"
        "    print(statement.verdict_of(numbers), statement.statement, [number.text for number in numbers])"
    )


main()
