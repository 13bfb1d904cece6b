"""Mutated files of every format end in arrays or in one sentence, within bounded memory."""

import io
import random
import tracemalloc
import zipfile

import numpy as np
import pytest

from simulation.files import FileError, constant_columns, guess_members, non_finite, read_file
from tests.written_files import archive, bfloat16_bits, f32, npy, npz, safetensors

MUTATIONS = 400
ARRAY = np.random.default_rng(0).standard_normal((6, 8))
RECORDS = np.zeros(5, dtype=[("q", ">f4", (3,)), ("k", [("a", "<f2"), ("b", "S3")])])
VALID = {
    "plain.npy": npy(ARRAY),
    "fortran.npy": npy(np.asfortranarray(ARRAY.astype(">f2"))),
    "records.npy": npy(RECORDS),
    "objects.npy": npy(np.array([{"q": 1}], dtype=object)),
    "stored.npz": npz(q=ARRAY, k=ARRAY.astype("f2")),
    "deflated.npz": archive([("q.npy", npy(ARRAY)), ("k.npy", npy(np.zeros((50, 50))))]),
    "bzip2.npz": archive([("q.npy", npy(ARRAY))], zipfile.ZIP_BZIP2),
    "wide.safetensors": safetensors({"q": f32(ARRAY), "k": f32(ARRAY)}, {"format": "pt"}),
    "bf16.safetensors": safetensors({"q": ("BF16", (6, 8), bfloat16_bits(ARRAY)), "n": ("I64", (2,), bytes(16))}),
    "commas.csv": b"\xef\xbb\xbf,q0,q1,k0,k1\n0,1.5,2,3,4\n1,-3e-1,4,,6\n# end\n2,1,2,3,4\n",
    "semicolons.csv": b'"a";"b"\n"1,5";2,0\n-0,3;4,0\n',
    "white space.txt": b"# q0 q1\n 1.5 2.0\n-0.3  nan\n",
    "tabs.tsv": "x\ty\n1\t2\n3\t4\n".encode("utf-16"),
}
INTERESTING = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\n",
    b'"',
    b",",
    b";",
    b"(",
    b"-",
    b"9" * 30,
    b"\xff" * 8,
    b"\0" * 8,
    b"\0\0\0\0\0\0\0\x40",
    b"1e999",
    b"_",
    b"'O'",
    b"{",
    b"PK\x01\x02",
    b"PK\x05\x06",
)


def mutated(data, rng):
    """One to four changes: a bit, a byte, a piece put in, taken out, doubled or moved, an end cut off."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data) or 1)
        length = rng.choice((1, 1, 2, 4, 8, 30))
        change = rng.randrange(7)
        if change == 0 and data:
            data[place] ^= 1 << rng.randrange(8)
        elif change == 1 and data:
            data[place] = rng.randrange(256)
        elif change == 2:
            data[place:place] = rng.choice(INTERESTING)
        elif change == 3:
            piece = rng.choice(INTERESTING)
            data[place : place + len(piece)] = piece
        elif change == 4:
            del data[place : place + length]
        elif change == 5:
            data[place:place] = data[place : place + length] * rng.choice((1, 1, 40))
        elif change == 6 and rng.random() < 0.3:
            del data[place:]
    return bytes(data)


def outcome(data, name):
    """Read as a page would; return whether there was something to read."""
    try:
        contents = read_file(io.BytesIO(data), name)
    except FileError as error:
        text = str(error)
        assert text.startswith(repr(name)), text
        assert text.isprintable(), text
        assert len(text) < 500, text
        return False
    assert guess_members(contents).reason
    for member in contents.members:
        assert member.array.dtype == np.float64
        assert member.array.shape == member.shape
        assert member.name.isprintable()
        assert non_finite(member.array).count <= member.array.size
        if member.array.ndim > 1:
            assert 0 <= constant_columns(member.array).effective_d_k <= member.shape[-1]
    assert all(sentence.isprintable() for sentence in contents.refused)
    return True


@pytest.mark.parametrize("name", VALID)
def test_mutated_files(name, seed):
    rng = random.Random(f"{seed} {name}")  # noqa: S311
    suffix = name[name.index(".") :]
    read = 0
    tracemalloc.start()
    try:
        for i in range(MUTATIONS):
            data = mutated(VALID[name], rng)
            # under its own name, and under one that says nothing
            read += outcome(data, f"file{suffix if i % 4 else ''}")
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    if name not in ("objects.npy", "bzip2.npz"):
        assert 0 < read < MUTATIONS  # the mutations spoil some files and not all


@pytest.mark.parametrize("name", VALID)
def test_files_cut_short(name):
    for length in range(0, len(VALID[name]), 1 + len(VALID[name]) // 200):
        outcome(VALID[name][:length], "file." + name.rpartition(".")[2])


@pytest.mark.parametrize("start", [b"", b"\x93NUMPY\x01\x00", b"PK\x03\x04", b"\xff\xfe", b"\xef\xbb\xbf", b"1,2\n"])
def test_noise(start, seed):
    rng = random.Random(seed)  # noqa: S311
    for length in range(1, 200):
        outcome(start + rng.randbytes(length), rng.choice(["file", "file.csv", "file.npz", "file.safetensors"]))
