"""Charts and tables of scorings: their data, their words, and that they survive as JSON."""

import json
import math

import pytest

from simulation import compare_scorings
from simulation.best_scale import gradient_sizes, typical_best_std
from simulation.comparison_charts import AXES, QUANTITY_WORDS, best_scale_chart, comparison_chart, comparison_frame
from simulation.comparison_tables import (
    best_scales,
    best_scales_table,
    initialisations_table,
    placements_table,
    ways_table,
)
from simulation.composition import Composition
from simulation.decay_charts import phase_chart
from simulation.initialisations import INITIALISATIONS, draw_initialisation
from simulation.methods import METHODS
from simulation.published import placements
from simulation.scored_rows import ROW_QUANTITIES

WAYS = ["scaled_dot", "mup", "cosine"]


@pytest.fixture(scope="module")
def result():
    return compare_scorings(WAYS, [4, 64], [4, 16], (0.0, 0.5), n_rows=256, rng=0)


def spec_of(chart):
    """A chart as plain JSON, with all its numbers finite."""
    text = json.dumps(chart.to_dict(), allow_nan=False)
    return json.loads(text)


def data_of(spec):
    return [row for rows in spec["datasets"].values() for row in rows]


@pytest.mark.parametrize("quantity", ROW_QUANTITIES)
@pytest.mark.parametrize("along", AXES)
def test_every_quantity_against_everything(result, quantity, along):
    held = {"d_k": 64, "n_keys": 16, "correlation": 0.5}
    del held[along]
    records = [r for r in result.select(**held, quantity=quantity) if r.statistic != "median"]
    spec = spec_of(comparison_chart(records, along))
    assert spec["description"].lower().startswith(QUANTITY_WORDS[quantity].lower())
    assert AXES[along] in spec["description"]
    assert all(f"{way} at " in spec["description"] for way in WAYS)
    rows = data_of(spec)
    assert len(rows) == len(records) == 6
    for row, record in zip(rows, records, strict=True):
        assert row["estimate"] == record.estimate
        assert row["line"] == (record.estimate if record.exact is None else record.exact)
        assert row["known"] == (record.exact is not None)


def test_scorings_differ_in_colour_dash_and_shape(result):
    records = result.select(quantity="trace", n_keys=16, correlation=0.0)
    spec = spec_of(comparison_chart(records, "d_k"))
    line, _, marks = spec["layer"]
    assert line["encoding"]["color"]["scale"]["domain"] == WAYS
    assert len({str(dash) for dash in line["encoding"]["strokeDash"]["scale"]["range"]}) == len(WAYS)
    assert len(set(marks["encoding"]["shape"]["scale"]["range"])) == len(WAYS)


def test_unknown_values_are_told_as_unknown(result):
    frame = comparison_frame(result.select(quantity="trace", n_keys=16, correlation=0.5), "d_k")
    assert set(frame[frame["scoring"] == "cosine"]["exact"]) == {"unknown"}
    assert "unknown" not in set(frame[frame["scoring"] == "mup"]["exact"])


def test_zeros_do_not_break_a_logarithmic_axis():
    none = {"none": lambda *_: Composition("dot", extra="own number", factor=0)(4, 4)}
    found = compare_scorings(none, [4, 16], 4, 0.0, n_rows=64, rng=0, quantities=["query_gradient"])
    spec_of(comparison_chart([r for r in found.records if r.statistic == "rms"], "d_k"))


def test_best_scale_chart_tells_the_peak():
    best = typical_best_std(16, rows=2000, rng=0)
    spec = spec_of(best_scale_chart(16, gradient_sizes(16, [0.5, 1, 2, 4], rng=0), best))
    assert f"peaks at {best.text}" in spec["description"]
    assert "without a maximum" in spec["description"]
    assert "2.355" in spec["description"]


def test_phase_chart_takes_spots():
    spec = spec_of(phase_chart(16, 64, spots=[("A", 4096, 1.07), ("mine", 16, 0.2)], reach=(0.1, 10)))
    assert "A at n = 4096, s = 1.07; mine at n = 16, s = 0.2" in spec["description"]
    assert [layer["mark"]["align"] for layer in spec["layer"] if layer["mark"].get("align")] == ["left"] * 2 + [
        "right"
    ] * 2
    assert "raw at n = 16, s = 8" in spec_of(phase_chart(16, 64))["description"]


def test_table_of_the_ways():
    own = Composition("t5", extra="1/sqrt(d_k)")
    named = {name: Composition(name) for name in METHODS}
    result = compare_scorings({**named, "yours": own}, [64], 8, (0.0, 0.5), n_rows=128, rng=0)
    table = ways_table(result, 64, 0.5, own=str(own(64, 8)))
    assert list(table["way"]) == [*(method.title for method in METHODS.values()), "yours"]
    row = table[table["way"] == "yours"].iloc[0]
    assert row["scale in force"] == "0.01562"
    assert row["std, theory"] == "0.125"
    assert "in W_q" in row["logit"]
    assert (table["std, measured"].str.contains("±")).all()
    assert not table.isin(["nan", "inf"]).any().any()
    assert (table["right when"].str.len() > 20).sum() == len(METHODS)


def test_table_of_published_settings():
    table = placements_table(placements())
    assert list(table[""]) == list("ABCDEF")
    assert list(table["std of logits, exact"]) == ["1.069", "0.9425", "1", "1.25", "2.981", "0.866"]


def test_table_of_initialisations():
    draws = [draw_initialisation(name, 64, 4, replicates=20, rng=0) for name in INITIALISATIONS]
    table = initialisations_table(draws)
    assert list(table["initialisation"]) == [rule.title for rule in INITIALISATIONS.values()]
    assert table["Var of scaled logits, drawn"].str.contains("±").all()
    assert table["Var of scaled logits, theory"][0] == "1"


def test_table_of_best_scales():
    found = best_scales((2, 16), numbers=20_000, seed=1)
    table = best_scales_table(found)
    assert list(table["keys n"]) == ["2", "16"]
    assert list(table["√(2 ln n)"]) == ["1.177", "2.355"]
    for _, best, share in found:
        assert math.isfinite(best.estimate)
        assert 0 < share.estimate < 1
