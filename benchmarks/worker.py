"""One program in a process of its own: reads jobs from standard input, a line of JSON each, and times them.

A job is ``[d_k, size, seed]``; the answer ``{"seconds", "processor", "numbers", "megabytes"}``:
processor time counts all threads, memory is the most that the process has held above what it held when
its libraries were imported.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import ours, rivals

Program = Callable[[int, int, int], dict[str, Any]]

# item → program → (module to import first, function; for JAX a function that returns it)
PROGRAMS: dict[str, dict[str, tuple[str, Callable[..., Any]]]] = {
    "pairs": {
        "this package": ("simulation.experiments", ours.pairs),
        "NumPy": ("numpy", rivals.numpy_pairs),
        "PyTorch": ("torch", rivals.torch_pairs),
        "JAX": ("jax", rivals.jax_pairs),
    },
    "decay": {
        "this package, plain": ("simulation.decay", ours.decay_plain),
        "this package, conditional": ("simulation.decay", ours.decay_conditional),
        "NumPy, heads": ("numpy", rivals.numpy_decay),
        "PyTorch, heads": ("torch", rivals.torch_decay),
        "PyTorch, own keys": ("torch", rivals.torch_decay_own_keys),
        "JAX, heads": ("jax", rivals.jax_decay),
    },
    "exact": {"this package": ("simulation.row_theory", ours.exact_grid)},
    "normals": {"this package": ("simulation.normals", ours.normals)},
}


def program_of(item: str, name: str) -> Program:
    """Return the program, its library imported."""
    library, function = PROGRAMS[item][name]
    module = importlib.import_module(library)
    if library == "torch":
        module.set_num_threads(2)
    return function() if library == "jax" else function


def held() -> tuple[float, float]:
    """Return the memory held now and the most held so far, in MB; zeros where /proc does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0.0, 0.0
    fields = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
    now, peak = (int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return now, peak


def main(item: str, name: str) -> None:
    """Answer jobs until there are no more."""
    program, (base, _) = program_of(item, name), held()
    for line in sys.stdin:
        job = json.loads(line)
        start, busy = time.perf_counter(), time.process_time()
        numbers = program(*job)
        answer = {"seconds": time.perf_counter() - start, "processor": time.process_time() - busy}
        print(json.dumps({**answer, "numbers": numbers, "megabytes": held()[1] - base}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
