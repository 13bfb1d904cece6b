"""The table of ways to score: formula, factors, when it is right, source; and scorings made from it.

In: the name of a way, d_k, the number of keys, the way's own numbers. Out: a `Scoring`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from simulation._validation import MAX_D_K, one_of, real_number, whole_number
from simulation.row_theory import MAX_KEYS
from simulation.scoring import Factor, Kind, Scoring


@dataclass(frozen=True, eq=False)
class Method:
    """A row of `METHODS`: one way to score, in words and formulas, and the factors it is made of.

    `factors` are names and functions of a mapping that holds d_k, n and the options. `options` are the
    method's own numbers with their defaults, all above 0 (eps may be 0).
    """

    name: str
    title: str
    latex: str
    formula: str
    right_when: str
    source: str
    factors: tuple[tuple[str, Callable[[Mapping[str, float]], float]], ...] = ()
    kind: Kind = "dot"
    options: Mapping[str, float] = field(default_factory=dict)
    needs_keys: bool = False
    folded: bool = False


def make_scoring(name: str, d_k: int, *, n_keys: int | None = None, **options: float) -> Scoring:
    """Return a scoring of the table `METHODS` for a head dimension.

    Parameters
    ----------
    name : str
        A key of `METHODS`.
    d_k : int
        Head dimension, from 1 to 1,000,000.
    n_keys : int, optional
        Number of keys in a row, from 1 to 1,000,000,000; needed where ``METHODS[name].needs_keys``.
    **options : float
        Any of ``METHODS[name].options``, which holds the defaults.

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    Examples
    --------
    >>> print(make_scoring("free_scale", 256, divisor=224))
    q·k × 1/√divisor 0.0668153 = 0.0668153 q·k
    >>> [make_scoring("mup_base", d, base=64).effective_scale for d in (64, 128, 256)]
    [0.125, 0.0625, 0.03125]
    """
    method = METHODS[one_of("name", name, tuple(METHODS))]
    if n_keys is None and method.needs_keys:
        raise ValueError(f"`n_keys` must be given for {method.name}; received None.")
    if unknown := set(options) - set(method.options):
        raise ValueError(f"`{min(unknown)}` is no option of {method.name}, which has {list(method.options)}.")
    values: dict[str, float] = {name: _option(name, value) for name, value in {**method.options, **options}.items()}
    values["d_k"] = whole_number("d_k", d_k, 1, MAX_D_K)
    values["n"] = whole_number("n_keys", 1 if n_keys is None else n_keys, 1, MAX_KEYS)
    factors = tuple(Factor(name, value(values), method.folded) for name, value in method.factors)
    return Scoring(method.kind, factors, values.get("cap", math.inf), values.get("eps", 0.0))


def _option(name: str, value: float) -> float:
    low = 1 if name == "trained_keys" else 0  # its logarithm divides
    return real_number(name, value, low, math.inf if name == "cap" else 1e12, open_low=name != "eps")


_ROOT = ("1/√d_k", lambda v: 1 / math.sqrt(v["d_k"]))
_YANG = "Yang et al. (2022), arXiv:2203.03466"
_GEMMA = "Gemma Team (2024), arXiv:2408.00118"
_ROWS = (
    Method(
        "dot", "Dot product", r"q\cdot k", "q·k",
        "q and k are small already: entries of std d_k^(-1/4), independent, give logits of variance 1.",
        "Luong, Pham & Manning (2015), arXiv:1508.04025",
    ),
    Method(
        "scaled_dot", "Scaled dot product", r"\frac{q\cdot k}{\sqrt{d_k}}", "q·k / √d_k",
        "q and k are independent with unit variance, as at initialisation: logits keep variance 1 for any d_k.",
        "Vaswani et al. (2017), arXiv:1706.03762", (_ROOT,),
    ),
    Method(
        "mup", "µP", r"\frac{m\,q\cdot k}{d_k}", "m q·k / d_k",
        "q and k are aligned, as after training: the logit of an aligned key keeps its mean. m = √d_k undoes it.",
        _YANG, (("1/d_k", lambda v: 1 / v["d_k"]), ("m", lambda v: v["multiplier"])), options={"multiplier": 1.0},
    ),
    Method(
        "mup_base", "µP from a base width", r"\frac{q\cdot k}{\sqrt{d_0}\,(d_k/d_0)}", "q·k / (√d_0 · d_k/d_0)",
        "As µP; equal to 1/√d_k at the base width d_0, where the model was tuned.",
        f"{_YANG}; https://github.com/microsoft/mup/issues/18",
        (("1/√d_0", lambda v: 1 / math.sqrt(v["base"])), ("d_0/d_k", lambda v: v["base"] / v["d_k"])),
        options={"base": 64.0},
    ),
    Method(
        "free_scale", "Divisor of its own", r"\frac{q\cdot k}{\sqrt{c}}", "q·k / √c",
        "c is the variance of q·k. Gemma 2's query_pre_attn_scalar: 224 was taken for d_k = 256, 144 is for 128.",
        _GEMMA, (("1/√divisor", lambda v: 1 / math.sqrt(v["divisor"])),), options={"divisor": 224.0},
    ),
    Method(
        "cosine", "Cosine", r"g\,\frac{q\cdot k}{|q|\,|k|}", "g cos(q, k)",
        "Lengths of q and k run away in training: logits stay within ±g. Their std is g/√d_k for any lengths.",
        "Henry et al. (2020), arXiv:2010.04245", (("g", lambda v: v["gain"]),), "cosine", {"gain": 8.0, "eps": 1e-12},
    ),
    Method(
        "qk_rmsnorm", "QK-RMSNorm", r"\frac{\mathrm{RMSNorm}(q)\cdot\mathrm{RMSNorm}(k)}{\sqrt{d_k}}",
        "RMSNorm(q)·RMSNorm(k) / √d_k",
        "As cosine with g = √d_k: variance 1 for independent directions; bounded by √d_k before learned gains.",
        "Zhang & Sennrich (2019), arXiv:1910.07467; on q and k: Dehghani et al. (2023), arXiv:2302.05442",
        (_ROOT,), "rmsnorm", {"eps": 1e-6},
    ),
    Method(
        "additive", "Additive", r"v^\top\tanh(W_q q + W_k k)", "vᵀ tanh(W_q q + W_k k)",
        "v has variance 1/h: then scores have variance below 1 for any d_k and h. With v of ones it is h times that.",
        "Bahdanau, Cho & Bengio (2015), arXiv:1409.0473", kind="additive",
    ),
    Method(
        "soft_cap", "Soft-cap", r"c\tanh\frac{q\cdot k}{c\sqrt{d_k}}", "c tanh(q·k / (c √d_k))",
        "Outliers must be bounded. It is no scale: 50 barely touches unit-variance logits, and rows can still freeze.",
        _GEMMA, (_ROOT,), options={"cap": 50.0},
    ),
    Method(
        "log_n", "Log n", r"\frac{\ln n}{\ln n_0}\frac{q\cdot k}{\sqrt{d_k}}", "(ln n / ln n_0) q·k / √d_k",
        "Rows outgrow the length n_0 of training: entropy then grows more slowly with n.",
        "Su (2021), https://kexue.fm/archives/8823; Chiang & Cholak (2022), arXiv:2202.12172",
        (_ROOT, ("ln n / ln n_0", lambda v: math.log(v["n"]) / math.log(v["trained_keys"]))),
        options={"trained_keys": 512.0}, needs_keys=True,
    ),
    Method(
        "ssmax", "Scalable softmax", r"s\ln n\,\frac{q\cdot k}{\sqrt{d_k}}", "s ln n · q·k / √d_k",
        "One key must stand out among any n. Random rows of unit variance freeze beyond n = exp(2/s²).",
        "Nakanishi (2025), arXiv:2501.19399", (_ROOT, ("s", lambda v: v["s"]), ("ln n", lambda v: math.log(v["n"]))),
        options={"s": 0.43}, needs_keys=True,
    ),
    Method(
        "sqrt_2_log_n", "√(2 ln n)", r"\sqrt{2\ln n}\,\frac{q\cdot k}{\sqrt{d_k}}", "√(2 ln n) q·k / √d_k",
        "Random rows of unit variance are to stay at the edge of freezing for every n.",
        "nor (2025), https://nor-blog.pages.dev/posts/2025-11-27-attention-and-long-context; arXiv:2605.12697",
        (_ROOT, ("√(2 ln n)", lambda v: math.sqrt(2 * math.log(v["n"])))), needs_keys=True,
    ),
    Method(
        "t5", "T5", r"q\cdot k,\quad W_q \sim N(0,\, 1/(d_{\mathrm{model}} d_k))", "q·k, with 1/√d_k folded into W_q",
        "Equal to 1/√d_k at initialisation, not in training, where q learns at another rate. Dividing again: 1/d_k.",
        "Raffel et al. (2020), arXiv:1910.10683; https://github.com/huggingface/transformers/issues/18284",
        (_ROOT,), folded=True,
    ),
    Method(
        "key_lengths", "Summed key lengths", r"\frac{q\cdot k_j}{\sum_i |k_i|}", "q·k / Σ|k|",
        "Rows must never saturate: logits have std about 1/n at initialisation, so attention starts near uniform.",
        "Bernhard (2023), arXiv:2311.09406", kind="key_lengths",
    ),
)  # fmt: skip
METHODS: Mapping[str, Method] = {row.name: row for row in _ROWS}
