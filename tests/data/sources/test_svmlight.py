"""svmlight text is read as scikit-learn reads it, in bounded pieces, and what is wrong in it is named by line."""

import bz2
import contextlib
import gzip
import inspect
import lzma
from pathlib import Path

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from distdual.data.shard import join_blocks
from distdual.data.sources import svmlight
from distdual.data.sources.svmlight import MAX_INDEX, NO_QID, blocks_from_svmlight, parse_text, read_svmlight
from distdual.data.storage.location import Location
from distdual.errors import InputError

KERNELS = [name for name, thing in inspect.getmembers(svmlight) if hasattr(thing, "py_func")]


@pytest.fixture(params=["compiled", "python"])
def engine(request, monkeypatch):
    """Every kernel of the module, compiled or as plain Python, where an index error is loud."""
    if request.param == "python":
        for name in KERNELS:
            monkeypatch.setattr(svmlight, name, getattr(svmlight, name).py_func)


def read(path: Path, block_bytes: int = 8 << 20):
    return join_blocks(list(blocks_from_svmlight(Location(str(path)), block_bytes)))


def random_rows(n, width, seed):
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, width)) * 10.0 ** random.integers(-6, 6, size=(n, width))
    return np.where(random.random((n, width)) < 0.3, x, 0.0), random.choice([-1, 1], n)


@pytest.mark.parametrize("block_bytes", [7, 100, 8 << 20])
def test_reads_what_scikit_learn_reads(tmp_path, engine, block_bytes):
    x, y = random_rows(60, 30, 0)
    path = tmp_path / "data.txt"
    dump_svmlight_file(x, y, str(path), zero_based=False, comment="made up")
    expected, labels = load_svmlight_file(str(path), zero_based=False)

    block = read(path, block_bytes)

    assert block.x.indptr.dtype == np.int64
    assert block.x.indices.dtype == np.int32
    assert block.x.values.dtype == np.float32
    np.testing.assert_array_equal(block.x.indptr, expected.indptr)
    np.testing.assert_array_equal(block.x.indices, expected.indices)
    np.testing.assert_array_equal(block.x.values, expected.data.astype(np.float32))
    np.testing.assert_array_equal(block.y, labels)


@pytest.mark.parametrize("opener", [open, gzip.open, bz2.open, lzma.open])
def test_compression_shows_in_the_first_bytes_not_in_the_name(tmp_path, opener):
    path = tmp_path / "data"
    with opener(path, "wb") as file:
        file.write(b"+1 1:2\n-1 3:4\n" * 1000)
    assert len(read(path, 1000).y) == 2000


def test_two_gzip_files_in_one_are_read_to_the_end(tmp_path):
    path = tmp_path / "data.gz"
    path.write_bytes(gzip.compress(b"1 1:1\n") + gzip.compress(b"2 1:1\n"))
    np.testing.assert_array_equal(read(path).y, [1, 2])


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_a_cut_or_damaged_compressed_file_is_named(tmp_path, compress):
    whole = compress(b"".join(b"1 1:%d\n" % k for k in range(10000)))
    path = tmp_path / "data"
    for broken in (whole[: len(whole) // 2], whole[:50] + bytes(20) + whole[70:]):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r"data: the compressed file is damaged or cut short"):
            read(path)


def test_any_fsspec_url_will_do():
    with fsspec.open("memory://svmlight/data.txt", "wb") as file:
        file.write(b"1 1:1\n")
    [block] = blocks_from_svmlight(Location("memory://svmlight/data.txt"))
    assert block.x.values.tolist() == [1.0]


def test_comments_blank_lines_windows_line_ends_and_a_missing_last_one(engine):
    text = b"# head\r\n\r\n+1 2:1.5 # note 7:7\r\n\t\n-1\t1:-2  3:.5 \r\n0 # no features\n1 1:5.#\n"
    x, y, qid = parse_text(text, "f", 1)
    np.testing.assert_array_equal(y, [1, -1, 0, 1])
    np.testing.assert_array_equal(x.indptr, [0, 1, 3, 3, 4])
    np.testing.assert_array_equal(x.indices, [1, 0, 2, 0])
    np.testing.assert_array_equal(x.values, [1.5, -2.0, 0.5, 5.0])
    assert (qid == NO_QID).all()


def test_the_last_line_needs_no_end(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"1 1:1\n2 1:17")
    np.testing.assert_array_equal(read(path).x.values, [1, 17])


def test_query_numbers_come_as_a_column(engine):
    _, _, qid = parse_text(b"1 qid:7 1:1\n1 1:1\n1 qid:12 # none\n", "f", 1)
    np.testing.assert_array_equal(qid, [7, NO_QID, 12])
    assert qid.dtype == np.int64


def test_the_largest_index_there_is(engine):
    x, _, _ = parse_text(f"1 {MAX_INDEX}:1\n".encode(), "f", 1)
    np.testing.assert_array_equal(x.indices, [MAX_INDEX - 1])


NUMBERS = [
    "0", "-0", "+1", "1.", ".5", "-1e-3", "1E5", "1e+05", "000123.4500", "123456789012345", "1234567890123456",
    "0.1", "0.30000000000000004", "9007199254740993", "1e22", "1e23", "1e-22", "1e-23", "1e-300", "4.9e-324", "1e-400",
    "0.00000000000000000000000000000000001", "3.4028234e38", "1.00000005960464477539062500001", "8.5e-46",
    "16777217", "16777217.0000000001", "33554433.999999999999999999999", "100000000000000000000000000", "0e999999999",
]  # fmt: skip


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_are_rounded_rightly(engine, text):
    x, y, _ = parse_text(f"{text} 1:{text}\n".encode(), "f", 1)
    assert y[0] == float(text)
    assert x.values[0] == np.float32(float(text))


@settings(max_examples=500, deadline=None)
@given(
    st.floats(allow_nan=False, allow_infinity=False, max_value=3e38, min_value=-3e38),
    st.sampled_from(["r", ".16g", ".9g", ".20f"]),
)
def test_any_float_comes_back(number, form):
    text = repr(number) if form == "r" else format(number, form)
    x, y, _ = parse_text(f"{text} 1:{text}\n".encode(), "f", 1)
    assert y[0] == float(text)
    assert x.values[0] == np.float32(float(text))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**25), st.integers(-60, 18))
