"""Problems as a user would write them, and some with one fault each."""

import os
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distdual import UserProblem
from distdual.data.shard import Shard
from distdual.kernels.jit import kernel
from distdual.problems.base import Constraints, Keys, Offenders
from distdual.problems.multiclass import Multiclass


@dataclass(frozen=True, kw_only=True)
class PlainMulticlass(UserProblem):
    """Crammer-Singer, word for word."""

    scale: float = 1.0
    """What a wrong class costs."""

    @property
    def n_weights(self) -> int:
        return len(self.classes) * self.n_features

    def feature_map(self, x: Any, y: int) -> Any:
        blocks = np.zeros((len(self.classes), self.n_features))
        blocks[y] = x
        return blocks.ravel()

    def loss(self, y_true: int, y: int) -> float:
        return self.scale * (y != y_true)

    def argmax(self, w: Any, x: Any, y_true: int) -> int:
        values = w.reshape(len(self.classes), -1) @ x.astype(np.float64) + self.scale
        values[y_true] -= self.scale
        return int(values.argmax())

    def predict_one(self, w: Any, x: Any) -> int:
        return int((w.reshape(len(self.classes), -1) @ x.astype(np.float64)).argmax())

    def outputs(self, x: Any) -> Any:
        return range(len(self.classes))


@dataclass(frozen=True, kw_only=True)
class SparseMulticlass(PlainMulticlass):
    """The same on (indices, values)."""

    sparse_x = True

    def feature_map(self, x: Any, y: int) -> Any:
        indices, values = x
        return y * self.n_features + indices, values

    def argmax(self, w: Any, x: Any, y_true: int) -> int:
        return super().argmax(w, self._full(x), y_true)

    def predict_one(self, w: Any, x: Any) -> int:
        return super().predict_one(w, self._full(x))

    def _full(self, x: Any) -> Any:
        full = np.zeros(self.n_features)
        full[x[0]] = x[1]
        return full


@kernel
def find_worst(x: Any, y: Any, w: Any, scale: float, slack: Any, worst: Any) -> None:
    """The class with the highest score, + scale if it is wrong."""
    for i in range(len(y)):
        right = 0.0
        for j in range(x.shape[1]):
            right += x[i, j] * w[y[i], j]
        slack[i], worst[i] = right - right, y[i]  # 0, or NaN where a feature is
        for c in range(len(w)):
            if c != y[i]:
                score = 0.0
                for j in range(x.shape[1]):
                    score += x[i, j] * w[c, j]
                if scale + score - right > slack[i]:
                    slack[i], worst[i] = scale + score - right, c


@dataclass(frozen=True, kw_only=True)
class FastMulticlass(PlainMulticlass):
    """The same with a kernel over a whole shard of dense rows, and rows built for all offenders at once."""

    def offenders(self, w: Any, shard: Shard) -> Offenders:
        slack, worst = np.empty(shard.n_examples), np.empty(shard.n_examples, dtype=np.int32)
        blocks = w.reshape(len(self.classes), -1)
        find_worst(shard.x.values, shard.y, blocks, self.scale, slack, worst)
        return Offenders(slack, Keys(np.arange(shard.n_examples + 1), worst))

    def constraints(self, shard: Shard, chosen: Any, keys: Keys) -> Constraints:
        same = Multiclass(n_features=self.n_features, classes=self.classes)
        found = same.constraints(shard, chosen, keys)
        return found._replace(margin=self.scale * (keys.values != shard.y[chosen]))


@dataclass(frozen=True, kw_only=True)
class Lazy(PlainMulticlass):
    """Looks at one wrong class only, and says so."""

    exact = False

    def argmax(self, w: Any, x: Any, y_true: int) -> int:
        return (y_true + 1) % len(self.classes)


class Overconfident(Lazy):
    """The same, and does not say so."""

    exact = True


class Costly(PlainMulticlass):
    def loss(self, y_true: int, y: int) -> float:
        return 1.0


class Generous(PlainMulticlass):
    def loss(self, y_true: int, y: int) -> float:
        return 0.0 if y == y_true else -1.0


class Fickle(PlainMulticlass):
    def argmax(self, w: Any, x: Any, y_true: int) -> int:
        return os.urandom(1)[0] % len(self.classes)


@dataclass(frozen=True, kw_only=True)
class Rooted(PlainMulticlass):
    lock: Any = field(default_factory=threading.Lock)

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "n_features": self.n_features, "classes": list(self.classes), "scale": self.scale}


class Forgetful(PlainMulticlass):
    def decode(self, key: tuple[int, ...]) -> int:
        return 0


class Wide(PlainMulticlass):
    def feature_map(self, x: Any, y: int) -> Any:
        return np.zeros(self.n_weights + 1)


class Wild(PlainMulticlass):
    def feature_map(self, x: Any, y: int) -> Any:
        return np.array([self.n_weights]), np.ones(1)


class Raising(PlainMulticlass):
    def argmax(self, w: Any, x: Any, y_true: int) -> int:
        raise ZeroDivisionError("no luck")


class Leaving(PlainMulticlass):
    def argmax(self, w: Any, x: Any, y_true: int) -> int:
        raise SystemExit(0)


class Idle(PlainMulticlass):
    def argmax(self, w: Any, x: Any, y_true: int) -> int:
        return y_true

    def outputs(self, x: Any) -> Any:
        return None


class Boundless(PlainMulticlass):
    def loss(self, y_true: int, y: int) -> float:
        return float("nan") if y != y_true else 0.0


class WrongKernel(FastMulticlass):
    def constraints(self, shard: Shard, chosen: Any, keys: Keys) -> Constraints:
        found = super().constraints(shard, chosen, keys)
        return found._replace(margin=2 * found.margin)


class Unfinished(UserProblem):
    def loss(self, y_true: Any, y: Any) -> float:
        return 0.0


NOT_A_PROBLEM = 3
