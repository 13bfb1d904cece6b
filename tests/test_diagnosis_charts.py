"""Charts and sentences of diagnosed heads: numbers in words, signs of parts, weights that sum to 1, no NaN."""

import json
import math
import re

import numpy as np
import pytest

pytest.importorskip("altair")

from simulation.diagnosis import Diagnosis
from simulation.diagnosis_charts import (
    PARTS,
    attention_chart,
    attention_frame,
    decomposition_chart,
    law_frame,
    logit_chart,
    part_frame,
)
from simulation.diagnosis_map import OVERVIEW, WRAP, cells, overview_chart, overview_frame
from simulation.diagnosis_overview import overview_sentences
from simulation.head_logits import logit_histogram, query_weights
from simulation.heads import Visible
from simulation.measured import diagnose


@pytest.fixture(scope="module")
def result() -> Diagnosis:
    """Heads (2, 3): one constant, one with a mean of the keys, one of large entries."""
    q, k = np.random.default_rng(3).standard_normal((2, 2, 3, 24, 16))
    k[0, 1] += 1
    q[1, 2] *= 12
    q[1, 0] = 1.0
    k[1, 0] = 2.0
    return diagnose(q, k)


def whole(chart) -> dict:
    """The chart as JSON and back, with its words."""
    text = json.dumps(chart.to_dict(), allow_nan=False)
    spec = json.loads(text)
    assert len(spec["description"]) > 40
    assert "currentColor" in text or "scale" in text
    return spec


@pytest.mark.parametrize("quantity", OVERVIEW)
def test_the_map_holds_every_head_and_tells_the_extremes(result: Diagnosis, quantity: str) -> None:
    spec = whole(overview_chart(result, quantity, chosen="0, 1", axes=("layer", "head"), select="clicked"))
    assert "6 heads" in spec["description"]
    frame = overview_frame(result, quantity)
    assert list(frame["head"]) == ["0, 0", "0, 1", "0, 2", "1, 0", "1, 1", "1, 2"]
    assert np.isfinite(frame["shade"]).all()
    if quantity == "variance":
        assert "to 1" in spec["description"]
        assert "in head 1, 2" in spec["description"]
        assert frame["text"][3] == "0"  # a head whose logits are all one number
        assert frame["dark"][5]
    assert spec["layer"][0]["encoding"]["x"]["title"] == "head"
    assert spec["layer"][0]["encoding"]["y"]["title"] == "layer"


def test_many_heads_on_one_axis_are_wrapped_and_large_maps_are_not_written_into() -> None:
    q = np.random.default_rng(0).standard_normal((WRAP + 4, 5, 3))
    places = cells(diagnose(q, q))
    assert places[WRAP - 1][:2] == ("0–15", "+15")
    assert places[WRAP + 2] == ("16–19", "+2", "18")
    wide = diagnose(np.random.default_rng(0).standard_normal((2, WRAP + 1, 4, 3)), np.ones((2, WRAP + 1, 4, 3)))
    kinds = [layer["mark"]["type"] for layer in whole(overview_chart(wide, "variance"))["layer"]]
    assert "text" not in kinds
    single = diagnose(q[0], q[0])
    assert cells(single) == [("", "0", "-")]
    whole(overview_chart(single, "entropy"))


def test_parts_stack_to_the_variance_those_below_zero_to_the_left(result: Diagnosis) -> None:
    for head in result.heads:
        frame = part_frame([head], share=False)
        sizes = frame["end"] - frame["start"]
        assert sizes.sum() * head.d_k == pytest.approx(head.variance, abs=1e-9)
        assert (frame.loc[sizes < 0, "end"] <= 0).all()
        assert (frame.loc[sizes >= 0, "start"] >= 0).all()
    shares = part_frame(result.heads, share=True)
    totals = (shares["end"] - shares["start"]).groupby(shares["head"]).sum()
    assert totals.drop("1, 0").to_numpy() == pytest.approx(100)
    assert totals["1, 0"] == pytest.approx(0)


def test_bars_tell_every_part_of_every_head(result: Diagnosis) -> None:
    spec = whole(decomposition_chart(result.heads, share=True))
    for name, *_ in PARTS.values():
        assert spec["description"].count(name) == len(result.heads)
    alone = whole(decomposition_chart([result.head(0, 1)]))
    key_mean = result.head(0, 1).parts.key_mean / 16
    assert f"key mean {key_mean:.3g}" in alone["description"]
    written = part_frame([result.head(0, 1)], share=False)["written"]
    assert any(text.startswith("key mean") and text.endswith(" %") for text in written)


