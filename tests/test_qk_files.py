"""Files to q and k: axes, fused and grouped heads, names, scale, non-finite tokens, and what was assumed in words."""

import math

import numpy as np
import pytest

from simulation.measured import diagnose
from simulation.qk_arrays import QueriesKeys, arranged
from simulation.qk_files import Choices, offered, read_qk
from tests.written_files import npy, npz

ERRORS = 6  # Student's t with 15 degrees of freedom goes beyond with probability 2.4e-5


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng([seed, 77]).standard_normal(shape)


def read(*files: bytes, **said):
    names = said.pop("names", ["file.npz", "other.npz"][: len(files)])
    limit = said.pop("max_bytes", 64_000_000)
    return read_qk(*files, names=names, choices=Choices(**said), max_bytes=limit)


def doubts_of(shape: tuple[int, ...]) -> str:
    q = np.ones(shape)
    return " ".join(read(npz(q=q, k=q)).doubts)


# --- axes (E11) --------------------------------------------------------------------------------

ORDERS = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "sbhd": (2, 0, 1, 3), "dhsb": (3, 1, 2, 0)}


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_of_axes_is_read_as_the_reader_says(order: str, seed: int) -> None:
    q, k = normal(seed, 2, 2, 8, 16, 64)
    stored = npz(q=q.transpose(ORDERS[order]), k=k.transpose(ORDERS[order]))
    data = read(stored, axis=order.index("d"), token_axis=order.index("s"))
    assert data.q.shape == ((2, 8, 16, 64) if order != "dhsb" else (8, 2, 16, 64))
    swapped = (data.q, data.k) if order != "dhsb" else (data.q.swapaxes(0, 1), data.k.swapaxes(0, 1))
    assert (swapped[0] == q).all()
    assert (swapped[1] == k).all()
    assert data.doubts == ()
    assert f"axis {order.index('d')} (64) is d_k, as you say" in data.notes


def test_a_wrong_axis_shows_in_the_variance_and_in_the_notes(seed: int) -> None:
    q, k = normal(seed, 2, 2, 8, 160, 64)
    for axis, d_k in ((3, 64), (1, 8)):
        result = diagnose(**vars_of(read(npz(q=q, k=k), axis=axis, token_axis=2)))
        assert result.d_k == d_k
        for head in result.heads[:4]:
            estimate = head.estimates.variance
            assert abs(estimate.estimate - d_k) < ERRORS * estimate.standard_error


def vars_of(data: QueriesKeys, *, causal: bool = False) -> dict:
    return {"q": data.q, "k": data.k, **data.arguments(causal=causal)}


def test_ambiguous_sizes_are_asked_about() -> None:
    assert "please say" in doubts_of((8, 8, 8, 8))
    assert "axis 2 (12) is taken to count tokens; axis 1 (130) is longer" in doubts_of((2, 130, 12, 64))
    assert doubts_of((2, 8, 16, 64)) == ""
    assert "wide for one head" in doubts_of((130, 768))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"axis": 4}, "`axis` must be a whole number from -4 to 3; received 4"),
        ({"axis": 1, "token_axis": 1}, "another axis than that of d_k"),
        ({"axis": 1, "token_axis": -3}, "another axis than that of d_k"),
        ({"token_axis": 9}, "`token_axis`"),
        ({"heads": 5}, "multiple of parts"),
        ({"heads": 0}, "`heads` must be a whole number"),
        ({"layout": "blocks", "heads": 2}, "`q` must name the fused array"),
        ({"layout": "blocks"}, "`heads` must say"),
        ({"layout": "stacked", "heads": 2, "q": "q"}, "`layout` must be one of"),
        ({"layout": "blocks", "heads": 2, "q": "q", "parts": 1}, "`parts`"),
        ({"q": "v"}, "There is no array 'v'"),
        ({"q": "k"}, "'k' cannot be both q and k"),
        ({"header": "maybe"}, "`header` must be one of"),
    ],
)
def test_one_sentence_says_what_is_wrong(said: dict, words: str) -> None:
    q = np.ones((2, 8, 16, 64))
    with pytest.raises(ValueError, match=r"^[^\n]+$") as caught:
        read(npz(q=q, k=q), **said)
    assert words in str(caught.value)


def test_fewer_than_two_axes_or_files() -> None:
    with pytest.raises(ValueError, match="no array of two axes or more"):
        read(npz(q=np.ones(3), k=np.ones(3)))
    with pytest.raises(ValueError, match="one file or in two; received 3 files"):
        offered([b"", b"", b""])
    with pytest.raises(ValueError, match="at least two axes"):
        arranged(np.ones(3), None, None)


# --- heads: grouped (E10), side by side, fused (E09) --------------------------------------------


