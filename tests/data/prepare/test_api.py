"""`prepare` writes exactly what the source holds, or nothing; in bounded memory."""

import gzip
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file
from sklearn.preprocessing import StandardScaler, normalize

from distdual.data.dataset import open_dataset
from distdual.data.prepare import pipeline
from distdual.data.prepare.api import Options, prepare, prepare_arrays
from distdual.data.prepare.pipeline import UNFINISHED
from distdual.data.preprocess import scale
from distdual.data.preprocess.scale import ColumnSpread, add_dense, add_sparse
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.rows import CsrRows, DenseRows

RANDOM = np.random.default_rng(0)
N = 400
X = np.where(RANDOM.random((N, 12)) < 0.4, RANDOM.normal(size=(N, 12)), 0.0)
X[:, 0] = np.arange(N)  # so that every row can be told from the others
X[:, 5] = 3.0
X = X.astype(np.float32).astype(np.float64)
Y = RANDOM.choice([-1, 1], N)


def read(url) -> tuple[np.ndarray, np.ndarray]:
    """All rows as a dense matrix, and the names of their labels."""
    dataset = open_dataset(Location(str(url)))
    rows, labels = [], []
    for number in range(dataset.n_shards):
        shard = dataset.read(number).shard
        x = shard.x
        if isinstance(x, DenseRows):
            rows.append(x.values)
        else:
            shape = (shard.n_examples, dataset.layout.n_features)
            rows.append(sp.csr_array((x.values, x.indices, x.indptr), shape=shape).toarray())
        labels.append(np.array(dataset.classes)[shard.y])
    return np.concatenate(rows), np.concatenate(labels)


def svmlight(path: Path, x=X, y=Y) -> Path:
    dump_svmlight_file(x, y, str(path), zero_based=False)
    return path


def assert_empty(dest: Path) -> None:
    assert not dest.exists() or not any(path.is_file() for path in dest.rglob("*"))
    assert Location(str(dest)).is_empty()


def in_order(x, y):
    order = np.argsort(x[:, 0], kind="stable")
    return x[order], y[order]


# --- what is written


def make_source(tmp_path, kind):
    if kind == "svmlight":
        return [svmlight(tmp_path / "data")], {}
    if kind == "two files":
        return [svmlight(tmp_path / "a", X[:150], Y[:150]), svmlight(tmp_path / "b", X[150:], Y[150:])], {}
    if kind == "gz":
        (tmp_path / "data.gz").write_bytes(gzip.compress(svmlight(tmp_path / "data").read_bytes()))
        return [tmp_path / "data.gz"], {}
    if kind == "npz":
        np.savez(tmp_path / "data.npz", x=X, y=Y)
        return [tmp_path / "data.npz"], {}
    if kind == "sparse npz":
        csr = sp.csr_array(X)
        np.savez(tmp_path / "d.npz", indptr=csr.indptr, indices=csr.indices, values=csr.data, y=Y, n_features=12)
        return [tmp_path / "d.npz"], {}
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    return [tmp_path / "x.npy"], {"labels": [tmp_path / "y.npy"]}


@pytest.mark.parametrize("kind", ["svmlight", "two files", "gz", "npz", "sparse npz", "npy"])
def test_every_source_is_written_in_order_without_being_told_its_format(tmp_path, kind):
    sources, options = make_source(tmp_path, kind)
    [summary] = prepare(sources, tmp_path / "dest", "binary", shard_bytes=2000, **options)

    x, y = read(tmp_path / "dest")
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y.astype(str))
    dataset = open_dataset(Location(str(tmp_path / "dest")))
    assert summary.n_examples == N
    assert summary.n_features == 12
    assert summary.n_shards == dataset.n_shards > 3
    assert summary.labels == ("-1", "1")
    assert summary.n_bytes == dataset.nbytes
    assert summary.url == str(tmp_path / "dest")


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_arrays_go_the_same_way_as_files(tmp_path, make):
    y = np.where(Y > 0, "yes", "no")
    [summary] = prepare_arrays(make(X), y, tmp_path / "dest", "binary", cost=np.arange(N), shard_bytes=3000)
    x, labels = read(tmp_path / "dest")
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(labels, y)
    assert summary.labels == ("no", "yes")
    shard = open_dataset(Location(str(tmp_path / "dest"))).read(1).shard
    np.testing.assert_array_equal(shard.cost, np.arange(shard.first, shard.first + shard.n_examples))


