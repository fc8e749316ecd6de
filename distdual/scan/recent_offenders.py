"""Violated constraints among a shard's recent offenders, found without inference (Joachims et al., section 4).

The shard's latest members files serve as the cache, so that every worker finds the same without state of its own. The
losses found this way bound P(w) from below only, and are never used for an upper bound.
"""

import numpy as np

from distdual.data.shard import Shard
from distdual.kernels.jit import kernel
from distdual.kernels.rows import Floats, Rows, dot
from distdual.problems.base import Keys, Offenders, Problem
from distdual.problems.constraint_hash import are_new, identities
from distdual.scan.group_members_file import Notes
from distdual.scan.slack_groups import CHUNK, Members, build_stored

MOST_BYTES = 64 << 20  # of the files that a scan reads, newest first


def recent_offenders(problem: Problem, shard: Shard, w: Floats, recent: tuple[Notes, ...]) -> Offenders:
    """Return the worst recent offender of each example, with slack 0 where none is violated."""
    known = gather(recent)
    slack = np.empty(len(known.example))
    for begin in range(0, len(slack), CHUNK):
        built = build_stored(problem, shard, known, begin, min(begin + CHUNK, len(slack)))
        find_violations(built.rows.contiguous(), built.margin, w, slack[begin : begin + CHUNK])
    order = np.lexsort((-slack, known.example))  # the worst of each example first; of equals, the newest
    first = order[np.append(True, np.diff(known.example[order]) > 0)[: len(order)]]
    worst = np.zeros(shard.n_examples)
    worst[known.example[first]] = np.maximum(0.0, slack[first])
    lengths = np.zeros(shard.n_examples, dtype=np.int64)
    chosen = known.keys.take(first)
    lengths[known.example[first]] = np.diff(chosen.indptr)
    return Offenders(worst, Keys(np.concatenate([[0], np.cumsum(lengths)]), chosen.values))


def gather(recent: tuple[Notes, ...]) -> Members:
    """Return each offender in the files once, newest first, from as many files as fit in MOST_BYTES."""
    parts: list[Members] = []
    n_bytes = 0
    for notes in recent:
        part = notes.read()
        n_bytes += part.example.nbytes + part.keys.values.nbytes
        if parts and n_bytes > MOST_BYTES:
            break
        parts.append(part)
    example = np.concatenate([part.example for part in parts])
    lengths = np.concatenate([np.diff(part.keys.indptr) for part in parts])
    keys = Keys(np.concatenate([[0], np.cumsum(lengths)]), np.concatenate([part.keys.values for part in parts]))
    once = np.flatnonzero(are_new(identities(example, keys), np.empty(0, dtype=np.uint64)))
    return Members(np.array([0, len(once)]), example[once], keys.take(once))


@kernel
def find_violations(rows: Rows, margin: Floats, w: Floats, out: Floats) -> None:
    """out_k = l_k − ⟨w, x_k⟩."""
    for k in range(len(out)):
        out[k] = margin[k] - dot(rows, k, w)
