"""The coordinator task of a job: trains on any worker.

If that worker dies, Dask reruns the task on another one, which resumes from the checkpoint in the model folder.
"""

import hashlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from distdual.config import Config
from distdual.coordinator.run import train
from distdual.coordinator.run_inputs import output_of
from distdual.data.storage.location import Location, without_secrets
from distdual.errors import ClusterError, InputError, Superseded, Suspended
from distdual.jobs.job_record import LOG, Record, forget_asking, is_asked_to_end, read, save
from distdual.model.io import CHECKPOINT, MANIFEST, read_json, remove_unfinished
from distdual.report.round_log import Round
from distdual.report.run_log import to_text

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0  # seconds between two checks for cancellation, and between two progress updates
STALE = 10.0  # seconds since the last check after which writes wait for another one


def train_job(job: str, config: Config, resume: bool) -> None:
    """Train and update the job's record; secede, as scans may need the only thread of the only worker."""
    from distributed import get_client, get_worker, secede

    secede()
    client, worker = get_client(), get_worker()
    record = read(client, job)
    if record.ended is not None:
        return  # Dask reran it only for its result
    record = replace(record, attempt=record.attempt + 1, worker=worker.address, state="running")
    attempt = Attempt(client, worker, replace(record, started=record.started or time.time()))
    try:
        with attempt.looking():
            ended = attempt.run(config, resume=resume)
    except Superseded:
        return
    save(client, ended)
    worker.log_event(LOG + job, {"ended": ended.state})
    forget_asking(client, job)


class Attempt:
    """One worker's attempt at a job."""

    def __init__(self, client: Any, worker: Any, record: Record) -> None:
        self.client = client
        self.worker = worker
        self.record = record  # changed by the training thread, published by the checking one
        self.cancelled = threading.Event()
        self.superseded = threading.Event()
        self.over = threading.Event()
        self.published = record
        self.looked = time.time()  # wall clock, which continues while the process is stopped

    def run(self, config: Config, *, resume: bool) -> Record:
        """Train, and return the record of how it ended."""
        try:
            certificate = self._train(config, resume=resume)
        except Superseded:
            raise
        except Suspended as error:
            return self._ended("cancelled", error, 1, config)
        except InputError as error:
            return self._ended("failed", error, 2, config)
        except Exception as error:
            if not self._worker_runs():
                raise  # the worker is closing; Dask reruns the task elsewhere
            if isinstance(error, ClusterError):
                return self._ended("failed", error, 1, config)
            log.exception("job %s failed", self.record.id)
            return self._ended("failed", f"{type(error).__name__}: {error}", 1, config)
        code = 0 if certificate["certified"] else 1
        return replace(self._ended("done", certificate["reason"], code, config), certificate=certificate)

    def _train(self, config: Config, *, resume: bool) -> dict[str, Any]:
        output = output_of(config)
        found = output_digests(output)
        if self.record.before is None:
            self.record = replace(self.record, before=found)
        save(self.client, self.record)
        before = self.record.before or {}
        if found["model"] not in (None, before["model"]):  # an earlier attempt died after writing the model
            remove_unfinished(output)
            certificate = read_json(output, "certificate.json")
            return {name: value for name, value in certificate.items() if name != "sha256"}
        again = found["checkpoint"] not in (None, before["checkpoint"])
        if self.record.attempt > 1:
            how = "resumes from the checkpoint" if again or resume else "starts over, without a checkpoint"
            self._say(f"attempt {self.record.attempt} {how}, on {self.worker.address}")
        result = train(
            config,
            self.client,
            self._watch,
            self._check_current,
            resume=resume or again,
            terminated=self._terminated,
            owner=self.record.id,
        )
        return result.certificate

    def _watch(self, line: Round) -> None:
        names = ("lower", "upper", "gap", "cache_rows", "support", "seconds")
        written = json.loads(text := to_text(line))
        progress = {name: written[name] for name in names}
        totals = {name: written["totals"][name] for name in ("passes", "rounds", "oracle_calls")}
        self.record = replace(self.record, progress={**progress, **totals})
        self.worker.log_event(LOG + self.record.id, {"round": text})

    def _check_current(self) -> bool:
        """Raise Superseded if another worker has taken over; never interrupt."""
        if self.superseded.is_set():
            raise Superseded
        return False

    def _terminated(self) -> bool:
        """Whether the job was cancelled; called before a checkpoint is written."""
        if time.time() > self.looked + STALE:  # a process stopped for so long may have been replaced
            try:
                self._look()
            except Exception as error:
                raise ClusterError(f"the scheduler does not answer the coordinator ({type(error).__name__})") from None
        self._check_current()
        return self.cancelled.is_set()

    def _ended(self, state: str, why: object, code: int, config: Config) -> Record:
        text = " ".join(str(why).split())
        for options in (config.data.storage_options, config.output.storage_options):
            text = without_secrets(text, options)
        self._say(f"{state}: {text}")
        return self.record.ending(state, text, code)

    def _say(self, sentence: str) -> None:
        self.worker.log_event(LOG + self.record.id, {"said": sentence})

    def _worker_runs(self) -> bool:
        return self.worker.status.name in ("running", "paused")

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Run a thread that publishes progress and notices cancellation, within the block."""
        thread = threading.Thread(target=self._keep_looking, name=f"job-{self.record.id}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.over.set()
            thread.join()

    def _keep_looking(self) -> None:
        while not self.over.is_set() and not self.superseded.is_set():
            try:
                self._look()
            except Exception as error:  # no answer from the scheduler; waiting for scans raises
                log.warning("job %s: its record could not be updated: %s", self.record.id, error)
            self.over.wait(CHECK_SECONDS)

    def _look(self) -> None:
        if read(self.client, self.record.id).attempt > self.record.attempt:
            self.superseded.set()
            return
        if is_asked_to_end(self.client, self.record.id):
            self.cancelled.set()
        if self.record is not self.published:
            self.published = self.record
            save(self.client, self.published)
        self.looked = time.time()


def output_digests(output: Location) -> dict[str, str | None]:
    """Return digests that identify the model and the checkpoint; None where there is none."""
    whole = output.exists("model.json")
    places = {"model": "certificate.json" if whole else None, "checkpoint": f"{CHECKPOINT}/{MANIFEST}"}
    return {
        what: hashlib.sha256(output.read(name)).hexdigest() if name and output.exists(name) else None
        for what, name in places.items()
    }
