"""Small grammars and sentences for tests, and all trees of a sentence written out."""

import itertools
from collections import Counter
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

import numpy as np

from distdual.data.shard import Runs, Shard
from distdual.problems.parsing.brackets import Tree
from distdual.problems.parsing.grammar import UNKNOWN_TAG, Grammar, Reading, grammar_of
from distdual.problems.parsing.problem import Cfg
from tests import naive
from tests.build import rows_of

Key = tuple[int, ...]


def random_grammar(seed: int, *, n_binary: int = 5, n_chains: int = 3, lexicon: bool = False) -> Grammar:
    """Two tags and the unknown one, three phrases, an inner symbol; rules at random, labels twice in a chain, too."""
    rng = np.random.default_rng(seed)
    names = {"tag": sorted(["d", "n", UNKNOWN_TAG]), "phrase": ["A", "B", "C"], "inner": ["A(B)"]}
    tags = [k for k, name in enumerate(names["tag"]) if name != UNKNOWN_TAG]
    children, phrases, parents = [*tags, 3, 4, 5, 6], [3, 4, 5], [3, 3, 4, 5, 6]
    binary = {(rng.choice(children), rng.choice(children), rng.choice(parents)) for _ in range(n_binary)}
    binary |= {(tags[0], tags[1], 3), (3, tags[0], 3), (3, tags[1], 3)}
    chains = {
        (*rng.choice(phrases, size=rng.integers(1, 4)), rng.choice([*tags, *phrases])) for _ in range(n_chains)
    } | {(3, tags[0]), (3, tags[1])}
    plain = [
        {tuple(map(int, rule)) for rule in rules} for rules in (binary, chains, {(3,), (rng.choice(children[:5]),)})
    ]
    words = [(0, tags[0]), (1, tags[1]), (2, tags[0]), (2, tags[1])] if lexicon else []
    rules = dict(zip(("binary", "chain", "root"), map(list, plain), strict=True))
    return grammar_of(Reading(), names, {**rules, "word": words})


@lru_cache(maxsize=256)
def derivations(grammar: Grammar, n: int) -> tuple[Key, ...]:
    """All derivations of n words, straight from the rules."""
    first_tag, n_binary = grammar.n_rules, len(grammar.binary)

    @cache
    def base(symbol: int, i: int, j: int) -> tuple[Key, ...]:
        if symbol < len(grammar.tags):
            return ((first_tag + symbol,),) if j == i + 1 else ()
        return tuple(
            (code, *left, *right)
            for code, (a, b, parent) in enumerate(grammar.binary)
            if parent == symbol
            for k in range(i + 1, j)
            for left, right in itertools.product(top(a, i, k), top(b, k, j))
        )

    @cache
    def top(symbol: int, i: int, j: int) -> tuple[Key, ...]:
        below = [
            (n_binary + u, *rest)
            for u, chain in enumerate(grammar.chains)
            if chain[0] == symbol
            for rest in base(chain[-1], i, j)
        ]
        return (*base(symbol, i, j), *below)

    first_root = n_binary + len(grammar.chains)
    return tuple((first_root + r, *rest) for r, symbol in enumerate(grammar.roots) for rest in top(symbol, 0, n))


def tags_of(grammar: Grammar, key: Key) -> list[int]:
    return [code - grammar.n_rules for code in key if code >= grammar.n_rules]


def trees_for(grammar: Grammar, features: Any) -> list[Key]:
    """All derivations of words with these features: each word has a tag that one of its features was seen with."""
    if not grammar.lexicon:
        return list(derivations(grammar, len(features)))
    allowed = [{tag for feature, tag in grammar.lexicon if row[feature] != 0} for row in features]
    every = derivations(grammar, len(features))
    return [key for key in every if all(t in fit for t, fit in zip(tags_of(grammar, key), allowed, strict=True))]


def joint_features(problem: Cfg, features: Any, key: Key) -> Any:
    """φ(x, y), word by word and rule by rule."""
    emission, rules = np.zeros((problem.n_features, len(problem.classes))), np.zeros(problem.read.n_rules)
    for t, tag in enumerate(tags_of(problem.read, key)):
        emission[:, tag] += features[t]
    for code in key:
        if code < problem.read.n_rules:
            rules[code] += 1
    return np.concatenate([emission.ravel(), rules, *([spans_joint(problem, features, key)] * problem.span_features)])


