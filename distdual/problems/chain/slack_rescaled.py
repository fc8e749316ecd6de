"""Viterbi with slack rescaling: the best path with exactly h wrong tags, for each h.

Chains with weights for pairs of neighbouring tags alone, and one cost for all tags; names are those of `viterbi`.
"""

import numpy as np

from distdual.kernels.jit import inner_kernel, kernel
from distdual.kernels.rows import Features, Floats, Int32s, Ints
from distdual.problems.chain.viterbi import ChainWeights, PathRoom, ahead_of, all_finite, extend, fill_scores, room_for


@kernel
def find_slack_rescaled(
    x: Features, y: Int32s, tokens: Ints, w: ChainWeights, tag_costs: Floats, slack: Floats, worst: Int32s
) -> None:
    """z = argmax loss(y, z) (1 + score(z) − score(y)); m = 1.

    The loss is h · tag_costs[0]: all tags cost the same. Time and memory grow with the square of the length.
    """
    room = room_for(tokens, w)
    longest, n_states = room.scores.shape
    forward = np.empty((2, longest + 1, n_states))
    back = np.empty((longest, longest + 1, n_states), np.int32)
    path = np.empty(longest, np.int32)
    for i in range(len(tokens) - 1):
        first, n = tokens[i], tokens[i + 1] - tokens[i]
        fill_scores(x, first, n, w.emission, room.scores)
        right, found = y[first : first + n], worst[first : first + n]
        slack[i] = 0.0
        found[:] = right
        if not all_finite(room.scores, n):
            slack[i] = np.nan
            continue
        best = forward_by_errors(w, room, right, forward, back)
        for wrong in range(1, n + 1):
            last = best_end(best[wrong], w.end)
            if best[wrong, last] + w.end[last] == -np.inf:
                continue
            follow_back(back, n, wrong, last, right, path)
            loss = wrong * tag_costs[0]
            value = loss * (1.0 + ahead_of(w, room, right, path[:n]))
            if value > slack[i]:
                slack[i] = value
                found[:] = path[:n]


@inner_kernel
def forward_by_errors(w: ChainWeights, room: PathRoom, right: Int32s, forward: Floats, back: Int32s) -> Floats:
    """(h, k) the best score of a path that ends in k with h tags wrong; −∞ where there is none. Fills `back`."""
    scores, new, at = room.scores, room.reach[0], room.reach[1]
    n, n_states = len(right), scores.shape[1]
    old: Floats = forward[0]
    best: Floats = forward[1]
    best[: n + 1] = -np.inf
    for k in range(n_states):
        best[1 if k != right[0] else 0, k] = w.start[k] + scores[0, k]
    for t in range(1, n):
        old, best = best, old
        best[: n + 1] = -np.inf
        for wrong in range(t + 1):
            extend(old[wrong], room.pairs[0], room.low[0], room.high[0], new, at)
            for k in range(n_states):
                now = wrong + 1 if k != right[t] else wrong
                best[now, k] = new[k] + scores[t, k]
                back[t, now, k] = np.int32(at[k])
    return best


@inner_kernel
def best_end(best: Floats, end: Floats) -> int:
    last = 0
    for k in range(len(end)):
        if best[k] + end[k] > best[last] + end[last]:
            last = k
    return last


@inner_kernel
def follow_back(back: Int32s, n: int, wrong: int, last: int, right: Int32s, path: Int32s) -> None:
    """The path that ends in `last` with so many wrong tags."""
    k = last
    for t in range(n - 1, -1, -1):
        path[t] = k
        if t:
            before = back[t, wrong, k]
            wrong -= 1 if k != right[t] else 0
            k = before
