"""Arrays of numbers in .npy, .npz and .safetensors: read exactly, or refused in one sentence, and never unpickled."""

import io
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from simulation.files import (
    FileError,
    constant_columns,
    guess_members,
    list_members,
    non_finite,
    read_file,
    without_non_finite,
)
from tests.written_files import (
    archive,
    bfloat16_bits,
    f32,
    npy,
    npy_with_header,
    npz,
    refusal,
    safetensors,
)

TYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")
Q = np.arange(24.0).reshape(4, 6)
SAFE_TYPES = {
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
    "I8": "i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
    "U8": "u1",
    "U16": "<u2",
    "U32": "<u4",
    "U64": "<u8",
    "BOOL": "?",
}


class Trap:
    """What runs code when unpickled."""

    def __reduce__(self):
        return os.mkdir, ("unpickled",)


@pytest.mark.parametrize("byte_order", "<>")
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("kind", TYPES)
def test_npy_of_every_type_comes_back_as_float64(kind, order, byte_order):
    array = np.asarray(Q.reshape(2, 3, 4) % 5, dtype=np.dtype(kind).newbyteorder(byte_order), order=order)
    member = read_file(npy(array), "heads.npy")["heads"]
    assert member.array.dtype == np.float64
    assert (member.array == array.astype(np.float64)).all()
    assert (member.shape, member.dtype) == ((2, 3, 4), array.dtype.name)
    assert member.order == ("Fortran" if order == "F" else "C")
    swapped = any("big-endian" in note for note in member.notes)
    assert swapped == (array.dtype.byteorder == ">")
    assert not member.array.flags.writeable


@pytest.mark.parametrize("kind", ["f2", "f4"])
def test_narrow_floats_are_widened_exactly(kind):
    every = np.arange(2**16, dtype="u2") if kind == "f2" else np.arange(0, 2**32, 65_521, dtype="u4")
    array = every.view(kind)
    with np.errstate(invalid="ignore"):
        expected = array.astype(float)
    assert np.array_equal(read_file(npy(array))["file"].array, expected, equal_nan=True)


def test_signalling_nans_are_quietened():
    for stored in (np.array([0x7D01, 0xFC01], "<u2").view("<f2"), np.array([0x7FF0000000000001], "<u8").view("<f8")):
        read = read_file(npy(stored.reshape(1, -1)))["file"].array
        assert np.isnan(read).all()
        assert np.isnan(read.sum())  # and no warning
        assert constant_columns(stored.reshape(1, -1)).zero == ()


def test_large_whole_numbers_are_noted_where_float64_rounds_them():
    exact, rounded = (read_file(npy(np.array([[n, 0]])))["file"] for n in (2**53 - 1, 2**53 + 1))
    assert not any("rounded" in note for note in exact.notes)
    assert any("rounded" in note for note in rounded.notes)


def test_bfloat16_saved_by_numpy():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.linspace(-3, 3, 24).astype(ml_dtypes.bfloat16).reshape(4, 6)
    for stored in (npy(array), npy(array.T)):
        member = read_file(stored, "q.npy")["q"]
        expected = array.T if member.shape == (6, 4) else array
        assert (member.array == expected.astype(float)).all()
        assert member.dtype == "bfloat16"
        assert any("taken for bfloat16" in note for note in member.notes)


def test_structured_records_offer_each_field():
    record = np.dtype([("q", ">f4", (3,)), ("about", [("k", "<f2"), ("word", "S4")]), ("flag", "?")], align=True)
    rows = np.zeros((2, 5), dtype=record)
    rows["q"] = np.arange(30).reshape(2, 5, 3)
    rows["about"]["k"] = np.arange(10).reshape(2, 5)
    for stored in (npy(rows), npy(np.asfortranarray(rows))):
        contents = read_file(stored, "rows.npy")
        assert [(member.name, member.shape) for member in contents.members] == [
            ("q", (2, 5, 3)),
            ("about.k", (2, 5)),
            ("flag", (2, 5)),
        ]
        assert (contents["q"].array == rows["q"]).all()
        assert (contents["about.k"].array == rows["about"]["k"]).all()
        assert "'about.word'" in contents.refused[0]
    assert [member.name for member in read_file(npz(rows=rows)).members] == ["rows.q", "rows.about.k", "rows.flag"]


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_npy_header(version):
    data = npy_with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1)}\n", bytes(8), version)
    assert read_file(data)["file"].shape == (2, 1)


def test_the_header_of_python_2_is_read():
    data = npy_with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 1L), }", bytes(8))
    assert read_file(data)["file"].shape == (2, 1)


# --- E01: never unpickled


