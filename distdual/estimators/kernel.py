"""The kernel parameters of SVC and SVR: a linear model of mapped features."""

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from distdual.cluster.open_executor import open_executor
from distdual.config import ClusterConfig, KernelConfig, SolverConfig, check_choice, parse
from distdual.coordinator.expansion_run import solved, summarise_expansion
from distdual.coordinator.map_maker import with_map
from distdual.errors import InputError
from distdual.estimators.base import LastFit, python_scalar, seed_of
from distdual.estimators.evaluation import to_all
from distdual.estimators.inputs import Data, matrix_of
from distdual.estimators.linear import LinearEstimator
from distdual.estimators.model_folder import KERNEL_NAMES, data_info
from distdual.kernels.rows import Floats
from distdual.model.dual import Dual
from distdual.problems.base import Problem
from distdual.problems.expanded import Expanded
from distdual.problems.expansion_form import expansion_form_of
from distdual.problems.mapped import Mapped, check_not_mapped, mapped
from distdual.report.notebook import progress

LINEAR = "linear"
KERNEL_CHOICES = ("rbf", "poly", "laplacian", "sigmoid")


@contextlib.contextmanager
def naming_parameters() -> Iterator[None]:
    """Let messages name the parameters of an estimator instead of the keys of [kernel]."""
    try:
        yield
    except InputError as error:
        text = str(error).replace("kernel.basis", "n_components").replace("kernel.map", "approximation")
        raise InputError(text.replace("kernel.", "")) from None


@dataclass(eq=False, repr=False, kw_only=True)
class KernelEstimator(LinearEstimator):
    """Base class of SVC and SVR. Parameters in addition to those of LinearEstimator:

    - `kernel`: "linear", "rbf", "poly", "laplacian" or "sigmoid", as in scikit-learn
    - `gamma`: γ of the kernel, a number, "scale" or "auto"; `degree`, `coef0`: of "poly" and "sigmoid"
    - `n_components`: the number of mapped features of a low-rank approximation; None: the exact kernel
    - `approximation`: "nystroem", on landmarks drawn from the data, or "fourier", random Fourier features
    - `landmarks`: "uniform" or "k-means++", how landmarks are drawn

    With `n_components`, `coef_` has the weights of mapped features, the certificate is that of the mapped problem, and
    `certificate_["kernel"]` says how well the map reproduces the kernel. With an exact kernel there are `support_`,
    `support_vectors_` and `dual_coef_` instead, as in scikit-learn; `dual_coef_` has a row for each of several classes.
    """

    kernel: str = LINEAR
    gamma: Any = "scale"
    degree: int = 3
    coef0: float = 0.0
    n_components: int | None = None
    approximation: str = "nystroem"
    landmarks: str = "uniform"

    def _kernel_config(self) -> KernelConfig:
        name = type(self).__name__
        check_choice(f"{name}: kernel", self.kernel, [LINEAR, *KERNEL_CHOICES])
        options = {
            "kind": KERNEL_NAMES.get(self.kernel, self.kernel),
            "gamma": python_scalar(self.gamma),
            "degree": python_scalar(self.degree),
            "coef0": python_scalar(self.coef0),
            "basis": python_scalar(self.n_components),
            "map": self.approximation,
            "landmarks": self.landmarks,
        }
        with naming_parameters():
            return parse(KernelConfig, options, name)

    def _with_map(self, problem: Problem, data: Data, *, anew: bool) -> Problem:
        if self.kernel == LINEAR and self.n_components is not None:
            told = f'{type(self).__name__}: n_components has no effect with kernel="linear"; name another kernel'
            warnings.warn(told, UserWarning, stacklevel=4)  # the caller of fit
        if self.kernel == LINEAR or self.n_components is None:
            return problem
        check_not_mapped(data)
        kernel, last = self._kernel_config(), getattr(self, "_problem", None)
        if isinstance(last, Mapped) and not anew:
            return mapped(problem, last.feature_map, last.quality)
        with open_executor(ClusterConfig(), data, problem, self.client) as executor:
            return with_map(problem, kernel, data, executor, seed_of(self.random_state), self.storage_options or {})

    def _train(self, data: Data, problem: Problem, *, start: LastFit | None, keep: bool, eval_set: Any = None) -> None:
        if self.kernel == LINEAR or self.n_components is not None:
            super()._train(data, problem, start=start, keep=keep, eval_set=eval_set)
            return
        check_not_mapped(data)
        self._check_exact(keep=keep, evaluates=eval_set is not None or self.patience != 0)
        kernel, config = self._kernel_config(), self._solver_config()
        with naming_parameters():
            expansion_form_of(problem)  # refuses one that has none
        with (
            progress(self.verbose, config.gap) as shown,
            open_executor(ClusterConfig(), data, problem, self.client) as executor,
        ):
            outcome = solved(problem, kernel, data, executor, config, to_all([shown, *self.callbacks]))
        self.certificate_ = summarise_expansion(outcome, config.gap, data)
        self.n_iter_ = outcome.totals.passes
        self._problem, self._w, self._start = outcome.problem, outcome.w, None
        self._dual, self._data = outcome.dual, data_info(data)
        self._set_weights(outcome.w, outcome.problem)

    def _check_exact(self, *, keep: bool, evaluates: bool) -> None:
        """Refuse what an exact kernel cannot do."""
        name, plain = type(self).__name__, SolverConfig()
        changed = [each for each in ("schedule", "prune") if getattr(self, each) != getattr(plain, each)]
        if changed or keep or evaluates:
            what = changed[0] if changed else "a warm start or partial_fit" if keep else "an evaluation of each pass"
            raise InputError(
                f"{name}: {what} is not possible with an exact kernel; give n_components for a low-rank one"
            )

    def _set_weights(self, w: Floats, problem: Any) -> None:
        if not isinstance(problem, Expanded):
            super()._set_weights(w, problem)
            return
        self.__dict__.pop("coef_", None)
        assert isinstance(self._dual, Dual)
        beta = w.reshape(-1, problem.form.columns)
        self.support_, self.dual_coef_ = np.unique(self._dual.example), beta.T.copy()
        self.support_vectors_ = matrix_of(problem.support, problem.problem.n_features)
        self.intercept_ = problem.bias2 * beta.sum(axis=0)
