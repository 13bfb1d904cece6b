"""Every page run headless: settings from the link and the controls, sentences, charts, bad input."""

import json
import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

DASHBOARD = str(Path(__file__).parents[2] / "dashboard.py")


def open_page(name: str = "", **link: str) -> AppTest:
    app = AppTest.from_file(DASHBOARD, default_timeout=120)
    small = {"samples": "20000"} if name in ("", "dot_products") else {}
    for key, value in {**small, **link}.items():
        app.query_params[key] = value
    app.run()
    if name:
        app.switch_page(f"pages/{name}.py").run()
    assert not app.exception
    return app


def said(app: AppTest) -> str:
    """Return all that the page says in its boxes."""
    boxes = (app.success, app.warning, app.info, app.error)
    return " ".join(box.value for kind in boxes for box in kind)


def charts(app: AppTest) -> list[dict]:
    return [json.loads(element.proto.spec) for element in app.get("vega_lite_chart")]


def test_first_page_answers_with_measured_numbers() -> None:
    app = open_page(samples="500000")
    assert "All four claims are confirmed" in said(app)
    estimate, error = map(float, re.search(r"variance \*\*([\d.]+) ± ([\d.]+)", said(app)).groups())
    assert abs(estimate - 64) < 5 * error  # fails by chance once in 10^6 seeds
    assert len(charts(app)) == 4


@pytest.mark.parametrize("entries", ["normal", "uniform", "rademacher", "laplace", "student_t"])
def test_dot_products_runs_with_every_family(entries: str) -> None:
    app = open_page(entries=entries, d_k="7")
    assert "20,000 pairs" in said(app)


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ({"correlation": "0.5", "samples": "200000"}, "variance of exactly 80"),
        ({"q_mean": "0.5", "k_mean": "0.5", "samples": "200000"}, "variance of exactly 96"),
        ({"q_std": "2", "k_std": "2"}, "variance of exactly 1,024"),
        ({"divide_by": "nothing", "samples": "200000"}, "refuted"),
        ({"divide_by": "own number", "divisor": "22.6", "samples": "200000"}, "refuted"),
        ({"entries": "student_t", "df": "3"}, "no s.e."),
        ({"samples": "2", "d_k": "1"}, "not yet precise enough"),
        ({"entries": "rademacher", "correlation": "1"}, "refuted"),
        ({"d_k": "1000000", "samples": "10"}, "10 pairs"),
    ],
)
def test_departures_are_told_in_the_sentence(link: dict[str, str], words: str) -> None:
    assert words in said(open_page(**link))


def test_too_large_a_request_is_refused_with_a_way_out() -> None:
    app = open_page(d_k="1000000", samples="5000000")
    assert "at most 600" in said(app)
    assert not charts(app)
    button = next(button for button in app.button if button.label.startswith("Use"))
    button.click().run()
    assert not app.exception
    assert "600 pairs" in said(app)


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("d_k", "hello", "whole number from 1 to 1,000,000"),
        ("d_k", "250000000", "whole number from 1 to 1,000,000"),
        ("d_k", "inf", "whole number"),
        ("d_k", "2.5", "whole number"),
        ("d_k", "0", "whole number"),
        ("samples", "1", "whole number from 2"),
        ("entries", "cauchy", "one of normal"),
        ("correlation", "2", "number from -1 to 1"),
        ("q_std", "nan", "number from 0.01 to 100"),
        ("seed", "-1", "whole number"),
    ],
)
def test_bad_link_is_named_and_the_default_used(key: str, value: str, rule: str) -> None:
    app = open_page(**{key: value})
    assert f"`{key}` in the link must be" in said(app)
    assert rule in said(app)
    assert charts(app)


def test_controls_change_the_result_and_survive_a_change_of_page() -> None:
    app = open_page()
    app.number_input(key="d_k").set_value(16).run()
    app.number_input(key="seed").set_value(7).run()
    assert "d_k=16" in said(app)
    app.switch_page("pages/softmax_by_hand.py").run()
    app.switch_page("pages/dot_products.py").run()
    assert app.number_input(key="d_k").value == 16
    assert app.number_input(key="seed").value == 7
    assert "Seed 7" in " ".join(caption.value for caption in app.caption)


