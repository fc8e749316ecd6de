"""What the documentation says is true: it builds without a warning, every block of code runs, every name exists."""

import html
import importlib
import inspect
import json
import re
import sys
import typing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import distdual
from distdual.cli.commands import cli
from distdual.config import Config, LocalCluster
from distdual.field_docs import fields_of
from distdual.problems.registry import BUILT_IN, own_fields
from tests.blocks import Folder, blocks_of, check_output, run_all
from tests.preloaded import preloaded
from tests.s3_server import free_ports
from tests.shell import environment
from tests.site import build_site
from tests.standins import stand_ins

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
INSTALL = "python3 -m venv .venv && .venv/bin/pip install -q -e . && . .venv/bin/activate"  # as was done for the tests
WRITTEN_BY_BENCHMARKS = "benchmarks.md"
PAGES = {page.name: page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("*.md"))}
PAGES.pop(WRITTEN_BY_BENCHMARKS, None)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with preloaded(tmp_path_factory.mktemp("programs")) as folder:
        yield folder


# pages that start clusters or many programs
LONG = ("clusters.md", "data.md", "serving.md", "own-problem.md", "getting-started.md")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in LONG else [])
        for name, text in PAGES.items()
        if blocks_of(text)
    ],
)
def test_every_block_of(page: str, programs: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """In order, in one folder, as a reader would; with an S3 server, a port and cluster software of the test's own."""
    for name in ("configs", "jobs"):
        (tmp_path / name).symlink_to(ROOT / name)
    ports = free_ports("8786", "8787", "8788")
    replace = {INSTALL: ":", **{theirs: str(mine) for theirs, mine in ports.items()}}
    if "my-key" in PAGES[page]:
        s3 = request.getfixturevalue("s3")
        replace |= {"=my-key": f"={s3.key}", "=my-secret": f"={s3.secret}", "http://127.0.0.1:8333": s3.endpoint}
    needs = {block.needs for block in blocks_of(PAGES[page]) if block.needs}
    env = environment()
    extra = stand_ins(needs, tmp_path / "stand-ins")
    env["PATH"] = f"{programs}:{extra}:{env['PATH']}"
    env["PYTHONPATH"] = f"{env.get('PYTHONPATH', '')}:{extra}".strip(":")
    bash = ["bash", "-euo", "pipefail"]
    folder = Folder(tmp_path, env, {"bash": bash, "python": [str(programs / "python")]}, replace, [])
    run_all(PAGES[page], folder, page)


def test_what_cannot_be_here_is_named_and_counted() -> None:
    """Blocks for software that stands in: a new one is a decision, not an accident."""
    found = Counter(block.needs for text in PAGES.values() for block in blocks_of(text) if block.needs)
    assert found == {"kubernetes": 2, "slurm": 2, "docker": 1}


def test_outputs_are_compared() -> None:
    told = "7.3 ≤ P(w*), gap 1.02e-04\ncost 3 passes, 2.5 s\nmodel a/b\n"
    check_output("7.31 ≤ P(w*), gap 2e-04\ncost 4 passes, 0.1 s\nmodel a/b\n", told, "here")
    check_output("…\nmodel a/b\n", told, "here")
    check_output("7.3 ≤ P(w*), gap 1.02e-04\n…", told, "here")
    for wrong in ("8.3 ≤ P(w*), gap 1.02e-04\n…", "model a/b\n", "…\nmodel a/c", "7.3 ≤ P(w*), gap 1.02e-04\n"):
        with pytest.raises(AssertionError):
            check_output(wrong, told, "here")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site"))


def test_the_site_builds_and_every_page_is_in_it(site: Path) -> None:
    for name in PAGES:
        made = site / "index.html" if name == "index.md" else site / name.removesuffix(".md") / "index.html"
        assert "<!-- generated" not in made.read_text(encoding="utf-8")


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        fetched = re.findall(r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?([^"'\s>]+)""", page.read_text())
        fetched += re.findall(r"""<link\b[^>]*\bhref=["']?([^"'\s>]+)""", page.read_text())
        assert fetched
        assert not [address for address in fetched if "//" in address], page


def test_generated_pages_say_what_the_code_says(site: Path) -> None:
    config, commands = (plain(site / name / "index.html") for name in ("config", "commands"))
    sections = [*typing.get_type_hints(Config).items(), ("cluster.local", LocalCluster)]
    expected = {f"{section}.{field.name}": field for section, owner in sections for field in fields_of(owner)}
    expected |= {f"problem.{field.name}": field for cls in BUILT_IN for field in own_fields(cls)}
    for key in expected.keys() - {"problem.options"}:
        assert f"{key} " in config
    for key in ("solver.max_passes", "cluster.local.workers", "solver.seed"):
        value, meaning = json.dumps(expected[key].default), " ".join(expected[key].meaning.split())
        assert f"{key} {value} {meaning}" in config
    for name, command in cli.commands.items():
        assert f"Usage: distdual {name}" in commands
        assert all(word in commands for parameter in command.params for word in parameter.opts[:1] if word[0] == "-")


def test_the_api_page_has_every_public_name_and_its_parameters(site: Path) -> None:
    page = plain(site / "api" / "index.html")
    for name in set(distdual.__all__) - {"__version__"}:
        found = getattr(distdual, name)
        assert f"{found.__module__}.{name}" in PAGES["api.md"]
        first = "".join((inspect.getdoc(found) or "").split("\n\n")[0].replace("`", "").split())
        made = first.startswith(f"{name}(")  # a dataclass without a docstring has its signature instead
        assert name in page if made else first in "".join(page.split()), name
    for name in ("max_seconds", "verbose", "decision_function", "class_weight"):
        assert name in page


def plain(page: Path) -> str:
    """The words of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page.read_text(encoding="utf-8"))).split())


def names() -> list[tuple[str, str]]:
    """All names of modules and what they hold that the pages speak of, such as `distdual.solver.group_step:trade`."""
    return sorted(
        {
            (page, name)
            for page, text in PAGES.items()
            for name in re.findall(r"`(distdual(?:\.\w+)+(?::[\w.]+)?)`", text)
        }
    )


@pytest.mark.parametrize(("page", "name"), names(), ids=[f"{name} in {page}" for page, name in names()])
def test_every_name_exists(page: str, name: str) -> None:
    resolve(name)


def resolve(name: str) -> Any:
    module, _, path = name.partition(":")
    if path:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
        return found
    parent, _, last = module.rpartition(".")
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(parent), last)


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_named_exists(page: str) -> None:
    for path in re.findall(r"`((?:configs|jobs|benchmarks|distdual|tests)/[\w./-]*)`", PAGES[page]):
        assert "NAME" in path or (ROOT / path).exists(), f"{page}: {path}"  # NAME is the reader's


def test_the_architecture_page_walks_through_at_most_35_modules_and_names_every_folder() -> None:
    text = PAGES["architecture.md"]
    walk = text.split("## One example")[1].split("\n## ")[0]
    named = set(re.findall(r"`(distdual/[\w/]+\.py)`", walk))
    assert 20 <= len(named) <= 35
    everything = set(re.findall(r"`(distdual/[\w./-]+|tests/[\w./-]+)`", text))
    missing = [path for path in everything if not (ROOT / path).exists() and "NAME" not in path]
    assert missing == []
    folders = {f"distdual/{init.parent.name}/" for init in (ROOT / "distdual").glob("*/__init__.py")}
    assert folders <= everything


def test_it_is_this_code_that_is_tested() -> None:
    assert Path(sys.modules["distdual"].__file__ or "").parent == ROOT / "distdual"


def test_the_stand_in_for_kubernetes_takes_what_the_real_one_takes() -> None:
    real = pytest.importorskip("dask_kubernetes.operator", reason="dask-kubernetes is not installed")
    told = re.search(r"KubeCluster\((.*?)\) as cluster", PAGES["clusters.md"])
    assert told
    assert set(re.findall(r"(\w+)=", told[1])) <= set(inspect.signature(real.KubeCluster.__init__).parameters)
