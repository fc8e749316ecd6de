"""Arithmetic on four numbers at once, for loops that LLVM does not vectorise by itself.

LLVM makes SIMD of long loops over neighbouring numbers. A loop over the ten classes of a feature is too short for that,
and Numba leaves out the pass that would make SIMD of straight code. So four numbers are one value here, an array in
Python and a register in kernels.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.errors import TypingError
from numba.extending import intrinsic, models, register_model
from numpy.typing import NDArray

from distdual.kernels.jit import BOUNDSCHECK, inlined_kernel, specialise

FOUR = 4

Four = NDArray[np.float64]


def no_four() -> Four:
    """Four zeros."""
    return np.zeros(FOUR)


def add_four(total: Four, scale: float, table: NDArray[np.float64], place: int) -> Four:
    """total + scale · table.flat[place … place + 3] of a C array; kernels do not check that these exist."""
    return total + scale * table.reshape(-1)[place : place + FOUR]


def add_gathered(total: Four, values: NDArray[Any], indices: NDArray[Any], j: int, w: NDArray[np.float64]) -> Four:
    """total + values_k · w[indices_k] for k = j … j + 3; kernels check neither j nor indices.

    The weights are loaded one by one: SIMD gathers take several times as long on many processors.
    """
    found: Four = values[j : j + FOUR].astype(np.float64) * w[indices[j : j + FOUR]]
    return total + found


def sum_of_four(four: Four) -> float:
    return float((four[0] + four[1]) + (four[2] + four[3]))


def one_of_four(four: Four, k: int) -> float:
    return float(four[k])


def put_four(four: Four, table: NDArray[np.float64], place: int) -> None:
    """table.flat[place … place + 3] ← four; kernels do not check that these exist either."""
    table.reshape(-1)[place : place + FOUR] = four


def write_four(four: Any, out: Any, first: Any) -> None:  # as `_written` has it, which Numba compares
    """Add them to out[first] … out[first + 3], as far as there are so many."""
    if first + FOUR <= len(out):
        put_four(add_four(four, 1.0, out, first), out, first)
        return
    for k in range(len(out) - first):
        out[first + k] += one_of_four(four, k)


# What kernels see.

VECTOR = ir.VectorType(ir.DoubleType(), FOUR)
PLACES = ir.VectorType(ir.IntType(32), FOUR)
ONE_ROUNDING = ("contract",)  # of a product that is added, as in all kernels; said everywhere, else Numba adds more


def check_runs(*arrays: Any) -> None:
    """Refuse arrays whose numbers are not one after the other, when a kernel is compiled for them."""
    strided = [array for array in arrays if array.layout != "C"]
    if strided:
        raise TypingError(f"four numbers at once must be neighbours, which those of {strided} may not be")


class FourType(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Four")


@register_model(FourType)
class FourModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR)  # type: ignore[no-untyped-call]


def _no_four_code(context: Any) -> Any:  # noqa: ARG001 - as Numba calls it, here and below
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return ir.Constant(VECTOR, [0.0] * FOUR)

    return FourType()(), generate


def _add_four_code(context: Any, total: Any, scale: Any, table: Any, place: Any) -> Any:  # noqa: ARG001
    check_runs(table)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        before, factor, array, first = arguments
        data = context.make_array(signature.args[2])(context, builder, array).data
        values = builder.load(builder.bitcast(builder.gep(data, [first]), VECTOR.as_pointer()), align=8)
        lone = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), factor, ir.IntType(32)(0))
        factors = builder.shuffle_vector(lone, lone, ir.Constant(PLACES, [0] * FOUR))
        return builder.fadd(before, builder.fmul(factors, values, flags=ONE_ROUNDING), flags=ONE_ROUNDING)

    return total(total, types.float64, table, place), generate


def _add_gathered_code(context: Any, total: Any, values: Any, indices: Any, j: Any, w: Any) -> Any:  # noqa: ARG001
    check_runs(values, indices, w)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        before, at = arguments[0], arguments[3]
        x, places, weights = (
            context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (1, 2, 4)
        )
        dtype = signature.args[1].dtype
        run = ir.VectorType(x.type.pointee, FOUR).as_pointer()
        some = builder.load(builder.bitcast(builder.gep(x, [at]), run), align=dtype.bitwidth // 8)
        if isinstance(dtype, types.Integer):
            factors = builder.sitofp(some, VECTOR)
        else:
            factors = some if some.type == VECTOR else builder.fpext(some, VECTOR)
        found = ir.Constant(VECTOR, ir.Undefined)
        for k in range(FOUR):
            place = builder.load(builder.gep(places, [builder.add(at, at.type(k))]))
            place = place if place.type.width == 64 else builder.zext(place, ir.IntType(64))
            found = builder.insert_element(found, builder.load(builder.gep(weights, [place])), ir.IntType(32)(k))
        return builder.fadd(before, builder.fmul(factors, found, flags=ONE_ROUNDING), flags=ONE_ROUNDING)

    return total(total, values, indices, j, w), generate


def _sum_of_four_code(context: Any, four: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        a, b, c, d = (builder.extract_element(arguments[0], ir.IntType(32)(k)) for k in range(FOUR))
        left, right = builder.fadd(a, b, flags=ONE_ROUNDING), builder.fadd(c, d, flags=ONE_ROUNDING)
        return builder.fadd(left, right, flags=ONE_ROUNDING)

    return types.float64(four), generate


def _one_of_four_code(context: Any, four: Any, k: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.extract_element(*arguments)

    return types.float64(four, k), generate


def _put_four_code(context: Any, four: Any, table: Any, place: Any) -> Any:  # noqa: ARG001
    check_runs(table)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, array, first = arguments
        data = context.make_array(signature.args[1])(context, builder, array).data
        builder.store(values, builder.bitcast(builder.gep(data, [first]), VECTOR.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(four, table, place), generate


_no_four: Any = intrinsic(_no_four_code)
_add_four: Any = intrinsic(_add_four_code)
_add_gathered: Any = intrinsic(_add_gathered_code)
_sum_of_four: Any = intrinsic(_sum_of_four_code)
_one_of_four: Any = intrinsic(_one_of_four_code)
_put_four: Any = intrinsic(_put_four_code)


@inlined_kernel
def check_four(size: int, place: int) -> None:
    """An IndexError unless places … place + 3 are among `size`; for kernels compiled with bounds checks."""
    if place < 0 or place + FOUR > size:
        raise IndexError("index is out of bounds")


@specialise(no_four)
def _none() -> Any:
    def none() -> Any:
        return _no_four()

    return none


@specialise(add_four)
def _added(total: Any, scale: Any, table: Any, place: Any) -> Any:  # noqa: ARG001
    def added(total: Any, scale: Any, table: Any, place: Any) -> Any:
        return _add_four(total, scale, table, place)

    def checked(total: Any, scale: Any, table: Any, place: Any) -> Any:
        check_four(table.size, place)
        return _add_four(total, scale, table, place)

    return checked if BOUNDSCHECK else added


@specialise(add_gathered)
def _with_gathered(total: Any, values: Any, indices: Any, j: Any, w: Any) -> Any:  # noqa: ARG001
    def gathered(total: Any, values: Any, indices: Any, j: Any, w: Any) -> Any:
        return _add_gathered(total, values, indices, j, w)

    def checked(total: Any, values: Any, indices: Any, j: Any, w: Any) -> Any:
        check_four(min(len(values), len(indices)), j)
        for k in range(FOUR):
            if not 0 <= indices[j + k] < len(w):
                raise IndexError("index is out of bounds")
        return _add_gathered(total, values, indices, j, w)

    return checked if BOUNDSCHECK else gathered


@specialise(sum_of_four)
def _summed(four: Any) -> Any:  # noqa: ARG001
    def summed(four: Any) -> Any:
        return _sum_of_four(four)

    return summed


@specialise(one_of_four)
def _taken(four: Any, k: Any) -> Any:  # noqa: ARG001
    def taken(four: Any, k: Any) -> Any:
        return _one_of_four(four, k)

    return taken


@specialise(put_four)
def _put(four: Any, table: Any, place: Any) -> Any:  # noqa: ARG001
    def put(four: Any, table: Any, place: Any) -> None:
        _put_four(four, table, place)

    def checked(four: Any, table: Any, place: Any) -> None:
        check_four(table.size, place)
        _put_four(four, table, place)

    return checked if BOUNDSCHECK else put


@specialise(write_four)
def _written(four: Any, out: Any, first: Any) -> Any:  # noqa: ARG001
    return write_four
