"""Maximum likelihood for a grammar: log of each rule's share among those of its parent, and of each word's in its tag.

The rules and words of the training trees are counted; unseen ones have probability 10⁻⁹. It serves to compare scores.
"""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from benchmarks.case import Case
from benchmarks.objective import Solution
from benchmarks.solvers.base import Ladder, Once, Peer

NEVER = 1e-9


class Counting(Peer):
    name: ClassVar[str] = "maximum likelihood"
    package: ClassVar[str] = "numpy"
    kinds: ClassVar[tuple[str, ...]] = ("cfg",)
    same: ClassVar[bool] = False
    effort: ClassVar[str] = "counts"

    def ladder(self, case: Case) -> Ladder:  # noqa: ARG002
        return Once()

    def ready(self, case: Case) -> Callable[[float], Any]:
        return lambda _: weights(case.problem, case.train())

    def solution(self, case: Case, fitted: Any) -> Solution:
        return Solution(None, lambda shard: case.problem.predict(fitted, shard))


def weights(problem: Any, data: Any) -> Any:
    grammar = problem.read
    emission = np.zeros((problem.n_features, len(problem.classes)))
    rules = np.zeros(grammar.n_rules)
    for s in range(data.n_shards):
        shard = data.read(s).shard
        trees = shard.runs["tree"].values
        rules += np.bincount(trees[trees < grammar.n_rules], minlength=grammar.n_rules)
        word = np.repeat(np.arange(len(shard.y)), np.diff(shard.x.indptr))
        np.add.at(emission, (shard.x.indices, shard.y[word]), 1)
    share = emission / np.maximum(emission.sum(axis=0), 1)
    return np.concatenate([np.log(np.maximum(share, NEVER)).ravel(), rule_weights(grammar, rules, data.n_examples)])


def rule_weights(grammar: Any, rules: Any, n_trees: int) -> Any:
    """Binary rules, chains of unary steps, and roots, in this order."""
    nodes, steps = Counter[int](), Counter[tuple[int, int]]()
    for count, (_, _, parent) in zip(rules, grammar.binary, strict=False):
        nodes[parent] += count
    n_binary, n_chains = len(grammar.binary), len(grammar.chains)
    for count, chain in zip(rules[n_binary:], grammar.chains, strict=False):
        for pair in pairwise(chain):
            steps[pair] += count
            nodes[pair[0]] += count
    found = np.zeros(grammar.n_rules)
    found[:n_binary] = [np.log(n / nodes[p]) for n, (_, _, p) in zip(rules, grammar.binary, strict=False)]
    found[n_binary : n_binary + n_chains] = [
        sum(np.log(steps[pair] / nodes[pair[0]]) for pair in pairwise(chain)) for chain in grammar.chains
    ]
    found[n_binary + n_chains :] = np.log(rules[n_binary + n_chains :] / n_trees)
    return found
