"""Logits typed by a person, on a page or a command line → floats, or one clear sentence.

In: text such as "3, 1, -3". Out: a list of finite floats.
"""

import math

from simulation._validation import shown


def logits_from_text(text: str, *, most: int) -> list[float]:
    """Read logits typed by a person: numbers parted by commas, semicolons or white space.

    Examples
    --------
    >>> logits_from_text("3, 1, -3", most=64)
    [3.0, 1.0, -3.0]
    """
    text = text.strip().removeprefix("[").removesuffix("]").replace("\N{MINUS SIGN}", "-")
    parts = text.replace(";", ",").split(",") if "," in text or ";" in text else text.split()
    words = [word for part in parts for word in (part.split() or [""])]
    if not any(words):
        raise ValueError('`logits` must hold at least one number, such as "3, 1, -3"; received nothing.')
    if len(words) > most:
        raise ValueError(f"`logits` may hold at most {most:,} numbers here; received {len(words):,}.")
    return [_logit(word, place) for place, word in enumerate(words, start=1)]


def _logit(word: str, place: int) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        what = shown(word) if word else "nothing between two commas"
        raise ValueError(f"`logits` must be finite numbers; received {what} at place {place}.")
    return value
