"""The model folder while a run writes to it: members files, the model, and what a failed write leaves."""

import contextlib
import logging
import secrets
import tempfile
from collections.abc import Iterator

import numpy as np

from distdual.config import Config
from distdual.coordinator.checkpoint import Checkpoint
from distdual.coordinator.outcome import Outcome
from distdual.coordinator.run_inputs import output_of
from distdual.coordinator.trainer import Trainer
from distdual.data.storage.claim import Claim
from distdual.data.storage.location import Location
from distdual.errors import InputError, Superseded
from distdual.model.dual import AnyDual, GroupDual
from distdual.model.io import (
    MANIFEST,
    Model,
    begin_run,
    read_run,
    remove_unfinished,
)
from distdual.scan.slack import Slack

log = logging.getLogger(__name__)


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
    """A run has ended, but its model could not be saved at output.url."""


def save_result(model: Model, config: Config, claim: Claim, checkpoint: Checkpoint, trainer: Trainer) -> None:
    """Save the model of a finished run; if that fails, keep the model elsewhere and say how to continue."""
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
        return f"the checkpoint is in {checkpoint.folder}: continue with --resume"
    last = "; --resume continues from the last checkpoint" if checkpoint.whole else ""
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
