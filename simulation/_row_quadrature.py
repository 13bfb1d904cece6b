"""Averages over softmax rows of n independent normal logits, as sums over one variable.

In: the number of keys and standard deviations of the logits. Out: six averages for each (`Averages`),
to 1e-12 of their size up to a million keys, and 1e-10 up to a billion. Also nodes for |q|.

Method: add Gumbel noise to every logit; the largest sum belongs to key i with probability y_i (the
Gumbel-max trick). An average over rows is then an integral over the height h of the winning sum,
where with a = x - h one key enters only through

    below(h) = E exp(-e^a)    and    m_k(h) = E e^(k a) exp(-e^a),   x ~ N(0, std^2),

because 1/Z^k is the integral of t^(k-1) exp(-t Z) / (k-1)! with t = e^-h. For instance E y_i y_j is
the integral of m_1^2 below^(n-2). Both steps are trapezoid sums of analytic functions and converge
exponentially (doi:10.1137/130932132), and terms are arranged to be positive: a trace of 1e-9 keeps
its digits. Only the attended logit has terms of both signs: below std 0.5 it is good to 1e-14 absolute.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from numpy.polynomial import chebyshev, polynomial
from scipy import special

FloatArray = npt.NDArray[np.float64]

# Halving any step or widening any range below moves no average by more than 1e-12 of its size
# (n <= 10^6; tests/test_row_theory.py does it).
_STEP = 0.2  # of heights and of Gumbel noise
_STEP_NORMAL = 0.5  # of a standard normal, where the logits are narrower than the noise
_STEP_PEAK = 0.05  # of heights / std, where the logits are wider: the peak of a billion keys is 0.16 wide
_DEPTH = 54.0  # a billion keys leave out e^-54 * 10^9 < 1e-14
_NARROW = 0.5  # std below which the normal factor is summed over z, above which over the noise

# In `std`, the averages are smooth but far from any one polynomial: one Chebyshev panel an octave,
# and a last one in 1/std, where the averages times a power of std have a finite limit.
_EDGES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_LAST = len(_EDGES) - 1
_NODES = 28
_RADIAL_NODES = 64  # 48 leave 1e-11 at a million keys, 16 leave 1e-3 at a thousand

_EIN = np.array([(-1) ** k / ((k + 1) * math.factorial(k + 1)) for k in range(18)])


class Averages(NamedTuple):
    """Averages over rows: floats for one std, arrays of shape (k,) for k of them; z = logits / std."""

    trace: FloatArray  # E tr J = E sum over i != j of y_i y_j
    frobenius_squared: FloatArray  # E ||J||_F^2
    entropy: FloatArray  # E of -sum y ln y
    log_partition: FloatArray  # E ln Z
    attended_logit: FloatArray  # E sum y_i x_i
    response_squared: FloatArray  # E ||J z||^2


_DECAY = np.array([1, 1, 1, -1, -1, 3])  # average ~ std^-power as std grows, in the order of Averages


class _KeyLaws(NamedTuple):
    """What one key contributes at each height h, for one std; arrays of shape (heights,) last."""

    step: float  # between heights
    log_below: FloatArray  # ln below(h)
    origin: npt.NDArray[Any]  # the z that powers of z are taken about, so that they stay small
    first: FloatArray  # (2, heights): E (z - origin)^p e^a exp(-e^a)
    second: FloatArray  # (3, heights): E (z - origin)^p e^(2a) exp(-e^a)
    surprise: FloatArray  # E of _surprise(a)


def row_averages(n_keys: int, stds: FloatArray) -> Averages:
    """Return the averages for each of `stds` (shape (k,), >= 0), interpolated from cached panels."""
    out = np.zeros((len(_DECAY), len(stds)))
    panels = np.searchsorted(_EDGES, stds, side="right") - 1
    for panel in np.unique(panels) if n_keys > 1 else ():
        here = panels == panel
        values = chebyshev.chebval(_position(panel, stds[here]), _panel_coefficients(n_keys, panel))
        out[:, here] = values * (1 / stds[here]) ** _DECAY[:, None] if panel == _LAST else values
    return Averages(*out)


def direct_row_averages(n_keys: int, std: float) -> Averages:
    """Return the averages for one std without interpolation, about 0.5 ms; needs n_keys >= 2."""
    laws = _key_laws(std)
    n, (m1, m1z), (m2, m2z, m2zz) = float(n_keys), laws.first, laws.second
    others = [np.exp(max(n - k, 0.0) * laws.log_below) for k in range(4)]  # below^(n-k)
    # ||J z||^2 = sum over i, j, k of y_i^2 y_j y_k (z_i - z_j)(z_i - z_k): terms with j = k, then the rest.
    pairs = m2zz * m2 - m2z**2
    triples = m2zz * m1**2 - 2 * m2z * m1z * m1 + m2 * m1z**2
    pair_count = n * (n - 1) * laws.step
    below = np.exp(laws.log_below)
    sums = (
        pair_count * m1**2 @ others[2],
        pair_count / 6 * (2 * m2**2 @ others[2] + (n - 2) * (m2 * m1**2) @ others[3]),
        pair_count * (laws.surprise * m1) @ others[2],
        # E ln Z is the mean winning height less that of one key alone, whose ln Z = x has mean 0.
        -laws.step * below @ np.expm1((n - 1) * laws.log_below),
        n * std * laws.step * (m1z + laws.origin * m1) @ others[1],
        pair_count / 6 * (2 * pairs @ others[2] + (n - 2) * triples @ others[3]),
    )
    return Averages(*sums)


@lru_cache(maxsize=256)
def query_norms(d_k: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights, each of shape (nodes,), that average a function of |q| ~ chi(d_k).

    The density is formed about its peak and weights are made to sum to 1: from its formula with
    the gamma function it would be good to nine digits only at d_k = 10^6.
    """
    root = math.sqrt(d_k)
    low, high = max(0.0, root - 6.5), root + 7.9  # nine standard deviations of |q|, or more
    x, lengths = np.polynomial.legendre.leggauss(_RADIAL_NODES)
    shift = (low + high) / 2 - root + (high - low) / 2 * x
    relative = shift / root
    weights = lengths * np.exp((d_k - 1) * np.log1p(relative) - shift * root - shift**2 / 2)
    return root + shift, weights / weights.sum()


