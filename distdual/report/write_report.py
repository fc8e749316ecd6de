"""The report of a run, named by its log or its model: an HTML file and a PNG."""

from pathlib import Path
from typing import Any, NamedTuple

from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.model.io import read_about, read_certificate
from distdual.model.replace_files import current
from distdual.report.log_reader import Line, read_log
from distdual.report.page import Run, page
from distdual.report.plots import has_matplotlib, new_figure, plot_run
from distdual.report.price import Price


class ReportSources(NamedTuple):
    log: Path
    lines: list[Line]
    certificate: dict[str, Any] | None  # None for a log without a model

    def about(self, name: str, price: Price | None = None) -> Run:
        target = None if self.certificate is None else self.certificate["target"]
        return Run(self.lines, name, self.certificate, target, price=price)


def write_report(
    run: str, out: Path | None = None, *, png: bool | None = None, price: Price | None = None
) -> list[Path]:
    """Write the report of a run and return its files, by default next to the log and named after it.

    The PNG is left out where matplotlib is not installed, unless `png` asks for it.
    """
    png = has_matplotlib() if png is None else png
    found = find(run)
    target = out or found.log.with_suffix(".html")
    if target.suffix not in (".html", ".htm"):
        raise InputError(f"{target}: the report is an HTML file; give it the suffix .html")
    picture = target.with_suffix(".png")
    if png:
        new_figure(1, 1)  # fails early if matplotlib is missing
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page(found.about(run, price)), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror}") from None
    if png:
        plot_run(found.lines, run, picture, found.about(run).target)
    return [target, picture] if png else [target]


def find(run: str) -> ReportSources:
    """The log at `run`, or the certificate and the log of the model folder `run`."""
    if "://" not in run and Path(run).is_file():
        return ReportSources(Path(run), read_log(Path(run)), None)
    folder = Location(run)
    if not folder.exists("model.json"):
        raise InputError(f"{run}: neither a run log nor a model folder; set output.log to write a log while training")
    folder = current(folder)
    config = read_about(folder).get("config")
    output = config.get("output") if isinstance(config, dict) else None
    log = output.get("log") if isinstance(output, dict) else None
    if not isinstance(log, str):
        raise InputError(f"{run}: the model was trained without a run log; set output.log and train again")
    certificate = read_certificate(folder)
    lines = read_log(Path(log))
    check_same_run(lines, certificate, f"{run} and {log}")
    return ReportSources(Path(log), lines, certificate)


def check_same_run(lines: list[Line], certificate: dict[str, Any], names: str) -> None:
    ends = lines if certificate.get("latent") else lines[-1:]  # the best restart need not be the last
    if certificate.get("lower") not in [line["lower"] for line in ends]:
        raise InputError(f"{names} belong to different runs: their final lower bounds differ; pass the log alone")
    bounds = (certificate.get(name) for name in ("upper", "gap"))
    proven = all(isinstance(bound, float | None) for bound in bounds) and isinstance(certificate.get("target"), float)
    if not (proven and isinstance(certificate.get("certified"), bool)):
        raise InputError(f"{names}: certificate.json lacks bounds, target or certified")
