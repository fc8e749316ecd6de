"""Commands that look at more than one fit: sweep follows a path of C, report draws what a run did."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distdual.cli.completion import SHELLS, complete_path, script
from distdual.cli.options import (
    NOT_CERTIFIED,
    emit,
    json_option,
    look_here,
    paper,
    scheduler_options,
    screen,
    settings_option,
)
from distdual.config import load

if TYPE_CHECKING:
    from distdual.coordinator.sweep_c import Point, Sweep


@click.command(short_help="Find the best C on a path of certified models.")
@click.argument("config_file", metavar="CONFIG.toml", type=click.Path(path_type=Path))
@click.option("--C", "values", required=True, metavar="VALUES", help="1e-3:1e2:20 (from:to:how many) or 0.1,1,10.")
@click.option("--folds", default=5, show_default=True, help="Parts to hold out in turn; 0: no scores, no model.")
@click.option(
    "--score", metavar="NAME", help="The score to choose by, e.g. accuracy; the problem's first if not given."
)
@click.option("--plot", metavar="FILE.png", type=click.Path(path_type=Path), help="Draw scores and gaps over C.")
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
    """Train at every C of a path, each point certified, and save the model of the best C.

    One cache serves a whole path, from the smallest C to the largest. Each fold is scored by models of the examples
    outside it; the model that is saved is trained on all of them.

    \b
    Example:
      distdual sweep configs/binary.toml --C 1e-3:1e2:20 --folds 5 --plot c.png
    """
    from distdual.coordinator.sweep_c import sweep as run
    from distdual.report.plots import new_figure, plot_sweep

    config = load(config_file, settings, scheduler)
    look_here(config.problem.kind, config_file.parent)
    if plot:
        new_figure(1, 1)  # says at once if there is nothing to draw with
    found = run(config, values, folds, score=score, watch=show_point)
    if plot:
        plot_sweep(found.table(), plot)
    if as_json:
        emit({**found.table(), "model": config.output.url if found.model else None})
    else:
        show_sweep(found)
        if found.model:
            paper.print(f"model      {config.output.url}")
    return 0 if found.certified else NOT_CERTIFIED


def show_point(path: str, point: "Point") -> None:
    gap = "none proven" if point.gap is None else f"{point.gap:.2e}"
    screen.print(f"{path}: C={point.C:g} gap={gap} passes={point.passes} seconds={point.seconds:.2f}", soft_wrap=True)


def show_sweep(found: "Sweep") -> None:
    """A line for each C; the chosen one has a star."""
    means = {name: found.mean(name) for name in found.scores}
    titles = ["C", "lower", "upper", "gap", "support", *means]
    widths = [max(12, len(title) + 2) for title in titles]

    def row(cells: list[str]) -> str:
        return "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))

    paper.print(row(titles))
    for at, point in enumerate(found.points):
        upper = "none" if point.upper is None else f"{point.upper:.7g}"
        gap = "none" if point.gap is None else f"{point.gap:.2e}"
        cells = [f"{point.C:g}", f"{point.lower:.7g}", upper, gap, f"{point.support:,}"]
        chosen = " *" if found.chosen == point.C else ""
        paper.print(row([*cells, *(f"{mean[at]:.5f}" for mean in means.values())]) + chosen)
    if found.chosen is not None:
        paper.print(f"chosen     C = {found.chosen:g}, by {found.score} over {len(found.folds)} folds")
    proven = "every point" if found.certified else "NOT every point"
    paper.print(f"certified  {proven} of {1 + len(found.folds)} paths")


@click.command(short_help="Draw what a run did: an HTML file and a PNG.")
@click.argument("run", metavar="RUN", shell_complete=complete_path)
@click.option("--out", metavar="FILE.html", type=click.Path(path_type=Path), help="Default: beside the run log.")
@click.option("--png/--no-png", default=True, help="Draw the PNG as well, which needs matplotlib; the default.")
@json_option
def report(run: str, out: Path | None, png: bool, as_json: bool) -> int:
    """Write the report of RUN, a run log or a model that was trained with one: bounds, cache, timeline, costs.

    The HTML file is complete in itself; the PNG lies beside it, under the same name.

    \b
    Example:
      distdual report distdual-quickstart/model
    """
    from distdual.report.write_report import write_report

    files = [file.as_posix() for file in write_report(run, out, png=png)]
    if as_json:
        emit({"files": files})
    for file in () if as_json else files:
        paper.print(f"report     {file}")
    return 0


@click.command(short_help="Let the shell complete commands, files and keys.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> int:
    """Print what SHELL has to run so that Tab completes commands, options, files, problems and the keys of --set.

    \b
    Example:
      distdual completion bash >> ~/.bashrc
    """
    click.echo(script(click.get_current_context().find_root().command, shell))
    return 0
