"""Ascent on the dual of a kernel machine with several classes, all coefficients of an example at a time.

    max over B     D(b) = Σ_i ⟨t_i, b_i⟩ − 1/2 Σ_c ⟨b_c, K b_c⟩          B:  Σ_c b_ic = 0,   b_ic ≤ C_i [c = y_i]

The gradient h = t − K b is kept up to date. The next example is the one whose gradients of classes that may grow and of
classes that may shrink differ most (as in Keerthi et al., 2008); its step is the exact maximum.
"""

from typing import Any

import numpy as np

from distdual.kernels.jit import bare_kernel, inner_bare_kernel
from distdual.kernels.rows import Floats, Int32s


@inner_bare_kernel
def worst_example(b: Floats, h: Floats, label: Int32s, most: Floats, diagonal: Floats) -> int:
    """The example that a step of its own gains most, to second order; −1 if none gains."""
    best, at = 0.0, -1
    for i in range(len(b)):
        least, largest = np.inf, -np.inf
        for c in range(b.shape[1]):
            least = min(least, h[i, c])
            if b[i, c] < (most[i] if c == label[i] else 0.0):
                largest = max(largest, h[i, c])
        apart = largest - least
        if apart > 0.0 and apart * apart > best * diagonal[i]:
            best, at = apart * apart / diagonal[i], i
    return at


@bare_kernel
def project(aim: Floats, y: int, most: float) -> None:
    """Move `aim` to the nearest point of B: min(aim_c − τ, C [c = y]) with the τ whose sum is 0.

    τ falls from the mean; what is at its limit stays there, so that each round finds more of it or ends.
    """
    tau = aim.sum() / len(aim)
    while True:
        total, free = 0.0, 0
        for c in range(len(aim)):
            limit = most if c == y else 0.0
            inside = aim[c] - tau <= limit
            total += aim[c] if inside else limit
            free += int(inside)
        if not free or total / free >= tau:
            break
        tau = total / free
    for c in range(len(aim)):
        aim[c] = min(aim[c] - tau, most if c == y else 0.0)


@bare_kernel
def ascend_classes(
    kernel: Any, b: Floats, h: Floats, label: Int32s, most: Floats, diagonal: Floats, step: Floats, steps: int
) -> int:
    """Take up to `steps` steps and return how many; changes b, h and `step`, which has room for one; diagonal_i > 0."""
    n, n_classes = b.shape
    for done in range(steps):
        i = worst_example(b, h, label, most, diagonal)
        if i < 0:
            return done
        for c in range(n_classes):
            step[c] = b[i, c] + h[i, c] / diagonal[i]
        project(step, label[i], most[i])
        for c in range(n_classes):
            end = step[c]
            step[c] = end - b[i, c]
            b[i, c] = end
        row = kernel[i]
        for k in range(n):
            for c in range(n_classes):
                h[k, c] -= row[k] * step[c]
    return steps
