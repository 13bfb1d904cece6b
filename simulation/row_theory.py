"""The exact expectations of one softmax row of attention weights, for normal logits or normal q and k.

In: the number of keys n, and the standard deviation of the logits or the head dimension d_k and the
scale. Out: the mean size of the softmax Jacobian, entropy, ln Z and gradients, without sampling.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from simulation._row_quadrature import Averages, query_norms, row_averages
from simulation._validation import MAX_D_K, real_number, whole_number

FloatArray = npt.NDArray[np.float64]

MAX_KEYS = 1_000_000_000
MAX_SCALE = 1e12


@dataclass(frozen=True)
class RowExpectations:
    r"""Expectations over random rows of n attention weights y = softmax(x), J = diag(y) - y yᵀ.

    Attributes
    ----------
    trace : float
        E tr J = 1 - E Σ yᵢ²: half the summed size of all ∂yᵢ/∂xⱼ, and the chance that two keys
        drawn from y differ. From 0 (frozen row) to 1 - 1/n (uniform row).
    frobenius_squared : float
        E ‖J‖²_F.
    entropy : float
        E of -Σ yᵢ ln yᵢ, in nats.
    log_partition : float
        E ln Z, Z = Σ exp(xᵢ), in nats.
    attended_logit : float
        E Σ yᵢ xᵢ, in the units of the logits; computed apart from `trace` and `log_partition`, so
        that Stein's identity attended_logit = std² trace, for x of one std, checks both.
    largest_weight_lower, largest_weight_upper : float
        Bounds on E max y, not its value. Lower: E Σ yᵢ², as Σ yᵢ² ≤ max y. Upper: the largest
        max y that Σ yᵢ² allows, (1 + √((n-1)(n Σ yᵢ² - 1)))/n, is concave, so Jensen's inequality
        lets the mean of Σ yᵢ² stand in for it; at most √(E Σ yᵢ²).
    """

    trace: float
    frobenius_squared: float
    entropy: float
    log_partition: float
    attended_logit: float
    largest_weight_lower: float
    largest_weight_upper: float


def gaussian_row(n_keys: int, logit_std: float) -> RowExpectations:
    """Return the exact expectations for n independent N(0, logit_std²) logits.

    About 0.1 ms; the first call in each octave of `logit_std` takes 10 to 30 ms to lay out nodes
    that serve all later ones. Every value, even a tiny trace, is good to 1e-12 of its size up to a
    million keys and to 1e-10 up to a billion (`attended_logit` to 1e-14 absolute below std 0.5).

    Parameters
    ----------
    n_keys : int
        Number of keys n in the row, from 1 to 1,000,000,000.
    logit_std : float
        Standard deviation of the logits, from 0 (uniform weights) to 1e12.

    Returns
    -------
    RowExpectations

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    References
    ----------
    Logits of this kind are the random energy model: Derrida (1981), doi:10.1103/PhysRevB.24.2613.
    Gumbel-max trick: Maddison, Tarlow & Minka (2014), arXiv:1411.0030. Stein's identity: Stein
    (1981), doi:10.1214/aos/1176345632. Trapezoid rule: doi:10.1137/130932132.

    Examples
    --------
    >>> row = gaussian_row(128, 1.0)
    >>> round(row.trace, 10), round(row.attended_logit, 10)
    (0.9798082843, 0.9798082843)
    """
    n = _keys(n_keys)
    std = real_number("logit_std", logit_std, 0, MAX_SCALE)
    return _expectations(n, row_averages(n, np.array([std])), np.ones(1))


def gaussian_rows(n_keys: int, logit_stds: Iterable[float]) -> tuple[RowExpectations, ...]:
    """Return `gaussian_row` for each of several standard deviations, about 20 µs apiece.

    Parameters
    ----------
    n_keys : int
        Number of keys n in the row, from 1 to 1,000,000,000.
    logit_stds : iterable of float, k of them
        Standard deviations of the logits, each from 0 to 1e12.

    Returns
    -------
    tuple of k RowExpectations

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    Examples
    --------
    >>> [round(row.trace, 6) for row in gaussian_rows(2, [0, 1, 8])]
    [0.5, 0.363162, 0.069641]
    """
    n = _keys(n_keys)
    stds = np.array([real_number("logit_stds", std, 0, MAX_SCALE) for std in logit_stds])
    averages = row_averages(n, stds)
    return tuple(_expectations(n, Averages(*column), np.ones(())) for column in np.transpose(averages))


def attention_row(n_keys: int, d_k: int, *, scale: float | None = None) -> RowExpectations:
    """Return the exact expectations for logits scale * q·kⱼ, with q and all kⱼ standard normal.

    Given q, the logits are independent N(0, scale²|q|²), so this is `gaussian_row` averaged over
    |q|, which is chi-distributed with d_k degrees of freedom. Under 1 ms, plus the layout of nodes
    described there.

    Parameters
    ----------
    n_keys : int
        Number of keys n in the row, from 1 to 1,000,000,000.
    d_k : int
        Head dimension, from 1 to 1,000,000.
    scale : float, optional
        Factor on q·k, above 0 and at most 1e12; default 1/sqrt(d_k). 1 leaves q·k as it is.

    Returns
    -------
    RowExpectations

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    References
    ----------
    Vaswani et al. (2017), section 3.2.1, arXiv:1706.03762.

    Examples
    --------
    Two keys, d_k = 2, scaled: the trace is 2 ln 2 - 1.

    >>> round(attention_row(2, 2).trace, 12), round(2 * math.log(2) - 1, 12)
    (0.38629436112, 0.38629436112)
    >>> [round(attention_row(16, 64, scale=scale).trace, 6) for scale in (1 / 8, 1)]
    [0.867572, 0.219898]
    """
    n, d, factor = _keys(n_keys), *_head(d_k, scale)
    norms, weights = query_norms(d)
    return _expectations(n, row_averages(n, factor * norms), weights)


def query_gradient_square(n_keys: int, d_k: int, *, scale: float | None = None) -> float:
    """Return the exact E ‖∂y/∂q‖²_F for attention weights y, with q and all keys standard normal.

    ∂y/∂q = scale J K with K the n x d_k keys. Across q the keys are independent of y and give
    scale² (d_k - 1) E ‖J‖²_F; along q they are the logits and give scale² E ‖J z‖², z = x / std.

    Parameters
    ----------
    n_keys : int
        Number of keys n in the row, from 1 to 1,000,000,000.
    d_k : int
        Head dimension, from 1 to 1,000,000.
    scale : float, optional
        Factor on q·k, above 0 and at most 1e12; default 1/sqrt(d_k).

    Returns
    -------
    float
        Mean square over all n * d_k entries together; good to 1e-12 of its size up to a million
        keys. Its root is the rms gradient: it falls with 1/sqrt(d_k), and grows without it.

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    Examples
    --------
    >>> [round(query_gradient_square(128, 512, scale=c) ** 0.5, 4) for c in (512**-0.5, 1)]
    [0.137, 4.1927]
    """
    n, d, factor = _keys(n_keys), *_head(d_k, scale)
    norms, weights = query_norms(d)
    averages = row_averages(n, factor * norms)
    return factor**2 * float(weights @ ((d - 1) * averages.frobenius_squared + averages.response_squared))


def expected_max_normal(n: int) -> float:
    """Return E max of n independent standard normals, to 1e-12 of its size.

    It is the limit of std * trace as the logits grow, because two logits then share the weight only
    in a near-tie at the top: n(n-1) times the integral of φ² Φ^(n-2).

    Parameters
    ----------
    n : int
        Number of normals, from 1 to 1,000,000,000.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If `n` breaks its rule.

    Examples
    --------
    >>> round(expected_max_normal(2) * math.sqrt(math.pi), 12), round(expected_max_normal(128), 9)
    (1.0, 2.594597369)
    """
    count = whole_number("n", n, 1, MAX_KEYS)
    step = 0.02
    v = np.arange(-500, 501) * step
    log_terms = max(count - 2, 0) * special.log_ndtr(v) - v * v
    return float(count * (count - 1) * step / (2 * math.pi) * np.exp(log_terms).sum())


def trace_bound(n_keys: int, d_k: int, *, scale: float | None = None) -> float:
    """Return an upper bound on ``attention_row(n_keys, d_k, scale=scale).trace``.

    Stein's identity gives std² E tr J = E Σ yᵢ xᵢ ≤ std E max of n normals. Over |q| that is
    min(1 - 1/n, E[max] E[1/std]), and the second is tight once rows are frozen; E[1/std] is
    infinite for d_k = 1, Γ((d_k-1)/2) / (√2 Γ(d_k/2)) / scale above.

    Parameters
    ----------
    n_keys : int
        Number of keys n in the row, from 1 to 1,000,000,000.
    d_k : int
        Head dimension, from 1 to 1,000,000.
    scale : float, optional
        Factor on q·k, above 0 and at most 1e12; default 1/sqrt(d_k).

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    References
    ----------
    Stein (1981), doi:10.1214/aos/1176345632.

    Examples
    --------
    >>> trace_bound(128, 512, scale=1) > attention_row(128, 512, scale=1).trace
    True
    """
    n, d, factor = _keys(n_keys), *_head(d_k, scale)
    if d == 1:
        return 1 - 1 / n
    norms, weights = query_norms(d)
    return min(1 - 1 / n, expected_max_normal(n) * float(weights @ (1 / norms)) / factor)


def freezing_d_k(n_keys: int) -> float:
    """Return 2 ln n, the head dimension about which unscaled rows of n keys freeze.

    There the logits' std √d_k equals √(2 ln n), the critical point of the random energy model. It is
    a crossover for any finite n: the trace falls smoothly through it.

    Parameters
    ----------
    n_keys : int
        Number of keys n in the row, from 1 to 1,000,000,000.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If `n_keys` breaks its rule.

    References
    ----------
    Derrida (1981), doi:10.1103/PhysRevB.24.2613.

    Examples
    --------
    >>> [round(freezing_d_k(n), 1) for n in (16, 128, 1024)]
    [5.5, 9.7, 13.9]
    """
    return 2 * math.log(_keys(n_keys))


def _keys(n_keys: int) -> int:
    return whole_number("n_keys", n_keys, 1, MAX_KEYS)


def _head(d_k: int, scale: float | None) -> tuple[int, float]:
    """Return the checked head dimension and the factor on q·k."""
    d = whole_number("d_k", d_k, 1, MAX_D_K)
    return d, 1 / math.sqrt(d) if scale is None else real_number("scale", scale, 0, MAX_SCALE, open_low=True)


def _expectations(n: int, averages: Averages, weights: FloatArray) -> RowExpectations:
    """Average over the last axis and add what follows from the averages."""
    trace, frobenius_squared, entropy, log_partition, attended_logit, _ = (
        float(np.dot(values, weights)) for values in averages
    )
    trace = min(trace, 1 - 1 / n)  # a uniform row's, which rounding may exceed
    excess = max(n - 1 - n * trace, 0.0)  # n E sum y^2 - 1
    return RowExpectations(
        trace=trace,
        frobenius_squared=frobenius_squared,
        entropy=entropy,
        log_partition=log_partition,
        attended_logit=attended_logit,
        largest_weight_lower=1 - trace,
        largest_weight_upper=(1 + math.sqrt((n - 1) * excess)) / n,
    )
