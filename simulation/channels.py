"""The channels of one head's queries or keys: moments, those that do not vary, those that stand out.

In: an array (tokens, d_k) in float64. Out: a `ChannelSummary`.
"""

import numpy as np

from simulation._array_checks import constant_columns
from simulation.decomposition import FloatArray, centred
from simulation.diagnosis import ChannelSummary

OUTLIER_SCALES = 6.0
MIN_CHANNELS = 16  # with fewer, more than 1 % of heads of independent normal entries would be called to have one
_MAD_TO_STD = 1.4826022185056018  # of a normal law
_LEAST_SPREAD = 0.01  # of the typical standard deviation: channels made alike do not make outliers


def channel_summary(x: FloatArray) -> ChannelSummary:
    """Return mean, variance (ddof = 0), kurtosis and the names of channels that stand out.

    Parameters
    ----------
    x : ndarray, shape (tokens, d_k)

    Notes
    -----
    A channel is an outlier when its mean, or its standard deviation, lies more than six robust
    scales (1.4826 times the median absolute deviation, and at least 1 % of the median standard
    deviation) from the median over channels. Channels that are zero throughout do not count, and
    below sixteen others nothing is called an outlier.

    References
    ----------
    Rousseeuw and Croux (1993), doi:10.1080/01621459.1993.10476408, for the scale; Dettmers et al.
    (2022), arXiv:2208.07339, for outlier channels in trained transformers.

    Examples
    --------
    >>> x = np.random.default_rng(0).standard_normal((200, 24))
    >>> x[:, 5] += 8
    >>> x[:, 23] = 0
    >>> summary = channel_summary(x)
    >>> summary.outliers, summary.zero
    ((5,), (23,))
    """
    away = centred(x)
    mean, variance = x.mean(axis=0), np.square(away).mean(axis=0)
    idle = constant_columns(x)
    zero, still = np.zeros((2, x.shape[1]), dtype=bool)
    zero[list(idle.zero)] = True
    still[[*idle.zero, *idle.constant]] = True
    mean, variance = np.where(still, x[0], mean), np.where(still, 0.0, variance)
    fourth = np.square(np.square(away)).mean(axis=0)
    known = ~still & (np.square(variance) > 0)
    kurtosis = np.divide(fourth, np.square(variance), out=np.full_like(mean, np.nan), where=known)
    return ChannelSummary(
        mean=tuple(mean.tolist()),
        variance=tuple(variance.tolist()),
        kurtosis=tuple(float(value) if there else None for value, there in zip(kurtosis, known, strict=True)),
        zero=idle.zero,
        constant=idle.constant,
        outliers=tuple(np.flatnonzero(_outliers(mean, np.sqrt(variance), ~zero)).tolist()),
    )


def _outliers(mean: FloatArray, std: FloatArray, counted: np.typing.NDArray[np.bool_]) -> np.typing.NDArray[np.bool_]:
    if counted.sum() < MIN_CHANNELS:
        return np.zeros_like(counted)
    least = _LEAST_SPREAD * float(np.median(std[counted]))
    return counted & (_far(mean, counted, least) | _far(std, counted, least))


def _far(values: FloatArray, counted: np.typing.NDArray[np.bool_], least: float) -> np.typing.NDArray[np.bool_]:
    """Return which values lie more than six robust scales from the median of those counted."""
    distance = np.abs(values - np.median(values[counted]))
    scale = max(_MAD_TO_STD * float(np.median(distance[counted])), least)
    return np.asarray(distance > OUTLIER_SCALES * scale)