def test_a_remote_destination_and_source():
    import fsspec

    with fsspec.open("memory://prepare/in.txt", "wb") as file:
        file.write(b"1 1:1\n-1 2:1\n")
    options = {"storage_options": {"skip_instance_cache": False}}
    [summary] = prepare("memory://prepare/in.txt", "memory://prepare/out", "binary", **options)
    assert summary.n_examples == 2


def test_trailing_columns_without_values_count(tmp_path):
    prepare_arrays(
        sp.csr_array((2, 30)) + sp.csr_array(([1.0], ([0], [3])), shape=(2, 30)), [0, 1], tmp_path / "a", "binary"
    )
    assert open_dataset(Location(str(tmp_path / "a"))).layout.n_features == 30
    prepare(svmlight(tmp_path / "data"), tmp_path / "b", "binary", n_features=50)
    assert open_dataset(Location(str(tmp_path / "b"))).layout.n_features == 50


def test_columns_past_2_to_the_31(tmp_path):
    x = sp.csr_array((np.ones(3), np.array([0, 5, 2**31 + 1]), np.array([0, 1, 2, 3])), shape=(3, 2**31 + 5))
    prepare_arrays(x, [1, 0, 1], tmp_path / "dest", "binary")
    shard = open_dataset(Location(str(tmp_path / "dest"))).read(0).shard
    np.testing.assert_array_equal(shard.x.indices, [0, 5, 2**31 + 1])


def test_rows_without_features_need_no_more_room_than_others(tmp_path):
    x = sp.csr_array(([1.0], ([0], [0])), shape=(50_000, 2))
    prepare_arrays(x, np.arange(50_000) % 2, tmp_path / "dest", "binary", shard_bytes=10_000)
    assert read(tmp_path / "dest")[0].sum() == 1


# --- shuffle and split


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("budget", [1 << 30, 4000], ids=["in memory", "spilled"])
def test_a_shuffled_data_set_holds_the_same_examples_in_another_order(tmp_path, monkeypatch, make, budget):
    monkeypatch.setattr(pipeline, "BUDGET_BYTES", budget)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        prepare_arrays(make(X), Y, tmp_path / name, "binary", shuffle=seed)
    (a, labels), (b, _), (c, _) = (read(tmp_path / name) for name in "abc")
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()
    assert (a != X).any()
    x, y = in_order(a, labels)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y.astype(str))


@pytest.mark.parametrize("shuffle", [None, 3])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_train_and_test_share_out_all_examples(tmp_path, shuffle, make):
    train, test = prepare_arrays(make(X), Y, tmp_path / "d", "binary", test_fraction=0.25, shuffle=shuffle)
    assert train.url.endswith("/train")
    assert test.url.endswith("/test")
    assert 60 < test.n_examples < 140
    assert train.n_features == test.n_features == 12
    (a, labels_a), (b, labels_b) = read(train.url), read(test.url)
    x, y = in_order(np.concatenate([a, b]), np.concatenate([labels_a, labels_b]))
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y.astype(str))
    assert {path.name for path in (tmp_path / "d").iterdir()} == {"train", "test"}


def test_the_split_depends_on_the_number_of_an_example_not_on_the_pieces_it_is_read_in(tmp_path):
    csr = sp.csr_array(X)
    np.savez(tmp_path / "d.npz", indptr=csr.indptr, indices=csr.indices, values=csr.data, y=Y)
    cut = [svmlight(tmp_path / "a", X[:3], Y[:3]), svmlight(tmp_path / "b", X[3:], Y[3:])]
    _, one = prepare(tmp_path / "d.npz", tmp_path / "one", "binary", test_fraction=0.3)
    _, other = prepare(cut, tmp_path / "other", "binary", test_fraction=0.3)
    np.testing.assert_array_equal(read(one.url)[0], read(other.url)[0])


