"""Updates of w by steps in α, for each kind of prior (see regularizer.py), in Python and in kernels.

Rows are stored as in the data and inference uses the true w; only the step depends on the prior.
"""

from typing import Any, NamedTuple

import numpy as np

from distdual.kernels.jit import bare_kernel, gather_kernel, specialise
from distdual.kernels.rows import (
    DenseRows,
    Features,
    Floats,
    Ints,
    Rows,
    Singles,
    add,
    dot,
    inner,
    is_dense,
    is_outer,
    norm2,
)
from distdual.solver.regularizer import Prior


class Plain(NamedTuple):
    """R(w) = 1/2 ||w||²: w is v. Inner products of constraints that share a slack may be kept for the ascent."""

    gram_indptr: Ints = np.empty(0, dtype=np.int64)  # (n + 1,), or nothing where none are kept
    gram: Floats = np.empty(0)  # ⟨x_k, x_j⟩ for each k and the older j of its group, these in order of age


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


def is_plain(space: Any) -> bool:
    return _class(space) is Plain


def _class(space: Any) -> Any:
    return getattr(space, "instance_class", None)


@bare_kernel
def shift_dense(space: Diagonal, values: Singles, offset: int, step: float, w: Floats, v: Floats) -> None:
    """v += step · values from `offset` on, and w follows."""
    for j in range(len(values)):
        c = offset + j
        v[c] += step * values[j]
        w[c] = max(space.mean[c] + space.variance[c] * v[c], space.floor[c])


@gather_kernel
def shift_csr(
    space: Diagonal, indices: Any, values: Singles, begin: int, end: int, offset: int, step: float, w: Floats, v: Floats
) -> None:
    """The same for a sparse row."""
    at, x = indices[begin:end], values[begin:end]
    for j in range(len(x)):
        c = np.uint64(offset + at[j])
        v[c] += step * x[j]
        w[c] = max(space.mean[c] + space.variance[c] * v[c], space.floor[c])


def shift(space: Diagonal, x: Features, k: int, offset: int, step: float, w: Floats, v: Floats) -> None:
    """v += step · x_k from `offset` on, and w follows; for kernels, which see `_shift`."""
    if isinstance(x, DenseRows):
        shift_dense(space, x.values[k], offset, step, w, v)
    else:
        shift_csr(space, x.indices, x.values, x.indptr[k], x.indptr[k + 1], offset, step, w, v)


@specialise(shift)
def _shift(space: Any, x: Any, k: Any, offset: Any, step: Any, w: Any, v: Any) -> Any:  # noqa: ARG001
    def dense(space: Any, x: Any, k: Any, offset: Any, step: Any, w: Any, v: Any) -> Any:
        shift_dense(space, x.values[k], offset, step, w, v)

    def csr(space: Any, x: Any, k: Any, offset: Any, step: Any, w: Any, v: Any) -> Any:
        shift_csr(space, x.indices, x.values, x.indptr[k], x.indptr[k + 1], offset, step, w, v)

    return dense if is_dense(x) else csr


@specialise(move)
def _move(space: Any, rows: Any, k: Any, step: Any, w: Any, v: Any) -> Any:  # noqa: ARG001
    def plain(space: Any, rows: Any, k: Any, step: Any, w: Any, v: Any) -> Any:  # noqa: ARG001
        add(rows, k, step, w)

    def full(space: Any, rows: Any, k: Any, step: Any, w: Any, v: Any) -> Any:  # noqa: ARG001
        for j in range(space.images.shape[1]):
            w[j] += step * space.images[k, j]

    def diagonal(space: Any, rows: Any, k: Any, step: Any, w: Any, v: Any) -> Any:
        shift(space, rows, k, 0, step, w, v)

    def diagonal_outer(space: Any, rows: Any, k: Any, step: Any, w: Any, v: Any) -> Any:
        scaled = step * rows.scale[k]
        shift(space, rows.x, rows.at[k], rows.plus[k] * rows.width, scaled, w, v)
        shift(space, rows.x, rows.at[k], rows.minus[k] * rows.width, -scaled, w, v)

    if _class(space) is Plain:
        return plain
    if _class(space) is Full:
        return full
    return diagonal_outer if is_outer(rows) else diagonal


@specialise(cross)
def _cross(space: Any, rows: Any, k: Any, j: Any) -> Any:  # noqa: ARG001
    def plain(space: Any, rows: Any, k: Any, j: Any) -> Any:  # noqa: ARG001
        return inner(rows, k, j)

    def full(space: Any, rows: Any, k: Any, j: Any) -> Any:
        return dot(rows, k, space.images[j])

    def diagonal(space: Any, rows: Any, k: Any, j: Any) -> Any:
        return weighted(rows, k, j, space.variance)

    def diagonal_outer(space: Any, rows: Any, k: Any, j: Any) -> Any:
        x, a, b = rows.x, rows.at[k], rows.at[j]
        plus, minus, width = rows.plus[k], rows.minus[k], rows.width
        signs = 1.0 * (plus == rows.plus[j]) - 1.0 * (plus == rows.minus[j])
        total = signs * weighted(x, a, b, space.variance[plus * width : (plus + 1) * width]) if signs != 0.0 else 0.0
        signs = 1.0 * (minus == rows.minus[j]) - 1.0 * (minus == rows.plus[j])
        if signs != 0.0:
            total += signs * weighted(x, a, b, space.variance[minus * width : (minus + 1) * width])
        return rows.scale[k] * rows.scale[j] * total

    if _class(space) is Plain:
        return plain
    if _class(space) is Full:
        return full
    return diagonal_outer if is_outer(rows) else diagonal


def weighted(x: Features, k: int, j: int, weight: Floats) -> float:
    """Σ_c weight_c x_kc x_jc."""
    left, right = np.zeros(len(weight)), np.zeros(len(weight))
    add(x, k, 1.0, left)
    add(x, j, 1.0, right)
    return float(left @ (weight * right))


@specialise(weighted)
def _weighted(x: Any, k: Any, j: Any, weight: Any) -> Any:  # noqa: ARG001
    def dense(x: Any, k: Any, j: Any, weight: Any) -> Any:
        total = 0.0
        for c in range(x.values.shape[1]):
            total += weight[c] * np.float64(x.values[k, c]) * x.values[j, c]
        return total

    def csr(x: Any, k: Any, j: Any, weight: Any) -> Any:
        total = 0.0
        a, b = x.indptr[k], x.indptr[j]
        while a < x.indptr[k + 1] and b < x.indptr[j + 1]:
            if x.indices[a] == x.indices[b]:
                total += weight[x.indices[a]] * np.float64(x.values[a]) * x.values[b]
                a += 1
                b += 1
            elif x.indices[a] < x.indices[b]:
                a += 1
            else:
                b += 1
        return total

    return dense if is_dense(x) else csr


@specialise(curvature)
def _curvature(space: Any, rows: Any, k: Any) -> Any:  # noqa: ARG001
    def plain(space: Any, rows: Any, k: Any) -> Any:  # noqa: ARG001
        return norm2(rows, k)

    def other(space: Any, rows: Any, k: Any) -> Any:
        return cross(space, rows, k, k)

    return plain if _class(space) is Plain else other
