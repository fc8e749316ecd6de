"""SVC: classification, linear or with a kernel, with a proven gap."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from distdual.cluster.collection import CollectionDataset
from distdual.cluster.open_executor import open_executor
from distdual.config import ClusterConfig
from distdual.data.shard import Block
from distdual.data.sources.partitions import is_collection
from distdual.data.validate import label_name
from distdual.errors import InputError
from distdual.estimators.collections import collection_of
from distdual.estimators.inputs import Data, Given, first_norm, is_path, single_rows, weights_of
from distdual.estimators.kernel import KernelEstimator
from distdual.kernels.rows import Floats
from distdual.problems.base import Problem
from distdual.problems.binary import Binary
from distdual.problems.linear import FREE
from distdual.problems.multiclass import Multiclass


def is_calibrated(estimator: Any) -> bool:
    """Whether there is a `predict_proba`; says what to do where there is none."""
    if getattr(estimator, "_calibration", None) is None:
        raise AttributeError(
            "this SVC gives no probabilities: wrap it in sklearn.calibration.CalibratedClassifierCV, or take the SVC "
            "of a model folder after `distdual calibrate`"
        )
    return True


@dataclass(eq=False, repr=False, kw_only=True)
class SVC(ClassifierMixin, KernelEstimator):
    """A classifier with a proven gap, linear or with a kernel.

    The loss is the hinge loss for two classes, Crammer and Singer's for more.

        P(w) = 1/2 ||w||² + C Σ_i weight_i · max(0, 1 − y_i ⟨w, x_i⟩)                 two classes, y_i = ±1
        P(w) = 1/2 ||w||² + C Σ_i weight_i · max(0, max_j 1 − ⟨w_{y_i} − w_j, x_i⟩)   more

    X is an array, a SciPy sparse matrix, a Dask array or data frame with one row per example, or the path or URL of a
    data set, which contains its own labels and costs. Features are rounded to single precision. Parameters in addition
    to those of KernelEstimator, LinearEstimator and DualEstimator:

    - `class_weight`: cost of a unit of slack by class label; "balanced" gives all classes the same total weight

    Attributes after `fit`: `classes_`, `coef_` (1, n_features) or (n_classes, n_features), `intercept_` and those of
    DualEstimator.
    """

    class_weight: Mapping[Any, float] | str | None = None

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, eval_set: Any = None) -> Self:
        """Train on arrays X and y, or on the data set at the path or URL X.

        `eval_set` is a tuple (X, y), or a data set, on which certified weights are scored after each pass, where the
        data are scanned: see `evaluations_` and `patience`.
        """
        return self._fit(X, Given(y, sample_weight, eval_set=eval_set))

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train on these examples and those of all earlier calls, starting from the α of the earlier ones.

        The estimator and its pickle keep all examples, and the certificate covers them all. `classes` declares labels
        that only later examples have. A data set must be the same as before, with shards appended.
        """
        return self._partial_fit(X, Given(y, sample_weight, classes))

    def decision_function(self, X: Any) -> Floats:
        """(n,) scores, above 0 for the second class; for more than two classes (n, n_classes)."""
        if is_collection(X):
            check_is_fitted(self)
            n_columns = (len(self.classes_),) if len(self.classes_) > 2 else ()
            return cast(Floats, self._lazily("decision_function", X, np.empty((0, *n_columns))))
        return self._decide(X)

    def predict(self, X: Any) -> Any:
        """A label for each row; lazy for a Dask array or data frame."""
        if is_collection(X):
            check_is_fitted(self)
            return self._lazily("predict", X, self.classes_[:0])
        return self._labels(self._decide(X))

    @available_if(is_calibrated)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """(n, n_classes) probabilities; for an SVC made of a model that `distdual calibrate` has calibrated."""
        if is_collection(X):
            return cast(Floats, self._lazily("predict_proba", X, np.empty((0, len(self.classes_)))))
        found: Floats = self._calibration.probabilities(self._decide(X))  # type: ignore[attr-defined]
        return found

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The accuracy; X may be the path or URL of a data set."""
        if not is_path(X):
            weights = None if sample_weight is None else np.asarray(sample_weight)
            return float(accuracy_score(np.asarray(y), np.asarray(self.predict(X)), sample_weight=weights))
        found = self._decide_stored(X, Given(y, sample_weight), scored=True)
        return float(np.mean([label_name(label) for label in self._labels(found.scores).tolist()] == found.y))

    def _labels(self, scores: Floats) -> NDArray[Any]:
        chosen = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.int64)
        labels: NDArray[Any] = self.classes_[chosen]
        return labels

    def _in_cluster(self, X: Any, given: Given) -> CollectionDataset | None:
        return collection_of(self, X, given, regression=False)

    def _block(self, X: Any, given: Given, *, first: bool, keep: bool) -> Block:
        x, labels = single_rows(self, X, given.y, reset=first, keep=keep)
        check_classification_targets(labels)
        return Block(x, self._codes(labels, given.classes, first=first), weights_of(given.sample_weight, len(labels)))

    def _problem_for(self, data: Data) -> Binary | Multiclass:
        if len(data.classes) < 2:
            found = f"{len(data.classes)} class{'es' * (not data.classes)}"
            raise InputError(f"{data.location}: SVC needs examples of 2 classes or more, found {found}")
        kind = Binary if len(data.classes) == 2 else Multiclass
        if kind is Multiclass and self._bias == FREE:
            raise InputError(f'{data.location}: fit_intercept="{FREE}" needs 2 classes, found {len(data.classes)}')
        made = kind(n_features=data.n_features, classes=data.classes, bias=self._bias)
        problem = made.fitted_to(first_norm(data))
        return replace(problem, class_cost=class_costs(self.class_weight, data, problem, self.client))


def class_costs(
    class_weight: Mapping[Any, float] | str | None, data: Data, problem: Problem, client: Any
) -> dict[str, float]:
    """The cost of a unit of slack by class label."""
    if class_weight is None:
        return {}
    if not isinstance(class_weight, str):
        return {label_name(label): float(weight) for label, weight in class_weight.items()}
    with open_executor(ClusterConfig(), data, problem, client) as executor:
        executor.publish(-1, np.zeros(0))
        counts: Floats = np.sum(list(executor.map_shards(count_labels, range(data.n_shards))), axis=0)
    return dict(zip(data.classes, balanced(class_weight, counts), strict=True))


def balanced(class_weight: str, counts: Floats) -> list[float]:
    """Class weights that give every class the same total weight and sum to n over all examples."""
    if class_weight != "balanced":
        raise InputError(f'class_weight must be a table, "balanced" or None, got {class_weight!r}')
    costs = counts.sum() / (len(counts) * np.where(counts > 0, counts, np.inf))
    return [float(cost) for cost in costs]


def count_labels(source: Any, problem: Any, w: Floats, shard: int) -> Floats:  # noqa: ARG001
    """The summed weight of the examples of each class in one shard; runs on a worker."""
    found = source.open().read(shard).shard
    labels = found.y if found.tokens is None else found.y[found.tokens[:-1]]  # one label per bag
    return np.bincount(labels, found.cost, minlength=len(problem.classes)).astype(np.float64)
