"""`gradient_decay`: known values, exact expectations at k standard errors, determinism, results, refusals.

Statistical comparisons allow Z standard errors of the run (from whole heads); TEST_SEED repeats them.
"""

import json
import math

import pytest

from simulation import attention_heads, decay
from simulation.decay import DECAY_LADDER, DecayResult, gradient_decay
from simulation.decay_rows import plan_of, rung_values
from simulation.model import ENTRIES, QueryKeyModel
from simulation.row_sizes import QUANTITIES
from simulation.row_statistics import ROW_STATISTICS

Z = 4.65  # two-sided normal tail 3.3e-6; from 64 heads or more (t) 2e-5: 150 comparisons, one false alarm in 300 seeds
SURE = 0.99999  # confidence of intervals that must cover: 121 of them, one false alarm in 800 seeds
CHEAP = ("trace", "frobenius", "entropy", "largest_weight", "query_gradient")


def one(result, **wanted):
    (record,) = result.select(**wanted)
    return record


def within(record, value, half_unit=0.0):
    """Whether an estimate agrees with a value that was itself simulated with about as many rows, then rounded."""
    return abs(record.estimate - value) < math.sqrt(2) * Z * record.standard_error + half_unit


# --- known values ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wide(seed):
    """128 keys at d_k = 64 and 1024, 128 heads each."""
    run = {"n_rows": 16_384, "quantities": ["query_gradient"], "sampler": "conditional"}
    return gradient_decay([64, 1024], 128, rng=seed, **run)


def test_the_rms_query_gradient_is_the_exact_one(wide):
    for scoring, exact in (("dot", 2.212), ("scaled_dot", 0.13787)):
        record = one(wide, d_k=64, scoring=scoring, statistic="rms")
        assert record.exact == pytest.approx(exact, rel=1e-4)
        assert abs(record.estimate - record.exact) < Z * record.standard_error


def test_the_typical_unscaled_query_gradient_is_first_larger_then_far_smaller(wide):
    """theory.md 3.7: ten times larger at d_k = 64, less than a fifth at 1024.

    In 130,000 rows the quotients are 13.6 and 0.134, both five standard errors of this run or more from the limits.
    """
    ratio = {}
    for d_k in (64, 1024):
        raw, scaled = (one(wide, d_k=d_k, scoring=s, statistic="median") for s in ("dot", "scaled_dot"))
        ratio[d_k] = raw.estimate / scaled.estimate
    assert ratio[64] > 10
    assert ratio[1024] < 0.2
    # on average it does not vanish: the unscaled rms grows, the scaled one stays
    assert one(wide, d_k=1024, scoring="dot", statistic="rms").estimate > 4
    assert one(wide, d_k=1024, scoring="scaled_dot", statistic="rms").estimate == pytest.approx(0.137, rel=0.03)


def test_the_unscaled_median_of_two_keys_is_tiny_and_not_zero(seed):
    result = gradient_decay([1024], 2, n_rows=20_000, rng=seed, quantities=["trace"], confidence=SURE)
    record = one(result, scoring="dot", statistic="median")
    assert record.exact == pytest.approx(1.1295e-13, rel=1e-4)
    assert 0 < record.interval[0] < record.exact < record.interval[1] < 1e-11
    assert record.standard_error > 0


def test_two_keys_in_two_dimensions(seed):
    record = one(
        gradient_decay([2], 2, rng=seed, quantities=["trace"], n_rows=8192), scoring="scaled_dot", statistic="mean"
    )
    assert record.exact == pytest.approx(2 * math.log(2) - 1, rel=1e-13)
    assert abs(record.estimate - record.exact) < Z * record.standard_error


