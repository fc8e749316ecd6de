"""StructuralSVM: a user-defined problem, with a proven gap."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from distdual.data.in_memory import MemoryDataset
from distdual.data.shard import Block
from distdual.errors import InputError
from distdual.estimators.inputs import SINGLE, Data, Given, features_of, is_path, single_rows, weights_of
from distdual.estimators.structured_base import StructuredEstimator
from distdual.kernels.rows import Floats
from distdual.model.predict import label_array
from distdual.problems.latent.base import LatentProblem
from distdual.problems.registry import build_problem, own_class
from distdual.problems.user.problem import UserProblem


@dataclass(eq=False, repr=False)
class ProblemParameter:
    """`problem`, as the last base class of StructuralSVM: its first parameter, before C."""

    problem: Any = None


@dataclass(eq=False, repr=False, kw_only=True)
class StructuralSVM(StructuredEstimator, ProblemParameter):
    """A user-defined problem, with a proven gap if its argmax is exact.

    X is as for SVC; y has labels, or numbers with `regression`. Parameters in addition to those of DualEstimator:

    - `problem`: a subclass of distdual.UserProblem, its name as "package.module:Class", or an instance
    - `options`: values for the fields of the class; not allowed with an instance, which has its own
    - `regression`: y has numbers to regress on, not labels

    Attributes after `fit`: `problem_` (the instance), `coef_` (n_weights,), `classes_` unless `regression`, and those
    of DualEstimator.
    """

    options: Mapping[str, Any] | None = None
    regression: bool = False

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on arrays X and y, or on the data set at the path or URL X."""
        return self._fit(X, Given(y, sample_weight))

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train on these examples and those of all earlier calls, see SVC.partial_fit."""
        return self._partial_fit(X, Given(y, sample_weight, classes))

    def predict(self, X: Any) -> Any:
        """Labels if outputs are class indices, else a list of outputs."""
        check_is_fitted(self)
        data = self._open(X, Given()) if is_path(X) else self._unlabelled(X)
        parts = [part.predicted for part in self._predict_shards(data)]
        if not self.regression and all(part.dtype.kind == "i" for part in parts):
            return self.classes_[np.concatenate(parts)]
        return [self.problem_.decode(key_from(name)) for part in parts for name in part.tolist()]

    def score(self, X: Any, y: Any = None) -> float:
        """The negative mean loss, so that higher is better."""
        check_is_fitted(self)
        data = (
            self._open(X, Given(y)) if is_path(X) else self._dataset(self._block(X, Given(y), first=False, keep=False))
        )
        return -self._mean(data, "loss")

    def _block(self, X: Any, given: Given, *, first: bool, keep: bool) -> Block:
        x, labels = single_rows(self, X, given.y, reset=first, keep=keep, y_numeric=self.regression)
        if self.regression:
            self._learn_classes(labels)
            coded: NDArray[Any] = np.array(labels, dtype=np.float64)
        else:
            coded = self._codes(labels, given.classes, first=first)
        return Block(x, coded, weights_of(given.sample_weight, len(labels)))

    def _learn_classes(self, found: NDArray[Any]) -> None:
        """Set `classes_` to those of a problem instance, which may have more, or else to those found in the data."""
        if self.regression:
            self.__dict__.pop("classes_", None)  # left by an earlier fit
            return
        own = self.problem.classes if isinstance(self.problem, UserProblem) else ()
        self.classes_ = label_array(own) if own else found

    def _unlabelled(self, X: Any) -> MemoryDataset:
        x = features_of(validate_data(self, X, reset=False, **SINGLE))
        return self._dataset(Block(x, np.zeros(x.n_rows, dtype=np.float64 if self.regression else np.int32)))

    def _problem_for(self, data: Data) -> UserProblem:
        problem = own_class(self.problem, UserProblem) if isinstance(self.problem, str) else self.problem
        if issubclass(problem if isinstance(problem, type) else type(problem), LatentProblem):
            raise InputError("StructuralSVM takes convex problems only; train latent problems with distdual.train")
        if isinstance(problem, UserProblem):
            if self.options:
                raise InputError("problem is an instance: set its fields instead of options")
            if (problem.n_features, problem.classes) != (data.n_features, data.classes):
                raise InputError(
                    f"problem was made for {problem.n_features} features and the classes {problem.classes}, "
                    f"the data have {data.n_features} and {data.classes}"
                )
            return problem
        if not (isinstance(problem, type) and issubclass(problem, UserProblem)):
            raise InputError(f"problem must be a subclass or an instance of distdual.UserProblem, got {problem!r}")
        return cast(
            UserProblem, build_problem(problem, self.options or {}, n_features=data.n_features, classes=data.classes)
        )

    def _set_weights(self, w: Floats, problem: Any) -> None:
        self.problem_, self.coef_ = problem, w


def key_from(name: Any) -> tuple[int, ...]:
    """The integers in an output as saved by `UserProblem.predict`."""
    return tuple(map(int, name.split())) if isinstance(name, str) else (int(name),)
