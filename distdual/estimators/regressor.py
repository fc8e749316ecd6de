"""SVR: ε-insensitive regression, linear or with a kernel, with a proven gap."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from distdual.cluster.collection import CollectionDataset
from distdual.data.shard import Block
from distdual.data.sources.partitions import is_collection
from distdual.estimators.collections import collection_of
from distdual.estimators.inputs import Data, Given, first_norm, is_path, single_rows, weights_of
from distdual.estimators.kernel import KernelEstimator
from distdual.problems.regression import Regression


@dataclass(eq=False, repr=False, kw_only=True)
class SVR(RegressorMixin, KernelEstimator):
    """A regressor with a proven gap, linear or with a kernel.

        P(w) = 1/2 ||w||² + C Σ_i weight_i · max(0, |y_i − ⟨w, x_i⟩| − ε)

    X is as for SVC. Parameters in addition to those of KernelEstimator, LinearEstimator and DualEstimator:

    - `epsilon`: errors up to this have no loss

    Attributes after `fit`: `coef_` (n_features,), `intercept_` (1,) and those of DualEstimator.
    """

    epsilon: float = 0.1

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, eval_set: Any = None) -> Self:
        """Train on arrays X and y, or on the data set at the path or URL X.

        `eval_set` is a tuple (X, y), or a data set, on which certified weights are scored after each pass, where the
        data are scanned: see `evaluations_` and `patience`.
        """
        return self._fit(X, Given(y, sample_weight, eval_set=eval_set))

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on these examples and those of all earlier calls, see SVC.partial_fit."""
        return self._partial_fit(X, Given(y, sample_weight))

    def predict(self, X: Any) -> Any:
        """A number for each row; lazy for a Dask array or data frame."""
        if is_collection(X):
            return self._lazily("predict", X, np.empty(0))
        return self._decide(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """R², the share of variance explained; X may be the path or URL of a data set."""
        if not is_path(X):
            weights = None if sample_weight is None else np.asarray(sample_weight)
            return float(r2_score(np.asarray(y), np.asarray(self.predict(X)), sample_weight=weights))
        found = self._decide_stored(X, Given(y, sample_weight), scored=True)
        return float(r2_score(found.y, found.scores))

    def _in_cluster(self, X: Any, given: Given) -> CollectionDataset | None:
        return collection_of(self, X, given, regression=True)

    def _block(self, X: Any, given: Given, *, first: bool, keep: bool) -> Block:
        x, targets = single_rows(self, X, given.y, reset=first, keep=keep, y_numeric=True)
        return Block(x, np.array(targets, dtype=np.float64), weights_of(given.sample_weight, len(targets)))

    def _learn_classes(self, found: Any) -> None:
        """Targets have no classes."""

    def _problem_for(self, data: Data) -> Regression:
        bias, epsilon = self._bias, self._number("epsilon")
        made = Regression(n_features=data.n_features, classes=data.classes, bias=bias, epsilon=epsilon)
        return made.fitted_to(first_norm(data))
