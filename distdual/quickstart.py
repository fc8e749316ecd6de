"""The quickstart: train and verify on scikit-learn's digits, even against odd, on a local Dask cluster."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distdual.certificate.verify import Verification, verify
from distdual.cluster.dask_client import connect
from distdual.config import ClusterConfig, Config, LocalCluster, load
from distdual.coordinator.run import Result, train
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError
from distdual.problems.binary import Binary
from distdual.report.round_log import Round

SMALL_SHARD = 32 << 10  # small enough for several shards per worker

HEADER = "# Written by `distdual quickstart`"

CONFIG = """\
{mark}; change it, then  distdual train {name}

[data]
url = {data}

[problem]
kind = "binary"
bias = 1.0

[solver]
C = 0.01
gap = 1e-3

[cluster]
local = {{ workers = 2, threads = 1 }}

[output]
url = {model}
log = {log}
overwrite = true
"""


def prepare_digits(folder: Path) -> Config:
    """Write the data set and the config; refuse a folder that holds anything but an earlier quickstart."""
    config = folder / "quickstart.toml"
    try:
        check_folder(folder, config)
        folder.mkdir(parents=True, exist_ok=True)
        config.write_text(config_text(folder, config), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{folder}: not usable as a folder: {error.strerror}; choose another with --dir") from None
    data = (folder / "data").as_posix()
    prepare_arrays(*digits(), data, Binary.kind, shuffle=0, shard_bytes=SMALL_SHARD, overwrite=True)
    return load(config)


def check_folder(folder: Path, config: Path) -> None:
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not config.exists() or not config.read_text(encoding="utf-8", errors="replace").startswith(HEADER):
        raise InputError(f"{folder}: already contains other files; choose another folder with --dir")


def config_text(folder: Path, config: Path) -> str:
    """The config as TOML; paths are quoted as JSON strings, which are valid TOML strings."""
    paths = {"data": folder / "data", "model": folder / "model", "log": folder / "run.jsonl"}
    quoted = {name: json.dumps(path.as_posix(), ensure_ascii=False) for name, path in paths.items()}
    return CONFIG.format(mark=HEADER, name=json.dumps(config.as_posix(), ensure_ascii=False), **quoted)


def digits() -> tuple[NDArray[Any], NDArray[Any]]:
    """1,797 images of 8 × 8 pixels scaled to [0, 1], labelled "even" or "odd"."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return x / 16, np.where(y % 2 == 0, "even", "odd")


def run(config: Config, watch: Callable[[Round], None]) -> tuple[Result, Verification]:
    """Train and verify on one local cluster."""
    with connect(ClusterConfig(local=config.cluster.local or LocalCluster())) as client:
        result = train(config, client, watch)
        return result, verify(config.output.url, config.data.url, client)
