"""Scorings side by side: rows against formulas, draws against exact values, errors that hold, refusals.

Statistical tests compare with a tolerance of Z standard errors of their own run, taken from 64 heads or more:
Student's t with 63 degrees of freedom exceeds Z once in 9 million, and there are about 900 comparisons.
TEST_SEED repeats them with other numbers.
"""

import math
from functools import cache

import numpy as np
import pytest

from simulation import compare_scorings
from simulation.additive import AdditiveWeights, draw_additive_weights
from simulation.aligned_heads import align, draw_vectors, heads_of_chunk, queries_of
from simulation.attention_heads import Heads
from simulation.comparison import ComparisonResult, joined
from simulation.comparison_theory import exact_comparison
from simulation.methods import METHODS, make_scoring
from simulation.row_sizes import row_sizes
from simulation.row_statistics import row_estimate
from simulation.sampling import child_seed, stream
from simulation.scored_rows import ROW_QUANTITIES, row_values
from simulation.scoring import Scoring, logits, weights_gradient
from simulation.softmax import jacobian_sizes, softmax

Z = 6.0
EVERY = tuple(METHODS)


def key_of(seed, *names):
    return np.random.SeedSequence(child_seed(seed, 51, *names))


def off_by(values, expected):
    """How many standard errors the mean of independent values is away from what is expected."""
    return abs(np.mean(values) - expected) / (np.std(values, ddof=1) / math.sqrt(len(values)))


def z_scores(result):
    """Distance from the exact value in standard errors; rounding counts where the error vanishes."""
    known = [r for r in result.records if r.exact is not None]
    return np.array([abs(r.estimate - r.exact) / (r.standard_error + 1e-11 * max(1, abs(r.exact))) for r in known])


# --- rows against formulas ----------------------------------------------------------------------


def scoring_of_head(scoring, drawn, head):
    if scoring.kind != "additive":
        return scoring
    w = drawn.weights
    weights = AdditiveWeights(w["w_q"][head], w["w_k"][head], w["v"][head])
    return Scoring("additive", scoring.factors, scoring.cap, weights=weights)


@pytest.mark.parametrize("cap", [math.inf, 1.3])
@pytest.mark.parametrize(("aligned", "rho"), [("one", 0.0), ("one", 0.6), ("one", -1.0), ("all", 0.6), ("all", 1.0)])
@pytest.mark.parametrize("name", EVERY)
def test_rows_are_what_the_formulas_give(seed, name, aligned, rho, cap):
    d, n = 5, 4
    drawn = draw_vectors(d, n, key_of(seed, 1), additive=True)
    heads, scoring = align(drawn, rho, aligned), make_scoring(name, d, n_keys=n).capped(cap)
    values = row_values(heads, scoring, ROW_QUANTITIES)
    folded = scoring.effective_scale / scoring.as_coded.effective_scale
    for head, i in ((0, 0), (1, 3)):
        q = drawn.q[head, i : i + 1]
        k = heads.on_base * heads.base[head] + heads.on_q * q
        formula = scoring_of_head(scoring, drawn, head)
        x, sizes = logits(q, k, formula)[0], jacobian_sizes(logits(q, k, formula)[0])
        gradient = np.linalg.norm(weights_gradient(q, k, formula)) / folded
        expected = {
            "logit_mean": x.mean(),
            "logit_std": x.std(ddof=1),
            "aligned_logit": x[i],
            "aligned_weight": softmax(x)[i],
            "entropy": sizes.entropy,
            "trace": sizes.trace,
            "largest_weight": sizes.largest_weight,
            "query_gradient": gradient,
        }
        for quantity, value in expected.items():
            # on n equal keys the gradient is 0: then rounding, under a root, is all that is left
            assert values[quantity][head, i] == pytest.approx(value, rel=1e-9, abs=3e-8), quantity


def test_saturated_rows_keep_their_gradient(seed):
    heads = align(draw_vectors(1024, 2, key_of(seed, 2)), 0.0, "one")
    found = row_values(heads, Scoring(), ["query_gradient"])["query_gradient"]
    other_route = row_sizes(Heads(heads.dots, (heads.base,)), [1.0], ["query_gradient"])[0]["query_gradient"]
    assert found == pytest.approx(other_route, rel=1e-10)
    assert 0 < found.min() < 1e-40


