"""Structures come back from a data set as they were given, whatever their shapes, and what is none is refused."""

import json
from typing import Any

import numpy as np
import pytest

from distdual.cli.info import describe
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare, prepare_structures
from distdual.data.shard_checks import check_shapes
from distdual.data.storage.location import Location
from distdual.data.structures import Side
from distdual.errors import InputError
from tests.shell import assert_refused, call


def some(n: int = 50) -> list[Any]:
    rng = np.random.default_rng(0)
    return [
        (
            {
                "image": rng.normal(size=(i % 4, 2 + i % 3)),
                "edges": rng.integers(9, size=(i % 5, 2)),
                "bit": i % 2 == 0,
            },
            rng.integers(3, size=i % 7).astype(np.uint8),
            1.0 + i,
        )
        for i in range(n)
    ]


def read_back(url: str) -> list[Any]:
    dataset, found = open_dataset(Location(url)), []
    for number in range(dataset.n_shards):
        shard = dataset.read(number).shard
        x, y = Side(shard.runs, "x"), Side(shard.runs, "y")
        for i in range(shard.n_examples):
            cost = None if shard.cost is None else float(shard.cost[i])
            found.append((x.of(i), y.of(i) if y else None, cost))
    return found


def assert_same(found: list[Any], given: list[Any]) -> None:
    assert len(found) == len(given)
    for (x, y, cost), (x0, y0, cost0) in zip(found, given, strict=True):
        assert list(x) == list(x0)
        for name, part in x0.items():
            assert x[name].dtype == np.asarray(part).dtype
            assert x[name].shape == np.shape(part)
            np.testing.assert_array_equal(x[name], part)
        np.testing.assert_array_equal(y, y0)
        assert cost == cost0


@pytest.mark.parametrize("shard_bytes", [500, 1 << 20])
def test_structures_come_back_as_they_were_given(tmp_path, shard_bytes):
    summary = prepare_structures(iter(some()), tmp_path / "data", shard_bytes=shard_bytes)[0]
    assert (summary.n_examples, summary.n_features, summary.labels) == (50, 0, ())
    assert (summary.n_shards > 5) == (shard_bytes == 500)
    assert_same(read_back(str(tmp_path / "data")), some())
    told = describe(Location(str(tmp_path / "data")))
    assert told["labels"] == []
    assert {"x_image", "x_image_shape", "x_edges", "x_bit", "y", "cost"} <= set(told["columns"])


def test_an_array_of_one_dimension_needs_no_name_and_no_shape(tmp_path):
    given = [(np.arange(i, dtype=np.float32), np.int64(i)) for i in range(1, 9)]
    prepare_structures(given, tmp_path / "data")
    assert set(open_dataset(Location(str(tmp_path / "data"))).layout.runs) == {"x", "y", "y_shape"}
    found = read_back(str(tmp_path / "data"))
    np.testing.assert_array_equal(found[3][0], np.arange(4))
    assert found[3][1].shape == ()
    assert int(found[3][1]) == 4


def test_examples_are_appended_shuffled_and_split(tmp_path):
    prepare_structures(some(20), tmp_path / "data", shard_bytes=500)
    prepare_structures(some()[20:], tmp_path / "data", append=True)
    assert_same(read_back(str(tmp_path / "data")), some())
    parts = prepare_structures(some(), tmp_path / "split", shuffle=1, test_fraction=0.4)
    assert sum(part.n_examples for part in parts) == 50
    costs = [cost for part in parts for _, _, cost in read_back(part.url)]
    assert sorted(costs) == [1.0 + i for i in range(50)]
    assert costs != sorted(costs)


