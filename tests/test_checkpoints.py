"""Checkpoints: stop and go on to the same bits; refuse another question and a damaged file."""

import json
import math
import os

import numpy as np
import pytest

from simulation import QueryKeyModel, checkpoints, dot_products, sweep
from simulation.__main__ import main
from simulation.checkpoints import Checkpoint
from simulation.histograms import Histogram
from simulation.pair_summary import PairSummary
from simulation.sampling import chunk_pairs
from simulation.statistics import MomentState

MODEL = QueryKeyModel(1000, "laplace", q_mean=0.3)
N = 40 * chunk_pairs(1000) + 3


class StoppedError(Exception):
    pass


def stop_at(chunk):
    def progress(done, _):
        if done == chunk:
            raise StoppedError

    return progress


@pytest.fixture
def file(tmp_path):
    return tmp_path / "run.json"


@pytest.fixture
def half_done(file):
    with pytest.raises(StoppedError):
        dot_products(MODEL, N, rng=9, checkpoint=file, progress=stop_at(17))
    return file


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(half_done):
    steps = []
    result = dot_products(MODEL, N, rng=9, checkpoint=half_done, progress=lambda done, _: steps.append(done))
    assert result == dot_products(MODEL, N, rng=9)
    assert steps[0] == 18  # what was drawn is not drawn again


def test_stopping_after_every_chunk_changes_nothing(file):
    for chunk in range(1, 41, 3):
        with pytest.raises(StoppedError):
            dot_products(MODEL, N, rng=9, checkpoint=str(file), progress=stop_at(chunk), workers=1 + chunk % 2)
    assert dot_products(MODEL, N, rng=9, checkpoint=str(file)) == dot_products(MODEL, N, rng=9)


def test_a_finished_run_is_read_back_without_drawing(half_done, monkeypatch):
    finished = dot_products(MODEL, N, rng=9, checkpoint=half_done)
    monkeypatch.delattr("simulation.experiments.draw_pairs")
    assert dot_products(MODEL, N, rng=9, checkpoint=half_done) == finished
    # tolerance and confidence judge what was drawn; they are no part of the question
    assert dot_products(MODEL, N, checkpoint=half_done, tolerance=0.5, confidence=0.9).before.mean.estimate == (
        finished.before.mean.estimate
    )


def test_a_blank_seed_is_kept(file):
    with pytest.raises(StoppedError):
        dot_products(MODEL, N, checkpoint=file, progress=stop_at(3))
    result = dot_products(MODEL, N, checkpoint=file)
    assert result.seed == json.loads(file.read_text())["question"]["seed"]
    assert result == dot_products(MODEL, N, rng=result.seed)
    assert dot_products(MODEL, N).seed != result.seed


def test_a_sweep_goes_on_at_the_rung_where_it_was(file):
    calls = []

    def progress(done, total):
        calls.append((done, total))
        if len(calls) == 3:
            raise StoppedError

    ladder = [1, 512, 2000]
    with pytest.raises(StoppedError):
        sweep(ladder, 2000, rng=4, checkpoint=file, progress=progress)
    before = list(calls)
    result = sweep(ladder, 2000, checkpoint=file, progress=progress)
    assert result == sweep(ladder, 2000, rng=4)
    assert len(calls) == sum(math.ceil(2000 / chunk_pairs(d)) for d in ladder)
    assert before == [(1, 1), (1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"n_samples": N + 1}, rf"n_samples is {N} there and {N + 1} here"),
        ({"rng": 10}, "seed is 9 there and 10 here"),
        ({"scale": 1}, "scale is 0.03.* there and 1.0 here"),
        ({"model": QueryKeyModel(1000, "laplace")}, "q_mean is 0.3 there and 0.0 here"),
        ({"model": QueryKeyModel(999, "laplace", q_mean=0.3)}, "d_k is 1000 there and 999 here"),
    ],
)
def test_another_question_is_refused_in_one_sentence_that_says_what_differs(half_done, change, named):
    kept = half_done.read_bytes()
    asked = {"model": MODEL, "n_samples": N, "rng": 9} | change
    with pytest.raises(ValueError, match=rf"`checkpoint` file .*run.json belongs to another question: .*{named}"):
        dot_products(asked.pop("model"), checkpoint=half_done, **asked)
    assert half_done.read_bytes() == kept


def test_another_version_of_the_package_or_of_numpy_is_another_question(half_done, monkeypatch):
    monkeypatch.setattr(np, "__version__", "9.9.9")
    with pytest.raises(ValueError, match=r"numpy version is '\d.* there and '9.9.9' here"):
        dot_products(MODEL, N, rng=9, checkpoint=half_done)


