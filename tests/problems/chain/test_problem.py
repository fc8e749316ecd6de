"""Sequence tagging keeps the contract, with all taggings written out."""

import contextlib
import csv
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import distdual
from distdual.data.in_memory import sequences_in_memory
from distdual.data.prepare.api import prepare_arrays
from distdual.data.shard import Shard
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.model.predict import predict, predict_to
from distdual.problems.base import Keys
from distdual.problems.chain.forbidden import allowed_by
from distdual.problems.chain.problem import Chain
from distdual.testing import ProblemContract, python_kernels
from tests import naive
from tests.build import as_sparse, compiling, rows_of

TAGS = ("d", "n", "v")


def sequences(seed: int, lengths: list[int], *, n_tags: int = 3, width: int = 3, cost: bool = False) -> Shard:
    """Features are eighths, so that sums of them are exact in single precision."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    x = np.round(8 * rng.normal(size=(n, width))) / 8 * (rng.random((n, width)) < 0.7)
    x[:, 0] += x[:, 0] == 0.0
    y = rng.integers(n_tags, size=n).astype(np.int32)
    tokens = np.concatenate([[0], np.cumsum(lengths)])
    return Shard(2, 30, rows_of(x, sparse=False), y, rng.uniform(0, 2, len(lengths)) if cost else None, None, tokens)


def joint_features(problem: Chain, features: Any, tags: Any) -> Any:
    """φ(x, y), token by token."""
    n_tags = len(problem.classes)
    emission = np.zeros((problem.n_features, n_tags))
    pairs, ends = np.zeros((n_tags, n_tags)), np.zeros((2, n_tags))
    observed, triples = np.zeros((problem.edge_features, n_tags, n_tags)), np.zeros((n_tags, n_tags, n_tags))
    for t, tag in enumerate(tags):
        emission[:, tag] += features[t]
        if t:
            pairs[tags[t - 1], tag] += 1
            observed[:, tags[t - 1], tag] += features[t][: problem.edge_features]
        if t > 1:
            triples[tags[t - 1], tags[t - 2], tag] += 1
    ends[0, tags[0]] += 1
    ends[1, tags[-1]] += 1
    parts = [emission.ravel(), *([pairs.ravel()] * problem.transitions), observed.ravel()]
    parts += [triples.ravel()] * (problem.order == 2) + [ends.ravel()] * problem.boundaries
    return np.concatenate(parts)


def is_allowed(problem: Chain, tags: Any) -> bool:
    """Whether no pair is named by `forbidden`, which is not "iob2" here."""
    names = ["<BOS>", *(problem.classes[tag] for tag in tags), "<EOS>"]
    return not any(f"{a} {b}" in problem.forbidden for a, b in itertools.pairwise(names))


def every_tagging(problem: Chain, shard: Shard, i: int) -> dict[tuple[int, ...], tuple[Any, float, float]]:
    """Written out: all wrong taggings of sequence i."""
    at = slice(shard.tokens[i], shard.tokens[i + 1])
    features, y = naive.dense(shard.x, problem.n_features)[at], shard.y[at]
    right = joint_features(problem, features, y)
    cost = 1.0 if shard.cost is None else float(shard.cost[i])
    found = {}
    for tags in itertools.product(range(len(problem.classes)), repeat=len(y)):
        wrong = [t for t in range(len(y)) if tags[t] != y[t]]
        loss = sum(float(problem.tag_cost.get(problem.classes[y[t]], 1.0)) for t in wrong)
        if wrong and is_allowed(problem, tags):
            row = right - joint_features(problem, features, tags)
            found[tags] = (row * (loss if problem.rescaling == "slack" else 1.0), loss, cost)
    return found


class ChainContract(ProblemContract):
    modules = tuple(f"distdual.problems.chain.{name}" for name in ("viterbi", "slack_rescaled", "path_rows"))
    every_constraint = staticmethod(every_tagging)


class TestChain(ChainContract):
    problem, shard = Chain(n_features=3, classes=TAGS), sequences(0, [3, 1, 2, 4])


class TestChainWithoutBoundaries(ChainContract):
    problem, shard = Chain(n_features=3, classes=TAGS, boundaries=False), sequences(1, [2, 4, 1], cost=True)


class TestChainWithoutTransitions(ChainContract):
    problem = Chain(n_features=3, classes=TAGS, transitions=False, tag_cost={"n": 2.5, "v": 0})
    shard = sequences(2, [3, 2])


class TestChainWithSlackRescaling(ChainContract):
    problem = Chain(n_features=3, classes=TAGS, rescaling="slack", tag_cost=dict.fromkeys(TAGS, 0.5))
    shard = sequences(3, [3, 1, 4], cost=True)


class TestChainWithSlackRescalingAndEmissionsAlone(ChainContract):
    problem = Chain(n_features=3, classes=TAGS, rescaling="slack", transitions=False, boundaries=False)
    shard = sequences(4, [2, 3])


class TestChainOfSecondOrder(ChainContract):
    problem, shard = Chain(n_features=3, classes=TAGS, order=2), sequences(5, [3, 1, 2, 4], cost=True)


class TestChainWithEdgeFeatures(ChainContract):
    problem, shard = Chain(n_features=3, classes=TAGS, edge_features=2), sequences(6, [3, 1, 4])


class TestChainWithForbiddenPairs(ChainContract):
    problem = Chain(n_features=3, classes=TAGS, forbidden=["d n", "<BOS> v", "n <EOS>"], transitions=False)
    shard = replace(sequences(7, [4, 2, 3]), y=np.array([1, 1, 2, 0, 0, 0, 0, 0, 2], dtype=np.int32))


class TestChainWithForbiddenPairsAndSlackRescaling(ChainContract):
    problem = Chain(n_features=3, classes=TAGS, forbidden=["d n", "<BOS> v", "n <EOS>"], rescaling="slack")
    shard = TestChainWithForbiddenPairs.shard


class TestChainWithEverything(ChainContract):
    problem = Chain(
        n_features=3, classes=TAGS, order=2, edge_features=3, forbidden=["d n", "v <EOS>"], boundaries=False
    )
    shard = replace(sequences(8, [4, 1, 3]), y=np.array([1, 1, 2, 0, 0, 0, 0, 0], dtype=np.int32))


@given(
    seed=st.integers(0, 10**6),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    n_tags=st.integers(2, 4),
    rescaling=st.sampled_from(["margin", "slack"]),
    transitions=st.booleans(),
    boundaries=st.booleans(),
    weighted=st.booleans(),
    sparse=st.booleans(),
    pairs=st.sampled_from([{}, {"order": 2}, {"edge_features": 2}, {"order": 2, "edge_features": 3}]),
)
@compiling
def test_the_oracle_equals_brute_force(
    seed, lengths, n_tags, rescaling, transitions, boundaries, weighted, sparse, pairs
):
    tags = tuple("abcd"[:n_tags])
    tag_cost = {tag: 0.5 + k for k, tag in enumerate(tags)} if weighted and rescaling == "margin" else {}
    problem = Chain(
        n_features=3,
        classes=tags,
        rescaling=rescaling,
        transitions=transitions,
        boundaries=boundaries,
        tag_cost=tag_cost,
        **(pairs if transitions and rescaling == "margin" else {}),
    )
    shard = sequences(seed, lengths, n_tags=n_tags)
    w = np.random.default_rng(seed).normal(size=problem.n_weights)
    given_shard = as_sparse(shard) if sparse else shard
    found = problem.offenders(w, given_shard)
    built = problem.constraints(given_shard, np.arange(len(lengths)), found.keys)
    rows = naive.dense(built.rows, problem.n_weights)
    predicted = problem.predict(w, given_shard)
    for i in range(len(lengths)):
        every = every_tagging(problem, shard, i)
        worst = max(margin - row @ w for row, margin, _ in every.values())
        assert found.slack[i] == pytest.approx(max(0.0, worst), rel=1e-9, abs=1e-9)
        if found.slack[i] > 0:
            assert built.margin[i] - rows[i] @ w == pytest.approx(found.slack[i], rel=1e-9, abs=1e-9)
        at = slice(shard.tokens[i], shard.tokens[i + 1])
        features = naive.dense(shard.x, 3)[at]
        best = max(
            itertools.product(range(n_tags), repeat=lengths[i]), key=lambda y: joint_features(problem, features, y) @ w
        )
        assert joint_features(problem, features, predicted[at]) @ w == pytest.approx(
            joint_features(problem, features, best) @ w, rel=1e-9, abs=1e-9
        )


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_rows_are_sorted_name_a_column_once_and_hold_no_zero(sparse):
    problem, shard = Chain(n_features=3, classes=TAGS), sequences(5, [6] * 5)
    shard = as_sparse(shard) if sparse else shard
    keys = Keys(shard.tokens, np.random.default_rng(0).integers(3, size=30).astype(np.int32))
    rows = problem.constraints(shard, np.arange(5), keys).rows
    assert rows.indices.dtype == np.int32
    assert rows.values.dtype == np.float32
    assert (rows.values != 0).all()
    for a, b in itertools.pairwise(rows.indptr):
        assert (np.diff(rows.indices[a:b]) > 0).all()


def test_columns_past_two_billion_are_named_in_64_bits():
    problem = Chain(n_features=2**30, classes=TAGS)
    x = rows_of([[1.0], [2.0]], sparse=True)
    x.indices[:] = [2**30 - 1, 5]
    shard = Shard(0, 0, x, np.array([0, 1], dtype=np.int32), None, None, np.array([0, 2]))
    rows = problem.constraints(shard, np.array([0]), Keys(np.array([0, 2]), np.array([2, 1], dtype=np.int32))).rows
    first = 3 * (2**30 - 1)
    assert rows.indices.dtype == np.int64
    assert rows.indices.tolist()[:2] == [first, first + 2]
    assert rows.values.tolist()[:2] == [1.0, -1.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": ("a",)}, "two tags or more"),
        ({"rescaling": "both"}, "problem.rescaling"),
        ({"tag_cost": {"x": 1.0}}, "names 'x', which is not a tag"),
        ({"tag_cost": {"n": -1.0}}, "at least 0"),
        ({"tag_cost": {"n": 2.0}, "rescaling": "slack"}, "same problem.tag_cost"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Chain(**{"n_features": 3, "classes": TAGS, **options})


@pytest.mark.parametrize("key", [[0, 1], [0, 1, 3], [0, -1, 0]], ids=["short", "beyond", "negative"])
def test_keys_that_no_scan_can_have_made_are_refused(key):
    problem, shard = Chain(n_features=3, classes=TAGS), sequences(0, [3])
    with pytest.raises(InputError, match="key"):
        problem.constraints(shard, np.array([0]), Keys(np.array([0, len(key)]), np.array(key, dtype=np.int32)))


def planted(seed: int, n: int) -> tuple[Any, Any, list[int]]:
    """Sequences whose tags follow features and the tag before, with some noise."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, size=n).tolist()
    x = np.round(4 * rng.normal(size=(sum(lengths), 3))).astype(np.float32) / 4
    y = (x + 0.7 * rng.normal(size=x.shape)).argmax(axis=1)
    y[1:] = np.where(rng.random(len(y) - 1) < 0.3, (y[:-1] + 1) % 3, y[1:])
    return x, np.array(TAGS)[y], lengths


