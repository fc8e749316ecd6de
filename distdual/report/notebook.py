"""Progress of a fit: a table in a notebook, made of plain HTML, and the terminal's display elsewhere."""

import contextlib
import html
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console

from distdual.kernels.compile_cache import NOTICE, on_compile
from distdual.report.progress import ROWS, WAITING, ProgressDisplay
from distdual.report.round_log import Round


@contextlib.contextmanager
def progress(verbose: int, target: float) -> Iterator[Callable[[Round], None]]:
    """Yield the receiver of rounds: none unless `verbose`, else a notebook's table or the terminal's display."""
    if not verbose:
        yield lambda _: None
        return
    display = NotebookProgress(target) if in_notebook() else ProgressDisplay(Console(highlight=False), target)
    with display as watch:
        yield watch


def in_notebook() -> bool:
    """Whether IPython runs this process and can show HTML, as Jupyter does and IPython on a terminal does not."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and "text/html" in shell.display_formatter.active_types


class NotebookProgress(ProgressDisplay):
    """One HTML table below the cell, updated after each pass."""

    def __init__(self, target: float) -> None:
        super().__init__(Console(quiet=True), target)
        self.note = WAITING
        self.handle: Any = None

    def __enter__(self) -> "NotebookProgress":
        ipython: Any = importlib.import_module("IPython.display")
        self.handle = ipython.display(ipython.HTML(self.html()), display_id=True)
        self.compiling.enter_context(on_compile(self.show_compiling))
        return self

    def __call__(self, line: Round) -> None:
        self.add(line)
        self.note = self.pace()
        self.update()

    def show_compiling(self, compiling: bool) -> None:
        self.note = f"{NOTICE} …" if compiling else ""
        self.update()

    def update(self) -> None:
        ipython: Any = importlib.import_module("IPython.display")
        self.handle.update(ipython.HTML(self.html()))

    def html(self) -> str:
        """The last passes as a table, and the note below."""
        head = "".join(f"<th>{name}</th>" for name in self.columns())
        passes = sorted(self.rows)[-ROWS:]
        rows = "".join(table_row(self.row(number)) for number in passes)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>" if passes else ""
        return f"<div>lower ≤ P(w*) ≤ upper, target gap {self.target:.1e}{table}<em>{html.escape(self.note)}</em></div>"


def table_row(values: list[str]) -> str:
    return "<tr>" + "".join(f"<td>{html.escape(value)}</td>" for value in values) + "</tr>"
