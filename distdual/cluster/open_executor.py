"""The factory of executors: threads of this process, a local Dask cluster, or a scheduler's workers."""

import contextlib
from collections.abc import Iterator
from typing import Any

from distdual.cluster.base import Executor
from distdual.cluster.collection import CollectionDataset
from distdual.cluster.dask_client import connect
from distdual.cluster.dask_executor import DaskExecutor
from distdual.cluster.threads import InlineExecutor
from distdual.cluster.user_code import send_module
from distdual.config import ClusterConfig
from distdual.data.data_spec import form_name
from distdual.data.dataset import Dataset
from distdual.data.in_memory import MemoryDataset
from distdual.errors import InputError
from distdual.feature_maps.blas import one_blas_thread
from distdual.problems.base import Problem
from distdual.problems.expanded import Expanded
from distdual.problems.mapped import Mapped

AnyDataset = Dataset | MemoryDataset | CollectionDataset


@contextlib.contextmanager
def open_executor(
    cluster: ClusterConfig, dataset: AnyDataset, problem: Problem, client: Any = None
) -> Iterator[Executor]:
    """Open the executor that [cluster] describes, or one on a given Dask client."""
    check_form(dataset, problem)
    client = dataset.client if isinstance(dataset, CollectionDataset) else client
    if client is not None:
        yield from _closing(on_dask(client, dataset, problem, cluster))
    elif cluster.scheduler or cluster.local:
        with connect(cluster) as own:
            yield from _closing(on_dask(own, dataset, problem, cluster))
    else:
        assert not isinstance(dataset, CollectionDataset)
        with one_blas_thread() if isinstance(problem, Mapped | Expanded) else contextlib.nullcontext():
            yield from _closing(InlineExecutor(dataset, problem, threads=1 if problem.holds_gil else 2))


@contextlib.contextmanager
def one_client(cluster: ClusterConfig, client: Any) -> Iterator[Any]:
    """The client for several executors: the caller's, or one of the config's cluster; None for threads."""
    if client is None and (cluster.scheduler or cluster.local):
        with connect(cluster) as own:
            yield own
    else:
        yield client


@contextlib.contextmanager
def open_beside(executor: Executor, dataset: AnyDataset, problem: Problem) -> Iterator[Executor]:
    """Open an executor for another data set where `executor` scans."""
    client = executor.client if isinstance(executor, DaskExecutor) else None
    with open_executor(ClusterConfig(), dataset, problem, client) as other:
        yield other


def dask_page(executor: Executor) -> str | None:
    """URL of the Dask dashboard; None where scans run in threads."""
    return executor.client.dashboard_link or None if isinstance(executor, DaskExecutor) else None


def on_dask(client: Any, dataset: AnyDataset, problem: Problem, cluster: ClusterConfig) -> DaskExecutor:
    """Create an executor, and send the code of a user's own problem to its workers."""

    def prepare() -> None:
        send_module(client, problem)

    executor = DaskExecutor(client, dataset, problem, cluster, prepare)  # checks what workers run
    prepare()
    return executor


def check_form(dataset: AnyDataset, problem: Problem | type[Problem]) -> None:
    """Raise unless the data set holds the kind of examples that the problem's kernels expect."""
    spec = problem.data_spec
    if not spec.takes(ragged=dataset.ragged, structured=dataset.structured):
        found = form_name(ragged=dataset.ragged, structured=dataset.structured)
        needed = spec.form
        raise InputError(f"{dataset.location}: the data set holds {found}, but a {problem.kind} problem needs {needed}")


def _closing(executor: Any) -> Iterator[Any]:
    with contextlib.closing(executor):
        yield executor
