"""Ask for a precision in place of a number of samples: how many it takes, and what it took.

In: a law's exact kurtosis and the relative standard error wanted of its variance. Out: the number
of samples; and a record for results that says what was asked, reached and spent.
"""

import math
from dataclasses import dataclass

from simulation._validation import real_number
from simulation.model import QueryKeyModel

FINEST = 1e-6


@dataclass(frozen=True)
class Precision:
    """What a run that was asked for a precision took.

    `asked` and `reached` are relative standard errors, the latter of the statistic `of`; `n` counts
    `unit` ("pairs" or "rows"). `limited` says that the run ended at its limit before it got there.
    """

    of: str
    asked: float
    reached: float
    n: int
    unit: str
    limited: bool

    def __str__(self) -> str:
        """Return it as a sentence.

        Examples
        --------
        >>> print(Precision("Var[q·k]", 0.001, 0.00099, 2_097_152, "pairs", False))
        asked for Var[q·k] to a relative standard error of 0.001: took 2,097,152 pairs to reach 0.00099
        """
        asked = f"asked for {self.of} to a relative standard error of {self.asked:g}: "
        if self.limited:
            return f"{asked}stopped at the limit of {self.n:,} {self.unit} with {self.reached:.3g}"
        return f"{asked}took {self.n:,} {self.unit} to reach {self.reached:.3g}"


def relative_error(kurtosis: float, n: int) -> float:
    """Return the exact standard error of a sample variance of `n`, over the variance."""
    return math.sqrt(max(kurtosis - (n - 3) / (n - 1), 0.0) / n)


def samples_for_relative_error(kurtosis: float, precision: float) -> int:
    r"""Return the least n whose sample variance has a relative standard error of at most `precision`.

    Solves :math:`(\kappa - (n-3)/(n-1)) / n = \varepsilon^2`, a quadratic in n.

    Examples
    --------
    >>> samples_for_relative_error(3 + 6 / 64, 0.001), samples_for_relative_error(1, 0.001)
    (2093751, 1415)
    """
    square, spread = precision**2, kurtosis - 1
    n = (square + spread + math.sqrt((square - spread) ** 2 + 8 * square)) / (2 * square)
    return max(2, math.ceil(n * (1 - 1e-12)))  # a rounding error must not cost a sample


def pairs_for(model: QueryKeyModel, precision: float, chunk: int, most: int) -> tuple[int, Precision]:
    """Return how many pairs, in whole chunks and at most `most`, give Var[q·k] to `precision`.

    Raises
    ------
    ValueError
        If the law has no finite kurtosis, or no variance other than 0.
    """
    asked = real_number("precision", precision, FINEST, 1)
    exact = model.moments()
    if exact.variance == 0:
        raise ValueError("`precision` needs a law with a spread: under this model q·k is a constant.")
    if not math.isfinite(exact.kurtosis):
        raise ValueError(
            f"`precision` needs a law with a finite kurtosis: without it the sample variance has no standard error, "
            f"and no number of pairs reaches one; received {model.entries} entries with df = {model.df:g}."
        )
    wanted = math.ceil(samples_for_relative_error(exact.kurtosis, asked) / chunk) * chunk
    n = min(wanted, most)
    return n, Precision("Var[q·k]", asked, relative_error(exact.kurtosis, n), n, "pairs", wanted > most)
