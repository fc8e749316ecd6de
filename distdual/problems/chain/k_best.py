"""The K best paths of each sequence, by Lawler's partition.

All paths but those found so far fall into sets: those that agree with a found path up to token t, and differ there from
every found path that agrees so far. The next best path is the best of one of these sets, each found by `best_path`.
"""

import numpy as np

from distdual.kernels.jit import inner_kernel, kernel
from distdual.kernels.rows import Features, Floats, Int32s, Ints
from distdual.problems.chain.viterbi import ChainWeights, PathRoom, best_path, longest_of, look_at, room_for


@kernel
def find_k_best(x: Features, tokens: Ints, w: ChainWeights, paths: Int32s, values: Floats) -> None:
    """Fills `paths`, (n_tokens, K), −1 where a sequence has fewer, and their scores `values`, (n_sequences, K)."""
    most = values.shape[1]
    room = room_for(tokens, w)
    plain, found = np.empty_like(room.scores), np.empty((most, longest_of(tokens)), np.int32)
    candidates = np.empty((most, longest_of(tokens)))
    for i in range(len(tokens) - 1):
        first, n = tokens[i], tokens[i + 1] - tokens[i]
        look_at(x, first, n, w, room)
        plain[:n] = room.scores[:n]
        k_best_of_one(n, w, room, plain, found, candidates, values[i])
        for k in range(most):
            for t in range(n):
                paths[first + t, k] = found[k, t] if values[i, k] > -np.inf else -1


@inner_kernel
def k_best_of_one(
    n: int, w: ChainWeights, room: PathRoom, plain: Floats, found: Int32s, candidates: Floats, values: Floats
) -> None:
    """candidates[k, t]: the best score of the paths that agree with path k before token t, and differ there."""
    values[:], candidates[:] = -np.inf, -np.inf
    values[0] = best_path(n, w, room, found[0])
    changed = 0  # the first token of the newest path whose set is new
    for k in range(1, len(values)):
        for t in range(changed, n):
            candidates[k - 1, t] = best_within(k - 1, t, k, n, w, room, plain, found)
        parent, t = 0, 0
        for p in range(k):
            for s in range(n):
                if candidates[p, s] > candidates[parent, t]:
                    parent, t = p, s
        if candidates[parent, t] == -np.inf:
            return
        values[k] = best_within(parent, t, k, n, w, room, plain, found)
        if k + 1 < len(values):
            candidates[parent, t] = best_within(parent, t, k + 1, n, w, room, plain, found)
        changed = t + 1


@inner_kernel
def best_within(
    parent: int, t: int, n_found: int, n: int, w: ChainWeights, room: PathRoom, plain: Floats, found: Int32s
) -> float:
    """The best path that agrees with `parent` before t and there with no found path that agrees so far.

    Goes into found[n_found]; changes the scores in `room`.
    """
    room.scores[:n] = plain[:n]
    for s in range(t):
        room.scores[s] = -np.inf
        room.scores[s, found[parent, s]] = plain[s, found[parent, s]]
    for k in range(n_found):
        if (found[k, :t] == found[parent, :t]).all():
            room.scores[t, found[k, t]] = -np.inf
    return best_path(n, w, room, found[n_found])
