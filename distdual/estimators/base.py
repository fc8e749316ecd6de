"""The base class of all estimators: solver parameters, warm-started training and the certificate."""

import copy
import math
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from distdual.cluster.collection import CollectionDataset
from distdual.cluster.open_executor import open_executor
from distdual.config import ClusterConfig, SolverConfig, convert, index_range, parse
from distdual.coordinator.outcome import Outcome
from distdual.coordinator.result_model import dual_of, single_dual, summarise
from distdual.coordinator.run_inputs import check_unused_columns
from distdual.coordinator.schedule import Cause
from distdual.coordinator.warm_start import FREE_TO_CHANGE, carry_over
from distdual.coordinator.whole_trainer import trainer_class
from distdual.data.dataset import Dataset, check_labelled
from distdual.data.in_memory import MemoryDataset, coded_in_memory
from distdual.data.preprocess.preprocessing import RAW, check_same, of_dataset
from distdual.data.preprocess.stored import features_after_map, features_before_map
from distdual.data.shard import Block, join_blocks
from distdual.errors import InputError
from distdual.estimators.evaluation import evaluated, evaluation_of, hooks, to_all
from distdual.estimators.feature_scales import warn_of_scales
from distdual.estimators.inputs import Data, Given, codes_of, is_path, names_of, open_stored
from distdual.estimators.model_folder import data_info, save_model, set_model, set_names
from distdual.kernels.rows import Floats
from distdual.model.dual import Dual
from distdual.model.io import Model, load_model
from distdual.model.predict import check_width, label_array
from distdual.problems.base import Problem
from distdual.problems.mapped import certified_kernel
from distdual.report.notebook import progress
from distdual.solver.regularizer import Prior


class LastFit(NamedTuple):
    """The result of a run as a warm start for the next one."""

    dual: Dual
    C: float
    problem: dict[str, Any]  # description of the problem
    checksum: NDArray[np.uint32]  # of the shards

    def is_for(self, problem: Problem) -> bool:
        """Whether `problem` makes the same rows of the same examples."""
        return self.problem == rows_described(problem)

    def is_prefix_of(self, data: Data) -> bool:
        """Whether `data` equals or begins with the data of the run."""
        return bool(np.array_equal(self.checksum, data.checksum[: len(self.checksum)]))


def rows_described(problem: Problem) -> dict[str, Any]:
    return {key: value for key, value in problem.describe().items() if key not in FREE_TO_CHANGE}


