"""A proxy before a TCP server that passes on what the server sends at a limited rate, of all connections together.

    python -m benchmarks.throttle PORT MEGABYTES_PER_SECOND

Listens on a port of its own, which it prints, and forwards connections to PORT of this machine.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator

PIECE = 1 << 16
BURST = 0.05  # seconds of the rate that may be made up for, as timers are late


class Rate:
    """Says how long each piece has to wait, so that all pieces together keep to the rate."""

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self.free = 0.0  # when the line is free again

    def wait(self, n_bytes: int, now: float) -> float:
        self.free = max(self.free, now - BURST) + n_bytes / self.bytes_per_second
        return max(0.0, self.free - now)


async def forward(source: asyncio.StreamReader, target: asyncio.StreamWriter, rate: Rate | None = None) -> None:
    with contextlib.suppress(ConnectionError):
        while piece := await source.read(PIECE):
            if rate:
                await asyncio.sleep(rate.wait(len(piece), asyncio.get_running_loop().time()))
            target.write(piece)
            await target.drain()
    target.close()


async def serve(behind: int, rate: Rate) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", behind)
        await asyncio.gather(forward(reader, requests), forward(answers, writer, rate))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def throttled(port: int, megabytes_per_second: float) -> Iterator[int]:
    """The port of a proxy before this port, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.throttle", str(port), str(megabytes_per_second)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Rate(1e6 * float(sys.argv[2]))))
