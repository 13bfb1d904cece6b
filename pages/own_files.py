"""A visitor's own files of q and k: uploaded, read as the visitor says, and kept in their session only.

Out: a `Source` for the page "Your q and k". Nothing in here is ever stored for other visitors.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from pages import common
from simulation._file_parts import size_text
from simulation.qk_arrays import QueriesKeys
from simulation.qk_files import MAX_FILES, Choices, Offer, offered

TYPES = ["npy", "npz", "safetensors", "csv", "tsv", "txt"]
MAX_BYTES = 48_000_000  # of float64 for q and k together: a host of 690 MB holds a few visitors' arrays


@dataclass(frozen=True)
class Source:
    """What the page measures: q and k, the scale and mask of the model, and where results are kept.

    `key` tells it from every other source on its `shelf`, which is None for all visitors together.
    """

    name: str
    data: QueriesKeys
    scale: float | None
    causal: bool
    key: Hashable
    shelf: common.Store | None
    code: str
    tokens: tuple[str, ...] = ()
    axes: tuple[str, ...] = ()


@dataclass
class Own:
    """One visitor's files, what they said of them, and results; gone with their session."""

    files: tuple[tuple[str, bytes], ...] = ()
    upload: int = 0
    refused: str = ""
    said: dict[str, Any] = field(default_factory=dict)
    shelf: common.Store = field(default_factory=lambda: common.Store(4))
    read: dict[Hashable, Any] = field(default_factory=dict)

    def take(self, files: tuple[tuple[str, bytes], ...]) -> None:
        """Put files in the place of those before, if they can be listed; otherwise say why not."""
        try:
            if files:
                listed(files, Choices())
        except ValueError as why:
            self.refused = str(why)
            return
        self.files, self.refused, self.said, self.read = files, "", {}, {}
        self.upload += 1
        self.shelf = common.Store(4)
        for key in [key for key in st.session_state if str(key).startswith("own ")]:
            del st.session_state[key]

    def once(self, key: Hashable, work: Any) -> Any:
        """Return what `work` gives, and keep the last result of its kind, the first word of `key`."""
        kind = key[0]  # type: ignore[index]
        if self.read.get(kind, (None,))[0] != key:
            self.read.pop(kind, None)  # never two arrays of a kind at once
            self.read[kind] = (key, work())
        return self.read[kind][1]

    def control(self, name: str, default: Any, options: Sequence[Any] | None = None) -> dict[str, Any]:
        """Return the keywords of a control whose value outlives a change of page, if it still is an option."""
        key = f"own {name}"
        value = st.session_state.get(key, self.said.get(name, default))
        if options is not None and value not in options:
            value = default
        if key not in st.session_state or st.session_state[key] != value:
            st.session_state[key] = value
        return {"key": key, "on_change": lambda: self.said.update({name: st.session_state[key]})}


def own() -> Own:
    """Return this visitor's own files."""
    found: Own = st.session_state.setdefault("_own", Own())
    return found


def listed(files: Sequence[tuple[str, bytes]], choices: Choices) -> Offer:
    """Return what files hold, before their arrays are read."""
    names, sources = [name for name, _ in files], [data for _, data in files]
    return offered(sources, names, choices=choices, max_bytes=MAX_BYTES)


def draw_upload(mine: Own) -> None:
    """Draw the place to put files, and why the last ones were not taken."""
    limit = int(st.get_option("server.maxUploadSize"))
    uploaded = st.file_uploader(
        f"One file with q and k, or one file for each: .npz, .npy, .safetensors, .csv or .tsv, at most {limit} MB each",
        TYPES,
        accept_multiple_files=True,
        key=f"upload {st.session_state.setdefault('_uploader', 0)}",
        on_change=take_upload,
    )
    st.caption(
        f"Shape (…, tokens, d_k) with any axes before, of any real type; q and k together at most "
        f"{size_text(MAX_BYTES)} as float64, {MAX_BYTES // 8_000_000} million numbers. `examples/export_qk.py` in the "
        "repository writes such a file from a Hugging Face model. Your file stays in this session and is gone with it."
    )
    if mine.refused and uploaded:
        st.error(escaped(mine.refused))
    if mine.files:
        names = " and ".join(name for name, _ in mine.files)
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"On this page: **{escaped(names)}**")
            st.button("Back to the example", on_click=forget_files, icon=":material/close:")


def take_upload() -> None:
    """Take the files that were just uploaded; one that holds both q and k replaces those before it."""
    mine = own()
    uploaded = st.session_state.get(f"upload {st.session_state['_uploader']}") or []
    files = tuple((file.name, file.getvalue()) for file in uploaded)
    if len(files) > 1 and _holds_both(files[-1]):
        files = files[-1:]
    if len(files) > MAX_FILES:
        mine.refused = f"q and k must come in one file or in two; received {len(files)} files."
        return
    mine.take(files)


def _holds_both(file: tuple[str, bytes]) -> bool:
    try:
        return listed([file], Choices()).pair is not None
    except ValueError:
        return False


def forget_files() -> None:
    """Forget the visitor's files, and show the example again."""
    own().take(())
    st.session_state["_uploader"] += 1


def escaped(text: str) -> str:
    """Return text that Markdown shows as it is, but for code in backticks: a file may be named anything."""
    parts = text.split("`")
    plain = ["".join(f"\\{sign}" if sign in "\\*_{}[]<>#$~|:" else sign for sign in part) for part in parts]
    if len(parts) % 2 == 0:  # a backtick without its pair
        return "\\`".join(plain)
    return "`".join(part if place % 2 else plain[place] for place, part in enumerate(parts))


if __name__ == "__main__":  # Streamlit may open any file of pages/ as a page
    common.through_router()
