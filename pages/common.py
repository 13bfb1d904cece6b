"""What pages share: navigation, settings bound to the address bar, runs with a Stop button, downloads."""

import json
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import altair as alt
import pandas as pd
import streamlit as st

HERE = Path(__file__).parent
PAGES = (
    ("dot_products.py", "Dot products", ":material/scatter_plot:"),
    ("gradient_decay.py", "Gradient decay", ":material/trending_down:"),
    ("other_scalings.py", "Other scalings", ":material/tune:"),
    ("softmax_by_hand.py", "Softmax by hand", ":material/calculate:"),
    ("your_qk.py", "Your q and k", ":material/upload_file:"),
    ("claims.py", "Claims", ":material/fact_check:"),
    ("method.py", "Method", ":material/menu_book:"),
)
MAX_STORED = 128  # results kept for all visitors together, each a summary of some 20 kB
MAX_SEED = 2**53 - 1
MAX_RUNS = 2  # simulations at once for all visitors together: the host has about one core


def navigation() -> Any:
    """Declare the pages and return the one asked for."""
    st.session_state["_routed"] = True
    return st.navigation(
        [st.Page(HERE / name, title=title, icon=icon, default=name == PAGES[0][0]) for name, title, icon in PAGES]
    )


def through_router() -> None:
    """Send a page that was opened without the router back through it.

    Streamlit runs a file of pages/ alone when it is the first thing that a fresh server is asked for.
    """
    if "_routed" not in st.session_state:
        navigation()
        st.rerun()


# Settings ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """One control: its key (also its name in the address bar), default, and check of a linked value.

    `check` reads the text of a link and raises ValueError with the rule if it breaks it.
    """

    key: str
    default: Any
    check: Callable[[str], Any]

    def value(self) -> Any:
        """Return the value in force."""
        return st.session_state.get(self.key, self.default)


def whole(low: int, high: int) -> Callable[[str], int]:
    """Return a check for whole numbers from `low` to `high`."""

    def check(text: str) -> int:
        digits = text.strip().removeprefix("-")
        if not (digits.isdecimal() and len(digits) < 20 and low <= int(text) <= high):
            raise ValueError(f"a whole number from {low:,} to {high:,}")
        return int(text)

    return check


def real(low: float, high: float) -> Callable[[str], float]:
    """Return a check for numbers from `low` to `high`."""

    def check(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise ValueError(f"a number from {low:g} to {high:g}")
        return value

    return check


def option(options: Sequence[str]) -> Callable[[str], str]:
    """Return a check for one of a few words."""

    def check(text: str) -> str:
        if text not in options:
            raise ValueError(f"one of {', '.join(options)}")
        return text

    return check


def any_text(text: str) -> str:
    """Let any text through: the page itself says what is wrong with it."""
    return text


def bind_settings(settings: Sequence[Setting]) -> Callable[[Setting], dict[str, Any]]:
    """Check the link's values, say which were refused, and return the keywords that bind a control.

    Call before the controls are drawn. A refused value leaves the address bar and the default
    takes its place; the message names it.
    """
    st.session_state.setdefault("_defaults", {}).update({setting.key: setting.default for setting in settings})
    refused = {setting.key: why for setting in settings if (why := _refusal(setting))}
    unbound = _drop_from_link(refused) if refused else set()
    for setting in settings:
        if why := st.session_state.get("_refused", {}).get(setting.key):
            st.warning(f"`{setting.key}` in the link {why}. Using {setting.value()}.", icon=":material/link_off:")

    def bound(setting: Setting) -> dict[str, Any]:
        bind = None if setting.key in unbound else "query-params"
        return {"key": setting.key, "bind": bind, "on_change": _forget_refused}

    return bound


def _refusal(setting: Setting) -> str:
    """Return what is wrong with the linked value of a setting, or nothing."""
    raw = st.query_params.get_all(setting.key)
    if len(raw) > 1:
        return f"must be given once; received {', '.join(raw)[:60]!r}"
    try:
        for text in raw:
            setting.check(text)
    except ValueError as rule:
        return f"must be {rule}; received {raw[0][:60]!r}"
    return ""


def _drop_from_link(refused: Mapping[str, str]) -> set[str]:
    """Take refused values out of the address bar and start over.

    Returns the keys that stay there, when the Back button led to a refused link: they are bound.
    """
    st.session_state["_refused"] = dict(refused)
    try:
        for key in refused:
            del st.query_params[key]
    except st.errors.StreamlitAPIException:
        return set(refused)
    st.rerun()
    return set()


def _forget_refused() -> None:
    st.session_state.pop("_refused", None)


# Runs -------------------------------------------------------------------------------------------


class Store:
    """The last few results by their settings, for all visitors: same settings and seed, same result."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()
        self.runs = threading.BoundedSemaphore(MAX_RUNS)

    def get(self, key: Hashable) -> Any:
        """Return the result stored for `key`, or None."""
        with self._lock:
            if key in self._items:
                self._items.move_to_end(key)
            return self._items.get(key)

    def put(self, key: Hashable, value: Any) -> None:
        """Store a result, and drop the one longest unused when there are too many."""
        with self._lock:
            self._items[key] = value
            self._items.move_to_end(key)
            while len(self._items) > self._size:
                self._items.popitem(last=False)


