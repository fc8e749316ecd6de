"""How well does a certified parser do on the Penn Treebank sample, and how long does it take?

    python benchmarks/parsing.py DATA_FOLDER [--json]

DATA_FOLDER/nltk_treebank/treebank_clean.mrg.xz holds the trees: sentences of up to 15 words, 80 % for training. The
grammar is that of the training trees, with Markov order 2. For reference, the same grammar with the weights of
maximum likelihood: log of the share of each rule among those of its parent, and of each word among those of its tag,
10⁻⁹ for what was never seen. Times of training are without compiling, with one run that compiles before it.
The 40-word sentence is parsed with the grammar of all trees of the sample, which has four times as many rules.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from datasets import need

import distdual
from distdual.data.location import Location
from distdual.data.prepare import prepare
from distdual.data.shard import Shard
from distdual.data.store import Dataset, open_dataset
from distdual.prediction import Judge, add_up, predict, predict_shard
from distdual.problems import make_problem
from distdual.problems.cfg import Cfg

SEED = 0
MAX_LENGTH = 15
C = {"span": 1.0, "zero-one": 3.0}  # the best of 0.3, 1, 3, 10, 30 on a fifth of the training trees
NEVER = 1e-9


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, metavar="DATA_FOLDER")
    arguments.add_argument("--json", action="store_true", help="print one JSON object")
    told = arguments.parse_args()
    trees = need(told.folder, "nltk_treebank", "treebank_clean.mrg.xz")
    with tempfile.TemporaryDirectory(prefix="distdual-parsing-") as scratch:
        prepare(trees, f"{scratch}/short", "cfg", max_length=MAX_LENGTH, test_fraction=0.2, shuffle=SEED)
        figures = {**grammar_of(f"{scratch}/short/train"), **likelihood(f"{scratch}/short")}
        for loss in C:
            figures |= trained(f"{scratch}/short", loss)
        prepare(trees, f"{scratch}/all", "cfg")
        figures |= long_sentence(f"{scratch}/all")
    print(json.dumps(figures) if told.json else "\n".join(f"{name:<40} {value}" for name, value in figures.items()))


def grammar_of(url: str) -> dict[str, Any]:
    data = open_dataset(Location(url))
    grammar = problem_of(data).read
    return {
        "sentences": data.n_examples,
        "words": data.n_rows,
        "binary rules, chains": (len(grammar.binary), len(grammar.chains)),
        "weights": problem_of(data).n_weights,
    }


def trained(folder: str, loss: str) -> dict[str, Any]:
    config = {
        "data": {"url": f"{folder}/train"},
        "problem": {"kind": "cfg", "loss": loss},
        "solver": {"C": C[loss], "gap": 1e-2},
        "output": {"url": f"{folder}/model", "overwrite": True},
    }
    distdual.train({**config, "solver": {"C": 0.001, "gap": 0.5}})
    proven = distdual.train(config).certificate
    checked = distdual.verify(f"{folder}/model")
    return {
        f"{loss}: C": C[loss],
        f"{loss}: bounds": (checked.lower, checked.upper),
        f"{loss}: gap": checked.gap,
        f"{loss}: verified": checked.certified,
        f"{loss}: passes": proven["passes"],
        f"{loss}: seconds": proven["seconds"],
        f"{loss}: ascent, wait": (proven["ascent_seconds"], proven["wait_seconds"]),
        f"{loss}: support": proven["support"],
        **{f"{loss}: {name}": value for name, value in scores(predict(f"{folder}/model", f"{folder}/test").score)},
    }


def scores(score: dict[str, float] | None) -> list[tuple[str, float]]:
    assert score is not None
    return [(name, round(value, 4)) for name, value in score.items()]


def problem_of(data: Dataset) -> Cfg:
    made = make_problem("cfg", {}, n_features=data.n_features, classes=data.classes, texts=data.texts)
    assert isinstance(made, Cfg)
    return made


def likelihood(folder: str) -> dict[str, Any]:
    """The scores of the grammar with weights of maximum likelihood."""
    train, test = (open_dataset(Location(f"{folder}/{part}")) for part in ("train", "test"))
    problem = problem_of(train)
    w = likelihood_weights(problem, train)
    judge = Judge(problem, list(range(len(problem.classes))))
    found = add_up([predict_shard(test, problem, w, s, judge).score for s in range(test.n_shards)])
    return {f"maximum likelihood: {name}": value for name, value in scores(found)}


def likelihood_weights(problem: Cfg, data: Dataset) -> Any:
    grammar = problem.read
    emission = np.zeros((problem.n_features, len(problem.classes)))
    rules = np.zeros(grammar.n_rules)
    for s in range(data.n_shards):
        shard = data.read(s).shard
        trees = shard.runs["tree"].values
        rules += np.bincount(trees[trees < grammar.n_rules], minlength=grammar.n_rules)
        word = np.repeat(np.arange(len(shard.y)), np.diff(shard.x.indptr))
        np.add.at(emission, (shard.x.indices, shard.y[word]), 1)
    nodes, steps = Counter[int](), Counter[tuple[int, int]]()
    for count, (_, _, parent) in zip(rules, grammar.binary, strict=False):
        nodes[parent] += count
    for count, chain in zip(rules[len(grammar.binary) :], grammar.chains, strict=False):
        for pair in pairwise(chain):
            steps[pair] += count
            nodes[pair[0]] += count
    n_binary, n_chains = len(grammar.binary), len(grammar.chains)
    weights = np.zeros(grammar.n_rules)
    weights[:n_binary] = [np.log(n / nodes[p]) for n, (_, _, p) in zip(rules, grammar.binary, strict=False)]
    weights[n_binary : n_binary + n_chains] = [
        sum(np.log(steps[pair] / nodes[pair[0]]) for pair in pairwise(chain)) for chain in grammar.chains
    ]
    weights[n_binary + n_chains :] = np.log(rules[n_binary + n_chains :] / data.n_examples)
    share = emission / np.maximum(emission.sum(axis=0), 1)
    return np.concatenate([np.log(np.maximum(share, NEVER)).ravel(), weights])


def long_sentence(url: str) -> dict[str, Any]:
    """Seconds to parse one sentence of 40 words."""
    data = open_dataset(Location(url))
    problem = problem_of(data)
    w = likelihood_weights(problem, data)
    sentence = first_of_length(data, 40)
    problem.predict(w, sentence)  # compiles, if nothing before has
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        problem.predict(w, sentence)
        times.append(time.perf_counter() - begin)
    return {
        "rules of the whole sample": len(problem.read.binary),
        "seconds for 40 words": statistics.median(times),
    }


def first_of_length(data: Dataset, n: int) -> Shard:
    for s in range(data.n_shards):
        shard = data.read(s).shard
        found = np.flatnonzero(np.diff(shard.tokens) == n)
        if len(found):
            return shard.piece(int(found[0]), int(found[0]) + 1)
    raise SystemExit(f"no sentence of {n} words")


if __name__ == "__main__":
    main()
