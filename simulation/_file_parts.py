"""What the readers of all file formats share: headers of members, checks of size, decoding to float64.

In: an open binary stream and what a file's header declares. Out: float64 arrays, or a `FileError`
before anything of the declared size is allocated.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Literal, Protocol

import numpy as np
import numpy.typing as npt

from simulation._validation import shown

FloatArray = npt.NDArray[np.float64]
Record = np.dtype[np.generic]
Order = Literal["C", "Fortran"]

CHUNK_BYTES = 2**20  # read and widened at a time, so that raw bytes never lie beside all of the result
MAX_MEMBERS = 10_000
MAX_AXES = 32
MAX_AXIS = 2**48
BFLOAT16_NOTE = "bfloat16 widened to float64, every value kept"


class FileError(ValueError):
    """A file, or a member of it, that cannot be read: one sentence with the rule and the value received."""


@dataclass(frozen=True)
class Header:
    """What a file says of one array in it, before the array is read.

    `dtype` is the type stored ("float16", "bfloat16", "int8", ..., "text" for a table of text),
    `order` how its entries are laid out, `notes` what was assumed, `columns` the names of the
    columns where a table has them.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    order: Order = "C"
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)


class Readable(Protocol):
    """Anything bytes can be read from."""

    def read(self, n: int, /) -> bytes:
        """Return at most `n` bytes, none at the end."""
        ...


@dataclass(frozen=True)
class Entry:
    """A member that can be read, and how."""

    header: Header
    load: Callable[[], FloatArray]


@dataclass(frozen=True)
class Listing:
    """The members of a file that can be read, and a sentence on each that cannot."""

    entries: tuple[Entry, ...]
    refused: tuple[str, ...] = ()


def size_text(count: int) -> str:
    """Return a number of bytes in words.

    Examples
    --------
    >>> size_text(512), size_text(64_000_000), size_text(8 * 10**12), size_text(2**70)
    ('512 bytes', '64 MB', '8,000,000 MB', 'more than 9,000,000,000,000 MB')
    """
    if count >= 9 * 10**18:
        return "more than 9,000,000,000,000 MB"
    if count < 10**6:
        return f"{count:,} bytes"
    megabytes = count / 1e6
    return f"{megabytes:,.0f} MB" if megabytes >= 10 else f"{megabytes:.3g} MB"


def checked_shape(where: str, shape: object) -> tuple[int, ...]:
    """Return a declared shape as whole numbers, or raise FileError; no product is formed here."""
    sizes = tuple(shape) if isinstance(shape, (list, tuple)) else None
    whole = sizes is not None and all(type(size) is int and 0 <= size <= MAX_AXIS for size in sizes)
    if sizes is None or not whole or len(sizes) > MAX_AXES:
        raise FileError(
            f"{where} must declare a shape of at most {MAX_AXES} axes, each from 0 to {MAX_AXIS:,}; "
            f"received {_shown_shape(shape)}."
        )
    return sizes


def _shown_shape(shape: object) -> str:
    try:
        return shown(shape)
    except ValueError:  # a whole number of thousands of digits
        return "a number too large to write out"


def why_not_an_array(where: str, shape: tuple[int, ...], record: Record) -> str | None:
    """Return why a member cannot be offered as an array of numbers, with advice; None if it can."""
    if record.hasobject:
        return (
            f"{where} holds Python objects (pickled), which are never loaded; save it as a float array, "
            f"such as np.save(file, np.asarray(x, dtype=np.float32))."
        )
    if shape == ():
        return f"{where} is a single value of shape (), not an array of queries or keys; save it as a float array."
    if 0 in shape or record.itemsize == 0:
        return f"{where} must hold at least one number; received shape {shape}."
    return None


def dtype_name(record: Record) -> str | None:
    """Return the name of a type that can be widened to float64, None for any other.

    Examples
    --------
    >>> dtype_name(np.dtype(">f4")), dtype_name(np.dtype("V2")), dtype_name(np.dtype("c8"))
    ('float32', 'bfloat16', None)
    """
    if record.kind == "V" and record.itemsize == 2 and record.names is None:
        return "bfloat16"  # NumPy has no such type and writes it as two raw bytes
    known = record.kind in "iub" or (record.kind == "f" and record.itemsize <= 8)
    return record.name if known else None


def type_notes(record: Record) -> tuple[str, ...]:
    """Return what is done to values of this type on the way to float64."""
    notes = []
    if record.kind == "V":
        notes.append("two raw bytes a number taken for bfloat16, as NumPy saves it")
        notes.append(BFLOAT16_NOTE)
    elif record.kind == "f" and record.itemsize < 8:
        notes.append(f"{record.name} widened to float64, every value kept")
    elif record.kind in "iu":
        notes.append(f"{record.name} read as float64")
    elif record.kind == "b":
        notes.append("true and false read as 1 and 0")
    if record.byteorder == ">":
        notes.append("big-endian bytes swapped")
    return tuple(notes)