def test_any_decimal_is_rounded_as_python_does(mantissa, exponent):
    text = f"{mantissa}e{exponent}"
    if float(text) < 3.4e38:
        x, y, _ = parse_text(f"{text} 1:{text}\n".encode(), "f", 1)
        assert y[0] == float(text)
        assert x.values[0] == np.float32(float(text))


def test_values_next_to_the_middle_of_two_float32_are_rounded_once_in_float64():
    middle = 1.0 + 2.0**-24  # between 1 and the next float32
    for digits in ("1.00000005960464477", "1.000000059604644775390625", "1.0000000596046448"):
        x, _, _ = parse_text(f"1 1:{digits}\n".encode(), "f", 1)
        assert abs(float(digits) - middle) < 1e-15
        assert x.values[0] == np.float32(float(digits))


BAD = {
    "1 0:1": "feature index 0",
    "1 3:1 2:1": "smaller than the one before",
    "1 3:1 3:1": "repeats",
    "1 x": "malformed token 'x'",
    "1 1": "malformed token '1'",
    "1 1:": "malformed token '1:'",
    "1 1: 2": "malformed token '1:'",
    "1 :2": "malformed token ':2'",
    "1 1:2x": "malformed token '1:2x'",
    "1 1:2:3": "malformed token '1:2:3'",
    "1 1:1_0": "malformed token '1:1_0'",
    "1 1:1e": "malformed token '1:1e'",
    "1 1:0x10": "malformed token '1:0x10'",
    "1 -1:2": "malformed token '-1:2'",
    "1 1:--2": "malformed token '1:--2'",
    "1 1:.": "malformed token '1:.'",
    "one 1:2": "malformed token 'one'",
    "1,2 1:2": "malformed token '1,2'",
    "1 qid:x 1:2": "malformed token 'qid:x'",
    "1 1:2 qid:1": "malformed token 'qid:1'",
    "1 1:nan": "'1:nan' is NaN or infinite",
    "1 1:-Inf": "'1:-Inf' is NaN or infinite",
    "nan 1:1": "'nan' is NaN or infinite",
    "1 1:1e39": "'1e39' is too large",
    "1 1:" + "9" * 40: "too large",
    "1e999 1:1": "'1e999' is too large",
    "1 2147483648:1": "beyond 2147483647",
    "1 99999999999999999999999:1": "beyond 2147483647",
    "1 1:1\x002:1": "malformed token",
}


@pytest.mark.parametrize("line", BAD)
def test_what_is_wrong_is_named_by_file_and_line(tmp_path, engine, line):
    path = tmp_path / "bad.txt"
    path.write_text("1 1:1\n\n# comment\n1 1:1\n" + line + "\n1 1:1\n")
    for block_bytes in (5, 8 << 20):
        with pytest.raises(InputError) as caught:
            read(path, block_bytes)
        message = str(caught.value)
        assert message.startswith(f"{path}, line 5: ")
        assert BAD[line] in message
        assert "\n" not in message


def test_a_file_without_line_ends_is_not_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(svmlight, "MAX_LINE", 1 << 20)
    path = tmp_path / "data"
    path.write_bytes(b"1 1:1\n" + b" " * (3 << 20))
    with pytest.raises(InputError, match="line 2: the line is longer than 1 MB"):
        read(path, 1000)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        read(tmp_path / "nowhere")


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_do_more_than_raise_an_input_error(junk):
    with contextlib.suppress(InputError):
        parse_text(junk + b"\n", "f", 1)


def test_blocks_are_small_however_large_the_file(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"1 1:1 2:2\n" * 10000)
    sizes = [len(parsed.y) for parsed in read_svmlight(Location(str(path)), 1000)]
    assert sum(sizes) == 10000
    assert max(sizes) <= 101
