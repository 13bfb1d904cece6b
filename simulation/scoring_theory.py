"""What each way of scoring does to a softmax row at initialisation, and to one aligned key: exact values.

In: a `Scoring`, d_k and the number of keys; q and k are independent standard normal unless a correlation
is given. Out: moments of the logits and expectations of the attention weights, without sampling.

The sums behind them are in `_scoring_quadrature`.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from simulation._row_quadrature import query_norms
from simulation._scoring_quadrature import KEY_STEP, laws, one_key, row_of
from simulation._validation import MAX_D_K, real_number, whole_number
from simulation.row_theory import MAX_KEYS, attention_row, gaussian_row
from simulation.scoring import Scoring
from simulation.scoring_variance import additive_variance, key_length_variance


@dataclass(frozen=True)
class RowPrediction:
    """What theory says of a row of n logits, and of its attention weights.

    Attributes
    ----------
    mean : float
        Expected logit.
    std : float
        Root of the expected variance within a row, which is all that softmax sees.
    total_variance : float
        Variance of one logit over everything: q, keys and weights.
    kurtosis : float or None
        Of one logit over everything; None where unknown.
    bound : float
        Largest |logit| possible; infinite for none.
    slope : float
        Mean derivative of the soft-cap, 1 without one.
    trace, entropy : float or None
        E tr J of the softmax Jacobian, and expected entropy of the weights in nats; None where rows of
        capped logits are too wide to compute them.
    exact : bool
        Whether trace and entropy are; otherwise they are those of normal logits with this `std`.
    """

    mean: float
    std: float
    total_variance: float
    kurtosis: float | None
    bound: float
    slope: float
    trace: float | None
    entropy: float | None
    exact: bool


@dataclass(frozen=True)
class AlignedKey:
    """One key correlated with q among n - 1 independent ones, under logits scale · q·k."""

    mean: float  # of its logit; that of the others is 0
    variance: float  # of its logit, over q and k
    others_std: float
    weight: float  # its expected attention weight
    trace: float  # E tr J of the row


@lru_cache(maxsize=256)
def predict_row(scoring: Scoring, d_k: int, n_keys: int, *, correlation: float = 0.0) -> RowPrediction:
    """Return what to expect of a row, for standard normal q and keys.

    Parameters
    ----------
    scoring : Scoring
        All its factors count, folded ones too; `eps` is taken as 0, and weights of additive scoring as
        `draw_additive_weights` draws them.
    d_k : int
        Head dimension, from 1 to 1,000,000.
    n_keys : int
        Number of keys in the row, from 1 to 1,000,000,000.
    correlation : float
        Correlation of q_i with entry i of every key, from -1 to 1, for linear scorings only. It moves
        all logits of a row alike, which softmax does not see, and narrows them.

    Returns
    -------
    RowPrediction
        Moments are good to 1e-10 of their size, trace and entropy to 1e-9. Milliseconds, but for a soft-cap:
        some 0.1 s, or seconds if logits before and after it are wide.

    Raises
    ------
    ValueError
        If an argument breaks its rule, or asks for a correlation or soft-cap that theory does not cover.

    Examples
    --------
    >>> row = predict_row(Scoring().capped(50), 64, 128)  # unscaled, soft-capped
    >>> round(row.total_variance, 2), round(row.slope, 3)
    (60.86, 0.976)
    """
    d, n = whole_number("d_k", d_k, 1, MAX_D_K), whole_number("n_keys", n_keys, 1, MAX_KEYS)
    rho = real_number("correlation", correlation, -1, 1)
    capped = math.isfinite(scoring.cap)
    if scoring.kind == "dot" and not capped:
        return _linear_row(scoring.effective_scale, d, n, rho)
    if rho:
        raise ValueError(f"`correlation` must be 0 unless the scoring is linear in q·k; received {rho:g}.")
    if scoring.kind in ("additive", "key_lengths"):
        if capped:
            raise ValueError(f"`scoring` must have no soft-cap for kind {scoring.kind}; received {scoring.cap:g}.")
        return _nearly_normal_row(scoring, d, n)
    second, fourth, trace, entropy = 0.0, 0.0, 0.0, 0.0
    for weight, x, p in laws(scoring, d):
        second += weight * float(p @ x**2)
        fourth += weight * float(p @ x**4)
        row = row_of(x, p, n)
        trace, entropy = trace + weight * row[0], entropy + weight * row[1]
    known = not math.isnan(trace)
    return RowPrediction(
        mean=0.0,
        std=math.sqrt(second),
        total_variance=second,
        kurtosis=fourth / second**2 if second else None,
        bound=_bound(scoring, d),
        slope=1 - second / scoring.cap**2,  # sech² = 1 - tanh²
        trace=trace if known else None,
        entropy=entropy if known else None,
        exact=known,
    )


def _linear_row(scale: float, d: int, n: int, rho: float) -> RowPrediction:
    narrowed = scale * math.sqrt((1 - rho) * (1 + rho))
    row = attention_row(n, d, scale=narrowed) if narrowed else gaussian_row(n, 0.0)
    even = 1 + rho**2
    return RowPrediction(
        mean=scale * rho * d,
        std=narrowed * math.sqrt(d),
        total_variance=scale**2 * d * even,
        kurtosis=3 + 6 * (1 + 6 * rho**2 + rho**4) / (d * even**2) if scale else None,
        bound=math.inf if scale else 0.0,
        slope=1.0,
        trace=row.trace,
        entropy=row.entropy,
        exact=True,
    )


def _nearly_normal_row(scoring: Scoring, d: int, n: int) -> RowPrediction:
    square = scoring.effective_scale**2
    if scoring.kind == "additive":
        total, within = (square * variance for variance in additive_variance(d_k=d))
    else:
        total = within = square * key_length_variance(d, n)
    row = gaussian_row(n, math.sqrt(within))
    return RowPrediction(
        0.0, math.sqrt(within), total, None, math.inf, 1.0, row.trace, row.entropy, n == 1 or within == 0
    )


def _bound(scoring: Scoring, d: int) -> float:
    if scoring.effective_scale == 0:
        return 0.0
    largest = {"cosine": 1.0, "rmsnorm": float(d)}.get(scoring.kind, math.inf) * scoring.effective_scale
    return scoring.cap * math.tanh(largest / scoring.cap) if math.isfinite(scoring.cap) else largest


@lru_cache(maxsize=256)
def aligned_key(n_keys: int, d_k: int, correlation: float, scale: float) -> AlignedKey:
    """Return what to expect of one key aligned with q among n - 1 independent ones.

    Its logit has mean scale · ρ · d_k: ρ √d_k under 1/√d_k, which grows without bound, ρ under 1/d_k.

    Parameters
    ----------
    n_keys : int
        Number of keys in the row, from 1 to 1,000,000,000.
    d_k : int
        Head dimension, from 1 to 1,000,000.
    correlation : float
        Correlation of q_i with entry i of that key, from -1 to 1.
    scale : float
        Factor on q·k, above 0 and at most 1e6.

    Returns
    -------
    AlignedKey

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    Examples
    --------
    >>> [round(aligned_key(16, d, 0.5, d**-0.5).weight, 2) for d in (16, 64, 256)]
    [0.28, 0.66, 0.99]
    """
    n, d = whole_number("n_keys", n_keys, 1, MAX_KEYS), whole_number("d_k", d_k, 1, MAX_D_K)
    rho, c = real_number("correlation", correlation, -1, 1), real_number("scale", scale, 0, 1e6, open_low=True)
    tilt, weight, trace = math.sqrt((1 - rho) * (1 + rho)), 0.0, 0.0
    for r, chance in zip(*query_norms(d), strict=True):
        row = _aligned_row(n, c * rho * float(r) ** 2, c * tilt * float(r), c * float(r))
        weight, trace = weight + float(chance) * row[0], trace + float(chance) * row[1]
    moments = (c * rho * d, c * c * d * (1 + rho**2), c * math.sqrt(d))
    return AlignedKey(*moments, min(weight, 1.0), min(trace, 1 - 1 / n))


def _aligned_row(n: int, mean: float, std: float, others: float) -> tuple[float, float]:
    """Return E y_1 and E tr J, that is E of Σ y_i y_j over i ≠ j, for logits N(mean, std²) and n - 1 N(0, others²)."""
    depth, sums = 28 + math.log(n), []
    for at, width in ((-mean, std), (0.0, others)):  # where the aligned key counts, and where pairs of others do
        stride = max(1, math.floor(0.05 * width / KEY_STEP))
        u = at + np.arange(-9 * width - depth, 9 * width + 5, stride * KEY_STEP)  # ln E - x
        below, dense = one_key(u, stride, mean, std, depth)
        others_below, others_dense = one_key(u, stride, 0.0, others, depth)
        terms = (
            dense * np.exp((n - 1) * others_below),
            2 * (n - 1) * dense * others_dense * np.exp(max(n - 2, 0) * others_below),
            (n - 1) * (n - 2) * others_dense**2 * np.exp(below + max(n - 3, 0) * others_below),
        )
        sums.append([stride * KEY_STEP * float(term.sum()) for term in terms])
    return sums[0][0], sums[0][1] + sums[1][2]


def freezing_keys(per_log_key: float) -> float:
    """Return the n beyond which unit-variance rows scaled by per_log_key · ln n are frozen, exp(2/s²).

    There s ln n reaches √(2 ln n), the critical std of n normal logits; a crossover for finite n.

    Parameters
    ----------
    per_log_key : float
        s of scalable softmax, or 1/ln 512 for log n; above 0 and at most 1e12.

    Returns
    -------
    float
        ``inf`` beyond the range of float64.

    Raises
    ------
    ValueError
        If the argument breaks its rule.

    References
    ----------
    Derrida (1981), doi:10.1103/PhysRevB.24.2613; Nakanishi (2025), arXiv:2501.19399.

    Examples
    --------
    >>> round(freezing_keys(0.43))
    49844
    """
    exponent = 2 / real_number("per_log_key", per_log_key, 0, 1e12, open_low=True) ** 2
    return math.exp(exponent) if exponent < 709 else math.inf


def largest_weight_bound(bound: float, n_keys: int) -> float:
    """Return the largest attention weight that logits within ±`bound` allow, 1/(1 + (n-1) exp(-2 bound)).

    Raises
    ------
    ValueError
        If `bound` is not from 0 to infinity, or `n_keys` not from 1 to 1,000,000,000.

    Examples
    --------
    >>> round(largest_weight_bound(3.65, 16), 3)
    0.99
    """
    n = whole_number("n_keys", n_keys, 1, MAX_KEYS)
    return 1 / (1 + (n - 1) * math.exp(-2 * real_number("bound", bound, 0, math.inf)))
