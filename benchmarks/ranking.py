"""Ranking of synthetic queries, streamed from S3, beside LightGBM's lambdarank trained on the same documents.

    python -m benchmarks.ranking [--queries 20000] [--seed 0] [--C C] [--trees 100] [--json FILE]

Queries have 20 to 80 documents, 50 on average, with 136 features: some belong to the query, some are skewed. Grades
from 0 to 4 follow a hidden score, linear with a mild part that is not, and noise. The queries are stored on a real S3
server, which two Dask worker processes stream: none keeps a shard. C is the one with the best accuracy over pairs on
other queries, of those tried with a tenth of the queries, unless --C names it. Both rankers are judged on a tenth as
many queries that neither has seen. Needs lightgbm.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import distdual
from benchmarks.scaling import s3_server
from distdual.cluster.dask_client import connect
from distdual.config import ClusterConfig, LocalCluster
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location
from distdual.problems.ranking.measures import ranking_sums

WIDTH, MEAN, SPREAD = 136, 50, 30  # features; documents of a query, and by how many they differ from that
SHARES = (0.5, 0.25, 0.13, 0.08, 0.04)  # of documents, by grade
CHOICES = (0.001, 0.01, 0.1, 1.0, 10.0)  # of C
GAP, MOST_PASSES = 1e-2, 6
NO_ROOM = "0"  # a worker without a memory limit promises no room, so shards are streamed


class Queries(NamedTuple):
    x: Any
    y: Any
    lengths: Any

    def part(self, begin: int, end: int) -> "Queries":
        at = np.concatenate([[0], np.cumsum(self.lengths)])[[begin, end]]
        rows = slice(int(at[0]), int(at[1]))
        return Queries(self.x[rows], self.y[rows], self.lengths[begin:end])

    @property
    def qid(self) -> Any:
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def measures(self, scores: Any) -> dict[str, float]:
        """NDCG@10, MAP, MRR and the accuracy over pairs."""
        bounds = np.concatenate([[0], np.cumsum(self.lengths)])
        sums = ranking_sums(self.y.astype(np.float64), np.asarray(scores, dtype=np.float64), bounds, 10)
        return {name: sums[name] / sums[f"n:{name}"] for name in sums if not name.startswith("n:")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--C", type=float, help="instead of choosing it")
    parser.add_argument("--trees", type=int, default=100, help="of lambdarank")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    told = parser.parse_args()
    n, tenth = told.queries, told.queries // 10
    every = made(n + tenth, told.seed)
    train, test = every.part(0, n), every.part(n, n + tenth)
    C = told.C or chosen(train.part(0, tenth), train.part(tenth, 2 * tenth))
    found = {"documents": len(train.y), "queries": n, "C": C, "distdual": ours(train, test, C)}
    print(json.dumps(found), file=sys.stderr, flush=True)
    found["lambdarank"] = lambdarank(train, test, told.trees)
    found["accuracy less lambdarank's"] = (
        found["distdual"]["pairwise_accuracy"] - found["lambdarank"]["pairwise_accuracy"]
    )
    print(json.dumps(found, indent=1))
    if told.json:
        told.json.write_text(json.dumps(found, indent=1) + "\n")


def made(n: int, seed: int) -> Queries:
    rng = np.random.default_rng(seed)
    more = rng.integers(0, SPREAD + 1, n - n // 2)
    lengths = MEAN + rng.permutation(np.concatenate([more, -more])[:n])
    total, third = int(lengths.sum()), WIDTH // 3
    x = rng.standard_normal((total, WIDTH), dtype=np.float32)
    x[:, :third] += np.repeat(rng.standard_normal((n, third), dtype=np.float32), lengths, axis=0)
    x[:, -third:] = np.expm1(0.5 * x[:, -third:])  # skewed, as counts of words are
    score = x @ (rng.normal(size=WIDTH) / np.sqrt(WIDTH)).astype(np.float32)
    score += 0.2 * np.tanh(x[:, 0] * x[:, third]) + 0.2 * np.abs(x[:, third + 1])
    score += 0.5 * rng.standard_normal(total, dtype=np.float32)
    return Queries(x, np.digitize(score, np.quantile(score, np.cumsum(SHARES)[:-1])), lengths)


def chosen(train: Queries, held: Queries) -> float:
    """The C with the best accuracy over pairs of queries that are held out."""

    def accuracy(C: float) -> float:
        model = distdual.SVMRank(C=C, gap=GAP).fit(train.x, train.y, qid=train.qid)
        found = held.measures(model.predict(held.x))["pairwise_accuracy"]
        print(f"C = {C:g}: accuracy over pairs {found:.5f} on other queries", file=sys.stderr, flush=True)
        return found

    return max(CHOICES, key=accuracy)


def ours(train: Queries, test: Queries, C: float) -> dict[str, Any]:
    with s3_server() as server, connect(ClusterConfig(local=LocalCluster(workers=2, memory=NO_ROOM))) as client:
        place = Location(server.url(), server.storage_options)
        begin = time.perf_counter()
        prepare_arrays(train.x, train.y, place, "ranking", lengths=train.lengths)
        prepared = time.perf_counter() - begin
        trained = distdual.train(
            {
                "data": {"url": place.url, "storage_options": server.storage_options},
                "problem": {"kind": "ranking"},
                "solver": {"C": C, "gap": GAP},
                "output": {"url": server.url("model"), "storage_options": server.storage_options},
            },
            client,
        )
        data = open_dataset(place)
        n_bytes = sum(data.read(number).n_bytes for number in range(data.n_shards))
    proven = trained.certificate
    return {
        **{name: proven[name] for name in ("certified", "gap", "passes", "support", "bytes_read", "wire_bytes")},
        "at most": MOST_PASSES,
        "bytes / data set": proven["bytes_read"] / n_bytes,
        "shards": data.n_shards,
        "prepare, s": prepared,
        "train, s": proven["seconds"],
        **test.measures(test.x @ trained.model.w),
    }


def lambdarank(train: Queries, test: Queries, trees: int) -> dict[str, Any]:
    import lightgbm

    begin = time.perf_counter()
    model = lightgbm.LGBMRanker(n_estimators=trees, n_jobs=2, verbose=-1, random_state=0)
    model.fit(train.x, train.y, group=train.lengths)
    seconds = time.perf_counter() - begin
    return {"train, s": seconds, **test.measures(model.predict(test.x))}


if __name__ == "__main__":
    main()
