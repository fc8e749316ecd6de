"""Train on a Dask cluster and print the certificate as JSON; the exit code is 1 if the gap is not proven.

python jobs/train.py tcp://host:8786 configs/s3.toml solver.C=0.1

SIGTERM writes a checkpoint, and --resume goes on from the last one.
"""

import argparse
import json
import sys

from distributed import Client

import distdual
from distdual.config import load
from distdual.errors import InputError, Suspended
from distdual.interrupt import on_terminate


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("scheduler")
    arguments.add_argument("config")
    arguments.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    arguments.add_argument("--resume", action="store_true")
    told = arguments.parse_args()
    with Client(told.scheduler, timeout=10) as client, on_terminate() as terminated:
        config = load(told.config, told.settings)
        result = distdual.train(config, client, resume=told.resume, terminated=terminated)
    print(json.dumps(result.certificate))
    return 0 if result.certificate["certified"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Suspended as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(1)
    except (InputError, OSError) as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(2)
