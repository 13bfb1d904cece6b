"""The dashboard's router: ``streamlit run dashboard.py``. Each page is a file in pages/."""

import streamlit as st

from pages import common

st.set_page_config(page_title="Why √d_k?", page_icon="√", layout="wide")
page = common.navigation()
page.run()
