"""q, k and logits at initialisation: exact values, draws of them, and errors that hold.

Statistical tests compare with a tolerance of Z standard errors of their own run, from independent heads: a right
program fails one comparison in 290 000 (a little more often, errors being estimated), and there are about 60.
TEST_SEED repeats them with other numbers.
"""

import dataclasses
import math

import numpy as np
import pytest

from simulation.additive import draw_additive_weights
from simulation.initialisations import (
    INITIALISATIONS,
    draw_head,
    draw_initialisation,
    initialisation,
)
from simulation.methods import make_scoring
from simulation.sampling import child_seed, stream
from simulation.scoring import logits

Z = 4.65  # two-sided normal tail 3.3e-6
FIELDS = ("query_variance", "key_variance", "logit_variance", "logit_kurtosis")


def z_score(estimate, expected=None):
    return (estimate.estimate - (estimate.exact if expected is None else expected)) / estimate.standard_error


# --- exact values ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "d_model", "heads", "query", "key", "scaled"),
    [
        ("xavier", 512, 8, 1, 1, 1),
        ("he", 512, 8, 2, 2, 4),
        ("torch_linear", 512, 8, 1 / 3, 1 / 3, 1 / 9),
        ("torch_attention", 512, 8, 1 / 2, 1 / 2, 1 / 4),
        ("gpt2", 768, 12, 0.3072, 0.3072, 0.3072**2),
        ("t5", 512, 8, 1 / 64, 1, 1),
        ("xavier_per_head", 512, 8, 16 / 9, 16 / 9, (16 / 9) ** 2),
    ],
)
def test_published_variances(name, d_model, heads, query, key, scaled):
    exact = initialisation(name, d_model, heads)
    assert exact.d_k == 64
    assert exact.query_variance == pytest.approx(query, rel=1e-14)
    assert exact.key_variance == pytest.approx(key, rel=1e-14)
    assert exact.logit_variance == pytest.approx(scaled, rel=1e-14)
    assert exact.scale == (1 if name == "t5" else 1 / 8)


def test_the_numbers_people_quote():
    quoted = {"xavier": 1, "he": 4, "torch_linear": 0.111, "torch_attention": 0.25, "t5": 1}
    for name, value in quoted.items():
        assert round(initialisation(name).logit_variance, 3) == value
    assert round(initialisation("gpt2", 768, 12).logit_variance, 3) == 0.094


def test_most_do_not_have_unit_variance():
    # "any sensible initialisation gives unit variance": it does not
    assert sorted(name for name in INITIALISATIONS if math.isclose(initialisation(name).logit_variance, 1)) == [
        "t5",
        "xavier",
    ]


@pytest.mark.parametrize("name", INITIALISATIONS)
def test_the_width_drops_out_but_for_a_fixed_std(name):
    narrow, wide = (initialisation(name, d_model, 4).logit_variance for d_model in (64, 1024))
    assert wide == pytest.approx(narrow * (256 if name == "gpt2" else 1))


