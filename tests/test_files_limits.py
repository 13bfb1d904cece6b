"""Headers that lie and files that would fill memory: refused before memory is taken."""

import io
import zipfile

import numpy as np
import pytest

from simulation.files import FileError, list_members, read_file
from tests.written_files import (
    archive,
    f32,
    npy,
    npy_with_header,
    npz,
    peak_of,
    refusal,
    safetensors,
    safetensors_with_header,
)

Q = np.arange(24.0).reshape(4, 6)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"data_offsets": [0, 99]}, "span 99 bytes"),
        ({"data_offsets": [8, 104]}, "only 96 bytes follow"),
        ({"data_offsets": [96, 0]}, "in order"),
        ({"data_offsets": [-96, 0]}, "in order"),
        ({"data_offsets": [0, 96, 4]}, "in order"),
        ({"data_offsets": [0.0, 96.0]}, "in order"),
        ({"data_offsets": [False, 96]}, "in order"),
        ({"data_offsets": [0, 2**70]}, "in order"),
        ({"shape": [-4, -6]}, "each from 0 to"),
        ({"shape": [2**32, 2**32]}, "span 96 bytes"),
        ({"shape": [2**62, 4]}, "each from 0 to"),
        ({"shape": [2**40] * 32}, "more than 9,000,000,000,000 MB"),
        ({"shape": [1] * 40}, "at most 32 axes"),
        ({"shape": "46"}, "each from 0 to"),
        ({"shape": [True, 24]}, "each from 0 to"),
        ({"dtype": 4}, "name its dtype"),
        ({"dtype": "F64"}, "192 bytes"),
    ],
)
def test_safetensors_headers_that_lie(fields, words):
    _, shape, data = f32(Q)
    about = {"dtype": "F32", "shape": shape, "data_offsets": [0, 96]} | fields
    assert words in refusal(safetensors_with_header({"q": about}, data))


@pytest.mark.parametrize(
    ("header", "length", "words"),
    [
        ('{"q": 1}', 2**62, "4,611,686,018,427,387,904"),
        ('{"q": 1}', 9, "header"),
        ('{"q": 1}', None, "must declare dtype, shape and data_offsets"),
        ('{"q": 1, "q": 2}', None, "'q' twice"),
        ("{}", None, "received 0"),
        ("{" + '"a":{' * 9_000, None, "JSON"),
        ('{"q": ' + "9" * 5_000 + "}", None, "JSON"),
        ('{"__metadata__": {}}', None, "received 0"),
        ("{'q'}", None, "JSON"),
    ],
)
def test_safetensors_headers_that_are_none(header, length, words):
    assert words in refusal(safetensors_with_header(header, b"", length), "q.safetensors")


def test_safetensors_that_overlap_or_leave_bytes_over():
    _, shape, data = f32(Q)
    about = {"dtype": "F32", "shape": shape, "data_offsets": [0, 96]}
    moved = about | {"data_offsets": [8, 104]}
    assert "leaves a gap" in refusal(safetensors_with_header({"q": moved}, bytes(8) + data))
    assert "overlaps" in refusal(safetensors_with_header({"q": about, "k": about}, data))
    assert "follow the header" in refusal(safetensors_with_header({"q": about}, data + b"x"))
    assert "follow the header" in refusal(safetensors_with_header({"q": about}, data[:-1]))


@pytest.mark.parametrize(
    "shape",
    [
        "(1000000000000,)",
        "(4294967296, 4294967296)",
        "(-1,)",
        "(9223372036854775807, 2)",
        "(1, 2.0)",
        "(" + "9" * 4000 + ",)",
    ],
)
def test_npy_that_declares_more_than_it_holds(shape):
    data = npy_with_header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}", bytes(64))
    assert peak_of(lambda: refusal(data)) < 2e6
    assert peak_of(lambda: refusal(archive([("q.npy", data)]))) < 2e6


@pytest.mark.parametrize(
    "header",
    [
        "",
        "{}",
        "[1]",
        "{'descr': '<f8', 'fortran_order': 0, 'shape': (2,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), 'extra': 1}",
        "{'descr': __import__('os'), 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<q9', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f3', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': [], 'fortran_order': False, 'shape': (2,)}",
        "{'descr': [('a', '<f8', (99999999999,))], 'fortran_order': False, 'shape': (2,)}",
        "{'descr': [('a', '<f8'), ('a', '<f8')], 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '(2,2)<f8', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '\\d', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1if 2 else 3,)}",
        "(" * 5_000,
        "-" * 9_000 + "1",
        " " * 20_000,
    ],
)
def test_npy_headers_that_are_none(header):
    refusal(npy_with_header(header, bytes(16)))


