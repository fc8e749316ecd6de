"""Find the best C on a Dask cluster and print the path as JSON; the exit code is 1 if a gap is not proven.

python jobs/sweep.py tcp://host:8786 configs/s3.toml 1e-3:1e2:20 --folds 5 solver.gap=0.01
"""

import argparse
import json
import sys

from distributed import Client

import distdual
from distdual.config import load
from distdual.errors import InputError


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("scheduler")
    arguments.add_argument("config")
    arguments.add_argument("C", help="from:to:how many, or values with commas between them")
    arguments.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    arguments.add_argument("--folds", type=int, default=5)
    arguments.add_argument("--score", help="the score to choose by; the problem's first if not given")
    told = arguments.parse_intermixed_args()
    with Client(told.scheduler, timeout=10) as client:
        found = distdual.sweep(load(told.config, told.settings), told.C, told.folds, client, score=told.score)
    print(json.dumps(found.table()))
    return 0 if found.certified else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (InputError, OSError) as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(2)