def everything(problem: Chain, data: Any, C: float) -> naive.Program:
    (shard,) = data.shards
    each = [(i, *found) for i in range(shard.n_examples) for found in every_tagging(problem, shard, i).values()]
    group, rows, margin, cost = (np.array(part) for part in zip(*each, strict=True))
    capacity = np.zeros(shard.n_examples)
    capacity[group] = C * cost
    return naive.Program(rows, margin, group, capacity)


@pytest.mark.parametrize("rescaling", ["margin", "slack"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_run_is_certified_and_agrees_with_an_independent_solver(tmp_path, sparse, rescaling):
    x, y, lengths = planted(1, 12)
    cost = np.random.default_rng(1).uniform(0.5, 2, size=12)
    given = sp.csr_matrix(x) if sparse else x
    prepare_arrays(given, y, tmp_path / "data", "chain", lengths=lengths, cost=cost, shard_bytes=150)
    result = distdual.train(
        {
            "data": {"url": str(tmp_path / "data")},
            "problem": {"kind": "chain", "rescaling": rescaling},
            "solver": {"C": 0.2, "gap": 1e-6},
            "output": {"url": str(tmp_path / "model")},
        }
    )
    checked = distdual.verify(str(tmp_path / "model"))
    assert checked.certified, checked.findings
    problem = Chain(n_features=3, classes=TAGS, rescaling=rescaling)
    best = naive.optimum(everything(problem, sequences_in_memory(x, y, lengths, cost), 0.2), 1e-6).upper
    assert result.certificate["lower"] == pytest.approx(best, rel=3e-6)
    assert result.certificate["upper"] == pytest.approx(best, rel=3e-6)


@pytest.mark.slow
def test_a_run_on_processes_gives_the_same_bits(tmp_path):
    x, y, lengths = planted(2, 40)
    prepare_arrays(x, y, tmp_path / "data", "chain", lengths=lengths, shard_bytes=200)
    weights = []
    for name, cluster in (("inline", {}), ("dask", {"local": {"workers": 2, "threads": 1}})):
        config = {
            "data": {"url": str(tmp_path / "data")},
            "problem": {"kind": "chain", "boundaries": False},
            "solver": {"C": 0.5, "gap": 1e-4},
            "cluster": cluster,
            "output": {"url": str(tmp_path / name)},
        }
        weights.append(distdual.train(config).model.w)
    np.testing.assert_array_equal(*weights)


def test_predictions_are_written_a_sequence_a_line(tmp_path):
    x, y, lengths = planted(3, 30)
    prepare_arrays(x, y, tmp_path / "data", "chain", lengths=lengths, shard_bytes=400)
    config = {
        "data": {"url": str(tmp_path / "data")},
        "problem": {"kind": "chain"},
        "output": {"url": str(tmp_path / "model")},
    }
    model = distdual.train(config).model
    found = predict(str(tmp_path / "model"), str(tmp_path / "data"))
    (shard,) = sequences_in_memory(x, y, lengths).shards
    tags = np.array(TAGS)[model.problem.predict(model.w, shard)]
    np.testing.assert_array_equal(found.labels, tags)
    right = np.split(tags == y, np.cumsum(lengths)[:-1])
    assert found.score == pytest.approx(
        {"accuracy": (tags == y).mean(), "sequence_accuracy": np.mean([part.all() for part in right])}
    )
    predict_to(Location(str(tmp_path / "tags.txt")), tmp_path / "model", tmp_path / "data")
    lines = (tmp_path / "tags.txt").read_text().splitlines()
    assert [line.split(" ") for line in lines] == [part.tolist() for part in np.split(tags, np.cumsum(lengths)[:-1])]
    predict_to(Location(str(tmp_path / "tags.npy")), tmp_path / "model", tmp_path / "data")
    np.testing.assert_array_equal(np.load(tmp_path / "tags.npy"), tags)


@pytest.mark.parametrize(("prepared", "asked"), [("chain", "multiclass"), ("multiclass", "chain")])
def test_sequences_and_single_rows_do_not_pass_for_each_other(tmp_path, prepared, asked):
    x, y, lengths = planted(4, 10)
    prepare_arrays(x, y, tmp_path / "data", prepared, lengths=lengths if prepared == "chain" else None)
    config = {
        "data": {"url": str(tmp_path / "data")},
        "problem": {"kind": asked},
        "output": {"url": str(tmp_path / "model")},
    }
    with pytest.raises(InputError, match=f"a {asked} problem needs"):
        distdual.train(config)


def test_forbidden_pairs_in_the_truth_are_named():
    problem = Chain(n_features=3, classes=TAGS, forbidden=["n v"])
    shard = replace(sequences(0, [2, 3]), y=np.array([0, 1, 0, 1, 2], dtype=np.int32))
    with pytest.raises(InputError, match=r"shard 2, sequence 1 has the tags 'n v', which problem.forbidden rules out"):
        problem.offenders(np.zeros(problem.n_weights), shard)
    forged = Keys(np.array([0, 2]), np.array([1, 2], dtype=np.int32))
    with pytest.raises(InputError, match=r"sequence 0 has a stored constraint with the tags 'n v'"):
        problem.constraints(shard, np.array([0]), forged)


@pytest.mark.parametrize(
    ("y", "found"), [([1, 0], "<BOS> n"), ([0, 2], "v <EOS>"), ([0, 0], None)], ids=["start", "end", "allowed"]
)
def test_forbidden_ends_are_named(y, found):
    problem = Chain(n_features=3, classes=TAGS, forbidden=["<BOS> n", "v <EOS>"])
    shard = replace(sequences(0, [2, 2]), y=np.array([0, 0, *y], dtype=np.int32))
    if found is None:
        assert problem.offenders(np.zeros(problem.n_weights), shard).slack.min() >= 0
    else:
        with pytest.raises(InputError, match=f"sequence 1 has the tags '{found}'"):
            problem.offenders(np.zeros(problem.n_weights), shard)


def test_iob2_forbids_what_the_scheme_does():
    tags = ("B-a", "I-a", "B-b", "I-b", "O")
    allowed = allowed_by(["iob2"], tags)
    assert allowed.start.tolist() == [True, False, True, False, True]
    for (first, a), (second, b) in itertools.product(enumerate(tags), repeat=2):
        goes_on = b[0] != "I" or a in (f"B-{b[2:]}", b)
        assert allowed.pairs[first, second] == goes_on


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 3}, "problem.order must be 1 or 2, got 3"),
        ({"order": 2, "transitions": False}, "problem.order = 2 needs problem.transitions"),
        ({"order": 2, "rescaling": "slack"}, "problem.order = 2 has no inference for"),
        ({"edge_features": 4}, "problem.edge_features takes from 0 to the 3 features there are, got 4"),
        ({"edge_features": 1, "rescaling": "slack"}, "problem.edge_features has no inference"),
        ({"forbidden": ["d x"]}, "names 'x', which is no tag"),
        ({"forbidden": ["d"]}, "'d' is no pair of tags"),
        ({"forbidden": ["iob2"]}, "'iob2' needs tags such as B-NP"),
        ({"forbidden": ["<BOS> d", "<BOS> n", "<BOS> v"]}, "leaves no tagging for sequences of some length"),
        ({"forbidden": ["d d", "d n", "d v", "<BOS> n", "<BOS> v"]}, "leaves no tagging"),
    ],
    ids=str,
)
def test_unusable_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Chain(n_features=3, classes=TAGS, **options)


