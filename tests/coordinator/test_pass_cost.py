"""What a pass costs follows from config, data set and problem."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from distdual.config import SolverConfig
from distdual.coordinator.pass_cost import MOST_VISITS, READ_WORK, declared_cost
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.feature_maps.fourier import fourier_map
from distdual.feature_maps.kernel_function import KernelFunction
from distdual.problems.binary import Binary
from distdual.problems.mapped import mapped
from distdual.problems.multiclass import Multiclass

BINARY = Binary(n_features=3, classes=("a", "b"))
MULTICLASS = Multiclass(n_features=3, classes=("a", "b", "c"))


@dataclass
class Data:
    nbytes: int = 10**6
    n_rows: int = 10**6
    location: Any = field(default_factory=lambda: Location("/data"))


@pytest.mark.parametrize(
    ("data", "stream", "why"),
    [
        (Data(), "no", "kept in memory, as they take 1 MB against 2.15 GB"),
        (Data(nbytes=10**10), "yes", "streamed from storage, as they take 10 GB against 2.15 GB"),
        (Data(location=Location("s3://bucket/data")), "yes", "streamed from storage, as they are on remote storage"),
        (Data(location="the arrays"), "no", "kept in memory, as they take 1 MB against 2.15 GB"),
    ],
)
def test_the_place_and_the_size_of_the_data_decide_unless_the_config_does(data, stream, why):
    for configured in ("auto", "yes", "no"):
        cost = declared_cost(SolverConfig(stream=configured), data, BINARY)
        told = stream if configured == "auto" else configured
        assert cost.streamed_bytes == (data.nbytes if told == "yes" else 0)
        assert cost.per_example == BINARY.oracle_work + READ_WORK * (told == "yes")
        assert (why if configured == "auto" else "as configured") in cost.why


def test_mapped_features_count_with_the_size_they_have_in_memory():
    feature_map = fourier_map(KernelFunction(kind="rbf", gamma=1.0), 3, 1000, seed=0)
    cost = declared_cost(SolverConfig(), Data(), mapped(BINARY, feature_map))
    assert "streamed from storage, as they take 4 GB" in cost.why
    assert cost.streamed_bytes == 10**6 + 4 * 1000 * 10**6  # windows of a pass hold mapped shards


def test_asynchronous_runs_have_no_schedule_for_streamed_data():
    data = Data(location=Location("s3://bucket/data"))
    assert declared_cost(SolverConfig(mode="async"), data, BINARY).streamed_bytes == 0
    with pytest.raises(InputError, match='needs mode "deterministic"'):
        SolverConfig(mode="async", stream="yes")


def test_the_oracle_is_asked_again_only_where_it_may_have_another_answer():
    for problem, visits in ((BINARY, 1), (MULTICLASS, MOST_VISITS)):
        assert declared_cost(SolverConfig(stream="yes"), Data(), problem).visits == visits
        assert declared_cost(SolverConfig(stream="no"), Data(), problem).visits == 1
