"""Viterbi: the best path through the states of a chain, with or without the loss of wrong tags.

Each tag is m states, numbered tag after tag: those of tag k are k m … k m + m − 1; a plain chain has m = 1. A path has
a state for each token, and its loss is that of the tokens whose tag is wrong, whichever state of it was right:

    score(z)  = Σ_t ⟨emission_{z_t}, features_t⟩  +  Σ_t pairs_t(z_{t−1}, z_t)  +  Σ_t triples(z_{t−2}, z_{t−1}, z_t)
                +  start(z_1)  +  end(z_T)
    pairs_t   = pairs  +  Σ_j features_tj observed_j      over the first features, as many as `observed` has
    loss(y,z) = Σ_t tag_cost[tag of y_t] · [tag of z_t ≠ tag of y_t]

A pair, start or end of −∞ is on no path.
"""

from typing import Any, NamedTuple

import numpy as np

from distdual.kernels.jit import inlined_kernel, inner_kernel, kernel, specialise
from distdual.kernels.rows import (
    TWELVE,
    DenseRows,
    Features,
    Floats,
    Int32s,
    Ints,
    csr_add_blocks,
    csr_sum_twelves,
    is_dense,
)


class ChainWeights(NamedTuple):
    """Weights of K states; those that a chain does not have are of length 0, apart from `start` and `end`."""

    emission: Floats  # (n_features, K)
    pairs: Floats  # (K, K) from × to
    observed: Floats  # (n, K · K) what each of the first features adds to a pair, from × to
    triples: Floats  # (K, K, K) middle × first × last
    start: Floats  # (K,)
    end: Floats  # (K,)


class PathRoom(NamedTuple):
    """Scratch for a sequence: its scores, and what the best path needs beside."""

    scores: Floats  # (n, K)
    pairs: Floats  # (n, K, K) with observed pairs, else (1, K, K): those of all tokens
    low: Floats  # the least of each row of `pairs`, and the largest
    high: Floats
    low_three: Floats  # (K, K) the same of triples
    high_three: Floats
    back: Int32s  # (n, K), or (n, K · K) with triples
    best: Floats  # (2, K), or (2, K · K) with triples: to state b from a at b K + a
    reach: Floats  # (2, K)


@kernel
def find_margin_rescaled(
    x: Features,
    y: Int32s,
    tokens: Ints,
    w: ChainWeights,
    tag_costs: Floats,
    m: int,
    slack: Floats,
    worst: Int32s,
) -> None:
    """z = argmax loss(y, z) + score(z) of every sequence; fills `slack` and `worst`. NaN features give NaN slack."""
    room = room_for(tokens, w)
    scores = room.scores
    for i in range(len(tokens) - 1):
        first, n = tokens[i], tokens[i + 1] - tokens[i]
        look_at(x, first, n, w, room)
        right, found = y[first : first + n], worst[first : first + n]
        for t in range(n):
            tag = right[t] // m
            for k in range(scores.shape[1]):
                scores[t, k] += tag_costs[tag]
            for k in range(tag * m, tag * m + m):
                scores[t, k] -= tag_costs[tag]
        best_path(n, w, room, found)
        ahead = ahead_of(w, room, right, found) if all_finite(scores, n) else np.nan
        slack[i] = 0.0 if ahead <= 0.0 else ahead


@kernel
def find_best(x: Features, tokens: Ints, w: ChainWeights, predicted: Int32s) -> None:
    """argmax score(z) of every sequence; fills `predicted`."""
    room = room_for(tokens, w)
    for i in range(len(tokens) - 1):
        first, n = tokens[i], tokens[i + 1] - tokens[i]
        look_at(x, first, n, w, room)
        best_path(n, w, room, predicted[first : first + n])


@kernel
def find_own(x: Features, y: Int32s, tokens: Ints, w: ChainWeights, m: int, path: Int32s) -> None:
    """argmax score(z) among the paths whose tags are y, of each sequence; fills `path`, −1 if a score is not finite."""
    room = room_for(tokens, w)
    for i in range(len(tokens) - 1):
        first, n = tokens[i], tokens[i + 1] - tokens[i]
        look_at(x, first, n, w, room)
        found = path[first : first + n]
        if not all_finite(room.scores, n):
            found[:] = -1
            continue
        for t in range(n):
            own = y[first + t] * m
            room.scores[t, :own] = -np.inf
            room.scores[t, own + m :] = -np.inf
        best_path(n, w, room, found)


@inner_kernel
def room_for(tokens: Ints, w: ChainWeights) -> PathRoom:
    n, n_states = longest_of(tokens), w.emission.shape[1]
    width = n_states * n_states if len(w.triples) else n_states
    room = PathRoom(
        np.empty((n, n_states)),
        np.empty((n if len(w.observed) else 1, len(w.pairs), n_states)),
        np.empty((n if len(w.observed) else 1, len(w.pairs))),
        np.empty((n if len(w.observed) else 1, len(w.pairs))),
        np.empty((len(w.triples), n_states)),
        np.empty((len(w.triples), n_states)),
        np.empty((n, width), np.int32),
        np.empty((2, width)),
        np.empty((2, n_states)),
    )
    if len(w.pairs):
        copy_pairs(w.pairs, room.pairs[0])
        find_range(w.pairs, room.low[0], room.high[0])
    for b in range(len(w.triples)):
        find_range(w.triples[b], room.low_three[b], room.high_three[b])
    return room


