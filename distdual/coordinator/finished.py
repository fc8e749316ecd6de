"""The model of a finished run, which `--resume` returns without training again."""

import json
from typing import Any

from distdual.config import Config
from distdual.coordinator.run_identity import CHANGEABLE_KEYS, exact_kernel_of, prior_digests
from distdual.data.dataset import Dataset
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.model.io import Model, load_model
from distdual.problems.base import Problem
from distdual.problems.expanded import EXPANSION
from distdual.problems.latent.base import stated
from distdual.problems.registry import is_own
from distdual.solver.regularizer import Prior


def finished_model(config: Config, problem: Problem, prior: Prior, dataset: Dataset, output: Location) -> Model | None:
    """The model at `output` if a run with this config on this data set made it, and has nothing left to do."""
    if not output.exists("model.json"):
        return None
    model = load_model(output, config.problem.kind if is_own(config.problem.kind) else None)
    told = config.public()
    differ = differing(facts(told, problem, prior, dataset.fingerprint), facts_of(model))
    if not differ and is_done(model, told["solver"]):
        return model
    if config.output.overwrite:
        return None
    why = f"made with another {differ}" if differ else "which did not reach the target of this one"
    raise InputError(
        f"{output}: already holds a model, {why}; choose another output.url, set output.overwrite=true, or begin with "
        "it: solver.start"
    )


def is_done(model: Model, solver: dict[str, Any]) -> bool:
    """Whether the run that made the model would stop at the same point with these limits."""
    gap, before = model.certificate.get("gap"), model.config["solver"]
    return (gap is not None and 0 <= gap <= solver["gap"]) or all(
        solver.get(key) == before.get(key) for key in CHANGEABLE_KEYS
    )


def facts(config: dict[str, Any], problem: Problem, prior: Prior, fingerprint: str) -> dict[str, Any]:
    """All that a model depends on, except where its run stops."""
    solver = {f"solver.{key}": value for key, value in config["solver"].items() if key not in CHANGEABLE_KEYS}
    told = {"output.dual": config["output"]["dual"], **solver}
    about = {key: value for key, value in problem.describe().items() if key != EXPANSION}
    found = {"data set": fingerprint, "problem": about, "prior": prior_digests(prior), **told}
    found["kernel"] = exact_kernel_of(config)
    return dict(json.loads(json.dumps(found)))


def facts_of(model: Model) -> dict[str, Any]:
    try:
        return facts(model.config, stated(model.problem), model.prior, model.data.fingerprint)
    except (KeyError, TypeError, AttributeError):
        return {}  # written by a version that recorded less


def differing(mine: dict[str, Any], theirs: dict[str, Any]) -> str | None:
    """The first fact in which the two differ."""
    names = sorted(mine.keys() | theirs.keys())
    return next((name for name in names if mine.get(name) != theirs.get(name)), None)
