"""What a reader chooses about uploaded arrays, and what the arrays themselves tell."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.files import (
    Contents,
    Member,
    constant_columns,
    guess_layout,
    guess_members,
    non_finite,
    put_axis_last,
    split_fused,
    without_non_finite,
)

FUSED = np.tile(np.arange(36.0), (5, 1))  # E09: T = 5, 3 * H * D with H = 3, D = 4


def named(*names):
    one = np.ones((1, 1))
    return Contents("file", tuple(Member(name, (1, 1), "float64", "C", one) for name in names))


@pytest.mark.parametrize(
    ("layout", "columns"),
    [
        ("blocks", [[(0, 4), (4, 8), (8, 12)], [(12, 16), (16, 20), (20, 24)], [(24, 28), (28, 32), (32, 36)]]),
        ("interleaved", [[(0, 4), (12, 16), (24, 28)], [(4, 8), (16, 20), (28, 32)], [(8, 12), (20, 24), (32, 36)]]),
    ],
)
def test_fused_projections_are_parted_as_laid_out(layout, columns):
    parts = split_fused(FUSED, 3, layout)
    assert [part.shape for part in parts] == [(3, 5, 4)] * 3
    for part, spans in zip(parts, columns, strict=True):
        for head, (start, stop) in zip(part, spans, strict=True):
            assert (head == np.arange(start, stop)).all()


@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from(["blocks", "interleaved"]),
)
def test_parting_undoes_joining(parts, heads, d_k, tokens, layout):
    apart = np.arange(2.0 * parts * heads * tokens * d_k).reshape(parts, 2, heads, tokens, d_k)
    axes = (1, 3, 0, 2, 4) if layout == "blocks" else (1, 3, 2, 0, 4)
    fused = apart.transpose(axes).reshape(2, tokens, parts * heads * d_k)
    assert (np.stack(split_fused(fused, heads, layout, parts)) == apart).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((FUSED, 5), "multiple of parts \\* heads = 15; received 36"),
        ((FUSED, 0), "`heads` must be a whole number"),
        ((FUSED, 3, "stacked"), "`layout` must be one of"),
        ((FUSED, 3, "blocks", 4), "`parts` must be"),
        ((FUSED[0], 3), "received shape \\(36,\\)"),
    ],
)
def test_fused_arguments_that_cannot_be(arguments, words):
    with pytest.raises(ValueError, match=words):
        split_fused(*arguments)


@pytest.mark.parametrize("axis", range(4))
def test_the_axis_of_d_k_is_the_readers(axis):
    array = np.arange(2.0 * 3 * 5 * 7).reshape(2, 3, 5, 7)
    moved = put_axis_last(array, axis)
    assert (moved == np.moveaxis(array, axis, -1)).all()
    assert (put_axis_last(array, axis - 4) == moved).all()


def test_a_wrong_axis_changes_the_variance():
    rng = np.random.default_rng(0)  # E11, A31: iid (2, 8, 16, 64) read right and wrong
    q, k = rng.standard_normal((2, 2, 8, 160, 64))
    for axis, d_k in ((3, 64), (1, 8)):
        logits = put_axis_last(q, axis) @ put_axis_last(k, axis).swapaxes(-1, -2)
        assert logits.var() == pytest.approx(d_k, rel=0.1)


def test_axes_that_are_not_there():
    with pytest.raises(ValueError, match="`axis` must be a whole number from -2 to 1; received 2"):
        put_axis_last(np.ones((2, 2)), 2)
    with pytest.raises(ValueError, match="real numbers"):
        put_axis_last(["a"], 0)
    with pytest.raises(ValueError, match="equal length"):
        put_axis_last([[1], [1, 2]], 0)
    with pytest.raises(ValueError, match="at least one number"):
        put_axis_last(np.ones((0, 2)), 0)


@pytest.mark.parametrize(
    ("shape", "ambiguous", "words"),
    [
        ((2, 8, 16, 64), False, "the last axis (64) is taken as d_k"),
        ((6, 12, 100, 32), False, "no other axis"),
        ((8, 8, 8, 8), True, "axis 0 and 1 and 2 is as long"),
        ((64, 64), True, "please say"),
        ((2, 8, 64, 16), True, "axis 2 (64) could be a head dimension too"),
        ((64, 10), True, "axis 0 (64)"),
        ((128, 1024), True, "axis 0 (128)"),
        ((10, 1024), True, "side by side"),
    ],
)
def test_the_layout_is_said_and_asked_where_the_shape_cannot_tell(shape, ambiguous, words):
    guess = guess_layout(shape)
    assert guess.axis == len(shape) - 1
    assert guess.ambiguous == ambiguous
    assert words in guess.reason


@pytest.mark.parametrize("shape", [(64,), (), (0, 64), (2.5, 4)])
def test_shapes_without_tokens_and_d_k(shape):
    with pytest.raises(ValueError, match="`shape` must"):
        guess_layout(shape)


@pytest.mark.parametrize(
    ("names", "pair"),
    [
        (["q", "k"], ("q", "k")),
        (["K", "Q", "V"], ("Q", "K")),
        (["mask", "query", "key", "value"], ("query", "key")),
        (["queries", "keys"], ("queries", "keys")),
        (["query_states", "key_states", "value_states"], ("query_states", "key_states")),
        (
            ["layers.0.attn.q_proj.out", "layers.0.attn.k_proj.out"],
            ("layers.0.attn.q_proj.out", "layers.0.attn.k_proj.out"),
        ),
        (["to_q", "to_k"], ("to_q", "to_k")),
        (["qStates", "kStates"], ("qStates", "kStates")),
        (["xq", "xk"], ("xq", "xk")),
        (["query_layer", "key_cache"], ("query_layer", "key_cache")),  # the only one of each
        (["q", "k", "q_proj.weight", "k_proj.weight"], ("q", "k")),
    ],
)
def test_names_that_tell(names, pair):
    assert guess_members(named(*names)).pair == pair


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["arr_0", "arr_1"], "'arr_0', 'arr_1' do not say"),
        (["q"], "one array alone"),
        (["layer0.q", "layer0.k", "layer1.q", "layer1.k"], "2 pairs are named like q and k"),
        (["q", "query", "k", "key"], "4 pairs"),
        (["q_proj.weight", "k_proj.weight"], "named like weights"),
        (["h.0.attn.c_attn"], "q, k and v in one"),
        (["query_key_value"], "q, k and v in one"),
        (["qkv", "mask"], "q, k and v in one"),
        (["queue", "kernel_size"], "do not say"),
        (["a", "b", "c", "d", "e", "f", "g"], "..."),
    ],
)
def test_names_that_do_not_tell(names, words):
    guess = guess_members(named(*names))
    assert guess.pair is None
    assert words in guess.reason


def test_thousands_of_names_are_paired_at_once():
    assert (
        guess_members(named(*("q" + "_" * i for i in range(3000)), *("k" + "_" * i for i in range(3000)))).pair is None
    )


def test_non_finite_entries_are_counted_and_placed():
    array = np.zeros((3, 4, 5))
    assert str(non_finite(array)) == "All 60 entries are finite."
    array[0, 1, 2], array[2, 3, 4], array[1, 0, 0] = np.inf, np.nan, -np.inf
    found = non_finite(array)
    assert (found.count, found.size) == (3, 60)
    assert found.places == ((0, 1, 2), (1, 0, 0), (2, 3, 4))
    assert str(non_finite(array, most=1)) == "3 of 60 entries are not finite: inf at (0, 1, 2) and more."
    assert non_finite(np.full((20, 20), np.nan)).places == tuple((0, i) for i in range(5))
    assert non_finite(array, most=0).places == ()


@given(st.sets(st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(0, 2)), max_size=8))
def test_tokens_are_left_out_whole(places):
    array = np.arange(36.0).reshape(2, 6, 3)
    for place in places:
        array[place] = np.nan
    bad = {token for _, token, _ in places}
    if len(bad) == 6:
        with pytest.raises(ValueError, match="received none among 6"):
            without_non_finite(array)
        return
    left = without_non_finite(array)
    assert left.dropped == len(bad)
    assert set(np.flatnonzero(~left.kept)) == bad
    assert left.array.shape == (2, 6 - len(bad), 3)
    assert np.isfinite(left.array).all()
    assert (left.array == array[:, left.kept]).all()


def test_padding_of_nan_leaves_the_other_tokens_as_they_are():
    q = k = np.arange(8.0).reshape(1, 2, 4)  # B22: excluded, not multiplied by zero
    padded = np.concatenate([k, np.full((1, 1, 4), np.nan)], axis=1)
    assert (q @ without_non_finite(padded).array.swapaxes(-1, -2) == q @ k.swapaxes(-1, -2)).all()


def test_zero_padding_lowers_the_effective_d_k():
    rng = np.random.default_rng(0)  # B12: 96 columns padded to 128
    q, k = (np.pad(rng.standard_normal((500, 96)), ((0, 0), (0, 32))) for _ in range(2))
    found = constant_columns(q)
    assert found.zero == tuple(range(96, 128))
    assert (found.constant, found.d_k, found.effective_d_k) == ((), 128, 96)
    assert (q @ k.T).var() / found.effective_d_k == pytest.approx(1, rel=0.1)


def test_constant_columns_by_head():
    array = np.random.default_rng(0).standard_normal((2, 5, 4))
    array[:, :, 0] = 7.0
    array[0, :, 1], array[1, :, 1] = 1.0, 2.0  # constant in each head
    array[0, :, 2] = 0.0  # in one head only
    found = constant_columns(array)
    assert (found.zero, found.constant, found.effective_d_k) == ((), (0, 1), 2)
    array[0, 0, 0] = np.nan
    assert constant_columns(array).constant == (1,)
    assert constant_columns([[1.0, 0.0]]).zero == (1,)  # one token: nothing can vary
    assert constant_columns([[1.0, 0.0]]).constant == ()
