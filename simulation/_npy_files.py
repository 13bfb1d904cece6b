"""Arrays in .npy and .npz files, without ever unpickling.

In: an open stream. Out: a listing of the arrays in it. Every header is held against the bytes
that are there before memory is taken; members of an archive are inflated in small pieces.
"""

import ast
import io
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, cast

import numpy as np

from simulation._file_parts import (
    MAX_MEMBERS,
    Entry,
    FileError,
    FloatArray,
    Header,
    Listing,
    Readable,
    Record,
    checked_shape,
    decode,
    dtype_name,
    first_repeated,
    leaf_type,
    printable,
    read_exactly,
    size_text,
    structured_paths,
    type_notes,
    why_not_an_array,
)
from simulation._validation import shown

NPY_MAGIC = b"\x93NUMPY"
ZIP_MAGIC = b"PK\x03\x04"
MAX_NPY_HEADER = 10_000  # what np.load allows
MAX_DIRECTORY_BYTES = 2_000_000  # of an archive; each entry of it costs some 20 times its bytes
SMALL_MEMBER_BYTES = 1_000_000  # padding may shrink these as it likes
# A header is one Python literal of names, numbers and brackets; nothing else is let near a parser.
_LITERAL = re.compile(
    r"(?:[\s{}()\[\],:]|True|False|\d+(?!\w)|'(?:[^'\\]|\\[\\'\"nrt])*'|\"(?:[^\"\\]|\\[\\'\"nrt])*\")*"
)
_DESCR = re.compile(r"[<>|=]?[?biufcmMSUVO]\d{0,9}(\[\w{1,9}\])?")
# What zipfile raises on archives that are none; IndexError comes of an empty name.
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
    OverflowError,
    IndexError,
)
Opener = Callable[[], AbstractContextManager[Readable]]


@dataclass(frozen=True)
class _NpyHeader:
    shape: tuple[int, ...]
    fortran: bool
    record: Record
    length: int  # bytes before the data

    @property
    def data_bytes(self) -> int:
        return math.prod(self.shape) * self.record.itemsize


def npy_listing(stream: BinaryIO, size: int, stem: str) -> Listing:
    """Return the array of a .npy file, or one member for each field of structured records."""

    def opened() -> AbstractContextManager[Readable]:
        stream.seek(0)
        return nullcontext(stream)

    return _members("the array", size, opened, lambda path: ".".join(path) or stem)


def _members(where: str, size: int, opened: Opener, naming: Callable[[tuple[str, ...]], str]) -> Listing:
    """Return the members that one array of `size` bytes, header and all, gives."""
    with opened() as stream:
        header = _read_header(where, stream)
        refusal = why_not_an_array(where, header.shape, header.record)
        if refusal is None and header.data_bytes != size - header.length:
            raise FileError(_size_mismatch(where, header, size - header.length, stream))
    if refusal is not None:
        return Listing((), (refusal,))
    entries, refused = [], []
    for path in structured_paths(header.record):
        leaf, axes = leaf_type(header.record, path)
        shown_name = printable(naming(path))
        kind, shape = dtype_name(leaf), header.shape + axes
        if kind is None:
            refused.append(_unknown_type(f"member {shown(shown_name)}", leaf))
        elif 0 in shape:
            refused.append(f"member {shown(shown_name)} must hold at least one number; received shape {shape}.")
        else:
            about = Header(shown_name, shape, kind, "Fortran" if header.fortran else "C", type_notes(leaf))
            entries.append(Entry(about, partial(_load, opened, header, path)))
    return Listing(tuple(entries), tuple(refused))


def _load(opened: Opener, header: _NpyHeader, path: tuple[str, ...]) -> FloatArray:
    with opened() as stream:
        read_exactly(stream, header.length)
        array = decode(stream, header.shape, header.record, path=path, fortran=header.fortran)
        stream.read(1)  # at its end an archive compares the checksum
        return array


