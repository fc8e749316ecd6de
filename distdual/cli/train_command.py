"""The commands `quickstart` and `train`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distdual.cli.dry_run import of_bias, show_dry_run
from distdual.cli.options import (
    NOT_CERTIFIED,
    find_module,
    json_option,
    price_option,
    print_json,
    say,
    scheduler_options,
    settings_option,
    stderr,
    stdout,
)
from distdual.config import Config, load

if TYPE_CHECKING:
    from distdual.coordinator.run import Result
    from distdual.report.price import Price
from distdual.cli.show import show_certificate, show_verification

FOLLOW_SECONDS = 10.0  # between two looks at a data set that is followed


@click.command(short_help="Train and verify a first model.")
@click.option(
    "--dir",
    "folder",
    default="distdual-quickstart",
    type=click.Path(path_type=Path),
    show_default=True,
    help="Folder for data set, config, run log and model.",
)
@json_option
def quickstart(folder: Path, as_json: bool) -> int:
    """Train and verify a model on data that ships with scikit-learn.

    The task is to tell even from odd digits, on a local Dask cluster of two processes.

    \b
    Example:
      distdual quickstart --dir /tmp/first
    """
    from distdual.data.dataset import open_dataset
    from distdual.data.storage.location import Location
    from distdual.quickstart import prepare_digits, run
    from distdual.report.number_format import counted
    from distdual.report.progress import ProgressDisplay

    config = prepare_digits(folder)
    data = open_dataset(Location(config.data.url))
    stderr.print(f"data set: {data.n_examples:,} digits in {counted(data.n_shards, 'shard')}, even against odd")
    with ProgressDisplay(stderr, config.solver.gap) as watch:
        result, checked = run(config, watch)
    if as_json:
        print_json(result.certificate)
    else:
        show_certificate(result.certificate)
        show_verification(asdict(checked))
        stdout.print(f"data set   {config.data.url}\nmodel      {config.output.url}\nrun log    {config.output.log}")
        stdout.print(f"config     {folder.as_posix()}/quickstart.toml")
    return 0 if result.certificate["certified"] and checked.certified else NOT_CERTIFIED


def check_dashboard(_: click.Context, __: click.Parameter, address: str | None) -> str | None:
    """Check the address first, since `--dashboard CONFIG.toml` takes the config for a port."""
    if address is not None:
        from distdual.report.live import host_and_port

        host_and_port(address)
    return address


def check_poll(poll: float | None, *, follow: bool) -> None:
    if poll is not None and not follow:
        raise click.UsageError("--poll is for --follow; give both or neither")
    if poll is not None and not poll > 0:
        raise click.UsageError(f"--poll must be positive, got {poll:g}")


@click.command()
@click.argument("config_file", metavar="CONFIG.toml", type=click.Path(path_type=Path))
@settings_option
@click.option("--resume", is_flag=True, help="Resume from the checkpoint in output.url, if any.")
@click.option(
    "--dashboard",
    is_flag=False,
    flag_value="8788",
    metavar="[PORT]",
    is_eager=True,
    callback=check_dashboard,
    help="Serve a live page of the run at PORT or HOST:PORT; default: 127.0.0.1:8788.",
)
@click.option("--follow", is_flag=True, help="Train again whenever shards are appended, until Ctrl-C.")
@click.option(
    "--poll",
    type=float,
    metavar="SECONDS",
    help="With --follow: seconds between checks; default: 10.",
)
@click.option("--dry-run", is_flag=True, help="Show what the run would read, hold and cost, without training.")
@price_option
@scheduler_options
@json_option
def train(
    config_file: Path,
    settings: tuple[str, ...],
    resume: bool,
    dashboard: str | None,
    follow: bool,
    poll: float | None,
    dry_run: bool,
    price: "Price | None",
    scheduler: dict[str, Any],
    as_json: bool,
) -> int:
    """Train a model and certify it.

    Ctrl-C finishes the current step, certifies and saves the current model and ends with exit code 1. SIGTERM finishes
    the current round, writes a checkpoint and ends with exit code 1; --resume continues from the checkpoint. With
    --follow the exit code is that of the last certificate, and --json prints an object for each.

    \b
    Example:
      distdual train configs/binary.toml --set solver.C=0.1 --dashboard
    """
    from distdual.coordinator.run import train as run
    from distdual.interrupt import on_interrupt, on_terminate
    from distdual.report.live import show_live
    from distdual.report.progress import ProgressDisplay

    check_poll(poll, follow=follow)
    config = load(config_file, settings, scheduler)
    find_module(config.problem.kind, config_file.parent)
    if dry_run:
        return show_dry_run(config, price, as_json, resume=resume, dashboard=dashboard)
    if follow:
        if dashboard is not None:
            raise click.UsageError("--dashboard shows a single run; leave it or --follow out")
        return train_on(config, poll or FOLLOW_SECONDS, price, as_json, resume=resume)
    with (
        show_live(dashboard, say, price) as logs,
        ProgressDisplay(stderr, config.solver.gap, of_bias(config)) as watch,
        on_interrupt(say) as interrupted,
        on_terminate() as terminated,
    ):
        result = run(config, watch=watch, interrupted=interrupted, resume=resume, terminated=terminated, logs=logs)
    show_result(result, config, price, as_json)
    return 0 if result.certificate["certified"] else NOT_CERTIFIED


def train_on(config: Config, poll: float, price: "Price | None", as_json: bool, *, resume: bool) -> int:
    """Train, and again whenever shards are appended; the last certificate decides the exit code."""
    from distdual.coordinator.follow import follow_data
    from distdual.interrupt import on_interrupt, on_terminate

    code = NOT_CERTIFIED
    with on_interrupt(say) as interrupted, on_terminate() as terminated:
        for result in follow_data(config, poll, interrupted=interrupted, terminated=terminated, resume=resume):
            show_result(result, config, price, as_json)
            code = 0 if result.certificate["certified"] else NOT_CERTIFIED
    return code


def show_result(result: "Result", config: Config, price: "Price | None", as_json: bool) -> None:
    """Print the certificate of a run."""
    from distdual.report.price import reading_text

    if result.finished_before:
        say(f"{config.output.url}: the run has finished before; this is its certificate")
    if as_json:
        print_json({**result.certificate, **cost_of(result.certificate, price)})
        return
    show_certificate(result.certificate)
    stdout.print(f"model      {config.output.url}")
    if price:
        stdout.print(f"reading    {reading_text(result.certificate, result.certificate['data_bytes'], price)}")


def cost_of(certificate: dict[str, Any], price: "Price | None") -> dict[str, float]:
    """The cost of reading, if prices are given."""
    return {"cost": price.cost(certificate["bytes_read"], certificate["gets"])} if price else {}
