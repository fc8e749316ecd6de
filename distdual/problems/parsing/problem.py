"""Parsing with a weighted context-free grammar: one constraint for each wrong tree ŷ of a sentence, sharing its slack.

    φ(x, y)   = Σ_t features_t ⊗ e_{tag of t in y}  +  Σ over rules of y of e_rule  [+  Σ over labelled spans of y]
    loss(y,ŷ) = |y \\ ŷ| + |ŷ \\ y| over labelled spans                                        loss = "span"
              = [ŷ ≠ y]                                                                       loss = "zero-one"

    margin rescaling   l = loss(y, ŷ),   row = φ(x, y) − φ(x, ŷ)

A labelled span is the label, the beginning and the end of a phrase; tags and inner symbols, which binarising brings,
are none. Rules are the binary ones, chains and roots of data/grammar.py, each with a weight of its own; with K tags,
w = [emission (n_features, K)] [rules] [labelled spans, see `span_features`]. The key of a constraint is the derivation
ŷ. With the 0/1 loss the offender is the best tree that is not the right one.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distdual.config import check_choice
from distdual.data.data_spec import DataSpec
from distdual.data.shard import Runs, Shard
from distdual.errors import InputError
from distdual.kernels.row_copies import narrowed
from distdual.kernels.rows import CsrRows, Floats, Int32s, Ints, as_csr, copy_runs
from distdual.problems.base import Constraints, Keys, Magnitude, Offenders, Problem, path_magnitude
from distdual.problems.chain.problem import bounds_of
from distdual.problems.parsing.cky import Weights, new_chart
from distdual.problems.parsing.derivation import Rules, find_losses, rules_of
from distdual.problems.parsing.grammar import OUTSIDE, Grammar, read_grammar
from distdual.problems.parsing.second_best_tree import new_detour
from distdual.problems.parsing.span_features import WORD_PLACES, SpanWeights, n_span_weights, split_span_weights
from distdual.problems.parsing.tree_rows import TreePairs, fill_rows, most_of_all
from distdual.problems.parsing.tree_search import count_brackets, find_best, find_worst
from distdual.problems.parsing.treebank import BRACKETED
from distdual.schema import array, rising


@dataclass(frozen=True, kw_only=True)
class Cfg(Problem):
    kind: ClassVar[str] = "cfg"
    data_spec: ClassVar[DataSpec] = DataSpec(examples="trees", own_format=BRACKETED)
    texts: ClassVar[tuple[str, ...]] = ("grammar",)

    n_features: int
    classes: tuple[str, ...]
    """The tags."""

    grammar: str
    """The text of the grammar, as the data set has it."""

    loss: str = "span"
    """"span" or "zero-one"."""

    span_features: bool = False
    """Weights of labelled spans, too, for their length, the words at their ends and beside them, and the tags that
    these words were seen with."""

    rescaling: str = "margin"
    """"margin"; with the 0/1 loss "slack" is the same."""

    def __post_init__(self) -> None:
        check_choice("problem.loss", self.loss, ["span", "zero-one"])
        check_choice("problem.rescaling", self.rescaling, ["margin", "slack"])
        if self.rescaling == "slack" and self.loss == "span":
            raise InputError(
                "problem.rescaling = 'slack' with problem.loss = 'span' has no exact inference: the product of loss "
                "and score does not decompose over a tree; use 'margin', or the 'zero-one' loss"
            )
        if self.read.tags != self.classes:
            raise InputError("the tags of the data set are not those of its grammar; prepare it again")

    @property
    def read(self) -> Grammar:
        return read_grammar(self.grammar)

    @cached_property
    def rules(self) -> Rules:
        return rules_of(self.read)

    def __getstate__(self) -> dict[str, Any]:
        """The state sent to workers, without the rules, which are rebuilt from the text."""
        return {name: value for name, value in self.__dict__.items() if name != "rules"}

    @property
    def oracle_work(self) -> float:  # type: ignore[override]
        """CKY meets the rules at every split of every span; the ascent reads a few rows of what differs.

        Measured with 1,031 rules and 10 words: 280 µs for a scan of a sentence, about 5 µs for a visit to its
        constraints. Between a quarter and four times of this the number of passes stays nearly the same.
        """
        return max(0.5, len(self.rules.left) / 16)

    @property
    def n_weights(self) -> int:  # type: ignore[override]
        return self.n_rule_weights + self.span_features * n_span_weights(self.n_features, *self._n_labels)

    @property
    def n_rule_weights(self) -> int:
        """Weights of emissions and rules, which come first."""
        return self.n_features * len(self.classes) + self.read.n_rules

    @property
    def _n_labels(self) -> tuple[int, int]:
        """How many tags and phrases there are."""
        return len(self.classes), self.read.n_labels - len(self.classes)

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        tokens, trees = bounds_of(shard), self._trees(shard)
        slack, indptr = np.empty(shard.n_examples), np.zeros(shard.n_examples + 1, dtype=np.int64)
        keys = np.empty(4 * len(shard.y), dtype=np.int32)
        emission, weights, spans = self._weights(w)
        chart = new_chart(int(np.diff(tokens).max(initial=0)), self.rules, spans)
        detour = None if self.loss == "span" else new_detour(int(np.diff(trees.indptr).max(initial=0)))
        told = (emission, weights, spans, self.rules, chart, detour)
        bad = find_worst(words_of(shard), tokens, trees.indptr, trees.values, *told, slack, indptr, keys)
        if bad >= 0:
            raise InputError(f"shard {shard.number}, row {bad}: the tree is not a derivation of the grammar")
        return Offenders(slack, Keys(indptr, keys[: indptr[-1]].copy()))

    def magnitude(self, shard: Shard, found: Offenders) -> Magnitude:  # noqa: ARG002 - known from the shard alone
        if not self.span_features:
            return path_magnitude(shard, 4, 4.0)
        longest = 1 + int(np.diff(self.rules.chain_indptr).max(initial=0))
        most_tags = int(np.diff(self.rules.by_feature).max(initial=0))
        per_word = 2 * longest  # labelled spans: twice as many nodes as words, with a chain each
        copies = 1 + WORD_PLACES * per_word * (1 + most_tags)  # the tags of a word count as often as its features
        return path_magnitude(shard, 4 + per_word, 4.0, 1.0, copies)

    def costs(self, shard: Shard) -> Floats:
        return np.ones(shard.n_examples) if shard.cost is None else shard.cost.copy()

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        tokens, trees = bounds_of(shard), self._trees(shard)
        margin = self._losses(shard, chosen, keys)
        pairs = TreePairs(
            tokens[chosen], np.diff(tokens)[chosen], *right_trees(trees, chosen), keys.values, keys.indptr
        )
        indptr = np.zeros(len(chosen) + 1, dtype=np.int64)
        most = most_of_all(words_of(shard), pairs, self.rules, self.span_features)
        indices = np.empty(most, dtype=np.int32 if self.n_weights < 2**31 else np.int64)
        values = np.empty(most)
        told = (self.rules, self.n_features, self.span_features)
        fill_rows(words_of(shard), pairs, *told, indptr, indices, values)
        rows = CsrRows(indptr, indices[: indptr[-1]].copy(), narrowed(values[: indptr[-1]]))
        return Constraints(shard.first + chosen, self.costs(shard)[chosen], margin, rows, keys)

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:
        """`constraints` checks them all, as its kernels trust them."""
        self._losses(shard, chosen, keys)

    def predict(self, w: Floats, shard: Shard) -> NDArray[np.int32]:
        """The derivations of all sentences, one after the other; OUTSIDE for each word of one that has none."""
        tokens = bounds_of(shard)
        keys = np.empty(4 * len(shard.y), dtype=np.int32)
        weights = self._weights(w)
        chart = new_chart(int(np.diff(tokens).max(initial=0)), self.rules, weights[-1])
        size = find_best(words_of(shard), tokens, *weights, self.rules, chart, keys)
        return keys[:size].copy()

    def spell(self, shard: Shard, predicted: NDArray[Any]) -> NDArray[Any]:
        """Each tree as bracketed text, with the words of the source."""
        ends = ends_of(predicted, bounds_of(shard), self.read)
        spelt = np.empty(shard.n_examples, dtype=object)
        for i in range(shard.n_examples):
            spelt[i] = str(self.read.decode(predicted[ends[i] : ends[i + 1]].tolist(), words_at(shard, i)))
        return spelt

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        """The number of words with the right tag."""
        tags = predicted[(predicted == OUTSIDE) | (predicted >= self.read.n_rules)]
        right = float((tags - self.read.n_rules == y).sum())
        return {"n": float(len(y)), "tag_accuracy": right}

    def score_shard(self, shard: Shard, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        """Labelled brackets, all of them, punctuation and the outermost included; an exact match has all right."""
        tokens = bounds_of(shard)
        right, found, shared, exact = count_brackets(
            tokens, *tree_column(shard), ends_of(predicted, tokens, self.read), predicted, self.rules
        )
        sums = {
            "f1": (2.0 * shared, right + found),
            "precision": (shared, found),
            "recall": (shared, right),
            "exact_match": (exact, shard.n_examples),
        }
        totals = {name: float(value) for name, (value, _) in sums.items()}
        divisors = {f"n:{name}": float(divisor) for name, (_, divisor) in sums.items()}
        return {**totals, **divisors, **self.score(y, predicted)}

    def _losses(self, shard: Shard, chosen: Ints, keys: Keys) -> Floats:
        """The loss of each key, once it is sure that it is a derivation."""
        losses = np.empty(len(chosen))
        trees = self._trees(shard)
        told = (trees.indptr, trees.values, chosen, keys.indptr, keys.values, self.rules, self.loss == "span")
        bad = find_losses(words_of(shard), bounds_of(shard), *told, losses)
        if bad >= 0:
            raise InputError(f"the key of a constraint of sentence {chosen[bad]} is not a derivation of its words")
        return losses

    def _weights(self, w: Floats) -> tuple[Floats, Weights, SpanWeights]:
        """Emission (n_features, K), and the weights of rules and of spans, as views."""
        emission, rules, spans = np.split(w, [self.n_features * len(self.classes), self.n_rule_weights])
        n_binary, n_chains = len(self.rules.left), len(self.rules.top)
        return (
            emission.reshape(-1, len(self.classes)),
            Weights(*np.split(rules, [n_binary, n_binary + n_chains])),
            split_span_weights(spans, self.n_features, *self._n_labels),
        )

    def _trees(self, shard: Shard) -> Runs:
        """The right trees, which must all be the grammar's own: others have no φ(x, y)."""
        trees = tree_column(shard)
        outside = trees.values[trees.indptr[:-1]] == OUTSIDE
        if outside.any():
            raise InputError(
                f"shard {shard.number}, row {int(np.argmax(outside))}: the grammar cannot derive the tree; "
                "train on the data set that the grammar was read from"
            )
        return trees


