"""Zarr stores on local folders and on fsspec file systems; missing chunks are errors."""

from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, WrapperStore

from distdual.data.storage.location import Location, check_regular


class MissingChunkError(Exception):
    """A missing chunk, which Zarr would read as fill values."""


class StrictStore(WrapperStore[Store]):
    """A Zarr store that raises an error for missing chunks instead of filling them."""

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        if isinstance(self._store, LocalStore):
            check_regular(self._store.root / key)
        found = await super().get(key, prototype, byte_range)
        if found is None and ("/c/" in key or "/c." in key):
            raise MissingChunkError(key)
        return found


def zarr_store(location: Location, *, read_only: bool) -> Store:
    if not location.remote:
        _, path = location.filesystem()
        return LocalStore(path, read_only=read_only)
    fs, path = location.filesystem(asynchronous=True)
    if not fs.async_impl:
        fs = AsyncFileSystemWrapper(fs, asynchronous=True)
    if hasattr(fs, "set_session"):
        location.opened(lambda: sync(fs.set_session()))
    return FsspecStore(fs, path=path, read_only=read_only)
