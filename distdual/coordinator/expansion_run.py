"""A training run with an exact kernel: from a config to a certified model in its folder."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from distdual.cluster.base import Executor
from distdual.cluster.open_executor import dask_page, open_executor
from distdual.config import Config, KernelConfig, OutputConfig, PriorConfig, SolverConfig
from distdual.coordinator.checkpoint import resumes_from
from distdual.coordinator.expansion_checkpoint import ExpansionCheckpoint
from distdual.coordinator.expansion_trainer import ExpansionOutcome, ExpansionTrainer
from distdual.coordinator.finished import finished_model
from distdual.coordinator.map_maker import exact_kernel
from distdual.coordinator.run_identity import identity
from distdual.coordinator.run_inputs import data_of, output_of, problem_of
from distdual.coordinator.schedule import Cause
from distdual.data.dataset import Dataset, open_dataset
from distdual.data.preprocess.preprocessing import of_dataset
from distdual.data.storage.claim import Claim
from distdual.data.training_data import TrainingData
from distdual.errors import InputError
from distdual.model.io import DataInfo, Model, remove_unfinished
from distdual.problems.base import Problem
from distdual.problems.expansion_form import expansion_form_of
from distdual.report.log_sinks import open_logs
from distdual.report.round_log import Round
from distdual.report.run_log import About, Log
from distdual.solver.regularizer import Prior

EXACT_CERTIFIES = "the problem with the exact kernel"


class Asked(NamedTuple):
    """How the caller runs, watches and stops it."""

    client: Any
    watch: Callable[[Round], None] | None
    interrupted: Callable[[], bool]
    terminated: Callable[[], bool]
    logs: Sequence[Log]
    resume: bool


def train_expansion(config: Config, claim: Claim, asked: Asked) -> tuple[Model, list[Round] | None]:
    """Train, certify and save the model; without a history if an earlier run did all the work."""
    assert config.kernel is not None
    check_exact(config)
    dataset = open_dataset(data_of(config))
    problem = problem_of(config, dataset)
    expansion_form_of(problem)  # refuses one that has none
    output = output_of(config)
    if asked.resume and (model := finished_model(config, problem, Prior(0), dataset, output)) is not None:
        remove_unfinished(output)
        return model, None
    checkpoint = checkpoint_of_expansion(config, problem, dataset, claim, asked)
    with (
        open_logs(config.output, list(asked.logs)) as logged,
        open_executor(config.cluster, dataset, problem, asked.client) as executor,
    ):
        about = About(config.public(), dataset.n_examples, dataset.n_shards, dask_page(executor), dataset.n_features)
        logged.begin(about)

        def each_round(line: Round) -> None:
            logged.write(line)
            if asked.watch:
                asked.watch(line)

        function = exact_kernel(config.kernel, dataset, executor, config.solver.seed)
        trainer = ExpansionTrainer(
            problem, function, dataset, executor, config.solver, each_round, asked.interrupted, checkpoint.between
        )
        with checkpoint.kept(lambda: trainer):
            if checkpoint.resumed:
                checkpoint.resume(trainer)
            outcome = trainer.run()
        model = model_of_expansion(outcome, config, dataset)
        model.save(output, overwrite=config.output.overwrite, claim=claim)
        logged.end(model.certificate)
        checkpoint.remove()
    return model, outcome.history


def checkpoint_of_expansion(
    config: Config, problem: Problem, dataset: Dataset, claim: Claim, asked: Asked
) -> ExpansionCheckpoint:
    """The checkpoints of this run; what it resumes from has been read and checked."""
    checkpoint = ExpansionCheckpoint(
        output_of(config),
        every=config.output.checkpoint_every,
        run=identity(config, problem, Prior(0), dataset),
        terminated=asked.terminated,
        claim=claim,
    )
    if resumes_from(checkpoint, overwrite=config.output.overwrite, resume=asked.resume):
        checkpoint.read(dataset)
    else:
        remove_unfinished(output_of(config))
    return checkpoint


def solved(
    problem: Problem,
    kernel: KernelConfig,
    dataset: TrainingData,
    executor: Executor,
    solver: SolverConfig,
    watch: Callable[[Round], None],
) -> ExpansionOutcome:
    """A run without files."""
    function = exact_kernel(kernel, dataset, executor, solver.seed)
    return ExpansionTrainer(problem, function, dataset, executor, solver, watch).run()


def check_exact(config: Config) -> None:
    """What an exact kernel cannot do is refused, not left aside."""
    plain = SolverConfig()
    free = ("C", "gap", "max_passes", "max_seconds", "cache_bytes", "seed")
    names = [name for name in SolverConfig.__dataclass_fields__ if name not in free]
    changed = [f"solver.{name}" for name in names if getattr(config.solver, name) != getattr(plain, name)]
    changed += ["prior"] * (config.prior != PriorConfig()) + ["eval"] * (config.eval.url is not None)
    defaults = OutputConfig(url=config.output.url)
    changed += ["output.dual"] * (config.output.dual != defaults.dual)
    if changed:
        raise InputError(
            f"{changed[0]} is not possible with an exact kernel; leave it out, or give kernel.basis for a low-rank one"
        )


def model_of_expansion(outcome: ExpansionOutcome, config: Config, dataset: Dataset) -> Model:
    return Model(
        outcome.w,
        outcome.problem,
        config.solver.C,
        Prior(len(outcome.w)),
        outcome.dual,
        DataInfo(
            dataset.location.url,
            dataset.fingerprint,
            dataset.n_examples,
            dataset.checksum,
            dataset.layout.numbering,
        ),
        {**summarise_expansion(outcome, config.solver.gap, dataset), "model": config.output.url},
        config.public(),
        of_dataset(dataset),
    )


def summarise_expansion(outcome: ExpansionOutcome, target: float, dataset: TrainingData) -> dict[str, Any]:
    """The certificate and the costs, with the keys of other runs."""
    proven = outcome.certificate
    return {
        "lower": proven.lower,
        "upper": proven.upper,
        "gap": proven.gap,
        "rounding": proven.rounding,
        "estimate": None,
        "target": target,
        "certified": proven.reaches(target) and outcome.stop.cause != Cause.CONTRADICTION,
        "stopped_by": outcome.stop.cause.value,
        "reason": outcome.stop.reason,
        "kernel": {"certifies": EXACT_CERTIFIES},
        **outcome.totals.as_dict(),
        "updates": outcome.updates,
        "cache_rows": outcome.cache_rows,
        "cache_bytes": outcome.cache_bytes,
        "support": outcome.dual.support,
        "slack": "example",
        "seconds": outcome.seconds,
        "n_examples": dataset.n_examples,
        "n_shards": dataset.n_shards,
        "data_bytes": dataset.nbytes,
    }
