"""The identity of a run: everything that its course depends on, so that only the same run resumes from a checkpoint."""

import hashlib
import json
from typing import Any

from distdual.config import Config
from distdual.data.dataset import Dataset
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.problems.base import Problem
from distdual.solver.regularizer import Prior

CHANGEABLE_KEYS = ("gap", "max_passes", "max_seconds")  # keys of [solver] that a resumed run may change


def identity(config: Config, problem: Problem, prior: Prior, dataset: Dataset) -> dict[str, Any]:
    """The identity of a run, as JSON can hold it; where a run stops is no part of it."""
    public = config.public()
    return {
        "problem": problem.describe(),
        "solver": {key: value for key, value in public["solver"].items() if key not in CHANGEABLE_KEYS},
        "prior": prior_digests(prior),
        "kernel": exact_kernel_of(public),
        "output": {"dual": config.output.dual},
        "data": {
            "url": dataset.location.url,
            "n_examples": dataset.n_examples,
            "numbering": dataset.layout.numbering,
            "checksum": dataset.checksum.tolist(),
        },
    }


def exact_kernel_of(public: dict[str, Any]) -> dict[str, Any] | None:
    """The exact kernel of a config, as JSON can hold it; a feature map belongs to the problem."""
    kernel: dict[str, Any] | None = public.get("kernel")
    return kernel if kernel is not None and kernel.get("basis") is None else None


def prior_digests(prior: Prior) -> dict[str, str]:
    """Digests of the arrays of the prior."""
    arrays = {name: getattr(prior, name) for name in ("mean", "precision", "nonnegative")}
    given = {name: array for name, array in arrays.items() if array is not None}
    return {name: hashlib.sha256(array.tobytes()).hexdigest()[:12] for name, array in given.items()}


def check_run(folder: Location, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Refuse the checkpoint of a run that differs in more than its data, and name the first difference."""
    for section, told in new.items():
        if section != "data":
            check_section(folder, section, old.get(section), json.loads(json.dumps(told)))


def check_section(folder: Location, section: str, old: Any, new: Any) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            check_section(folder, f"{section}.{key}", old.get(key), new.get(key))
    elif old != new:
        raise InputError(
            f"{folder}: the checkpoint is of a run with {section} = {old}, this one has {new}; "
            "resume with the same, or start again without --resume and with output.overwrite=true"
        )


def check_data(folder: Location, old: dict[str, Any], dataset: Dataset) -> bool:
    """Whether shards were appended; refuse other data, and earlier shards that changed."""
    checksum = dataset.checksum.tolist()
    n = len(old["checksum"])
    others = f"{folder}: the checkpoint is of other data than {dataset.location}"
    if old["numbering"] != dataset.layout.numbering or len(checksum) < n:
        found = f"{len(checksum)} shards, it had {n}" if len(checksum) < n else "features that mean something else"
        raise InputError(f"{others}: {found}")
    differ = [s for s in range(n) if checksum[s] != old["checksum"][s]]
    if differ:
        raise InputError(
            f"{folder}: the checkpoint is of other data than {dataset.location}: shard {differ[0]} differs"
        )
    return len(checksum) > n
