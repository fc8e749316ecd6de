"""The live page: an HTTP server in a thread that sends updates to every open page.

It serves the current page and a stream of server-sent events, each with the page's whole content. Content is rendered
only while a page is open, at most once a second and for at most a twentieth of the time. The server ends with the run;
open pages receive the final state and keep it.
"""

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from types import TracebackType
from typing import Any, NamedTuple

from distdual.errors import InputError
from distdual.kernels.compile_cache import NOTICE, on_compile
from distdual.report.log_reader import Line, condensed
from distdual.report.page import RunView, content, page, title
from distdual.report.price import Price
from distdual.report.round_log import Round
from distdual.report.run_log import About, as_line

HOST, PORT = "127.0.0.1", 8788
BETWEEN = 1.0  # least seconds between two renderings
PAUSE_FACTOR = 20  # the pause after a rendering is at least this many times as long
KEEP_ALIVE = 5.0  # seconds without an update before a keep-alive message
MOST_LINES = 2000  # lines to condense the run log to when it has twice as many
FAREWELL = 3.0  # seconds for open pages to receive the final state


class Drawn(NamedTuple):
    """A rendered state, as sent to pages."""

    version: int
    running: bool
    payload: str  # JSON: title and content


class Dashboard:
    """A log that serves a run as a live page, within the block `with Dashboard("8788") as dashboard`."""

    def __init__(self, address: str = str(PORT), price: Price | None = None) -> None:
        self.price = price
        self.lines: list[Line] = []
        self.about: About | None = None
        self.certificate: Mapping[str, Any] | None = None
        self.running, self.failure = True, ""
        self.doing = ""  # what keeps a running run from its rounds
        self.compiling = contextlib.ExitStack()
        self.news = threading.Condition()
        self.version = 0  # number of changes so far
        self.streams = 0  # open pages
        self.drawing = threading.Lock()
        self.drawn = Drawn(-1, False, "")
        self.cost = 0.0  # seconds that the last rendering took
        self.server = bind(address, self)

    @property
    def url(self) -> str:
        host, port = self.server.server_address[:2]
        host = str(host)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def __enter__(self) -> "Dashboard":
        threading.Thread(target=self.server.serve_forever, args=(0.1,), name="dashboard", daemon=True).start()
        self.compiling.enter_context(on_compile(self.show_compiling))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.compiling.close()
        with self.news:
            self.running = False
            if self.certificate is None:
                self.failure = sentence(error)
            self._changed()
            self.news.wait_for(lambda: self.streams == 0, FAREWELL)
        self.server.shutdown()
        self.server.server_close()

    def begin(self, about: About) -> None:
        with self.news:
            self.about = about
            self._changed()

    def write(self, line: Round) -> None:
        with self.news:
            self.lines.append(as_line(line))
            if len(self.lines) == 2 * MOST_LINES:  # bounds memory and rendering time of long runs
                self.lines = condensed(self.lines, MOST_LINES)
            self._changed()

    def end(self, certificate: Mapping[str, Any]) -> None:
        with self.news:
            self.certificate = certificate
            self._changed()

    def show_compiling(self, compiling: bool) -> None:
        with self.news:
            self.doing = NOTICE if compiling else ""
            self._changed()

    def _changed(self) -> None:
        self.version += 1
        self.news.notify_all()

    def run(self) -> tuple[int, RunView]:
        """The version and the current state."""
        with self.news:
            config = self.about.config if self.about else {}
            name = config["output"]["url"] if config else "starting"
            target = config["solver"]["gap"] if config else None
            dask = self.about.dask if self.about else None
            lines = list(self.lines)
            state = (self.certificate, target, self.running, self.failure)
            trained = self.about.trained if self.about else ""
            return self.version, RunView(lines, name, *state, dask, self.price, trained=trained, doing=self.doing)

    def draw(self) -> Drawn:
        """Render the current state, once for all open pages."""
        with self.drawing:
            version, run = self.run()
            if self.drawn.version != version:
                begin = time.perf_counter()
                payload = json.dumps({"title": title(run), "content": content(run)}, ensure_ascii=False)
                self.drawn, self.cost = Drawn(version, run.running, payload), time.perf_counter() - begin
            return self.drawn


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], family: socket.AddressFamily, dashboard: Dashboard) -> None:
        self.address_family = family
        self.dashboard = dashboard
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        """Skip HTTPServer's host name lookup, which may take seconds."""
        TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore closed connections."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 10  # seconds to wait for a client

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/":
            self._answer(page(self.server.dashboard.run()[1]).encode())
        elif path == "/events":
            self._stream()
        else:
            self.send_error(404)

    def _answer(self, body: bytes) -> None:
        self._head("text/html; charset=utf-8", {"Content-Length": str(len(body))})
        self.wfile.write(body)

    def _head(self, kind: str, more: Mapping[str, str]) -> None:
        self.send_response(200)
        for name, value in {"Content-Type": kind, "Cache-Control": "no-store", **more}.items():
            self.send_header(name, value)
        self.end_headers()

    def _stream(self) -> None:
        dashboard = self.server.dashboard
        self._head("text/event-stream", {})
        with dashboard.news:
            dashboard.streams += 1
        try:
            self._follow(dashboard)
        finally:
            with dashboard.news:
                dashboard.streams -= 1
                dashboard.news.notify_all()

    def _follow(self, dashboard: Dashboard) -> None:
        """Send the state after every change, until the final one is sent."""
        seen, running = -1, True
        while running:
            with dashboard.news:
                new = dashboard.news.wait_for(lambda: dashboard.version != seen, KEEP_ALIVE)  # noqa: B023
            if not new:
                self.wfile.write(b": still here\n\n")
                continue
            seen, running, payload = dashboard.draw()
            self.wfile.write(f"event: {'state' if running else 'end'}\ndata: {payload}\n\n".encode())
            self._pause(dashboard)

    @staticmethod
    def _pause(dashboard: Dashboard) -> None:
        """Wait until the next rendering is due or the run has ended."""
        with dashboard.news:
            dashboard.news.wait_for(lambda: not dashboard.running, max(BETWEEN, PAUSE_FACTOR * dashboard.cost))

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing, since the terminal shows the progress display."""


@contextlib.contextmanager
def show_live(address: str | None, say: Callable[[str], None], price: Price | None = None) -> Iterator[list[Dashboard]]:
    """Serve a dashboard within the block and print its URL; none without an address."""
    if address is None:
        yield []
        return
    with Dashboard(address, price) as dashboard:
        say(f"dashboard  {dashboard.url}")
        yield [dashboard]


def bind(address: str, dashboard: Dashboard) -> Server:
    host, port = host_and_port(address)
    try:
        family, _, _, _, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return Server((str(found[0]), int(found[1])), family, dashboard)
    except OSError as error:
        if isinstance(error, socket.gaierror):
            why = f"{host} is not an address of this machine"
        else:
            why = f"{host}:{port} cannot be used: {(error.strerror or str(error)).lower()}"
        raise InputError(f"--dashboard: {why}; choose another port, or 0 for any free one") from None


def host_and_port(address: str) -> tuple[str, int]:
    """Parse "8788", "0.0.0.0:8788" or "[::1]:8788"."""
    found = re.fullmatch(r"(?:(\[[\da-fA-F:.]+\]|[\w.-]+):)?(\d{1,5})", address, re.ASCII)
    if not found or int(found[2]) > 65535:
        raise InputError(
            f"--dashboard {address}: expected a port such as {PORT}, or HOST:PORT; "
            "without either, put the option after CONFIG.toml"
        )
    return (found[1] or HOST).strip("[]"), int(found[2])


def sentence(error: BaseException | None) -> str:
    """The reason why a run ended without a certificate."""
    if error is None:
        return "the run was aborted"
    return " ".join(str(error).split()) or type(error).__name__
