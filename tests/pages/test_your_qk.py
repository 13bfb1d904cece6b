"""The page "Your q and k" run headless: the example, files of every kind, bad files, and two visitors apart."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from pages import common, own_choices, own_files
from simulation import diagnose, load_example
from simulation.qk_arrays import QueriesKeys
from tests.pages.test_pages import charts, open_page, said
from tests.written_files import npy, npz, safetensors

PAGE = str(Path(common.HERE) / "your_qk.py")


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, 5]).standard_normal(shape).astype(np.float32)


def upload(app: AppTest, *files: tuple[str, bytes]) -> AppTest:
    app.file_uploader[0].set_value([(name, data, "application/octet-stream") for name, data in files]).run()
    assert not app.exception
    return app


def page(*files: tuple[str, bytes], **link: str) -> AppTest:
    """Open the page alone, with files that were uploaded before."""
    app = AppTest.from_file(PAGE, default_timeout=120)
    app.session_state["_routed"] = True
    if files:
        app.session_state["_own"] = own_files.Own(files, 1)
    for key, value in link.items():
        app.query_params[key] = value
    app.run()
    assert not app.exception
    return app


def heads_file(heads: int = 3, tokens: int = 24, d_k: int = 8, **more: np.ndarray) -> bytes:
    q, k = normal(2, heads, tokens, d_k)
    k[1] += 2
    return npz(q=q, k=k, **more)


def captions(app: AppTest) -> str:
    return " ".join(caption.value for caption in app.caption)


def shown(app: AppTest) -> str:
    return f"{said(app)} {captions(app)} " + " ".join(text.value for text in app.markdown)


def control(app: AppTest, kind: str, name: str):
    return getattr(app, kind)(key=f"own {name}")


# --- the example -------------------------------------------------------------------------------


def test_opens_on_the_example_with_its_answer() -> None:
    app = page()
    words = said(app)
    example = load_example()
    ratio = (example["q"] @ example["k"].swapaxes(-1, -2)).var(axis=(-2, -1)) / 32
    assert f"from {ratio.min():.3g} to {ratio.max():.3g} times d_k over 72 heads" in words
    assert re.search(r"In \d+ of 72 heads √d_k leaves the logits", words)
    assert "Darwin" in captions(app)
    assert not app.error
    drawn = charts(app)
    assert len(drawn) == 7  # map, parts, logits, three queries, comparison
    for spec in drawn:
        assert len(spec["description"]) > 40
        assert "NaN" not in json.dumps(spec)


@pytest.mark.parametrize("quantity", ["variance", "spread", "entropy"])
def test_quantity_and_head_come_from_the_link(quantity: str) -> None:
    app = page(quantity=quantity, head="1, 8")
    assert "One head: 1, 8" in [heading.value for heading in app.subheader]
    words = {"variance": "variance of q·k over d_k", "spread": "standard deviation", "entropy": "entropy"}
    assert words[quantity] in charts(app)[0]["description"]
    assert f"quantity={quantity}" in app.code[0].value
    assert "head=1%2C+8" in app.code[0].value
    assert "The variance of q·k is 22.39" in shown(app)


def test_a_link_to_a_head_that_is_not_there_is_named() -> None:
    app = page(head="9, 9", quantity="mean")
    assert "`head` in the link must be the place of a head, from 0, 0 to 5, 11" in said(app)
    assert "`quantity` in the link must be one of" in said(app)
    assert len(charts(app)) == 7


def test_buttons_and_list_choose_a_head() -> None:
    app = page()
    next(button for button in app.button if button.label.startswith("the farthest")).click().run()
    assert app.selectbox(key="head").value == "0, 2"
    assert "The variance of q·k is 175.2" in shown(app)
    app.selectbox(key="head").set_value("5, 9").run()
    assert "One head: 5, 9" in [heading.value for heading in app.subheader]


def test_several_heads_are_compared_and_none_is_no_error() -> None:
    app = page()
    chosen = next(box for box in app.multiselect if box.label == "Heads to compare")
    chosen.set_value(["0, 0", "0, 2", "5, 11"]).run()
    assert "head 0, 2, 175 d_k" in charts(app)[-1]["description"]
    next(box for box in app.multiselect if box.label == "Heads to compare").set_value([]).run()
    next(box for box in app.multiselect if box.label == "Queries").set_value([]).run()
    assert not app.exception
    assert len(charts(app)) == 3


def test_the_python_repeats_the_result() -> None:
    app = page()
    scope: dict = {}
    exec(app.code[-1].value, scope)  # noqa: S102
    assert f"{max(head.variance_over_d_k for head in scope['result'].heads):.3g} times d_k" in said(app)


# --- files -------------------------------------------------------------------------------------


def test_an_upload_replaces_the_example_and_is_said_to_be_read_so() -> None:
    app = upload(page(), ("heads.npz", heads_file()))
    assert "In heads.npz the variance of q·k ranges from" in said(app)
    assert "over 3 heads" in said(app)
    assert "'q' is named like q and 'k' like k" in captions(app)
    assert "axis 1 (24) is taken to count tokens" in captions(app).replace("\\", "")
    assert not any("A link that shows the same page" in caption.value for caption in app.caption)


def test_the_python_of_an_upload_repeats_it(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = heads_file(tokens=30)
    app = page(("heads.npz", data))
    control(app, "toggle", "causal").set_value(True)
    control(app, "selectbox", "scale").set_value("nothing").run()
    (tmp_path / "heads.npz").write_bytes(data)
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    exec(app.code[0].value, scope)  # noqa: S102
    head = scope["result"].head(int(control(app, "selectbox", "head").value))
    assert scope["result"].scale == 1.0
    assert scope["result"].masked
    assert head.softmax_sentence in shown(app)


def files_of_one_head() -> dict[str, list[tuple[str, bytes]]]:
    q, k = normal(2, 20, 6)
    table = "\n".join(";".join(f"{x:.9g}".replace(".", ",") for x in row) for row in q)
    other = "\n".join("\t".join(f"{x:.9g}" for x in row) for row in k)
    f32 = {"q": ("F32", q.shape, q.tobytes()), "k": ("F32", k.shape, k.tobytes())}
    names = ",".join(f"q{i}" for i in range(6)) + "," + ",".join(f"k{i}" for i in range(6))
    rows = "\n".join(",".join(f"{x:.9g}" for x in row) for row in np.hstack([q, k]))
    return {
        "npz": [("both.npz", npz(q=q, k=k))],
        "two npy in either order": [("k.npy", npy(k)), ("q.npy", npy(q))],
        "csv with decimal commas and tsv": [("q.csv", b"\xef\xbb\xbf" + table.encode()), ("k.tsv", other.encode())],
        "one csv with a header": [("qk.csv", f"{names}\n{rows}\n".encode())],
        "safetensors": [("both.safetensors", safetensors(f32))],
        "big-endian Fortran": [("q.npy", npy(np.asfortranarray(q.astype(">f8")))), ("k.npy", npy(k))],
    }


@pytest.mark.parametrize("kind", files_of_one_head())
def test_files_of_every_kind_give_the_same_head(kind: str) -> None:
    app = page(*files_of_one_head()[kind])
    (head,) = diagnose(*normal(2, 20, 6)).heads
    assert head.sentence in shown(app)
    assert not app.error


def test_settings_change_how_a_file_is_read() -> None:
    q, k = normal(2, 24, 2, 12)  # (tokens, heads, d_k)
    app = page(("heads.npz", npz(q=q, k=k)))
    assert "axis 0 (24) is longer" in said(app).replace("\\", "")
    control(app, "selectbox", "token axis").set_value("axis 0 (24)").run()
    assert "over 2 heads" in said(app)
    assert "axis 0 (24) counts tokens, as you say" in captions(app).replace("\\", "")
    expected = diagnose(q.swapaxes(0, 1), k.swapaxes(0, 1)).by_distance[1]
    assert expected.sentence in shown(app)
    control(app, "selectbox", "axis").set_value("axis 1 (2)").run()
    assert "over 12 heads" in said(app)
    control(app, "selectbox", "token axis").set_value("axis 1 (2)").run()
    assert "another axis than that of d" in said(app)
    assert not charts(app)


@pytest.mark.parametrize("layout", ["blocks", "interleaved"])
def test_a_fused_array_is_parted_as_the_visitor_says(layout: str) -> None:
    apart = normal(3, 2, 20, 8)
    axes = (2, 0, 1, 3) if layout == "blocks" else (2, 1, 0, 3)
    app = page(("qkv.npy", npy(apart.transpose(axes).reshape(20, -1))))
    control(app, "number_input", "fused heads").set_value(2).run()
    if layout == "interleaved":
        control(app, "segmented_control", "layout").set_value("interleaved, head by head").run()
    assert diagnose(apart[0], apart[1]).by_distance[1].sentence in shown(app)


def test_names_that_do_not_tell_are_offered_and_not_assumed() -> None:
    q, k = normal(2, 24, 8)
    app = page(("pair.npz", npz(arr_0=q, arr_1=k)))
    assert "Say which array is q and which is k" in said(app)
    assert not charts(app)
    control(app, "selectbox", "q").set_value("arr_1")
    control(app, "selectbox", "k").set_value("arr_0").run()
    assert diagnose(k, q).heads[0].sentence in shown(app)


def test_heads_side_by_side_are_cut_apart() -> None:
    q, k = normal(2, 4, 20, 8)
    flat = [x.swapaxes(0, 1).reshape(20, -1) for x in (q, k)]
    app = page(("heads.npz", npz(q=flat[0], k=flat[1])))
    control(app, "number_input", "heads").set_value(4).run()
    assert "over 4 heads" in said(app)
    assert diagnose(q, k).by_distance[2].sentence in shown(app)


def test_non_finite_values_are_named_and_left_out_on_request() -> None:
    q, k = normal(2, 3, 24, 8)
    q[2, 5, 1] = np.inf
    app = page(("heads.npz", npz(q=q, k=k)))
    assert "1 of 576 entries is not finite: inf at (2, 5, 1)" in said(app).replace("\\", "")
    assert not charts(app)
    control(app, "toggle", "drop").set_value(True).run()
    assert "1 of 24 queries and 1 of 24 keys" in captions(app)
    kept = np.arange(24) != 5
    assert diagnose(q[:, kept], k[:, kept]).by_distance[1].sentence in shown(app)


def test_long_texts_are_thinned_and_too_many_heads_refused() -> None:
    app = page(("long.npz", npz(q=normal(1500, 2), k=normal(1500, 2, seed=1))))
    assert "1,024 of 1,500 queries and 1,024 of 1,500 keys" in captions(app)
    assert "thinned(1024)" in app.code[0].value
    many = np.ones((1100, 2, 2), np.float16)
    app = page(("many.npz", npz(q=many, k=many)))
    assert "received 1,100 heads of d\\_k = 2" in said(app)
    wide = np.ones((40, 2, 4000), np.float16)
    app = page(("wide.npz", npz(q=wide, k=wide)))
    assert "at most 1,024 heads and 131,072 channels" in said(app)


@pytest.mark.parametrize(
    ("heads", "tokens", "most"), [(1, 5000, 1024), (72, 900, 666), (1024, 100, 100), (1024, 1000, 176)]
)
def test_work_is_bounded_whatever_comes(heads: int, tokens: int, most: int) -> None:
    array = np.broadcast_to(np.float64(0), (heads, tokens, 4))
    assert own_choices.most_tokens(QueriesKeys.of(array, array)) == most
    assert heads * most**2 <= own_choices.MAX_LOGITS


# --- what goes wrong, and what stays -----------------------------------------------------------

BAD = {
    "empty": b"",
    "text": b"hello, world",
    "truncated": heads_file()[:200],
    "pickle": npy(np.array([{"a": 1}, None], dtype=object), allow_pickle=True),
    "one axis": npy(np.ones(5)),
    "lies": b"\x93NUMPY\x01\x00\x46\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 2)}\n",
}


@pytest.mark.parametrize(
    ("q", "k", "words"),
    [
        (normal(3, 20, 8), normal(3, 20, 6), "must have the same d"),
        (normal(3, 20, 8), normal(2, 20, 8), "3 is no multiple of 2"),
        (normal(3, 20, 8), normal(20, 8), "same leading axes"),
        (np.full((2, 20, 8), 1e31), normal(2, 20, 8), "finite numbers within"),
        (normal(20, 8), np.full((20, 8), np.nan), "not finite"),
    ],
)
def test_arrays_that_do_not_go_together_are_one_sentence(q: np.ndarray, k: np.ndarray, words: str) -> None:
    app = page(("heads.npz", npz(q=q, k=k)))
    assert len(app.error) == 1
    assert words in app.error[0].value
    assert "\n" not in app.error[0].value
    assert not charts(app)


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_one_clear_sentence_and_nothing_is_lost(kind: str) -> None:
    app = page(("heads.npz", heads_file()))
    upload(app, ("bad.npy", BAD[kind]))
    assert len(app.error) == 1
    assert "\n" not in app.error[0].value
    assert "Traceback" not in app.error[0].value
    assert "In heads.npz the variance" in said(app)  # what was on the page stays


def test_three_files_are_refused_and_none_bring_the_example_back() -> None:
    one = npy(normal(20, 4))
    app = upload(page(), ("q.npy", one), ("k.npy", one), ("v.npy", one))
    assert "one file or in two; received 3 files" in said(app)
    assert "In all-MiniLM-L6-v2" in said(app)
    upload(app, ("heads.npz", heads_file()))
    assert "In heads.npz" in said(app)
    app.file_uploader[0].set_value([]).run()
    assert "In all-MiniLM-L6-v2" in said(app)


def test_a_file_with_both_replaces_those_before_it() -> None:
    app = upload(page(), ("one.npz", heads_file()), ("two.npz", heads_file(heads=2)))
    assert "In two.npz the variance" in said(app)


def test_a_file_survives_other_pages_and_its_settings_with_it() -> None:
    app = upload(open_page("your_qk"), ("heads.npz", heads_file()))
    control(app, "toggle", "causal").set_value(True)
    control(app, "selectbox", "head").set_value("2").run()
    before = said(app)
    app.switch_page("pages/method.py").run()
    app.switch_page("pages/your_qk.py").run().run()
    assert not app.exception
    assert said(app) == before
    assert control(app, "toggle", "causal").value
    assert control(app, "selectbox", "head").value == "2"
    next(button for button in app.button if button.label == "Back to the example").click().run()
    assert "In all-MiniLM-L6-v2" in said(app)


def test_a_new_file_starts_afresh() -> None:
    app = page(("heads.npz", heads_file()))
    control(app, "selectbox", "head").set_value("2").run()
    control(app, "toggle", "causal").set_value(True).run()
    upload(app, ("other.npz", heads_file(heads=2, d_k=6)))
    assert "In other.npz" in said(app)
    assert not control(app, "toggle", "causal").value
    assert control(app, "selectbox", "head").value in ("0", "1")


def test_visitors_see_their_own_files_only() -> None:
    common.store.clear()
    first = upload(page(), ("secret.npz", heads_file()))
    second = page()
    assert "secret" not in shown(second)
    assert "In all-MiniLM-L6-v2" in said(second)
    third = upload(page(), ("third.npz", heads_file(heads=2)))
    assert "over 2 heads" in said(third)
    first.run()
    assert "In secret.npz" in said(first)
    assert "over 3 heads" in said(first)
    kept = str(vars(common.store())["_items"].keys())
    assert "example" in kept
    assert kept.count("diagnose") == 1  # of files nothing is kept for others


def test_names_of_files_and_arrays_cannot_format_the_page() -> None:
    q, k = normal(2, 20, 4)
    app = page(("$x$ **q** [a](b) :red[c].npz", npz(q=q, k=k)))
    assert "\\$x\\$ \\*\\*q\\*\\*" in said(app)
    assert not app.exception


@pytest.mark.parametrize(
    ("text", "shown"),
    [("$x_1$", r"\$x\_1\$"), ("`token_axis` of a_b", r"`token_axis` of a\_b"), ("one ` alone_", r"one \` alone\_")],
)
def test_only_code_keeps_its_meaning(text: str, shown: str) -> None:
    assert own_files.escaped(text) == shown


def test_the_limit_said_is_the_limit_set() -> None:
    app = page()
    assert st.get_option("server.maxUploadSize") == 20
    assert "at most 20 MB each" in app.file_uploader[0].label
    assert "48 MB as float64, 6 million numbers" in captions(app)
    q = np.zeros((2, 1_600_000), np.float16)  # 51 MB as float64, and nothing once packed
    upload(app, ("large.npz", npz(q=q, k=q)))
    assert "may hold at most 48 MB" in said(app)
