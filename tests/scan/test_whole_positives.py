"""A process that has read a shard for its positives does not read it for them again."""

import numpy as np
import pytest

from distdual.cluster.threads import InlineExecutor
from distdual.config import SolverConfig
from distdual.coordinator.whole_trainer import WholeTrainer
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location
from distdual.problems.multivariate.problem import Multivariate
from distdual.scan.cv_folds import Fold
from distdual.scan.scan import DatasetRef
from distdual.scan.shard_reader import load_shard
from distdual.scan.whole_data import Participants
from distdual.scan.whole_pairs import score_positives, sum_positives
from distdual.scan.whole_positives import KeptPositives, positives_of

PROBLEM = Multivariate(n_features=3, classes=("-1", "1"))
WEIGHTS = np.eye(2, 3)


@pytest.fixture
def stored(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)), np.where(np.arange(60) % 4 == 0, 1, -1)
    prepare_arrays(x.astype(np.float32), y, tmp_path / "data", "multivariate", shard_bytes=200)
    return open_dataset(Location(str(tmp_path / "data")))


def scored(stored, wanted):
    return score_positives(DatasetRef.of(stored), PROBLEM, WEIGHTS, 1, wanted)


def test_the_second_phase_reads_nothing_and_finds_the_same(stored):
    wanted = Participants(run="reads once")
    first, again = scored(stored, wanted), scored(stored, wanted)
    assert first.cost.bytes_read > 0
    assert again.cost.bytes_read == 0
    np.testing.assert_array_equal(again.scores, first.scores)
    assert (again.n, again.magnitude, again.intact) == (first.n, first.magnitude, True)
    weights = np.ones((1, first.scores.shape[1]))
    kept, read = (
        sum_positives(DatasetRef.of(stored), PROBLEM, WEIGHTS, 1, weights, each) for each in (wanted, Participants())
    )
    assert kept.cost.bytes_read == 0 < read.cost.bytes_read
    np.testing.assert_array_equal(kept.rows, read.rows)


@pytest.mark.parametrize(
    "other",
    [Participants(), Participants(run="another"), Participants(Fold(0, 3, 0), run="one")],
    ids=["no run", "another run", "another fold"],
)
def test_only_the_same_examples_of_the_same_run_are_found(stored, other):
    scored(stored, Participants(run="one"))
    assert scored(stored, other).cost.bytes_read > 0


def test_those_that_were_not_asked_for_the_longest_make_room(stored):
    found = positives_of(PROBLEM, Participants(), stored.read(1).shard)
    loaded = load_shard(DatasetRef.of(stored), 1)
    kept = KeptPositives(room=2 * found.rows.nbytes)
    for name in ("a", "b"):
        kept.add(name, found, loaded)
    assert kept.get("a") is not None
    kept.add("c", found, loaded)
    assert [name for name in "abc" if kept.get(name)] == ["a", "c"]
    small = KeptPositives(room=1)
    small.add("a", found, loaded)
    assert small.get("a") is None


def test_a_pass_of_a_run_that_streams_reads_each_shard_once(stored):
    executor = InlineExecutor(stored, PROBLEM)
    executor.streams = True
    outcome = WholeTrainer(PROBLEM, stored, executor, SolverConfig(C=0.1, gap=1e-3)).run()
    executor.close()
    whole = sum(stored.read(number).n_bytes for number in range(stored.n_shards))
    assert outcome.totals.passes > 2
    assert outcome.totals.bytes_read == (outcome.totals.passes + 1) * whole
