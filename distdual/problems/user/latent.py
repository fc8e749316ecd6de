"""A user's latent problem: a UserProblem that also lists the latent values of an example.

    l_iz = loss(y_i, z),   x_iz = φ(x_i, complete(y_i, h_i)) − φ(x_i, z)      one constraint for each output z

Outputs z that are predicted carry what is latent in them. The key of a constraint is (h_i, *encode(z)).
"""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.rows import Floats, Int32s, Ints
from distdual.problems.base import Constraints, Keys, Offenders
from distdual.problems.latent.base import LatentProblem, latent_of
from distdual.problems.user.problem import Sizes, UserProblem, dot_row, join_keys, join_vectors, key_of


@dataclass(frozen=True, kw_only=True)
class LatentUserProblem(UserProblem, LatentProblem):
    """Subclass this as you would UserProblem, and define `latent_values` and `complete` as well.

    `feature_map` and `loss` take complete outputs, such as a tuple (y, h); `argmax` and `predict_one` return them.
    """

    starts: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.starts = (cls.kind,)

    # --- what the user says

    @abstractmethod
    def latent_values(self, x: Any, y_true: Any) -> Iterable[int]:
        """The latent values that the right output may have: whole numbers."""

    @abstractmethod
    def complete(self, y_true: Any, h: int) -> Any:
        """The right output together with a latent value, as `feature_map` takes it."""

    def impute_one(self, w: Floats, x: Any, y_true: Any) -> int:
        """The latent value h that maximises ⟨w, φ(x, complete(y_true, h))⟩; tries all unless it is overridden."""
        return max(
            self.latent_values(x, y_true), key=lambda h: self.dot(w, self.feature_map(x, self.complete(y_true, h)))
        )

    # --- what follows from it

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        slack = np.full(shard.n_examples, np.nan)
        keys: list[tuple[int, ...]] = [(0,)] * shard.n_examples
        sizes = Sizes()
        for i, x in self.readable(shard):
            with self.naming(shard, i):
                h, y_true = int(latent_of(shard)[i]), self.truth(shard.y[i].item())
                z = self.argmax(w, x, y_true)
                loss = self.loss_of(shard.first + i, y_true, z)
                row = self.row(x, self.complete(y_true, h), z)
                slack[i] = loss - dot_row(w, row)
                keys[i] = (h, *self.encode(z))
                sizes.add(loss, row)
        return Offenders(slack, join_keys(keys), sizes.magnitude())

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        margin, rows = np.empty(len(chosen)), []
        for k, i in enumerate(chosen):
            with self.naming(shard, i):
                x, y_true = self.example(shard, i), self.truth(shard.y[i].item())
                h, *name = key_of(keys, k)
                z = self.decode(tuple(name))
                margin[k] = self.loss_of(shard.first + i, y_true, z)
                rows.append(self.row(x, self.complete(y_true, h), z))
        joined = join_vectors(rows, self.n_weights)
        return Constraints(shard.first + chosen, self.costs(shard)[chosen], margin, joined, keys)

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:
        for k, i in enumerate(chosen):
            h, *name = key_of(keys, k) or (-1,)
            if h != latent_of(shard)[i]:
                raise InputError(f"{self.kind}: example {shard.first + i} has another latent value than {h}")
            with self.naming(shard, i):
                if not name or not self.is_output(self.example(shard, i), self.decode(tuple(name))):
                    raise InputError(f"{self.kind}: example {shard.first + i} has no output that {tuple(name)} names")

    def impute(self, w: Floats, shard: Shard) -> Int32s:
        values = np.zeros(shard.n_examples, dtype=np.int32)
        for i in range(shard.n_examples):
            with self.naming(shard, i):
                values[i] = self.impute_one(w, self.example(shard, i), self.truth(shard.y[i].item()))
        return values

    def rebase(self, shard: Shard, chosen: Ints, keys: Keys) -> Keys:
        values = keys.values.copy()
        values[keys.indptr[:-1]] = latent_of(shard)[chosen]
        return keys._replace(values=values)

    def check_latent(self, shard: Shard) -> None:
        for i, every in enumerate(self._every(shard)):
            if latent_of(shard)[i] not in every:
                value = latent_of(shard)[i]
                raise InputError(f"example {shard.first + i} cannot have the latent value {value} of the model")

    def draw(self, shard: Shard, seed: int) -> Int32s:
        rng = np.random.default_rng([seed, shard.first])
        return np.array([rng.choice(every) for every in self._every(shard)], dtype=np.int32)

    def _every(self, shard: Shard) -> list[list[int]]:
        """The latent values that each example may have."""
        found = []
        for i in range(shard.n_examples):
            with self.naming(shard, i):
                found.append(list(self.latent_values(self.example(shard, i), self.truth(shard.y[i].item()))))
                if not found[-1]:
                    raise InputError(f"{self.kind}: example {shard.first + i} has no latent values")
                for h in found[-1]:
                    if isinstance(h, bool) or not isinstance(h, int | np.integer) or not -(2**31) <= h < 2**31:
                        raise InputError(
                            f"{self.kind}: example {shard.first + i} has the latent value {h!r}; "
                            "expected a whole number of 32 bits"
                        )
        return found
