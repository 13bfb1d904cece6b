"""The normals prove themselves: moments, law, tails, independence; and the proof sees planted faults."""

import math

import numpy as np
import pytest

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
        blocks = draw(stream(seed, i), CHUNK).reshape(-1, 2, normals._BLOCK)
        yield blocks[:, 0].ravel(), blocks[:, 1].ravel()


def test_a_hundred_million_draws_are_normal_and_independent(seed):
    found = examine(pairs_of(seed, CHUNKS))
    assert found.n == CHUNKS * CHUNK > 1e8
    assert found.worst < Z, found
    assert found.p_value > LEVEL, found


# --- planted faults ----------------------------------------------------------------------------------------------


def box_muller(generator, count, *, bits=31, least=0.5, sigma=1.0, turn=2 * math.pi):
    """Box-Muller as the package has it, with something wrong: coarse u, another spread, part of a turn."""
    out = np.empty((count // 2 // normals._BLOCK, 2, normals._BLOCK), dtype=np.float32)
    for block in out:
        words = generator.bit_generator.random_raw(normals._BLOCK).view(np.uint32)
        u = ((words[: normals._BLOCK] >> (32 - bits)) + least) * 2.0**-bits
        radius, angle = sigma * np.sqrt(-2 * np.log(u)), words[normals._BLOCK :] * (turn * 2.0**-32)
        block[:] = radius * np.cos(angle), radius * np.sin(angle)
    return out.ravel()


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


def test_a_spread_of_half_a_thousandth_too_much_is_seen(seed):
    # 9 standard errors of the variance of 1.6 * 10^8 numbers
    found = examine(pairs_of(seed, 1200, lambda g, n: np.float32(1.0005) * standard_normals(g, n)))
    assert found.moments[2] > Z


def test_dependent_numbers_are_seen(seed):
    def repeated(generator, count):
        x = standard_normals(generator, count).reshape(-1, normals._BLOCK)
        x[:, 1::2] = np.sign(x[:, 1::2]) * np.abs(x[:, ::2])  # neighbours of one size, signs apart
        return x.ravel()

    found = examine(pairs_of(seed, 8, repeated))
    assert abs(found.correlations["squares at 1"]) > Z
    assert abs(found.correlations["neighbours at 1"]) < Z


# --- details -----------------------------------------------------------------------------------------------------


class Words:
    """A bit generator of given words."""

    def __init__(self, halves):
        self.words = np.array(halves, dtype=np.int32).view(np.uint64)

    @property
    def bit_generator(self):
        return self

    def random_raw(self, size):
        assert size == len(self.words)
        return self.words


@pytest.mark.parametrize(
    ("word", "radius"),
    [
        (0, math.sqrt(64 * math.log(2))),
        (-1, math.sqrt(64 * math.log(2))),
        (2**31 - 1, 0),
        (-(2**31), 0),
        (2**30, math.sqrt(2 * math.log(2))),
    ],
)
def test_extreme_words_give_finite_normals(word, radius):
    x = standard_normals(Words([word, word, 0, 2**30]), 4)  # angles 0 and a quarter of a turn
    np.testing.assert_allclose(x, [radius, 0, 0, radius], rtol=1e-6, atol=1e-6)


def test_float32_costs_no_more_than_its_own_rounding():
    words = np.random.SFC64(1).random_raw(1000).view(np.int32)
    u = np.abs(words[:1000] + 0.5) / 2**31
    angle = words[1000:] * (math.pi / 2**31)
    exact = np.sqrt(-2 * np.log(u)) * [np.cos(angle), np.sin(angle)]
    found = standard_normals(np.random.Generator(np.random.SFC64(1)), 2000).reshape(2, 1000)
    assert np.abs(found - exact).max() < 2e-6


@pytest.mark.parametrize("count", [0, 1, 2, 7, 2**15, 2**15 + 1])
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
