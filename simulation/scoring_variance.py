"""Variances of scores that are not linear in q·k: additive scoring, and keys' summed lengths.

In: d_k, the number of keys, or the variances inside tanh. Out: exact variances, without sampling.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simulation._row_quadrature import query_norms
from simulation._scoring_quadrature import normal_nodes
from simulation._validation import MAX_D_K, real_number, whole_number
from simulation.row_theory import MAX_KEYS


class AdditiveVariance(NamedTuple):
    """Variance of additive scores: over everything, and within a row, averaged over weights and queries."""

    total: float
    within_row: float


@lru_cache(maxsize=64)
def additive_variance(query_part: float = 0.5, key_part: float = 0.5, *, d_k: int | None = None) -> AdditiveVariance:
    """Return the variance of vᵀ tanh(W_q q + W_k k), W normal and v of variance 1/h, for any h.

    Within a row only the key varies, so the total, E tanh², loses the mean square of E[tanh | W, q]. Both are
    averages over v; the variance of one row varies about them.

    Parameters
    ----------
    query_part, key_part : float
        Variance of an entry of W_q q and of W_k k, from 0 to 16: each 1/2 for `draw_additive_weights`, 1 for
        square Xavier W_q and W_k.
    d_k : int, optional
        Head dimension, from 1 to 1,000,000; None for the limit of large d_k, where |q|² = d_k.

    Returns
    -------
    AdditiveVariance

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    References
    ----------
    Bahdanau, Cho & Bengio (2015), arXiv:1409.0473.

    Examples
    --------
    >>> [round(value, 12) for value in additive_variance()]
    [0.394294490398, 0.207970077194]
    """
    a = math.sqrt(real_number("query_part", query_part, 0, 16))
    b = math.sqrt(real_number("key_part", key_part, 0, 16))
    lengths, chances = (np.ones(1), np.ones(1)) if d_k is None else query_norms(whole_number("d_k", d_k, 1, MAX_D_K))
    lengths = lengths if d_k is None else lengths / math.sqrt(d_k)
    total = known = 0.0
    for r, chance in zip(lengths, chances, strict=True):  # of q
        u, p_u = normal_nodes(a * float(r))
        p_u = np.where(u < 0, 0.0, np.where(u > 0, 2.0, 1.0)) * p_u if a else p_u  # tanh² is even
        u, p_u = u[p_u > 0], chance * p_u[p_u > 0]
        for s, other in zip(lengths, chances, strict=True):  # of a row of W_k
            w, p_w = normal_nodes(b * float(s))
            values = np.tanh(u[:, None] + w)
            total += float(other * (p_u @ (values**2 @ p_w)))
            known += float(other * (p_u @ (values @ p_w) ** 2))
    return AdditiveVariance(total, total - known)


@lru_cache(maxsize=256)
def key_length_variance(d_k: int, n_keys: int) -> float:
    """Return the variance of q·k_j / Σ|k_i|, about 1/n² (exactly 1 for n = 1).

    It is E Σ|k|² / (Σ|k|)² / n, and 1/S² is the integral of t exp(-t S) over t. Good to 1e-10 from
    d_k = 2 on, to 1e-5 at d_k = 1.

    Parameters
    ----------
    d_k : int
        Head dimension, from 1 to 1,000,000.
    n_keys : int
        Number of keys, from 1 to 1,000,000,000.

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    References
    ----------
    Bernhard (2023), arXiv:2311.09406.

    Examples
    --------
    >>> round(16 * key_length_variance(64, 16) ** 0.5, 4)
    1.0037
    """
    d, n = whole_number("d_k", d_k, 1, MAX_D_K), whole_number("n_keys", n_keys, 1, MAX_KEYS)
    if n == 1:
        return 1.0
    lengths, chances = query_norms(d)
    u = -math.log(n * math.sqrt(d)) + 0.1 * np.arange(-200, 300)
    decay = np.exp(-np.exp(u)[:, None] * lengths)
    others = np.exp((n - 1) * np.log(np.maximum(decay @ chances, 1e-300)))
    return float(0.1 * (np.exp(2 * u) * (decay @ (chances * lengths**2)) * others).sum())
