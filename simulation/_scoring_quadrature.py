"""Sums over nodes for rows of logits of any scoring: laws of one logit, rows of n of them, one key.

In: a `Scoring` and d_k, or nodes and probabilities of one logit. Out: nodes, probabilities, averages.

Method: an expectation over a row is an integral over u = ln t of what single keys contribute, through
below(u) = E exp(-e^(u+x)) of one logit x, because 1/Z is the integral of exp(-t Z) over t. Averages over
x, u and |q| are sums over nodes.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

from simulation._row_quadrature import query_norms
from simulation.scoring import Scoring

FloatArray = npt.NDArray[np.float64]

_REACH = 9.0  # standard deviations
_STEP = 0.3  # of x and u: integrands are analytic within ±π/2, so sums are good to e^(-π²/0.3) = 5e-15
_FLAT = 19.1  # tanh is 1 beyond
KEY_STEP = 0.25  # of ln E
_MOST_NODES = 5_000_000  # of (x, u) for one |q|: some 5 s in all


def laws(scoring: Scoring, d: int) -> Iterator[tuple[float, FloatArray, FloatArray]]:
    """Yield (weight, logits x, their probabilities p) for each |q|: one law where |q| does not enter."""
    scale, cap = scoring.effective_scale, scoring.cap
    if scale == 0:
        yield 1.0, np.zeros(1), np.ones(1)
    elif scoring.kind == "dot":
        for r, weight in zip(*query_norms(d), strict=True):
            std = scale * float(r)
            step = min(_STEP, _STEP * cap, std / 2)
            x = step * _grid(min(_REACH * std, _FLAT * cap) / step)
            yield float(weight), *_closed(_capped(x, cap), step * _density(x / std) / std, cap)
    else:
        largest = scale * (d if scoring.kind == "rmsnorm" else 1)
        step = min(_STEP * min(1, cap) / largest, 0.25 / math.sqrt(d))
        far = min(_FLAT, 40 / d + 9 / math.sqrt(d))
        t = step * _grid(far / step)  # cos = tanh t, of density ∝ sech^(d-1) t
        p = np.exp((1 - d) * np.log(np.cosh(t)))
        p = p / p.sum() if far < _FLAT else p * step / special.beta(0.5, (d - 1) / 2)  # beta is infinite at d = 1
        yield 1.0, *_closed(_capped(largest * np.tanh(t), cap), p, float(_capped(np.array(largest), cap)))


def _grid(half: float) -> FloatArray:
    if half > _MOST_NODES:
        raise ValueError(f"`scoring` must have a scale and a cap that theory can resolve; needs {half:.1g} nodes.")
    return np.arange(-math.ceil(half), math.ceil(half) + 1, dtype=np.float64)


def _closed(x: FloatArray, p: FloatArray, end: float) -> tuple[FloatArray, FloatArray]:
    """Add the probability beyond the grid, where x has reached its bound, to the ends."""
    rest = max(1 - float(p.sum()), 0.0) / 2
    if rest < 1e-15:
        return x, p
    return np.array([-end, *x, end]), np.array([rest, *p, rest])


def _capped(x: FloatArray, cap: float) -> FloatArray:
    return np.asarray(cap * np.tanh(x / cap)) if math.isfinite(cap) else x


def _density(z: npt.NDArray[Any]) -> FloatArray:
    return np.asarray(np.exp(-z * z / 2) / math.sqrt(2 * math.pi))


def row_of(x: FloatArray, p: FloatArray, n: int) -> tuple[float, float]:
    """Return E tr J and the expected entropy of rows of n independent logits; NaN if too wide."""
    if n == 1:
        return 0.0, 0.0
    low = -(math.log(n) + float(x.max()) + 30)
    count = math.ceil((3.7 - float(x.min()) - low) / _STEP) + 1
    if count * x.size > _MOST_NODES:
        return math.nan, math.nan
    u = low + _STEP * np.arange(count)
    t = np.exp(np.minimum(u[:, None] + x, 700.0))
    gone = -np.expm1(-t)
    log_below = np.log1p(-np.minimum(gone @ p, 1 - 1e-16))
    kept = (t * (1 - gone)) @ np.stack([p, p * x], axis=1)  # t E e^x exp(-t e^x), and with x in front
    trace = _STEP * n * (n - 1) * float(kept[:, 0] ** 2 @ np.exp(max(n - 2, 0) * log_below))
    attended = _STEP * n * float(kept[:, 1] @ np.exp((n - 1) * log_below))
    log_partition = _STEP * float((np.exp(-np.exp(u)) - np.exp(n * log_below)).sum())
    return min(trace, 1 - 1 / n), min(max(log_partition - attended, 0.0), math.log(n))


def normal_nodes(std: float) -> tuple[FloatArray, FloatArray]:
    """Return nodes and probabilities for N(0, std²) and functions analytic within ±π/2."""
    if std == 0:
        return np.zeros(1), np.ones(1)
    step = min(0.4, 0.25 / std)
    z = step * _grid(_REACH / step)
    return std * z, step * _density(z)


def one_key(u: FloatArray, stride: int, mean: float, std: float, depth: float) -> tuple[FloatArray, FloatArray]:
    """Return ln below(u) and -below'(u) for a logit N(mean, std²), on a grid u of step `stride` · KEY_STEP.

    Summed over the logit if it is narrow, else over ln E, down to -depth: exp(-e^a) is the chance that an
    exponential variable E exceeds e^a. Then only differences of ln E and u enter, which lie on one grid.
    """
    if std < 0.5:
        z = 0.5 * np.arange(-18, 19) if std else np.zeros(1)
        p = 0.5 * _density(z) if std else np.ones(1)
        t = np.exp(np.minimum(u[:, None] + mean + std * z, 700.0))
        return np.log1p(-np.minimum(-np.expm1(-t) @ p, 1 - 1e-16)), (t * np.exp(-t)) @ p
    g = KEY_STEP * np.arange(-math.ceil(depth / KEY_STEP), 17)
    p = KEY_STEP * np.exp(g - np.exp(g))
    z = (g[0] - u[-1] - mean + KEY_STEP * np.arange(g.size + stride * (u.size - 1))) / std
    gone, dense = (
        np.einsum("ug,g->u", sliding_window_view(values, g.size)[::stride], p)[::-1]
        for values in (special.ndtr(-z), _density(z))
    )
    return np.log1p(-np.minimum(gone, 1 - 1e-16)), dense / std
