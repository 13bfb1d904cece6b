"""Diagnosed heads in plain words: the sentences about a head, and the table of all heads.

In: a `HeadDiagnosis` or a `Diagnosis`. Out: text.
"""

import dataclasses
import math
from typing import TYPE_CHECKING

from simulation.formatting import plus_minus, significant

if TYPE_CHECKING:
    from simulation.diagnosis import ChannelSummary, Diagnosis, HeadDiagnosis
    from simulation.statistics import Estimate

TABLE_ROWS = 20
MINOR = 0.005  # parts below half a percent of the variance go unsaid

PART_NAMES = {
    "footnote": "the size of the entries (the footnote's own term)",
    "unequal_channels": "channels of unequal variance",
    "correlated_channels": "correlation between channels",
    "query_mean": "the mean of the queries",
    "key_mean": "the mean of the keys (which softmax never sees)",
}
_SHORT_NAMES = {
    "footnote": "entries",
    "unequal_channels": "unequal channels",
    "correlated_channels": "correlated channels",
    "query_mean": "query mean",
    "key_mean": "key mean",
}


def variance_sentence(head: "HeadDiagnosis") -> str:
    """Return where the variance of q·k comes from, in units of d_k."""
    if head.variance == 0:
        return "The variance of q·k is 0: all logits are the same number."
    start = f"The variance of q·k is {variance_text(head)} d_k"
    parts = {name: value for name, value in dataclasses.asdict(head.parts).items() if _counts(value, head.variance)}
    gains = sorted((-value, name) for name, value in parts.items() if value > 0)
    losses = sorted((value, name) for name, value in parts.items() if value < 0)
    given = [f"{_amount(-value, head)} from {PART_NAMES[name]}" for value, name in gains]
    given[0] = given[0].replace(" from ", " comes from ", 1)
    taken = [f"{_amount(-value, head)} is taken away by {PART_NAMES[name]}" for value, name in losses]
    return f"{start}, of which {_listed(given)}" + (f"; {_listed(taken)}." if taken else ".")


def variance_text(head: "HeadDiagnosis") -> str:
    """Return the variance of the block over d_k, with its standard error."""
    return _with_error(head.variance_over_d_k, head.estimates.variance_over_d_k)


def softmax_sentence(head: "HeadDiagnosis") -> str:
    """Return what softmax sees at the model's own scale, and the scale that would make it unit variance."""
    own, unit = head.softmax.own, head.softmax.unit
    start = (
        f"At the scale in force, {root(own.scale)}, logits have variance {significant(own.row_variance, 3)} in a row"
    )
    if unit is None:
        return f"{start}: softmax has nothing to choose between."
    return (
        f"{start} (the footnote aims at 1, which takes {root(unit.scale)}): entropy {significant(own.entropy, 3)} of "
        f"at most {significant(head.entropy_limit, 3)} nats, largest weight {significant(own.largest_weight, 3)}."
    )


def remarks(head: "HeadDiagnosis") -> tuple[str, ...]:
    """Return padding, outlier channels, float16 overflow and masked rows, each where there is any."""
    found = []
    if head.effective_width < head.d_k:
        each = head.variance / max(head.effective_width, 1)
        found.append(
            f"Only {head.effective_width} of {head.d_k} channels vary in both q and k ({_idle_channels(head)}): "
            f"the variance is {significant(each)} times that number."
            if head.effective_width
            else f"No channel varies in both q and k ({_idle_channels(head)})."
        )
    for side, channels in (("q", head.q_channels), ("k", head.k_channels)):
        if channels.outliers:
            found.append(f"Outlier channels of {side}: {_outliers(channels)}.")
    if head.float16.entries:
        found.append("float16 cannot hold all entries of q and k (65504 is its largest number).")
    if head.float16.product:
        cure = "still overflows" if head.float16.scaled_first else "stays finite"
        found.append(
            f"float16 overflows in q·k: the largest is {significant(head.largest_logit)}, above 65504; "
            f"scaling q first {cure}."
        )
    if head.masked_rows:
        found.append(f"{head.masked_rows:,} fully masked rows are left out of every softmax figure.")
    return tuple(found)


def table(result: "Diagnosis", rows: int = TABLE_ROWS) -> str:
    """Return the heads as a table, farthest from unit variance at the model's own scale first."""
    heads = result.by_distance
    count = f"{len(heads):,} head{'s' if heads[1:] else ''}"
    lines = [
        f"{count}, {result.n_queries:,} queries × {result.n_keys:,} keys, d_k = {result.d_k}, scale "
        f"{root(result.scale)}; ± is one standard error",
        f"{'head':>10}  {'Var[q·k]/d_k':>16}  {'mean':>16}  {'scaled row var':>14}  {'entropy':>8}  "
        f"{'max weight':>10}  {'largest part':<26}remarks",
    ]
    lines += [_table_row(head) + ("  ← worst" if head is heads[0] and heads[1:] else "") for head in heads[:rows]]
    if len(heads) > rows:
        lines.append(f"… {len(heads) - rows:,} more heads; to_frame() has all")
    worst = heads[0]
    lines += [
        f"head {label(worst)}: {worst.sentence}" if worst.index else worst.sentence,
        f"  {worst.softmax_sentence}",
    ]
    lines += [f"  {remark}" for remark in worst.remarks]
    return "\n".join([*lines, *(f"note: {note}" for note in result.notes)])


