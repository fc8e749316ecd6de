"""Arrays of every kind, in memory or in files, give the same blocks; what does not fit together is refused."""

import bz2
import gzip
import io
import lzma
import tracemalloc
import zipfile

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from distdual.data.in_memory import in_memory
from distdual.data.shard import Block, join_blocks
from distdual.data.sources import arrays, npy
from distdual.data.sources.arrays import Stream, blocks_from_arrays
from distdual.data.sources.npy import blocks_from_npy, blocks_from_npz, npz_width
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.rows import DenseRows
from tests import naive

RANDOM = np.random.default_rng(0)
X = np.where(RANDOM.random((50, 6)) < 0.5, RANDOM.normal(size=(50, 6)), 0.0)
Y = RANDOM.choice([-1, 1], 50)
COST = RANDOM.random(50)
MARGIN = RANDOM.normal(size=50)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(arrays, "BLOCK_BYTES", 256)
    monkeypatch.setattr(npy, "BLOCK_BYTES", 256)
    monkeypatch.setattr(npy, "INDPTR_PIECE", 7)


def dense(block: Block, width: int = 6) -> np.ndarray:
    if isinstance(block.x, DenseRows):
        return block.x.values
    return sp.csr_array((block.x.values, block.x.indices, block.x.indptr), shape=(len(block.y), width)).toarray()


def check(blocks, x=X, y=Y) -> Block:
    """Compare with the obvious, and return all blocks as one."""
    blocks = list(blocks)
    assert len(blocks) > 1
    whole = join_blocks(blocks)
    assert whole.x.values.dtype == np.float32
    np.testing.assert_array_equal(dense(whole), x.astype(np.float32))
    np.testing.assert_array_equal(whole.y, y)
    return whole


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, ">f8", int, np.uint8, bool])
def test_every_real_dtype(dtype):
    x = (X * 10).astype(int).astype(dtype) if np.dtype(dtype).kind != "u" else np.abs(X * 10).astype(dtype)
    check(blocks_from_arrays(x, Y), x)


def test_column_major_strided_and_plain_list_input():
    check(blocks_from_arrays(np.asfortranarray(X), Y))
    check(blocks_from_arrays(np.repeat(X, 2, axis=0)[::2], list(Y)))
    check(blocks_from_arrays(X.tolist(), Y))


def test_dense_blocks_are_in_row_order_in_memory():
    for block in blocks_from_arrays(np.asfortranarray(X), Y):
        assert block.x.values.flags.c_contiguous


def test_a_memory_map_is_read_piece_by_piece(tmp_path):
    mapped = np.memmap(tmp_path / "x", np.float64, "w+", shape=X.shape)
    mapped[:] = X
    check(blocks_from_arrays(mapped, Y))


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csr_array], ids=["matrix", "array"])
def test_every_sparse_format(form, make):
    block = check(blocks_from_arrays(make(X).asformat(form), Y))
    assert block.x.indptr.dtype == np.int64
    assert block.x.indices.dtype == np.int32


def test_unsorted_columns_are_sorted_and_duplicates_summed_without_touching_the_input():
    x = sp.csr_array((np.array([1.0, 2.0, 4.0]), np.array([3, 1, 3]), np.array([0, 3, 3])), shape=(2, 6))
    [block] = blocks_from_arrays(x, [0, 1])
    np.testing.assert_array_equal(block.x.indices, [1, 3])
    np.testing.assert_array_equal(block.x.values, [2, 5])
    np.testing.assert_array_equal(block.x.indptr, [0, 2, 2])
    np.testing.assert_array_equal(x.indices, [3, 1, 3])


def test_columns_past_2_to_the_31_have_long_numbers():
    x = sp.coo_array((np.ones(1), (np.array([0]), np.array([2**31 + 1]))), shape=(1, 2**31 + 2))
    [block] = blocks_from_arrays(x, [1])
    assert block.x.indices.dtype == np.int64
    assert block.x.indices[0] == 2**31 + 1