def words_of(shard: Shard) -> CsrRows:
    return as_csr(shard.x, np.int32)


def tree_column(shard: Shard) -> Runs:
    if shard.runs is None or "tree" not in shard.runs:
        raise InputError(f"shard {shard.number}: a cfg problem needs trees; prepare the data from bracketed text")
    trees = shard.runs["tree"]
    array(f"shard {shard.number}: trees", trees.values, np.int32, (None,))
    rising(f"shard {shard.number}: trees", trees.indptr, len(trees.values), least=1)
    return trees


def right_trees(trees: Runs, chosen: Ints) -> tuple[Int32s, Ints]:
    """The right trees of the chosen sentences, one after the other."""
    size = np.diff(trees.indptr)[chosen]
    indptr = np.concatenate([[0], np.cumsum(size)])
    found = np.empty(indptr[-1], dtype=np.int32)
    copy_runs(trees.indptr, chosen, indptr, trees.values, found)
    return found, indptr


def words_at(shard: Shard, i: int) -> list[str]:
    """The words of a sentence, one for each of its tokens."""
    n, where = int(np.diff(bounds_of(shard)[i : i + 2])[0]), f"shard {shard.number}: the words of sentence {i}"
    if shard.runs is None or "text" not in shard.runs:
        raise InputError(f"{where} are missing; prepare the data from bracketed text")
    try:
        words = shard.runs["text"].of(i).tobytes().decode().split(" ")
    except UnicodeDecodeError as error:
        raise InputError(f"{where} are not UTF-8 text: {error}") from None
    if len(words) != n:
        raise InputError(f"{where} are {len(words)}, expected {n}")
    return words


def ends_of(predicted: NDArray[Any], tokens: Ints, grammar: Grammar) -> Ints:
    """Where each of the derivations that `predict` wrote begins, and the end of the last: after its last word."""
    words = np.flatnonzero((predicted == OUTSIDE) | (predicted >= grammar.n_rules))
    return np.concatenate([[0], words[tokens[1:] - 1] + 1])
