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

from distdual.cli.options import find_module, json_option, print_json, say, scheduler_options, settings_option, stdout
from distdual.config import ClusterConfig, load
from distdual.errors import InputError
from distdual.json_floats import infinite_values

CANCEL_SECONDS = 10.0  # time for the current round to end


@click.command(short_help="Train on a cluster in the background.")
@click.argument("config_file", metavar="CONFIG.toml", type=click.Path(path_type=Path))
@settings_option
@click.option("--resume", is_flag=True, help="Resume from the checkpoint in output.url, if any.")
@scheduler_options
@json_option
def submit(config_file: Path, settings: tuple[str, ...], resume: bool, scheduler: dict[str, Any], as_json: bool) -> int:
    """Start a training run, including its coordinator, on a Dask cluster and print the job id.

    The job does not depend on this machine. If the worker that runs the coordinator fails, another one continues from
    the last checkpoint (output.checkpoint_every), or starts over if there is none.

    \b
    Example:
      distdual submit configs/s3.toml --scheduler tcp://host:8786
    """
    from distdual.jobs.submit import submit as run

    config = load(config_file, settings, scheduler)
    find_module(config.problem.kind, config_file.parent)
    with connected(config.cluster) as client:
        job = run(config, client, resume=resume)
        if as_json:
            print_json(job.status())
        else:
            stdout.print(job.id)
    return 0


@click.command(short_help="Show the status of a job.")
@click.argument("job_id", metavar="[ID]", required=False)
@click.option("--all", "every", is_flag=True, help="Show all jobs.")
@scheduler_options
@json_option
def status(job_id: str | None, every: bool, scheduler: dict[str, Any], as_json: bool) -> int:
    """Show the status of a job, or of all: state, current bounds, and the certificate or the reason for its absence.

    The exit code is 0 while the job runs, then that of `train`; with --all it is always 0.

    \b
    Example:
      distdual status 1f0c9a3e --scheduler tcp://host:8786
    """
    if (job_id is None) != every:
        raise InputError("status needs either a job id or --all; `distdual list` shows the ids")
    with connected(ClusterConfig(**scheduler)) as client:
        found = all_jobs(client) if job_id is None else [job_of(job_id, client).status()]
    if as_json:
        print_json(found[0] if job_id else {"jobs": found})
    for job in () if as_json else found:
        show_job(job)
    return (found[0]["code"] or 0) if job_id else 0


@click.command(short_help="Print a job's run log.")
@click.argument("job_id", metavar="ID")
@click.option("--follow", is_flag=True, help="Follow the log until the job ends, and return its exit code.")
@scheduler_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, as in the run log.")
def logs(job_id: str, follow: bool, scheduler: dict[str, Any], as_json: bool) -> int:
    """Print the run log of a running or finished job; the scheduler keeps the newest thousand lines.

    \b
    Example:
      distdual logs 1f0c9a3e --follow --scheduler tcp://host:8786
    """
    from distdual.report.progress import plain_line
    from distdual.report.round_log import Round

    with connected(ClusterConfig(**scheduler)) as client:
        job = job_of(job_id, client)
        for line in job.lines(follow=follow):
            if "said" in line:
                say(line["said"])
            elif "round" in line:
                click.echo(
                    line["round"] if as_json else plain_line(Round(**infinite_values(json.loads(line["round"]))))
                )
        return (job.record().code or 0) if follow else 0


@click.command(short_help="Stop a job, leaving a checkpoint.")
@click.argument("job_id", metavar="ID")
@scheduler_options
@json_option
def cancel(job_id: str, scheduler: dict[str, Any], as_json: bool) -> int:
    """Stop a job after its current round. It leaves a checkpoint, from which `submit --resume` continues.

    \b
    Example:
      distdual cancel 1f0c9a3e --scheduler tcp://host:8786
    """
    with connected(ClusterConfig(**scheduler)) as client:
        job = job_of(job_id, client)
        job.cancel()
        found = job.wait(CANCEL_SECONDS).public()
    if as_json:
        print_json(found)
    else:
        show_job(found)
    return 0


@click.command("list", short_help="List the jobs of a cluster.")
@scheduler_options
@json_option
def list_jobs(scheduler: dict[str, Any], as_json: bool) -> int:
    """List all jobs since the start of the scheduler, newest last.

    \b
    Example:
      distdual list --scheduler tcp://host:8786
    """
    with connected(ClusterConfig(**scheduler)) as client:
        found = all_jobs(client)
    if as_json:
        print_json({"jobs": found})
    for job in () if as_json else found:
        stdout.print(
            f"{job['id']}  {job['state']:<10}  {when(job['submitted'])}  {job_bounds(job):<24}  {job['model']}"
        )
    return 0


JOB_COMMANDS = (submit, status, logs, cancel, list_jobs)


@contextlib.contextmanager
def connected(cluster: ClusterConfig) -> Iterator[Any]:
    """A client of a running cluster, which may have no workers at the moment."""
    from distdual.cluster.dask_client import reach

    if cluster.scheduler is None:
        raise InputError("jobs need a running cluster: give its address with --scheduler tcp://host:8786")
    with reach(replace(cluster, patience=cluster.timeout)) as client:  # a restarted scheduler has no jobs to wait for
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # reported below
        try:
            yield client
        except OSError as error:  # Dask's own are among them
            if isinstance(error, BrokenPipeError):  # of our own output
                raise
            raise InputError(f"{cluster.scheduler}: the scheduler no longer answers ({type(error).__name__})") from None


def job_of(job_id: str, client: Any) -> Any:
    from distdual.jobs.submit import Job

    return Job(job_id, client)


def all_jobs(client: Any) -> list[dict[str, Any]]:
    from distdual.jobs.job_record import records

    return [job_of(record.id, client).status() for record in records(client)]


def show_job(job: dict[str, Any]) -> None:
    stdout.print(f"job        {job['id']}: {job['state']}{', ' + job['sentence'] if job['sentence'] else ''}")
    if job["progress"]:
        stdout.print(f"bounds     {job_bounds(job)} after {job['progress']['passes']} passes")
    times = [f"{name} {when(job[name])}" for name in ("submitted", "started", "ended") if job[name]]
    attempts = f"; attempt {job['attempt']}" if job["attempt"] > 1 else ""
    stdout.print(f"times      {', '.join(times)}{attempts}")
    stdout.print(f"model      {job['model']}")


def job_bounds(job: dict[str, Any]) -> str:
    """The bounds of the certificate, or of the newest round."""
    found = job["certificate"] or job["progress"]
    if not found:
        return "no bounds yet"
    if found["upper"] is None:
        return f"{found['lower']:.6g} ≤ P(w*)"
    return f"{found['lower']:.6g} ≤ P(w*) ≤ {found['upper']:.6g}, gap {found['gap']:.2e}"


def when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
