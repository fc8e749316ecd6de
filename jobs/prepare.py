"""Write a data set on a worker of a Dask cluster, which may be nearer to the storage than you are.

python jobs/prepare.py tcp://host:8786 s3://bucket/a9a.xz s3://bucket/a9a --shuffle 0
"""

import argparse
import sys

from distributed import Client

from distdual.data.prepare import prepare
from distdual.errors import InputError


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("scheduler")
    arguments.add_argument("sources", nargs="+")
    arguments.add_argument("dest")
    arguments.add_argument("--problem", default="binary")
    arguments.add_argument("--shuffle", type=int)
    arguments.add_argument("--shard-bytes", type=int, default=16 << 20)
    told = arguments.parse_args()
    with Client(told.scheduler, timeout=10) as client:
        options = {"shuffle": told.shuffle, "shard_bytes": told.shard_bytes}
        for made in client.submit(prepare, told.sources, told.dest, told.problem, pure=False, **options).result():
            print(f"{made.url}: {made.n_examples} examples in {made.n_shards} shards")


if __name__ == "__main__":
    try:
        main()
    except (InputError, OSError) as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(2)