@inner_kernel
def longest_of(tokens: Ints) -> int:
    longest = 0
    for i in range(len(tokens) - 1):
        longest = max(longest, tokens[i + 1] - tokens[i])
    return longest


@inlined_kernel
def copy_pairs(pairs: Floats, out: Floats) -> None:
    """out ← pairs. As an assignment it takes two seconds to compile, for what it may raise."""
    for j in range(len(pairs)):
        for k in range(pairs.shape[1]):
            out[j, k] = pairs[j, k]


@inlined_kernel
def find_range(pairs: Floats, low: Floats, high: Floats) -> None:
    """The least and the largest of each row."""
    for j in range(len(pairs)):
        least, most = np.inf, -np.inf
        for k in range(pairs.shape[1]):
            least, most = min(least, pairs[j, k]), max(most, pairs[j, k])
        low[j], high[j] = least, most


@inner_kernel
def look_at(x: Features, first: int, n: int, w: ChainWeights, room: PathRoom) -> None:
    """The scores of tokens first … first + n − 1 and of their pairs."""
    fill_scores(x, first, n, w.emission, room.scores)
    if len(w.observed):
        n_states = w.emission.shape[1]
        for t in range(1, n):
            copy_pairs(w.pairs, room.pairs[t])
            add_observed(x, first + t, w.observed, room.pairs[t].reshape(n_states * n_states))
            find_range(room.pairs[t], room.low[t], room.high[t])


def fill_scores(x: Features, first: int, n: int, emission: Floats, scores: Floats) -> None:
    """scores_tk = Σ_j x_tj emission_jk for tokens first … first + n − 1; fills the first n rows of `scores`."""
    for t in range(n):
        if isinstance(x, DenseRows):
            scores[t] = x.values[first + t].astype(np.float64) @ emission
        else:
            at = slice(x.indptr[first + t], x.indptr[first + t + 1])
            scores[t] = x.values[at].astype(np.float64) @ emission[x.indices[at]]


@specialise(fill_scores)
def _fill_scores(x: Any, first: Any, n: Any, emission: Any, scores: Any) -> Any:  # noqa: ARG001
    def dense(x: Any, first: Any, n: Any, emission: Any, scores: Any) -> Any:
        for t in range(n):
            scores[t, :] = 0.0
            for j in range(x.values.shape[1]):
                if x.values[first + t, j] != 0.0:
                    add_scaled(np.float64(x.values[first + t, j]), emission[j], scores[t])

    def csr(x: Any, first: Any, n: Any, emission: Any, scores: Any) -> Any:
        for t in range(n):
            begin, end = x.indptr[first + t], x.indptr[first + t + 1]
            if emission.shape[1] >= TWELVE:
                csr_sum_twelves(x.indices, x.values, begin, end, emission, scores[t])
            else:
                scores[t, :] = 0.0
                csr_add_blocks(x.indices, x.values, begin, end, emission, scores[t])

    return dense if is_dense(x) else csr


def add_observed(x: Features, row: int, observed: Floats, pairs: Floats) -> None:
    """pairs += Σ_j x_j observed_j over the features of a token that `observed` has."""
    if isinstance(x, DenseRows):
        pairs += x.values[row, : len(observed)].astype(np.float64) @ observed
    else:
        at = slice(x.indptr[row], x.indptr[row + 1])
        here = x.indices[at] < len(observed)
        pairs += x.values[at][here].astype(np.float64) @ observed[x.indices[at][here]]


@specialise(add_observed)
def _add_observed(x: Any, row: Any, observed: Any, pairs: Any) -> Any:  # noqa: ARG001
    def dense(x: Any, row: Any, observed: Any, pairs: Any) -> Any:
        for j in range(len(observed)):
            if x.values[row, j] != 0.0:
                add_scaled(np.float64(x.values[row, j]), observed[j], pairs)

    def csr(x: Any, row: Any, observed: Any, pairs: Any) -> Any:
        for p in range(x.indptr[row], x.indptr[row + 1]):
            if x.indices[p] < len(observed):
                add_scaled(np.float64(x.values[p]), observed[x.indices[p]], pairs)

    return dense if is_dense(x) else csr


@inlined_kernel
def add_scaled(scale: float, row: Floats, out: Floats) -> None:
    """out ← out + scale · row."""
    for k in range(len(out)):
        out[k] += scale * row[k]


