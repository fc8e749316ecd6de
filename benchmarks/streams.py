"""The figures of Usunier, Bordes and Bottou, "Guarantees for approximate incremental SVMs", with a linear kernel.

    python -m benchmarks.streams DATA [--out docs/streams.svg]

MNIST, 8 against the rest, rows scaled to norms of at most 1; DATA is the folder with the data sets. Left, the
normalised gap (P_t(w̄_t) − D_t) / (C t) against the number of examples seen, for K = 1, 10 and 100 visits an example
and C = 1. Right, the test error against inner products, with K = 10 and C = 100, where all examples are taken in, and
where of 50 neighbours the one nearest to the boundary is, as with `solver.select = "margin:50"`.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np

from benchmarks.datasets.mnist import arrays
from distdual.kernels.rows import DenseRows
from distdual.problems.base import Constraints, Keys
from distdual.report.plots import new_figure
from distdual.solver.ascent_plan import Ascent
from distdual.solver.regularizer import Prior
from distdual.solver.solver import Solver

C, LARGE_C, POOL, EXAMPLES = 1.0, 100.0, 50, 20_000


class Stream(NamedTuple):
    """Rows y x and the test rows in the same form: negative scores are errors."""

    rows: Any
    test: Any


def mnist(folder: Path) -> Stream:
    x, digits, x_test, digits_test = arrays(folder)
    scale = np.float32(np.linalg.norm(x, axis=1).max())
    signs = [np.where(y == 8, 1.0, -1.0).astype(np.float32)[:, None] for y in (digits, digits_test)]
    return Stream(signs[0] * x / scale, signs[1] * x_test / scale)


def take_in(solver: Solver, rows: Any, K: int) -> None:
    """Insert the rows, each followed by K visits to random ones."""
    n, first = len(rows), len(solver.cache)
    example = np.arange(first, first + n)
    made = Constraints(example, np.ones(n), np.ones(n), DenseRows(np.ascontiguousarray(rows)), Keys.none(n))
    solver.reprocess(solver.insert(made), Ascent(0.0, 0, revisits=K, chunk=1))


def gaps(stream: Stream, K: int) -> tuple[Any, Any]:
    """Examples seen, and the normalised gap of w̄ there."""
    at = np.unique(np.geomspace(10, EXAMPLES, 30).astype(int))
    solver, found, seen = Solver(C, 0, Prior(stream.rows.shape[1])), [], 0
    for t in at:
        take_in(solver, stream.rows[seen:t], K)
        seen, w = t, solver.candidate(averaged=True)
        value = 0.5 * w @ w + C * np.maximum(0.0, 1.0 - stream.rows[:t] @ w).sum()
        found.append((value - solver.dual_objective()) / (C * t))
    return at, np.array(found)


def errors(stream: Stream, *, select: bool, K: int = 10) -> tuple[Any, Any]:
    """Inner products, and the test error of w̄ there."""
    solver, spent, found = Solver(LARGE_C, 0, Prior(stream.rows.shape[1])), [], []
    pool, products, begin = POOL if select else 1, 0, 0
    due = 100.0
    while begin + pool <= len(stream.rows) and products + solver.updates < 3e5:
        rows = stream.rows[begin : begin + pool]
        products += pool * select
        take_in(solver, rows[[np.abs(rows @ solver.w).argmin()]], K)
        begin += pool
        if products + solver.updates >= due:
            due *= 1.3
            spent.append(products + solver.updates)
            found.append(float((stream.test @ solver.candidate(averaged=True) <= 0).mean()))
    return np.array(spent), np.array(found)


def draw(stream: Stream, out: Path) -> None:
    figure = new_figure(11, 4)
    left, right = figure.subplots(1, 2)
    for K in (1, 10, 100):
        at, found = gaps(stream, K)
        left.loglog(at, found, label=f"K = {K}")
        print(f"K = {K}: normalised gap {found[-1]:.3g} after {at[-1]:,} examples")
    left.set(xlabel="examples", ylabel="normalised gap", title="(P(w̄) − D) / (C t), C = 1")
    for select, name in ((False, "every example"), (True, f"the nearest of {POOL}")):
        spent, error = errors(stream, select=select)
        right.semilogx(spent, 100 * error, label=name)
        print(f"{name}: test error {100 * error[-1]:.2f} % after {spent[-1]:,} inner products")
    right.set(xlabel="inner products", ylabel="test error, %", title="selection, K = 10, C = 100")
    for axes in (left, right):
        axes.legend()
        axes.grid(visible=True, alpha=0.3)
    mpl.rcParams["svg.fonttype"] = "none"  # text stays text
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, metavar="DATA")
    arguments.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "streams.svg")
    told = arguments.parse_args()
    draw(mnist(told.folder), told.out)


if __name__ == "__main__":
    main()
