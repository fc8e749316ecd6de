"""The one place where Numba is configured."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit
from numba.extending import overload

F = TypeVar("F", bound=Callable[..., Any])

FLAGS: dict[str, Any] = {
    "error_model": "numpy",  # no hidden branch on every division
    "fastmath": {"reassoc", "contract"},  # lets LLVM use SIMD in dot products; never "nnan": NaN must show
}


def kernel(fn: F) -> F:
    """Compile `fn`. Kernels take arrays and scalars, never objects, and never print or raise."""
    jit = njit(
        cache=True,  # processes on one machine compile once
        nogil=True,  # a worker's threads scan different shards at once
        **FLAGS,
    )
    return cast(F, jit(fn))


def gather_kernel(fn: F) -> F:
    """Compile a loop over w[indices]. Without "reassoc": SIMD gathers take several times as long as single loads."""
    jit = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
    return cast(F, jit(fn))


def specialise(generic: Callable[..., Any]) -> Callable[[F], F]:
    """Register what `generic` compiles to inside kernels: a function of Numba types that returns the code."""
    return cast(Callable[[F], F], overload(generic, jit_options=cast(Any, FLAGS)))
