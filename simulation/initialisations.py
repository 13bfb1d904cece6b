"""What q and k look like before training: x normalised, W_q and W_k freshly drawn.

In: the name of an initialisation, d_model and the number of heads. Out: the exact variance of q, k and
the logits; draws of them with standard errors.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from simulation._validation import one_of, real_number, whole_number
from simulation.sampling import Seed, seed_of, stream
from simulation.statistics import Estimate

FloatArray = npt.NDArray[np.float64]
Law = Literal["uniform", "normal"]

MAX_D_MODEL = 65_536
MAX_TOKENS = 1024
MAX_REPLICATES = 100_000


@dataclass(frozen=True)
class Rule:
    """A row of `INITIALISATIONS`: how the entries of W_q and W_k of one head are drawn.

    `variances` takes d_model and d_k and returns those of an entry of W_q and of W_k; `scale` takes d_k
    and returns the factor that the model puts on q·k.
    """

    name: str
    title: str
    formula: str
    source: str
    law: Law
    variances: Callable[[int, int], tuple[float, float]]
    scale: Callable[[int], float] = lambda d_k: 1 / math.sqrt(d_k)


@dataclass(frozen=True)
class Initialisation:
    """Exact values at initialisation, for x of mean 0 and variance 1 within each token (LayerNorm).

    Attributes
    ----------
    name : str
        Key of `INITIALISATIONS`.
    d_model, heads, d_k : int
        Width of x, number of heads, d_k = d_model / heads.
    scale : float
        Factor on q·k in such models: 1/√d_k, but 1 for T5, whose W_q holds it.
    query_variance, key_variance : float
        Variance of an entry of q and of k, without bias: d_model times that of the weights.
    logit_variance : float
        Variance of scale · q·k between two tokens; the variance within a softmax row is the same.
    logit_kurtosis : float
        Its kurtosis, over weights and tokens, for x the LayerNorm of normal numbers.
    """

    name: str
    d_model: int
    heads: int
    d_k: int
    scale: float
    query_variance: float
    key_variance: float
    logit_variance: float
    logit_kurtosis: float


@dataclass(frozen=True)
class InitialisationDraws:
    """Measured beside exact values; standard errors come from replicates, each with its own weights.

    Attributes
    ----------
    exact : Initialisation
    query_variance, key_variance, logit_variance : Estimate
        Mean square over all entries of a replicate (all means are 0), averaged over replicates.
    logit_kurtosis : Estimate
        Mean fourth power over the squared exact variance.
    replicates, tokens, seed : int
        As drawn.
    """

    exact: Initialisation
    query_variance: Estimate
    key_variance: Estimate
    logit_variance: Estimate
    logit_kurtosis: Estimate
    replicates: int
    tokens: int
    seed: int


_XAVIER = "Glorot & Bengio (2010), https://proceedings.mlr.press/v9/glorot10a.html"
_TORCH = "https://pytorch.org/docs/stable/generated/torch.nn."


def _equal(variance: float) -> tuple[float, float]:
    return variance, variance


_RULES = (
    Rule("xavier", "Xavier", "U(±√(6/(2 d_model))) for W of all heads, (d_model, d_model)", _XAVIER,
         "uniform", lambda d_model, _: _equal(1 / d_model)),
    Rule("he", "He", "N(0, 2/d_model)", "He et al. (2015), arXiv:1502.01852",
         "normal", lambda d_model, _: _equal(2 / d_model)),
    Rule("torch_linear", "nn.Linear's default", "U(±1/√d_model)", _TORCH + "Linear.html",
         "uniform", lambda d_model, _: _equal(1 / (3 * d_model))),
    Rule("torch_attention", "nn.MultiheadAttention", "U(±√(6/(4 d_model))): Xavier on the fused (3 d_model, d_model)",
         _TORCH + "MultiheadAttention.html", "uniform", lambda d_model, _: _equal(1 / (2 * d_model))),
    Rule("gpt2", "GPT-2", "N(0, 0.02²)", "https://github.com/openai/gpt-2/blob/master/src/model.py",
         "normal", lambda *_: _equal(0.02**2)),
    Rule("t5", "T5", "W_q ~ N(0, 1/(d_model d_k)), W_k ~ N(0, 1/d_model), no division",
         "Raffel et al. (2020), arXiv:1910.10683; https://github.com/huggingface/transformers/issues/18284",
         "normal", lambda d_model, d_k: (1 / (d_model * d_k), 1 / d_model), lambda _: 1.0),
    Rule("xavier_per_head", "Xavier, head by head", "U(±√(6/(d_model + d_k))) for W of one head, (d_k, d_model)",
         _XAVIER, "uniform", lambda d_model, d_k: _equal(2 / (d_model + d_k))),
)  # fmt: skip
INITIALISATIONS: Mapping[str, Rule] = {rule.name: rule for rule in _RULES}


def initialisation(name: str, d_model: int = 512, heads: int = 8) -> Initialisation:
    """Return the exact variance of q, k and the logits under an initialisation.

    Parameters
    ----------
    name : str
        A key of `INITIALISATIONS`.
    d_model : int
        Width of x, from 2 to 65,536.
    heads : int
        Number of heads; must divide `d_model`.

    Returns
    -------
    Initialisation

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    Examples
    --------
    >>> values = [initialisation(name).logit_variance for name in ("xavier", "he", "torch_linear", "t5")]
    >>> [round(value, 6) for value in values]
    [1.0, 4.0, 0.111111, 1.0]
    """
    rule = INITIALISATIONS[one_of("name", name, tuple(INITIALISATIONS))]
    width = whole_number("d_model", d_model, 2, MAX_D_MODEL)
    count = whole_number("heads", heads, 1, width)
    if width % count:
        raise ValueError(f"`heads` must divide d_model = {width}; received {count}.")
    d_k = width // count
    q_variance, k_variance = (width * variance for variance in rule.variances(width, d_k))
    return Initialisation(
        name=rule.name,
        d_model=width,
        heads=count,
        d_k=d_k,
        scale=rule.scale(d_k),
        query_variance=q_variance,
        key_variance=k_variance,
        logit_variance=rule.scale(d_k) ** 2 * d_k * q_variance * k_variance,
        logit_kurtosis=3 + (_entry_kurtosis(rule.law, width) ** 2 - 3) / d_k,
    )


def _entry_kurtosis(law: Law, d_model: int) -> float:
    """Return the kurtosis of an entry of q: 3 for normal weights, given x; for uniform ones it depends on E x⁴.

    A LayerNormed normal x is √d_model times a uniform point of the unit sphere orthogonal to (1, …, 1).
    """
    fourth = 3 * (d_model - 1) / (d_model + 1)
    return 3.0 if law == "normal" else 3 - 1.2 * fourth / d_model


def draw_initialisation(
    name: str,
    d_model: int = 512,
    heads: int = 8,
    *,
    replicates: int = 200,
    tokens: int = 32,
    rng: Seed = None,
    confidence: float = 0.95,
) -> InitialisationDraws:
    """Draw weights and tokens, and measure q, k and the logits beside their exact values.

    Entries that share a W are not independent, nor are logits that share a q or a k. Each replicate
    therefore draws one head and its tokens afresh, and errors come from the spread of replicates.

    Parameters
    ----------
    name, d_model, heads
        As for `initialisation`.
    replicates : int
        Number of independent heads, from 2 to 100,000.
    tokens : int
        Tokens that give queries, and as many others that give keys, from 1 to 1024.
    rng : int, SeedSequence, Generator or None
        Seed; None draws one, and the result reports it.
    confidence : float
        Level of each interval (Student's t with replicates - 1 degrees of freedom).

    Returns
    -------
    InitialisationDraws

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    Examples
    --------
    >>> draws = draw_initialisation("torch_linear", 64, 4, replicates=100, rng=0)
    >>> abs(draws.logit_variance.estimate - 1 / 9) < 4 * draws.logit_variance.standard_error
    True
    """
    exact = initialisation(name, d_model, heads)
    count = whole_number("replicates", replicates, 2, MAX_REPLICATES)
    size = whole_number("tokens", tokens, 1, MAX_TOKENS)
    level = real_number("confidence", confidence, 0.5, 0.999999)
    seed = seed_of(rng)
    rows = np.array([_replicate(exact, size, stream(seed, i)) for i in range(count)])
    t = float(special.stdtrit(count - 1, (1 + level) / 2))
    fields = ("query_variance", "key_variance", "logit_variance", "logit_kurtosis")
    estimates = {name: _estimate(values, getattr(exact, name), t) for name, values in zip(fields, rows.T, strict=True)}
    return InitialisationDraws(exact=exact, replicates=count, tokens=size, seed=seed, **estimates)


def _replicate(exact: Initialisation, tokens: int, rng: np.random.Generator) -> tuple[float, float, float, float]:
    """Return mean squares of q, k and the logits of one head, and the logits' kurtosis."""
    q, k = draw_head(exact, tokens, rng)
    squares = np.square(exact.scale * (q @ k.T))
    kurtosis = np.square(squares).mean() / exact.logit_variance**2
    return float(np.square(q).mean()), float(np.square(k).mean()), float(squares.mean()), float(kurtosis)


def draw_head(exact: Initialisation, tokens: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Draw one head and return q and k of `tokens` different tokens each, shape (tokens, d_k)."""
    rule = INITIALISATIONS[exact.name]
    shape = (exact.d_k, exact.d_model)
    w_q, w_k = (_entries(rule.law, variance, shape, rng) for variance in rule.variances(exact.d_model, exact.d_k))
    x = rng.standard_normal((2 * tokens, exact.d_model), dtype=np.float32).astype(np.float64)
    x -= x.mean(axis=1, keepdims=True)
    x /= np.sqrt(np.square(x).mean(axis=1, keepdims=True))
    return x[:tokens] @ w_q.T, x[tokens:] @ w_k.T


def _entries(law: Law, variance: float, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
    """Draw entries with mean 0 and the given variance, in float32 as all draws, returned as float64."""
    if law == "normal":
        return math.sqrt(variance) * rng.standard_normal(shape, dtype=np.float32).astype(np.float64)
    return math.sqrt(12 * variance) * (rng.random(shape, dtype=np.float32).astype(np.float64) - 0.5)


def _estimate(values: FloatArray, exact: float, t: float) -> Estimate:
    mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(values.size)
    return Estimate(mean, error, (max(mean - t * error, 0.0), mean + t * error), exact)
