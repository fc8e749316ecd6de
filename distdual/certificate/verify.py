"""Verification: the certificate of a model, recomputed from the model folder and the data set alone.

Each shard is read once; a worker computes Σ cost_i ξ_i(w) over it for P(w), and rebuilds the support constraints of
its examples from the data, for D(α). Of the trainer's code, only the problem's own mathematics is used. If shards were
appended since training, only the shards that the certificate covers are read.
"""

import itertools
import math
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from distdual.certificate.bounds import ShardLoss, objective, relaxed_part, upper_bound
from distdual.certificate.check_shard import NOTHING, ShardCheck, check_shard
from distdual.certificate.check_whole import check_whole
from distdual.certificate.findings import (
    claimed_number,
    claims,
    data_findings,
    dual_findings,
    keeps_signs,
    multipliers_are_valid,
    oracle_findings,
)
from distdual.certificate.rebuild import Support, no_support
from distdual.certificate.verify_expansion import recompute
from distdual.cluster.base import Executor
from distdual.cluster.collection import CollectionDataset, client_of, open_collection
from distdual.cluster.open_executor import open_executor
from distdual.config import RETRY_SECONDS, ClusterConfig
from distdual.data.dataset import Dataset, check_labelled, open_dataset
from distdual.data.sources.partitions import is_collection
from distdual.data.storage.location import Location, Place, as_location, check_scheme
from distdual.errors import InputError
from distdual.kernels.rounding import MARGIN, Enclosed, sum_of
from distdual.kernels.rows import Floats, Int32s, product
from distdual.model.dual import AnyDual, Dual, DualSummary, GroupDual
from distdual.model.io import FROM_ARRAYS, Model, changed_files, check_own_texts, load_model
from distdual.problems.base import Magnitude
from distdual.problems.expanded import Expanded
from distdual.problems.latent.base import Completed
from distdual.problems.multivariate.problem import Multivariate
from distdual.problems.registry import KindOrClass
from distdual.scan.scan import DatasetRef
from distdual.scan.shard_reader import streamed
from distdual.solver.gap import contradiction, is_certified, relative_gap
from distdual.solver.proven import Mass, dual, lower_bound

AnyData = Dataset | CollectionDataset


class Recomputed(NamedTuple):
    v: Floats  # Σ α x
    checks: list[ShardCheck]
    out_of_range: int  # support constraints of examples beyond the data set


@dataclass(frozen=True, slots=True)
class Verification:
    """The recomputed bounds, and all discrepancies with the model folder as findings."""

    lower: float
    upper: float
    gap: float
    target: float
    certified: bool
    findings: tuple[str, ...]
    rounding: float  # by how much the bounds were moved apart for it
    target_given: bool  # by the caller; else it is the model's own
    C: float
    support: int
    oracle_calls: int
    bytes_read: int
    gets: int
    n_shards: int  # that the certificate covers
    appended: int = 0  # further shards of the data set
    estimate: float | None = None  # of P(w), where inexact inference proves no bound and `upper` is infinite
    relaxed: float = 0.0  # the part of the gap that the oracle's bounds leave open
    objective: float | None = None  # non-convex P(w) of a latent problem, with latent values imputed again


