"""The command `scorings`: table, JSON, and refusals of one clear line."""

import json

import pytest

from simulation import ComparisonResult, compare_scorings
from simulation.__main__ import main
from simulation.scored_rows import ROW_QUANTITIES


def call(capsys, command):
    """Exit code, standard output and standard error of one command."""
    try:
        code = main(command.split())
    except SystemExit as end:
        code = end.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_table_is_the_result(capsys):
    command = "scorings --scoring scaled-dot mup --d-k 64 16 --keys 8 --correlation 0.5 --rows 256 --seed 3 --workers 2"
    code, out, err = call(capsys, command)
    brief = ("logit_std", "aligned_logit", "aligned_weight", "trace", "query_gradient")
    expected = compare_scorings(["scaled_dot", "mup"], [64, 16], 8, 0.5, n_rows=256, rng=3, quantities=brief)
    assert (code, out, err) == (0, f"{expected}\n", "")


def test_json_holds_everything(capsys):
    code, out, _ = call(capsys, "scorings --d-k 4 --keys 4 --rows 64 --seed 1 --aligned all --json")
    assert code == 0
    assert ComparisonResult.from_json(out) == compare_scorings(d_k=[4], n_keys=4, n_rows=64, rng=1, aligned="all")
    record = json.loads(out)
    assert {r["quantity"] for r in record["records"]} == set(ROW_QUANTITIES)
    assert {r["correlation"] for r in record["records"]} == {0, 0.5}
    assert record["aligned"] == "all"


def test_defaults_are_those_of_the_help(capsys):
    code, out, _ = call(capsys, "scorings --rows 32 --scoring mup --quantity trace")
    assert code == 0
    assert "d_k = 64, 128 keys, correlation 0, " in out
    assert "d_k = 64, 128 keys, correlation 0.5, " in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--scoring softmax", "`scorings` must be one of dot, scaled_dot"),
        ("--scoring mup mup", "`scorings` must hold 1 to 1,000 different values"),
        ("--d-k 0", "`--d-k` must be a whole number from 1 to 1,000,000; received 0"),
        ("--d-k 2.5", "`--d-k` must be a whole number"),
        ("--keys 5000", "`--keys` must be a whole number from 2 to 2,048; received 5000"),
        ("--correlation 2", "`--correlation` must be a number from -1 to 1; received 2"),
        ("--correlation nan", "`--correlation` must be a number from -1 to 1"),
        ("--aligned some", "`--aligned` must be one of one, all"),
        ("--quantity loss", "`--quantity` must be one of logit_mean"),
        ("--rows 1", "`--rows` must be a whole number from 32"),
        ("--seed -1", "`--seed` must be a whole number"),
    ],
)
def test_bad_input_is_one_clear_line(capsys, options, message):
    code, out, err = call(capsys, f"scorings {options}")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
