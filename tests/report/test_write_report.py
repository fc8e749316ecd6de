"""The report shows the content of the run log in one self-contained HTML file and a PNG."""

import json
import math
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError
from distdual.report.log_reader import (
    beginnings,
    closing,
    condensed,
    events,
    passes,
    problems,
    read_log,
    staleness,
    timeline,
    workers,
)
from distdual.report.page import MOST_EVENTS, MOST_WORKERS, RunView, page
from distdual.report.svg_charts import Series, line_chart, linear_axis, log_axis
from distdual.report.write_report import write_report
from tests.build import examples
from tests.report.sample import asynchronous, line
from tests.shell import assert_refused, call

VOID = {"meta", "link", "path", "line", "circle", "rect"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and the log of its training."""
    folder = tmp_path_factory.mktemp("run")
    made = examples(1, 3000, 6)
    prepare_arrays(made.x, made.y, str(folder / "data"), "binary", shard_bytes=20_000)
    distdual.train(
        {
            "data": {"url": str(folder / "data")},
            "problem": {"kind": "binary"},
            "solver": {"gap": 1e-6},
            "output": {"url": str(folder / "model"), "log": str(folder / "run.jsonl")},
        }
    )
    return folder


def test_both_bounds_close_to_the_proven_gap(run: Path) -> None:
    lines = read_log(run / "run.jsonl")
    found = closing(lines)
    for values in found:
        there = [value for value in values if value is not None]
        assert there[-1] == pytest.approx(lines[-1]["gap"], rel=1e-6)
        assert there == sorted(there, reverse=True)
    assert len(found.upper) == len(found.lower) == len(lines)


def test_passes_count_oracle_calls(run: Path) -> None:
    lines = read_log(run / "run.jsonl")
    found = passes(lines)
    assert found == [line["totals"]["oracle_calls"] / 3000 for line in lines]
    assert passes([line(0.0, None, passes=3)]) == [3.0]
    assert passes([line(0.0, None, passes=0)]) == [0.0]
    mixed = [(0, 50), (1, 110), (1, 150), (2, 200), (3, 330)]  # scans of the next pass begin before a pass has ended
    found = passes([line(0.0, None, passes=done, oracle_calls=calls) for done, calls in mixed])
    assert found == [0.5, 1.1, 1.5, 2.0, 3.3]


def test_the_timeline_adds_up_however_many_rounds_there_are(run: Path) -> None:
    lines = read_log(run / "run.jsonl")
    for most in (1, 2, 3, 60):
        found = timeline(lines, most)
        width = found.edges[1]
        assert len(found.edges) - 1 == len(found.scan) == len(found.ascent) == len(found.examples) <= most
        assert found.edges[-1] == lines[-1]["seconds"]
        assert width * sum(found.scan) == pytest.approx(lines[-1]["totals"]["wait_seconds"])
        assert width * sum(found.ascent) == pytest.approx(lines[-1]["totals"]["ascent_seconds"])
        assert width * sum(found.examples) == pytest.approx(lines[-1]["totals"]["oracle_calls"])


def test_the_work_of_a_round_lies_within_its_time() -> None:
    first = {**line(0.0, None, wait_seconds=1.0, ascent_seconds=0.0, oracle_calls=10), "seconds": 1.0}
    second = {**line(0.0, None, wait_seconds=1.0, ascent_seconds=1.5, oracle_calls=10), "seconds": 4.0}
    anew = {**line(0.0, None, wait_seconds=0.5, ascent_seconds=0.0, oracle_calls=5), "seconds": 5.0}  # totals restart
    found = timeline([first, second, anew], 5)
    assert found.edges == [0, 1, 2, 3, 4, 5]
    assert found.scan == pytest.approx([1, 0, 0, 0, 0.5])
    assert found.ascent == pytest.approx([0, 0.5, 0.5, 0.5, 0])
    assert found.examples == pytest.approx([10, 0, 0, 0, 5])


def test_workers_and_staleness_are_summed_over_rounds() -> None:
    lines = [
        {**line(0.0, None), "staleness": [3, 1], "workers": {"b": [10, 0.5]}},
        line(0.0, None),
        {**line(0.0, None), "staleness": [1, 0, 2], "workers": {"b": [5, 0.25], "a": [1, 1.0]}},
    ]
    assert staleness(lines) == [4, 1, 2]
    assert workers(lines) == [("a", 1, 1.0), ("b", 15, 0.75)]
    text = page(RunView(lines, "a run"))
    assert "Staleness" in text
    assert "Workers" in text
    assert json.dumps("b\n15 examples\nbusy 75 %\nexamples per second 20")[1:-1] in text


def test_condensed_lines_keep_all_sums_and_events() -> None:
    lines = asynchronous(30)
    for most in (1, 7, 29, 30):
        found = condensed(lines, most)
        assert len(found) <= most
        assert found[-1]["totals"] == lines[-1]["totals"]
        assert staleness(found) == staleness(lines)
        assert [(each.name, each.examples) for each in workers(found)] == [
            (each.name, each.examples) for each in workers(lines)
        ]
        assert [event for _, event in events(found)] == [event for _, event in events(lines)]


def test_missing_series_have_no_chart() -> None:
    text = page(RunView([line(0.0, None), {**line(1.0, 2.0), "staleness": [], "workers": {}}], "an old run"))
    assert "Staleness" not in text
    assert "Workers" not in text


def test_many_workers_and_events_are_truncated_with_a_note() -> None:
    busy = {f"w{at}": [at, 1.0] for at in range(1, 100)}
    text = page(RunView([{**line(1.0, 2.0), "workers": busy, "events": [f"event {at}" for at in range(500)]}], "a run"))
    assert f"the slowest {MOST_WORKERS} of 99 workers" in text
    assert "w24" in text
    assert "w25" not in text
    assert f"the last {MOST_EVENTS} of 500" in text
    assert "event 499<" in text
    assert "event 299<" not in text


def test_the_state_is_shown_in_words() -> None:
    lines = [line(1.0, 2.0)]
    certificate = {"lower": 1.0, "upper": 2.0, "gap": 0.5, "target": 0.1, "certified": False, "reason": "max_passes"}
    assert ">not certified: max_passes<" in page(RunView(lines, "a", certificate, 0.1))
    assert ">certified<" in page(RunView(lines, "a", {**certificate, "certified": True}, 0.1))
    assert ">running<" in page(RunView(lines, "a", running=True))
    assert ">ended without a certificate: no disk<" in page(RunView(lines, "a", failure="no disk"))
    assert 'class="state' not in page(RunView(lines, "a"))
    assert "No round has ended yet" in page(RunView([], "a", running=True))


def test_bounds_that_get_worse_belong_to_another_problem() -> None:
    lines = [line(0.0, None), line(1.0, 3.0), line(1.5, 2.0), line(4.0, 9.0), line(5.0, 8.0), line(1.0, 2.0)]
    assert beginnings(lines) == [0, 3, 5]
    assert [each for part in problems(lines) for each in part] == lines
    assert closing(lines).upper == [None, 0.75, 0.25, 0.5, 0.375, 0.5]


def test_without_a_proven_upper_bound_the_page_says_so_instead_of_drawing() -> None:
    text = page(RunView([line(0.0, None), line(1.0, None)], "a run"))
    assert "no proven values to draw yet" in text
    assert "no proven upper bound" in text


@given(st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=5))
def test_axes_contain_all_values(values: list[float]) -> None:
    for axis in (linear_axis(max(values), min(values)), log_axis(values)):
        assert all(-1e-9 <= axis.at(value) <= 1 + 1e-9 for value in values)
        assert axis.ticks == sorted(set(axis.ticks))
        assert 2 <= len(axis.ticks) <= 8


def test_a_line_breaks_at_gaps_and_cuts() -> None:
    def paths(y: list[float | None], cuts: tuple[int, ...] = ()) -> int:
        return line_chart("t", "x", range(len(y)), [Series("s", "upper", y)], cuts=cuts).count('d="M') - 1  # the legend

    assert paths([1.0, 2.0, 3.0]) == 1
    assert paths([1.0, None, 3.0]) == 2
    assert paths([1.0, 2.0, 3.0], (0, 2)) == 2
    assert paths([float(i) for i in range(5000)], (0, 1234, 4321)) == 3


class Checker(HTMLParser):
    """A parser that checks that every element is closed and nothing is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag != "script" or not attrs
        assert not any(value and "//" in value for _, value in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.words.append(data)


def test_the_page_is_complete_and_well_formed(run: Path) -> None:
    html, png = write_report(str(run / "model"))
    assert (html, png) == (run / "run.html", run / "run.png")
    text = html.read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text
    assert "NaN" not in text
    assert "nan" not in "".join(checker.words)
    certificate = json.loads((run / "model" / "certificate.json").read_text())
    for words in (f"{certificate['lower']:.8g}", f"{certificate['oracle_calls']:,}", "certified", "Costs", "3,000 × 6"):
        assert any(words in data for data in checker.words), words
    assert png.read_bytes().startswith(b"\x89PNG")


def test_names_are_escaped(run: Path) -> None:
    assert "<b>&" not in page(RunView(read_log(run / "run.jsonl"), "<b>& run"))


def test_a_log_alone_suffices_and_an_incomplete_last_line_is_ignored(run: Path, tmp_path: Path) -> None:
    log = tmp_path / "cut.jsonl"
    log.write_text((run / "run.jsonl").read_text() + '{"seconds": 3.')
    assert len(read_log(log)) == len(read_log(run / "run.jsonl"))
    assert write_report(str(log), tmp_path / "pages" / "cut.html", png=False) == [tmp_path / "pages" / "cut.html"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "has no rounds"),
        ("hello\n", "line 1: not a JSON object"),
        ("[1]\n", "line 1: not a JSON object"),
        ('{"seconds": 1}\n', "line 1: lower is missing or not a number"),
        (json.dumps({**line(1.0, 2.0), "lower": True}) + "\n", "lower is missing"),
        (json.dumps({**line(1.0, 2.0), "upper": "high"}) + "\n", "upper must be a number"),
        (json.dumps({**line(1.0, 2.0), "staleness": 3}) + "\n", "staleness must be a list of counts"),
        (json.dumps({**line(1.0, 2.0), "staleness": [1, -1]}) + "\n", "staleness must be a list of counts"),
        (json.dumps({**line(1.0, 2.0), "workers": {"a": [1]}}) + "\n", "workers a table"),
        (json.dumps({**line(1.0, 2.0), "workers": {"a": [1, None]}}) + "\n", "workers a table"),
        (json.dumps(line(1.0, 2.0)) + "\n" + json.dumps({**line(1.0, 2.0), "totals": 3}) + "\n", "line 2: passes"),
    ],
)
def test_an_invalid_run_log_is_refused_with_its_line(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text(content)
    with pytest.raises(InputError, match=words):
        write_report(str(tmp_path / "run.jsonl"))
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl"]


def test_a_log_of_another_run_is_refused(run: Path, tmp_path: Path) -> None:
    about = json.loads((run / "model" / "model.json").read_text())
    log = tmp_path / "other.jsonl"
    log.write_text(json.dumps(line(1.0, 2.0)) + "\n")
    about["config"]["output"]["log"] = str(log)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.json").write_text(json.dumps(about))
    (tmp_path / "model" / "certificate.json").write_text((run / "model" / "certificate.json").read_text())
    with pytest.raises(InputError, match="belong to different runs"):
        write_report(str(tmp_path / "model"))


def test_the_command_writes_both_files(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    ran = call(capsys, "report", run / "model", "--out", out)
    assert ran.code == 0, ran
    assert ran.out == f"report     {out}\nreport     {tmp_path / 'page.png'}\n"
    ran = call(capsys, "report", run / "run.jsonl", "--out", out, "--no-png", "--json")
    assert json.loads(ran.out) == {"files": [str(out)]}


def test_the_command_reports_errors_briefly(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(call(capsys, "report", tmp_path), "neither a run log nor a model folder", str(tmp_path))
    assert_refused(call(capsys, "report", run / "model", "--out", tmp_path / "page.pdf"), "page.pdf", ".html")
    (tmp_path / "file").touch()
    assert_refused(call(capsys, "report", run / "model", "--out", tmp_path / "file" / "x.html"), "cannot be written")


def test_missing_matplotlib_is_reported_with_its_install_command(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    out = tmp_path / "page.html"
    refused = call(capsys, "report", run / "model", "--out", out, "--png")
    assert_refused(refused, "matplotlib", "pip install matplotlib")
    assert not out.exists()
    assert call(capsys, "report", run / "model", "--out", out, "--no-png").code == 0


def test_without_matplotlib_the_page_alone_is_written(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    ran = call(capsys, "report", run / "model", "--out", tmp_path / "page.html")
    assert (ran.code, ran.out) == (0, f"report     {tmp_path / 'page.html'}\n")


def test_the_page_counts_passes_as_the_certificate_does(run: Path) -> None:
    certificate = json.loads((run / "model" / "certificate.json").read_text())
    lines = read_log(run / "run.jsonl")
    assert f">{certificate['passes']:,}<" in page(RunView(lines, "a", certificate, certificate["target"]))
    assert lines[-1]["totals"]["passes"] == certificate["passes"]


def test_a_long_run_makes_a_page_of_bounded_size() -> None:
    rng = np.random.default_rng(0)
    lower = np.cumsum(rng.uniform(0, 1, 20_000))
    lines = [
        {**line(float(value), 20_000.0 + 1 / (at + 1), oracle_calls=at, wait_seconds=at), "seconds": float(at)}
        for at, value in enumerate(lower)
    ]
    text = page(RunView(lines, "long"))
    assert len(text) < 120_000
    assert math.isfinite(closing(lines).lower[-1] or 0.0)