@pytest.mark.parametrize("chunks", [(7, 6), (7, 4), (50, 6), ((20, 0, 30), 6)])
def test_dask_arrays_chunk_by_chunk(chunks):
    check(blocks_from_arrays(da.from_array(X, chunks=chunks), da.from_array(Y, chunks=13), cost=da.from_array(COST)))
    check(blocks_from_arrays(da.from_array(X, chunks=chunks), Y))


def test_dask_arrays_of_unknown_length():
    keep = da.from_array(X[:, 0] != 0, chunks=9)
    x, y = da.from_array(X, chunks=(9, 6))[keep], da.from_array(Y, chunks=9)[keep]
    assert np.isnan(x.shape[0])
    check(blocks_from_arrays(x, y), X[X[:, 0] != 0], Y[X[:, 0] != 0])
    with pytest.raises(InputError, match="'y' has more than"):
        list(blocks_from_arrays(x, Y))
    with pytest.raises(InputError, match="'y' ends after 3 entries"):
        list(blocks_from_arrays(x, Y[:3]))


@pytest.mark.parametrize("columns", [6, 4])
def test_dask_arrays_of_sparse_chunks(columns):
    x = da.from_array(X, chunks=(11, columns)).map_blocks(sp.csr_matrix, dtype=float)
    check(blocks_from_arrays(x, Y))


def test_dask_chunks_are_computed_one_at_a_time():
    alive = []

    def chunk(part):
        alive.append(1)
        return part

    x = da.from_array(X, chunks=(10, 6)).map_blocks(chunk, dtype=float, meta=np.empty((0, 0)))
    next(blocks_from_arrays(x, Y))
    assert len(alive) == 1


@pytest.mark.parametrize(
    "y",
    [Y, Y.astype(np.float32), Y > 0, np.where(Y > 0, "yes", "no"), np.where(Y > 0, "é", "no").astype(object)],
    ids=["int", "float", "bool", "str", "object"],
)
def test_labels_of_every_kind(y):
    assert check(blocks_from_arrays(X, y), y=y).y.dtype.kind in "ifbU"


def test_byte_labels_become_text():
    y = np.where(Y > 0, "é", "no")
    check(blocks_from_arrays(X, np.char.encode(y, "utf-8")), y=y)


def test_costs_and_margins_go_along():
    block = check(blocks_from_arrays(X, Y, COST, MARGIN))
    np.testing.assert_array_equal(block.cost, COST)
    np.testing.assert_array_equal(block.margin, MARGIN)


def changed(array, value):
    array = np.array(array, dtype=float)
    array[(37, *([2] * (array.ndim - 1)))] = value
    return array


