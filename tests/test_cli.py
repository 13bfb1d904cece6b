"""The command line: exit codes, JSON, logits as people type them, and errors of one clear line."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation import DotProductResult, QueryKeyModel, SweepResult, __version__, dot_products
from simulation.__main__ import main

ROOT = Path(__file__).parents[1]
PROGRAM = [sys.executable, "-m", "simulation"]


def call(capsys, command):
    """Exit code, standard output and standard error of one command, given as text or as words."""
    try:
        code = main(command.split() if isinstance(command, str) else command)
    except SystemExit as end:
        code = end.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def process(*words, **options):
    return subprocess.run(
        [*PROGRAM, *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120, **options
    )


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("validate --d-k 4 --samples 200_000 --tolerance 0.2 --seed 1", 0),
        ("validate --d-k 64 --samples 20000 --scale 0.0441941738 --tolerance 0.2 --seed 1", 1),
        ("validate --samples 5000 --correlation 0.5 --seed 1", 1),
        ("validate --samples 5000 --q-mean 0.5 --k-mean 0.5 --seed 1", 1),
        ("validate --samples 5000 --q-std 2 --k-std 2 --seed 1", 1),
        ("validate --samples 100 --seed 1", 3),
        ("validate --samples 2000 --entries student-t --df 3 --seed 1", 3),
        ("validate --samples 1", 2),
        ("sweep --d-k 1 4 --samples 100 --seed 1", 0),
        ("softmax 3 1 -3", 0),
    ],
)
def test_exit_codes_say_how_it_went(capsys, command, code):
    found, out, err = call(capsys, command)
    assert found == code
    assert bool(out) == (code != 2)
    assert bool(err) == (code == 2)


def test_validate_prints_the_result_and_a_plan(capsys):
    _, out, _ = call(capsys, "validate --d-k 64 --samples 3000 --seed 4 --workers 2")
    assert str(dot_products(QueryKeyModel(64), 3000, rng=4)) in out
    assert "80,431 pairs" in out
    _, out, _ = call(capsys, "validate --samples 100 --seed 4 --entries t --df 4")
    assert "no finite kurtosis" in out


def test_validate_prints_json_that_is_the_result(capsys):
    _, out, err = call(capsys, "validate --d-k 8 --samples 3000 --seed 4 --entries laplace --json")
    assert DotProductResult.from_json(out) == dot_products(QueryKeyModel(8, "laplace"), 3000, rng=4)
    record = json.loads(out)
    assert (record["n_samples"], record["seed"], record["model"]["entries"]) == (3000, 4, "laplace")
    assert set(record["versions"]) >= {"simulation", "numpy"}
    keys = {"name", "expected", "exact", "estimate", "standard_error", "interval", "tolerance", "verdict"}
    assert len(record["claims"]) == 4
    for claim in record["claims"]:
        assert keys <= set(claim)
    assert err == ""


def test_a_blank_seed_is_drawn_and_shown(capsys):
    _, out, _ = call(capsys, "validate --samples 100 --json")
    seed = json.loads(out)["seed"]
    _, again, _ = call(capsys, f"validate --samples 100 --json --seed {seed}")
    assert again == out
    _, other, _ = call(capsys, "validate --samples 100 --json")
    assert json.loads(other)["seed"] != seed


def test_sweep_prints_rungs_or_json(capsys):
    _, out, _ = call(capsys, "sweep --d-k 1 8 --samples 500 --seed 2")
    assert "slope of ln Var" in out
    _, out, _ = call(capsys, "sweep --d-k 1 8 --samples 500 --seed 2 --json")
    assert [r.model.d_k for r in SweepResult.from_json(out).results] == [1, 8]


def test_softmax_prints_json_with_every_size(capsys):
    code, out, err = call(capsys, "softmax --json 3 1 -3")
    record = json.loads(out)
    assert (code, err) == (0, "")
    assert record["weights"] == pytest.approx([0.878878242732, 0.118943235911, 0.002178521357], rel=1e-9)
    assert record["jacobian"][0] == pytest.approx([0.106451277184, -0.104536622162, -0.001914655022], rel=1e-9)
    expected = {"trace": 0.213420795, "frobenius": 0.210195205, "spectral_norm": 0.210170067}
    expected |= {"largest_entry": 0.106451277, "entropy": 0.380066509}
    for name, value in expected.items():
        assert record[name] == pytest.approx(value, rel=1e-8)


@pytest.mark.parametrize(
    "words",
    [
        ["3", "1", "-3"],
        ["3, 1, -3"],
        ["3,", "1,", "-3"],
        ["[3, 1, -3]"],
        ["3;1;-3"],
        ["--", "3", "1", "-3"],
        ["3 1 \N{MINUS SIGN}3"],
        ["3e0", "+1", "-0.3e1"],
    ],
)
def test_logits_are_read_in_the_ways_people_type_them(capsys, words):
    code, out, err = call(capsys, ["softmax", *words])
    assert (code, err) == (0, "")
    assert "0.2134207951" in out  # the trace
    assert "0.878878" in out


@pytest.mark.parametrize("words", [["-1e2", "5"], ["-100,5"], ["-1e2", "--json", "5"], ["--json", "-1e2", "5"]])
def test_a_leading_minus_is_a_number_and_no_option(capsys, words):
    code, out, _ = call(capsys, ["softmax", *words])
    assert code == 0
    assert f"{math.exp(-105):.6g}"[:6] in out


def test_a_saturated_row_prints_no_zero_gradient(capsys):
    _, out, _ = call(capsys, "softmax 100 100 200")
    for figure in ("1.488030390e-43", "7.44015195e-44", "1.116022793e-43"):
        assert figure[:9] in out


BAD = [
    ("", "COMMAND"),
    ("nope", "nope"),
    ("validate --bogus", "--bogus"),
    ("validate --d-k", "--d-k"),
    ("validate --d-k 0", "`--d-k` must be a whole number from 1 to 1,000,000; received 0"),
    ("validate --d-k -1", "received -1"),
    ("validate --d-k 2.5", "received 2.5"),
    ("validate --d-k abc", "received 'abc'"),
    ("validate --d-k 1000000000", "received 1000000000"),
    ("validate --samples 0", "`--samples`"),
    ("validate --samples x", "received 'x'"),
    ("validate --seed -1", "`--seed`"),
    ("validate --seed 1.5", "received 1.5"),
    ("validate --scale 0", "`--scale`"),
    ("validate --tolerance 0", "`--tolerance`"),
    ("validate --confidence 2", "`--confidence`"),
    ("validate --workers 0", "`--workers`"),
    ("validate --correlation 2", "`--correlation`"),
    ("validate --q-std 0", "`--q-std`"),
    ("validate --k-mean nan", "`--k-mean`"),
    ("validate --entries cauchy", "`--entries`"),
    ("validate --entries t", "`--df`"),
    ("validate --entries t --df 2", "`--df`"),
    ("validate --df 5", "`--df`"),
    ("sweep --d-k 4 4", "`--d-k` must hold"),
    ("sweep --d-k 4 0", "`--d-k`"),
    ("softmax", "`logits`"),
    ("softmax 1 two", "'two' at place 2"),
    ("softmax 1,,2", "place 2"),
    ("softmax nan 1", "'nan' at place 1"),
    ("softmax 1 inf", "'inf' at place 2"),
    ("softmax " + "1 " * 100_000, "at most 1,024 numbers here; received 100,000"),
]


@pytest.mark.parametrize(("command", "part"), BAD, ids=[command[:40] for command, _ in BAD])
def test_bad_input_is_one_clear_line_and_nothing_else(capsys, command, part):
    code, out, err = call(capsys, command)
    assert (code, out) == (2, "")
    assert part in err
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert len(err) < 300
    assert "Traceback" not in err


def test_a_comma_is_no_thousands_separator_where_it_parts_a_list(capsys):
    code, out, _ = call(capsys, "sweep --d-k 1,4,16 --samples 50 --seed 1 --json")
    assert code == 2 or [r["model"]["d_k"] for r in json.loads(out)["results"]] == [1, 4, 16]
    code, _, _ = call(capsys, "validate --samples 2,5 --seed 1")
    assert code == 2


def test_the_smallest_standard_deviations_end_in_a_line_and_no_traceback(capsys):
    code, _, err = call(capsys, "validate --q-std 1e-60 --k-std 1e-60 --samples 100 --seed 1")
    assert code in (0, 1, 2, 3)
    assert err.count("\n") <= 1


def test_version_and_help(capsys):
    assert call(capsys, "--version")[:2] == (0, f"{__version__}\n")
    for command in ("--help", "validate -h", "sweep --help", "softmax -h"):
        code, out, err = call(capsys, command)
        assert (code, err) == (0, "")
        assert out.startswith("usage: python -m simulation")


def test_an_interrupted_run_says_so(capsys, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("simulation.__main__.dot_products", stop)
    assert call(capsys, "validate --samples 100") == (130, "", "interrupted\n")


@pytest.mark.parametrize(("seed", "code"), [("1", 0), ("x", 2)])
def test_a_real_process_ends_like_the_function(seed, code):
    done = process("validate", "--d-k", "4", "--samples", "200000", "--tolerance", "0.2", "--seed", seed)
    assert done.returncode == code
    assert done.stderr.count("\n") == (code == 2)  # no progress in a pipe
    assert ("confirmed" in done.stdout) == (code == 0)


def test_a_refuted_claim_ends_a_real_process_with_1():
    done = process("validate", "--samples", "5000", "--q-std", "2", "--seed", "1")
    assert (done.returncode, done.stderr) == (1, "")


def test_wide_gaps_print_no_warning():
    done = process("softmax", "1e308", "-1e308")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_has_seen_enough_is_no_error():
    # as in `python -m simulation softmax … | head -1`: the pipe closes before all is written
    words = [*PROGRAM, "softmax", *("1" for _ in range(600))]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 0


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "ascii"])
def test_output_goes_through_pipes_of_any_encoding(encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for words in (("--json",), ()):
        done = process("validate", "--samples", "50", "--seed", "1", *words, env=environment, encoding=encoding)
        assert done.returncode in (0, 1, 3), done.stderr
        assert "inconclusive" in done.stdout
