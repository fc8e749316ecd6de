"""Every schedule and every way of pruning: the lower bound never falls and the optimum is the same."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdual.cluster.threads import InlineExecutor
from distdual.config import SolverConfig
from distdual.coordinator.outcome import Outcome
from distdual.coordinator.trainer import Trainer
from distdual.data.in_memory import MemoryDataset, in_memory
from distdual.problems.binary import Binary
from distdual.solver.regularizer import Prior
from tests.build import examples
from tests.naive import binary_program, optimum

SCHEDULES = ["slope", "gap", "ratio:10", "reprocess:2", "mine", "batch"]
PRUNING = ["aggressive", "idle:2", "never"]


def small_data(seed: int, *, n: int = 150, n_shards: int = 5) -> MemoryDataset:
    """Several shards, so that rounds have something to share."""
    made = examples(seed, n, 6, cost=True, margin=True)
    whole = in_memory(made.x, made.y, made.cost, made.margin).shards[0]
    cuts = np.linspace(0, n, n_shards + 1).astype(int)
    pieces = [whole.piece(int(a), int(b)) for a, b in itertools.pairwise(cuts)]
    return MemoryDataset(tuple(replace(p, number=k) for k, p in enumerate(pieces)), ("0", "1"), 6)


def run(data: MemoryDataset, *, prior: Prior | None = None, **options) -> Outcome:
    problem = Binary(n_features=6, classes=("0", "1"), bias=1.0)
    executor = InlineExecutor(data, problem)
    config = SolverConfig(**{"C": 0.3, "gap": 1e-4, "max_passes": 500, **options})
    try:
        return Trainer(problem, data, executor, config, lambda _: None, prior).run()
    finally:
        executor.close()


def true_optimum(data: MemoryDataset, C: float = 0.3) -> float:
    problem = Binary(n_features=6, classes=("0", "1"), bias=1.0)
    programs = [binary_program(problem, shard, C) for shard in data.shards]
    rows, margin, capacity = (
        np.concatenate([getattr(p, name) for p in programs]) for name in ("rows", "margin", "capacity")
    )
    return optimum(programs[0]._replace(rows=rows, margin=margin, capacity=capacity, group=np.arange(len(rows)))).upper


@pytest.mark.parametrize("prune", PRUNING)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_reaches_the_same_optimum_and_lower_never_falls(schedule, prune):
    data = small_data(3)
    best = true_optimum(data)
    outcome = run(data, schedule=schedule, prune=prune)
    lowers = [line.lower for line in outcome.history]
    assert outcome.certificate.gap <= 1e-4
    assert outcome.certificate.lower <= best * (1 + 1e-9)
    assert outcome.certificate.upper >= best * (1 - 1e-9)
    assert all(b >= a - 1e-12 * abs(a) for a, b in itertools.pairwise(lowers))


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    schedule=st.sampled_from([*SCHEDULES, "one-pass"]),
    prune=st.sampled_from(PRUNING),
    C=st.sampled_from([1e-3, 0.1, 3.0]),
)
def test_lower_never_falls_and_bounds_hold_for_any_run(seed, schedule, prune, C):
    data = small_data(seed, n=40, n_shards=3)
    best = true_optimum(data, C)
    outcome = run(data, schedule=schedule, prune=prune, C=C, gap=1e-3, max_passes=6)
    lowers = [line.lower for line in outcome.history]
    assert all(b >= a - 1e-12 * abs(a) for a, b in itertools.pairwise(lowers))
    assert outcome.certificate.lower <= best * (1 + 1e-7)
    assert outcome.certificate.upper >= best * (1 - 1e-7)


def test_the_one_pass_schedule_passes_once_and_says_so():
    outcome = run(small_data(1), schedule="one-pass", gap=1e-9)
    assert outcome.totals.passes == 1
    assert outcome.stop.reason == "the one pass is done"
    assert np.isfinite(outcome.certificate.upper)


def test_the_average_over_process_steps_can_be_the_model():
    options = {"schedule": "reprocess:2", "max_passes": 1, "gap": 1e-9}
    averaged, last = (run(small_data(1), average=average, **options) for average in (True, False))
    assert not np.array_equal(averaged.w, last.w)
    assert averaged.certificate.upper >= averaged.certificate.lower


def test_aggressive_pruning_keeps_only_support_constraints():
    outcome = run(small_data(2), schedule="batch", prune="aggressive")
    assert outcome.totals.pruned > 0
    assert (outcome.solver.cache.alpha.view > 0).all()


def test_an_interrupted_run_certifies_what_it_has():
    data = small_data(4)
    problem = Binary(n_features=6, classes=("0", "1"), bias=1.0)
    executor = InlineExecutor(data, problem)
    seen = []
    trainer = Trainer(
        problem, data, executor, SolverConfig(C=0.3, gap=1e-9), seen.append, interrupted=lambda: len(seen) >= 2
    )
    outcome = trainer.run()
    executor.close()
    assert outcome.stop.reason == "interrupted"
    assert outcome.certificate.gap > 1e-9
    assert outcome.certificate.lower <= true_optimum(data) <= outcome.certificate.upper


@pytest.mark.parametrize("kind", ["non-negative", "diagonal", "full, non-negative"])
def test_a_run_with_a_prior_is_certified(kind):
    rng = np.random.default_rng(0)
    precision = {"non-negative": None, "diagonal": rng.uniform(0.5, 2, 7), "full, non-negative": None}[kind]
    if "full" in kind:
        root = rng.normal(size=(7, 7))
        precision = root @ root.T + np.eye(7)
    signs = np.arange(3) if "non-negative" in kind else None
    prior = Prior(7, rng.normal(size=7), precision, signs)
    outcome = run(small_data(5), prior=prior)
    assert outcome.certificate.gap <= 1e-4
    assert (outcome.w >= prior.floor).all()