# --- the draws ---------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [3, 300])
def test_inner_products_have_the_law_of_normal_vectors(seed, d):
    n = 6  # 300 > m + n = 12: drawn in twelve coordinates
    heads = align(draw_vectors(d, n, key_of(seed, 3, d)), 0.6, "one")
    assert heads.base.shape[-1] == min(d, 12)
    own = np.diagonal(heads.dots, axis1=1, axis2=2)
    lengths, others = heads.q_square[..., 0], heads.dots[:, 0, 1]
    gram = heads.gram[:, 0, 1]
    for values, mean, variance in (
        (own[:, 0], 0.6 * d, 1.36 * d),
        (lengths[:, 2], d, 2 * d),
        (heads.k_square[:, 0, 5], d, 2 * d),
        (others, 0, d),
        (gram, 0, d),
        (np.einsum("bd,bd->b", heads.drawn.q[:, 1], heads.drawn.q[:, 4]), 0, d),
    ):
        assert off_by(values, mean) < Z
        assert off_by(np.square(values - mean), variance) < Z
    assert off_by(np.square(others) * lengths[:, 0], d * (d + 2)) < Z  # (q·k)² |q|² : E |q|⁴


def test_the_test_of_draws_rejects_lengths_that_do_not_vary(seed):
    # the planted fault: chi with d_k degrees of freedom replaced by √d_k
    drawn = draw_vectors(300, 6, key_of(seed, 3, 300))
    q = drawn.q / np.linalg.norm(drawn.q, axis=-1, keepdims=True) * math.sqrt(300)
    assert off_by(np.square(np.square(q[:, 2]).sum(axis=-1) - 300), 600) > Z


def test_turned_additive_weights_give_the_same_gradients(seed):
    # n = 2 and d = 9: four coordinates; against weights and vectors drawn in all nine
    d = 9
    drawn = draw_vectors(d, 2, key_of(seed, 4), additive=True)
    turned = row_values(align(drawn, 0.5, "one"), make_scoring("additive", d), ["query_gradient", "trace"])
    plain = []
    for i in range(1500):
        rng = stream(child_seed(seed, 52), i)
        weights = draw_additive_weights(d, 32, rng=rng)
        q, e = rng.standard_normal((2, 2, d))
        k = np.vstack([0.5 * q[0] + math.sqrt(0.75) * e[0], e[1]])
        scoring = Scoring("additive", weights=weights)
        gradient = np.square(weights_gradient(q[:1], k, scoring)).sum()
        plain.append((gradient, jacobian_sizes(logits(q[:1], k, scoring)[0]).trace))
    for mine, theirs in zip(
        (turned["query_gradient"][:, 0] ** 2, turned["trace"][:, 0]), np.transpose(plain), strict=True
    ):
        error = math.hypot(*(np.std(v, ddof=1) / math.sqrt(len(v)) for v in (mine, theirs)))
        assert abs(mine.mean() - theirs.mean()) < Z * error
    assert turned["query_gradient"].shape == (heads_of_chunk(2), queries_of(2))


# --- measured beside exact ----------------------------------------------------------------------


@cache
def run(seed, aligned):
    return compare_scorings(
        EVERY, [4, 64], 8, (0.0, 0.5, -0.2), aligned=aligned, n_rows=4096, rng=child_seed(seed, 53), workers=2
    )


@pytest.mark.parametrize("aligned", ["one", "all"])
def test_measured_values_agree_with_exact_ones(seed, aligned):
    result = run(seed, aligned)
    scores = z_scores(result)
    assert len(scores) > 300
    assert scores.max() < Z


def test_what_is_known_exactly(seed):
    linear = ("dot", "scaled_dot", "mup", "mup_base", "free_scale", "log_n", "ssmax", "sqrt_2_log_n", "t5")
    known = {(r.scoring, r.correlation, r.quantity) for r in run(seed, "one").records if r.exact is not None}
    for name in EVERY:
        assert {(name, 0.0, q) for q in ("logit_mean", "logit_std", "aligned_weight")} <= known
        assert ((name, 0.0, "trace") in known) == (name not in ("additive", "key_lengths"))
        assert ((name, 0.0, "query_gradient") in known) == (name in linear)
        assert ((name, 0.5, "aligned_weight") in known) == (name in linear)
        assert ((name, 0.5, "trace") in known) == (name in linear)
        assert (name, 0.5, "entropy") not in known


def test_the_comparison_rejects_a_wrong_scale(seed):
    # the planted fault: 224 taken for d_k = 256, standard deviation 7 % too large
    wrong = compare_scorings(
        {"wrong": lambda *_: make_scoring("free_scale", 256)}, [256], 8, 0.0, rng=child_seed(seed, 54)
    )
    right = make_scoring("scaled_dot", 256)
    for quantity, statistic in (("logit_std", "rms"), ("trace", "mean"), ("query_gradient", "rms")):
        [record] = wrong.select(quantity=quantity, statistic=statistic)
        expected = exact_comparison(right, 256, 8, 0.0, "one", quantity, statistic)
        assert abs(record.estimate - expected) > Z * record.standard_error, quantity