def test_both_parts_are_as_wide_as_the_wider_one_and_share_their_labels(tmp_path):
    x = np.diag(np.arange(1.0, 31.0))
    y = np.where(np.arange(30) == 0, 0, 1)
    y[-1] = 0
    for seed in range(8):
        dest = tmp_path / str(seed)
        train, test = prepare_arrays(sp.csr_array(x), y, dest, "binary", test_fraction=0.2, shuffle=seed)
        assert train.n_features == test.n_features == 30
        assert train.labels == test.labels == ("0", "1")


def test_a_part_without_examples_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"dest/test: no example is left for it at a test_fraction of 1e-06"):
        prepare_arrays(X, Y, tmp_path / "dest", "binary", test_fraction=1e-6)
    assert_empty(tmp_path / "dest")


# --- scaling


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_unit_rows(tmp_path, make):
    x = X.copy()
    x[7] = 0
    prepare_arrays(make(x), Y, tmp_path / "dest", "binary", scale="unit-rows")
    np.testing.assert_allclose(read(tmp_path / "dest")[0], normalize(x), rtol=1e-6)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("fraction", [0.0, 0.3])
@pytest.mark.parametrize("shuffle", [None, 5])
def test_unit_variance_is_that_of_the_training_part(tmp_path, make, fraction, shuffle):
    options = {"test_fraction": fraction, "shuffle": shuffle}
    plain = prepare_arrays(make(X), Y, tmp_path / "plain", "binary", **options)
    scaled = prepare_arrays(make(X), Y, tmp_path / "scaled", "binary", scale="unit-variance", **options)
    scaler = StandardScaler(with_mean=False).fit(read(plain[0].url)[0].astype(np.float64))
    for before, after in zip(plain, scaled, strict=True):
        x = read(after.url)[0]
        np.testing.assert_allclose(x, scaler.transform(read(before.url)[0].astype(np.float64)), rtol=1e-6)
        np.testing.assert_array_equal(x[:, 5], 3.0)  # constant: left alone


@pytest.mark.parametrize("engine", ["compiled", "python"])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_variances_are_stable_and_add_up_over_blocks(monkeypatch, engine, offset):
    if engine == "python":
        monkeypatch.setattr(scale, "add_dense", add_dense.py_func)
        monkeypatch.setattr(scale, "add_sparse", add_sparse.py_func)
    x = (np.random.default_rng(1).normal(size=(300, 4)) + offset).astype(np.float32)
    x[:150, 1] = 0
    x[:, 2] = 7
    dense, sparse = ColumnSpread(), ColumnSpread()
    for part in np.split(x, [1, 10, 200]):
        csr = sp.csr_array(part)
        dense.add(DenseRows(part))
        sparse.add(CsrRows(csr.indptr.astype(np.int64), csr.indices.astype(np.int32), csr.data))
    expected = x.astype(np.float64).std(axis=0)
    expected[2] = 1.0
    np.testing.assert_allclose(dense.factors()[:4], expected, rtol=1e-9)
    np.testing.assert_allclose(sparse.factors()[:4], expected, rtol=1e-9)


def test_a_column_that_training_never_saw_stays_as_it_is(tmp_path):
    x = sp.csr_array(np.diag(np.arange(1.0, 41.0)))
    train, test = prepare_arrays(
        x, np.arange(40) % 2, tmp_path / "d", "binary", test_fraction=0.3, scale="unit-variance"
    )
    rows = read(test.url)[0]
    assert sorted(rows[rows > 0]) == sorted(np.flatnonzero(rows.any(axis=0)) + 1)
    assert train.n_examples + test.n_examples == 40


def test_scaling_that_overflows_is_refused(tmp_path):
    x = np.zeros((10, 2), dtype=np.float32)
    x[:, 0] = np.arange(10) * 1e-38
    x[3, 1] = 1.0
    test_row = None
    for seed in range(20):
        mask = pipeline.TestMask(Options(kind="binary", test_fraction=0.3, shuffle=seed)).next(10)
        if mask.any() and not mask[:4].any():
            test_row = int(np.flatnonzero(mask)[0])
            break
    assert test_row is not None
    x[test_row, 0] = 1e30
    with pytest.raises(InputError, match="too large for float32 once its column has unit variance"):
        prepare_arrays(
            x, np.arange(10) % 2, tmp_path / "d", "binary", test_fraction=0.3, shuffle=seed, scale="unit-variance"
        )
    assert_empty(tmp_path / "d")