def verify(
    model: Place,
    data: Place | tuple[Any, ...] | None = None,
    client: Any = None,
    *,
    cluster: ClusterConfig | None = None,
    problem: KindOrClass | None = None,
    gap: float | None = None,
) -> Verification:
    """Recompute the certificate of a model folder from scratch, in float64, with a bound on all rounding.

    `data` is where the data set is now, if not where it was. For an estimator fitted on a Dask array or frame, it is
    the same collection with its labels: (X, y) or (X, y, sample_weight), scanned where its partitions are.
    `gap` is the target; without it, the target stored in the model is used, which its author chose.
    `problem` names the class of a model of a user's own problem: "package.module:Class" or the class itself.
    """
    folder = as_location(model).patient(RETRY_SECONDS)
    claimed = load_model(folder.patient(0), problem)  # the address may be wrong
    whole = verified_data(claimed, folder, data, client)
    dataset = trained_on(claimed, whole) if isinstance(whole, Dataset) else whole
    check_shape(claimed, dataset)
    with open_executor(cluster or ClusterConfig(), dataset, claimed.problem, client) as executor:
        if isinstance(claimed.problem, Expanded):
            if not isinstance(dataset, Dataset):
                raise InputError(f"{folder}: a model with an exact kernel is verified with a stored data set alone")
            found = verified_expansion(claimed, folder, dataset, executor, gap)
            return replace(found, appended=whole.n_shards - dataset.n_shards)
        executor.publish(0, claimed.w)
        v, checks, out_of_range = scan_support(claimed, folder, dataset, executor)
        changed = changed_files(folder, claimed.certificate)
        imputed = nonconvex(claimed, dataset, executor) if isinstance(claimed.problem, Completed) else None
    findings = [
        *(f"{folder}/{name} is not what training wrote" for name in changed),
        *data_findings(claimed, dataset, [c.shard for c in checks if not c.intact]),
        *([f"{folder}/dual names {out_of_range} examples beyond the data set"] if out_of_range else []),
        *dual_findings(folder, checks),
        *oracle_findings(claimed.problem, checks),
        *([] if multipliers_are_valid(claimed) else [f"{folder}/dual/beta.npy: β is not feasible"]),
        *([] if keeps_signs(claimed) else [f"{folder}/weights.npy: a weight is negative that must not be"]),
    ]
    concluded = conclude(claimed, dataset, checks, v, imputed, findings, gap)
    return replace(concluded, appended=whole.n_shards - dataset.n_shards)


def verified_data(model: Model, folder: Location, data: Any, client: Any) -> AnyData:
    """Open the data set or the collection to verify with."""
    if isinstance(data, tuple):
        if len(data) not in (2, 3) or not is_collection(data[0]):
            raise InputError("a tuple to verify with is (X, y) or (X, y, sample_weight), where X is a Dask collection")
        client = client or client_of(data[0])
        if client is None:
            raise InputError("a Dask collection is verified on a cluster: create a Dask client, or pass it as client")
        return open_collection(client, *data, regression=not model.problem.describe()["classes"])
    if data:
        return open_dataset(as_location(data, folder.storage_options).patient(RETRY_SECONDS))
    if model.data.url == FROM_ARRAYS:
        raise InputError(
            f"{folder}: the model was fitted on arrays, which are not stored; fit the estimator on a prepared data set "
            "to make a model that can be verified, or on a Dask collection, and pass that to verify as (X, y)"
        )
    check_scheme(f"{folder}/model.json", model.data.url)
    return trained_data(as_location(model.data.url, folder.storage_options))


def verified_expansion(
    model: Model, folder: Location, dataset: Dataset, executor: Executor, gap: float | None
) -> Verification:
    """The same for a model with an exact kernel."""
    found = recompute(model, folder, dataset, executor)
    lower, upper, _, rounding = found.bounds
    findings = [
        *(f"{folder}/{name} is not what training wrote" for name in changed_files(folder, model.certificate)),
        *data_findings(model, dataset, found.damaged),
        *found.findings,
        *claims(model, {"lower": lower, "upper": upper}, rounding),
    ]
    if opposed := contradiction(lower, upper):
        findings.append(opposed)
    target = claimed_number(model, "target") if gap is None else gap
    return Verification(
        lower,
        upper,
        relative_gap(upper, lower),
        target,
        not findings and is_certified(lower, upper, target),
        tuple(findings),
        rounding,
        gap is not None,
        model.C,
        model.dual.support,
        dataset.n_examples,
        found.bytes_read,
        found.gets,
        dataset.n_shards,
    )


def trained_data(source: Location) -> Dataset:
    """Open the data set where the model says it was; it may have moved since."""
    try:
        return open_dataset(source.patient(RETRY_SECONDS))
    except InputError as error:
        raise InputError(f"{error}; if the data set has moved since the training, name it: --data URL") from None


