"""SVC and SVR."""

import pickle
from pathlib import Path
from typing import Any

import dask.array as da
import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.data.prepare.writer import DatasetWriter
from distdual.data.shard import Block
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.rows import DenseRows
from tests.build import examples

KINDS = ["binary", "multiclass", "regression"]


def made(kind: str, n: int = 300, d: int = 6) -> tuple[Any, Any]:
    """Float32 features, and text labels for two classes, numeric ones for three, or targets."""
    rng = np.random.default_rng(5)
    x = examples(5, n, d).x
    scores = x @ rng.normal(size=d) + 0.3 * rng.normal(size=n)
    if kind == "regression":
        return x, scores
    return x, np.where(scores > 0, "yes", "no") if kind == "binary" else np.digitize(scores, [-1, 1]) * 10


def new(kind: str, **options: Any) -> Any:
    cls = distdual.SVR if kind == "regression" else distdual.SVC
    return cls(**{"C": 0.1, "gap": 1e-4, **options})


def objective(kind: str, model: Any, x: Any, y: Any, weight: Any = 1.0) -> float:
    """P(w) from coef_ and intercept_; with intercept_scaling = 1 the bias weight is intercept_."""
    scores = model.predict(x) if kind == "regression" else model.decision_function(x)
    if kind == "regression":
        slack = np.maximum(0, np.abs(y - scores) - model.epsilon)
    elif kind == "binary":
        slack = np.maximum(0, 1 - np.where(y == model.classes_[1], 1, -1) * scores)
    else:
        right = np.searchsorted(model.classes_, y)
        behind = 1 + scores - scores[np.arange(len(y)), right][:, None]
        behind[np.arange(len(y)), right] = 0
        slack = behind.max(axis=1)
    return float(0.5 * ((model.coef_**2).sum() + (model.intercept_**2).sum()) + model.C * (weight * slack).sum())


