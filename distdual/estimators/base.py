"""What do all estimators share? The solver's options, a run that may begin where another ended, and its certificate."""

import copy
import math
import warnings
from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from distdual.cluster.open_executor import open_executor
from distdual.config import ClusterConfig, SolverConfig, convert, parse
from distdual.coordinator.run import check_columns, single_dual, summarise
from distdual.coordinator.trainer import Outcome, Trainer
from distdual.coordinator.warm_start import FREE_TO_CHANGE, carry_over
from distdual.data.dataset import Dataset
from distdual.data.in_memory import MemoryDataset, coded_in_memory
from distdual.data.shard import Block, join_blocks
from distdual.errors import InputError
from distdual.estimators.inputs import Data, Given, codes_of, is_place, names_of, open_place
from distdual.kernels.rows import Floats
from distdual.model.dual import Dual
from distdual.model.predict import label_array
from distdual.problems.base import Problem


class Start(NamedTuple):
    """Where a run ended: what the next one may begin with."""

    dual: Dual
    C: float
    problem: dict[str, Any]  # its description
    checksum: NDArray[np.uint32]  # of the shards

    def is_for(self, problem: Problem) -> bool:
        """Whether the same rows come out of the same examples."""
        return self.problem == rows_described(problem)

    def begins(self, data: Data) -> bool:
        """Whether the data is what the run saw, or begins with it."""
        return bool(np.array_equal(self.checksum, data.checksum[: len(self.checksum)]))


def rows_described(problem: Problem) -> dict[str, Any]:
    return {key: value for key, value in problem.describe().items() if key not in FREE_TO_CHANGE}


