"""The figures of Usunier, Bordes and Bottou, "Guarantees for approximate incremental SVMs", with a linear kernel.

    python -m benchmarks.streams DATA [--out docs/streams.svg]

MNIST, 8 against the rest; DATA is the folder with the data sets. Left, with a linear kernel and rows scaled to norms of
at most 1, the normalised gap (P_t(w̄_t) − D_t) / (C t) against the number of examples seen, for K = 1, 10 and 100 visits
an example and C = 1. In the middle and right, their experiment with an RBF kernel, γ = 0.005 on pixels / 255 and
C = 1000: the test error of Algorithm 1 against the number of examples taken in, and against that of kernel values, for
K = 10 and 100, where examples come at random, and where of a random pool of 50 unseen ones the nearest to the boundary
comes (the others stay unseen). Kernel values are those of pools with the support, computed anew for each pool, and
those of examples taken in with the ones that ever were support; of the latter each pair counts once.
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

C, POOL, EXAMPLES = 1.0, 50, 20_000
RBF_C, GAMMA = 1000.0, 0.005  # of the other figures
SELECTED, AT_RANDOM = 2_000, 8_000  # examples taken in there
TEST_ROWS = 2_000
LOOKS = 24  # at the test error


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


class Pixels(NamedTuple):
    """Rows with norms as they are, and labels ±1."""

    x: Any
    y: Any

    def kernel(self, rows: Any, others: Any) -> Any:
        x, z = self.x[rows], self.x[others]
        apart = (x**2).sum(axis=1)[:, None] + (z**2).sum(axis=1) - 2.0 * x @ z.T
        return np.exp(-GAMMA * np.maximum(apart, 0.0))


class Curve(NamedTuple):
    """The test error of w̄ after so many examples."""

    taken: list[int]
    error: list[float]
    of_pools: list[int]  # kernel values
    of_updates: list[int]

    @property
    def values(self) -> list[int]:
        return [sum(both) for both in zip(self.of_pools, self.of_updates, strict=True)]


def errors(data: Pixels, n_test: int, end: int, *, select: bool, K: int, seed: int = 0) -> Curve:
    """Algorithm 1 over `end` examples; the last `n_test` rows are for tests."""
    draw, n = np.random.default_rng(seed), len(data.x) - n_test
    unseen, test = draw.permutation(n), np.arange(n, n + n_test)
    kernel, taken = np.zeros((end, end), dtype=np.float32), np.empty(end, dtype=np.int64)
    beta, h, ever = np.zeros(end), np.zeros(end), np.zeros(end, dtype=bool)  # β = y α,  h = y − K β
    looks, of_pools, of_updates, found = set(np.geomspace(20, end, LOOKS).astype(int)), 0, 0, Curve([], [], [], [])
    for t in range(end):
        pool, used = draw.integers(t, n, size=POOL if select else 1), np.flatnonzero(beta[:t])
        if select and len(used):
            scores = data.kernel(unseen[pool], taken[used]) @ beta[used]
            of_pools += scores.size * len(used)
            of_updates -= len(used)  # known for the one that comes
            pool = pool[[np.abs(scores).argmin()]]
        unseen[[t, pool[0]]] = unseen[[pool[0], t]]
        taken[t] = unseen[t]
        kernel[t, : t + 1] = kernel[: t + 1, t] = data.kernel(taken[[t]], taken[: t + 1])[0]
        of_updates += int(ever[:t].sum())
        y = data.y[taken[: t + 1]]
        h[t] = y[t] - kernel[t, :t] @ beta[:t]
        average = np.zeros(t + 1)
        for i in draw.integers(0, t + 1, size=K).tolist():
            new = y[i] * min(max(y[i] * (beta[i] + h[i]), 0.0), RBF_C)
            if new != beta[i]:
                h[: t + 1] -= (new - beta[i]) * kernel[i, : t + 1]
                beta[i] = new
                of_updates += 0 if ever[i] else t - int(ever[:t].sum())
                ever[i] = True
            average += beta[: t + 1] / K
        if t + 1 in looks:
            at = np.flatnonzero(average)
            wrong = data.y[test] * (data.kernel(test, taken[at]) @ average[at]) <= 0
            for column, value in zip(found, (t + 1, float(wrong.mean()), of_pools, of_updates), strict=True):
                column.append(value)
    return found


def pixels(folder: Path, n_test: int) -> Pixels:
    x, digits, x_test, digits_test = arrays(folder)
    both = np.concatenate([x, x_test[:n_test]]).astype(np.float32)
    both /= np.float32(both.max())
    return Pixels(both, np.where(np.concatenate([digits, digits_test[:n_test]]) == 8, 1.0, -1.0))


def draw_gaps(stream: Stream, axes: Any) -> None:
    for K in (1, 10, 100):
        at, found = gaps(stream, K)
        axes.loglog(at, found, label=f"K = {K}")
        print(f"K = {K}: normalised gap {found[-1]:.3g} after {at[-1]:,} examples", flush=True)
    axes.set(xlabel="examples", ylabel="normalised gap", title="(P(w̄) − D) / (C t), C = 1")


def draw_errors(data: Pixels, n_test: int, by_taken: Any, by_values: Any) -> None:
    for K, colour in ((10, "tab:blue"), (100, "tab:orange")):
        for select, name in ((False, "at random"), (True, f"the nearest of {POOL}")):
            found = errors(data, n_test, SELECTED if select else AT_RANDOM, select=select, K=K)
            style = {"color": colour, "linestyle": "-" if select else "--", "label": f"{name}, K = {K}"}
            for axes, at in ((by_taken, found.taken), (by_values, found.values)):
                axes.semilogx(at, 100 * np.array(found.error), **style)
            for taken, error, of_pools, of_updates in zip(*found, strict=True):
                told = f"{name}, K = {K}: {taken:,} examples, test error {100 * error:.2f} %, "
                print(f"{told}kernel values {of_updates:,}, and of pools {of_pools:,}", flush=True)
    by_taken.set(xlabel="examples taken in", ylabel="test error, %", title=f"selection, RBF, C = {RBF_C:g}")
    by_values.set(xlabel="kernel values", ylabel="test error, %", title="the same, by kernel values")


def draw(stream: Stream, data: Pixels, n_test: int, out: Path) -> None:
    figure = new_figure(14, 4)
    panels = figure.subplots(1, 3)
    draw_gaps(stream, panels[0])
    draw_errors(data, n_test, *panels[1:])
    for axes in panels:
        axes.legend()
        axes.grid(visible=True, alpha=0.3)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "streams"}):  # text stays text, and no random ids
        figure.savefig(out, metadata={"Date": None})


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, metavar="DATA")
    arguments.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "streams.svg")
    told = arguments.parse_args()
    draw(mnist(told.folder), pixels(told.folder, TEST_ROWS), TEST_ROWS, told.out)


if __name__ == "__main__":
    main()
