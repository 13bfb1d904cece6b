"""Published attention scales, and where each puts independent queries and keys on the phase diagram.

In: the table `PUBLISHED`. Out: the standard deviation of the logits, the freezing point, the share of gradient left.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from simulation.composition import Composition
from simulation.scoring import Scoring
from simulation.scoring_theory import predict_row


@dataclass(frozen=True)
class Published:
    """A setting people use: its name, where it is from, d_k, a row length to show it at, and how it scores."""

    name: str
    source: str
    d_k: int
    n_keys: int
    composition: Composition


@dataclass(frozen=True)
class Placement:
    """Exact values for unit-variance, independent q and k: s, the freezing point √(2 ln n), E tr J / (1 - 1/n)."""

    published: Published
    scoring: Scoring
    std: float
    freezing_std: float
    share: float


PUBLISHED = (
    Published(
        "224 for 256, cap 50",
        "Gemma 2 9B as first released: query_pre_attn_scalar 224 for d_k = 256, soft-cap 50. "
        "https://github.com/huggingface/transformers/issues/31891",
        256, 4096, Composition("free_scale", 224, cap=50),
    ),
    Published(
        "144 for 128, cap 50",
        "Gemma 2 27B: query_pre_attn_scalar 144 for d_k = 128, soft-cap 50. arXiv:2408.00118",
        128, 4096, Composition("free_scale", 144, cap=50),
    ),
    Published(
        "cosine 8",
        "Fixed gain 8 with d_k = 64. https://github.com/lucidrains/muse-maskgit-pytorch/issues/40",
        64, 256, Composition("cosine", 8),
    ),
    Published(
        "cosine 10",
        "Fixed gain 10 with d_k = 64. https://github.com/lucidrains/x-transformers/issues/190",
        64, 1024, Composition("cosine", 10),
    ),
    Published(
        "scalable softmax 0.43", "s ln n with s = 0.43, trained at n = 1024. arXiv:2501.19399",
        64, 1024, Composition("ssmax", 0.43),
    ),
    Published(
        "96 padded to 128",
        "d_k = 96, filled up with zeros to 128, and scaled by 1/√128. https://github.com/intel/ipex-llm/pull/12619",
        96, 64, Composition("free_scale", 128),
    ),
)  # fmt: skip


def placements(published: Sequence[Published] = PUBLISHED) -> list[Placement]:
    """Return where each setting lies.

    Examples
    --------
    >>> [round(place.std, 3) for place in placements()]
    [1.069, 0.942, 1.0, 1.25, 2.981, 0.866]
    """
    return [place(setting) for setting in published]


def place(setting: Published) -> Placement:
    """Return where one setting lies."""
    scoring = setting.composition(setting.d_k, setting.n_keys)
    row = predict_row(scoring, setting.d_k, setting.n_keys)
    trace = math.nan if row.trace is None else row.trace
    freezing = math.sqrt(2 * math.log(setting.n_keys))
    return Placement(setting, scoring, row.std, freezing, trace / (1 - 1 / setting.n_keys))
