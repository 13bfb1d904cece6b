"""Tables of text: every habit of spreadsheets and data frames, and no number guessed."""

import io
import tracemalloc

import numpy as np
import pytest

from simulation.files import FileError, guess_members, read_file

TABLE = [[1.5, 2.0], [-0.3, 4.0]]


def table(text, **options):
    return read_file(text if isinstance(text, bytes) else text.encode(), "q.csv", **options).members[0]


def refusal(text, **options):
    with pytest.raises(FileError) as caught:
        table(text, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def has_note(member, words):
    return any(words in note for note in member.notes)


@pytest.mark.parametrize(
    ("text", "expected", "words"),
    [
        (b"\xef\xbb\xbf1.5,2\n-3e-1,4\n5,6\n", [*TABLE, [5, 6]], "byte-order mark removed"),
        ("q0,q1\n1.5,2\n-3e-1,4", TABLE, "line 1 read as column names"),
        (",q0,q1\n0,1.5,2\n1,-3e-1,4", TABLE, "first column dropped: it numbers the rows, 0 to 1"),
        ("1,5;2,0\n-0,3;4,0", TABLE, "decimal commas"),
        ('"1.5","2"\n"-0.3","4"', TABLE, "separated by commas"),
        ('"1,5";"2"\n"-0,3";"4"', TABLE, "decimal commas"),
    ],
)
def test_the_six_tables_of_e08(text, expected, words):
    member = table(text)
    assert member.array.tolist() == expected
    assert has_note(member, words)
    assert member.dtype == "text"


@pytest.mark.parametrize(
    "text",
    [
        "1.5\t2\n-0.3\t4",
        "1,5\t2\n-0,3\t4",
        "1.5;2\n-0.3;4",
        "  1.5   2\n -0.3\t 4 \n",
        "1,5 2,0\n-0,3 4,0",
        "1.5, 2\n-0.3 , 4",
        '"1.5" "2"\n"-0.3" "4"',
        "1.5,2,\n-0.3,4,\n",
        "q0,q1,\n1.5,2,\n-0.3,4,\n",
        "q0,q1\n1.5,2,\n-0.3,4,\n",
        "# made by hand\n\n1.5,2\n\n  # half way\n-0.3,4\n\n",
        "1.5,2\r\n-0.3,4\r\n",
        "1.5,2\r-0.3,4",
        "sep=;\n1,5;2\n-0,3;4",
        '"sep=,"\n1.5,2\n-0.3,4',
        "1.5,2\n\N{MINUS SIGN}0.3,4",
        "q0;q1\n1,5;2\n-0,3;4",
        "query 0\tquery 1\n1,5\t2\n-0,3\t4",
        ",0,1\n0,1.5,2\n1,-0.3,4",
        "index,0,1\n0,1.5,2\n1,-0.3,4",
        "Unnamed: 0,q,r\n1,1.5,2\n2,-0.3,4",
        "q r\n1 1.5 2\n2 -0.3 4",  # R: row numbers without a name
        '"q","r"\n1.5,2\n-.3,4e0',
        "1.5,2\n-0.3,4".encode("utf-16"),
        "grö,ße\n1.5,2\n-0.3,4".encode("latin-1"),
    ],
)
def test_tables_that_say_the_same(text):
    assert table(text).array.tolist() == TABLE


@pytest.mark.parametrize("frame", [True, False])
def test_what_numpy_and_pandas_write(frame, tmp_path):
    pandas = pytest.importorskip("pandas")
    array = np.random.default_rng(0).standard_normal((7, 5))
    if not frame:
        for options in ({}, {"delimiter": ","}, {"delimiter": "\t", "header": "q0 q1"}):
            np.savetxt(tmp_path / "q.txt", array, **options)
            assert (read_file(tmp_path / "q.txt")["q"].array == array).all()
        return
    for options in ({}, {"index": False}, {"header": False}, {"sep": ";", "decimal": ","}, {"sep": "\t"}):
        for columns in (None, [f"q{i}" for i in range(5)]):
            text = pandas.DataFrame(array, columns=columns).to_csv(**options)
            assert (table(text).array == array).all(), text
    assert np.allclose(table(pandas.DataFrame(array).to_string()).array, array, atol=1e-6)


def test_the_first_row_of_data_is_never_eaten():
    for text in ("1,2\n3,4\n5,7", "nan,1\n2,3\n4,6", "0,1\n0.5,2", "0,1,2\n1,2,3\n5,4,6", ",1\n2,3\n4,5"):
        assert table(text, index_column="keep").shape[0] == text.count("\n") + 1, text
    assert table("0,1,2\n0.5,2,3", header="no").shape == (2, 3)
    assert table("0,1,2\n0.5,2,3").columns == ("0", "1", "2")  # what pandas writes above decimals
    assert table("1,2\n3,4", header="yes").columns == ("1", "2")


def test_the_index_column_can_be_kept_or_dropped():
    text = ",q0,q1\n0,1.5,2\n1,-3e-1,4"
    assert table(text).columns == ("q0", "q1")
    kept = table(text, index_column="keep")
    assert kept.array.tolist() == [[0, 1.5, 2], [1, -0.3, 4]]
    assert kept.columns == ("", "q0", "q1")
    assert not has_note(kept, "dropped")
    asked = table("7,1\n9,2", index_column="drop")
    assert asked.array.tolist() == [[1], [2]]
    assert has_note(asked, "as asked")


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("0,5\n1,6\n2,8", 1),
        ("1,5\n2,6\n3,8", 1),
        ("0,5\n1,6", 2),  # two rows prove nothing
        ("q0,q1\n0,5\n1,6\n2,8", 2),  # named as a column of q
        ("0,5\n1,6\n3,8", 2),
        ("2,5\n3,6\n4,8", 2),
        ("0\n1\n2", 1),  # the only column
    ],
)
def test_which_first_columns_number_the_rows(text, width):
    assert table(text).shape[1] == width