def test_t5_matches_the_oracle(reference):
    # the oracle's x is normal, not normalised: |x|² / d_model is no longer 1, its square has mean 1 + 2/d_model
    for row in reference["moments_T5_init"]["rows"]:
        exact, spread = initialisation("t5", row["d_model"], row["d_model"] // row["d_kv"]), 1 + 2 / row["d_model"]
        assert exact.logit_variance == pytest.approx(row["var"], rel=1e-14)
        assert exact.logit_variance * spread == pytest.approx(row["var_same_token"], rel=1e-14)
        assert exact.logit_kurtosis * spread**2 == pytest.approx(row["kurtosis"], rel=1e-14)


@pytest.mark.parametrize("normalised", [True, False])
def test_a_token_against_itself(seed, normalised):
    # variance 1 + 2/d_model of q·k of one normal token under T5; exactly 1 once x is normalised
    rng, d_model, d_k, values = stream(child_seed(seed, 1), normalised), 16, 4, []
    for _ in range(4000):
        x = rng.standard_normal((8, d_model))
        if normalised:
            x -= x.mean(axis=1, keepdims=True)
            x /= x.std(axis=1, keepdims=True)
        w_q = rng.standard_normal((d_k, d_model)) / math.sqrt(d_model * d_k)
        w_k = rng.standard_normal((d_k, d_model)) / math.sqrt(d_model)
        values.append(np.square(((x @ w_q.T) * (x @ w_k.T)).sum(axis=1)).mean())
    expected = 1 if normalised else 1 + 2 / d_model
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    assert abs(np.mean(values) - expected) < Z * error
    assert error < 0.02  # enough to tell 1 from 1.125


# --- draws -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(96, 8), (24, 2)])
@pytest.mark.parametrize("name", INITIALISATIONS)
def test_draws_agree_with_exact_values(name, shape, seed):
    draws = draw_initialisation(name, *shape, replicates=400, tokens=16, rng=child_seed(seed, 2))
    for field in FIELDS:
        estimate = getattr(draws, field)
        assert estimate.exact == getattr(draws.exact, field)
        assert abs(z_score(estimate)) < Z, field
        low, high = estimate.interval
        assert low < estimate.estimate < high


def test_draws_reject_another_initialisation(seed):
    # the planted faults: He believed to be Xavier, a fused matrix to be separate ones, T5 scaled again
    draws = draw_initialisation("he", 64, 4, replicates=200, rng=child_seed(seed, 3))
    assert abs(z_score(draws.logit_variance, initialisation("xavier", 64, 4).logit_variance)) > 10
    draws = draw_initialisation("torch_attention", 64, 4, replicates=200, rng=child_seed(seed, 3))
    assert abs(z_score(draws.logit_variance, initialisation("xavier", 64, 4).logit_variance)) > 10
    draws = draw_initialisation("t5", 64, 4, replicates=200, rng=child_seed(seed, 3))
    assert abs(z_score(draws.logit_variance, 1 / 16)) > 10


def test_standard_errors_are_those_of_replicates(seed):
    # over fresh runs z has variance 1; counting logits as independent would make it several times larger
    runs = [
        draw_initialisation("xavier", 32, 2, replicates=40, tokens=32, rng=child_seed(seed, 4, i)) for i in range(150)
    ]
    for field in ("query_variance", "logit_variance"):
        z = np.array([z_score(getattr(run, field)) for run in runs])
        assert 0.6 < np.mean(z**2) < 1.6  # chi-square on 150 degrees of freedom: ±0.115 a standard deviation
    naive = math.sqrt((runs[0].exact.logit_kurtosis - 1) / (40 * 32 * 32))
    z = np.array([(run.logit_variance.estimate - 1) / naive for run in runs])
    assert np.mean(z**2) > 3


def test_intervals_cover(seed):
    runs = [
        draw_initialisation("t5", 32, 2, replicates=10, tokens=8, rng=child_seed(seed, 5, i), confidence=0.9)
        for i in range(300)
    ]
    covered = np.mean([run.key_variance.interval[0] < 1 < run.key_variance.interval[1] for run in runs])
    assert abs(covered - 0.9) < 0.08  # 4.6 binomial standard deviations


def test_t5_folds_the_scale_and_scaling_again_shows(seed):
    values = {"as_coded": [], "again": []}
    for i in range(150):
        q, k = draw_head(initialisation("t5", 512, 8), 16, stream(child_seed(seed, 6), i))
        values["as_coded"].append(np.square(logits(q, k, make_scoring("t5", 64).as_coded)).mean())
        values["again"].append(np.square(logits(q, k, make_scoring("scaled_dot", 64))).mean())
    for name, expected in (("as_coded", 1), ("again", 1 / 64)):
        assert abs(np.mean(values[name]) - expected) < Z * np.std(values[name], ddof=1) / math.sqrt(150)


def test_tokens_are_normalised(monkeypatch):
    # W = identity shows x itself
    monkeypatch.setattr("simulation.initialisations._entries", lambda *_: np.eye(32))
    q, k = draw_head(initialisation("xavier", 32, 1), 5, stream(0, 0))
    for x in (q, k):
        assert x.mean(axis=1) == pytest.approx(0, abs=1e-15)
        assert np.square(x).mean(axis=1) == pytest.approx(1, rel=1e-14)
    assert not np.allclose(q, k)


def test_same_seed_same_numbers():
    first, again = (draw_initialisation("he", 16, 2, replicates=5, tokens=3, rng=9) for _ in range(2))
    assert first == again
    assert first.seed == 9
    assert draw_initialisation("he", 16, 2, replicates=5, tokens=3, rng=10) != first
    unseeded = draw_initialisation("he", 16, 2, replicates=5, tokens=3)
    assert draw_initialisation("he", 16, 2, replicates=5, tokens=3, rng=unseeded.seed) == unseeded


def test_more_replicates_keep_the_first(monkeypatch):
    seen = []

    def watched(seed, i):
        seen.append((seed, i))
        return stream(seed, i)

    monkeypatch.setattr("simulation.initialisations.stream", watched)
    draw_initialisation("he", 16, 2, replicates=4, tokens=3, rng=9)
    draw_initialisation("he", 16, 2, replicates=6, tokens=3, rng=9)
    assert seen[:4] == seen[4:8]


def test_results_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        initialisation("he").d_model = 3


@pytest.mark.parametrize("name", INITIALISATIONS)
def test_the_table_is_complete(name):
    rule = INITIALISATIONS[name]
    assert all((rule.title, rule.formula, rule.source))
    assert rule.law in ("normal", "uniform")


# --- additive weights --------------------------------------------------------------------------


def test_additive_weights_give_unit_variance_inside_tanh(seed):
    weights = draw_additive_weights(64, 4096, rng=child_seed(seed, 7))
    assert 64 * np.square(np.hstack([weights.w_q, weights.w_k])).mean() == pytest.approx(0.5, rel=0.01)
    assert np.square(weights.v).sum() == pytest.approx(1, rel=0.15)
    again = draw_additive_weights(64, 4096, rng=child_seed(seed, 7))
    assert (again.w_k == weights.w_k).all()
    assert not np.allclose(weights.w_q, weights.w_k)


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: initialisation("orthogonal"), r"`name` must be one of xavier, he.*received 'orthogonal'"),
        (lambda: initialisation("he", 512, 7), r"`heads` must divide d_model = 512; received 7"),
        (lambda: initialisation("he", 1), r"`d_model` must be a whole number from 2"),
        (lambda: initialisation("he", 8, 9), r"`heads` must be a whole number from 1 to 8"),
        (lambda: draw_initialisation("he", 8, 1, replicates=1), r"`replicates` must be a whole number from 2"),
        (lambda: draw_initialisation("he", 8, 1, tokens=0), r"`tokens` must be a whole number from 1"),
        (lambda: draw_initialisation("he", 8, 1, rng=-1), r"`rng` must be"),
        (lambda: draw_initialisation("he", 8, 1, confidence=1), r"`confidence` must be a number from 0.5"),
        (lambda: draw_additive_weights(0, 3), r"`d_k` must be a whole number"),
        (lambda: draw_additive_weights(3, 0), r"`hidden` must be a whole number"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