def scan_support(model: Model, folder: Location, dataset: AnyData, executor: Executor) -> Recomputed:
    """Rebuild the support from the data, and compute the loss at the published w, which is the model's."""
    if isinstance(model.problem, Multivariate):
        return Recomputed(*check_whole(model, dataset, executor))
    dual, out_of_range = existing(model.dual, dataset)
    supports = support_parts(dual, dataset, folder.absolute().patient(RETRY_SECONDS))
    v, checks = np.zeros(model.problem.n_weights), list[ShardCheck]()
    shards = range(dataset.n_shards)
    for check in executor.map_shards(check_shard, shards, [model.C] * len(shards), supports):
        v[slice(None) if check.v.at is None else check.v.at] += check.v.values
        checks.append(check._replace(v=NOTHING))  # v of all shards would not fit in memory
    return Recomputed(v, checks, out_of_range)


def contradictions(model: Model, folder: Location, dataset: Dataset, executor: Executor) -> tuple[str, ...]:
    """Describe where the certificate of a model that is not saved yet differs from what the data give."""
    executor.publish(-1, model.w)
    v, checks, out_of_range = scan_support(model, folder, dataset, executor)
    found = [f"it names {out_of_range} examples beyond the data set"] if out_of_range else []
    return conclude(model, dataset, checks, v, None, found + dual_findings(folder, checks), None).findings


def trained_on(model: Model, dataset: Dataset) -> Dataset:
    """Return the first shards of a data set if the model was trained on exactly those, else all of it."""
    n = len(model.data.checksum)
    first = dataset.head(n) if 0 < n < dataset.n_shards else dataset
    return first if first.fingerprint == model.data.fingerprint else dataset


def check_shape(model: Model, dataset: AnyData) -> None:
    if isinstance(dataset, Dataset):
        check_labelled(dataset)
    described = model.problem.describe()
    found = {"n_features": dataset.n_features, "classes": list(dataset.classes)}
    for name, value in found.items():
        if described[name] != value:
            raise InputError(f"{dataset.location}: {name} is {value}, but the model was trained with {described[name]}")
    if isinstance(dataset, Dataset):
        check_own_texts(model.problem, dataset)
    if isinstance(model.problem, Completed) and model.problem.n_examples != dataset.n_examples:
        found_values = f"latent values of {model.problem.n_examples}"
        raise InputError(f"{dataset.location}: {dataset.n_examples} examples, but the model has {found_values}")


def existing(dual: AnyDual, dataset: AnyData) -> tuple[AnyDual, int]:
    """Return the support constraints within the data set, and the number of those beyond it."""
    if isinstance(dual, DualSummary):
        return dual, 0
    if isinstance(dual, GroupDual):
        there = dual.shard < dataset.n_shards
        kept = dual._replace(
            shard=dual.shard[there], file=dual.file[there], row=dual.row[there], alpha=dual.alpha[there]
        )
        return kept, int((~there).sum())
    there = (dual.example >= 0) & (dual.example < dataset.n_examples)
    order = np.flatnonzero(there)[np.argsort(dual.example[there], kind="stable")]
    return Dual(dual.example[order], dual.keys.take(order), dual.alpha[order], dual.beta), int((~there).sum())


def support_parts(dual: AnyDual, dataset: AnyData, folder: Location) -> list[Support]:
    """Return the support constraints of each shard; none for a summary."""
    if isinstance(dual, DualSummary):
        return [no_support() for _ in range(dataset.n_shards)]
    return [Support(dual.of_shard(dataset.first, s), folder) for s in range(dataset.n_shards)]


class ShardImputed(NamedTuple):
    values: Int32s
    loss: float  # Σ cost_i ξ_i(w) at these values


def nonconvex(model: Model, dataset: AnyData, executor: Executor) -> float:
    """Return P(w) of a latent problem with latent values imputed again; `settle` may require a second pass."""
    assert isinstance(model.problem, Completed)
    now, shards = model.problem, range(dataset.n_shards)
    parts = list(executor.map_shards(impute_shard, shards, [None] * len(shards)))
    found = np.concatenate([part.values for part in parts])
    settled = replace(now, values=now.problem.settle(now.values, found))
    if (settled.values != found).any():
        given = [settled.part(int(a), int(b)).values for a, b in itertools.pairwise(dataset.first)]
        parts = list(executor.map_shards(impute_shard, shards, given))
    return model.prior.penalty(model.w) + model.C * math.fsum(part.loss for part in parts)


