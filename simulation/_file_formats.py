"""Where bytes come from and which format they are in, told from the first bytes and not from the name.

In: bytes, a path or a binary file. Out: an open stream, and the listing that the reader of its
format makes of it.
"""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import BinaryIO

from simulation._csv_files import Choice, IndexChoice, text_listing
from simulation._file_parts import FileError, Listing, printable, stream_size, with_unique_names
from simulation._npy_files import NPY_MAGIC, ZIP_MAGIC, npy_listing, npz_listing
from simulation._safetensors_files import safetensors_listing
from simulation._validation import one_of, real_number, shown

Source = bytes | bytearray | memoryview | str | os.PathLike[str] | BinaryIO


_OTHER_FORMATS = (
    *(
        (bytes((0x80, version)), "is pickled, which is never loaded; save a float array with np.save.")
        for version in (2, 3, 4, 5)
    ),
    (b"\x1f\x8b", "is compressed with gzip; unpack it first."),
    (b"\x89HDF", "is HDF5; save the arrays with np.savez(file, q=q, k=k)."),
    (b"PAR1", "is Parquet; save the table as CSV."),
    (b"GGUF", "is GGUF, which holds weights; save queries and keys with np.savez(file, q=q, k=k)."),
    (b"PK\x05\x06", "is an archive without members; save the arrays with np.savez(file, q=q, k=k)."),
)


@contextmanager
def opened(source: Source, name: str | None) -> Iterator[tuple[BinaryIO, str]]:
    """Yield the source as a binary stream with its name, which any FileError then begins with."""
    label = printable(str(name or _own_name(source)))
    try:
        stream = _as_stream(source)
        try:
            yield stream, label
        finally:
            if stream is source:
                stream.seek(0)  # for whoever reads it next
            else:
                stream.close()
    except FileError as error:
        raise FileError(f"{shown(label)}: {error}") from None
    except OSError as error:
        raise FileError(f"{shown(label)}: cannot be read ({error.strerror or type(error).__name__}).") from None


def _own_name(source: Source) -> str:
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    return str(getattr(source, "name", "file"))


def _as_stream(source: Source) -> BinaryIO:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return io.BytesIO(source)
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if "\0" in str(path):
            raise FileError("cannot be read (a path holds no zero character).")
        if path.exists() and not path.is_file():
            raise FileError("must be a file; received a folder or a device.")
        return path.open("rb")
    if hasattr(source, "seek") and hasattr(source, "read") and source.read(0) == b"":
        return source
    raise ValueError(f"`source` must be bytes, a path or a binary file; received {shown(source)}.")


def listing_of(
    stream: BinaryIO, label: str, header: Choice, index_column: IndexChoice, max_bytes: int, max_ratio: float
) -> Listing:
    """Return what the file holds, read as its first bytes tell."""
    one_of("header", header, ("auto", "yes", "no"))
    one_of("index_column", index_column, ("auto", "keep", "drop"))
    ratio = real_number("max_ratio", max_ratio, 1, 2000)
    size = stream_size(stream)
    start = stream.read(16)
    stream.seek(0)
    path = PurePath(label)
    stem, suffix = path.stem or "array", path.suffix.lower()
    if start.startswith(NPY_MAGIC):
        listing = npy_listing(stream, size, stem)
    elif start.startswith(ZIP_MAGIC):
        listing = npz_listing(stream, size, max_ratio=ratio)
    elif suffix == ".safetensors" or (start[8:9] == b"{" and b"\0" in start[:8]):
        listing = safetensors_listing(stream, size)
    else:
        _refuse_other_formats(start, suffix)
        listing = text_listing(stream, size, stem, header=header, index_column=index_column, max_bytes=max_bytes)
    return with_unique_names(listing)


def _refuse_other_formats(start: bytes, suffix: str) -> None:
    if not start:
        raise FileError("must hold at least one number; received an empty file.")
    for magic, sentence in _OTHER_FORMATS:
        if start.startswith(magic):
            raise FileError(sentence)
    if suffix in (".npy", ".npz"):
        raise FileError(f"must start as a {suffix} file does; received {shown(start)}.")
