"""Tables of numbers in text: commas, semicolons with decimal commas, tabs or white space.

In: an open stream. Out: a listing with the table, or one member for each stem of its column names
(q0, q1, ..., k0, k1, ...). Lines are read one at a time into float64; what was assumed is noted.
"""

import math
import re
from array import array
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from io import TextIOWrapper
from itertools import chain
from typing import BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from simulation._file_parts import Entry, FileError, FloatArray, Header, Listing, printable, size_text
from simulation._text_cells import MAX_COLUMNS, MISSING, find_delimiter, is_header, number_of, split_line
from simulation._validation import shown

Choice = Literal["auto", "yes", "no"]
IndexChoice = Literal["auto", "keep", "drop"]
MAX_LINE = 1_000_000  # characters
_SAMPLE = 20  # lines looked at to find the separator, fewer if they are long
_SAMPLE_SIZE = 200_000  # characters
_PLACES = 5  # missing values named by place
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", " ": "white space"}
_INDEX_NAMES = {"", "index", "id", "idx", "row", "i", "n", "no", "nr", "token", "position", "unnamed: 0"}
_EXCEL_SEPARATOR = re.compile(r"\"?sep=([;,\t])\"?\s*", re.IGNORECASE)


@dataclass
class _Table:
    """Rows read so far. `decimal` is the sign seen first in cells, "" before any."""

    delimiter: str
    width: int
    first_line: int
    max_bytes: int
    decimal: str = ""
    values: "array[float]" = field(default_factory=lambda: array("d"))
    rows: int = 0
    missing: int = 0
    places: list[tuple[int, int]] = field(default_factory=list)  # line and column, both from 1
    last_missing: int = 0
    last_places: list[tuple[int, int]] = field(default_factory=list)

    def add(self, number: int, line: str) -> None:
        """Read one line of numbers."""
        cells = self._cells(line)
        if len(cells) != self.width:
            raise FileError(
                f"line {number:,} has {len(cells):,} cells where line {self.first_line:,} has {self.width:,}; "
                f"rows must be of equal length."
            )
        if 8 * (len(self.values) + self.width) > self.max_bytes:
            raise FileError(f"may hold at most {size_text(self.max_bytes)} as float64; line {number:,} goes beyond.")
        if not self._add_at_once(line, cells):
            self._add_one_by_one(number, split_line(line, self.delimiter))
        self.rows += 1

    def _add_at_once(self, line: str, cells: list[str]) -> bool:
        """Add a line in which nothing is missing or in doubt; otherwise add nothing and return False."""
        start = len(self.values)
        try:
            if "_" not in line and not self._mixes_decimals(line):
                self.values.extend(map(float, cells))
        except ValueError:
            del self.values[start:]
        return len(self.values) > start

    def _cells(self, line: str) -> list[str]:
        """Return the cells, decimal commas turned into points where the line settles the matter."""
        if self.delimiter != ",":
            if "," in line and "." not in line and self.decimal != ".":
                self.decimal, line = ",", line.replace(",", ".")
            elif "." in line and "," not in line and not self.decimal:
                self.decimal = "."
        return split_line(line, self.delimiter)

    def _mixes_decimals(self, line: str) -> bool:
        return self.delimiter != "," and ("." in line and (self.decimal == "," or "," in line))

    def _add_one_by_one(self, number: int, cells: list[str]) -> None:
        for column, cell in enumerate(cells, start=1):
            text = cell.strip()
            if text.lower() in MISSING:
                self._note_missing(number, column)
                self.values.append(math.nan)
                continue
            if self.delimiter != "," and not self.decimal and ("," in text) != ("." in text):
                self.decimal = "," if "," in text else "."
            value = number_of(text, self.decimal if self.delimiter != "," else ".")
            if value is None:
                hint = ""
                if any(sign in text for sign in ",.") and any(digit in text for digit in "0123456789"):
                    hint = " (one decimal sign for the whole table; thousands separators are not guessed)"
                raise FileError(f"line {number:,}, column {column:,} holds {shown(cell)}, which is not a number{hint}.")
            self.values.append(value)

    def _note_missing(self, line: int, column: int) -> None:
        is_last = column == self.width
        places = self.last_places if is_last else self.places
        if len(places) < _PLACES:
            places.append((line, column))
        self.last_missing += is_last
        self.missing += not is_last


