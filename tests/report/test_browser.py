"""The report in a real browser: curves are seen, nothing overflows, nothing complains. Needs Debian's chromium."""

import html
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distdual.report.page import page
from tests.report.test_report import line

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no browser is installed; `apt-get install chromium` runs the tests of the report's page"
)

LINES = [
    {
        **line(100 - 50 / at, 100 + 60 / at, oracle_calls=10 * at, wait_seconds=at, ascent_seconds=2.0 * at),
        "seconds": at,
    }
    for at in range(1, 30)
]
CERTIFICATE = {"lower": 99.0, "upper": 101.0, "gap": 0.02, "target": 0.1, "certified": True, "model": "models/" * 30}

PROBE = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><title>?</title>
<body style="margin:0"><iframe style="border:0;width:{width}px;height:2400px" srcdoc="{content}"></iframe><script>
onload = () => {{
  const inner = document.querySelector("iframe").contentDocument, root = inner.documentElement;
  const box = inner.querySelector("path.line.upper:not(:first-child)").getBoundingClientRect();
  const text = [...inner.querySelectorAll("svg text")].map(t => t.getBoundingClientRect().height);
  const paper = inner.defaultView.getComputedStyle(inner.body).backgroundColor;
  document.title = [root.scrollWidth, box.width, box.height, Math.min(...text), paper].join("|");
}};</script>"""


def chromium(folder: Path, file: Path, *options: str) -> Any:
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"]
    command += [f"--user-data-dir={folder / 'profile'}", *options, file.as_uri()]
    return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=60, check=True)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_is_readable(width: int, dark: bool, tmp_path: Path) -> None:
    probe = tmp_path / "probe.html"
    content = html.escape(page(LINES, "a run " * 20, CERTIFICATE))
    probe.write_text(PROBE.format(width=width, content=content), encoding="utf-8")
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    ran = chromium(tmp_path, probe, "--dump-dom", f"--window-size={max(500, width)},2400", scheme)
    assert "CONSOLE" not in ran.stderr, ran.stderr
    title = re.search(r"<title>([^<]*)</title>", ran.stdout)
    assert title is not None
    found = title[1].split("|")
    scroll, across, up, smallest = map(float, found[:4])
    assert scroll == width  # nothing to scroll sideways
    assert across > width / 8
    assert up > 30
    assert smallest >= 11
    brightness = np.mean([int(part) for part in re.findall(r"\d+", found[4])[:3]])
    assert (brightness < 60) == dark


def test_a_picture_of_it_has_both_curves(tmp_path: Path) -> None:
    from matplotlib.image import imread

    (tmp_path / "page.html").write_text(page(LINES, "a run"), encoding="utf-8")
    shot = tmp_path / "shot.png"
    scheme = "--blink-settings=preferredColorScheme=1"
    ran = chromium(tmp_path, tmp_path / "page.html", f"--screenshot={shot}", "--window-size=1280,1200", scheme)
    assert "CONSOLE" not in ran.stderr, ran.stderr
    pixels = np.round(imread(shot)[:, :, :3] * 255).astype(int)
    for colour in ((0xC2, 0x41, 0x0C), (0x0B, 0x62, 0xC4)):
        assert (np.abs(pixels - colour).sum(axis=2) < 12).sum() > 300
