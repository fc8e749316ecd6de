"""When workers, scheduler or storage fail, a run recovers by itself, or ends with one error message and can resume.

Uses real processes and a real S3 server. `pytest -m slow tests/test_faults.py` runs all seeds and the long faults.
"""

import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdual
from distdual import train, verify
from distdual.cluster.dask_client import connect
from distdual.cluster.dask_executor import DaskExecutor
from distdual.config import ClusterConfig
from distdual.coordinator.run import Result
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location
from distdual.errors import ClusterError, InputError
from distdual.report.round_log import Round
from tests.build import CLASSES, examples
from tests.cluster.test_executor import SlowBinary, scans
from tests.dask_processes import DaskProcesses
from tests.s3_server import S3Server
from tests.shell import environment

MADE = examples(0, 2400, 12, flip=0.3)
LATE = 0.1  # largest delay of a fault after its round, in seconds
LONG = {"gap": 1e-9, "max_passes": 40}
SLOW = pytest.mark.slow
SEEDS = [pytest.param(n, marks=SLOW) for n in range(20)]
MODES = ["deterministic", "async"]
FIXED_FIRST = [pytest.param("deterministic", marks=SLOW), pytest.param("async", marks=SLOW)]
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def data(s3: S3Server) -> dict[str, Any]:
    url = s3.url("faults")
    prepare_arrays(MADE.x, MADE.y, url, "binary", shard_bytes=48 * 300, storage_options=s3.storage_options)
    return {"url": url, "storage_options": s3.storage_options}


