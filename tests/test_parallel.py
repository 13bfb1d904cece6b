"""The loop over chunks: the same bits from any executor, few tasks in flight, nothing left behind."""

import itertools
import subprocess
import sys
import time
import tracemalloc
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from simulation import QueryKeyModel, dot_products, gradient_decay, sampling, sweep
from simulation.low_precision import low_precision
from simulation.parallel import GROUPS, IN_FLIGHT, MAX_GROUP, group_size, groups, in_order, results_of, worker_count
from simulation.sampling import chunk_pairs

ROOT = Path(__file__).parents[1]
MODEL = QueryKeyModel(4096)
CHUNK = chunk_pairs(4096)


class Counting(Executor):
    """Runs tasks late, when their result is asked for, and counts what is under way."""

    def __init__(self):
        self.submitted = self.most = self.cancelled = 0
        self.waiting = []

    def submit(self, fn, /, *args, **kwargs):
        future = Late(self, partial(fn, *args, **kwargs))
        self.submitted += 1
        self.waiting.append(future)
        self.most = max(self.most, len(self.waiting))
        return future


class Late(Future):
    def __init__(self, executor, call):
        super().__init__()
        self.executor, self.call = executor, call

    def result(self, timeout=None):
        self.executor.waiting.remove(self)
        self.set_result(self.call())
        return super().result(timeout)

    def cancel(self):
        self.executor.waiting.remove(self)
        self.executor.cancelled += 1
        return super().cancel()


@pytest.fixture(scope="module", params=["spawn", "fork"])
def processes(request):
    if request.param == "fork" and sys.platform != "linux":
        pytest.skip("fork is safe on Linux only")
    with ProcessPoolExecutor(2, mp_context=get_context(request.param)) as pool:
        yield pool


# Python 3.12 warns of every fork beside a thread; these workers use no lock that a thread may hold
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_processes_give_the_same_bits_as_threads(processes, seed):
    run = partial(dot_products, QueryKeyModel(64), 12 * chunk_pairs(64) + 7, rng=seed)
    assert run(executor=processes) == run(workers=1)
    decay = partial(gradient_decay, [8, 5000], 4, n_rows=20_000, rng=seed, quantities=["trace", "query_gradient"])
    assert decay(executor=processes) == decay(workers=1)
    rungs = partial(sweep, [4, 512], 9000, rng=seed)
    assert rungs(executor=processes) == rungs(workers=2)
    rounded = partial(low_precision, [64], [128], n_rows=10_000, rng=seed)
    assert rounded(executor=processes) == rounded(workers=1)


@pytest.fixture
def many(monkeypatch):
    """Pairs of many groups of two chunks, small ones, the last one short."""
    monkeypatch.setattr(sampling, "CHUNK_NUMBERS", 2**14)
    return 2 * GROUPS * chunk_pairs(MODEL.d_k) + 2


def test_long_runs_whose_chunks_travel_in_groups_give_the_same_bits_too(many):
    assert group_size(2 * GROUPS + 1) == 2
    in_one_thread = dot_products(MODEL, many, rng=5, workers=1)
    for workers in (2, 5):
        assert dot_products(MODEL, many, rng=5, workers=workers) == in_one_thread
        with ThreadPoolExecutor(workers) as pool:
            assert dot_products(MODEL, many, rng=5, executor=pool, workers=3) == in_one_thread
    assert in_one_thread.histogram.n == many


def test_a_longer_run_keeps_the_samples_of_a_shorter_one(many):
    # counts are sums over samples, so they differ by those of the chunks that came later
    chunk = chunk_pairs(MODEL.d_k)
    short, longer, rest = (dot_products(MODEL, n, rng=5).histogram for n in (4 * chunk, many, many - 2))
    assert (longer.counts >= short.counts).all()
    assert (longer.counts >= rest.counts).all()
    assert longer.n - rest.n == 2


@pytest.mark.parametrize("chunks", [1, 2, 255, 256, 511, 512, 5000, 10**6 + 1])
def test_groups_cover_every_chunk_once_in_order(chunks):
    spans = list(groups(chunks))
    assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])]
    assert spans[-1][1] == chunks
    assert max(stop - start for start, stop in spans) == group_size(chunks) <= MAX_GROUP


@pytest.mark.parametrize("workers", [1, 3])
def test_no_more_tasks_are_in_flight_than_four_for_each_worker(workers):
    executor = Counting()
    dot_products(MODEL, 100 * CHUNK, rng=0, executor=executor, workers=workers)
    assert executor.submitted == 100
    assert executor.most == IN_FLIGHT * workers


