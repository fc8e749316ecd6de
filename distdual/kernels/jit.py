"""The Numba decorators: the only place where Numba is configured."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, overload

from distdual.kernels.compile_cache import use_private_cache
from distdual.kernels.kernel_sources import digest_of

njit: Any = numba.njit  # its stubs do not know _nrt
unliteral: Any = types.unliteral  # without types

F = TypeVar("F", bound=Callable[..., Any])

FLAGS: dict[str, Any] = {
    "error_model": "numpy",  # no hidden branch on every division
    "fastmath": {"reassoc", "contract"},  # lets LLVM use SIMD in dot products; never "nnan": NaN must show
    "no_cfunc_wrapper": True,  # nobody calls kernels from C, and each wrapper takes 20 ms to compile
}
CALLED_FROM_PYTHON: dict[str, Any] = {
    "nogil": True,  # a worker's threads scan different shards at once
}
COUNTING = {"_nrt": True}  # set everywhere: else a kernel inherits it from the first caller that compiles it
BARE = {"_nrt": False}  # counting the references to arrays costs more than a narrow row: 110 ns a visit became 30
INNER = {"no_cpython_wrapper": True}

BOUNDSCHECK = os.environ.get("DISTDUAL_BOUNDSCHECK") == "1"  # for debugging: an index out of range is an IndexError
CHECKED: dict[str, Any] = {"boundscheck": True} if BOUNDSCHECK else {}

SCALARS = (None, bool, int, float)


PACKAGE = Path(__file__).parents[1]

if BOUNDSCHECK:  # a cache of its own, or each kind of process would discard what the other kind has compiled
    above: Any = numba.config
    above.CACHE_DIR = str(Path(above.CACHE_DIR or Path.home() / ".cache" / "numba") / "distdual-boundscheck")


def compiled(fn: F, **options: Any) -> F:
    """Numba compiles a kernel anew when its own file has changed; ours are also made of what that imports.

    As part of the version, which Numba looks at first: the rest may speak of types that are no more.
    """
    made = cached(fn, **CALLED_FROM_PYTHON, **CHECKED, **options)
    file = getattr(getattr(made, "_cache", None), "_cache_file", None)  # none without a cache or without Numba's JIT
    if file is not None:
        file._version = (file._version, sources_of(fn.__module__))
    if hasattr(made, "get_call_template"):
        made.get_call_template = once_for_whole_numbers(made.get_call_template)
    if options.get("no_cpython_wrapper") and hasattr(made, "add_overload"):
        stay_python(made)
    return cast(F, made)


def stay_python(made: Any) -> None:
    """Let a call from Python run the function itself instead of jumping to code that is not there."""

    def keep(found: Any) -> None:  # but do not offer it to Python
        made.overloads[tuple(found.signature.args)] = found

    def what_to_call(*_: Any, **__: Any) -> Any:
        return made.py_func

    made.add_overload, made._compile_for_args = keep, what_to_call


@functools.cache
def sources_of(module: str) -> str:
    return digest_of(PACKAGE, module)


def once_for_whole_numbers(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """Let kernels that call a kernel share what it compiles to, be it with 0, 1, an int32 or an int64.

    Numba would compile it for each of these; a kernel of trees took seconds longer.
    """

    def resolved(arguments: Any, named: Any) -> Any:
        return resolve(tuple(map(plain, arguments)), {name: plain(type_) for name, type_ in named.items()})

    return resolved


def plain(type_: Any) -> Any:
    """The type of a scalar without its value, if that is known, and int64 for narrower whole numbers."""
    type_ = unliteral(type_)
    return types.int64 if type_ in (types.int8, types.int16, types.int32) else type_


def cached(fn: F, **options: Any) -> Any:
    """Compile `fn` once for all processes of this machine, if there is a folder to keep it in."""
    try:
        return njit(cache=True, **options)(fn)
    except RuntimeError:  # Numba has found no folder that it may write to
        return njit(cache=use_private_cache(), **options)(fn)


def kernel(fn: F) -> F:
    """Compile `fn`, which may allocate. Kernels take arrays and scalars, never objects, and never print or raise."""
    return compiled(fn, **FLAGS, **COUNTING)


def bare_kernel(fn: F, **options: Any) -> F:
    """Compile `fn` without counting references to arrays: for loops that neither allocate nor return an array.

    Nor may such a kernel call one that returns an array, which would never be freed.
    """
    returned = fn.__annotations__["return"]
    assert all(part in SCALARS for part in getattr(returned, "__args__", (returned,))), f"{fn} may return an array"
    return compiled(fn, **FLAGS, **BARE, **options)


def inner_kernel(fn: F) -> F:
    """A kernel that only kernels call: Numba spends tenths of a second on the code that Python would call it by."""
    return compiled(fn, **FLAGS, **COUNTING, **INNER)


def inner_bare_kernel(fn: F) -> F:
    """A bare kernel that only kernels call."""
    return bare_kernel(fn, **INNER)


def inlined_kernel(fn: F) -> F:
    """An inner kernel that becomes part of its callers: to hand over a dozen arrays costs more than a narrow row."""
    return bare_kernel(fn, forceinline=True, **INNER)


def gather_kernel(fn: F) -> F:
    """A bare loop over places that others name. Without "reassoc": SIMD gathers take several times as long as loads."""
    return compiled(fn, **BARE, error_model="numpy", fastmath={"contract"})


def specialise(generic: Callable[..., Any]) -> Callable[[F], F]:
    """Register what `generic` compiles to inside kernels: a function of Numba types that returns bare code."""
    return cast(Callable[[F], F], overload(generic, jit_options=cast(Any, {**FLAGS, **BARE, **CHECKED})))


def body_of(kernel: Any) -> Any:
    """The function behind a kernel, for `specialise` to return: compiled where it is called, not once more alone."""
    fn = kernel.py_func
    found = FunctionType(fn.__code__, fn.__globals__, fn.__name__)
    found.__annotations__ = dict.fromkeys(fn.__annotations__, Any)  # Numba wants those of the specialising function
    return found


def fetch(values: Any, place: Any) -> None:
    """Ask for values.flat[place], a C array's, to be brought near: it is needed soon. Changes nothing."""


def _fetch_code(context: Any, values: Any, place: Any) -> Any:  # noqa: ARG001 - as Numba calls it
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        instruction = cast(Any, cgutils).get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(instruction, [address, number(0), number(3), number(1)])  # to read, into all caches, data
        return context.get_dummy_value()

    return types.void(values, place), generate


_fetch: Any = intrinsic(_fetch_code)


@specialise(fetch)
def _fetched(values: Any, place: Any) -> Any:  # noqa: ARG001
    def one(values: Any, place: Any) -> None:
        _fetch(values, place)

    return one