def test_the_comparison_rejects_the_wrong_alignment(seed):
    # the planted fault: the aligned key taken for an independent one
    [record] = compare_scorings(["scaled_dot"], [64], 16, 0.3, quantities=["aligned_weight"], rng=seed).records
    assert abs(record.estimate - 1 / 16) > Z * record.standard_error


LADDER = (16, 64, 256, 1024)
ALIGNED_WEIGHTS = {
    "√d": (lambda d, _: make_scoring("scaled_dot", d), (0.28, 0.66, 0.986, 1.0)),
    "8/d": (lambda d, _: make_scoring("mup", d, multiplier=8), (0.45, 0.66, 0.75, 0.78)),
    "1/d": (lambda d, _: make_scoring("mup", d), (0.10, 0.10, 0.10, 0.10)),
}


@pytest.mark.parametrize("label", ALIGNED_WEIGHTS)
def test_one_aligned_key_among_sixteen(seed, label):
    rule, weights = ALIGNED_WEIGHTS[label]
    result = compare_scorings({label: rule}, LADDER, 16, 0.5, quantities=["aligned_weight"], rng=child_seed(seed, 55))
    assert [r.exact for r in result.records] == pytest.approx(weights, abs=0.006)
    assert z_scores(result).max() < Z
    assert max(r.standard_error for r in result.records) < 0.01


def test_each_scale_is_right_for_its_own_case(seed):
    measured = {
        rho: compare_scorings(
            ["scaled_dot", "mup"], [64, 1024], 16, rho, quantities=["logit_std", "aligned_logit"], rng=seed
        )
        for rho in (0.0, 0.5)
    }

    def value(rho, scoring, d, quantity):
        return measured[rho].select(scoring=scoring, d_k=d, quantity=quantity)[0].estimate

    for d in (64, 1024):
        assert value(0.0, "scaled_dot", d, "logit_std") == pytest.approx(1, abs=0.05)
        assert value(0.0, "mup", d, "logit_std") == pytest.approx(d**-0.5, rel=0.05)
        assert value(0.5, "scaled_dot", d, "aligned_logit") == pytest.approx(0.5 * math.sqrt(d), rel=0.05)
        assert value(0.5, "mup", d, "aligned_logit") == pytest.approx(0.5, rel=0.05)


def test_t5_has_the_rows_of_sqrt_d_and_a_larger_gradient(seed):
    for quantity in ROW_QUANTITIES:
        for plain, t5 in zip(
            *(run(seed, "one").select(scoring=s, quantity=quantity, d_k=64) for s in ("scaled_dot", "t5")), strict=True
        ):
            factor = 8 if quantity == "query_gradient" else 1
            assert t5.estimate == pytest.approx(factor * plain.estimate, rel=1e-12)
            assert t5.exact == (plain.exact if plain.exact is None else pytest.approx(factor * plain.exact))


def test_standard_errors_are_those_of_repeats(seed):
    values = {"one": [], "all": []}
    for aligned, found in values.items():
        for i in range(60):
            [record] = compare_scorings(
                ["scaled_dot"],
                [16],
                8,
                0.5,
                aligned=aligned,
                quantities=["trace"],
                n_rows=512,
                rng=child_seed(seed, 56, i),
            ).records
            found.append((record.estimate, record.standard_error))
        estimates, errors = np.transpose(found)
        assert errors.mean() == pytest.approx(estimates.std(ddof=1), rel=0.5)  # 5 standard deviations


def test_rows_of_a_head_are_not_counted_as_independent(seed):
    # with all keys aligned, one head's keys serve eight rows: naive errors are too small
    drawn = draw_vectors(2, 8, key_of(seed, 5))
    rows = row_values(align(drawn, 0.0, "all"), make_scoring("dot", 2), ["trace"])["trace"]
    naive = rows.std(ddof=1) / math.sqrt(rows.size)
    assert row_estimate(rows, "mean", 0.95).standard_error > 1.2 * naive


# --- the same draws for all ---------------------------------------------------------------------


def test_result_depends_on_the_seed_alone():
    arguments = (["scaled_dot", "additive"], [8, 3], [4, 40], (0.0, 0.5))
    one = compare_scorings(*arguments, n_rows=3000, rng=5, workers=1)
    assert compare_scorings(*arguments, n_rows=3000, rng=5, workers=3) == one
    assert compare_scorings(*arguments, n_rows=3000, rng=6).records != one.records
    alone = compare_scorings(["scaled_dot"], [3], 40, 0.5, n_rows=3000, rng=5)
    assert list(alone.records) == one.select(scoring="scaled_dot", d_k=3, n_keys=40, correlation=0.5)
    parts = [compare_scorings(arguments[0], [d], *arguments[2:], n_rows=3000, rng=5) for d in (8, 3)]
    assert joined(parts) == one
    assert compare_scorings(["mup"], [4], 4, n_rows=32).seed != compare_scorings(["mup"], [4], 4, n_rows=32).seed


