"""LatentSVM."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError
from tests.coordinator.test_latent_loop import Planted, planted

LABELS = np.array(["off", "on"])


def labels(made: Planted) -> Any:
    return LABELS[[int(part[0] > 0) for part in made.y]]


def svm(**options: Any) -> distdual.LatentSVM:
    return distdual.LatentSVM(**{"C": 1.0, "gap": 1e-4, **options})


def test_weights_equal_those_of_train_for_every_form_of_bags(tmp_path: Path) -> None:
    made = planted(0)
    y, lengths, url = labels(made), [len(bag) for bag in made.x], str(tmp_path / "data")
    prepare_arrays(made.x, [np.repeat(label, n) for label, n in zip(y, lengths, strict=True)], url, "latent")
    config = {
        "data": {"url": url},
        "problem": {"kind": "latent", "bias": 1.0},
        "solver": {"gap": 1e-4},
        "output": {"url": str(tmp_path / "model")},
    }
    theirs = distdual.train(config)
    for ours in (svm().fit(made.x, y), svm().fit(np.vstack(made.x), y, lengths=lengths), svm().fit(url)):
        np.testing.assert_array_equal(np.append(ours.coef_[0], ours.intercept_), theirs.model.w)
        np.testing.assert_array_equal(ours.witness_, theirs.model.problem.values)
        np.testing.assert_array_equal(ours.witness_[1::2], made.hidden[1::2])
        assert ours.certificate_["latent"] == theirs.certificate["latent"]
        assert ours.classes_.tolist() == ["off", "on"]
        assert ours.score(made.x, y) == ours.score(url) == 1.0
        np.testing.assert_array_equal(ours.predict(url), ours.predict(np.vstack(made.x), lengths=lengths))
        scores = [max(bag.astype(np.float64) @ ours.coef_[0] + ours.intercept_[0]) for bag in made.x]
        np.testing.assert_allclose(ours.decision_function(made.x), scores)
        np.testing.assert_allclose(ours.decision_function(url), scores)
    np.testing.assert_array_equal(ours.predict(made.x), distdual.predict(str(tmp_path / "model"), url).labels)


def test_sparse_bags_give_the_same_model() -> None:
    made = planted(1)
    dense, sparse = svm().fit(made.x, labels(made)), svm().fit([sp.csr_array(bag) for bag in made.x], labels(made))
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-2)
    np.testing.assert_array_equal(sparse.predict([sp.csr_array(bag) for bag in made.x]), labels(made))


def test_it_is_cloned_pickled_and_searched() -> None:
    made = planted(2, n=40)
    y = labels(made)
    model = svm(restarts=2, init="random", random_state=3)
    again = clone(model)
    assert again.get_params() == model.get_params()
    assert not hasattr(again, "coef_")
    model.fit(made.x, y)
    there = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(there.decision_function(made.x), model.decision_function(made.x))
    found = GridSearchCV(svm(gap=1e-2), {"C": [0.01, 1.0], "init": ["guess", "random"]}, cv=2).fit(made.x, y)
    assert found.best_score_ > 0.8
    assert found.predict(made.x).shape == (40,)


def test_weights_of_bags_and_classes_are_costs() -> None:
    made = planted(3, n=30)
    y, weight = labels(made), np.random.default_rng(0).uniform(0.5, 2, size=30)
    by_class = svm(class_weight={"on": 3.0}).fit(made.x, y)
    by_bag = svm().fit(made.x, y, sample_weight=np.where(y == "on", 3.0, 1.0))
    np.testing.assert_array_equal(by_class.coef_, by_bag.coef_)
    even = svm(class_weight="balanced").fit(made.x[:20] + made.x[20::2], np.append(y[:20], y[20::2]))
    assert even.certificate_["certified"]
    assert not np.array_equal(svm().fit(made.x, y, sample_weight=weight).coef_, svm().fit(made.x, y).coef_)


def test_a_warm_start_never_raises_the_objective() -> None:
    made = planted(4)
    model = svm(warm_start=True, C=0.1).fit(made.x, labels(made))
    before = model.certificate_["latent"]["objective"]
    model.set_params(gap=0.5, max_passes=1).fit(made.x, labels(made))
    assert model.certificate_["latent"]["objective"] <= before * (1 + 1e-9)


def test_an_uncertified_fit_warns() -> None:
    made = planted(2)
    with pytest.warns(ConvergenceWarning, match="LatentSVM: the proven gap is"):
        svm(gap=1e-9, max_passes=1).fit(made.x, labels(made))


@pytest.mark.parametrize(
    ("fit", "words"),
    [
        (lambda m: svm().fit(m.x, labels(m)[:-1]), "a label for each of 80 bags"),
        (lambda m: svm().fit(m.x), "requires y"),
        (lambda m: svm().fit(np.vstack(m.x), labels(m)), "X must be a list"),
        (
            lambda m: svm().fit(np.vstack(m.x), labels(m), lengths=[1] * 80),
            "lengths add up to 80 candidates, but X has",
        ),
        (lambda m: svm().fit(np.vstack(m.x), labels(m), lengths=[0] * 80), "at least 1"),
        (lambda m: svm().fit(m.x, np.arange(80) % 3), "two labels"),
        (lambda m: svm(restarts=1.5).fit(m.x, labels(m)), "restarts must be a whole number, got 1.5"),
        (lambda m: svm(init="best").fit(m.x, labels(m)), "problem.init must be one of"),
        (lambda m: svm(class_weight="even").fit(m.x, labels(m)), "class_weight must be"),
    ],
)
def test_bad_input_is_refused(fit: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        fit(planted(0))


def test_prediction_needs_a_fit() -> None:
    with pytest.raises(NotFittedError):
        svm().predict(planted(0).x)
