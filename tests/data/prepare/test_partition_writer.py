"""Dask arrays whose partitions are written where they are; tests run the tasks in threads of this process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from distdual.data.dataset import open_dataset
from distdual.data.prepare import partition_writer
from distdual.data.prepare.api import Summary, prepare_arrays
from distdual.data.sources.arrays import blocks_from_arrays
from distdual.data.storage.location import Location
from distdual.errors import InputError, Superseded
from tests.build import examples

MADE = examples(3, 300, 6)
LABELS = np.array(["b", "a", "c"])[np.arange(300) % 3]
ROW = 24  # bytes


@pytest.fixture(autouse=True)
def never_streamed() -> Iterator[None]:
    """Raise if rows pass through one process."""
    refused = AssertionError("streamed")
    with (
        dask.config.set(scheduler="threads"),
        patch("distdual.data.prepare.api.blocks_from_arrays", side_effect=refused),
    ):
        yield


def written(dest: Path, chunks: Any, x: Any = MADE.x, y: Any = LABELS, **options: Any) -> Summary:
    lazy = da.from_array(x, chunks=(chunks, -1)) if isinstance(x, np.ndarray) else x
    return prepare_arrays(lazy, y, dest, "multiclass", **options)[0]


def check_holds(dest: Path, x: Any = MADE.x, y: Any = LABELS, cost: Any = None) -> list[int]:
    """Check all examples against what was given; the lengths of shards."""
    dataset = open_dataset(Location(str(dest)))
    shards = [dataset.read(number).shard for number in range(dataset.n_shards)]
    found = np.concatenate([shard.x.values if dataset.layout.sparse is False else dense(shard.x) for shard in shards])
    np.testing.assert_array_equal(found, x)
    np.testing.assert_array_equal(np.array(dataset.classes)[np.concatenate([shard.y for shard in shards])], y)
    if cost is not None:
        np.testing.assert_array_equal(np.concatenate([shard.cost for shard in shards]), cost)
    return [shard.n_examples for shard in shards]


def dense(x: Any) -> Any:
    return sp.csr_array((x.values, x.indices, x.indptr), shape=(x.n_rows, MADE.x.shape[1])).toarray()


def test_a_partition_is_a_shard(tmp_path: Path) -> None:
    summary = written(tmp_path / "data", (100, 120, 80), shard_bytes=120 * ROW)
    assert check_holds(tmp_path / "data") == [100, 120, 80]
    assert (summary.n_examples, summary.n_shards, summary.labels) == (300, 3, ("a", "b", "c"))


def test_it_is_what_one_process_writes(tmp_path: Path) -> None:
    y = np.sort(np.arange(300) % 3)  # labels are numbered in the order of their names
    written(tmp_path / "apart", 100, y=y, shard_bytes=100 * ROW)
    with patch("distdual.data.prepare.api.blocks_from_arrays", blocks_from_arrays):
        prepare_arrays(MADE.x, y, tmp_path / "together", "multiclass", shard_bytes=100 * ROW)
    assert files(tmp_path / "apart") == files(tmp_path / "together")


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_small_partitions_are_joined_and_large_ones_cut(tmp_path: Path) -> None:
    written(tmp_path / "data", (20, 30, 50, 160, 40), shard_bytes=60 * ROW)
    assert check_holds(tmp_path / "data") == [50, 50, 53, 53, 54, 40]


@pytest.mark.parametrize("chunks", [100, (10, 150, 140)])
def test_sparse_partitions_and_costs(tmp_path: Path, chunks: Any) -> None:
    x, cost = np.where(MADE.x > 0.3, MADE.x, 0.0), np.arange(300.0)
    lazy = da.from_array(x, chunks=(chunks, 6)).map_blocks(sp.csr_array)
    written(tmp_path / "data", None, lazy, LABELS, cost=da.from_array(cost, chunks=100), shard_bytes=800)
    lengths = check_holds(tmp_path / "data", x, cost=cost)
    assert len(lengths) > 3


def test_targets_and_unit_rows(tmp_path: Path) -> None:
    x = da.from_array(MADE.x, chunks=(100, 3))
    prepare_arrays(x, MADE.x[:, 0], tmp_path / "data", "regression", scale="unit-rows", shard_bytes=100 * ROW)
    dataset = open_dataset(Location(str(tmp_path / "data")))
    shard = dataset.read(1).shard
    np.testing.assert_allclose(np.linalg.norm(shard.x.values, axis=1), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(shard.y, MADE.x[100:200, 0])
    assert dataset.layout.scale == "unit-rows"


def test_a_data_set_is_replaced(tmp_path: Path) -> None:
    written(tmp_path / "data", 100)
    with pytest.raises(InputError, match="is not empty"):
        written(tmp_path / "data", 50)
    written(tmp_path / "data", 100, MADE.x[:200], LABELS[:200], overwrite=True)
    check_holds(tmp_path / "data", MADE.x[:200], LABELS[:200])


class TestFailure:
    def test_a_bad_value_is_found_before_anything_is_written(self, tmp_path: Path) -> None:
        x = MADE.x.copy()
        x[150, 2] = np.nan
        with pytest.raises(InputError, match=r"partition 1 of X, row 50 \(counted from 0\): a feature is NaN"):
            written(tmp_path / "data", 100, x)
        assert not (tmp_path / "data").exists()

    def test_too_many_labels(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="a binary problem has 2 labels, found more: a, b, c"):
            prepare_arrays(da.from_array(MADE.x, chunks=(100, 6)), LABELS, tmp_path / "data", "binary")
        assert not (tmp_path / "data").exists()

    def test_a_failed_write_leaves_nothing(self, tmp_path: Path) -> None:
        write = partition_writer.write_now

        def fail(layout: Any, arrays: Any, number: int, contents: Any) -> None:
            if number == 1:
                raise OSError("disk full")
            write(layout, arrays, number, contents)

        with patch.object(partition_writer, "write_now", fail), pytest.raises(InputError, match="the storage failed"):
            written(tmp_path / "data", 100, shard_bytes=100 * ROW)
        assert not (tmp_path / "data").exists()

    def test_a_task_stops_where_another_process_has_taken_over(self, tmp_path: Path) -> None:
        with (
            patch.object(partition_writer, "holder_of", return_value={"pid": -1}),
            pytest.raises(Superseded, match="another process has taken over"),
        ):
            written(tmp_path / "data", 100)
        assert not (tmp_path / "data").exists()
