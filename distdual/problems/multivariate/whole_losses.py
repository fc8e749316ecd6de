"""The output of all examples that w violates most, from the scores of positives and of negatives.

Both come in falling order, the negatives perhaps without those with the lowest scores; n counts all examples. All
losses Δ are between 0 and 1.

    ŷ = argmax Δ(ŷ) − 1/n Σ_{i wrong} y_i s_i

With a positives and b negatives that ŷ calls positive, the best ŷ takes those with the highest scores, so only (a, b)
is left to find (Joachims, "A support vector method for multivariate performance measures", Algorithm 2). The loss
"auc" is no loss of outputs but of pairs, which workers count, see cluster/whole_oracle.py.
"""

from typing import NamedTuple

import numpy as np

from distdual.kernels.jit import bare_kernel
from distdual.kernels.rows import Floats


class Chosen(NamedTuple):
    """The output that calls the first a positives and the first b negatives positive."""

    a: int
    b: int
    margin: float  # Δ
    reach: int  # negatives that were looked at; the result is that of all negatives if there are more than these


def worst_f1(positive: Floats, negative: Floats, n: int) -> Chosen:
    """Δ = 1 − F1, where F1 = 2a / (n₊ + a + b)."""
    a, b, reach = best_f1_cut(positive, negative, float(n))
    return Chosen(a, b, 1.0 - 2.0 * a / (len(positive) + a + b), reach)


def worst_at(positive: Floats, negative: Floats, n: int, k: int, *, share_of_k: bool) -> Chosen:
    """Exactly k examples are called positive: Δ = 1 − a/k, the precision, or 1 − a/n₊, the recall."""
    n_positive = len(positive)
    a = np.arange(max(0, k - (n - n_positive)), min(k, n_positive) + 1)
    left_out = np.concatenate([[0.0], np.cumsum(positive[::-1])])[n_positive - a]
    taken = np.concatenate([[0.0], np.cumsum(negative[:k])])[k - a]
    loss = 1.0 - a / (k if share_of_k else n_positive)
    best = int(np.argmax(loss + (taken - left_out) / n))
    return Chosen(int(a[best]), k - int(a[best]), float(loss[best]), 0)


@bare_kernel
def best_f1_cut(positive: Floats, negative: Floats, n: float) -> tuple[int, int, int]:
    """The (a, b) with the largest 1 − 2a/(n₊ + a + b) − 1/n Σ_{i > a} s_i + 1/n Σ_{j ≤ b} s_j.

    For each a the sum is concave in b, and what one more negative adds grows with a: b never falls as a rises, so one
    walk over both lists finds the largest. Also returns the largest b of any a.
    """
    n_positive, n_negative = len(positive), len(negative)
    left_out = taken = 0.0
    for i in range(n_positive):
        left_out += positive[i]
    best, best_a, best_b, b = -np.inf, 0, 0, 0
    for a in range(n_positive + 1):
        while b < n_negative:
            size = float(n_positive + a + b)
            if not 2.0 * a / (size * (size + 1.0)) + negative[b] / n > 0.0:
                break
            taken += negative[b]
            b += 1
        found = 1.0 - 2.0 * a / (n_positive + a + b) + (taken - left_out) / n
        if found > best:
            best, best_a, best_b = found, a, b
        if a < n_positive:
            left_out -= positive[a]
    return best_a, best_b, b
