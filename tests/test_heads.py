"""Arrays → heads: which key head a query head meets, who sees what, and what is refused."""

from typing import Any

import numpy as np
import pytest

from simulation.heads import Heads, Visible, mask_array


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape)


def test_grouped_queries_use_key_head_h_over_group() -> None:
    k = np.arange(8)[None, :, None, None] * np.ones((1, 8, 16, 4))
    met = [int(head_k[0, 0]) for _, _, head_k in Heads.of(zeros(1, 32, 16, 4), k)]
    assert met == [h // 4 for h in range(32)]
    assert met != [h % 8 for h in range(32)]  # tiling the key heads is the usual mistake


def test_one_key_head_serves_all() -> None:
    heads = Heads.of(zeros(2, 6, 3, 4), zeros(2, 1, 5, 4))
    assert (heads.group, heads.shape, len(heads)) == (6, (2, 6), 12)
    assert (heads.n_queries, heads.n_keys, heads.d_k) == (3, 5, 4)


def test_two_axes_are_one_head() -> None:
    (found,) = Heads.of([[1, 2]], np.array([[3, 4], [5, 6]], dtype=">i2"))
    assert found[0] == ()
    assert found[1].dtype == found[2].dtype == np.float64
    assert found[2].tolist() == [[3, 4], [5, 6]]


@pytest.mark.parametrize("dtype", ["float16", "float32", ">f4", "int8", "uint16"])
def test_any_real_type_becomes_float64(dtype: str) -> None:
    values = np.arange(6, dtype=dtype).reshape(3, 2)
    _, q, k = next(iter(Heads.of(values, np.asfortranarray(values))))
    assert q.dtype == np.float64
    assert (q == k).all()


@pytest.mark.parametrize(
    ("q", "k", "message"),
    [
        (zeros(6, 3, 4), zeros(4, 3, 4), r"6 is no multiple of 4, received q of shape \(6, 3, 4\)"),
        (zeros(4, 3, 4), zeros(8, 3, 4), "4 is no multiple of 8"),
        (zeros(2, 3, 4), zeros(2, 3, 5), "same d_k, their last axis"),
        (zeros(2, 8, 3, 4), zeros(3, 8, 3, 4), "same leading axes"),
        (zeros(2, 3, 4), zeros(3, 4), "same leading axes"),
        (zeros(4), zeros(4), r"`q` must have shape \(..., tokens, d_k\)"),
        (zeros(3, 0), zeros(3, 0), "none of them empty"),
        (zeros(3, 4), zeros(0, 4), "`k` must have shape"),
        (zeros(3, 4) * 1j, zeros(3, 4), "received an array of complex128"),
        (zeros(3, 4) > 0, zeros(3, 4), "received an array of bool"),
        ([[1, 2], [3]], zeros(3, 2), "`q` must be an array of real numbers"),
        (zeros(3, 4), None, "`k` must be an array of real numbers"),
        (zeros(3, 4), "k.npy", "`k` must be an array of real numbers"),
    ],
)
def test_refuses_what_does_not_go_together(q: Any, k: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Heads.of(q, k)


def test_counts_and_places_numbers_that_are_not_finite() -> None:
    k = np.random.default_rng(0).standard_normal((2, 8, 4, 5)).astype(np.float16)
    k[1, 2, 3, 4], k[1, 3, 0, 0], k[1, 3, 0, 1] = np.inf, np.nan, -np.inf
    with pytest.raises(
        ValueError, match=r"`k` .* received inf at \(1, 2, 3, 4\) \(1 NaN, 2 infinite, of 320 numbers\)"
    ):
        Heads.of(zeros(2, 8, 4, 5), k)


def test_refuses_numbers_whose_powers_would_overflow() -> None:
    q = zeros(3, 2)
    q[2, 1] = np.finfo(np.float32).min
    with pytest.raises(ValueError, match=r"within ±1e\+30; received -3.4\d+e\+38 at \(2, 1\) \(1 beyond"):
        Heads.of(q, zeros(3, 2))


# --- who sees what -----------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n"), [(4, 4), (2, 5), (5, 2)])
def test_causal_rows_end_at_the_last_key(m: int, n: int) -> None:
    expected = np.tril(np.ones((m, n), dtype=bool), n - m)
    seen = Visible(m, n, causal=True)
    assert (seen.rows(slice(0, m)) == expected).all()
    assert (np.vstack([seen.rows(slice(i, i + 1)) for i in range(m)]) == expected).all()


def test_mask_and_causal_go_together() -> None:
    mask = np.array([[True, True], [False, True]])
    assert Visible(2, 2, mask, causal=True).rows(slice(0, 2)).tolist() == [[True, False], [False, True]]
    assert not Visible(2, 2, mask).everything
    assert Visible(2, 2).everything


def test_mask_broadcasts_over_heads() -> None:
    heads = Heads.of(zeros(2, 3, 4, 5), zeros(2, 3, 6, 5))
    padding = np.ones((2, 1, 1, 6), dtype=bool)
    padding[1, ..., 4:] = False
    mask = mask_array(padding, heads)
    assert mask is not None
    assert mask.shape == (2, 3, 4, 6)
    assert mask[1, 2].sum() == 16
    assert mask_array(None, heads) is None


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (zeros(4, 6), "`mask` must be boolean, True where a query may look"),
        (np.ones((6, 4), dtype=bool), r"must broadcast to \(..., queries, keys\) = \(2, 4, 6\)"),
    ],
)
def test_refuses_masks(mask: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mask_array(mask, Heads.of(zeros(2, 4, 5), zeros(2, 6, 5)))