@pytest.mark.parametrize(
    ("n", "d", "u", "s"),
    [
        (2, 64, (0.558, 1.22, 0.0083), (0.361, 0.383, 0.391)),
        (16, 64, (1.41, 1.98, 0.894), (0.304, 0.305, 0.302)),
        (16, 512, (1.65, 3.56, 0.0124), (0.305, 0.306, 0.304)),
        (128, 64, (1.78, 2.22, 1.84), (0.137, 0.138, 0.133)),
    ],
)
def test_the_table_of_query_gradients(n, d, u, s, seed):
    """theory.md 3.7: mean, rms and median of |dy/dq|, unscaled and scaled; 24 numbers simulated there."""
    result = gradient_decay([d], n, rng=seed, n_rows=8192, quantities=["query_gradient"], sampler="conditional")
    for scoring, published in (("dot", u), ("scaled_dot", s)):
        for statistic, value in zip(("mean", "rms", "median"), published, strict=True):
            digits = 2 - math.floor(math.log10(value))
            half = 0.5 * 10.0 ** -(digits if scoring == "scaled_dot" or value < 1 else 2)
            assert within(one(result, scoring=scoring, statistic=statistic), value, half), (scoring, statistic)


# --- exact expectations ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ladder", "n", "law", "sampler"),
    [
        ((1, 4, 64), 2, {}, "plain"),
        ((3, 1024), 16, {}, "plain"),
        ((16, 300), 5, {"q_std": 0.5, "k_std": 3}, "plain"),
        ((50, 4000), 2, {}, "conditional"),  # wider, too few rows carry the unscaled mean for a normal z
        ((30, 4097), 24, {}, "conditional"),
    ],
)
def test_every_estimate_agrees_with_its_exact_value(ladder, n, law, sampler, seed):
    result = gradient_decay(ladder, n, rng=seed, n_rows=6000, quantities=CHEAP, sampler=sampler, confidence=SURE, **law)
    known = [record for record in result.records if record.exact is not None]
    assert len(known) >= len(ladder) * 2 * 4
    for r in known:
        if r.statistic in ("mean", "rms"):
            assert abs(r.estimate - r.exact) < Z * r.standard_error, r
        else:
            assert r.interval[0] <= r.exact <= r.interval[1], r


# --- determinism -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sampler", "n"), [("plain", 3), ("plain", 300), ("conditional", 3)])
def test_the_same_seed_gives_the_same_bits_on_any_number_of_workers(sampler, n, monkeypatch):
    monkeypatch.setattr(attention_heads, "_CHUNK_LOGITS", 2**11)  # many chunks
    run = {"n_rows": 2000, "rng": 11, "quantities": CHEAP, "sampler": sampler}
    first, *others = (gradient_decay([2, 700], n, workers=w, **run) for w in (1, 2, 3))
    assert all(other == first for other in others)
    assert gradient_decay([2, 700], n, **(run | {"rng": 12})) != first


def test_a_rung_does_not_depend_on_the_ladder_and_has_a_stream_of_its_own(monkeypatch):
    run = {"n_keys": 3, "n_rows": 200, "rng": 4, "quantities": CHEAP}
    ladder, alone = gradient_decay([16, 1, 64], **run), gradient_decay([64], **run)
    assert ladder.select(d_k=64) == list(alone.records)
    assert list(dict.fromkeys(r.d_k for r in ladder.records)) == [16, 1, 64]
    seeds = []

    def spy(*args, **more):
        seeds.append(args[2])
        return rung_values(*args, **more)

    monkeypatch.setattr(decay, "rung_values", spy)
    gradient_decay([16, 1, 64], **run)
    assert len({4, *seeds}) == 4


@pytest.mark.parametrize("sampler", ["plain", "conditional"])
@pytest.mark.parametrize("quantities", [("trace",), ("trace", "query_gradient")])
def test_more_rows_keep_the_earlier_heads(sampler, quantities, monkeypatch):
    model = QueryKeyModel(40)
    monkeypatch.setattr(attention_heads, "_CHUNK_LOGITS", 8 * 64)  # eight heads in a chunk
    few, many = (
        rung_values(model, plan_of(8, rows, quantities, ["mean"], sampler, 8), 9, 1, None) for rows in (160, 1000)
    )
    for key, rows in few.items():
        assert rows.shape == (20, 8)
        assert (many[key][:20] == rows).all()


