"""The main job on an embedded default: scikit-learn's digits, even against odd, on a local Dask cluster."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from distdual.config import ClusterConfig, Config, LocalCluster, load
from distdual.coordinator.train import Round
from distdual.data.prepare import prepare_arrays
from distdual.errors import InputError
from distdual.training import Result, train
from distdual.verification import Verification, verify
from distdual.workers.executor import connect

SHARD_BYTES = 32 << 10  # small shards, so that two workers have something to share

CONFIG = """\
# Written by `distdual quickstart`; try  distdual train {folder}/quickstart.toml --set solver.C=0.1

[data]
url = "{folder}/data"

[problem]
kind = "binary"
bias = 1.0

[solver]
C = 0.01
gap = 1e-3

[cluster]
local = {{ workers = 2, threads = 1 }}

[output]
url = "{folder}/model"
log = "{folder}/run.jsonl"
overwrite = true
"""


def prepare_digits(folder: Path) -> Config:
    """Write the data set and the config; a folder that holds anything but an earlier quickstart is left alone."""
    config = folder / "quickstart.toml"
    if folder.exists() and any(folder.iterdir()) and not config.exists():
        raise InputError(f"{folder}: already holds something else; name another folder with --dir")
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    labels = np.where(y % 2 == 0, "even", "odd")
    folder.mkdir(parents=True, exist_ok=True)
    config.write_text(CONFIG.format(folder=folder.as_posix()), encoding="utf-8")
    data = (folder / "data").as_posix()
    prepare_arrays(x / 16, labels, data, "binary", shuffle=0, shard_bytes=SHARD_BYTES, overwrite=True)
    return load(config)


def run(config: Config, watch: Callable[[Round], None]) -> tuple[Result, Verification]:
    """Train and verify on one local cluster."""
    with connect(ClusterConfig(local=config.cluster.local or LocalCluster())) as client:
        result = train(config, client, watch)
        return result, verify(config.output.url, config.data.url, client)
