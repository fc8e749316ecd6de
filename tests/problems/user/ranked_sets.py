"""A user's own problem whose outputs are tuples: sets of items in order, a digit of the label for each item's rank."""

import itertools
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import distdual
from distdual.errors import InputError


@dataclass(frozen=True, kw_only=True)
class RankedSets(distdual.UserProblem):
    items: int = 4
    """Items in each set."""

    def __post_init__(self) -> None:
        if self.n_features % self.items or any(sorted(label) != list(self.digits()) for label in self.classes):
            raise InputError(f"sets of {self.items} items need that many digits per label, and features for each item")

    def digits(self) -> str:
        return "".join(map(str, range(self.items)))

    @property
    def n_weights(self) -> int:
        return self.n_features // self.items

    def truth(self, label: Any) -> tuple[int, ...]:
        return tuple(map(int, self.classes[label]))

    def feature_map(self, x: Any, y: Any) -> Any:
        """φ(x, y) = mean over pairs of (x_upper − x_lower): item weights are (items below − items above) / pairs."""
        return self.balance(np.array(y)) @ x.reshape(self.items, -1)

    def balance(self, y: Any) -> Any:
        """(pairs won − pairs lost) / pairs for each item, for one output or many."""
        return (2.0 * y - (self.items - 1)) / len(pairs(self.items)[0])

    def loss(self, y_true: Any, y: Any) -> float:
        return float(swapped(y_true, np.array([y]))[0])

    def argmax(self, w: Any, x: Any, y_true: Any) -> Any:
        every = orders(self.items)
        scores = x.reshape(self.items, -1) @ w
        return tuple(every[np.argmax(swapped(y_true, every) + self.balance(every) @ scores)].tolist())

    def predict_one(self, w: Any, x: Any) -> Any:
        return tuple((x.reshape(self.items, -1) @ w).argsort().argsort().tolist())

    def outputs(self, x: Any) -> Any:
        return map(tuple, orders(self.items).tolist())


@cache
def orders(items: int) -> Any:
    return np.array(list(itertools.permutations(range(items))))


@cache
def pairs(items: int) -> Any:
    return np.triu_indices(items, 1)


def swapped(y_true: Any, outputs: Any) -> Any:
    """The share of pairs in the wrong order, for each of the outputs."""
    i, j = pairs(len(y_true))
    right = np.array(y_true)
    return ((right[i] > right[j]) != (outputs[:, i] > outputs[:, j])).mean(axis=1)


def make_sets(n: int, items: int = 4, width: int = 6) -> tuple[Any, Any]:
    """Random items ordered by a linear score with noise."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, items, width))
    ranks = (x @ rng.normal(size=width) + rng.normal(size=(n, items))).argsort(axis=1).argsort(axis=1)
    return x.reshape(n, -1), np.array(["".join(map(str, row)) for row in ranks])
