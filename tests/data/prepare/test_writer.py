"""A data set is complete or absent, is written in bounded memory, and holds only data fit for training."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal

import distdual.data.prepare.writer
from distdual.data.dataset import open_dataset
from distdual.data.prepare.writer import DatasetWriter, chunk_lengths, index_dtype, shard_ends, write_dataset
from distdual.data.shard import Block
from distdual.data.storage.claim import claimed
from distdual.data.storage.location import Location
from distdual.errors import InputError, Superseded
from distdual.kernels.rows import CsrRows, DenseRows
from tests.appending import NEW, OLD
from tests.shell import run

WIDTH = 3


def dense_block(n: int = 8, y: Any = None, **columns: Any) -> Block:
    x = np.arange(1, n * WIDTH + 1, dtype=np.float32).reshape(n, WIDTH)
    return Block(DenseRows(x), np.arange(n) % 2 if y is None else np.asarray(y), **columns)


def csr_block(n: int = 8, y: Any = None, **columns: Any) -> Block:
    indptr = np.arange(0, n * WIDTH + 1, WIDTH)
    indices = np.tile(np.arange(WIDTH, dtype=np.int32), n)
    x = CsrRows(indptr, indices, np.arange(1, n * WIDTH + 1, dtype=np.float32))
    return Block(x, np.arange(n) % 2 if y is None else np.asarray(y), **columns)


def with_value(block: Block, k: int, value: float) -> Block:
    values = block.x.values.copy()
    values.reshape(-1)[k] = value
    return block._replace(x=block.x._replace(values=values))


def files(location: Location) -> dict[str, bytes]:
    fs, path = location.filesystem()
    fs.invalidate_cache()
    return {name: fs.cat_file(name) for name in fs.find(path)}


@pytest.fixture
def here(tmp_path: Path) -> Location:
    return Location(str(tmp_path / "set"))


@pytest.fixture(params=[dense_block, csr_block], ids=["dense", "csr"])
def block_of(request: pytest.FixtureRequest) -> Any:
    return request.param


class TestWholeOrNotThere:
    @pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
    def test_an_error_inside_the_with_removes_what_was_written(self, location, error):
        with contextlib.suppress(error), DatasetWriter(location, "binary", shard_bytes=24) as writer:
            writer.append(dense_block())
            assert not location.is_empty()
            raise error
        assert location.is_empty()

    def test_bad_data_in_a_late_shard_removes_the_earlier_ones(self, location):
        blocks = [dense_block(), with_value(dense_block(), 5, np.nan)]
        with pytest.raises(InputError, match="NaN"):
            write_dataset(location, "binary", blocks, shard_bytes=24)
        assert location.is_empty()

    def test_an_error_before_the_first_shard_touches_nothing(self, here, tmp_path):
        (tmp_path / "set").mkdir()
        with contextlib.suppress(ZeroDivisionError), DatasetWriter(here, "binary") as writer:
            writer.append(dense_block())
            raise ZeroDivisionError
        assert (tmp_path / "set").is_dir()

    def test_the_mark_comes_after_everything_else(self, location, monkeypatch):
        """Stop the writer at its last request: all is there but the mark, and nothing opens."""
        writer = DatasetWriter(location, "binary", shard_bytes=24)
        writer.append(dense_block())
        last: list[tuple[str, bytes]] = []
        hold = lambda _, name, content, version: last.append((name, content))  # noqa: ARG005, E731
        monkeypatch.setattr(distdual.data.prepare.writer, "write_if", hold)
        writer.finish()
        monkeypatch.undo()
        with pytest.raises(InputError, match="incomplete"):
            open_dataset(location)
        ((name, content),) = last
        location.write(name, content)
        assert [open_dataset(location).read(s).shard.n_examples for s in range(4)] == [2, 2, 2, 2]

    def test_a_writer_killed_at_any_moment_leaves_nothing_that_opens_and_can_be_run_again(self, here, tmp_path):
        code = f"""
import numpy as np
from distdual.data.storage.location import Location
from distdual.data.shard import Block
from distdual.data.prepare.writer import DatasetWriter
from distdual.kernels.rows import DenseRows
writer = DatasetWriter(Location({here.url!r}), "binary", shard_bytes=24)
while True:
    writer.append(Block(DenseRows(np.ones((2, {WIDTH}), dtype=np.float32)), np.arange(2)))
    print(len(writer.table), flush=True)
