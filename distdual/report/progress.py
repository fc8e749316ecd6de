"""The progress display in the terminal."""

import contextlib
import math
from types import TracebackType

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from distdual.kernels.compile_cache import NOTICE, on_compile
from distdual.report.compile_notice import one_line
from distdual.report.forecast import passes_left, passes_words, recent_rate, recent_workers
from distdual.report.number_format import clock, short
from distdual.report.round_log import Round

ROWS = 10  # largest number of passes shown

WAITING = "reading the first shards …"

TABLE_COLUMNS = ("pass", "lower", "upper", "gap", "cache", "oracle calls", "elapsed")


class ProgressDisplay:
    """A live table with one row per pass on a terminal; elsewhere a plain line per certified bound."""

    def __init__(self, console: Console, target: float, first: str = "") -> None:
        self.console = console
        self.first = first  # to say before the first line
        self.target = target
        self.rows: dict[int, Round] = {}  # the last round of each pass
        self.complete = 0
        self.seconds: list[float] = []
        self.passes: list[int] = []
        self.gaps: list[float | None] = []
        self.calls: list[int] = []
        self.score = ""  # the name of the score that is shown, once there is one
        self.scored: dict[int, float] = {}  # by pass
        self.workers: list[tuple[str, ...]] = []  # names of those that reported in each round
        self.live: Live | None = None
        self.compiling = contextlib.ExitStack()
        if console.is_terminal:
            self.live = Live(Text(WAITING), console=console, refresh_per_second=8)

    def __enter__(self) -> "ProgressDisplay":
        if self.live:
            self.live.start()
        self.compiling.enter_context(on_compile(self.show_compiling if self.live else one_line(self.console)))
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.compiling.close()
        if self.live:
            self.live.stop()

    def __call__(self, line: Round) -> None:
        if self.first:
            self.console.print(self.first)
            self.first = ""
        self.add(line)
        if self.live:
            self.live.update(self.shown())
        elif line.scores:
            self.console.print(score_line(line), soft_wrap=True)
        elif line.certify:
            self.console.print(plain_line(line, self.pace()), soft_wrap=True)

    def shown(self) -> RenderableType:
        return Group(self.table(), Text(self.pace(), style="dim")) if self.rows else Text(WAITING)

    def show_compiling(self, compiling: bool) -> None:
        """Show a spinner below the table while kernels are being compiled."""
        if self.live:
            self.live.update(Group(self.shown(), Spinner("dots", f"{NOTICE} …")) if compiling else self.shown())

    def add(self, line: Round) -> None:
        """Record a round under the number of its pass, which `totals` counts only once it is complete."""
        passes = int(line.totals["passes"])
        if line.scores:
            self.score = self.score or next(iter(line.scores))
            self.scored[passes] = line.scores[self.score]
        under_way = not line.scores and passes == self.complete and not line.certify
        self.rows[passes + under_way] = line
        self.complete = passes
        self.seconds.append(line.seconds)
        self.passes.append(passes)
        self.gaps.append(line.gap if math.isfinite(line.gap) else None)
        self.calls.append(line.totals["oracle_calls"])
        self.workers.append(tuple(line.workers))

    def pace(self) -> str:
        """Throughput, workers, and the passes left, as far as known."""
        words = [f"{short(round(recent_rate(self.seconds, self.calls)))} examples per second"]
        if n_workers := recent_workers(self.seconds, self.workers):
            words.append("1 worker" if n_workers == 1 else f"{n_workers} workers")
        words.append(passes_words(passes_left(self.passes, self.gaps, self.target)))
        return ", ".join(filter(None, words))

    def table(self) -> Table:
        title = f"lower ≤ P(w*) ≤ upper · target gap {self.target:.1e}"
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))
        for name in self.columns():
            table.add_column(name, justify="right", no_wrap=True)
        for number in sorted(self.rows)[-ROWS:]:
            table.add_row(*self.row(number))
        return table

    def columns(self) -> tuple[str, ...]:
        return (*TABLE_COLUMNS, *filter(None, [self.score]))

    def row(self, number: int) -> list[str]:
        """The cells of a pass."""
        score = f"{self.scored[number]:.4g}" if number in self.scored else ""
        return [str(number), *cells(self.rows[number]), *([score] if self.score else [])]


def cells(line: Round) -> tuple[str, ...]:
    """All columns but the first. A tilde marks a gap that is estimated, not proven."""
    proven = math.isfinite(line.gap)
    return (
        f"{line.lower:#.6g}",
        f"{line.upper:#.6g}" if math.isfinite(line.upper) else "…",
        f"{line.gap:.2e}" if proven else f"~{max(0.0, line.estimate):.1e}" if math.isfinite(line.estimate) else "…",
        f"{short(line.cache_rows)} rows",
        short(line.totals["oracle_calls"]),
        clock(line.seconds),
    )


def score_line(line: Round) -> str:
    scores = " ".join(f"{name}={value:.4g}" for name, value in line.scores.items())
    return f"pass={line.totals['passes']} evaluation: {scores}"


def plain_line(line: Round, pace: str = "") -> str:
    return (
        f"pass={line.totals['passes']} lower={line.lower:.6g} upper={line.upper:.6g} gap={line.gap:.2e} "
        f"rows={line.cache_rows} support={line.support} oracle_calls={line.totals['oracle_calls']} "
        f"seconds={line.seconds:.1f}{pace and f' ({pace})'}"
    )