def contrast(first: str, second: str) -> float:
    def luminance(colour: str) -> float:
        named = {"white": "#ffffff", "black": "#000000"}
        code = named.get(colour, colour)
        channels = [int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    low, high = sorted([luminance(first), luminance(second)])
    return (high + 0.05) / (low + 0.05)


def test_what_is_written_into_a_bar_can_be_read() -> None:
    for _, _, colour, ink in PARTS.values():
        assert contrast(colour, ink) >= 4.5


def test_the_histogram_counts_every_logit_and_draws_the_footnotes_law() -> None:
    rng = np.random.default_rng(3)
    q, k = rng.standard_normal((2, 200, 16))
    head = diagnose(q, k).heads[0]
    histogram = logit_histogram(q, k, head)
    assert histogram.n == 200 * 200
    assert histogram.underflow + histogram.overflow <= 5
    logits = (q @ k.T).ravel()
    inside = np.histogram(logits, histogram.edges)[0]
    assert np.abs(inside - histogram.counts).sum() <= 2  # a sum in another order may cross an edge
    spec = whole(logit_chart(head, histogram))
    assert "the footnote implies mean 0 and variance 16" in spec["description"]
    law = law_frame(head, histogram)
    area = float(((law["density"][1:].to_numpy() + law["density"][:-1].to_numpy()) / 2 * np.diff(law["low"])).sum())
    assert area == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 7, 2), (5, 1, 3), (2, 2, 1)])
def test_small_and_constant_heads_have_charts(shape: tuple[int, int, int]) -> None:
    m, n, d = shape
    rng = np.random.default_rng(1)
    for q, k in (
        (rng.standard_normal((m, d)), rng.standard_normal((n, d))),
        (np.ones((m, d)), np.full((n, d), 3.0)),
        (np.zeros((m, d)), np.zeros((n, d))),
        (np.full((m, d), 1e20), np.full((n, d), -1e20)),
    ):
        result = diagnose(q, k)
        head = result.heads[0]
        histogram = logit_histogram(q, k, head)
        assert histogram.n == histogram.counts.sum() == m * n
        whole(logit_chart(head, histogram))
        whole(decomposition_chart([head], share=True))
        whole(decomposition_chart([head]))
        assert all(overview_sentences(result, "it"))
        weights = query_weights(q, k, Visible(m, n), 0, [1.0, result.scale])
        whole(attention_chart(weights, [str(i) for i in range(n)], query="the only one there is"))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_weights_are_those_of_softmax_and_sum_to_one(causal: bool) -> None:
    q, k = np.random.default_rng(0).standard_normal((2, 30, 8))
    weights = query_weights(q, k, Visible(30, 30, causal=causal), 12, [1.0, 0.3])
    seen = 13 if causal else 30
    logits = k[:seen] @ q[12]
    for row, scale in zip(weights, (1.0, 0.3), strict=True):
        expected = np.exp(scale * logits - (scale * logits).max())
        np.testing.assert_allclose(row[:seen], expected / expected.sum(), rtol=1e-12)
        assert (row[seen:] == 0).all()
    frame = attention_frame(weights, [f"token {i}" for i in range(30)], 7)
    assert len(frame) == 16
    assert frame.groupby("stage")["weight"].sum().to_numpy() == pytest.approx(1)
    assert frame["key"].iloc[-1] == "the other 23"
    assert frame["key"].iloc[0] == f"token {weights[1].argmax()}"
    spec = whole(attention_chart(weights, [f"token {i}" for i in range(30)], query="token 12"))
    assert "token 12" in spec["description"]
    assert "before scaling" in spec["description"]


def test_a_query_that_sees_nothing_has_no_weights() -> None:
    blind = Visible(2, 3, np.array([[False] * 3, [True] * 3]))
    assert np.isnan(query_weights(np.eye(2), np.ones((3, 2)), blind, 0, [1.0])).all()


# --- sentences over all heads -----------------------------------------------------------------


def test_sentences_count_heads_and_name_the_range(result: Diagnosis) -> None:
    first, second = overview_sentences(result, "this model")
    ratio = [head.variance_over_d_k for head in result.heads]
    assert first.startswith(
        f"In this model the variance of q·k ranges from 0 to {max(ratio):.3g} times d_k over 6 heads"
    )
    near = sum(0.5 <= math.sqrt(head.softmax.sqrt_d_k.row_variance) <= 2 for head in result.heads)
    assert near == 4
    assert f"In {near} of 6 heads √d_k" in first
    assert "ranges from" in second
    assert re.search(r"the footnote's own term \(\d heads\)", second)


def test_one_head_gets_one_sentence_with_its_error() -> None:
    q, k = np.random.default_rng(0).standard_normal((2, 40, 8))
    (sentence,) = overview_sentences(diagnose(q, k), "q.npy")
    assert re.search(r"is \d\.\d+ ± 0\.\d+ times d_k, where the footnote expects 1", sentence)


def test_the_shipped_example_is_told_as_it_is() -> None:
    from simulation import load_example

    example = load_example()
    first, second = overview_sentences(diagnose(example["q"], example["k"]), "all-MiniLM-L6-v2")
    logits = example["q"] @ example["k"].swapaxes(-1, -2)
    ratio = logits.var(axis=(-2, -1)) / 32
    assert f"ranges from {ratio.min():.3g} to {ratio.max():.3g} times d_k over 72 heads" in first
    spread = np.sqrt(logits.var(axis=-1).mean(axis=-1) / 32)
    assert f"In {((spread >= 0.5) & (spread <= 2)).sum()} of 72 heads" in first
    mean = logits.mean(axis=(-2, -1))
    assert f"from {mean.min():.3g} to {mean.max():.3g}" in second
