"""The live page shows the current state of a run, ends with it and never disturbs it."""

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError, Suspended
from distdual.kernels.compile_cache import NOTICE, watch
from distdual.report.live import MOST_LINES, Dashboard, host_and_port
from distdual.report.log_reader import staleness
from distdual.report.round_log import Round
from distdual.report.run_log import About
from tests.build import examples
from tests.report.sample import asynchronous, round_of
from tests.s3_server import free_ports
from tests.shell import assert_refused, call

ABOUT = About({"output": {"url": "runs/model"}, "solver": {"gap": 1e-3}}, 100, 4, "http://127.0.0.1:8787/status")
CERTIFICATE = {"lower": 99.0, "upper": 101.0, "gap": 0.02, "target": 0.1, "certified": True, "reason": "gap"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live")
    made = examples(1, 2000, 6)
    prepare_arrays(made.x, made.y, str(folder / "data"), "binary", shard_bytes=20_000)
    return folder / "data"


def table(data: Path, folder: Path, **solver: Any) -> dict[str, Any]:
    """A config without a run log."""
    output = {"url": str(folder / "model")}
    return {"data": {"url": str(data)}, "problem": {"kind": "binary"}, "solver": solver, "output": output}


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def stream(url: str, received: list[tuple[str, dict[str, str]]]) -> None:
    """Collect all events until the server ends the stream."""
    with urllib.request.urlopen(f"{url}events", timeout=20) as answer:
        name = ""
        for raw in answer:
            word, _, rest = raw.decode().rstrip("\n").partition(": ")
            if word == "event":
                name = rest
            elif word == "data":
                received.append((name, json.loads(rest)))


def wait_until(what: Any, limit: float = 10.0) -> None:
    end = time.monotonic() + limit
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_run_without_a_log_file_is_shown_live(data: Path, tmp_path: Path) -> None:
    pages: list[str] = []
    with Dashboard("0") as dashboard:

        def watch(line: Round) -> None:
            if line.certify and not pages:
                pages.append(get(dashboard.url))

        result = distdual.train(table(data, tmp_path, gap=1e-5), watch=watch, logs=[dashboard])
        pages.append(get(dashboard.url))
        assert len(dashboard.lines) == len(result.history)
    assert ">running<" in pages[0]
    assert "Bounds closing over passes" in pages[0]
    assert str(tmp_path / "model") in pages[0]
    assert ">certified<" in pages[1]
    with pytest.raises(OSError, match="refused"):
        get(dashboard.url)


def test_a_page_receives_updates_and_the_final_state() -> None:
    received: list[tuple[str, dict[str, str]]] = []
    lines = asynchronous()
    with Dashboard("0") as dashboard:
        reader = threading.Thread(target=stream, args=(dashboard.url, received))
        reader.start()
        wait_until(lambda: len(received) == 1)
        assert "No round has ended yet" in received[0][1]["content"]
        dashboard.begin(ABOUT)
        for each in lines:
            dashboard.write(round_of(each))
        wait_until(lambda: len(received) == 2)
        dashboard.end(CERTIFICATE)
    reader.join(10)
    assert not reader.is_alive()
    assert [name for name, _ in received] == ["state"] * (len(received) - 1) + ["end"]
    assert 'href="http://127.0.0.1:8787/status"' in received[1][1]["content"]
    assert received[1][1]["title"].startswith("gap 1.6e-03")
    assert ">certified<" in received[-1][1]["content"]
    assert "is gone; its 2 scans run elsewhere" in received[-1][1]["content"]


def test_the_page_says_that_kernels_are_being_compiled() -> None:
    with Dashboard("0") as dashboard:
        watch.tell(True)
        assert f">{NOTICE}<" in get(dashboard.url)
        watch.tell(False)
        assert ">running<" in get(dashboard.url)
    watch.tell(True)
    assert NOTICE not in dashboard.draw().payload


def test_a_page_that_does_not_read_delays_nothing() -> None:
    with Dashboard("0") as dashboard:
        silent = socket.create_connection(dashboard.server.server_address[:2])
        silent.sendall(b"GET /events HTTP/1.0\r\n\r\n")
        wait_until(lambda: dashboard.streams == 1)
        dashboard.write(round_of(asynchronous()[0]))
        begin = time.monotonic()
    assert time.monotonic() - begin < 8
    silent.close()


def test_a_long_run_does_not_fill_the_memory() -> None:
    with Dashboard("0") as dashboard:
        line = round_of(asynchronous()[0])
        for _ in range(4 * MOST_LINES):
            dashboard.write(line)
        assert len(dashboard.lines) < 2 * MOST_LINES
        assert staleness(dashboard.lines) == [4 * MOST_LINES * n for n in line.staleness]


def test_a_failed_run_shows_its_reason(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="margin"), Dashboard("0") as dashboard:
        raise InputError("no margin\nis left")
    assert dashboard.failure == "no margin is left"
    assert not dashboard.running


def test_other_paths_are_not_served() -> None:
    with Dashboard("0") as dashboard:
        assert get(f"{dashboard.url}?x=1").startswith("<!doctype html>")
        for path in ("favicon.ico", "../config.toml", "events/x"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                get(dashboard.url + path)
        request = urllib.request.Request(dashboard.url, b"x=1")
        with pytest.raises(urllib.error.HTTPError, match="501"):
            urllib.request.urlopen(request, timeout=10)


def test_a_resumed_run_shows_its_earlier_rounds(data: Path, tmp_path: Path) -> None:
    config = table(data, tmp_path, gap=1e-5)
    config["output"]["checkpoint_every"] = 1e-9
    rounds: list[Round] = []
    with pytest.raises(Suspended):
        distdual.train(config, watch=rounds.append, terminated=lambda: len(rounds) >= 3)
    later: list[Round] = []
    with Dashboard("0") as dashboard:
        distdual.train(config, watch=later.append, resume=True, logs=[dashboard])
        assert len(dashboard.lines) == len(rounds) + len(later)
        assert dashboard.lines[0]["seconds"] == rounds[0].seconds


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def config_file(data: Path, folder: Path) -> Path:
    file = folder / "run.toml"
    file.write_text(
        f'[data]\nurl = "{data}"\n[problem]\nkind = "binary"\n[output]\nurl = "{folder / "model"}"\n', encoding="utf-8"
    )
    return file


def test_the_command_prints_the_url(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_ports("dashboard")["dashboard"]
    ran = call(capsys, "train", config_file(data, tmp_path), "--dashboard", port)
    assert ran.code == 0, ran
    assert ran.err.startswith(f"dashboard  http://127.0.0.1:{port}/\n")


def test_the_command_refuses_unusable_addresses(
    data: Path, tmp_path: Path, busy_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_file(data, tmp_path)
    ran = call(capsys, "train", config, "--dashboard", busy_port)
    assert_refused(ran, f"--dashboard: 127.0.0.1:{busy_port} cannot be used: address already in use", "another port")
    assert_refused(call(capsys, "train", config, "--dashboard", "70000"), "--dashboard 70000: expected a port")
    assert_refused(call(capsys, "train", "--dashboard", config), f"--dashboard {config}", "after CONFIG.toml")
    assert_refused(
        call(capsys, "train", config, "--dashboard", "no-such-host.invalid:1"), "no-such-host.invalid is not"
    )
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("8788", ("127.0.0.1", 8788)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("[::1]:8788", ("::1", 8788)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_an_address_may_name_a_host(address: str, found: tuple[str, int]) -> None:
    assert host_and_port(address) == found


@pytest.mark.parametrize("address", ["", "port", "::1:80", "1:2:3", "-1", "a b:1", "٣"])
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="expected a port"):
        host_and_port(address)
