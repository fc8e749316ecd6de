"""CKY: the best tree of a sentence, found exactly.

For every span (i, j) and symbol A, from the short spans to the long ones (CKY):

    base(A, i, j) = cost(A, i, j) + max over rules A → B C and i < k < j of  w(A → B C) + top(B, i, k) + top(C, k, j)
    base(t, i, i + 1) = score of the tag t at word i
    top(A, i, j)  = max( base(A, i, j),  max over chains A ⇒ B of  w(A ⇒ B) + cost(A ⇒ B, i, j) + base(B, i, j) )

Inner symbols have no cost and no chains above them. Costs are the scores of `span_features`, where there are any, and
those of the span loss:

    loss(y, ŷ) = |y| + |ŷ| − 2 |y ∩ ŷ|  =  |y| + Σ over labelled spans of ŷ of (1 − 2 [it is matched])

Whatever ŷ has over one and the same span (i, j) is one chain and what is below it, so that the chain can tell how many
of its labels are matched besides its bottom, and the sum is exact even where a label comes twice.

Only scores are kept; the best tree's rules are found again on the way down, at a few spans of the many.
"""

from typing import NamedTuple

import numpy as np

from distdual.kernels.jit import bare_kernel, inner_bare_kernel, inner_kernel
from distdual.kernels.rows import Floats, Int32s, Ints
from distdual.problems.parsing.derivation import Rules
from distdual.problems.parsing.span_features import SpanScores, SpanWeights, new_span_scores, score_labels

ANY = -1  # in Detour: whatever is best below
BELOW = -2  # in Detour: the step stays, what is below it (of a binary rule: to the left) changes
BELOW_RIGHT = -3  # in Detour: the step stays, what is to the right below it changes

TOP, BASE, OTHER_TOP, OTHER_BASE = 0, 1, 2, 3  # what is to be written: the best tree, or the best but the given one


class Weights(NamedTuple):
    binary: Floats  # (B,)
    chain: Floats  # (U,)
    root: Floats  # (R,)


class Chart(NamedTuple):
    """Room for the scores of a sentence; reused for the next one."""

    top: Floats  # (n (n + 1) / 2, n_symbols)
    base: Floats  # (n (n + 1) / 2, n_labels)
    active: Int32s  # (n (n + 1) / 2, n_symbols) the left children that a span can be
    n_active: Int32s  # (n (n + 1) / 2,)
    wanted: Int32s  # (n_labels,) how often the right tree has a label over the span at hand; 0 between two spans
    spans: SpanScores


def new_chart(longest: int, rules: Rules, spans: SpanWeights) -> Chart:
    n_spans = longest * (longest + 1) // 2
    return Chart(
        np.empty((n_spans, rules.n_symbols)),
        np.empty((n_spans, rules.n_labels)),
        np.empty((n_spans, rules.n_symbols), dtype=np.int32),
        np.empty(n_spans, dtype=np.int32),
        np.zeros(rules.n_labels, dtype=np.int32),
        new_span_scores(longest, spans, rules),
    )


@bare_kernel
def at(i: int, j: int, n: int) -> int:
    """The place of span (i, j) in a chart: by length, then by beginning."""
    return (j - i - 1) * (n + 1) - (j - i) * (j - i - 1) // 2 + i


@inner_bare_kernel
def fill_chart(tags: Floats, n: int, rules: Rules, w: Weights, spans: Int32s, unit: float, chart: Chart) -> None:
    """All scores of a sentence of n words, whose tags score `tags`.

    `spans` are those of the right tree, and `unit` what a wrong one costs: 0 without a loss. Fills `chart`.
    """
    for length in range(1, n + 1):
        for i in range(n - length + 1):
            here = at(i, i + length, n)
            out = chart.top[here]
            out[:] = -np.inf
            if length == 1:
                for tag in range(rules.n_tags):
                    out[tag] = tags[i, tag]
            for k in range(i + 1, i + length):
                combine_spans(at(i, k, n), at(k, i + length, n), rules, w.binary, chart, out)
            mark_span(spans, i, i + length, 1, chart.wanted)
            score_labels(i, i + length, n, rules, chart.spans)
            close_span(here, rules, w.chain, unit, chart)
            mark_span(spans, i, i + length, -1, chart.wanted)


@inner_bare_kernel
def combine_spans(left: int, right: int, rules: Rules, binary: Floats, chart: Chart, out: Floats) -> None:
    """out_A ← max(out_A, w(A → B C) + top(B) + top(C)) for two neighbouring spans."""
    before, after, active = chart.top[left], chart.top[right], chart.active[left]
    for a in range(chart.n_active[left]):
        symbol = active[a]
        score = before[symbol]
        for r in range(rules.by_left[symbol], rules.by_left[symbol + 1]):
            found = score + after[rules.right[r]] + binary[r]
            if found > out[rules.parent[r]]:  # noqa: PLR1730 - seldom true: a store each time takes longer
                out[rules.parent[r]] = found


