"""The whole workflow with data and model on a real S3 server, and its errors when the server refuses or fails."""

import contextlib
import json
import re
import socket
import socketserver
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distdual import train, verify
from distdual.data.dataset import open_dataset
from distdual.data.storage.location import Location
from tests.cli.test_bad_input import storage
from tests.s3_proxy import proxy_of
from tests.s3_server import S3Server
from tests.shell import PROGRAMS, Ran, assert_refused, call, distdual, environment

CONFIG = """
[data]
url = "{data}"
{data_storage}

[problem]
kind = "binary"
bias = 1.0

[solver]
C = 0.1

[output]
url = "{model}"
log = "run.jsonl"
{model_storage}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 5)).astype(np.float32)
    y = np.where(x @ rng.normal(size=5) + 0.3 * rng.normal(size=400) > 0, "yes", "no")
    np.savez(tmp_path / "source.npz", x=x, y=y)
    return tmp_path / "source.npz"


def credentials(server: S3Server) -> dict[str, str]:
    return environment(
        AWS_ACCESS_KEY_ID=server.key, AWS_SECRET_ACCESS_KEY=server.secret, AWS_ENDPOINT_URL=server.endpoint
    )


def inline(server: S3Server) -> str:
    """The owner's storage options as one TOML line."""
    options = ", ".join(
        f"{name} = {json.dumps(value)}" for name, value in server.storage_options.items() if name != "client_kwargs"
    )
    return f'storage_options = {{ {options}, client_kwargs = {{ endpoint_url = "{server.endpoint}" }} }}'


def done(ran: Ran) -> Ran:
    assert ran.code == 0, ran
    return ran


def assert_no_secret(server: S3Server, folder: Path, *ran: Ran) -> None:
    """Neither key nor secret occurs in the output or in any file of `folder` but those the test wrote them to."""
    texts = [each.out.encode() + each.err.encode() for each in ran]
    texts += [path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".toml"]
    for text in texts:
        assert server.key.encode() not in text
        assert server.secret.encode() not in text


@pytest.mark.parametrize("by", [pytest.param("environment", marks=pytest.mark.slow), "storage options"])
def test_prepare_train_verify_and_predict_on_s3(by: str, s3: S3Server, source: Path, tmp_path: Path) -> None:
    place = s3.url("end-to-end")
    data, model, labels = f"{place}/data", f"{place}/model", f"{place}/labels.txt"
    options, env, line = [], environment(), inline(s3)
    if by == "environment":
        env, line = credentials(s3), ""
    else:
        (tmp_path / "s3.toml").write_text(storage(s3.storage_options))
        options = ["--storage-options", "s3.toml"]
    (tmp_path / "run.toml").write_text(CONFIG.format(data=data, model=model, data_storage=line, model_storage=line))

    def step(*arguments: object) -> Ran:
        return done(distdual(*arguments, "--json", cwd=tmp_path, env=env))

    prepared = step("prepare", source, data, "--problem", "binary", "--shard-bytes", 2000, "--shuffle", 3, *options)
    written = ["--set", "output.log=log.jsonl", "--set", "output.tensorboard=board"]
    trained = step("train", "run.toml", "--set", "cluster.local={workers=1}", *written)
    verified = step("verify", model, *options)
    predicted = step("predict", model, data, "--out", labels, *options)

    assert json.loads(prepared.out)["datasets"][0]["n_shards"] == 4
    certificate, checked = json.loads(trained.out), json.loads(verified.out)
    assert certificate["certified"]
    assert checked["certified"]
    assert 0 <= checked["gap"] <= 1e-3
    for bound in ("lower", "upper"):
        assert checked[bound] == pytest.approx(certificate[bound], rel=1e-9)
    assert json.loads(predicted.out)["score"]["accuracy"] > 0.85
    files = s3.files()
    assert set(files.cat_file(labels).decode().split()) == {"yes", "no"}
    kept = {name: files.cat_file(name) for name in files.find(model)}
    assert {name.rpartition("model/")[2] for name in kept} >= {"weights.npy", "model.json", "certificate.json"}
    for content in kept.values():
        assert s3.key.encode() not in content
        assert s3.secret.encode() not in content
    assert {path.name for path in tmp_path.iterdir()} >= {"log.jsonl", "board"}
    assert_no_secret(s3, tmp_path, prepared, trained, verified, predicted)


def test_wrong_credentials_are_refused_without_being_shown(s3: S3Server, source: Path, tmp_path: Path) -> None:
    url = s3.url()
    env = {**credentials(s3), "AWS_SECRET_ACCESS_KEY": "wrong-" + s3.guest_secret}
    ran = distdual("prepare", source, url, "--problem", "binary", cwd=tmp_path, env=env)
    assert_refused(ran, url, "no permission", "credentials")
    assert "wrong-" not in ran.err
    assert_no_secret(s3, tmp_path, ran)
    assert not s3.files().exists(url)


@pytest.mark.parametrize("command", ["train", "info"])
def test_a_missing_bucket_is_reported(command: str, s3: S3Server, tmp_path: Path) -> None:
    url = "s3://no-such-bucket/data"
    text = CONFIG.format(data=url, model="model", data_storage="", model_storage="")
    (tmp_path / "run.toml").write_text(text)
    ran = distdual(command, "run.toml" if command == "train" else url, cwd=tmp_path, env=credentials(s3))
    assert_refused(ran, "s3://no-such-bucket")
    assert not (tmp_path / "model").exists()
    assert_no_secret(s3, tmp_path, ran)


