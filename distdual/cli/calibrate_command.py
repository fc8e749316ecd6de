"""The command calibrate: probabilities for a trained model."""

from typing import Any

import click

from distdual.cli.completion import complete_path
from distdual.cli.options import (
    NOT_CERTIFIED,
    json_option,
    print_json,
    scheduler_options,
    stderr,
    stdout,
    storage_option,
    storage_options,
)
from distdual.config import ClusterConfig


@click.command(short_help="Learn probabilities for a trained model.")
@click.argument("model", shell_complete=complete_path)
@click.option(
    "--method",
    type=click.Choice(("sigmoid", "isotonic")),
    default="sigmoid",
    show_default=True,
    help="Platt's sigmoid, or isotonic regression, which needs 1,000 examples or more.",
)
@click.option("--folds", default=5, show_default=True, help="Cross-validation folds.")
@click.option("--data", metavar="URL", help="The data set, if it has moved since the training.")
@scheduler_options
@storage_option
@json_option
def calibrate(
    model: str,
    method: str,
    folds: int,
    data: str | None,
    scheduler: dict[str, Any],
    storage_file: Any,
    as_json: bool,
) -> int:
    """Learn probabilities for MODEL from cross-validated decision values, and store them in its folder.

    Each fold is scored by a model trained on the others with the settings of MODEL, which itself does not change.
    For binary and multiclass models; `distdual predict --probabilities` then writes a probability for each class.

    \b
    Example:
      distdual calibrate distdual-quickstart/model --method isotonic
    """
    from distdual.coordinator.calibrate import calibrate as run
    from distdual.data.storage.location import Location
    from distdual.report.compile_notice import compiling_shown

    storage = storage_options(storage_file)
    with compiling_shown(stderr):
        found = run(
            Location(model, storage),
            method=method,
            folds=folds,
            data=Location(data, storage) if data else None,
            cluster=ClusterConfig(**scheduler),
            watch=lambda fold, gap: stderr.print(f"fold {fold + 1} of {folds}: gap={gap:.2e}", soft_wrap=True),
        )
    if as_json:
        print_json(
            {
                "model": model,
                "method": method,
                "folds": folds,
                "gaps": found.gaps,
                "certified": found.certified,
                "log_loss": found.log_loss,
            }
        )
    else:
        stdout.print(f"calibrated {model}: {method}, log loss {found.log_loss:.4f} on held-out examples")
        if not found.certified:
            stdout.print("           the model of a fold is not certified; raise solver.max_passes or solver.gap")
    return 0 if found.certified else NOT_CERTIFIED