def impute_shard(
    source: DatasetRef | Dataset, problem: Completed, w: Floats, shard: int, values: Int32s | None
) -> ShardImputed:
    """Compute one shard's loss at the best latent values or at the given ones, on a worker."""
    with streamed(source, shard, check=False) as loaded:
        new = problem.problem.impute(w, loaded.shard) if values is None else values
        then = problem.problem.completed(loaded.shard, new)
        return ShardImputed(new, product(then.costs(loaded.shard), then.offenders(w, loaded.shard).slack))


def conclude(
    model: Model,
    dataset: AnyData,
    checks: list[ShardCheck],
    v: Floats,
    imputed: float | None,
    findings: list[str],
    gap: float | None,
) -> Verification:
    """Add up the shards, compare with the folder's claims, and decide."""
    losses = [ShardLoss(check.shard, 0, check.loss, check.exact, *check.error, check.relaxed) for check in checks]
    exact = all(check.exact for check in checks)
    upper = upper_bound(model.w, 0, losses, C=model.C, n_shards=dataset.n_shards, prior=model.prior) if exact else None
    value = upper.high if upper else objective(model.w, losses, C=model.C, prior=model.prior)
    found = dual_value(model, checks, v, upper.high if upper else math.inf)
    lower = found.low
    rounding = found.value - lower + (upper.high - upper.value if upper else 0.0)
    recomputed = {"lower": lower, "upper" if exact else "estimate": value}
    recomputed |= {} if imputed is None else {"latent.objective": imputed}
    findings += claims(model, recomputed, rounding)
    if isinstance(model.dual, DualSummary):
        findings.append("the model holds a summary of its dual: the lower bound rests on the trainer's rows")
    if not exact:
        findings.append(f"inference is inexact: no upper bound is proven, {value:.12g} is an estimate of P(w)")
    elif opposed := contradiction(lower, value):
        findings.append(opposed)
    target = claimed_number(model, "target") if gap is None else gap
    return Verification(
        lower,
        value if exact else math.inf,
        relative_gap(value, lower) if exact else math.inf,
        target,
        not findings and is_certified(lower, value, target),
        tuple(findings),
        rounding,
        gap is not None,
        model.C,
        model.dual.support,
        dataset.n_examples * (1 if imputed is None else 2),
        sum(check.bytes_read for check in checks),
        sum(check.gets for check in checks),
        dataset.n_shards,
        0,
        None if exact else value,
        relaxed_part(losses, C=model.C) / value if exact and value > 0 else 0.0,
        imputed,
    )


def dual_value(model: Model, checks: list[ShardCheck], v: Floats, upper: float) -> Enclosed:
    """D(α), or D(0) where that is higher or α is not feasible; Σ α beyond C_i by rounding is scaled back to it.

    D is concave: D(α / (1 + t)) ≥ D(α) − t (D(α) − D(0)).
    """
    nothing = lower_bound(model.prior, Enclosed(-math.inf))
    if not multipliers_are_valid(model) or any(len(check.infeasible) for check in checks):
        return nothing
    linear = sum_of([check.linear for check in checks])
    if isinstance(model.dual, DualSummary):
        v, linear = model.dual.v.copy(), Enclosed(float(model.dual.linear[0]))
    v[: len(model.dual.beta)] += model.dual.beta
    alpha = sum(check.mass.alpha for check in checks) + float(model.dual.beta.sum())
    terms = max(check.mass.terms for check in checks) + len(checks) + 4.0
    size = reduce(Magnitude.joined, (check.magnitude for check in checks))
    found = lower_bound(model.prior, dual(model.prior, linear, v, Mass(MARGIN * alpha, terms), size, upper))
    excess = max(check.excess for check in checks)
    return found.wider(MARGIN * excess * max(0.0, found.high - nothing.low))