class CountingProxy(socketserver.ThreadingTCPServer):
    """A proxy that forwards everything to the server and kills it at the Nth GET."""

    daemon_threads = True

    def __init__(self, server: S3Server, kill_at: int) -> None:
        super().__init__(("127.0.0.1", 0), Forward)
        self.server, self.left = server, kill_at
        self.target = ("127.0.0.1", server.ports["s3"])
        self.lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def count(self, sent: bytes) -> None:
        with self.lock:
            if self.left > 0 and sent.startswith(b"GET "):
                self.left -= 1
                if not self.left:
                    self.server.kill()


class Forward(socketserver.BaseRequestHandler):
    server: CountingProxy

    def handle(self) -> None:
        with contextlib.suppress(OSError), socket.create_connection(self.server.target) as beyond:
            back = threading.Thread(target=self.pass_on, args=(beyond, self.request), daemon=True)
            back.start()
            self.pass_on(self.request, beyond, self.server.count)
            back.join()

    @staticmethod
    def pass_on(source: socket.socket, sink: socket.socket, watch: Any = lambda _: None) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(1 << 16):
                watch(part)
                sink.sendall(part)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param("", id="threads"),
        pytest.param("[cluster]\nlocal = { workers = 1 }", id="dask", marks=pytest.mark.slow),
    ],
)
def test_a_server_that_dies_while_shards_are_read_ends_training(
    cluster: str, own_s3: S3Server, source: Path, tmp_path: Path
) -> None:
    """Each of the 100 shards takes two GETs and the metadata a few, so the 60th GET reads a shard."""
    data, env = own_s3.url(), credentials(own_s3)
    done(distdual("prepare", source, data, "--problem", "binary", "--shard-bytes", 80, cwd=tmp_path, env=env))
    text = CONFIG.format(data=data, model="model", data_storage="", model_storage="") + cluster
    (tmp_path / "run.toml").write_text(text)
    with CountingProxy(own_s3, kill_at=60) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        begin = time.monotonic()
        through = {**env, "AWS_ENDPOINT_URL": proxy.endpoint}
        ran = distdual("train", "run.toml", "--set", "data.retry_seconds=2", cwd=tmp_path, env=through, timeout=60)
        proxy.shutdown()
    assert proxy.left == 0
    assert_refused(ran, data, "the storage failed", "is the server up")
    assert time.monotonic() - begin < 45
    assert not (tmp_path / "model").exists()
    assert_no_secret(own_s3, tmp_path, ran)


def test_a_run_continues_on_appended_data_and_the_old_model_still_verifies(
    s3: S3Server, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verify reads each object once: two arrays per shard, and no appended shards."""
    monkeypatch.chdir(tmp_path)
    with proxy_of(s3) as proxy:
        url = s3.url("grows")
        data, options = f"{url}/data", proxy.storage_options
        (tmp_path / "s3.toml").write_text(storage(options))
        arguments = ["--problem", "binary", "--storage-options", "s3.toml"]
        assert call(capsys, "prepare", source, data, *arguments, "--shard-bytes", 2000).code == 0
        n_shards = open_dataset(Location(data, options)).n_shards

        def trained(name: str, **solver: Any) -> dict[str, Any]:
            config = {
                "data": {"url": data, "storage_options": options},
                "problem": {"kind": "binary"},
                "solver": solver,
                "output": {"url": f"{url}/{name}", "storage_options": options},
            }
            return dict(train(config).certificate)

        old = trained("old")
        assert call(capsys, "prepare", source, data, *arguments, "--append").code == 0
        proxy.take()
        found = verify(Location(f"{url}/old", options))
        chunks = [path for method, path in proxy.take() if "/data/" in path and re.search(r"/(x|y)/c/", path)]
        assert found.certified
        assert (found.n_shards, found.appended, found.target) == (n_shards, n_shards, old["target"])
        assert found.lower == pytest.approx(old["lower"], rel=1e-9)
        assert len(chunks) == len(set(chunks)) == found.gets == 2 * n_shards
        ran = call(capsys, "verify", f"{url}/old", "--storage-options", "s3.toml")
        assert ran.code == 0
        told = f"target {old['target']:.2e} (the model's own)\n"
        assert f"{told}  of the first {n_shards} shards; {n_shards} were appended later" in ran.out

        warm = trained("warm", start=f"{url}/old")
        cold = trained("cold")
        assert warm["certified"]
        assert warm["lower"] == pytest.approx(cold["lower"], rel=2e-3)
        assert warm["gets"] >= 2 * 2 * n_shards
        assert verify(Location(f"{url}/warm", options)).findings == ()


def wait_for_first_line(log: Path, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 30
    while not log.exists() or not log.read_text():
        assert process.poll() is None, "training ended before the server was killed"
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_model_that_cannot_be_saved_is_an_error(own_s3: S3Server, source: Path, tmp_path: Path) -> None:
    """The data is local; the server for the model dies between its first read and its last write."""
    env, model = credentials(own_s3), own_s3.url("model")
    done(distdual("prepare", source, "data", "--problem", "binary", "--shard-bytes", 2000, cwd=tmp_path, env=env))
    text = CONFIG.format(data="data", model=model, data_storage="", model_storage="")
    (tmp_path / "run.toml").write_text(text)
    slow = ["--set", "solver.gap=1e-300", "--set", "solver.max_passes=1000000", "--set", "solver.max_seconds=3"]
    command = [str(PROGRAMS / "distdual"), "train", "run.toml", *slow, "--set", "output.retry_seconds=2"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8"
    ) as process:
        try:
            wait_for_first_line(tmp_path / "run.jsonl", process)
            own_s3.kill()
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 2, err
    last = err.splitlines()[-1]
    assert last.startswith(f"distdual: {model}")
    assert "the storage failed" in last
    assert "Traceback" not in err
    assert_no_secret(own_s3, tmp_path, Ran(2, "", err))
