"""The kernel parameters of SVC and SVR: a linear model of mapped features."""

from dataclasses import dataclass
from typing import Any

from distdual.cluster.open_executor import open_executor
from distdual.config import ClusterConfig, KernelConfig, parse
from distdual.coordinator.map_maker import with_map
from distdual.errors import InputError
from distdual.estimators.base import python_scalar, seed_of
from distdual.estimators.inputs import Data
from distdual.estimators.linear import LinearEstimator
from distdual.estimators.model_folder import KERNEL_NAMES
from distdual.problems.base import Problem
from distdual.problems.mapped import Mapped, mapped

LINEAR = "linear"


@dataclass(eq=False, repr=False, kw_only=True)
class KernelEstimator(LinearEstimator):
    """Base class of SVC and SVR. Parameters in addition to those of LinearEstimator:

    - `kernel`: "linear", "rbf", "poly", "laplacian" or "sigmoid", as in scikit-learn
    - `gamma`: γ of the kernel, a number, "scale" or "auto"; `degree`, `coef0`: of "poly" and "sigmoid"
    - `n_components`: with a kernel, the number of mapped features, which its low-rank approximation has
    - `approximation`: "nystroem", on landmarks drawn from the data, or "fourier", random Fourier features
    - `landmarks`: "uniform" or "k-means++", how landmarks are drawn

    With a kernel, `coef_` has the weights of mapped features, the certificate is that of the mapped problem, and
    `certificate_["kernel"]` says how well the map reproduces the kernel.
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
        if self.n_components is None:
            raise InputError(f"{name}: kernel={self.kernel!r} needs n_components, the number of mapped features")
        options = {
            "kind": KERNEL_NAMES.get(self.kernel, self.kernel),
            "gamma": python_scalar(self.gamma),
            "degree": python_scalar(self.degree),
            "coef0": python_scalar(self.coef0),
            "basis": python_scalar(self.n_components),
            "map": self.approximation,
            "landmarks": self.landmarks,
        }
        try:
            return parse(KernelConfig, options, name)
        except InputError as error:
            text = str(error).replace("kernel.basis", "n_components").replace("kernel.map", "approximation")
            raise InputError(text.replace("kernel.", "")) from None

    def _with_map(self, problem: Problem, data: Data, *, anew: bool) -> Problem:
        if self.kernel == LINEAR:
            return problem
        kernel, last = self._kernel_config(), getattr(self, "_problem", None)
        if isinstance(last, Mapped) and not anew:
            return mapped(problem, last.feature_map, last.quality)
        with open_executor(ClusterConfig(), data, problem, self.client) as executor:
            return with_map(problem, kernel, data, executor, seed_of(self.random_state), self.storage_options or {})
