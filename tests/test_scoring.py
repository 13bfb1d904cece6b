"""Scorings: formulas, the scale in force, what equals what, what wrong scales look like, gradients, refusals.

Statistical tests compare with a tolerance of Z standard errors of their own run (from independent blocks): a
right program fails one comparison in 290 000, and there are about 20. TEST_SEED repeats them with other numbers.
"""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation import additive
from simulation.additive import AdditiveWeights, draw_additive_weights
from simulation.methods import METHODS, make_scoring
from simulation.sampling import child_seed, stream
from simulation.scoring import Factor, Scoring, logits, logits_vjp, paired_dot, scale_factor, weights_gradient
from simulation.softmax import softmax, softmax_jacobian

Z = 4.65  # two-sided normal tail 3.3e-6
EVERY = sorted(METHODS)
WRONG = Scoring().times("1/√d_model", 512**-0.5)  # the model's width for the head's


def made(name, d_k=6, n_keys=5, **options):
    """A scoring of the table, with additive weights where they are needed."""
    scoring = make_scoring(name, d_k, n_keys=n_keys, **options)
    if scoring.kind != "additive":
        return scoring
    return Scoring("additive", scoring.factors, weights=draw_additive_weights(d_k, 7, rng=3))


def block_variances(seed, scoring, d_k, *, blocks=400, m=8, n=8, width=None, std=1.0, key=0):
    """Mean square of the logits in independent blocks of normal q and k; columns past d_k are zero."""
    rng = stream(child_seed(seed, 21, key), 0)
    q, k = (std * rng.standard_normal((blocks, rows, d_k)) for rows in (m, n))
    padding = ((0, 0), (0, 0), (0, (width or d_k) - d_k))
    return np.square(logits(np.pad(q, padding), np.pad(k, padding), scoring)).mean(axis=(1, 2))


def off_by(values, expected):
    """How many standard errors the mean of independent values is away from what is expected."""
    return abs(values.mean() - expected) / (values.std(ddof=1) / math.sqrt(values.size))


# --- formulas ----------------------------------------------------------------------------------


def by_the_formula(name, q, k, n, scoring):
    """One logit after another, written as in the papers."""
    d = len(q)
    dot = sum(a * b for a, b in zip(q, k[0], strict=True))
    length = math.sqrt(sum(a * a for a in q)), math.sqrt(sum(b * b for b in k[0]))
    rms = [math.sqrt(x * x / d + 1e-6) for x in length]
    if name == "additive":
        w = scoring.weights
        return sum(v * math.tanh(a @ q + b @ k[0]) for a, b, v in zip(w.w_q, w.w_k, w.v, strict=True))
    return {
        "dot": dot,
        "scaled_dot": dot / math.sqrt(d),
        "mup": dot / d,
        "mup_base": dot / math.sqrt(64) / (d / 64),
        "free_scale": dot / math.sqrt(224),
        "cosine": 8 * dot / length[0] / length[1],
        "qk_rmsnorm": dot / rms[0] / rms[1] / math.sqrt(d),
        "soft_cap": 50 * math.tanh(dot / math.sqrt(d) / 50),
        "log_n": math.log(n, 512) * dot / math.sqrt(d),
        "ssmax": 0.43 * math.log(n) * dot / math.sqrt(d),
        "sqrt_2_log_n": math.sqrt(2 * math.log(n)) * dot / math.sqrt(d),
        "t5": dot / math.sqrt(d),
        "key_lengths": dot / sum(math.sqrt(sum(b * b for b in key)) for key in k),
    }[name]


@pytest.mark.parametrize("name", EVERY)
def test_every_method_follows_its_formula(name, seed):
    rng = stream(child_seed(seed, 1), 0)
    q, k = rng.standard_normal((2, 3, 6)), rng.standard_normal((2, 5, 6))
    scoring = made(name)
    found = logits(q, k, scoring)
    assert found.shape == (2, 3, 5)
    for b in range(2):
        for i in range(3):
            for j in range(5):
                keys = np.vstack([k[b, j : j + 1], np.delete(k[b], j, axis=0)])
                expected = by_the_formula(name, q[b, i], keys, 5, scoring)
                assert found[b, i, j] == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("name", EVERY)
