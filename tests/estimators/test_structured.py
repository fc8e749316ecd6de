"""ChainSVM and StructuralSVM."""

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError
from tests.problems.mine import Lazy, PlainMulticlass
from tests.problems.user.ranked_sets import RankedSets, make_sets

TAGS = np.array(["A", "B", "C"])


@dataclass(frozen=True, kw_only=True)
class Steps(distdual.UserProblem):
    """A problem that predicts the step 0 … 4 nearest to a target."""

    @property
    def n_weights(self) -> int:
        return 5 * self.n_features

    def feature_map(self, x: Any, y: int) -> Any:
        return y * self.n_features + np.arange(self.n_features), x

    def truth(self, label: float) -> int:
        return round(label)

    def loss(self, y_true: int, y: int) -> float:
        return abs(y_true - y)

    def argmax(self, w: Any, x: Any, y_true: int) -> int:
        return int(np.argmax(w.reshape(5, -1) @ x.astype(np.float64) + abs(y_true - np.arange(5))))

    def outputs(self, x: Any) -> Any:
        return range(5)


def sequences(n: int = 60) -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(3)
    x = [rng.normal(size=(length, 4)).astype(np.float32) for length in rng.integers(1, 8, n)]
    w = rng.normal(size=(4, 3))
    return x, [TAGS[(part @ w + rng.normal(size=(len(part), 3))).argmax(axis=1)] for part in x]


def chain(**options: Any) -> distdual.ChainSVM:
    return distdual.ChainSVM(**{"C": 0.1, "gap": 1e-4, **options})


def test_chain_weights_equal_those_of_train(tmp_path: Path) -> None:
    x, y = sequences()
    url = str(tmp_path / "data")
    prepare_arrays(x, y, url, "chain")
    config = {
        "data": {"url": url},
        "problem": {"kind": "chain"},
        "solver": {"C": 0.1, "gap": 1e-4},
        "output": {"url": str(tmp_path / "model")},
    }
    theirs = distdual.train(config)
    lengths = [len(part) for part in x]
    for ours in (chain().fit(x, y), chain().fit(np.vstack(x), np.concatenate(y), lengths=lengths), chain().fit(url)):
        parts = [ours.coef_.T, ours.transitions_, ours.start_, ours.end_]
        np.testing.assert_array_equal(np.concatenate([part.ravel() for part in parts]), theirs.model.w)
        assert ours.certificate_["upper"] == theirs.certificate["upper"]
        assert ours.score(x, y) == pytest.approx(ours.score(url))
        for mine, stored in zip(ours.predict(x), ours.predict(url), strict=True):
            np.testing.assert_array_equal(mine, stored)
    expected = distdual.predict(str(tmp_path / "model"), url)
    np.testing.assert_array_equal(np.concatenate(chain().fit(x, y).predict(x)), expected.labels)
    assert chain().fit(x, y).score(x, y) == pytest.approx(expected.score["accuracy"])


def test_flat_and_sparse_sequences_give_the_same_model() -> None:
    x, y = sequences()
    lengths = [len(part) for part in x]
    flat = sp.csr_array(np.vstack(x))
    listed, model = chain(gap=1e-6).fit(x, y), chain(gap=1e-6).fit(flat, np.concatenate(y), lengths=lengths)
    assert model.certificate_["lower"] <= listed.certificate_["upper"]
    assert listed.certificate_["lower"] <= model.certificate_["upper"]
    np.testing.assert_array_equal(model.predict(flat, lengths=lengths), np.concatenate(model.predict(x)))
    assert model.score(flat, np.concatenate(y), lengths=lengths) == model.score(x, y)


def test_chains_grow_by_partial_fit() -> None:
    x, y = sequences()
    grown = chain(gap=1e-5).partial_fit(x[:20], y[:20], classes=TAGS)
    grown = pickle.loads(pickle.dumps(grown)).partial_fit(x[20:], y[20:], sample_weight=np.ones(40))
    whole = chain(gap=1e-5).fit(x, y)
    assert grown.certificate_["n_examples"] == 60
    assert grown.certificate_["lower"] <= whole.certificate_["upper"]
    assert whole.certificate_["lower"] <= grown.certificate_["upper"]


def test_chains_take_the_options_of_the_problem() -> None:
    x, y = sequences()
    model = chain(transitions=False, boundaries=False, tag_cost={"A": 2.0}).fit(x, y)
    assert not model.transitions_.any()
    assert not model.start_.any()
    assert model.certificate_["upper"] > chain(transitions=False, boundaries=False).fit(x, y).certificate_["upper"]


def test_chains_work_with_clone_and_grid_search() -> None:
    x, y = sequences()
    search = GridSearchCV(chain(gap=1e-2), {"C": [1e-4, 0.1]}, cv=3).fit(x, y)
    assert search.best_params_ == {"C": 0.1}
    assert clone(search.best_estimator_).C == 0.1


