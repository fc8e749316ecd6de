"""The base classes of estimators with scores ⟨w, x⟩, and of those with scores ⟨w, x⟩ + intercept."""

import copy
import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from distdual.cluster.open_executor import open_executor
from distdual.config import ClusterConfig
from distdual.data.preprocess.preprocessing import RAW
from distdual.data.preprocess.stored import features_after_map
from distdual.data.sources.arrays import is_sparse
from distdual.errors import InputError
from distdual.estimators.base import DualEstimator
from distdual.estimators.collections import lazily
from distdual.estimators.inputs import Given, check_columns_of, features_of, is_path
from distdual.estimators.raw_rows import prepared_rows
from distdual.kernels.rows import Floats
from distdual.problems.expanded import Expanded
from distdual.problems.linear import FREE, constant_feature
from distdual.problems.mapped import Mapped, unmapped
from distdual.problems.multiclass import Multiclass
from distdual.problems.regression import Regression


class Decided(NamedTuple):
    scores: Floats  # (n,) or (n, K)
    y: NDArray[Any]  # labels as strings, or targets


class ScoringEstimator(DualEstimator):
    """Base class of estimators that score single rows: of arrays, raw rows as before `prepare`, or a data set."""

    def _lazily(self, method: str, X: Any, meta: NDArray[Any]) -> Any:
        """What a method returns for a Dask collection: a lazy collection of its results for each partition."""
        check_is_fitted(self)
        if self.preprocessing_.columns is None:
            check_columns_of(self, X, reset=False)
        return lazily(getattr(without_training(self), method), X, meta)

    def _decide(self, X: Any) -> Floats:
        check_is_fitted(self)
        if is_path(X):
            return self._decide_stored(X, Given()).scores
        if self.preprocessing_.columns is not None:
            return self._scores(prepared_rows(self.preprocessing_, X, self._stored_width()))
        doubles = [np.float64, np.float32]
        return self._raw_scores(validate_data(self, X, reset=False, accept_sparse="csr", dtype=doubles))

    def _stored_width(self) -> int:
        return features_after_map(self.preprocessing_, self.n_features_in_)

    def _raw_scores(self, X: Any) -> Floats:
        """Scores of rows that are as they were before `prepare`."""
        if self.preprocessing_.fingerprint == RAW.fingerprint:
            return self._scores(X)
        return self._scores(prepared_rows(self.preprocessing_, X, self._stored_width()))

    def _decide_stored(self, path: Any, given: Given, *, scored: bool = False) -> Decided:
        """Scores of a data set by shard, on the client's workers if there is one."""
        dataset = self._open_like(path, given, scored=scored)
        with open_executor(ClusterConfig(), dataset, self._problem, self.client) as executor:
            executor.publish(0, self._w)
            parts = list(executor.map_shards(decide_shard, range(dataset.n_shards)))
        y = np.concatenate([part.y for part in parts])
        labels = np.array(dataset.classes)[y] if dataset.classes else y
        return Decided(np.concatenate([part.scores for part in parts]), labels)

    @abstractmethod
    def _scores(self, X: Any) -> Floats:
        """Scores of the rows of a NumPy or SciPy array."""


@dataclass(eq=False, repr=False, kw_only=True)
class LinearEstimator(ScoringEstimator):
    """Base class of the linear estimators. Parameters in addition to those of DualEstimator:

    - `fit_intercept`: learn a bias as the weight of a constant feature, regularised like all others; "free" for one
      that is not regularised (two classes, and regression)
    - `intercept_scaling`: value of that feature; the larger, the less the bias is regularised
    """

    fit_intercept: bool | str = True
    intercept_scaling: float = 1.0

    @property
    def _bias(self) -> Any:
        value = self._number("intercept_scaling")
        if isinstance(self.fit_intercept, str):
            if self.fit_intercept != FREE or value != 1.0:
                told = f'fit_intercept is True, False or "{FREE}", which needs no intercept_scaling'
                raise InputError(f"{told}; got {self.fit_intercept!r} and {value:g}")
            return FREE
        if not 0 < value < math.inf:
            raise InputError(f"intercept_scaling must be positive and finite, got {value}")
        return value if self.fit_intercept else 0.0

    def _set_weights(self, w: Floats, problem: Any) -> None:
        self.coef_, self.intercept_ = split_weights(w, problem)

    def _scores(self, X: Any) -> Floats:
        if isinstance(self._problem, Expanded):
            rows = features_of(as_singles(X))
            return self._problem.of_rows(self._w, rows)
        if isinstance(self._problem, Mapped):
            X = self._problem.feature_map.rows(features_of(as_singles(X))).values
        return linear_scores(X, self.coef_, self.intercept_)


def without_training(estimator: Any) -> Any:
    """A copy that predicts, without the client, examples and α that a fit leaves, to be sent to workers."""
    made = copy.copy(estimator)
    made.client = made._start = made._seen = made._dual = None
    return made


def split_weights(w: Floats, problem: Any) -> tuple[Floats, Floats]:
    """coef and intercept: (d,) and (1,) for regression, (1, d) and (1,) for two classes, (K, d) and (K,) for more."""
    problem = unmapped(problem)
    n_classes = len(problem.classes) if isinstance(problem, Multiclass) else 1
    blocks = w.reshape(n_classes, -1)
    coef = blocks[:, : problem.n_features].copy()
    constant = constant_feature(problem)
    bias = constant * blocks[:, -1] if constant else np.zeros(n_classes)
    return (coef[0] if isinstance(problem, Regression) else coef), bias


def linear_scores(X: Any, coef: Floats, intercept: Floats) -> Floats:
    """⟨w, x⟩ + intercept of each row: (n,), or (n, K) for several classes."""
    scores: Floats = np.asarray(X @ coef.T) + intercept
    return scores if len(intercept) > 1 else scores.reshape(-1)


def decide_shard(source: Any, problem: Any, w: Floats, shard: int) -> Decided:
    """Scores and labels of one shard; runs on a worker."""
    found = problem.prepared(source.open().read(shard).shard)
    return Decided(problem.decision(w, found), found.y)


def as_singles(X: Any) -> Any:
    """Rows as `fit` takes them, in single precision."""
    return X.astype(np.float32) if is_sparse(X) else np.ascontiguousarray(X, dtype=np.float32)
