"""What does the terminal show while a model is trained?"""

from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

from distdual.coordinator.train import Round


class ProgressDisplay:
    """A live table on a terminal; elsewhere one plain line for every certified bound."""

    def __init__(self, console: Console, target: float) -> None:
        self.console = console
        self.target = target
        self.live = Live(console=console, refresh_per_second=8, transient=False) if console.is_terminal else None

    def __enter__(self) -> "ProgressDisplay":
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.live:
            self.live.stop()

    def __call__(self, line: Round) -> None:
        if self.live:
            self.live.update(self.table(line))
        elif line.certify:
            self.console.print(plain(line), highlight=False, soft_wrap=True)

    def table(self, line: Round) -> Table:
        table = Table(title=f"distdual · target gap {self.target:.1e}", title_justify="left", min_width=60)
        for name in ("pass", "lower", "upper", "gap", "cache", "support", "oracle calls", "seconds"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_row(
            str(line.totals["passes"]),
            f"{line.lower:.6g}",
            f"{line.upper:.6g}" if line.upper < float("inf") else "…",
            f"{line.gap:.2e}" if line.gap < float("inf") else f"~{line.estimate:.1e}",
            f"{line.cache_rows:,} rows",
            f"{line.support:,}",
            f"{line.totals['oracle_calls']:,}",
            f"{line.seconds:.1f}",
        )
        return table


def plain(line: Round) -> str:
    return (
        f"pass={line.totals['passes']} lower={line.lower:.6g} upper={line.upper:.6g} gap={line.gap:.2e} "
        f"rows={line.cache_rows} support={line.support} oracle_calls={line.totals['oracle_calls']} "
        f"seconds={line.seconds:.1f}"
    )
