"""The Dask plugin that puts a user's code on the path of each worker, also of those that join later."""

import importlib
import sys
from pathlib import Path
from typing import Any

from distributed import WorkerPlugin


class UserCode(WorkerPlugin):
    """Puts the files on a worker's path, and forgets modules of the same names that it has loaded."""

    def __init__(self, code: dict[str, bytes], digest: str) -> None:
        self.code = code
        self.digest = digest
        self.tops = sorted({name.partition("/")[0].removesuffix(".py") for name in code})
        self.name = f"distdual-code-{self.tops[0]}"

    def setup(self, worker: Any) -> None:
        folder = Path(worker.local_directory) / f"distdual-code-{self.digest}"
        for name, content in self.code.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        sys.path.insert(0, str(folder))
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None) or ""
            if name.partition(".")[0] in self.tops and not Path(file).is_relative_to(folder):
                del sys.modules[name]
        importlib.invalidate_caches()
