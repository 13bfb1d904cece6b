"""A scoring put together from a way of the table, one factor more and a soft-cap, and what it amounts to.

In: names and numbers, as a page or a link holds them. Out: a `Scoring` for any d_k and number of keys, and
sentences about mistakes that it looks like.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simulation._validation import one_of, real_number
from simulation.methods import METHODS, make_scoring
from simulation.scoring import Scoring
from simulation.scoring_theory import largest_weight_bound, predict_row

HEADS = 8
NO_CAP = 0.0
EXTRAS: Mapping[str, tuple[str, Callable[[int], float]] | None] = {
    "nothing": None,
    "1/sqrt(d_k)": ("1/√d_k", lambda d_k: 1 / math.sqrt(d_k)),
    "1/sqrt(d_model)": ("1/√d_model", lambda d_k: 1 / math.sqrt(HEADS * d_k)),
    "sqrt(d_k)": ("√d_k", math.sqrt),
    "own number": ("own number", lambda _: 1.0),
}


@dataclass(frozen=True)
class Composition:
    """How a scoring is made for each d_k and number of keys; callable, as `compare_scorings` takes it.

    Parameters
    ----------
    way : str
        A key of `METHODS`.
    number : float, optional
        The way's own number (gain, multiplier, …), where it has one; by default its published value.
    extra : str
        A key of `EXTRAS`: what the scores are multiplied by as well. d_model is that of 8 heads.
    factor : float
        For the extra "own number".
    cap : float
        Soft-cap after all factors; 0 keeps the way's own, if any.

    Raises
    ------
    ValueError
        If an argument breaks its rule.

    Examples
    --------
    >>> print(Composition("t5", extra="1/sqrt(d_k)")(64, 128))
    q·k × 1/√d_k (in W_q) 0.125 × 1/√d_k 0.125 = 0.015625 q·k
    """

    way: str
    number: float | None = None
    extra: str = "nothing"
    factor: float = 1.0
    cap: float = NO_CAP

    def __post_init__(self) -> None:
        object.__setattr__(self, "way", one_of("way", self.way, tuple(METHODS)))
        if self.extra not in EXTRAS:
            raise ValueError(f"`extra` must be one of {', '.join(EXTRAS)}; received {self.extra!r}.")
        object.__setattr__(self, "factor", real_number("factor", self.factor, 0, 1e12))
        object.__setattr__(self, "cap", real_number("cap", self.cap, 0, 1e12))

    def __call__(self, d_k: int, n_keys: int) -> Scoring:
        """Return the scoring for a head dimension and a number of keys."""
        option = own_number(self.way)
        numbers = {} if self.number is None or option is None else {option: self.number}
        scoring = make_scoring(self.way, d_k, n_keys=n_keys, **numbers)
        if (extra := EXTRAS[self.extra]) is not None:
            name, value = extra
            scoring = scoring.times(name, self.factor if self.extra == "own number" else value(d_k))
        return scoring.capped(self.cap) if self.cap else scoring


def own_number(way: str) -> str | None:
    """Return the name of a way's own number, or None.

    Examples
    --------
    >>> own_number("cosine"), own_number("scaled_dot")
    ('gain', None)
    """
    return next((name for name in METHODS[way].options if name != "eps"), None)


def mistakes(scoring: Scoring, d_k: int) -> list[str]:
    """Return the known mistakes that a scoring looks like, each as a sentence or two.

    Examples
    --------
    >>> mistakes(Composition("t5", extra="1/sqrt(d_k)")(64, 128), 64)[0][:14]
    'Scaled twice: '
    """
    names = [factor.name for factor in scoring.factors]
    told = []
    if (times := names.count("1/√d_k")) > 1:
        inside = ", once inside W_q" if any(factor.folded for factor in scoring.factors) else ""
        told.append(
            f"Scaled twice: 1/√d_k is applied {times} times{inside}. Together that is {'1/d_k = ' * (times == 2)}"
            f"{d_k ** (-times / 2):.4g}; independent q and k leave logits of std {d_k ** ((1 - times) / 2):.4g}, not 1."
        )
    if "1/√d_model" in names:
        told.append(
            f"The width of the model, d_model = {HEADS} d_k, in place of the head's: a variance of 1/heads = "
            f"{1 / HEADS:g} where 1/√d_k alone leaves 1. It flattens the weights, it does not sharpen them."
        )
    return told


def bound_words(scoring: Scoring, d_k: int, n_keys: int) -> str:
    """Return what bounded logits mean for the weights, or nothing where logits have no bound.

    Examples
    --------
    >>> bound_words(Composition("cosine", 3)(64, 16), 64, 16)
    'Logits stay within ±3, so no weight among 16 keys exceeds 0.9642.'
    """
    bound = predict_row(scoring, d_k, 1).bound if scoring.kind in ("cosine", "rmsnorm") else scoring.cap
    if math.isinf(bound):
        return ""
    most = largest_weight_bound(bound, n_keys)
    told = f"{most:.4g}" if most < 0.9999 else f"1 − {1 - most:.1g}" if most < 1 else "1 − 1e-16"
    return f"Logits stay within ±{bound:.4g}, so no weight among {n_keys} keys exceeds {told}."
