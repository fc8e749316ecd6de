"""Rankings from files and arrays to a verified model and its scores, and the optimum of all pairs."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

import distdual
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare_arrays
from distdual.data.shard import Shard
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.problems.ranking.problem import Ranking
from distdual.testing import dense
from tests.problems.ranking.queries import pairwise_objective, queries
from tests.shell import assert_refused, call

SIZES = [5, 1, 8, 3, 6, 7, 4, 9, 2, 6, 5, 8]


def shard_with_order() -> Shard:
    """Labels that follow a linear score, with noise."""
    shard = queries(5, SIZES, width=4, grades=3)
    score = dense(shard.x, 4) @ [1.0, -0.5, 0.25, 0.0] + 0.3 * np.random.default_rng(5).normal(size=sum(SIZES))
    return replace(shard, y=np.digitize(score, [-0.5, 0.5]).astype(np.float64))


def config_of(url, model, **problem):
    return {
        "data": {"url": str(url)},
        "problem": {"kind": "ranking", **problem},
        "solver": {"C": 2.0, "gap": 1e-4},
        "output": {"url": str(model)},
    }


@pytest.mark.parametrize(
    "problem", [{}, {"gain": "exponential", "normalise": False}, {"gain": "linear"}], ids=["pairs", "gains", "linear"]
)
def test_the_optimum_is_that_of_all_pairs(tmp_path, problem):
    shard = shard_with_order()
    qid = np.repeat(np.arange(len(SIZES)), SIZES)
    sparse = scipy.sparse.csr_matrix(dense(shard.x, 4)) if problem else dense(shard.x, 4)
    prepare_arrays(sparse, shard.y, tmp_path / "data", "ranking", qid=qid, shard_bytes=300)
    assert open_dataset(Location(str(tmp_path / "data"))).n_shards > 1
    found = distdual.train(config_of(tmp_path / "data", tmp_path / "model", **problem)).certificate
    assert found["certified"]
    expected = pairwise_objective(Ranking(n_features=4, **problem), shard, 2.0)
    assert found["upper"] == pytest.approx(expected, rel=1e-3)
    assert found["lower"] <= expected * (1 + 1e-7)
    checked = distdual.verify(str(tmp_path / "model"))
    assert checked.certified, checked.findings


@pytest.mark.parametrize("slack", ["block:4", "all"])
def test_queries_may_share_a_slack(tmp_path, slack):
    shard = shard_with_order()
    prepare_arrays(dense(shard.x, 4), shard.y, tmp_path / "data", "ranking", lengths=SIZES, shard_bytes=300)
    config = config_of(tmp_path / "data", tmp_path / "model")
    config["solver"] |= {"slack": slack, "gap": 1e-2}
    assert distdual.train(config).certificate["certified"]
    assert distdual.verify(str(tmp_path / "model")).certified


LETOR = """2 qid:1 1:0.9 2:0.1 # doc a
0 qid:1 1:0.1 2:0.3
1 qid:1 1:0.5 2:0.2
0 qid:7 1:0.2 2:0.9
1 qid:7 1:0.8 2:0.7
"""


@pytest.mark.parametrize("named", [[], ["--format", "svmlight"]])
def test_letor_text_is_trained_verified_and_scored(tmp_path, capsys, named):
    (tmp_path / "queries.txt").write_text(LETOR)
    (tmp_path / "run.toml").write_text(
        f'data.url = "{tmp_path}/data"\noutput.url = "{tmp_path}/model"\nproblem = {{kind = "ranking", cutoff = 2}}\n'
    )
    assert (
        call(capsys, "prepare", tmp_path / "queries.txt", tmp_path / "data", "--problem", "ranking", *named).code == 0
    )
    assert call(capsys, "train", tmp_path / "run.toml").code == 0
    assert call(capsys, "verify", tmp_path / "model").code == 0
    for source in ("data", "queries.txt"):
        ran = call(capsys, "predict", tmp_path / "model", tmp_path / source, "--out", tmp_path / "out.txt", "--json")
        assert ran.code == 0, ran.err
        score = json.loads(ran.out)["score"]
        assert {"ndcg@2", "map", "mrr", "pairwise_accuracy"} == set(score)
        assert score["pairwise_accuracy"] == 1.0
        assert np.loadtxt(tmp_path / "out.txt").argsort().tolist()[-1] == 0


def test_queries_and_documents_are_called_so(tmp_path, capsys):
    (tmp_path / "queries.txt").write_text(LETOR)
    assert call(capsys, "prepare", tmp_path / "queries.txt", tmp_path / "data", "--problem", "ranking").code == 0
    found = json.loads(call(capsys, "info", tmp_path / "data", "--json").out)
    assert (found["queries"], found["documents"]) == (2, 5)
    assert not {"examples", "tokens"} & set(found)
    options = ("--problem", "ranking", "--format", "npz")
    np.savez(tmp_path / "rows.npz", x=np.eye(2), y=[0, 1])
    assert_refused(
        call(capsys, "prepare", tmp_path / "rows.npz", tmp_path / "b", *options), "ranking problem needs queries"
    )


def test_a_query_that_comes_back_is_refused(tmp_path, capsys):
    (tmp_path / "queries.txt").write_text(LETOR + "1 qid:1 1:0.3\n")
    ran = call(capsys, "prepare", tmp_path / "queries.txt", tmp_path / "data", "--problem", "ranking")
    assert_refused(ran, "line 6", "comes back")


def test_a_sweep_chooses_by_ndcg(tmp_path):
    shard = shard_with_order()
    prepare_arrays(dense(shard.x, 4), shard.y, tmp_path / "data", "ranking", lengths=SIZES)
    found = distdual.sweep(config_of(tmp_path / "data", tmp_path / "model"), C="0.1,1", folds=2)
    assert found.score == "ndcg@10"


def test_an_npz_file_may_name_the_query_of_each_row(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", x=np.eye(5, 2), y=[2, 0, 1, 0, 1], qid=[3, 3, 3, 1, 1], cost=[1.0, 2.0])
    assert call(capsys, "prepare", tmp_path / "a.npz", tmp_path / "data", "--problem", "ranking").code == 0
    shard = open_dataset(Location(str(tmp_path / "data"))).read(0).shard
    assert shard.tokens.tolist() == [0, 3, 5]
    np.savez(tmp_path / "b.npz", x=np.eye(3, 2), y=[2, 0, 1], qid=[3, 1, 3])
    ran = call(capsys, "prepare", tmp_path / "b.npz", tmp_path / "bad", "--problem", "ranking")
    assert_refused(ran, "rows of query 3 are apart", "sort")


def test_single_rows_are_no_queries(tmp_path, capsys):
    np.savez(tmp_path / "rows.npz", x=np.eye(2), y=np.array([1, 0]))
    ran = call(capsys, "prepare", tmp_path / "rows.npz", tmp_path / "data", "--problem", "ranking")
    assert_refused(ran, "holds single rows", "ranking problem needs queries")


def test_both_ways_to_tell_queries_are_refused():
    with pytest.raises(InputError, match="leave one out"):
        prepare_arrays(np.eye(2), np.zeros(2), "nowhere", "ranking", lengths=[2], qid=[1, 1])
