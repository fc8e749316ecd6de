"""A user-defined problem, from the class to a certified model: ranking small sets of items.

An example is a set of items with their features side by side. Its label gives the rank of each item, counted from the
bottom, so that in "2013" the first item comes second and the last one first. An output is such a tuple of ranks, and
the loss is the share of pairs in the wrong order.

python jobs/ranking.py runs/ranking
"""

import itertools
import json
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError

KIND = "ranking:Ranking"  # this file as a module; it is sent to Dask workers


@dataclass(frozen=True, kw_only=True)
class Ranking(distdual.UserProblem):
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

    def outputs(self, x: Any) -> Any:  # noqa: ARG002 - the same for all examples
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


def main(folder: Path) -> int:
    data, model = str(folder / "data"), str(folder / "model")
    prepare_arrays(*make_sets(1000), data, "multiclass", shard_bytes=16 << 10, overwrite=True)
    config = {
        "data": {"url": data},
        "problem": {"kind": KIND, "items": 4},
        "solver": {"C": 0.1, "gap": 1e-3},
        "cluster": {"local": {"workers": 2}},
        "output": {"url": model, "overwrite": True},
    }
    trained = distdual.train(config).certificate
    checked = distdual.verify(model, problem=KIND)
    score = distdual.predict(model, data, problem=KIND).score
    bounds = {"lower": checked.lower, "upper": checked.upper, "gap": checked.gap, "score": score}
    print(json.dumps({"certified": trained["certified"], "verified": checked.certified, **bounds}))
    return 0 if trained["certified"] and checked.certified else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        sys.exit(main(Path(sys.argv[1])))
    except (InputError, OSError) as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(2)
