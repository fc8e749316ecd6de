"""Predict a data set on a Dask cluster, and print the score where its labels are known.

python jobs/predict.py tcp://host:8786 s3://bucket/model s3://bucket/test s3://bucket/labels.npy
"""

import argparse
import sys

from distributed import Client

from distdual.data.location import Location
from distdual.errors import InputError
from distdual.prediction import check_output, predict, save_predictions


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("scheduler")
    arguments.add_argument("model")
    arguments.add_argument("data")
    arguments.add_argument("out", help="a .txt or a .npy file")
    arguments.add_argument("--problem", help="package.module:Class of your own problem")
    told = arguments.parse_args()
    check_output(told.out)
    with Client(told.scheduler, timeout=10) as client:
        found = predict(told.model, told.data, client, problem=told.problem)
    save_predictions(found.labels, Location(told.out), found.lengths)
    print(f"{len(found.labels)} predictions in {told.out}", *(found.score or {}).items(), sep="\n")


if __name__ == "__main__":
    try:
        main()
    except (InputError, OSError) as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(2)
