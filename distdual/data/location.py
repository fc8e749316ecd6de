"""Where is a folder, local or remote, and how are its files read and written?"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import fsspec
from fsspec.utils import get_protocol

from distdual.errors import InputError


@dataclass(frozen=True, slots=True)
class Location:
    """A folder and how to reach it. Its text form never shows `storage_options`."""

    url: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", self.url.rstrip("/") or "/")
        if self.remote and "@" in urlsplit(self.url).netloc:
            raise InputError(
                f"{self.url.rpartition('@')[2]}: the URL holds credentials; "
                "give them in storage_options or in the environment instead"
            )

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> "Location":
        return Location(f"{self.url}/{name}", self.storage_options)

    @property
    def remote(self) -> bool:
        return str(get_protocol(self.url)) not in ("file", "local")

    def filesystem(self) -> tuple[Any, str]:
        """The fsspec file system and this folder's path on it."""
        try:
            fs, path = fsspec.core.url_to_fs(self.url, **self.storage_options)
        except (ValueError, ImportError, TypeError) as error:
            raise InputError(f"{self.url}: cannot be opened: {error}") from None
        return fs, path

    def read(self, name: str) -> bytes:
        fs, path = self.filesystem()
        with clear_errors(f"{self.url}/{name}"):
            return bytes(fs.cat_file(f"{path}/{name}"))

    def write(self, name: str, content: bytes) -> None:
        """Write one file; readers see all of it or nothing."""
        fs, path = self.filesystem()
        target = f"{path}/{name}"
        with clear_errors(f"{self.url}/{name}"):
            if self.remote:
                fs.pipe_file(target, content)
                return
            os.makedirs(os.path.dirname(target), exist_ok=True)
            partial = f"{target}.partial"
            with open(partial, "wb") as file:
                file.write(content)
            os.replace(partial, target)

    def exists(self, name: str) -> bool:
        fs, path = self.filesystem()
        with clear_errors(f"{self.url}/{name}"):
            fs.invalidate_cache()
            return bool(fs.exists(f"{path}/{name}"))

    def is_empty(self) -> bool:
        """True if nothing is there: no folder, or a folder without files."""
        fs, path = self.filesystem()
        with clear_errors(self.url):
            fs.invalidate_cache()
            try:
                return not fs.ls(path, detail=False)
            except FileNotFoundError:
                self._check_bucket(fs, path)
                return True
            except NotADirectoryError:
                return False

    def remove(self) -> None:
        """Delete the folder and all that is in it; it need not exist."""
        fs, path = self.filesystem()
        with clear_errors(self.url), contextlib.suppress(FileNotFoundError):
            fs.rm(path, recursive=True)

    def remove_file(self, name: str) -> None:
        fs, path = self.filesystem()
        with clear_errors(f"{self.url}/{name}"), contextlib.suppress(FileNotFoundError):
            fs.rm_file(f"{path}/{name}")

    def _check_bucket(self, fs: Any, path: str) -> None:
        """An object store has no folders to miss, but it does have buckets."""
        bucket = path.strip("/").split("/")[0]
        if self.remote and get_protocol(self.url) in ("s3", "s3a") and not fs.exists(bucket):
            raise InputError(f"{self.url}: there is no bucket {bucket!r}, or it is not yours to see")


@contextlib.contextmanager
def clear_errors(name: str) -> Iterator[None]:
    """Turn what a file system raises into one sentence about `name`, without anything secret in it."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{name}: not found") from None
    except PermissionError:
        raise InputError(f"{name}: no permission; check the credentials and the access rights") from None
    except (IsADirectoryError, NotADirectoryError):
        raise InputError(f"{name}: a file stands where a folder is expected, or the other way round") from None
    except Exception as error:
        if not _is_storage_failure(error):
            raise
        raise StorageError(f"{name}: the storage failed ({type(error).__name__}); is the server up?") from None


class StorageError(InputError):
    """The storage did not do what was asked; the same request may succeed later."""


def _is_storage_failure(error: Exception) -> bool:
    """What fsspec, aiobotocore and aiohttp raise when a server refuses, hangs or is gone."""
    home = type(error).__module__.partition(".")[0]
    return isinstance(error, OSError | TimeoutError) or home in ("botocore", "aiobotocore", "aiohttp")
