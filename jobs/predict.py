"""Predict a data set on a Dask cluster, and print the score if its labels are known.

python jobs/predict.py tcp://host:8786 s3://bucket/model s3://bucket/test s3://bucket/labels.npy
"""

from shared import arguments, client_of, end_with

from distdual.data.prediction_files import check_file_name
from distdual.data.storage.location import Location
from distdual.model.predict import predict_to


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("out", help="a .txt, .npy, .csv, .parquet or .zarr file")
    parser.add_argument("--problem", help="package.module:Class of your own problem")
    options = parser.parse_args()
    check_file_name(options.out)
    with client_of(options) as client:
        found = predict_to(Location(options.out), options.model, options.data, client, problem=options.problem)
    print(f"{found.n_examples} predictions in {options.out}", *(found.score or {}).items(), sep="\n")
    return 0


if __name__ == "__main__":
    end_with(main)