# --- nothing half written


BAD_LINES = {
    "1 0:1": "line 501: feature index 0",
    "1 3:1 2:1": "line 501: the feature index in '2:1' is smaller",
    "1 3:1 3:1": "line 501: the feature index in '3:1' repeats",
    "1 what": "line 501: malformed token 'what'",
    "1 1:nan": "line 501: '1:nan' is NaN or infinite",
    "1 1:inf": "line 501: '1:inf' is NaN or infinite",
    "1 2147483648:1": "line 501: the feature index in '2147483648:1' is beyond",
    "3 1:1": "a binary problem has 2 labels, found more",
}


@pytest.mark.parametrize("line", BAD_LINES)
@pytest.mark.parametrize("options", [{}, {"shuffle": 1}, {"test_fraction": 0.2}, {"scale": "unit-variance"}], ids=str)
def test_a_bad_line_leaves_nothing_behind(tmp_path, monkeypatch, line, options):
    monkeypatch.setattr("distdual.data.sources.svmlight.blocks_from_svmlight.__defaults__", (1000,))
    source = tmp_path / "bad.txt"
    source.write_text("1 1:1 2:5\n-1 1:1 3:1\n" * 250 + line + "\n")
    with pytest.raises(InputError) as caught:
        prepare(source, tmp_path / "dest", "binary", shard_bytes=500, **options)
    assert BAD_LINES[line] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert_empty(tmp_path / "dest")


def failing_finish(monkeypatch, name):
    real = pipeline.DatasetWriter.finish

    def finish(self):
        real(self)
        if str(self.location).endswith(name):
            raise InputError("the disk is gone")

    monkeypatch.setattr(pipeline.DatasetWriter, "finish", finish)


@pytest.mark.parametrize("name", ["train", "test"])
def test_if_one_part_fails_neither_is_left(tmp_path, monkeypatch, name):
    failing_finish(monkeypatch, name)
    with pytest.raises(InputError, match="the disk is gone"):
        prepare_arrays(X, Y, tmp_path / "dest", "binary", test_fraction=0.5)
    assert_empty(tmp_path / "dest")


def test_one_part_finished_by_a_run_that_was_killed_is_replaced(tmp_path):
    prepare_arrays(X, Y, tmp_path / "dest" / "train", "binary")
    (tmp_path / "dest" / UNFINISHED).touch()
    train, _ = prepare_arrays(X, Y, tmp_path / "dest", "binary", test_fraction=0.5)
    assert train.n_examples < N
    assert not (tmp_path / "dest" / UNFINISHED).exists()


@pytest.mark.parametrize("options", [{}, {"test_fraction": 0.5}], ids=str)
def test_what_is_already_there_is_kept_unless_told_otherwise(tmp_path, options):
    prepare_arrays(X, Y, tmp_path / "dest", "binary", **options)
    files = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match="is not empty"):
        prepare_arrays(X[:50], Y[:50], tmp_path / "dest", "binary", **options)
    assert sorted(tmp_path.rglob("*")) == files
    written = prepare_arrays(X[:50], Y[:50], tmp_path / "dest", "binary", overwrite=True, **options)
    assert sum(summary.n_examples for summary in written) == 50


def test_a_source_that_cannot_be_read_does_not_cost_the_old_data_set(tmp_path):
    prepare_arrays(X, Y, tmp_path / "dest", "binary")
    (tmp_path / "bad.txt").write_text("1 1:x\n")
    for source in ("bad.txt", "missing.txt"):
        with pytest.raises(InputError, match=source):
            prepare(tmp_path / source, tmp_path / "dest", "binary", format="svmlight", overwrite=True)
    np.testing.assert_array_equal(read(tmp_path / "dest")[0], X)


def test_a_data_set_in_the_way_of_train_and_test_is_kept(tmp_path):
    prepare_arrays(X, Y, tmp_path / "dest", "binary")
    with pytest.raises(InputError, match="holds a data set"):
        prepare_arrays(X, Y, tmp_path / "dest", "binary", test_fraction=0.5, overwrite=True)
    np.testing.assert_array_equal(read(tmp_path / "dest")[0], X)


