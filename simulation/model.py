"""What is assumed of a query and a key, and the exact moments of q·k that follow from it.

In: the head dimension d_k, the family of the entries and their departures from the footnote's
assumptions. Out: exact mean, variance, skewness and kurtosis of q·k and of one component product.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, cast

from simulation._validation import MAX_D_K, one_of, real_number, whole_number

Entries = Literal["normal", "uniform", "rademacher", "laplace", "student_t"]
ENTRIES: tuple[Entries, ...] = ("normal", "uniform", "rademacher", "laplace", "student_t")
ALIASES = {"gaussian": "normal", "t": "student_t", "student": "student_t"}
MIN_STD = 1e-6
MAX_SHIFT = 1e4  # largest |mean| and std: products of float32 draws stay far from overflow


class Moments(NamedTuple):
    """Exact shape of a law; a moment that does not exist is ``inf`` (or ``nan`` for the skewness)."""

    mean: float
    variance: float
    skewness: float
    kurtosis: float


@dataclass(frozen=True)
class QueryKeyModel:
    """Law of a query q and a key k with `d_k` components each.

    Components of one vector are independent. Entries are first standardised to mean 0 and
    variance 1, z_q and z_k = correlation * z_q + sqrt(1 - correlation**2) * e with e from the
    same family; then q = q_mean + q_std * z_q and k = k_mean + k_std * z_k. (For entries other
    than normal a correlated z_k keeps mean 0 and variance 1 but not the family's shape.)

    Parameters
    ----------
    d_k : int
        Head dimension, from 1 to 1,000,000.
    entries : {"normal", "uniform", "rademacher", "laplace", "student_t"}
        Family of the standardised entries.
    df : float, optional
        Degrees of freedom, required for Student t and refused for the others. At most 2 there is
        no variance (refused); at most 4 there is no kurtosis.
    q_mean, k_mean : float
        Means of the entries, from -10,000 to 10,000.
    q_std, k_std : float
        Standard deviations of the entries, from 1e-6 to 10,000.
    correlation : float
        Correlation of q_i with k_i, from -1 to 1.

    Raises
    ------
    ValueError
        If an argument breaks its rule; the message names it.

    References
    ----------
    Vaswani et al. (2017), footnote 4, arXiv:1706.03762.

    Examples
    --------
    >>> QueryKeyModel(64).moments()
    Moments(mean=0.0, variance=64.0, skewness=0.0, kurtosis=3.09375)
    >>> QueryKeyModel(64, q_mean=0.5, k_mean=0.5).moments()[:2]
    (16.0, 96.0)
    """

    d_k: int
    entries: Entries = "normal"
    df: float | None = None
    q_mean: float = 0.0
    q_std: float = 1.0
    k_mean: float = 0.0
    k_std: float = 1.0
    correlation: float = 0.0

    def __post_init__(self) -> None:
        clean = {
            "d_k": whole_number("d_k", self.d_k, 1, MAX_D_K),
            "entries": one_of("entries", self.entries, ENTRIES, ALIASES),
            "q_mean": real_number("q_mean", self.q_mean, -MAX_SHIFT, MAX_SHIFT),
            "q_std": real_number("q_std", self.q_std, MIN_STD, MAX_SHIFT),
            "k_mean": real_number("k_mean", self.k_mean, -MAX_SHIFT, MAX_SHIFT),
            "k_std": real_number("k_std", self.k_std, MIN_STD, MAX_SHIFT),
            "correlation": real_number("correlation", self.correlation, -1, 1),
        }
        for name, value in clean.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "df", self._checked_df())

    def _checked_df(self) -> float | None:
        if self.entries != "student_t":
            if self.df is not None:
                raise ValueError(f"`df` belongs to student_t entries only; received {self.df} with {self.entries}.")
            return None
        if self.df is None:
            raise ValueError("`df` must be given for student_t entries: a number above 2; received None.")
        df = real_number("df", self.df, 0, 1e6, open_low=True)
        if df <= 2:
            raise ValueError(f"`df` must be above 2: at most 2, Student t has no finite variance; received {df:g}.")
        return df

    @property
    def is_standard(self) -> bool:
        """Whether the footnote's assumptions hold: independent, mean 0 and variance 1."""
        return (self.q_mean, self.k_mean, self.correlation) == (0, 0, 0) and self.q_std == self.k_std == 1

    @property
    def has_exact_law(self) -> bool:
        """Whether `theory.DotProductLaw` gives the law of q·k: normal entries with mean 0, not quite aligned."""
        return self.entries == "normal" and self.q_mean == self.k_mean == 0 and abs(self.correlation) <= 0.9999

    def component_moments(self) -> Moments:
        """Return the exact moments of one component product q_i k_i."""
        return _shape(component_cumulants(self))

    def moments(self) -> Moments:
        """Return the exact moments of q·k: its cumulants are d_k times those of q_i k_i."""
        return _shape([self.d_k * cumulant for cumulant in component_cumulants(self)])

    def standardised_moments(self, *, component: bool = False) -> list[float]:
        """Return E[((X - mean)/sd)**r] for r = 0..8, X = q·k (or one component product).

        Moments that do not exist are ``inf``, and ``nan`` when odd.
        """
        count = 1 if component else self.d_k
        cumulants = [count * cumulant for cumulant in component_cumulants(self)]
        central = _central_moments(cumulants)
        return [central[r] / central[2] ** (r / 2) if central[2] else math.nan for r in range(9)]


def entry_moment(entries: Entries, df: float | None, order: int) -> float:
    """Return E[z**order] of a standardised entry; ``inf`` (``nan`` when odd) if it does not exist."""
    if entries == "student_t":
        df = cast("float", df)
        if order >= df:
            return math.nan if order % 2 else math.inf
        # E t^r = df^(r/2) prod (2j-1)/(df-2j); standardised by (df-2)/df
        factors = ((df - 2) * (2 * j - 1) / (df - 2 * j) for j in range(1, order // 2 + 1))
        return 0.0 if order % 2 else math.prod(factors)
    if order % 2:
        return 0.0
    if entries == "normal":
        return float(math.prod(range(1, order, 2)))
    if entries == "uniform":
        return 3.0 ** (order // 2) / (order + 1)
    if entries == "laplace":
        return math.factorial(order) / 2.0 ** (order // 2)
    return 1.0


@lru_cache(maxsize=256)
def component_cumulants(model: QueryKeyModel) -> tuple[float, ...]:
    """Return the cumulants 1..8 of the component product q_i k_i (index 0 is cumulant 1)."""
    mean = model.q_mean * model.k_mean + model.correlation * model.q_std * model.k_std
    central = [_central_product_moment(model, order) for order in range(9)]
    return (mean, *_cumulants(central)[1:])


def _central_product_moment(model: QueryKeyModel, order: int) -> float:
    """E[(q_i k_i - mean)^r] from q_i k_i - mean = b z + a w + c (z w - rho), with z, w standardised.

    Expanded about the mean, not about zero: large entry means cost no digits.
    """
    a, b, c = model.q_mean * model.k_std, model.k_mean * model.q_std, model.q_std * model.k_std
    rho, terms = model.correlation, []
    for i in range(order + 1):
        for j in range(order - i + 1):
            for m in range(order - i - j + 1):
                ways = math.comb(order, i) * math.comb(order - i, j) * math.comb(order - i - j, m)
                rest = order - i - j - m
                weight = ways * b**i * a**j * c ** (m + rest) * (-rho) ** rest
                if weight:
                    terms.append(weight * _joint_moment(model.entries, model.df, rho, i + m, j + m))
    if not all(map(math.isfinite, terms)):
        return math.nan if order % 2 else math.inf
    return math.fsum(terms)


@lru_cache(maxsize=1024)
def _joint_moment(entries: Entries, df: float | None, rho: float, z_power: int, w_power: int) -> float:
    """E[z^a w^b] of standardised entries with w = rho z + tau e and e an independent copy of z."""
    tau = math.sqrt((1 - rho) * (1 + rho))
    total = 0.0
    for m in range(w_power + 1):
        weight = math.comb(w_power, m) * rho ** (w_power - m) * tau**m
        if weight:
            z = entry_moment(entries, df, z_power + w_power - m)
            e = entry_moment(entries, df, m)
            total += weight * z * e if z and e else 0.0
    return total


def _cumulants(raw: Sequence[float]) -> list[float]:
    """Cumulants 1..len-1 from raw moments 0..len-1."""
    cumulants: list[float] = []
    for n in range(1, len(raw)):
        known = (math.comb(n - 1, m - 1) * cumulants[m - 1] * raw[n - m] for m in range(1, n))
        cumulants.append(raw[n] - math.fsum(known) if math.isfinite(raw[n]) else raw[n])
    return cumulants


def _central_moments(cumulants: Sequence[float]) -> list[float]:
    """Central moments 0..len from cumulants 1..len; from the first missing one on, none exists."""
    kappa = [0.0, *cumulants[1:]]
    central = [1.0]
    for n in range(1, len(kappa) + 1):
        terms = [math.comb(n - 1, m - 1) * kappa[m - 1] * central[n - m] for m in range(1, n + 1)]
        exists = all(math.isfinite(term) for term in terms)
        central.append(math.fsum(terms) if exists else (math.nan if n % 2 else math.inf))
    return central


def _shape(cumulants: Sequence[float]) -> Moments:
    mean, variance, third, fourth = cumulants[:4]
    if variance <= 0:  # a constant: Rademacher entries with correlation 1 or -1
        return Moments(mean, 0.0, math.nan, math.nan)
    if variance == math.inf:
        return Moments(mean, variance, math.nan, math.inf)
    return Moments(mean, variance, third / variance**1.5, 3 + fourth / variance**2)
