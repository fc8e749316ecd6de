"""SVMRank."""

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError
from distdual.problems.ranking.problem import Ranking
from distdual.testing import dense
from tests.problems.ranking.queries import pairwise_objective
from tests.problems.ranking.test_end_to_end import SIZES, shard_with_order

SHARD = shard_with_order()
X, Y, QID = dense(SHARD.x, 4), SHARD.y, np.repeat(np.arange(len(SIZES)), SIZES)


def test_rows_of_a_query_may_stand_anywhere():
    model = distdual.SVMRank(C=2.0, gap=1e-4).fit(X, Y, qid=QID)
    assert model.certificate_["upper"] == pytest.approx(pairwise_objective(Ranking(n_features=4), SHARD, 2.0), rel=1e-3)
    order = np.random.default_rng(0).permutation(len(Y))
    shuffled = distdual.SVMRank(C=2.0, gap=1e-4).fit(X[order], Y[order], qid=QID[order].astype(str))
    assert shuffled.certificate_["upper"] == pytest.approx(model.certificate_["upper"], rel=2e-4)
    assert shuffled.score(X, Y, qid=QID) == pytest.approx(model.score(X[order], Y[order], qid=QID[order]), abs=0.02)


def test_a_weight_of_two_is_a_query_twice():
    weights = np.where(np.arange(len(SIZES)) == 4, 2.0, 1.0)
    weighted = distdual.SVMRank(gap=1e-6).fit(X, Y, qid=QID, query_weight=weights)
    again = QID == 4
    twice = distdual.SVMRank(gap=1e-6).fit(
        np.vstack([X, X[again]]), np.append(Y, Y[again]), qid=np.append(QID, QID[again] + 100)
    )
    np.testing.assert_allclose(weighted.coef_, twice.coef_, atol=1e-3)


def test_a_data_set_is_fitted_saved_and_scored_as_arrays_are(tmp_path):
    prepare_arrays(X, Y, tmp_path / "data", "ranking", qid=QID, shard_bytes=400)
    stored = distdual.SVMRank(gain="linear").fit(str(tmp_path / "data"))
    stored.save(str(tmp_path / "model"))
    assert distdual.verify(str(tmp_path / "model")).certified
    loaded = distdual.SVMRank.from_model(str(tmp_path / "model"))
    assert loaded.gain == "linear"
    np.testing.assert_allclose(loaded.predict(str(tmp_path / "data")), stored.predict(X), rtol=1e-6)
    assert loaded.score(str(tmp_path / "data")) == stored.score(X, Y, qid=QID) > 0.8


def test_cross_validation_routes_queries_by_hand():
    pipeline = make_pipeline(MaxAbsScaler(), distdual.SVMRank())
    folds = list(GroupKFold(3).split(X, Y, QID))
    fitted = [pipeline.fit(X[train], Y[train], svmrank__qid=QID[train]) for train, _ in folds]
    assert all(
        model.score(X[test], Y[test], qid=QID[test]) > 0.7 for model, (_, test) in zip(fitted, folds, strict=True)
    )
    assert cross_val_score(distdual.SVMRank(), X, Y).min() > 0.7  # without qid all rows are one query


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: distdual.SVMRank().fit(X, Y, qid=QID[1:]), "qid must name the query of each of 64 rows"),
        (lambda: distdual.SVMRank(gain="log").fit(X, Y, qid=QID), "gain must be one of"),
        (lambda: distdual.SVMRank().fit(X, Y, qid=QID).score(X, np.zeros(64)), "no order to score"),
        (lambda: distdual.SVMRank().fit("nowhere", qid=QID), "leave qid out"),
    ],
)
def test_bad_input_is_refused(act, words):
    with pytest.raises(InputError, match=words):
        act()


def test_a_row_without_a_query_is_refused():
    with pytest.raises(InputError, match="qid of row 2 is not a number"):
        distdual.SVMRank().fit(X, Y, qid=np.where(np.arange(len(Y)) == 2, np.nan, QID))
