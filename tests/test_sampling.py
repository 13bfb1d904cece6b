"""The random numbers: families, departures, streams, seeds, and threads that leave nothing behind."""

import math
import threading

import numpy as np
import pytest
from scipy import stats

from simulation import QueryKeyModel, dot_products
from simulation.experiments import _chunk, _edges
from simulation.histograms import Histogram
from simulation.model import ENTRIES, entry_moment
from simulation.parallel import in_order, worker_count
from simulation.sampling import child_seed, chunk_pairs, draw_pairs, seed_of, stream
from simulation.scoring import paired_dot

DF = {"student_t": 20}  # moments to order 16, which the errors of order 8 need


def z_of_moments(entries, df, x):
    """(sample moment - exact) / standard error of orders 1 to 8 of standardised entries."""
    exact = [entry_moment(entries, df, r) for r in range(17)]
    spread = [math.sqrt(max(exact[2 * r] - exact[r] ** 2, 0) / x.size) for r in range(1, 9)]
    found = [float(np.mean(x**r)) for r in range(1, 9)]
    return [(m - e) / s if s else (m - e) * 1e6 for m, e, s in zip(found, exact[1:9], spread, strict=True)]


@pytest.mark.parametrize("entries", ENTRIES)
def test_entries_have_the_moments_of_their_family_to_order_8(entries, seed):
    model = QueryKeyModel(64, entries, DF.get(entries))
    q, k = draw_pairs(model, stream(seed, 0), 8_000)
    for x in (q, k):
        # |z| > 5.5 at orders 1 to 4 by chance once in 10^5 seeds. The means of higher powers have long tails:
        # at order 8 of Laplace entries one outlier in 5,000 seeds is 15 standard errors worth.
        z = z_of_moments(entries, DF.get(entries), x.astype(np.float64).ravel())
        assert np.abs(z[:4]).max() < 5.5, z
        assert np.abs(z[4:]).max() < 15, z


def test_a_wrong_spread_would_be_seen(seed):
    # negative control of the test above: 1 % too wide
    q, _ = draw_pairs(QueryKeyModel(64, q_std=1.01), stream(seed, 0), 8_000)
    assert np.abs(z_of_moments("normal", None, q.astype(np.float64).ravel())).max() > 6


@pytest.mark.parametrize("entries", ["normal", "uniform", "laplace", "student_t"])
def test_entries_follow_the_law_of_their_family(entries, seed):
    laws = {"normal": stats.norm(), "uniform": stats.uniform(-math.sqrt(3), 2 * math.sqrt(3))}
    laws |= {"laplace": stats.laplace(scale=math.sqrt(0.5)), "student_t": stats.t(20, scale=math.sqrt(0.9))}
    q, k = draw_pairs(QueryKeyModel(64, entries, DF.get(entries)), stream(seed, 1), 1000)
    for x in (q, k):  # fails by chance once in 10^5 seeds
        assert stats.kstest(x.ravel(), laws[entries].cdf).pvalue > 5e-6


