"""The footnote's experiment: a few lines over sampling, scoring, statistics, theory and verdicts.

In: a model and a number of samples. Out: a result with an error bar and an exact value for every
number, and the verdicts on the footnote's claims.
"""

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from simulation._validation import MAX_SAMPLES, real_number, shown, whole_number
from simulation.checkpoints import Checkpoint, CheckpointFile, part_of, seed_for
from simulation.histograms import Histogram, chi_square_fit
from simulation.model import Moments, QueryKeyModel
from simulation.pair_summary import PairSummary, merged
from simulation.parallel import Group, Progress, crew_of, group_size
from simulation.precision import Precision, pairs_for
from simulation.results import DotProductResult, Fit, MomentEstimates, versions
from simulation.sampling import Seed, chunk_pairs, draw_pairs, stream
from simulation.scoring import drawn_dot, scale_factor
from simulation.statistics import STATISTICS, Estimate, MomentState, standard_errors
from simulation.theory import DotProductLaw, distance_to_normal
from simulation.verdicts import DEFAULT_TOLERANCE, Claim, Rule

CLAIMS = 4
DEFAULT_SAMPLES = 1_000_000
LIMIT = 10**9  # pairs that a wish for precision may take
_BINS = 120
_REACH = 6.0  # the histogram spans this many standard deviations on each side of the mean


def dot_products(
    model: QueryKeyModel,
    n_samples: int | None = None,
    *,
    precision: float | None = None,
    max_samples: int = LIMIT,
    rng: Seed = None,
    scale: float | None = None,
    confidence: float = 0.95,
    tolerance: float = DEFAULT_TOLERANCE,
    simultaneous: int = CLAIMS,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    checkpoint: Checkpoint | CheckpointFile | None = None,
) -> DotProductResult:
    """Draw pairs q, k and measure q·k before and after scaling, beside the exact values.

    Parameters
    ----------
    model : QueryKeyModel
        What is assumed of q and k.
    n_samples : int, optional
        Number of independent pairs, from 2 to 10**12; a million by default.
    precision : float, optional
        In place of `n_samples`: the relative standard error wanted of Var[q·k]. It is known exactly
        beforehand, so the number of pairs follows, in whole chunks; `result.precision` says it.
    max_samples : int
        Most pairs that `precision` may take.
    rng : int, SeedSequence, Generator or None
        Seed; None draws one, and the result reports it.
    scale : float, optional
        Factor on q·k in the `after` stage; 1/sqrt(d_k) by default.
    confidence : float
        Level at which all `simultaneous` intervals hold together.
    tolerance : float
        What counts as agreement, relative: to the claimed value for a variance, to the claimed
        standard deviation for a mean.
    simultaneous : int
        Number of claims shown together (Bonferroni); the four of the footnote by default.
    workers : int, optional
        Threads; one for each core by default. With an `executor`, how many workers to keep busy
        (64 by default). The result does not depend on it.
    executor : concurrent.futures.Executor, optional
        Where to draw in place of threads: processes, a Dask client's ``get_executor()``,
        ``mpi4py.futures``. The result does not depend on it, to the last bit.
    progress : callable, optional
        Called with (chunks done, chunks in all), in this thread; an exception in it ends the run.
    checkpoint : path, optional
        File that keeps the state of the run, and from which a run that was stopped goes on to the
        same bits. It refuses to go on with another question; with `rng` None it keeps its seed.

    Returns
    -------
    DotProductResult
        Mean, variance, skewness, kurtosis of q·k before and after scaling and of one component
        product q_i k_i (one from each pair, cycling through i), each with Monte Carlo standard
        error (from the model's exact moments), interval and exact value; a histogram; the fit;
        and the four claims of the footnote with their verdicts.

    Raises
    ------
    ValueError
        If an argument breaks its rule, or a checkpoint cannot be continued; TypeError if `model` is
        no `QueryKeyModel` or `executor` no executor.

    Notes
    -----
    Holds one chunk of q and k (4 MB; 8 MB at d_k = 10**6) for each worker, whatever `n_samples`.
    Products q_i k_i are rounded as the draws are (float32), their sums are float64.

    References
    ----------
    Vaswani et al. (2017), footnote 4, arXiv:1706.03762.

    Examples
    --------
    >>> result = dot_products(QueryKeyModel(64), 500_000, rng=0)
    >>> [claim.verdict for claim in result.claims]
    ['confirmed', 'confirmed', 'confirmed', 'confirmed']
    >>> abs(result.before.variance.estimate - 64) < 4 * result.before.variance.standard_error
    True
    """
    if not isinstance(model, QueryKeyModel):
        raise TypeError(f"`model` must be a QueryKeyModel; received {shown(model)}.")
    n, reached = _size(model, n_samples, precision, max_samples)
    factor = scale_factor("scaled_dot", model.d_k) if scale is None else real_number("scale", scale, 1e-12, 1e6)
    rule = Rule(
        real_number("tolerance", tolerance, 0, 1, open_low=True),
        real_number("confidence", confidence, 0.5, 0.999999),
        whole_number("simultaneous", simultaneous, 1, 10**6),
        n,
    )
    seed, crew = seed_for(rng, checkpoint), crew_of(workers, executor)

    part = part_of(checkpoint, f"d_k = {model.d_k}", _question(model, n, seed, factor))
    edges, count = Histogram.empty(_edges(model)), math.ceil(n / chunk_pairs(model.d_k))
    total = merged(partial(_group, model, n, seed, factor, edges), count, edges, crew, progress, part)
    return _result(model, total, seed, factor, rule, reached)