@lru_cache(maxsize=1024)
def _panel_coefficients(n_keys: int, panel: int) -> FloatArray:
    """Return Chebyshev coefficients, shape (nodes, averages), of the averages on one panel."""
    stds = _panel_stds(panel)
    values = np.array([direct_row_averages(n_keys, float(std)) for std in stds])
    if panel == _LAST:
        values = values * stds[:, None] ** _DECAY
    angles = np.pi * (np.arange(_NODES) + 0.5) / _NODES
    coefficients = 2 / _NODES * np.cos(np.outer(np.arange(_NODES), angles)) @ values
    coefficients[0] /= 2
    return np.asarray(coefficients)


def _panel_stds(panel: int) -> FloatArray:
    """Return the stds at the Chebyshev nodes of a panel."""
    x = np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
    if panel == _LAST:
        return np.asarray(2 * _EDGES[-1] / (1 + x))
    low, high = _EDGES[panel : panel + 2]
    return np.asarray((low + high + (high - low) * x) / 2)


def _position(panel: int, stds: FloatArray) -> FloatArray:
    """Return where `stds` lie in a panel, from -1 to 1: the inverse of `_panel_stds`."""
    if panel == _LAST:
        return 2 * _EDGES[-1] / stds - 1
    low, high = _EDGES[panel : panel + 2]
    return (2 * stds - low - high) / (high - low)


# Below, einsum rather than @: waking BLAS threads for products this small costs ten times the work.
@lru_cache(maxsize=_NODES * len(_EDGES))  # 20 kB each: all panels at once, for all n and d_k
def _key_laws(std: float) -> _KeyLaws:
    return _narrow_laws(std) if std < _NARROW else _wide_laws(std)


