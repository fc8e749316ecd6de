"""What is known of a job, and where? The scheduler keeps a record as a published data set, and its log as events."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from distdual.errors import InputError

RECORD = "distdual-job-"  # and the id: the data set of a record
CANCEL = "distdual-cancel-"  # the one that is there once the job is to end
LOG = "distdual-log-"  # the topic of its events
TASK = "train_job-"  # the key of its task

HIDDEN = ("before", "module")  # what only the job itself needs


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is known of a job. Nothing in it can hold credentials."""

    id: str
    state: str = "queued"  # then running; ended are done, failed and cancelled
    sentence: str = ""  # why it ended
    code: int | None = None  # the exit code that `train` would have ended with
    model: str
    data: str
    problem: str
    submitted: float  # seconds since 1970, as started and ended
    started: float | None = None
    ended: float | None = None
    attempt: int = 0  # counts workers that began: one that dies is followed by another
    worker: str | None = None
    progress: dict[str, Any] = field(default_factory=dict)  # of the newest round
    certificate: dict[str, Any] | None = None
    before: dict[str, str | None] | None = None  # what was in the model's folder when the first attempt began
    module: str | None = None  # digest of a user's own module

    def ending(self, state: str, sentence: str, code: int) -> "Record":
        return replace(self, state=state, sentence=sentence, code=code, ended=time.time(), worker=None)

    def public(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name not in HIDDEN}


def save(client: Any, record: Record) -> None:
    client.publish_dataset(json.dumps(asdict(record)), name=RECORD + record.id, override=True)


def read(client: Any, job: str) -> Record:
    text = client.get_dataset(RECORD + job, default=None)
    if text is None:
        raise InputError(f"{job}: the scheduler knows of no such job; `distdual list` shows all")
    return Record(**json.loads(text))


def records(client: Any) -> Iterator[Record]:
    """All jobs since the scheduler was started, in the order in which they were submitted."""
    names: Sequence[str] = client.list_datasets()
    found = [read(client, str(name).removeprefix(RECORD)) for name in names if str(name).startswith(RECORD)]
    return iter(sorted(found, key=lambda record: record.submitted))


def ask_to_end(client: Any, job: str) -> None:
    client.publish_dataset("", name=CANCEL + job, override=True)


def is_asked_to_end(client: Any, job: str) -> bool:
    return client.get_dataset(CANCEL + job, default=None) is not None


def forget_asking(client: Any, job: str) -> None:
    client.unpublish_dataset(CANCEL + job)