@dataclass(eq=False, repr=False, kw_only=True)
class DualEstimator(BaseEstimator, ABC):
    """Base class of all estimators. Common parameters:

    - `C`: weight of the summed loss against 1/2 ||w||², as in liblinear
    - `gap`: stop once (upper − lower) / upper is proven to be at most this
    - `schedule`, `prune`: see solver.schedule and solver.prune of a config
    - `max_passes`, `max_seconds`: stop after so many passes over the data, or seconds of training, certified or not; an
        uncertified fit warns and keeps its best weights, with the gap they have in `certificate_`
    - `random_state`: seed for the order of shards and of steps; None means 0, so that equal data give equal models
    - `warm_start`: start `fit` from the α of the previous fit if the data are the same; C may differ
    - `verbose`: 1 shows the bounds: a table on a terminal or in a notebook, elsewhere a line for each
    - `callbacks`: functions that are called with each line of the run log, with bounds, costs and scores
    - `patience`: stop, certified or not, after so many evaluations in a row that have brought no better score on the
        `eval_set` of `fit`, which SVC and SVR take; 0 never does
    - `client`: Dask client whose workers scan the data; by default, threads of this process do. Arrays are sent to the
        workers piece by piece through the scheduler, so large data should be a data set, which the workers read
        themselves. A clone shares the client; a pickle drops it.
    - `storage_options`: fsspec options for a data set

    Common attributes after `fit`: `certificate_` (lower, upper, gap and costs), `n_iter_` (passes over the data),
    `n_features_in_`. With an `eval_set`, `evaluations_` has the scores of each pass, with "passes" and "seconds".
    """

    C: float = field(default=1.0, kw_only=False)
    gap: float = 1e-3
    schedule: str = "slope"
    prune: str = "idle:3"
    max_passes: int = 200
    max_seconds: float = math.inf
    random_state: Any = None
    warm_start: bool = False
    verbose: int = 0
    callbacks: Any = ()
    patience: int = 0
    client: Any = None
    storage_options: dict[str, Any] | None = None

    _solver_names: ClassVar = {name: name for name in ("C", "gap", "schedule", "prune", "max_passes", "max_seconds")}

    # --- training

    def _solver_config(self) -> SolverConfig:
        """The solver's configuration, whose keys are the parameters of `_solver_names`."""
        names = self._solver_names
        options = {key: python_scalar(getattr(self, name)) for key, name in names.items()}
        options |= {"seed": seed_of(self.random_state), "slack": "example"}
        try:
            return parse(SolverConfig, options, type(self).__name__)
        except InputError as error:
            words = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), str(error).replace("solver.", ""))
            raise InputError(words) from None

    def _number(self, name: str) -> float:
        """The value of a parameter that must be a number."""
        return float(convert(float, python_scalar(getattr(self, name)), type(self).__name__, name))

    def _fit(self, X: Any, given: Given) -> Self:
        """Implementation of `fit`: train from scratch, or with `warm_start` from the α of the same data."""
        if is_path(X):
            data: Data = self._stored(X, given)
        else:
            self.preprocessing_ = RAW
            data = self._in_cluster(X, given) or self._dataset(self._block(X, given, first=True, keep=False))
        problem = self._with_map(self._problem_for(data), data, anew=True)
        last: LastFit | None = getattr(self, "_start", None) if self.warm_start else None
        warm = last is not None and last.is_for(problem) and last.is_prefix_of(data)
        keep = bool(self.warm_start)
        self._train(data, problem, start=last if warm else None, keep=keep, eval_set=given.eval_set)
        self._seen: Block | None = None
        self._warn()
        return self

    def _partial_fit(self, X: Any, given: Given) -> Self:
        """Implementation of `partial_fit`: train on all examples seen, starting from the α of the earlier ones."""
        first = self._is_first_call(stored=is_path(X))
        block = None if is_path(X) else self._join(self._block(X, given, first=first, keep=True))
        if block is None:
            data: Data = self._stored(X, given)
        else:
            self.preprocessing_ = RAW
            data = self._dataset(block)
        problem = self._with_map(self._problem_for(data), data, anew=first)
        last: LastFit | None = getattr(self, "_start", None)
        if block is None and last is not None and not last.is_prefix_of(data):
            raise InputError(f"{data.location}: partial_fit needs the same data set as before, with shards appended")
        self._train(data, problem, start=last if last and last.is_for(problem) else None, keep=True)
        self._seen = block
        self._warn()
        return self

    def _train(self, data: Data, problem: Problem, *, start: LastFit | None, keep: bool, eval_set: Any = None) -> None:
        """Train and set the fitted attributes; `keep` saves α for a later warm start."""
        config = self._solver_config()
        if isinstance(data, Dataset):
            check_unused_columns(data, problem)
        if isinstance(data, MemoryDataset):
            warn_of_scales(data, type(self).__name__, getattr(self, "feature_names_in_", None))
        with (
            progress(self.verbose, config.gap) as shown,
            open_executor(ClusterConfig(), data, problem, self.client) as executor,
            evaluation_of(self, eval_set, data, problem, executor) as evaluation,
        ):
            watch = to_all([shown, *self.callbacks])
            make = trainer_class(problem, config.mode)
            trainer = make(problem, data, executor, config, watch, self._prior(problem), **hooks(evaluation))
            if start is not None:
                carry_over(trainer.solver, trainer.partition, start.dual, start.C, data, executor)
            outcome = trainer.run()
            if evaluation is not None:
                evaluation.after_round(trainer)
        self.evaluations_ = [evaluated(line) for line in outcome.history if line.scores]
        self.certificate_ = {**summarise(outcome, config.gap, data), **certified_kernel(problem, self.preprocessing_)}
        self.n_iter_ = outcome.totals.passes
        self._problem, self._w, self._calibration = problem, outcome.w, None
        self._start = start_after(outcome, config.C, problem, data) if keep else None
        # The support of arrays that are gone proves nothing to others; other data can be verified with.
        gone = isinstance(data, MemoryDataset)
        self._dual = dual_of(outcome, "summary", None) if gone else single_dual(outcome)
        self._data = data_info(data)
        self._set_weights(outcome.w, problem)

    def _prior(self, problem: Problem) -> Prior:
        """What is known about the weights."""
        return signed_prior(problem)

    # --- implemented by subclasses

    def _in_cluster(self, X: Any, given: Given) -> CollectionDataset | None:  # noqa: ARG002
        """The examples of a Dask collection, which stay where they are; None for other inputs."""
        return None

    @abstractmethod
    def _block(self, X: Any, given: Given, *, first: bool, keep: bool) -> Block:
        """The arrays passed to `fit`; `first` if there are none from before, `keep` to copy instead of viewing them."""

    @abstractmethod
    def _problem_for(self, data: Data) -> Problem: ...

    @abstractmethod
    def _set_weights(self, w: Floats, problem: Any) -> None: ...

    def _with_map(self, problem: Problem, data: Data, *, anew: bool) -> Problem:  # noqa: ARG002
        """The problem on mapped features, for estimators that have kernels; `anew` unless the last map is good."""
        return problem

    # --- data

    def _stored(self, path: Any, given: Given) -> Dataset:
        dataset = check_labelled(open_stored(path, self.storage_options, given))
        self.preprocessing_ = of_dataset(dataset)
        self.n_features_in_ = features_before_map(self.preprocessing_, dataset.n_features)
        set_names(self, self.preprocessing_)
        self._learn_classes(label_array(dataset.classes))
        return dataset

    def _open_like(self, path: Any, given: Given, *, scored: bool = False) -> Dataset:
        """Open a data set to predict on, whose features were made as those of `fit`; with labels, to be `scored`."""
        dataset = open_stored(path, self.storage_options, given)
        if scored:
            check_labelled(dataset)
        remedy = "prepare it with like, and the data set that the estimator was fitted on"
        check_same(self.preprocessing_, dataset, f"this {type(self).__name__} was fitted on features", remedy)
        check_width(features_after_map(self.preprocessing_, self.n_features_in_), dataset)
        return dataset

    def _dataset(self, block: Block) -> MemoryDataset:
        names = names_of(self.classes_) if hasattr(self, "classes_") else ()
        width = features_after_map(self.preprocessing_, self.n_features_in_)
        return coded_in_memory(self.preprocessing_.converted(block, "X"), names, width)

    def _learn_classes(self, found: NDArray[Any]) -> None:
        self.classes_ = found

    def _codes(self, labels: NDArray[Any], classes: Any, *, first: bool) -> NDArray[np.int32]:
        """The index of each label in `classes_`, which `classes` or else the first examples define."""
        if first:
            self._learn_classes(np.unique(labels if classes is None else classes))
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise InputError(f"classes differ from those of the first call, {', '.join(names_of(self.classes_))}")
        return codes_of(labels, self.classes_)

    def _is_first_call(self, *, stored: bool) -> bool:
        """Whether this `partial_fit` starts from scratch; warns if an earlier fit cannot be continued."""
        name = type(self).__name__
        if not self._is_fitted():
            return True
        if self._seen is not None and stored:
            raise InputError(f"this {name} was trained on arrays; pass new examples to partial_fit as arrays, too")
        if self._seen is not None or (stored and self._start is not None):
            return False
        warnings.warn(
            f"this {name} was trained by fit, or on a data set, and keeps no examples to add to: "
            "partial_fit starts from scratch; pass the first examples to partial_fit, too",
            UserWarning,
            stacklevel=4,  # the caller of partial_fit
        )
        self._start = None
        return True

    def _join(self, new: Block) -> Block:
        """The examples of earlier `partial_fit` calls followed by the new ones."""
        seen: Block | None = getattr(self, "_seen", None)
        if seen is None:
            return new
        if (seen.cost is None) != (new.cost is None):
            seen, new = with_costs(seen), with_costs(new)
        if type(seen.x) is not type(new.x):
            raise InputError("partial_fit needs all examples dense or all sparse, got both")
        return join_blocks([seen, new])

    def _is_fitted(self) -> bool:
        return hasattr(self, "certificate_")

    def _warn(self) -> None:
        """Warn about an uncertified fit; called last, so that the estimator is fitted even if warnings are errors."""
        found = self.certificate_
        if found["certified"] or found.get("stopped_by") == Cause.VALIDATION:
            return
        proven = "inexact inference proves no gap" if found["gap"] is None else f"the proven gap is {found['gap']:.2e}"
        warnings.warn(
            f"{type(self).__name__}: {proven}, the target is {found['target']:.2e} ({found['reason']}); "
            "raise max_passes, max_seconds or gap, or scale the features",
            ConvergenceWarning,
            stacklevel=4,  # the caller of fit
        )

    # --- model folders

    @classmethod
    def from_model(cls, model: Any, *, storage_options: dict[str, Any] | None = None) -> Self:
        """The fitted estimator of a model, or of the model folder at a path or URL.

        Rows to predict are raw, as before `prepare`: a data frame or a list of dicts for models of tables.
        """
        made = cls(storage_options=storage_options)
        set_model(made, model if isinstance(model, Model) else load_model(model, storage_options=storage_options))
        return made

    def save(self, url: Any, *, overwrite: bool = False) -> None:
        """Write a model folder, which `distdual predict` and `from_model` read.

        `distdual verify` recomputes the certificate if `fit` was given a data set.
        """
        check_is_fitted(self)
        save_model(self, url, overwrite=overwrite)

    # --- scikit-learn's protocol

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> Any:
        """Drop the client, whose connection cannot be pickled."""
        return {**super().__getstate__(), "client": None}

    def __sklearn_clone__(self) -> Self:
        """Share the client with the clone, since it cannot be copied."""
        made: Self = BaseEstimator.__sklearn_clone__(copy.copy(self))
        made.client = self.client
        return made


def signed_prior(problem: Problem, nonnegative: Sequence[int | str] = ()) -> Prior:
    """The plain prior, with the signs that the problem needs and others asked for."""
    ranges = [np.arange(found.start, found.stop) for found in map(index_range, nonnegative)]
    signed = np.unique(np.concatenate([*ranges, problem.nonnegative_weights()])).astype(np.int64)
    return Prior(problem.n_weights, nonnegative=signed if len(signed) else None, free=problem.free_bias)


def start_after(outcome: Outcome, C: float, problem: Problem, data: Data) -> LastFit:
    return LastFit(single_dual(outcome), C, rows_described(problem), data.checksum)


def with_costs(block: Block) -> Block:
    return block if block.cost is not None else block._replace(cost=np.ones(block.n_examples))


def seed_of(random_state: Any) -> Any:
    """0 for None, an integer unchanged, or a number drawn from a RandomState."""
    if random_state is None or isinstance(random_state, int | np.integer):
        return python_scalar(random_state or 0)
    return int(check_random_state(random_state).randint(2**31 - 1))


def python_scalar(value: Any) -> Any:
    """Convert a NumPy scalar to a Python one."""
    return value.item() if isinstance(value, np.generic) else value
