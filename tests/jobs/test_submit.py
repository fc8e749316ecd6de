"""Jobs on a cluster of real processes: they outlive their client and their worker, and keep apart."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster

import distdual
from distdual.config import from_table
from distdual.data.storage.location import Location
from distdual.errors import InputError, Suspended
from distdual.jobs import coordinator_task as coordinate
from distdual.jobs.job_record import TASK, Record, read, save
from distdual.jobs.submit import LOST_JOB, Job, anywhere, check_conflicts, submit
from distdual.model.io import load_model
from tests.build import examples, write
from tests.processes import dask_cluster, wait_until
from tests.shell import assert_refused, call, environment, run

SECRET = "an-open-secret"
HARD = {"C": 100.0, "gap": 0.05}
ENDLESS = {**HARD, "gap": 1e-300, "max_passes": 10**9}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("data") / "set", examples(0, 2000, 30, flip=0.2), n_shards=6).url


@pytest.fixture(scope="module")
def cluster_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def address(cluster_folder: Path) -> Iterator[str]:
    with dask_cluster(cluster_folder, workers=2) as scheduler:
        yield scheduler


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address, set_as_default=False) as found:
        yield found


@pytest.fixture
def threads() -> Iterator[Client]:
    """A cluster of one worker with one thread, within this process."""
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False) as found:
        yield found


def config(data: str, model: Any, *, solver: Any = None, **output: Any) -> dict[str, Any]:
    return {
        "data": {"url": data},
        "problem": {"kind": "binary"},
        "solver": {"C": 0.1, "gap": 1e-3, **(solver or {})},
        "output": {"url": str(model), **output},
    }


def as_file(path: Path, told: dict[str, Any]) -> Path:
    lines = [f"{section}.{key} = {json.dumps(value)}" for section, keys in told.items() for key, value in keys.items()]
    path.write_text("\n".join(lines))
    return path


def kill_coordinator(client: Client, job: Job) -> None:
    """kill -9 the process of the worker that coordinates, if the job still runs."""
    if job.record().worker is not None:
        os.kill(pid_of(client, job), signal.SIGKILL)


def pid_of(client: Client, job: Job) -> int:
    worker = job.record().worker
    return int(client.run(os.getpid, workers=[worker])[worker])


def left_behind(client: Client) -> list[str]:
    """Keys that the scheduler still knows."""
    return list(client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks)))


def checkpoint_of(model: Any) -> dict[str, Any] | None:
    try:
        return json.loads((Path(model) / "checkpoint" / "manifest.json").read_text())["summary"]
    except FileNotFoundError:
        return None


def test_a_job_ends_certified_though_its_client_has_left(
    address: str, client: Client, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = config(data, "model", log="run.jsonl")  # relative to where it is submitted
    as_file(tmp_path / "run.toml", told)
    ran = run("distdual", "submit", "run.toml", "--scheduler", address, cwd=tmp_path, env=environment())
    assert ran.code == 0, ran
    job = ran.out.strip()
    followed = call(capsys, "logs", job, "--follow", "--json", "--scheduler", address)
    assert followed.code == 0
    assert followed.out == (tmp_path / "run.jsonl").read_text()
    assert "done: gap" in followed.err

    here = distdual.train(config(data, tmp_path / "here"))
    there = load_model(Location(str(tmp_path / "model")))
    np.testing.assert_array_equal(there.w, here.model.w)
    found = Job(job, client).result()
    assert (found["lower"], found["upper"]) == (here.certificate["lower"], here.certificate["upper"])
    assert Job(job, client).logs() == [json.loads(line) for line in followed.out.splitlines()]

    told = json.loads(call(capsys, "status", job, "--json", "--scheduler", address).out)
    assert (told["state"], told["code"], told["model"]) == ("done", 0, str(tmp_path / "model"))
    assert told["certificate"]["certified"]
    assert "≤ P(w*) ≤" in call(capsys, "status", job, "--scheduler", address).out
    assert job in call(capsys, "list", "--scheduler", address).out
    assert json.loads(call(capsys, "list", "--json", "--scheduler", address).out)["jobs"][-1] == told
    assert call(capsys, "logs", job, "--scheduler", address).out.startswith("pass=0 lower=")
    assert_refused(call(capsys, "cancel", job, "--scheduler", address), job, "already ended: done")


def test_two_jobs_at_once_end_as_each_would_alone(client: Client, data: str, tmp_path: Path) -> None:
    values = (0.02, 0.2)
    jobs = [submit(config(data, tmp_path / f"model-{C}", solver={"C": C, "gap": 1e-5}), client) for C in values]
    for C, job in zip(values, jobs, strict=True):
        alone = distdual.train(config(data, tmp_path / f"alone-{C}", solver={"C": C, "gap": 1e-5})).certificate
        assert job.result(90)["upper"] == alone["upper"]
    assert wait_until(lambda: not left_behind(client), "tidying up")


def test_a_cancelled_job_leaves_a_checkpoint_to_go_on_from_and_nothing_on_workers(
    address: str, client: Client, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    job = submit(config(data, model, solver=ENDLESS), client)
    wait_until(lambda: job.status()["progress"].get("gap"), "a certified round")
    assert len(left_behind(client)) > 0
    ran = call(capsys, "cancel", job.id, "--scheduler", address)
    assert ran.code == 0
    assert f"job        {job.id}: cancelled, stopped on request; the checkpoint is in {model}" in ran.out
    assert call(capsys, "status", job.id, "--scheduler", address).code == 1
    with pytest.raises(Suspended, match="stopped on request"):
        job.result()
    lower = checkpoint_of(model)["lower"]
    assert lower > 0
    wait_until(lambda: not left_behind(client), "tidying up")
    assert not any(client.has_what().values())

    again = submit(config(data, model, solver=HARD), client, resume=True)
    assert again.result(60)["lower"] >= lower
    assert checkpoint_of(model) is None


def test_a_job_whose_worker_is_killed_goes_on_elsewhere_from_its_checkpoint(
    client: Client, data: str, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    wait_until(lambda: len(client.scheduler_info()["workers"]) == 2, "two workers")
    job = submit(config(data, model, solver=ENDLESS, checkpoint_every=0.1), client)
    wait_until(lambda: checkpoint_of(model), "a checkpoint")
    kill_coordinator(client, job)
    before = checkpoint_of(model)
    record = wait_until(lambda: (r := job.record()).attempt == 2 and r.progress and r, "another attempt")
    assert record.state == "running"
    assert record.progress["rounds"] > 0
    job.cancel()
    record = job.wait(60)
    assert record.state == "cancelled"
    assert record.progress["lower"] >= before["lower"]
    assert record.progress["rounds"] >= before["rounds"]
    lines = list(job.lines())
    second = next(k for k, line in enumerate(lines) if "attempt 2 resumes from the checkpoint" in line.get("said", ""))
    rounds = [json.loads(line["round"]) for line in lines[second:] if "round" in line]
    lowers = [line["lower"] for line in rounds if line["totals"]["rounds"] > before["rounds"]]
    assert lowers == sorted(lowers)


def test_a_failed_job_says_why_and_never_tells_credentials(
    address: str, cluster_folder: Path, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = config("s3://data/nothing", tmp_path / "model")
    told["data"]["storage_options"] = {
        "key": "name", "secret": SECRET, "client_kwargs": {"endpoint_url": "http://127.0.0.1:9"},
    }  # fmt: skip
    job = submit(told, client)
    assert job.wait(60).state == "failed"
    with pytest.raises(InputError, match="s3://data/nothing"):
        job.result()
    at = ("--scheduler", address)
    shown = [
        call(capsys, "status", job.id, *at),
        call(capsys, "status", job.id, "--json", *at),
        call(capsys, "status", "--all", *at),
        call(capsys, "list", "--json", *at),
        call(capsys, "logs", job.id, "--follow", *at),
    ]
    assert [ran.code for ran in shown] == [2, 2, 0, 0, 2]
    assert "failed, s3://data/nothing" in shown[0].out
    assert all(SECRET not in ran.out + ran.err for ran in shown)
    assert SECRET not in (cluster_folder / "cluster.log").read_text()
    assert not (tmp_path / "model").exists()


def test_a_problem_of_ones_own_reaches_the_workers(address: str, client: Client, tmp_path: Path) -> None:
    from distdual.data.prepare.api import prepare_arrays

    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5))
    prepare_arrays(x, (x[:, :3].argmax(axis=1)).astype(str), str(tmp_path / "data"), "multiclass", shard_bytes=2000)
    source = (Path(__file__).parents[1] / "problems" / "mine.py").read_text(encoding="utf-8")
    (tmp_path / "own_of_job.py").write_text(source, encoding="utf-8")
    told = config("data", "model", solver={"gap": 0.1})
    told["problem"]["kind"] = "own_of_job:PlainMulticlass"
    as_file(tmp_path / "run.toml", told)
    ran = run("distdual", "submit", "run.toml", "--json", "--scheduler", address, cwd=tmp_path, env=environment())
    assert ran.code == 0, ran
    assert Job(json.loads(ran.out)["id"], client).result(60)["certified"]


def test_one_worker_with_one_thread_is_enough(threads: Client, data: str, tmp_path: Path) -> None:
    job = submit(config(data, tmp_path / "model"), threads)
    assert job.result(60)["certified"]


def test_what_is_written_twice_is_refused(threads: Client, data: str, tmp_path: Path) -> None:
    job = submit(config(data, tmp_path / "model", solver=ENDLESS), threads)
    with pytest.raises(InputError, match=f"job {job.id} is writing this model"):
        submit(config(data, tmp_path / "model"), threads)
    job.cancel()
    assert job.wait(60).state == "cancelled"
    assert submit(config(data, tmp_path / "model", solver=HARD), threads, resume=True).result(60)["certified"]
    again = submit(config(data, tmp_path / "model", solver=HARD), threads)
    with pytest.raises(InputError, match="already holds a model"):
        again.result(60)


def test_a_job_that_waits_for_a_worker_can_be_cancelled(data: str, tmp_path: Path) -> None:
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        job = submit(config(data, tmp_path / "model"), client)
        assert job.status()["state"] == "queued"
        job.cancel()
        assert job.wait(10).state == "cancelled"
        assert wait_until(lambda: not left_behind(client), "tidying up")
        with pytest.raises(TimeoutError, match="has not ended within"):
            submit(config(data, tmp_path / "model"), client).result(0.1)


def test_a_job_whose_worker_died_when_the_model_was_there_is_done(threads: Client, data: str, tmp_path: Path) -> None:
    told = config(data, tmp_path / "model")
    made = distdual.train(told).certificate
    nothing = {"model": None, "checkpoint": None}
    lost = Record(id="lost", model="", data="", problem="", submitted=0.0, attempt=1, state="running", before=nothing)
    save(threads, lost)
    threads.submit(coordinate.train_job, "lost", from_table(told), False, key=TASK + "lost").result(60)
    found = read(threads, "lost")
    assert (found.state, found.attempt, found.code) == ("done", 2, 0)
    assert found.certificate == made  # nothing was trained again


def test_a_worker_that_was_given_up_writes_nothing_more(threads: Client, data: str, tmp_path: Path) -> None:
    job = submit(config(data, tmp_path / "model", solver=ENDLESS), threads)
    record = wait_until(lambda: (r := job.record()).progress and r, "a round")
    newer = Record(**{**record.public(), "attempt": 2, "worker": "tcp://another:1"})
    save(threads, newer)
    wait_until(lambda: job.task_state() is None, "the end of the first")
    assert read(threads, job.id) == newer
    assert checkpoint_of(tmp_path / "model") is None
    assert job.record().sentence == LOST_JOB  # as nobody else runs it here


def test_paths_are_made_absolute_and_the_cluster_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = config("data", "model", solver={"start": "old"}, log="run.jsonl")
    told["cluster"] = {"scheduler": "tls://host:1", "timeout": 7.0, "tls_ca": "a", "tls_cert": "b", "tls_key": "c"}
    made = anywhere(from_table({**told, "prior": {"mean": "s3://bucket/mean.npy", "precision": "precision.npy"}}))
    found = (made.data.url, made.output.url, made.output.log, made.solver.start, made.prior.precision)
    assert found == tuple(str(tmp_path / name) for name in ("data", "model", "run.jsonl", "old", "precision.npy"))
    assert made.prior.mean == "s3://bucket/mean.npy"
    assert (made.cluster.scheduler, made.cluster.tls_key, made.cluster.timeout) == (None, None, 7.0)
    assert anywhere(from_table(config("s3://bucket/data", "s3://bucket/model"))).output.log is None


def test_two_modules_of_one_name_do_not_run_at_a_time() -> None:
    def of(model: str, **more: Any) -> Record:
        return Record(**{"id": model, "model": model, "data": "", "problem": "mine:A", "submitted": 0.0, **more})

    check_conflicts(of("a", module="1"), [of("b", module="1"), of("c", module="2", code=0), of("d", problem="your:A")])
    with pytest.raises(InputError, match="job b runs with another module of the same name"):
        check_conflicts(of("a", module="1"), [of("b", module="2")])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["status", "nobody"], ["nobody", "has no such job"]),
        (["logs", "nobody"], ["nobody", "has no such job"]),
        (["cancel", "nobody"], ["nobody", "has no such job"]),
        (["status"], ["either a job id or --all"]),
        (["status", "one", "--all"], ["either a job id or --all"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
def test_commands_refuse(
    address: str, arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert_refused(call(capsys, *arguments, "--scheduler", address), *words)


@pytest.mark.parametrize("command", ["submit", "list"])
def test_jobs_need_a_cluster(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = as_file(tmp_path / "run.toml", config("data", "model"))
    arguments = [command, file] if command == "submit" else [command]
    assert_refused(call(capsys, *arguments), "--scheduler tcp://host:8786")