"""
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        with child.stdout as lines:
            while int(next(lines)) < 5:
                pass
            os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert not here.is_empty()
        with pytest.raises(InputError, match="incomplete"):
            open_dataset(here)
        write_dataset(here, "binary", [dense_block()])
        assert open_dataset(here).n_examples == 8


class TestDestination:
    def test_a_data_set_is_not_replaced_unless_told_to(self, location):
        write_dataset(location, "binary", [dense_block()])
        with pytest.raises(
            InputError, match=rf"^{location}: is not empty; choose an empty destination, or .* --overwrite"
        ):
            write_dataset(location, "binary", [dense_block(4)])
        assert open_dataset(location).n_examples == 8
        write_dataset(location, "binary", [dense_block(4)], overwrite=True)
        assert open_dataset(location).n_examples == 4

    def test_overwriting_leaves_no_chunk_of_the_old_data_set(self, location):
        write_dataset(location, "binary", [csr_block()], shard_bytes=24)
        write_dataset(location, "binary", [dense_block(2)], overwrite=True)
        assert not location.exists("indptr/c/0")
        assert not location.exists("y/c/0")
        assert location.exists("y/c.0")
        write_dataset(location, "binary", [dense_block(2)], overwrite=True)
        assert not location.exists("y/c.0")
        assert location.exists("y/c/0")
        assert open_dataset(location).read(0).shard.n_examples == 2

    def test_a_data_set_with_a_damaged_table_can_be_overwritten(self, location):
        write_dataset(location, "binary", [dense_block()])
        location.write("lengths/c/0/0", b"junk")
        with pytest.raises(InputError, match="is not empty"):
            write_dataset(location, "binary", [dense_block()])
        write_dataset(location, "binary", [dense_block(4)], overwrite=True)
        assert open_dataset(location).n_examples == 4

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_what_is_not_ours_is_never_deleted(self, location, overwrite):
        location.write("letter.txt", b"dear")
        with pytest.raises(InputError, match=r"is not empty; choose an empty destination$"):
            write_dataset(location, "binary", [dense_block()], overwrite=overwrite)
        assert location.read("letter.txt") == b"dear"

    @pytest.mark.parametrize("overwrite", [False, True])
    @pytest.mark.parametrize("folder", ["weather", "incomplete"])
    def test_a_zarr_group_of_somebody_else_is_never_deleted(self, tmp_path, folder, overwrite):
        zarr.create_group(str(tmp_path / folder), attributes={"title": "weather"})
        with pytest.raises(InputError, match="is not empty"):
            write_dataset(Location(str(tmp_path / folder)), "binary", [dense_block()], overwrite=overwrite)
        assert (tmp_path / folder / "zarr.json").exists()

    def test_a_file_in_the_way_is_an_error(self, tmp_path):
        (tmp_path / "file").write_text("x")
        with pytest.raises(InputError, match="is not empty"):
            write_dataset(Location(str(tmp_path / "file")), "binary", [dense_block()], overwrite=True)
        assert (tmp_path / "file").read_text() == "x"

    def test_a_folder_below_a_file_is_an_error(self, tmp_path):
        (tmp_path / "file").write_text("x")
        with pytest.raises(InputError, match="a file stands where a folder is expected"):
            write_dataset(Location(str(tmp_path / "file" / "set")), "binary", [dense_block()])

    def test_an_empty_folder_is_a_good_destination(self, here, tmp_path):
        (tmp_path / "set").mkdir()
        write_dataset(here, "binary", [dense_block()])
        assert open_dataset(here).n_examples == 8


class TestRefused:
    """Each of these prevents training; the message names the place."""

    def refused(self, place: Location, *blocks: Block, kind: str = "binary", **options: Any) -> str:
        with pytest.raises(InputError) as caught:
            write_dataset(place, kind, blocks, **options)
        assert place.is_empty()
        return str(caught.value)

    def test_a_source_without_examples(self, here):
        assert self.refused(here).endswith("the source holds no examples")
        assert self.refused(here, dense_block(0), csr_block(0)).endswith("the source holds no examples")

    def test_one_class_alone(self, here):
        message = self.refused(here, dense_block(y=[7.0] * 8))
        assert message.endswith("all examples have the label 7; two classes are needed")

    def test_a_third_label_in_a_binary_problem(self, here):
        message = self.refused(here, dense_block(), dense_block(y=[0, 1, 0, 1, 0, 1, 5, 9]), shard_bytes=24)
        assert message.endswith("shard 7, row 0: a binary problem has 2 labels, found more: 0, 1, 5")

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_a_feature_that_is_no_number(self, here, block_of, value):
        message = self.refused(here, with_value(block_of(), 5 * WIDTH + 1, value), shard_bytes=48)
        where = {dense_block: "shard 1, row 1 (example 5)", csr_block: "shard 2, row 1 (example 5)"}[block_of]
        assert message.endswith(f"{where}: a feature is NaN or infinite as float32")

    def test_a_feature_too_large_for_float32(self, here):
        block = dense_block()._replace(x=DenseRows(np.full((8, WIDTH), 1e300)))
        assert "row 0 (example 0): a feature is NaN or infinite as float32" in self.refused(here, block)

    def test_a_bad_value_after_empty_rows_is_put_in_its_own_row(self, here):
        x = CsrRows(np.array([0, 0, 1, 1, 1, 2]), np.zeros(2, dtype=np.int32), np.array([1, np.nan], dtype=np.float32))
        assert "row 4 (example 4)" in self.refused(here, Block(x, np.array([0, 1, 0, 1, 0])))

    @pytest.mark.parametrize(
        ("column", "value", "what"),
        [
            ("cost", -0.5, "the cost is negative"),
            ("cost", np.nan, "the cost is NaN or infinite"),
            ("cost", np.inf, "the cost is NaN or infinite"),
            ("margin", np.nan, "the margin is NaN or infinite"),
        ],
    )
    def test_a_cost_or_margin_that_makes_no_sense(self, here, block_of, column, value, what):
        numbers = np.ones(8)
        numbers[6] = value
        assert self.refused(here, block_of(**{column: numbers})).endswith(f"shard 0, row 6 (example 6): {what}")

    def test_a_negative_margin_and_a_zero_cost_are_fine(self, here, block_of):
        write_dataset(here, "binary", [block_of(cost=np.zeros(8), margin=np.full(8, -1.0))])
        assert_array_equal(open_dataset(here).read(0).shard.margin, np.full(8, -1.0))

    def test_a_label_that_is_no_number(self, here):
        y = np.array([0.0, 1, 0, np.nan, 0, 1, 0, 1])
        assert "row 3 (example 3): the label is NaN" in self.refused(here, dense_block(y=y))
        assert "row 3 (example 3): the label is NaN" in self.refused(here, dense_block(y=y), kind="regression")

    def test_words_to_be_predicted_by_regression(self, here):
        message = self.refused(here, dense_block(y=list("abcdefgh")), kind="regression")
        assert "a regression problem needs numbers to predict, found" in message

    def test_an_example_larger_than_a_shard(self, here):
        wide = CsrRows(np.array([0, 1, 2, 9]), np.array([0, 0, *range(7)], dtype=np.int32), np.ones(9, np.float32))
        message = self.refused(here, csr_block(), Block(wide, np.array([0, 1, 0])), shard_bytes=48)
        assert message.endswith("example 10 alone is larger than a shard; raise --shard-bytes")

    def test_a_feature_beyond_the_width_that_was_named(self, here):
        message = self.refused(here, csr_block(), n_features=2)
        assert message.endswith("row 0: feature 2 (counted from 0) is beyond the 2 features")
        message = self.refused(here, dense_block(), n_features=5)
        assert message.endswith("3 features in the source, 5 were named")

    def test_a_width_that_no_column_number_can_hold(self, here):
        far = CsrRows(np.array([0, 1]), np.array([2**31 + 5]), np.ones(1, dtype=np.float32))
        message = self.refused(here, csr_block(), Block(far, np.array([1])), shard_bytes=24)
        assert "feature 2147483653 (counted from 0) is beyond the 2147483647 features" in message

    @pytest.mark.parametrize(
        ("indptr", "indices", "what"),
        [
            ([0, 2, 3], [1, 1, 0], "row 0: feature 1 (counted from 0) is named twice"),
            ([0, 1, 4], [0, 2, 0, 2], "row 1: feature 2 (counted from 0) is named twice"),
            ([0, 1, 2], [0, -1], "row 1: a feature number is negative"),
            ([1, 1, 2], [0, 1], "indptr does not describe rows of 2 values"),
            ([0, 3, 2], [0, 1], "indptr does not describe rows of 2 values"),
            ([0, 1, 3], [0, 1], "indptr does not describe rows of 2 values"),
        ],
    )
    def test_a_sparse_matrix_that_is_none(self, here, indptr, indices, what):
        values = np.ones(len(indices), dtype=np.float32)
        x = CsrRows(np.array(indptr), np.array(indices, dtype=np.int32), values)
        assert self.refused(here, Block(x, np.array([0, 1]))).endswith(what)

    def test_rows_without_any_feature(self, here):
        assert "rows without any feature" in self.refused(here, Block(DenseRows(np.ones((2, 0), "f4")), np.arange(2)))

    @pytest.mark.parametrize("column", ["y", "cost", "margin"])
    def test_columns_of_another_length(self, here, block_of, column):
        message = self.refused(here, block_of()._replace(**{column: np.ones(7)}))
        assert message.endswith(f"8 rows of features, but {column} has the shape (7,)")

    @pytest.mark.parametrize(
        ("other", "what"),
        [
            (csr_block(), "sparse features, numbers as labels after 3 dense features, numbers as labels"),
            (dense_block(cost=np.ones(8)), "3 dense features, numbers as labels, cost after"),
            (dense_block(y=list("abababab")), "3 dense features, words as labels after"),
            (Block(DenseRows(np.ones((2, 4), "f4")), np.arange(2)), "4 dense features, numbers as labels after"),
        ],
        ids=["format", "columns", "labels", "width"],
    )
    def test_a_source_that_changes_half_way(self, here, other, what):
        assert f"the source changes at example 8: {what}" in self.refused(here, dense_block(), other)

    def test_a_shard_size_that_is_none(self, here):
        assert "--shard-bytes must be positive, got 0" in self.refused(here, shard_bytes=0)


class TestCutting:
    def test_columns_may_come_in_any_order_within_a_row(self, here):
        x = CsrRows(np.array([0, 2, 3]), np.array([2, 0, 1], dtype=np.int32), np.array([5, 6, 7], dtype=np.float32))
        write_dataset(here, "binary", [Block(x, np.array([0, 1]))])
        assert_array_equal(open_dataset(here).read(0).shard.x.indices, [2, 0, 1])

    def test_rows_without_values_need_little_room(self, here):
        n = 4000
        x = CsrRows(np.concatenate([[0], np.ones(n, dtype=np.int64)]), np.zeros(1, "i4"), np.ones(1, "f4"))
        write_dataset(here, "binary", [Block(x, np.arange(n) % 2)] * 3, shard_bytes=8192)
        data = open_dataset(here)
        assert data.n_examples == 3 * n
        assert data.layout.chunk["example"] <= 8192 // 8

    def test_rows_that_are_all_empty_make_a_data_set_of_no_features(self, here):
        x = CsrRows(np.zeros(5, dtype=np.int64), np.zeros(0, "i4"), np.zeros(0, "f4"))
        write_dataset(here, "binary", [Block(x, np.arange(4) % 2)])
        assert (open_dataset(here).layout.n_features, open_dataset(here).read(0).shard.n_examples) == (0, 4)

    def test_a_shard_is_as_large_as_was_asked_for(self, here, block_of):
        write_dataset(here, "binary", [block_of(100)] * 5, shard_bytes=600)
        data = open_dataset(here)
        sizes = [sum(part.nbytes for part in data.read(s).shard.x) for s in range(data.n_shards - 1)]
        assert min(sizes) > 300
        assert max(sizes) <= 1200

    def test_small_data_is_one_shard_without_padding(self, block_of):
        chunk = chunk_lengths(block_of(8).x, 1 << 20, last=True)
        assert chunk["example"] == 8

    def test_memory_stays_bounded_by_a_few_shards(self, here):
        import tracemalloc

        def blocks() -> Any:
            for _ in range(64):
                yield Block(DenseRows(np.ones((1 << 12, 16), dtype=np.float32)), np.arange(1 << 12) % 2)

        tracemalloc.start()
        try:
            write_dataset(here, "binary", blocks(), shard_bytes=1 << 20)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert open_dataset(here).nbytes > 16 << 20
        assert peak < 10 << 20

    def test_cuts_cover_every_row_once(self, block_of):
        x = block_of(50).x
        ends = list(shard_ends(x, {"example": 7, "value": 6 * WIDTH}, last=True))
        size = 6 if isinstance(x, CsrRows) else 7
        assert ends == [*range(size, 50, size), 50]

    def test_column_numbers_are_short_until_they_cannot_be(self):
        def at(column: int) -> CsrRows:
            return CsrRows(np.array([0, 1]), np.array([column]), np.ones(1, dtype=np.float32))

        assert index_dtype(at(2**31 - 1), None) == "int32"
        assert index_dtype(at(2**31), None) == "int64"
        assert index_dtype(at(3), 2**31) == "int32"
        assert index_dtype(at(3), 2**31 + 1) == "int64"

    def test_column_numbers_past_two_billion_survive(self, here):
        x = CsrRows(np.array([0, 1, 2]), np.array([1, 2**31 + 5]), np.ones(2, dtype=np.float32))
        write_dataset(here, "binary", [Block(x, np.array([0, 1]))])
        data = open_dataset(here)
        assert_array_equal(data.read(0).shard.x.indices, [1, 2**31 + 5])
        assert data.layout.n_features == 2**31 + 6

    def test_a_large_shard_can_be_written(self, here):
        writer = DatasetWriter(here, "binary", shard_bytes=1 << 27)
        writer._start(csr_block(), last=False)
        writer._write_shard(csr_block())
        assert writer.arrays["values"].shape[0] < 1 << 63


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["new", "overwrite"])
def test_killed_at_any_write_it_leaves_the_old_data_set_or_the_new_one(tmp_path, kind):
    ran = run(sys.executable, "-m", "tests.overwriting", tmp_path, kind, cwd=Path(__file__).parents[3])
    assert ran.code == 0, ran.err
    seen = json.loads(ran.out)
    before = 0 if kind == "new" else OLD
    assert set(seen) == {before, NEW}
    decided = seen.index(NEW)
    assert seen == [before] * decided + [NEW] * (len(seen) - decided)
    assert decided > 10


class TestReplacing:
    """Until zarr.json is replaced, the old data set is as it was, byte for byte."""

    @pytest.mark.parametrize("block", [dense_block, csr_block])
    def test_an_overwrite_that_fails_leaves_the_old_one(self, location, block):
        write_dataset(location, "binary", [dense_block()], shard_bytes=24)
        before = files(location)
        for bad in ([block(), with_value(block(), 5, np.nan)], [block(2, y=[0, 0])]):
            with pytest.raises(InputError):
                write_dataset(location, "binary", bad, shard_bytes=24, overwrite=True)
            assert files(location) == before
        assert open_dataset(location).n_examples == 8

    def test_a_writer_whose_claim_was_taken_over_changes_nothing(self, location):
        """As after a minute in which its machine was stopped."""
        write_dataset(location, "binary", [dense_block()], shard_bytes=24)
        with contextlib.ExitStack() as stack:
            mine = stack.enter_context(claimed(location, "job"))
            late = DatasetWriter(location, "binary", shard_bytes=24, overwrite=True, claim=mine)
            late.append(dense_block(6))
            other = stack.enter_context(claimed(location, "job"))
            if location.remote:
                mine._renew()  # as its thread will do
            with DatasetWriter(location, "binary", overwrite=True, claim=other) as writer:
                writer.append(dense_block(4))
                writer.finish()
            with pytest.raises(Superseded), late:
                late.append(dense_block(6))
        found = open_dataset(location)
        assert_array_equal(found.read(0).shard.x.values, dense_block(4).x.values)

    def test_other_programs_find_the_arrays_under_their_names(self, tmp_path):
        place = Location(str(tmp_path / "set"))
        for n in (8, 6, 4):
            write_dataset(place, "binary", [dense_block(n)], overwrite=True)
            for consolidated in (True, False):
                group = zarr.open_group(place.url, mode="r", use_consolidated=consolidated)
                assert group["lengths"][0, 0] == n
                assert_array_equal(group["x"][:n], dense_block(n).x.values)