def _result(
    model: QueryKeyModel, total: PairSummary, seed: int, factor: float, rule: Rule, reached: Precision | None
) -> DotProductResult:
    """Set what was drawn beside the exact values."""
    exact, shape = model.moments(), model.standardised_moments()
    before = _estimates(total.before, exact, shape, 1.0, rule.z)
    after = _estimates(total.after, exact, shape, factor, rule.z)
    exact, shape = model.component_moments(), model.standardised_moments(component=True)
    return DotProductResult(
        model=model,
        n_samples=total.before.n,
        seed=seed,
        confidence=rule.confidence,
        simultaneous=rule.simultaneous,
        scale=factor,
        claims=_footnote_claims(model.d_k, before, after, rule),
        before=before,
        after=after,
        component=_estimates(total.component, exact, shape, 1.0, rule.z),
        histogram=total.histogram,
        fit=_fit(model, total.histogram),
        versions=versions(),
        precision=reached,
    )


def _size(
    model: QueryKeyModel, n_samples: int | None, precision: float | None, max_samples: int
) -> tuple[int, Precision | None]:
    """Return how many pairs to draw, and the precision that they give if one was asked for."""
    if precision is None:
        return whole_number("n_samples", DEFAULT_SAMPLES if n_samples is None else n_samples, 2, MAX_SAMPLES), None
    if n_samples is not None:
        raise ValueError(f"`n_samples` must be left out when `precision` is given; received {shown(n_samples)}.")
    return pairs_for(model, precision, chunk_pairs(model.d_k), whole_number("max_samples", max_samples, 2, MAX_SAMPLES))


def _question(model: QueryKeyModel, n: int, seed: int, factor: float) -> dict[str, Any]:
    """Return all that the drawn numbers and their sums depend on, for a checkpoint."""
    chunk = chunk_pairs(model.d_k)
    stamps = {f"{name} version": version for name, version in versions().items() if name in ("simulation", "numpy")}
    layout = {"chunk": chunk, "group": group_size(math.ceil(n / chunk)), "bins": _BINS}
    return {**vars(model), "n_samples": n, "seed": seed, "scale": factor, **layout, **stamps}


def _group(model: QueryKeyModel, n: int, seed: int, factor: float, edges: Histogram, group: Group) -> PairSummary:
    """Draw the chunks of one group and merge them in order."""
    return reduce(PairSummary.merge, (_chunk(model, n, seed, factor, edges, index) for index in range(*group)))


def drawn_chunk(
    model: QueryKeyModel, n: int, seed: int, index: int
) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.float64]]:
    """Draw chunk `index` whole and return `drawn_dot` of its pairs among the first n."""
    size = chunk_pairs(model.d_k)
    q, k = draw_pairs(model, stream(seed, index), size)
    left = n - index * size
    return drawn_dot(q[:left], k[:left])