def test_new_seed_shows_and_changes_the_numbers() -> None:
    app = open_page()
    first = said(app)
    next(button for button in app.button if button.label == "New seed").click().run()
    assert app.number_input(key="seed").value != 0
    assert said(app) != first


def test_same_settings_give_the_same_numbers_to_two_visitors() -> None:
    assert said(open_page(seed="5")) == said(open_page(seed="5"))


def test_link_and_code_restore_the_page() -> None:
    app = open_page(d_k="16", q_mean="0.5")
    link, code = (block.value for block in app.code)
    assert {"d_k=16", "q_mean=0.5", "samples=20000", "seed=0"} <= set(link.split("?")[1].split("&"))
    scope: dict = {}
    exec(code.replace("print(result)", ""), scope)  # noqa: S102
    assert f"{scope['result'].before.variance.text}" in said(app)


def test_charts_tell_their_numbers_in_words_and_hold_no_nan() -> None:
    for app in (open_page(d_k="1"), open_page("softmax_by_hand", logits="100,100,200")):
        for spec in charts(app):
            assert len(spec["description"]) > 40
            assert "NaN" not in json.dumps(spec)


@pytest.mark.parametrize(
    ("logits", "words"),
    [
        ("1, 1, 2", "0.576117"),
        ("10, 10, 20", "0.999909"),
        ("100, 100, 200", "1 − 7.440e-44"),
        ("3, 1, -3", "0.878878"),
        ("30 10 -30", "1 − 2.061e-09"),
        ("5", "exactly 0"),
        ("0, 2000", "smaller than 1e-308"),
    ],
)
def test_softmax_by_hand_gives_the_posts_numbers(logits: str, words: str) -> None:
    assert words in said(open_page("softmax_by_hand", logits=logits))


@pytest.mark.parametrize(
    ("logits", "words"),
    [
        ("3, , x", "nothing between two commas at place 2"),
        ("", "at least one number"),
        ("1, inf", "'inf' at place 2"),
        ("1, nan", "'nan' at place 2"),
        (", ".join(["1"] * 65), "at most 64"),
    ],
)
def test_bad_logits_get_one_clear_sentence(logits: str, words: str) -> None:
    app = open_page("softmax_by_hand")
    app.text_input(key="logits").set_value(logits).run()
    assert not app.exception
    assert len(app.error) == 1
    assert words in app.error[0].value


def test_presets_and_multiplier() -> None:
    app = open_page("softmax_by_hand")
    next(button for button in app.button if button.label == "[10, 10, 20]").click().run()
    assert app.text_input(key="logits").value == "10, 10, 20"
    app.select_slider(key="multiplier").set_value(10.0).run()
    assert "1 − 7.440e-44" in said(app)


def test_method_page_is_the_document() -> None:
    app = open_page("method")
    document = (Path(DASHBOARD).parent / "docs" / "method.md").read_text(encoding="utf-8")
    assert app.markdown[0].value.strip() == document.strip()


def test_gradient_decay_says_its_finding_and_draws_every_chart() -> None:
    app = open_page("gradient_decay", keys="128")
    words = said(app)
    assert "times larger" in words
    assert "times smaller" in words
    assert len(charts(app)) == 4
    assert "d_k = 1024" in charts(app)[0]["description"]


@pytest.mark.parametrize(
    "link",
    [
        {"keys": "2", "up_to": "1000000", "statistic": "median", "quantity": "trace"},
        {"keys": "16", "row_entries": "rademacher", "statistic": "rms", "quantity": "query_gradient"},
        {"keys": "4", "row_entries": "student_t", "statistic": "q10", "quantity": "entropy"},
        {"keys": "8", "statistic": "mean", "quantity": "largest_weight"},
    ],
)
def test_gradient_decay_runs_with_many_settings(link: dict[str, str]) -> None:
    app = open_page("gradient_decay", **link)
    assert link["quantity"].replace("_", " ") in charts(app)[0]["description"]
    assert not app.error


def test_gradient_decay_refuses_what_would_take_too_long() -> None:
    app = open_page("gradient_decay", row_entries="laplace", up_to="1000000")
    assert "received 1,000,000" in said(app)
    assert not charts(app)