@inner_bare_kernel
def close_span(here: int, rules: Rules, chain: Floats, unit: float, chart: Chart) -> None:
    """Costs, chains and the list of active symbols of a span whose binary rules are all met."""
    top, base, wanted = chart.top[here], chart.base[here], chart.wanted
    for symbol in range(rules.n_tags, rules.n_labels):
        top[symbol] += unit * (1.0 - 2.0 * min(wanted[symbol], 1)) + chart.spans.label[symbol]
    for symbol in range(rules.n_labels):
        base[symbol] = top[symbol]
    for u in range(len(rules.top)):
        if base[rules.bottom[u]] > -np.inf:
            found = base[rules.bottom[u]] + chain[u] + chain_cost(u, rules, unit, chart)
            top[rules.top[u]] = max(top[rules.top[u]], found)
    count = 0
    for symbol in range(rules.n_symbols):
        if top[symbol] > -np.inf and rules.by_left[symbol] < rules.by_left[symbol + 1]:
            chart.active[here, count] = symbol
            count += 1
    chart.n_active[here] = count


@inner_bare_kernel
def mark_span(spans: Int32s, i: int, j: int, step: int, wanted: Int32s) -> None:
    """Add `step` to `wanted` for each labelled span of the right tree that is (i, j)."""
    for k in range(len(spans)):
        if spans[k, 1] == i and spans[k, 2] == j:
            wanted[spans[k, 0]] += step


@inner_bare_kernel
def chain_cost(u: int, rules: Rules, unit: float, chart: Chart) -> float:
    """Σ over the labels of a chain above its bottom of unit (1 − 2 [matched]), and of their scores.

    The bottom is matched before them.
    """
    begin, end = rules.chain_indptr[u], rules.chain_indptr[u + 1]
    wanted, matched, scores = chart.wanted, 0, 0.0
    for k in range(begin, end):
        label = rules.chain_labels[k]
        scores += chart.spans.label[label]
        if wanted[label] == 0:
            continue
        before = 1 if label == rules.bottom[u] else 0
        for m in range(begin, k):
            before += 1 if rules.chain_labels[m] == label else 0
        matched += 1 if before < wanted[label] else 0
    return float(unit * (end - begin - 2 * matched) + scores)


# --- the tree


class Detour(NamedTuple):
    """For each step p of the right derivation, how the best derivation goes on that is not the right one from p on."""

    begin: Ints
    end: Ints
    second: Ints  # the step of the right child of a binary rule
    top: Floats  # its score, where a chain may come first
    base: Floats  # its score, where none may
    how_top: Ints  # ANY (no chain), BELOW, or another chain
    how_base: Ints  # BELOW, BELOW_RIGHT, or another rule
    split: Ints  # where that rule splits


@inner_kernel
def best_tree(n: int, rules: Rules, w: Weights, spans: Int32s, unit: float, chart: Chart, key: Int32s) -> int:
    """The best derivation of a filled chart into `key`; returns its length, or 0 if there is none."""
    root, _ = best_root(n, rules, w.root, chart, -1)
    if root < 0:
        return 0
    nothing = np.empty(0, np.int64)
    no_detour = Detour(nothing, nothing, nothing, np.empty(0), np.empty(0), nothing, nothing, nothing)
    key[0] = len(rules.left) + len(rules.top) + root
    return write_tree(TOP, rules.roots[root], n, rules, w, spans, unit, chart, key, no_detour, key)


@inner_bare_kernel
def best_root(n: int, rules: Rules, root: Floats, chart: Chart, but: int) -> tuple[int, float]:
    """The best symbol at the top, except number `but`, and its score; −1 if there is none."""
    top, score = -1, -np.inf
    for r in range(len(rules.roots)):
        found = chart.top[at(0, n, n), rules.roots[r]] + root[r]
        if r != but and found > score:
            top, score = r, found
    return top, score


