"""MultivariateSVC."""

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.model_selection import TunedThresholdClassifierCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 4)).astype(np.float32)
SCORE = X @ [1.0, -1.0, 0.5, 0.0] + 0.5 * RNG.normal(size=400)
Y = np.where(np.quantile(SCORE, 0.9) < SCORE, "rare", "not")


def test_f1_is_higher_than_that_of_the_number_of_errors():
    model = distdual.MultivariateSVC(C=0.1).fit(X, Y)
    assert model.certificate_["certified"]
    assert model.score(X, Y) == pytest.approx(f1_score(Y, model.predict(X), pos_label="rare"))
    assert model.score(X, Y) > f1_score(Y, distdual.SVC(C=0.1).fit(X, Y).predict(X), pos_label="rare")


def test_a_loss_that_compares_scores_has_no_predict_until_a_threshold_is_chosen():
    model = distdual.MultivariateSVC(C=0.01, loss="auc").fit(X, Y)
    assert not hasattr(model, "predict")
    with pytest.raises(AttributeError) as caught:
        model.predict(X)
    assert "has no threshold" in str(caught.value.__cause__)
    assert model.score(X, Y) == pytest.approx(roc_auc_score(Y == "rare", model.decision_function(X)))
    tuned = TunedThresholdClassifierCV(distdual.MultivariateSVC(C=0.01, loss="auc")).fit(X, Y)
    assert set(tuned.predict(X)) == {"not", "rare"}


def test_a_data_set_a_model_folder_and_arrays_give_the_same(tmp_path):
    prepare_arrays(X, Y, tmp_path / "data", "multivariate")
    stored = distdual.MultivariateSVC(loss="precision@k", k=40, C=0.05).fit(str(tmp_path / "data"))
    np.testing.assert_allclose(
        stored.coef_, distdual.MultivariateSVC(loss="precision@k", k=40, C=0.05).fit(X, Y).coef_, rtol=1e-6
    )
    stored.save(str(tmp_path / "model"))
    assert distdual.verify(str(tmp_path / "model")).certified
    loaded = distdual.MultivariateSVC.from_model(str(tmp_path / "model"))
    assert loaded.get_params()["k"] == 40
    np.testing.assert_array_equal(loaded.decision_function(X), stored.decision_function(X))
    assert loaded.score(str(tmp_path / "data")) == pytest.approx(loaded.score(X, Y))


def test_it_works_in_pipelines_and_cross_validation():
    pipeline = make_pipeline(StandardScaler(), distdual.MultivariateSVC(C=0.1))
    assert cross_val_score(pipeline, X, Y, cv=3).mean() > 0.5


@pytest.mark.parametrize(
    ("options", "y", "words"),
    [
        ({"warm_start": True}, Y, "warm_start is not possible"),
        ({"loss": "mcc"}, Y, "loss must be one of"),
        ({"loss": "recall@k"}, Y, "k is for"),
        ({"intercept_scaling": 0}, Y, "intercept_scaling must be positive"),
        ({}, np.arange(400) % 3, "needs examples of 2 classes, found 3 classes"),
    ],
)
def test_what_it_cannot_do_is_refused(options, y, words):
    with pytest.raises(InputError, match=words):
        distdual.MultivariateSVC(**options).fit(X, y)
