"""Command line: ``python -m benchmarks [--quick]`` prints Markdown tables of times, ratios and peak memory."""

import argparse
import math
from statistics import fmean, median

from benchmarks.runs import Runs, compare, import_seconds

OURS = ("this package", "this package, plain", "this package, conditional")


def pairs_table(quick: bool) -> list[str]:
    """Moments and histogram of q·k."""
    lines = [
        "| Moments and histogram of q·k | seconds | processor seconds | time, times ours | peak MB |",
        "|---|---:|---:|---:|---:|",
    ]
    for d_k, full in ((64, 10**6), (1024, 10**5)):
        size = full // 50 if quick else full
        runs = compare("pairs", d_k, size, 3 if quick else 7)
        for name, run in runs.items():
            times = f"{median(run.seconds):.3f} | {median(run.processor):.3f} | {ratio(run, runs[OURS[0]]):.1f}"
            lines.append(f"| {size:,} pairs, d_k = {d_k}: {name} | {times} | {run.megabytes:.0f} |")
    return lines


def decay_table(quick: bool) -> list[str]:
    """E tr J, raw and scaled: time for a row, and time to the same standard error."""
    lines = [
        "| E tr J of 128 keys, raw and scaled | µs a row | processor µs a row | time to the same error, "
        "times our plain | times our conditional | peak MB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for d_k, rows in ((64, 2**15), (4096, 2**12)):
        size = 2048 if quick else rows
        sizes = {"PyTorch, own keys": max(256, (2**15 if quick else 2**20) // d_k), OURS[2]: 2048 if quick else 2**16}
        runs = compare("decay", d_k, size, 2 if quick else 7, sizes=sizes)
        for name, run in runs.items():
            per_row = [1e6 * median(times) / run.numbers[0]["rows"] for times in (run.seconds, run.processor)]
            same_error = [to_same_error(run, runs[ours]) for ours in OURS[1:]]
            cells = [*(f"{x:.2f}" for x in per_row), *(f"{x:.1f}" for x in same_error), f"{run.megabytes:.0f}"]
            lines.append(f"| d_k = {d_k}: {name} | {' | '.join(cells)} |")
    return lines


def others(quick: bool) -> list[str]:
    """Measure what has a fixed limit: the exact grid, the import, memory, accuracy."""
    lines = ["| | measured | wanted |", "|---|---:|---:|"]
    grid = compare("exact", 4096, 0, 0)[OURS[0]].numbers[0]
    lines.append(f"| exact grid, {grid['cells']} cells, in a new process | {grid['grid']:.2f} s | 3 s |")
    lines.append(f"| one exact point more | {1e3 * grid['point']:.1f} ms | 10 ms |")
    for statement in ("import simulation", "from simulation import dot_products"):
        found = import_ratio(statement, 5 if quick else 15)
        lines.append(f"| {statement} / import numpy, scipy.special | {found:.2f} | 1.2 |")
    size = 10**6 if quick else 10**8
    run = alone("pairs", 64, size)
    variance, error = run.numbers[0]["before"][1] / 64 - 1, math.sqrt((2 + 6 / 64) / size)
    lines.append(f"| memory above the import, {size:,} pairs at d_k = 64 | {run.megabytes:.0f} MB | 150 MB |")
    lines.append(f"| Var[q·k] / d_k - 1 in that run | {variance:.1e} ± {error:.1e} | 0 |")
    size = 10**7 if quick else 2 * 10**9
    run = alone("normals", 1, size)
    found = run.numbers[0]
    error = math.sqrt(2 / found["n"])
    lines.append(f"| variance of {found['n']:,} normals - 1 | {found['variance'] - 1:.1e} ± {error:.1e} | 0 |")
    return lines


def alone(item: str, d_k: int, size: int) -> Runs:
    """Run an item once with this package only."""
    return compare(item, d_k, size, 0, only=OURS[:1])[OURS[0]]


def import_ratio(statement: str, repeats: int) -> float:
    """Return the time of an import of this package over that of what it needs, medians of alternating runs."""
    ours, theirs = [], []
    for _ in range(repeats):
        theirs += import_seconds("import numpy, scipy.special", 1)
        ours += import_seconds(statement, 1)
    return median(ours) / median(theirs)


def ratio(run: Runs, ours: Runs) -> float:
    """Return the median over turns of the time taken, as a multiple of ours in the same turn."""
    return median(a / b for a, b in zip(run.seconds, ours.seconds, strict=True))


def to_same_error(run: Runs, ours: Runs) -> float:
    """Return `ratio` of the costs: seconds × squared standard error, the mean over both scorings."""

    def square(one: Runs, scoring: str) -> float:
        return fmean(numbers[scoring][1] ** 2 for numbers in one.numbers)

    efficiency = fmean(square(run, s) / square(ours, s) for s in ("raw", "scaled"))
    return ratio(run, ours) * efficiency


TABLES = {"pairs": pairs_table, "decay": decay_table, "limits": others}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("tables", nargs="*", default=list(TABLES), help=f"which of {', '.join(TABLES)}; all by default")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    asked = parser.parse_args()
    for name in asked.tables:
        if name not in TABLES:
            parser.error(f"tables are {', '.join(TABLES)}; received {name!r}")
        print("\n".join(TABLES[name](asked.quick)), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