def decode(
    stream: Readable, shape: tuple[int, ...], record: Record, *, path: Sequence[str] = (), fortran: bool = False
) -> FloatArray:
    """Return one array read from here on, as float64.

    Parameters
    ----------
    stream : file-like
        Stands at the first byte of the data.
    shape : tuple of int
        Shape of the array of records, as declared and checked.
    record : dtype
        Type of one record.
    path : sequence of str
        Fields that lead to the numbers wanted, for structured records.
    fortran : bool
        Whether the first axis varies fastest.

    Returns
    -------
    ndarray of float64, shape `shape` + shape of the field

    Raises
    ------
    FileError
        If the stream ends early.
    """
    count, leaf = math.prod(shape), _leaf(record, path)
    flat = np.empty((count, *leaf.shape))
    step = max(1, CHUNK_BYTES // record.itemsize)
    for start in range(0, count, step):
        stop = min(start + step, count)
        raw = read_exactly(stream, (stop - start) * record.itemsize)
        values: npt.NDArray[Any] = np.frombuffer(raw, dtype=record)
        for name in path:
            values = values[name]
        with np.errstate(invalid="ignore"):
            part = flat[start:stop]
            part[...] = _widened(values)
            part[np.isnan(part)] = np.nan  # a signalling NaN would warn wherever it is met
    if not fortran:
        return flat.reshape(shape + leaf.shape)
    axes = [*range(len(shape))[::-1], *range(len(shape), flat.ndim + len(shape) - 1)]
    return flat.reshape(shape[::-1] + leaf.shape).transpose(axes)


def _leaf(record: Record, path: Sequence[str]) -> Record:
    """Return the type at the end of `path`; its shape gathers those of all fields passed."""
    shape: tuple[int, ...] = ()
    for name in path:
        field = record.base[name]
        shape, record = shape + field.shape, field
    return np.dtype((record.base, shape)) if shape else record


def _widened(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Return values NumPy can cast: bfloat16 is the upper half of float32."""
    if values.dtype.kind != "V":
        return values
    bits = values.view(values.dtype.str.replace("V", "u").replace("|", "<")).astype(np.uint32)
    return np.left_shift(bits, 16, out=bits).view(np.float32)


def read_exactly(stream: Readable, count: int) -> bytes:
    """Return exactly `count` bytes, or raise FileError; read in pieces, so that none is taken on trust."""
    pieces, wanted = [], count
    while wanted:
        piece = stream.read(min(wanted, CHUNK_BYTES))
        if not piece:
            raise FileError(f"ends after {count - wanted:,} of {count:,} bytes it should hold here.")
        pieces.append(piece)
        wanted -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def stream_size(stream: BinaryIO) -> int:
    """Return the number of bytes in a stream, and stand at its start."""
    size = stream.seek(0, 2)
    stream.seek(0)
    return size


def printable(name: str) -> str:
    r"""Return a member's name as a screen can show it.

    Examples
    --------
    >>> printable("layer0.q"), printable("a\nb")
    ('layer0.q', 'a\\nb')
    """
    return name if name.isprintable() else repr(name)[1:-1]


def first_repeated(names: Iterable[str]) -> str | None:
    """Return the first name that came before, None if each comes once.

    Examples
    --------
    >>> first_repeated(["q", "k", "q"])
    'q'
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def with_unique_names(listing: Listing) -> Listing:
    """Return the listing, or raise FileError if it is too long or two members share a name."""
    if len(listing.entries) + len(listing.refused) > MAX_MEMBERS:
        count = len(listing.entries) + len(listing.refused)
        raise FileError(f"may hold at most {MAX_MEMBERS:,} members; received {count:,}.")
    twice = first_repeated(entry.header.name for entry in listing.entries)
    if twice is not None:
        raise FileError(f"must name each member once; received {shown(twice)} twice.")
    return listing


def noted(header: Header, array: FloatArray) -> Header:
    """Return the header with a note if whole numbers may be too large for float64 to hold exactly."""
    if header.dtype in ("int64", "uint64") and max(array.max(), -array.min()) >= 2.0**53:
        return replace(header, notes=(*header.notes, "whole numbers of 2^53 and more may be rounded"))
    return header


def structured_paths(record: Record) -> Iterator[tuple[str, ...]]:
    """Yield the way to each field of plain numbers or text; one empty way for a plain type."""
    if record.base.names is None:
        yield ()
        return
    for name in record.base.names:
        for rest in structured_paths(record.base[name]):
            yield (name, *rest)


def leaf_type(record: Record, path: Sequence[str]) -> tuple[Record, tuple[int, ...]]:
    """Return the plain type at the end of `path` and the axes its fields add."""
    leaf = _leaf(record, path)
    return leaf.base, leaf.shape
