"""A run that is packed after any round, written, read and restored ends as if nothing had happened, bit for bit."""

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdual.cluster.threads import InlineExecutor
from distdual.config import SolverConfig
from distdual.coordinator.checkpoint import ARRAYS, checkpoint_objects
from distdual.coordinator.outcome import Outcome
from distdual.coordinator.snapshot import State, restore, snapshot_of, with_infinity, without_infinity
from distdual.coordinator.trainer import Trainer
from distdual.data.in_memory import MemoryDataset
from distdual.data.shard import Shard
from distdual.data.storage.location import Location
from distdual.data.storage.npy_io import unzip
from distdual.errors import InputError
from distdual.problems.binary import Binary
from distdual.problems.multiclass import Multiclass
from distdual.solver.regularizer import Prior
from tests.build import examples, rows_of

D = 5
SOLVERS: dict[str, dict[str, Any]] = {
    "single": {},
    "gap": {"schedule": "gap", "prune": "aggressive"},
    "reprocess": {"schedule": "reprocess:2", "average": True},
    "ratio": {"schedule": "ratio:2"},
    "mine": {"schedule": "mine"},
    "blocks": {"slack": "block:4", "offender_cache": 2},
    "all": {"slack": "all"},
    "short of memory": {"cache_bytes": 9000},
    "streamed": {"stream": "yes", "C": 40.0},
    "large C": {"C": 300.0},
}
PRIORS = {
    "none": Prior,
    "diagonal": lambda n: Prior(n, np.full(n, 0.1), np.linspace(1, 2, n), np.array([0, 2])),
    "full": lambda n: Prior(n, None, np.eye(n) + 0.1, np.array([1])),
}


def data(sparse: bool, classes: int, n: int = 120) -> MemoryDataset:
    """Three shards."""
    made, rng = examples(7, n, D, flip=0.3), np.random.default_rng(0)
    y = made.y if classes == 2 else rng.integers(classes, size=n).astype(np.int32)
    cuts = [0, n // 3, n // 2, n]
    shards = [
        Shard(s, begin, rows_of(made.x[begin:end], sparse=sparse), y[begin:end], None, None)
        for s, (begin, end) in enumerate(itertools.pairwise(cuts))
    ]
    names = tuple(str(k) for k in range(classes))
    return MemoryDataset(tuple(shards), names, D)


def stored(state: State, ledger: bytes) -> tuple[State, bytes]:
    """As it comes back from a checkpoint's files."""
    files = dict(checkpoint_objects(state, ledger))
    arrays = [unzip(files[f"{name}.npz"]) for name in ARRAYS]
    return State(*arrays, json.loads(files["state.json"])), files.get("ledger.bin", b"")


def same(one: Outcome, other: Outcome) -> None:
    assert one.w.tobytes() == other.w.tobytes()
    assert one.certificate == other.certificate
    assert one.solver.cache.alpha.view.tobytes() == other.solver.cache.alpha.view.tobytes()
    steps = [[(line.version, line.lower, line.upper, line.estimate) for line in out.history] for out in (one, other)]
    assert steps[0] == steps[1]


@given(
    solver=st.sampled_from(sorted(SOLVERS)),
    prior=st.sampled_from(sorted(PRIORS)),
    classes=st.sampled_from([2, 3]),
    sparse=st.booleans(),
    seed=st.integers(0, 3),
    stop=st.integers(0, 30),
)
@settings(deadline=None, max_examples=20)
def test_a_restored_run_ends_as_if_nothing_had_happened(
    solver: str, prior: str, classes: int, sparse: bool, seed: int, stop: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if classes > 2 and prior == "full":
        return  # w_k ≥ 0 is not possible there
    dataset = data(sparse, classes)
    kind = Binary if classes == 2 else Multiclass
    problem = kind(n_features=D, classes=dataset.classes, bias=1.0)
    config = SolverConfig(**{"C": 0.5, "gap": 1e-5, "max_passes": 8, "seed": seed, **SOLVERS[solver]})
    folder = tmp_path_factory.mktemp("members")
    executor = InlineExecutor(dataset, problem)
    kept: list[tuple[State, bytes]] = []

    def trainer(name: str, between: Any) -> Trainer:
        notes = Location(str(folder / name))
        made = PRIORS[prior](problem.n_weights)
        return Trainer(problem, dataset, executor, config, lambda _: None, made, notes, between=between)

    def keep(run: Trainer) -> None:
        kept.append(stored(snapshot_of(run), run.partition.ledger.since(0)))

    try:
        whole = trainer("whole", keep).run()
        if not kept:
            return
        state, ledger = kept[min(stop, len(kept) - 1)]
        again = trainer("whole", lambda _: None)
        restore(again, state, [ledger] if ledger else [])
        same(whole, again.run())
    finally:
        executor.close()


def kept_while_training(dataset: MemoryDataset, bias: float | str = 0.0) -> tuple[list[State], Trainer]:
    """The states of a run between its rounds, and another run of the same data that has not begun."""
    problem = Binary(n_features=D, classes=dataset.classes, bias=bias)
    kept: list[State] = []

    def trainer(between: Any) -> Trainer:
        return Trainer(problem, dataset, executor, SolverConfig(), lambda _: None, between=between)

    executor = InlineExecutor(dataset, problem)
    trainer(lambda run: kept.append(stored(snapshot_of(run), b"")[0])).run()
    executor.close()
    return kept, trainer(lambda _: None)


def test_with_more_data_lower_is_that_of_alpha_even_if_a_pass_was_under_way() -> None:
    kept, again = kept_while_training(data(False, 2, n=3000))  # a first pass of several rounds
    assert kept[0].values["underway"]
    restore(again, kept[0], [], more_data=True)
    solver = again.solver
    alpha, margin = solver.cache.alpha.view, solver.cache.margin.view
    assert solver.lower == pytest.approx(alpha @ margin - 0.5 * solver.w @ solver.w, rel=1e-9)


def test_with_more_data_an_upper_bound_is_void_for_a_free_bias_too() -> None:
    kept, again = kept_while_training(data(False, 2, n=3000), "free")
    assert kept[-1].values["solver"]["ceiling"] < np.inf
    restore(again, kept[-1], [], more_data=True)
    assert again.solver.ceiling == np.inf


def test_weights_that_are_not_those_of_alpha_are_refused() -> None:
    kept, again = kept_while_training(data(False, 2))
    kept[-1].weights["w"][1] += 1e-3
    with pytest.raises(InputError, match=r"w is not Σ α x: one weight is off by 0\.001"):
        restore(again, kept[-1], [])


values = st.recursive(
    st.floats(allow_nan=False, min_value=-1e300) | st.integers() | st.booleans() | st.none() | st.just("text"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(values)
def test_infinity_comes_back(value: Any) -> None:
    assert with_infinity(without_infinity(value)) == value
