"""The command line: parse arguments, call the package, print. Exit codes: 0 done, 1 not certified, 2 bad input."""

import io
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import distdual
from distdual.cli import job_commands
from distdual.cli.analysis_commands import completion, report, sweep, warm_up
from distdual.cli.completion import complete_kind, complete_path
from distdual.cli.data_options import array_options, table_options
from distdual.cli.dry_run import show_dry_run
from distdual.cli.options import (
    BAD_INPUT,
    EXIT_INTERRUPTED,
    NOT_CERTIFIED,
    advice,
    find_module,
    json_option,
    price_option,
    print_json,
    problem_option,
    say,
    scheduler_options,
    settings_option,
    stderr,
    stdout,
    storage_option,
    storage_options,
)
from distdual.config import ClusterConfig, load
from distdual.errors import ClusterError, InputError, Superseded, Suspended

if TYPE_CHECKING:
    from distdual.report.price import Price


class InOrder(click.Group):
    """A group that lists commands in the order of use, not by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)


@click.group(cls=InOrder, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(distdual.__version__, message="distdual %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Linear and structural SVMs on data larger than one machine, with a certificate of optimality.

    Exit codes: 0 done (and certified, where that applies), 1 ran but not certified, 2 bad input.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(BAD_INPUT)


@cli.command(short_help="Train and verify a first model.")
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
    from distdual.report.progress import ProgressDisplay

    config = prepare_digits(folder)
    data = open_dataset(Location(config.data.url))
    stderr.print(f"data set: {data.n_examples:,} digits in {data.n_shards} shards, even against odd")
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


@cli.command(short_help="Convert files to a data set of shards.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", shell_complete=complete_path)
@click.argument("dest", shell_complete=complete_path)
@click.option(
    "--problem",
    "kind",
    required=True,
    shell_complete=complete_kind,
    help="The problem to learn: a built-in problem.kind, such as binary, or MODULE:CLASS.",
)
@click.option(
    "--format",
    "source_format",
    help="csv, parquet, svmlight, svmhmm, conll, npz, npy, zarr or brackets; default: guessed.",
)
@click.option("--like", metavar="URL", help="Make and scale features as those of this data set or model.")
@table_options
@click.option("--labels", multiple=True, metavar="FILE", help="The .npy labels of each .npy SOURCE, in order.")
@array_options
@click.option("--templates", metavar="FILE.toml", help="Conll: feature templates, see configs/chunking_templates.toml.")
@click.option("--vocabulary", metavar="URL", help="Conll: use the features and tags of this data set instead.")
@click.option("--shard-bytes", type=int, show_default="16 MiB", help="Largest size of a shard's features.")
@click.option("--shuffle", type=int, metavar="SEED", help="Shuffle the examples.")
@click.option("--test-fraction", default=0.0, metavar="F", help="Split: write DEST/train and DEST/test.")
@click.option("--scale", default="none", help="none, unit-variance or unit-rows.", show_default=True)
@click.option("--n-features", type=int, help="Number of features of sparse data; default: the largest index.")
@click.option("--compress/--no-compress", default=None, help="Default: compress sparse data only.")
@click.option("--overwrite", is_flag=True, help="Replace an existing data set.")
@click.option("--append", is_flag=True, help="Add shards to an existing data set with the same features and labels.")
@click.option("--max-length", type=int, metavar="N", help="Trees: skip sentences of more than N words.")
@click.option("--grammar", metavar="URL", help="Trees: use the grammar and vocabulary of this data set.")
@click.option("--binarise", metavar="SIDE", help="Trees: binarise to the right (the default) or left.")
@click.option("--markov-order", metavar="N", help="Trees: sibling labels kept in binarised symbols; default 2, or all.")
@click.option("--min-count", type=int, metavar="N", help="Trees: map rarer words to their shape; default 2.")
@click.option("--function-tags", is_flag=True, default=None, help="Trees: keep NP-SBJ instead of shortening it to NP.")
@click.option("--traces", is_flag=True, default=None, help="Trees: keep traces (-NONE-) instead of removing them.")
@storage_option
@json_option
def prepare(
    sources: tuple[str, ...],
    dest: str,
    kind: str,
    source_format: str | None,
    storage_file: Path | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Convert SOURCE files to a data set of Zarr shards at DEST, a local folder or s3://.

    \b
    Example:
      distdual prepare a9a.xz s3://bucket/a9a --problem binary --shuffle 0
    """
    from distdual.data.prepare.api import prepare as run
    from distdual.report.compile_notice import compiling_shown

    find_module(kind)
    storage = storage_options(storage_file)
    with compiling_shown(stderr):
        written = run(list(sources), dest, kind, format=source_format, storage_options=storage, **options)
    if as_json:
        print_json({"datasets": [asdict(summary) for summary in written]})
    for summary in () if as_json else written:
        stdout.print(
            f"{summary.url}: {summary.n_examples:,} examples, {summary.n_features:,} features, "
            f"{summary.n_shards:,} shard{'s' * (summary.n_shards != 1)}, labels {', '.join(summary.labels)}"
        )
    return 0


