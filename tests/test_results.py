"""What experiments hand back: it prints, turns into a tidy frame, and goes through JSON unharmed."""

import json
import math
import platform

import numpy as np
import pytest

from simulation import Claim, DotProductResult, QueryKeyModel, SweepResult, __version__, dot_products, sweep

MODELS = [
    QueryKeyModel(64),
    QueryKeyModel(4, "uniform", q_mean=0.5, k_std=2, correlation=-0.3),
    QueryKeyModel(4, "student_t", 3),
    QueryKeyModel(1, "rademacher"),
]
WITHOUT_VARIANCE = [QueryKeyModel(4, "rademacher", correlation=1), QueryKeyModel(4, "student_t", 3, correlation=0.5)]


def refuse(name):
    raise AssertionError(f"JSON holds {name}")


@pytest.mark.parametrize("model", MODELS + WITHOUT_VARIANCE)
def test_a_result_comes_back_from_json_as_it_was(model):
    result = dot_products(model, 3000, rng=1)
    again = DotProductResult.from_json(result.to_json())
    assert again == result
    assert again.to_dict() == result.to_dict()
    assert type(again.claims[0]) is Claim
    assert type(again.before.variance.estimate) is float
    assert again.histogram.counts.dtype == np.int64


@pytest.mark.parametrize("model", MODELS + WITHOUT_VARIANCE)
def test_json_holds_only_what_every_reader_knows(model):
    text = dot_products(model, 1000, rng=1).to_json()
    record = json.loads(text, parse_constant=refuse)  # no NaN, Infinity or -Infinity
    assert record == json.loads(dot_products(model, 1000, rng=1).to_json(indent=None))
    assert set(record) >= {"model", "n_samples", "seed", "scale", "claims", "before", "after", "fit", "versions"}
    assert set(record["claims"][0]) >= {"name", "expected", "exact", "estimate", "standard_error", "interval"}
    assert set(record["claims"][0]) >= {"tolerance", "verdict"}


@pytest.mark.parametrize("options", [{}, {"entries": "student_t", "df": 3}, {"correlation": 0.5}])
def test_a_sweep_comes_back_from_json_as_it_was(options):
    result = sweep([1, 8], 500, rng=1, **options)
    text = result.to_json()
    json.loads(text, parse_constant=refuse)
    assert SweepResult.from_json(text) == result


def test_a_result_names_what_it_depends_on():
    result = dot_products(QueryKeyModel(4), 100, rng=5)
    assert result.versions["simulation"] == __version__
    assert result.versions["numpy"] == np.__version__  # C16: streams may change between versions
    assert result.versions["python"] == platform.python_version()
    assert (result.n_samples, result.seed, result.model) == (100, 5, QueryKeyModel(4))


def test_results_are_compared_by_all_they_hold():
    result = dot_products(QueryKeyModel(4), 100, rng=5)
    assert result == dot_products(QueryKeyModel(4), 100, rng=5)
    for other in (dot_products(QueryKeyModel(4), 100, rng=6), dot_products(QueryKeyModel(4), 101, rng=5)):
        assert result != other
    with pytest.raises(AttributeError):
        result.seed = 6


def test_a_frame_is_tidy():
    result = dot_products(QueryKeyModel(64), 1000, rng=0)
    frame = result.to_frame()
    assert len(frame) == 12  # three quantities, four statistics
    assert set(frame["quantity"]) == {"component", "before", "after"}
    row = frame[(frame["quantity"] == "before") & (frame["statistic"] == "variance")].iloc[0]
    variance = result.before.variance
    assert (row["estimate"], row["standard_error"], row["exact"]) == (variance.estimate, variance.standard_error, 64)
    assert (row["low"], row["high"]) == variance.interval
    assert (row["d_k"], row["entries"], row["n_samples"], row["seed"]) == (64, "normal", 1000, 0)
    assert not frame.isna().any().any()


def test_a_frame_of_a_sweep_has_all_rungs_and_misses_what_does_not_exist():
    frame = sweep([1, 8], 500, rng=0, entries="student_t", df=3).to_frame()
    assert len(frame) == 24
    assert frame["d_k"].unique().tolist() == [1, 8]
    missing = frame[frame["statistic"] == "variance"][["standard_error", "low", "high"]]
    assert missing.isna().all().all()


def test_a_result_prints_its_numbers_and_verdicts():
    result = dot_products(QueryKeyModel(64, correlation=0.5), 5000, rng=3, tolerance=0.1)
    text = str(result)
    for part in ("d_k = 64", "correlation=0.5", "5,000 pairs", "seed 3", "exact 80", "exact 1.25"):
        assert part in text
    for claim in result.claims:
        assert claim.sentence in text
        assert claim.verdict in claim.sentence
    assert "standard normal entries" in str(dot_products(QueryKeyModel(64), 100, rng=3))


def test_a_sweep_prints_a_line_for_each_rung_and_the_slopes():
    text = str(sweep([1, 8], 500, rng=3))
    assert [line.split()[0] for line in text.splitlines()[1:3]] == ["1", "8"]
    assert text.count("slope of ln Var") == 2
    assert "seed 3" in text


def test_what_does_not_exist_is_printed_in_words():
    text = str(dot_products(WITHOUT_VARIANCE[0], 100, rng=0))
    assert "undefined" in text
    assert "nan" not in text
    heavy = dot_products(QueryKeyModel(4, "student_t", 3), 100, rng=0)
    assert str(heavy).count("no s.e.") >= 9
    for estimate in (heavy.before.variance, heavy.before.kurtosis):
        assert estimate.interval is None
        assert estimate.note


def test_an_estimate_that_is_undefined_is_null_in_json_and_nan_again():
    result = dot_products(WITHOUT_VARIANCE[0], 100, rng=0)
    assert result.to_dict()["before"]["skewness"]["estimate"] is None
    again = DotProductResult.from_json(result.to_json())
    assert math.isnan(again.before.skewness.estimate)
    assert again.before.skewness.exact is None
