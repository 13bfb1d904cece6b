"""Argument checks: each takes a raw value and hands back a clean one, or raises.

Every message names the argument, the rule and the value received, so that the library, the command
line and the pages can show it as it is.
"""

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_D_K = 1_000_000
MAX_SAMPLES = 10**12
MAX_SEED = 2**128 - 1


def shown(value: object) -> str:
    """Return `value` as a message can show it: `repr`, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def whole_number(name: str, value: Any, low: int, high: int) -> int:
    """Return `value` as an int from `low` to `high`, or raise ValueError."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, (bool, np.bool_)) or not low <= number <= high:
        raise ValueError(f"`{name}` must be a whole number from {low:,} to {high:,}; received {shown(value)}.")
    return number


def real_number(name: str, value: Any, low: float, high: float, *, open_low: bool = False) -> float:
    """Return `value` as a finite float in [low, high] (or (low, high]), or raise ValueError."""
    try:
        number = math.nan if isinstance(value, (str, bytes, bool)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not low <= number <= high or (open_low and number == low):
        span = f"above {low:g} and at most {high:g}" if open_low else f"from {low:g} to {high:g}"
        raise ValueError(f"`{name}` must be a number {span}; received {shown(value)}.")
    return number


def one_of(name: str, value: Any, allowed: Sequence[str], aliases: dict[str, str] | None = None) -> str:
    """Return `value`, lower-cased and with `-` read as `_`, if it is among `allowed`."""
    text = value.strip().lower().replace("-", "_").replace(" ", "_") if isinstance(value, str) else ""
    text = (aliases or {}).get(text, text)
    if text not in allowed:
        raise ValueError(f"`{name}` must be one of {', '.join(allowed)}; received {shown(value)}.")
    return text


def ladder_of(value: Any) -> list[int]:
    """Return `value` as a list of 1 to 1,000 different head dimensions, or raise ValueError."""
    try:
        rungs = list(value)
    except TypeError:
        rungs = []
    ladder = [whole_number("d_k", rung, 1, MAX_D_K) for rung in rungs[:1001]]
    if not 1 <= len(rungs) <= 1000 or len(set(ladder)) < len(ladder):
        raise ValueError(f"`d_k` must hold 1 to 1,000 different head dimensions; received {shown(value)}.")
    return ladder


def real_array(value: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return logits of any shape as float64, or raise ValueError where they are no numbers."""
    try:
        raw = np.asarray(value)
    except ValueError:  # rows of unequal length
        raise ValueError(f"`logits` must be numbers in rows of equal length; received {shown(value)}.") from None
    if raw.dtype.kind not in "iufb":
        raise ValueError(f"`logits` must be real numbers; received {shown(value)}.")
    return raw.astype(np.float64)


def logits_array(value: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return `value` as float64 logits, shape (..., n) with n >= 1.

    Minus infinity is allowed (a masked key) as long as a row keeps one finite logit.
    """
    logits = real_array(value)
    if logits.ndim == 0 or logits.shape[-1] == 0:
        raise ValueError(f"`logits` must hold at least one number along the last axis; received shape {logits.shape}.")
    bad = np.isnan(logits) | (logits == np.inf)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"`logits` must be finite (or -inf for a masked key); received {logits[where]} at position "
            f"{where if len(where) > 1 else where[0]} ({int(bad.sum())} such)."
        )
    if np.isneginf(logits).all(axis=-1).any():
        raise ValueError("`logits` must leave at least one key unmasked in each row; received a row of -inf only.")
    return logits
