"""Jobs whose workers are killed, retired or broken, time and again."""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

import distdual
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.jobs.submit import LOST_JOB, submit
from distdual.model.io import load_model
from tests.build import examples, write
from tests.jobs.test_submit import ENDLESS, HARD, checkpoint_of, config, kill_coordinator, left_behind, pid_of
from tests.processes import dask_cluster, wait_until
from tests.shell import PROGRAMS, environment

pytestmark = pytest.mark.slow

LONG = {"gap": 1e-6, "C": 1.0}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("data") / "set", examples(0, 3000, 40, flip=0.2), n_shards=4).url


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with dask_cluster(tmp_path, workers=2) as address, Client(address, set_as_default=False) as found:
        found.wait_for_workers(2, timeout=60)
        yield found


@pytest.fixture(scope="module")
def whole(data: str, tmp_path_factory: pytest.TempPathFactory) -> distdual.Result:
    """What an uninterrupted run ends with."""
    return distdual.train(config(data, tmp_path_factory.mktemp("whole") / "model", solver=LONG))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(20))
def test_kills_at_random_moments_change_nothing(
    seed: int, client: Client, data: str, whole: distdual.Result, tmp_path: Path
) -> None:
    rng, model = random.Random(seed), tmp_path / "model"
    job = submit(config(data, model, solver=LONG, checkpoint_every=0.2), client)
    lowers = []
    for kill in range(rng.randint(1, 3)):  # Dask allows for three
        wait_until(lambda kill=kill: (r := job.record()).attempt > kill or r.code is not None, "an attempt")
        time.sleep(rng.uniform(0.0, 3.0))
        if saved := checkpoint_of(model):
            lowers.append(saved["lower"])
        kill_coordinator(client, job)
    found = job.result(120)
    assert found["certified"]
    assert [*lowers, found["lower"]] == sorted([*lowers, found["lower"]])
    assert found["upper"] == whole.certificate["upper"]
    np.testing.assert_array_equal(load_model(Location(str(model))).w, whole.model.w)
    assert distdual.verify(str(model)).certified
    assert checkpoint_of(model) is None
    wait_until(lambda: not left_behind(client), "tidying up")


@pytest.mark.timeout(300)
def test_a_worker_that_is_retired_hands_its_job_on(
    client: Client, data: str, whole: distdual.Result, tmp_path: Path
) -> None:
    job = submit(config(data, tmp_path / "model", solver=LONG, checkpoint_every=0.2), client)
    worker = wait_until(lambda: (r := job.record()).progress and r.worker, "a round")
    client.retire_workers([worker])
    found = job.result(120)
    assert found["upper"] == whole.certificate["upper"]
    assert job.record().attempt == 2


@pytest.mark.timeout(300)
def test_a_job_that_kills_every_worker_fails_and_can_be_resumed(client: Client, data: str, tmp_path: Path) -> None:
    model = tmp_path / "model"
    job = submit(config(data, model, solver=ENDLESS, checkpoint_every=0.1), client)
    for attempt in range(1, 5):  # Dask allows for three failures
        wait_until(lambda n=attempt: job.record().attempt == n, "an attempt")
        wait_until(lambda: checkpoint_of(model), "a checkpoint")
        kill_coordinator(client, job)
    assert job.wait(60).sentence == LOST_JOB
    with pytest.raises(RuntimeError, match="submit it again with --resume"):
        job.result()
    saved = checkpoint_of(model)
    again = submit(config(data, model, solver=HARD), client, resume=True)
    assert again.result(60)["lower"] >= saved["lower"]


@pytest.mark.timeout(300)
def test_a_worker_that_hangs_and_wakes_up_again_disturbs_nobody(
    data: str, whole: distdual.Result, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    env = environment(DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL="10s")
    with dask_cluster(tmp_path, workers=2, env=env) as address, Client(address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        job = submit(config(data, model, solver=ENDLESS, checkpoint_every=0.1), client)
        wait_until(lambda: checkpoint_of(model), "a checkpoint")
        process = pid_of(client, job)
        os.kill(process, signal.SIGSTOP)
        lower = checkpoint_of(model)["lower"]
        record = wait_until(lambda: (r := job.record()).attempt == 2 and r.progress and r, "another attempt", 120)
        with contextlib.suppress(ProcessLookupError):  # its nanny may have ended it
            os.kill(process, signal.SIGCONT)
        time.sleep(5)
        assert job.record().attempt == 2
        job.cancel()
        assert job.wait(60).state == "cancelled"
        assert checkpoint_of(model)["lower"] >= max(lower, record.progress["lower"])
        again = submit(config(data, model, solver=HARD), client, resume=True)
        assert again.result(120)["certified"]
    assert distdual.verify(str(model)).certified


@pytest.mark.timeout(300)
def test_who_follows_a_job_is_told_that_the_scheduler_has_ended(client: Client, data: str, tmp_path: Path) -> None:
    job = submit(config(data, tmp_path / "model", solver=ENDLESS), client)
    address, scheduler = client.scheduler.address, client.run_on_scheduler(os.getpid)
    command = [PROGRAMS / "distdual", "logs", job.id, "--follow", "--scheduler", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            os.kill(scheduler, signal.SIGKILL)
            _, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 2
    assert err.startswith(f"distdual: {address}: the scheduler no longer answers (")
    assert err.count("\n") == 1


@pytest.mark.timeout(300)
def test_workers_without_distdual_are_told_of_at_once(data: str, tmp_path: Path) -> None:
    (tmp_path / "broken" / "distdual").mkdir(parents=True)
    (tmp_path / "broken" / "distdual" / "__init__.py").write_text("raise ImportError('not the one')")
    env = environment(PYTHONPATH=str(tmp_path / "broken"))
    with dask_cluster(tmp_path, workers=1, env=env) as address, Client(address, set_as_default=False) as client:
        client.wait_for_workers(1, timeout=60)
        with pytest.raises(InputError, match="is the same version of distdual installed on all workers"):
            submit(config(data, tmp_path / "model"), client)
