"""Exact values for what `gradient_decay` measures, and the slopes that theory expects.

In: a model, the number of keys, scoring, quantity and statistic. Out: the exact value, or None
where none is known. Normal entries with mean 0 only.
"""

import math
from functools import lru_cache

import numpy as np
from scipy import special

from simulation.model import QueryKeyModel
from simulation.row_statistics import QUANTILES
from simulation.row_theory import attention_row, query_gradient_square
from simulation.scoring import scale_factor
from simulation.softmax import jacobian_sizes
from simulation.theory import DotProductLaw, log_length_nodes

_GAP_NODES = 1200

# quantities that fall as the gap of two logits grows; the largest weight rises
_FALLING = ("trace", "frobenius", "spectral_norm", "largest_entry", "entropy", "logit_gradient")


@lru_cache(maxsize=4096)
def exact_value(model: QueryKeyModel, n_keys: int, scoring: str, quantity: str, statistic: str) -> float | None:
    """Return the exact value of one statistic of one quantity over random rows, or None.

    Known are: the mean trace and entropy, the rms of the Frobenius norm and of the query gradient
    (`row_theory`), and for two keys the quantiles of every quantity that depends on the gap alone.

    Examples
    --------
    >>> round(exact_value(QueryKeyModel(1024), 2, "dot", "trace", "median"), 16)
    1.13e-13
    """
    if not (model.entries == "normal" and model.q_mean == model.k_mean == 0):
        return None
    scale = scale_factor(scoring, model.d_k) * model.q_std * model.k_std
    if statistic in QUANTILES:
        if n_keys != 2 or quantity == "query_gradient":
            return None
        return _two_key_quantile(model.d_k, scale, quantity, QUANTILES[statistic])
    if (quantity, statistic) == ("query_gradient", "rms"):
        return math.sqrt(query_gradient_square(n_keys, model.d_k, scale=scale)) / model.q_std
    row = attention_row(n_keys, model.d_k, scale=scale)
    return {
        ("trace", "mean"): row.trace,
        ("entropy", "mean"): row.entropy,
        ("frobenius", "rms"): math.sqrt(row.frobenius_squared),
        ("logit_gradient", "rms"): math.sqrt(row.frobenius_squared),
    }.get((quantity, statistic))


def _two_key_quantile(d_k: int, scale: float, quantity: str, p: float) -> float:
    """For n = 2 all depends on the gap |x_1 - x_2| = scale |q·(k_1 - k_2)|, sqrt(2) times a q·k."""
    gap_p = 1 - p if quantity in _FALLING else p
    gap = float(DotProductLaw(d_k, scale * math.sqrt(2)).quantile((1 + gap_p) / 2))
    name = "frobenius" if quantity == "logit_gradient" else quantity
    return float(getattr(jacobian_sizes([gap, 0.0]), name))


def gap_exceeds(n_keys: int, d_k: int, threshold: float, *, scale: float) -> float:
    r"""Return the exact chance that the two largest logits of a row differ by more than `threshold`.

    :math:`E\,n\int\varphi(x)\,\Phi(x-t/s)^{n-1}dx` over s = scale * |q|, for normal q and k. Good to
    1e-12 absolute: chances far below that lean on lengths of q beyond nine standard deviations.

    Examples
    --------
    >>> round(gap_exceeds(2, 64, 17.33, scale=1.0), 3)
    0.125
    """
    return _gap_exceeds(n_keys, d_k, threshold / scale)


@lru_cache(maxsize=4096)
def _gap_exceeds(n_keys: int, d_k: int, ratio: float) -> float:
    """Average over v = ln(|q|²/d_k) as `theory.DotProductLaw` does: small lengths of q keep their weight."""
    v, weights = log_length_nodes(d_k)
    return float(weights @ _top_gap_tail(n_keys, ratio * np.exp(-v / 2) / math.sqrt(d_k)))


def _top_gap_tail(n_keys: int, gaps: "np.typing.NDArray[np.float64]") -> "np.typing.NDArray[np.float64]":
    """Return P(largest - second largest of n standard normals > gap) for each gap, shape of `gaps`.

    The largest sits at x: the trapezoid rule on an analytic integrand that dies out on both sides.
    """
    gaps = np.minimum(gaps, 80.0)  # beyond, the chance is 0 in double precision
    low = np.maximum(-9.0, gaps / 2 - 9.0)
    high = np.maximum(math.sqrt(2 * math.log(n_keys)) + 9.0, gaps + 9.0)
    x = low + (high - low) * np.linspace(0, 1, _GAP_NODES)[:, None]
    log_terms = (n_keys - 1) * special.log_ndtr(x - gaps) - 0.5 * x * x
    steps = (high - low) / (_GAP_NODES - 1)
    total = n_keys / math.sqrt(2 * math.pi) * steps * np.exp(log_terms).sum(axis=0)
    return np.asarray(np.minimum(total, 1.0))


@lru_cache(maxsize=256)
def median_top_gap(n_keys: int) -> float:
    """Return the median gap between the two largest of n standard normals.

    It is the rate a_n at which the typical unscaled gradient decays, as exp(-a_n sqrt(d_k)).

    Examples
    --------
    >>> round(median_top_gap(2), 3), round(median_top_gap(128), 3)
    (0.954, 0.257)
    """
    from scipy.optimize import brentq

    return float(brentq(lambda gap: float(_top_gap_tail(n_keys, np.array([gap]))[0]) - 0.5, 1e-6, 2.0))
