"""Commands for jobs on a cluster: submit, status, logs, cancel, list."""

import contextlib
import json
import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from distdual.cli.options import emit, json_option, look_here, paper, say, scheduler_options, settings_option
from distdual.config import ClusterConfig, load
from distdual.errors import InputError
from distdual.json_floats import infinite_values

CANCEL_SECONDS = 10.0  # to wait for the end of a round


@click.command(short_help="Train on a cluster, and do not wait.")
@click.argument("config_file", metavar="CONFIG.toml", type=click.Path(path_type=Path))
@settings_option
@click.option("--resume", is_flag=True, help="Go on from the checkpoint in output.url, if there is one.")
@scheduler_options
@json_option
def submit(config_file: Path, settings: tuple[str, ...], resume: bool, scheduler: dict[str, Any], as_json: bool) -> int:
    """Put a training run on a Dask cluster, coordinator and all, and print the id of the job.

    The job goes on when this machine is switched off. If the worker that coordinates dies, another one goes on from the
    last checkpoint (output.checkpoint_every), or begins anew where there is none.

    \b
    Example:
      distdual submit configs/s3.toml --scheduler tcp://host:8786
    """
    from distdual.jobs.submit import submit as run

    config = load(config_file, settings, scheduler)
    look_here(config.problem.kind, config_file.parent)
    with reached(config.cluster) as client:
        job = run(config, client, resume=resume)
        if as_json:
            emit(job.status())
        else:
            paper.print(job.id)
    return 0


@click.command(short_help="Tell how a job stands.")
@click.argument("job_id", metavar="[ID]", required=False)
@click.option("--all", "every", is_flag=True, help="Of all jobs.")
@scheduler_options
@json_option
def status(job_id: str | None, every: bool, scheduler: dict[str, Any], as_json: bool) -> int:
    """Tell how a job stands, or all of them: its state, the bounds so far, the certificate or why there is none.

    The exit code is 0 until a job has ended, then what `train` would have ended with; with --all it is 0.

    \b
    Example:
      distdual status 1f0c9a3e --scheduler tcp://host:8786
    """
    if (job_id is None) != every:
        raise InputError("status needs the id of a job, or --all; `distdual list` shows the ids")
    with reached(ClusterConfig(**scheduler)) as client:
        found = all_jobs(client) if job_id is None else [job_of(job_id, client).status()]
    if as_json:
        emit(found[0] if job_id else {"jobs": found})
    for job in () if as_json else found:
        show_job(job)
    return (found[0]["code"] or 0) if job_id else 0


@click.command(short_help="Print a job's run log.")
@click.argument("job_id", metavar="ID")
@click.option("--follow", is_flag=True, help="Go on until the job has ended, and end with its exit code.")
@scheduler_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, as in the run log.")
def logs(job_id: str, follow: bool, scheduler: dict[str, Any], as_json: bool) -> int:
    """Print the lines of a job's run log, while it runs or after; the scheduler keeps the newest thousand.

    \b
    Example:
      distdual logs 1f0c9a3e --follow --scheduler tcp://host:8786
    """
    from distdual.report.progress import plain
    from distdual.report.round_log import Round

    with reached(ClusterConfig(**scheduler)) as client:
        job = job_of(job_id, client)
        for line in job.lines(follow=follow):
            if "said" in line:
                say(line["said"])
            elif "round" in line:
                click.echo(line["round"] if as_json else plain(Round(**infinite_values(json.loads(line["round"])))))
        return (job.record().code or 0) if follow else 0


@click.command(short_help="End a job, with a checkpoint to go on from.")
@click.argument("job_id", metavar="ID")
@scheduler_options
@json_option
def cancel(job_id: str, scheduler: dict[str, Any], as_json: bool) -> int:
    """Ask a job to end after its current round. It leaves a checkpoint; submit with --resume goes on from there.

    \b
    Example:
      distdual cancel 1f0c9a3e --scheduler tcp://host:8786
    """
    with reached(ClusterConfig(**scheduler)) as client:
        job = job_of(job_id, client)
        job.cancel()
        found = job.wait(CANCEL_SECONDS).public()
    if as_json:
        emit(found)
    else:
        show_job(found)
    return 0


@click.command("list", short_help="List the jobs of a cluster.")
@scheduler_options
@json_option
def list_jobs(scheduler: dict[str, Any], as_json: bool) -> int:
    """List all jobs since the scheduler was started, the newest last.

    \b
    Example:
      distdual list --scheduler tcp://host:8786
    """
    with reached(ClusterConfig(**scheduler)) as client:
        found = all_jobs(client)
    if as_json:
        emit({"jobs": found})
    for job in () if as_json else found:
        paper.print(f"{job['id']}  {job['state']:<10}  {when(job['submitted'])}  {bounds(job):<24}  {job['model']}")
    return 0


ALL = (submit, status, logs, cancel, list_jobs)


@contextlib.contextmanager
def reached(cluster: ClusterConfig) -> Iterator[Any]:
    """A client of a running cluster; it may have no workers just now."""
    from distdual.cluster.dask_client import reach

    if cluster.scheduler is None:
        raise InputError("jobs live on a running cluster: give its address, --scheduler tcp://host:8786")
    with reach(replace(cluster, patience=cluster.timeout)) as client:  # one started anew knows of no job
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # of a scheduler that ends, we tell
        try:
            yield client
        except OSError as error:  # among them Dask's own
            if isinstance(error, BrokenPipeError):  # nobody reads what we print
                raise
            raise InputError(f"{cluster.scheduler}: the scheduler no longer answers ({type(error).__name__})") from None


def job_of(job_id: str, client: Any) -> Any:
    from distdual.jobs.submit import Job

    return Job(job_id, client)


def all_jobs(client: Any) -> list[dict[str, Any]]:
    from distdual.jobs.job_record import records

    return [job_of(record.id, client).status() for record in records(client)]


def show_job(job: dict[str, Any]) -> None:
    paper.print(f"job        {job['id']}: {job['state']}{', ' + job['sentence'] if job['sentence'] else ''}")
    if job["progress"]:
        paper.print(f"bounds     {bounds(job)} after {job['progress']['passes']} passes")
    times = [f"{name} {when(job[name])}" for name in ("submitted", "started", "ended") if job[name]]
    attempts = f"; attempt {job['attempt']}" if job["attempt"] > 1 else ""
    paper.print(f"times      {', '.join(times)}{attempts}")
    paper.print(f"model      {job['model']}")


def bounds(job: dict[str, Any]) -> str:
    """Those of the certificate, or of the newest round."""
    found = job["certificate"] or job["progress"]
    if not found:
        return "no bounds yet"
    if found["upper"] is None:
        return f"{found['lower']:.6g} ≤ P(w*)"
    return f"{found['lower']:.6g} ≤ P(w*) ≤ {found['upper']:.6g}, gap {found['gap']:.2e}"


def when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
