"""Statements people repeat, held against numbers: true, true under conditions, or false.

In: `data/claims.toml`. Out: `Statement` records, whose verdict follows from what their checks compute.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from simulation._validation import one_of
from simulation.claim_checks import CHECKS, IS_DRAWN, Number

Group = Literal["true", "conditional", "false"]
GROUPS: Mapping[Group, str] = {"true": "True", "conditional": "True under conditions", "false": "False"}
DATA = Path(__file__).parent / "data" / "claims.toml"
DECIDED_AT = 4.0  # a drawn number decides when it is this many standard errors from the edge it is held against


@dataclass(frozen=True)
class Evidence:
    """One number that decides: how it is computed, what it should be, and the range the statement needs it in."""

    label: str
    check: str
    arguments: Mapping[str, Any]
    expected: float
    tolerance: float
    low: float
    high: float

    def __post_init__(self) -> None:
        one_of("check", self.check, tuple(CHECKS))

    @property
    def is_drawn(self) -> bool:
        """Whether the number is measured by draws; otherwise it is exact."""
        return self.check in IS_DRAWN

    def number(self) -> Number:
        """Compute the number."""
        return CHECKS[self.check](**self.arguments)

    def holds(self, number: Number) -> bool:
        """Return whether the number lies where the statement needs it."""
        return self.low <= number.value <= self.high

    def is_decided(self, number: Number) -> bool:
        """Return whether the number is far enough from the edges of that range for its error."""
        edges = [edge for edge in (self.low, self.high) if math.isfinite(edge)]
        error = number.standard_error or 0.0
        return all(abs(number.value - edge) >= DECIDED_AT * error for edge in edges)

    @property
    def range_text(self) -> str:
        """The range in words."""
        if self.low == self.high:
            return f"exactly {self.low:g}"
        if math.isinf(self.low):
            return f"at most {self.high:g}"
        if math.isinf(self.high):
            return f"at least {self.low:g}"
        return f"from {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Statement:
    """A statement, where it is from, what decides it, and the page and settings that show it."""

    id: str
    statement: str
    source: str
    verdict: Group
    explanation: str
    page: str
    link: Mapping[str, str]
    evidence: tuple[Evidence, ...]

    @property
    def is_drawn(self) -> bool:
        """Whether any of its numbers is measured by draws."""
        return any(evidence.is_drawn for evidence in self.evidence)

    def numbers(self) -> list[Number]:
        """Compute all its numbers."""
        return [evidence.number() for evidence in self.evidence]

    def verdict_of(self, numbers: Sequence[Number]) -> Group:
        """Return the verdict that numbers give: all in range true, none false, some conditional.

        Examples
        --------
        >>> overflow = next(s for s in statements() if s.id == "overflow")
        >>> overflow.verdict_of(overflow.numbers())
        'false'
        """
        held = [evidence.holds(number) for evidence, number in zip(self.evidence, numbers, strict=True)]
        return "true" if all(held) else "conditional" if any(held) else "false"


@lru_cache(maxsize=1)
def statements() -> tuple[Statement, ...]:
    """Return all statements of the data file, in its order.

    Raises
    ------
    ValueError
        If the file breaks a rule; the message names the statement.
    """
    return tuple(_statement(row) for row in tomllib.loads(DATA.read_text(encoding="utf-8"))["claim"])


def _statement(row: dict[str, Any]) -> Statement:
    try:
        one_of("verdict", row["verdict"], tuple(GROUPS))
        return Statement(**{**row, "evidence": tuple(_evidence(item) for item in row["evidence"])})
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"claims.toml, {row.get('id', 'a statement without id')!r}: {error}") from error


def _evidence(item: dict[str, Any]) -> Evidence:
    low, high = item["asserts"]
    tolerance = item.get("tolerance", 1e-9 * max(1.0, abs(item["expected"])))
    rest = {key: item[key] for key in ("label", "check", "arguments", "expected")}
    return Evidence(**rest, tolerance=tolerance, low=float(low), high=float(high))
