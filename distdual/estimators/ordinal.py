"""OrdinalSVC: classes that are in order, with a proven gap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from distdual.data.shard import Block
from distdual.data.sources.arrays import is_dask
from distdual.data.validate import label_name
from distdual.errors import InputError
from distdual.estimators.classifier import class_costs
from distdual.estimators.inputs import Data, Given, is_path, single_rows, weights_of
from distdual.estimators.linear import ScoringEstimator
from distdual.kernels.rows import Floats
from distdual.problems.ordinal import Ordinal, rank_of


@dataclass(eq=False, repr=False, kw_only=True)
class OrdinalSVC(ClassifierMixin, ScoringEstimator):
    """A linear score and thresholds that divide it into classes in order, with a proven gap.

        P(w, θ) = 1/2 ||w||² + 1/2 ||θ||² + C Σ_i weight_i Σ_k max(0, 1 − z_ik (⟨w, x_i⟩ − v θ_k)),   z_ik = ±1

    z_ik is 1 if the class of i lies above threshold k, and v is `intercept_scaling`. X is as for SVC. Parameters in
    addition to those of DualEstimator:

    - `loss`: "all", the sum over all thresholds, which grows with the distance of classes; or "adjacent", the sum over
        those next to the right class
    - `intercept_scaling`: the larger, the less the thresholds are regularised
    - `class_weight`: see SVC
    - `order`: the labels from the lowest to the highest; numbers are in their own order by default

    Attributes after `fit`: `classes_` (sorted, as scikit-learn has them), `coef_` (n_features,), `thresholds_`
    (n_classes − 1,), those of DualEstimator.
    """

    loss: str = "all"
    intercept_scaling: float = 1.0
    class_weight: Mapping[Any, float] | str | None = None
    order: Sequence[Any] | None = None

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on arrays X and y, or on the data set at the path or URL X."""
        return self._fit(X, Given(y, sample_weight))

    def __sklearn_tags__(self) -> Any:
        """Classes without an order are not what it is for."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags

    def scores(self, X: Any) -> Floats:
        """(n,) a number for each example, which `thresholds_` divide into classes."""
        return self._decide(X)

    def predict(self, X: Any) -> NDArray[Any]:
        return self._labels(self._decide(X))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The accuracy; X may be the path or URL of a data set."""
        if not is_path(X):
            return float(super().score(X, np.asarray(y) if is_dask(y) else y, sample_weight))
        check_is_fitted(self)
        found = self._decide_stored(X, Given(y, sample_weight), scored=True)
        return float(np.mean([label_name(label) for label in self._labels(found.scores).tolist()] == found.y))

    def _labels(self, scores: Floats) -> NDArray[Any]:
        problem: Any = self._problem
        in_order = self.classes_[np.argsort(problem.ranks)]
        labels: NDArray[Any] = in_order[rank_of(scores, self.thresholds_)]
        return labels

    def _block(self, X: Any, given: Given, *, first: bool, keep: bool) -> Block:
        x, labels = single_rows(self, X, given.y, reset=first, keep=keep)
        check_classification_targets(labels)
        return Block(x, self._codes(labels, given.classes, first=first), weights_of(given.sample_weight, len(labels)))

    def _problem_for(self, data: Data) -> Ordinal:
        if len(data.classes) < 2:
            found = f"{len(data.classes)} class{'es' * (not data.classes)}"
            raise InputError(f"{data.location}: OrdinalSVC needs examples of 2 classes or more, found {found}")
        problem = Ordinal(
            n_features=data.n_features,
            classes=data.classes,
            order=[label_name(label) for label in self.order or ()],
            bias=self._number("intercept_scaling"),
            loss=self.loss,
        )
        return replace(problem, class_cost=class_costs(self.class_weight, data, problem, self.client))

    def _set_weights(self, w: Floats, problem: Any) -> None:
        self.coef_, self.thresholds_ = w[: problem.n_features].copy(), problem.thresholds(w)

    def _scores(self, X: Any) -> Floats:
        scores: Floats = np.asarray(X @ self.coef_)
        return scores
