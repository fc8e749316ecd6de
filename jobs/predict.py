"""Predict a data set on a Dask cluster, and print the score where its labels are known.

python jobs/predict.py tcp://host:8786 s3://bucket/model s3://bucket/test s3://bucket/labels.npy
"""

from shared import arguments, client_of, end_with

from distdual.data.storage.location import Location
from distdual.model.predict import check_output, predict, save_predictions


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("out", help="a .txt or a .npy file")
    parser.add_argument("--problem", help="package.module:Class of your own problem")
    told = parser.parse_args()
    check_output(told.out)
    with client_of(told) as client:
        found = predict(told.model, told.data, client, problem=told.problem)
    save_predictions(found.labels, Location(told.out), found.lengths)
    print(f"{len(found.labels)} predictions in {told.out}", *(found.score or {}).items(), sep="\n")
    return 0


if __name__ == "__main__":
    end_with(main)