def _read_header(where: str, stream: Readable) -> _NpyHeader:
    start = read_exactly(stream, 8)
    version = (start[6], start[7])
    if start[:6] != NPY_MAGIC or version not in ((1, 0), (2, 0), (3, 0)):
        raise FileError(f"{where} must start as .npy data of version 1, 2 or 3; received {shown(start)}.")
    width = 2 if version == (1, 0) else 4
    length = int.from_bytes(read_exactly(stream, width), "little")
    if length > MAX_NPY_HEADER:
        raise FileError(f"{where} must have a header of at most {MAX_NPY_HEADER:,} bytes; received {length:,}.")
    raw = read_exactly(stream, length)
    text = raw.decode("utf-8" if version == (3, 0) else "latin-1", "replace")
    fields = _literal(where, text)
    if fields.keys() != {"descr", "fortran_order", "shape"} or type(fields["fortran_order"]) is not bool:
        raise FileError(f"{where} must declare descr, fortran_order and shape in its header; received {shown(text)}.")
    shape = checked_shape(where, fields["shape"])
    return _NpyHeader(shape, fields["fortran_order"], _record(where, fields["descr"]), 8 + width + length)


def _literal(where: str, text: str) -> dict[str, object]:
    text = re.sub(r"(?<=\d)L(?=\s*[,)])", "", text)  # Python 2 wrote (3L, 4L)
    try:
        fields = ast.literal_eval(text.strip()) if _LITERAL.fullmatch(text) else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise FileError(f"{where} must have a header that is one literal dict; received {shown(text.strip())}.")
    return fields


def _record(where: str, descr: object) -> Record:
    """Return the dtype that a header describes: NumPy's own reading of it, once its form is checked."""
    if _is_descr(descr):
        with suppress(ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError, SyntaxError):
            return np.dtype(np.lib.format.descr_to_dtype(cast("Any", descr)))
    raise FileError(f"{where} must have a type of number that NumPy knows; received {shown(descr)}.")


def _is_descr(descr: object) -> bool:
    if isinstance(descr, str):
        return _DESCR.fullmatch(descr) is not None
    if isinstance(descr, list):
        return bool(descr) and all(
            isinstance(field, tuple) and len(field) in (2, 3) and _is_descr(field[1]) and _is_small(field[2:])
            for field in descr
        )
    return isinstance(descr, tuple) and len(descr) == 2 and _is_descr(descr[0]) and _is_small(descr[1:])


def _is_small(shapes: tuple[object, ...]) -> bool:
    """Whether the axes of a field are few and small enough for NumPy's 32-bit item sizes."""
    sizes = [size for shape in shapes for size in (shape if isinstance(shape, tuple) else (shape,))]
    return len(sizes) <= 8 and all(type(size) is int and 0 <= size < 2**31 for size in sizes)


def _size_mismatch(where: str, header: _NpyHeader, present: int, stream: Readable) -> str:
    declared = (
        f"{where} declares shape {header.shape} of {shown(header.record.str)}, {size_text(header.data_bytes)}, "
        f"but {size_text(present)} follow the header"
    )
    if header.data_bytes < present and present < 2**40:
        left = header.data_bytes  # np.save twice into one file is a habit worth an answer
        while left > 0 and (piece := stream.read(min(left, 2**20))):
            left -= len(piece)
        if stream.read(6) == NPY_MAGIC:
            return f"{declared}: a second array was saved after the first; use np.savez(file, q=q, k=k)."
    return f"{declared}."


def _unknown_type(where: str, leaf: Record) -> str:
    names = {"c": "complex numbers", "S": "text", "U": "text", "M": "dates", "m": "time spans"}
    name = names.get(leaf.kind, f"numbers of type {leaf.name}")
    if leaf.kind == "V":
        name = "float8 or other raw bytes" if leaf.itemsize == 1 else f"raw bytes, {leaf.itemsize} each"
    return f"{where} must hold real numbers of at most 64 bits; received {name}: save it as a float32 array."


