"""The memory of this machine, and the check of sizes that files claim before anything is allocated."""

import os
import resource
from functools import cache
from pathlib import Path

from distdual.errors import InputError

CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of version 2 and of 1
LARGEST_SHARE = 0.5  # of the memory that one thing read from a file may take: there are copies, and other things


@cache
def memory_limit() -> int:
    """Bytes that this process may use: those of the machine, or less if its container or its user is limited."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    limits += [soft] if soft != resource.RLIM_INFINITY else []
    for file in map(Path, CGROUPS):
        found = file.read_text().strip() if file.is_file() else ""
        limits += [int(found)] if found.isdigit() else []
    return min(limits)


def check_room(what: str, n_bytes: int) -> None:
    """Refuse something that would take most of the memory."""
    if n_bytes > LARGEST_SHARE * memory_limit():
        gib = n_bytes / 2**30
        raise InputError(f"{what} takes {gib:,.1f} GiB of memory; this machine has {memory_limit() / 2**30:,.1f} GiB")
