"""Arrays in .safetensors files, decoded here so that bfloat16 needs no other package.

In: an open stream. Out: a listing of its tensors. Layout: 8 bytes of header length, a JSON header
with type, shape and offsets of each tensor, then the tensors' bytes without a gap.
"""

import json
import math
from functools import partial
from typing import BinaryIO

import numpy as np

from simulation._file_parts import (
    BFLOAT16_NOTE,
    MAX_MEMBERS,
    Entry,
    FileError,
    FloatArray,
    Header,
    Listing,
    Record,
    checked_shape,
    decode,
    dtype_name,
    first_repeated,
    printable,
    read_exactly,
    size_text,
    type_notes,
    why_not_an_array,
)
from simulation._validation import shown

MAX_HEADER_BYTES = 2_000_000  # 10,000 tensors and more; JSON costs some 25 times its bytes once parsed
TYPES = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "BF16": "<V2",
    "F32": "<f4",
    "F64": "<f8",
}


def safetensors_listing(stream: BinaryIO, size: int) -> Listing:
    """Return the tensors of a .safetensors file."""
    length = int.from_bytes(read_exactly(stream, 8), "little")
    if length > min(size - 8, MAX_HEADER_BYTES):
        raise FileError(
            f"must have a header of at most {size_text(MAX_HEADER_BYTES)} within its {size_text(size)}; "
            f"received a header length of {length:,} bytes."
        )
    tensors = _parsed(read_exactly(stream, length))
    entries, refused, spans = [], [], []
    for name, about in tensors.items():
        where = f"tensor {shown(name)}"
        kind, shape, begin, end = _checked_fields(where, about)
        spans.append((begin, end, where))
        if kind not in TYPES:
            refused.append(f"{where} must be one of {', '.join(TYPES)}; received {shown(kind)}: save it as F32.")
            continue
        record: Record = np.dtype(TYPES[kind])
        if math.prod(shape) * record.itemsize != end - begin:
            raise FileError(
                f"{where} declares shape {shape} of {kind}, {size_text(math.prod(shape) * record.itemsize)}, "
                f"but its offsets span {size_text(end - begin)}."
            )
        refusal = why_not_an_array(where, shape, record)
        if refusal is not None:
            refused.append(refusal)
        else:
            notes = (BFLOAT16_NOTE,) if kind == "BF16" else type_notes(record)
            header = Header(printable(name), shape, str(dtype_name(record)), "C", notes)
            entries.append(Entry(header, partial(_load, stream, 8 + length + begin, shape, record)))
    _check_spans(spans, size - 8 - length)
    return Listing(tuple(entries), tuple(refused))


def _load(stream: BinaryIO, place: int, shape: tuple[int, ...], record: Record) -> FloatArray:
    stream.seek(place)
    return decode(stream, shape, record)


def _parsed(raw: bytes) -> dict[str, object]:
    try:
        tensors = json.loads(raw.decode("utf-8"), object_pairs_hook=_once_each)
    except FileError:
        raise
    except (ValueError, RecursionError) as error:
        raise FileError(f"must have a header that is JSON; received another ({shown(str(error))}).") from None
    if not isinstance(tensors, dict):
        raise FileError(f"must have a header that is a JSON object; received {shown(tensors)}.")
    tensors.pop("__metadata__", None)
    if not 0 < len(tensors) <= MAX_MEMBERS:
        raise FileError(f"must hold from 1 to {MAX_MEMBERS:,} tensors; received {len(tensors):,}.")
    return tensors


def _once_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    twice = first_repeated(name for name, _ in pairs)
    if twice is not None:
        raise FileError(f"must name each tensor and field once; received {shown(twice)} twice.")
    return dict(pairs)


def _checked_fields(where: str, about: object) -> tuple[str, tuple[int, ...], int, int]:
    if not isinstance(about, dict) or not {"dtype", "shape", "data_offsets"} <= about.keys():
        raise FileError(f"{where} must declare dtype, shape and data_offsets; received {shown(about)}.")
    kind, offsets = about["dtype"], about["data_offsets"]
    if not isinstance(kind, str):
        raise FileError(f"{where} must name its dtype; received {shown(kind)}.")
    whole = isinstance(offsets, list) and len(offsets) == 2 and all(type(place) is int for place in offsets)
    if not whole or not 0 <= offsets[0] <= offsets[1] < 2**62:
        raise FileError(f"{where} must have data_offsets of two whole numbers in order; received {shown(offsets)}.")
    return kind, checked_shape(where, about["shape"]), offsets[0], offsets[1]


def _check_spans(spans: list[tuple[int, int, str]], present: int) -> None:
    """Raise FileError unless the tensors fill the bytes there are, without gap or overlap."""
    reached = 0
    for begin, end, where in sorted(spans):
        if end > present:
            raise FileError(f"{where} ends at byte {end:,} of data, but only {size_text(present)} follow the header.")
        if begin != reached:
            what = "overlaps the tensor before it" if begin < reached else "leaves a gap before it"
            raise FileError(f"{where} {what}: it begins at byte {begin:,}, the one before ends at {reached:,}.")
        reached = end
    if reached != present:
        raise FileError(f"declares {size_text(reached)} of tensors, but {size_text(present)} follow the header.")