def test_bad_sequences_are_reported() -> None:
    x, y = sequences()
    with pytest.raises(InputError, match="pass lengths"):
        chain().fit(np.vstack(x), np.concatenate(y))
    with pytest.raises(InputError, match=r"expected an array .* per sequence"):
        chain().fit([part[0] for part in x], y)
    with pytest.raises(InputError, match="sequence 1 has"):
        chain().fit(x[:2], [y[0], y[1][:-1]])
    with pytest.raises(InputError, match="requires y"):
        chain().fit(x)
    with pytest.raises(ValueError, match="expecting 4 features"):
        chain().fit(x, y).predict([part[:, :3] for part in x])


def labelled(n: int = 80) -> tuple[Any, Any]:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(n, 3)).astype(np.float32)
    return x, TAGS[(x @ rng.normal(size=(3, 3)) + 0.3 * rng.normal(size=(n, 3))).argmax(axis=1)]


def own(problem: Any, **options: Any) -> distdual.StructuralSVM:
    return distdual.StructuralSVM(problem, **{"C": 0.1, "gap": 1e-4, **options})


@pytest.mark.parametrize("sparse", [False, True])
def test_a_user_defined_multiclass_problem_equals_svc(sparse: bool) -> None:
    x, y = labelled()
    theirs = distdual.SVC(C=0.1, gap=1e-4, fit_intercept=False).fit(x, y)
    given = sp.csr_array(x) if sparse else x
    instance = PlainMulticlass(n_features=3, classes=("A", "B", "C"))
    for problem in (PlainMulticlass, "tests.problems.mine:PlainMulticlass", instance):
        ours = own(problem).fit(given, y)
        np.testing.assert_allclose(ours.coef_, theirs.coef_.ravel(), atol=0.02)
        assert ours.certificate_["lower"] <= theirs.certificate_["upper"]
        assert theirs.certificate_["lower"] <= ours.certificate_["upper"]
        np.testing.assert_array_equal(ours.classes_, TAGS)
        np.testing.assert_array_equal(ours.predict(given), theirs.predict(x))
        assert ours.score(given, y) == pytest.approx(theirs.score(x, y) - 1)
    again = pickle.loads(pickle.dumps(clone(ours).fit(given, y)))
    np.testing.assert_array_equal(again.predict(x), ours.predict(x))


def test_options_are_the_fields_of_the_class() -> None:
    x, y = labelled()
    assert own(PlainMulticlass, options={"scale": 2.0}).fit(x, y).problem_.scale == 2.0
    with pytest.raises(InputError, match="unknown key scales; did you mean"):
        own(PlainMulticlass, options={"scales": 2.0}).fit(x, y)


def test_user_defined_problems_grow_by_partial_fit() -> None:
    x, y = labelled()
    grown = own(PlainMulticlass).partial_fit(x[:40], y[:40], classes=TAGS).partial_fit(x[40:], y[40:])
    whole = own(PlainMulticlass).fit(x, y)
    assert grown.certificate_["lower"] <= whole.certificate_["upper"]
    assert whole.certificate_["lower"] <= grown.certificate_["upper"]


def test_targets_may_be_numbers() -> None:
    x, _ = labelled()
    y = np.clip(2 + x[:, 0], 0, 4).astype(np.float64)
    model = own(Steps, regression=True).fit(x, y)
    assert model.certificate_["certified"]
    assert not hasattr(model, "classes_")
    found = model.predict(x)
    assert set(found) <= set(range(5))
    assert model.score(x, y) == pytest.approx(-np.mean(np.abs(np.rint(y) - found)))


def test_outputs_may_be_tuples(tmp_path: Path) -> None:
    x, y = make_sets(60)
    url = str(tmp_path / "data")
    prepare_arrays(x, y, url, "multiclass")
    model = own(RankedSets, gap=1e-2).fit(x, y)
    assert all(sorted(order) == [0, 1, 2, 3] for order in model.predict(x))
    assert model.score(x, y) == pytest.approx(model.score(url))
    assert model.predict(url) == model.predict(x)
    np.testing.assert_allclose(own(RankedSets, gap=1e-2).fit(url).coef_, model.coef_, atol=0.05)


def test_inexact_inference_warns_that_nothing_is_proven() -> None:
    x, y = labelled()
    with pytest.warns(ConvergenceWarning, match="inexact inference proves no gap"):
        model = own(Lazy).fit(x, y)
    assert model.certificate_["gap"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"problem": None}, "must be a subclass or an instance of distdual.UserProblem"),
        ({"problem": PlainMulticlass(n_features=4, classes=("A", "B", "C"))}, "made for 4 features"),
        (
            {"problem": PlainMulticlass(n_features=3, classes=("A", "B"))},
            "y contains the unknown label C, expected one of A, B",
        ),
        (
            {"problem": PlainMulticlass(n_features=3, classes=("A", "B", "C")), "options": {"scale": 1.0}},
            "set its fields instead of options",
        ),
    ],
)
def test_an_unsuitable_problem_is_reported(options: dict[str, Any], message: str) -> None:
    x, y = labelled()
    with pytest.raises(InputError, match=message):
        own(**options).fit(x, y)
