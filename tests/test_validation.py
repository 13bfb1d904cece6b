"""Bad input: one clear sentence that names the argument, the rule and the value received."""

import math
import re

import numpy as np
import pytest

from simulation import (
    DotProductLaw,
    QueryKeyModel,
    dot_products,
    samples_for_precision,
    softmax,
    softmax_jacobian,
    sweep,
)
from simulation._validation import one_of, real_number, shown, whole_number
from simulation.histograms import Histogram
from simulation.scoring import scale_factor
from simulation.typed_logits import logits_from_text

MODEL = QueryKeyModel(4)
SENTENCE = r"^`{name}` [^\n]*{rule}[^\n]*received [^\n]*{value}[^\n]*\.$"


def refused(name, rule, value):
    """Expect a ValueError whose message names the argument, its rule and the value received."""
    pattern = SENTENCE.format(name=name, rule=re.escape(rule), value=re.escape(value))
    return pytest.raises(ValueError, match=pattern)


@pytest.mark.parametrize("d_k", [0, -1, 2.5, 64.0, "abc", "64", 10**9, True, None, math.nan, [64], np.array([64])])
def test_a_head_dimension_is_a_whole_number_from_1_to_a_million(d_k):
    with refused("d_k", "must be a whole number from 1 to 1,000,000", repr(d_k)):
        QueryKeyModel(d_k)
    with refused("d_k", "must be a whole number from 1 to 1,000,000", repr(d_k)):
        DotProductLaw(d_k)


@pytest.mark.parametrize("d_k", [64, np.int64(64), np.uint8(64), np.array(64)])
def test_any_kind_of_whole_number_is_a_head_dimension(d_k):
    model = QueryKeyModel(d_k)
    assert type(model.d_k) is int
    assert model == QueryKeyModel(64)


@pytest.mark.parametrize("n_samples", [1, 0, -5, "x", 2.5, 1e6, True, 10**13, math.nan])
def test_a_run_has_at_least_two_samples(n_samples):
    with refused("n_samples", "must be a whole number from 2", repr(n_samples)):
        dot_products(MODEL, n_samples)


@pytest.mark.parametrize("rng", [-1, 1.5, "a", True, 2**128, [1, 2], np.random.RandomState])
def test_a_seed_is_an_int_or_one_of_numpys_kinds(rng):
    with refused("rng", "must be a whole number from 0", shown(rng)):
        dot_products(MODEL, 100, rng=rng)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("scale", 0, "a number from"),
        ("scale", -1, "a number from"),
        ("scale", "x", "a number from"),
        ("scale", math.inf, "a number from"),
        ("tolerance", 0, "above 0 and at most 1"),
        ("tolerance", 2, "above 0 and at most 1"),
        ("tolerance", math.nan, "above 0 and at most 1"),
        ("confidence", 2, "from 0.5 to"),
        ("confidence", 1, "from 0.5 to"),
        ("confidence", 95, "from 0.5 to"),
        ("confidence", None, "from 0.5 to"),
        ("workers", 0, "a whole number from 1"),
        ("workers", 1.5, "a whole number from 1"),
        ("simultaneous", 0, "a whole number from 1"),
    ],
)
def test_options_of_a_run_are_checked(name, value, rule):
    with refused(name, rule, repr(value)):
        dot_products(MODEL, 100, **{name: value})


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("q_mean", 1e5, "from -10000 to 10000"),
        ("k_mean", math.nan, "from -10000 to 10000"),
        ("q_mean", True, "from -10000 to 10000"),
        ("k_mean", [1], "from -10000 to 10000"),
        ("q_std", 0, "from 1e-06 to 10000"),
        ("k_std", -1, "from 1e-06 to 10000"),
        ("k_std", "2", "from 1e-06 to 10000"),
        ("correlation", 1.01, "from -1 to 1"),
        ("correlation", None, "from -1 to 1"),
        ("correlation", 10**400, "from -1 to 1"),
        ("entries", "cauchy", "one of normal, uniform, rademacher, laplace, student_t"),
        ("entries", None, "one of normal"),
        ("df", 3, "student_t entries only"),
    ],
)
def test_departures_of_a_model_are_checked(name, value, rule):
    with refused(name, rule, "" if name == "df" else shown(value)):
        QueryKeyModel(64, **{name: value})


@pytest.mark.parametrize("df", [None, 2, 1, 0, -3, "x", math.inf, math.nan])
def test_student_t_needs_more_than_two_degrees_of_freedom(df):
    # C08: at most 2, there is no variance to stand beside the estimate
    with refused("df", "above", "" if df == 2 else shown(df)):
        QueryKeyModel(64, "student_t", df)


def test_a_model_is_not_a_number():
    with pytest.raises(TypeError, match="`model` must be a QueryKeyModel; received 64"):
        dot_products(64, 100)


