"""Softmax in low precision: how often a row's gradient rounds to exactly zero.

In: head dimensions, numbers of keys, number formats. Out: the share of rows whose weights, really
rounded to the format, are one-hot (so that diag(y) - y yᵀ is exactly 0), beside the exact chance
that the two largest logits are too far apart.
"""

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from simulation._validation import one_of, shown, whole_number
from simulation.attention_heads import draw_rows
from simulation.decay_rows import MAX_KEYS
from simulation.decay_theory import gap_exceeds
from simulation.formatting import plus_minus, significant
from simulation.model import QueryKeyModel
from simulation.parallel import Crew, Progress, crew_of, in_order
from simulation.results import FlatRecords, versions
from simulation.sampling import Seed, child_seed, seed_of
from simulation.scoring import SCORINGS, scale_factor
from simulation.softmax import softmax

FloatArray = npt.NDArray[np.float64]

# A weight rounds to 0 below half the smallest subnormal, 2**-bits: then the gap exceeds bits * ln 2.
ZERO_BITS = {"float16": 25, "bfloat16": 134, "float32": 150}
FORMATS = tuple(ZERO_BITS)
_CHUNK = 2**18
_SMALLEST_CHANCE = 1e-12  # what the exact chance is good to


@dataclass(frozen=True)
class LowPrecisionRecord:
    """Share of rows whose gradient is exactly zero, its standard error, and the exact chance."""

    d_k: int
    n_keys: int
    scoring: str
    number_format: str
    share: float
    standard_error: float
    exact: float


@dataclass(frozen=True)
class LowPrecisionResult(FlatRecords["LowPrecisionRecord"]):
    """What `low_precision` measured."""

    records: tuple[LowPrecisionRecord, ...]
    n_rows: int
    seed: int
    versions: dict[str, str]

    def __str__(self) -> str:
        """Return a table of the records."""
        lines = [f"share of {self.n_rows:,} rows whose gradient rounds to exactly 0, seed {self.seed}"]
        lines += [
            f"d_k {r.d_k:>8} keys {r.n_keys:>5} {r.scoring:<11} {r.number_format:<9} "
            f"{plus_minus(r.share, r.standard_error):<24} exact "
            + (significant(r.exact) if r.exact >= _SMALLEST_CHANCE else f"below {_SMALLEST_CHANCE:g}")
            for r in self.records
        ]
        return "\n".join(lines)


def low_precision(
    d_k: Sequence[int],
    n_keys: Sequence[int] = (128,),
    *,
    n_rows: int = 20_000,
    formats: Sequence[str] = FORMATS,
    rng: Seed = None,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> LowPrecisionResult:
    """Measure how often softmax rows of normal q and k have an exactly zero gradient when rounded.

    Parameters
    ----------
    d_k, n_keys : sequence of int
        All combinations are measured, each with its own stream.
    n_rows : int
        Independent rows for each, from 100 to 10,000,000.
    formats : sequence of {"float16", "bfloat16", "float32"}
    rng, workers, executor, progress
        As for `gradient_decay`.

    Returns
    -------
    LowPrecisionResult
        The standard error of a share is the binomial one at the exact chance.

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    Examples
    --------
    >>> record = low_precision([64], [2], n_rows=2000, formats=["float16"], rng=0).records[0]
    >>> round(record.exact, 3), abs(record.share - record.exact) < 4 * record.standard_error
    (0.125, True)
    """
    cells = [(d, n) for d in d_k for n in n_keys]
    if not cells:
        raise ValueError(f"`d_k` and `n_keys` must each hold at least one number; received {shown((d_k, n_keys))}.")
    models = {d: QueryKeyModel(d) for d in d_k}
    keys = {n: whole_number("n_keys", n, 2, MAX_KEYS) for n in n_keys}
    names = [one_of("formats", name, FORMATS) for name in formats]
    rows, seed = whole_number("n_rows", n_rows, 100, 10**7), seed_of(rng)
    crew = crew_of(workers, executor)
    records: list[LowPrecisionRecord] = []
    for done, (d, n) in enumerate(cells, start=1):
        records += _cell(models[d], keys[n], rows, names, child_seed(seed, d, n), crew)
        if progress is not None:
            progress(done, len(cells))
    return LowPrecisionResult(tuple(records), rows, seed, versions())


def _cell(
    model: QueryKeyModel, n: int, rows: int, formats: Sequence[str], seed: int, crew: Crew
) -> list[LowPrecisionRecord]:
    size = max(1, _CHUNK // n)
    counts: dict[tuple[str, str], int] = {(scoring, name): 0 for scoring in SCORINGS for name in formats}
    task = partial(_count_zero, model, n, rows, size, formats, seed)
    for part in in_order(task, math.ceil(rows / size), *crew):
        for key, count in part.items():
            counts[key] += count
    records = []
    for (scoring, name), count in counts.items():
        threshold = ZERO_BITS[name] * math.log(2)
        exact = gap_exceeds(n, model.d_k, threshold, scale=scale_factor(scoring, model.d_k))
        chance = min(max(exact, _SMALLEST_CHANCE), 1 - _SMALLEST_CHANCE)
        error = math.sqrt(chance * (1 - chance) / rows)
        records.append(LowPrecisionRecord(model.d_k, n, scoring, name, count / rows, error, exact))
    return records


def _count_zero(
    model: QueryKeyModel, n: int, rows: int, size: int, formats: Sequence[str], seed: int, index: int
) -> dict[tuple[str, str], int]:
    drawn = draw_rows(model, np.random.SeedSequence(seed, spawn_key=(index,)), size, n)
    logits = drawn[: rows - index * size].astype(np.float64)
    counts: dict[tuple[str, str], int] = {}
    for scoring in SCORINGS:
        weights = softmax(scale_factor(scoring, model.d_k) * logits)
        for name in formats:
            counts[scoring, name] = int(zero_gradient(round_to(weights, name)).sum())
    return counts


def round_to(values: npt.ArrayLike, number_format: str) -> FloatArray:
    """Return float64 values rounded to the nearest number of a format (ties to even), as float64.

    Examples
    --------
    >>> round_to([1 + 2**-9, 1e-8], "bfloat16").tolist(), round_to([1e-8], "float16").tolist()
    ([1.0, 1.0011717677116394e-08], [0.0])
    """
    x = np.asarray(values, dtype=np.float64)
    if number_format == "float16":
        return x.astype(np.float16).astype(np.float64)
    if number_format == "float32":
        return x.astype(np.float32).astype(np.float64)
    step = np.ldexp(1.0, np.maximum(np.frexp(x)[1] - 8, -133))  # rounded once: by way of float32 it would be twice
    rounded = np.rint(x / step) * step
    return np.where(np.abs(rounded) >= 2.0**128, np.copysign(np.inf, x), rounded)


def zero_gradient(weights: FloatArray) -> npt.NDArray[np.bool_]:
    """Return which rows have an exactly zero Jacobian diag(y) - y yᵀ: all weights are 0 or 1.

    `weights` has shape (rows, n), already rounded.
    """
    return np.asarray(np.all((weights == 0) | (weights == 1), axis=-1))
