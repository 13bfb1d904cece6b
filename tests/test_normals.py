"""The normals prove themselves: moments, law, tails, independence; and the proof sees planted faults."""

import math

import numpy as np
import pytest
from scipy import special

from benchmarks.normal_checks import examine
from simulation import normals
from simulation.normals import standard_normals
from simulation.parallel import in_order
from simulation.sampling import stream

CHUNK = 2**17
CHUNKS = 763  # 10^8 numbers
Z = 5.2  # of 26 scores one is beyond by chance once in 2 * 10^5 seeds
LEVEL = 1e-5


def pairs_of(seed, chunks, draw=standard_normals):
    for i in range(chunks):
        pairs = draw(stream(seed, i), CHUNK).reshape(-1, 2)
        yield pairs[:, 0], pairs[:, 1]


def test_a_hundred_million_draws_are_normal_and_independent(seed):
    found = examine(pairs_of(seed, CHUNKS))
    assert found.n == CHUNKS * CHUNK > 1e8
    assert found.worst < Z, found
    assert found.p_value > LEVEL, found


# --- the exact law: tables are finite, so what they give can be computed ----------------------------------------


def radial_moment(lengths, k):
    """E R^(2k) / (2^k k!) of lengths that are drawn: the cells' mean, and both ends by incomplete gamma functions."""
    end = normals._EDGE
    cells = (1 - 2 * end) * np.mean((lengths.astype(np.float64) ** 2 / 2) ** k) / special.factorial(k)
    longest, shortest = special.gammaincc(k + 1, -math.log(end)), special.gammainc(k + 1, -math.log1p(-end))
    return float(cells + longest + shortest)


@pytest.mark.parametrize(("k", "most"), [(1, 1e-9), (2, 1e-8), (3, 6e-8), (4, 2e-7)])
def test_the_law_has_the_moments_of_a_normal_one_to_order_8(k, most):
    # directions are uniform, so E x^2k / (2k - 1)!! is what the lengths give
    assert abs(radial_moment(normals._LENGTHS, k) - 1) < most


def test_lengths_a_ten_thousandth_too_long_or_of_coarse_cells_would_be_seen():
    assert abs(radial_moment(normals._LENGTHS * np.float32(1.0001), 1) - 1) > 1e-4
    assert abs(radial_moment(normals._LENGTHS[::16], 1) - 1) > 1e-9


def test_the_distribution_function_is_as_near_the_normal_one_as_float32_can_tell():
    # P(|x| > t) within the cells: the mean over lengths r of the share of a turn where r cos > t, 2/pi arccos(t/r),
    # against the same over u, each cell by Gauss and Legendre's rule
    u = np.linspace(normals._EDGE, 1 - normals._EDGE, normals._CELLS + 1)
    nodes, weights = np.polynomial.legendre.leggauss(16)
    exact = np.sqrt(-2 * np.log(u[:-1, None] + np.diff(u)[:, None] * (nodes + 1) / 2))
    worst = 0.0
    for t in np.concatenate([np.geomspace(1e-3, 0.5, 30), np.linspace(0.6, 3.7, 15)]):
        tables = np.arccos(np.minimum(t / normals._LENGTHS.astype(np.float64), 1)).mean()
        worst = max(worst, 2 / math.pi * abs(tables - (np.arccos(np.minimum(t / exact, 1)) @ weights / 2).mean()))
    assert worst / 2 < 7e-8  # on one side


@pytest.mark.parametrize("order", [1, 2, 8, 64, 2048])
def test_equal_angles_average_powers_as_all_angles_do_however_they_are_turned(order):
    for turn in (0, 0.3e-3, 1.5e-3):
        mean = np.mean((normals._CIRCLE * np.exp(1j * turn)).real ** order)
        exact = special.binom(order, order / 2) / 2.0**order if order % 2 == 0 and order < 1000 else None
        if order == 2048:
            exact = math.exp(special.gammaln(2049) - 2 * special.gammaln(1025) - 2048 * math.log(2))
        assert mean == pytest.approx(exact or 0.0, rel=1e-9, abs=1e-15)


def test_the_ends_are_drawn_at_their_rate_and_reach_beyond_the_cells(seed):
    longest, shortest, n = normals._LENGTHS.max(), normals._LENGTHS.min(), 0
    beyond = np.zeros(2)
    for i in range(200):
        pairs = standard_normals(stream(seed, i), CHUNK).view(np.complex64)
        r, n = np.abs(pairs), n + len(pairs)
        beyond += [(r > 1.000001 * longest).sum(), (r < 0.999999 * shortest).sum()]
    due = n * normals._EDGE  # 12,800 each; |z| > 5 once in 10^6 seeds
    assert np.abs(beyond - due).max() < 5 * math.sqrt(due)


@pytest.mark.parametrize("word", [0, -1, 2**63 - 1, -(2**63), 1])
def test_extreme_words_give_finite_lengths(word):
    (length,) = normals._edge_lengths(np.array([word], dtype=np.int64))
    assert 0 <= length < 11
    assert length > 3.7 or length < 0.05


