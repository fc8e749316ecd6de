"""Viterbi: the best path through the states of a linear chain, with or without the loss of wrong tags.

Each tag is m states, numbered tag after tag: those of tag k are k m … k m + m − 1; a plain chain has m = 1. A path has
a state for each token, and its loss is that of the tokens whose tag is wrong, whichever state of it was right:

    score(z)  = Σ_t ⟨emission_{z_t}, features_t⟩  +  Σ_t pairs(z_{t−1}, z_t)  +  start(z_1)  +  end(z_T)
    loss(y,z) = Σ_t tag_cost[tag of y_t] · [tag of z_t ≠ tag of y_t]
"""

from typing import Any

import numpy as np

from distdual.kernels.jit import inlined_kernel, kernel, specialise
from distdual.kernels.rows import DenseRows, Features, Floats, Int32s, Ints, csr_add_blocks, is_dense


@kernel
def find_margin_rescaled(
    x: Features,
    y: Int32s,
    tokens: Ints,
    emission: Floats,
    pairs: Floats,
    start: Floats,
    end: Floats,
    tag_costs: Floats,
    m: int,
    slack: Floats,
    worst: Int32s,
) -> None:
    """z = argmax loss(y, z) + score(z) of every sequence; fills `slack` and `worst`. NaN features give NaN slack."""
    scores, back, forward = room_for(longest_of(tokens), emission.shape[1])
    for i in range(len(tokens) - 1):
        first, n = tokens[i], tokens[i + 1] - tokens[i]
        fill_scores(x, first, n, emission, scores)
        right, found = y[first : first + n], worst[first : first + n]
        for t in range(n):
            tag = right[t] // m
            for k in range(scores.shape[1]):
                scores[t, k] += tag_costs[tag]
            for k in range(tag * m, tag * m + m):
                scores[t, k] -= tag_costs[tag]
        best_path(scores, n, pairs, start, end, back, forward, found)
        ahead = ahead_of(scores, pairs, start, end, right, found) if all_finite(scores, n) else np.nan
        slack[i] = 0.0 if ahead <= 0.0 else ahead


@kernel
def find_best(
    x: Features,
    tokens: Ints,
    emission: Floats,
    pairs: Floats,
    start: Floats,
    end: Floats,
    predicted: Int32s,
) -> None:
    """argmax score(z) of every sequence; fills `predicted`."""
    scores, back, forward = room_for(longest_of(tokens), emission.shape[1])
    for i in range(len(tokens) - 1):
        first, n = tokens[i], tokens[i + 1] - tokens[i]
        fill_scores(x, first, n, emission, scores)
        best_path(scores, n, pairs, start, end, back, forward, predicted[first : first + n])


@kernel
def find_own(
    x: Features,
    y: Int32s,
    tokens: Ints,
    emission: Floats,
    pairs: Floats,
    start: Floats,
    end: Floats,
    m: int,
    path: Int32s,
) -> None:
    """argmax score(z) among the paths whose tags are y, of each sequence; fills `path`, −1 if a score is not finite."""
    scores, back, forward = room_for(longest_of(tokens), emission.shape[1])
    for i in range(len(tokens) - 1):
        first, n = tokens[i], tokens[i + 1] - tokens[i]
        fill_scores(x, first, n, emission, scores)
        found = path[first : first + n]
        if not all_finite(scores, n):
            found[:] = -1
            continue
        for t in range(n):
            own = y[first + t] * m
            scores[t, :own] = -np.inf
            scores[t, own + m :] = -np.inf
        best_path(scores, n, pairs, start, end, back, forward, found)


@kernel
def room_for(longest: int, n_states: int) -> tuple[Floats, Int32s, Floats]:
    """Scratch: scores and back pointers of a sequence, and what `best_path` needs beside."""
    return np.empty((longest, n_states)), np.empty((longest, n_states), np.int32), np.empty((3, n_states))


@kernel
def longest_of(tokens: Ints) -> int:
    longest = 0
    for i in range(len(tokens) - 1):
        longest = max(longest, tokens[i + 1] - tokens[i])
    return longest


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
            scores[t, :] = 0.0
            csr_add_blocks(x.indices, x.values, x.indptr[first + t], x.indptr[first + t + 1], emission, scores[t])

    return dense if is_dense(x) else csr


@inlined_kernel
def add_scaled(scale: float, row: Floats, out: Floats) -> None:
    """out ← out + scale · row."""
    for k in range(len(out)):
        out[k] += scale * row[k]


@kernel
def best_path(
    scores: Floats, n: int, pairs: Floats, start: Floats, end: Floats, back: Int32s, forward: Floats, path: Int32s
) -> None:
    """The states of the best path into `path`. `back` and `forward` are scratch, K entries a token and 3 K.

    best_t(k) = scores_t(k) + max_j ( best_{t−1}(j) + pairs(j, k) )
    """
    n_states = scores.shape[1]
    best, new, at = forward[0], forward[1], forward[2]
    for k in range(n_states):
        best[k] = start[k] + scores[0, k]
    for t in range(1, n):
        extend(best, pairs, new, at)
        for k in range(n_states):
            back[t, k] = np.int32(at[k])
            best[k] = new[k] + scores[t, k]
    k = 0
    for j in range(n_states):
        best[j] += end[j]
        if best[j] > best[k]:
            k = j
    for t in range(n - 1, -1, -1):
        path[t] = k
        k = back[t, k] if t else k


