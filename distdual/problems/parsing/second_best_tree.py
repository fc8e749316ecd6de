"""The best tree other than a given one, found exactly from the chart of the best one.

The runner-up leaves the given derivation at some step, or at several. From its last step to its first: the best that
differs from there on takes another rule (or split, or chain) at this step, and below it whatever is best; or it takes
the same, and one of the children differs. That is a walk along one derivation, not a second chart.
"""

import numpy as np

from distdual.kernels.jit import inner_bare_kernel, inner_kernel
from distdual.kernels.rows import Floats, Int32s
from distdual.problems.parsing.cky import (
    BELOW,
    BELOW_RIGHT,
    OTHER_TOP,
    TOP,
    Chart,
    Detour,
    Weights,
    at,
    best_chain,
    best_root,
    best_rule,
    chain_cost,
    is_chain,
    symbol_at,
    write_tree,
)
from distdual.problems.parsing.derivation import Rules
from distdual.problems.parsing.span_features import score_labels


def new_detour(size: int) -> Detour:
    ints, floats = (np.empty((6, size), dtype=dtype) for dtype in (np.int64, np.float64))
    return Detour(ints[0], ints[1], ints[2], floats[0], floats[1], ints[3], ints[4], ints[5])


@inner_kernel
def best_other_tree(n: int, rules: Rules, w: Weights, right: Int32s, chart: Chart, detour: Detour, key: Int32s) -> int:
    """The best derivation that is not `right` into `key`; returns its length, or 0 if there is none.

    The chart is filled without a loss; `detour` is scratch with room for all steps of `right`.
    """
    nothing = np.empty((0, 3), np.int32)
    outline(right, n, rules, detour)
    for p in range(len(right) - 1, 0, -1):
        i, j, code = detour.begin[p], detour.end[p], right[p]
        symbol = symbol_at(code, rules)
        if is_chain(code, rules):
            u = code - len(rules.left)
            detour.how_top[p], detour.top[p] = best_chain(symbol, i, j, n, rules, w.chain, nothing, 0.0, chart, u)
            score_labels(i, j, n, rules, chart.spans)
            same = w.chain[u] + chain_cost(u, rules, 0.0, chart) + detour.base[p + 1]
        else:
            leave_rule(p, right, n, rules, w.binary, chart, detour)
            if symbol < rules.n_labels:
                found = best_chain(symbol, i, j, n, rules, w.chain, nothing, 0.0, chart, BELOW)
                detour.how_top[p], detour.top[p] = found
            same = detour.base[p]
        if symbol < rules.n_labels and not same < detour.top[p]:
            detour.how_top[p], detour.top[p] = BELOW, same
    r = right[0] - len(rules.left) - len(rules.top)
    root, score = best_root(n, rules, w.root, chart, r)
    if w.root[r] + detour.top[1] > score:
        key[0] = right[0]
        return write_tree(OTHER_TOP, 1, n, rules, w, nothing, 0.0, chart, right, detour, key)
    if root < 0:
        return 0
    key[0] = len(rules.left) + len(rules.top) + root
    return write_tree(TOP, rules.roots[root], n, rules, w, nothing, 0.0, chart, right, detour, key)


@inner_bare_kernel
def leave_rule(p: int, right: Int32s, n: int, rules: Rules, binary: Floats, chart: Chart, detour: Detour) -> None:
    """The best that differs from step p on, which is a binary rule or a tag, and begins with no chain."""
    code = right[p]
    detour.base[p] = -np.inf
    detour.how_base[p] = BELOW
    if code >= len(rules.left):
        return  # a tag has nothing below
    i, j, second = detour.begin[p], detour.end[p], detour.second[p]
    k = detour.begin[second]
    rule, split, score = best_rule(rules.parent[code], i, j, n, rules, binary, chart, code, k)
    if score > -np.inf:
        detour.how_base[p], detour.split[p], detour.base[p] = rule, split, score
    left, after = rules.left[code], rules.right[code]
    other_left = detour.top[p + 1] if left < rules.n_labels else detour.base[p + 1]
    other_right = detour.top[second] if after < rules.n_labels else detour.base[second]
    found = binary[code] + other_left + chart.top[at(k, j, n), after]
    if found > detour.base[p]:
        detour.how_base[p], detour.base[p] = BELOW, found
    found = binary[code] + chart.top[at(i, k, n), left] + other_right
    if found > detour.base[p]:
        detour.how_base[p], detour.base[p] = BELOW_RIGHT, found
    if rules.parent[code] < rules.n_labels:
        score_labels(i, j, n, rules, chart.spans)
        detour.base[p] += chart.spans.label[rules.parent[code]]


@inner_kernel
def outline(key: Int32s, n: int, rules: Rules, detour: Detour) -> None:
    """The span of each step of a derivation, and where the right child of each binary rule is; fills `detour`."""
    stack = np.empty(n + 1, np.int64)
    height, word = 0, n
    for p in range(len(key) - 1, -1, -1):
        if key[p] >= len(rules.left) + len(rules.top) + len(rules.roots):
            word -= 1
            detour.begin[p], detour.end[p] = word, word + 1
            height += 1
        elif key[p] < len(rules.left):
            height -= 1
            detour.second[p] = stack[height - 1]
            detour.begin[p], detour.end[p] = detour.begin[p + 1], detour.end[stack[height - 1]]
        else:
            detour.begin[p], detour.end[p] = detour.begin[p + 1], detour.end[p + 1]
        stack[height - 1] = p
