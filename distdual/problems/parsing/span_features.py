"""Features of labelled spans: their length, the words at their ends and beside them, and the tags of these words.

    score(A, i, j) = length_A(bin of j − i)  +  Σ over words t of i − 1, i, j − 1, j  of  end_A(t, place)
    end_A(t, place) = Σ_f x_tf ( words_A(f, place)  +  Σ over tags k that f was seen with  tags_A(k, place) )

with a weight for each phrase A; a neighbour beyond the sentence adds nothing. Weights come after those of rules:
[words (n_features, 4, P)] [tags (K, 4, P)] [lengths (N_LENGTHS, P)].
"""

from typing import NamedTuple

import numpy as np

from distdual.kernels.jit import inner_bare_kernel, inner_kernel
from distdual.kernels.rows import CsrRows, Floats, Int32s, Ints
from distdual.problems.chain.viterbi import fill_scores
from distdual.problems.parsing.derivation import Rules

N_LENGTHS = 10
WORD_PLACES = 4  # before a span, at its beginning, at its end, after it


class SpanWeights(NamedTuple):
    """Arrays of length 0 where spans have no features."""

    words: Floats  # (n_features, 4 P)
    tags: Floats  # (K, 4 P)
    lengths: Floats  # (N_LENGTHS, P)


class SpanScores(NamedTuple):
    """What a sentence's spans score."""

    ends: Floats  # (n, 4 P)
    lengths: Floats  # (N_LENGTHS, P), or (0, P) without features
    label: Floats  # (n_labels,) the scores of the span at hand


def n_span_weights(n_features: int, n_tags: int, n_phrases: int) -> int:
    return ((n_features + n_tags) * WORD_PLACES + N_LENGTHS) * n_phrases


def split_span_weights(w: Floats, n_features: int, n_tags: int, n_phrases: int) -> SpanWeights:
    """As views; of no weights at all, arrays of length 0."""
    heights = np.array([n_features, n_tags, N_LENGTHS] if len(w) else [0, 0, 0])
    widths = np.array([WORD_PLACES, WORD_PLACES, 1]) * n_phrases
    parts = np.split(w, np.cumsum(heights * widths)[:-1])
    shapes = zip(heights, widths, strict=True)
    return SpanWeights(*(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)))


def new_span_scores(longest: int, w: SpanWeights, rules: Rules) -> SpanScores:
    return SpanScores(np.zeros((longest, w.words.shape[1])), w.lengths, np.zeros(rules.n_labels))


@inner_kernel
def fill_ends(x: CsrRows, first: int, n: int, w: SpanWeights, rules: Rules, scores: SpanScores) -> None:
    """What each word of a sentence adds to the spans that it begins, ends, or is beside."""
    if not len(scores.lengths):
        return
    fill_scores(x, first, n, w.words, scores.ends)
    for t in range(n):
        for p in range(x.indptr[first + t], x.indptr[first + t + 1]):
            begin, end = range_of_tags(x.indices[p], rules)
            for k in range(begin, end):
                value, of_tag = x.values[p], w.tags[rules.of_feature[k]]
                for c in range(len(of_tag)):  # `ends[t] += …` would compile what it may raise, for two seconds
                    scores.ends[t, c] += value * of_tag[c]


@inner_bare_kernel
def score_labels(i: int, j: int, n: int, rules: Rules, scores: SpanScores) -> None:
    """Fill `label` with the scores of span (i, j); those of tags stay 0."""
    if not len(scores.lengths):
        return
    n_phrases, length = rules.n_labels - rules.n_tags, length_bin(j - i)
    for a in range(n_phrases):
        found = scores.lengths[length, a] + scores.ends[i, n_phrases + a] + scores.ends[j - 1, 2 * n_phrases + a]
        if i > 0:
            found += scores.ends[i - 1, a]
        if j < n:
            found += scores.ends[j, 3 * n_phrases + a]
        scores.label[rules.n_tags + a] = found


@inner_bare_kernel
def score_of_spans(spans: Int32s, n: int, rules: Rules, scores: SpanScores) -> float:
    total = 0.0
    for k in range(len(spans)):
        score_labels(spans[k, 1], spans[k, 2], n, rules, scores)
        total += scores.label[spans[k, 0]]
    return total


@inner_bare_kernel
def length_bin(length: int) -> int:
    """1 to 5 words, then 6 to 7, 8 to 10, 11 to 15, 16 to 20, and more."""
    if length <= 5:
        return length - 1
    return 5 + (length > 7) + (length > 10) + (length > 15) + (length > 20)


@inner_bare_kernel
def most_span_values(x: CsrRows, first: int, n: int, rules: Rules) -> int:
    """How many features a span can have."""
    most = 0
    for t in range(first, first + n):
        count = 0
        for p in range(x.indptr[t], x.indptr[t + 1]):
            begin, end = range_of_tags(x.indices[p], rules)
            count += 1 + end - begin
        most = max(most, count)
    return WORD_PLACES * most + 1


@inner_bare_kernel
def add_spans(
    x: CsrRows,
    first: int,
    n: int,
    spans: Int32s,
    sign: float,
    rules: Rules,
    n_features: int,
    base: int,
    size: int,
    columns: Ints,
    parts: Floats,
) -> int:
    """±features of labelled spans, from place `size` on; returns the end."""
    n_phrases = rules.n_labels - rules.n_tags
    of_tags = base + n_features * WORD_PLACES * n_phrases
    of_lengths = of_tags + rules.n_tags * WORD_PLACES * n_phrases
    for s in range(len(spans)):
        a, i, j = spans[s, 0] - rules.n_tags, spans[s, 1], spans[s, 2]
        for place in range(WORD_PLACES):
            t = i - 1 + place if place < 2 else j - 3 + place
            if not 0 <= t < n:
                continue
            for p in range(x.indptr[first + t], x.indptr[first + t + 1]):
                feature, value = int(x.indices[p]), sign * x.values[p]
                columns[size], parts[size] = base + (feature * WORD_PLACES + place) * n_phrases + a, value
                size += 1
                begin, end = range_of_tags(feature, rules)
                for k in range(begin, end):
                    columns[size] = of_tags + (rules.of_feature[k] * WORD_PLACES + place) * n_phrases + a
                    parts[size] = value
                    size += 1
        columns[size], parts[size] = of_lengths + length_bin(j - i) * n_phrases + a, sign
        size += 1
    return size


@inner_bare_kernel
def range_of_tags(feature: int, rules: Rules) -> tuple[int, int]:
    """Where the tags that a feature was seen with begin and end in `of_feature`."""
    if feature + 1 >= len(rules.by_feature):
        return 0, 0
    return int(rules.by_feature[feature]), int(rules.by_feature[feature + 1])
