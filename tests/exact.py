"""Tiny problems in exact rational arithmetic: P(w), and the optimum by enumeration of active sets."""

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

Row = list[Fraction]


def exact(values: Any) -> Row:
    """The numbers that floats stand for."""
    return [Fraction(float(value)) for value in values]


def dot(a: Row, b: Row) -> Fraction:
    return sum((p * q for p, q in zip(a, b, strict=True)), Fraction(0))


def primal(rows: list[list[Row]], margins: list[Row], capacity: Row, w: Any) -> Fraction:
    """1/2 ||w||² + Σ_i C_i max(0, max_j l_ij − ⟨w, x_ij⟩), for the constraints of each example."""
    at = exact(w)
    loss = Fraction(0)
    for own, own_margins, c in zip(rows, margins, capacity, strict=True):
        loss += c * max([Fraction(0), *(m - dot(at, x) for x, m in zip(own, own_margins, strict=True))])
    return dot(at, at) / 2 + loss


def optimum(rows: list[list[Row]], margins: list[Row], capacity: Row) -> Fraction:
    """max D(α) where at most one constraint of each example has α > 0 at the optimum.

    Each example has α = 0, α = C_i or a free α of one of its constraints; the free ones solve a linear system. An
    optimum whose free rows are independent always exists, so dependent ones are left out.
    """
    best = Fraction(0)
    states = [[(None, False), *itertools.product(range(len(own)), (False, True))] for own in rows]
    for chosen in itertools.product(*states):
        for value in values_of(chosen, rows, margins, capacity):
            best = max(best, value)
    return best


def values_of(chosen: Any, rows: Any, margins: Any, capacity: Row) -> Iterator[Fraction]:
    free = [i for i, (j, bound) in enumerate(chosen) if j is not None and not bound]
    fixed = [i for i, (j, bound) in enumerate(chosen) if j is not None and bound]
    x = {i: rows[i][chosen[i][0]] for i in (*free, *fixed)}
    level = {i: margins[i][chosen[i][0]] for i in (*free, *fixed)}
    right = [level[i] - sum((capacity[k] * dot(x[i], x[k]) for k in fixed), Fraction(0)) for i in free]
    found = solve([[dot(x[i], x[k]) for k in free] for i in free], right)
    if found is None or any(not 0 <= a <= capacity[i] for i, a in zip(free, found, strict=True)):
        return
    alpha = dict(zip(free, found, strict=True)) | {i: capacity[i] for i in fixed}
    width = len(rows[0][0])
    v = [sum((alpha[i] * x[i][d] for i in alpha), Fraction(0)) for d in range(width)]
    yield sum((alpha[i] * level[i] for i in alpha), Fraction(0)) - dot(v, v) / 2


def solve(matrix: list[Row], right: Row) -> Row | None:
    """The solution by elimination; None if the matrix is singular."""
    n = len(right)
    table = [[*row, b] for row, b in zip(matrix, right, strict=True)]
    for k in range(n):
        pivot = next((r for r in range(k, n) if table[r][k]), None)
        if pivot is None:
            return None
        table[k], table[pivot] = table[pivot], table[k]
        for r in range(n):
            if r != k and table[r][k]:
                share = table[r][k] / table[k][k]
                table[r] = [a - share * b for a, b in zip(table[r], table[k], strict=True)]
    return [table[k][n] / table[k][k] for k in range(n)]


def binary_constraints(x: Any, y: Any, margin: Any) -> tuple[list[list[Row]], list[Row]]:
    """x_i = y_i features, for y = 0 or 1."""
    signs = np.where(np.asarray(y) == 1, 1, -1)
    rows = [[[int(s) * value for value in exact(row)]] for s, row in zip(signs, x, strict=True)]
    return rows, [exact([m]) for m in margin]


def regression_constraints(x: Any, y: Any, epsilon: float) -> tuple[list[list[Row]], list[Row]]:
    rows = [[exact(row), [-value for value in exact(row)]] for row in x]
    margins = [[t - Fraction(epsilon), -t - Fraction(epsilon)] for t in exact(y)]
    return rows, margins
