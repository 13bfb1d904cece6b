"""Page: how everything is computed. It shows docs/method.md as it stands."""

import streamlit as st

from pages import common

common.through_router()
st.markdown((common.HERE.parent / "docs" / "method.md").read_text(encoding="utf-8"))
