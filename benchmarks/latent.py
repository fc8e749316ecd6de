"""Latent problems on real data: accuracy, and the cost of later iterations relative to the first.

    python -m benchmarks.latent DATA_FOLDER [--only musk1|elephant|shifts|mixtures] [--seeds 5] [--settings] [--json]

musk1, elephant   DATA_FOLDER/mil: 10-fold cross-validation by bag, mean accuracy over the seeds that cut the folds.
                  Features are standardised and C is chosen by 3-fold cross-validation, both on the training bags alone.
shifts            DATA_FOLDER/mnist: 8 against 3, 4,000 bags of nine copies shifted by up to one pixel either way; the
                  oracle calls + ascent updates of each turn after the first, as a share of the first's, at
                  C = 0.1 and a gap of 1e-2. --settings shows other C and gaps, too, and the largest share of what the
                  first problem takes from nothing to the same gap.
mixtures          DATA_FOLDER/mnist: test error of three components a class beside that of one plane a class.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.case import need
from distdual.cluster.threads import InlineExecutor
from distdual.config import SolverConfig
from distdual.coordinator.latent_loop import LatentOutcome, train_latent
from distdual.coordinator.trainer import Trainer
from distdual.data.in_memory import MemoryDataset, in_memory, sequences_in_memory
from distdual.problems.latent.bags import Latent
from distdual.problems.latent.base import LatentProblem
from distdual.problems.latent.multiclass import LatentMulticlass
from distdual.problems.multiclass import Multiclass

FOLDS, INNER_FOLDS = 10, 3
CHOICES = (0.001, 0.01, 0.1, 1.0)  # of C
SIDE = 28
SETTINGS = ((0.01, 1e-2), (1.0, 1e-2), (0.01, 1e-3), (0.1, 1e-3), (1.0, 1e-3))  # C and gap


class Bags(NamedTuple):
    x: Any  # (n_candidates, n_features)
    y: Any  # (n,) ±1, of each bag
    lengths: Any  # (n,)

    def take(self, which: Any) -> "Bags":
        parts = np.split(self.x, np.cumsum(self.lengths)[:-1])
        return Bags(np.concatenate([parts[i] for i in which]), self.y[which], self.lengths[which])

    def dataset(self) -> MemoryDataset:
        return sequences_in_memory(self.x.astype(np.float32), np.repeat(self.y, self.lengths), self.lengths)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, metavar="DATA_FOLDER")
    arguments.add_argument("--only", choices=["musk1", "elephant", "shifts", "mixtures"])
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--settings", action="store_true", help="shifts at other C and gaps, too")
    arguments.add_argument("--json", action="store_true", help="print one JSON object")
    told = arguments.parse_args()
    every = {
        "musk1": lambda: validate(read_bags(told.folder, "musk1"), told.seeds),
        "elephant": lambda: validate(read_bags(told.folder, "elephant"), told.seeds),
        "shifts": lambda: shifts(told.folder, settings=told.settings),
        "mixtures": lambda: mixtures(told.folder),
    }
    figures = {}
    for name, measure in every.items():
        if told.only in (None, name):
            begin = time.perf_counter()
            figures[name] = {**measure(), "seconds": round(time.perf_counter() - begin, 1)}
            if not told.json:
                print(name, *(f"{key}={value}" for key, value in figures[name].items()), flush=True)
    if told.json:
        print(json.dumps(figures))


def fit(problem: LatentProblem, dataset: MemoryDataset, **solver: Any) -> LatentOutcome:
    executor = InlineExecutor(dataset, problem)
    config = SolverConfig(slack="example", **solver)
    try:
        return train_latent(problem, lambda: Trainer(problem, dataset, executor, config, lambda _: None), None)
    finally:
        executor.close()


def read_bags(folder: Path, name: str) -> Bags:
    packed = np.load(need(folder, "mil", f"{name}.npz"))
    first = np.flatnonzero(np.diff(packed["bag"], prepend=packed["bag"][0] - 1))
    return Bags(packed["X"].astype(np.float64), packed["y"][first].astype(int), np.diff(first, append=len(packed["y"])))


def folds(y: Any, n: int, seed: int) -> Any:
    """The fold of each bag; both labels are spread over all folds."""
    rng, fold = np.random.default_rng(seed), np.empty(len(y), dtype=int)
    for label in np.unique(y):
        which = rng.permutation(np.flatnonzero(y == label))
        fold[which] = np.arange(len(which)) % n
    return fold


def validate(bags: Bags, seeds: int) -> dict[str, Any]:
    accuracy = []
    for seed in range(seeds):
        fold, right = folds(bags.y, FOLDS, seed), 0.0
        for k in range(FOLDS):
            train, test = standardised(bags.take(np.flatnonzero(fold != k)), bags.take(np.flatnonzero(fold == k)))
            right += hits(train, test, choose(train, seed))
        accuracy.append(right / len(bags.y))
    return {"accuracy": round(float(np.mean(accuracy)), 4), "by_seed": [round(one, 4) for one in accuracy]}


def choose(bags: Bags, seed: int) -> float:
    """The C with the most hits in a cross-validation of the training bags; the smallest of equals."""
    fold = folds(bags.y, INNER_FOLDS, 1000 + seed)
    parts = [(bags.take(np.flatnonzero(fold != k)), bags.take(np.flatnonzero(fold == k))) for k in range(INNER_FOLDS)]
    return max(CHOICES, key=lambda C: sum(hits(train, test, C) for train, test in parts))


def standardised(train: Bags, test: Bags) -> tuple[Bags, Bags]:
    mean, deviation = train.x.mean(axis=0), train.x.std(axis=0)
    deviation[deviation == 0] = 1.0
    return tuple(bags._replace(x=(bags.x - mean) / deviation) for bags in (train, test))


def hits(train: Bags, test: Bags, C: float) -> float:
    """The number of test bags that are predicted correctly."""
    dataset = train.dataset()
    problem = Latent(n_features=train.x.shape[1], classes=dataset.classes, bias=1.0)
    w = fit(problem, dataset, C=C, gap=0.01).outcome.w
    scores = np.maximum.reduceat(test.x @ w[:-1] + w[-1], np.cumsum(test.lengths) - test.lengths)
    return float(((scores > 0) == (test.y > 0)).sum())


def shifts(folder: Path, *, settings: bool) -> dict[str, Any]:
    packed = np.load(need(folder, "mnist", "mnist.npz"))
    which = np.flatnonzero(np.isin(packed["y_train"], [3, 8]))[:4000]
    images = np.pad(packed["X_train"][which].reshape(-1, SIDE, SIDE) / 255, ((0, 0), (1, 1), (1, 1)))
    copies = [images[:, i : i + SIDE, j : j + SIDE].reshape(len(which), -1) for i in range(3) for j in range(3)]
    x = np.stack(copies, axis=1).reshape(9 * len(which), -1)
    bags = Bags(x, np.where(packed["y_train"][which] == 8, 1, -1), np.full(len(which), 9))
    dataset = bags.dataset()
    problem = Latent(n_features=SIDE * SIDE, classes=dataset.classes, bias=1.0)
    figures = turns(problem, dataset, C=0.1, gap=1e-2)
    for C, gap in SETTINGS if settings else ():
        other = turns(problem, dataset, C=C, gap=gap)
        cold = work_of(fit(replace(problem, rounds=1), dataset, C=C, gap=gap))[0]
        most = round(max(other["shares"]) * other["first"] / cold, 3)
        figures[f"C={C:g},gap={gap:g}"] = {"shares": other["shares"], "most_of_cold": most}
    return figures


def work_of(found: LatentOutcome) -> list[int]:
    return [turn.oracle_calls + turn.updates for turn in found.trace]


def turns(problem: Latent, dataset: MemoryDataset, **solver: Any) -> dict[str, Any]:
    found = fit(problem, dataset, **solver)
    work = work_of(found)
    return {
        "first": work[0],
        "shares": [round(each / work[0], 3) for each in work[1:]],
        "objective": [round(turn.objective, 3) for turn in found.trace],
        "changed": [turn.changed for turn in found.trace],
        "gap": found.outcome.certificate.gap,
    }


def mixtures(folder: Path) -> dict[str, Any]:
    packed = np.load(need(folder, "mnist", "mnist.npz"))
    x, test = ((packed[name].reshape(-1, SIDE * SIDE) / 255).astype(np.float32) for name in ("X_train", "X_test"))
    dataset = in_memory(x, packed["y_train"].astype(int))
    shared: dict[str, Any] = {"n_features": SIDE * SIDE, "classes": dataset.classes, "bias": 1.0}
    flat, mixed = Multiclass(**shared), LatentMulticlass(**shared, components=3, min_examples=100)
    executor = InlineExecutor(dataset, flat)
    outcome = Trainer(flat, dataset, executor, SolverConfig(C=0.01, gap=1e-2), lambda _: None).run()
    executor.close()
    found = fit(mixed, dataset, C=0.01, gap=1e-2)
    there = in_memory(test, packed["y_test"].astype(int))
    errors = []
    for problem, w in ((flat, outcome.w), (mixed, found.outcome.w)):
        wrong = sum(float((problem.predict(w, shard) != shard.y).sum()) for shard in there.shards)
        errors.append(round(100 * wrong / len(test), 2))
    return {
        "error_convex": errors[0],
        "error_mixtures": errors[1],
        "turns": len(found.trace),
        "objective": [round(turn.objective, 2) for turn in found.trace],
    }


if __name__ == "__main__":
    main()