def test_files_hold_structures(tmp_path, capsys):
    given = [(x, y.astype(np.int64), cost) for x, y, cost in some()]
    lines = [
        {"x": {name: np.asarray(part).tolist() for name, part in x.items()}, "y": y.tolist(), "cost": cost}
        for x, y, cost in given
    ]
    for line in lines:  # JSON does not tell the width of no rows, nor the type of none
        line["x"] = {"bit": line["x"]["bit"]}
        line["y"] = [*line["y"], 1]
    (tmp_path / "all.jsonl").write_text("\n".join(map(json.dumps, lines)))
    ran = call(capsys, "prepare", tmp_path / "all.jsonl", tmp_path / "lines", "--problem", "structures", "--json")
    assert ran.code == 0, ran
    assert_same(read_back(str(tmp_path / "lines")), [({"bit": x["bit"]}, [*y, 1], cost) for x, y, cost in given])

    ends = np.cumsum([0, *(len(y) for _, y, _ in given)])
    edges = [x["edges"] for x, _, _ in given]
    np.savez(
        tmp_path / "all.npz",
        x_edges=np.concatenate(edges),
        x_edges_indptr=np.cumsum([0, *map(len, edges)]),
        x_bit=np.array([x["bit"] for x, _, _ in given]),
        y=np.concatenate([y for _, y, _ in given]),
        y_indptr=ends,
        cost=np.array([cost for *_, cost in given]),
    )
    prepare(tmp_path / "all.npz", tmp_path / "packed", "structures")
    expected = [({"edges": x["edges"], "bit": x["bit"]}, y, cost) for x, y, cost in given]
    assert_same(read_back(str(tmp_path / "packed")), expected)


@pytest.mark.parametrize(
    ("examples", "words"),
    [
        ([({"a": [1.0]}, 1), ({"b": [1.0]}, 1)], "example 1 has x_b, y; the first example has x_a, y"),
        ([([1.0], 1), ([[1.0]], 1)], "example 1: x has 2 dimensions, that of the first has 1"),
        ([([1], 1), ([1.5], 1)], "example 1: x is of type float64, which int64"),
        ([([1.0], "a")], "y is of type <U1; expected numbers or booleans"),
        ([({"A b": [1.0]}, 1)], "'A b' cannot name an array"),
        ([({}, 1)], "x is an empty mapping"),
        ([[1.0, 2.0]], "expected a tuple"),
        ([([1.0], 1, 1.0), ([1.0], 1)], "some examples have a cost, others none"),
        ([([1.0], 1, -1.0)], "the cost is negative"),
        ([], "no examples"),
    ],
)
def test_what_is_no_structure_is_refused_and_nothing_is_left(tmp_path, examples, words):
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        prepare_structures(examples, tmp_path / "data")
    assert not (tmp_path / "data" / "zarr.json").exists()


def test_what_is_wrong_with_a_file_is_told(tmp_path, capsys):
    (tmp_path / "bad.jsonl").write_text('{"x": [1]}\n{"y": 2}\n')
    ran = call(capsys, "prepare", tmp_path / "bad.jsonl", tmp_path / "out", "--problem", "structures")
    assert_refused(ran, "bad.jsonl, line 2: expected an object with x")
    np.savez(tmp_path / "bad.npz", x=np.zeros(3), y=np.zeros(4))
    ran = call(capsys, "prepare", tmp_path / "bad.npz", tmp_path / "out", "--problem", "structures")
    assert_refused(ran, "one number of examples, found x 3, y 4")
    ran = call(
        capsys, "prepare", tmp_path / "bad.npz", tmp_path / "out", "--problem", "structures", "--scale", "unit-rows"
    )
    assert_refused(ran, "leave options about features and labels out")


def test_features_and_structures_are_told_apart(tmp_path, capsys):
    prepare_structures(some(), tmp_path / "data")
    ran = call(
        capsys,
        "train",
        "configs/binary.toml",
        "--set",
        f"data.url={tmp_path / 'data'}",
        "--set",
        f"output.url={tmp_path / 'm'}",
    )
    assert_refused(ran, "the data set holds structures, but a binary problem needs single rows")


@pytest.mark.parametrize(("shape", "words"), [([2, 3], "has 4 values, which"), ([-2, -2], "a dimension is -2")])
def test_shapes_that_are_not_those_of_the_values_are_refused(shape, words):
    arrays = {
        "x": np.arange(8.0),
        "x_indptr": np.array([0, 4, 8]),
        "x_shape": np.array([2, 2, *shape]),
        "x_shape_indptr": np.array([0, 2, 4]),
    }
    with pytest.raises(InputError, match=words):
        check_shapes("here", arrays, "x_shape")