@inner_kernel
def write_tree(
    what: int,
    start: int,
    n: int,
    rules: Rules,
    w: Weights,
    spans: Int32s,
    unit: float,
    chart: Chart,
    right: Int32s,
    detour: Detour,
    key: Int32s,
) -> int:
    """Write steps 1, 2, … of a derivation into `key`; returns its length.

    `what` is TOP for the best tree below symbol `start`, or OTHER_TOP for the best that is not `right`, from its step
    `start` on, of which `detour` tells.
    """
    first_tag = len(rules.left) + len(rules.top) + len(rules.roots)
    stack = np.empty((n + 2, 4), np.int64)  # what, symbol or step, begin, end
    put(what, start, 0, n, stack[0])
    height, size = 1, 1
    while height:
        height -= 1
        kind, symbol, i, j = stack[height, 0], stack[height, 1], stack[height, 2], stack[height, 3]
        if kind == TOP:
            how = ANY
            if symbol < rules.n_labels:
                how, _ = best_chain(symbol, i, j, n, rules, w.chain, spans, unit, chart, ANY)
            kind = BASE
            if how != ANY:
                key[size], symbol = len(rules.left) + how, rules.bottom[how]
                size += 1
        elif kind == OTHER_TOP:
            code, how = right[symbol], detour.how_top[symbol]
            if how == BELOW:
                kind = OTHER_BASE
                if is_chain(code, rules):
                    key[size], symbol = code, symbol + 1
                    size += 1
            else:
                kind, symbol = BASE, symbol_at(code, rules)
                if how != ANY:
                    key[size], symbol = len(rules.left) + how, rules.bottom[how]
                    size += 1
        if kind == BASE and symbol < rules.n_tags:
            key[size] = first_tag + symbol
        elif kind == BASE:
            rule, k, _ = best_rule(symbol, i, j, n, rules, w.binary, chart, -1, -1)
            key[size] = rule
            height = push_pair(rule, i, k, j, rules, stack, height)
        else:
            key[size] = right[symbol]
            how = detour.how_base[symbol]
            if how >= 0:
                key[size] = how
                height = push_pair(how, i, detour.split[symbol], j, rules, stack, height)
            else:
                second = detour.second[symbol]
                height = push_pair(right[symbol], i, detour.begin[second], j, rules, stack, height)
                if how == BELOW:
                    put(
                        other_kind(rules.left[right[symbol]], rules),
                        symbol + 1,
                        i,
                        detour.begin[second],
                        stack[height - 1],
                    )
                else:
                    put(
                        other_kind(rules.right[right[symbol]], rules),
                        second,
                        detour.begin[second],
                        j,
                        stack[height - 2],
                    )
        size += 1
    return size


@inner_bare_kernel
def push_pair(rule: int, i: int, k: int, j: int, rules: Rules, stack: Ints, height: int) -> int:
    """Both children of a rule, to be written with the best below them, the left one first; returns the new height."""
    put(TOP, rules.right[rule], k, j, stack[height])
    put(TOP, rules.left[rule], i, k, stack[height + 1])
    return height + 2


@bare_kernel
def put(kind: int, symbol: int, i: int, j: int, out: Ints) -> None:
    out[0], out[1], out[2], out[3] = kind, symbol, i, j


@inner_bare_kernel
def other_kind(symbol: int, rules: Rules) -> int:
    return OTHER_TOP if symbol < rules.n_labels else OTHER_BASE


@inner_bare_kernel
def is_chain(code: int, rules: Rules) -> bool:
    return len(rules.left) <= code < len(rules.left) + len(rules.top)


@inner_bare_kernel
def symbol_at(code: int, rules: Rules) -> int:
    """The symbol at the top of a step that is no root."""
    if code < len(rules.left):
        return int(rules.parent[code])
    if is_chain(code, rules):
        return int(rules.top[code - len(rules.left)])
    return code - len(rules.left) - len(rules.top) - len(rules.roots)


@inner_bare_kernel
def best_chain(
    symbol: int,
    i: int,
    j: int,
    n: int,
    rules: Rules,
    chain: Floats,
    spans: Int32s,
    unit: float,
    chart: Chart,
    but: int,
) -> tuple[int, float]:
    """The best chain below a symbol, except `but`, or ANY for none, and the score; none is not asked if it is `but`."""
    base, wanted = chart.base[at(i, j, n)], chart.wanted
    best, score = ANY, base[symbol]
    if but == BELOW:
        score = -np.inf
    mark_span(spans, i, j, 1, wanted)
    score_labels(i, j, n, rules, chart.spans)
    for u in range(len(rules.top)):
        if rules.top[u] == symbol and u != but and base[rules.bottom[u]] > -np.inf:
            found = base[rules.bottom[u]] + chain[u] + chain_cost(u, rules, unit, chart)
            if found > score:
                best, score = u, found
    mark_span(spans, i, j, -1, wanted)
    return best, score


@inner_bare_kernel
def best_rule(
    symbol: int, i: int, j: int, n: int, rules: Rules, binary: Floats, chart: Chart, but: int, but_split: int
) -> tuple[int, int, float]:
    """The best rule of a parent and where it splits the span, except one rule with one split, and the score."""
    rule, split, score = -1, -1, -np.inf
    for k in range(i + 1, j):
        before, after = chart.top[at(i, k, n)], chart.top[at(k, j, n)]
        for p in range(rules.by_parent[symbol], rules.by_parent[symbol + 1]):
            r = rules.of_parent[p]
            found = before[rules.left[r]] + after[rules.right[r]] + binary[r]
            if found > score and not (r == but and k == but_split):
                rule, split, score = r, k, found
    return rule, split, score