def test_the_table_is_complete(name):
    method = METHODS[name]
    for text in (method.title, method.latex, method.formula, method.right_when, method.source):
        assert text
        assert text == text.strip()
        assert "\n" not in text
    assert method.latex.count("{") == method.latex.count("}")
    assert "arXiv:" in method.source or "https://" in method.source
    scoring = make_scoring(name, 64, n_keys=128)
    shown = str(scoring)
    assert f"= {scoring.effective_scale:.6g} " in shown
    assert all(f"{factor.name}" in shown and f"{factor.value:.6g}" in shown for factor in scoring.factors)
    assert hash(scoring) == hash(make_scoring(name, 64, n_keys=128))


# --- the scale in force ------------------------------------------------------------------------


def test_scale_none_and_no_scale_are_told_apart():
    assert str(make_scoring("scaled_dot", 64)) == "q·k × 1/√d_k 0.125 = 0.125 q·k"
    assert str(make_scoring("dot", 64)) == "q·k × no factor = 1 q·k"
    assert scale_factor("scaled_dot", 64) == make_scoring("scaled_dot", 64).effective_scale == 0.125
    assert scale_factor("dot", 64) == make_scoring("dot", 64).effective_scale == 1


def test_side_by_side_at_64():
    scales = [make_scoring(name, 64).effective_scale for name in ("dot", "scaled_dot", "mup")]
    assert [64 * scale**2 for scale in scales] == [64, 1, 1 / 64]


@pytest.mark.parametrize(("d_k", "scale"), [(64, 0.125), (128, 0.0625), (256, 0.03125)])
def test_mup_from_a_base_width(d_k, scale):
    scoring = make_scoring("mup_base", d_k, base=64)
    assert scoring.effective_scale == pytest.approx(1 / math.sqrt(64) / (d_k / 64), rel=1e-15)
    assert scoring.effective_scale == pytest.approx(scale, rel=1e-15)
    assert d_k * scoring.effective_scale**2 == pytest.approx(64 / d_k)  # variance of independent q and k
    assert d_k * scoring.effective_scale == pytest.approx(8)  # mean logit of k = q


def test_mup_multiplier():
    assert make_scoring("mup", 256, multiplier=16).effective_scale == scale_factor("scaled_dot", 256)
    assert make_scoring("mup", 64, multiplier=8).effective_scale == scale_factor("scaled_dot", 64)
    assert [f.name for f in make_scoring("mup", 64).factors] == ["1/d_k", "m"]


@pytest.mark.parametrize(("d_k", "divisor", "variance"), [(256, 224, 1.142857), (128, 144, 0.888889), (256, 256, 1)])
def test_a_divisor_of_its_own(d_k, divisor, variance):
    scoring = make_scoring("free_scale", d_k, divisor=divisor)
    assert d_k * scoring.effective_scale**2 == pytest.approx(variance, abs=5e-7)
    assert scoring.implied_d_k == pytest.approx(divisor)


def test_scaled_twice_shows_one_over_d_k():
    for scoring in (make_scoring("t5", 64), make_scoring("scaled_dot", 64)):
        twice = scoring.times("1/√d_k", 1 / 8)
        assert twice.effective_scale == 1 / 64
        assert twice.implied_d_k == 64**2
        assert len(twice.factors) == 2
    assert make_scoring("t5", 64).as_coded.effective_scale == 1
    assert make_scoring("t5", 64).times("1/√d_k", 1 / 8).as_coded.effective_scale == 1 / 8


def test_model_width_for_head_width_is_named():
    assert WRONG.implied_d_k == pytest.approx(512)
    assert 64 * WRONG.effective_scale**2 == pytest.approx(1 / 8)  # 1/heads
    assert 16 * Scoring().times("1/√d_model", 1 / 8).effective_scale ** 2 == 0.25


