"""The pages "Other scalings" and "Claims", run headless: settings, sentences, warnings, links, bad input."""

import json

import pytest
from streamlit.testing.v1 import AppTest

from simulation.claims import statements
from simulation.formatting import plus_minus
from tests.pages.test_pages import DASHBOARD, charts, said


def open_page(name: str, **link: str) -> AppTest:
    """Open a page by a link, as the first thing of a visit."""
    app = AppTest.from_file(DASHBOARD, default_timeout=120)
    for key, value in link.items():
        app.query_params[key] = value
    app.switch_page(f"pages/{name}.py").run()
    assert not app.exception
    return app


def words(app) -> str:
    """Return all running text of a page."""
    kinds = (app.markdown, app.caption, app.success, app.warning, app.info, app.error)
    return " ".join(element.value for kind in kinds for element in kind)


def metrics(app) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


def table(app, column: str):
    """Return the table that has a column."""
    return next(frame.value for frame in app.dataframe if column in frame.value.columns)


# --- other scalings -----------------------------------------------------------------------------


def test_both_right_answers_are_on_one_page() -> None:
    app = open_page("other_scalings")
    told = said(app)
    assert "Each of two values is right for one case" in told
    assert "d_k=64" in told
    assert len(charts(app)) == 5
    assert "at 64: 1.0" in charts(app)[0]["description"] or "at 64: 0.99" in charts(app)[0]["description"]
    ways = table(app, "right when")
    assert len(ways) == 15
    assert set(table(app, "Var of scaled logits, theory")["Var of scaled logits, theory"]) >= {
        "1", "4", "0.111", "0.25", "0.0944",
    }  # fmt: skip
    assert "is largest at a standard deviation of" in words(app)


def test_t5_divided_again_is_scaled_twice() -> None:
    app = open_page("other_scalings", way="t5", extra="1/sqrt(d_k)", d_k="64")
    assert "Scaled twice" in app.warning[0].value
    assert metrics(app)["Scale in force"] == "0.01562"
    assert metrics(app)["It is 1/√d_k for d_k ="] == "4,096"
    assert "q·k × 1/√d_k (in W_q) 0.125 × 1/√d_k 0.125 = 0.015625 q·k" in words(app)


@pytest.mark.parametrize(
    "link",
    [
        {"way": "dot", "cap": "50", "d_k": "1024", "n": "2", "rho": "1", "show": "trace", "against": "correlation"},
        {"way": "additive", "rho": "0", "n": "4", "show": "query_gradient", "d_k": "4"},
        {"way": "mup", "number": "8", "d_k": "1000000", "n": "4", "show": "logit_std", "against": "d_k"},
        {"way": "dot", "extra": "own number", "factor": "0", "d_k": "1", "n": "4", "show": "aligned_logit"},
    ],
)
def test_many_settings(link: dict[str, str]) -> None:
    app = open_page("other_scalings", **link)
    assert not app.error
    assert len(charts(app)) == 5
    for spec in charts(app):
        assert len(spec["description"]) > 40
        assert "NaN" not in json.dumps(spec)


@pytest.mark.parametrize(
    ("link", "rule"),
    [
        ({"way": "log_n", "number": "0.5"}, "`trained_keys` must be a number above 1"),
        ({"way": "cosine", "number": "1000000"}, "a scale and a cap that theory can resolve"),
    ],
)
def test_a_number_the_way_cannot_take_is_one_clear_sentence(link: dict[str, str], rule: str) -> None:
    app = open_page("other_scalings", **link)
    assert len(app.error) == 1
    assert rule in app.error[0].value
    assert len(charts(app)) == 5


def test_bad_links_are_named() -> None:
    bad = {
        "n": ("3", "one of 2, 4, 8"),
        "rho": ("-1", "a number from 0 to 1"),
        "way": ("softmax", "one of dot, scaled_dot"),
        "number": ("nan", "a number from 0"),
        "extra": ("twice", "one of nothing"),
        "show": ("loss", "one of aligned_weight"),
        "against": ("time", "one of keys"),
    }
    app = open_page("other_scalings", **{key: value for key, (value, _) in bad.items()})
    for key, (_, rule) in bad.items():
        assert f"`{key}` in the link must be {rule}" in said(app)
    assert len(charts(app)) == 5


def test_controls_change_the_page() -> None:
    app = open_page("other_scalings")
    app.select_slider(key="n").set_value(4).run()
    app.selectbox(key="way").set_value("soft_cap").run()
    app.number_input(key="cap").set_value(2.0).run()
    assert not app.exception
    assert "n=4" in said(app)
    assert "Logits stay within ±2, so no weight among 4 keys" in words(app)


def test_the_code_repeats_the_table() -> None:
    app = open_page("other_scalings", n="4", seed="3", d_k="16", rho="0.3", way="mup", number="8")
    link, code = (block.value for block in app.code)
    assert {"n=4", "seed=3", "d_k=16", "rho=0.3"} <= set(link.split("?")[1].split("&"))
    scope: dict = {}
    exec(code.replace("print(result)", ""), scope)  # noqa: S102
    shown = table(app, "right when")
    for result, scoring, way in (("result", "mup", "µP"), ("yours", "yours", "yours")):
        [record] = scope[result].select(scoring=scoring, quantity="logit_std", correlation=0.0)
        measured = plus_minus(record.estimate, record.standard_error)
        assert shown[shown["way"] == way]["std, measured"].item() == measured


# --- claims -------------------------------------------------------------------------------------


def see_buttons(app: AppTest) -> list:
    return [button for button in app.button if button.label.startswith("See it on")]


def test_every_claim_is_shown_with_its_number_and_its_button() -> None:
    app = open_page("claims")
    total = len(statements())
    assert f"Of {total} statements" in said(app)
    assert len(see_buttons(app)) == total
    assert sum(text.value.startswith("- ") for text in app.markdown) == total
    assert {subheader.value.split(" (")[0] for subheader in app.subheader} >= {"True", "True under conditions", "False"}


def test_buttons_open_the_page_with_exactly_these_settings() -> None:
    app = open_page("other_scalings", rho="0.9", n="4", show="trace")
    assert app.session_state["rho"] == 0.9
    app.switch_page("pages/claims.py").run()
    app.text_input(key="find").set_value("Scaling the query and letting").run()
    [button] = see_buttons(app)
    button.click().run()
    assert not app.exception
    assert app.title[0].value == "Could it be another value?"
    assert "Scaled twice" in said(app)
    values = {key: app.session_state[key] for key in ("rho", "n", "show", "way", "extra", "d_k")}
    assert values == {
        "rho": 0.5, "n": 16, "show": "aligned_weight", "way": "t5", "extra": "1/sqrt(d_k)", "d_k": 64,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("group", "verdict"), [("true", "true"), ("under conditions", "conditional"), ("false", "false")]
)
def test_claims_can_be_filtered(group: str, verdict: str) -> None:
    app = open_page("claims", group=group)
    assert len(see_buttons(app)) == sum(s.verdict == verdict for s in statements())


def test_claims_can_be_searched() -> None:
    app = open_page("claims")
    app.text_input(key="find").set_value("Soft-Cap").run()
    assert 1 <= len(see_buttons(app)) <= 3
    app.text_input(key="find").set_value("no such words").run()
    assert "No statement holds" in said(app)
    assert not app.exception


def test_bad_claim_filter_is_named() -> None:
    assert "`group` in the link must be one of all" in said(open_page("claims", group="maybe"))