KILLED = """
    import sys, time
    from distdual.data.storage.location import Location
    from distdual.data.sources import svmlight
    from distdual.data.prepare.api import prepare
    from distdual.data.prepare import api as module

    def slowly(file):
        for block in svmlight.blocks_from_svmlight(file, 2000):
            time.sleep(0.005)
            yield block

    module.blocks_from_svmlight = slowly
    prepare(sys.argv[1], sys.argv[2], "binary", shard_bytes=1000, test_fraction=float(sys.argv[3]))
"""


@pytest.mark.parametrize("fraction", [0.0, 0.3])
def test_a_killed_run_leaves_nothing_that_opens_and_a_new_run_succeeds(tmp_path, fraction):
    source = tmp_path / "data"
    source.write_bytes(b"".join(b"%d 1:%d 2:1 7:3\n" % (2 * (k % 2) - 1, k + 1) for k in range(100_000)))
    dest = tmp_path / "dest"
    run = subprocess.Popen([sys.executable, "-c", textwrap.dedent(KILLED), str(source), str(dest), str(fraction)])
    places = [dest / "train", dest / "test"] if fraction else [dest]
    until = time.monotonic() + 60
    while not all((place / "y" / "c" / "3").exists() for place in places) and time.monotonic() < until:
        assert run.poll() is None
        time.sleep(0.01)
    os.kill(run.pid, signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL

    for place in places:
        assert (place / "zarr.json").exists()  # or the test would show nothing
        with pytest.raises(InputError, match="incomplete"):
            open_dataset(Location(str(place)))

    written = prepare(source, dest, "binary", test_fraction=fraction)
    assert sum(summary.n_examples for summary in written) == 100_000


# --- bad options and sources


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"kind": "ternary"},
            "problem must be one of 'binary', 'multivariate', 'multiclass', 'regression', ",
        ),
        ({"scale": "minmax"}, "scale must be one of 'none', 'unit-variance', 'unit-rows', got 'minmax'"),
        ({"shard_bytes": 0}, "shard_bytes must be positive, got 0"),
        ({"shuffle": -1}, "shuffle takes a seed of 0 or more, got -1"),
        ({"test_fraction": 1.0}, "test_fraction must be at least 0 and below 1, got 1.0"),
        ({"test_fraction": -0.1}, "test_fraction must be at least 0 and below 1, got -0.1"),
        ({"test_fraction": float("nan")}, "test_fraction must be at least 0 and below 1, got nan"),
        ({"n_features": 0}, "n_features must be positive, got 0"),
        ({"n_features": 3}, "has 12 features, more than the n_features of 3"),
        (
            {"format": "xls"},
            "format must be one of 'csv', 'parquet', 'svmlight', 'svmhmm', ",
        ),
        ({"labels": ["y.npy"]}, "each .npy source needs a file of labels: 0 sources, 1 files of labels"),
    ],
)
def test_bad_options_are_one_sentence(tmp_path, options, message):
    source = svmlight(tmp_path / "data")
    with pytest.raises(InputError) as caught:
        prepare(source, tmp_path / "dest", **{"kind": "binary", **options})
    assert message in str(caught.value)
    assert_empty(tmp_path / "dest")


def test_an_option_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(TypeError, match="shufle"):
        prepare_arrays(X, Y, tmp_path / "dest", "binary", shufle=1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"1,2,3\n4,5,6\n", "cannot tell the format"),
        (b"1 2 3\n", "cannot tell the format"),
        (b"1\n-1\n", "cannot tell the format"),
        (b"NN qid:1 1:1\n", "cannot tell the format"),
        (b"\x00\x01\x02\x03:" * 100, "cannot tell the format"),
    ],
)
def test_a_format_that_is_not_clear_must_be_named(tmp_path, content, message):
    (tmp_path / "data").write_bytes(content)
    with pytest.raises(InputError, match=message):
        prepare(tmp_path / "data", tmp_path / "dest", "binary")


