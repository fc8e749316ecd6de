"""The constraint of a loss over all examples that w violates most, from the scores of positives and of negatives.

Both come in falling order. A constraint is a number c for each example: its row is Σ c_i x_i over positives less
Σ c_j x_j over negatives. All losses are between 0 and 1 here.

    auc             c_i = 1/(n₊ n₋) · the number of negatives with s_j > s_i − 1, and the same for negatives
    f1, …           c = 1/n for the examples that ŷ classifies wrongly, where

    ŷ = argmax Δ(ŷ) − 1/n Σ_{i wrong} y_i s_i

With a positives and b negatives that ŷ calls positive, the best ŷ takes those with the highest scores, so only (a, b)
is left to find (Joachims, "A support vector method for multivariate performance measures", Algorithm 2).
"""

from typing import NamedTuple

import numpy as np

from distdual.kernels.jit import bare_kernel
from distdual.kernels.rows import Floats


class Chosen(NamedTuple):
    """A constraint of the whole data set."""

    positive: Floats  # (n₊,) c of each positive, in the order of scores
    negative: Floats  # (n₋,)
    margin: float  # Δ


def swapped_pairs(positive: Floats, negative: Floats) -> Chosen:
    """All pairs of a positive and a negative with s_i − s_j < 1: 1 − AUC, made convex."""
    n_pairs = float(len(positive)) * float(len(negative))
    above = np.searchsorted(-negative, 1.0 - positive)  # negatives with s_j > s_i − 1; rises as s_i falls
    beyond = len(positive) - np.searchsorted(above, np.arange(len(negative)), side="right")
    return Chosen(above / n_pairs, beyond / n_pairs, float(above.sum()) / n_pairs)


def worst_f1(positive: Floats, negative: Floats) -> Chosen:
    """Δ = 1 − F1, where F1 = 2a / (n₊ + a + b)."""
    n = float(len(positive) + len(negative))
    a, b = best_f1_cut(positive, negative, n)
    return classified(positive, negative, a, b, 1.0 - 2.0 * a / (len(positive) + a + b))


def worst_at(positive: Floats, negative: Floats, k: int, *, share_of_k: bool) -> Chosen:
    """Exactly k examples are called positive: Δ = 1 − a/k, the precision, or 1 − a/n₊, the recall."""
    n, n_positive = float(len(positive) + len(negative)), len(positive)
    a = np.arange(max(0, k - len(negative)), min(k, n_positive) + 1)
    left_out = np.concatenate([[0.0], np.cumsum(positive[::-1])])[n_positive - a]
    taken = np.concatenate([[0.0], np.cumsum(negative[:k])])[k - a]
    loss = 1.0 - a / (k if share_of_k else n_positive)
    best = int(np.argmax(loss + (taken - left_out) / n))
    return classified(positive, negative, int(a[best]), k - int(a[best]), float(loss[best]))


def classified(positive: Floats, negative: Floats, a: int, b: int, margin: float) -> Chosen:
    """The constraint of the ŷ that calls the first a positives and the first b negatives positive."""
    n = len(positive) + len(negative)
    wrong = np.where(np.arange(len(positive)) >= a, 1.0 / n, 0.0)
    return Chosen(wrong, np.where(np.arange(len(negative)) < b, 1.0 / n, 0.0), margin)


@bare_kernel
def best_f1_cut(positive: Floats, negative: Floats, n: float) -> tuple[int, int]:
    """The (a, b) with the largest 1 − 2a/(n₊ + a + b) − 1/n Σ_{i > a} s_i + 1/n Σ_{j ≤ b} s_j.

    For each a the sum is concave in b, and what one more negative adds grows with a: b never falls as a rises, so one
    walk over both lists finds the largest.
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
    return best_a, best_b
