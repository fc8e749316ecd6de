"""Recompute a model's certificate on a Dask cluster; the exit code is 1 if it does not hold.

python jobs/verify.py tcp://host:8786 s3://bucket/model
"""

from shared import arguments, client_of, end_with

import distdual


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("model")
    parser.add_argument("--data", help="the data set, if it has moved since the training")
    parser.add_argument("--problem", help="package.module:Class of your own problem")
    options = parser.parse_args()
    with client_of(options) as client:
        checked = distdual.verify(options.model, options.data, client, problem=options.problem)
    print(f"{checked.lower:.8g} ≤ P(w*) ≤ {checked.upper:.8g}, gap {checked.gap:.2e}", *checked.findings, sep="\n")
    return 0 if checked.certified else 1


if __name__ == "__main__":
    end_with(main)
