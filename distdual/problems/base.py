"""The contract of a learning problem: the inner max of P(w).

P(w) = 1/2 ||w||²  +  C Σ_i cost_i · ξ_i(w),     ξ_i(w) = max(0, max_j ( l_ij − ⟨w, x_ij⟩ ))
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from distdual.data.data_spec import DataSpec
from distdual.data.shard import Shard
from distdual.kernels.rows import Floats, Int32s, Ints, copy_runs


class Keys(NamedTuple):
    """Which constraint j of its example each entry is: a few whole numbers, as many as the problem needs."""

    indptr: Ints  # (n + 1,)
    values: Int32s

    @staticmethod
    def none(n: int) -> "Keys":
        """For problems with one constraint an example, where the example says it all."""
        return Keys(np.zeros(n + 1, dtype=np.int64), np.empty(0, dtype=np.int32))

    def take(self, which: Any) -> "Keys":
        chosen = np.arange(len(self.indptr) - 1)[which]
        if not len(self.values):
            return Keys.none(len(chosen))
        if self.indptr[-1] > len(self.values):
            raise IndexError(f"keys end at {self.indptr[-1]}, but there are {len(self.values)} values")
        indptr = np.concatenate([[0], np.cumsum(np.diff(self.indptr)[chosen])])
        values = np.empty(indptr[-1], dtype=self.values.dtype)
        copy_runs(self.indptr, chosen, indptr, self.values, values)
        return Keys(indptr, values)


class Constraints(NamedTuple):
    """One constraint per entry, ⟨w, x_k⟩ ≥ l_k − ξ_i."""

    example: Ints  # (n,) the example i, numbered through the whole data set
    cost: Floats  # (n,) what ξ_i costs: C_i = C · cost
    margin: Floats  # (n,) l_k
    rows: Any  # (n, n_weights) x_k: Rows, or ReferredRows on their way from a shard that is kept to the cache
    keys: Keys

    def take(self, which: Any) -> "Constraints":
        return Constraints(
            self.example[which],
            self.cost[which],
            self.margin[which],
            self.rows.take(which),
            self.keys.take(which),
        )


class Offenders(NamedTuple):
    """The worst constraint of every example of a shard."""

    slack: Floats  # (n,) ξ_i(w); 0 where no constraint is violated
    keys: Keys  # which one it is


class Problem(ABC):
    """See problems/binary.py for the shortest complete example, problems/latent/base.py for what latent values add.

    A problem is made of plain values, so that it can be written to model.json and sent to workers.
    """

    kind: ClassVar[str]
    """The name in configs and models: a built-in problem defines a word, any other class gets "module:Class"."""

    data_spec: ClassVar[DataSpec] = DataSpec()
    """What its data sets are made of, for `prepare` to read and check; one row of features and a class by default."""

    exact: ClassVar[bool] = True
    """True if `offenders` finds a global maximiser. Only then is P(w) an upper bound."""

    texts: ClassVar[tuple[str, ...]] = ()
    """Texts of the data set that the problem is made with, each a field of the class; a model keeps them as files.

    `describe` gives the SHA-256 of each under its name.
    """

    uses_margin: ClassVar[bool] = False
    """True if a data set's margin column means something here; elsewhere such a data set is refused."""

    oracle_work: ClassVar[float] = 0.5
    """What an oracle call costs, in ascent updates of one row; the slope schedule weighs one against the other."""

    reads_often: ClassVar[bool] = False
    """True if the oracle computes several inner products with the same features, such as one a class."""

    many_constraints: ClassVar[bool] = True
    """False if an example has but one constraint or two: a second oracle call soon after the first adds little."""

    n_weights: int

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" not in cls.__dict__:
            cls.kind = f"{cls.__module__}:{cls.__qualname__}"

    @abstractmethod
    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        """For each example the maximiser of l_ij − ⟨w, x_ij⟩. NaN in the data must show as NaN slack."""

    @abstractmethod
    def costs(self, shard: Shard) -> Floats:
        """(n,) what one unit of each example's slack costs, before C."""

    @abstractmethod
    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        """The constraints named by (example of the shard, key), built from the data alone."""

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:  # noqa: B027 - nothing to check for some
        """Raise an InputError for a key that names no constraint; for `verify`, as a model may be forged."""

    @abstractmethod
    def predict(self, w: Floats, shard: Shard) -> NDArray[Any]:
        """The prediction for each entry of `shard.y`, in the same coding."""

    def part(self, first: int, end: int) -> "Problem":  # noqa: ARG002
        """The part of the problem that scans of examples first … end − 1 need; it is sent to their worker."""
        return self

    def spell(self, shard: Shard, predicted: NDArray[Any]) -> NDArray[Any] | None:  # noqa: ARG002
        """Predictions one an example, as text or labels, for problems whose predictions are not one an entry of y."""
        return None

    @abstractmethod
    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        """Named sums over the entries of y, and "n": adding them up over shards and dividing by n gives the means."""

    def score_shard(self, shard: Shard, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:  # noqa: ARG002
        """The same, for problems that need more of the shard; a sum named s is divided by "n:s" where that is there."""
        return self.score(y, predicted)

    def judge(self, unknown: tuple[str, ...]) -> "Problem | None":  # noqa: ARG002
        """The problem whose score also takes labels that this one does not know, with the codes after its own.

        None where such labels say that the data set is another matter: then there is no score.
        """
        return None

    def describe(self) -> dict[str, Any]:
        """What model.json keeps; `make_problem` turns it back into the problem."""
        values = {each.name: json_value(getattr(self, each.name)) for each in fields(cast(Any, self))}
        digests = {name: hashlib.sha256(values[name].encode()).hexdigest() for name in self.texts}
        return {"kind": self.kind, **values, **digests}


def json_value(value: Any) -> Any:
    """A field as JSON can hold it."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value