def test_scales_with_the_number_of_keys():
    for n, scale in ((512, 1), (65536, 16 / 9), (1, 0)):
        assert make_scoring("log_n", 1, n_keys=n).effective_scale == pytest.approx(scale)
    assert make_scoring("ssmax", 1, n_keys=100, s=0.5).effective_scale == pytest.approx(0.5 * math.log(100))
    assert make_scoring("sqrt_2_log_n", 1, n_keys=128).effective_scale == pytest.approx(3.1152, abs=1e-4)
    for name in ("log_n", "ssmax", "sqrt_2_log_n"):
        one = make_scoring(name, 4, n_keys=1)
        assert one.implied_d_k == math.inf
        assert logits(np.ones((1, 4)), np.ones((1, 4)), one) == 0
        assert softmax(logits(np.ones((1, 4)), np.ones((1, 4)), one)) == 1


def test_any_factor_may_join():
    scoring = make_scoring("cosine", 64, gain=10).times("learned", 0.5).capped(3)
    assert scoring.effective_scale == 5
    assert str(scoring) == "cos(q, k) × g 10 × learned 0.5 = 5 cos(q, k), soft-capped at 3"
    assert scoring.capped(math.inf) == make_scoring("cosine", 64, gain=10).times("learned", 0.5)


# --- what is equal, and what wrong scales look like ---------------------------------------------


@given(st.integers(0, 2**32 - 1), st.integers(1, 128))
def test_equivalent_forms_give_equal_logits(seed, d_k):
    q, k = np.random.default_rng(seed).standard_normal((2, 4, d_k))
    plain, root = make_scoring("dot", d_k), math.sqrt(d_k)
    reference = logits(q, k, make_scoring("scaled_dot", d_k))
    forms = {
        "both sides": logits(q * d_k**-0.25, k * d_k**-0.25, plain),
        "on q": logits(q / root, k, plain),
        "on k": logits(q, k / root, plain),
        "after": logits(q, k, plain) / root,
        "µP undone": logits(q, k, make_scoring("mup", d_k, multiplier=root)),
        "T5, W_q included": logits(q / root, k, make_scoring("t5", d_k).as_coded),
        "own divisor": logits(q, k, make_scoring("free_scale", d_k, divisor=d_k)),
    }
    slack = 1e-14 * np.abs(q) @ np.abs(k).T
    for form, found in forms.items():
        assert (np.abs(found - reference) <= slack).all(), form


@pytest.mark.parametrize(
    ("key", "scoring", "d_k", "options", "variance"),
    [
        (0, make_scoring("scaled_dot", 64), 64, {}, 1.0),
        (1, WRONG, 64, {}, 1 / 8),
        (2, make_scoring("scaled_dot", 64).times("again", 1 / 8), 64, {}, 1 / 64),
        (3, make_scoring("free_scale", 256, divisor=224), 256, {}, 256 / 224),
        (4, make_scoring("free_scale", 128, divisor=144), 128, {}, 128 / 144),
        (5, make_scoring("scaled_dot", 128), 96, {"width": 128}, 0.75),
        (6, make_scoring("dot", 128), 128, {"std": 0.3}, 128 * 0.0081),
        (7, make_scoring("cosine", 64, gain=8), 64, {}, 1.0),
        (8, make_scoring("cosine", 128, gain=8), 128, {"std": 5.0}, 0.5),
        (9, make_scoring("cosine", 64, gain=10), 64, {}, 1.5625),
        (10, make_scoring("cosine", 64, gain=1 / 80), 64, {}, 0.0015625**2),
        (11, make_scoring("qk_rmsnorm", 32, eps=0), 32, {"std": 40.0}, 1.0),
    ],
)
def test_signatures_in_draws(seed, key, scoring, d_k, options, variance):
    assert off_by(block_variances(seed, scoring, d_k, key=key, **options), variance) < Z


@pytest.mark.parametrize("divisor", [224, 144])
def test_the_test_of_draws_rejects_a_wrong_divisor(seed, divisor):
    # the planted fault: d_k = 256 or 128 was believed to be the divisor
    d_k = {224: 256, 144: 128}[divisor]
    values = block_variances(seed, make_scoring("free_scale", d_k, divisor=divisor), d_k, key=divisor)
    assert off_by(values, 1.0) > Z