def _narrow_laws(std: float) -> _KeyLaws:
    """Sum over z: few nodes are enough while the logits are narrower than the noise."""
    count = int(9.5 / _STEP_NORMAL)
    z = _STEP_NORMAL * np.arange(-count, count + 1)
    weights = _STEP_NORMAL * _normal_density(z) * z ** np.arange(3)[:, None]
    low, high = -4.5 - 9.5 * std, _DEPTH + 9.5 * std
    heights = low + _STEP * np.arange(int((high - low) / _STEP) + 1)
    a = std * z[:, None] - heights
    t = np.exp(a)
    density = t * np.exp(-t)
    return _KeyLaws(
        step=_STEP,
        log_below=_log_complement(np.einsum("z,zh->h", weights[0], -np.expm1(-t))),
        origin=np.zeros_like(heights),
        first=np.einsum("pz,zh->ph", weights[:2], density),
        second=np.einsum("pz,zh->ph", weights, t * density),
        surprise=np.einsum("z,zh->h", weights[0], _surprise(a)),
    )


def _wide_laws(std: float) -> _KeyLaws:
    """Sum over the noise g = -a, z = height/std - g/std: the normal factor is smooth on its scale."""
    noise = -4 + _STEP * np.arange(int(_DEPTH / _STEP) + 1)[::-1]  # falling, so that z rises
    stride = max(1, int(_STEP_PEAK * std / _STEP))
    # Beyond `high` the sum of a logit and its noise has probability e^-_DEPTH.
    low = -8.7 - 4 / std
    high = _DEPTH / std + std / 2 if std**2 < 2 * _DEPTH else (2 * _DEPTH) ** 0.5
    origin = low + stride * _STEP / std * np.arange(int((high - low) * std / (stride * _STEP)) + 1)
    if stride < len(noise):  # neighbouring heights share nodes: evaluate each once
        line = origin[0] - noise[0] / std + _STEP / std * np.arange(stride * (len(origin) - 1) + len(noise))
        normal, tail = (
            sliding_window_view(f, len(noise))[::stride] for f in (_normal_density(line), special.ndtr(-line))
        )
    else:
        z = origin[:, None] - noise / std
        normal, tail = _normal_density(z), special.ndtr(-z)
    shift, t = -noise / std, np.exp(-noise)
    density = _STEP * t * np.exp(-t)
    powers = density * shift ** np.arange(3)[:, None]
    weights = np.vstack((powers[:2], t * powers, _STEP * _surprise(-noise))) / std
    sums = np.einsum("hg,kg->kh", normal, weights)
    above = np.einsum("hg,g->h", tail, density)
    return _KeyLaws(stride * _STEP, _log_complement(above), origin, sums[:2], sums[2:5], sums[5])


def _normal_density(z: npt.NDArray[Any]) -> FloatArray:
    return np.asarray(np.exp(-z * z / 2) / np.sqrt(2 * np.pi))


def _log_complement(above: FloatArray) -> FloatArray:
    """Return ln(1 - above), kept finite where rounding has made `above` 1."""
    return np.asarray(np.log1p(-np.minimum(above, 1 - 1e-16)))


def _surprise(a: npt.NDArray[Any]) -> FloatArray:
    """Return K(t) = integral from 0 to t = e^a of -(gamma + ln v) e^-v dv, positive for all t.

    It turns entropy into a sum of positive terms: for r the other keys' share over a key's own,
    ln(1 + r) / (1 + r) = r * integral of K(t) e^(-t r) dt.
    """
    t = np.exp(a)
    out: FloatArray = np.empty_like(t)
    near, far = t < 1, t >= 1
    small, large = t[near], np.minimum(t[far], 700.0)  # beyond 700 it is below 1e-300
    # K = Ein(t) - (1 - e^-t)(gamma + ln t) with Ein(t) = t - t^2/(2 2!) + t^3/(3 3!) - ...
    out[near] = small * polynomial.polyval(small, _EIN) + np.expm1(-small) * (np.euler_gamma + a[near])
    out[far] = np.exp(-large) * (np.euler_gamma + np.log(large)) + special.exp1(large)
    return out