@inner_kernel
def best_path(n: int, w: ChainWeights, room: PathRoom, path: Int32s) -> float:
    """The states of the best path into `path`; returns its score, −∞ if there is none.

    best_t(k) = scores_t(k) + max_j ( best_{t−1}(j) + pairs_t(j, k) )
    """
    if len(w.triples) and n > 1:
        return best_path_of_three(n, w, room, path)
    scores, n_states = room.scores, room.scores.shape[1]
    best, new, at = room.best[0][:n_states], room.reach[0], room.reach[1]
    for k in range(n_states):
        best[k] = w.start[k] + scores[0, k]
    for t in range(1, n):
        p = min(t, len(room.pairs) - 1)
        extend(best, room.pairs[p], room.low[p], room.high[p], new, at)
        for k in range(n_states):
            room.back[t, k] = np.int32(at[k])
            best[k] = new[k] + scores[t, k]
    k = 0
    for j in range(n_states):
        best[j] += w.end[j]
        if best[j] > best[k]:
            k = j
    top = best[k]
    for t in range(n - 1, -1, -1):
        path[t] = k
        k = room.back[t, k] if t else k
    return float(top)


@inner_kernel
def best_path_of_three(n: int, w: ChainWeights, room: PathRoom, path: Int32s) -> float:
    """The same with triples, for two tokens or more, over the last two states a and b.

    best_t(b, c) = scores_t(c) + pairs_t(b, c) + max_a ( best_{t−1}(a, b) + triples(a, b, c) )
    """
    scores, n_states = room.scores, room.scores.shape[1]
    best, then, new, at = room.best[0], room.best[1], room.reach[0], room.reach[1]
    p = min(1, len(room.pairs) - 1)
    for b in range(n_states):
        for a in range(n_states):
            best[b * n_states + a] = w.start[a] + scores[0, a] + room.pairs[p, a, b] + scores[1, b]
    for t in range(2, n):
        p = min(t, len(room.pairs) - 1)
        for b in range(n_states):
            own = best[b * n_states : (b + 1) * n_states]
            extend(own, w.triples[b], room.low_three[b], room.high_three[b], new, at)
            for c in range(n_states):
                then[c * n_states + b] = new[c] + room.pairs[p, b, c] + scores[t, c]
                room.back[t, c * n_states + b] = np.int32(at[c])
        best, then = then, best
    k = 0
    for c in range(n_states):
        for b in range(n_states):
            best[c * n_states + b] += w.end[c]
    for j in range(n_states * n_states):
        if best[j] > best[k]:
            k = j
    top = best[k]
    last, before = k // n_states, k % n_states
    for t in range(n - 1, 0, -1):
        path[t], path[t - 1] = last, before
        last, before = before, room.back[t, last * n_states + before] if t > 1 else 0
    return float(top)


@kernel
def extend(best: Floats, pairs: Floats, low: Floats, high: Floats, new: Floats, at: Floats) -> None:
    """new_k = max_j best_j + pairs_jk, at_k = argmax; both as floats, so that the inner loop runs on whole vectors.

    `low` and `high` are the range of each row of `pairs`. What cannot exceed the least that the best j reaches is
    passed over, which leaves few rows once weights tell tags apart.
    """
    n_states = len(best)
    top = 0
    for j in range(n_states):
        if best[j] > best[top]:
            top = j
    at[:] = float(top)
    new[:] = best[top]
    if not len(pairs):
        return
    for k in range(n_states):
        new[k] += pairs[top, k]
    least = best[top] + low[top]
    for j in range(n_states):
        if j == top or best[j] + high[j] <= least:
            continue
        base, row, number = best[j], pairs[j], float(j)
        for k in range(n_states):
            found = base + row[k]
            better = found > new[k]
            new[k] = found if better else new[k]
            at[k] = number if better else at[k]


@inner_kernel
def all_finite(scores: Floats, n: int) -> bool:
    """Whether the scores of the first n tokens are finite; a NaN would lose every comparison."""
    for t in range(n):
        for k in range(scores.shape[1]):
            if not np.isfinite(scores[t, k]):
                return False
    return True


@inner_kernel
def ahead_of(w: ChainWeights, room: PathRoom, right: Int32s, found: Int32s) -> float:
    """How far the path found is ahead of the right one, from where they differ only: 0 if they are the same."""
    n, scores = len(right), room.scores
    ahead, since = 0.0, 3  # tokens since the last that differs
    for t in range(n):
        since += 1
        if found[t] != right[t]:
            since = 0
            ahead += scores[t, found[t]] - scores[t, right[t]]
        if t and since < 2 and len(w.pairs):
            pairs = room.pairs[min(t, len(room.pairs) - 1)]
            ahead += pairs[found[t - 1], found[t]] - pairs[right[t - 1], right[t]]
        if t > 1 and since < 3 and len(w.triples):
            ahead += w.triples[found[t - 1], found[t - 2], found[t]] - w.triples[right[t - 1], right[t - 2], right[t]]
    return float(ahead + w.start[found[0]] - w.start[right[0]] + w.end[found[n - 1]] - w.end[right[n - 1]])
