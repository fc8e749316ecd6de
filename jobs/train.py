"""Train on a Dask cluster and print the certificate as JSON; the exit code is 1 if the gap is not proven.

python jobs/train.py tcp://host:8786 configs/s3.toml solver.C=0.1

SIGTERM writes a checkpoint, and --resume goes on from the last one. `distdual submit` leaves the coordinator to the
cluster as well.
"""

import json

from shared import arguments, client_of, end_with

import distdual
from distdual.config import load
from distdual.interrupt import on_terminate


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("config")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--resume", action="store_true")
    told = parser.parse_intermixed_args()
    config = load(told.config, told.settings)
    with client_of(told) as client, on_terminate() as terminated:
        result = distdual.train(config, client, resume=told.resume, terminated=terminated)
    print(json.dumps(result.certificate))
    return 0 if result.certificate["certified"] else 1


if __name__ == "__main__":
    end_with(main)
