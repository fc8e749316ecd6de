"""The report of a run, named by its log or its model: an HTML file and a PNG."""

from pathlib import Path
from typing import Any, NamedTuple

from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.model.io import load_model, read_about, read_certificate
from distdual.model.replace_files import current
from distdual.problems.registry import is_own
from distdual.report.log_reader import Line, read_log
from distdual.report.page import RunView, page
from distdual.report.plots import has_matplotlib, new_figure, plot_run
from distdual.report.price import Price
from distdual.report.run_log import trained_words
from distdual.report.weights import Weight, largest_weights


class ReportSources(NamedTuple):
    log: Path  # or, without one, where it would be
    lines: list[Line]  # none without a log
    certificate: dict[str, Any] | None  # None for a log without a model
    weights: tuple[list[Weight], str] = ([], "")
    trained: str = ""

    def about(self, name: str, price: Price | None = None) -> RunView:
        target = None if self.certificate is None else self.certificate["target"]
        weights, what = self.weights
        shown: dict[str, Any] = {"price": price, "weights": weights, "weights_of": what, "trained": self.trained}
        return RunView(self.lines, name, self.certificate, target, **shown)


def write_report(
    run: str, out: Path | None = None, *, png: bool | None = None, price: Price | None = None
) -> list[Path]:
    """Write the report of a run and return its files, by default next to the log and named after it.

    A model that was trained without a log has a report of its weights and its certificate, named after the model. The
    PNG is left out where matplotlib is not installed, unless `png` asks for it.
    """
    found = find(run)
    if png and not found.lines:
        raise InputError(
            f"{run}: a PNG shows how bounds close, but the run wrote no log; set output.log and train again"
        )
    png = bool(found.lines) and (has_matplotlib() if png is None else png)
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
    """The log at `run`; or the certificate, the weights and the log, if there is one, of the model folder `run`."""
    if "://" not in run and Path(run).is_file():
        return ReportSources(Path(run), read_log(Path(run)), None)
    folder = Location(run)
    if not folder.exists("model.json"):
        raise InputError(f"{run}: neither a run log nor a model folder; set output.log to write a log while training")
    folder = current(folder)
    about = read_about(folder)
    config = about.get("config")
    output = config.get("output") if isinstance(config, dict) else None
    log = output.get("log") if isinstance(output, dict) else None
    certificate = read_certificate(folder)
    lines = read_log(Path(log)) if isinstance(log, str) else []
    check_same_run(lines, certificate, f"{run} and {log}" if lines else run)
    where = Path(log) if isinstance(log, str) else beside(run)
    return ReportSources(where, lines, certificate, weights_in(folder), trained_in(about))


def trained_in(about: dict[str, Any]) -> str:
    """What was trained, in words."""
    problem, data = (found if isinstance(found := about.get(name), dict) else {} for name in ("problem", "data"))
    size = (data.get("n_examples"), problem.get("n_features"), data.get("n_shards"))
    return trained_words(problem.get("kind"), about.get("C"), data.get("url"), *size)


def beside(run: str) -> Path:
    """Where the report of a model without a log goes: beside its folder, or here if that is remote."""
    return Path(f"{run.rstrip('/').rpartition('/')[2] if '://' in run else run.rstrip('/')}.jsonl")


def weights_in(folder: Location) -> tuple[list[Weight], str]:
    """The largest weights of a linear model, and what their features are."""
    about = read_about(folder).get("problem")
    if not isinstance(about, dict) or is_own(about.get("kind")):
        return [], ""
    model = load_model(folder)
    scale = "none" if model.preprocessing is None else model.preprocessing.scale
    return largest_weights(model), "of features as they are" if scale == "none" else f"of features scaled by {scale}"


def check_same_run(lines: list[Line], certificate: dict[str, Any], names: str) -> None:
    ends = lines if certificate.get("latent") else lines[-1:]  # the best restart need not be the last
    if lines and certificate.get("lower") not in [line["lower"] for line in ends]:
        raise InputError(f"{names} belong to different runs: their final lower bounds differ; pass the log alone")
    bounds = (certificate.get(name) for name in ("upper", "gap"))
    proven = all(isinstance(bound, float | None) for bound in bounds) and isinstance(certificate.get("target"), float)
    if not (proven and isinstance(certificate.get("certified"), bool)):
        raise InputError(f"{names}: certificate.json lacks bounds, target or certified")
