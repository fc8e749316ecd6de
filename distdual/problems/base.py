"""The contract of a learning problem: the inner max of P(w).

P(w) = 1/2 ||w||²  +  C Σ_i cost_i · ξ_i(w),     ξ_i(w) = max(0, max_j ( l_ij − ⟨w, x_ij⟩ ))
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from distdual.data.data_spec import DataSpec
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.rounding import longest_row, row_norm_bound
from distdual.kernels.rows import Floats, Int32s, Ints, OuterRows, copy_runs
from distdual.schema import below, rising


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
        indptr = np.zeros(len(chosen) + 1, dtype=np.int64)
        np.cumsum(self.indptr[chosen + 1] - self.indptr[chosen], out=indptr[1:])
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


def check_key_lengths(shard: Shard, keys: Keys, length: int) -> None:
    """Refuse keys that are not of so many numbers each."""
    wrong = np.diff(keys.indptr) != length
    if wrong.any():
        at = int(np.argmax(wrong))
        found = keys.indptr[at + 1] - keys.indptr[at]
        raise InputError(f"shard {shard.number}: the key of a constraint has {found} numbers, expected {length}")


class Magnitude(NamedTuple):
    """How large the numbers are that slacks are computed from, over all constraints of some examples.

    What rounding can do to slacks, rows and margins follows from it, see `scan/loss_error.py` and `solver/proven.py`.
    """

    terms: float = 0.0  # roundings that a product can pass through on its way into a slack
    row: float = 0.0  # largest ||x_ij||, with each term that is added up taken by its absolute value
    margin: float = 0.0  # largest |l_ij|
    stacked: float = 0.0  # the largest loss that is added up together with scores
    missed: float = 0.0  # how far the maximum can lie above the slack found, relative to `row` · ||w||
    cost: float = 0.0  # largest cost

    def joined(self, other: "Magnitude") -> "Magnitude":
        """That of the examples of both."""
        return Magnitude(*map(max, self, other))


class Offenders(NamedTuple):
    """The worst constraint of every example of a shard."""

    slack: Floats  # (n,) ξ_i(w); 0 where no constraint is violated
    keys: Keys  # which one it is
    magnitude: Magnitude | None = None  # where the oracle has looked at it anyway
    bound: Floats | None = None  # (n,) what no constraint's violation exceeds, where the oracle may miss the worst
    built: Any = None  # the rows, where the oracle has built them anyway; for `constraints_of`
    residual: Floats | None = None  # (n,) what `bias_kinks` starts from, with a free bias


class Best(NamedTuple):
    """The k best structures of each example, entry by entry of `Shard.y`."""

    labels: Int32s  # (n, k), −1 where there are fewer
    scores: Floats  # (n, k), of the whole structure; −∞ where there is none


class BiasKinks(NamedTuple):
    """The loss of some examples along the bias: F(t) − F(0) for a score of all examples higher by t.

        F(t) − F(0) = slope · t + Σ_k weight_k · |t − at_k|  over the kinks k between 0 and t     for low ≤ t ≤ high

    Only the kinks nearest to 0 are listed; `low` and `high` say how far they reach.
    """

    at: Floats  # (n,)
    weight: Floats  # (n,) by which the slope rises
    slope: float  # left of 0, with kinks at 0 still ahead
    low: float
    high: float
    total: float  # Σ cost, which no slope exceeds


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

    estimator: ClassVar[str | None] = None
    """The name of the estimator in `distdual` that a model of this problem becomes."""

    uses_margin: ClassVar[bool] = False
    """True if a data set's margin column means something here; elsewhere such a data set is refused."""

    oracle_work: ClassVar[float] = 0.5
    """What an oracle call costs, in ascent updates of one row; the slope schedule weighs one against the other."""

    reads_often: ClassVar[bool] = False
    """True if the oracle computes several inner products with the same features, such as one a class."""

    most_best: ClassVar[int] = 0
    """The largest k of `k_best`; 0 if there is none."""

    holds_gil: ClassVar[bool] = False
    """True if `offenders` is Python code, which a second thread does not make faster, but a second process does."""

    has_boundary: ClassVar[bool] = False
    """True if `decision` tells how near an example is to the boundary between classes."""

    many_constraints: ClassVar[bool] = True
    """False if an example has but one constraint or two: a second oracle call soon after the first adds little."""

    takes_map: ClassVar[bool] = False
    """True if the problem is the same on mapped features, `n_features` of them, instead of those of the data set."""

    free_bias: float = 0.0
    """The constant feature of the last weight, where it is a bias that is not regularised; 0 if there is none."""

    n_weights: int

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" not in cls.__dict__:
            cls.kind = f"{cls.__module__}:{cls.__qualname__}"

    def prepared(self, shard: Shard) -> Shard:
        """The shard as all other methods take it: mapped, if the problem has a feature map."""
        return shard

    def loaded_bytes(self, nbytes: int, n_rows: int) -> int:  # noqa: ARG002
        """Bytes of shards that are prepared, from those of all shards as they are stored and their rows."""
        return nbytes

    @abstractmethod
    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        """For each example the maximiser of l_ij − ⟨w, x_ij⟩. NaN in the data must show as NaN slack."""

    def magnitude(self, shard: Shard, found: Offenders) -> Magnitude:
        """How large the numbers behind the slacks are; unless a problem knows better, as large as in what was found."""
        if found.magnitude is not None:
            return found.magnitude
        violated = np.flatnonzero(found.slack > 0)
        return magnitude_of(self.constraints(replace(shard, kept=False), violated, found.keys.take(violated)))

    @abstractmethod
    def costs(self, shard: Shard) -> Floats:
        """(n,) what one unit of each example's slack costs, before C."""

    @abstractmethod
    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        """The constraints named by (example of the shard, key), built from the data alone."""

    def constraints_of(self, shard: Shard, chosen: Ints, found: Offenders) -> Constraints:
        """The constraints that `offenders` has found for these examples of the shard."""
        return self.constraints(shard, chosen, found.keys.take(chosen))

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:  # noqa: B027 - a user's may accept all
        """Raise an InputError for a key that names no constraint, as what is stored may be forged.

        The caller has checked that there is a key for each chosen example, and that the shard has these.
        """

    def rebuilt(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        """The constraints named by examples and keys that come from storage, once both are checked."""
        below(f"shard {shard.number}: an example of a stored constraint", chosen, shard.n_examples)
        if len(keys.indptr) != len(chosen) + 1:
            raise InputError(f"shard {shard.number}: {len(keys.indptr) - 1} keys of {len(chosen)} stored constraints")
        rising(f"shard {shard.number}: the keys of stored constraints", keys.indptr, len(keys.values))
        self.check_keys(shard, chosen, keys)
        return self.constraints(shard, chosen, keys)

    @abstractmethod
    def predict(self, w: Floats, shard: Shard) -> NDArray[Any]:
        """The prediction for each entry of `shard.y`, in the same coding."""

    def decision(self, w: Floats, shard: Shard) -> Floats | None:  # noqa: ARG002
        """(n,) or (n, K) decision values of each example, for problems that have them."""
        return None

    def k_best(self, w: Floats, shard: Shard, k: int) -> Best | None:  # noqa: ARG002
        """The k best structures, for problems that predict one with more than a label."""
        return None

    def nonnegative_weights(self) -> Ints:
        """The weights that must not be negative for `offenders` to be exact, beside those of prior.nonnegative."""
        return np.empty(0, dtype=np.int64)

    def bias_kinks(self, shard: Shard, found: Offenders, cost: Floats, most: int) -> BiasKinks:
        """The loss along the bias, of a problem whose bias is free, with so many kinks at most."""
        raise NotImplementedError(f"a {self.kind} problem has no free bias")

    def fitted_to(self, norm: float) -> Self:  # noqa: ARG002
        """The problem for rows of about this norm, which steps may be scaled by."""
        return self

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


def magnitude_of(constraints: Constraints) -> Magnitude:
    """The magnitude of given constraints; that of others is taken to be the same."""
    rows, factor = constraints.rows, 1.0
    if isinstance(rows, OuterRows):
        rows, factor = rows.x, 2.0 * float(np.abs(rows.scale).max(initial=0.0))
    margin = float(np.abs(constraints.margin).max(initial=0.0))
    return Magnitude(longest_row(rows) + 4, factor * row_norm_bound(rows), margin, margin)


def path_magnitude(shard: Shard, n_parts: int, margin: float, scale: float = 1.0, copies: int = 1) -> Magnitude:
    """For structures such as paths and trees, whose score adds up those of tokens and `n_parts` more a token.

    A token's features count `copies` times.

    Each of two structures counts twice: inference compares rounded scores, and then adds up those of the one it found.
    """
    assert shard.tokens is not None
    longest = float(np.diff(shard.tokens).max(initial=0))
    row = 4.0 * scale * longest * (copies * shard.norm_bound() + n_parts)
    terms = copies * longest_row(shard.x) + (n_parts + 2) * longest + 4
    return Magnitude(terms, row, longest * margin, scale * longest * margin)