def test_a_file_of_comments_holds_no_examples(tmp_path):
    (tmp_path / "data").write_text("# nothing\n\n")
    with pytest.raises(InputError, match="data: there are no examples"):
        prepare(tmp_path / "data", tmp_path / "dest", "binary", format="svmlight")
    with pytest.raises(InputError, match="no source file was given"):
        prepare([], tmp_path / "dest", "binary")


def test_rows_without_any_feature_have_no_width(tmp_path):
    (tmp_path / "data").write_text("1\n-1\n")
    with pytest.raises(InputError, match="no example has any feature; give n_features"):
        prepare(tmp_path / "data", tmp_path / "dest", "binary", format="svmlight")
    assert_empty(tmp_path / "dest")


def test_a_long_first_line_does_not_hide_the_format(tmp_path):
    line = "1 " + " ".join(f"{k}:1" for k in range(1, 40_000))
    (tmp_path / "data").write_text(f"{line}\n-1 1:1\n")
    [summary] = prepare(tmp_path / "data", tmp_path / "dest", "binary")
    assert summary.n_features == 39_999


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"x": X[:, :5], "y": Y}, "b.npz has dense rows of 5 features, but what came before it has dense rows of 12"),
        (
            {"x": X, "y": Y.astype(str)},
            "b.npz has labels that are text, but what came before it has labels that are numbers",
        ),
        ({"x": X, "y": Y, "cost": np.ones(N)}, "b.npz has costs, but what came before it has no costs"),
        ({"x": X, "y": Y, "margin": np.ones(N)}, "b.npz has margins, but what came before it has no margins"),
    ],
)
def test_sources_that_do_not_go_together_are_refused(tmp_path, second, message):
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    np.savez(tmp_path / "b.npz", **second)
    with pytest.raises(InputError) as caught:
        prepare([tmp_path / "a.npz", tmp_path / "b.npz"], tmp_path / "dest", "binary")
    assert message in str(caught.value)
    assert_empty(tmp_path / "dest")


def test_dense_and_sparse_sources_do_not_mix(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    with pytest.raises(InputError, match="data has sparse rows"):
        prepare([tmp_path / "a.npz", svmlight(tmp_path / "data")], tmp_path / "dest", "binary")
    assert_empty(tmp_path / "dest")


# --- memory

MEASURED = """
    import sys
    from distdual.data.prepare.api import prepare

    labels = sys.argv[3:]
    [summary] = prepare(sys.argv[1], sys.argv[2], "binary", shuffle=0, labels=labels)
    # Not ru_maxrss: a process that was started without a fork of its own takes over its parent's peak.
    [peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
    print(summary.n_examples, int(peak) // 1024)
"""


def measure(*arguments: Path) -> tuple[int, int]:
    """Examples written, and the most memory in MB that a fresh process took for it."""
    command = [sys.executable, "-c", textwrap.dedent(MEASURED), *map(str, arguments)]
    examples, megabytes = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(examples), int(megabytes)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_three_gigabytes_of_dense_features_are_shuffled_in_less_than_one(tmp_path):
    n, width = 6_000_000, 128
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (n, width))
    random = np.random.default_rng(0)
    for begin in range(0, n, 100_000):
        x[begin : begin + 100_000] = random.random((100_000, width), dtype=np.float32)
    x.flush()
    del x
    np.save(tmp_path / "y.npy", random.integers(0, 2, n))
    examples, megabytes = measure(tmp_path / "x.npy", tmp_path / "dest", tmp_path / "y.npy")
    assert examples == n
    assert megabytes < 1000, megabytes


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_gigabyte_of_text_is_shuffled_in_less_than_one(tmp_path):
    random = np.random.default_rng(0)
    x = sp.random(20_000, 5000, 0.01, random_state=random)
    text = svmlight(tmp_path / "piece", x, random.choice([-1, 1], 20_000)).read_bytes()
    times = (1 << 30) // len(text)
    with open(tmp_path / "data", "wb") as file:
        for _ in range(times):
            file.write(text)
    examples, megabytes = measure(tmp_path / "data", tmp_path / "dest")
    assert examples == 20_000 * times
    assert megabytes < 1000, megabytes