def test_huge_d_k_costs_no_more():
    result = compare_scorings(EVERY, [1_000_000], 4, 0.3, n_rows=512, rng=0)
    assert all(math.isfinite(r.estimate) for r in result.records)
    assert result.select(scoring="scaled_dot", quantity="aligned_logit")[0].exact == pytest.approx(300)


def test_progress_counts_to_the_end():
    seen = []
    compare_scorings(["dot"], [4, 8], [4, 8], n_rows=40_000, rng=0, progress=lambda *done: seen.append(done))
    total = seen[0][1]
    assert seen == [(i, total) for i in range(1, total + 1)]
    assert total > 4


def test_a_scoring_of_scale_zero_is_uniform():
    result = compare_scorings({"none": lambda *_: Scoring().times("off", 0)}, [4], 8, (0.0, 0.5), rng=0)
    for quantity, value in (
        ("trace", 7 / 8),
        ("entropy", math.log(8)),
        ("aligned_weight", 1 / 8),
        ("query_gradient", 0),
    ):
        for record in result.select(quantity=quantity):
            assert record.estimate == pytest.approx(value, abs=1e-12)
    assert result.select(quantity="query_gradient", statistic="rms")[0].exact == 0


# --- results -----------------------------------------------------------------------------------


def test_json_round_trip_and_tidy_frame(seed):
    result = run(seed, "one")
    assert ComparisonResult.from_json(result.to_json()) == result
    frame = result.to_frame()
    assert len(frame) == len(result.records) == len(EVERY) * 2 * 3 * (len(ROW_QUANTITIES) + 1)
    assert {
        "scoring",
        "d_k",
        "n_keys",
        "correlation",
        "quantity",
        "estimate",
        "standard_error",
        "low",
        "high",
        "exact",
    } <= set(frame)
    assert (frame["low"] <= frame["estimate"]).all()
    assert (frame["estimate"] <= frame["high"]).all()
    assert frame["low"].min() < 0  # mean logits have a sign
    assert set(frame["n_rows"]) == {4096}


def test_printed_table(seed):
    text = str(
        compare_scorings(["scaled_dot", "cosine"], [64], 16, (0.0, 0.5), rng=seed, quantities=["trace", "logit_mean"])
    )
    assert f"seed {seed};" in text
    assert "d_k = 64, 16 keys, correlation 0.5, 2,048 rows" in text
    assert "[0.86757]" in text
    assert text.count("cosine") == 2
    assert "mean trace" in text


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scorings": ["softmax"]}, r"`scorings` must be one of .*received 'softmax'"),
        ({"scorings": []}, r"`scorings` must hold 1 to 1,000 different values; received \[\]"),
        ({"scorings": "mup"}, r"`scorings` must hold 1 to 1,000 different values; received 'mup'"),
        ({"scorings": {}}, r"`scorings` must hold 1 to 1,000"),
        ({"d_k": [4, 4]}, r"`d_k` must hold 1 to 1,000 different values; received \[4, 4\]"),
        ({"d_k": [0]}, r"`d_k` must be a whole number from 1 to 1,000,000; received 0"),
        ({"n_keys": 1}, r"`n_keys` must be a whole number from 2 to 2,048; received 1"),
        ({"n_keys": [4, 2.5]}, r"`n_keys` must be a whole number"),
        ({"correlation": 1.5}, r"`correlation` must be a number from -1 to 1; received 1.5"),
        ({"correlation": math.nan}, r"`correlation` must be a number from -1 to 1; received nan"),
        ({"aligned": "none"}, r"`aligned` must be one of one, all; received 'none'"),
        ({"quantities": ["loss"]}, r"`quantities` must be one of .*received 'loss'"),
        ({"n_rows": 10}, r"`n_rows` must be a whole number from 32"),
        ({"confidence": 2}, r"`confidence` must be a number from 0.5"),
        ({"rng": -1}, r"`rng` must be a whole number"),
        (
            {"scorings": {"mine": lambda d, _: Scoring("additive", weights=draw_additive_weights(d, 4, rng=0))}},
            r"`scorings` must leave additive weights to be drawn; received weights in 'mine'",
        ),
    ],
)
def test_refusals_name_argument_rule_and_value(arguments, message):
    with pytest.raises(ValueError, match=message):
        compare_scorings(**{"scorings": ["scaled_dot"], "d_k": [4], "n_keys": 4, **arguments})