@pytest.mark.parametrize("options", [{}, {"order": 2}, {"edge_features": 2, "forbidden": ["d n"]}], ids=str)
@pytest.mark.parametrize("run", ["compiled", "in plain Python"])
def test_the_k_best_are_those_of_all_taggings(options, run):
    problem, shard = Chain(n_features=3, classes=TAGS, **options), sequences(9, [3, 1, 2])
    w = np.random.default_rng(3).normal(size=problem.n_weights)
    with contextlib.ExitStack() as stack:
        if run != "compiled":
            stack.enter_context(python_kernels("distdual.problems.chain.k_best", "distdual.problems.chain.viterbi"))
        best = problem.k_best(w, shard, 8)
    for i in range(shard.n_examples):
        at = slice(shard.tokens[i], shard.tokens[i + 1])
        features = naive.dense(shard.x, 3)[at]
        every = itertools.product(range(3), repeat=len(features))
        every = [tags for tags in every if is_allowed(problem, tags)]
        values = sorted((joint_features(problem, features, tags) @ w for tags in every), reverse=True)[:8]
        n = len(values)
        np.testing.assert_allclose(best.scores[at][0][:n], values, rtol=1e-12)
        assert (best.scores[at] == best.scores[at][0]).all()
        found = [tuple(tags) for tags in best.labels[at].T]
        assert len(set(found[:n])) == n
        for tags, value in zip(found[:n], values, strict=True):
            assert joint_features(problem, features, tags) @ w == pytest.approx(value, rel=1e-12)
        assert (best.labels[at][:, n:] == -1).all()
        assert (best.scores[at][:, n:] == -np.inf).all()


