"""Derivations, which are trees as numbers: their tags, labelled spans, loss and row.

data/grammar.py tells how a tree is written. Kernels that are handed a key check it first: it may come from a file.
"""

from typing import Any, NamedTuple

import numpy as np

from distdual.kernels.jit import bare_kernel, inner_bare_kernel, inner_kernel, kernel
from distdual.kernels.rows import CsrRows, Int32s, Ints
from distdual.problems.parsing.grammar import Grammar


class Rules(NamedTuple):
    """A grammar as kernels read it. Symbols are tags, then phrases, then inner symbols."""

    n_tags: int
    n_labels: int  # tags and phrases
    n_symbols: int
    left: Int32s  # (B,) of each binary rule, ascending
    right: Int32s
    parent: Int32s
    by_left: Ints  # (n_symbols + 1,) where the rules of a left child begin
    by_parent: Ints  # (n_symbols + 1,) the same of a parent, in
    of_parent: Int32s  # (B,) the rules, by parent
    top: Int32s  # (U,) of each chain
    bottom: Int32s
    chain_indptr: Ints  # (U + 1,) where its labels begin, without the bottom, in
    chain_labels: Int32s
    roots: Int32s  # (R,)
    by_feature: Ints  # (n + 1,) where the tags begin that a feature was seen with, in
    of_feature: Int32s  # none at all if every tag fits every word


def rules_of(grammar: Grammar) -> Rules:
    left, right, parent = np.array(grammar.binary, dtype=np.int32).reshape(-1, 3).T.copy()
    symbols = np.arange(grammar.n_symbols + 1)
    of_parent = np.argsort(parent, kind="stable").astype(np.int32)
    above = [chain[:-1] for chain in grammar.chains]
    feature, tag = np.array(grammar.lexicon, dtype=np.int32).reshape(-1, 2).T.copy()
    return Rules(
        len(grammar.tags),
        grammar.n_labels,
        grammar.n_symbols,
        left,
        right,
        parent,
        np.searchsorted(left, symbols),
        np.searchsorted(parent[of_parent], symbols),
        of_parent,
        np.array([chain[0] for chain in grammar.chains], dtype=np.int32),
        np.array([chain[-1] for chain in grammar.chains], dtype=np.int32),
        np.concatenate([[0], np.cumsum([len(labels) for labels in above], dtype=np.int64)]),
        np.array([label for labels in above for label in labels], dtype=np.int32),
        np.array(grammar.roots, dtype=np.int32),
        np.searchsorted(feature, np.arange(feature.max(initial=-1) + 2)),
        tag,
    )


@bare_kernel
def n_rules(rules: Rules) -> int:
    """Binary rules, chains and roots; also the number of the first tag."""
    return len(rules.left) + len(rules.top) + len(rules.roots)


@inner_bare_kernel
def most_spans(key: Int32s, rules: Rules) -> int:
    """How many labelled spans a derivation can have, whatever its numbers are."""
    longest = 1
    for u in range(len(rules.top)):
        longest = max(longest, rules.chain_indptr[u + 1] - rules.chain_indptr[u])
    return len(key) * longest


@inner_kernel
def read_key(key: Int32s, n: int, rules: Rules, tags: Int32s, spans: Int32s) -> int:
    """Tags and labelled spans of a derivation of n words; returns the number of spans, −1 if it is no derivation.

    Read from its end, so that what is below a node has been read before it. Fills tags (n,) and spans (·, 3) with
    label, begin and end; `spans` has room for `most_spans`.
    """
    n_binary, n_chains, first_tag = len(rules.left), len(rules.top), n_rules(rules)
    begin, end = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    symbol, chained = np.empty(n + 1, np.int64), np.zeros(n + 1, np.bool_)
    height, left_to_read, count = 0, n, 0
    for p in range(len(key) - 1, -1, -1):
        code = key[p]
        if code >= first_tag:
            if left_to_read == 0 or code - first_tag >= rules.n_tags:
                return -1
            left_to_read -= 1
            tags[left_to_read] = code - first_tag
            begin[height], end[height] = left_to_read, left_to_read + 1
            symbol[height], chained[height] = code - first_tag, False
            height += 1
        elif 0 <= code < n_binary:
            if height < 2 or symbol[height - 1] != rules.left[code] or symbol[height - 2] != rules.right[code]:
                return -1
            height -= 1
            begin[height - 1] = begin[height]
            symbol[height - 1], chained[height - 1] = rules.parent[code], False
            if rules.parent[code] < rules.n_labels:
                write_span(rules.parent[code], begin[height - 1], end[height - 1], spans[count])
                count += 1
        elif n_binary <= code < n_binary + n_chains:
            u = code - n_binary
            if height < 1 or chained[height - 1] or symbol[height - 1] != rules.bottom[u]:
                return -1
            symbol[height - 1], chained[height - 1] = rules.top[u], True
            for k in range(rules.chain_indptr[u], rules.chain_indptr[u + 1]):
                write_span(rules.chain_labels[k], begin[height - 1], end[height - 1], spans[count])
                count += 1
        elif code < 0 or p > 0 or height != 1 or symbol[0] != rules.roots[code - n_binary - n_chains]:
            return -1
    rooted = len(key) > 0 and n_binary + n_chains <= key[0] < first_tag
    return count if rooted and left_to_read == 0 else -1


