"""A data set reads back unchanged from local files and from S3; an error names what is damaged."""

import json
import pickle
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal

from distdual.data import dataset as store
from distdual.data.dataset import open_dataset, open_once
from distdual.data.layout import ATTRIBUTES, FORMAT
from distdual.data.prepare.writer import DatasetWriter, write_dataset
from distdual.data.shard import Block, join_blocks
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.rows import CsrRows, DenseRows, Rows
from tests.s3_proxy import proxy_of

N, WIDTH = 60, 5
DENSE_SHARD = 12 * WIDTH * 4  # twelve rows


def rows_of(matrix: np.ndarray, sparse: bool) -> Rows:
    if not sparse:
        return DenseRows(matrix)
    row, column = np.nonzero(matrix)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(matrix)))])
    return CsrRows(indptr, column.astype(np.int32), matrix[row, column])


def matrix_of(rows: Rows, width: int = WIDTH) -> np.ndarray:
    if isinstance(rows, DenseRows):
        return rows.values
    matrix = np.zeros((len(rows.indptr) - 1, width), dtype=np.float32)
    row = np.repeat(np.arange(len(matrix)), np.diff(rows.indptr))
    matrix[row, rows.indices] = rows.values
    return matrix


def example_block(
    sparse: bool, *, n: int = N, columns: bool = False, labels: Any = ("-1", "1"), seed: int = 0
) -> Block:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((n, WIDTH)).astype(np.float32)
    matrix[rng.random((n, WIDTH)) < 0.4] = 0
    matrix[:, 0] = 1  # every row has a value, every shard a non-zero
    y = np.array(["-1", "1"])[rng.permutation(np.arange(n) % 2)]
    cost, margin = (rng.random(n), rng.random(n)) if columns else (None, None)
    return Block(rows_of(matrix, sparse), y, cost, margin)


def write(place: Location, *blocks: Block, kind: str = "binary", **options: Any) -> None:
    write_dataset(place, kind, blocks, **options)


def corrupt(place: Location, key: str, change: Any) -> None:
    place.write(key, change(place.read(key)))


def chunk_key(place: Location, name: str, shard: int) -> str:
    return f"{name}/c/{shard}/0" if name == "x" else f"{name}/c/{shard}"


def flip(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]