@cli.command()
@click.argument("url", shell_complete=complete_path)
@storage_option
@json_option
def info(url: str, storage_file: Path | None, as_json: bool) -> int:
    """Describe a data set, a model or a checkpoint.

    \b
    Example:
      distdual info distdual-quickstart/model
    """
    from distdual.cli.info import describe
    from distdual.data.storage.location import Location

    found = describe(Location(url, storage_options(storage_file)))
    if as_json:
        print_json(found)
    else:
        show_table(found)
    return 0


def check_dashboard(_: click.Context, __: click.Parameter, address: str | None) -> str | None:
    """Check the address first, since `--dashboard CONFIG.toml` takes the config for a port."""
    if address is not None:
        from distdual.report.live import host_and_port

        host_and_port(address)
    return address


@cli.command()
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
@click.option("--dry-run", is_flag=True, help="Show what the run would read, hold and cost, without training.")
@price_option
@scheduler_options
@json_option
def train(
    config_file: Path,
    settings: tuple[str, ...],
    resume: bool,
    dashboard: str | None,
    dry_run: bool,
    price: "Price | None",
    scheduler: dict[str, Any],
    as_json: bool,
) -> int:
    """Train a model and certify it.

    Ctrl-C finishes the current step, certifies and saves the current model and ends with exit code 1. SIGTERM finishes
    the current round, writes a checkpoint and ends with exit code 1; --resume continues from the checkpoint.

    \b
    Example:
      distdual train configs/binary.toml --set solver.C=0.1 --dashboard
    """
    from distdual.coordinator.run import train as run
    from distdual.interrupt import on_interrupt, on_terminate
    from distdual.report.live import show_live
    from distdual.report.price import reading
    from distdual.report.progress import ProgressDisplay

    config = load(config_file, settings, scheduler)
    find_module(config.problem.kind, config_file.parent)
    if dry_run:
        return show_dry_run(config, price, as_json, resume=resume, dashboard=dashboard)
    with (
        show_live(dashboard, say, price) as logs,
        ProgressDisplay(stderr, config.solver.gap) as watch,
        on_interrupt(say) as interrupted,
        on_terminate() as terminated,
    ):
        result = run(config, watch=watch, interrupted=interrupted, resume=resume, terminated=terminated, logs=logs)
    if result.finished_before:
        say(f"{config.output.url}: the run has finished before; this is its certificate")
    if as_json:
        print_json({**result.certificate, **cost_of(result.certificate, price)})
    else:
        show_certificate(result.certificate)
        stdout.print(f"model      {config.output.url}")
        if price:
            stdout.print(f"reading    {reading(result.certificate, result.certificate['data_bytes'], price)}")
    return 0 if result.certificate["certified"] else NOT_CERTIFIED


def cost_of(certificate: dict[str, Any], price: "Price | None") -> dict[str, float]:
    """The cost of reading, if prices are given."""
    return {"cost": price.cost(certificate["bytes_read"], certificate["gets"])} if price else {}


cli.add_command(sweep)