@pytest.fixture(scope="module")
def whole(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A run without faults."""
    return train(make_config(data, tmp_path_factory.mktemp("whole") / "model"))


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskProcesses]:
    processes = DaskProcesses(tmp_path_factory.mktemp("dask"), workers=2)
    try:
        yield processes
    finally:
        processes.close()


def make_config(data: dict[str, Any], model: Path | str, address: str | None = None, **options: Any) -> dict[str, Any]:
    limits = {key: options.pop(key) for key in ("patience", "silence", "scan_timeout") if key in options}
    cluster = {"scheduler": address, "timeout": 90.0, **limits} if address else {}
    most = 24 if options.get("mode") == "async" else 12  # passes: without fixed rounds, more of them keep workers busy
    return {
        "data": data,
        "problem": {"kind": "binary", "bias": 1.0},
        "solver": {"C": 1.0, "gap": 1e-6, "max_passes": most, **options},
        "output": {"url": str(model), "checkpoint_every": 0.0},
        "cluster": cluster,
    }


def at_round(number: int, fault: Callable[[], Any]) -> Callable[[Round], None]:
    """A watch function that causes the fault once the run has done so many rounds."""
    left = [fault]

    def watch(line: Round) -> None:
        if left and line.totals["rounds"] >= number:
            left.pop()()

    return watch


def soon(rng: random.Random, fault: Callable[[], Any]) -> Callable[[], None]:
    """The same fault a moment later, in a thread."""
    return lambda: threading.Timer(rng.uniform(0.0, LATE), fault).start()


def check(result: Result, config: dict[str, Any], whole: Result) -> None:
    """Check that the certificate holds and, with fixed rounds, that the weights are bit-identical."""
    model = Location(config["output"]["url"], config["output"].get("storage_options", {}))
    found = verify(model, Location(**config["data"]))
    assert found.findings == ()
    assert found.lower <= whole.certificate["upper"]
    assert found.upper >= whole.certificate["lower"]
    lowers = [line.lower for line in result.history]
    assert lowers == sorted(lowers)
    if config["solver"].get("mode", "deterministic") == "deterministic":
        assert result.model.w.tobytes() == whole.model.w.tobytes()
        assert result.certificate["upper"] == whole.certificate["upper"]
    else:
        assert result.certificate["gap"] < 1e-2


def events(result: Result) -> str:
    return "; ".join(event for line in result.history for event in line.events)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", MODES)
def test_a_worker_killed_at_any_moment_costs_only_time(
    mode: str, seed: int, cluster: DaskProcesses, data: dict[str, Any], whole: Result, tmp_path: Path
) -> None:
    rng = random.Random(seed)

    def kill() -> None:
        cluster.end(rng.choice(cluster.workers))
        cluster.add_worker()

    config = make_config(data, tmp_path / "model", cluster.address, mode=mode)
    result = train(config, watch=at_round(rng.randint(1, 6), soon(rng, kill)))
    check(result, config, whole)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_hanging_worker_counts_as_failed(
    mode: str, cluster: DaskProcesses, data: dict[str, Any], whole: Result, tmp_path: Path
) -> None:
    config = make_config(data, tmp_path / "model", cluster.address, mode=mode, silence=3.0)
    hang = lambda: os.killpg(cluster.workers[0].pid, signal.SIGSTOP)  # noqa: E731
    result = train(config, watch=at_round(3, hang))
    check(result, config, whole)
    if mode == "deterministic":  # the other may have finished first
        assert "was silent for 3 s and is given up" in events(result)


@pytest.mark.parametrize("mode", FIXED_FIRST)
@pytest.mark.parametrize("seconds", [pytest.param(2.0, marks=SLOW), pytest.param(60.0, marks=SLOW)])
def test_a_run_survives_the_loss_of_all_workers_for(
    seconds: float, mode: str, cluster: DaskProcesses, data: dict[str, Any], whole: Result, tmp_path: Path
) -> None:
    def kill_all() -> None:
        for worker in list(cluster.workers):
            cluster.end(worker)
        threading.Timer(seconds, cluster.add_worker).start()

    config = make_config(data, tmp_path / "model", cluster.address, mode=mode)
    result = train(config, watch=at_round(3, kill_all))
    check(result, config, whole)


@pytest.mark.parametrize("mode", FIXED_FIRST)
def test_without_any_worker_a_run_ends_with_an_error_and_resumes(
    mode: str, cluster: DaskProcesses, data: dict[str, Any], whole: Result, tmp_path: Path
) -> None:
    config = make_config(data, tmp_path / "model", cluster.address, mode=mode, patience=6.0)
    kill_all = lambda: [cluster.end(worker) for worker in list(cluster.workers)]  # noqa: E731
    with pytest.raises(
        ClusterError, match=r"there has been no worker for 6 s \(cluster\.patience\); the checkpoint is"
    ):
        train(config, watch=at_round(3, kill_all))
    saved = [line for line in (tmp_path / "model" / "checkpoint").iterdir() if line.name.endswith("state.json")]
    assert len(saved) == 1
    cluster.add_worker()
    result = train(make_config(data, tmp_path / "model", cluster.address, mode=mode), resume=True)
    check(result, config, whole)


def test_a_worker_that_joins_is_used(cluster: DaskProcesses, data: dict[str, Any]) -> None:
    cluster.end(cluster.workers[0])
    dataset = open_dataset(Location(data["url"], data["storage_options"]))
    problem = SlowBinary(n_features=12, classes=CLASSES)
    with connect(ClusterConfig(scheduler=cluster.address, timeout=90.0)) as client:
        executor = DaskExecutor(client, dataset, problem)
        executor.publish(0, np.zeros(12))
        names, end = set(), time.monotonic() + 60
        cluster.add_worker()
        while len(names) < 2 and time.monotonic() < end:
            executor.start(scans(dataset))
            while executor.pending:
                names |= {report.worker for report in executor.collect(60.0)}
        assert len(names) == 2
        assert executor.slots == 2
        assert sum("joined" in event for event in executor.events) == 1
        executor.close()


@pytest.fixture(scope="module")
def other_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a distdual that computes something else."""
    folder = tmp_path_factory.mktemp("other")
    shutil.copytree(Path(distdual.__file__).parent, folder / "distdual", ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "distdual" / "problems" / "binary.py").open("a") as file:
        file.write("\n# another version\n")
    return folder


def test_a_worker_with_another_version_is_refused_before_the_first_scan(
    other_version: Path, cluster: DaskProcesses, data: dict[str, Any], tmp_path: Path
) -> None:
    cluster.add_worker(path=other_version)
    with connect(ClusterConfig(scheduler=cluster.address, timeout=90.0)) as client:
        client.wait_for_workers(3, timeout=90)
    with pytest.raises(InputError, match=r"worker tcp://.* runs distdual .* with other sources than this process"):
        train(make_config(data, tmp_path / "model", cluster.address), watch=lambda _: pytest.fail("it computes"))
    assert not (tmp_path / "model").exists()


def test_a_worker_with_another_version_that_joins_later_is_refused(
    other_version: Path, cluster: DaskProcesses, data: dict[str, Any]
) -> None:
    dataset = open_dataset(Location(data["url"], data["storage_options"]))
    with connect(ClusterConfig(scheduler=cluster.address, timeout=90.0)) as client:
        client.wait_for_workers(2, timeout=90)
        executor = DaskExecutor(client, dataset, SlowBinary(n_features=12, classes=CLASSES))
        executor.publish(0, np.zeros(12))
        late = cluster.add_worker(path=other_version)
        seen, end = list[str](), time.monotonic() + 120
        while not any("is refused" in event for event in seen) and time.monotonic() < end:
            executor.start(scans(dataset))
            while executor.pending:
                executor.collect(60.0)
            seen += executor.events
            executor.events = []
        assert any("with other sources than this process" in e or "runs another distdual" in e for e in seen), seen
        late.wait(60)
        reports = list(executor.reports(scans(dataset)))
        assert len(reports) == dataset.n_shards
        executor.close()


@SLOW
@pytest.mark.parametrize("who", ["worker", "scheduler", "store"])
def test_a_process_that_is_stopped_for_a_minute_costs_only_time(
    who: str, cluster: DaskProcesses, own_s3: S3Server, tmp_path: Path
) -> None:
    data = {"url": own_s3.url("faults"), "storage_options": own_s3.storage_options}
    prepare_arrays(MADE.x, MADE.y, data["url"], "binary", shard_bytes=48 * 300, storage_options=own_s3.storage_options)
    whole = train(make_config(data, tmp_path / "whole"))
    assert cluster.scheduler
    assert own_s3.process
    process = {"worker": cluster.workers[0], "scheduler": cluster.scheduler, "store": own_s3.process}[who]

    def stop() -> None:
        os.killpg(process.pid, signal.SIGSTOP)
        threading.Timer(60.0, os.killpg, (process.pid, signal.SIGCONT)).start()

    config = make_config(data, own_s3.url("run"), cluster.address, silence=20.0)
    config["output"] = {**config["output"], "storage_options": own_s3.storage_options, "retry_seconds": 120.0}
    config["data"] = {**config["data"], "retry_seconds": 120.0}
    result = train(config, watch=at_round(3, stop))
    check(result, {**config, "data": data}, whole)


@pytest.mark.parametrize("mode", FIXED_FIRST)
def test_a_restarted_scheduler_gets_the_work_again(
    mode: str, cluster: DaskProcesses, data: dict[str, Any], whole: Result, tmp_path: Path
) -> None:
    def restart() -> None:
        assert cluster.scheduler
        cluster.end(cluster.scheduler)
        cluster.start_scheduler()
        cluster.add_worker()  # the others end with their scheduler

    config = make_config(data, tmp_path / "model", cluster.address, mode=mode)
    result = train(config, watch=at_round(3, restart))
    check(result, config, whole)
    assert "the scheduler was restarted" in events(result)


@SLOW
def test_without_a_scheduler_a_run_ends_with_an_error_and_resumes(
    cluster: DaskProcesses, data: dict[str, Any], whole: Result, tmp_path: Path
) -> None:
    config = make_config(data, tmp_path / "model", cluster.address, patience=6.0)
    config["cluster"]["timeout"] = 6.0
    assert cluster.scheduler
    process = cluster.scheduler
    with connect(ClusterConfig(scheduler=cluster.address, timeout=90.0)):
        pass  # a worker has joined
    with pytest.raises(ClusterError, match=r"the (connection to the )?scheduler .*; the checkpoint is in"):
        train(config, watch=at_round(3, lambda: cluster.end(process)))
    result = train(make_config(data, tmp_path / "model"), resume=True)  # by threads of this process
    check(result, config, whole)


@pytest.fixture(scope="module")
def longer(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Result:
    return train({**make_config(data, tmp_path_factory.mktemp("longer") / "model", **LONG)})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("mode", MODES)
def test_a_coordinator_killed_at_any_moment_resumes_from_s3(
    mode: str, seed: int, cluster: DaskProcesses, data: dict[str, Any], s3: S3Server, longer: Result, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    config = make_config(data, s3.url("run"), cluster.address, mode=mode, **LONG)
    config["output"] = {**config["output"], "storage_options": s3.storage_options, "checkpoint_every": 1e-9}
    folder = config["output"]["url"].removeprefix("s3://")
    lowers = [-np.inf]
    for _ in range(rng.randint(1, 2)):
        (tmp_path / "log").unlink(missing_ok=True)
        kill_coordinator(config, tmp_path, rng)
        if s3.files().exists(f"{folder}/model.json"):  # it was nearly finished
            break
        if s3.files().exists(f"{folder}/checkpoint/manifest.json"):
            lowers.append(json.loads(s3.files().cat(f"{folder}/checkpoint/manifest.json"))["summary"]["lower"])
    config["output"]["overwrite"] = True  # killed after saving the model, before removing the checkpoint
    result = train(config, resume=True)
    check(result, config, longer)
    lowers.append(result.certificate["lower"])
    assert lowers == sorted(lowers)


def kill_coordinator(config: dict[str, Any], folder: Path, rng: random.Random) -> None:
    """Train in a new process, with kill −9 at some moment after its first round."""
    (folder / "run.json").write_text(json.dumps(config))
    with (folder / "err").open("wb") as err:
        process = subprocess.Popen([sys.executable, "-c", RUN, "run.json"], cwd=folder, env=environment(), stderr=err)
    try:
        end = time.monotonic() + 120
        while process.poll() is None and not (folder / "log").exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 1.0))
    finally:
        process.kill()
        process.wait()
    assert process.returncode in (0, -signal.SIGKILL), (folder / "err").read_text()


RUN = """
import json, sys
from pathlib import Path
from distdual import train
train(json.loads(Path(sys.argv[1]).read_text()), resume=True, watch=lambda line: Path("log").touch())
"""


@SLOW
@pytest.mark.parametrize("mode", MODES)
def test_a_run_waits_for_storage_that_fails_for_20_seconds(
    mode: str, cluster: DaskProcesses, own_s3: S3Server, tmp_path: Path
) -> None:
    """Workers record which examples each row combines, the coordinator its checkpoints: every round needs storage."""
    data = {"url": own_s3.url("faults"), "storage_options": own_s3.storage_options}
    prepare_arrays(MADE.x, MADE.y, data["url"], "binary", shard_bytes=48 * 300, storage_options=own_s3.storage_options)
    whole = train(make_config(data, tmp_path / "whole", slack="block:8"))

    def fail() -> None:
        own_s3.kill()
        threading.Timer(20.0, own_s3.start).start()

    config = make_config(data, own_s3.url("run"), cluster.address, mode=mode, slack="block:8")
    config["output"] = {**config["output"], "storage_options": own_s3.storage_options, "checkpoint_every": 1e-9}
    begin = time.monotonic()
    result = train(config, watch=at_round(3, fail))
    assert time.monotonic() - begin > 20.0
    check(result, config, whole)


@pytest.mark.parametrize("slack", ["block:8", "shard", "all"])
def test_an_asynchronous_run_with_shared_slacks_saves_a_proof_of_its_bound(
    slack: str, data: dict[str, Any], whole: Result, tmp_path: Path
) -> None:
    config = make_config(data, tmp_path / "model", mode="async", slack=slack, max_passes=30)
    train(config)
    assert verify(Location(config["output"]["url"]), Location(**config["data"])).findings == ()


class Hungry(SlowBinary):
    """A problem whose scans of shard 3 need more memory than a worker has."""

    def offenders(self, w: Any, shard: Any) -> Any:
        if shard.number == 3:
            hoard = [np.ones(1 << 22) for _ in range(60)]  # 32 MB each
            time.sleep(len(hoard))
        return super().offenders(w, shard)


@SLOW
def test_a_shard_that_kills_workers_is_named(cluster: DaskProcesses, data: dict[str, Any]) -> None:
    for worker in list(cluster.workers):
        cluster.end(worker)
    cluster.add_worker("--memory-limit", "600MiB")
    dataset = open_dataset(Location(data["url"], data["storage_options"]))
    with connect(ClusterConfig(scheduler=cluster.address, timeout=90.0)) as client:
        executor = DaskExecutor(client, dataset, Hungry(n_features=12, classes=CLASSES))
        executor.publish(0, np.zeros(12))
        with pytest.raises(ClusterError, match=r"shard 3: workers died repeatedly .* \(they have 0\.586 GiB\); give"):
            list(executor.reports(scans(dataset)))
        executor.close()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence Dask, which logs lost connections with tracebacks."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)
