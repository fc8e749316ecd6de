"""The commands `info`, `verify`, `predict` and `check-problem`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from distdual.cli.completion import complete_path
from distdual.cli.data_options import array_options
from distdual.cli.options import (
    NOT_CERTIFIED,
    find_module,
    json_option,
    print_json,
    problem_option,
    scheduler_options,
    stderr,
    stdout,
    storage_option,
    storage_options,
)
from distdual.cli.show import show_table, show_verification
from distdual.config import ClusterConfig
from distdual.report.number_format import counted


@click.command()
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


@click.command(short_help="Recompute a model's certificate from scratch.")
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


@click.command(short_help="Write predictions and print the score.")
@click.argument("model", shell_complete=complete_path)
@click.argument("data", shell_complete=complete_path)
@click.option("--out", required=True, metavar="DEST", help="File: .txt, .npy, .csv, .parquet or .zarr.")
@click.option("--scores", is_flag=True, help="Write decision values, too: one per row, or one per class.")
@click.option("--top", type=int, metavar="K", help="Write the K best classes of each row, or taggings, with scores.")
@click.option("--probabilities", is_flag=True, help="Write a probability for each class; see `distdual calibrate`.")
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
    from distdual.data.prediction_files import check_file_name
    from distdual.data.storage.location import Location
    from distdual.model.predict import predict_to
    from distdual.report.compile_notice import compiling_shown

    storage = storage_options(storage_file)
    check_file_name(out, several=scores or probabilities or top is not None)
    with compiling_shown(stderr):
        found = predict_to(
            Location(out, storage),
            Location(model, storage),
            Location(data, storage),
            cluster=ClusterConfig(**scheduler),
            problem=problem,
            scores=scores,
            probabilities=probabilities,
            top=top,
            x=arrays.get("x"),
            y=arrays.get("y"),
        )
    if as_json:
        print_json({"n_examples": found.n_examples, "score": found.score, "out": out})
    else:
        stdout.print(f"{counted(found.n_examples, 'prediction')} in {out}")
        for name, value in (found.score or {}).items():
            stdout.print(f"{name} {value:.4f}")
    return 0


@click.command("check-problem", short_help="Test your own problem on small cases.")
@click.argument("name", metavar="MODULE:CLASS", callback=lambda _, __, name: find_module(name))
@click.option("--data", metavar="URL", help="Test on examples of this data set's first shard; default: random.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A key of [problem]; repeatable.")
@click.option("--nonnegative", multiple=True, metavar="K|K:L", help="Weights not below 0, as prior.nonnegative.")
@click.option("--model", metavar="URL", help="Try the weights of this model as well, within its prior.")
@storage_option
@json_option
def run_self_check(
    name: str,
    data: str | None,
    settings: tuple[str, ...],
    nonnegative: tuple[str, ...],
    model: str | None,
    storage_file: Path | None,
    as_json: bool,
) -> int:
    """Test your own problem on small cases: argmax against brute force, loss, rows, determinism, pickling and speed.

    Without --data, --set n_features=8 and --set 'classes=["a", "b"]' set the shape of the random examples.

    \b
    Example:
      distdual check-problem mine:Ranking --data rankings
    """
    from distdual.data.storage.location import Location
    from distdual.problems.user.self_check import check_problem as run

    options = storage_options(storage_file)
    place, trained = (Location(url, options) if url else None for url in (data, model))
    low = [int(each) if each.isdecimal() else each for each in nonnegative]
    checks = run(name, place, settings, nonnegative=low, model=trained)
    if as_json:
        print_json(
            {"problem": name, "ok": all(check.ok for check in checks), "checks": [check._asdict() for check in checks]}
        )
    for check in () if as_json else checks:
        stdout.print(f"{'ok' if check.ok else 'FAILED':<7} {check.name:<14} {check.sentence}")
    return 0 if all(check.ok for check in checks) else NOT_CERTIFIED