@cli.command(short_help="Recompute a model's certificate from scratch.")
@click.argument("model", shell_complete=complete_path)
@click.option("--data", metavar="URL", help="The data set, if it has moved since the training.")
@click.option(
    "--gap", type=float, metavar="GAP", help="The target for the gap; default: the one in the model's folder."
)
@problem_option
@scheduler_options
@storage_option
@json_option
def verify(
    model: str,
    data: str | None,
    gap: float | None,
    problem: str | None,
    scheduler: dict[str, Any],
    storage_file: Path | None,
    as_json: bool,
) -> int:
    """Recompute a model's certificate in float64, from the model folder and the data set alone.

    \b
    Example:
      distdual verify distdual-quickstart/model
    """
    from distdual.certificate.verify import verify as run
    from distdual.data.storage.location import Location
    from distdual.report.compile_notice import compiling_shown

    storage = storage_options(storage_file)
    location = Location(data, storage) if data else None
    if gap is not None and not 0 < gap < 1:
        raise click.UsageError(f"--gap is a fraction between 0 and 1, got {gap:g}")
    cluster = ClusterConfig(**scheduler)
    with compiling_shown(stderr):
        checked = run(Location(model, storage), location, cluster=cluster, problem=problem, gap=gap)
    if as_json:
        print_json({**asdict(checked), "model": model})
    else:
        show_verification(asdict(checked))
    return 0 if checked.certified else NOT_CERTIFIED


@cli.command(short_help="Write predictions and print the score.")
@click.argument("model", shell_complete=complete_path)
@click.argument("data", shell_complete=complete_path)
@click.option("--out", required=True, metavar="DEST", help="File: .txt, .npy, .csv, .parquet or .zarr.")
@click.option("--scores", is_flag=True, help="Write decision values, too: one a row, or one a class.")
@click.option("--top", type=int, metavar="K", help="Write the K best classes of each row, with their decision values.")
@click.option("--probabilities", is_flag=True, help="Write probabilities; for calibrated models only.")
@array_options
@problem_option
@scheduler_options
@storage_option
@json_option
def predict(
    model: str,
    data: str,
    out: str,
    scores: bool,
    top: int | None,
    probabilities: bool,
    problem: str | None,
    scheduler: dict[str, Any],
    storage_file: Path | None,
    as_json: bool,
    **arrays: str | None,
) -> int:
    """Write a model's predictions for DATA, and print the score if its labels are known.

    DATA is a data set, or files of raw rows (CSV, Parquet, svmlight, NumPy, Zarr), labelled or not.

    \b
    Example:
      distdual predict distdual-quickstart/model distdual-quickstart/data --out labels.txt
    """
    from distdual.data.prediction_files import check_output
    from distdual.data.storage.location import Location
    from distdual.model.predict import predict_to
    from distdual.report.compile_notice import compiling_shown

    storage = storage_options(storage_file)
    check_output(out, several=scores or top is not None)
    if probabilities:
        raise InputError(
            f"{model}: the model is not calibrated, so it gives no probabilities; --scores does not need that"
        )
    with compiling_shown(stderr):
        found = predict_to(
            Location(out, storage),
            Location(model, storage),
            Location(data, storage),
            cluster=ClusterConfig(**scheduler),
            problem=problem,
            scores=scores,
            top=top,
            **arrays,
        )
    if as_json:
        print_json({"n_examples": found.n_examples, "score": found.score, "out": out})
    else:
        stdout.print(f"{found.n_examples:,} predictions in {out}")
        for name, value in (found.score or {}).items():
            stdout.print(f"{name} {value:.4f}")
    return 0


cli.add_command(report)
cli.add_command(warm_up)
for job_command in job_commands.JOB_COMMANDS:
    cli.add_command(job_command)


@cli.command("check-problem", short_help="Test your own problem on small cases.")
@click.argument("name", metavar="MODULE:CLASS", callback=lambda _, __, name: find_module(name))
@click.option("--data", metavar="URL", help="Test on examples of this data set's first shard; default: random.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A key of [problem]; repeatable.")
@storage_option
@json_option
def run_self_check(
    name: str, data: str | None, settings: tuple[str, ...], storage_file: Path | None, as_json: bool
) -> int:
    """Test your own problem on small cases: argmax against brute force, loss, rows, determinism, pickling and speed.

    Without --data, --set n_features=8 and --set 'classes=["a", "b"]' set the shape of the random examples.

    \b
    Example:
      distdual check-problem mine:Ranking --data rankings
    """
    from distdual.data.storage.location import Location
    from distdual.problems.user.self_check import check_problem as run

    checks = run(name, Location(data, storage_options(storage_file)) if data else None, settings)
    if as_json:
        print_json(
            {"problem": name, "ok": all(check.ok for check in checks), "checks": [check._asdict() for check in checks]}
        )
    for check in () if as_json else checks:
        stdout.print(f"{'ok' if check.ok else 'FAILED':<7} {check.name:<14} {check.sentence}")
    return 0 if all(check.ok for check in checks) else NOT_CERTIFIED


