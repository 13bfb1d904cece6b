"""Seed → chunks of q and k: the only random numbers.

Work is cut into chunks by d_k alone, never by the number of workers. Chunk i draws from child
stream i of the seed and is always drawn whole, so the same seed gives the same numbers on any
number of threads, and a longer run keeps the samples of a shorter one.
"""

import numpy as np
import numpy.typing as npt

from simulation._validation import MAX_SEED, shown, whole_number
from simulation.model import QueryKeyModel
from simulation.normals import standard_normals

FloatArray = npt.NDArray[np.float64]
DrawArray = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Seed = int | np.random.SeedSequence | np.random.Generator | None

CHUNK_NUMBERS = 2**19  # entries of q (and of k) in a chunk: 2 MB each in float32
_SEED_BITS = 53  # drawn seeds stay exact in JSON read by JavaScript, and are long enough not to collide


def seed_of(rng: Seed) -> int:
    """Return the integer seed that stands for `rng`, so that a result can be repeated from it.

    Parameters
    ----------
    rng : int, SeedSequence, Generator or None
        None draws a seed from the operating system; a Generator is asked for one (and moves on);
        a SeedSequence without spawn key stands for its entropy.

    Raises
    ------
    ValueError
        If `rng` is none of these, or a negative int.

    Examples
    --------
    >>> seed_of(7), seed_of(np.random.SeedSequence(7))
    (7, 7)
    """
    if rng is None:
        import secrets

        return secrets.randbits(_SEED_BITS)
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**_SEED_BITS))
    if isinstance(rng, np.random.SeedSequence):
        if not rng.spawn_key and isinstance(rng.entropy, int) and rng.entropy <= MAX_SEED:
            return rng.entropy
        return int(rng.generate_state(1, np.uint64)[0]) >> (64 - _SEED_BITS)
    try:
        return whole_number("rng", rng, 0, MAX_SEED)
    except ValueError:
        raise ValueError(
            f"`rng` must be a whole number from 0 to 2**128 - 1, a SeedSequence, a Generator or None; "
            f"received {shown(rng)}."
        ) from None


def child_seed(seed: int, *key: int) -> int:
    """Return the seed of a named branch of `seed`, independent of its other branches."""
    return seed_of(np.random.SeedSequence(seed, spawn_key=key))


def stream(seed: int, chunk: int) -> np.random.Generator:
    """Return the generator of one chunk: child `chunk` of the seed, as ``SeedSequence.spawn`` gives it."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(chunk,))))


def chunk_pairs(d_k: int) -> int:
    """Return how many pairs (q, k) make one chunk."""
    return max(1, CHUNK_NUMBERS // d_k)


def draw_pairs(model: QueryKeyModel, rng: np.random.Generator, size: int) -> tuple[DrawArray, DrawArray]:
    """Draw `size` independent pairs: q and k, each of shape (size, d_k), float32 (float64 with a mean).

    Examples
    --------
    >>> q, k = draw_pairs(QueryKeyModel(4, "rademacher"), stream(0, 0), 3)
    >>> q.shape, k.dtype.name, sorted(set(abs(q).ravel().tolist()))
    ((3, 4), 'float32', [1.0])
    """
    q, k = _drawn(model, rng, (size, size), model.d_k)
    if rho := model.correlation:
        k *= np.float32(np.sqrt((1 - rho) * (1 + rho)))
        k += np.float32(rho) * q
    return _moved(q, model.q_mean, model.q_std), _moved(k, model.k_mean, model.k_std)


def draw_apart(
    model: QueryKeyModel, rng: np.random.Generator, counts: tuple[int, int], width: int
) -> tuple[DrawArray, DrawArray]:
    """Draw `counts` queries and keys, or `width` components of them, independent of each other.

    Examples
    --------
    >>> [x.shape for x in draw_apart(QueryKeyModel(64), stream(0, 0), (3, 5), 64)]
    [(3, 64), (5, 64)]
    """
    q, k = _drawn(model, rng, counts, width)
    return _moved(q, model.q_mean, model.q_std), _moved(k, model.k_mean, model.k_std)


def _drawn(
    model: QueryKeyModel, rng: np.random.Generator, counts: tuple[int, int], width: int
) -> tuple[DrawArray, DrawArray]:
    """Draw standardised entries of queries and keys in one go."""
    entries = _standardised(model, rng, (sum(counts), width))
    return entries[: counts[0]], entries[counts[0] :]


def _moved(entries: DrawArray, mean: float, std: float) -> DrawArray:
    """Give standardised entries their mean and standard deviation; with a mean they become float64.

    Next to a large mean float32 would round the entries' spread away.
    """
    if mean != 0:
        return std * entries.astype(np.float64) + mean
    if std != 1:
        entries *= np.float32(std)
    return entries


def _standardised(model: QueryKeyModel, rng: np.random.Generator, shape: tuple[int, int]) -> DrawArray:
    """Draw entries with mean 0 and variance 1 of the model's family."""
    match model.entries:
        case "normal":
            return standard_normals(rng, shape[0] * shape[1]).reshape(shape)
        case "uniform":
            u = rng.random(shape, dtype=np.float32)
            u -= np.float32(0.5)
            u *= np.float32(2 * np.sqrt(3))
            return u
        case "laplace":
            e = rng.standard_exponential(shape, dtype=np.float32)
            e *= _signs(rng, shape)
            e *= np.float32(np.sqrt(0.5))
            return e
        case "student_t":
            df = model.df or np.nan
            t = rng.standard_t(df, shape)
            t *= np.sqrt((df - 2) / df)
            return t.astype(np.float32)
        case _:
            return _signs(rng, shape)


def _signs(rng: np.random.Generator, shape: tuple[int, int]) -> DrawArray:
    """Draw -1 or 1 with equal probability, one random bit each."""
    count = shape[0] * shape[1]
    bits = np.unpackbits(np.frombuffer(rng.bytes(-(-count // 8)), dtype=np.uint8), count=count)
    signs = bits.astype(np.float32).reshape(shape)
    signs *= 2
    signs -= 1
    return signs
