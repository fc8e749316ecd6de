"""The one place where Numba is configured."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.extending import overload

njit: Any = numba.njit  # its stubs do not know _nrt

F = TypeVar("F", bound=Callable[..., Any])

FLAGS: dict[str, Any] = {
    "error_model": "numpy",  # no hidden branch on every division
    "fastmath": {"reassoc", "contract"},  # lets LLVM use SIMD in dot products; never "nnan": NaN must show
}
CALLED_FROM_PYTHON: dict[str, Any] = {
    "cache": True,  # processes on one machine compile once
    "nogil": True,  # a worker's threads scan different shards at once
}
COUNTING = {"_nrt": True}  # said everywhere: else a kernel takes it from whoever compiles it first
BARE = {"_nrt": False}  # counting the references to arrays costs more than a narrow row: 110 ns a visit became 30

SCALARS = (None, bool, int, float)


def kernel(fn: F) -> F:
    """Compile `fn`, which may allocate. Kernels take arrays and scalars, never objects, and never print or raise."""
    return cast(F, njit(**CALLED_FROM_PYTHON, **FLAGS, **COUNTING)(fn))


def bare_kernel(fn: F) -> F:
    """Compile `fn` without counting references to arrays: for loops that neither allocate nor return an array.

    Nor may such a kernel call one that returns an array, which nobody would free.
    """
    returned = fn.__annotations__["return"]
    assert all(part in SCALARS for part in getattr(returned, "__args__", (returned,))), f"{fn} may return an array"
    return cast(F, njit(**CALLED_FROM_PYTHON, **FLAGS, **BARE)(fn))


def gather_kernel(fn: F) -> F:
    """A bare loop over w[indices]. Without "reassoc": SIMD gathers take several times as long as single loads."""
    return cast(F, njit(**CALLED_FROM_PYTHON, **BARE, error_model="numpy", fastmath={"contract"})(fn))


def specialise(generic: Callable[..., Any]) -> Callable[[F], F]:
    """Register what `generic` compiles to inside kernels: a function of Numba types that returns bare code."""
    return cast(Callable[[F], F], overload(generic, jit_options=cast(Any, {**FLAGS, **BARE})))