BAD = {
    "'x', row 37 (counted from 0): a feature is NaN": lambda: (changed(X, np.nan), Y),
    "'x', row 37 (counted from 0): a feature is NaN or inf": lambda: (changed(X, np.inf), Y),
    "'x', row 37 (counted from 0): 1e+39 is too large for float32": lambda: (changed(X, 1e39), Y),
    "'x', row 37 (counted from 0): -1e+39 is too large": lambda: (sp.csr_matrix(changed(X, -1e39)), Y),
    "'y', row 37 (counted from 0): the label is NaN": lambda: (X, changed(Y, np.nan)),
    "'cost', row 37 (counted from 0): the entry is NaN": lambda: (X, Y, changed(COST, np.nan)),
    "'margin', row 37 (counted from 0): the entry is NaN": lambda: (X, Y, COST, changed(COST, -np.inf)),
    "'x' must have 2 dimensions, found 1": lambda: (X[0], Y),
    "'x' must have 2 dimensions, found 3": lambda: (X[None], Y),
    "'x' has no columns": lambda: (X[:, :0], Y),
    "'x' has dtype complex128": lambda: (X.astype(complex), Y),
    "'x' has dtype object": lambda: (X.astype(object), Y),
    "'x' has dtype <U": lambda: (X.astype(str), Y),
    "'y' must have 1 dimension, found 2": lambda: (X, Y[:, None]),
    "'y' has 49 entries, but the arrays: 'x' has 50 rows": lambda: (X, Y[:-1]),
    "'cost' has 51 entries, but the arrays: 'x' has 50 rows": lambda: (X, Y, np.ones(51)),
    "'cost' has dtype <U": lambda: (X, Y, COST.astype(str)),
    "'y' has dtype complex128": lambda: (X, Y.astype(complex)),
    "'y' has dtype object": lambda: (X, Y.astype(object)),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_arrays_are_refused_by_name(message):
    with pytest.raises(InputError) as caught:
        list(blocks_from_arrays(*BAD[message]()))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# --- files


def saved(path, compressed=False, **parts):
    (np.savez_compressed if compressed else np.savez)(path, **parts)
    return Location(str(path))


def csr_parts(x=X):
    csr = sp.csr_array(x)
    return {"indptr": csr.indptr, "indices": csr.indices, "values": csr.data}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", ["x", "X"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_dense_npz(tmp_path, compressed, name, order):
    parts = {name: np.array(X, order=order), "y": Y, "cost": COST, "margin": MARGIN}
    block = check(blocks_from_npz(saved(tmp_path / "d.npz", compressed, **parts)))
    np.testing.assert_array_equal(block.cost, COST)
    np.testing.assert_array_equal(block.margin, MARGIN)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint16])
def test_sparse_npz(tmp_path, compressed, dtype):
    x = X.copy()
    x[8:30] = 0  # whole pieces of rows without values
    parts = csr_parts(x)
    parts["indices"] = parts["indices"].astype(dtype)
    source = saved(tmp_path / "d.npz", compressed, **parts, y=Y.astype(str), n_features=9)
    block = check(blocks_from_npz(source), x, Y.astype(str))
    assert block.x.indices.dtype == np.int32
    assert npz_width(source) == 9


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_npz_that_was_compressed_once_more(tmp_path, compress):
    saved(tmp_path / "d.npz", x=X, y=Y)
    (tmp_path / "d.npz.z").write_bytes(compress((tmp_path / "d.npz").read_bytes()))
    check(blocks_from_npz(Location(str(tmp_path / "d.npz.z"))))


def test_sparse_npz_without_any_value(tmp_path):
    blocks = list(blocks_from_npz(saved(tmp_path / "d.npz", **csr_parts(np.zeros((5, 3))), y=Y[:5])))
    assert join_blocks(blocks).x.indptr.tolist() == [0] * 6


def test_unsorted_and_repeated_columns_in_npz(tmp_path):
    parts = {"indptr": [0, 3], "indices": [4, 1, 4], "values": np.array([1, 2, 3], dtype=np.float16)}
    [block] = blocks_from_npz(saved(tmp_path / "d.npz", **parts, y=[1]))
    assert block.x.indices.tolist() == [1, 4]
    assert block.x.values.tolist() == [2.0, 4.0]


def test_long_columns_in_npz_need_a_declared_width(tmp_path):
    parts = {"indptr": [0, 1], "indices": [2**31], "values": [1.0], "y": [1]}
    with pytest.raises(InputError, match=r"'indices' holds the column number 2147483648.*declare n_features"):
        list(blocks_from_npz(saved(tmp_path / "a.npz", **parts)))
    [block] = blocks_from_npz(saved(tmp_path / "b.npz", **parts, n_features=2**31 + 1))
    assert block.x.indices.dtype == np.int64