@st.cache_resource(show_spinner=False)
def store() -> Store:
    """Return the one store of this server."""
    return Store(MAX_STORED)


Progress = Callable[[int, int], None]


def computed(key: Hashable, label: str, work: Callable[[Progress], Any], shelf: Store | None = None) -> Any:
    """Return the stored result of `key`, or run `work` with a progress bar and a Stop button.

    Results are stored for all visitors, or on a `shelf` of the visitor's own. Returns None when the
    reader has stopped this run; then a button runs it again. Stop works because any click ends the
    running script at its next call to Streamlit, here the progress bar.
    """
    kept = store() if shelf is None else shelf
    if (found := kept.get(key)) is not None:
        return found
    if st.session_state.get("_stopped") == key:
        st.info(f"{label}: stopped.", icon=":material/stop_circle:")
        st.button("Run it", key=f"run {key}", on_click=_set_stopped, args=(None,))
        return None
    place = st.empty()
    with place.container(horizontal=True, vertical_alignment="center"):
        bar = st.progress(0.0, text=label)
        st.button("Stop", key=f"stop {key}", on_click=_set_stopped, args=(key,), icon=":material/stop:")
    while not store().runs.acquire(timeout=0.2):
        bar.progress(0.0, text=f"{label}: waiting for another visitor's run")
    try:
        result = work(_shown_on(bar, label))
    except ValueError:
        place.empty()
        raise
    finally:
        store().runs.release()
    place.empty()
    kept.put(key, result)
    return result


def _set_stopped(key: Hashable) -> None:
    st.session_state["_stopped"] = key


def _shown_on(bar: Any, label: str) -> Progress:
    """Return a progress callback that touches the screen at most ten times a second."""
    last = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > 0.1:
            last = now
            bar.progress(done / total, text=f"{label}: {done / total:.0%}")

    return show


def show_chart(chart: alt.TopLevelMixin, place: Any = st, **options: Any) -> None:
    """Draw a chart with labels, texts and rules in the colour of the page's text.

    The theme's grey is too faint to read, and Vega's own black is lost on a dark page.
    """
    ink = {"labelColor": "currentColor", "titleColor": "currentColor"}
    labelled = chart.configure_axis(**ink).configure_legend(**ink)
    place.altair_chart(labelled.configure_text(color="currentColor").configure_rule(color="currentColor"), **options)


# Handing over -----------------------------------------------------------------------------------


def link(settings: Sequence[Setting]) -> str:
    """Return the address that restores these settings, all of them written out."""
    values = {s.key: s.value() for s in settings if s.value() is not None}
    return f"{st.context.url or ''}?{urlencode(values)}"


def hand_over(
    name: str, frame: Callable[[], pd.DataFrame], record: Callable[[], str], code: str, settings: Sequence[Setting]
) -> None:
    """Draw the last part of a page: CSV, JSON, the link that restores it, the Python that repeats it.

    Without `settings` there is no link: what is on the screen is the visitor's own.
    """
    st.subheader("Take it with you")
    with st.container(horizontal=True):
        st.download_button(
            "CSV",
            lambda: frame().to_csv(index=False),
            f"{name}.csv",
            "text/csv",
            on_click="ignore",
            icon=":material/download:",
        )
        st.download_button(
            "JSON", record, f"{name}.json", "application/json", on_click="ignore", icon=":material/download:"
        )
    if settings:
        st.caption("A link that shows the same page:")
        st.code(link(settings), language=None, wrap_lines=True)
    st.caption("The Python that repeats it:")
    st.code(code, language="python")


def as_json(record: Mapping[str, Any]) -> str:
    """Return a record as JSON without NaN or Infinity."""
    return json.dumps(record, indent=2, allow_nan=False, ensure_ascii=False)


if __name__ == "__main__":  # Streamlit may open any file of pages/ as a page
    through_router()
