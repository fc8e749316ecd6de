"""Job records: the scheduler keeps each job's state as a published data set, and its log as events."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from distdual.errors import InputError

RECORD = "distdual-job-"  # prefix of a record's data set, before the job id
CANCEL = "distdual-cancel-"  # prefix of the data set that requests cancellation
LOG = "distdual-log-"  # prefix of the topic of log events
TASK = "train_job-"  # prefix of the task's key

HIDDEN = ("before", "module")  # fields that only the job itself needs


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The state of a job, without credentials."""

    id: str
    state: str = "queued"  # then running; finally done, failed or cancelled
    sentence: str = ""  # why it ended
    code: int | None = None  # exit code of `train`; None until the job ends
    model: str
    data: str
    problem: str
    submitted: float  # seconds since 1970, as started and ended
    started: float | None = None
    ended: float | None = None
    attempt: int = 0  # number of workers that started it
    worker: str | None = None
    progress: dict[str, Any] = field(default_factory=dict)  # of the newest round
    certificate: dict[str, Any] | None = None
    before: dict[str, str | None] | None = None  # content of the model folder before the first attempt
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
        raise InputError(f"{job}: the scheduler has no such job; `distdual list` shows all")
    return Record(**json.loads(text))


def records(client: Any) -> Iterator[Record]:
    """Return all jobs since the scheduler started, in order of submission."""
    names: Sequence[str] = client.list_datasets()
    found = [read(client, str(name).removeprefix(RECORD)) for name in names if str(name).startswith(RECORD)]
    return iter(sorted(found, key=lambda record: record.submitted))


def ask_to_end(client: Any, job: str) -> None:
    client.publish_dataset("", name=CANCEL + job, override=True)


def is_asked_to_end(client: Any, job: str) -> bool:
    return client.get_dataset(CANCEL + job, default=None) is not None


def forget_asking(client: Any, job: str) -> None:
    if is_asked_to_end(client, job):  # Dask before 2026 fails for a name that is not there
        client.unpublish_dataset(CANCEL + job)
