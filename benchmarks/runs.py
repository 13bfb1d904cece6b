"""Runs programs side by side, each in its own process, one job at a time, in turns.

In: an item of work, its size, and how often. Out: for each program the seconds of every job, the
numbers it gave, and its peak memory. Turns are interleaved, so a busy machine is busy for all.
"""

import importlib.util
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.worker import PROGRAMS

ROOT = Path(__file__).parents[1]
_TWO = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_LEFT_OUT = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")  # kernels for another machine than this one


@dataclass
class Runs:
    """What one program did."""

    program: str
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    numbers: list[dict[str, Any]] = field(default_factory=list)
    megabytes: float = 0.0


def installed(item: str) -> list[str]:
    """Return the programs of an item whose libraries are there."""
    return [name for name, (library, _) in PROGRAMS[item].items() if importlib.util.find_spec(library)]


def environment() -> dict[str, str]:
    """Return the environment of a worker: two threads for whatever library it uses."""
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    return {**kept, **dict.fromkeys(_TWO, "2"), "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}


def compare(
    item: str,
    d_k: int,
    size: int,
    repeats: int,
    *,
    sizes: dict[str, int] | None = None,
    only: tuple[str, ...] = (),
) -> dict[str, Runs]:
    """Run an item `repeats` times with every program in turn, after one job each to warm up.

    Without repeats the only job counts, and there is no warming up.

    Parameters
    ----------
    sizes : dict, optional
        Other sizes than `size` for some of the programs.
    only : tuple of str
        Programs to run; all by default.
    """
    runs = {name: Runs(name) for name in installed(item) if name in (only or PROGRAMS[item])}
    with ExitStack() as stack:
        workers = {name: stack.enter_context(_Worker(item, name)) for name in runs}
        for seed in range(repeats + 1):
            for name, worker in workers.items():
                answer = worker.ask([d_k, (sizes or {}).get(name, size), seed])
                if seed or repeats == 0:
                    runs[name].seconds.append(answer["seconds"])
                    runs[name].processor.append(answer["processor"])
                    runs[name].numbers.append(answer["numbers"])
                runs[name].megabytes = answer["megabytes"]
    return runs


class _Worker:
    """A process that answers jobs; a context manager that ends it."""

    def __init__(self, item: str, name: str) -> None:
        self._command = [sys.executable, "-m", "benchmarks.worker", item, name]

    def __enter__(self) -> "_Worker":
        self._process = subprocess.Popen(  # noqa: S603 - this very package
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment()
        )
        return self

    def ask(self, job: list[int]) -> dict[str, Any]:
        """Hand over one job and wait for its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101, PT018 - both are pipes
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self._command)} ended without an answer.")
        return dict(json.loads(line))

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def import_seconds(statement: str, repeats: int) -> list[float]:
    """Return the seconds that a new interpreter takes to run `statement`, itself not counted."""
    code = f"import time; t = time.perf_counter()\n{statement}\nprint(time.perf_counter() - t)"
    found = []
    for _ in range(repeats):
        done = subprocess.run(  # noqa: S603 - this very package
            [sys.executable, "-c", code], cwd=ROOT, env=environment(), capture_output=True, text=True, check=True
        )
        found.append(float(done.stdout))
    return found