class DualEstimator(BaseEstimator, ABC):
    """Parameters that all have:

    C : weight of the summed loss against 1/2 ||w||², as in liblinear
    gap : stop once (upper − lower) / upper is proven to be at most this
    schedule, prune : as solver.schedule and solver.prune of a config
    max_passes, max_seconds : stop then, certified or not; a fit that ends uncertified warns
    random_state : decides the order of shards and of steps; None is 0, so that the same data give the same model
    warm_start : begin `fit` with the α of the fit before, if the data are the same; another C is no hindrance
    client : a Dask client whose workers scan, else threads of this process do. Arrays are sent to the workers piece by
        piece through the scheduler, so data that are large should be a data set, which the workers read themselves.
        A clone uses the same client; a pickle has none.
    storage_options : how to reach a data set, as fsspec takes it

    Attributes that all have after `fit`: `certificate_` (lower, upper, gap, what it took), `n_iter_` (passes over the
    data), `n_features_in_`.
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        gap: float = 1e-3,
        schedule: str = "slope",
        prune: str = "idle:3",
        max_passes: int = 200,
        max_seconds: float = math.inf,
        random_state: Any = None,
        warm_start: bool = False,
        client: Any = None,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        self.C = C
        self.gap = gap
        self.schedule = schedule
        self.prune = prune
        self.max_passes = max_passes
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.warm_start = warm_start
        self.client = client
        self.storage_options = storage_options

    # --- training

    def _solver_config(self) -> SolverConfig:
        names = ("C", "gap", "schedule", "prune", "max_passes", "max_seconds")
        told = {name: plain(getattr(self, name)) for name in names}
        told |= {"seed": seed_of(self.random_state), "slack": "example"}
        return parse(SolverConfig, told, type(self).__name__)

    def _number(self, name: str) -> float:
        """A parameter that must be a number."""
        return float(convert(float, plain(getattr(self, name)), type(self).__name__, name))

    def _fit_anew(self, X: Any, given: Given) -> Self:
        """What `fit` does: forget what was seen, but with `warm_start` not the α of the same data."""
        data = self._stored(X, given) if is_place(X) else self._dataset(self._block(X, given, first=True, keep=False))
        problem = self._problem_for(data)
        last: Start | None = getattr(self, "_start", None) if self.warm_start else None
        hot = last is not None and last.is_for(problem) and last.begins(data)
        self._train(data, problem, start=last if hot else None, keep=bool(self.warm_start))
        self._seen: Block | None = None
        self._warn()
        return self

    def _fit_grown(self, X: Any, given: Given) -> Self:
        """What `partial_fit` does: train on all examples seen, beginning with the α of the earlier ones."""
        first = self._begin_growth(place=is_place(X))
        block = None if is_place(X) else self._join(self._block(X, given, first=first, keep=True))
        data = self._stored(X, given) if block is None else self._dataset(block)
        problem = self._problem_for(data)
        last: Start | None = getattr(self, "_start", None)
        if block is None and last is not None and not last.begins(data):
            raise InputError(f"{data.location}: partial_fit takes the data set seen before, grown by more shards")
        self._train(data, problem, start=last if last and last.is_for(problem) else None, keep=True)
        self._seen = block
        self._warn()
        return self

    def _train(self, data: Data, problem: Problem, *, start: Start | None, keep: bool) -> None:
        """Train, and set what a fitted estimator has; `keep` tells that a later run may begin with this one's α."""
        config = self._solver_config()
        if isinstance(data, Dataset):
            check_columns(data, problem)
        with open_executor(ClusterConfig(), data, problem, self.client) as executor:
            trainer = Trainer(problem, data, executor, config, lambda _: None)
            if start is not None:
                carry_over(trainer.solver, trainer.grouping, start.dual, start.C, data, executor)
            outcome = trainer.run()
        self.certificate_ = summarise(outcome, config.gap, data)
        self.n_iter_ = outcome.totals.passes
        self._problem, self._w = problem, outcome.w
        self._start = start_after(outcome, config.C, problem, data) if keep else None
        self._set_weights(outcome.w, problem)

    # --- what a subclass says

    @abstractmethod
    def _block(self, X: Any, given: Given, *, first: bool, keep: bool) -> Block:
        """The arrays that `fit` was given; `first` if nothing came before, `keep` if they must not be views."""

    @abstractmethod
    def _problem_for(self, data: Data) -> Problem: ...

    @abstractmethod
    def _set_weights(self, w: Floats, problem: Any) -> None: ...

    # --- data

    def _stored(self, place: Any, given: Given) -> Dataset:
        dataset = open_place(place, self.storage_options, given)
        self.n_features_in_ = dataset.n_features
        self._learn_classes(label_array(dataset.classes))
        return dataset

    def _dataset(self, block: Block) -> MemoryDataset:
        names = names_of(self.classes_) if hasattr(self, "classes_") else ()
        return coded_in_memory(block, names, self.n_features_in_)

    def _learn_classes(self, found: NDArray[Any]) -> None:
        self.classes_ = found

    def _codes(self, labels: NDArray[Any], classes: Any, *, first: bool) -> NDArray[np.int32]:
        """The place of each label among the classes, which the first examples tell unless `classes` does."""
        if first:
            self._learn_classes(np.unique(labels if classes is None else classes))
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise InputError(f"classes are not those of the first call, {', '.join(names_of(self.classes_))}")
        return codes_of(labels, self.classes_)

    def _begin_growth(self, *, place: bool) -> bool:
        """Whether this `partial_fit` is the first; one that cannot go on from what was seen before says so."""
        name = type(self).__name__
        if not self._is_fitted():
            return True
        if self._seen is not None and place:
            raise InputError(f"this {name} has seen arrays; hand new examples to partial_fit as arrays, too")
        if self._seen is not None or (place and self._start is not None):
            return False
        warnings.warn(
            f"this {name} was trained by fit, or on a data set, and keeps no examples for new ones to join: "
            "partial_fit begins anew; hand the first examples to partial_fit, too",
            UserWarning,
            stacklevel=4,  # where partial_fit was called
        )
        self._start = None
        return True

    def _join(self, new: Block) -> Block:
        """The examples seen by `partial_fit`, and new ones after them."""
        seen: Block | None = getattr(self, "_seen", None)
        if seen is None:
            return new
        if (seen.cost is None) != (new.cost is None):
            seen, new = with_costs(seen), with_costs(new)
        if type(seen.x) is not type(new.x):
            raise InputError("partial_fit takes dense examples or sparse ones, not one after the other")
        return join_blocks([seen, new])

    def _is_fitted(self) -> bool:
        return hasattr(self, "certificate_")

    def _warn(self) -> None:
        """Comes last: where warnings are errors, the estimator is as fitted as without."""
        found = self.certificate_
        if found["certified"]:
            return
        proven = "inexact inference proves no gap" if found["gap"] is None else f"the proven gap is {found['gap']:.2e}"
        warnings.warn(
            f"{type(self).__name__}: {proven}, {found['target']:.2e} was asked for ({found['reason']}); "
            "raise max_passes or max_seconds, ask for a larger gap, or scale the features",
            ConvergenceWarning,
            stacklevel=4,  # where fit was called
        )

    # --- what scikit-learn asks

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> Any:
        """A connection stays with its process."""
        return {**super().__getstate__(), "client": None}

    def __sklearn_clone__(self) -> Self:
        """A client cannot be copied: the clone gets the same one."""
        made: Self = BaseEstimator.__sklearn_clone__(copy.copy(self))
        made.client = self.client
        return made


def start_after(outcome: Outcome, C: float, problem: Problem, data: Data) -> Start:
    return Start(single_dual(outcome), C, rows_described(problem), data.checksum)


def with_costs(block: Block) -> Block:
    return block if block.cost is not None else block._replace(cost=np.ones(block.n_examples))


def seed_of(random_state: Any) -> Any:
    """None is 0; a number is itself; a RandomState draws one."""
    if random_state is None or isinstance(random_state, int | np.integer):
        return plain(random_state or 0)
    return int(check_random_state(random_state).randint(2**31 - 1))


def plain(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    return value.item() if isinstance(value, np.generic) else value
