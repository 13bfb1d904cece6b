"""Bytes of a file → named float64 arrays, safely: .npy, .npz, .safetensors, and tables of text.

In: an uploaded or a local file that nobody has looked at. Out: its arrays with a note on all that
was assumed, or one clear sentence. Nothing is unpickled, and what a header declares is held
against the bytes that are there before memory is taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from simulation._array_checks import (
    ConstantColumns,
    FiniteTokens,
    NonFinite,
    constant_columns,
    non_finite,
    without_non_finite,
)
from simulation._array_choices import (
    LayoutGuess,
    MemberGuess,
    guess_layout,
    guess_pair,
    put_axis_last,
    split_fused,
)
from simulation._csv_files import Choice, IndexChoice
from simulation._file_formats import Source, listing_of, opened
from simulation._file_parts import Entry, FileError, FloatArray, Header, Listing, Order, noted, size_text
from simulation._validation import shown, whole_number

__all__ = [
    "MAX_BYTES",
    "ConstantColumns",
    "Contents",
    "FileError",
    "FiniteTokens",
    "Header",
    "LayoutGuess",
    "Member",
    "MemberGuess",
    "NonFinite",
    "Outline",
    "constant_columns",
    "guess_layout",
    "guess_members",
    "list_members",
    "non_finite",
    "put_axis_last",
    "read_file",
    "split_fused",
    "without_non_finite",
]

MAX_BYTES = 64_000_000  # of float64 handed on: a host of 1 GB then holds several files and their logits
MAX_RATIO = 200.0  # bytes inflated from one; activations reach 2 or so


@dataclass(frozen=True, eq=False)
class Member:
    """One array of a file, read: float64 and read-only.

    `dtype` and `order` say how it was stored, `notes` what was done and assumed to read it,
    `columns` the names of its columns where a table has them.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    order: Order
    array: FloatArray
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outline:
    """What a file says it holds: the arrays that can be read, a sentence on each that cannot."""

    name: str
    members: tuple[Header, ...]
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Contents:
    """The arrays of a file; ``contents["q"]`` is the member of that name."""

    name: str
    members: tuple[Member, ...]
    refused: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Member:
        """Return the member of this name, or raise FileError with the names there are."""
        for member in self.members:
            if member.name == name:
                return member
        raise FileError(f"{shown(self.name)}: {_no_such(name, [member.name for member in self.members])}")


def read_file(
    source: Source,
    name: str | None = None,
    *,
    only: str | Sequence[str] | None = None,
    header: Choice = "auto",
    index_column: IndexChoice = "auto",
    max_bytes: int = MAX_BYTES,
    max_ratio: float = MAX_RATIO,
) -> Contents:
    r"""Return the arrays of a file as float64.

    The format is told from the first bytes, not from the name: .npy, .npz (stored or deflated),
    .safetensors, or text (commas, semicolons with decimal commas, tabs, white space).

    Parameters
    ----------
    source : bytes, path or binary file
        A file object is read from its start and left there; of a path only what is wanted is read.
    name : str, optional
        Name for messages, and for the one array of a .npy file or a table; by default that of the
        path or file object.
    only : str or sequence of str, optional
        Members wanted, all by default; the others are not read and do not count for `max_bytes`.
    header : {"auto", "yes", "no"}
        Whether the first line of a table names its columns.
    index_column : {"auto", "keep", "drop"}
        What to do with a first column that only numbers the rows, 0..n-1 or 1..n: dropped by
        default, and noted.
    max_bytes : int
        Limit on the float64 arrays handed on, together. Peak memory is the file, if it came as
        bytes, twice this for a table of text and once for the rest, and a few MB.
    max_ratio : float
        Limit on what a member of an archive may inflate to, in times its packed size.

    Returns
    -------
    Contents
        `members` in the order of the file; `refused` has a sentence on each that is no array of
        real numbers (objects, text, single values), as long as one member can be read.

    Raises
    ------
    FileError
        If the file cannot be read or goes beyond a limit: one sentence that begins with its name.
    ValueError
        If an argument breaks its rule.

    Examples
    --------
    >>> member = read_file(b"q0;q1\n1,5;2,0\n-0,3;4,0\n", "q.csv")["q"]
    >>> member.array.tolist(), member.columns
    ([[1.5, 2.0], [-0.3, 4.0]], ('q0', 'q1'))
    >>> member.notes[0], member.notes[-1]
    ('line 1 read as column names', 'decimal commas read as points')
    """
    limit = whole_number("max_bytes", max_bytes, 1, 2**50)
    with opened(source, name) as (stream, label):
        listing = listing_of(stream, label, header, index_column, limit, max_ratio)
        entries = _chosen(listing, only)
        total = 8 * sum(entry.header.size for entry in entries)
        if total > limit:
            advice = "" if len(entries) == 1 else "; choose fewer of its members"
            raise FileError(f"may hold at most {size_text(limit)} as float64; received {size_text(total)}{advice}.")
        members = tuple(map(_read_member, entries))
    return Contents(label, members, listing.refused)


def list_members(
    source: Source,
    name: str | None = None,
    *,
    header: Choice = "auto",
    index_column: IndexChoice = "auto",
    max_bytes: int = MAX_BYTES,
    max_ratio: float = MAX_RATIO,
) -> Outline:
    r"""Return what a file holds without reading its arrays, so that members can be chosen first.

    Parameters and errors are those of `read_file`; `max_bytes` limits tables of text only, which
    must be read to be listed.

    Examples
    --------
    >>> [member.shape for member in list_members(b"1 2 3\n4 5 6", "q.txt").members]
    [(2, 3)]
    """
    limit = whole_number("max_bytes", max_bytes, 1, 2**50)
    with opened(source, name) as (stream, label):
        listing = listing_of(stream, label, header, index_column, limit, max_ratio)
        _chosen(listing, None)
        return Outline(label, tuple(entry.header for entry in listing.entries), listing.refused)


def guess_members(contents: Contents | Outline) -> MemberGuess:
    r"""Return which members are q and k as far as their names tell, and the reason in words.

    The pair is None unless the names leave exactly one: arr_0 and arr_1 are offered, not assumed.

    Examples
    --------
    >>> guess_members(read_file(b"q0,q1,k0,k1\n1,2,3,4\n", "qk.csv"))
    MemberGuess(pair=('q', 'k'), reason="'q' is named like q and 'k' like k")
    """
    return guess_pair([member.name for member in contents.members])


def _read_member(entry: Entry) -> Member:
    array = entry.load()
    array.flags.writeable = False
    about = noted(entry.header, array)
    return Member(about.name, about.shape, about.dtype, about.order, array, about.notes, about.columns)


def _chosen(listing: Listing, only: str | Sequence[str] | None) -> list[Entry]:
    if not listing.entries:
        refused = listing.refused
        more = f" ({len(refused):,} members are refused, this is the first)" if len(refused) > 1 else ""
        raise FileError(refused[0].rstrip(".") + more + "." if refused else "holds no arrays.")
    if only is None:
        return list(listing.entries)
    by_name = {entry.header.name: entry for entry in listing.entries}
    wanted = (only,) if isinstance(only, str) else tuple(only)
    for name in wanted:
        if name not in by_name:
            raise FileError(_no_such(name, list(by_name)))
    return [by_name[name] for name in dict.fromkeys(wanted)]


def _no_such(name: str, names: list[str]) -> str:
    more = ", ..." if len(names) > 8 else ""
    return f"has no member {shown(name)} that can be read; it has {', '.join(map(shown, names[:8]))}{more}."