def dispersions(seed, draw=standard_normals, calls=3000, size=2**14):
    """How far from binomial the spread of counts in a call is, in standard errors: near 0 and in a tail."""
    counts = []
    for i in range(calls):
        x = np.abs(draw(stream(seed, i), size))
        counts.append([(x < 1e-3).sum(), (x < 0.05).sum(), (x > 3).sum()])
    shares = np.mean(counts, axis=0) / size
    return (np.var(counts, axis=0, ddof=1) / (size * shares * (1 - shares)) - 1) / math.sqrt(2 / calls)


def test_numbers_of_a_call_do_not_go_together_though_they_share_a_turned_circle(seed):
    def together(generator, count):
        return standard_normals(generator, count) * (1 + 0.01 * generator.standard_normal())

    assert np.abs(dispersions(seed)).max() < 5  # three figures: beyond by chance once in 5 * 10^5 seeds
    assert dispersions(seed, together).max() > 8


# --- planted faults ----------------------------------------------------------------------------------------------


def box_muller(generator, count, *, bits=32, least=0.5, turn=2 * math.pi):
    """Box-Muller in double precision, with something wrong: coarse u, part of a turn."""
    words = generator.bit_generator.random_raw(count // 2).view(np.uint32).reshape(-1, 2)
    u = ((words[:, 0] >> (32 - bits)) + least) * 2.0**-bits
    radius, angle = np.sqrt(-2 * np.log(u)), words[:, 1] * (turn * 2.0**-32)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).ravel()


def test_the_same_done_slowly_in_double_precision_is_normal_too(seed):
    found = examine(pairs_of(seed, 60, box_muller))
    assert found.worst < Z, found
    assert found.p_value > LEVEL, found


def test_a_u_that_can_be_0_is_seen(seed):
    # u in [0, 1), as uniforms are wont to be. In float32's steps of 2**-24, 10^8 numbers hold three zeros; here
    # steps are 2**-16, and 5 million numbers hold 40.
    with np.errstate(divide="ignore", invalid="ignore"):
        found = examine(pairs_of(seed, 40, lambda g, n: box_muller(g, n, bits=16, least=0)))
    assert not found.worst < Z


@pytest.mark.parametrize(
    ("fault", "chunks"),
    [({"turn": math.pi}, 4), ({"bits": 10}, 60)],
    ids=["half a turn", "10 bits of u"],
)
def test_planted_faults_are_seen(fault, chunks, seed):
    found = examine(pairs_of(seed, chunks, lambda g, n: box_muller(g, n, **fault)))
    assert found.worst > Z


def test_tables_without_their_ends_are_seen(monkeypatch, seed):
    monkeypatch.setattr(normals, "_set_edges", lambda *_: None)
    found = examine(pairs_of(seed, 60))
    assert found.worst > Z


def share_near_zero(seed):
    return np.mean([np.mean(np.abs(standard_normals(stream(seed, i), CHUNK)) < 1e-7) for i in range(20)])


def test_no_number_is_likelier_than_others_unless_the_circle_is_not_turned(monkeypatch, seed):
    assert share_near_zero(seed) < 1e-5  # 8e-8 is due; 2.6 million numbers hold 26 once in 10^40 seeds
    monkeypatch.setattr(normals.math, "cos", lambda _: 1.0)
    monkeypatch.setattr(normals.math, "sin", lambda _: 0.0)
    assert share_near_zero(seed) == pytest.approx(2 / normals._DIRECTIONS, rel=0.1)


def test_a_spread_of_a_thousandth_too_much_is_seen(seed):
    # 9 standard errors of the variance of 4 * 10^7 numbers
    found = examine(pairs_of(seed, 300, lambda g, n: np.float32(1.001) * standard_normals(g, n)))
    assert found.moments[2] > Z


def test_dependent_numbers_are_seen(seed):
    def repeated(generator, count):
        x = standard_normals(generator, count).reshape(-1, 2, 2)
        x[:, 1] = np.sign(x[:, 1]) * np.abs(x[:, 0])  # neighbours of one size, signs apart
        return x.ravel()

    found = examine(pairs_of(seed, 8, repeated))
    assert abs(found.correlations["squares at 1"]) > Z
    assert abs(found.correlations["neighbours at 1"]) < Z


# --- details -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 7, 2**17, 2**17 + 1])
def test_any_count_is_served(count):
    x = standard_normals(stream(0, 0), count)
    assert x.shape == (count,)
    assert x.dtype == np.float32
    assert np.isfinite(x).all()


def test_chunks_are_the_same_bits_on_any_number_of_threads():
    alone = [standard_normals(stream(3, i), 10_001) for i in range(40)]
    for workers in (2, 5):
        for one, other in zip(
            alone, in_order(lambda i: standard_normals(stream(3, i), 10_001), 40, workers), strict=True
        ):
            assert (one == other).all()
