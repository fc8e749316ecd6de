"""A proxy that records requests to a real S3 server and makes some of them fail."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.s3_server import S3Server

HOP = {"connection", "transfer-encoding", "content-length", "date", "server"}  # hop-by-hop headers
SLOW_DOWN = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please slow down</Message></Error>"


class S3Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, server: S3Server) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behind = server
        self.seen: list[tuple[str, str]] = []  # method and path
        self.refuse = 0  # number of GETs to answer with 503
        self.lie = 0  # number of GETs of chunks to answer with a byte changed …
        self.cut = 0  # … and with half of the content, as if that were all
        self.delay = 0.0  # seconds before each answer

    @property
    def storage_options(self) -> dict[str, Any]:
        return {
            **self.behind.storage_options,
            "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{self.server_port}"},
        }

    def take(self) -> list[tuple[str, str]]:
        """The requests since the last call."""
        seen, self.seen = self.seen, []
        return seen


class Handler(BaseHTTPRequestHandler):
    server: S3Proxy
    protocol_version = "HTTP/1.1"

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.command, self.path.partition("?")[0]))
        if self.command == "GET" and self.server.refuse > 0:
            self.server.refuse -= 1
            self.answer(503, {}, SLOW_DOWN)
            return
        time.sleep(self.server.delay)
        behind = HTTPConnection("127.0.0.1", self.server.behind.ports["s3"], timeout=30)
        behind.request(self.command, self.path, body, dict(self.headers.items()))
        found = behind.getresponse()
        self.answer(found.status, dict(found.getheaders()), self.distorted(found.read()))
        behind.close()

    def distorted(self, content: bytes) -> bytes:
        if self.command == "GET" and "/c/" in self.path and self.server.lie > 0:
            self.server.lie -= 1
            return content[:3] + bytes([content[3] ^ 1]) + content[4:]
        if self.command == "GET" and "/c/" in self.path and self.server.cut > 0:
            self.server.cut -= 1
            return content[: len(content) // 2]
        return content

    def answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def proxy_of(server: S3Server) -> Iterator[S3Proxy]:
    with S3Proxy(server) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
