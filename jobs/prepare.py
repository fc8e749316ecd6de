"""Prepare a data set on a worker of a Dask cluster, which may be closer to the storage.

python jobs/prepare.py tcp://host:8786 s3://bucket/a9a.xz s3://bucket/a9a --shuffle 0
"""

from shared import arguments, client_of, end_with

from distdual.data.prepare.api import prepare


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("dest")
    parser.add_argument("--problem", default="binary")
    parser.add_argument("--shuffle", type=int)
    parser.add_argument("--shard-bytes", type=int, default=16 << 20)
    options = parser.parse_args()
    with client_of(options) as client:
        keywords = {"shuffle": options.shuffle, "shard_bytes": options.shard_bytes}
        done = client.submit(prepare, options.sources, options.dest, options.problem, pure=False, **keywords)
        for made in done.result():
            print(f"{made.url}: {made.n_examples} examples in {made.n_shards} shards")
    return 0


if __name__ == "__main__":
    end_with(main)