@pytest.mark.parametrize("value", [np.array([Trap(), 1.0], dtype=object), np.array({"q": Trap()}, dtype=object)])
def test_object_arrays_are_refused_with_advice_and_never_unpickled(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for stored in (npy(value), npz(meta=value), npy(np.array([(1, 2)], dtype=[("q", "f4"), ("x", "O")]))):
        text = refusal(stored)
        assert "never loaded" in text
        assert "float array" in text
    assert "never loaded" in refusal(pickle.dumps(Trap()), "q.pkl")
    assert "PyTorch" in refusal(archive([("q/data.pkl", pickle.dumps(Trap()))]), "q.pt")
    assert not list(tmp_path.iterdir())


def test_the_trap_works_on_those_who_unpickle(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.load(io.BytesIO(npy(np.array([Trap()], dtype=object))), allow_pickle=True)
    assert (tmp_path / "unpickled").exists()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.float64(3), "single value"),
        (np.zeros((0, 64)), "at least one number"),
        (np.zeros((2, 2), "c8"), "complex numbers"),
        (np.array([["a", "b"]]), "text"),
        (np.zeros((2, 2), "M8[s]"), "dates"),
        (np.zeros((2, 2), "V1"), "float8"),
        (np.zeros((2, 2), "V3"), "raw bytes, 3 each"),
    ],
)
def test_what_is_no_array_of_real_numbers_is_refused_by_name(value, words):
    assert words in refusal(npy(value), "q.npy")
    contents = read_file(npz(q=Q, other=value))  # one such member does not spoil the others
    assert [member.name for member in contents.members] == ["q"]
    assert words in contents.refused[0]
    assert "'other'" in contents.refused[0]


# --- E04, E02: safetensors, decoded without the package


def test_safetensors_of_every_type():
    base = np.arange(8).reshape(2, 4) % 3
    tensors = {kind: (kind, (2, 4), base.astype(dtype).tobytes()) for kind, dtype in SAFE_TYPES.items()}
    contents = read_file(safetensors(tensors, {"format": "pt"}), "model.safetensors")
    assert [member.name for member in contents.members] == list(SAFE_TYPES)
    for member in contents.members:
        assert (member.array == base.astype(SAFE_TYPES[member.name])).all(), member.name


def test_safetensors_bfloat16_needs_no_other_package():
    values = np.arange(8.0).reshape(2, 4)
    member = read_file(safetensors({"q": ("BF16", (2, 4), bfloat16_bits(values))}))["q"]
    assert (member.array == values).all()
    assert member.dtype == "bfloat16"
    assert member.notes == ("bfloat16 widened to float64, every value kept",)


def test_safetensors_as_their_own_package_writes_them(tmp_path):
    package = pytest.importorskip("safetensors.numpy")
    transposed = np.random.default_rng(0).standard_normal((32, 100)).T
    arrays = {"q": np.ascontiguousarray(transposed), "k": Q.astype("f2"), "n": np.arange(5)}  # E02
    package.save_file(arrays, tmp_path / "qk.safetensors", metadata={"made": "by a test"})
    contents = read_file(tmp_path / "qk.safetensors")
    for name, array in arrays.items():
        assert (contents[name].array == array).all()


@pytest.mark.parametrize("kind", ["F8_E4M3", "F8_E5M2", "F4", "C64", "X"])
def test_other_safetensors_types_are_refused_by_name(kind):
    data = safetensors({"q": (kind, (2, 4), bytes(8)), "k": f32(Q)})
    contents = read_file(data)
    assert [member.name for member in contents.members] == ["k"]
    assert repr(kind) in contents.refused[0]
    assert repr(kind) in refusal(safetensors({"q": (kind, (2, 4), bytes(8))}))


# --- E06: npz


def test_npz_without_names_is_offered_not_assumed():
    file = io.BytesIO()
    np.savez(file, Q, 2 * Q)
    contents = read_file(file)
    assert [member.name for member in contents.members] == ["arr_0", "arr_1"]
    assert guess_members(contents).pair is None
    assert "arr_0" in guess_members(contents).reason
    with pytest.raises(FileError, match=r"has no member 'q'.*it has 'arr_0', 'arr_1'"):
        contents["q"]