@pytest.mark.parametrize("entries", ENTRIES)
def test_no_entry_depends_on_another_however_far_apart(entries, seed):
    # correlations of values, and of their sizes, at all 65,536 lags of one chunk; the largest is near 4.4
    # standard errors, and beyond 6.5 by chance once in 10^5 seeds
    q, _ = draw_pairs(QueryKeyModel(64, entries, DF.get(entries)), stream(seed, 2), 2048)
    x = q.astype(np.float64).ravel()
    for values in (x, np.abs(x), np.roll(x, 1) * x):
        centred = values - values.mean()
        power = np.abs(np.fft.rfft(centred)) ** 2
        lags = np.fft.irfft(power)[2 : x.size // 2]  # lag 1 of products shares a factor, and squares of it
        assert np.abs(lags).max() <= 6.5 * np.var(values) * math.sqrt(x.size)


def test_families_keep_to_their_support():
    uniform, _ = draw_pairs(QueryKeyModel(64, "uniform"), stream(0, 0), 10_000)
    assert 1.7319 < np.abs(uniform).max() <= np.float32(math.sqrt(3))
    signs, _ = draw_pairs(QueryKeyModel(64, "rademacher"), stream(0, 0), 1000)
    assert set(np.unique(signs)) == {-1, 1}


@pytest.mark.parametrize("entries", ENTRIES)
def test_q_and_k_are_single_precision_finite_and_of_the_asked_shape(entries):
    for size, d_k in ((1, 1), (3, 7), (5, 64)):
        for x in draw_pairs(QueryKeyModel(d_k, entries, DF.get(entries)), stream(1, 0), size):
            assert x.shape == (size, d_k)
            assert x.dtype == np.float32
            assert np.isfinite(x).all()


@pytest.mark.parametrize("entries", ENTRIES)
def test_every_coordinate_has_its_mean_spread_and_correlation_and_no_other(entries, seed):
    rho, n, d_k = 0.4, 60_000, 16
    model = QueryKeyModel(d_k, entries, DF.get(entries), q_mean=0.5, q_std=2, k_mean=-1, k_std=0.5, correlation=rho)
    q, k = (x.astype(np.float64) for x in draw_pairs(model, stream(seed, 0), n))
    z, w = (q - 0.5) / 2, (k + 1) / 0.5
    for x in (z, w):  # 64 figures in all; |z| > 5.5 by chance once in 4 x 10^5 seeds
        kurtosis = float(np.mean(x**4))
        assert np.abs(x.mean(axis=0)).max() * math.sqrt(n) < 5.5
        assert np.abs((x**2).mean(axis=0) - 1).max() * math.sqrt(n / max(kurtosis - 1, 1e-6)) < 5.5
    cross = z.T @ w / n  # rho on the diagonal and 0 off it
    spread = np.std(z[:, 0] * w[:, 0]) / math.sqrt(n)
    assert np.abs(np.diagonal(cross) - rho).max() < 5.5 * spread
    assert np.abs(cross - np.diag(np.diagonal(cross))).max() * math.sqrt(n) < 6
    for x in (z, w):
        inner = x.T @ x / n
        assert np.abs(inner - np.diag(np.diagonal(inner))).max() * math.sqrt(n) < 6


def test_a_correlation_of_one_makes_k_equal_to_q():
    q, k = draw_pairs(QueryKeyModel(8, correlation=1), stream(0, 0), 100)
    assert (q == k).all()
    q, k = draw_pairs(QueryKeyModel(8, correlation=-1), stream(0, 0), 100)
    assert (q == -k).all()


def test_large_means_are_drawn_as_exactly_as_the_claims_about_them():
    model = QueryKeyModel(64, q_mean=9999.7, q_std=0.1, k_mean=9999.9, k_std=0.1)
    mean = dot_products(model, 30_000, rng=0).before.mean
    assert abs(mean.estimate - mean.exact) < 3 * mean.standard_error


def test_streams_are_the_spawned_children_of_the_seed():
    # C11: NumPy's own rule, so that a chunk can be drawn anywhere from (seed, number)
    for i, child in enumerate(np.random.SeedSequence(7).spawn(20)):
        expected = np.random.Generator(np.random.SFC64(child)).standard_normal(4)
        assert (stream(7, i).standard_normal(4) == expected).all()


def test_no_two_streams_begin_alike():
    first = {int(stream(seed, i).integers(2**63)) for seed in range(10) for i in range(200)}
    assert len(first) == 2000  # two alike by chance once in 4 x 10^12


def test_branches_of_a_seed_differ_from_each_other_and_from_it():
    seeds = {child_seed(7, d_k) for d_k in range(1, 1001)} | {7}
    assert len(seeds) == 1001
    assert child_seed(7, 64) == child_seed(7, 64) != child_seed(8, 64)


def test_every_kind_of_seed_stands_for_an_integer_that_repeats_the_run():
    kinds = [7, np.int64(7), np.random.SeedSequence(7), np.random.SeedSequence([1, 2]), np.random.SeedSequence()]
    kinds += [np.random.SeedSequence(7, spawn_key=(3,)), np.random.default_rng(7), None]
    for rng in kinds:
        result = dot_products(QueryKeyModel(4), 100, rng=rng)
        assert dot_products(QueryKeyModel(4), 100, rng=result.seed) == result
    assert [seed_of(rng) for rng in kinds[:3]] == [7, 7, 7]


def test_a_seed_sequence_longer_than_128_bits_still_gives_a_seed_that_repeats():
    assert seed_of(seed_of(np.random.SeedSequence(2**130))) == seed_of(np.random.SeedSequence(2**130))


def test_equal_seeds_of_one_kind_are_equal_and_a_generator_moves_on():
    assert seed_of(np.random.default_rng(5)) == seed_of(np.random.default_rng(5))
    generator = np.random.default_rng(5)
    assert seed_of(generator) != seed_of(generator)
    children = np.random.SeedSequence(5).spawn(2)
    assert seed_of(children[0]) != seed_of(children[1])


def test_blank_seeds_differ_and_are_exact_in_a_browser():
    seeds = {seed_of(None) for _ in range(10_000)}
    assert len(seeds) == 10_000  # C11, C18: two of 53 bits alike once in 2 x 10^8 runs; of 31 bits in 2 %
    assert 2**52 < max(seeds) < 2**53


@pytest.mark.parametrize("model", [QueryKeyModel(1), QueryKeyModel(64, "laplace"), QueryKeyModel(10**6)])
def test_the_same_seed_gives_the_same_result_on_any_number_of_threads(model, seed):
    n = 4 if model.d_k == 10**6 else 5 * chunk_pairs(model.d_k) + 3  # C12
    results = [dot_products(model, n, rng=seed, workers=workers).to_dict() for workers in (1, 2, 3)]
    assert results[0] == results[1] == results[2]
    assert results[0] != dot_products(model, n, rng=seed + 1).to_dict()


@pytest.mark.parametrize("model", [QueryKeyModel(1, "uniform"), QueryKeyModel(1000)])
def test_a_longer_run_keeps_the_chunks_of_a_shorter_one(model):
    edges, size = Histogram.empty(_edges(model)), chunk_pairs(model.d_k)
    short, long = size + 5, 10 * size
    assert _chunk(model, short, 3, 1.0, edges, 0) == _chunk(model, long, 3, 1.0, edges, 0)
    part, whole = (_chunk(model, n, 3, 1.0, edges, 1) for n in (short, long))
    assert (part.before.n, whole.before.n) == (5, size)
    q, k = draw_pairs(model, stream(3, 1), size)
    assert part.before.mean == pytest.approx((q * k).sum(axis=1, dtype=np.float64)[:5].mean(), rel=1e-12)


def test_one_chunk_is_its_stream_and_nothing_else():
    model = QueryKeyModel(64)
    n = chunk_pairs(64)
    q, k = draw_pairs(model, stream(11, 0), n)
    x = (q * k).sum(axis=1, dtype=np.float64)  # products as precise as the draws, sums in float64
    before = dot_products(model, n, rng=11).before
    assert before.mean.estimate == pytest.approx(x.mean(), rel=1e-12)
    assert before.variance.estimate == pytest.approx(x.var(ddof=1), rel=1e-12)
    exact = paired_dot(q, k)  # products in float64 too: what the rounding of products costs
    assert before.mean.estimate == pytest.approx(exact.mean(), abs=1e-7 * 8)
    assert before.variance.estimate == pytest.approx(exact.var(ddof=1), rel=1e-7)


@pytest.mark.parametrize("n", [2, 8191, 8192, 8193, 3 * 8192])
def test_every_pair_is_counted_whether_or_not_chunks_divide_the_run(n):
    result = dot_products(QueryKeyModel(64), n, rng=0)
    assert chunk_pairs(64) == 8192
    assert result.histogram.n == result.n_samples == n


def test_results_come_in_order_however_late_a_task_ends():
    gates = [threading.Event() for _ in range(8)]

    def task(i):
        if i:
            gates[i - 1].wait(10)  # nothing to wait for: tasks start in order
        gates[i].set()
        return i

    assert list(in_order(task, 8, workers=3)) == list(range(8))
    assert list(in_order(lambda i: i * i, 5, workers=1)) == [0, 1, 4, 9, 16]


def own_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("simulation")]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_that_is_stopped_leaves_no_thread_and_no_work_behind(workers):
    calls = []

    def stop(done, total):
        calls.append((done, total))
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dot_products(QueryKeyModel(64), 400 * chunk_pairs(64), rng=0, workers=workers, progress=stop)
    assert calls == [(1, 400), (2, 400), (3, 400)]
    assert own_threads() == []


def test_an_error_in_a_task_reaches_the_caller_and_ends_the_run():
    started = []

    def task(i):
        started.append(i)
        if i == 2:
            raise RuntimeError("task 2 failed")
        return i

    with pytest.raises(RuntimeError, match="task 2 failed"):
        list(in_order(task, 1000, workers=2))
    assert len(started) < 100
    assert own_threads() == []


def test_threads_are_as_asked_or_one_for_each_core():
    assert worker_count(3) == 3
    assert 1 <= worker_count(None) <= 8