cli.add_command(completion)


def show_certificate(certificate: dict[str, Any]) -> None:
    word = "certified" if certificate["certified"] else "NOT certified"
    stdout.print(f"{word}: {bounds(certificate)}")
    why = "" if certificate["certified"] else f"; stopped: {certificate['reason']}"
    gap = "none proven" if certificate["gap"] is None else f"{certificate['gap']:.2e}"
    stdout.print(f"gap        {gap}, target {certificate['target']:.2e}{why}")
    if latent := certificate.get("latent"):
        stdout.print(
            f"latent     objective {latent['objective']:.8g} after {len(latent['trace'])} turns; "
            "the bounds belong to the last convex problem"
        )
    stdout.print(
        f"cost       {certificate['passes']} passes, {certificate['oracle_calls']:,} oracle calls, "
        f"{certificate['support']:,} support constraints, {certificate['seconds']:.1f} s"
    )
    if not certificate["certified"]:
        stdout.print(f"next       {advice(certificate)}")


def bounds(found: dict[str, Any]) -> str:
    """The proven bounds; with inexact inference, the lower bound alone."""
    if found["estimate"] is not None:
        return f"{found['lower']:.8g} ≤ P(w*); P(w) is about {found['estimate']:.8g} or more, by inexact inference"
    return f"{found['lower']:.8g} ≤ P(w*) ≤ {found['upper']:.8g}"


def show_verification(checked: dict[str, Any]) -> None:
    word = "verified" if checked["certified"] else "NOT verified"
    whose = "as given" if checked["target_given"] else "the model's own"
    gap = f", gap {checked['gap']:.2e}, target {checked['target']:.2e} ({whose})"
    stdout.print(f"{word}: {bounds(checked)}{gap if checked['estimate'] is None else ''}")
    if checked["objective"] is not None:
        stdout.print(f"latent     objective {checked['objective']:.8g}; the bounds belong to the last convex problem")
    if checked["appended"]:
        stdout.print(f"  of the first {checked['n_shards']} shards; {checked['appended']} were appended later")
    for finding in checked["findings"]:
        stdout.print(f"  - {finding}")
    if not checked["certified"] and not checked["findings"]:
        stdout.print(f"  - everything checks out, but the gap exceeds the target {checked['target']:.2e}: train longer")


def show_table(table: dict[str, Any], indent: str = "") -> None:
    for name, value in table.items():
        if isinstance(value, dict):
            stdout.print(f"{indent}{name}")
            show_table(value, indent + "  ")
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list) else value
            stdout.print(f"{indent}{name:<14} {text}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an InputError is printed in one line, without a traceback."""
    # The exception reports a failed task once; Dask's workers would each log it with a traceback.
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot encode "≤" shows "?"
    try:
        code = cli.main(arguments, prog_name="distdual", standalone_mode=False)
    except InputError as error:
        code = print_error(str(error))
    except Superseded as error:
        code = print_error(str(error))
    except (Suspended, ClusterError) as error:
        print_error(str(error))
        code = NOT_CERTIFIED
    except MemoryError as error:
        code = print_error(f"out of memory ({error or 'an allocation failed'}); use more workers, or smaller shards")
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "distdual"
        sentence = error.format_message().rstrip(".")
        code = print_error(f"{sentence}{'' if sentence.endswith('?') else ';'} see `{command} --help`")
    except click.ClickException as error:
        code = print_error(error.format_message())
    except click.Abort:
        click.echo("distdual: interrupted", err=True)
        code = EXIT_INTERRUPTED
    sys.exit(code)


def print_error(sentence: str) -> int:
    """Print an error in one line, even if the message quotes line breaks."""
    click.echo(f"distdual: {' '.join(sentence.split())}", err=True)
    return BAD_INPUT