def test_scale_after_softmax_does_nothing_for_saturation(seed):
    rng = stream(child_seed(seed, 2), 0)
    x = logits(rng.standard_normal((10, 64)), rng.standard_normal((20, 64)), make_scoring("dot", 64))
    wrong = softmax(x) / 8
    assert wrong.sum(axis=1) == pytest.approx(0.125, rel=1e-14)
    assert wrong.max(axis=1) / wrong.sum(axis=1) == pytest.approx(softmax(x).max(axis=1), rel=1e-14)


def test_over_division_flattens(seed):
    rng = stream(child_seed(seed, 3), 0)
    q, k = rng.standard_normal((2000, 1, 64)), rng.standard_normal((2000, 64, 64))
    right, wrong = (softmax(logits(q, k, s)).max(axis=-1)[:, 0] for s in (make_scoring("scaled_dot", 64), WRONG))
    for values, expected, rounding in ((right, 0.1070, 0.0005), (wrong, 0.0340, 0.0001)):
        assert abs(values.mean() - expected) < rounding + Z * values.std(ddof=1) / math.sqrt(values.size)
    assert (wrong < right).all()


# --- soft-cap ----------------------------------------------------------------------------------

SOFT_CAPS = {
    50: ([7.9324, 21.1771, 38.0797, 48.2014, 50.0], [0.9749, 0.8206, 0.4200, 0.07065, 8.2e-9]),
    30: ([7.8156, 19.1140, 27.9333, 29.9237, 30.0], [0.9321, 0.5941, 0.1330, 0.00508, 1.3e-14]),
}


@pytest.mark.parametrize("cap", SOFT_CAPS)
def test_soft_cap_values_and_slopes(cap):
    x = np.array([[8, 22.6, 50, 100, 500]]).T
    values, slopes = SOFT_CAPS[cap]
    scoring = Scoring(cap=cap)
    assert logits([[1.0]], x, scoring)[0] == pytest.approx(values, abs=5e-5)
    found = [logits_vjp([[1.0]], [[key]], scoring, [[1.0]])[0, 0] / key for key in x[:, 0]]
    assert found == pytest.approx(slopes, rel=6e-3)
    exact = 1 / np.cosh(x[:, 0] / cap) ** 2
    assert found == pytest.approx(exact.tolist(), rel=1e-12)  # to the last digits, where 1 - tanh² has none


def test_scale_first_then_cap():
    scoring = make_scoring("soft_cap", 4, cap=2)
    assert logits([[6, 0, 0, 0]], [[1, 0, 0, 0]], scoring)[0, 0] == pytest.approx(2 * math.tanh(1.5))
    assert logits([[6, 0, 0, 0]], [[1, 0, 0, 0]], scoring)[0, 0] != pytest.approx(2 * math.tanh(3) / 2)


def test_an_infinite_cap_is_the_identity(seed):
    q, k = stream(child_seed(seed, 4), 0).standard_normal((2, 3, 8))
    assert (logits(q, k, Scoring().capped(math.inf)) == logits(q, k, Scoring())).all()
    assert (logits_vjp(q, k, Scoring().capped(math.inf), np.eye(3)) == k).all()


# --- zero vectors, extreme sizes, one key ------------------------------------------------------


@pytest.mark.parametrize("name", ["cosine", "qk_rmsnorm"])
def test_zero_vectors_have_logit_zero_or_are_refused(name):
    q, k = np.array([[1.0, 2.0], [0.0, 0.0]]), np.array([[3.0, 1.0], [0.0, 0.0]])
    scoring = make_scoring(name, 2)
    found = logits(q, k, scoring)
    assert (found[1] == 0).all()
    assert (found[:, 1] == 0).all()
    assert np.isfinite(logits_vjp(q, k, scoring, np.ones((2, 2)))).all()
    strict = make_scoring(name, 2, eps=0)
    with pytest.raises(ValueError, match=r"`q` must not be 0 where its length divides.*at \(1,\)"):
        logits(q, k, strict)
    with pytest.raises(ValueError, match=r"`k` must not be 0"):
        logits(q[:1], k, strict)
    assert np.isfinite(logits(q[:1], k[:1], strict)).all()


