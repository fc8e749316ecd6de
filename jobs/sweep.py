"""Find the best C on a Dask cluster and print the path as JSON; the exit code is 1 if a gap is not proven.

python jobs/sweep.py tcp://host:8786 configs/s3.toml 1e-3:1e2:20 --folds 5 solver.gap=0.01
"""

import json

from shared import arguments, client_of, end_with

import distdual
from distdual.config import load


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("config")
    parser.add_argument("C", help="from:to:count, or comma-separated values")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--score", help="the score to choose by; default: the problem's first")
    options = parser.parse_intermixed_args()
    config = load(options.config, options.settings)
    with client_of(options) as client:
        found = distdual.sweep(config, options.C, options.folds, client, score=options.score)
    print(json.dumps(found.table()))
    return 0 if found.certified else 1


if __name__ == "__main__":
    end_with(main)
