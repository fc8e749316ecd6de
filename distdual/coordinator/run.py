"""A training run: from a config to a certified model in its folder."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distdual.certificate.verify import contradictions
from distdual.cluster.base import Executor
from distdual.cluster.open_executor import dask_page, one_client, open_executor
from distdual.config import ClusterConfig, Config, from_table
from distdual.coordinator.auto_slack import choice_of
from distdual.coordinator.checkpoint import Checkpoint, resumes_from
from distdual.coordinator.evaluation import Evaluation, open_evaluation
from distdual.coordinator.expansion_run import Asked, train_expansion
from distdual.coordinator.finished import finished_model
from distdual.coordinator.result_model import model_of
from distdual.coordinator.run_identity import identity
from distdual.coordinator.run_inputs import RunInputs, output_of, run_inputs, start_of
from distdual.coordinator.run_output import members_of, save_result, tidy
from distdual.coordinator.solve import foreign, solve_problem
from distdual.coordinator.trainer import Trainer
from distdual.coordinator.whole_trainer import trainer_class
from distdual.data.dataset import Dataset
from distdual.data.storage.claim import Claim, claimed
from distdual.data.storage.location import Location
from distdual.model.dual import DualSummary
from distdual.model.io import (
    Model,
    check_output,
    remove_unfinished,
)
from distdual.problems.latent.base import Completed
from distdual.report.log_sinks import open_logs
from distdual.report.round_log import Round
from distdual.report.run_log import About, Log

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of `train`."""

    model: Model
    certificate: dict[str, Any]
    history: list[Round] = field(repr=False)
    finished_before: bool = False  # an earlier run did all the work, and this one none


@dataclass(frozen=True, slots=True)
class Control:
    """How the caller of `train` runs, watches and stops it."""

    client: Any
    watch: Callable[[Round], None] | None
    interrupted: Callable[[], bool]
    terminated: Callable[[], bool]
    logs: Sequence[Log]
    resume: bool


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
    several = config.cluster if config.kernel else ClusterConfig()  # a map is made before the run has its executor
    with claimed(output.patient(0), owner) as claim, one_client(several, client) as workers:
        return train_claimed(config, claim, Control(workers, watch, interrupted, terminated, logs, resume))


def train_claimed(config: Config, claim: Claim, control: Control) -> Result:
    """Train, once no other process can write to the model's folder."""
    if config.kernel is not None and config.kernel.basis is None:
        return train_exact(config, claim, control)
    given = run_inputs(config, control.client)
    dataset, problem, prior, output = given.dataset, given.problem, given.prior, given.output
    if control.resume and (model := finished_model(config, problem, prior, dataset, output)) is not None:
        remove_unfinished(output)
        return Result(model, model.certificate, [], finished_before=True)
    checkpoint = checkpoint_of(given, claim, control)
    start = None if checkpoint.resumed else start_of(config)
    with (
        open_logs(config.output, control.logs) as logged,
        open_executor(config.cluster, dataset, problem, control.client) as executor,
        members_of(config, output, choice_of(given.solver, dataset, problem).slack, checkpoint) as members,
        open_evaluation(config.eval, dataset, problem, executor) as evaluation,
    ):
        about = About(config.public(), dataset.n_examples, dataset.n_shards, dask_page(executor), dataset.n_features)
        logged.begin(about)
        new_trainer = trainer_maker(given, executor, members, checkpoint, control, logged, evaluation)
        solved = solve_problem(given, new_trainer, start, checkpoint, logged.write)
        if evaluation is not None:
            evaluation.after_round(solved.trainer)
        model = model_of(solved.outcome, config, dataset, solved.problem, prior, members, solved.more)
        if checkpoint.resumed:
            check_resumed(model, output, dataset, executor, checkpoint)
        save_result(model, config, claim, checkpoint, solved.trainer)
        logged.end(model.certificate)
        tidy(solved.outcome, model.dual, checkpoint)
    return Result(model, model.certificate, solved.outcome.history)


def train_exact(config: Config, claim: Claim, control: Control) -> Result:
    """Train with an exact kernel."""
    asked = Asked(control.client, control.watch, control.interrupted, control.terminated, control.logs, control.resume)
    model, history = train_expansion(config, claim, asked)
    return Result(model, model.certificate, history or [], finished_before=history is None)


def checkpoint_of(given: RunInputs, claim: Claim, control: Control) -> Checkpoint:
    """The checkpoints of this run; what it resumes from has been read and checked."""
    output = given.config.output
    checkpoint = Checkpoint(
        given.output,
        every=output.checkpoint_every,
        run=identity(given.config, given.problem, given.prior, given.dataset),
        terminated=control.terminated,
        claim=claim,
    )
    if resumes_from(checkpoint, overwrite=output.overwrite, resume=control.resume):
        checkpoint.read(given.dataset)
    return checkpoint


def trainer_maker(
    given: RunInputs,
    executor: Executor,
    members: str | None,
    checkpoint: Checkpoint,
    control: Control,
    logged: Log,
    evaluation: Evaluation | None,
) -> Callable[[], Trainer]:
    """A function that makes a fresh trainer; a latent run needs one for each restart."""
    folder = None if members is None else given.output.absolute() / members

    def each_round(line: Round) -> None:
        logged.write(line)
        if control.watch:
            control.watch(line)

    def between(trainer: Trainer) -> None:
        if evaluation is not None:
            evaluation.after_round(trainer)
        checkpoint.between(trainer)

    return lambda: trainer_class(given.problem, given.solver.mode)(
        given.problem,
        given.dataset,
        executor,
        given.solver,
        each_round,
        given.prior,
        folder,
        control.interrupted,
        between,
        validation=(lambda _: None) if evaluation is None else evaluation.verdict,
    )


def check_resumed(model: Model, output: Location, dataset: Dataset, executor: Executor, checkpoint: Checkpoint) -> None:
    """Recompute what a resumed run is about to certify: its checkpoint may have been changed like any stored file.

    A summary of the dual cannot be rebuilt, and `verify` says so; latent values are those of the last problem.
    """
    if isinstance(model.dual, DualSummary) or isinstance(model.problem, Completed):
        return
    if found := [each for each in contradictions(model, output, dataset, executor) if "inexact" not in each]:
        raise foreign(checkpoint, found[0])