def test_summed_key_lengths_of_zero_are_refused():
    scoring = make_scoring("key_lengths", 2)
    with pytest.raises(ValueError, match=r"`k` must not be 0"):
        logits([[1.0, 2.0]], np.zeros((3, 2)), scoring)
    assert logits([[1.0, 2.0]], [[0.0, 0.0], [0.0, 2.0]], scoring).tolist() == [[0, 2]]


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e160, 1e300])
@pytest.mark.parametrize("kind", ["cosine", "rmsnorm"])
def test_norms_neither_overflow_nor_underflow(size, kind):
    q, k = np.array([[3.0, 4.0]]), np.array([[4.0, 3.0]])
    expected = {"cosine": 0.96, "rmsnorm": 1.92}[kind]
    assert logits(size * q, k / size, Scoring(kind))[0, 0] == pytest.approx(expected, rel=1e-14)


def test_logits_beyond_float64_are_refused():
    with pytest.raises(ValueError, match="within the range of float64"):
        logits([[1e200, 1e200]], [[1e200, -1e200]], Scoring())  # inf - inf


def test_half_precision_is_computed_in_double():
    big = np.full((1, 128), 24, np.float16)
    assert logits(big, big, Scoring())[0, 0] == 73728 == paired_dot(big, big)[0]
    assert logits([[1, 0]], [[True, False]], Scoring())[0, 0] == 1


@pytest.mark.parametrize("name", EVERY)
def test_one_key_takes_all(name):
    q, k = np.ones((2, 6)), np.full((1, 6), 0.5)
    scoring = made(name, n_keys=1)
    assert (softmax(logits(q, k, scoring)) == 1).all()
    assert (weights_gradient(q, k, scoring) == 0).all()


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_cosine_sees_directions_only(seed, a, b):
    q, k = np.random.default_rng(seed).standard_normal((2, 3, 5))
    scoring = make_scoring("cosine", 5, gain=7)
    assert logits(a * q, b * k, scoring) == pytest.approx(logits(q, k, scoring), rel=1e-11, abs=1e-13)
    assert (np.abs(logits(q, k, scoring)) <= 7 * (1 + 1e-14)).all()
    assert logits(q, q, scoring).diagonal() == pytest.approx(7)
    gradient = logits_vjp(a * q, b * k, scoring, np.ones((3, 3)))
    assert (gradient * q).sum(axis=1) == pytest.approx(0, abs=1e-11 / a)  # nothing along q


# --- gradients ---------------------------------------------------------------------------------


def central_difference(function, q, h=1e-5):
    """Derivatives of function(q), an array, with respect to every entry of q: fourth order in h."""
    out = []
    for place in np.ndindex(q.shape):
        step = np.zeros_like(q)
        step[place] = h
        near, far = (function(q + r * step) - function(q - r * step) for r in (1, 2))
        out.append((8 * near - far) / (12 * h))
    return np.array(out)


@pytest.mark.parametrize("cap", [math.inf, 1.5])
@pytest.mark.parametrize("name", EVERY)
def test_gradients_against_differences(name, cap, seed):
    rng = stream(child_seed(seed, 5), 0)
    q, k, upstream = (rng.standard_normal((2, rows, cols)) for rows, cols in ((3, 6), (5, 6), (3, 5)))
    scoring = made(name).capped(cap)
    expected = central_difference(lambda x: (upstream * logits(x, k, scoring)).sum(), q).reshape(q.shape)
    assert logits_vjp(q, k, scoring, upstream) == pytest.approx(expected, rel=1e-7, abs=1e-9)
    numeric = central_difference(lambda x: softmax(logits(x, k, scoring)), q[0, :1])[:, 0, 0].T
    found = weights_gradient(q, k, scoring)
    assert found.shape == (2, 3, 5, 6)
    assert found[0, 0] == pytest.approx(numeric, rel=1e-7, abs=1e-9)