def test_npy_of_another_length_than_declared():
    assert "but 191 bytes follow" in refusal(npy(Q)[:-1])
    assert "but 193 bytes follow" in refusal(npy(Q) + b"x")
    assert "np.savez" in refusal(npy(Q) + npy(Q))  # np.save twice into one file
    assert "version" in refusal(npy(Q)[:6] + b"\x09\x00" + npy(Q)[8:])


def test_bombs_are_refused_before_they_inflate():
    bomb = archive([("q.npy", npy(np.zeros(4_000_000, "i1")))])
    assert len(bomb) < 10_000
    assert peak_of(lambda: refusal(bomb)) < 3e6
    assert "at most 200 to 1" in refusal(bomb)
    assert read_file(bomb, max_ratio=2000)["q"].shape == (4_000_000,)
    mask = archive([("mask.npy", npy(np.zeros(4_000_000, "i1"))), ("q.npy", npy(Q))])
    assert [member.name for member in read_file(mask).members] == ["q"]  # only the bomb is left out


def test_an_archive_whose_declared_size_is_false():
    data = bytearray(archive([("q.npy", npy(Q))]))
    true = len(npy(Q)).to_bytes(4, "little")
    place = data.rindex(true)  # in the directory
    for false in (true[:1] + b"\x02\0\0", b"\xff\xff\xff\x7f"):
        data[place : place + 4] = false
        refusal(bytes(data))


def test_a_directory_that_would_fill_memory():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("q.npy", npy(Q))
        info = packed.infolist()[0]
        packed.filelist.extend([info] * 60_000)
    data = file.getvalue()
    assert peak_of(lambda: refusal(data)) < 10e6
    assert "directory of at most 2 MB" in refusal(data)


def test_limits_are_said_and_can_be_moved():
    assert "at most 100 bytes as float64; received 192 bytes" in refusal(npy(Q), max_bytes=100)
    both = npz(q=Q, k=Q)
    assert "choose fewer of its members" in refusal(both, max_bytes=200)
    assert read_file(both, only="q", max_bytes=192)["q"].shape == (4, 6)
    assert len(list_members(both, max_bytes=1).members) == 2
    with pytest.raises(ValueError, match="`max_bytes` must be"):
        read_file(both, max_bytes=0)
    with pytest.raises(ValueError, match="`header` must be one of"):
        read_file(b"1", header="perhaps")
    with pytest.raises(ValueError, match="`source` must be"):
        read_file(3)
    with pytest.raises(ValueError, match="`source` must be"):
        read_file(io.StringIO("1,2"))


def many_megabytes(kind):
    array = np.arange(7_000_000, dtype=np.float32).astype(kind).reshape(-1, 7)
    packed = io.BytesIO()
    np.savez_compressed(packed, q=array[:200_000])
    return {
        "npy": npy(array),
        "fortran": npy(np.asfortranarray(array)),
        "npz": npz(q=array),
        "compressed": packed.getvalue(),
        "safetensors": safetensors({"q": ("F32", (7_000_000,), array.astype("<f4").tobytes())}),
    }


def test_memory_stays_below_twice_the_file_and_100_mb():
    for name, data in many_megabytes(">f4").items():
        file = io.BytesIO(data)
        peak = peak_of(lambda file=file: read_file(file))
        assert len(data) + peak < 2 * len(data) + 100e6, name  # the file itself is held as well
        assert peak < 60e6 + 5e6, name


def test_of_a_path_only_what_is_wanted_is_read(tmp_path):
    path = tmp_path / "large.safetensors"
    about = {
        "other": {"dtype": "U8", "shape": [2**40], "data_offsets": [0, 2**40]},
        "q": {"dtype": "F32", "shape": [4, 6], "data_offsets": [2**40, 2**40 + 96]},
    }
    with path.open("wb") as file:
        file.write(safetensors_with_header(about))
        file.seek(2**40, 1)
        file.write(f32(Q)[2])
    assert peak_of(lambda: read_file(path, only="q")) < 3e6
    assert (read_file(path, only="q")["q"].array == Q).all()
    with pytest.raises(FileError, match="choose fewer of its members"):
        read_file(path)
