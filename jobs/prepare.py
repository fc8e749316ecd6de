"""Write a data set on a worker of a Dask cluster, which may be nearer to the storage than you are.

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
    told = parser.parse_args()
    with client_of(told) as client:
        options = {"shuffle": told.shuffle, "shard_bytes": told.shard_bytes}
        for made in client.submit(prepare, told.sources, told.dest, told.problem, pure=False, **options).result():
            print(f"{made.url}: {made.n_examples} examples in {made.n_shards} shards")
    return 0


if __name__ == "__main__":
    end_with(main)
