"""The oracle of a parser: kernels that search the sentences of a shard for their worst and best trees."""

import numpy as np

from distdual.kernels.jit import inner_bare_kernel, inner_kernel, kernel
from distdual.kernels.rows import CsrRows, Floats, Int32s, Ints
from distdual.problems.chain.viterbi import all_finite, fill_scores, longest_of
from distdual.problems.parsing.cky import Chart, Detour, Weights, best_tree, fill_chart
from distdual.problems.parsing.derivation import (
    Rules,
    all_fit,
    fits,
    matching_spans,
    most_spans,
    n_rules,
    read_key,
    same_key,
    tags_of,
    write_span,
)
from distdual.problems.parsing.grammar import OUTSIDE
from distdual.problems.parsing.second_best_tree import best_other_tree
from distdual.problems.parsing.span_features import SpanWeights, fill_ends, score_of_spans


@kernel
def find_worst(
    x: CsrRows,
    tokens: Ints,
    tree_indptr: Ints,
    trees: Int32s,
    emission: Floats,
    w: Weights,
    span_weights: SpanWeights,
    rules: Rules,
    chart: Chart,
    detour: Detour | None,
    slack: Floats,
    key_indptr: Ints,
    keys: Int32s,
) -> int:
    """ŷ = argmax loss(y, ŷ) + score(ŷ) of every sentence; fills slack, key_indptr and keys.

    There is no `detour` with the loss over spans. NaN features give NaN slack. Returns −1, or the first sentence whose
    right tree is no derivation. Where nothing is violated the key is y.
    """
    scores = np.empty((longest_of(tokens), rules.n_tags))
    counts = np.zeros(n_rules(rules), np.int32)
    for i in range(len(tokens) - 1):
        first, n = tokens[i], tokens[i + 1] - tokens[i]
        right, begin = trees[tree_indptr[i] : tree_indptr[i + 1]], key_indptr[i]
        tags, spans = np.empty(n, np.int32), np.empty((most_spans(right, rules), 3), np.int32)
        n_spans = read_key(right, n, rules, tags, spans)
        if n_spans < 0 or not all_fit(x, first, tags, rules):
            return i
        spans = spans[:n_spans]
        fill_scores(x, first, n, emission, scores)
        fill_ends(x, first, n, span_weights, rules, chart.spans)
        finite = all_finite(scores, n) and (not len(span_weights.words) or all_finite(chart.spans.ends, n))
        leave_out_tags(x, first, n, rules, scores)
        key, size = keys[begin : begin + 4 * n], 0
        if finite:
            if detour is None:  # Numba compiles only the branch that is taken
                fill_chart(scores, n, rules, w, spans, 1.0, chart)
                size = best_tree(n, rules, w, spans, 1.0, chart, key)
            else:
                fill_chart(scores, n, rules, w, spans[:0], 0.0, chart)
                size = best_other_tree(n, rules, w, right, chart, detour, key)
        found = key[:size]
        slack[i] = 0.0 if finite else np.nan
        if size and not same_key(right, found):
            ahead = loss_of(spans, found, n, rules, detour)
            ahead += margin_ahead(scores, right, found, w, rules, tags, counts)
            ahead += spans_ahead(spans, found, n, rules, chart)
            slack[i] = 0.0 if ahead <= 0.0 else ahead
        else:
            size = len(right)
            for p in range(size):  # not `key[:size] = right`: see `span_features.fill_ends`
                key[p] = right[p]
        key_indptr[i + 1] = begin + size
    return -1


@inner_bare_kernel
def leave_out_tags(x: CsrRows, first: int, n: int, rules: Rules, scores: Floats) -> None:
    """scores_tk = −∞ where word first + t was never seen with tag k."""
    if len(rules.of_feature) == 0:
        return
    for t in range(n):
        for tag in range(rules.n_tags):
            if not fits(x, first + t, tag, rules):
                scores[t, tag] = -np.inf


@inner_kernel
def loss_of(spans: Int32s, found: Int32s, n: int, rules: Rules, detour: Detour | None) -> float:
    """The loss of a derivation that is not the right one, whose spans are given."""
    if detour is not None:
        return 1.0
    tags, own = np.empty(n, np.int32), np.empty((most_spans(found, rules), 3), np.int32)
    count = read_key(found, n, rules, tags, own)
    return float(len(spans) + count - 2 * matching_spans(spans, own[:count]))


