"""A user's own problem: a feature map φ, a loss and a loss-augmented argmax in plain Python.

    l_iy = loss(y_i, y),   x_iy = φ(x_i, y_i) − φ(x_i, y)      one constraint for each output y, named by encode(y)

Rows are rounded to float32, and the slack is that of the rounded row of the y that `argmax` found.
"""

import contextlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.rounding import MARGIN
from distdual.kernels.rows import CsrRows, DenseRows, Features, Floats, Ints, Singles, product
from distdual.problems.base import Constraints, Keys, Magnitude, Offenders, Problem
from distdual.problems.user.time_limit import OvertimeError, time_limit

Vector = NDArray[Any] | tuple[Any, Any]
"""A vector in full, or its (indices, values)."""


class SparseVector(NamedTuple):
    indices: Ints
    values: NDArray[Any]
    off: float = 0.0  # the norm of what rounding to float32 changed


@dataclass(frozen=True, kw_only=True)
class UserProblem(Problem):
    """Subclass this, define `n_weights`, `feature_map`, `loss` and `argmax`, and name it as problem.kind.

    Keys of [problem] are the dataclass fields that the subclass adds (decorate it as this class is). For speed override
    `offenders` and `constraints` by kernels over a whole shard; `distdual check-problem` compares them with these.
    """

    sparse_x: ClassVar[bool] = False
    """True: x is handed over as (indices, values); False: as a float32 vector, however it is stored."""

    oracle_work: ClassVar[float] = 100.0

    oracle_seconds: ClassVar[float] = 300.0
    """The longest that your functions may take for one example; after that the run ends and names the example."""

    n_features: int
    classes: tuple[str, ...] = ()
    """The labels of the data set; none where they are numbers to regress on."""

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
        """An output y that maximises loss(y_true, y) + ⟨w, φ(x, y)⟩."""

    def predict_one(self, w: Floats, x: Any) -> Any:
        """An output y that maximises ⟨w, φ(x, y)⟩; tries all of `outputs` unless it is overridden."""
        every = self.outputs(x)
        if every is None:
            raise InputError(f"{self.kind} cannot predict: it defines neither predict_one nor outputs")
        return max(every, key=lambda y: self.dot(w, self.feature_map(x, y)))

    def outputs(self, x: Any) -> Iterable[Any] | None:  # noqa: ARG002 - for overrides
        """All outputs y of an example, where they can be listed."""
        return None

    def is_output(self, x: Any, y: Any) -> bool:
        """Whether y is an output of x at all; `verify` calls it for the keys of a model. Tries `outputs` if it can."""
        every = self.outputs(x)
        return every is None or y in every

    def truth(self, label: int | float) -> Any:
        """The right output for a label of the data set: the number of a class in `classes`, or a target."""
        return label

    def encode(self, y: Any) -> tuple[int, ...]:
        """The whole numbers that name an output."""
        return tuple(int(part) for part in y) if isinstance(y, Sequence | np.ndarray) else (int(y),)

    def decode(self, key: tuple[int, ...]) -> Any:
        """The output of that name: a number, or a tuple of several."""
        return key[0] if len(key) == 1 else key

    # --- what follows from it

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        slack = np.full(shard.n_examples, np.nan)
        keys: list[tuple[int, ...]] = [()] * shard.n_examples
        sizes = Sizes()
        for i, x in self.readable(shard):
            with self.naming(shard, i):
                y_true = self.truth(shard.y[i].item())
                y = self.argmax(w, x, y_true)
                loss, row = self.loss_of(shard.first + i, y_true, y), self.row(x, y_true, y)
                slack[i] = loss - dot_row(w, row)
                keys[i] = self.encode(y)
                self.check_right(shard.first + i, y_true)
                sizes.add(loss, row)
        return Offenders(slack, join_keys(keys), sizes.magnitude())

    def check_offenders(self, shard: Shard, found: Offenders) -> None:
        """Refuse what an `offenders` of the user's own cannot mean."""
        where, n = f"{self.kind}: offenders of shard {shard.number}", shard.n_examples
        if not isinstance(found, Offenders):
            raise InputError(f"{where}: returned {type(found).__name__}, expected Offenders")
        slack, keys = found.slack, found.keys
        if not isinstance(slack, np.ndarray) or slack.dtype != np.float64 or slack.shape != (n,):
            raise InputError(f"{where}: slack is {shown_array(slack)}, expected {n} numbers of type float64")
        indptr, values = keys
        if shown_array(indptr) != f"{n + 1} numbers of type int64" or shown_array(values)[-5:] != "int32":
            expected = f"{n + 1} numbers of type int64 and any of type int32"
            raise InputError(f"{where}: keys are {shown_array(indptr)} and {shown_array(values)}, expected {expected}")
        if indptr[0] != 0 or indptr[-1] != len(values) or (np.diff(indptr) < 0).any():
            raise InputError(f"{where}: keys.indptr does not divide the {len(values)} numbers of keys.values")

    def costs(self, shard: Shard) -> Floats:
        return np.ones(shard.n_examples) if shard.cost is None else shard.cost

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        margin, rows = np.empty(len(chosen)), []
        for k, i in enumerate(chosen):
            with self.naming(shard, i):
                x, y_true = self.example(shard, i), self.truth(shard.y[i].item())
                y = self.decode(key_of(keys, k))
                margin[k] = self.loss_of(shard.first + i, y_true, y)
                rows.append(self.row(x, y_true, y))
        joined = join_vectors(rows, self.n_weights)
        return Constraints(shard.first + chosen, self.costs(shard)[chosen], margin, joined, keys)

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:
        for k, i in enumerate(chosen):
            key = key_of(keys, k)
            with self.naming(shard, i):
                if not self.is_output(self.example(shard, i), self.decode(key)):
                    raise InputError(f"{self.kind}: example {shard.first + i} has no output that {key} names")

    def predict(self, w: Floats, shard: Shard) -> NDArray[Any]:
        """A number where outputs are one each, else text: the numbers with spaces between them."""
        keys: list[tuple[int, ...]] = []
        for i in range(shard.n_examples):
            with self.naming(shard, i):
                keys.append(self.encode(self.predict_one(w, self.example(shard, i))))
        if all(len(key) == 1 for key in keys):
            return np.array([key[0] for key in keys], dtype=np.int32)
        return np.array([" ".join(map(str, key)) for key in keys])

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        keys = [
            tuple(map(int, str(name).split())) if predicted.dtype.kind == "U" else (int(name),) for name in predicted
        ]
        losses = [self.loss(self.truth(label.item()), self.decode(key)) for label, key in zip(y, keys, strict=True)]
        return {"n": float(len(y)), "loss": float(sum(losses))}

    def loss_of(self, example: int, y_true: Any, y: Any) -> float:
        """The loss, refused where it is below 0; NaN shows as the slack."""
        loss = float(self.loss(y_true, y))
        if loss < 0:
            where = f"{self.kind}: example {example}"
            raise InputError(f"{where}: loss is {loss:g} for the output {self.encode(y)}; it must be 0 or more")
        return loss

    def check_right(self, example: int, y_true: Any) -> None:
        """Refuse a loss that is not 0 for the right output."""
        loss = float(self.loss(y_true, y_true))
        if loss != 0:
            raise InputError(
                f"{self.kind}: example {example}: loss(y, y) is {loss:g} for the right output; it must be 0"
            )

    # --- an example, a row

    @contextlib.contextmanager
    def naming(self, shard: Shard, i: int) -> Iterator[None]:
        """Turn whatever the user's code raises, or that it does not end, into an InputError that names the example."""
        where = f"{self.kind}: example {shard.first + i}"
        try:
            with time_limit(self.oracle_seconds):
                yield
        except InputError as error:
            if str(error).startswith(where):
                raise
            raise InputError(f"{where} (shard {shard.number}): {str(error).removeprefix(f'{self.kind}: ')}") from error
        except OvertimeError:
            raise InputError(
                f"{where}: did not return within {self.oracle_seconds:g} s (oracle_seconds of its class), "
                f"in shard {shard.number}"
            ) from None
        except Exception as error:
            raise InputError(f"{where}: raised {type(error).__name__}: {error}, in shard {shard.number}") from error

    def readable(self, shard: Shard) -> Iterator[tuple[int, Any]]:
        """The examples whose features are all finite; the others have no slack that is a number."""
        for i in range(shard.n_examples):
            x = self.example(shard, i)
            if np.isfinite(x[1] if self.sparse_x else x).all():
                yield i, x

    def example(self, shard: Shard, i: int) -> Any:
        """x of example i, a copy: what the user does to it stays with the user."""
        if isinstance(shard.x, DenseRows):
            x = shard.x.values[i].copy()
            return (np.flatnonzero(x), x[x != 0]) if self.sparse_x else x
        at = slice(shard.x.indptr[i], shard.x.indptr[i + 1])
        indices, values = shard.x.indices[at].astype(np.int64), shard.x.values[at].copy()
        if self.sparse_x:
            return indices, values
        x = np.zeros(self.n_features, dtype=np.float32)
        x[indices] = values
        return x

    def row(self, x: Any, y_true: Any, y: Any) -> SparseVector:
        """φ(x, y_true) − φ(x, y) in float32, its columns in ascending order."""
        right, wrong = self.feature_map(x, y_true), self.feature_map(x, y)
        if isinstance(right, tuple) or isinstance(wrong, tuple):
            a, b = self.checked(right), self.checked(wrong)
            indices, place = np.unique(np.concatenate([a.indices, b.indices]), return_inverse=True)
            values = np.concatenate([a.values, -b.values])
            return one_row(indices, np.bincount(place, values, minlength=len(indices)).astype(np.float64))
        return one_row(np.arange(self.n_weights), self.full(right) - self.full(wrong))

    def dot(self, w: Floats, vector: Vector) -> float:
        """⟨w, φ⟩ of what `feature_map` returned."""
        return dot_row(w, self.checked(vector))

    def checked(self, vector: Vector) -> SparseVector:
        """The result of `feature_map`, checked to be safe for kernels."""
        if isinstance(vector, tuple):
            indices, values = (np.asarray(part) for part in vector)
            whole = indices.dtype.kind in "iu" and (
                not len(indices) or 0 <= indices.min() <= indices.max() < self.n_weights
            )
            if indices.ndim != 1 or indices.shape != values.shape or not whole:
                raise InputError(
                    f"{self.kind}: feature_map must name weights from 0 to {self.n_weights - 1}, each with its value"
                )
            return SparseVector(indices.astype(np.int64), values.astype(np.float64))
        values = self.full(vector)
        where = np.flatnonzero(values)
        return SparseVector(where, values[where])

    def full(self, vector: NDArray[Any]) -> Floats:
        """The same for a vector in full."""
        values = np.asarray(vector, dtype=np.float64)
        if values.shape != (self.n_weights,):
            raise InputError(
                f"{self.kind}: feature_map must return {self.n_weights} values, got an array of shape {values.shape}"
            )
        return values


