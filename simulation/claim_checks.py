"""How a claim is checked: each check computes one number, exactly or by a short draw with a fixed seed.

In: plain arguments, as `data/claims.toml` holds them. Out: a `Number`, with its standard error if it was drawn.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from simulation.attention_heads import draw_rows
from simulation.best_scale import typical_best_std
from simulation.comparison_theory import exact_comparison
from simulation.composition import Composition
from simulation.decay import gradient_decay
from simulation.formatting import plus_minus, significant
from simulation.initialisations import initialisation
from simulation.model import QueryKeyModel
from simulation.row_theory import gaussian_row
from simulation.sampling import stream
from simulation.scoring import logits
from simulation.scoring_theory import freezing_keys, largest_weight_bound, predict_row
from simulation.scoring_variance import additive_variance
from simulation.softmax import jacobian_sizes, softmax, softmax_jacobian
from simulation.statistics import Estimate, normal_quantile
from simulation.theory import DotProductLaw, distance_to_normal

SEED = 20_171_206  # of all draws: the same numbers for every reader


@dataclass(frozen=True)
class Number:
    """A number that decides; `standard_error` is None for an exact one."""

    value: float
    standard_error: float | None = None

    @property
    def text(self) -> str:
        """The number as a reader wants it: "0.322324, exact", or with its standard error."""
        if self.standard_error is None:
            return f"{significant(self.value, 6)}, exact"
        return plus_minus(self.value, self.standard_error)


def _drawn(found: Estimate) -> Number:
    return Number(found.estimate, found.standard_error)


# q·k of independent pairs -------------------------------------------------------------------------


def moment(name: str, d_k: int, *, divide_by: float = 1.0, **departures: Any) -> Number:
    """Return "mean", "variance", "rms" or "kurtosis" of q·k / divide_by; departures of `QueryKeyModel`."""
    found = QueryKeyModel(d_k, **departures).moments()
    rms = math.hypot(found.mean, math.sqrt(found.variance))
    values = {"mean": found.mean, "variance": found.variance / divide_by, "rms": rms, "kurtosis": found.kurtosis}
    return Number(values[name] if name == "kurtosis" else values[name] / divide_by)


def moment_ratio(name: str, d_ks: Sequence[int], **departures: Any) -> Number:
    """Return how a moment grows from the first d_k to the second."""
    first, second = (moment(name, d_k, **departures).value for d_k in d_ks)
    return Number(second / first)


def chance_within(d_k: int, bound: float, *, scaled: bool = False) -> Number:
    """Return the chance that q·k, divided by √d_k if `scaled`, lies within ±bound."""
    law = DotProductLaw(d_k, d_k**-0.5 if scaled else 1.0)
    return Number(1 - 2 * float(law.sf(bound)))


def chance_beyond(d_k: int, bound: float) -> Number:
    """Return the chance that q·k exceeds `bound`, right down to 1e-300."""
    return Number(float(DotProductLaw(d_k).sf(bound)))


def normal_distance(d_k: int) -> Number:
    """Return the largest gap between the distribution functions of q·k/√d_k and N(0, 1)."""
    return Number(distance_to_normal(d_k))


def chi_square_coverage(d_k: int) -> Number:
    """Return what share of chi-square 95 % intervals for Var[q·k] hold it, for many samples."""
    kurtosis = QueryKeyModel(d_k).moments().kurtosis
    return Number(2 * float(special.ndtr(normal_quantile(0.95) * math.sqrt(2 / (kurtosis - 1)))) - 1)


def two_by_two_share(at_most: float, *, draws: int = 100_000) -> Number:
    """Return how often `np.var` of one 2 × 2 product of normal matrices is at most a number."""
    q, k = stream(SEED, 1).standard_normal((2, draws, 2, 2))
    share = float((np.var(q @ k, axis=(1, 2)) <= at_most).mean())
    return Number(share, math.sqrt(share * (1 - share) / draws))


# Softmax of given logits --------------------------------------------------------------------------


def jacobian_size(row: Sequence[float], size: str) -> Number:
    """Return a size of the softmax Jacobian of one row; see `JacobianSizes`."""
    return Number(float(getattr(jacobian_sizes(row), size)))


def weight(row: Sequence[float], place: int) -> Number:
    """Return one softmax weight."""
    return Number(float(softmax(row)[place]))


def weights_differ(first: Sequence[float], second: Sequence[float]) -> Number:
    """Return the largest difference between the weights of two rows."""
    return Number(float(np.abs(softmax(first) - softmax(second)).max()))


def row_sum_scaled_after(d_k: int) -> Number:
    """Return what weights sum to when 1/√d_k stands after softmax instead of before."""
    return Number(float((softmax([3, 1, -3]) / math.sqrt(d_k)).sum()))


# Rows of attention --------------------------------------------------------------------------------


def row(quantity: str, d_k: int, n: int, **composition: Any) -> Number:
    """Return "std", "variance", "trace", or its "share" of the most n keys allow, for independent q and k."""
    scoring = Composition(**{"way": "scaled_dot", **composition})(d_k, n)
    found = predict_row(scoring, d_k, n)
    trace = math.nan if found.trace is None else found.trace
    values = {"std": found.std, "variance": found.total_variance, "trace": trace, "share": trace / (1 - 1 / n)}
    return Number(values[quantity])


def concentration_ratio(d_k: int, n: int, ways: Sequence[Mapping[str, Any]]) -> Number:
    """Return E Σ y² of the first composition over that of the second: above 1, the first is more peaked."""
    first, second = (1 - row("trace", d_k, n, **way).value for way in ways)
    return Number(first / second)


def trace_ratio(d_k: int, n: int) -> Number:
    """Return E tr J of unscaled rows over that of scaled ones."""
    raw, scaled = (row("trace", d_k, n, way=way).value for way in ("dot", "scaled_dot"))
    return Number(raw / scaled)


def aligned(quantity: str, d_k: int, n: int, rho: float, **composition: Any) -> Number:
    """Return the exact "aligned_logit", "aligned_weight" or "trace" with one key aligned with its query."""
    scoring = Composition(**{"way": "scaled_dot", **composition})(d_k, n)
    value = exact_comparison(scoring, d_k, n, rho, "one", quantity, "mean")
    return Number(math.nan if value is None else value)


def aligned_ratio(quantity: str, d_ks: Sequence[int], n: int, rho: float, **composition: Any) -> Number:
    """Return how a quantity of the aligned key changes from the first d_k to the second."""
    first, second = (aligned(quantity, d_k, n, rho, **composition).value for d_k in d_ks)
    return Number(second / first)


def query_gradient_ratio(d_k: int, n: int, ways: Sequence[str]) -> Number:
    """Return the exact rms gradient with respect to q under the first way over that under the second."""
    values = [
        exact_comparison(Composition(way)(d_k, n), d_k, n, 0.0, "one", "query_gradient", "rms") or math.nan
        for way in ways
    ]
    return Number(values[0] / values[1])


def typical_gradient_ratio(d_k: int, n: int, *, n_rows: int = 2048) -> Number:
    """Return the median gradient with respect to q of unscaled rows over that of scaled ones, drawn."""
    found = gradient_decay(
        [d_k], n, n_rows=n_rows, quantities=["query_gradient"], statistics=["median"], rng=SEED, workers=1
    )
    raw, scaled = (found.select(scoring=scoring)[0] for scoring in ("dot", "scaled_dot"))
    ratio = raw.estimate / scaled.estimate
    relative = raw.standard_error / raw.estimate + scaled.standard_error / scaled.estimate  # at most this
    return Number(ratio, ratio * relative)


def nearly_one_hot_share(d_k: int, n: int, above: float, *, n_rows: int = 40_000) -> Number:
    """Return the share of unscaled rows whose largest weight exceeds `above`, drawn."""
    rows = draw_rows(QueryKeyModel(d_k), np.random.SeedSequence(SEED), n_rows, n)
    share = float((jacobian_sizes(rows, spectral=False).largest_weight > above).mean())
    return Number(share, math.sqrt(share * (1 - share) / n_rows))


def tiny_derivative_share(d_k: int, n: int, at_most: float, *, n_rows: int = 60_000) -> Number:
    """Return the share of y(1 - y) that are at most a number, over the keys of unscaled rows, drawn."""
    rows = draw_rows(QueryKeyModel(d_k), np.random.SeedSequence(SEED), n_rows, n)
    shares = (np.diagonal(softmax_jacobian(rows), axis1=1, axis2=2) <= at_most).mean(axis=1)
    return Number(float(shares.mean()), float(shares.std(ddof=1)) / math.sqrt(n_rows))


def best_std(n: int) -> Number:
    """Return the logits' std at which the typical gradient of n keys is largest, drawn."""
    return _drawn(typical_best_std(n, rows=max(2000, 400_000 // n), rng=SEED))


def mean_gradient_ratio(n: int, stds: Sequence[float]) -> Number:
    """Return the mean gradient α E tr J at the second standard deviation α over that at the first."""
    first, second = (std * gaussian_row(n, std).trace for std in stds)
    return Number(second / first)


# Scales -------------------------------------------------------------------------------------------


def equivalent_forms_differ(d_k: int) -> Number:
    """Return how far d_k^(-1/4) on both sides, and 1/√d_k on q alone, are from dividing q·k by √d_k."""
    q, k = stream(SEED, 0).standard_normal((2, 16, d_k))
    plain, scaled = (Composition(way)(d_k, 16) for way in ("dot", "scaled_dot"))
    reference = logits(q, k, scaled)
    forms = (logits(q * d_k**-0.25, k * d_k**-0.25, plain), logits(q / math.sqrt(d_k), k, plain))
    return Number(max(float(np.abs(form - reference).max()) for form in forms))


def initial_variance(name: str, of: str, d_model: int = 512, heads: int = 8) -> Number:
    """Return the variance of "q" or of the scaled "logits" at an initialisation, x being normalised."""
    found = initialisation(name, d_model, heads)
    return Number(found.query_variance if of == "q" else found.logit_variance)


def additive(part: str, *, query_part: float = 0.5, key_part: float = 0.5, times: float = 1.0) -> Number:
    """Return the "total" or "within_row" variance of additive scores, times the sum of squares of v."""
    return Number(times * float(getattr(additive_variance(query_part, key_part), part)))


def freezing(per_log_key: float) -> Number:
    """Return the number of keys beyond which unit-variance rows scaled by this times ln n are frozen."""
    return Number(freezing_keys(per_log_key))


def most_weight(bound: float, n: int) -> Number:
    """Return the largest weight that logits within ±bound allow among n keys."""
    return Number(largest_weight_bound(bound, n))


EXACT: tuple[Callable[..., Number], ...] = (
    moment, moment_ratio, chance_within, chance_beyond, normal_distance, chi_square_coverage,
    jacobian_size, weight, weights_differ, row_sum_scaled_after,
    row, concentration_ratio, trace_ratio, aligned, aligned_ratio, query_gradient_ratio, mean_gradient_ratio,
    equivalent_forms_differ, initial_variance, additive, freezing, most_weight,
)  # fmt: skip
DRAWN: tuple[Callable[..., Number], ...] = (
    two_by_two_share,
    typical_gradient_ratio,
    nearly_one_hot_share,
    tiny_derivative_share,
    best_std,
)
CHECKS: Mapping[str, Callable[..., Number]] = {check.__name__: check for check in (*EXACT, *DRAWN)}
IS_DRAWN = frozenset(check.__name__ for check in DRAWN)
