"""Problems on structures, as a user would write them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import distdual


@dataclass(frozen=True, kw_only=True)
class Tags(distdual.UserProblem):
    """Labels for the rows of a matrix of any length, chosen one by one: Hamming loss over rows."""

    width: int = 3
    n_tags: int = 2

    @property
    def n_weights(self) -> int:
        return self.width * self.n_tags

    def feature_map(self, x: Any, y: Any) -> Any:
        return np.concatenate([x["rows"][np.asarray(y) == tag].sum(axis=0) for tag in range(self.n_tags)])

    def loss(self, y_true: Any, y: Any) -> float:
        return float((np.asarray(y_true) != np.asarray(y)).sum())

    def scores(self, w: Any, x: Any) -> Any:
        return x["rows"].astype(np.float64) @ w.reshape(self.n_tags, -1).T

    def argmax(self, w: Any, x: Any, y_true: Any) -> Any:
        return (self.scores(w, x) + (np.arange(self.n_tags) != y_true[:, np.newaxis])).argmax(axis=1)

    def predict_one(self, w: Any, x: Any) -> Any:
        return self.scores(w, x).argmax(axis=1)

    def is_output(self, x: Any, y: Any) -> bool:
        return len(y) == len(x["rows"]) and bool((y >= 0).all() and (y < self.n_tags).all())


@dataclass(frozen=True, kw_only=True)
class Hasty(Tags):
    """Inference that keeps the first row's true label, with a bound that knows what the row could have gained."""

    bounded = True
    slip: float = 0.0

    def argmax(self, w: Any, x: Any, y_true: Any) -> Any:
        values = self.scores(w, x) + (np.arange(self.n_tags) != y_true[:, np.newaxis])
        y = values.argmax(axis=1)
        y[0] = y_true[0]
        return y, float(values.max(axis=1).sum()) - self.slip


@dataclass(frozen=True, kw_only=True)
class Rescaled(Tags):
    """Tags whose constraints are scaled by their loss, found among all of the short examples."""

    slack_rescaled = True

    def outputs(self, x: Any) -> Any:
        return list(np.array(np.meshgrid(*[range(self.n_tags)] * len(x["rows"]))).reshape(len(x["rows"]), -1).T)

    def argmax(self, w: Any, x: Any, y_true: Any) -> Any:
        own = w @ self.feature_map(x, y_true)
        return max(self.outputs(x), key=lambda y: self.loss(y_true, y) * (1.0 + w @ self.feature_map(x, y) - own))


@dataclass(frozen=True, kw_only=True)
class Parts(distdual.LatentUserProblem):
    """Eight parts, each at one of 25 places: a class is told by what stands at the places, which are not labelled."""

    latent_size = 8
    n_places: int = 25

    @property
    def n_weights(self) -> int:
        return 2 * (self.latent_size + 1)

    def feature_map(self, x: Any, y: Any) -> Any:
        label, places = y
        found = np.zeros((2, self.latent_size + 1))
        found[label] = [*x[np.arange(self.latent_size), list(places)], 1.0]
        return found.ravel()

    def loss(self, y_true: Any, y: Any) -> float:
        return float(int(y_true) != y[0])

    def best(self, w: Any, x: Any, label: int) -> Any:
        return tuple((w.reshape(2, -1)[label][:-1, np.newaxis] * x).argmax(axis=1).tolist())

    def argmax(self, w: Any, x: Any, y_true: Any) -> Any:
        every = [(label, self.best(w, x, label)) for label in (0, 1)]
        return max(every, key=lambda y: self.loss(y_true, y) + w @ self.feature_map(x, y))

    def predict_one(self, w: Any, x: Any) -> Any:
        return max(((label, self.best(w, x, label)) for label in (0, 1)), key=lambda y: w @ self.feature_map(x, y))

    def encode(self, y: Any) -> Any:
        return (int(y[0]), *map(int, y[1]))

    def decode(self, key: Any) -> Any:
        return key[0], key[1:]

    def is_output(self, x: Any, y: Any) -> bool:
        return y[0] in (0, 1) and self.is_latent(x, y[0], y[1])

    def complete(self, y_true: Any, h: Any) -> Any:
        return int(y_true), h

    def draw_one(self, x: Any, y_true: Any, rng: Any) -> Any:
        return tuple(rng.integers(self.n_places, size=self.latent_size).tolist())

    def is_latent(self, x: Any, y_true: Any, h: Any) -> bool:
        return len(h) == self.latent_size and all(0 <= place < self.n_places for place in h)

    def impute_one(self, w: Any, x: Any, y_true: Any) -> Any:
        return self.best(w, x, int(y_true))


def tagged(seed: int, n: int = 60, width: int = 3) -> tuple[list[Any], list[Any]]:
    """Matrices of one to five rows, each with a tag; a third of the tags cannot be learned."""
    rng = np.random.default_rng(seed)
    x, y = [], []
    for _ in range(n):
        rows = rng.normal(size=(int(rng.integers(1, 6)), width))
        x.append({"rows": rows, "weight": np.float32(rng.random())})
        y.append(((rows[:, 0] + 0.8 * rng.normal(size=len(rows))) > 0).astype(np.int64))
    return x, y


def images(seed: int, n: int = 40, parts: int = 8, places: int = 25) -> tuple[list[Any], list[Any]]:
    """Responses of part detectors; the parts of class 1 respond strongly at one place each."""
    rng = np.random.default_rng(seed)
    x, y = [], []
    for i in range(n):
        responses = rng.random((parts, places))
        if i % 2:
            responses[np.arange(parts), rng.integers(places, size=parts)] += 0.7
        x.append(responses)
        y.append(np.int64(i % 2))
    return x, y