def shown_array(array: Any) -> str:
    if not isinstance(array, np.ndarray) or array.ndim != 1:
        return f"of type {type(array).__name__}"
    return f"{len(array)} numbers of type {array.dtype}"


class Sizes:
    """The largest loss and row found, and the largest float32 rounding error of a row."""

    def __init__(self) -> None:
        self.terms = self.norm = self.loss = self.off = 0.0

    def add(self, loss: float, row: SparseVector) -> None:
        values = row.values.astype(np.float64)
        self.terms = max(self.terms, float(len(values)))
        self.norm = max(self.norm, float(np.sqrt(values @ values)))
        self.loss = max(self.loss, loss)
        self.off = max(self.off, row.off)

    def magnitude(self) -> Magnitude:
        """That of all constraints, if those of other outputs are no larger than those found."""
        missed = self.off / self.norm if self.norm > 0 else 0.0
        return Magnitude(self.terms + 4, MARGIN * self.norm, self.loss, self.loss, missed=missed)


def one_row(indices: Ints, values: Floats) -> SparseVector:
    """The entries that are not 0 in float32; values too large for it give an infinite loss."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = values.astype(np.float32)
        off = float(np.sqrt(((values - rounded) ** 2).sum()))
    kept = rounded != 0
    return SparseVector(indices[kept], rounded[kept], off)


def dot_row(w: Floats, row: SparseVector) -> float:
    return product(w[row.indices], row.values.astype(np.float64))


def key_of(keys: Keys, k: int) -> tuple[int, ...]:
    return tuple(keys.values[keys.indptr[k] : keys.indptr[k + 1]].tolist())


def join_keys(keys: list[tuple[int, ...]]) -> Keys:
    indptr = np.concatenate([[0], np.cumsum([len(key) for key in keys], dtype=np.int64)])
    return Keys(indptr, np.array([part for key in keys for part in key], dtype=np.int32))


def join_vectors(vectors: list[SparseVector], width: int) -> Features:
    """One row each, in CSR or dense form, whichever is smaller."""
    lengths = [len(vector.indices) for vector in vectors]
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    indices = np.concatenate([np.empty(0, dtype=np.int64), *(vector.indices for vector in vectors)])
    values: Singles = np.concatenate([np.empty(0, dtype=np.float32), *(vector.values for vector in vectors)])
    index_type = np.int32 if width <= 2**31 else np.int64
    if indptr.nbytes + len(values) * (4 + np.dtype(index_type).itemsize) <= 4 * len(vectors) * width or not vectors:
        return CsrRows(indptr, indices.astype(index_type), values)
    dense = np.zeros((len(vectors), width), dtype=np.float32)
    dense[np.repeat(np.arange(len(vectors)), lengths), indices] = values
    return DenseRows(dense)