@pytest.mark.parametrize("ladder", [[], [4, 4], list(range(1, 1002))])
def test_a_ladder_has_one_to_a_thousand_different_rungs(ladder):
    with refused("d_k", "must hold 1 to 1,000 different head dimensions", shown(ladder)):
        sweep(ladder, 100)


@pytest.mark.parametrize("ladder", [[0], [1, "a"], [2.5], "16"])
def test_every_rung_is_a_head_dimension(ladder):
    with refused("d_k", "must be a whole number from 1 to 1,000,000", ""):
        sweep(ladder, 100)


@pytest.mark.parametrize("ladder", [64, None, [[1]]])
def test_a_ladder_that_is_no_list_of_numbers_is_refused_by_name(ladder):
    with pytest.raises((ValueError, TypeError), match=r"^`d_k` "):
        sweep(ladder, 100)


LOGITS = [
    ([], "at least one number"),
    ([[]], "at least one number"),
    (3, "at least one number"),
    (np.zeros((2, 0)), "at least one number"),
    ("abc", "real numbers"),
    (["1", "2"], "real numbers"),
    (None, "real numbers"),
    ([1j], "real numbers"),
    (np.array([1, 2], dtype=object), "real numbers"),
    ([math.nan, 1], "finite"),
    ([1, math.inf], "finite"),
    ([[1, 2], [3, math.nan]], "finite"),
    ([-math.inf, -math.inf], "at least one key unmasked"),
    ([[1, 2], [-math.inf, -math.inf]], "at least one key unmasked"),
    ([[1, 2], [3]], "rows of equal length"),
]


@pytest.mark.parametrize(("logits", "rule"), LOGITS)
@pytest.mark.parametrize("function", [softmax, softmax_jacobian])
def test_logits_are_real_numbers_in_even_rows(function, logits, rule):
    with refused("logits", rule, ""):
        function(logits)


def test_a_bad_logit_is_named_by_place():
    with pytest.raises(ValueError, match=r"received nan at position \(1, 0\) \(2 such\)"):
        softmax([[1, 2], [math.nan, math.nan]])


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "at least one number"),
        (" [ ] ", "at least one number"),
        ("1,,2", "nothing between two commas at place 2"),
        ("1, 2,", "nothing between two commas at place 3"),
        ("1 two 3", "'two' at place 2"),
        ("nan", "'nan' at place 1"),
        ("1 -inf", "'-inf' at place 2"),
        ("1 2 3 4 5", "at most 4 numbers here; received 5"),
    ],
)
def test_typed_logits_are_refused_by_place(text, rule):
    with pytest.raises(ValueError, match=f"^`logits` .*{re.escape(rule)}"):
        logits_from_text(text, most=4)


@pytest.mark.parametrize(
    "text", ["3, 1, -3", "3 1 -3", "[3; 1; -3]", " 3,1,-3.0\n", "3 1 \N{MINUS SIGN}3", "3e0\t1 -3"]
)
def test_typed_logits_are_read_in_the_ways_people_type_them(text):
    assert logits_from_text(text, most=64) == [3, 1, -3]


def test_a_plan_needs_a_finite_kurtosis_and_a_sensible_precision():
    for kurtosis in (math.inf, math.nan):
        with refused("kurtosis", "must be finite", repr(kurtosis)):
            samples_for_precision(kurtosis)
    with refused("precision", "must be a number from 1e-06 to 1", "0"):
        samples_for_precision(3, 0)
    with refused("confidence", "must be a number from 0.5", "2"):
        samples_for_precision(3, confidence=2)


@pytest.mark.parametrize("p", [0, 1, -0.1, 1.1, math.nan, [0.5, 1]])
def test_a_quantile_belongs_to_a_probability_strictly_between_0_and_1(p):
    with refused("p", "must lie strictly between 0 and 1", repr(p)):
        DotProductLaw(4).quantile(p)


@pytest.mark.parametrize(("name", "value"), [("scale", 0), ("scale", -1), ("correlation", 1), ("correlation", -1)])
def test_the_exact_law_has_a_positive_scale_and_a_correlation_inside_the_unit_interval(name, value):
    with refused(name, "must be a number", repr(value)):
        DotProductLaw(4, **{name: value})


@pytest.mark.parametrize("edges", [[0], [1, 1], [2, 1], [[0, 1]], [0, math.nan], []])
def test_histogram_edges_rise(edges):
    with refused("edges", "at least two rising numbers", repr(edges)):
        Histogram.empty(edges)


def test_the_checks_hand_back_clean_values():
    assert whole_number("x", np.int32(3), 1, 5) == 3
    assert real_number("x", np.float32(0.5), 0, 1) == 0.5
    assert one_of("x", " Scaled-Dot ", ["dot", "scaled_dot"]) == "scaled_dot"
    with refused("scoring", "must be one of dot, scaled_dot", "'cosine'"):
        scale_factor("cosine", 4)


def test_a_long_value_is_cut_in_the_message():
    assert shown(list(range(1000))).endswith("...")
    assert len(shown("x" * 10**6)) == 60