def stored(folder: Path, kind: str, x: Any, y: Any, **options: Any) -> str:
    prepare_arrays(x, y, str(folder), kind, **options)
    return str(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_equal_those_of_train(kind: str, tmp_path: Path) -> None:
    x, y = made(kind)
    url = stored(tmp_path / "data", kind, x, y)
    config = {
        "data": {"url": url},
        "problem": {"kind": kind, "bias": 1.0},
        "solver": {"C": 0.1, "gap": 1e-4},
        "output": {"url": str(tmp_path / "model")},
    }
    theirs = distdual.train(config)
    for ours in (new(kind).fit(x, y), new(kind).fit(url), new(kind).fit(Path(url))):
        weights = np.column_stack([np.atleast_2d(ours.coef_), ours.intercept_]).ravel()
        np.testing.assert_array_equal(weights, theirs.model.w)
        for key in ("lower", "upper", "gap", "passes", "support"):
            assert ours.certificate_[key] == theirs.certificate[key]
        assert ours.n_iter_ == theirs.certificate["passes"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_certificate_holds_for_coef_and_intercept(kind: str, weighted: bool) -> None:
    x, y = made(kind)
    weight = np.random.default_rng(1).integers(0, 4, len(y)) if weighted else None
    model = new(kind).fit(x, y, sample_weight=weight)
    found = model.certificate_
    assert found["certified"]
    assert found["upper"] == pytest.approx(objective(kind, model, x, y, 1.0 if weight is None else weight), rel=1e-9)
    assert found["lower"] <= found["upper"]


@pytest.mark.parametrize("kind", KINDS)
def test_dense_sparse_and_dask_give_the_same_model(kind: str) -> None:
    x, y = made(kind)
    dense = new(kind, gap=1e-9).fit(x, y)
    lazy = da.from_array(x, chunks=(70, 4))
    others = {
        "float64": (x.astype(np.float64), y),
        "columns first": (np.asfortranarray(x), y),
        "csr": (sp.csr_array(x), y),
        "csc": (sp.csc_matrix(x.astype(np.float64)), y),
        "dask": (lazy, da.from_array(y, chunks=90)),
        "sparse dask": (lazy.map_blocks(sp.csr_matrix), y),
    }
    for name, (features, labels) in others.items():
        other = new(kind, gap=1e-9).fit(features, labels)
        np.testing.assert_allclose(other.coef_, dense.coef_, atol=1e-4, err_msg=name)
        np.testing.assert_allclose(other.intercept_, dense.intercept_, atol=1e-4, err_msg=name)
        assert other.score(features, labels) == pytest.approx(dense.score(x, y), abs=1e-4)
        assert other.predict(features).shape == (len(y),)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparse", [False, True])
def test_partial_fit_over_chunks_reaches_the_optimum_of_all(kind: str, sparse: bool) -> None:
    x, y = made(kind)
    weight = np.random.default_rng(1).uniform(0.5, 2, len(y))
    given = sp.csr_array(x) if sparse else x
    grown = new(kind, gap=1e-6)
    for begin in (0, 100, 130):
        part = slice(begin, {0: 100, 100: 130, 130: 300}[begin])
        extra = {} if kind == "regression" else {"classes": np.unique(y)}
        grown.partial_fit(given[part], y[part], sample_weight=weight[part], **extra)
        assert grown.certificate_["certified"]
        assert grown.certificate_["n_examples"] == part.stop
        grown = pickle.loads(pickle.dumps(grown))
    whole = new(kind, gap=1e-6).fit(x, y, sample_weight=weight)
    assert grown.certificate_["lower"] <= whole.certificate_["upper"]
    assert whole.certificate_["lower"] <= grown.certificate_["upper"]
    np.testing.assert_allclose(grown.coef_, whole.coef_, atol=2e-2 * np.abs(whole.coef_).max())
    assert grown.certificate_["upper"] == pytest.approx(objective(kind, grown, x, y, weight), rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_start_uses_the_alpha_of_the_previous_fit(kind: str) -> None:
    """One pass alone proves less than a warm start; added examples can only raise the optimum."""
    x, y = made(kind)
    first = new(kind, gap=1e-7, max_passes=2000)
    proven = clone(first).fit(x, y).certificate_["lower"] * (1 - 1e-12)
    grown, warm = clone(first).partial_fit(x, y), clone(first).set_params(warm_start=True).fit(x, y)
    hurry = {"gap": 1e-12, "max_passes": 1}
    with pytest.warns(ConvergenceWarning):
        grown.set_params(**hurry).partial_fit(x[:1], y[:1])
    with pytest.warns(ConvergenceWarning):
        warm.set_params(**hurry).fit(x, y)
    with pytest.warns(ConvergenceWarning):
        cold = clone(warm).fit(x, y)
    assert grown.certificate_["lower"] >= proven
    assert warm.certificate_["lower"] >= proven
    assert cold.certificate_["lower"] < proven


def test_partial_fit_continues_after_a_warning_raised_as_an_error() -> None:
    x, y = made("binary")
    grown = new("binary", gap=1e-9, max_passes=1)
    with pytest.raises(ConvergenceWarning):  # pytest raises all warnings
        grown.partial_fit(x[:200], y[:200])
    grown.set_params(gap=1e-4, max_passes=200).partial_fit(x[200:], y[200:])
    assert grown.certificate_["n_examples"] == 300
    assert grown.certificate_["upper"] == pytest.approx(objective("binary", grown, x, y), rel=1e-9)


def test_examples_seen_by_partial_fit_are_copies() -> None:
    x, y = made("binary")
    mine = x[:200].copy()
    grown = new("binary").partial_fit(mine, y[:200])
    mine[:] = 0
    grown.partial_fit(x[200:], y[200:])
    assert grown.certificate_["upper"] == pytest.approx(objective("binary", grown, x, y), rel=1e-9)


def test_earlier_examples_without_weights_have_weight_one() -> None:
    x, y = made("binary")
    weight = np.r_[np.ones(100), np.full(200, 2.0)]
    grown = new("binary").partial_fit(x[:100], y[:100]).partial_fit(x[100:], y[100:], sample_weight=weight[100:])
    assert grown.certificate_["upper"] == pytest.approx(objective("binary", grown, x, y, weight), rel=1e-9)


def test_partial_fit_after_fit_warns_that_it_starts_from_scratch() -> None:
    x, y = made("binary")
    model = new("binary").fit(x, y)
    with pytest.warns(UserWarning, match="starts from scratch"):
        model.partial_fit(x[:100], y[:100])
    assert model.certificate_["n_examples"] == 100


def test_partial_fit_refuses_incompatible_examples(tmp_path: Path) -> None:
    x, y = made("binary")
    model = new("binary").partial_fit(x, y)
    with pytest.raises(InputError, match="y contains the unknown label maybe, expected one of no, yes"):
        model.partial_fit(x[:1], ["maybe"])
    with pytest.raises(InputError, match="classes differ from those of the first call"):
        model.partial_fit(x, y, classes=["no", "yes", "maybe"])
    with pytest.raises(InputError, match="all examples dense or all sparse"):
        model.partial_fit(sp.csr_array(x), y)
    with pytest.raises(InputError, match="was trained on arrays"):
        model.partial_fit(stored(tmp_path / "data", "binary", x, y))
    assert model.certificate_["n_examples"] == 300


def test_partial_fit_continues_on_a_grown_data_set(tmp_path: Path) -> None:
    x, y = made("binary")
    location = Location(str(tmp_path / "data"))

    def write(n_blocks: int) -> str:
        with DatasetWriter(location, "binary", shard_bytes=100 * 6 * 4, overwrite=True) as writer:
            for begin in range(0, 100 * n_blocks, 100):
                part = slice(begin, begin + 100)
                writer.append(Block(DenseRows(x[part]), y[part]))
            writer.finish()
        return location.url

    grown = new("binary").partial_fit(write(2))
    first = grown.certificate_
    grown.partial_fit(write(3))
    assert (first["n_examples"], grown.certificate_["n_examples"]) == (200, 300)
    assert grown.certificate_["upper"] == pytest.approx(objective("binary", grown, x, y), rel=1e-9)
    with pytest.raises(InputError, match="with shards appended"):
        grown.partial_fit(stored(tmp_path / "other", "binary", x[::-1], y[::-1]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_start_is_near_the_optimum_of_another_C(kind: str) -> None:
    x, y = made(kind, n=1000)
    cold = new(kind, C=0.12).fit(x, y)
    hot = new(kind, warm_start=True).fit(x, y).set_params(C=0.12).fit(x, y)
    assert hot.certificate_["lower"] <= cold.certificate_["upper"]
    assert cold.certificate_["lower"] <= hot.certificate_["upper"]
    again = hot.fit(x, y, sample_weight=np.ones(len(y)))
    assert again.n_iter_ <= cold.n_iter_


def test_a_warm_start_on_other_data_is_a_cold_one() -> None:
    x, y = made("binary")
    hot = new("binary", warm_start=True).fit(x[:200], y[:200]).fit(x[100:], y[100:])
    np.testing.assert_array_equal(hot.coef_, new("binary").fit(x[100:], y[100:]).coef_)
    hot.set_params(fit_intercept=False).fit(x[100:], y[100:])
    np.testing.assert_array_equal(hot.coef_, new("binary", fit_intercept=False).fit(x[100:], y[100:]).coef_)
    np.testing.assert_array_equal(hot.intercept_, [0.0])


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_class_weights_are_weights_of_the_examples(kind: str, tmp_path: Path) -> None:
    x, y = made(kind)
    y = y[np.argsort(y, kind="stable")]
    classes, counts = np.unique(y, return_counts=True)
    url = stored(tmp_path / "data", kind, x, y, shard_bytes=2000)
    even = dict(zip(classes.tolist(), (len(y) / (len(classes) * counts)).tolist(), strict=True))
    for class_weight, meant in (("balanced", even), ({classes[0]: 3.0}, {classes[0]: 3.0})):
        weight = np.array([meant.get(label, 1.0) for label in y])
        expected = new(kind).fit(x, y, sample_weight=weight)
        for model in (new(kind, class_weight=class_weight).fit(x, y), new(kind, class_weight=class_weight).fit(url)):
            assert model.certificate_["lower"] <= expected.certificate_["upper"]
            assert expected.certificate_["lower"] <= model.certificate_["upper"]
            assert model.certificate_["upper"] == pytest.approx(objective(kind, model, x, y, weight), rel=1e-9)


def test_balanced_weights_follow_what_partial_fit_sees() -> None:
    x, y = made("binary")
    order = np.argsort(y, kind="stable")
    x, y = x[order], y[order]
    grown = new("binary", class_weight="balanced").partial_fit(x[50:250], y[50:250])
    grown.partial_fit(np.vstack([x[:50], x[250:]]), np.r_[y[:50], y[250:]])
    whole = new("binary", class_weight="balanced").fit(x, y)
    assert grown.certificate_["lower"] <= whole.certificate_["upper"]
    assert whole.certificate_["lower"] <= grown.certificate_["upper"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_data_set_is_predicted_and_scored_like_its_arrays(kind: str, sparse: bool, tmp_path: Path) -> None:
    x, y = made(kind)
    url = stored(tmp_path / "data", kind, sp.csr_array(x) if sparse else x, y, shard_bytes=2000)
    from_arrays, from_url = new(kind).fit(x, y), new(kind).fit(url)
    for model in (from_arrays, from_url):
        if kind == "regression":
            np.testing.assert_allclose(model.predict(url), model.predict(x))
        else:
            np.testing.assert_array_equal(model.predict(url), model.predict(x))
        assert model.score(url) == pytest.approx(model.score(x, y))
    if kind != "regression":
        np.testing.assert_array_equal(from_url.classes_, from_arrays.classes_)
        np.testing.assert_allclose(from_url.decision_function(url), from_url.decision_function(x))


def test_shapes_are_those_of_linear_svc() -> None:
    for kind, n_classes in (("binary", 1), ("multiclass", 3)):
        x, y = made(kind)
        model = new(kind).fit(x, y)
        assert model.coef_.shape == (n_classes, 6)
        assert model.intercept_.shape == (n_classes,)
        assert model.decision_function(x).shape == ((300,) if n_classes == 1 else (300, 3))
        assert model.n_features_in_ == 6
    assert new("regression").fit(*made("regression")).coef_.shape == (6,)


def test_scaling_the_intercept_regularises_it_less() -> None:
    x, y = made("regression")
    free, tied = (new("regression", gap=1e-2, intercept_scaling=s).fit(x, y + 3).intercept_[0] for s in (10.0, 0.01))
    assert free > 2.5
    assert abs(tied) < 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_it_works_in_a_pipeline_and_a_grid_search_and_survives_joblib(kind: str, tmp_path: Path) -> None:
    x, y = made(kind)
    line = make_pipeline(StandardScaler(), new(kind, gap=1e-2))
    name = type(line[-1]).__name__.lower()
    search = GridSearchCV(line, {f"{name}__C": [1e-3, 0.1]}, cv=3, n_jobs=2).fit(x, y)
    assert search.best_params_[f"{name}__C"] == 0.1
    joblib.dump(search.best_estimator_, tmp_path / "model")
    again = joblib.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(x), search.predict(x))
    assert clone(again[-1]).get_params() == again[-1].get_params()


def test_a_pickle_of_a_fitted_estimator_holds_no_examples() -> None:
    x, y = made("binary", n=5000)
    assert len(pickle.dumps(new("binary").fit(x, y))) < 10_000


def test_the_same_seed_gives_the_same_weights() -> None:
    x, y = made("multiclass")
    weights = [new("multiclass", random_state=s).fit(x, y).coef_ for s in (None, 0, np.random.RandomState(3))]
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


def test_an_uncertified_fit_warns_with_its_gap() -> None:
    x, y = made("binary")
    with pytest.warns(ConvergenceWarning, match=r"SVC: the proven gap is .*e-\d\d, the target is 1.00e-09 \(1 passes"):
        model = new("binary", gap=1e-9, max_passes=1).fit(x, y)
    assert not model.certificate_["certified"]
    assert model.certificate_["gap"] > 1e-9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": -1}, "SVC: C must be positive and finite, got -1.0"),
        ({"C": "much"}, "SVC: C must be a number, got 'much'"),
        ({"gap": 0}, "gap must be a fraction"),
        ({"max_passes": 1.5}, "max_passes must be a whole number"),
        ({"schedule": "never"}, "schedule must be one of"),
        ({"intercept_scaling": 0}, "intercept_scaling must be positive"),
        ({"intercept_scaling": "one"}, "SVC: intercept_scaling must be a number, got 'one'"),
        ({"class_weight": "even"}, 'class_weight must be a table, "balanced" or None'),
        ({"class_weight": {"perhaps": 2}}, "names 'perhaps'; the labels are no, yes"),
    ],
)
def test_bad_parameters_are_reported_by_fit(options: dict[str, Any], message: str) -> None:
    x, y = made("binary")
    with pytest.raises(InputError, match=message):
        new("binary", **options).fit(x, y)


def test_numpy_scalars_are_accepted_as_parameters() -> None:
    x, y = made("binary")
    options = {"C": np.float32(0.5), "max_passes": np.int64(100), "random_state": np.int32(1)}
    assert new("binary", **options).fit(x, y).certificate_["certified"]


def test_bad_data_is_reported(tmp_path: Path) -> None:
    x, y = made("binary")
    url = stored(tmp_path / "data", "binary", x, y)
    with pytest.raises(InputError, match="its own labels and costs; leave y out"):
        new("binary").fit(url, y)
    with pytest.raises(InputError, match="leave sample_weight out"):
        new("binary").fit(url, sample_weight=np.ones(300))
    with pytest.raises(InputError, match="needs examples of 2 classes or more, found 1 class"):
        new("binary").fit(x, np.ones(300))
    with pytest.raises(InputError, match="regression problem needs a data set with numbers"):
        new("regression").fit(url)
    with pytest.raises(InputError, match="found 0 classes"):
        new("binary").fit(stored(tmp_path / "numbers", "regression", *made("regression")))
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        new("binary").fit(x, y, sample_weight=np.full(300, -1.0))
    with pytest.raises(ValueError, match="too large for dtype"):
        new("binary").fit(np.full((300, 6), 1e300), y)
    with pytest.raises(InputError, match="SVC requires y to be passed"):
        new("binary").fit(da.from_array(x, chunks=100))
    with pytest.raises(InputError, match="6 features, but the model was trained with 5"):
        new("binary").fit(x[:, :5], y).predict(url)
    with pytest.raises(InputError, match="X has 6 features, but SVC is expecting 5"):
        new("binary").fit(x[:, :5], y).predict(da.from_array(x, chunks=100))
    with pytest.raises(InputError, match="a feature is NaN or infinite"):
        new("binary").fit(da.full((300, 6), np.nan, chunks=100), y)
