"""Matrix products during which the BLAS library stays on the calling thread.

Chunks already run side by side. A BLAS that starts threads of its own for each product makes them
wait for each other: on a busy machine that costs up to ten times the work itself. NumPy's own wheels
bring OpenBLAS, which can be told; any other library gets blocks too small for it to go parallel.
"""

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_ROWS, _INNER, _COLUMNS = 32, 64, 128  # OpenBLAS goes parallel above 2**18 multiplications
_NAMES = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads")
_lock = threading.Lock()
_inside = [0, 0]  # products under way, and the threads that OpenBLAS had before the first of them


def product(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return a @ b, arrays (..., m, w) and (..., w, n) → (..., m, n).

    Examples
    --------
    >>> a, b = np.ones((2, 100, 70)), np.ones((2, 70, 300))
    >>> bool((product(a, b) == 70).all())
    True
    """
    (m, w), n = a.shape[-2:], b.shape[-1]
    if m * w * n <= _ROWS * _INNER * _COLUMNS:
        return np.asarray(a @ b)
    if (threads := _openblas_threads()) is None:
        return _in_blocks(a, b)
    with _one_thread(*threads):
        return np.asarray(a @ b)


def _in_blocks(a: FloatArray, b: FloatArray) -> FloatArray:
    (m, w), n = a.shape[-2:], b.shape[-1]
    out = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), m, n))
    for i in range(0, m, _ROWS):
        for j in range(0, n, _COLUMNS):
            block = out[..., i : i + _ROWS, j : j + _COLUMNS]
            for s in range(0, w, _INNER):
                block += a[..., i : i + _ROWS, s : s + _INNER] @ b[..., s : s + _INNER, j : j + _COLUMNS]
    return out


@contextmanager
def _one_thread(get: Callable[[], int], put: Callable[[int], None]) -> Iterator[None]:
    """Keep OpenBLAS on one thread until the last of all products under way is done."""
    with _lock:
        if _inside[0] == 0:
            _inside[1] = get()
            if _inside[1] != 1:
                put(1)
        _inside[0] += 1
    try:
        yield
    finally:
        with _lock:
            _inside[0] -= 1
            if _inside[0] == 0 and _inside[1] != 1:
                put(_inside[1])


@cache
def _openblas_threads() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """Return how to read and set the threads of the OpenBLAS in NumPy's wheel, or None without one."""
    package = Path(np.__file__).parent
    for path in (*package.with_name("numpy.libs").glob("*openblas*"), *package.glob(".dylibs/*openblas*")):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for name in _NAMES:
            get, put = (getattr(library, name.format(verb), None) for verb in ("get", "set"))
            if get is not None and put is not None:
                get.restype, put.argtypes, put.restype = ctypes.c_int, [ctypes.c_int], None
                return get, put
    return None
