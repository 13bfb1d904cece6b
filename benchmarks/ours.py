"""The same work items done by this package."""

import time
from functools import partial
from typing import Any

Numbers = dict[str, Any]
GRID_KEYS = (2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
GRID_D_K = (1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_CHUNK = 2**17


def pairs(d_k: int, size: int, seed: int) -> Numbers:
    """Moments and histogram of q·k before and after scaling."""
    from simulation import QueryKeyModel, dot_products
    from simulation.statistics import STATISTICS

    found = dot_products(QueryKeyModel(d_k), size, rng=seed, workers=2)
    stages = {"before": found.before, "after": found.after}
    moments = {name: [getattr(stage, s).estimate for s in STATISTICS] for name, stage in stages.items()}
    return {**moments, "counts": found.histogram.counts.tolist()}


def decay_plain(d_k: int, rows: int, seed: int) -> Numbers:
    """E tr J of rows, raw and scaled, every component of q and k drawn."""
    return _decay(d_k, rows, seed, "plain")


def decay_conditional(d_k: int, rows: int, seed: int) -> Numbers:
    """E tr J of rows, raw and scaled, logits drawn given the lengths of the queries."""
    return _decay(d_k, rows, seed, "conditional")


def _decay(d_k: int, rows: int, seed: int, sampler: str) -> Numbers:
    from simulation import gradient_decay

    found = gradient_decay(
        [d_k],
        128,
        n_rows=max(rows, 2048),
        rng=seed,
        quantities=["trace"],
        statistics=["mean"],
        sampler=sampler,
        workers=2,
    )
    by_scoring = {record.scoring: [record.estimate, record.standard_error] for record in found.records}
    return {"raw": by_scoring["dot"], "scaled": by_scoring["scaled_dot"], "rows": found.n_rows}


def exact_grid(d_k: int, size: int, seed: int) -> Numbers:
    """Exact expectations of rows for 11 numbers of keys and heads up to `d_k`, raw and scaled; and one row more."""
    del size, seed
    from simulation.row_theory import attention_row

    ladder = [d for d in GRID_D_K if d <= d_k]
    start = time.perf_counter()
    cells = [
        attention_row(n, d, scale=s).trace for n in GRID_KEYS for d in ladder for s in ((None, 1) if d > 1 else (1,))
    ]
    middle = time.perf_counter()
    attention_row(100, 3 * d_k)  # met for the first time
    return {"cells": len(cells), "first": cells[0], "grid": middle - start, "point": time.perf_counter() - middle}


def normals(d_k: int, size: int, seed: int) -> Numbers:
    """Mean and variance of `size` normals, by chunks of their own streams."""
    del d_k
    from simulation.parallel import in_order
    from simulation.statistics import MomentState

    total = MomentState()
    for state in in_order(partial(_normals_chunk, seed), max(1, size // _CHUNK), 2):
        total = total.merge(state)
    return {"n": total.n, "mean": total.mean, "variance": total.variance}


def _normals_chunk(seed: int, index: int) -> Any:
    from simulation.normals import standard_normals
    from simulation.sampling import stream
    from simulation.statistics import MomentState

    return MomentState.of(standard_normals(stream(seed, index), _CHUNK))