def test_quantities_and_statistics_asked_for_change_no_other():
    run = {"n_keys": 4, "n_rows": 128, "rng": 3}
    everything = gradient_decay([8], **run)
    assert len(everything.records) == 2 * len(QUANTITIES) * len(ROW_STATISTICS)
    some = gradient_decay([8], quantities=["Query-Gradient", "entropy"], statistics=["q90"], **run)
    assert [(r.scoring, r.quantity, r.statistic) for r in some.records] == [
        (s, q, "q90") for s in ("dot", "scaled_dot") for q in ("query_gradient", "entropy")
    ]
    assert all(record in everything.records for record in some.records)


# --- settings ----------------------------------------------------------------------------------------------------


def test_the_default_ladder_runs_in_order_with_its_progress():
    steps = []
    result = gradient_decay(n_keys=2, n_rows=32, rng=0, quantities=["trace"], progress=lambda *step: steps.append(step))
    assert tuple(dict.fromkeys(r.d_k for r in result.records)) == DECAY_LADDER
    assert steps == [(1, 1)] * len(DECAY_LADDER)


@pytest.mark.parametrize(
    ("n", "rows", "queries", "heads", "m"),
    [
        (2, 32, None, 16, 2),
        (128, 4096, None, 32, 128),
        (128, 100, None, 17, 6),
        (4096, 4096, None, 32, 128),
        (5, 33, 3, 16, 3),
    ],
)
def test_rows_come_in_whole_heads_and_at_least_sixteen(n, rows, queries, heads, m):
    plan = plan_of(n, rows, ["trace"], ["mean"], queries=queries)
    assert (plan.heads, plan.queries) == (heads, m)
    assert heads * m >= rows
    values = rung_values(QueryKeyModel(2), plan_of(4, 100, ["trace"], ["mean"], queries=7), 0, 1, None)
    assert values["dot", "trace"].shape == (16, 7)


@pytest.mark.parametrize(("d_k", "sampler"), [(4096, "plain"), (4097, "conditional")])
def test_auto_changes_sampler_where_it_says(d_k, sampler):
    run = {"d_k": [d_k], "n_keys": 2, "n_rows": 32, "rng": 0, "quantities": ["trace"]}
    auto = gradient_decay(**run)
    assert auto.sampler == sampler
    assert auto == gradient_decay(sampler=sampler, **run)
    assert gradient_decay(entries="rademacher", **run).sampler == "plain"
    assert gradient_decay(**(run | {"d_k": [4, 10**6]})).sampler == "plain and conditional"


@pytest.mark.parametrize("entries", [name for name in ENTRIES if name != "normal"])
def test_other_entries_run_without_exact_values_and_come_near_the_normal_ones(entries, seed):
    law = {"entries": entries} | ({"df": 5} if entries == "student_t" else {})
    result = gradient_decay([256], 8, rng=seed, quantities=CHEAP, **law)
    normal = gradient_decay([256], 8, rng=seed + 1, quantities=CHEAP)
    assert result.entries == entries
    for other, record in zip(result.records, normal.records, strict=True):
        assert other.exact is None
        assert math.isfinite(other.estimate)
        assert other.standard_error > 0
        if other.statistic == "mean":  # the law of a logit is normal but for 1/d_k: allow 3 % for it
            error = math.hypot(other.standard_error, record.standard_error)
            assert abs(other.estimate - record.estimate) < Z * error + 0.03 * record.estimate


# --- results -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    return gradient_decay([2, 10**6], 2, n_rows=64, rng=1)


def test_results_read_back_from_json_without_nan(small):
    text = small.to_json()
    json.loads(text, parse_constant=pytest.fail)
    assert DecayResult.from_json(text) == small
    without_exact = gradient_decay([3], 3, n_rows=32, rng=0, entries="uniform", quantities=["trace"])
    assert DecayResult.from_json(without_exact.to_json()) == without_exact
    assert json.loads(without_exact.to_json())["records"][0]["exact"] is None


