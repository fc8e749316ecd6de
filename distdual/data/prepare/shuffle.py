"""External shuffle: random order for more examples than fit in memory.

Each example goes to a random one of 64 buckets on disk; then each bucket is shuffled by itself, in memory if it fits,
else in the same way. Every order of the examples is equally likely.
"""

import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from distdual.data.shard import Block, Runs, join_blocks, run_arrays
from distdual.data.sources.open_file import BLOCK_BYTES
from distdual.data.storage.npy_io import load_npy
from distdual.errors import InputError
from distdual.kernels.rows import CsrRows, DenseRows, Features

BUCKETS = 64
BUDGET_BYTES = 128 << 20


def shuffle(blocks: Iterable[Block], seed: int, budget_bytes: int = BUDGET_BYTES) -> Iterator[Block]:
    """All examples of `blocks` in an order that depends on `seed` (and on the budget) only, a block at a time."""
    with Shuffler(np.random.SeedSequence(seed), budget_bytes) as shuffler:
        for block in blocks:
            shuffler.add(block)
        yield from shuffler.drain()


class Shuffler:
    """Takes blocks and returns them in random order; memory stays near twice the budget.

    Use as a context manager: the files it makes, in the folder for temporary files (TMPDIR), have no name there and
    disappear when it is left, or when the process ends.
    """

    def __init__(self, seed: np.random.SeedSequence, budget_bytes: int = BUDGET_BYTES) -> None:
        self.seed = seed
        self.random = np.random.default_rng(seed)
        self.budget_bytes = budget_bytes
        self.held: list[Block] = []
        self.held_bytes = 0
        self.n_held = 0
        self.buckets: dict[int, IO[bytes]] = {}
        self.files = contextlib.ExitStack()

    def __enter__(self) -> "Shuffler":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with contextlib.suppress(OSError):  # of a full disk, which `disk_errors` has told
            self.files.close()

    def add(self, block: Block) -> None:
        if not block.n_examples:
            return
        self.held.append(block)
        self.held_bytes += block_bytes(block)
        self.n_held += block.n_examples
        if self.held_bytes > self.budget_bytes and self.n_held > 1:
            self._spill()

    def drain(self) -> Iterator[Block]:
        """Yield all blocks; call once, after the last `add`."""
        if not self.buckets:
            yield from self._from_memory()
            return
        self._spill()
        for k in sorted(self.buckets):
            seed = np.random.SeedSequence(self.seed.entropy, spawn_key=(*self.seed.spawn_key, k))
            with Shuffler(seed, self.budget_bytes) as bucket:
                for block in read_blocks(self.buckets[k]):
                    bucket.add(block)
                self.buckets[k].close()  # frees the disk as early as possible
                yield from bucket.drain()

    def _from_memory(self) -> Iterator[Block]:
        if not self.held:
            return
        size, block = self.held_bytes, self._join()
        order = self.random.permutation(block.n_examples)
        for part in np.array_split(order, min(len(order), -(-size // BLOCK_BYTES))):
            yield block.take(part)

    def _spill(self) -> None:
        if not self.held:
            return
        block = self._join()
        bucket = (self.random.random(block.n_examples) * BUCKETS).astype(np.int64)
        ends = np.cumsum(np.bincount(bucket, minlength=BUCKETS))
        order = np.argsort(bucket, kind="stable")
        with disk_errors():
            for k, part in enumerate(np.split(order, ends[:-1])):
                if len(part):
                    write_block(self._bucket(k), block.take(part))

    def _bucket(self, k: int) -> IO[bytes]:
        if k not in self.buckets:
            self.buckets[k] = self.files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        return self.buckets[k]

    def _join(self) -> Block:
        block = join_blocks(self.held)
        self.held, self.held_bytes, self.n_held = [], 0, 0
        return block


def block_bytes(block: Block) -> int:
    parts = [*block.x, block.y, block.cost, block.margin, block.tokens, *run_arrays(block.runs).values()]
    return sum(part.nbytes for part in parts if part is not None)


def write_block(file: IO[bytes], block: Block) -> None:
    """Append the arrays of a block, after a line that says which there are."""
    columns = (block.cost, block.margin, block.tokens)
    has = [isinstance(block.x, CsrRows), *(column is not None for column in columns)]
    runs = [np.array(list(block.runs or {}), dtype=np.str_), *run_arrays(block.runs).values()]
    parts: list[NDArray[Any] | None] = [np.array(has), *block.x, block.y, *columns, *runs]
    for part in parts:
        if part is not None:
            np.save(file, part, allow_pickle=False)


def read_blocks(file: IO[bytes]) -> Iterator[Block]:
    """The blocks that `write_block` appended."""
    end = file.tell()
    with disk_errors():
        file.seek(0)  # after writing what is still in memory
    while file.tell() < end:
        sparse, *has = load_npy(file)
        x: Features = CsrRows(load_npy(file), load_npy(file), load_npy(file)) if sparse else DenseRows(load_npy(file))
        y = load_npy(file)
        cost, margin, tokens = (load_npy(file) if there else None for there in has)
        runs = {name: Runs(load_npy(file), load_npy(file)) for name in load_npy(file).tolist()}
        yield Block(x, y, cost, margin, tokens, runs or None)


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = tempfile.gettempdir()
        raise InputError(
            f"{where}: cannot keep a shuffle there ({error.strerror or error}); set TMPDIR to a larger disk"
        ) from None
