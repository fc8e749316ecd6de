"""The commands sweep (a path of C), report (charts of a run), warm-up (compile ahead) and completion."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distdual.cli.completion import SHELLS, complete_kind, complete_path, script
from distdual.cli.options import (
    NOT_CERTIFIED,
    find_module,
    json_option,
    price_option,
    print_json,
    scheduler_options,
    settings_option,
    stderr,
    stdout,
)
from distdual.config import load

if TYPE_CHECKING:
    from distdual.coordinator.sweep_c import Point, Sweep
    from distdual.report.price import Price


@click.command(short_help="Find the best C on a path of certified models.")
@click.argument("config_file", metavar="CONFIG.toml", type=click.Path(path_type=Path))
@click.option("--C", "values", required=True, metavar="VALUES", help="1e-3:1e2:20 (from:to:count) or 0.1,1,10.")
@click.option("--folds", default=5, show_default=True, help="Cross-validation folds; 0: no scores, no model.")
@click.option("--score", metavar="NAME", help="Score to choose C by, e.g. accuracy; default: the problem's first.")
@click.option("--plot", metavar="FILE.png", type=click.Path(path_type=Path), help="Plot scores and gaps over C.")
@settings_option
@scheduler_options
@json_option
def sweep(
    config_file: Path,
    values: str,
    folds: int,
    score: str | None,
    plot: Path | None,
    settings: tuple[str, ...],
    scheduler: dict[str, Any],
    as_json: bool,
) -> int:
    """Train and certify a model at every C of a path, and save the model of the best C.

    A path goes from the smallest C to the largest with one constraint cache. Each fold is scored by models trained on
    the other folds; the saved model is trained on all examples.

    \b
    Example:
      distdual sweep configs/binary.toml --C 1e-3:1e2:20 --folds 5 --plot c.png
    """
    from distdual.coordinator.sweep_c import sweep as run
    from distdual.report.compile_notice import compiling_shown
    from distdual.report.plots import new_figure, plot_sweep

    config = load(config_file, settings, scheduler)
    find_module(config.problem.kind, config_file.parent)
    if plot:
        new_figure(1, 1)  # fails early if matplotlib is missing
    with compiling_shown(stderr):
        found = run(config, values, folds, score=score, watch=show_point)
    if plot:
        plot_sweep(found.table(), plot)
    if as_json:
        print_json({**found.table(), "model": config.output.url if found.model else None})
    else:
        show_sweep(found)
        if found.model:
            stdout.print(f"model      {config.output.url}")
    return 0 if found.certified else NOT_CERTIFIED


def show_point(path: str, point: "Point") -> None:
    gap = "none proven" if point.gap is None else f"{point.gap:.2e}"
    stderr.print(f"{path}: C={point.C:g} gap={gap} passes={point.passes} seconds={point.seconds:.2f}", soft_wrap=True)


def show_sweep(found: "Sweep") -> None:
    """Print a line per C, with a star at the chosen one."""
    means = {name: found.mean(name) for name in found.scores}
    rows = [["C", "lower", "upper", "gap", "support", *means, ""]]
    for at, point in enumerate(found.points):
        upper = "none" if point.upper is None else f"{point.upper:.7g}"
        gap = "none" if point.gap is None else f"{point.gap:.2e}"
        cells = [f"{point.C:g}", f"{point.lower:.7g}", upper, gap, f"{point.support:,}"]
        chosen = "*" if found.chosen == point.C else ""
        rows.append([*cells, *(f"{mean[at]:.5f}" for mean in means.values()), chosen])
    for line in aligned(rows):
        stdout.print(line)
    if found.chosen is not None:
        stdout.print(f"chosen     C = {found.chosen:g}, by {found.score} over {len(found.folds)} folds")
        if edge := at_the_edge(found.chosen, [point.C for point in found.points]):
            stdout.print(f"           {edge}")
    proven = "every point" if found.certified else "NOT every point"
    stdout.print(f"certified  {proven} of {1 + len(found.folds)} paths")


def aligned(rows: list[list[str]]) -> list[str]:
    """Lines of a table with columns to the right, as wide as what they hold."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:>{n}}" for cell, n in zip(row, widths, strict=True)).rstrip() for row in rows]


def at_the_edge(chosen: float, values: list[float]) -> str:
    """A sentence if a C outside the path may be better than the chosen one."""
    if len(values) < 2 or min(values) < chosen < max(values):
        return ""
    end, beyond = ("smallest", "smaller") if chosen == min(values) else ("largest", "larger")
    return f"the best C is the {end} of the path: try {beyond} values, too"


@click.command(short_help="Write an HTML and a PNG report of a run.")
@click.argument("run", metavar="RUN", shell_complete=complete_path)
@click.option("--out", metavar="FILE.html", type=click.Path(path_type=Path), help="Default: next to the run log.")
@click.option("--png/--no-png", default=None, help="Also write a PNG; default: if matplotlib is installed.")
@price_option
@json_option
def report(run: str, out: Path | None, png: bool | None, price: "Price | None", as_json: bool) -> int:
    """Write a report of RUN: bounds, cache, timeline and costs.

    RUN is a run log, or a model, with the log of its training if there is one. The HTML file is self-contained; a PNG
    has the same name.

    \b
    Example:
      distdual report distdual-quickstart/model
    """
    from distdual.report.write_report import write_report

    files = [file.as_posix() for file in write_report(run, out, png=png, price=price)]
    if as_json:
        print_json({"files": files})
    for file in () if as_json else files:
        stdout.print(f"report     {file}")
    return 0


@click.command(short_help="Compile kernels ahead of the first run.")
@click.argument("kinds", nargs=-1, metavar="[KIND]...", shell_complete=complete_kind)
def warm_up(kinds: tuple[str, ...]) -> int:
    """Compile the kernels of the named problem kinds, or of all built-in ones, and keep them for later runs.

    Run it once where images are built or workers are installed. NUMBA_CACHE_DIR says where compiled kernels are kept.

    \b
    Example:
      distdual warm-up binary multiclass
    """
    from distdual.report.compile_notice import compiling_shown
    from distdual.warm_up import warm_up as run

    for kind in kinds:
        find_module(kind)
    with compiling_shown(stderr):
        run(kinds, lambda kind: stdout.print(f"warm       {kind}"))
    return 0


@click.command(short_help="Print the shell completion script.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> int:
    """Print the script that lets SHELL complete commands, options, files, problems and the keys of --set.

    \b
    Example:
      distdual completion bash >> ~/.bashrc
    """
    click.echo(script(click.get_current_context().find_root().command, shell))
    return 0
