"""The switches of `benchmarks.ablation`: each turns one mechanism off in this process, before any kernel compiles."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

NEVER = 1 << 40  # larger than any count


def replace(owner: Any, name: str, new: Any) -> None:
    """Replace a function or constant, which must exist: a switch for a renamed one would do nothing."""
    assert hasattr(owner, name), f"{owner} has no {name}"
    setattr(owner, name, new)


class Switch(NamedTuple):
    off: Callable[[], None]
    compiled: bool = False  # changes kernels, which are compiled anew in a cache of their own
    counts: bool = True  # may change passes or updates; others change seconds alone


def strides() -> None:
    """No extrapolation along the last sweeps."""
    from distdual.solver import solver

    replace(solver, "PACE", 0)


def active_sweeps() -> None:
    """Full sweeps alone, none over the groups that moved."""
    from distdual.solver import solver

    def full(ascending: Any, found: Any) -> tuple[float, int]:
        return found.gain, ascending.cache.n_groups + solver.SWEEP_WORK

    replace(solver.Solver, "_sweep_active", full)


def newton_groups() -> None:
    """Single and pairwise steps in large groups, too, without Newton steps."""
    from distdual.solver import active_set

    replace(active_set, "LARGE", NEVER)


def averaged_weights() -> None:
    """Scan at the last w instead of the average over the last sweep."""
    from distdual.solver.solver import NO_MEAN, Solver

    candidate = Solver.candidate

    def last(solver: Solver, *, averaged: bool = False) -> Any:
        solver.mean = NO_MEAN
        return candidate(solver, averaged=averaged)

    replace(Solver, "candidate", last)


def look_skipping() -> None:
    """Compute the cached problem's gap by a pass over the cache each time, however cheap a scan is."""
    from distdual.solver.solver import Solver

    confirmed = Solver._confirmed_gap
    replace(Solver, "_confirmed_gap", lambda solver, claim, **_: confirmed(solver, claim, trusting=False))


def continuation() -> None:
    """Start at C itself, however large it is."""
    from distdual.solver.solver import Solver

    replace(Solver, "ease", lambda *_: None)


def ascent_by_scan() -> None:
    """Ascend after a scan by the same rule as elsewhere, whatever the scan found."""
    from distdual.coordinator import trainer

    replace(trainer, "after_scan", lambda plan, *_: plan)


def repeated_visits() -> None:
    """Call the oracle once for each example that is read from storage."""
    from distdual.coordinator import pass_cost

    replace(pass_cost, "MOST_VISITS", 1)


def prefetch() -> None:
    """No prefetching of rows into the processor's cache."""
    from distdual.solver import sweep

    replace(sweep, "SOON", NEVER)


def lean_shards() -> None:
    """Dense features keep their zeros, however many."""
    from distdual.scan import scan

    replace(scan, "wants_lean", lambda _: False)


def simd() -> None:
    """Plain loops instead of four numbers at once."""
    from distdual.kernels import rows
    from distdual.kernels.jit import gather_kernel

    @gather_kernel
    def dot(indices: Any, values: Any, begin: int, end: int, w: Any) -> float:
        at, x, total = indices[begin:end], values[begin:end], 0.0
        for j in range(len(x)):
            total += x[j] * w[np.uint64(at[j])]
        return total

    @gather_kernel
    def dot_between(indices: Any, values: Any, begin: int, end: int, plus: Any, minus: Any) -> float:
        at, x, total = indices[begin:end], values[begin:end], 0.0
        for j in range(len(x)):
            place = np.uint64(at[j])
            total += x[j] * (plus[place] - minus[place])
        return total

    replace(rows, "csr_dot", dot)
    replace(rows, "csr_dot_between", dot_between)
    from distdual.problems import multiclass

    replace(multiclass, "MANY", 0)


SWITCHES = {
    "strides": Switch(strides),
    "active sweeps": Switch(active_sweeps),
    "Newton in large groups": Switch(newton_groups, compiled=True),
    "averaged weights": Switch(averaged_weights),
    "look skipping": Switch(look_skipping),
    "continuation": Switch(continuation),
    "ascent by scan": Switch(ascent_by_scan),
    "repeated visits": Switch(repeated_visits),
    "prefetch": Switch(prefetch, compiled=True, counts=False),
    "lean shards": Switch(lean_shards, counts=False),
    "simd": Switch(simd, compiled=True, counts=False),
}