def test_the_frame_is_tidy(small):
    frame = small.to_frame()
    names = ["d_k", "n_keys", "scoring", "quantity", "statistic", "estimate", "standard_error", "exact", "low", "high"]
    assert list(frame.columns) == names
    assert len(frame) == len(small.records) == 2 * 2 * len(QUANTITIES) * len(ROW_STATISTICS)
    assert not frame.duplicated(["d_k", "scoring", "quantity", "statistic"]).any()
    assert ((frame.low <= frame.high) & (frame.standard_error >= 0)).all()


def test_select_and_the_printed_table(small):
    assert small.select() == list(small.records)
    found = small.select(scoring="dot", quantity="trace")
    assert [(r.d_k, r.statistic) for r in found] == [(d, s) for d in (2, 10**6) for s in ROW_STATISTICS]
    assert small.select(d_k=3) == []
    with pytest.raises(AttributeError):
        small.select(colour="red")
    lines = str(small).splitlines()
    assert lines[0].startswith("64 rows for each d_k, normal entries, plain and conditional sampler, seed 1")
    assert len(lines) == 2 + 2 * 2 * len(QUANTITIES)
    assert "[0.38629]" in next(line for line in lines if "scaled_dot" in line and "trace" in line)


# --- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_keys": 1}, r"`n_keys` must be a whole number from 2 to 4,096; received 1\."),
        ({"n_keys": 5000}, r"`n_keys` must be a whole number from 2 to 4,096; received 5000\."),
        ({"n_rows": 5}, r"`n_rows` must be a whole number from 32 to 1,048,576; received 5\."),
        ({"n_rows": 100.0}, r"`n_rows` must be a whole number .* received 100\.0\."),
        ({"quantities": ["slope"]}, r"`quantities` must be one of trace, .*query_gradient; received 'slope'\."),
        ({"quantities": []}, r"`quantities` must name at least one; received \[\]"),
        ({"statistics": ()}, r"`statistics` must name at least one; received \(\)"),
        ({"statistics": ["mode"]}, r"`statistics` must be one of mean, rms, q10, median, q90; received 'mode'\."),
        ({"sampler": "fast"}, r"`sampler` must be one of auto, plain, conditional; received 'fast'\."),
        ({"sampler": "conditional", "entries": "laplace"}, "`sampler` 'conditional' needs normal entries"),
        ({"sampler": "conditional", "k_mean": 1}, "`sampler` 'conditional' needs normal entries with mean 0"),
        ({"correlation": 0.5}, r"`correlation` must be 0 for attention heads: .* received 0\.5\."),
        ({"d_k": []}, r"`d_k` must hold 1 to 1,000 different head dimensions; received \[\]"),
        ({"d_k": [4, 4]}, r"`d_k` must hold 1 to 1,000 different head dimensions; received \[4, 4\]"),
        ({"d_k": [0]}, r"`d_k` must be a whole number from 1 to 1,000,000; received 0\."),
        ({"d_k": 64}, r"`d_k` must .*; received 64"),
        ({"queries": 0}, r"`queries` must be a whole number from 1 to 4,096; received 0\."),
        ({"confidence": 1}, r"`confidence` must be a number from 0\.5 to 0\.999999; received 1\."),
        ({"workers": 0}, "`workers` must be a whole number"),
        ({"rng": "x"}, "`rng` must be a whole number"),
        ({"entries": "student_t"}, "`df` must be given for student_t entries"),
    ],
)
def test_bad_input_is_refused_with_one_clear_sentence(wrong, message):
    with pytest.raises(ValueError, match=message):
        gradient_decay(**({"d_k": [4], "n_keys": 2, "n_rows": 32, "rng": 0, "quantities": ["trace"]} | wrong))