@kernel
def extend(best: Floats, pairs: Floats, new: Floats, at: Floats) -> None:
    """new_k = max_j best_j + pairs_jk, at_k = argmax; both as floats, so that the inner loop runs on whole vectors."""
    n_states = len(best)
    new[:], at[:] = -np.inf, 0.0
    if not len(pairs):
        top = 0
        for j in range(n_states):
            if best[j] > best[top]:
                top = j
        new[:], at[:] = best[top], float(top)
        return
    for j in range(n_states):
        base, row, number = best[j], pairs[j], float(j)
        for k in range(n_states):
            found = base + row[k]
            better = found > new[k]
            new[k] = found if better else new[k]
            at[k] = number if better else at[k]


@kernel
def all_finite(scores: Floats, n: int) -> bool:
    """Whether the scores of the first n tokens are finite; a NaN would lose every comparison."""
    for t in range(n):
        for k in range(scores.shape[1]):
            if not np.isfinite(scores[t, k]):
                return False
    return True


@kernel
def ahead_of(scores: Floats, pairs: Floats, start: Floats, end: Floats, right: Int32s, found: Int32s) -> float:
    """How far the path found is ahead of the right one, from where they differ only: 0 if they are the same."""
    n = len(right)
    ahead = 0.0
    for t in range(n):
        if found[t] != right[t]:
            ahead += scores[t, found[t]] - scores[t, right[t]]
        if t and len(pairs) and (found[t] != right[t] or found[t - 1] != right[t - 1]):
            ahead += pairs[found[t - 1], found[t]] - pairs[right[t - 1], right[t]]
    return float(ahead + start[found[0]] - start[right[0]] + end[found[n - 1]] - end[right[n - 1]])


# --- slack rescaling


@kernel
def find_slack_rescaled(
    x: Features,
    y: Int32s,
    tokens: Ints,
    emission: Floats,
    pairs: Floats,
    start: Floats,
    end: Floats,
    tag_costs: Floats,
    slack: Floats,
    worst: Int32s,
) -> None:
    """z = argmax loss(y, z) (1 + score(z) − score(y)): the best path with exactly h wrong tags, for each h; m = 1.

    The loss is h · tag_costs[0]: all tags cost the same. Time and memory grow with the square of the length.
    """
    n_states = emission.shape[1]
    longest = longest_of(tokens)
    scores, forward = np.empty((longest, n_states)), np.empty((2, longest + 1, n_states))
    new, at = np.empty(n_states), np.empty(n_states)
    back = np.empty((longest, longest + 1, n_states), np.int32)
    path = np.empty(longest, np.int32)
    for i in range(len(tokens) - 1):
        first, n = tokens[i], tokens[i + 1] - tokens[i]
        fill_scores(x, first, n, emission, scores)
        right, found = y[first : first + n], worst[first : first + n]
        slack[i] = 0.0
        found[:] = right
        if not all_finite(scores, n):
            slack[i] = np.nan
            continue
        best = forward_by_errors(scores, right, pairs, start, forward, back, new, at)
        for wrong in range(1, n + 1):
            last = best_end(best[wrong], end)
            if best[wrong, last] == -np.inf:
                continue
            follow_back(back, n, wrong, last, right, path)
            loss = wrong * tag_costs[0]
            value = loss * (1.0 + ahead_of(scores, pairs, start, end, right, path[:n]))
            if value > slack[i]:
                slack[i] = value
                found[:] = path[:n]


@kernel
def forward_by_errors(
    scores: Floats, right: Int32s, pairs: Floats, start: Floats, forward: Floats, back: Int32s, new: Floats, at: Floats
) -> Floats:
    """(h, k) the best score of a path that ends in k with h tags wrong; −∞ where there is none. Fills `back`."""
    n, n_states = len(right), scores.shape[1]
    old: Floats = forward[0]
    best: Floats = forward[1]
    best[: n + 1] = -np.inf
    for k in range(n_states):
        best[1 if k != right[0] else 0, k] = start[k] + scores[0, k]
    for t in range(1, n):
        old, best = best, old
        best[: n + 1] = -np.inf
        for wrong in range(t + 1):
            extend(old[wrong], pairs, new, at)
            for k in range(n_states):
                now = wrong + 1 if k != right[t] else wrong
                best[now, k] = new[k] + scores[t, k]
                back[t, now, k] = np.int32(at[k])
    return best


@kernel
def best_end(best: Floats, end: Floats) -> int:
    last = 0
    for k in range(len(end)):
        if best[k] + end[k] > best[last] + end[last]:
            last = k
    return last


@kernel
def follow_back(back: Int32s, n: int, wrong: int, last: int, right: Int32s, path: Int32s) -> None:
    """The path that ends in `last` with so many wrong tags."""
    k = last
    for t in range(n - 1, -1, -1):
        path[t] = k
        if t:
            before = back[t, wrong, k]
            wrong -= 1 if k != right[t] else 0
            k = before
