"""The model folder: a trained model, written and read.

weights.npy        float64 weights, the bias weight last if there is one
model.json         the problem, C, the data set; written last, so that a folder without it holds no model
certificate.json   lower, upper, gap, and the digests of all other files
prior/             mean.npy, precision.npy, nonnegative.npy, where given
preprocessing/     columns.json, scale.txt, vocabulary.txt, map.json: how raw rows become features, if needed
support/           of an exact kernel: the support rows, whose coefficients are in weights.npy
map/               of a kernel's feature map: its landmarks and factor, or its frequencies, see map_files.py
problem/           texts that define the problem, such as grammar.txt of parsing
calibration.json   curves from decision values to probabilities, if the model was calibrated
latent.npy         of a latent problem: the latent values in the certified convex problem …
latent_indptr.npy  … and where those of each example begin, if each token has one
dual/              the support constraints, see dual.py, and checksum.npy of the shards they were found in
run.json           during a run: the files to remove if the run is not resumed
checkpoint/        of an unfinished run, see coordinator/checkpoint.py
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import distdual
from distdual.data.dataset import Dataset
from distdual.data.preprocess.preprocessing import Preprocessing, of_model
from distdual.data.storage.claim import Claim, claimed
from distdual.data.storage.location import Location, Place, as_location
from distdual.errors import InputError
from distdual.json_floats import parsed_json
from distdual.kernels.rows import Floats
from distdual.memory import check_room
from distdual.model.calibration import Calibration
from distdual.model.dual import (
    FILES,
    AnyDual,
    Dual,
    DualSummary,
    GroupDual,
    describe_dual,
    is_members_folder,
    npy,
    read_dual,
    read_npy,
)
from distdual.model.map_files import MAP_ARRAYS, map_files, read_map
from distdual.model.replace_files import create_files, current, replace_files
from distdual.model.schema import CERTIFICATE, EXPANDED, FEATURE_MAP, MODEL, RUN_RULE
from distdual.model.support_files import SUPPORT_ARRAYS, read_expansion, support_files
from distdual.problems.base import Problem
from distdual.problems.binary import Binary
from distdual.problems.expanded import EXPANSION, Expanded
from distdual.problems.latent.base import Completed, LatentProblem
from distdual.problems.mapped import MAP, Mapped, check_takes_map, mapped, unmapped
from distdual.problems.multiclass import Multiclass
from distdual.problems.registry import KindOrClass, problem_from, texts_of
from distdual.schema import rising
from distdual.solver.regularizer import Prior

CHECKPOINT = "checkpoint"
MANIFEST = "manifest.json"  # written last; completes a checkpoint
MODEL_FORMAT = 2  # 1: support constraints of single examples only
CALIBRATION = "calibration.json"
LATENT_ARRAYS = ("latent", "latent_indptr")
READS = 3  # attempts at a model that another process replaces meanwhile

PRIOR: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mean": (np.float64, (1,)),
    "precision": (np.float64, (1, 2)),
    "nonnegative": (np.int64, (1,)),
}


FROM_ARRAYS = "arrays"  # the URL of data that were never stored


class DataInfo(NamedTuple):
    """The data set a model was trained on."""

    url: str
    fingerprint: str
    n_examples: int
    checksum: NDArray[np.uint32]  # of each shard
    numbering: str | None = None  # identifies the meaning of feature numbers, see `Layout.numbering`


@dataclass(frozen=True, slots=True)
class Model:
    w: Floats
    problem: Problem
    C: float
    prior: Prior
    dual: AnyDual
    data: DataInfo
    certificate: dict[str, Any]  # lower, upper, gap, target, certified, and statistics of training
    config: dict[str, Any]  # of the run
    preprocessing: Preprocessing | None = None  # of the features; None for models of version 0.2.0, which lack it
    calibration: Calibration | None = None  # of decision values, by `calibrate`

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return None if self.preprocessing is None else self.preprocessing.feature_names

    def to_estimator(self) -> Any:
        """The fitted scikit-learn estimator: SVC, SVR or ChainSVM. It takes raw rows."""
        name = self.problem.estimator
        if name is None:
            raise InputError(f"a {self.problem.kind} model has no estimator; predict with distdual.predict")
        return getattr(distdual, name).from_model(self)

    def __repr__(self) -> str:
        certificate = self.certificate
        gap = "no proven gap" if certificate.get("gap") is None else f"gap {certificate['gap']:.2e}"
        return (
            f"<{self.problem.kind} model: C={self.C:g}, {len(self.w):,} weights, {self.dual.support:,} support, {gap}>"
        )

    def save(self, location: Location, *, overwrite: bool = False, claim: Claim | None = None) -> None:
        """Write the folder, model.json last; a model that is there stays whole until the new one is.

        `claim` is the caller's on the folder, if it has one.
        """
        check_output(
            location, overwrite=overwrite, remedy="set output.overwrite=true" if claim else "pass overwrite=True"
        )
        with contextlib.nullcontext(claim) if claim else claimed(location) as held:
            held.check()
            self._write(location)

    def _write(self, location: Location) -> None:
        files = {
            "weights.npy": npy(self.w),
            **{f"dual/{name}.npy": npy(array) for name, array in self.dual.arrays().items()},
            "dual/checksum.npy": npy(self.data.checksum),
        }
        given = {name: getattr(self.prior, name) for name in PRIOR if getattr(self.prior, name) is not None}
        files |= {f"prior/{name}.npy": npy(array) for name, array in given.items()}
        files |= {f"problem/{name}.txt": getattr(self.problem, name).encode() for name in self.problem.texts}
        if isinstance(self.problem, Mapped):
            files |= map_files(self.problem.feature_map)
        if isinstance(self.problem, Expanded):
            files |= support_files(self.problem)
        if isinstance(self.problem, Completed):
            files |= {f"{name}.npy": npy(array) for name, array in latent_arrays(self.problem).items()}
        files |= {} if self.preprocessing is None else self.preprocessing.files()
        files |= {} if self.calibration is None else {CALIBRATION: to_json(self.calibration.table())}
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        files = {
            "certificate.json": to_json({**self.certificate, "sha256": digests}),
            **files,
        }  # first: shows which version wrote it
        about = to_json(
            {
                "format": 1 if isinstance(self.dual, Dual) else MODEL_FORMAT,
                "distdual": distdual.__version__,
                "problem": self.problem.describe(),
                "C": self.C,
                **describe_features(self.preprocessing),
                **describe_dual(self.dual),
                "prior": list(given),
                "data": {
                    "url": self.data.url,
                    "fingerprint": self.data.fingerprint,
                    "n_examples": self.data.n_examples,
                    "n_shards": len(self.data.checksum),
                    "numbering": self.data.numbering,
                },
                "config": self.config,
            }
        )
        files["model.json"] = about
        if not location.exists("model.json"):
            create_files(location, files, "model.json")
            location.remove_file("run.json")  # its files now belong to a model
            return
        before = members_at(location)
        every = (*LATENT_ARRAYS, *(f"dual/{name}" for name in FILES), *(f"map/{name}" for name in MAP_ARRAYS))
        every += tuple(f"support/{name}" for name in SUPPORT_ARRAYS)
        replace_files(
            location, files, [name for name in (CALIBRATION, *(f"{one}.npy" for one in every)) if name not in files]
        )
        location.remove_file("run.json")
        own = self.dual.members if isinstance(self.dual, GroupDual) else None
        if before is not None and before != own:
            (location / before).remove()


def members_at(location: Location) -> str | None:
    """The folder of members files that belongs to the model of a folder, if any."""
    if not location.exists("model.json"):
        return None
    members = read_json(current(location), "model.json").get("members")
    return str(members) if is_members_folder(members) else None


MOST_NAMES = 10_000  # of features in model.json, which people read; the files of preprocessing/ have all


def describe_features(preprocessing: Preprocessing | None) -> dict[str, Any]:
    """The entries of model.json about features."""
    if preprocessing is None:
        return {}
    names = preprocessing.feature_names
    listed = names is not None and len(names) <= MOST_NAMES
    return {"preprocessing": preprocessing.describe(), **({"feature_names": list(names or ())} if listed else {})}


def check_output(location: Location, *, overwrite: bool, remedy: str = "set output.overwrite=true") -> None:
    """Raise unless a model may be written here; `remedy` says how to replace one."""
    if location.is_empty():
        return
    ours = ("model.json", "certificate.json", "run.json", f"{CHECKPOINT}/{MANIFEST}")
    if not any(location.exists(name) for name in ours):
        raise InputError(f"{location}: already holds something that is not a model; choose another output.url")
    if location.exists("model.json") and not overwrite:
        raise InputError(f"{location}: already holds a model; choose another place, or {remedy}")


def begin_run(location: Location, members: str | None) -> None:
    """Record the files that a run writes before its model, so that they can be removed."""
    location.write("run.json", to_json({"members": members}))


def remove_unfinished(location: Location) -> None:
    """Remove the files of an unfinished run."""
    (location / CHECKPOINT).remove_file(MANIFEST)  # first, so that no run resumes from an incomplete checkpoint
    noted = location.exists("run.json")
    folder = read_run(location)
    if folder and folder != members_at(location):  # else of a run that was killed after its model was written
        (location / folder).remove()
    (location / CHECKPOINT).remove()
    if noted:
        location.remove_file("run.json")


def read_about(location: Location) -> dict[str, Any]:
    """Return the content of model.json, if this version can read it."""
    if not location.exists("model.json"):
        raise InputError(f"{location}: there is no model: model.json not found; make one with `distdual train`")
    about = read_json(location, "model.json")
    version = about.get("format")
    if type(version) is not int:
        raise InputError(f"{location}/model.json: the format is {version!r}, a number is expected")
    if version > MODEL_FORMAT:
        raise InputError(
            f"{location}: model format {version} is newer than {MODEL_FORMAT}, "
            "the newest this version reads; upgrade distdual"
        )
    MODEL(f"{location}/model.json", about)
    return about


def read_certificate(location: Location) -> dict[str, Any]:
    certificate = read_json(location, "certificate.json")
    CERTIFICATE(f"{location}/certificate.json", certificate)
    return certificate


def load_model(
    location: Place, problem: KindOrClass | None = None, *, storage_options: Mapping[str, Any] | None = None
) -> Model:
    """Read the model folder at a path or URL; nothing in it is executed or unpickled.

    A model of a user's own problem needs `problem`: the class, or its name as "package.module:Class". A name that only
    the folder contains is never imported.
    """
    location = as_location(location, storage_options)
    for _ in range(READS):
        source = current(location)
        before = digests_at(source)
        try:
            model = read_model(source, problem)
        except InputError:
            if current(location) == source and digests_at(source) == before:
                raise
            continue
        if current(location) == source and digests_at(source) == before:
            return model
    raise InputError(f"{location}: the model is being replaced again and again; try later")


def digests_at(location: Location) -> bytes:
    """What differs between two models, whatever they have in common; nothing if there is none."""
    return location.read("certificate.json") if location.exists("certificate.json") else b""


def read_model(location: Location, problem: KindOrClass | None) -> Model:
    about = read_about(location)
    with naming(location):
        names = texts_of(about["problem"], problem)
    texts = {name: read_text(location, f"problem/{name}.txt") for name in names}
    with naming(location):
        made = problem_from(raw_description(about["problem"]), problem, texts)
        if MAP in about["problem"]:
            check_takes_map(made)
            told = about["problem"][MAP]
            FEATURE_MAP(f"model.json: problem: {MAP}", told)
            made = mapped(made, read_map(location, told, about["problem"]["n_features"]))
        if EXPANSION in about["problem"] and made.takes_map:
            EXPANDED(f"model.json: problem: {EXPANSION}", about["problem"][EXPANSION])
            made = read_expansion(location, about["problem"][EXPANSION], made)
    check_room(f"{location}: w of {made.n_weights} weights", 8 * made.n_weights)
    data, C, config = about["data"], float(about["C"]), about["config"]
    arrays = {name: read_prior(location, name) for name in about["prior"]}
    with naming(location):
        prior = Prior(made.n_weights, **arrays, free=made.free_bias)
    checksum = read_npy(location, "dual/checksum.npy", np.uint32)
    info = DataInfo(data["url"], data["fingerprint"], data["n_examples"], checksum, data.get("numbering"))
    if isinstance(made, LatentProblem):
        made = read_latent_values(location, made)
    w = read_npy(location, "weights.npy", np.float64)
    if len(w) != made.n_weights:
        raise InputError(f"{location}/weights.npy: {len(w)} weights, but model.json describes {made.n_weights}")
    certificate = read_certificate(location)
    dual = read_dual(location, about, certificate.get("support", 0))
    if len(dual.beta) not in (0, len(w)):
        raise InputError(
            f"{location}/dual/beta.npy: {len(dual.beta)} numbers, expected none or one per weight: {len(w)}"
        )
    if isinstance(dual, DualSummary) and len(dual.v) != len(w):
        raise InputError(f"{location}/dual/v.npy: {len(dual.v)} numbers, expected one per weight: {len(w)}")
    calibration = read_calibration(location, made)
    return Model(w, made, C, prior, dual, info, certificate, config, of_model(location, about), calibration)


def read_calibration(location: Location, problem: Problem) -> Calibration | None:
    if not location.exists(CALIBRATION):
        return None
    plain = unmapped(problem)
    if not isinstance(plain, Binary | Multiclass):
        raise InputError(f"{location}/{CALIBRATION}: a {problem.kind} model gives no probabilities; remove the file")
    n_curves = 1 if isinstance(plain, Binary) else len(plain.classes)
    return Calibration.of_table(read_json(location, CALIBRATION), n_curves, f"{location}/{CALIBRATION}")


def raw_description(told: Mapping[str, Any]) -> dict[str, Any]:
    """The description of a problem without its kernel."""
    return {key: value for key, value in told.items() if key not in (MAP, EXPANSION)}


@contextmanager
def naming(location: Location) -> Iterator[None]:
    """Put the folder's name before the message of an InputError."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{location}: {error}") from None


