"""Command-line arguments, the cluster connection and error messages that the programs share."""

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NoReturn

from distdual.cluster.dask_client import connect
from distdual.config import TLS, ClusterConfig
from distdual.errors import InputError, Suspended


def arguments(text: str | None) -> argparse.ArgumentParser:
    """A parser with the scheduler's address and the TLS options."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scheduler", help="such as tcp://host:8786")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds to wait for scheduler and first worker")
    for name in TLS:
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="FILE", help="PEM file, for tls:// addresses")
    return parser


def client_of(options: argparse.Namespace) -> AbstractContextManager[Any]:
    """A Dask client of the cluster given by the arguments."""
    return connect(ClusterConfig(**{name: getattr(options, name) for name in ("scheduler", "timeout", *TLS)}))


def end_with(main: Callable[[], int]) -> NoReturn:
    """Run `main` and exit: 0 done, 1 not certified, 2 bad input, with errors in one line."""
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")  # errors are printed below
    try:
        sys.exit(main())
    except Suspended as error:
        sys.exit(refusal(error, 1))
    except (InputError, OSError) as error:
        sys.exit(refusal(error, 2))


def refusal(error: Exception, code: int) -> int:
    print(f"{sys.argv[0]}: {' '.join(str(error).split())}", file=sys.stderr)
    return code
