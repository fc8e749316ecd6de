"""Verification of a model with an exact kernel: both bounds, from its support rows, its α and the data set."""

from typing import NamedTuple

import numpy as np

from distdual.certificate.expansion_bounds import ExpansionBounds, bounds_of_expansion, checked_shards
from distdual.cluster.base import Executor
from distdual.data.dataset import Dataset
from distdual.data.storage.location import Location
from distdual.model.dual import Dual
from distdual.model.io import Model
from distdual.problems.expanded import Expanded
from distdual.scan.expansion_scan import Checked

AS_IT_IS = np.ones(1)  # multiples of w


class RecomputedExpansion(NamedTuple):
    bounds: ExpansionBounds
    findings: list[str]
    damaged: list[int]  # shards
    bytes_read: int
    gets: int


def recompute(model: Model, folder: Location, dataset: Dataset, executor: Executor) -> RecomputedExpansion:
    """P at the model's β, and D at the β of its α, in which w decides on labels: those of the data must agree."""
    dual, problem = model.dual, model.problem
    assert isinstance(problem, Expanded)
    columns = problem.form.columns
    if not isinstance(dual, Dual) or not names_support(dual, problem, dataset):
        nothing = ExpansionBounds(0.0, np.inf, 1.0, 0.0)
        return RecomputedExpansion(nothing, [f"{folder}/dual does not name the examples of the support rows"], [], 0, 0)
    example, row = np.unique(dual.example, return_inverse=True)
    beta = model.w.reshape(-1, columns)
    proof = problem.form.coefficients(row, dual.keys, dual.alpha, problem.form.label_of(beta))
    executor.publish(0, np.concatenate([beta, proof], axis=1))
    checks = checked_shards(executor, dataset, example, np.arange(len(example)), AS_IT_IS, model.C, search=False)
    found, bounds = findings_of(folder, checks), bounds_of_expansion(checks, model.C, AS_IT_IS)
    return RecomputedExpansion(
        bounds._replace(lower=0.0) if found else bounds,
        found,
        sorted({check.shard for check in checks if not check.intact}),
        sum(check.bytes_read for check in checks),
        sum(check.gets for check in checks),
    )


def names_support(dual: Dual, problem: Expanded, dataset: Dataset) -> bool:
    """Whether each support row is an example of the data set, with keys that name constraints."""
    columns, example = problem.form.columns, np.unique(dual.example)
    if len(example) != problem.support.n_rows or not (example < dataset.n_examples).all():
        return False
    if columns == 1:
        return len(dual.example) == len(example) and not len(dual.keys.values)
    each_one = bool((np.diff(dual.keys.indptr) == 1).all())
    return each_one and bool(((dual.keys.values >= 0) & (dual.keys.values < columns)).all())


def findings_of(folder: Location, checks: list[Checked]) -> list[str]:
    told = []
    for names, what in (
        ([check.infeasible for check in checks], "dual: α is not feasible for"),
        ([check.foreign for check in checks], "support: a row is not that of its example in the data set, for"),
    ):
        found = np.concatenate(names)
        if len(found):
            told.append(f"{folder}/{what} {len(found)} examples, the first is example {found[0]}")
    return told
