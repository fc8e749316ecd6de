"""Estimators on a Dask cluster."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import distdual
from distdual.cluster.dask_client import connect
from distdual.cluster.dask_executor import DaskExecutor
from distdual.cluster.threads import InlineExecutor
from distdual.config import ClusterConfig, LocalCluster
from distdual.data import in_memory as memory
from distdual.data.prepare.api import prepare_arrays
from tests.build import examples
from tests.coordinator.test_latent_loop import planted


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with connect(ClusterConfig(local=LocalCluster(workers=2, threads=1, memory="1GiB"))) as connected:
        yield connected


@pytest.fixture(autouse=True)
def small_shards() -> Iterator[None]:
    with patch.object(memory, "PIECE_BYTES", 2000):
        yield


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_arrays_are_sent_to_workers_and_give_the_same_weights_as_threads(client: Any, form: Any) -> None:
    made = examples(2, 400, 8)
    here = distdual.SVC(0.1).fit(form(made.x), made.y)
    there = distdual.SVC(0.1, client=client)
    with patch.object(InlineExecutor, "reports", side_effect=AssertionError("a thread scans")):
        there.fit(form(made.x), made.y)
    assert there.certificate_["n_shards"] > 4
    np.testing.assert_array_equal(there.coef_, here.coef_)
    assert there.certificate_["lower"] == here.certificate_["lower"]


def test_without_a_client_no_cluster_is_started() -> None:
    made = examples(2, 400, 8)
    with patch.object(DaskExecutor, "__init__", side_effect=AssertionError("a cluster")):
        assert distdual.SVC(0.1).fit(made.x, made.y).certificate_["certified"]


def test_partial_fit_and_data_sets_use_the_client(client: Any, tmp_path: Path) -> None:
    made = examples(2, 400, 8)
    url = str(tmp_path / "data")
    prepare_arrays(made.x, made.y, url, "binary", shard_bytes=2000)
    model = distdual.SVC(0.1, client=client, class_weight="balanced")
    with patch.object(InlineExecutor, "__init__", side_effect=AssertionError("threads")):
        model.partial_fit(made.x[:200], made.y[:200]).partial_fit(made.x[200:], made.y[200:])
        grown = model.certificate_
        model.fit(url)
        assert model.score(url) == pytest.approx(model.score(made.x, made.y))
    assert grown["lower"] <= model.certificate_["upper"]
    assert model.certificate_["lower"] <= grown["upper"]


def test_sparse_shards_are_sent_without_the_values_of_others(client: Any) -> None:
    x = sp.random_array((1000, 50), density=0.2, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    data = memory.in_memory(x, np.arange(1000) % 2)
    assert data.n_shards > 10
    assert sum(len(pickle.dumps(data.only(s))) for s in range(data.n_shards)) < 2 * data.nbytes
    alone = data.only(3).open().read(3).shard
    np.testing.assert_array_equal(alone.x.values, x[data.first[3] : data.first[4]].data)
    assert data.nbytes < 2 * (x.data.nbytes + x.indices.nbytes + x.indptr.nbytes)


def test_a_clone_has_the_client_and_a_pickle_has_not(client: Any) -> None:
    made = examples(2, 100, 4)
    model = distdual.SVC(0.1, client=client).fit(made.x, made.y)
    assert clone(model).client is client
    assert not hasattr(clone(model), "coef_")
    again = pickle.loads(pickle.dumps(model))
    assert again.client is None
    np.testing.assert_array_equal(again.predict(made.x), model.predict(made.x))


def test_bags_are_trained_and_scored_on_workers(client: Any, tmp_path: Path) -> None:
    made = planted(5, n=30)
    y = [part[0] for part in made.y]
    prepare_arrays(made.x, made.y, tmp_path / "data", "latent", shard_bytes=800)
    here = distdual.LatentSVM().fit(str(tmp_path / "data"))
    with patch.object(InlineExecutor, "reports", side_effect=AssertionError("a thread scans")):
        there = distdual.LatentSVM(client=client).fit(str(tmp_path / "data"))
        sent = distdual.LatentSVM(client=client).fit(made.x, y)
    np.testing.assert_array_equal(there.coef_, here.coef_)
    assert there.score(str(tmp_path / "data")) == here.score(str(tmp_path / "data")) == sent.score(made.x, y)
