"""The footnote's experiment: a few lines over sampling, scoring, statistics, theory and verdicts.

In: a model and a number of samples. Out: a result with an error bar and an exact value for every
number, and the verdicts on the footnote's claims.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import special

from simulation._validation import MAX_SAMPLES, real_number, shown, whole_number
from simulation.histograms import Histogram, chi_square_fit
from simulation.model import Moments, QueryKeyModel
from simulation.results import DotProductResult, Fit, MomentEstimates, versions
from simulation.sampling import Seed, chunk_pairs, draw_pairs, in_order, seed_of, stream, worker_count
from simulation.scoring import paired_dot, scale_factor
from simulation.statistics import STATISTICS, Estimate, MomentState, standard_errors
from simulation.theory import DotProductLaw, distance_to_normal
from simulation.verdicts import DEFAULT_TOLERANCE, Claim, Rule

Progress = Callable[[int, int], None]

CLAIMS = 4
_BINS = 120
_REACH = 6.0  # the histogram spans this many standard deviations on each side of the mean


def dot_products(
    model: QueryKeyModel,
    n_samples: int = 1_000_000,
    *,
    rng: Seed = None,
    scale: float | None = None,
    confidence: float = 0.95,
    tolerance: float = DEFAULT_TOLERANCE,
    simultaneous: int = CLAIMS,
    workers: int | None = None,
    progress: Progress | None = None,
) -> DotProductResult:
    """Draw pairs q, k and measure q·k before and after scaling, beside the exact values.

    Parameters
    ----------
    model : QueryKeyModel
        What is assumed of q and k.
    n_samples : int
        Number of independent pairs, from 2 to 10**12.
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
        Threads; one for each core by default. The result does not depend on it.
    progress : callable, optional
        Called with (chunks done, chunks in all), in this thread; an exception in it ends the run.

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
        If an argument breaks its rule; TypeError if `model` is no `QueryKeyModel`.

    Notes
    -----
    Holds one chunk of q and k (1 MB; 8 MB at d_k = 10**6) for each worker, whatever `n_samples`.

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
    n = whole_number("n_samples", n_samples, 2, MAX_SAMPLES)
    factor = scale_factor("scaled_dot", model.d_k) if scale is None else real_number("scale", scale, 1e-12, 1e6)
    rule = Rule(
        real_number("tolerance", tolerance, 0, 1, open_low=True),
        real_number("confidence", confidence, 0.5, 0.999999),
        whole_number("simultaneous", simultaneous, 1, 10**6),
        n,
    )
    seed, threads = seed_of(rng), worker_count(workers)

    total = _run_chunks(model, n, seed, factor, threads, progress)

    exact, shape = model.moments(), model.standardised_moments()
    before = _estimates(total.before, exact, shape, 1.0, rule.z)
    after = _estimates(total.after, exact, shape, factor, rule.z)
    exact, shape = model.component_moments(), model.standardised_moments(component=True)
    return DotProductResult(
        model=model,
        n_samples=n,
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
    )


@dataclass(frozen=True)
class _Summary:
    """What is kept of a chunk."""

    before: MomentState
    after: MomentState
    component: MomentState
    histogram: Histogram

    def merge(self, other: "_Summary") -> "_Summary":
        return _Summary(
            self.before.merge(other.before),
            self.after.merge(other.after),
            self.component.merge(other.component),
            self.histogram.merge(other.histogram),
        )


def _run_chunks(
    model: QueryKeyModel, n: int, seed: int, factor: float, workers: int, progress: Progress | None
) -> _Summary:
    count = math.ceil(n / chunk_pairs(model.d_k))
    edges = Histogram.empty(_edges(model))
    total = _Summary(MomentState(), MomentState(), MomentState(), edges)
    task = partial(_chunk, model, n, seed, factor, edges)
    for done, part in enumerate(in_order(task, count, workers), start=1):
        total = total.merge(part)
        if progress is not None:
            progress(done, count)
    return total


def _chunk(model: QueryKeyModel, n: int, seed: int, factor: float, edges: Histogram, index: int) -> _Summary:
    """Draw chunk `index` whole, keep its pairs among the first n, and summarise them."""
    size = chunk_pairs(model.d_k)
    first = index * size
    q, k = draw_pairs(model, stream(seed, index), size)
    q, k = q[: n - first], k[: n - first]
    logits = paired_dot(q, k)
    pairs = np.arange(len(q))
    components = (first + pairs) % model.d_k
    products = q[pairs, components].astype(np.float64) * k[pairs, components]
    return _Summary(
        MomentState.of(logits), MomentState.of(logits * factor), MomentState.of(products), edges.add(logits)
    )


def _edges(model: QueryKeyModel) -> "np.typing.NDArray[np.float64]":
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
