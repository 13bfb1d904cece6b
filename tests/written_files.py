"""What the tests of simulation.files share: valid files, written byte by byte or by NumPy, and how they end."""

import io
import json
import tracemalloc
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from simulation.files import FileError, read_file


def npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def npy_with_header(header: str, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    raw = header.encode("utf-8" if version == (3, 0) else "latin-1")
    return b"\x93NUMPY" + bytes(version) + len(raw).to_bytes(2 if version == (1, 0) else 4, "little") + raw + data


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def archive(members: list[tuple[str, bytes]], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as packed:
        for name, data in members:
            packed.writestr(name, data)
    return file.getvalue()


def bfloat16_bits(values: Any) -> bytes:
    """Values that bfloat16 holds exactly: the upper halves of float32."""
    return (np.ascontiguousarray(values, dtype="<f4").view("<u4") >> 16).astype("<u2").tobytes()


def safetensors(tensors: dict[str, tuple[str, tuple[int, ...], bytes]], metadata: Any = None) -> bytes:
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    data = b""
    for name, (kind, shape, raw) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    return safetensors_with_header(header, data)


def safetensors_with_header(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    raw = header.encode() if isinstance(header, str) else json.dumps(header).encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + data


def f32(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    values = np.ascontiguousarray(array, dtype="<f4")
    return "F32", values.shape, values.tobytes()


def refusal(data: Any, name: str = "file", **options: Any) -> str:
    """Return the sentence with which a file is refused."""
    with pytest.raises(FileError) as caught:
        read_file(data, name, **options)
    text = str(caught.value)
    assert text.startswith(repr(name))
    assert "\n" not in text
    return text


def peak_of(function: Callable[[], object]) -> int:
    """Return the most bytes held at once while `function` runs."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
