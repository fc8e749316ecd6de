"""A training run: from a config to a certified model in its folder."""

import contextlib
import logging
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distdual.certificate.verify import contradictions
from distdual.cluster.base import Executor
from distdual.cluster.open_executor import check_examples, dask_page, open_executor
from distdual.config import Config, from_table, index_range
from distdual.coordinator.async_trainer import MODES
from distdual.coordinator.checkpoint import Checkpoint, Saved, identity, open_checkpoint
from distdual.coordinator.finished import finished_model
from distdual.coordinator.latent_loop import LatentRun, RisenError, check_possible
from distdual.coordinator.latent_snapshot import pack_latent
from distdual.coordinator.schedule import Cause
from distdual.coordinator.trainer import Outcome, Trainer, choice_of
from distdual.coordinator.warm_start import check_same, hot_start
from distdual.data.dataset import Dataset, TrainingData, open_dataset
from distdual.data.preprocess.preprocessing import of_dataset
from distdual.data.storage.claim import Claim, claimed
from distdual.data.storage.location import Location
from distdual.errors import InputError, Superseded
from distdual.kernels.rows import Floats, product
from distdual.model.dual import AnyDual, Dual, GroupDual, Summary, read_npy
from distdual.model.io import (
    MANIFEST,
    DataInfo,
    Model,
    begin_run,
    check_output,
    load_model,
    read_run,
    remove_unfinished,
)
from distdual.problems.base import Problem
from distdual.problems.latent.base import Completed, LatentProblem, stated
from distdual.problems.registry import class_of, is_own, make_problem
from distdual.report.log_sinks import open_logs
from distdual.report.round_log import Round
from distdual.report.run_log import About, Log
from distdual.scan.slack import Slack
from distdual.solver.regularizer import Prior
from distdual.solver.sweep import add_rows

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of `train`."""

    model: Model
    certificate: dict[str, Any]
    history: list[Round]
    finished_before: bool = False  # an earlier run did all the work, and this one none


def train(
    config: Config | Mapping[str, Any],
    client: Any = None,
    watch: Callable[[Round], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    *,
    resume: bool = False,
    terminated: Callable[[], bool] = lambda: False,
    logs: Sequence[Log] = (),
    owner: str | None = None,
) -> Result:
    """Train, certify and save the model that `config` describes.

    `config` is a Config or a table like that of a TOML file; `client` is a Dask client to use instead of [cluster];
    `watch` is called after every round; once `interrupted` returns True, the run certifies its weights and ends.
    `resume` continues from the checkpoint in the model's folder, if any, and returns the model of a run that has
    finished; once `terminated` returns True, the run writes a checkpoint and raises `Suspended`. `logs` receive the
    run, like those named in [output]. No other run may write to the model's folder meanwhile, but a later attempt at
    the job `owner` takes over from an earlier one.
    """
    config = config if isinstance(config, Config) else from_table(config)
    output = output_of(config)
    check_output(output.patient(0), overwrite=config.output.overwrite or resume)
    with claimed(output.patient(0), owner) as claim:
        return train_claimed(config, claim, client, watch, interrupted, resume, terminated, logs)


def train_claimed(
    config: Config,
    claim: Claim,
    client: Any,
    watch: Callable[[Round], None] | None,
    interrupted: Callable[[], bool],
    resume: bool,
    terminated: Callable[[], bool],
    logs: Sequence[Log],
) -> Result:
    output = output_of(config)
    dataset = open_dataset(data_of(config))
    problem = problem_of(config, dataset)
    prior = prior_of(config, problem.n_weights)
    solver = config.solver
    if isinstance(problem, LatentProblem):
        check_possible(problem, solver.slack, solver.cache_bytes)
        solver = replace(solver, slack="example")
    if resume and (model := finished_model(config, problem, prior, dataset, output)) is not None:
        remove_unfinished(output)
        return Result(model, model.certificate, [], finished_before=True)
    checkpoint, there = open_checkpoint(
        output,
        overwrite=config.output.overwrite,
        resume=resume,
        every=config.output.checkpoint_every,
        run=identity(config, problem, prior, dataset),
        terminated=terminated,
        claim=claim,
    )
    saved = checkpoint.read(dataset) if there else None
    start = None if saved else start_of(config)
    with (
        open_logs(config.output, logs) as logged,
        open_executor(config.cluster, dataset, problem, client) as executor,
        members_of(config, output, choice_of(solver, dataset, problem).slack, checkpoint) as members,
    ):
        logged.begin(About(config.public(), dataset.n_examples, dataset.n_shards, dask_page(executor)))

        def each_round(line: Round) -> None:
            logged.write(line)
            if watch:
                watch(line)

        notes = None if members is None else output.absolute() / members

        def new_trainer() -> Trainer:
            return MODES[solver.mode](
                problem, dataset, executor, solver, each_round, prior, notes, interrupted, checkpoint.between
            )

        solved, more = problem, dict[str, Any]()
        if isinstance(problem, LatentProblem):
            run = latent_run(problem, new_trainer, start, checkpoint, saved, logged.write)
            del saved  # the cache has a copy
            with checkpoint.kept(lambda: run.trainer):
                try:
                    found = run.run()
                except RisenError as error:
                    raise (foreign(checkpoint, str(error)) if there else error) from None
            trainer, outcome, solved, more = run.trainer, found.outcome, found.completed, {"latent": found.summary()}
        else:
            trainer = convex_run(new_trainer(), config, start, checkpoint, saved, logged.write)
            del saved
            with checkpoint.kept(lambda: trainer):
                outcome = trainer.run()
        model = model_of(outcome, config, dataset, solved, prior, members, more)
        if there:
            check_resumed(model, output, dataset, executor, checkpoint)
        save(model, config, claim, checkpoint, trainer)
        logged.end(model.certificate)
        tidy(outcome, model.dual, checkpoint)
    return Result(model, model.certificate, outcome.history)


def check_resumed(model: Model, output: Location, dataset: Dataset, executor: Executor, checkpoint: Checkpoint) -> None:
    """Recompute what a resumed run is about to certify, as what it resumed from is a stored file like any other.

    A summary of the dual cannot be rebuilt, and `verify` says so; latent values are those of the last problem.
    """
    if isinstance(model.dual, Summary) or isinstance(model.problem, Completed):
        return
    if found := [each for each in contradictions(model, output, dataset, executor) if "inexact" not in each]:
        raise foreign(checkpoint, found[0])


def foreign(checkpoint: Checkpoint, why: str) -> InputError:
    return InputError(
        f"{checkpoint.folder}: does not belong to the data: {why}; begin anew without --resume and with "
        "output.overwrite=true"
    )


def data_of(config: Config) -> Location:
    return Location(config.data.url, config.data.storage_options, config.data.retry_seconds)


def output_of(config: Config) -> Location:
    return Location(config.output.url, config.output.storage_options, config.output.retry_seconds)


def problem_of(config: Config, dataset: Dataset) -> Problem:
    """The problem of [problem], built for this data set."""
    kind, prepared = config.problem.kind, dataset.layout.kind
    if not is_own(kind) and kind != prepared:
        check_prepared(kind, dataset)
    problem = fit_problem(kind, config.problem.options, dataset)
    check_columns(dataset, problem)
    return problem


def fit_problem(kind: str, options: Mapping[str, Any], dataset: Dataset) -> Problem:
    layout, classes = dataset.layout, dataset.classes
    return make_problem(kind, options, n_features=layout.n_features, classes=classes, texts=dataset.texts)


def check_prepared(kind: str, dataset: Dataset) -> None:
    """Refuse data prepared for an incompatible problem, and name the remedy."""
    class_of(kind)
    try:
        check_examples(dataset, fit_problem(kind, {}, dataset))
    except InputError as error:
        place, prepared = str(dataset.location), dataset.layout.kind
        found = str(error).removeprefix(f"{place}: ")
        raise InputError(
            f"{place}: {found}; it was prepared for problem.kind = {prepared!r}: "
            f"train that, or prepare it again with --problem {kind}"
        ) from None


def convex_run(
    trainer: Trainer,
    config: Config,
    start: Model | None,
    checkpoint: Checkpoint,
    saved: Saved | None,
    tell: Callable[[Round], None],
) -> Trainer:
    """A new run, warm-started from a model if given, or a resumed one, whose earlier rounds are logged again."""
    if saved:
        checkpoint.restore(trainer, saved)
        for line in trainer.state.history:
            tell(line)
    if start:
        assert isinstance(trainer.dataset, Dataset)
        check_same(start, trainer.dataset, trainer.problem)
        place = Location(config.solver.start or "", config.data.storage_options).absolute()
        hot_start(trainer.solver, trainer.partition, start, place, trainer.dataset, trainer.executor)
    return trainer


def latent_run(
    problem: LatentProblem,
    new_trainer: Callable[[], Trainer],
    start: Model | None,
    checkpoint: Checkpoint,
    saved: Saved | None,
    tell: Callable[[Round], None],
) -> LatentRun:
    """The same for a latent problem, which starts from the weights of a model."""
    run = LatentRun(problem, new_trainer)
    if start is not None:
        run.start = problem.start_from(stated(start.problem), start.w, run.trainer.config.seed)
    checkpoint.latent = lambda: pack_latent(run)
    if saved:
        checkpoint.restore_latent(run, saved)
        for line in run.trainer.state.history:
            tell(line)
    return run


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
        {**summarise(outcome, config.solver.gap, dataset), **(more or {}), "model": config.output.url},
        config.public(),
        of_dataset(dataset),
    )


@contextlib.contextmanager
def members_of(config: Config, output: Location, slack: Slack, checkpoint: Checkpoint) -> Iterator[str | None]:
    """The folder of members files inside the model's; None if the run writes none.

    It is removed if training fails, unless a checkpoint refers to it.
    """
    if not checkpoint.whole:
        remove_unfinished(output)
        groups = not slack.is_example or np.isfinite(config.solver.cache_bytes)
        if groups and config.output.dual == "full":
            checkpoint.members = f"dual/members-{secrets.token_hex(4)}"
            begin_run(output, checkpoint.members)
    try:
        yield checkpoint.members
    except (UnsavedError, Superseded):
        raise
    except BaseException:
        if not checkpoint.whole and is_alone(output, checkpoint):
            remove_unfinished(output)
        raise


def is_alone(output: Location, checkpoint: Checkpoint) -> bool:
    """Whether the folder still belongs to this run; another may have taken over."""
    noted = read_run(output) if output.exists("run.json") else checkpoint.members
    return bool(noted == checkpoint.members) and not checkpoint.folder.exists(MANIFEST)


class UnsavedError(InputError):
    """A run is over, but its model could not be saved in its place."""


def save(model: Model, config: Config, claim: Claim, checkpoint: Checkpoint, trainer: Trainer) -> None:
    """Save the model of a finished run; if that fails, keep what was reached and say how to go on."""
    output = output_of(config)
    try:
        model.save(output, overwrite=config.output.overwrite, claim=claim)
    except (InputError, OSError) as error:
        place = kept_as(model, output, checkpoint, trainer)
        raise UnsavedError(f"{error}; the run is over, but its model is not saved: {place}") from None


def kept_as(model: Model, output: Location, checkpoint: Checkpoint, trainer: Trainer) -> str:
    """Where a model that cannot be saved is kept, and what to do about it."""
    with contextlib.suppress(InputError, OSError):
        checkpoint.write(trainer)
        return f"the checkpoint is in {checkpoint.folder}: go on with --resume"
    last = "; --resume goes on from the last checkpoint" if checkpoint.whole else ""
    with contextlib.suppress(InputError, OSError):
        folder = tempfile.mkdtemp(prefix="distdual-model-")
        model.save(Location(folder))
        return f"it is in {folder}: copy all files in it to {output}{last}"
    return f"it could not be saved in {tempfile.gettempdir()} either{last}"


def tidy(outcome: Outcome, dual: AnyDual, checkpoint: Checkpoint) -> None:
    """Remove what only an unfinished run needs, after the model is saved."""
    try:
        checkpoint.remove()
        if isinstance(dual, GroupDual):
            outcome.partition.keep_files(dual.file)
    except InputError as error:
        log.warning("the model is saved, but temporary files could not be removed: %s", error)


def start_of(config: Config) -> Model | None:
    """The model of solver.start; user code is loaded only if the config names it."""
    if config.solver.start is None:
        return None
    return load_model(Location(config.solver.start, config.data.storage_options), own_kind(config))


def own_kind(config: Config) -> str | None:
    return config.problem.kind if is_own(config.problem.kind) else None


def check_columns(dataset: Dataset, problem: Problem) -> None:
    """Refuse a column that the problem does not use, rather than ignore it."""
    if "margin" in dataset.layout.columns and not problem.uses_margin:
        raise InputError(
            f"{dataset.location}: the data set has a margin column, which a {problem.kind} problem does not use; "
            "prepare it without"
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
        return Summary(np.array([product(alpha, cache.margin.view[support])]), v, beta, len(support))
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


def prior_of(config: Config, n_weights: int) -> Prior:
    """The prior of [prior], with its files read."""
    told, options = config.prior, config.data.storage_options
    mean = read_weights(told.mean, options, own_kind(config)) if told.mean else None
    precision: Floats | None = None
    if isinstance(told.precision, str):
        precision = read_array(told.precision, options, (1, 2))
    elif told.precision != 1.0:
        precision = np.full(n_weights, told.precision)
    ranges = [np.arange(found.start, found.stop) for found in map(index_range, told.nonnegative)]
    nonnegative = np.unique(np.concatenate(ranges)) if ranges else None
    return Prior(n_weights, mean, precision, nonnegative)


def read_weights(url: str, options: Mapping[str, Any], own: str | None) -> Floats:
    """The weights of a model folder or a .npy file."""
    return read_array(url, options, (1,)) if url.endswith(".npy") else load_model(Location(url, options), own).w


def read_array(url: str, options: Mapping[str, Any], dimensions: tuple[int, ...]) -> Floats:
    folder, _, name = url.rpartition("/")
    return read_npy(Location(folder or ".", options), name, np.float64, dimensions)


def summarise(outcome: Outcome, target: float, dataset: TrainingData) -> dict[str, Any]:
    """The certificate and the costs, as in `--json` and certificate.json."""
    proven, totals = outcome.certificate, outcome.totals
    return {
        "lower": proven.lower,
        "upper": proven.upper if proven.is_proven else None,
        "gap": proven.gap if proven.is_proven else None,
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
