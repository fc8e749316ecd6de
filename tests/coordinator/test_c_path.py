"""A path of C goes through one cache, and every point of it is proven by itself."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.cluster.threads import InlineExecutor
from distdual.config import SolverConfig
from distdual.coordinator.c_path import follow
from distdual.coordinator.trainer import Trainer
from distdual.data.dataset import open_dataset
from distdual.problems.binary import Binary
from distdual.scan.cv_folds import Fold
from distdual.solver.ascent_plan import Ascent
from distdual.solver.regularizer import Prior
from distdual.solver.solver import Solver
from tests import naive
from tests.build import CLASSES, Examples, compiling, constraints_of, examples, shard_of, write

D = 5
PATH = [0.001, 0.03, 0.5, 20.0, 0.1]


@compiling
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=6),
    values=st.lists(st.sampled_from([1e-3, 0.1, 0.3, 1.0, 7.0]), min_size=2, max_size=4),
)
def test_alpha_stays_feasible_and_lower_is_its_dual_or_0(seed: int, sizes: list[int], values: list[float]) -> None:
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    cost = rng.uniform(0.1, 2.0, len(sizes))[group]
    made = constraints_of(rng.normal(size=(len(group), D)), rng.uniform(-0.2, 2.0, len(group)), group, cost=cost)
    solver = Solver(values[0], 0, Prior(D))
    solver.insert(made)
    for C in values:
        solver.change_capacity(C)
        alpha = solver.cache.alpha.view.copy()
        program = naive.program_of(made, D, C)
        assert naive.is_feasible(program, alpha)
        assert solver.lower == pytest.approx(max(naive.dual(program, alpha), 0.0), rel=1e-9, abs=1e-12)
        np.testing.assert_allclose(solver.w, naive.weights(program, alpha), atol=1e-12)
        solver.ascend(Ascent(1e-3, 20))


def test_what_is_at_its_bound_stays_there() -> None:
    solver = Solver(0.1, 0, Prior(2))
    solver.insert(constraints_of([[0.1, 0.0], [0.0, 0.1]], [1.0, 1.0], [0, 1], cost=[0.3, 0.7]))
    solver.ascend(Ascent(1e-9, 100))
    for C in (0.3, 0.7, 0.1):
        solver.change_capacity(C)
        np.testing.assert_array_equal(solver.cache.alpha.view, C * np.array([0.3, 0.7]))


def trainer_of(folder: Any, made: Examples, fold: Fold | None = None, **options: Any) -> Trainer:
    dataset = open_dataset(write(folder, made))
    problem = Binary(n_features=D, classes=CLASSES, bias=1.0)
    config = SolverConfig(C=PATH[0], gap=1e-4, **options)
    return Trainer(problem, dataset, InlineExecutor(dataset, problem), config, lambda _: None, fold=fold)


@pytest.mark.parametrize("fold", [None, Fold(1, 3, 0)], ids=["all", "without a fold"])
@pytest.mark.parametrize("slack", ["example", "block:4", "all"])
def test_every_point_encloses_its_own_optimum(tmp_path: Any, fold: Fold | None, slack: str) -> None:
    made = examples(3, 90, D, cost=True)
    trainer = trainer_of(tmp_path / "data", made, fold, slack=slack)
    kept = np.flatnonzero(~fold.holds(np.arange(90))) if fold else np.arange(90)
    part = Examples(made.x[kept], made.y[kept], made.cost[kept])
    for C, outcome in zip(PATH, follow(trainer, PATH, trainer.config), strict=True):
        program = naive.binary_program(trainer.problem, shard_of(part), C)
        best = naive.optimum(program)
        assert outcome.certificate.gap <= 1e-4
        assert outcome.certificate.lower <= best.upper * (1 + 1e-9)
        assert outcome.certificate.upper == pytest.approx(naive.primal(program, outcome.w), rel=1e-9)
        assert outcome.certificate.upper >= best.lower * (1 - 1e-9)
    trainer.executor.close()


def test_limits_are_those_of_a_point(tmp_path: Any) -> None:
    trainer = trainer_of(tmp_path / "data", examples(3, 90, D), max_passes=1, slack="all")
    passes = [outcome.totals.passes for outcome in follow(trainer, PATH, trainer.config)]
    assert passes == [1, 2, 3, 4, 5]
    trainer.executor.close()