def text_listing(
    stream: BinaryIO, size: int, stem: str, *, header: Choice, index_column: IndexChoice, max_bytes: int
) -> Listing:
    """Return the table in a text file."""
    if size > 4 * max_bytes:  # some 25 characters a number are usual, 8 bytes are kept
        raise FileError(f"may hold at most {size_text(4 * max_bytes)} of text; received {size_text(size)}.")
    encoding, notes = _encoding(stream)
    parsed = None
    try:
        parsed = _parsed(stream, encoding, header, max_bytes)
    except UnicodeError:  # and leave: the error holds on to what was read
        if encoding == "utf-16":
            raise FileError("must be text; received bytes that are not UTF-16.") from None
        notes.append("not UTF-8, read as Latin-1")
    names, table, more = parsed or _parsed(stream, "latin-1", header, max_bytes)
    notes += more
    values, names = _without_extras(table, names, index_column, notes)
    notes.append(f"{values.shape[0]:,} rows × {values.shape[1]:,} columns, separated by {_SEPARATORS[table.delimiter]}")
    if table.decimal == ",":
        notes.append("decimal commas read as points")
    return Listing(tuple(_members(stem, values, names, tuple(notes))))


def _encoding(stream: BinaryIO) -> tuple[str, list[str]]:
    stream.seek(0)
    start = stream.read(4096)
    if start.startswith(b"\xef\xbb\xbf"):
        return "utf-8-sig", ["byte-order mark removed"]
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16", ["UTF-16 text, byte-order mark removed"]
    if b"\0" in start:
        raise FileError("must be .npy, .npz, .safetensors or text such as CSV; received other binary data.")
    return "utf-8", []


def _lines(stream: BinaryIO, encoding: str) -> Generator[tuple[int, str], None, None]:
    """Yield number and content of each line that is neither blank nor a comment."""
    stream.seek(0)
    text = TextIOWrapper(stream, encoding=encoding)
    try:
        number = 0
        while line := text.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise FileError(f"line {number:,} must be of at most {MAX_LINE:,} characters.")
            if line.strip() and not line.lstrip().startswith("#"):
                yield number, line.rstrip("\r\n").replace("\N{MINUS SIGN}", "-")
    finally:
        text.detach()  # the stream stays the caller's to close


