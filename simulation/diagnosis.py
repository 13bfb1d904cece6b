"""What `diagnose` hands back: one record for each head, the table of all heads, and their sentences.

In: measured numbers. Out: frozen records that print, turn into a tidy frame (a row for each head)
and into JSON and back.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulation import diagnosis_text
from simulation.decomposition import VarianceParts
from simulation.results import Record
from simulation.statistics import Estimate

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ChannelSummary:
    """The d_k channels of the queries, or of the keys, of one head, over its tokens (ddof = 0).

    `kurtosis` is 3 for a normal law and None for a channel that does not vary. `zero` and
    `constant` name channels that are 0, or another number, at every token; `outliers` those whose
    mean or standard deviation lies more than six robust scales from the median over channels.
    """

    mean: tuple[float, ...]
    variance: tuple[float, ...]
    kurtosis: tuple[float | None, ...]
    zero: tuple[int, ...]
    constant: tuple[int, ...]
    outliers: tuple[int, ...]


@dataclass(frozen=True)
class NormSummary:
    """Mean and largest Euclidean norm over tokens."""

    mean: float
    largest: float


@dataclass(frozen=True)
class SoftmaxFigures:
    """What softmax makes of the rows at one scale: means over the rows that see a key.

    `row_variance` is the variance of the scaled logits within rows, `entropy` in nats,
    `jacobian_trace` is tr J = 1 - sum y_i^2.
    """

    scale: float
    row_variance: float
    entropy: float
    largest_weight: float
    jacobian_trace: float


@dataclass(frozen=True)
class SoftmaxByScale:
    """Softmax without scale, at 1/sqrt(d_k), at the model's own scale, and at unit row variance.

    `unit` is None where no scale gives unit variance: the logits do not vary within rows.
    """

    unscaled: SoftmaxFigures
    sqrt_d_k: SoftmaxFigures
    own: SoftmaxFigures
    unit: SoftmaxFigures | None


@dataclass(frozen=True)
class Float16Range:
    """Whether the numbers fit float16, whose largest is 65504 and which rounds to infinity from 65520.

    `entries`: an entry of q or k does not fit; `product`: some q·k does not; `scaled_first`: some
    q·k does not even when q is scaled first. `largest_scale` is the largest factor on q that keeps
    every q·k within 65504; None when all q·k are 0.
    """

    entries: bool
    product: bool
    scaled_first: bool
    largest_scale: float | None


@dataclass(frozen=True)
class HeadEstimates:
    """What the figures say of the head beyond these tokens: estimates with jackknife errors.

    Freed of the bias of order 1/m and 1/n of the block's own figures (`row_variance` divides by
    one less than the visible keys of a row), so that a part that is pure chance is estimated near
    0. `token_correlation` is None when q and k do not come from the same tokens.
    """

    mean: Estimate
    variance: Estimate
    variance_over_d_k: Estimate
    row_variance: Estimate
    footnote: Estimate
    unequal_channels: Estimate
    correlated_channels: Estimate
    query_mean: Estimate
    key_mean: Estimate
    effective_dimension: Estimate | None
    token_correlation: Estimate | None


@dataclass(frozen=True)
class HeadDiagnosis(Record):
    """One head: the exact account of its block of logits q·k before any scale, and what softmax sees.

    Plain numbers describe the block as it is (ddof = 0); `estimates` carries the errors. Mean,
    variance, parts, cosines and `largest_logit` are over all m × n pairs, whatever is masked;
    `row_variance`, `row_mean_variance`, `largest_visible_logit` and `softmax` over visible keys.
    """

    index: tuple[int, ...]
    d_k: int
    mean: float
    variance: float
    variance_over_d_k: float
    parts: VarianceParts
    row_variance: float
    row_mean_variance: float
    q_variance: float
    k_variance: float
    effective_width: int
    effective_dimension: float | None
    sample_effective_dimension: float | None
    token_correlation: float | None
    cosine_of_means: float | None
    largest_logit: float
    largest_logit_at: tuple[int, int]
    largest_visible_logit: float
    q_norm: NormSummary
    k_norm: NormSummary
    cosine_mean: float | None
    cosine_std: float | None
    softmax: SoftmaxByScale
    entropy_limit: float
    masked_rows: int
    q_channels: ChannelSummary
    k_channels: ChannelSummary
    float16: Float16Range
    estimates: HeadEstimates

    @property
    def sentence(self) -> str:
        """Where the variance comes from, in plain words."""
        return diagnosis_text.variance_sentence(self)

    @property
    def softmax_sentence(self) -> str:
        """What softmax sees at the model's own scale, and which scale would give unit variance."""
        return diagnosis_text.softmax_sentence(self)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What else a reader should know: padding, outlier channels, overflow, masked rows."""
        return diagnosis_text.remarks(self)

    @property
    def largest_part(self) -> str:
        """Name of the part with the largest size."""
        parts = dataclasses.asdict(self.parts)
        return max(parts, key=lambda name: abs(parts[name]))

    @property
    def distance(self) -> float:
        """How far softmax's input is from unit variance at the model's own scale: abs(ln variance)."""
        seen = self.softmax.own.row_variance
        return abs(math.log(seen)) if seen > 0 else math.inf

    def record(self) -> dict[str, Any]:
        """Return the head as one flat row of a table; names end in _se for standard errors."""
        row: dict[str, Any] = {f"axis_{place}": value for place, value in enumerate(self.index)}
        for name in (
            "mean",
            "variance",
            "variance_over_d_k",
            "row_variance",
            "effective_dimension",
            "token_correlation",
        ):
            estimate = getattr(self.estimates, name)
            row |= {name: getattr(self, name), f"{name}_se": estimate.standard_error if estimate else None}
        for name, value in dataclasses.asdict(self.parts).items():
            row |= {name: value, f"{name}_se": getattr(self.estimates, name).standard_error}
        for label in ("unscaled", "sqrt_d_k", "own", "unit"):
            figures = getattr(self.softmax, label)
            for field in dataclasses.fields(SoftmaxFigures):
                row[f"{label}_{field.name}"] = getattr(figures, field.name) if figures else None
        for name in _PLAIN_COLUMNS:
            row[name] = getattr(self, name)
        for side in ("q", "k"):
            norm, channels = getattr(self, f"{side}_norm"), getattr(self, f"{side}_channels")
            row |= {f"{side}_norm_mean": norm.mean, f"{side}_norm_largest": norm.largest}
            row[f"{side}_outliers"] = " ".join(map(str, channels.outliers))
        return row | {f"float16_{name}": value for name, value in dataclasses.asdict(self.float16).items()}


_PLAIN_COLUMNS = (
    "row_mean_variance",
    "q_variance",
    "k_variance",
    "effective_width",
    "sample_effective_dimension",
    "cosine_of_means",
    "largest_logit",
    "largest_visible_logit",
    "cosine_mean",
    "cosine_std",
    "entropy_limit",
    "masked_rows",
)


@dataclass(frozen=True)
class Diagnosis(Record):
    """What `diagnose` measured: every head, and how the arrays were read.

    `shape` holds the leading axes of q, `group` how many query heads share a key head, `scale` the
    factor that the model puts on q·k, `notes` what was assumed.
    """

    heads: tuple[HeadDiagnosis, ...]
    shape: tuple[int, ...]
    n_queries: int
    n_keys: int
    d_k: int
    group: int
    scale: float
    masked: bool
    same_tokens: bool
    blocks: int
    confidence: float
    notes: tuple[str, ...]
    versions: dict[str, str]

    def __str__(self) -> str:
        return diagnosis_text.table(self)

    @property
    def by_distance(self) -> tuple[HeadDiagnosis, ...]:
        """The heads, the one whose softmax input is farthest from unit variance first."""
        return tuple(sorted(self.heads, key=lambda head: -head.distance))

    @property
    def worst(self) -> HeadDiagnosis:
        """The head whose softmax input is farthest from unit variance."""
        return self.by_distance[0]

    @property
    def implied_d_k(self) -> float:
        """The d for which the scale in force would be 1/sqrt(d)."""
        return 1 / self.scale**2

    def head(self, *index: int) -> HeadDiagnosis:
        """Return one head by its index over the leading axes.

        Raises
        ------
        KeyError
            If there is no such head.
        """
        for head in self.heads:
            if head.index == index:
                return head
        raise KeyError(f"There is no head {index}; the leading axes are {self.shape}.")

    def to_frame(self) -> "pd.DataFrame":
        """Return a tidy frame, a row for each head."""
        import pandas as pd

        return pd.DataFrame.from_records([head.record() for head in self.heads])
