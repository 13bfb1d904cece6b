"""All heads of a diagnosis at a glance, in plain sentences made of its numbers.

In: a `Diagnosis`. Out: the answer first, then what is behind it.
"""

import math

import numpy as np

from simulation.diagnosis import Diagnosis, HeadDiagnosis
from simulation.diagnosis_text import variance_text
from simulation.formatting import significant

_NEAR = 2.0  # a spread within this factor of 1 is of the right order
_PARTS = {
    "footnote": "the footnote's own term",
    "unequal_channels": "unequal channels",
    "correlated_channels": "correlation between channels",
    "query_mean": "the mean of the queries",
    "key_mean": "the mean of the keys",
}


def overview_sentences(result: Diagnosis, name: str) -> tuple[str, ...]:
    """Return what the numbers say of the footnote's assumption over all heads, the answer first.

    Parameters
    ----------
    result : Diagnosis
    name : str
        What was measured, such as the name of a model or a file.
    """
    heads = result.heads
    if len(heads) == 1:
        head = heads[0]
        spread = significant(math.sqrt(head.softmax.sqrt_d_k.row_variance), 3)
        return (
            f"In {name} the variance of q·k is {variance_text(head)} times d_k, where the footnote expects 1. "
            f"Divided by √d_k, logits within a row have a standard deviation of {spread}.",
        )
    ratio = np.array([head.variance_over_d_k for head in heads])
    spread_of = np.sqrt([head.softmax.sqrt_d_k.row_variance for head in heads])
    near = int(((spread_of >= 1 / _NEAR) & (spread_of <= _NEAR)).sum())
    means = [head.mean for head in heads]
    low, middle, high = (significant(float(value), 3) for value in np.quantile(ratio, [0, 0.5, 1]))
    first = (
        f"In {name} the variance of q·k ranges from {low} to {high} times d_k over {len(heads):,} heads (median "
        f"{middle}); the footnote expects 1. In {near:,} of {len(heads):,} heads √d_k leaves the logits of a row "
        f"within a factor {_NEAR:g} of unit spread."
    )
    return first, f"{_expected_text(result)} {_mean_text(means)} {_largest_text(heads)}"


def _expected_text(result: Diagnosis) -> str:
    intervals = [head.estimates.variance_over_d_k.interval for head in result.heads]
    known = [interval for interval in intervals if interval is not None]
    if not known:
        return "There are too few tokens for standard errors."
    agreeing = sum(low <= 1 <= high for low, high in known)
    count = f"{agreeing:,}" if agreeing else "none"
    return f"In {count} of them the {result.confidence:.0%} interval of the variance contains d_k."


def _mean_text(means: list[float]) -> str:
    return (
        f"The mean of q·k, which should be 0, ranges from {significant(min(means), 3)} to {significant(max(means), 3)}."
    )


def _largest_text(heads: tuple[HeadDiagnosis, ...]) -> str:
    """Say which part is the largest in most heads, and the share of the footnote's own term."""
    varying = [head for head in heads if head.variance > 0]
    if not varying:
        return "No head's logits vary."
    names = [head.largest_part for head in varying]
    most = max(sorted(set(names)), key=names.count)
    share = float(np.median([head.parts.footnote / head.variance for head in varying]))
    own = f"at the median head the footnote's own term is {100 * share:.0f} % of the variance"
    return f"The largest part is most often {_PARTS[most]} ({names.count(most):,} heads); {own}."
