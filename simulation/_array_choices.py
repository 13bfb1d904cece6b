"""What a reader chooses about arrays of queries and keys: names, the axis of d_k, parts of a fused one.

In: arrays, shapes and names. Out: arrays laid out as (..., tokens, d_k), views where that can be,
and guesses with their reasons in words.
"""

import re
from collections.abc import Sequence
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from simulation._array_checks import FloatArray, real_array
from simulation._validation import one_of, shown, whole_number

Layout = Literal["blocks", "interleaved"]

_ROLES = {
    "q": re.compile(r"(?:w|x)?q(?:s|uery|ueries)?\d*"),
    "k": re.compile(r"(?:w|x)?k(?:s|ey|eys)?\d*"),
}
_FUSED = re.compile(r"(?i)qkv|c_attn|query_key|in_proj")
_WEIGHTS = {"weight", "weights", "bias", "kernel"}
_USUAL_D_K = (32, 40, 48, 64, 72, 80, 96, 112, 128, 160, 192, 256, 512)


class MemberGuess(NamedTuple):
    """The names of q and k among the members of a file, None when names do not tell, and why."""

    pair: tuple[str, str] | None
    reason: str


class LayoutGuess(NamedTuple):
    """The axis taken as d_k, whether another could as well be it, and why."""

    axis: int
    ambiguous: bool
    reason: str


def put_axis_last(array: npt.ArrayLike, axis: int) -> FloatArray:
    """Return a view with the d_k axis last; the other axes keep their order.

    Parameters
    ----------
    array : array_like, any shape of at least one axis
    axis : int
        Axis that holds the d_k components; negative counts from the end.

    Raises
    ------
    ValueError
        If there is no such axis.

    Examples
    --------
    >>> put_axis_last(np.zeros((2, 64, 8, 16)), 1).shape
    (2, 8, 16, 64)
    """
    values = real_array(array)
    return np.moveaxis(values, whole_number("axis", axis, -values.ndim, values.ndim - 1), -1)


def split_fused(array: npt.ArrayLike, heads: int, layout: Layout = "blocks", parts: int = 3) -> tuple[FloatArray, ...]:
    """Return q, k (and v) from one projection that holds them side by side.

    Parameters
    ----------
    array : array_like, shape (..., tokens, parts * heads * d_k)
    heads : int
    layout : {"blocks", "interleaved"}
        "blocks": [Q | K | V], heads within each, as GPT-2 stores it. "interleaved": q, k and v of
        the first head, then of the second, as GPT-NeoX and BLOOM do. Both give the same shapes:
        nothing but the model's code can tell which is right.
    parts : int
        3 for q, k, v; 2 for q, k (or k, v); 1 to part the heads of a single projection.

    Returns
    -------
    tuple of `parts` ndarrays of float64, shape (..., heads, tokens, d_k)

    Raises
    ------
    ValueError
        If an argument breaks its rule, or the last axis is no multiple of parts * heads.

    Examples
    --------
    >>> fused = np.tile(np.arange(36.0), (5, 1))
    >>> split_fused(fused, 3)[0][1, 0], split_fused(fused, 3, "interleaved")[0][1, 0]
    (array([4., 5., 6., 7.]), array([12., 13., 14., 15.]))
    """
    values = real_array(array)
    if values.ndim < 2:
        raise ValueError(f"`array` must have shape (..., tokens, width); received shape {values.shape}.")
    parts = whole_number("parts", parts, 1, 3)
    heads = whole_number("heads", heads, 1, 100_000)
    layout_name = one_of("layout", layout, ("blocks", "interleaved"))
    *lead, width = values.shape
    if width == 0 or width % (parts * heads):
        raise ValueError(
            f"`array` must have a last axis that is a multiple of parts * heads = {parts * heads:,}; "
            f"received {width:,}."
        )
    d_k = width // (parts * heads)
    inner = (parts, heads, d_k) if layout_name == "blocks" else (heads, parts, d_k)
    part_axis = -3 if layout_name == "blocks" else -2
    apart = np.moveaxis(values.reshape(*lead, *inner), part_axis, 0)  # (parts, ..., tokens, heads, d_k)
    return tuple(np.swapaxes(part, -3, -2) for part in apart)


