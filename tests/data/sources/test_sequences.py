"""Data sets whose examples are sequences: written, read, cut, shuffled and refused like all others."""

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from distdual.cli.info import describe
from distdual.data.dataset import open_dataset
from distdual.data.in_memory import sequences_in_memory
from distdual.data.prepare.api import prepare, prepare_arrays
from distdual.data.shard import Block, Shard
from distdual.data.sources.sequences import TokenRun, whole_sequences
from distdual.data.sources.svmhmm import blocks_from_svmhmm
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.rows import DenseRows
from tests import naive
from tests.build import rows_of

LENGTHS = [3, 1, 5, 2, 2, 4, 1, 6]


def made(seed: int = 0) -> tuple[Any, Any, Any]:
    """Features, labels and costs; the first feature numbers the tokens."""
    rng = np.random.default_rng(seed)
    n = sum(LENGTHS)
    x = np.round(rng.normal(size=(n, 4)), 2).astype(np.float32) * (rng.random((n, 4)) < 0.6)
    x[:, 0] = np.arange(1, n + 1)
    return x.astype(np.float32), np.array(["n", "v", "d"])[rng.integers(3, size=n)], rng.uniform(0.5, 2, len(LENGTHS))


def read_all(location: str) -> tuple[Any, list[Shard]]:
    dataset = open_dataset(Location(location))
    shards = [dataset.read(s).shard for s in range(dataset.n_shards)]
    return dataset, shards


def sequences_of(dataset: Any, shards: list[Shard]) -> list[tuple[Any, ...]]:
    """(features, tags, cost) of every sequence."""
    found = []
    for shard in shards:
        features = naive.dense(shard.x, dataset.n_features)
        for i in range(shard.n_examples):
            at = slice(shard.tokens[i], shard.tokens[i + 1])
            names = [dataset.classes[code] for code in shard.y[at]]
            found.append((features[at], names, None if shard.cost is None else shard.cost[i]))
    return found


def expected() -> list[tuple[Any, ...]]:
    x, y, cost = made()
    bounds = np.concatenate([[0], np.cumsum(LENGTHS)])
    return [(x[a:b], list(y[a:b]), c) for a, b, c in zip(bounds, bounds[1:], cost, strict=False)]