def test_npy_features_with_labels_in_a_second_file(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    check(blocks_from_npy(Location(str(tmp_path / "x.npy")), Location(str(tmp_path / "y.npy"))))


def test_npz_behind_a_url(tmp_path):
    import fsspec

    saved(tmp_path / "d.npz", x=X, y=Y)
    with fsspec.open("memory://npz/d.npz", "wb") as file:
        file.write((tmp_path / "d.npz").read_bytes())
    check(blocks_from_npz(Location("memory://npz/d.npz")))


BAD_NPZ = {
    "array 'y' is missing": {"x": X},
    "array 'x' is missing": {"y": Y},
    "array 'values' is missing": {"y": Y, "indptr": [0], "indices": [0]},
    "unexpected array 'costs'": {"x": X, "y": Y, "costs": COST},
    "unexpected array 'x'; known are": {"x": X, "X": X, "y": Y},
    "features are given twice": {"x": X, "y": Y, "indptr": [0]},
    "array 'x' must have 2 dimensions, found 1": {"x": X[0], "y": Y},
    "array 'x' has no columns": {"x": X[:, :0], "y": Y},
    "array 'y' must have 1 dimension, found 2": {"x": X, "y": Y[:, None]},
    "array 'y' has 49 entries": {"x": X, "y": Y[:-1]},
    "array 'cost' has 49 entries": {"x": X, "y": Y, "cost": COST[:-1]},
    "array 'y' has dtype object, which is not read": {"x": X, "y": Y.astype(object)},
    "array 'x' has dtype complex128": {"x": X.astype(complex), "y": Y},
    "array 'indptr' is empty": {"y": Y, "indptr": np.empty(0, int), "indices": [0], "values": [0.0]},
    "array 'indptr' must start with 0": {"y": Y[:1], "indptr": [1, 2], "indices": [0, 0], "values": [0.0, 0.0]},
    "array 'indptr' falls": {"y": Y[:2], "indptr": [0, 2, 1], "indices": [0, 1], "values": [0.0, 0.0]},
    "array 'indptr' has dtype float64": {"y": Y[:1], "indptr": [0.0, 1.0], "indices": [0], "values": [0.0]},
    "array 'indices' has dtype float64": {"y": Y[:1], "indptr": [0, 1], "indices": [0.0], "values": [0.0]},
    "array 'indices' holds the column number -1": {"y": Y[:1], "indptr": [0, 1], "indices": [-1], "values": [0.0]},
    "beyond the 5 features": {"y": Y[:1], "indptr": [0, 1], "indices": [5], "values": [0.0], "n_features": 5},
    "array 'n_features' must be a single integer": {**csr_parts(), "y": Y, "n_features": [5]},
    "array 'n_features' must be positive": {**csr_parts(), "y": Y, "n_features": 0},
    "array 'indices' ends after 1 entries": {"y": Y[:1], "indptr": [0, 2], "indices": [0], "values": [0.0, 1.0]},
    "array 'values' has more than the 1 entries": {"y": Y[:1], "indptr": [0, 1], "indices": [0], "values": [0.0, 1.0]},
    "array 'y' has 50 entries, but": {"y": Y, "indptr": [0, 1], "indices": [0], "values": [0.0]},
}


@pytest.mark.parametrize("message", BAD_NPZ)
def test_bad_npz_files_are_refused_by_file_and_array(tmp_path, message):
    source = saved(tmp_path / "bad.npz", **BAD_NPZ[message])
    with pytest.raises(InputError) as caught:
        list(blocks_from_npz(source))
    assert str(caught.value).startswith(f"{tmp_path}/bad.npz: ")
    assert message in str(caught.value)


def test_nothing_is_unpickled(tmp_path):
    path = tmp_path / "evil.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "y.npy", Y)
    with pytest.raises(InputError, match=r"evil.npy: the array has dtype object, which is not read from files"):
        list(blocks_from_npy(Location(str(path)), Location(str(tmp_path / "y.npy"))))


@pytest.mark.parametrize("order", ["C", "F"])
def test_files_that_are_cut_short_are_named(tmp_path, order):
    path, y = tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(path, np.array(X, order=order))
    np.save(y, Y)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"x.npy: the array is cut short"):
        list(blocks_from_npy(Location(str(path)), Location(str(y))))


