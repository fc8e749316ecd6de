"""The model of a finished run: its weights, its dual and its certificate."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from distdual.config import Config
from distdual.coordinator.outcome import Outcome
from distdual.coordinator.schedule import Cause
from distdual.data.dataset import Dataset
from distdual.data.preprocess.preprocessing import of_dataset
from distdual.data.training_data import TrainingData
from distdual.kernels.rows import product
from distdual.model.dual import AnyDual, Dual, DualSummary, GroupDual
from distdual.model.io import (
    DataInfo,
    Model,
)
from distdual.problems.base import Problem
from distdual.problems.mapped import certified_kernel
from distdual.solver.regularizer import Prior
from distdual.solver.sweep import add_rows


def model_of(
    outcome: Outcome,
    config: Config,
    dataset: Dataset,
    problem: Problem,
    prior: Prior,
    members: str | None,
    more: Mapping[str, Any] | None = None,
) -> Model:
    """The model of a finished run; `more` goes into the certificate."""
    preprocessing = of_dataset(dataset)
    return Model(
        outcome.w,
        problem,
        config.solver.C,
        prior,
        dual_of(outcome, config.output.dual, members),
        DataInfo(
            dataset.location.url,
            dataset.fingerprint,
            dataset.n_examples,
            dataset.checksum,
            dataset.layout.numbering,
        ),
        {
            **summarise(outcome, config.solver.gap, dataset),
            **certified_kernel(problem, preprocessing),
            **(more or {}),
            "model": config.output.url,
        },
        config.public(),
        preprocessing,
    )


def dual_of(outcome: Outcome, asked: str, members: str | None) -> AnyDual:
    """The proof of `lower`: the support constraints or a summary."""
    cache, beta = outcome.solver.cache, outcome.solver.multipliers()
    support = cache.support()
    alpha = cache.alpha.view[support]
    if asked == "summary":
        v = np.zeros(cache.n_weights)
        if cache.rows is not None:
            add_rows(cache.rows.view, np.where(cache.example.view >= 0, cache.alpha.view, 0.0), v)
        return DualSummary(np.array([product(alpha, cache.margin.view[support])]), v, beta, len(support))
    if not cache.referenced:
        return single_dual(outcome)
    assert members is not None
    return GroupDual(*outcome.partition.resolve(cache.reference.view[support], alpha), beta, members)


def single_dual(outcome: Outcome) -> Dual:
    """The support constraints of a run with one slack per example, sorted by example."""
    cache = outcome.solver.cache
    support = cache.support()
    beta = outcome.solver.multipliers()
    return Dual(cache.example.view[support], cache.keys().take(support), cache.alpha.view[support], beta)


def summarise(outcome: Outcome, target: float, dataset: TrainingData) -> dict[str, Any]:
    """The certificate and the costs, as in `--json` and certificate.json."""
    proven, totals = outcome.certificate, outcome.totals
    return {
        "lower": proven.lower,
        "upper": proven.upper if proven.is_proven else None,
        "gap": proven.gap if proven.is_proven else None,
        "relaxed": outcome.relaxed / proven.upper if proven.is_proven and proven.upper > 0 else 0.0,
        "rounding": proven.rounding if proven.is_proven else None,
        "estimate": outcome.estimate if np.isfinite(outcome.estimate) else None,
        "target": target,
        "certified": proven.reaches(target) and outcome.stop.cause != Cause.CONTRADICTION,
        "stopped_by": outcome.stop.cause.value,
        "reason": outcome.stop.reason,
        "passes": totals.passes,
        "rounds": totals.rounds,
        "oracle_calls": totals.oracle_calls,
        "calls_saved": totals.calls_saved,
        "updates": outcome.solver.updates,
        "offenders": totals.offenders,
        "kept": totals.kept,
        "stale": totals.stale,
        "cache_rows": len(outcome.solver.cache),
        "cache_bytes": outcome.solver.cache.nbytes,
        "support": outcome.solver.n_support,
        "slack": str(outcome.partition.slack),
        "coalesced": totals.coalesced,
        "wire_bytes": totals.wire_bytes,
        "published_bytes": totals.published_bytes,
        "seconds": outcome.seconds,
        "ascent_seconds": totals.ascent_seconds,
        "wait_seconds": totals.wait_seconds,
        "scan_seconds": totals.scan_seconds,
        "read_seconds": totals.read_seconds,
        "idle_seconds": totals.idle_seconds,
        "bytes_read": totals.bytes_read,
        "gets": totals.gets,
        "n_examples": dataset.n_examples,
        "n_shards": dataset.n_shards,
        "data_bytes": dataset.nbytes,
    }
