"""Train on a Dask cluster and print the certificate as JSON; the exit code is 1 if the gap is not proven.

python jobs/train.py tcp://host:8786 configs/s3.toml solver.C=0.1
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
    arguments.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    told = arguments.parse_args()
    with Client(told.scheduler, timeout=10) as client:
        result = distdual.train(load(told.config, told.settings), client)
    print(json.dumps(result.certificate))
    return 0 if result.certificate["certified"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (InputError, OSError) as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(2)
