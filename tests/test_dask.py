"""A real Dask cluster of two worker processes: the same bits, also when a worker is killed in mid-run."""

import os
import signal
import time
import warnings

import pytest

from simulation import QueryKeyModel, dot_products
from simulation.__main__ import main
from simulation.sampling import chunk_pairs

try:
    import distributed
except ImportError:
    distributed = None
    if os.environ.get("CI"):
        raise
pytestmark = [
    pytest.mark.skipif(distributed is None, reason="needs the package distributed: pip install '.[cluster]'"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of sockets to the worker that was killed
]

MODEL = QueryKeyModel(64)
N = 300 * chunk_pairs(64) + 11


@pytest.fixture(scope="module")
def cluster():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        )
    with started:
        yield started


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster, set_as_default=False) as connected:
        yield connected


@pytest.fixture(scope="module")
def expected():
    return dot_products(MODEL, N, rng=3, workers=1)


def test_a_cluster_gives_the_same_bits(client, expected):
    assert dot_products(MODEL, N, rng=3, executor=client.get_executor(), workers=2) == expected


def test_on_the_command_line(cluster, capsys):
    words = ["validate", "--samples", "20000", "--seed", "1", "--json"]
    main(words)
    alone = capsys.readouterr().out
    main([*words, "--dask", cluster.scheduler_address])
    assert capsys.readouterr().out == alone


def test_no_cluster_at_the_address_is_one_clear_line(capsys, monkeypatch):
    monkeypatch.setattr("simulation._commands._CONNECT", "200ms")
    assert main(["validate", "--dask", "tcp://127.0.0.1:1"]) == 2
    assert "`--dask` found no cluster at tcp://127.0.0.1:1" in capsys.readouterr().err


def tasks_known(dask_scheduler):
    return len(dask_scheduler.tasks)


def test_a_stopped_run_leaves_no_work_on_the_cluster(client):
    class StoppedError(Exception):
        pass

    def stop(done, _):
        if done == 3:
            raise StoppedError

    with pytest.raises(StoppedError):
        dot_products(MODEL, N, rng=3, executor=client.get_executor(), workers=2, progress=stop)
    for _ in range(600):  # cancellations travel on their own; the work left would take a fraction of a second
        if not client.run_on_scheduler(tasks_known):
            break
        time.sleep(0.05)
    assert client.run_on_scheduler(tasks_known) == 0


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kills a process the Unix way")
def test_a_worker_killed_in_mid_run_changes_nothing(cluster, client, expected):
    killed = []

    def kill(done, _):
        if done == 20 and not killed:
            victim = next(iter(cluster.workers.values())).process.pid
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)

    result = dot_products(MODEL, N, rng=3, executor=client.get_executor(), workers=2, progress=kill)
    assert killed
    assert result == expected
