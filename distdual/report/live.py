"""Who shows a run while it goes on? An HTTP server in a thread, which tells every open page what is new.

It serves two things: the page as it now is, and a stream of server-sent events, each the page's whole content drawn
anew. A page is drawn only while somebody looks, at most once a second, and never for more than a twentieth of the time.
The server ends with the run; pages that are open then have got the last state and keep it.
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
from distdual.report.log_reader import Line, condensed
from distdual.report.page import Run, content, page, title
from distdual.report.round_log import Round
from distdual.report.run_log import About, as_line

HOST, PORT = "127.0.0.1", 8788
BETWEEN = 1.0  # seconds between two drawings, at least
SHARE = 20  # a drawing is followed by a pause of this many times its own length
KEEP_ALIVE = 5.0  # seconds of silence after which a stream says that it is still there
MOST_LINES = 2000  # of the run log that are kept for the page, or up to twice as many
FAREWELL = 3.0  # seconds in which open pages may take the last state


class Drawn(NamedTuple):
    """A state as pages are told of it."""

    version: int
    running: bool
    told: str  # JSON: title and content


class Dashboard:
    """A log of a run, shown as a page. `with Dashboard("8788") as dashboard` serves it within the block."""

    def __init__(self, address: str = str(PORT)) -> None:
        self.lines: list[Line] = []
        self.about: About | None = None
        self.certificate: Mapping[str, Any] | None = None
        self.running, self.failure = True, ""
        self.news = threading.Condition()
        self.version = 0  # of what there is to show
        self.streams = 0  # pages that are open
        self.drawing = threading.Lock()
        self.drawn = Drawn(-1, False, "")
        self.cost = 0.0  # seconds that the last drawing took
        self.server = bind(address, self)

    @property
    def url(self) -> str:
        host, port = self.server.server_address[:2]
        host = str(host)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def __enter__(self) -> "Dashboard":
        threading.Thread(target=self.server.serve_forever, args=(0.1,), name="dashboard", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            if len(self.lines) == 2 * MOST_LINES:  # a run of days must neither fill the memory nor slow down its page
                self.lines = condensed(self.lines, MOST_LINES)
            self._changed()

    def end(self, certificate: Mapping[str, Any]) -> None:
        with self.news:
            self.certificate = certificate
            self._changed()

    def _changed(self) -> None:
        self.version += 1
        self.news.notify_all()

    def run(self) -> tuple[int, Run]:
        """What there is to show, and its version."""
        with self.news:
            config = self.about.config if self.about else {}
            name = config["output"]["url"] if config else "starting"
            target = config["solver"]["gap"] if config else None
            dask = self.about.dask if self.about else None
            lines = list(self.lines)
            return self.version, Run(lines, name, self.certificate, target, self.running, self.failure, dask)

    def draw(self) -> Drawn:
        """The state, drawn once for all who look."""
        with self.drawing:
            version, run = self.run()
            if self.drawn.version != version:
                begin = time.perf_counter()
                told = json.dumps({"title": title(run), "content": content(run)}, ensure_ascii=False)
                self.drawn, self.cost = Drawn(version, run.running, told), time.perf_counter() - begin
            return self.drawn


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, place: tuple[str, int], family: socket.AddressFamily, dashboard: Dashboard) -> None:
        self.address_family = family
        self.dashboard = dashboard
        super().__init__(place, Handler)

    def server_bind(self) -> None:
        """Without the name of the host, which may take seconds to find out and which nobody asks for."""
        TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that was closed is nobody's trouble."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 10  # seconds that a client may keep us waiting

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
        """The state whenever it is another, until the run has ended and the page knows."""
        seen, running = -1, True
        while running:
            with dashboard.news:
                new = dashboard.news.wait_for(lambda: dashboard.version != seen, KEEP_ALIVE)  # noqa: B023
            if not new:
                self.wfile.write(b": still here\n\n")
                continue
            seen, running, told = dashboard.draw()
            self.wfile.write(f"event: {'state' if running else 'end'}\ndata: {told}\n\n".encode())
            self._pause(dashboard)

    @staticmethod
    def _pause(dashboard: Dashboard) -> None:
        """Until it is time to draw again, or the run has ended."""
        with dashboard.news:
            dashboard.news.wait_for(lambda: not dashboard.running, max(BETWEEN, SHARE * dashboard.cost))

    def log_message(self, format: str, *arguments: Any) -> None:
        """The terminal belongs to the training."""


@contextlib.contextmanager
def show_live(address: str | None, say: Callable[[str], None]) -> Iterator[list[Dashboard]]:
    """A dashboard within the block, and where it is told; none without an address."""
    if address is None:
        yield []
        return
    with Dashboard(address) as dashboard:
        say(f"dashboard  {dashboard.url}")
        yield [dashboard]


def bind(address: str, dashboard: Dashboard) -> Server:
    host, port = host_and_port(address)
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return Server((str(place[0]), int(place[1])), family, dashboard)
    except OSError as error:
        if isinstance(error, socket.gaierror):
            why = f"{host} is no address of this machine"
        else:
            why = f"{host}:{port} cannot be used: {(error.strerror or str(error)).lower()}"
        raise InputError(f"--dashboard: {why}; name another port, or 0 for any that is free") from None


def host_and_port(address: str) -> tuple[str, int]:
    """From "8788", "0.0.0.0:8788" or "[::1]:8788"."""
    found = re.fullmatch(r"(?:(\[[\da-fA-F:.]+\]|[\w.-]+):)?(\d{1,5})", address, re.ASCII)
    if not found or int(found[2]) > 65535:
        raise InputError(
            f"--dashboard {address}: expected a port such as {PORT}, or HOST:PORT; "
            "without either, write the option after CONFIG.toml"
        )
    return (found[1] or HOST).strip("[]"), int(found[2])


def sentence(error: BaseException | None) -> str:
    """Why a run has ended before its time."""
    if error is None:
        return "it was given up"
    return " ".join(str(error).split()) or type(error).__name__