def latent_arrays(problem: Completed) -> dict[str, NDArray[Any]]:
    """Return the latent values by file name."""
    given = zip(LATENT_ARRAYS, (problem.values, problem.indptr), strict=True)
    return {name: array for name, array in given if array is not None}


def read_latent_values(location: Location, problem: LatentProblem) -> Completed:
    values = read_npy(location, "latent.npy", np.int32)
    if not problem.per_token:
        return Completed(problem, values)
    indptr = read_npy(location, "latent_indptr.npy", np.int64)
    rising(f"{location}/latent_indptr.npy", indptr, len(values), least=1)
    return Completed(problem, values, indptr=indptr)


def check_own_texts(problem: Problem, dataset: Dataset) -> None:
    """Raise if the data set was prepared with another grammar, which numbers trees differently."""
    for name in problem.texts:
        if dataset.texts.get(name) != getattr(problem, name):
            raise InputError(f"{dataset.location}: its {name} is not the one that the model was trained with")


def read_prior(location: Location, name: str) -> NDArray[Any]:
    dtype, dimensions = PRIOR[name]
    return read_npy(location, f"prior/{name}.npy", dtype, dimensions)


def changed_files(location: Location, certificate: dict[str, Any]) -> list[str]:
    """Return the files of a model folder whose digests differ from those of training."""
    location = current(location)
    digests = certificate.get("sha256", {})
    return [name for name, digest in digests.items() if hashlib.sha256(location.read(name)).hexdigest() != digest]


def to_json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def read_text(location: Location, name: str) -> str:
    try:
        return location.read(name).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{location}/{name}: not UTF-8 text: {error}") from None


def read_json(location: Location, name: str) -> dict[str, Any]:
    try:
        value = parsed_json(location.read(name))
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{location}/{name}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{location}/{name}: expected a JSON object")
    return value


def read_run(location: Location) -> str | None:
    """The folder of members files that an unfinished run recorded; None if there is none."""
    if not location.exists("run.json"):
        return None
    told = read_json(location, "run.json")
    RUN_RULE(f"{location}/run.json", told)
    members: str | None = told.get("members")
    return members
