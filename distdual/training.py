"""From a config to a certified model in its folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from distdual.config import Config, from_table
from distdual.coordinator.train import Outcome, Round, Trainer
from distdual.data.location import Location
from distdual.data.store import Dataset, open_dataset
from distdual.model import DataInfo, Dual, Model, claim
from distdual.problems import make_problem
from distdual.report.runlog import RunLog
from distdual.workers.executor import open_executor


@dataclass(frozen=True, slots=True)
class Result:
    """What training gives back."""

    model: Model
    certificate: dict[str, Any]
    history: list[Round]


def train(
    config: Config | Mapping[str, Any], client: Any = None, watch: Callable[[Round], None] | None = None
) -> Result:
    """Train, certify and save the model that `config` describes.

    `config` is a Config or a table like that of a TOML file; `client` is a Dask client to use instead of [cluster];
    `watch` is called after every round.
    """
    config = config if isinstance(config, Config) else from_table(config)
    output = Location(config.output.url, config.output.storage_options)
    claim(output, overwrite=config.output.overwrite)
    dataset = open_dataset(Location(config.data.url, config.data.storage_options))
    problem = make_problem(
        config.problem.kind,
        config.problem.options,
        n_features=dataset.layout.n_features,
        classes=dataset.classes,
    )
    with (
        RunLog(config.output.log) as runlog,
        open_executor(config.cluster, dataset, problem, client) as executor,
    ):

        def each_round(line: Round) -> None:
            runlog.write(line)
            if watch:
                watch(line)

        outcome = Trainer(problem, dataset, executor, config.solver, each_round).run()
    model = Model(
        outcome.w,
        problem,
        config.solver.C,
        dual_of(outcome),
        DataInfo(config.data.url, dataset.fingerprint, dataset.n_examples, dataset.checksum),
        summarise(outcome, config, dataset),
        config.public(),
    )
    model.save(output, overwrite=config.output.overwrite)
    return Result(model, model.certificate, outcome.history)


def dual_of(outcome: Outcome) -> Dual:
    """The support constraints, sorted by example."""
    cache = outcome.solver.cache
    support = cache.members[cache.alpha.view[cache.members] > 0]
    return Dual(cache.example.view[support], cache.keys().take(support), cache.alpha.view[support])


def summarise(outcome: Outcome, config: Config, dataset: Dataset) -> dict[str, Any]:
    """The certificate and what it cost, as `--json` and certificate.json show it."""
    proven, totals = outcome.certificate, outcome.totals
    return {
        "lower": proven.lower,
        "upper": proven.upper,
        "gap": proven.gap,
        "target": config.solver.gap,
        "certified": bool(np.isfinite(proven.upper) and proven.gap <= config.solver.gap),
        "reason": outcome.reason,
        "passes": totals.passes,
        "rounds": totals.rounds,
        "oracle_calls": totals.oracle_calls,
        "offenders": totals.offenders,
        "cache_rows": len(outcome.solver.cache),
        "cache_bytes": outcome.solver.cache.nbytes,
        "support": len(outcome.solver.support()),
        "seconds": outcome.seconds,
        "ascent_seconds": totals.ascent_seconds,
        "wait_seconds": totals.wait_seconds,
        "scan_seconds": totals.scan_seconds,
        "read_seconds": totals.read_seconds,
        "bytes_read": totals.bytes_read,
        "n_examples": dataset.n_examples,
        "n_shards": dataset.n_shards,
        "model": config.output.url,
    }
