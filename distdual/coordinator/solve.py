"""The training of one model: a convex or a latent run that is new, warm-started or resumed."""

from collections.abc import Callable
from typing import Any, NamedTuple

from distdual.coordinator.checkpoint import Checkpoint
from distdual.coordinator.latent_loop import LatentRun, RisenError
from distdual.coordinator.latent_snapshot import pack_latent
from distdual.coordinator.outcome import Outcome
from distdual.coordinator.run_inputs import RunInputs
from distdual.coordinator.trainer import Trainer
from distdual.coordinator.warm_start import check_same_problem, hot_start
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.model.io import Model
from distdual.problems.base import Problem
from distdual.problems.latent.base import LatentProblem, stated
from distdual.report.round_log import Round


class Solved(NamedTuple):
    trainer: Trainer
    outcome: Outcome
    problem: Problem  # the convex problem that was solved last
    more: dict[str, Any]  # for the certificate


def solve_problem(
    given: RunInputs,
    new_trainer: Callable[[], Trainer],
    start: Model | None,
    checkpoint: Checkpoint,
    tell: Callable[[Round], None],
) -> Solved:
    """Run to the end; `tell` gets the rounds of an earlier run that this one resumes."""
    if isinstance(given.problem, LatentProblem):
        return solve_latent(given.problem, new_trainer, start, checkpoint, tell)
    return solve_convex(given, new_trainer(), start, checkpoint, tell)


def solve_convex(
    given: RunInputs, trainer: Trainer, start: Model | None, checkpoint: Checkpoint, tell: Callable[[Round], None]
) -> Solved:
    """A warm start begins with the α of a model."""
    if checkpoint.resumed:
        checkpoint.restore(trainer)
        log_again(trainer, tell)
    if start:
        check_same_problem(start, given.dataset, trainer.problem)
        place = Location(given.solver.start or "", given.config.data.storage_options).absolute()
        hot_start(trainer.solver, trainer.partition, start, place, given.dataset, trainer.executor)
    with checkpoint.kept(lambda: trainer):
        return Solved(trainer, trainer.run(), given.problem, {})


def solve_latent(
    problem: LatentProblem,
    new_trainer: Callable[[], Trainer],
    start: Model | None,
    checkpoint: Checkpoint,
    tell: Callable[[Round], None],
) -> Solved:
    """A warm start begins with the weights of a model."""
    run = LatentRun(problem, new_trainer)
    if start is not None:
        run.start = problem.start_from(stated(start.problem), start.w, run.trainer.config.seed)
    checkpoint.latent = lambda: pack_latent(run)
    if checkpoint.resumed:
        checkpoint.restore_latent(run)
        log_again(run.trainer, tell)
    with checkpoint.kept(lambda: run.trainer):
        try:
            found = run.run()
        except RisenError as error:
            raise (foreign(checkpoint, str(error)) if checkpoint.resumed else error) from None
    return Solved(run.trainer, found.outcome, found.completed, {"latent": found.summary()})


def log_again(trainer: Trainer, tell: Callable[[Round], None]) -> None:
    """Log the earlier rounds of a resumed run again."""
    for line in trainer.state.history:
        tell(line)


def foreign(checkpoint: Checkpoint, why: str) -> InputError:
    return InputError(
        f"{checkpoint.folder}: does not belong to the data: {why}; start again without --resume and with "
        "output.overwrite=true"
    )