def reading_notes(result: "Diagnosis", *, scale_given: bool) -> tuple[str, ...]:
    """Return how the arrays were read, which scale is in force, and what the errors mean."""
    notes = [
        f"q and k were read as (..., tokens, d_k): leading axes {result.shape or 'none'}, {result.n_queries:,} "
        f"queries, {result.n_keys:,} keys, and d_k = {result.d_k}, the last axis. If that is not the head dimension, "
        f"move it there."
    ]
    if result.group > 1:
        notes.append(f"Query head h uses key head h // {result.group}.")
    notes.append(_scale_note(result, scale_given))
    width = min(head.effective_width for head in result.heads)
    if 0 < width < result.d_k:
        notes.append(
            f"Channels that do not vary leave an effective width of {width} (of {result.d_k}) in at least one head; "
            f"1/√{width} would be {significant(width**-0.5)}."
        )
    if result.masked:
        notes.append(
            "Mean, variance and its parts are of the whole block, masked pairs included; the variance within rows and "
            "the softmax figures are over the keys that a query may look at."
        )
    if masked := sum(head.masked_rows for head in result.heads):
        notes.append(f"{masked:,} fully masked rows (all heads together) are left out of every softmax figure.")
    notes.append(_error_note(result))
    return tuple(notes)


def _scale_note(result: "Diagnosis", given: bool) -> str:
    d, implied = result.d_k, result.implied_d_k
    if not given:
        return f"No scale was given: {root(result.scale)} is 1/√d_k of the q passed."
    if math.isclose(implied, d, rel_tol=1e-6):
        return f"The scale in force, {root(result.scale)}, is 1/√d_k."
    return (
        f"The scale in force, {root(result.scale)}, is not 1/√d_k = {significant(d**-0.5)}: every variance comes out "
        f"{significant(d / implied)} times what 1/√d_k gives."
    )


def _error_note(result: "Diagnosis") -> str:
    if result.blocks < 3:
        return "There are no standard errors: they take at least three queries and three keys."
    together = " and of both by token" if result.same_tokens else ""
    return (
        f"± is one standard error by leaving out blocks of queries, of keys{together} (two-way jackknife, "
        f"{result.blocks} blocks): {result.n_queries * result.n_keys:,} logits are not as many samples."
    )


def label(head: "HeadDiagnosis") -> str:
    """Return the index of a head as "2, 7", or "-" when there is only one."""
    return ", ".join(map(str, head.index)) or "-"


def root(scale: float) -> str:
    """Return a scale as "0.125 = 1/√64".

    Examples
    --------
    >>> root(0.125), root(512**-0.5), root(0.2), root(1.0)
    ('0.125 = 1/√64', '0.04419 = 1/√512', '0.2 = 1/√25', '1')
    """
    if scale == 1:
        return "1"
    d = 1 / scale**2
    text = f"{d:.0f}" if math.isclose(d, round(d), rel_tol=1e-6) and d < 1e9 else significant(d, 3)
    return f"{significant(scale)} = 1/√{text}"


def channel_ranges(channels: tuple[int, ...]) -> str:
    """Return channel numbers with runs drawn together.

    Examples
    --------
    >>> channel_ranges((3, 96, 97, 98, 127))
    '3, 96–98, 127'
    """
    runs: list[list[int]] = []
    for channel in channels:
        if runs and channel == runs[-1][-1] + 1:
            runs[-1].append(channel)
        else:
            runs.append([channel])
    return ", ".join(f"{run[0]}–{run[-1]}" if run[1:] else f"{run[0]}" for run in runs)


def _table_row(head: "HeadDiagnosis") -> str:
    own, part = head.softmax.own, head.largest_part
    share = f" {100 * getattr(head.parts, part) / head.variance:.0f} %" if head.variance else ""
    flags = [
        f"{side} outliers {channel_ranges(channels.outliers)}" for side, channels in _sides(head) if channels.outliers
    ]
    flags += [f"width {head.effective_width}"] * (head.effective_width < head.d_k)
    flags += ["float16 overflow"] * (head.float16.product or head.float16.entries)
    flags += [f"{head.masked_rows} rows masked"] * bool(head.masked_rows)
    return (
        f"{label(head):>10}  {variance_text(head):>16}  {_with_error(head.mean, head.estimates.mean):>16}  "
        f"{significant(own.row_variance):>14}  {significant(own.entropy, 3):>8}  "
        f"{significant(own.largest_weight, 3):>10}  "
        f"{_SHORT_NAMES[part] + share:<26}{'; '.join(flags)}"
    ).rstrip()


def _with_error(value: float, estimate: "Estimate") -> str:
    error = estimate.standard_error
    if error is not None and max(abs(value), error) >= 1e9:
        return f"{significant(value)} ± {significant(error, 2)}"
    return plus_minus(value, error)


def _sides(head: "HeadDiagnosis") -> tuple[tuple[str, "ChannelSummary"], ...]:
    return (("q", head.q_channels), ("k", head.k_channels))


def _counts(value: float, variance: float) -> bool:
    return abs(value) >= MINOR * variance


def _amount(value: float, head: "HeadDiagnosis") -> str:
    return f"{significant(value / head.d_k, 3)} ({100 * value / head.variance:.0f} %)"


def _listed(items: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))


def _idle_channels(head: "HeadDiagnosis") -> str:
    found = [
        f"{kind} in {side} at {channel_ranges(channels)}"
        for side, summary in _sides(head)
        for kind, channels in (("zero", summary.zero), ("constant", summary.constant))
        if channels
    ]
    return ", ".join(found)


def _outliers(channels: "ChannelSummary", most: int = 5) -> str:
    named = [
        f"{i} (mean {significant(channels.mean[i], 3)}, sd {significant(math.sqrt(channels.variance[i]), 3)})"
        for i in channels.outliers[:most]
    ]
    more = len(channels.outliers) - most
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")
