"""Findings: where a model folder contradicts the recomputed certificate, its data set, or itself."""

import math
from typing import Any

import numpy as np

from distdual.certificate.check_shard import ShardCheck
from distdual.data.storage.location import Location
from distdual.data.training_data import TrainingData
from distdual.model.io import Model
from distdual.problems.base import Problem
from distdual.solver.gap import is_certified, relative_gap

SAME_BOUND = 1e-9  # largest relative difference between a recomputed and a recorded bound
COARSER = 1000.0  # factor by which training may overestimate rounding, as it sees rows of groups and not their members


def data_findings(model: Model, dataset: TrainingData, damaged: list[int]) -> list[str]:
    """Describe how the data set differs from the one the model was trained on."""
    if damaged:
        return [f"{dataset.location}: shard {s} is not what was prepared: its checksum differs" for s in damaged]
    if dataset.fingerprint == model.data.fingerprint:
        same = np.array_equal(dataset.checksum, model.data.checksum)
        return [] if same else ["dual/checksum.npy is not of the data set whose fingerprint model.json has"]
    if dataset.n_shards != len(model.data.checksum):
        return [f"{dataset.location}: {dataset.n_shards} shards, the model was trained on {len(model.data.checksum)}"]
    differ = np.flatnonzero(dataset.checksum != model.data.checksum)
    which = f"shards {', '.join(map(str, differ[:5]))} differ" if len(differ) else "its shards are cut differently"
    return [f"{dataset.location}: not the data set the model was trained on: {which}"]


def keeps_signs(model: Model) -> bool:
    return bool((model.w >= model.prior.floor).all())


def multipliers_are_valid(model: Model) -> bool:
    """β ≥ 0, and β_k = 0 where w_k may be negative."""
    beta = model.dual.beta
    expected = model.prior.n_weights if model.prior.full else 0
    return len(beta) == expected and bool((beta >= 0).all()) and not beta[model.prior.floor[: len(beta)] != 0].any()


def dual_findings(folder: Location, checks: list[ShardCheck]) -> list[str]:
    infeasible = np.concatenate([check.infeasible for check in checks])
    if not len(infeasible):
        return []
    return [f"{folder}/dual: α is not feasible for {len(infeasible)} examples, the first is example {infeasible[0]}"]


def oracle_findings(problem: Problem, checks: list[ShardCheck]) -> list[str]:
    missed = np.concatenate([check.missed for check in checks])
    if not len(missed):
        return []
    return [
        f"{problem.kind}: the oracle is not exact: of {len(missed)} examples a support constraint is violated more "
        f"than the one that it returned, the first is example {missed[0]}"
    ]


def claims(model: Model, recomputed: dict[str, float], rounding: float) -> list[str]:
    """Describe where certificate.json differs from what was recomputed, or contradicts itself or model.json."""
    wrong = []
    for name, found in recomputed.items():
        said = claimed_number(model, name)
        if not abs(said - found) <= SAME_BOUND * max(abs(said), abs(found)) + COARSER * rounding:
            wrong.append(f"{name} is {found:.12g} when recomputed, certificate.json says {said:.12g}")
    lower, upper, target = (claimed_number(model, name) for name in ("lower", "upper", "target"))
    if "upper" in recomputed:
        if not abs(claimed_number(model, "gap") - relative_gap(upper, lower)) <= SAME_BOUND:
            wrong.append("certificate.json: gap is not (upper − lower) / upper")
        said = claimed_number(model, "rounding")
        if not 0 <= said <= COARSER * rounding + SAME_BOUND * abs(upper):
            wrong.append(f"rounding is {rounding:.3g} when recomputed, certificate.json says {said:.3g}")
        if model.certificate.get("certified") is True and not is_certified(lower, upper, target):
            wrong.append("certificate.json: certified is true, but its own gap is not between 0 and its target")
    solver = model.config.get("solver") if isinstance(model.config, dict) else None
    told = solver if isinstance(solver, dict) else {}
    for name, said in (("gap", target), ("C", model.C)):
        if told.get(name) != said:
            wrong.append(f"model.json: the config has solver.{name} = {told.get(name)}, the model has {said:g}")
    return wrong


def claimed_number(model: Model, name: str) -> float:
    """Return a number of certificate.json, or NaN, which equals nothing."""
    value: Any = model.certificate
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) else math.nan