def spans_joint(problem: Cfg, features: Any, key: Key) -> Any:
    """The part of labelled spans of φ(x, y)."""
    grammar, n = problem.read, len(features)
    n_tags, bins = len(grammar.tags), [1, 2, 3, 4, 5, 7, 10, 15, 20, n + 20]
    n_phrases = grammar.n_labels - n_tags
    words = np.zeros((problem.n_features, 4, n_phrases))
    tags, lengths = np.zeros((n_tags, 4, n_phrases)), np.zeros((10, n_phrases))
    for (label, i, j), count in brackets(grammar.decode(list(key), ["w"] * n)).items():
        a = grammar.number_of["phrase", label] - n_tags
        lengths[next(k for k, longest in enumerate(bins) if j - i <= longest), a] += count
        for place, t in enumerate((i - 1, i, j - 1, j)):
            if 0 <= t < n:
                words[:, place, a] += count * features[t]
                for feature, tag in grammar.lexicon:
                    tags[tag, place, a] += count * features[t][feature]
    return np.concatenate([words.ravel(), tags.ravel(), lengths.ravel()])


def brackets(tree: Tree) -> Counter[tuple[str, int, int]]:
    """Label, begin and end of all phrases of a tree."""
    found: Counter[tuple[str, int, int]] = Counter()

    def walk(node: Tree, begin: int) -> int:
        if not node.children:
            return begin + 1
        end = begin
        for child in node.children:
            end = walk(child, end)
        found[node.label, begin, end] += 1
        return end

    walk(tree, 0)
    return found


def loss_of(problem: Cfg, right: Key, found: Key) -> float:
    if problem.loss == "zero-one":
        return float(right != found)
    words = ["w"] * len(tags_of(problem.read, right))
    a, b = (brackets(problem.read.decode(list(key), words)) for key in (right, found))
    return float((a - b).total() + (b - a).total())


def sentences(grammar: Grammar, seed: int, lengths: list[int], *, width: int = 3, cost: bool = False) -> Shard:
    """Sentences with a derivation each. Features are eighths, so that sums of them are exact in single precision."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    x = np.round(8 * rng.normal(size=(n, width))) / 8 * (rng.random((n, width)) < 0.7)
    x[:, 0] += x[:, 0] == 0.0
    keys = []
    for words in np.split(x, np.cumsum(lengths)[:-1]):
        if not trees_for(grammar, words):
            words[:, 2] = 1.0
        found = trees_for(grammar, words)
        keys.append(found[rng.integers(len(found))])
    y = np.array([tag for key in keys for tag in tags_of(grammar, key)], dtype=np.int32)
    tree = Runs(np.concatenate([[0], np.cumsum([len(key) for key in keys])]), np.concatenate(keys).astype(np.int32))
    tokens = np.concatenate([[0], np.cumsum(lengths)])
    costs = rng.uniform(0, 2, len(lengths)) if cost else None
    return Shard(2, 30, rows_of(x, sparse=False), y, costs, None, tokens, {"tree": tree})


def every_wrong_tree(problem: Cfg, shard: Shard, i: int) -> dict[Key, tuple[Any, float, float]]:
    """Written out: row, margin and cost of all wrong trees of sentence i."""
    features = naive.dense(shard.x, problem.n_features)[shard.tokens[i] : shard.tokens[i + 1]]
    right = tuple(shard.runs["tree"].of(i).tolist())
    cost = 1.0 if shard.cost is None else float(shard.cost[i])
    truth = joint_features(problem, features, right)
    return {
        key: (truth - joint_features(problem, features, key), loss_of(problem, right, key), cost)
        for key in trees_for(problem.read, features)
        if key != right
    }


def planted(seed: int, n: int) -> Iterator[str]:
    """Bracketed sentences of a small language: the words mostly tell the tags, the tags mostly tell the tree."""
    rng = np.random.default_rng(seed)
    nouns, verbs = ["dog", "cat", "bird", "fish"], ["sees", "hears", "bites"]

    def noun_phrase(depth: int) -> str:
        kind = rng.random()
        if kind < 0.3:
            return f"(NP (PRP {rng.choice(['it', 'she'])}))"
        simple = f"(NP (DT {rng.choice(['the', 'a'])}) (NN {rng.choice(nouns)}))"
        if kind < 0.75 or depth > 1:
            return simple
        return f"(NP {simple} (PP (IN {rng.choice(['with', 'near'])}) {noun_phrase(depth + 1)}))"

    for _ in range(n):
        extra = f" (PP (IN {rng.choice(['with', 'near'])}) {noun_phrase(1)})" if rng.random() < 0.3 else ""
        verb = rng.choice(verbs)
        if rng.random() < 0.15:
            yield f"(S (VP (VB {verb}) {noun_phrase(0)}) (. !))"
        else:
            yield f"(S {noun_phrase(0)} (VP (VB {verb}) {noun_phrase(0)}{extra}) (. .))"