def guess_pair(names: Sequence[str]) -> MemberGuess:
    """Return which members of a file are q and k, as far as their names tell.

    Parameters
    ----------
    names : sequence of str
        Such as ``[member.name for member in contents.members]``.

    Returns
    -------
    MemberGuess
        A pair only if the names leave one; otherwise None, with the reason and the candidates.

    Examples
    --------
    >>> guess_pair(["attn.q_proj", "attn.k_proj", "attn.v_proj"]).pair
    ('attn.q_proj', 'attn.k_proj')
    >>> print(guess_pair(["arr_0", "arr_1"]).reason)
    the names 'arr_0', 'arr_1' do not say which is q and which is k
    """
    pairs = _pairs([name for name in names if not _WEIGHTS.intersection(_words(name))])
    if len(pairs) == 1:
        return MemberGuess(pairs[0], f"{shown(pairs[0][0])} is named like q and {shown(pairs[0][1])} like k")
    if pairs:
        first = f"the first {shown(pairs[0][0])} and {shown(pairs[0][1])}"
        return MemberGuess(None, f"{len(pairs):,} pairs are named like q and k, {first}: choose one")
    for q, k in _pairs(names):
        return MemberGuess(None, f"{shown(q)} and {shown(k)} are named like weights, not like queries and keys")
    fused = next(filter(looks_fused, names), None)
    if fused is not None:
        return MemberGuess(None, f"{shown(fused)} is named like q, k and v in one: say how it is laid out to part it")
    if len(names) < 2:
        return MemberGuess(None, "one array alone cannot be both q and k")
    listed = ", ".join(shown(name) for name in names[:6]) + (", ..." if len(names) > 6 else "")
    return MemberGuess(None, f"the names {listed} do not say which is q and which is k")


def looks_fused(name: str) -> bool:
    """Return whether an array is named as one that holds q, k and v side by side.

    Examples
    --------
    >>> looks_fused("h.0.attn.c_attn"), looks_fused("q_proj")
    (True, False)
    """
    return _FUSED.search(name) is not None


def guess_layout(shape: Sequence[int]) -> LayoutGuess:
    """Return which axis of an array is taken as d_k, and whether the reader must be asked.

    The last axis is taken, as attention code has it. It is ambiguous if another axis is as long,
    or has the length of a usual head dimension (32 to 512).

    Parameters
    ----------
    shape : sequence of int

    Raises
    ------
    ValueError
        If there are fewer than two axes: tokens and d_k.

    Examples
    --------
    >>> guess_layout((2, 8, 16, 64))[:2], guess_layout((8, 8, 8, 8))[:2], guess_layout((64, 10))[:2]
    ((3, False), (3, True), (1, True))
    """
    sizes = [whole_number("shape", size, 1, 2**62) for size in shape]
    if len(sizes) < 2:
        raise ValueError(f"`shape` must have two axes or more, tokens and d_k last; received {shown(tuple(sizes))}.")
    axis, d_k = len(sizes) - 1, sizes[-1]
    taken = f"the last axis ({d_k:,}) is taken as d_k"
    same = [place for place, size in enumerate(sizes[:-1]) if size == d_k]
    if same:
        return LayoutGuess(
            axis, True, f"{taken}; axis {_listed(same)} is as long, so the shape cannot tell: please say"
        )
    rivals = [place for place, size in enumerate(sizes[:-1]) if size in _USUAL_D_K]
    if rivals:
        lengths = _listed([sizes[place] for place in rivals])
        return LayoutGuess(
            axis, True, f"{taken}; axis {_listed(rivals)} ({lengths}) could be a head dimension too: please say"
        )
    if d_k > max(_USUAL_D_K):
        return LayoutGuess(axis, True, f"{taken}; that is wide for one head: the heads may still be side by side")
    return LayoutGuess(axis, False, f"{taken}; no other axis has the length of a usual head dimension")


def _listed(numbers: Sequence[int]) -> str:
    return " and ".join(f"{number:,}" for number in numbers)


def _pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the names that differ in the word for q or k alone, or the only name of each."""
    queries, keys = _by_rest(names, "q"), _by_rest(names, "k")
    pairs = [
        pair
        for rest, found in queries.items()
        for pair in product(found[:4], keys.get(rest, ())[:4])  # 4 stand for any number of ways to write one name
    ]
    only = [*queries.values(), *keys.values()]
    if not pairs and len(queries) == len(keys) == 1 and all(len(found) == 1 for found in only):
        pairs = [(only[0][0], only[1][0])]
    return pairs


def _by_rest(names: Sequence[str], role: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        if rest := _rest(name, role):
            found.setdefault(rest, []).append(name)
    return found


def _words(name: str) -> list[str]:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]


def _rest(name: str, role: str) -> str:
    """Return the name with its one word for q or k left open; "" if it has none, or two."""
    words = _words(name)
    found = [place for place, word in enumerate(words) if any(pattern.fullmatch(word) for pattern in _ROLES.values())]
    if len(found) != 1 or not _ROLES[role].fullmatch(words[found[0]]):
        return ""
    number = re.search(r"\d*$", words[found[0]])
    words[found[0]] = "*" + (number[0] if number else "")
    return ".".join(words)