def test_missing_values_are_reported_by_line_and_column():
    member = table("1,2\n,4")
    assert np.isnan(member.array[1, 0])
    assert has_note(member, "missing values read as NaN: 1, at line 2 column 1")
    member = table("a,b\n1,NA\nnull,4\n" + "1,\n" * 9)
    assert has_note(member, "missing values read as NaN: 11, at line 2 column 2, line 3 column 1, line 4 column 2")
    assert has_note(member, "...")
    assert np.isnan(member.array).sum() == 11
    assert not has_note(table("1,nan\n2,3"), "missing")  # written as a number that is none: counted later


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,2\n3,x4", "line 2, column 2 holds 'x4', which is not a number"),
        ("q0,q1\n1,2\n\n3,abc", "line 4, column 2 holds 'abc'"),
        ("1.5,abc\n2,3", "line 1, column 2 holds 'abc'"),
        ("token,q0\nthe,1.5\ncat,2", "line 2, column 1 holds 'the'"),
        ("1.234,5;2\n1;2", "line 1, column 1 holds '1.234,5', which is not a number (one decimal sign"),
        ("1,5;2\n2.5;3", "line 2, column 1 holds '2.5', which is not a number (one decimal sign"),
        ("1.5;2\n2,5;3", "line 2, column 1 holds '2,5', which is not a number (one decimal sign"),
        ("1,5;2.5", "column 2 holds '2.5'"),
        ('"1,234","5"\n"2","6"', "column 1 holds '1,234'"),
        ("1_000,2\n3,4", "column 1 holds '1_000'"),
        ("0x10,2\n3,4", "column 1 holds '0x10'"),
        ("1 000;2\n3;4", "column 1 holds '1 000'"),
        ("1,2\n3\n", "line 2 has 1 cells where line 1 has 2"),
        ("1,2\n3,4,5\n", "line 2 has 3 cells where line 1 has 2"),
        ("q0,q1,q2\n5,2\n3,4", "names 3 columns in its header but has 2"),
        ("q0\n5,2\n3,4", "names 1 columns in its header but has 2"),
        ("", "empty file"),
        ("\n\n# nothing\n", "at least one row"),
        ("q0,q1\n", "column names only"),
        ("sep=;\n", "at least one row"),
        ("1,2\n" + "x" * 200, "line 2"),
        ("1,2\n" + "1" * 1_000_001, "at most 1,000,000 characters"),
        ("1," * 70_000, "at most 65,536 columns"),
        ('"1",' * 70_000, "at most 65,536"),
        ('"' + "1" * 200_000 + '",2', "65,536"),
        ("1;2\n".encode("utf-16") + b"\x00", "UTF-16"),
        ("1,2\n" + "\0,4", "binary"),
    ],
)
def test_one_sentence_names_the_place(text, words):
    assert words in refusal(text)


def test_columns_of_q_and_k_in_one_table():
    text = "q0,q1,k0,k1\n1,2,3,4\n5,6,7,8\n"
    contents = read_file(text.encode(), "both.csv")
    assert guess_members(contents).pair == ("q", "k")
    assert contents["k"].array.tolist() == [[3, 4], [7, 8]]
    assert contents["k"].columns == ("k0", "k1")
    mixed = read_file(b",q_0,k_0,q_1,k_1\n0,1,3,2,4\n1,5,7,6,8\n", "both.csv")
    assert mixed["q"].array.tolist() == [[1, 2], [5, 6]]
    assert [member.name for member in read_file(b"x1,y1\n1,2\n", "both.csv").members] == ["both"]


def test_names_of_any_length_are_read_at_once():
    assert table("_" * 999_000 + "\n1\n").shape == (1, 1)  # a pattern with two repeats would take hours


def test_a_large_table_is_bounded_in_memory():
    row = ",".join(["-1"] * 1000) + "\n"
    data = row.encode() * 1500  # 4.5 MB of text, 12 MB of float64
    tracemalloc.start()
    try:
        assert read_file(data)["file"].shape == (1500, 1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20e6
    assert "at most 2 MB as float64; line 251 goes beyond" in refusal(data, max_bytes=2_000_000)
    assert "of text" in refusal(data, max_bytes=1_000_000)


@pytest.mark.parametrize("line", ["12," * 300_000, "é," * 60_000, ",;" * 200_000, "\N{GRINNING FACE} " * 100_000])
def test_long_lines_are_bounded_in_memory(line):
    file = io.BytesIO(f"{line}\n{line}\n".encode())
    tracemalloc.start()
    try:
        with pytest.raises(FileError):
            read_file(file)
        assert tracemalloc.get_traced_memory()[1] < 60e6
    finally:
        tracemalloc.stop()
