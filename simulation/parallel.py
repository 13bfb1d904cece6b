"""The loop that runs chunks side by side: threads, processes, a Dask cluster or MPI.

In: a task, what to call it with, and any `concurrent.futures.Executor`. Out: its results in order,
a bounded number of them in flight. Chunks travel in groups fixed by the work alone, each merged in
order where it was drawn, so the bits are the same wherever a run takes place.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Executor, Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from simulation._validation import shown, whole_number
from simulation.results import __version__

Item = TypeVar("Item")
T = TypeVar("T")

Progress = Callable[[int, int], None]
Group = tuple[int, int]  # chunks first, first + 1, … stop - 1
Crew = tuple[int, Executor | None]  # how many workers to keep busy, and of which executor

GROUPS = 256  # a run is cut into about this many groups, until they reach their largest size
MAX_GROUP = 512  # chunks: some seconds of work, so that 1,000 workers ask for some hundred tasks a second
IN_FLIGHT = 4  # tasks for each worker that are drawn, wait to be drawn, or wait to be merged
_WORKERS_UNTOLD = 64  # of an executor that does not say how many it has
_VERSIONS = (__version__, np.__version__)
_ATTEMPTS = 4  # of a task whose worker died
_DEATHS = ("KilledWorker", "LostWorker")  # Dask's, by name: importing it here would make it a requirement


def worker_count(workers: int | None, executor: Executor | None = None) -> int:
    """Return how many workers to keep busy.

    Threads: as asked, or one for each core this process may use (at most 8). With an `executor`:
    as asked, up to 100,000, or 64, which is enough to keep 128 workers busy.

    Raises
    ------
    TypeError
        If `executor` is no `concurrent.futures.Executor`.
    """
    if executor is not None:
        if not isinstance(executor, Executor):
            raise TypeError(
                "`executor` must be a concurrent.futures.Executor (of a Dask client: client.get_executor()); "
                f"received {shown(executor)}."
            )
        return _WORKERS_UNTOLD if workers is None else whole_number("workers", workers, 1, 100_000)
    if workers is not None:
        return whole_number("workers", workers, 1, 256)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, 8)


def crew_of(workers: int | None, executor: Executor | None) -> Crew:
    """Return the checked workers and executor of a run, as `results_of` takes them."""
    return worker_count(workers, executor), executor


def group_size(chunks: int) -> int:
    """Return how many chunks make one group of a run of `chunks`: fixed by the work alone.

    Examples
    --------
    >>> group_size(400), group_size(5000), group_size(10**9)
    (1, 19, 512)
    """
    return min(MAX_GROUP, max(1, chunks // GROUPS))


def groups(chunks: int, *, first: int = 0, size: int | None = None) -> Iterator[Group]:
    """Yield the groups of a run of `chunks`, from chunk `first` on, which begins a group.

    Examples
    --------
    >>> list(groups(5, size=2)), list(groups(5, first=2, size=2))
    ([(0, 2), (2, 4), (4, 5)], [(2, 4), (4, 5)])
    """
    step = group_size(chunks) if size is None else size
    return ((start, min(start + step, chunks)) for start in range(first, chunks, step))


def in_order(
    task: Callable[[int], T], count: int, workers: int, executor: Executor | None = None
) -> Generator[T, None, None]:
    """Yield task(0), task(1), … task(count - 1) in order; see `results_of`."""
    return results_of(task, range(count), min(workers, max(count, 1)), executor)


def results_of(
    task: Callable[[Item], T], items: Iterable[Item], workers: int, executor: Executor | None = None
) -> Generator[T, None, None]:
    """Yield task(item) for all items in order, with at most 4 × `workers` of them in flight.

    Closing the iterator (or an exception in the loop that reads it) cancels what has not begun and
    waits for what has, so a run that is stopped leaves no work behind. An `executor` is left open.

    Parameters
    ----------
    task : callable
        For processes and clusters it must pickle: a function of a module, or a `partial` of one.
    items : iterable
        Read as they are needed, so there may be 10**9 of them.
    workers : int
        Threads when there is no `executor`; 1 runs in this thread.
    executor : concurrent.futures.Executor, optional
        A task that fails because its worker died is submitted again, up to three times.
    """
    if executor is not None:
        yield from _through(executor, task, items, IN_FLIGHT * workers)
    elif workers == 1:
        yield from map(task, items)
    else:
        from concurrent.futures import ThreadPoolExecutor  # some milliseconds, paid by the first run

        with ThreadPoolExecutor(workers, thread_name_prefix="simulation") as pool:
            yield from _through(pool, task, items, IN_FLIGHT * workers)


@dataclass
class _Submitted:
    """One task on its way: what it was called with, and how often."""

    call: Callable[[int], "Future[Any]"]
    future: "Future[Any]"
    attempts: int = 1

    def result(self) -> Any:
        """Return the result, after submitting the task again if its worker died."""
        while True:
            try:
                return self.future.result()
            except Exception as error:
                if self.attempts == _ATTEMPTS or not _worker_died(error):
                    raise
                self.future = self.call(self.attempts)
                self.attempts += 1


def _through(
    executor: Executor, task: Callable[[Item], T], items: Iterable[Item], in_flight: int
) -> Generator[T, None, None]:
    pending: deque[_Submitted] = deque()
    try:
        for item in items:
            if len(pending) >= in_flight:
                yield _first_of(pending)

            def call(attempt: int, item: Item = item) -> "Future[T]":
                return executor.submit(_attempt, task, item, attempt, _VERSIONS)

            pending.append(_Submitted(call, call(0)))
        while pending:
            yield _first_of(pending)
    finally:
        wait([submitted.future for submitted in pending if not submitted.future.cancel()])


def _first_of(pending: deque[_Submitted]) -> Any:
    """Return the result of the first task, which is no longer pending then."""
    result = pending[0].result()
    pending.popleft()
    return result


def _attempt(task: Callable[[Item], T], item: Item, attempt: int, versions: tuple[str, str]) -> T:
    """Run a task. The attempt's number makes it another call to Dask, which remembers a failed one."""
    del attempt
    if versions != _VERSIONS:
        raise RuntimeError(
            f"a worker has simulation {_VERSIONS[0]} and NumPy {_VERSIONS[1]}, this run {versions[0]} and "
            f"{versions[1]}: its numbers could differ. Install the same versions on all workers."
        )
    return task(item)


def _worker_died(error: Exception) -> bool:
    return isinstance(error, CancelledError) or type(error).__name__ in _DEATHS
