"""The row of a right and a wrong tree: φ(x, y) − φ(x, ŷ)."""

from typing import Any, NamedTuple

import numpy as np

from distdual.kernels.jit import bare_kernel, inner_bare_kernel, kernel
from distdual.kernels.rows import CsrRows, Floats, Int32s, Ints
from distdual.problems.chain.path_rows import add_emissions, write_merged
from distdual.problems.parsing.derivation import Rules, most_spans, n_rules, read_key, tags_of
from distdual.problems.parsing.span_features import add_spans, most_span_values


class TreePairs(NamedTuple):
    """The two derivations that each constraint compares, and the sentence they are of."""

    first: Ints  # (n,) its first word
    size: Ints  # (n,) how many it has
    right: Int32s
    right_at: Ints  # (n + 1,) where that of each begins
    found: Int32s
    found_at: Ints  # (n + 1,)


@inner_bare_kernel
def most_values(x: CsrRows, pairs: TreePairs, c: int, rules: Rules, has_spans: bool) -> int:
    """How long a row can be: two of each feature, one of each step of both derivations, and their spans' features."""
    right = pairs.right[pairs.right_at[c] : pairs.right_at[c + 1]]
    found = pairs.found[pairs.found_at[c] : pairs.found_at[c + 1]]
    first, n = pairs.first[c], pairs.size[c]
    most = len(right) + len(found) + 2 * (x.indptr[first + n] - x.indptr[first])
    if has_spans:
        most += (most_spans(right, rules) + most_spans(found, rules)) * most_span_values(x, first, n, rules)
    return int(most)


@bare_kernel
def most_of_all(x: CsrRows, pairs: TreePairs, rules: Rules, has_spans: bool) -> int:
    most = 0
    for c in range(len(pairs.first)):
        most += most_values(x, pairs, c, rules, has_spans)
    return most


@kernel
def fill_rows(
    x: CsrRows,
    pairs: TreePairs,
    rules: Rules,
    n_features: int,
    has_spans: bool,
    indptr: Ints,
    indices: Any,
    values: Any,
) -> None:
    """Rows with ascending columns, each named once, and no zeros; fills indptr, indices and values."""
    room, first_tag = 0, n_rules(rules)
    for c in range(len(pairs.first)):
        room = max(room, most_values(x, pairs, c, rules, has_spans))
    columns, parts = np.empty(room, np.int64), np.empty(room)
    for c in range(len(pairs.first)):
        first, n = pairs.first[c], pairs.size[c]
        right = pairs.right[pairs.right_at[c] : pairs.right_at[c + 1]]
        found = pairs.found[pairs.found_at[c] : pairs.found_at[c + 1]]
        right_tags, found_tags = np.empty(n, np.int32), np.empty(n, np.int32)
        tags_of(right, first_tag, right_tags)
        tags_of(found, first_tag, found_tags)
        size = add_emissions(x, first, right_tags, found_tags, rules.n_tags, columns, parts)
        at = write_merged(columns[:size], parts[:size], 1.0, indptr[c], indices, values)
        base = rules.n_tags * n_features
        size = add_rules(right, first_tag, base, 1.0, 0, columns, parts)
        size = add_rules(found, first_tag, base, -1.0, size, columns, parts)
        at = write_merged(columns[:size], parts[:size], 1.0, at, indices, values)
        if has_spans:
            size = 0
            for key, sign in ((right, 1.0), (found, -1.0)):
                spans = np.empty((most_spans(key, rules), 3), np.int32)
                count = max(0, read_key(key, n, rules, right_tags, spans))
                size = add_spans(
                    x, first, n, spans[:count], sign, rules, n_features, base + first_tag, size, columns, parts
                )
            at = write_merged(columns[:size], parts[:size], 1.0, at, indices, values)
        indptr[c + 1] = at


@inner_bare_kernel
def add_rules(key: Int32s, first_tag: int, base: int, sign: float, size: int, columns: Ints, parts: Floats) -> int:
    """±1 for each rule of a derivation, from place `size` on; returns the end."""
    for p in range(len(key)):
        if key[p] < first_tag:
            columns[size], parts[size] = base + key[p], sign
            size += 1
    return size
