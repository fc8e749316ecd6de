"""MultivariateSVC: two classes, of which one is rare, by a loss over all examples, with a proven gap."""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from distdual.config import SolverConfig
from distdual.data.shard import Block
from distdual.data.validate import label_name
from distdual.errors import InputError
from distdual.estimators.inputs import Data, Given, is_path, single_rows
from distdual.estimators.linear import ScoringEstimator
from distdual.kernels.rows import Floats
from distdual.problems.multivariate.problem import Multivariate


def decides(estimator: Any) -> bool:
    """Whether there is a `predict`; says what to do where there is none."""
    if estimator.loss != "f1":
        raise AttributeError(
            f"loss={estimator.loss!r} compares scores and has no threshold: take decision_function, or wrap the "
            "estimator in sklearn.model_selection.TunedThresholdClassifierCV"
        )
    return True


@dataclass(eq=False, repr=False, kw_only=True)
class MultivariateSVC(ClassifierMixin, ScoringEstimator):
    """A linear classifier for two classes that is trained for F1, AUC or another loss of all examples together.

        P(w) = 1/2 ||w||² + C n max(0, max_ŷ Δ(ŷ) − ⟨w, x_ŷ⟩)

    The second class is the rare one. X is as for SVC. Parameters in addition to those of DualEstimator:

    - `loss`: "f1", "auc", "precision@k", "recall@k" or "prbep"
    - `k`: the k of "precision@k" and "recall@k"
    - `intercept_scaling`: for "f1", the larger, the less the intercept is regularised

    Attributes after `fit`: `classes_`, `coef_` (1, n_features), `intercept_` (1,), which is 0 unless the loss is "f1",
    and those of DualEstimator. Only "f1" has a threshold and thus a `predict`; `decision_function` is for all losses.
    """

    loss: str = "f1"
    k: int = 0
    intercept_scaling: float = 1.0
    gap: float = 1e-2

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on arrays X and y, or on the data set at the path or URL X."""
        return self._fit(X, Given(y))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def decision_function(self, X: Any) -> Floats:
        """(n,) scores; for "f1" above 0 for the second class."""
        return self._decide(X)

    @available_if(decides)  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> NDArray[Any]:
        scores = self._decide(X)
        labels: NDArray[Any] = self.classes_[(scores > 0).astype(np.int64)]
        return labels

    def score(self, X: Any, y: Any = None) -> float:
        """F1 for the loss "f1", the AUC for others; X may be the path or URL of a data set."""
        check_is_fitted(self)
        if is_path(X):
            found = self._decide_stored(X, Given(y))
            scores, positive = found.scores, found.y == label_name(self.classes_[1])
        else:
            scores, positive = self._decide(X), np.asarray(y) == self.classes_[1]
        return float(f1_score(positive, scores > 0) if self.loss == "f1" else roc_auc_score(positive, scores))

    def _solver_config(self) -> SolverConfig:
        if self.warm_start:
            raise InputError("MultivariateSVC: warm_start is not possible, as rows belong to no single example")
        return replace(super()._solver_config(), slack="all")

    def _block(self, X: Any, given: Given, *, first: bool, keep: bool) -> Block:
        x, labels = single_rows(self, X, given.y, reset=first, keep=keep)
        check_classification_targets(labels)
        return Block(x, self._codes(labels, given.classes, first=first))

    def _problem_for(self, data: Data) -> Multivariate:
        if len(data.classes) != 2:
            found = f"{len(data.classes)} class{'es' * (len(data.classes) != 1)}"
            advice = "Only binary classification is supported."  # scikit-learn's checks look for this sentence
            raise InputError(f"{data.location}: {advice} MultivariateSVC needs examples of 2 classes, found {found}")
        scaling = self._number("intercept_scaling")
        if not 0 < scaling < math.inf:
            raise InputError(f"intercept_scaling must be positive and finite, got {scaling}")
        return Multivariate(
            n_features=data.n_features,
            classes=data.classes,
            loss=self.loss,
            k=self.k,
            bias=scaling if self.loss == "f1" else 0.0,
        )

    def _set_weights(self, w: Floats, problem: Any) -> None:
        self.coef_ = w[np.newaxis, : problem.n_features].copy()
        self.intercept_ = np.array([float(np.float32(problem.bias)) * w[-1] if problem.bias else 0.0])

    def _scores(self, X: Any) -> Floats:
        scores: Floats = np.asarray(X @ self.coef_[0]) + self.intercept_[0]
        return scores
