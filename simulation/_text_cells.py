"""Cells of a line of text: how lines are split, what is a number, what is a header.

In: lines of a table. Out: its separator, cells, and numbers read strictly, so that nothing such as
"1_000" or "1,234" is taken for a number by accident.
"""

import csv
import re
from typing import Literal

from simulation._file_parts import FileError
from simulation._validation import shown

MAX_COLUMNS = 65_536
MISSING = {"", "na", "n/a", "#n/a", "null", "none", "-"}
_LOOKED_AT = 1_000  # cells of a line, to find the separator
Kind = Literal["number", "missing", "text"]
DELIMITERS = ("\t", ";", ",", " ")


def split_line(line: str, delimiter: str) -> list[str]:
    """Return the cells of a line; quotes around a cell are taken off.

    Examples
    --------
    >>> split_line('"1.5", 2', ","), split_line("  1   2 ", " ")
    (['1.5', '2'], ['1', '2'])
    """
    if '"' not in line:
        return line.split(None if delimiter == " " else delimiter, MAX_COLUMNS)  # one cell more tells of too many
    line = " ".join(line.split()) if delimiter == " " else line
    try:
        if line.count(delimiter) <= MAX_COLUMNS:
            return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))
    except csv.Error:  # a cell of more than 131,072 characters
        pass
    raise FileError(f"must hold rows of at most {MAX_COLUMNS:,} cells, each a number; received {shown(line)}.")


def number_of(text: str, decimal: str = ".") -> float | None:
    """Return the number a cell holds, None if it is not one in this notation.

    Examples
    --------
    >>> number_of("-3e-1"), number_of("1,5", ","), number_of("1.234,5", ","), number_of("1_000")
    (-0.3, 1.5, None, None)
    """
    if decimal == ",":
        if "." in text:
            return None
        text = text.replace(",", ".")
    if "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def cell_kind(cell: str, delimiter: str) -> Kind:
    """Return what a cell looks like, before the decimal sign of the table is known."""
    text = cell.strip()
    if text.lower() in MISSING:
        return "missing"
    found = number_of(text) is not None or (delimiter != "," and number_of(text, ",") is not None)
    return "number" if found else "text"


def find_delimiter(lines: list[str]) -> str:
    """Return the separator that reads the most of these lines as numbers in rows of equal length.

    Examples
    --------
    >>> find_delimiter(["q0;q1", "1,5;2,0"]), find_delimiter(["1,5 2,0"]), find_delimiter(["1", "2"])
    (';', ' ', ' ')
    """
    best, most = " ", 0.0
    for delimiter in DELIMITERS:
        rows = [split_line(line, delimiter) for line in lines]
        widths = [len(cells) for cells in rows if len(cells) > 1]
        if not widths:
            continue
        equal = max(map(widths.count, set(widths))) / len(rows)
        body = [cell for cells in rows[1:] or rows for cell in cells[:_LOOKED_AT]]  # a header may be words
        kinds = [cell_kind(cell, delimiter) for cell in body]
        score = equal * (1 - kinds.count("text") / len(kinds))
        if score > most:
            best, most = delimiter, score
    return best


def is_header(cells: list[list[str]]) -> bool:
    """Return whether the first of two lines names columns; a line of data is never taken for names.

    A header has words and no numbers, or is the run 0, 1, 2, ... that pandas writes: after a blank
    or one word, or above numbers with decimals.

    Examples
    --------
    >>> is_header([["", "q0"], ["0", "1.5"]]), is_header([["0", "1", "2"], ["1.5", "2", "0.1"]])
    (True, True)
    >>> is_header([["1.5", "2"], ["3", "4"]]), is_header([["1.5", "x"], ["3", "4"]])
    (False, False)
    """
    first = [cell.strip() for cell in cells[0]]
    kinds = [cell_kind(cell, ";") for cell in first]
    if "text" in kinds and "number" not in kinds:
        return True
    if len(cells) < 2:
        return False
    if kinds[0] != "number" and _is_run(first[1:]):
        return (kinds[0] == "text" and len(first) > 2) or cells[1][0].strip() in ("0", "1")
    decimals = any(not re.fullmatch(r"[+-]?\d*", cell.strip()) for cell in cells[1])
    return len(first) > 2 and _is_run(first) and decimals


def _is_run(cells: list[str]) -> bool:
    return bool(cells) and cells == [str(place) for place in range(len(cells))]
