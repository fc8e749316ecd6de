"""Submitting, watching and cancelling jobs, by a client that may disconnect meanwhile."""

import contextlib
import json
import queue
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from distdual.cluster.user_code import code_digest, code_of, send_code
from distdual.config import Config, from_table
from distdual.data.storage.location import Location
from distdual.errors import InputError, Suspended
from distdual.jobs.coordinator_task import train_job
from distdual.jobs.job_record import LOG, TASK, Record, ask_to_end, forget_asking, is_asked_to_end, read, records, save
from distdual.problems.registry import class_of, is_own

BEGIN = 5.0  # seconds in which a free worker should start
GRACE = 2.0  # seconds in which the last log lines of an ended job should arrive
POLL = 0.2  # seconds between two polls of the scheduler
LOST_JOB = (
    "the cluster has lost it: a worker that ran it died once more than the scheduler allows "
    "(Dask's allowed-failures), or the cluster was restarted; submit it again with --resume"
)


@dataclass(frozen=True, slots=True)
class Job:
    """A job on the cluster of a Dask client, which continues when the client disconnects."""

    id: str
    client: Any

    def record(self) -> Record:
        task = self.task_state()  # polled first, since the record is complete before the task is gone
        record = read(self.client, self.id)
        if record.ended is None and task is None:
            return replace(record, state="failed", sentence=LOST_JOB, code=1, worker=None)
        asked = record.ended is None and is_asked_to_end(self.client, self.id)
        return replace(record, state="cancelling") if asked else record

    def status(self) -> dict[str, Any]:
        """Return the state, the bounds so far and, at the end, the certificate or the reason for its absence."""
        return self.record().public()

    def logs(self) -> list[dict[str, Any]]:
        """Return the lines of the run log so far, or the newest of very many."""
        return [json.loads(line["round"]) for line in self.lines() if "round" in line]

    def lines(self, *, follow: bool = False) -> Iterator[dict[str, str]]:
        """Yield log entries: {"round": a line of the run log}, {"said": a sentence}, and finally {"ended": state}."""
        self.record()  # raises for an unknown job
        topic, new = LOG + self.id, queue.SimpleQueue[tuple[float, dict[str, str]]]()
        if follow:
            self.client.subscribe_topic(topic, new.put)
        old = self.client.get_events(topic)
        yield from (line for _, line in old)
        if follow:
            last, line = old[-1] if old else (0.0, {})
            while "ended" not in line and not (new.empty() and self._is_silent()):
                with contextlib.suppress(queue.Empty):
                    at, line = new.get(timeout=POLL)
                    yield from [line] if at > last else []  # else it was among the old ones
            self.client.unsubscribe_topic(topic)

    def _is_silent(self) -> bool:
        """Whether the job ended so long ago that its last line must be lost."""
        record = self.record()
        return record.code is not None and time.time() > (record.ended or 0.0) + GRACE

    def cancel(self) -> None:
        """Request the end of the job after its current round, with a checkpoint to resume from."""
        record = self.record()
        if record.code is not None:
            raise InputError(f"{self.id}: the job has already ended: {record.state}")
        ask_to_end(self.client, self.id)
        if record.attempt == 0:  # if it starts just now, it finds the request
            from distributed import Future

            self.client.cancel([Future(TASK + self.id, client=self.client)], force=True)
            save(self.client, record.ending("cancelled", "cancelled before it started", 1))
            forget_asking(self.client, self.id)

    def wait(self, timeout: float | None = None) -> Record:
        """Wait until the job has ended, at most `timeout` seconds, and return its record."""
        end = None if timeout is None else time.monotonic() + timeout
        while (record := self.record()).code is None and (end is None or time.monotonic() < end):
            time.sleep(POLL)
        return record

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the certificate; raise what training would have raised."""
        record = self.wait(timeout)
        if record.code is None:
            raise TimeoutError(f"{self.id}: the job has not ended within {timeout:g} s")
        if record.certificate is None:
            kind = Suspended if record.state == "cancelled" else InputError if record.code == 2 else RuntimeError
            raise kind(record.sentence)
        return record.certificate

    def task_state(self) -> str | None:
        """Return the scheduler's state of the job's task, or None if it has none."""
        key = TASK + self.id
        found: dict[str, str | None] = self.client.sync(self.client.scheduler.get_task_status, keys=[key])
        return found[key]


def submit(config: Config | Mapping[str, Any], client: Any, *, resume: bool = False) -> Job:
    """Submit a run to the cluster of a Dask client and return at once; the client may disconnect.

    `config` is as for `train`; the cluster is the client's. With `resume` it continues from the checkpoint in the model
    folder, if there is one.
    """
    from distributed import fire_and_forget

    config = anywhere(config if isinstance(config, Config) else from_table(config))
    kind = config.problem.kind
    code = code_of(class_of(kind).__module__) if is_own(kind) else {}
    digest = code_digest(code) if code else None
    job = Job(secrets.token_hex(4), client)
    record = Record(
        id=job.id, model=config.output.url, data=config.data.url, problem=kind, submitted=time.time(), module=digest
    )
    check_conflicts(record, [Job(other.id, client).record() for other in records(client) if other.code is None])
    send_code(client, code)
    save(client, record)
    future = client.submit(train_job, job.id, config, resume, key=TASK + job.id, pure=False)
    fire_and_forget(future)
    wait_for_begin(job, future)
    return job


def anywhere(config: Config) -> Config:
    """Make paths absolute, and drop the cluster settings, which the client replaces."""

    def absolute(url: str | None) -> str | None:
        return None if url is None else Location(url).absolute().url

    precision = config.prior.precision
    prior = replace(config.prior, mean=absolute(config.prior.mean))
    return replace(
        config,
        data=replace(config.data, url=str(absolute(config.data.url))),
        solver=replace(config.solver, start=absolute(config.solver.start)),
        prior=replace(prior, precision=str(absolute(precision)) if isinstance(precision, str) else precision),
        output=replace(config.output, url=str(absolute(config.output.url)), log=absolute(config.output.log)),
        cluster=replace(config.cluster, scheduler=None, local=None, tls_ca=None, tls_cert=None, tls_key=None),
    )


def check_conflicts(new: Record, others: list[Record]) -> None:
    """Raise if a running job writes to the same model folder, or uses another module of the same name."""
    for other in others:
        if other.code is not None:
            continue
        if other.model == new.model:
            raise InputError(
                f"{new.model}: job {other.id} is writing this model; cancel it or choose another output.url"
            )
        if new.module and other.module not in (None, new.module) and problem_module(other) == problem_module(new):
            raise InputError(
                f"problem.kind {new.problem}: job {other.id} runs with another module of the same name; rename yours"
            )


def problem_module(record: Record) -> str:
    return record.problem.partition(":")[0]


def wait_for_begin(job: Job, future: Any) -> None:
    """Wait until a worker has started or none is free; raise if the task cannot be loaded."""
    end = time.monotonic() + BEGIN
    while time.monotonic() < end and read(job.client, job.id).attempt == 0:
        if future.status == "error":
            sentence = " ".join(f"a worker could not start the task: {future.exception()}".split())
            save(job.client, read(job.client, job.id).ending("failed", sentence, 2))
            raise InputError(f"{sentence}; is the same version of distdual installed on all workers?")
        if job.task_state() in ("no-worker", "queued"):
            return
        time.sleep(POLL / 4)
