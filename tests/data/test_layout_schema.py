"""A stored description is refused unless all of it is as declared."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from distdual.data.dataset import open_dataset
from distdual.data.layout import ATTRIBUTES, Layout
from distdual.data.layout_schema import LAYOUT_RULE as SCHEMA
from distdual.data.layout_schema import check_layout
from distdual.data.storage.location import Location
from distdual.data.zarr_description import DamagedError
from distdual.errors import InputError
from distdual.memory import memory_limit
from tests.build import compiling, examples, write


@pytest.fixture
def stored(tmp_path: Path) -> Location:
    return write(tmp_path / "set", examples(0, 20, 3), sparse=True)


def change(place: Location, how: Callable[[dict[str, Any]], None]) -> None:
    about = json.loads(place.read("zarr.json"))
    how(about)
    place.write("zarr.json", json.dumps(about).encode())


def of_array(name: str, **values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda about: about["consolidated_metadata"]["metadata"][name].update(values)


def grid(*shape: Any) -> dict[str, Any]:
    return {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(shape)}}}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("n_features", -1, "a whole number from 0"),
        ("n_features", "3", "a whole number"),
        ("n_features", 2**60, "a whole number from 0 to"),
        ("n_features", True, "a whole number"),
        ("labels", {"a": 1}, "a list"),
        ("labels", ["a", "a"], "names nothing twice"),
        ("labels", ["a", 1], r"labels\[1\]: expected a text"),
        ("columns", ["weight"], "'cost' or 'margin'"),
        ("features", "coo", "'dense' or 'csr'"),
        ("index_dtype", "float32", "'int32' or 'int64'"),
        ("chunk", {"example": 10**9}, "a length for each of example, value"),
        ("chunk", 7, "a table"),
        ("compress", 1, "true or false"),
        ("runs", {"../x": "int32"}, "small letters"),
        ("runs", {"lengths": "int32"}, "names that no other array has|a length for each of"),
        ("texts", {"grammar": -1}, "a whole number from 0"),
        ("kind", None, "the name of a problem"),
        ("secret", 1, "unknown key 'secret'"),
    ],
)
def test_an_attribute_that_is_not_as_declared_is_named(stored, key, value, words):
    change(stored, lambda about: about["attributes"][ATTRIBUTES].update({key: value}))
    with pytest.raises(DamagedError, match=words) as error:
        open_dataset(stored)
    assert str(error.value).startswith(f"{stored}")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (of_array("y", data_type="int64"), "array 'y': expected the type int32"),
        (of_array("y", **grid(2)), r"array 'y': chunk_shape: expected \["),
        (of_array("y", codecs=[{"name": "bytes"}]), "stored as bytes"),
        (of_array("y", shape="many"), "damaged|a list"),
        (of_array("lengths", shape=[2**40, 2]), "GiB of memory; this machine has"),
        (of_array("lengths", shape=[0, 2]), "has no shards"),
        (of_array("checksum", data_type="int64"), "damaged|dimensions of uint32"),
    ],
)
def test_an_array_that_is_not_stored_as_the_layout_says_is_refused(stored, how, words):
    change(stored, how)
    with pytest.raises(DamagedError, match=words):
        open_dataset(stored)


def test_a_chunk_is_not_larger_than_the_memory_whatever_it_claims(stored):
    most = memory_limit() // 4
    change(stored, lambda about: about["attributes"][ATTRIBUTES]["chunk"].update(value=most))
    change(stored, of_array("values", **grid(most)))
    with pytest.raises(DamagedError, match=r"a chunk of '(indices|values)' takes [\d.,]+ GiB of memory; this machine"):
        open_dataset(stored)


@pytest.mark.parametrize(
    ("table", "value", "words"),
    [
        ("lengths", [10**6, 1], "shard 1 has 1000000 entries of 'example', expected 1 to"),
        ("lengths", [0, 1], "shard 1 has 0 entries of 'example'"),
        ("lengths", [1, -1], "-1 is below 0"),
        ("largest_norm", np.nan, "NaN or infinite"),
    ],
)
def test_tables_must_describe_shards_within_their_chunks(stored, table, value, words):
    zarr.open_group(stored.url, mode="r+")[table][1] = value
    with pytest.raises(DamagedError, match=words):
        open_dataset(stored)


def test_a_description_nested_beyond_all_measure_is_damaged(stored):
    stored.write("zarr.json", b'{"zarr_format": 3, "node_type": "group", "attributes": ' + b"[" * 10**5)
    with pytest.raises(InputError, match=r"zarr\.json is damaged"):
        open_dataset(stored)


sizes = st.integers(0, 1000)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any layout that `prepare` could write."""
    ragged, sparse = draw(st.booleans()), draw(st.booleans())
    runs = draw(st.dictionaries(st.sampled_from(["tree", "text"]), st.sampled_from(["int32", "uint8"])))
    made = Layout(
        kind=draw(st.sampled_from(["binary", "chain", "package.module:Class"])),
        n_features=draw(st.integers(0, 10**6)),
        sparse=sparse,
        index_dtype="int32",
        labels=tuple(draw(st.lists(st.text(), unique=True, max_size=4))),
        columns=tuple(draw(st.sets(st.sampled_from(["cost", "margin"])))),
        chunk={},
        compress=draw(st.booleans()),
        ragged=ragged,
        runs=runs,
        texts=draw(st.dictionaries(st.sampled_from(["grammar", "vocabulary"]), st.integers(0, 2**32 - 1))),
    )
    made.chunk.update({axis: draw(sizes) for axis in made.axes})
    return made


@compiling
@given(layouts())
def test_every_layout_passes_and_reads_back_as_it_was(layout):
    attributes = json.loads(json.dumps({**layout.attributes(), "complete": True}))
    SCHEMA("here", attributes)
    found = Layout.from_attributes(attributes)
    check_layout("here", found)
    assert found == layout


@compiling
@given(layouts(), st.data())
def test_a_layout_without_one_of_its_keys_never_passes(layout, data):
    attributes = {**layout.attributes(), "complete": True}
    del attributes[data.draw(st.sampled_from(["kind", "n_features", "features", "labels", "chunk", "complete"]))]
    with pytest.raises(InputError, match="is missing"):
        SCHEMA("here", attributes)
