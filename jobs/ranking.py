"""Rank documents within queries: from arrays to a certified model and its scores on other queries.

Documents have a relevance from 0 to 4, which follows a linear score with noise. Queries differ in their number of
documents, and half of them are held out.

python jobs/ranking.py runs/ranking
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError


def make_queries(n: int, width: int = 20) -> tuple[Any, Any, Any]:
    """Features, relevance, and the query of each document."""
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(n), rng.integers(5, 40, n))
    x = rng.normal(size=(len(qid), width)).astype(np.float32)
    score = x @ rng.normal(size=width) / np.sqrt(width) + 0.5 * rng.normal(size=len(qid))
    return x, np.digitize(score, [0.0, 0.7, 1.4, 2.1]), qid


def main(folder: Path) -> int:
    x, y, qid = make_queries(1000)
    train, test, model = (str(folder / name) for name in ("train", "test", "model"))
    for place, rows in ((train, qid % 2 == 0), (test, qid % 2 == 1)):
        prepare_arrays(x[rows], y[rows], place, "ranking", qid=qid[rows], shard_bytes=128 << 10, overwrite=True)
    config = {
        "data": {"url": train},
        "problem": {"kind": "ranking", "gain": "exponential"},
        "solver": {"C": 0.1, "gap": 1e-3},
        "cluster": {"local": {"workers": 2}},
        "output": {"url": model, "overwrite": True},
    }
    trained = distdual.train(config).certificate
    checked = distdual.verify(model)
    score = distdual.predict(model, test).score
    bounds = {"lower": checked.lower, "upper": checked.upper, "gap": checked.gap, "score": score}
    print(json.dumps({"certified": trained["certified"], "verified": checked.certified, **bounds}))
    return 0 if trained["certified"] and checked.certified else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        sys.exit(main(Path(sys.argv[1])))
    except (InputError, OSError) as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(2)