def test_grouped_queries_from_a_file(seed: int) -> None:
    q, k = normal(seed, 1, 32, 16, 128), normal(seed + 1, 1, 8, 16, 128)
    result = diagnose(**vars_of(read(npz(q=q, k=k))))
    assert (len(result.heads), result.group) == (32, 4)
    assert result.head(0, 13).variance == pytest.approx((q[0, 13] @ k[0, 3].T).var())
    flat_q, flat_k = (x[0].swapaxes(0, 1).reshape(16, -1) for x in (q, k))
    flat = read(npz(q=flat_q, k=flat_k), heads=32)
    assert "32 heads of 128 lie side by side in q, 8 in k" in flat.notes
    assert [head.variance for head in diagnose(**vars_of(flat)).heads] == [head.variance for head in result.heads]


def test_heads_that_do_not_divide_get_a_message() -> None:
    data = read(npz(q=np.ones((1, 32, 4, 8)), k=np.ones((1, 6, 4, 8))))
    with pytest.raises(ValueError, match="32 is no multiple of 6"):
        diagnose(**vars_of(data))
    with pytest.raises(ValueError, match="make 8, which does not divide the 12 of k"):
        read(npz(q=np.ones((4, 32)), k=np.ones((4, 12))), heads=4)


@pytest.mark.parametrize("layout", ["blocks", "interleaved"])
@pytest.mark.parametrize("parts", [2, 3])
def test_a_fused_projection_is_the_same_as_its_parts(layout: str, parts: int, seed: int) -> None:
    apart = normal(seed, parts, 3, 20, 4)  # (part, head, token, d_k)
    axes = (2, 0, 1, 3) if layout == "blocks" else (2, 1, 0, 3)
    fused = apart.transpose(axes).reshape(20, -1)
    for stored in (npz(v=np.ones((2, 2)), qkv=fused), npy(fused)):
        data = read(stored, heads=3, layout=layout, parts=parts, names=["c_attn.npy"])
        assert (data.q == apart[0]).all()
        assert (data.k == apart[1]).all()
        assert any("is cut into 3 heads of 4" in note for note in data.notes)


# --- names -------------------------------------------------------------------------------------


def test_names_that_do_not_tell_are_asked_about_and_not_guessed() -> None:
    q, k = normal(0, 2, 5, 3)
    stored = npz(arr_0=q, arr_1=k)
    with pytest.raises(ValueError, match="Say which array is q and which is k: the names 'arr_0', 'arr_1'"):
        read(stored)
    data = read(stored, q="arr_1", k="arr_0")
    assert (data.q == k).all()
    assert data.notes[0] == "'arr_1' is q and 'arr_0' is k, as you say"


def test_two_files_by_their_names_or_in_their_order() -> None:
    q, k = normal(0, 2, 5, 3)
    assert (read(npy(k), npy(q), names=["l0_k.npy", "l0_q.npy"]).q == q).all()  # uploads come in any order
    data = read(npy(q), npy(k), names=["first.npy", "second.npy"])
    assert (data.q == q).all()
    assert "in the order of the files" in data.notes[0]
    same = read(npz(x=q), npz(x=k), names=["a.npz", "b.npz"], q="b.npz: x", k="a.npz: x")
    assert (same.q == k).all()
    with pytest.raises(ValueError, match="one array alone"):
        read(npy(q), names=["q.npy"])


def test_paths_and_tables(tmp_path) -> None:
    q, k = normal(0, 2, 5, 3)
    for name, x in (("q.csv", q), ("k.csv", k)):
        np.savetxt(tmp_path / name, x, delimiter=",")
    data = read_qk(tmp_path / "q.csv", tmp_path / "k.csv")
    np.testing.assert_allclose(data.q, q)
    assert any("5 rows" in note for note in data.notes)


# --- scale and limits --------------------------------------------------------------------------


def test_the_scale_in_the_file_is_used_and_settles_the_axis() -> None:
    q = np.ones((2, 128, 32))
    data = read(npz(q=q, k=q, scale=np.full(6, 32**-0.5)))
    assert data.scale == pytest.approx(32**-0.5)
    assert data.doubts == ()  # 128 could be a head dimension, but for the scale
    assert "the last axis (32) is d_k, as the scale in the file tells" in data.notes
    assert "axis 1 (128) could be a head dimension too" in " ".join(read(npz(q=q, k=q)).doubts)


@pytest.mark.parametrize("scale", [np.array([0.1, 0.2]), np.array([-1.0]), np.array([0.0]), np.array([np.inf])])
def test_scales_that_are_not_one_number_are_not_used(scale: np.ndarray) -> None:
    data = read(npz(q=np.ones((3, 4)), k=np.ones((3, 4)), scale=scale))
    assert data.scale is None
    assert ("a scale of its own, 0.1 to 0.2" in " ".join(data.doubts)) == (len(scale) == 2)


def test_a_file_that_says_it_is_not_what_the_model_computes() -> None:
    q = np.ones((3, 4))
    told = read(npz(q=q, k=q, attention_error=np.array([1e-4, 0.31])))
    assert "up to 0.31 away from the model's own attention weights" in " ".join(told.doubts)
    for error in (np.array([1e-4, 5e-4]), np.array([np.nan])):
        assert read(npz(q=q, k=q, attention_error=error)).doubts == ()