def test_differences_reject_a_missing_term(seed):
    # the planted faults: the linear formula scale · upstream @ k, where norm or soft-cap bend the logits
    rng = stream(child_seed(seed, 6), 0)
    q, k, upstream = rng.standard_normal((3, 5, 5))
    for scoring in (make_scoring("cosine", 5), make_scoring("qk_rmsnorm", 5), Scoring(cap=1.5)):
        expected = central_difference(lambda x, s=scoring: (upstream * logits(x, k, s)).sum(), q).reshape(q.shape)
        assert scoring.effective_scale * upstream @ k != pytest.approx(expected, rel=1e-2)


def test_linear_scorings_have_gradient_scale_j_k(seed):
    q, k = stream(child_seed(seed, 7), 0).standard_normal((2, 4, 9))
    for name in ("dot", "scaled_dot", "mup", "t5"):
        scoring = make_scoring(name, 9)
        jacobian = softmax_jacobian(logits(q, k, scoring))
        assert weights_gradient(q, k, scoring) == pytest.approx(scoring.effective_scale * jacobian @ k, abs=1e-15)


def test_t5_has_the_same_weights_but_a_larger_query_gradient(seed):
    q, k = stream(child_seed(seed, 8), 0).standard_normal((2, 4, 64))
    t5, plain = make_scoring("t5", 64), make_scoring("scaled_dot", 64)
    assert (logits(q, k, t5) == logits(q, k, plain)).all()
    inside = weights_gradient(q / 8, k, t5.as_coded)  # with respect to what comes out of W_q
    assert inside == pytest.approx(8 * weights_gradient(q, k, plain), abs=1e-14)


@given(st.integers(0, 2**32 - 1), st.sampled_from(EVERY))
def test_weights_gradient_sums_to_nothing(seed, name):
    q, k = np.random.default_rng(seed).standard_normal((2, 5, 6))
    assert weights_gradient(q, k, made(name)).sum(axis=-2) == pytest.approx(0, abs=1e-13)


@pytest.mark.parametrize("name", ["scaled_dot", "cosine", "additive", "key_lengths"])
def test_leading_axes_broadcast(name, seed):
    rng = stream(child_seed(seed, 9), 0)
    q, k, scoring = rng.standard_normal((4, 1, 3, 6)), rng.standard_normal((2, 5, 6)), made(name)
    whole, slopes = logits(q, k, scoring), weights_gradient(q, k, scoring)
    assert whole.shape == (4, 2, 3, 5)
    assert slopes.shape == (4, 2, 3, 5, 6)
    assert whole[3, 1] == pytest.approx(logits(q[3, 0], k[1], scoring), abs=1e-14)
    assert slopes[3, 1] == pytest.approx(weights_gradient(q[3, 0], k[1], scoring), abs=1e-14)


# --- additive ----------------------------------------------------------------------------------


def test_additive_scores_of_unprojected_sums(seed, reference):
    # v of ones: variance h E tanh² N(0, 2), so it does not shrink by itself; v ~ N(0, 1/h): 0.52 on average
    expected = float(reference["additive_attention"]["E_tanh2"]["2"])
    for key, h in enumerate((64, 512)):
        weights = AdditiveWeights(np.eye(h), np.eye(h), np.ones(h))
        values = block_variances(seed, Scoring("additive", weights=weights), h, blocks=100, m=4, n=4, key=30 + key)
        assert off_by(values, h * expected) < Z


def test_additive_scores_are_bounded(seed):
    weights = draw_additive_weights(8, 32, rng=child_seed(seed, 10))
    q, k = 1e6 * stream(child_seed(seed, 10), 1).standard_normal((2, 20, 8))
    assert (np.abs(logits(q, k, Scoring("additive", weights=weights))) <= np.abs(weights.v).sum()).all()


def test_blocks_of_hidden_units_change_nothing(seed, monkeypatch):
    rng, scoring = stream(child_seed(seed, 11), 0), made("additive")
    q, k = rng.standard_normal((2, 3, 6)), rng.standard_normal((2, 5, 6))
    whole = logits(q, k, scoring), weights_gradient(q, k, scoring)
    monkeypatch.setattr(additive, "_BLOCK", 70)
    assert logits(q, k, scoring) == pytest.approx(whole[0], rel=1e-14, abs=1e-15)
    assert weights_gradient(q, k, scoring) == pytest.approx(whole[1], rel=1e-13, abs=1e-15)


