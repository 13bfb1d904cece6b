"""Confirmed, refuted or inconclusive: the edges, the error rates, and the samples that decide."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation import QueryKeyModel, dot_products
from simulation.statistics import Estimate, normal_quantile
from simulation.verdicts import DEFAULT_TOLERANCE, Rule, judge

finite = st.floats(-10, 10)


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((9.0, 11.0), "confirmed"),  # the edges belong to the tolerance
        ((9.5, 9.5), "confirmed"),
        ((9.0, 11.0 + 1e-12), "inconclusive"),
        ((9.0 - 1e-12, 11.0), "inconclusive"),
        ((11.0, 12.0), "inconclusive"),
        ((11.0 + 1e-12, 12.0), "refuted"),
        ((8.0, 9.0), "inconclusive"),
        ((8.0, 9.0 - 1e-12), "refuted"),
        ((0.0, 100.0), "inconclusive"),
        (None, "inconclusive"),
    ],
)
def test_verdicts_at_the_edges(interval, verdict):
    assert judge(interval, 10, 1) == verdict


@given(finite, finite, finite, st.floats(0.01, 5))
def test_a_verdict_follows_from_where_the_interval_lies(a, b, expected, tolerance):
    low, high = sorted((a, b))
    verdict = judge((low, high), expected, tolerance)
    inside = [expected - tolerance <= end <= expected + tolerance for end in (low, high)]
    if verdict == "confirmed":
        assert all(inside)
    if verdict == "refuted":
        assert not any(inside)
        assert (low > expected) == (high > expected)
    assert judge((-high, -low), -expected, tolerance) == verdict


def held(estimate, error, *, exact=1.0, n=1000, tolerance=0.1):
    rule = Rule(tolerance, 0.95, 4, n)
    interval = (estimate - rule.z * error, estimate + rule.z * error)
    return rule.hold("Var", "the variance is 1", 1.0, 1.0, Estimate(estimate, error, interval, exact))


def test_a_claim_carries_what_it_was_judged_by():
    claim = held(1.02, 0.01)
    assert (claim.verdict, claim.expected, claim.tolerance, claim.samples_to_decide) == ("confirmed", 1, 0.1, None)
    assert "confirmed" in claim.sentence
    assert "the variance is 1" in claim.sentence
    assert held(1.4, 0.01).verdict == "refuted"
    assert DEFAULT_TOLERANCE == 0.01


def test_an_inconclusive_claim_names_the_samples_that_decide():
    claim = held(1.0, 0.1)
    z = normal_quantile(0.95, claims=4) + normal_quantile(0.95)
    assert claim.verdict == "inconclusive"
    assert claim.samples_to_decide == math.ceil(1000 * (z * 0.1 / 0.1) ** 2)
    assert f"{claim.samples_to_decide:,} samples" in claim.sentence


def test_where_no_number_of_samples_decides_none_is_named():
    for claim in (held(1.1, 0.1, exact=1.1), held(1.1, 0.1, exact=1.1 + 1e-14), held(1.0, 0.1, exact=None)):
        assert claim.verdict == "inconclusive"
        assert claim.samples_to_decide is None
        assert "would decide" not in claim.sentence


def test_without_an_error_the_reason_is_said():
    rule = Rule(0.01, 0.95, 4, 1000)
    claim = rule.hold("Var", "the variance is 1", 1.0, 1.0, Estimate(0.7, None, None, 1.0, "no finite kurtosis"))
    assert (claim.verdict, claim.interval, claim.samples_to_decide) == ("inconclusive", None, None)
    assert claim.sentence.endswith("no finite kurtosis.")


@pytest.mark.parametrize("k_std", [1.0, 1.2])
def test_the_samples_named_do_decide(k_std, seed):
    # 150 fresh runs of the number named. They decide with probability 0.95 where the claim is true, 0.975
    # where it is false; fewer than 131 of 150 do so once in 10^4 seeds.
    model = QueryKeyModel(8, k_std=k_std)
    right = "confirmed" if k_std == 1 else "refuted"

    def claims(n, count):
        return [dot_products(model, n, rng=1000 * seed + i, tolerance=0.15).claims[3] for i in range(count)]

    n = next(claim.samples_to_decide for claim in claims(100, 50) if claim.verdict == "inconclusive")
    assert sum(claim.verdict == right for claim in claims(n, 150)) >= 131
    assert sum(claim.verdict == right for claim in claims(n // 4, 60)) < 43  # a quarter of them would not do


def test_a_true_claim_is_rarely_refuted_and_a_false_one_rarely_confirmed(seed):
    # the exact value on the very edge of the tolerance is the worst case for both: each of 4,000 joint
    # intervals errs with probability at most 0.05/4 on its side; bound of 5 standard errors on 50
    rng, rule = np.random.default_rng(seed), Rule(0.1, 0.95, 4, 1000)
    estimates = 1.1 + 0.01 * rng.standard_normal(4000)
    verdicts = [held(x, 0.01, exact=1.1).verdict for x in estimates]
    assert rule.z == pytest.approx(2.4977, abs=1e-4)
    assert verdicts.count("refuted") < 50 + 5 * math.sqrt(50)
    assert verdicts.count("confirmed") < 50 + 5 * math.sqrt(50)
