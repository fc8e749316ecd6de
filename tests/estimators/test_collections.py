"""Dask arrays and data frames: trained on where they are, predicted lazily."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import distdual
from distdual.cluster.collection import CollectionDataset
from distdual.cluster.dask_client import connect
from distdual.config import ClusterConfig, LocalCluster
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location
from distdual.errors import InputError
from tests.build import examples

MADE = examples(2, 400, 8)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with connect(ClusterConfig(local=LocalCluster(workers=2, threads=1, memory="1GiB"))) as connected:
        yield connected


@pytest.fixture(autouse=True)
def never_here() -> Iterator[None]:
    with patch.object(CollectionDataset, "read", side_effect=AssertionError("a shard came to the client")):
        yield


def computed(client: Any, lazy: Any) -> Any:
    return client.compute(lazy).result()


def persisted(client: Any, chunks: Any = 100) -> tuple[Any, Any]:
    x, y = da.from_array(MADE.x, chunks=(chunks, 5)), da.from_array(MADE.y, chunks=chunks)
    return client.persist(x), client.persist(y)


@pytest.mark.parametrize("labels", [MADE.y, np.array(["no", "yes"])[MADE.y], np.arange(400) % 3])
def test_weights_are_those_of_a_prepared_data_set_with_the_same_shards(
    client: Any, tmp_path: Path, labels: Any
) -> None:
    kind = "multiclass" if len(set(labels.tolist())) > 2 else "binary"
    prepare_arrays(MADE.x, labels, tmp_path / "data", kind, shard_bytes=4000)
    cuts = tuple(open_dataset(Location(str(tmp_path / "data"))).lengths[:, 0].tolist())
    assert len(cuts) > 2
    stored = distdual.SVC(0.1, client=client).fit(tmp_path / "data")
    x, y = da.from_array(MADE.x, chunks=(cuts, 8)), da.from_array(labels, chunks=(cuts,))
    model = distdual.SVC(0.1, client=client).fit(client.persist(x), client.persist(y))
    np.testing.assert_array_equal(model.coef_, stored.coef_)
    assert model.certificate_["certified"]
    for bound in ("lower", "upper"):
        assert model.certificate_[bound] == stored.certificate_[bound]
    assert model.classes_.tolist() == np.unique(labels).tolist()


def test_a_model_of_a_collection_is_verified_with_it(client: Any, tmp_path: Path) -> None:
    x, y = persisted(client)
    distdual.SVC(0.1, client=client).fit(x, y).save(tmp_path / "model")
    found = distdual.verify(tmp_path / "model", (x, y), client)
    assert (found.certified, found.findings) == (True, ())
    other = distdual.verify(tmp_path / "model", (x, 1 - y), client)
    assert not other.certified
    assert any("shards 0, 1, 2, 3 differ" in finding for finding in other.findings)
    with pytest.raises(InputError, match=r"pass that to verify as \(X, y\)"):
        distdual.verify(tmp_path / "model")
    with pytest.raises(InputError, match=r"a tuple to verify with is \(X, y\)"):
        distdual.verify(tmp_path / "model", (MADE.x, MADE.y))


def test_workers_prepare_what_they_hold(client: Any, tmp_path: Path) -> None:
    x, y = persisted(client)
    with client.as_current(), patch("distdual.data.prepare.api.blocks_from_arrays", side_effect=AssertionError):
        prepare_arrays(x, y, tmp_path / "data", "binary", shard_bytes=3200)
    stored = distdual.SVC(0.1, client=client).fit(tmp_path / "data")
    model = distdual.SVC(0.1, client=client).fit(x, y)
    np.testing.assert_array_equal(model.coef_, stored.coef_)


def test_predictions_are_lazy(client: Any) -> None:
    x, y = persisted(client)
    model = distdual.SVC(0.1).fit(x, y)  # with the client that holds x
    expected = distdual.SVC(0.1).fit(MADE.x, MADE.y)
    found = model.predict(x)
    assert isinstance(found, da.Array)
    assert (found.dtype, found.shape, found.chunks) == (MADE.y.dtype, (400,), y.chunks)
    assert np.mean(computed(client, found) == expected.predict(MADE.x)) > 0.98
    np.testing.assert_array_equal(computed(client, model.decision_function(x)), model.decision_function(MADE.x))
    with client.as_current():
        assert model.score(x, y) == model.score(MADE.x, MADE.y)


def test_scores_of_several_classes_have_a_column_for_each(client: Any) -> None:
    x, _ = persisted(client)
    model = distdual.SVC(0.01, client=client).fit(x, np.arange(400) % 3, sample_weight=np.ones(400))
    scores = model.decision_function(x)
    assert scores.shape == (400, 3)
    np.testing.assert_allclose(computed(client, scores), model.decision_function(MADE.x))


def test_sparse_blocks_and_targets(client: Any) -> None:
    import scipy.sparse as sp

    x = da.from_array(MADE.x, chunks=(100, 8)).map_blocks(sp.csr_array)
    y = MADE.x[:, 0] * 2.0
    model = distdual.SVR(1.0, client=client).fit(x, da.from_array(y, chunks=100))
    np.testing.assert_allclose(model.coef_, distdual.SVR(1.0).fit(MADE.x, y).coef_, atol=0.1)


class TestFrames:
    def test_a_frame_is_trained_on_and_predicted(self, client: Any) -> None:
        frame = pd.DataFrame(MADE.x, columns=[f"x{k}" for k in range(8)]).assign(y=MADE.y)
        parts = client.persist(dd.from_pandas(frame, npartitions=3))
        columns = parts.drop(columns="y")
        model = distdual.SVC(0.1, client=client).fit(columns, parts["y"], parts["y"] * 0 + 1.0)
        assert model.feature_names_in_.tolist() == [f"x{k}" for k in range(8)]
        found = model.predict(columns)
        assert (found.name, found.dtype, found.npartitions) == ("prediction", MADE.y.dtype, 3)
        pd.testing.assert_series_equal(
            computed(client, found),
            pd.Series(model.predict(frame.drop(columns="y")), name="prediction", index=frame.index),
        )
        assert computed(client, model.decision_function(columns)).shape == (400,)

    def test_a_column_of_texts_is_named(self, client: Any) -> None:
        frame = dd.from_pandas(pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}), npartitions=1)
        with pytest.raises(InputError, match="partition 0 of X: column 'b' holds no numbers"):
            distdual.SVC(client=client).fit(frame, frame["a"])


class TestRefused:
    def test_partitions_that_do_not_match(self, client: Any) -> None:
        x, _ = persisted(client)
        with pytest.raises(InputError, match="y has the shape"):
            distdual.SVC(client=client).fit(x, MADE.y[:300])
        unknown = dd.from_pandas(pd.Series(MADE.y), npartitions=3)
        with pytest.raises(InputError, match="y has 3 partitions, X has 4"):
            distdual.SVC(client=client).fit(x, unknown)

    def test_values_that_are_none(self, client: Any) -> None:
        x = da.from_array(np.where(np.arange(400)[:, None] == 150, np.nan, MADE.x), chunks=(100, 8))
        with pytest.raises(InputError, match="partition 1 of X, row 50"):
            distdual.SVC(client=client).fit(x, MADE.y)

    def test_negative_weights(self, client: Any) -> None:
        x, y = persisted(client)
        with pytest.raises(InputError, match=r"partition . of sample_weight: -1 is negative"):
            distdual.SVC(client=client).fit(x, y, da.full(400, -1.0, chunks=100))


def test_large_partitions_are_several_shards(client: Any) -> None:
    x, y = persisted(client, chunks=400)
    with patch("distdual.cluster.collection.PARTITION_SHARD_BYTES", 3000):
        model = distdual.SVC(0.1, client=client).fit(x, y)
    assert model.certificate_["n_shards"] > 3
    assert model.certificate_["certified"]


def test_what_a_dead_worker_held_is_computed_again() -> None:
    with connect(ClusterConfig(local=LocalCluster(workers=2, threads=1, memory="1GiB"))) as client:
        x, y = persisted(client)
        client.gather(client.compute([x.sum(), y.sum()]))
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        model = distdual.SVC(0.1, client=client).fit(x, y)
        assert model.certificate_["certified"]
