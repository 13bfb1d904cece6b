"""The footnote's experiment over a ladder of head dimensions: Var[q·k] against d_k.

In: a ladder of d_k and a number of samples for each. Out: one result for each rung, as it comes
or all together, and the slopes of ln Var against ln d_k.
"""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np

from simulation._validation import ladder_of
from simulation.checkpoints import Checkpoint, CheckpointFile, seed_for
from simulation.experiments import CLAIMS, dot_products
from simulation.model import QueryKeyModel
from simulation.parallel import Progress
from simulation.results import DotProductResult, SweepResult, versions
from simulation.sampling import Seed, child_seed
from simulation.statistics import Estimate, normal_quantile

DEFAULT_LADDER = (1, 4, 16, 64, 256, 1024)
SWEEP_SAMPLES = 100_000
SWEEP_TOLERANCE = 0.05  # a ladder shows a law over decades; 1 % at every rung would take minutes


def sweep_rung(
    model: QueryKeyModel,
    n_samples: int | None,
    seed: int,
    *,
    rungs: int,
    tolerance: float = SWEEP_TOLERANCE,
    **options: Any,
) -> DotProductResult:
    """Return one rung of a sweep of `rungs` rungs; its stream depends on the seed and its d_k only."""
    rng = child_seed(seed, model.d_k)
    return dot_products(model, n_samples, rng=rng, tolerance=tolerance, simultaneous=CLAIMS * rungs, **options)


def iter_sweep(
    d_k: Sequence[int] = DEFAULT_LADDER,
    n_samples: int | None = None,
    *,
    precision: float | None = None,
    rng: Seed = None,
    progress: Progress | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    checkpoint: CheckpointFile | None = None,
    confidence: float = 0.95,
    tolerance: float = SWEEP_TOLERANCE,
    **departures: Any,
) -> Iterator[DotProductResult]:
    """Yield the results of `sweep` one by one, as they come; arguments as there."""
    models = [QueryKeyModel(rung, **departures) for rung in ladder_of(d_k)]
    seed = seed_for(rng, checkpoint)
    kept = checkpoint and Checkpoint.open(checkpoint, {"ladder": [model.d_k for model in models], "seed": seed})
    options: dict[str, Any] = {"tolerance": tolerance, "confidence": confidence, "precision": precision}
    options |= {"workers": workers, "executor": executor, "progress": progress, "checkpoint": kept}
    n = SWEEP_SAMPLES if n_samples is None and precision is None else n_samples
    return (sweep_rung(model, n, seed, rungs=len(models), **options) for model in models)


def sweep(
    d_k: Sequence[int] = DEFAULT_LADDER, n_samples: int | None = None, *, rng: Seed = None, **options: Any
) -> SweepResult:
    """Run `dot_products` over a ladder of head dimensions, each with its own independent stream.

    Parameters
    ----------
    d_k : sequence of int
        The ladder, all different. The stream of a rung depends on the seed and its d_k only.
    n_samples : int, optional
        Pairs for each rung; 100,000 by default.
    rng : int, SeedSequence, Generator or None
        Seed; None draws one, and the result reports it.
    **options
        Departures of `QueryKeyModel` (``entries``, ``q_mean``, …) and ``confidence``,
        ``tolerance`` (0.05 here), ``precision``, ``workers``, ``executor``, ``progress``,
        ``checkpoint`` of `dot_products`; one checkpoint file holds all rungs. Intervals are
        simultaneous over the claims of all rungs.

    Returns
    -------
    SweepResult

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    Examples
    --------
    >>> result = sweep([1, 16, 256], 20_000, rng=0)
    >>> abs(result.slope_before.estimate - 1) < 4 * result.slope_before.standard_error
    True
    """
    seed = seed_for(rng, options.get("checkpoint"))
    return collect_sweep(list(iter_sweep(d_k, n_samples, rng=seed, **options)), seed)


def collect_sweep(results: Sequence[DotProductResult], seed: int) -> SweepResult:
    """Return the `SweepResult` of rungs measured so far, at least one."""
    return SweepResult(
        tuple(results),
        seed,
        _slope([r.before.variance for r in results], results),
        _slope([r.after.variance for r in results], results),
        versions(),
    )


def _slope(variances: Sequence[Estimate], results: Sequence[DotProductResult]) -> Estimate | None:
    """Weighted least squares of ln Var on ln d_k; weights from the relative standard errors."""
    if len(results) < 2 or any(v.standard_error in (None, 0.0) or not v.exact or v.estimate <= 0 for v in variances):
        return None
    x = np.log([r.model.d_k for r in results])
    relative = np.array([v.standard_error or math.nan for v in variances]) / np.array([v.exact or 1 for v in variances])
    weight = 1 / relative**2
    centred = x - np.average(x, weights=weight)
    leverage = weight * centred / float(np.sum(weight * centred**2))
    slope = float(leverage @ np.log([v.estimate for v in variances]))
    exact = round(float(leverage @ np.log([v.exact or 1 for v in variances])), 12)
    error = float(np.sqrt(np.sum((leverage * relative) ** 2)))
    z = normal_quantile(results[0].confidence)
    return Estimate(slope, error, (slope - z * error, slope + z * error), exact)
