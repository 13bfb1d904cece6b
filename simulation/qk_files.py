"""Files → queries and keys ready for `diagnose`, with all that was assumed in words.

In: one file that holds q and k, or one for each, and what the reader says of them. Out:
`QueriesKeys`, or one clear sentence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from simulation._array_choices import Layout, guess_pair, looks_fused, split_fused
from simulation._csv_files import Choice, IndexChoice
from simulation._file_formats import Source
from simulation._file_parts import FloatArray
from simulation._validation import shown, whole_number
from simulation.diagnosis_text import root
from simulation.files import MAX_BYTES, FileError, Header, Member, list_members, non_finite, read_file
from simulation.formatting import significant
from simulation.qk_arrays import Arranged, QueriesKeys, arranged

MAX_FILES = 2
_SIDE_SIZE = 10_000  # numbers of a member that tells the scale
_FAR_FROM_MODEL = 0.01  # of an attention weight: more than float16 explains


@dataclass(frozen=True)
class Choices:
    """What the reader says of files of queries and keys; None and "auto" leave it to the files.

    `q` and `k` name arrays, `axis` is that of d_k and `token_axis` that of the tokens. `heads` cuts
    the axis of d_k into heads that lie side by side; with a `layout`, one array holds `parts`
    projections: 3 for q, k, v and 2 for q, k (see `split_fused`). `header` and `index_column` are
    for tables. `drop_non_finite` leaves out tokens with an entry that is not finite.
    """

    q: str | None = None
    k: str | None = None
    axis: int | None = None
    token_axis: int | None = None
    heads: int | None = None
    layout: Layout | None = None
    parts: int = 3
    header: Choice = "auto"
    index_column: IndexChoice = "auto"
    drop_non_finite: bool = False


@dataclass(frozen=True)
class Found:
    """An array that could hold queries or keys: a name that no other one has, its file, what the file says."""

    name: str
    file: int
    header: Header


@dataclass(frozen=True)
class Offer:
    """What the files hold: arrays to choose from, which are q and k as far as names tell, and why.

    `side` names single-axis members such as the scale; `refused` has a sentence on each member
    that is no array of numbers.
    """

    arrays: tuple[Found, ...]
    side: tuple[Found, ...]
    pair: tuple[str, str] | None
    reason: str
    refused: tuple[str, ...]

    @property
    def fused(self) -> str | None:
        """Name of the array that holds q and k side by side, if names do not tell a pair but tell that."""
        named = [array.name for array in self.arrays if looks_fused(array.name)]
        return named[0] if named and self.pair is None else None

    def named(self, name: str) -> Found:
        """Return the array of this name, or raise ValueError with the names there are."""
        for found in self.arrays:
            if found.name == name:
                return found
        names = ", ".join(shown(found.name) for found in self.arrays[:8])
        raise ValueError(f"There is no array {shown(name)} of two axes or more; there are {names}.")


def offered(
    sources: Sequence[Source],
    names: Sequence[str] | None = None,
    *,
    choices: Choices | None = None,
    max_bytes: int = MAX_BYTES,
) -> Offer:
    """Return what one or two files hold without reading their arrays; parameters as in `read_qk`."""
    if not 1 <= len(sources) <= MAX_FILES:
        raise ValueError(f"q and k must come in one file or in two; received {len(sources):,} files.")
    said = choices or Choices()
    found: list[Found] = []
    refused: list[str] = []
    for file, source in enumerate(sources):
        label = names[file] if names else None
        outline = list_members(source, label, header=said.header, index_column=said.index_column, max_bytes=max_bytes)
        found += [Found(header.name, file, header) for header in outline.members]
        refused += outline.refused
    found = _with_names_apart(found, names or [str(getattr(source, "name", source)) for source in sources])
    arrays = tuple(array for array in found if len(array.header.shape) > 1)
    if not arrays:
        shapes = ", ".join(f"{shown(array.name)} {array.header.shape}" for array in found[:4])
        raise FileError(f"There is no array of two axes or more, tokens and d_k; received {shapes}.")
    pair, reason = _pair(arrays, len(sources))
    side = tuple(array for array in found if len(array.header.shape) == 1 and array.header.size <= _SIDE_SIZE)
    return Offer(arrays, side, pair, reason, tuple(refused))


def read_qk(
    *sources: Source,
    names: Sequence[str] | None = None,
    choices: Choices | None = None,
    max_bytes: int = MAX_BYTES,
) -> QueriesKeys:
    r"""Return the queries and keys of one or two files, laid out as (..., tokens, d_k) in float64.

    Parameters
    ----------
    *sources : bytes, path or binary file
        One file with both, or one for each; .npy, .npz, .safetensors, or a table of text.
    names : sequence of str, optional
        Names of the files for messages, where the sources have none.
    choices : Choices, optional
        What the reader says; the rest is as the files tell, and noted.
    max_bytes : int
        Limit on q and k together, as float64.

    Returns
    -------
    QueriesKeys
        With notes, doubts, and the scale where an array named "scale" tells one for all layers.

    Raises
    ------
    ValueError
        If a file cannot be read or nothing tells which arrays are meant: one sentence.

    Examples
    --------
    >>> data = read_qk(b"q0,q1,k0,k1\n1,2,3,4\n5,6,7,8\n", names=["qk.csv"])
    >>> data.q.tolist(), data.k.tolist()
    ([[1.0, 2.0], [5.0, 6.0]], [[3.0, 4.0], [7.0, 8.0]])
    >>> data.notes[0]
    "'q' is named like q and 'k' like k"
    """
    said = choices or Choices()
    offer = offered(sources, names, choices=said, max_bytes=max_bytes)
    wanted, reason = _wanted(offer, said)
    members = _read(sources, names, wanted, said, max_bytes)
    about = [reason, *dict.fromkeys(note for member in members for note in member.notes)]
    scale, told, doubt = _own_scale(sources, names, offer)
    d_k = None if scale is None or not 1e-6 < scale <= 1 else round(1 / scale**2)
    fused = said.heads is not None
    parts = [arranged(member.array, said.axis, said.token_axis, fused=fused, d_k=d_k) for member in members]
    q, k, cut = _cut_into_heads(parts, said)
    data = QueriesKeys.of(
        q,
        k,
        notes=tuple(dict.fromkeys([*about, *(note for part in parts for note in part.notes), *cut, *told])),
        doubts=tuple(dict.fromkeys([*(why for part in parts for why in part.doubts), *doubt])),
        non_finite=_non_finite_text(wanted, members),
        scale=scale,
    )
    return data.finite() if data.non_finite and said.drop_non_finite else data


def _with_names_apart(found: list[Found], files: Sequence[str]) -> list[Found]:
    """Return the arrays, those of equal names in two files with the name of the file before theirs."""
    names = [array.name for array in found]
    return [
        Found(
            f"{files[array.file]}: {array.name}" if names.count(array.name) > 1 else array.name,
            array.file,
            array.header,
        )
        for array in found
    ]


def _pair(arrays: Sequence[Found], files: int) -> tuple[tuple[str, str] | None, str]:
    """Return q and k as far as names tell; two files of one array each are q and k in their order."""
    pair, reason = guess_pair([array.name for array in arrays])
    if pair is None and files == len(arrays) == MAX_FILES and {array.file for array in arrays} == {0, 1}:
        pair = (arrays[0].name, arrays[1].name)
        return pair, f"{shown(pair[0])} is taken as q and {shown(pair[1])} as k, in the order of the files"
    return pair, reason


def _wanted(offer: Offer, said: Choices) -> tuple[list[Found], str]:
    """Return the arrays to read, one if it is fused, and how they were told."""
    if said.layout is not None:
        if said.heads is None:
            raise ValueError("`heads` must say how many heads lie side by side in the fused array.")
        name = said.q or said.k or offer.fused
        if name is None and len(offer.arrays) > 1:
            names = ", ".join(shown(found.name) for found in offer.arrays[:8])
            raise ValueError(f"`q` must name the fused array; there are {names}.")
        array = offer.named(name or offer.arrays[0].name)
        return [array], f"{shown(array.name)} holds q and k in one"
    q, k = said.q, said.k
    if q and k:
        return [offer.named(q), offer.named(k)], f"{shown(q)} is q and {shown(k)} is k, as you say"
    if offer.pair is None:
        raise ValueError(f"Say which array is q and which is k: {offer.reason}.")
    q, k = q or offer.pair[0], k or offer.pair[1]
    if q == k:
        raise ValueError(f"{shown(q)} cannot be both q and k: say which array the other one is.")
    return [offer.named(q), offer.named(k)], offer.reason


def _read(
    sources: Sequence[Source], names: Sequence[str] | None, wanted: list[Found], said: Choices, max_bytes: int
) -> list[Member]:
    """Return the arrays wanted, in their order; the limit is for all of them together."""
    members: dict[tuple[int, str], Member] = {}
    left = max_bytes
    for file in dict.fromkeys(found.file for found in wanted):
        contents = read_file(
            sources[file],
            names[file] if names else None,
            only=[found.header.name for found in wanted if found.file == file],
            header=said.header,
            index_column=said.index_column,
            max_bytes=max(left, 1),
        )
        members |= {(file, member.name): member for member in contents.members}
        left -= sum(member.array.nbytes for member in contents.members)
    return [members[found.file, found.header.name] for found in wanted]


def _cut_into_heads(parts: Sequence[Arranged], said: Choices) -> tuple[FloatArray, FloatArray, tuple[str, ...]]:
    """Return q and k, cut into the heads that lie side by side in them, and a note on the cut."""
    arrays = [part.array for part in parts]
    if said.heads is None:
        return arrays[0], arrays[1], ()
    width = arrays[0].shape[-1]
    if said.layout is not None:
        q, k = split_fused(arrays[0], said.heads, said.layout, parts=whole_number("parts", said.parts, 2, 3))[:2]
        order = (
            "[Q | K | V] blocks" if said.layout == "blocks" else "interleaved, q and k (and v) of each head together"
        )
        return q, k, (f"an axis of {width:,} is cut into {said.heads:,} heads of {q.shape[-1]:,}: {order}",)
    (q,) = split_fused(arrays[0], said.heads, parts=1)
    d_k, k_width = q.shape[-1], arrays[1].shape[-1]
    if k_width % d_k:
        raise ValueError(
            f"`heads` must cut q and k into heads of one d_k: {said.heads:,} heads in {width:,} make {d_k:,}, which "
            f"does not divide the {k_width:,} of k."
        )
    (k,) = split_fused(arrays[1], k_width // d_k, parts=1)
    return q, k, (f"{said.heads:,} heads of {d_k:,} lie side by side in q, {k_width // d_k:,} in k",)


def _non_finite_text(wanted: Sequence[Found], members: Sequence[Member]) -> str:
    """Return how many entries are not finite, and where, in the arrays as stored; "" for none."""
    found = [(array.name, non_finite(member.array)) for array, member in zip(wanted, members, strict=True)]
    return " ".join(f"{shown(name)}: {what}" for name, what in found if what.count)


def _own_scale(
    sources: Sequence[Source], names: Sequence[str] | None, offer: Offer
) -> tuple[float | None, list[str], list[str]]:
    """Return the scale that the file tells, with notes and doubts, as examples/export_qk.py writes them."""
    side = {array.header.name: array for array in offer.side}
    scale, notes, doubts = None, [], []
    if "scale" in side:
        values = _side_values(sources, names, side["scale"])
        if 0 < values.min() == values.max() < math.inf:
            scale = float(values[0])
            notes.append(f"the file tells the model's own scale, {root(scale)}")
        elif 0 < values.min() < values.max() < math.inf:
            low, high = significant(float(values.min())), significant(float(values.max()))
            doubts.append(f"the file gives each layer a scale of its own, {low} to {high}: please say which to use")
    if "attention_error" in side:
        error = float(_side_values(sources, names, side["attention_error"]).max())
        if error > _FAR_FROM_MODEL:
            doubts.append(
                f"the file says that softmax of its q and k is up to {significant(error, 2)} away from the model's own "
                f"attention weights: something stands between, such as rotation, normalisation or a bias"
            )
    return scale, notes, doubts


def _side_values(sources: Sequence[Source], names: Sequence[str] | None, array: Found) -> FloatArray:
    label = names[array.file] if names else None
    return read_file(sources[array.file], label, only=array.header.name).members[0].array