def npz_listing(stream: BinaryIO, size: int, *, max_ratio: float) -> Listing:
    """Return the arrays of a .npz archive."""
    try:
        archive = zipfile.ZipFile(_Wary(stream, size))
        infos = [info for info in archive.infolist() if not info.is_dir()]
    except FileError:
        raise
    except _ZIP_ERRORS as error:
        raise FileError(f"must be a whole .npz archive; received a damaged one ({shown(str(error))}).") from None
    names = [info.filename.removesuffix(".npy") for info in infos]
    _check_archive(names)
    entries: list[Entry] = []
    refused: list[str] = []
    for name, info in zip(names, infos, strict=True):
        part = _archive_member(archive, name, info, size, max_ratio)
        entries.extend(part.entries)
        refused.extend(part.refused)
    return Listing(tuple(entries), tuple(refused))


def _check_archive(names: list[str]) -> None:
    if len(names) > MAX_MEMBERS:
        raise FileError(f"may hold at most {MAX_MEMBERS:,} members; received {len(names):,}.")
    if any(name.endswith("data.pkl") for name in names):
        raise FileError(
            "is a PyTorch file, which is pickled and never loaded; save the tensors with "
            "safetensors.torch.save_file or np.savez(file, q=q.float().cpu().numpy(), k=...)."
        )
    if "xl/workbook.xml" in names:
        raise FileError("is an Excel workbook; save the sheet as CSV.")
    twice = first_repeated(names)
    if twice is not None:
        raise FileError(f"must name each member once; received {shown(twice)} twice.")


def _archive_member(archive: zipfile.ZipFile, name: str, info: zipfile.ZipInfo, size: int, max_ratio: float) -> Listing:
    where = f"member {shown(name)}"
    packed, plain = info.compress_size, info.file_size
    if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise FileError(f"{where} must be stored or deflated, without a password; use np.savez_compressed.")
    if packed > size or (info.compress_type == zipfile.ZIP_STORED and plain != packed):
        raise FileError(f"{where} declares {size_text(packed)} in a file of {size_text(size)}.")
    if plain > SMALL_MEMBER_BYTES and plain > max_ratio * packed:
        return Listing(
            (),
            (
                f"{where} declares {size_text(plain)} packed into {size_text(packed)}; at most {max_ratio:g} to 1 "
                f"is allowed, which numbers that vary never reach.",
            ),
        )

    def naming(path: tuple[str, ...]) -> str:
        return ".".join((name, *path))

    try:
        with archive.open(info) as stream:
            if stream.read(6) != NPY_MAGIC:
                return Listing((), (f"{where} must be a NumPy array; received other data.",))
    except _ZIP_ERRORS as error:
        raise FileError(f"{where} is damaged ({shown(str(error))}).") from None
    return _members(where, plain, partial(_opened_member, archive, info, where), naming)


@contextmanager
def _opened_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str) -> Iterator[Readable]:
    try:
        with archive.open(info) as stream:
            yield stream
    except FileError as error:
        text = str(error)
        raise FileError(text if text.startswith(where) else f"{where} {text}") from None
    except _ZIP_ERRORS as error:
        raise FileError(f"{where} is damaged ({shown(str(error))}).") from None


class _Wary(io.RawIOBase):
    """A stream that hands over no more than a directory at once, whatever an archive asks for."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream, self._size = stream, size

    def read(self, n: int | None = -1, /) -> bytes:
        left = max(self._size - self._stream.tell(), 0)
        n = left if n is None or n < 0 else min(n, left)
        if n > MAX_DIRECTORY_BYTES:
            raise FileError(
                f"may have a directory of at most {size_text(MAX_DIRECTORY_BYTES)}; received {size_text(n)}."
            )
        return self._stream.read(n)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True
