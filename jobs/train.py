"""Train on a Dask cluster and print the certificate as JSON; the exit code is 1 if the gap is not proven.

python jobs/train.py tcp://host:8786 configs/s3.toml solver.C=0.1

SIGTERM writes a checkpoint, and --resume continues from the last one. `distdual submit` also runs the coordinator on
the cluster.
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
    options = parser.parse_intermixed_args()
    config = load(options.config, options.settings)
    with client_of(options) as client, on_terminate() as terminated:
        result = distdual.train(config, client, resume=options.resume, terminated=terminated)
    print(json.dumps(result.certificate))
    return 0 if result.certificate["certified"] else 1


if __name__ == "__main__":
    end_with(main)
