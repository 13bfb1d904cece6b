"""Scales put together by a reader: the one number in force, known mistakes; published settings."""

import math

import pytest

from simulation.composition import EXTRAS, Composition, bound_words, mistakes, own_number
from simulation.methods import METHODS, make_scoring
from simulation.published import PUBLISHED, placements


@pytest.mark.parametrize("name", METHODS)
def test_a_way_alone_is_the_way(name):
    assert Composition(name)(64, 128) == make_scoring(name, 64, n_keys=128)
    option = own_number(name)
    if option:
        published = METHODS[name].options[option]
        assert Composition(name, published)(64, 128) == Composition(name)(64, 128)
        assert Composition(name, 2 * published)(64, 128) != Composition(name)(64, 128)


@pytest.mark.parametrize(
    ("composition", "scale", "factors"),
    [
        (Composition("t5", extra="1/sqrt(d_k)"), 1 / 64, ["1/√d_k", "1/√d_k"]),
        (Composition("scaled_dot", extra="1/sqrt(d_k)"), 1 / 64, ["1/√d_k", "1/√d_k"]),
        (Composition("dot", extra="1/sqrt(d_model)"), 512**-0.5, ["1/√d_model"]),
        (Composition("mup", extra="sqrt(d_k)"), 1 / 8, ["1/d_k", "m", "√d_k"]),
        (Composition("dot", extra="own number", factor=0.3), 0.3, ["own number"]),
        (Composition("cosine", 10, cap=3), 10, ["g"]),
    ],
)
def test_the_scale_in_force_and_its_factors(composition, scale, factors):
    scoring = composition(64, 128)
    assert scoring.effective_scale == pytest.approx(scale)
    assert [factor.name for factor in scoring.factors] == factors
    assert scoring.cap == (3 if composition.cap else math.inf)


@pytest.mark.parametrize("d_k", [16, 64, 256])
def test_scaled_twice_is_told(d_k):
    for way, inside in (("t5", True), ("scaled_dot", False), ("qk_rmsnorm", False)):
        [told] = mistakes(Composition(way, extra="1/sqrt(d_k)")(d_k, 16), d_k)
        assert "Scaled twice" in told
        assert f"1/d_k = {1 / d_k:.4g};" in told
        assert f"std {d_k**-0.5:.4g}," in told
        assert ("inside W_q" in told) == inside


def test_other_mistakes_and_none():
    [told] = mistakes(Composition("dot", extra="1/sqrt(d_model)")(64, 16), 64)
    assert "1/heads = 0.125" in told
    assert "flattens" in told
    for name in METHODS:
        assert mistakes(Composition(name)(64, 16), 64) == []


def test_what_bounds_mean():
    assert bound_words(Composition("cosine", 3)(64, 16), 64, 16).endswith("16 keys exceeds 0.9642.")
    assert "within ±8, so no weight among 16 keys exceeds 1 − 2e-06" in bound_words(
        Composition("cosine")(64, 16), 64, 16
    )
    assert "1 − 1e-16" in bound_words(Composition("dot", cap=50)(64, 16), 64, 16)
    assert bound_words(Composition("scaled_dot")(64, 16), 64, 16) == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("softmax",), r"`way` must be one of dot"),
        (("dot", None, "twice"), r"`extra` must be one of nothing.*received 'twice'"),
        (("dot", None, "nothing", -1), r"`factor` must be a number from 0"),
        (("dot", None, "nothing", 1, -1), r"`cap` must be a number from 0"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        Composition(*arguments)
    assert "nothing" in EXTRAS


def test_a_number_that_the_way_refuses_is_named():
    with pytest.raises(ValueError, match=r"`trained_keys` must be a number above 1"):
        Composition("log_n", 0.5)(64, 16)


def test_published_settings_lie_where_theory_puts_them():
    stds = {place.published.name: place.std for place in placements()}
    expected = {
        "224 for 256, cap 50": math.sqrt(256 / 224),
        "144 for 128, cap 50": math.sqrt(128 / 144),
        "cosine 8": 8 / 8,
        "cosine 10": 10 / 8,
        "scalable softmax 0.43": 0.43 * math.log(1024),
        "96 padded to 128": math.sqrt(96 / 128),
    }
    assert set(stds) == set(expected)
    for name, std in expected.items():
        assert stds[name] == pytest.approx(std, rel=1e-3), name
    for place in placements():
        assert place.freezing_std == pytest.approx(math.sqrt(2 * math.log(place.published.n_keys)))
        assert (place.std < place.freezing_std) == (place.share > 0.8)
    assert all("https://" in setting.source or "arXiv:" in setting.source for setting in PUBLISHED)