def test_files_of_another_kind_are_named(tmp_path):
    path = tmp_path / "x.npz"
    path.write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(InputError, match=r"x.npz: the compressed file is damaged or cut short"):
        list(blocks_from_npz(Location(str(path))))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"not an array")
        archive.writestr("y.npy", b"not an array")
    with pytest.raises(InputError, match=r"x.npz: array 'y' is not in NumPy's file format"):
        list(blocks_from_npz(Location(str(path))))


def test_a_flipped_byte_in_an_npz_is_found(tmp_path):
    saved(tmp_path / "d.npz", x=X, y=Y)
    data = bytearray((tmp_path / "d.npz").read_bytes())
    data[1000] ^= 255
    (tmp_path / "d.npz").write_bytes(bytes(data))
    with pytest.raises(InputError, match="damaged"):
        list(blocks_from_npz(Location(str(tmp_path / "d.npz"))))


@pytest.mark.parametrize("kind", ["npz", "npz-deflated", "npy"])
def test_big_files_are_not_loaded_whole(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(npy, "BLOCK_BYTES", 1 << 18)
    x, y = np.zeros((40_000, 100)), np.ones(40_000)  # 32 MB
    if kind == "npy":
        np.save(tmp_path / "x.npy", x)
        np.save(tmp_path / "y.npy", y)
        blocks = blocks_from_npy(Location(str(tmp_path / "x.npy")), Location(str(tmp_path / "y.npy")))
    else:
        blocks = blocks_from_npz(saved(tmp_path / "d.npz", kind.endswith("deflated"), x=x, y=y))
    del x
    tracemalloc.start()
    n = sum(len(block.y) for block in blocks)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n == 40_000
    assert peak < 4 << 20


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=8), st.lists(st.integers(0, 7), max_size=12))
def test_a_stream_gives_every_entry_once_however_it_is_cut(pieces, takes):
    array = np.arange(sum(pieces))
    stream = Stream("s", None, iter(np.split(array, np.cumsum(pieces)[:-1]) if pieces else []))
    taken = []
    for n in takes:
        if len(taken) + n > len(array):
            with pytest.raises(InputError, match="s ends after"):
                stream.take(n)
            return
        taken.extend(stream.take(n))
    assert taken == array[: len(taken)].tolist()
    if len(taken) < len(array):
        with pytest.raises(InputError, match="s has more than"):
            stream.check_end()
    else:
        stream.check_end()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 8), st.floats(0, 1), st.integers(0, 1000))
def test_dense_and_sparse_files_hold_the_same(n, width, density, seed):
    random = np.random.default_rng(seed)
    x = np.where(random.random((n, width)) < density, random.normal(size=(n, width)), 0.0)
    y = random.integers(0, 2, n)
    stored = io.BytesIO()
    np.savez(stored, **csr_parts(x), y=y)
    import fsspec

    with fsspec.open("memory://npz/h.npz", "wb") as file:
        file.write(stored.getvalue())
    block = join_blocks(list(blocks_from_npz(Location("memory://npz/h.npz"))))
    np.testing.assert_array_equal(dense(block, width), x.astype(np.float32))
    np.testing.assert_array_equal(block.y, y)


def test_sparse_arrays_that_are_views_of_a_table_are_copied_not_misread():
    table = np.zeros(4, dtype=[("column", np.int32), ("value", np.float32)])
    table["column"], table["value"] = [0, 2, 1, 2], [1, 2, 3, 4]
    x = sp.csr_matrix((table["value"], table["column"], np.array([0, 2, 4])), shape=(2, 3), copy=False)
    assert x.data.strides == (8,)  # or nothing is shown here
    features = in_memory(x, np.array([-1, 1])).shards[0].x
    assert features.values.flags.c_contiguous
    assert features.indices.flags.c_contiguous
    np.testing.assert_array_equal(naive.dense(features, 3), x.toarray())
