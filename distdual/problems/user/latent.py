"""A user's latent problem: a UserProblem that also says which latent values an example may have.

    l_iz = loss(y_i, z),   x_iz = φ(x_i, complete(y_i, h_i)) − φ(x_i, z)      one constraint for each output z

Outputs z that are predicted carry what is latent in them. The key of a constraint is (*h_i, *encode(z)).
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.rows import Floats, Int32s, Ints
from distdual.problems.base import Constraints, Keys
from distdual.problems.latent.base import Completed, LatentProblem, latent_of
from distdual.problems.user.cases import Inputs
from distdual.problems.user.oracle import Case, build, key_of
from distdual.problems.user.problem import UserProblem
from distdual.problems.user.rows import dot_vector

LatentValue = int | tuple[int, ...]
"""A latent value: a whole number, or `latent_size` of them."""


@dataclass(frozen=True, kw_only=True)
class LatentUserProblem(UserProblem, LatentProblem):
    """Subclass this as you would UserProblem, and define `complete` and the latent values as well.

    `feature_map` and `loss` take complete outputs, such as a tuple (y, h); `argmax` and `predict_one` return them.
    Where latent values can be listed, define `latent_values`; else `draw_one`, `is_latent` and `impute_one`.
    """

    starts: ClassVar[tuple[str, ...]] = ()

    latent_size: ClassVar[int] = 1
    """How many numbers a latent value has; a value of one is an int, of more a tuple."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.starts = (cls.kind,)

    @property
    def per_token(self) -> bool:  # type: ignore[override]
        return self.latent_size > 1

    # --- what the user says

    @abstractmethod
    def complete(self, y_true: Any, h: Any) -> Any:
        """The right output together with a latent value, as `feature_map` takes it."""

    def latent_values(self, x: Any, y_true: Any) -> Iterable[Any] | None:  # noqa: ARG002 - for overrides
        """All latent values that the right output may have, where they can be listed."""
        return None

    def draw_one(self, x: Any, y_true: Any, rng: np.random.Generator) -> Any:
        """A latent value at random, to begin with."""
        every = self._listed(x, y_true, "draw_one")
        return every[int(rng.integers(len(every)))]

    def is_latent(self, x: Any, y_true: Any, h: Any) -> bool:
        """Whether the right output may have this latent value; those of a model may be forged."""
        return h in self._listed(x, y_true, "is_latent")

    def impute_one(self, w: Floats, x: Any, y_true: Any) -> Any:
        """The latent value h that maximises ⟨w, φ(x, complete(y_true, h))⟩."""
        every = self._listed(x, y_true, "impute_one")
        return max(every, key=lambda h: dot_vector(w, self.feature_map(x, self.complete(y_true, h))))

    # --- what follows from it

    def case(self, inputs: Inputs, i: int, x: Any) -> Case:
        y_true, name = self.right_output(inputs, i, x), self._name_of(inputs.shard, i)
        return Case(i, x, y_true, self.complete(y_true, self.value(name)), name)

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        def named(k: int, inputs: Inputs, i: int, x: Any) -> tuple[Case, Any]:
            key, y_true = key_of(keys, k), self.right_output(inputs, i, x)
            name, output = key[: self.latent_size], self.decode(key[self.latent_size :])
            return Case(i, x, y_true, self.complete(y_true, self.value(name)), name), output

        margin, rows = build(self, shard, chosen, named)
        return Constraints(shard.first + chosen, self.costs(shard)[chosen], margin, rows, keys)

    @classmethod
    def own_constraints(cls) -> Callable[..., Constraints]:
        return LatentUserProblem.constraints

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:
        inputs, k_latent = self.inputs(shard), self.latent_size
        with self.naming(shard) as at:
            for k, i in enumerate(chosen.tolist()):
                at(i)
                key = key_of(keys, k)
                if key[:k_latent] != self._name_of(shard, i):
                    raise InputError(
                        f"{self.kind}: example {shard.first + i} has another latent value than "
                        f"{self.value(key[:k_latent]) if len(key) >= k_latent else key}"
                    )
                if len(key) == k_latent or not self.is_output(inputs.x(i), self.decode(key[k_latent:])):
                    named = key[k_latent:]
                    raise InputError(f"{self.kind}: example {shard.first + i} has no output that {named} names")

    def completed(self, shard: Shard, values: Int32s) -> Completed:
        indptr = self.latent_size * np.arange(shard.n_examples + 1) if self.per_token else None
        return Completed(self, values, shard.first, indptr)

    def impute(self, w: Floats, shard: Shard) -> Int32s:
        return self._each(shard, "impute_one", lambda x, y_true: self.impute_one(w, x, y_true))

    def rebase(self, shard: Shard, chosen: Ints, keys: Keys) -> Keys:
        values = keys.values.copy()
        at = keys.indptr[:-1, np.newaxis] + np.arange(self.latent_size)
        values[at] = latent_of(shard).reshape(-1, self.latent_size)[chosen]
        return keys._replace(values=values)

    def check_latent(self, shard: Shard) -> None:
        inputs = self.inputs(shard)
        if len(latent_of(shard)) != self.latent_size * shard.n_examples:
            raise InputError(f"{self.kind}: latent values of other examples than those of shard {shard.number}")
        with self.naming(shard) as at:
            for i in range(shard.n_examples):
                at(i)
                x, h = inputs.x(i), self.value(self._name_of(shard, i))
                if not self.is_latent(x, self.right_output(inputs, i, x), h):
                    raise InputError(
                        f"{self.kind}: example {shard.first + i} cannot have the latent value {h} of the model"
                    )

    def draw(self, shard: Shard, seed: int) -> Int32s:
        rng = np.random.default_rng([seed, shard.first])
        return self._each(shard, "draw_one", lambda x, y_true: self.draw_one(x, y_true, rng))

    def value(self, name: Sequence[int]) -> LatentValue:
        """The numbers of a latent value, as the user's code takes them."""
        return int(name[0]) if self.latent_size == 1 else tuple(map(int, name))

    def _name_of(self, shard: Shard, i: int) -> tuple[int, ...]:
        return tuple(latent_of(shard)[i * self.latent_size : (i + 1) * self.latent_size].tolist())

    def _each(self, shard: Shard, method: str, find: Callable[[Any, Any], Any]) -> Int32s:
        """The latent value that `find` gives for each example, one after the other."""
        inputs = self.inputs(shard)
        found = np.empty((shard.n_examples, self.latent_size), dtype=np.int32)
        with self.naming(shard) as at:
            for i in range(shard.n_examples):
                at(i)
                x = inputs.x(i)
                found[i] = self._checked(find(x, self.right_output(inputs, i, x)), method)
        return found.reshape(-1)

    def _checked(self, h: Any, method: str) -> tuple[int, ...]:
        """The numbers of a latent value that the user's code has returned."""
        parts = tuple(h) if isinstance(h, Sequence | np.ndarray) else (h,)
        whole = all(
            isinstance(part, int | np.integer) and not isinstance(part, bool) and -(2**31) <= part < 2**31
            for part in parts
        )
        if not whole or len(parts) != self.latent_size:
            expected = "a whole number" if self.latent_size == 1 else f"{self.latent_size} whole numbers"
            raise InputError(f"{method} gives the latent value {h!r}; expected {expected} of 32 bits")
        return tuple(map(int, parts))

    def _listed(self, x: Any, y_true: Any, method: str) -> list[Any]:
        every = self.latent_values(x, y_true)
        if every is None:
            raise InputError(f"{self.kind} defines neither {method} nor latent_values")
        found = list(every)
        if not found:
            raise InputError("latent_values gives none; each example needs at least one")
        return found