def test_a_sweep_refuses_another_ladder_and_another_number_of_samples(file):
    sweep([1, 4], 1000, rng=0, checkpoint=file)
    with pytest.raises(ValueError, match=r"ladder is \[1, 4\] there and \[1, 8\] here"):
        sweep([1, 8], 1000, rng=0, checkpoint=file)
    with pytest.raises(ValueError, match="n_samples is 1000 there and 2000 here"):
        sweep([1, 4], 2000, rng=0, checkpoint=file)
    with pytest.raises(ValueError, match="another question"):
        dot_products(QueryKeyModel(1), 1000, rng=0, checkpoint=file)


def damage(text):
    yield "", "no checkpoint"
    yield text[: len(text) // 2], "no checkpoint"
    yield "[" * 100_000, "no checkpoint"
    yield text.replace('"counts": [', '"counts": [1, '), "checksum"
    yield text.replace('"seed": 9', '"seed": 8'), "checksum"
    yield '{"format": "something else"}', "no checkpoint"
    yield "\x80\x04K\x01.", "no checkpoint"  # a pickle


def test_a_damaged_file_is_refused_and_left_as_it_is(half_done):
    for text, why in damage(half_done.read_text()):
        half_done.write_text(text)
        for seed in (9, None):
            with pytest.raises(ValueError, match=rf"`checkpoint` file .* cannot be continued: .*{why}"):
                dot_products(MODEL, N, rng=seed, checkpoint=half_done)
        assert half_done.read_text() == text
    half_done.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="cannot be continued"):
        dot_products(MODEL, N, rng=9, checkpoint=half_done)


@pytest.mark.parametrize("fault", [{"chunks": 10**6}, {"counts": [1]}, {"before": [1, 2]}, {"overflow": -1}])
def test_a_state_that_makes_no_sense_is_refused_though_its_checksum_matches(half_done, fault):
    content = json.loads(half_done.read_text())
    del content["sha256"]
    content["parts"]["d_k = 1000"]["state"] |= fault
    content["sha256"] = checkpoints._digest(content)
    half_done.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="cannot be continued"):
        dot_products(MODEL, N, rng=9, checkpoint=half_done)


def test_the_state_survives_json_to_the_last_bit():
    x = MomentState.of(np.random.default_rng(0).standard_normal(1000) * 1e-150)
    wild = MomentState(3, math.inf, 5e-324, -0.0, 1e308)
    edges = Histogram.empty(np.linspace(-1, 1, 7))
    summary = PairSummary(x, wild, MomentState(), edges.add([0.1, 5, -7, math.nan]))
    assert PairSummary.from_state(json.loads(json.dumps(summary.to_state())), edges) == summary


def test_a_crash_while_writing_leaves_the_old_file_whole(half_done, monkeypatch):
    kept = half_done.read_bytes()

    def crash(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(ValueError, match="cannot be written: No space left on device"):
        dot_products(MODEL, N, rng=9, checkpoint=half_done)
    assert half_done.read_bytes() == kept
    assert [path.name for path in half_done.parent.iterdir()] == ["run.json"]


def test_a_run_writes_seldom_and_at_its_end(file, monkeypatch):
    saves = []
    clock = iter(range(1000))
    monkeypatch.setattr("simulation.checkpoints.time.monotonic", lambda: next(clock) / 4)
    written = Checkpoint.save

    def save(self):
        saves.append(json.loads(json.dumps(self.parts)))
        written(self)

    monkeypatch.setattr(Checkpoint, "save", save)
    dot_products(MODEL, N, rng=9, checkpoint=file, workers=1)
    # at the start, every two seconds (eight ticks of this clock), and at the end
    chunks = [part["d_k = 1000"]["state"]["chunks"] for part in saves[1:]]
    assert chunks == [8, 16, 24, 32, 40, 41]


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_drawn(tmp_path, monkeypatch):
    monkeypatch.delattr("simulation.experiments.draw_pairs")
    with pytest.raises(ValueError, match="cannot be written"):
        dot_products(MODEL, N, rng=9, checkpoint=tmp_path / "no such folder" / "run.json")
    with pytest.raises(ValueError, match="cannot be"):
        dot_products(MODEL, N, rng=9, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="`checkpoint` must be the name of a file; received 3"):
        dot_products(MODEL, N, rng=9, checkpoint=3)


def test_on_the_command_line(file, capsys):
    words = ["sweep", "--d-k", "4", "16", "--samples", "1000", "--json", "--checkpoint", str(file)]
    assert main(words) == 0
    first = capsys.readouterr().out
    assert main(words) == 0
    assert capsys.readouterr().out == first  # the same seed, though none was given
    words[5] = "1001"
    assert main(words) == 2
    assert "n_samples is 1000 there and 1001 here" in capsys.readouterr().err
