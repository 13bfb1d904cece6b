"""Exact values for what `compare_scorings` measures; None where none is known.

In: a scoring, d_k, the number of keys, the correlation and whose keys it holds for. Out: one number. Normal
entries. With ρ = 0 most is known for most scorings; with one aligned key, moments and weights of linear ones.
"""

import math
from functools import lru_cache

from simulation.aligned_heads import Aligned
from simulation.row_theory import query_gradient_square
from simulation.scoring import Scoring
from simulation.scoring_theory import RowPrediction, aligned_key, predict_row

_LARGEST_SCALE = 1e6  # that `aligned_key` takes


@lru_cache(maxsize=4096)
def exact_comparison(
    scoring: Scoring, d_k: int, n_keys: int, correlation: float, aligned: Aligned, quantity: str, statistic: str
) -> float | None:
    """Return the exact value of a statistic of a quantity of `scored_rows.row_values`, or None.

    Examples
    --------
    >>> scaled = Scoring().times("1/√d_k", 1 / 8)
    >>> round(exact_comparison(scaled, 64, 16, 0.0, "one", "trace", "mean"), 6)
    0.867572
    >>> round(exact_comparison(scaled, 64, 16, 0.5, "one", "aligned_weight", "mean"), 3)
    0.661
    """
    if quantity == "query_gradient":
        return _query_gradient(scoring, d_k, n_keys, correlation, aligned) if statistic == "rms" else None
    if (quantity == "logit_std") != (statistic == "rms"):
        return None
    if correlation != 0 and aligned == "one":
        return _one_aligned(scoring, d_k, n_keys, correlation, quantity)
    if quantity == "aligned_weight":
        return 1 / n_keys  # no key is special
    row = _prediction(scoring, d_k, n_keys, correlation)
    if row is None:
        return None
    return {
        "logit_mean": row.mean,
        "aligned_logit": row.mean,
        "logit_std": row.std,
        "trace": row.trace if row.exact else None,
        "entropy": row.entropy if row.exact else None,
    }.get(quantity)


def _is_linear(scoring: Scoring) -> bool:
    return scoring.kind == "dot" and math.isinf(scoring.cap)


def _prediction(scoring: Scoring, d_k: int, n_keys: int, correlation: float) -> RowPrediction | None:
    if correlation != 0 and not _is_linear(scoring):
        return None
    try:
        return predict_row(scoring, d_k, n_keys, correlation=correlation)
    except ValueError:  # a soft-cap that theory does not cover
        return None


def _one_aligned(scoring: Scoring, d_k: int, n_keys: int, rho: float, quantity: str) -> float | None:
    if not _is_linear(scoring):
        return None
    scale = scoring.effective_scale
    if quantity == "logit_std":  # given |q|² = R: others 0 ± √R, the aligned one ρR ± √((1-ρ²)R); E R² = d(d+2)
        return scale * math.sqrt(d_k * (1 - rho**2 / n_keys) + rho**2 * d_k * (d_k + 2) / n_keys)
    if quantity in ("aligned_weight", "trace"):
        if scale == 0:
            return 1 / n_keys if quantity == "aligned_weight" else 1 - 1 / n_keys
        row = aligned_key(n_keys, d_k, rho, scale) if scale <= _LARGEST_SCALE else None
        return None if row is None else {"aligned_weight": row.weight, "trace": row.trace}[quantity]
    mean = scale * rho * d_k
    return {"aligned_logit": mean, "logit_mean": mean / n_keys}.get(quantity)


def _query_gradient(scoring: Scoring, d_k: int, n_keys: int, rho: float, aligned: Aligned) -> float | None:
    """Return the rms over rows, q as it comes out of W_q: a folded factor narrows that q, not the gradient."""
    if not _is_linear(scoring) or (rho != 0 and aligned == "one"):
        return None
    tilt = math.sqrt((1 - rho) * (1 + rho))
    scale = scoring.effective_scale * tilt
    if scale == 0:
        return 0.0 if scoring.as_coded.effective_scale * tilt == 0 else None
    return (
        math.sqrt(query_gradient_square(n_keys, d_k, scale=scale)) * scoring.as_coded.effective_scale / (scale / tilt)
    )
