"""One BLAS thread at a time: how OpenBLAS divides a product among threads shows in the last bits of some routines.

Scans use all cores anyway, a thread for each shard. Hold the limit for a whole run: each time it ends, the next product
outside wakes threads of BLAS, which then keep a core busy while they wait for more.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_inside = 0
_limits: Any = None


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS while any thread of this process is inside; the limit is global to the process."""
    global _inside, _limits  # noqa: PLW0603 - the limit itself is global
    with _lock:
        _inside += 1
        if _inside == 1:
            _limits = ThreadpoolController().limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _limits.restore_original_limits()