@pytest.fixture(params=[False, True], ids=["dense", "csr"])
def sparse(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


ARRAYS = [(False, name) for name in ("x", "y", "cost", "margin")] + [
    (True, name) for name in ("indptr", "indices", "values", "y", "cost", "margin")
]


class TestRoundTrip:
    @pytest.mark.parametrize("columns", [False, True], ids=["plain", "cost and margin"])
    @pytest.mark.parametrize("shard_bytes", [1 << 20, DENSE_SHARD], ids=["one shard", "several shards"])
    def test_what_was_written_is_what_is_read(self, location, sparse, columns, shard_bytes):
        block = example_block(sparse, columns=columns)
        write(location, block.take(slice(0, 7)), block.take(slice(7, N)), shard_bytes=shard_bytes)
        data = open_dataset(location)
        shards = [data.read(s).shard for s in range(data.n_shards)]

        assert (data.n_shards > 3) == (shard_bytes == DENSE_SHARD)
        assert (data.n_examples, data.layout.n_features, data.layout.sparse) == (N, WIDTH, sparse)
        assert [shard.first for shard in shards] == data.first[:-1].tolist()
        assert data.first[-1] == N
        assert_array_equal(np.concatenate([matrix_of(shard.x) for shard in shards]), matrix_of(block.x))
        assert_array_equal(np.array(data.classes)[np.concatenate([shard.y for shard in shards])], block.y)
        for name in ("cost", "margin"):
            there = [getattr(shard, name) for shard in shards]
            if columns:
                assert_array_equal(np.concatenate(there), getattr(block, name))
            else:
                assert there == [None] * data.n_shards

    def test_a_shard_can_hold_a_single_example(self, location):
        block = example_block(False, n=4)
        write(location, block, shard_bytes=1)
        data = open_dataset(location)
        assert data.n_shards == 4
        assert_array_equal(data.read(2).shard.x.values, block.x.values[2:3])

    def test_sizes_are_counted_in_memory_and_in_storage(self, location, sparse):
        write(location, example_block(sparse, columns=True), shard_bytes=DENSE_SHARD)
        data = open_dataset(location)
        shards = [data.read(s) for s in range(data.n_shards)]
        stored = sum(len(location.read(chunk_key(location, spec.name, 0))) for spec in data.layout.arrays)
        assert data.nbytes == sum(read.shard.nbytes for read in shards)
        assert data.n_values == sum(read.shard.x.values.size for read in shards)
        assert (shards[0].n_bytes, shards[0].n_gets) == (stored, len(data.layout.arrays))
        norms = np.sqrt((matrix_of(shards[1].shard.x).astype(np.float64) ** 2).sum(axis=1))
        assert data.largest_norm[1] == pytest.approx(norms.max())

    def test_regression_keeps_its_targets(self, location):
        block = example_block(True)._replace(y=np.linspace(-3, 3, N))
        write(location, block, kind="regression", shard_bytes=200)
        data = open_dataset(location)
        assert data.classes == ()
        assert_array_equal(np.concatenate([data.read(s).shard.y for s in range(data.n_shards)]), block.y)

    def test_a_shard_of_zeros_alone_is_stored_like_any_other(self, location, sparse):
        matrix = np.zeros((24, WIDTH), dtype=np.float32)
        matrix[-1, 0] = 1
        y = np.array(["a"] * 23 + ["b"])
        block = Block(rows_of(matrix, sparse), y, np.zeros(24), np.zeros(24))
        write(location, block.take(slice(0, 12)), block.take(slice(12, 24)), shard_bytes=DENSE_SHARD, n_features=WIDTH)
        data = open_dataset(location)
        found = np.concatenate([matrix_of(data.read(s).shard.x) for s in range(data.n_shards)])
        assert_array_equal(found, matrix)

    def test_any_number_of_threads_may_read(self, location):
        from concurrent.futures import ThreadPoolExecutor

        block = example_block(False)
        write(location, block, shard_bytes=DENSE_SHARD)
        data = open_dataset(location)
        with ThreadPoolExecutor(4) as pool:
            read = list(pool.map(lambda s: data.read(s % data.n_shards), range(8 * data.n_shards)))
        for shard, *_ in read:
            assert_array_equal(shard.x.values, block.x.values[shard.first : shard.first + shard.n_examples])

    @pytest.mark.parametrize("compress", [False, True])
    def test_compression_is_a_choice_that_changes_no_value(self, location, sparse, compress):
        block = example_block(sparse)
        write(location, block, compress=compress)
        data = open_dataset(location)
        assert data.layout.compress is compress
        assert_array_equal(matrix_of(data.read(0).shard.x), matrix_of(block.x))


class TestLabels:
    @pytest.mark.parametrize(
        ("seen", "classes"),
        [
            ([1, -1], ("-1", "1")),
            ([-1.0, 1.0], ("-1", "1")),
            ([True, False], ("False", "True")),
            (["spam", "ham"], ("ham", "spam")),
            ([10, 9, 2], ("2", "9", "10")),
            (["10", "9", "b", "a"], ("9", "10", "a", "b")),
            (["nan", "inf", "2", "1"], ("1", "2", "inf", "nan")),
            (["1.0", "1", "x"], ("1", "1.0", "x")),
            ([2.5, 0.5], ("0.5", "2.5")),
        ],
    )
    @pytest.mark.parametrize("turned", [False, True])
    def test_classes_are_sorted_whatever_came_first(self, tmp_path, seen, classes, turned):
        y = np.array(seen[::-1] if turned else seen)
        place = Location(str(tmp_path / "set"))
        write(place, Block(DenseRows(np.ones((len(y), 1), dtype=np.float32)), y), kind="multiclass")
        data = open_dataset(place)
        shard = data.read(0).shard
        spelt = np.array(data.classes)[shard.y].tolist()
        assert data.classes == classes
        assert spelt == [str(int(v)) if isinstance(v, float) and v.is_integer() else str(v) for v in y.tolist()]

    def test_whole_numbers_are_the_same_labels_however_they_are_stored(self, tmp_path):
        place = Location(str(tmp_path / "set"))
        x = DenseRows(np.ones((2, 1), dtype=np.float32))
        write(place, Block(x, np.array([1, -1])), Block(x, np.array([-1.0, 1.0])), Block(x, np.array([1, -1], "i1")))
        data = open_dataset(place)
        assert data.classes == ("-1", "1")
        assert_array_equal(data.read(0).shard.y, [1, 0, 0, 1, 1, 0])


class TestFingerprint:
    BASE = example_block(True, columns=True)

    def fingerprint(self, place: Location, block: Block, **options: Any) -> str:
        write(place, block, **{"shard_bytes": 300, "kind": "multiclass", **options})
        return open_dataset(place).fingerprint

    def changes(self) -> dict[str, tuple[Block, dict[str, Any]]]:
        base = self.BASE
        value = base.x.values.copy()
        value[7] = np.nextafter(value[7], np.float32(9))
        index = base.x.indices.copy()
        index[base.x.indptr[1] - 1] = 4 if index[base.x.indptr[1] - 1] < 4 else 3
        cost = base.cost.copy()
        cost[-1] += 1e-12
        return {
            "a value": (base._replace(x=base.x._replace(values=value)), {}),
            "a column number": (base._replace(x=base.x._replace(indices=index)), {}),
            "a cost": (base._replace(cost=cost), {}),
            "two labels swapped": (base._replace(y=base.y[::-1].copy()), {}),
            "a label's name": (base._replace(y=np.where(base.y == "1", "2", base.y)), {}),
            "the width": (base, {"n_features": WIDTH + 1}),
            "the cut into shards": (base, {"shard_bytes": 400}),
            "the kind": (base, {"kind": "binary"}),
            "no margin": (base._replace(margin=None), {}),
            "cost called margin": (base._replace(cost=None, margin=base.cost), {}),
            "margin called cost": (base._replace(cost=base.cost, margin=None), {}),
        }

    def test_every_change_shows(self, tmp_path):
        seen = {"nothing": self.fingerprint(Location(str(tmp_path / "base")), self.BASE)}
        for what, (block, options) in self.changes().items():
            seen[what] = self.fingerprint(Location(str(tmp_path / what)), block, **options)
        same = [(a, b) for a in seen for b in seen if a < b and seen[a] == seen[b]]
        assert same == [("margin called cost", "no margin")]  # the one pair that is the same data

    def test_the_same_data_has_the_same_fingerprint_anywhere(self, location, tmp_path):
        here = self.fingerprint(location, self.BASE)
        there = self.fingerprint(Location(str(tmp_path / "copy")), self.BASE, compress=False)
        assert here == there


class TestRequests:
    def test_a_shard_costs_one_get_an_array_and_nothing_else_is_asked(self, s3, sparse):
        with proxy_of(s3) as proxy:
            place = Location(s3.url(), proxy.storage_options)
            write(place, example_block(sparse, columns=True), shard_bytes=DENSE_SHARD)
            proxy.take()
            data = open_dataset(place)
            path = place.url.removeprefix("s3:/")
            tables = ["zarr.json", "lengths/c/0/0", "largest_norm/c/0", "checksum/c/0"]
            assert sorted(proxy.take()) == sorted(("GET", f"{path}/{name}") for name in tables)
            gets = sum(data.read(s).n_gets for s in (2, 0, 2))
            names = [chunk_key(place, spec.name, s) for s in (2, 0, 2) for spec in data.layout.arrays]
            assert sorted(proxy.take()) == sorted(("GET", f"{path}/{name}") for name in names)
            assert gets == len(names)

    def test_metadata_does_not_grow_with_the_number_of_shards(self, tmp_path):
        sizes, files = [], []
        for n in (2, 200):
            place = Location(str(tmp_path / str(n)))
            write(place, example_block(False, n=n), shard_bytes=1)
            assert open_dataset(place).n_shards == n
            sizes.append(len(place.read("zarr.json")))
            files.append(len(list((tmp_path / str(n)).rglob("zarr.json"))))
        assert files[0] == files[1]
        assert abs(sizes[1] - sizes[0]) <= 10  # the digits of the shapes


class TestHarm:
    """Whatever happens to a chunk is an error that names it; nothing is ever made up."""

    @pytest.fixture
    def prepared(self, location, sparse) -> Location:
        write(location, example_block(sparse, columns=True), shard_bytes=DENSE_SHARD)
        return location

    @pytest.mark.parametrize(("sparse", "name"), ARRAYS, ids=lambda v: {True: "csr", False: "dense"}.get(v, v))
    def test_a_chunk_that_is_missing_or_changed_is_named(self, prepared, sparse, name):
        key = chunk_key(prepared, name, 1)
        whole = prepared.read(key)
        for harmed in (whole[:-3], whole[: len(whole) // 2], b"", flip(whole, 3), flip(whole, len(whole) // 2)):
            prepared.write(key, harmed)
            with pytest.raises(InputError, match=rf"shard 1, array '{name}': the chunk is damaged"):
                open_dataset(prepared).read(1)
        prepared.remove_file(key)
        with pytest.raises(InputError, match=rf"shard 1, array '{name}': the chunk is missing"):
            open_dataset(prepared).read(1)
        open_dataset(prepared).read(0)

    @pytest.mark.parametrize("name", ["indptr", "indices", "values", "y", "cost", "margin"])
    def test_no_flipped_bit_and_no_cut_goes_unnoticed(self, tmp_path, name):
        place = Location(str(tmp_path / "set"))
        write(place, example_block(True, n=10, columns=True))
        data = open_dataset(place)
        key = chunk_key(place, name, 0)
        whole = place.read(key)
        for at in range(len(whole)):
            for harmed in (flip(whole, at), whole[:at]):
                (tmp_path / "set" / key).write_bytes(harmed)
                with pytest.raises(InputError, match=rf"shard 0, array '{name}': the chunk is damaged"):
                    data.read(0)

    def test_chunks_that_changed_places_are_not_what_was_prepared(self, prepared, sparse):
        name = "values" if sparse else "x"
        prepared.write(chunk_key(prepared, name, 0), prepared.read(chunk_key(prepared, name, 1)))
        data = open_dataset(prepared)
        with pytest.raises(InputError, match=r"shard 0 is not what was prepared: its checksum differs"):
            data.read(0)
        assert not data.read(0, check=False).intact
        assert data.read(1, check=False).intact

    @pytest.mark.parametrize(
        ("name", "change"),
        [
            ("y", lambda a: a + 2),
            ("y", lambda a: a - 1),
            ("indptr", lambda a: a + 1),
            ("indptr", lambda a: a[::-1].copy()),
            ("indices", lambda a: a + 5),
            ("indices", lambda a: a - 5),
        ],
    )
    def test_not_even_an_unchecked_read_lets_numbers_point_outside(self, tmp_path, name, change):
        place = Location(str(tmp_path / "set"))
        write(place, example_block(True))
        group = zarr.open_group(str(tmp_path / "set"), mode="r+")
        group[name][:] = change(group[name][:])
        with pytest.raises(InputError, match=rf"shard 0, array '{name}': "):
            open_dataset(place).read(0, check=False)

    @pytest.mark.parametrize("table", ["lengths/c/0/0", "largest_norm/c/0", "checksum/c/0"])
    def test_a_harmed_table_of_shards_is_an_error(self, prepared, table):
        corrupt(prepared, table, lambda content: flip(content, len(content) // 2))
        with pytest.raises(InputError, match=r"an array is missing or damaged .* prepare it again"):
            open_dataset(prepared)
        prepared.remove_file(table)
        with pytest.raises(InputError, match=r"an array is missing or damaged .* prepare it again"):
            open_dataset(prepared)

    def test_a_feature_larger_than_the_table_of_norms_says_is_an_error(self, tmp_path, sparse):
        prepared = Location(str(tmp_path / "data"))
        write(prepared, example_block(sparse), shard_bytes=DENSE_SHARD)
        table = zarr.open_group(prepared.url, mode="r+")["largest_norm"]
        table[1] = 0.01 * table[1]
        data = open_dataset(prepared)
        data.read(0)
        assert data.read(1, check=False).intact
        with pytest.raises(InputError, match=r"shard 1 has a feature of .*, the table of norms says"):
            data.read(1)


class TestOpening:
    def attributes(self, place: Location, **change: Any) -> None:
        described = json.loads(place.read("zarr.json"))
        described["attributes"][ATTRIBUTES].update(change)
        place.write("zarr.json", json.dumps(described).encode())

    def test_nothing_there_is_said_in_one_sentence(self, location):
        with pytest.raises(InputError, match=rf"^{location}: there is no data set; make one with `distdual prepare`$"):
            open_dataset(location)

    def test_a_file_is_no_data_set(self, tmp_path):
        (tmp_path / "file").write_text("x")
        with pytest.raises(InputError, match="is a file, not a data set"):
            open_dataset(Location(str(tmp_path / "file")))

    def test_a_newer_format_asks_for_an_upgrade(self, location):
        write(location, example_block(False))
        self.attributes(location, format=FORMAT + 1)
        with pytest.raises(InputError, match=rf"data format {FORMAT + 1} is newer than {FORMAT}.*upgrade distdual"):
            open_dataset(location)

    def test_a_zarr_group_of_somebody_else_is_not_ours(self, tmp_path):
        zarr.create_group(str(tmp_path / "set"), attributes={"title": "weather"})
        with pytest.raises(InputError, match="this Zarr group is not a distdual data set"):
            open_dataset(Location(str(tmp_path / "set")))

    def test_a_zarr_array_is_no_data_set(self, tmp_path):
        zarr.create_array(str(tmp_path / "set"), shape=(3,), dtype="f4")
        with pytest.raises(InputError, match="set: this is a plain Zarr array; make a data set of it"):
            open_dataset(Location(str(tmp_path / "set")))

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff\xfe", b'{"zarr_format": 3}'])
    def test_a_harmed_description_is_an_input_error(self, tmp_path, content):
        place = Location(str(tmp_path / "set"))
        place.write("zarr.json", content)
        with pytest.raises(InputError, match=r"zarr.json is damaged|not a distdual data set"):
            open_dataset(place)

    @pytest.mark.parametrize("key", ["kind", "n_features", "features", "index_dtype", "labels", "columns", "chunk"])
    def test_a_description_without_a_part_is_damaged(self, tmp_path, key):
        place = Location(str(tmp_path / "set"))
        write(place, example_block(False))
        described = json.loads(place.read("zarr.json"))
        del described["attributes"][ATTRIBUTES][key]
        place.write("zarr.json", json.dumps(described).encode())
        with pytest.raises(InputError, match=rf"zarr.json: {key} is missing; prepare it again"):
            open_dataset(place)

    def test_a_data_set_that_changed_is_not_opened_for_an_old_run(self, location):
        write(location, example_block(False))
        old = open_dataset(location).fingerprint
        assert open_once(location, old, 1) is open_once(Location(location.url, location.storage_options), old, 1)
        store._opened.clear()
        write(location, example_block(False, seed=1), overwrite=True)
        with pytest.raises(InputError, match="the data set has changed since the run began"):
            open_once(location, old, 1)

    def test_a_data_set_that_changes_while_open_is_noticed_at_the_next_shard(self, location):
        write(location, example_block(False))
        data = open_once(location, open_dataset(location).fingerprint, 1)
        write(location, example_block(False, seed=1), overwrite=True)
        with pytest.raises(InputError, match="the data set was replaced after it was opened"):
            data.read(0)

    def test_only_a_few_data_sets_stay_open(self, tmp_path):
        for k in range(store.KEPT_OPEN + 2):
            place = Location(str(tmp_path / str(k)))
            write(place, example_block(False, seed=k))
            open_once(place, open_dataset(place).fingerprint, 1)
        assert len(store._opened) == store.KEPT_OPEN

    def test_a_location_can_be_sent_to_a_worker(self, location):
        write(location, example_block(False))
        sent = pickle.loads(pickle.dumps(location))
        assert sent == location
        assert open_dataset(sent).n_examples == N


def test_join_of_blocks_is_the_inverse_of_cutting(sparse):
    block = example_block(sparse, columns=True)
    again = join_blocks([block.take(slice(0, 20)), block.take(slice(20, N))])
    assert_array_equal(matrix_of(again.x), matrix_of(block.x))
    assert_array_equal(again.cost, block.cost)


def test_a_writer_that_is_never_finished_leaves_nothing_that_opens(location, sparse):
    writer = DatasetWriter(location, "binary", shard_bytes=DENSE_SHARD)
    writer.append(example_block(sparse))
    assert len(writer.table) > 1
    with pytest.raises(InputError, match="incomplete: its `prepare` was interrupted; run it again"):
        open_dataset(location)
