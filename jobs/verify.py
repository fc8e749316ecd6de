"""Recompute a model's certificate on a Dask cluster; the exit code is 1 if it does not hold.

python jobs/verify.py tcp://host:8786 s3://bucket/model
"""

import argparse
import sys

from distributed import Client

import distdual
from distdual.errors import InputError


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("scheduler")
    arguments.add_argument("model")
    arguments.add_argument("--data", help="the data set, if it is no longer where the model was trained")
    arguments.add_argument("--problem", help="package.module:Class of your own problem")
    told = arguments.parse_args()
    with Client(told.scheduler, timeout=10) as client:
        checked = distdual.verify(told.model, told.data, client, problem=told.problem)
    print(f"{checked.lower:.8g} ≤ P(w*) ≤ {checked.upper:.8g}, gap {checked.gap:.2e}", *checked.findings, sep="\n")
    return 0 if checked.certified else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (InputError, OSError) as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(2)