@inner_kernel
def spans_ahead(spans: Int32s, found: Int32s, n: int, rules: Rules, chart: Chart) -> float:
    """How much more the labelled spans of a derivation score than the right ones."""
    if not len(chart.spans.lengths):
        return 0.0
    tags, own = np.empty(n, np.int32), np.empty((most_spans(found, rules), 3), np.int32)
    count = read_key(found, n, rules, tags, own)
    other = score_of_spans(own[:count], n, rules, chart.spans)
    return float(other - score_of_spans(spans, n, rules, chart.spans))


@inner_kernel
def margin_ahead(
    scores: Floats, right: Int32s, found: Int32s, w: Weights, rules: Rules, tags: Int32s, counts: Int32s
) -> float:
    """score(ŷ) − score(y), from where they differ only; `counts` is scratch of zeros, and is so again."""
    n_binary, n_chains, first_tag = len(rules.left), len(rules.top), n_rules(rules)
    other = np.empty(len(tags), np.int32)
    tags_of(found, first_tag, other)
    ahead = 0.0
    for t in range(len(tags)):
        if other[t] != tags[t]:
            ahead += scores[t, other[t]] - scores[t, tags[t]]
    for code in found:
        if code < first_tag:
            counts[code] += 1
    for code in right:
        if code < first_tag:
            counts[code] -= 1
    for key in (found, right):
        for code in key:
            if code < first_tag and counts[code] != 0:
                if code < n_binary:
                    weight = w.binary[code]
                elif code < n_binary + n_chains:
                    weight = w.chain[code - n_binary]
                else:
                    weight = w.root[code - n_binary - n_chains]
                ahead += counts[code] * weight
                counts[code] = 0
    return ahead


@kernel
def find_best(
    x: CsrRows,
    tokens: Ints,
    emission: Floats,
    w: Weights,
    span_weights: SpanWeights,
    rules: Rules,
    chart: Chart,
    keys: Int32s,
) -> int:
    """argmax score(ŷ) of every sentence into `keys`, one after the other; returns their length.

    Where the tags that words were seen with give no tree, every word may have every tag.
    """
    scores = np.empty((longest_of(tokens), rules.n_tags))
    no_spans = np.empty((0, 3), np.int32)
    end = 0
    for i in range(len(tokens) - 1):
        n = tokens[i + 1] - tokens[i]
        fill_scores(x, tokens[i], n, emission, scores)
        fill_ends(x, tokens[i], n, span_weights, rules, chart.spans)
        leave_out_tags(x, tokens[i], n, rules, scores)
        fill_chart(scores, n, rules, w, no_spans, 0.0, chart)
        size = best_tree(n, rules, w, no_spans, 0.0, chart, keys[end : end + 4 * n])
        if size == 0 and len(rules.of_feature):
            fill_scores(x, tokens[i], n, emission, scores)
            fill_chart(scores, n, rules, w, no_spans, 0.0, chart)
            size = best_tree(n, rules, w, no_spans, 0.0, chart, keys[end : end + 4 * n])
        if size == 0:
            size = n
            keys[end : end + n] = OUTSIDE
        end += size
    return end


@kernel
def count_brackets(
    tokens: Ints, tree_indptr: Ints, trees: Int32s, ends: Ints, predicted: Int32s, rules: Rules
) -> tuple[int, int, int, int]:
    """Labelled brackets in the right trees, in those predicted and in both; and trees with all brackets right."""
    n_right, n_found, n_shared, n_exact = 0, 0, 0, 0
    for i in range(len(tokens) - 1):
        n = tokens[i + 1] - tokens[i]
        tree, key = trees[tree_indptr[i] : tree_indptr[i + 1]], predicted[ends[i] : ends[i + 1]]
        tags = np.empty(n, np.int32)
        right = np.empty((most_spans(tree, rules), 3), np.int32)
        found = np.empty((most_spans(key, rules), 3), np.int32)
        if tree[0] == OUTSIDE:
            a = (len(tree) - 1) // 3
            for k in range(a):
                write_span(tree[1 + 3 * k], tree[2 + 3 * k], tree[3 + 3 * k], right[k])
        else:
            a = max(0, read_key(tree, n, rules, tags, right))
        b = max(0, read_key(key, n, rules, tags, found))
        shared = matching_spans(right[:a], found[:b])
        n_right, n_found, n_shared = n_right + a, n_found + b, n_shared + shared
        n_exact += 1 if shared == a and shared == b and key[0] != OUTSIDE else 0
    return n_right, n_found, n_shared, n_exact
