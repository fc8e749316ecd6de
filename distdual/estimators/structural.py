"""StructuralSVM: a user-defined problem, with a proven gap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from distdual.data.in_memory import MemoryDataset, coded_in_memory
from distdual.data.shard import Block
from distdual.data.sources.structures import structure_block
from distdual.errors import InputError
from distdual.estimators.base import signed_prior
from distdual.estimators.inputs import (
    SINGLE,
    Data,
    Given,
    codes_of,
    features_of,
    is_path,
    names_of,
    single_rows,
    weights_of,
)
from distdual.estimators.structured_base import StructuredEstimator
from distdual.kernels.rows import Floats
from distdual.model.predict import label_array
from distdual.problems.base import Problem
from distdual.problems.latent.base import LatentProblem
from distdual.problems.registry import build_problem, own_class
from distdual.problems.user.problem import UserProblem
from distdual.solver.regularizer import Prior


@dataclass(eq=False, repr=False)
class ProblemParameter:
    """`problem`, as the last base class of StructuralSVM: its first parameter, before C."""

    problem: Any = None


@dataclass(eq=False, repr=False, kw_only=True)
class StructuralSVM(StructuredEstimator, ProblemParameter):
    """A user-defined problem, with a proven gap if its argmax is exact or bounded.

    X is as for SVC, and y has labels, or numbers with `regression`. Or X and y are lists of structures: each an array
    of any shape, or a dict of arrays, as the problem's functions take them. Parameters in addition to those of
    DualEstimator:

    - `problem`: a subclass of distdual.UserProblem, its name as "package.module:Class", or an instance
    - `options`: values for the fields of the class; not allowed with an instance, which has its own
    - `regression`: y has numbers to regress on, not labels
    - `nonnegative`: weights that must not be below 0: indices, and ranges such as "0:10"

    Attributes after `fit`: `problem_` (the instance), `coef_` (n_weights,), `classes_` unless `regression` or of
    structures, and those of DualEstimator.
    """

    options: Mapping[str, Any] | None = None
    regression: bool = False
    nonnegative: Sequence[int | str] = ()

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on arrays or lists X and y, or on the data set at the path or URL X."""
        return self._fit(X, Given(y, sample_weight))

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train on these examples and those of all earlier calls, see SVC.partial_fit."""
        return self._partial_fit(X, Given(y, sample_weight, classes))

    def predict(self, X: Any) -> Any:
        """Labels if outputs are class indices, else a list of outputs."""
        check_is_fitted(self)
        data = self._open(X, Given()) if is_path(X) else self._unlabelled(X)
        parts = [part.predicted for part in self._predict_shards(data, scored=False)]
        if not self.regression and not data.structured and all(part.dtype.kind == "i" for part in parts):
            return self.classes_[np.concatenate(parts)]
        return [self.problem_.decode(key_from(name)) for part in parts for name in part.tolist()]

    def score(self, X: Any, y: Any = None) -> float:
        """The negative mean loss, so that higher is better."""
        check_is_fitted(self)
        if is_path(X):
            return -self._mean(self._open(X, Given(y)), "loss")
        if look_like_structures(X, y):
            return -self._mean(self._dataset(structure_block(X, y)), "loss")
        x, labels = single_rows(self, X, y, reset=False, keep=False, y_numeric=self.regression)
        if self.regression:
            return -self._mean(self._dataset(Block(x, np.array(labels, dtype=np.float64))), "loss")
        return -self._mean(self._with_new_labels(x, np.asarray(labels)), "loss")

    def _with_new_labels(self, x: Any, labels: NDArray[Any]) -> MemoryDataset:
        """Examples whose labels may be others than those of training, which have the codes after these."""
        known = self.classes_
        every = np.concatenate([known, np.setdiff1d(labels, known)])
        order = np.argsort(every, kind="stable")
        codes = order[codes_of(labels, every[order])].astype(np.int32)
        return coded_in_memory(Block(x, codes), names_of(every), self.n_features_in_)

    def _block(self, X: Any, given: Given, *, first: bool, keep: bool) -> Block:
        if look_like_structures(X, given.y):
            if given.y is None:
                raise InputError("StructuralSVM requires y to be passed, but the target y is None")
            self._learn_structures()
            return structure_block(X, given.y, given.sample_weight)
        x, labels = single_rows(self, X, given.y, reset=first, keep=keep, y_numeric=self.regression)
        if self.regression:
            self._learn_classes(labels)
            coded: NDArray[Any] = np.array(labels, dtype=np.float64)
        else:
            coded = self._codes(labels, given.classes, first=first)
        return Block(x, coded, weights_of(given.sample_weight, len(labels)))

    def _learn_structures(self) -> None:
        """Structures have neither features nor classes."""
        self.n_features_in_ = 0
        self.__dict__.pop("classes_", None)

    def _learn_classes(self, found: NDArray[Any]) -> None:
        """Set `classes_` to those of a problem instance, which may have more, or else to those found in the data."""
        if self.regression or not len(found):
            self.__dict__.pop("classes_", None)  # left by an earlier fit
            return
        own = self.problem.classes if isinstance(self.problem, UserProblem) else ()
        self.classes_ = label_array(own) if own else found

    def _unlabelled(self, X: Any) -> MemoryDataset:
        if look_like_structures(X, None) or not self.n_features_in_:
            return self._dataset(structure_block(X, None))
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

    def _prior(self, problem: Problem) -> Prior:
        return signed_prior(problem, self.nonnegative)

    def _set_weights(self, w: Floats, problem: Any) -> None:
        self.problem_, self.coef_ = problem, w


def look_like_structures(X: Any, y: Any) -> bool:
    """Whether X is a list of structures; rows of numbers with a label each are features."""
    if not isinstance(X, list | tuple) or not X:
        return False
    first, label = X[0], 0 if y is None or not len(y) else y[0]
    return isinstance(first, Mapping) or np.ndim(label) > 0 or isinstance(label, Mapping) or np.ndim(first) != 1


def key_from(name: Any) -> tuple[int, ...]:
    """The integers in an output as saved by `UserProblem.predict`."""
    return tuple(map(int, name.split())) if isinstance(name, str) else (int(name),)