def test_the_limit_is_for_q_and_k_together() -> None:
    q = np.ones((100, 10))  # 8,000 bytes
    for files in ((npz(q=q, k=q),), (npy(q), npy(q))):
        names = ["q.npy", "k.npy"][: len(files)]
        assert read(*files, names=names, max_bytes=16_000).q.shape == (100, 10)
        with pytest.raises(ValueError, match="may hold at most"):
            read(*files, names=names, max_bytes=15_999)


# --- tokens left out ---------------------------------------------------------------------------


def test_non_finite_tokens_are_named_and_left_out_on_request_only(seed: int) -> None:
    q, k = normal(seed, 2, 3, 40, 8)
    q[1, 7, 2], k[2, 9, 0] = np.inf, np.nan
    data = read(npz(q=q, k=k))
    assert data.non_finite == (
        "'q': 1 of 960 entries is not finite: inf at (1, 7, 2). 'k': 1 of 960 entries is not finite: nan at (2, 9, 0)."
    )
    assert data.q.shape == (3, 40, 8)
    left = read(npz(q=q, k=k), drop_non_finite=True)
    assert left.non_finite == ""
    assert left.q.shape == left.k.shape == (3, 38, 8)  # the same tokens of both
    assert left.q_places.tolist() == left.k_places.tolist() == [i for i in range(40) if i not in (7, 9)]
    assert any("2 of 40 queries and 2 of 40 keys" in note for note in left.notes)


def test_queries_and_keys_of_other_tokens_lose_only_their_own() -> None:
    q, k = normal(0, 2, 5, 4), normal(1, 2, 7, 4)
    k[0, 3, 1] = np.nan
    left = read(npz(q=q, k=k), drop_non_finite=True)
    assert (left.q.shape, left.k.shape) == ((2, 5, 4), (2, 6, 4))
    q[:, :, 0] = np.nan
    with pytest.raises(ValueError, match="finite"):
        read(npz(q=q, k=k), drop_non_finite=True)
    q, k = normal(0, 2, 2, 4)
    q[0, 0], k[1, 0] = np.nan, np.nan
    with pytest.raises(ValueError, match="No token is left that is finite in both"):
        read(npz(q=q, k=k), drop_non_finite=True)


@pytest.mark.parametrize(("m", "n"), [(12, 12), (5, 12), (12, 5)])
def test_who_sees_whom_is_told_by_the_tokens_own_numbers(m: int, n: int) -> None:
    q, k = normal(0, m, 3), normal(1, n, 3)
    whole, part = QueriesKeys.of(q, k), QueriesKeys.of(q, k).thinned(4)
    seen = np.arange(n)[None, :] <= np.arange(m)[:, None] + n - m
    assert (whole.arguments(causal=True)["mask"] == seen).all()
    assert (part.arguments(causal=True)["mask"] == seen[np.ix_(part.q_places, part.k_places)]).all()
    assert part.arguments() == {"same_tokens": m == n}
    assert (part.q == q[part.q_places]).all()


def test_a_masked_diagnosis_is_that_of_causal(seed: int) -> None:
    data = QueriesKeys.of(*normal(seed, 2, 2, 10, 4))
    masked, causal = diagnose(**vars_of(data, causal=True)), diagnose(data.q, data.k, causal=True)
    assert [head.softmax for head in masked.heads] == [head.softmax for head in causal.heads]


def test_thinning_keeps_the_ends_and_says_so() -> None:
    data = QueriesKeys.of(normal(0, 2, 3000, 4), normal(1, 2, 3000, 4))
    assert data.thinned(3000) is data
    thin = data.thinned(1024)
    assert thin.q.shape == (2, 1024, 4)
    assert (thin.q_places[0], thin.q_places[-1]) == (0, 2999)
    assert len(set(thin.q_places)) == 1024
    assert "1,024 of 3,000 queries" in thin.notes[-1]
    with pytest.raises(ValueError, match="`most`"):
        data.thinned(0)


# --- public cases ------------------------------------------------------------------------------


def test_the_variance_of_one_block_of_4096_scores_and_its_error(seed: int) -> None:
    """A23: q, k of shape (64, 32); the variance of 4,096 scores is 32.0 with 95 % in 28.9 to 35.1."""
    found = []
    for repeat in range(40):
        q, k = np.random.default_rng([seed, repeat]).standard_normal((2, 64, 32))
        found.append(diagnose(q, k).heads[0].estimates.variance)
    values = np.array([estimate.estimate for estimate in found])
    errors = np.array([estimate.standard_error for estimate in found])
    spread = (35.1 - 28.9) / (2 * 1.96)
    assert abs(values.mean() - 32) < 5 * spread / math.sqrt(len(values))
    # root mean square of the jackknife errors; each has 15 degrees of freedom, so a relative error of 1/sqrt(30)
    assert abs(math.sqrt(np.mean(errors**2)) / spread - 1) < 5 / math.sqrt(2 * 15 * len(values)) + 0.15
    assert np.median(errors) > 1.5 * math.sqrt(2 / 4096) * 32  # as if 4,096 scores were as many samples
