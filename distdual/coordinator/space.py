"""How does a step in α move w? One answer for each kind of prior (see distdual/prior.py), in Python and in kernels.

Rows are stored as the data has them and oracles see the true w; only the step knows the prior.
"""

from typing import Any, NamedTuple

import numpy as np

from distdual.kernel import specialise
from distdual.prior import Prior
from distdual.rows import Floats, Rows, add, inner, is_dense, norm2


class Plain(NamedTuple):
    """R(w) = 1/2 ||w||²: w is v."""

    unit: float = 1.0  # Numba has no empty tuples of arrays to tell types by


class Diagonal(NamedTuple):
    """A precision per weight, and weights that may not be negative."""

    mean: Floats
    variance: Floats  # 1 / precision
    floor: Floats  # 0 where w_k ≥ 0 is asked for, else −∞


class Full(NamedTuple):
    """Λ⁻¹ x_k of every cached constraint, so that a step costs no more than a dense row."""

    images: Floats  # (n, n_weights)


Space = Plain | Diagonal | Full


def space_of(prior: Prior, images: Floats) -> Space:
    """The kernels' view of a prior; `images` are Λ⁻¹ x of the cached rows, which only a full Λ needs."""
    if prior.plain:
        return Plain()
    return Full(images) if prior.full else Diagonal(prior.centre, prior.variance, prior.floor)


def move(space: Space, rows: Rows, k: int, step: float, w: Floats, v: Floats) -> None:
    """α_k += step as seen by w and v. `v` is kept by Diagonal alone; the others rebuild it before a bound."""
    if isinstance(space, Plain):
        add(rows, k, step, w)
    elif isinstance(space, Full):
        w += step * space.images[k]
    else:
        add(rows, k, step, v)
        w[:] = np.maximum(space.mean + space.variance * v, space.floor)


def curvature(space: Space, rows: Rows, k: int) -> float:
    """x_kᵀ Λ⁻¹ x_k: no step along α_k meets more curvature, and exactly this much where no weight is clipped."""
    if isinstance(space, Plain):
        return norm2(rows, k)
    row = np.zeros(len(space.mean) if isinstance(space, Diagonal) else space.images.shape[1])
    add(rows, k, 1.0, row)
    return float(row @ (space.variance * row if isinstance(space, Diagonal) else space.images[k]))


def cross(space: Space, rows: Rows, k: int, j: int) -> float:
    """x_kᵀ Λ⁻¹ x_j."""
    if isinstance(space, Plain):
        return inner(rows, k, j)
    left = np.zeros(len(space.mean) if isinstance(space, Diagonal) else space.images.shape[1])
    right = left.copy()
    add(rows, k, 1.0, left)
    add(rows, j, 1.0, right)
    return float(left @ (space.variance * right if isinstance(space, Diagonal) else space.images[j]))


def _class(space: Any) -> Any:
    return getattr(space, "instance_class", None)


@specialise(move)
def _move(space: Any, rows: Any, k: Any, step: Any, w: Any, v: Any) -> Any:  # noqa: ARG001
    def plain(space: Any, rows: Any, k: Any, step: Any, w: Any, v: Any) -> Any:  # noqa: ARG001
        add(rows, k, step, w)

    def diagonal_dense(space: Any, rows: Any, k: Any, step: Any, w: Any, v: Any) -> Any:
        for j in range(rows.values.shape[1]):
            v[j] += step * rows.values[k, j]
            w[j] = max(space.mean[j] + space.variance[j] * v[j], space.floor[j])

    def diagonal_csr(space: Any, rows: Any, k: Any, step: Any, w: Any, v: Any) -> Any:
        for i in range(rows.indptr[k], rows.indptr[k + 1]):
            j = rows.indices[i]
            v[j] += step * rows.values[i]
            w[j] = max(space.mean[j] + space.variance[j] * v[j], space.floor[j])

    def full(space: Any, rows: Any, k: Any, step: Any, w: Any, v: Any) -> Any:  # noqa: ARG001
        for j in range(space.images.shape[1]):
            w[j] += step * space.images[k, j]

    if _class(space) is Plain:
        return plain
    if _class(space) is Full:
        return full
    return diagonal_dense if is_dense(rows) else diagonal_csr


@specialise(cross)
def _cross(space: Any, rows: Any, k: Any, j: Any) -> Any:  # noqa: ARG001
    def plain(space: Any, rows: Any, k: Any, j: Any) -> Any:  # noqa: ARG001
        return inner(rows, k, j)

    def diagonal_dense(space: Any, rows: Any, k: Any, j: Any) -> Any:
        total = 0.0
        for c in range(rows.values.shape[1]):
            total += space.variance[c] * np.float64(rows.values[k, c]) * rows.values[j, c]
        return total

    def diagonal_csr(space: Any, rows: Any, k: Any, j: Any) -> Any:
        total = 0.0
        a, b = rows.indptr[k], rows.indptr[j]
        while a < rows.indptr[k + 1] and b < rows.indptr[j + 1]:
            if rows.indices[a] == rows.indices[b]:
                total += space.variance[rows.indices[a]] * np.float64(rows.values[a]) * rows.values[b]
                a += 1
                b += 1
            elif rows.indices[a] < rows.indices[b]:
                a += 1
            else:
                b += 1
        return total

    def full_dense(space: Any, rows: Any, k: Any, j: Any) -> Any:
        total = 0.0
        for c in range(rows.values.shape[1]):
            total += rows.values[k, c] * space.images[j, c]
        return total

    def full_csr(space: Any, rows: Any, k: Any, j: Any) -> Any:
        total = 0.0
        for i in range(rows.indptr[k], rows.indptr[k + 1]):
            total += rows.values[i] * space.images[j, rows.indices[i]]
        return total

    if _class(space) is Plain:
        return plain
    if _class(space) is Full:
        return full_dense if is_dense(rows) else full_csr
    return diagonal_dense if is_dense(rows) else diagonal_csr


@specialise(curvature)
def _curvature(space: Any, rows: Any, k: Any) -> Any:  # noqa: ARG001
    def plain(space: Any, rows: Any, k: Any) -> Any:  # noqa: ARG001
        return norm2(rows, k)

    def other(space: Any, rows: Any, k: Any) -> Any:
        return cross(space, rows, k, k)

    return plain if _class(space) is Plain else other