def test_a_run_of_a_million_million_pairs_starts_at_once_and_holds_constant_memory():
    class StoppedError(Exception):
        pass

    executor, peaks = Counting(), []

    def progress(done, total):
        assert total == -(-(10**12) // chunk_pairs(10**6))
        if done == MAX_GROUP:
            tracemalloc.reset_peak()
        if done == 3 * MAX_GROUP:
            peaks.append(tracemalloc.get_traced_memory()[1])
            raise StoppedError

    def tiny(*_):
        return in_small

    in_small = dot_products_summary()
    tracemalloc.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("simulation.experiments._chunk", tiny)
            with pytest.raises(StoppedError):
                dot_products(QueryKeyModel(10**6), 10**12, rng=0, executor=executor, workers=2, progress=progress)
    finally:
        tracemalloc.stop()
    assert executor.submitted <= 3 + IN_FLIGHT * 2
    assert peaks[0] < 5e6
    assert executor.waiting == []


def dot_products_summary():
    from simulation.experiments import _chunk, _edges
    from simulation.histograms import Histogram

    model = QueryKeyModel(10**6)
    return _chunk(model, 10**12, 0, 1.0, Histogram.empty(_edges(model)), 0)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_run_that_is_stopped_cancels_what_has_not_begun(error):
    executor = Counting()

    def progress(done, _):
        if done == 3:
            raise error

    with pytest.raises(error):
        dot_products(MODEL, 100 * CHUNK, rng=0, executor=executor, workers=2, progress=progress)
    assert (executor.submitted, executor.waiting) == (10, [])
    assert executor.cancelled == 10 - 3


def test_closing_the_iterator_cancels_too():
    executor = Counting()
    results = results_of(abs, itertools.count(), 2, executor)
    assert [next(results) for _ in range(4)] == [0, 1, 2, 3]
    results.close()
    assert executor.waiting == []


def touch_slowly(folder, i):
    time.sleep(0.05)
    (Path(folder) / str(i)).touch()
    return i


def test_a_stopped_run_leaves_no_work_in_processes(tmp_path):
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        results = results_of(partial(touch_slowly, str(tmp_path)), range(1000), 2, pool)
        assert next(results) == 0
        results.close()
        left = len(list(tmp_path.iterdir()))
        assert left <= IN_FLIGHT * 2 + 1
        assert pool.submit(abs, -1).result() == 1  # the executor is the caller's, and stays open
        time.sleep(0.2)
        assert len(list(tmp_path.iterdir())) == left


class KilledWorker(Exception):  # noqa: N818
    """Stands for Dask's error of this name."""


@pytest.mark.parametrize(("deaths", "survives"), [(1, True), (3, True), (4, False)])
def test_a_task_whose_worker_died_is_submitted_again_a_few_times(deaths, survives):
    failures = dict.fromkeys(range(5), 0)

    def task(i):
        if i == 2 and failures[i] < deaths:
            failures[i] += 1
            raise KilledWorker
        return i

    with ThreadPoolExecutor(2) as pool:
        if survives:
            assert list(in_order(task, 5, 2, pool)) == [0, 1, 2, 3, 4]
        else:
            with pytest.raises(KilledWorker):
                list(in_order(task, 5, 2, pool))


def test_other_errors_are_not_tried_again():
    calls = []

    def task(i):
        calls.append(i)
        raise OSError("disk full")

    with ThreadPoolExecutor(1) as pool, pytest.raises(OSError, match="disk full"):
        list(in_order(task, 1, 1, pool))
    assert calls == [0]


def test_what_is_no_executor_is_refused():
    class Client:  # a Dask client is none: its get_executor() is
        pass

    with pytest.raises(TypeError, match=r"`executor` must be a concurrent.futures.Executor .*get_executor"):
        dot_products(MODEL, 100, rng=0, executor=Client())
    with ThreadPoolExecutor(1) as pool:
        assert worker_count(100_000, pool) == 100_000
        with pytest.raises(ValueError, match=r"`workers` must be a whole number from 1 to 100,000; received 0"):
            worker_count(0, pool)


MEASURE = """
import resource
from simulation import QueryKeyModel, dot_products
unit = 1 if __import__("sys").platform == "darwin" else 1024
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
before = peak()
for n in (3 * 10**5, 12 * 10**5):
    dot_products(QueryKeyModel(64), n, rng=0, workers=2)
    print(peak() - before)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="peak memory is read from the Unix module resource")
def test_memory_does_not_grow_with_the_number_of_samples():
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    short, longer = map(float, done.stdout.split())
    assert longer < 150
    assert longer - short < 20


def test_a_worker_of_another_version_is_refused():
    class Elsewhere(ThreadPoolExecutor):
        def submit(self, fn, /, task, item, attempt, versions):
            return super().submit(fn, task, item, attempt, (versions[0], "1.0.0"))

    with (
        Elsewhere(2) as pool,
        pytest.raises(RuntimeError, match=r"NumPy .*, this run .* and 1.0.0: .* Install the same versions"),
    ):
        dot_products(MODEL, 4 * CHUNK, rng=0, executor=pool)