@inner_bare_kernel
def write_span(label: int, begin: int, end: int, span: Int32s) -> None:
    span[0], span[1], span[2] = label, begin, end


@inner_kernel
def matching_spans(a: Int32s, b: Int32s) -> int:
    """How many labelled spans two trees share; one that is there twice counts twice if it is in both."""
    taken = np.zeros(len(b), np.bool_)
    count = 0
    for k in range(len(a)):
        for m in range(len(b)):
            if not taken[m] and a[k, 0] == b[m, 0] and a[k, 1] == b[m, 1] and a[k, 2] == b[m, 2]:
                taken[m] = True
                count += 1
                break
    return count


@inner_bare_kernel
def same_key(a: Int32s, b: Int32s) -> bool:
    if len(a) != len(b):
        return False
    for p in range(len(a)):  # noqa: SIM110 - kernels know no generators
        if a[p] != b[p]:
            return False
    return True


@bare_kernel
def fits(x: CsrRows, word: int, tag: int, rules: Rules) -> bool:
    """Whether a word may have a tag: one of its features was seen with it, or it has no feature."""
    if len(rules.of_feature) == 0 or x.indptr[word] == x.indptr[word + 1]:
        return True
    for p in range(x.indptr[word], x.indptr[word + 1]):
        if x.indices[p] + 1 < len(rules.by_feature):
            for k in range(rules.by_feature[x.indices[p]], rules.by_feature[x.indices[p] + 1]):
                if rules.of_feature[k] == tag:
                    return True
    return False


@inner_bare_kernel
def all_fit(x: CsrRows, first: int, tags: Int32s, rules: Rules) -> bool:
    """Whether words first, first + 1, … may have these tags."""
    n_fit = 0
    for t in range(len(tags)):
        n_fit += 1 if fits(x, first + t, tags[t], rules) else 0
    return n_fit == len(tags)


@kernel
def find_losses(
    x: CsrRows,
    tokens: Ints,
    tree_indptr: Ints,
    trees: Int32s,
    chosen: Ints,
    key_indptr: Ints,
    keys: Int32s,
    rules: Rules,
    by_span: bool,
    loss: Any,
) -> int:
    """The loss of each key; fills `loss` and returns −1, or the place of the first key that is no derivation.

    by_span: |ŷ \\ y| + |y \\ ŷ| over labelled spans; else 1 for a tree that is not the right one.
    """
    for c in range(len(chosen)):
        i = chosen[c]
        n = tokens[i + 1] - tokens[i]
        right, found = trees[tree_indptr[i] : tree_indptr[i + 1]], keys[key_indptr[c] : key_indptr[c + 1]]
        tags = np.empty(n, np.int32)
        a = np.empty((most_spans(right, rules), 3), np.int32)
        b = np.empty((most_spans(found, rules), 3), np.int32)
        n_a, n_b = read_key(right, n, rules, tags, a), read_key(found, n, rules, tags, b)
        if n_a < 0 or n_b < 0 or not all_fit(x, tokens[i], tags, rules):
            return c
        if by_span:
            loss[c] = n_a + n_b - 2 * matching_spans(a[:n_a], b[:n_b])
        else:
            loss[c] = 0.0 if same_key(right, found) else 1.0
    return -1


@bare_kernel
def tags_of(key: Int32s, first_tag: int, tags: Int32s) -> None:
    """The tags of a derivation, which its numbers name from left to right; fills `tags`."""
    t = 0
    for p in range(len(key)):
        if key[p] >= first_tag:
            tags[t] = key[p] - first_tag
            t += 1