def test_npz_compressed_or_not_and_chosen_by_name():
    packed = io.BytesIO()
    np.savez_compressed(packed, q=Q, k=Q.T.astype(">f2"))
    for stored in (packed.getvalue(), npz(q=Q, k=Q.T.astype(">f2"))):
        contents = read_file(stored, "qk.npz")
        assert guess_members(contents).pair == ("q", "k")
        assert (contents["k"].array == Q.T).all()
        assert [member.name for member in read_file(stored, only="k").members] == ["k"]
        assert [member.name for member in read_file(stored, only=["k", "q", "k"]).members] == ["k", "q"]
        assert "has no member 'v'" in refusal(stored, only=["v"])
        outline = list_members(stored)
        assert [(header.name, header.shape, header.dtype) for header in outline.members] == [
            ("q", (4, 6), "float64"),
            ("k", (6, 4), "float16"),
        ]


def test_the_example_of_the_package():
    path = Path(__file__).parents[1] / "simulation" / "data" / "all-MiniLM-L6-v2.npz"
    contents = read_file(path)
    assert guess_members(contents).pair == ("q", "k")
    assert contents["q"].shape == (6, 12, 128, 32)
    with np.load(path) as stored:
        assert (contents["q"].array == stored["q"]).all()
        assert len(contents.members) + len(contents.refused) == len(stored.files)


def test_damaged_archives():
    good = npz(q=Q, k=Q)
    place = good.index(Q.tobytes())
    assert "damaged" in refusal(good[:place] + b"x" + good[place + 1 :])  # the checksum tells
    assert "damaged" in refusal(good[:200])
    assert "no arrays" in refusal(archive([("folder/", b"")]))
    assert "other data" in refusal(archive([("notes.txt", b"hello")]))
    assert "Excel" in refusal(archive([("xl/workbook.xml", b"hello")]), "q.xlsx")
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = archive([("q.npy", npy(Q)), ("q.npy", npy(Q))])
    assert "'q' twice" in refusal(twice)
    assert "'q' twice" in refusal(archive([("q.npy", npy(Q)), ("q", npy(Q))]))
    for compression in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):  # inflate without a bound
        assert "stored or deflated" in refusal(archive([("q.npy", npy(Q))], compression))


# --- D12 and paths


def test_a_file_object_can_be_read_again_and_again():
    file = io.BytesIO(npy(Q))
    file.read()  # somebody read it before
    assert read_file(file, "q.npy")["q"].shape == read_file(file, "q.npy")["q"].shape == (4, 6)
    assert file.tell() == 0
    table = io.BytesIO(b"1,2\n3,4\n")
    assert read_file(table)["file"].shape == (2, 2)
    assert not table.closed
    refusal(table, max_bytes=1)
    assert table.tell() == 0


def test_paths(tmp_path):
    path = tmp_path / "q.npy"
    path.write_bytes(npy(Q))
    for source in (path, str(path)):
        contents = read_file(source)
        assert (contents["q"].array == Q).all()
    with path.open("rb") as file:
        assert read_file(file)["q"].shape == (4, 6)
    for source in (tmp_path / "none.npy", tmp_path, "/dev/zero", "a\0b", "x" * 5000):
        with pytest.raises(FileError) as caught:
            read_file(source)
        assert "\n" not in str(caught.value)


def test_the_format_is_told_from_the_bytes():
    assert read_file(npy(Q), "q.csv")["q"].dtype == "float64"
    assert read_file(safetensors({"q": f32(Q)}), "q.bin")["q"].dtype == "float32"
    assert "as a .npy file does" in refusal(b"1,2\n3,4", "q.npy")
    assert "empty file" in refusal(b"", "q.npy")
    assert "gzip" in refusal(b"\x1f\x8b\x08\0", "q.npy.gz")
    assert "HDF5" in refusal(b"\x89HDF\r\n\x1a\n", "q.h5")
    assert "other binary data" in refusal(b"\x01\x02\0\x03" * 9, "q.dat")


def test_names_fit_a_screen():
    member = read_file(safetensors({"a\nb\ud800": f32(Q)})).members[0]
    assert member.name == "a\\nb\\ud800"
    with pytest.raises(FileError) as caught:
        read_file(b"", "evil\nname.npy")
    assert "\n" not in str(caught.value)


# --- E13, C05, B22


def test_float16_with_an_infinity():
    array = np.random.default_rng(0).standard_normal((1000, 64)).astype(np.float16)
    array[3, 5] = np.inf
    read = read_file(npy(array))["file"].array
    assert str(non_finite(read)) == "1 of 64,000 entries is not finite: inf at (3, 5)."
    kept = without_non_finite(read)
    assert kept.dropped == 1
    assert kept.array.var() == pytest.approx(1, abs=4 * np.sqrt(2 / 64_000))


def test_float16_sums_are_formed_in_float64():
    array = np.tile(np.arange(1024, dtype=np.float16), 256).reshape(512, 512)
    assert read_file(npy(array))["file"].array.std() == pytest.approx(295.62, abs=0.03)  # float16 gives infinity