def _first(lines: Iterator[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the first lines, at least two of them where there are."""
    sample, size = [], 0
    for number, line in lines:
        sample.append((number, line))
        size += len(line)
        if len(sample) == _SAMPLE or (len(sample) > 1 and size > _SAMPLE_SIZE):
            break
    return sample


def _parsed(
    stream: BinaryIO, encoding: str, header: Choice, max_bytes: int
) -> tuple[tuple[str, ...], _Table, list[str]]:
    """Return column names, the table and what was assumed about the first lines."""
    with closing(_lines(stream, encoding)) as lines:
        sample = _first(lines)
        told = _EXCEL_SEPARATOR.fullmatch(sample[0][1]) if sample else None
        sample = sample[1:] if told else sample
        if not sample:
            raise FileError("must hold at least one row of numbers; received no line that is not blank or a comment.")
        delimiter = told[1] if told else find_delimiter([line for _, line in sample])
        first_cells = [split_line(line, delimiter) for _, line in sample[:2]]
        names: tuple[str, ...] = ()
        notes = []
        if header == "yes" or (header == "auto" and is_header(first_cells)):
            names = tuple(printable(cell.strip()) for cell in first_cells[0])
            notes.append(f"line {sample[0][0]:,} read as column names")
            del sample[0]
        if not sample:
            raise FileError("must hold at least one row of numbers; received column names only.")
        number, line = sample[0]
        table = _Table(delimiter, len(split_line(line, delimiter)), number, max_bytes)
        if table.width > MAX_COLUMNS:
            raise FileError(f"may hold at most {MAX_COLUMNS:,} columns; line {number:,} has {table.width:,}.")
        for number, line in chain(sample, lines):
            table.add(number, line)
    return names, table, notes


def _without_extras(
    table: _Table, names: tuple[str, ...], index_column: IndexChoice, notes: list[str]
) -> tuple[FloatArray, tuple[str, ...]]:
    """Return the numbers and their names without an empty last column and without an index column."""
    values = np.frombuffer(table.values).reshape(table.rows, table.width)
    unnamed = len(names) < table.width or not names[-1]
    if table.width > 1 and table.last_missing == table.rows and unnamed:
        values, names = values[:, :-1], names[: table.width - 1]
        notes.append("last column dropped: a separator ends every line")
    else:
        table.missing += table.last_missing
        table.places = sorted(table.places + table.last_places)[:_PLACES]
    if table.missing:
        places = ", ".join(f"line {line:,} column {column:,}" for line, column in table.places)
        more = ", ..." if table.missing > len(table.places) else ""
        notes.append(f"missing values read as NaN: {table.missing:,}, at {places}{more}")
    width = values.shape[1]
    if len(names) == width - 1 and names and _counts_rows(values[:, 0]):
        names = ("", *names)  # R leaves the column of row numbers without a name
    if names and len(names) != width:
        raise FileError(f"names {len(names):,} columns in its header but has {width:,}; rows must be of equal length.")
    if width > 1 and index_column == "drop":
        notes.append("first column dropped, as asked")
    elif index_column == "auto" and _is_index(values, names):
        notes.append(f"first column dropped: it numbers the rows, {values[0, 0]:g} to {values[-1, 0]:,.0f}")
    else:
        return values, names
    return values[:, 1:], names[1:]


def _counts_rows(column: npt.NDArray[np.float64]) -> bool:
    return column[0] in (0, 1) and bool((column == column[0] + np.arange(len(column))).all())


def _is_index(values: FloatArray, names: tuple[str, ...]) -> bool:
    """Whether the first column only numbers the rows: 0..n-1 or 1..n, and is not named as a numbered column."""
    if values.shape[1] < 2 or not _counts_rows(values[:, 0]):
        return False
    if names and names[0].lower() in _INDEX_NAMES:
        return True
    return len(values) >= 3 and (not names or _stem(names[0]) is None)  # two rows prove nothing


def _stem(name: str) -> str | None:
    """Return what is left of a numbered name such as q0, q_0 or q[0] without its number; None for others."""
    body = name.removesuffix("]")
    stem = body.rstrip("0123456789")
    return stem.rstrip("_.[- ") if len(stem) < len(body) else None


def _members(stem: str, values: FloatArray, names: tuple[str, ...], notes: tuple[str, ...]) -> list[Entry]:
    """Return the table, or its parts if all columns are numbered under two stems or more."""
    groups: dict[str | None, list[int]] = {}
    for column, name in enumerate(names):
        groups.setdefault(_stem(name), []).append(column)
    if len(groups) < 2 or not all(name and len(columns) > 1 for name, columns in groups.items()):
        return [Entry(Header(stem, values.shape, "text", "C", notes, names), lambda: values)]
    entries = []
    for group, columns in groups.items():
        chosen = tuple(names[column] for column in columns)
        note = f"columns {chosen[0]} to {chosen[-1]} taken together"
        header = Header(str(group), (len(values), len(columns)), "text", "C", (*notes, note), chosen)
        entries.append(Entry(header, partial(_columns, values, columns)))
    return entries


def _columns(values: FloatArray, columns: list[int]) -> FloatArray:
    first, last = columns[0], columns[-1]
    return values[:, first : last + 1] if last - first + 1 == len(columns) else values[:, columns]