def test_additive_memory_is_bounded():
    weights = draw_additive_weights(16, 512, rng=0)
    q, k = np.ones((300, 16)), np.ones((400, 16))  # all hidden units at once: 490 MB
    tracemalloc.start()
    logits(q, k, Scoring("additive", weights=weights))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 120e6


# --- refusals ----------------------------------------------------------------------------------

ONE = np.ones((1, 4))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_scoring("softmax", 4), r"`name` must be one of .*scaled_dot.*received 'softmax'"),
        (lambda: make_scoring("dot", 0), r"`d_k` must be a whole number from 1"),
        (lambda: make_scoring("ssmax", 4), r"`n_keys` must be given for ssmax"),
        (lambda: make_scoring("ssmax", 4, n_keys=0), r"`n_keys` must be a whole number from 1"),
        (lambda: make_scoring("ssmax", 4, n_keys=4, s=-1), r"`s` must be a number above 0.*received -1"),
        (lambda: make_scoring("cosine", 4, cap=3), r"`cap` is no option of cosine, which has \['gain', 'eps'\]"),
        (lambda: make_scoring("log_n", 4, n_keys=4, trained_keys=1), r"`trained_keys` must be a number above 1"),
        (lambda: make_scoring("soft_cap", 4, cap=0), r"`cap` must be a number above 0 .*received 0"),
        (lambda: make_scoring("free_scale", 4, divisor=0), r"`divisor` must be a number above 0"),
        (lambda: Scoring(cap=-50), r"`cap` must be a number above 0 .*received -50"),
        (lambda: Scoring(cap=math.nan), r"`cap` must be a number above 0 .*received nan"),
        (lambda: Scoring(eps=-1), r"`eps` must be a number from 0 to 1"),
        (lambda: Scoring("bilinear"), r"`kind` must be one of dot, cosine"),
        (lambda: Scoring().times("mine", -0.1), r"`factor mine` must be a number from 0 .*received -0.1"),
        (lambda: Factor("mine", math.inf), r"`factor mine` must be a number"),
        (lambda: logits(ONE, np.ones((1, 5)), Scoring()), r"`q` and `k` must share d_k.*\(1, 4\) and \(1, 5\)"),
        (lambda: logits(np.ones((2, 1, 4)), np.ones((3, 1, 4)), Scoring()), r"leading axes that fit"),
        (lambda: logits(np.ones(4), ONE, Scoring()), r"`q` must be numbers with two axes or more"),
        (lambda: logits(ONE, np.ones((0, 4)), Scoring()), r"`k` must be numbers with two axes or more"),
        (lambda: logits(ONE, [["a"] * 4], Scoring()), r"`k` must be numbers"),
        (lambda: logits(ONE, [[1, 2, math.nan, 4]], Scoring()), r"`k` must be finite; received nan at \(0, 2\)"),
        (lambda: logits(ONE, ONE, Scoring("additive")), r"`scoring` must hold additive weights for d_k = 4"),
        (lambda: logits(ONE, ONE, made("additive")), r"`scoring` must hold additive weights for d_k = 4"),
        (lambda: logits_vjp(ONE, ONE, Scoring(), np.ones((1, 2))), r"`upstream` must have the shape .*\(1, 1\)"),
        (lambda: weights_gradient(np.ones((6000, 1)), np.ones((6000, 1)), Scoring()), r"at most 33,554,432"),
        (lambda: AdditiveWeights(np.ones((2, 3)), np.ones((2, 3)), np.ones(3)), r"shapes \(h, d_k\)"),
        (lambda: AdditiveWeights(np.ones((1, 1)), np.full((1, 1), np.inf), np.ones(1)), r"`w_k` must be finite"),
        (lambda: scale_factor("cosine", 4), r"`scoring` must be one of dot, scaled_dot"),
    ],
)
def test_refusals_name_argument_rule_and_value(call, message):
    with pytest.raises(ValueError, match=message):
        call()