def _chunk(model: QueryKeyModel, n: int, seed: int, factor: float, edges: Histogram, index: int) -> PairSummary:
    """Summarise the pairs of chunk `index` among the first n."""
    products, logits = drawn_chunk(model, n, seed, index)
    pairs = np.arange(len(products))
    first = index * chunk_pairs(model.d_k)
    component = products.ravel().take(pairs * model.d_k + (first + pairs) % model.d_k)
    before, after, single = MomentState.of_each(np.stack([logits, logits * factor, component]))
    return PairSummary(before, after, single, edges.add(logits))


def _edges(model: QueryKeyModel) -> npt.NDArray[np.float64]:
    moments = model.moments()
    spread = math.sqrt(moments.variance) if 0 < moments.variance < math.inf else math.sqrt(model.d_k)
    return moments.mean + spread * np.linspace(-_REACH, _REACH, _BINS + 1)


def _estimates(state: MomentState, exact: Moments, shape: Sequence[float], factor: float, z: float) -> MomentEstimates:
    """Return the four estimates of factor * X, where `exact` and `shape` are those of X."""
    variance = exact.variance * factor**2
    values = Moments(exact.mean * factor, variance, exact.skewness, exact.kurtosis)
    errors = standard_errors(shape, variance, state.n)
    return MomentEstimates(
        **{name: _estimate(name, getattr(state, name), errors[name], getattr(values, name), z) for name in STATISTICS}
    )


def _estimate(name: str, value: float, error: float, exact: float, z: float) -> Estimate:
    known = exact if math.isfinite(exact) else None
    if math.isnan(value):
        return Estimate(value, None, None, known, f"a constant has no {name}")
    if not math.isfinite(error):
        reason = "no finite standard error, so no interval" if known is not None else "no finite exact value"
        return Estimate(value, None, None, known, f"the {name} of this law has {reason}")
    low = value - z * error
    if name in ("variance", "kurtosis"):
        low = max(low, 0.0)
    return Estimate(value, error, (low, value + z * error), known)


def _footnote_claims(d_k: int, before: MomentEstimates, after: MomentEstimates, rule: Rule) -> tuple[Claim, ...]:
    """Hold the footnote's four values (0, d_k, 0, 1) against the estimates, whatever the model."""
    return (
        rule.hold("E[q·k]", "q·k has mean 0", 0.0, math.sqrt(d_k), before.mean),
        rule.hold("Var[q·k]", f"q·k has variance d_k = {d_k}", float(d_k), float(d_k), before.variance),
        rule.hold("E[q·k/√d_k]", "after scaling the mean is 0", 0.0, 1.0, after.mean),
        rule.hold("Var[q·k/√d_k]", "after scaling the variance is 1", 1.0, 1.0, after.variance),
    )


def exact_law(model: QueryKeyModel, scale: float = 1.0) -> DotProductLaw | None:
    """Return the exact law of ``scale * q·k``, or None where it has no closed form here."""
    if not model.has_exact_law:
        return None
    return DotProductLaw(model.d_k, scale * model.q_std * model.k_std, model.correlation)


def _fit(model: QueryKeyModel, histogram: Histogram) -> Fit:
    moments, law, n = model.moments(), exact_law(model), histogram.n
    inside = np.concatenate([[histogram.underflow], histogram.counts])
    cumulative = np.cumsum(inside) / n
    measured = None
    if 0 < moments.variance < math.inf:
        normal = special.ndtr((histogram.edges - moments.mean) / math.sqrt(moments.variance))
        measured = float(np.abs(cumulative - normal).max())
    noise = math.sqrt(math.log(2 / 0.05) / (2 * n))  # Dvoretzky-Kiefer-Wolfowitz, Massart's constant
    if law is None:
        return Fit(None, None, None, None, measured, noise)
    below = law.cdf(histogram.edges)
    probabilities = np.concatenate([below[:1], np.diff(below), law.sf(histogram.edges[-1:])])
    test = chi_square_fit(np.concatenate([inside, [histogram.overflow]]), probabilities)
    distance = distance_to_normal(model.d_k) if model.correlation == 0 else None
    return Fit(test["statistic"], test["degrees_of_freedom"], test["p_value"], distance, measured, noise)
