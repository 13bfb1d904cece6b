"""``python -m simulation diagnose``: tables, JSON whose parts sum to the variance, and errors of one clear line."""

import json
import math

import numpy as np
import pytest

from simulation import Diagnosis, diagnose, load_example
from simulation.__main__ import main
from tests.written_files import npy, npz


def call(capsys, *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command."""
    try:
        code = main(["diagnose", *map(str, words)])
    except SystemExit as end:
        code = int(end.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    q, k = np.random.default_rng(5).standard_normal((2, 2, 3, 20, 8))
    k[1, 2] += 2
    return q, k


@pytest.fixture
def file(arrays, tmp_path):
    path = tmp_path / "heads.npz"
    path.write_bytes(npz(q=arrays[0], k=arrays[1]))
    return path


def test_table_of_one_file(capsys, file, arrays) -> None:
    code, out, err = call(capsys, file)
    assert (code, err) == (0, "")
    table = str(diagnose(*arrays))
    assert out.startswith(table[: table.index("note:")])
    assert "note: 'q' is named like q and 'k' like k" in out
    assert "6 heads" in out


def test_json_has_every_head_and_parts_that_sum_to_the_variance(capsys, file, arrays) -> None:
    code, out, err = call(capsys, file, "--json")
    assert (code, err) == (0, "")
    record = json.loads(out)
    assert [tuple(head["index"]) for head in record["heads"]] == list(np.ndindex(2, 3))
    for head, q, k in zip(record["heads"], *(x.reshape(6, 20, 8) for x in arrays), strict=True):
        logits = q @ k.T
        assert math.fsum(head["parts"].values()) == pytest.approx(head["variance"], rel=1e-10)
        assert head["variance"] == pytest.approx(logits.var(), rel=1e-10)
        assert head["mean"] == pytest.approx(logits.mean(), rel=1e-9, abs=1e-12)
        assert head["row_variance"] == pytest.approx(logits.var(axis=1).mean(), rel=1e-10)
        assert head["row_variance"] == pytest.approx(head["variance"] - head["parts"]["key_mean"], rel=1e-9)
    read = Diagnosis.from_json(out)
    assert read.heads == diagnose(*arrays).heads


def test_two_files_names_axes_scale_and_mask(capsys, arrays, tmp_path) -> None:
    q, k = (x[0] for x in arrays)
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    for path, x in zip(paths, (q, k), strict=True):
        path.write_bytes(npy(x.transpose(2, 1, 0)))  # (d_k, tokens, heads)
    words = (*paths, "--axis", "0", "--token-axis", "1", "--scale", "0.25", "--causal", "--json")
    code, out, _ = call(capsys, *words)
    assert code == 0
    found = Diagnosis.from_json(out)
    expected = diagnose(q, k, scale=0.25, causal=True)
    assert found.scale == 0.25
    assert [head.softmax.own for head in found.heads] == [head.softmax.own for head in expected.heads]


@pytest.mark.parametrize(("layout", "axes"), [("blocks", (2, 0, 1, 3)), ("interleaved", (2, 1, 0, 3))])
def test_fused_file(capsys, tmp_path, layout: str, axes: tuple[int, ...]) -> None:
    apart = np.random.default_rng(1).standard_normal((3, 4, 20, 8))
    path = tmp_path / "qkv.npy"
    path.write_bytes(npy(apart.transpose(axes).reshape(20, -1)))
    code, out, _ = call(capsys, path, "--layout", layout, "--heads", "4", "--json")
    assert code == 0
    assert Diagnosis.from_json(out).heads == diagnose(apart[0], apart[1]).heads


def test_a_table_of_text_and_what_it_assumes(capsys, tmp_path, arrays) -> None:
    q, k = (x[0, 0] for x in arrays)
    for name, x in (("q.csv", q), ("k.csv", k)):
        np.savetxt(tmp_path / name, np.column_stack([np.arange(20), x]), delimiter=",")
    paths = (tmp_path / "q.csv", tmp_path / "k.csv")
    _, out, _ = call(capsys, *paths, "--json")
    assert json.loads(out)["d_k"] == 8
    _, out, _ = call(capsys, *paths, "--index-column", "keep", "--json")
    assert json.loads(out)["d_k"] == 9
    _, out, _ = call(capsys, *paths, "--header", "yes", "--index-column", "drop", "--json")
    assert json.loads(out)["n_queries"] == 19


def test_non_finite_entries_are_left_out_on_request_only(capsys, tmp_path, arrays) -> None:
    q, k = arrays
    q[0, 1, 3, 2] = np.nan
    path = tmp_path / "heads.npz"
    path.write_bytes(npz(q=q, k=k))
    code, out, err = call(capsys, path)
    assert (code, out) == (2, "")
    assert "'q': 1 of 960 entries is not finite: nan at (0, 1, 3, 2). --drop-non-finite leaves out" in err
    code, out, _ = call(capsys, path, "--drop-non-finite")
    assert code == 0
    assert "1 of 20 queries and 1 of 20 keys" in out
    assert "19 queries" in out


def test_the_shipped_example(capsys) -> None:
    code, out, _ = call(capsys, "--example", "--json")
    record = json.loads(out)
    assert code == 0
    assert len(record["heads"]) == 72
    example = load_example()
    assert record["heads"][2]["variance"] == pytest.approx((example["q"][0, 2] @ example["k"][0, 2].T).var())
    assert "Darwin" in record["notes"][0]


BAD = [
    ([], "`FILE` must name"),
    (["missing.npz"], "'missing.npz': cannot be read"),
    (["a", "b", "c"], "received 3 files"),
    (["{file}", "--example"], "`--example` must stand without files"),
    (["{file}", "--q", "v"], "There is no array 'v'"),
    (["{file}", "--axis", "9"], "`--axis` must be a whole number"),
    (["{file}", "--axis", "x"], "received 'x'"),
    (["{file}", "--token-axis", "3"], "another axis"),
    (["{file}", "--heads", "3"], "multiple of parts"),
    (["{file}", "--layout", "blocks"], "`--heads` must say"),
    (["{file}", "--layout", "rows", "--q", "q", "--heads", "2"], "`--layout` must be one of"),
    (["{file}", "--scale", "0"], "`--scale` must be"),
    (["{file}", "--scale", "nan"], "`--scale` must be"),
    (["{file}", "--blocks", "1"], "`--blocks` must be"),
    (["{file}", "--confidence", "2"], "`--confidence` must be"),
    (["{file}", "--header", "perhaps"], "`--header` must be one of"),
    (["{file}", "--max-mb", "0"], "`--max-mb` must be"),
    (["{file}", "--bogus"], "--bogus"),
]


@pytest.mark.parametrize(("words", "part"), BAD, ids=[" ".join(words) or "nothing" for words, _ in BAD])
def test_bad_input_is_one_clear_line_and_nothing_else(capsys, file, words: list[str], part: str) -> None:
    code, out, err = call(capsys, *(word.format(file=file) for word in words))
    assert (code, out) == (2, "")
    assert part in err
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert "Traceback" not in err


@pytest.mark.parametrize("data", [b"", b"hello", b"PK\x03\x04junk", b"\x93NUMPY", b"1,2\n3"])
def test_damaged_files_are_one_clear_line(capsys, tmp_path, data: bytes) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(data)
    code, out, err = call(capsys, path)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "bad.npz" in err


def test_help_names_every_option(capsys) -> None:
    code, out, _ = call(capsys, "--help")
    assert code == 0
    for option in ("--example", "--layout", "--drop-non-finite", "--json", "--causal", "--index-column"):
        assert option in out