@pytest.mark.parametrize("options", [{"order": 2}, {"edge_features": 2}, {"forbidden": ["d n"]}], ids=str)
def test_a_model_is_certified_verified_and_predicts_its_best_taggings(options, tmp_path):
    shard = sequences(11, [4] * 12)
    y = np.array(TAGS)[np.tile([0, 0, 2, 1], 12)]
    prepare_arrays(shard.x.values, y, tmp_path / "data", "chain", lengths=[4] * 12)
    told = {
        "data": {"url": str(tmp_path / "data")},
        "problem": {"kind": "chain", **options},
        "solver": {"C": 1.0},
        "output": {"url": str(tmp_path / "m")},
    }
    assert distdual.train(told).certificate["certified"]
    assert distdual.verify(tmp_path / "m").certified
    out = tmp_path / "tags.csv"
    predict_to(Location(str(out)), str(tmp_path / "m"), str(tmp_path / "data"), top=3)
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert len(rows) == 48
    assert all(row["prediction"] == row["tagging 1"] for row in rows)
    assert all(float(row["score of tagging 1"]) >= float(row["score of tagging 2"]) for row in rows)
    model = distdual.ChainSVM.from_model(tmp_path / "m")
    first = model.predict_top([shard.x.values[:4]], 3)[0]
    assert [list(tags) for _, tags in first] == [[row[f"tagging {k}"] for row in rows[:4]] for k in (1, 2, 3)]
