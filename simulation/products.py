"""Matrix products in blocks small enough that the BLAS library stays on the calling thread.

Chunks already run side by side. A BLAS that starts threads of its own for each product makes them
wait for each other: on a busy machine that costs up to ten times the work itself.
"""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_ROWS, _INNER, _COLUMNS = 32, 64, 128  # OpenBLAS goes parallel above 2**18 multiplications


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
    out = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), m, n))
    for i in range(0, m, _ROWS):
        for j in range(0, n, _COLUMNS):
            block = out[..., i : i + _ROWS, j : j + _COLUMNS]
            for s in range(0, w, _INNER):
                block += a[..., i : i + _ROWS, s : s + _INNER] @ b[..., s : s + _INNER, j : j + _COLUMNS]
    return out