def assert_same(found: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> None:
    assert len(found) == len(wanted)
    for left, right in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(left[0], right[0])
        assert left[1:] == right[1:]


@pytest.mark.parametrize("shard_bytes", [160, 1 << 20], ids=["many shards", "one shard"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_what_was_prepared_is_read(tmp_path, sparse, shard_bytes):
    x, y, cost = made()
    x = sp.csr_matrix(x) if sparse else x
    prepare_arrays(x, y, tmp_path / "data", "chain", lengths=LENGTHS, cost=cost, shard_bytes=shard_bytes)
    dataset, shards = read_all(str(tmp_path / "data"))
    assert (dataset.n_shards > 1) == (shard_bytes == 160)
    assert dataset.n_examples == len(LENGTHS)
    assert dataset.n_rows == sum(LENGTHS)
    assert dataset.nbytes == sum(shard.nbytes for shard in shards)
    assert [shard.first for shard in shards] == dataset.first[:-1].tolist()
    assert describe(Location(str(tmp_path / "data")))["tokens"] == sum(LENGTHS)
    assert_same(sequences_of(dataset, shards), expected())


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_in_memory_and_on_disk_are_the_same(tmp_path, sparse):
    x, y, cost = made()
    given = sp.csr_matrix(x) if sparse else x
    bounds = np.concatenate([[0], np.cumsum(LENGTHS)])
    pieces = [given[a:b] for a, b in itertools.pairwise(bounds)]
    labels = [y[a:b] for a, b in itertools.pairwise(bounds)]
    for found in (
        sequences_in_memory(given, y, LENGTHS, cost),
        sequences_in_memory(pieces, labels, cost=cost),
        sequences_in_memory(given.astype(np.float64), y, LENGTHS, cost),
    ):
        assert found.n_examples == len(LENGTHS)
        assert_same(sequences_of(found, list(found.shards)), expected())
    assert found.fingerprint != sequences_in_memory(given.astype(np.float64), y, LENGTHS[::-1], cost).fingerprint


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_piece_of_a_shard_holds_whole_sequences(sparse):
    x, y, cost = made()
    tokens = np.concatenate([[0], np.cumsum(LENGTHS)])
    whole = Shard(3, 10, rows_of(x, sparse=sparse), y, cost, None, tokens)
    piece = whole.piece(2, 5)
    assert (piece.n_examples, piece.first) == (3, 12)
    np.testing.assert_array_equal(piece.tokens, [0, 5, 7, 9])
    np.testing.assert_array_equal(piece.y, y[4:13])
    np.testing.assert_array_equal(piece.cost, cost[2:5])
    assert piece.x.n_rows == 9
    again = piece.piece(1, 3)
    np.testing.assert_array_equal(
        naive.dense(again.x, 4)[:, 0] if not sparse else again.y, x[9:13, 0] if not sparse else y[9:13]
    )


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_shuffle_and_split_keep_sequences_together(tmp_path, sparse):
    x, y, cost = made()
    x = sp.csr_matrix(x) if sparse else x
    options = {"lengths": LENGTHS, "cost": cost, "shuffle": 3, "test_fraction": 0.4}
    prepare_arrays(x, y, tmp_path / "data", "chain", **options)
    found = [s for part in ("train", "test") for s in sequences_of(*read_all(str(tmp_path / "data" / part)))]
    assert [s[0][0, 0] for s in found] != [s[0][0, 0] for s in expected()]
    assert_same(sorted(found, key=lambda s: s[0][0, 0]), expected())


def test_a_ragged_npz_file_is_read(tmp_path):
    x, y, cost = made()
    tokens = np.concatenate([[0], np.cumsum(LENGTHS)])
    np.savez(tmp_path / "dense.npz", x=x, y=y, cost=cost, tokens=tokens)
    csr = rows_of(x, sparse=True)
    np.savez(tmp_path / "sparse.npz", **csr._asdict(), y=y, cost=cost, tokens=tokens)
    for name in ("dense", "sparse"):
        prepare(tmp_path / f"{name}.npz", tmp_path / name, "chain")
        assert_same(sequences_of(*read_all(str(tmp_path / name))), expected())


@pytest.mark.parametrize("size", [20, 64, 1 << 20])
def test_svmhmm_text_is_read_whatever_the_blocks(tmp_path, size):
    text = "# a comment\n1 qid:1 1:0.5 3:1\n2 qid:1 2:1\n\n1 qid:7 1:2\n3 qid:2 3:-1 # last\n3 qid:2\n"
    (tmp_path / "data").write_text(text)
    blocks = list(blocks_from_svmhmm(Location(str(tmp_path / "data")), size))
    lengths = [int(n) for block in blocks for n in np.diff(block.tokens)]
    assert lengths == [2, 1, 2]
    assert [tag for block in blocks for tag in block.y.tolist()] == [1, 2, 1, 3, 3]
    assert [v for block in blocks for v in block.x.values.tolist()] == [0.5, 1, 1, 2, -1]


@pytest.mark.parametrize("size", [20, 1 << 20])
def test_a_sequence_that_comes_back_is_refused_whatever_the_blocks(tmp_path, size):
    (tmp_path / "data").write_text("1 qid:1 1:1\n1 qid:2 1:1\n1 qid:3 1:1\n2 qid:1 2:1\n")
    with pytest.raises(InputError, match="line 4: sequence 1 comes back"):
        list(blocks_from_svmhmm(Location(str(tmp_path / "data")), size))


def test_files_may_number_their_sequences_alike(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text("1 qid:1 1:1\n2 qid:2 2:1\n")
    (summary,) = prepare([tmp_path / "a", tmp_path / "b"], tmp_path / "dest", "chain")
    assert summary.n_examples == 4


def test_svmhmm_text_is_recognised_where_a_chain_is_asked_for(tmp_path):
    (tmp_path / "data").write_text("1 qid:1 1:1\n2 qid:1 2:1\n1 qid:2 1:1\n")
    (summary,) = prepare(tmp_path / "data", tmp_path / "dest", "chain")
    assert (summary.n_examples, summary.labels) == (2, ("1", "2"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# c\n1 qid:1 1:1\n\n2 1:1\n", "line 4: no qid"),
        ("1 qid:x 1:1\n", "line 1: malformed token 'qid:x'"),
        ("1 qid:1 1:1\nNN qid:1 1:1\n", "line 2: malformed token 'NN'"),
        ("1 qid:1 1:1\n1 qid:1 0:1\n", "line 2: feature index 0"),
        ("1 qid:1 1:1\n\n1 qid:2 1:1\n# c\n2 qid:1 2:1\n", "line 5: sequence 1 comes back after others"),
        ("1 qid:1 1:1\n1 qid:1 2:nan\n", "line 2: '2:nan' is NaN or infinite"),
    ],
)
def test_bad_svmhmm_text_is_named_by_its_line(tmp_path, text, message):
    (tmp_path / "data").write_text(text)
    with pytest.raises(InputError) as caught:
        prepare(tmp_path / "data", tmp_path / "dest", "chain", format="svmhmm")
    assert message in str(caught.value)
    assert not (tmp_path / "dest").exists()


def npz(path: Any, **changes: Any) -> Any:
    x, y, cost = made()
    arrays = {"x": x, "y": y, "cost": cost, "tokens": np.concatenate([[0], np.cumsum(LENGTHS)]), **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": np.array([0, 3, 3, 24])}, "must rise from 0"),
        ({"tokens": np.array([1, 24])}, "must rise from 0"),
        ({"tokens": np.array([0, 20])}, "ends at 20, but there are 24 rows"),
        ({"tokens": np.array([0.0, 24.0])}, "whole numbers"),
        ({"tokens": None, "cost": None}, "single rows, but a chain problem needs sequences"),
        ({"cost": np.ones(3)}, "ends after 3 entries"),
        ({"cost": np.ones(9)}, "more than the 8 entries"),
        ({"margin": np.ones(24)}, "does not apply to a chain problem"),
    ],
)
def test_bad_sequences_are_refused(tmp_path, changes, message):
    with pytest.raises(InputError) as caught:
        prepare(npz(tmp_path / "data.npz", **changes), tmp_path / "dest", "chain")
    assert message in str(caught.value)


def test_sequences_are_no_multiclass_examples(tmp_path):
    with pytest.raises(InputError, match="holds sequences, but a multiclass problem needs single rows"):
        prepare(npz(tmp_path / "data.npz"), tmp_path / "dest", "multiclass")


def test_a_sequence_longer_than_a_shard_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"example 2 alone is larger than a shard"):
        prepare(npz(tmp_path / "data.npz"), tmp_path / "dest", "chain", shard_bytes=64)


@pytest.mark.parametrize(
    ("x", "y", "lengths", "message"),
    [
        ([np.ones((2, 1))], [[1]], None, "sequence 0 has 2 rows of features, but 1 labels"),
        ([np.ones((2, 1))], [[1, 2], [1]], None, "1 sequences of features, but 2 of labels"),
        (np.ones((2, 1)), [1, 2], [1], "ends at 1, but there are 2 rows"),
        (np.ones((2, 1)), [1, 2], [2, 0], "must rise"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(x, y, lengths, message):
    with pytest.raises(InputError, match=message):
        sequences_in_memory(x, y, lengths)


def test_a_feature_that_is_no_number_is_named_by_its_sequence(tmp_path):
    x, y, _ = made()
    x[5, 1] = np.nan
    tokens = np.concatenate([[0], np.cumsum(LENGTHS)])
    block = Block(DenseRows(x), y, None, None, tokens)
    from distdual.data.prepare.writer import write_dataset

    with pytest.raises(InputError, match=r"\(example 2\): a feature is NaN"):
        write_dataset(Location(str(tmp_path / "data")), "chain", [block])


def test_a_sequence_may_span_many_runs():
    def run(value: float, begins: list[bool]) -> TokenRun:
        n = len(begins)
        return TokenRun(Block(DenseRows(np.full((n, 1), value, dtype=np.float32)), np.arange(n)), np.array(begins))

    parts = [run(1, [True, False]), run(2, [False]), run(3, [False, True, True]), run(4, [False])]
    found = list(whole_sequences(iter(parts)))
    assert [np.diff(block.tokens).tolist() for block in found] == [[4, 1], [2]]
    assert [block.x.values.ravel().tolist() for block in found] == [[1, 1, 2, 3, 3], [3, 4]]


def test_damaged_bounds_are_found_where_checksums_are_not_asked(tmp_path):
    import zarr

    prepare(npz(tmp_path / "data.npz"), tmp_path / "dest", "chain")
    array = zarr.open_group(str(tmp_path / "dest"), mode="r+")["tokens"]
    array[1] = 99
    with pytest.raises(InputError, match="shard 0, array 'tokens': must rise from 0 to 24"):
        open_dataset(Location(str(tmp_path / "dest"))).read(0, check=False)
