"""A user's own problem: a feature map φ, a loss and a loss-augmented argmax in plain Python.

    l_iy = loss(y_i, y),   x_iy = φ(x_i, y_i) − φ(x_i, y)      one constraint for each output y, named by encode(y)

Rows are rounded to float32, and the slack is that of the rounded row of the y that `argmax` found.
"""

import inspect
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distdual.data.data_spec import DataSpec
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.rows import Floats, Ints
from distdual.problems.base import Constraints, Keys, Offenders, Problem
from distdual.problems.user.cases import At, Inputs, naming_example
from distdual.problems.user.oracle import Built, Case, Key, build, find_offenders, key_of
from distdual.problems.user.rows import Vector, dot_vector


@dataclass(frozen=True, kw_only=True)
class UserProblem(Problem):
    """Subclass this, define `n_weights`, `feature_map`, `loss` and `argmax`, and name it as problem.kind.

    Keys of [problem] are the dataclass fields that the subclass adds (decorate it as this class is). For speed override
    `offenders` and `constraints` by kernels over a whole shard; `distdual check-problem` compares them with these.

    Of rows of features, x is a row and y_true the number of a class or a target. Of structures, x and y are the arrays,
    or dicts of arrays, that the data set was made of; they are read-only.
    """

    data_spec: ClassVar[DataSpec] = DataSpec(also_structures=True)

    sparse_x: ClassVar[bool] = False
    """True: a row is handed over as (indices, values); False: as a float32 vector, however it is stored."""

    bounded: ClassVar[bool] = False
    """True: `argmax` returns (y, bound), where no output has a value above `bound`; y need not be the best one.

    Then `lower` rests on y and `upper` on the bound: inference by a relaxation, or by a search that is cut short, gives
    a proven gap, which contains what the relaxation leaves open.
    """

    slack_rescaled: ClassVar[bool] = False
    """True: a constraint is scaled by its loss; `argmax` maximises loss · (1 + ⟨w, φ(x, y) − φ(x, y_true)⟩)."""

    releases_gil: ClassVar[bool] = False
    """True: `argmax` spends its time in code that releases the GIL, so that threads run it in parallel."""

    oracle_work: ClassVar[float] = 100.0

    oracle_seconds: ClassVar[float] = 300.0
    """The longest that your functions may take for one example; after that the run ends and names the example."""

    truth_sees_x: ClassVar[bool] = True

    n_features: int
    classes: tuple[str, ...] = ()
    """The labels of the data set; none where they are numbers to regress on, or where examples are structures."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.truth_sees_x = len(inspect.signature(cls.truth).parameters) > 2

    # --- what the user says

    @property
    @abstractmethod
    def n_weights(self) -> int:  # type: ignore[override]
        """Length of w and of every feature map."""

    @abstractmethod
    def feature_map(self, x: Any, y: Any) -> Vector:
        """φ(x, y): all n_weights values, or (indices, values) of those that are not 0."""

    @abstractmethod
    def loss(self, y_true: Any, y: Any) -> float:
        """What predicting y costs; at least 0, and 0 where y is right."""

    @abstractmethod
    def argmax(self, w: Floats, x: Any, y_true: Any) -> Any:
        """An output y that maximises loss(y_true, y) + ⟨w, φ(x, y)⟩; with `bounded`, (y, bound)."""

    def predict_one(self, w: Floats, x: Any) -> Any:
        """An output y that maximises ⟨w, φ(x, y)⟩; tries all of `outputs` unless it is overridden."""
        every = self.outputs(x)
        if every is None:
            raise InputError(f"{self.kind} cannot predict: it defines neither predict_one nor outputs")
        return max(every, key=lambda y: dot_vector(w, self.feature_map(x, y)))

    def outputs(self, x: Any) -> Iterable[Any] | None:  # noqa: ARG002 - for overrides
        """All outputs y of an example, where they can be listed."""
        return None

    def is_output(self, x: Any, y: Any) -> bool:
        """Whether y is an output of x at all; `verify` calls it for the keys of a model. Tries `outputs` if it can."""
        every = self.outputs(x)
        return every is None or any(self.encode(each) == self.encode(y) for each in every)

    def truth(self, x: Any, y: Any) -> Any:  # noqa: ARG002 - for overrides
        """The right output for what the data set holds: the number of a class, a target, or arrays.

        An override may also take y alone.
        """
        return y

    def encode(self, y: Any) -> Key:
        """The whole numbers that name an output."""
        if isinstance(y, np.ndarray):
            return tuple(y.astype(np.int64).reshape(-1).tolist())
        if isinstance(y, Sequence):
            try:
                return tuple(map(int, y))
            except TypeError:  # it is nested
                return self.encode(np.asarray(y))
        return (int(y),)

    def decode(self, key: Key) -> Any:
        """The output of that name: a number or a tuple of several; of structures, an array."""
        if not self.n_features:
            return np.array(key, dtype=np.int64)
        return key[0] if len(key) == 1 else key

    # --- what follows from it

    @property
    def holds_gil(self) -> bool:  # type: ignore[override]
        return not self.releases_gil and type(self).offenders is UserProblem.offenders

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        return find_offenders(self, w, shard)

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        def named(k: int, inputs: Inputs, i: int, x: Any) -> tuple[Case, Any]:
            return self.case(inputs, i, x), self.decode(key_of(keys, k))

        margin, rows = build(self, shard, chosen, named)
        return Constraints(shard.first + chosen, self.costs(shard)[chosen], margin, rows, keys)

    def constraints_of(self, shard: Shard, chosen: Ints, found: Offenders) -> Constraints:
        """The rows that `offenders` has computed, unless the class builds its own."""
        keys = found.keys.take(chosen)
        if not isinstance(found.built, Built) or type(self).constraints is not self.own_constraints():
            return self.constraints(shard, chosen, keys)
        margin, rows = found.built.take(chosen, self.n_weights)
        return Constraints(shard.first + chosen, self.costs(shard)[chosen], margin, rows, keys)

    @classmethod
    def own_constraints(cls) -> Callable[..., Constraints]:
        """`constraints` as it is without an override of the user's."""
        return UserProblem.constraints

    def costs(self, shard: Shard) -> Floats:
        return np.ones(shard.n_examples) if shard.cost is None else shard.cost

    def inputs(self, shard: Shard) -> Inputs:
        return Inputs(shard, self.n_features, sparse=self.sparse_x)

    def case(self, inputs: Inputs, i: int, x: Any) -> Case:
        """An example with its right output."""
        y_true = self.right_output(inputs, i, x)
        return Case(i, x, y_true, y_true)

    def right_output(self, inputs: Inputs, i: int, x: Any) -> Any:
        if not inputs.labelled:
            raise InputError("has no y; training, verifying and scoring need labelled examples")
        label = inputs.label(i)
        return self.truth(x, label) if self.truth_sees_x else self.truth(label)  # type: ignore[call-arg]

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:
        inputs = self.inputs(shard)
        with self.naming(shard) as at:
            for k, i in enumerate(chosen.tolist()):
                at(i)
                key = key_of(keys, k)
                if not self.is_output(inputs.x(i), self.decode(key)):
                    raise InputError(f"{self.kind}: example {shard.first + i} has no output that {key} names")

    def check_offenders(self, shard: Shard, found: Offenders) -> None:
        """Refuse what an `offenders` of the user's own cannot mean."""
        where, n = f"{self.kind}: offenders of shard {shard.number}", shard.n_examples
        if not isinstance(found, Offenders):
            raise InputError(f"{where}: returned {type(found).__name__}, expected Offenders")
        slack, keys = found.slack, found.keys
        for name, given in (("slack", slack), ("bound", slack if found.bound is None else found.bound)):
            if not isinstance(given, np.ndarray) or given.dtype != np.float64 or given.shape != (n,):
                raise InputError(f"{where}: {name} is {shown_array(given)}, expected {n} numbers of type float64")
        indptr, values = keys
        if shown_array(indptr) != f"{n + 1} numbers of type int64" or shown_array(values)[-5:] != "int32":
            expected = f"{n + 1} numbers of type int64 and any of type int32"
            raise InputError(f"{where}: keys are {shown_array(indptr)} and {shown_array(values)}, expected {expected}")
        if indptr[0] != 0 or indptr[-1] != len(values) or (np.diff(indptr) < 0).any():
            raise InputError(f"{where}: keys.indptr does not divide the {len(values)} numbers of keys.values")

    def predict(self, w: Floats, shard: Shard) -> NDArray[Any]:
        """A number where outputs are one each, else text: the numbers with spaces between them."""
        keys, inputs = list[Key](), self.inputs(shard)
        with self.naming(shard) as at:
            for i in range(shard.n_examples):
                at(i)
                keys.append(self.encode(self.predict_one(w, inputs.x(i))))
        if not shard.structured and all(len(key) == 1 for key in keys):
            return np.array([key[0] for key in keys], dtype=np.int32)
        return np.array([" ".join(map(str, key)) for key in keys])

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        """Of rows whose `truth` does not look at x."""
        losses = [
            self.loss(self.truth(None, label.item()) if self.truth_sees_x else self.truth(label.item()), output)  # type: ignore[call-arg]
            for label, output in zip(y, self.outputs_of(predicted), strict=True)
        ]
        return {"n": float(len(y)), "loss": float(sum(losses))}

    def score_shard(self, shard: Shard, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        inputs = self.inputs(shard if shard.structured else replace(shard, y=y))
        total = 0.0
        with self.naming(shard) as at:
            for i, output in enumerate(self.outputs_of(predicted)):
                at(i)
                total += float(self.loss(self.right_output(inputs, i, inputs.x(i)), output))
        return {"n": float(shard.n_examples), "loss": total}

    def outputs_of(self, predicted: NDArray[Any]) -> list[Any]:
        """Predictions as outputs."""
        if predicted.dtype.kind == "U":
            return [self.decode(tuple(map(int, str(name).split()))) for name in predicted]
        return [self.decode((int(name),)) for name in predicted]

    def judge(self, unknown: tuple[str, ...]) -> Problem | None:
        """The same problem with further classes, if it may have them; it is asked for losses alone."""
        try:
            return replace(self, classes=(*self.classes, *unknown))
        except InputError:
            return None

    def loss_of(self, y_true: Any, y: Any) -> float:
        """The loss, refused where it is below 0, NaN or infinite."""
        loss = float(self.loss(y_true, y))
        if not 0.0 <= loss < math.inf:
            raise InputError(f"loss is {loss:g} for the output {self.encode(y)}; it must be a finite number from 0")
        return loss

    def naming(self, shard: Shard, i: int = 0) -> AbstractContextManager[At]:
        """Turn whatever the user's code raises, or that it does not end, into an InputError that names the example."""
        return naming_example(self.kind, self.oracle_seconds, shard, i)


def shown_array(array: Any) -> str:
    if not isinstance(array, np.ndarray) or array.ndim != 1:
        return f"of type {type(array).__name__}"
    return f"{len(array)} numbers of type {array.dtype}"
