"""Both pages in a real browser: visible curves, no overflow, no errors. Needs Debian's chromium."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distdual.report.live import Dashboard
from distdual.report.page import RunView, page
from distdual.report.run_log import About
from distdual.report.weights import Weight
from tests.browser import needs_browser, open_browser, show
from tests.report.sample import asynchronous, round_of

ROOT = Path(__file__).parents[2]
pytestmark = needs_browser

OLD = [{key: each[key] for key in each if key not in ("staleness", "workers")} for each in asynchronous()]
CERTIFICATE = {"lower": 99.0, "upper": 101.0, "gap": 0.02, "target": 0.1, "certified": True, "model": "models/" * 30}
ABOUT = About({"output": {"url": "runs/model"}, "solver": {"gap": 1e-3}}, 100, 4, "http://127.0.0.1:8787/status")

PROBE = """
const root = document.documentElement, box = each => each.getBoundingClientRect();
const curves = [...document.querySelectorAll("path.line")].filter(each => !each.closest(".legend"));
const bars = [...document.querySelectorAll("rect.bar")];
const inside = [...document.querySelectorAll("svg, figure, section, table, .tile, .state, header p")];
return {
  scroll: root.scrollWidth, seen: inside.every(each => box(each).left >= 0 && box(each).right <= innerWidth),
  titles: [...document.querySelectorAll("figcaption")].map(each => each.textContent),
  curves: curves.map(each => [box(each).width, box(each).height]), bars: bars.map(each => box(each).height),
  text: Math.min(...[...document.querySelectorAll("svg text")].map(each => box(each).height)),
  paper: getComputedStyle(document.body).backgroundColor, ink: getComputedStyle(document.body).color,
};
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def brightness(colour: str) -> float:
    return float(np.mean([int(part) for part in re.findall(r"\d+", colour)[:3]]))


def assert_readable(browser: Any, width: int, *, dark: bool) -> dict[str, Any]:
    found: dict[str, Any] = browser.execute_script(PROBE)
    assert browser.get_log("browser") == []
    assert found["scroll"] == width  # no horizontal scrolling
    assert found["seen"]
    assert len(found["curves"]) >= 8
    assert min(across for across, _ in found["curves"]) > 200
    assert sum(up > 30 for _, up in found["curves"]) >= 8
    assert min(found["bars"]) > 0
    assert found["text"] >= 11
    assert (brightness(found["paper"]) < 60) == dark
    assert abs(brightness(found["paper"]) - brightness(found["ink"])) > 150
    return found


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_report_is_readable(width: int, dark: bool, browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(RunView(OLD, "a run " * 20, CERTIFICATE, 0.1)), encoding="utf-8")
    show(browser, file.as_uri(), width, dark=dark)
    found = assert_readable(browser, width, dark=dark)
    assert "Workers" not in found["titles"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_live_page_is_readable(width: int, dark: bool, browser: Any) -> None:
    with Dashboard("0") as dashboard:
        dashboard.begin(ABOUT)
        dashboard.lines += asynchronous()
        show(browser, dashboard.url, width, dark=dark)
        found = assert_readable(browser, width, dark=dark)
        assert {"Workers", "Staleness", "Throughput", "Exploring and optimising"} <= set(found["titles"])


NAMES = ["part of the city=north-east by the river", "size", "<b>lift</b>", *(f"feature {k}" for k in range(17))]
BARS = """
const box = each => each.getBoundingClientRect(), figure = document.querySelector("figure.weights");
return [...figure.querySelectorAll("svg g")].map(row => {
  const [name, value] = row.querySelectorAll("text"), bar = row.querySelector("rect");
  return {
    name: name.textContent, full: row.querySelector("title").textContent, style: bar.getAttribute("class"),
    ends: [name, bar, value].map(each => [box(each).left, box(each).right]), height: box(name).height,
    room: [box(figure).left, box(figure).right],
  };
});
"""


@pytest.mark.parametrize("width", [1280, 400])
def test_the_weights_of_features_are_readable(width: int, browser: Any, tmp_path: Path) -> None:
    weights = [Weight(name, (-1) ** k * (21 - k) / 7) for k, name in enumerate(NAMES)]
    file = tmp_path / "page.html"
    file.write_text(page(RunView([], "a run", CERTIFICATE, 0.1, weights=weights, weights_of="of scaled features")))
    show(browser, file.as_uri(), width)
    found = browser.execute_script(BARS)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth") == width
    assert [row["full"].rpartition(" ")[0] for row in found] == NAMES
    assert [row["name"] for row in found][1:3] == NAMES[1:3]
    assert found[0]["name"].endswith("…")
    lengths = [row["ends"][1][1] - row["ends"][1][0] for row in found]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] / lengths[-1] == pytest.approx(21 / 2, rel=0.05)
    for row, weight in zip(found, weights, strict=True):
        assert row["style"] == f"bar {'upper' if weight.value > 0 else 'lower'}"
        assert row["height"] >= 11
        (name_left, name_right), (bar_left, bar_right), (value_left, value_right) = row["ends"]
        assert row["room"][0] <= name_left < name_right <= bar_left < bar_right <= value_left < value_right
        assert value_right <= row["room"][1]


def state(browser: Any) -> str:
    return str(browser.execute_script("return document.querySelector('.state').textContent"))


SIX_SECONDS_LATER = "heard -= 6000; note(); return document.getElementById('news').textContent"


def test_an_open_page_follows_the_run_and_keeps_the_final_state(browser: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    wait = WebDriverWait(browser, 20, poll_frequency=0.1)
    lines = asynchronous()
    with Dashboard("0") as dashboard:
        show(browser, dashboard.url)
        assert state(browser) == "running"
        assert "No round has ended yet" in browser.page_source
        assert browser.execute_script(SIX_SECONDS_LATER) == "no update for 6 s"
        dashboard.begin(ABOUT)
        for each in lines[:10]:
            dashboard.write(round_of(each))
        wait.until(lambda _: browser.title.startswith(f"gap {lines[9]['gap']:.1e}"))
        assert browser.execute_script(SIX_SECONDS_LATER) == "last round 6 s ago"
        for each in lines[10:]:
            dashboard.write(round_of(each))
        wait.until(lambda _: browser.title.startswith(f"gap {lines[-1]['gap']:.1e}"))
        link = browser.execute_script("return document.querySelector('header a').href")
        assert link == "http://127.0.0.1:8787/status"
        dashboard.end(CERTIFICATE)
    wait.until(lambda _: state(browser) == "certified")
    browser.execute_script("window.before = document.body.innerHTML")
    time.sleep(2.5)  # longer than the page's update interval
    assert browser.execute_script("return window.before === document.body.innerHTML")
    assert browser.get_log("browser") == []


KILLED = """
import sys
from distdual.report.live import Dashboard
from tests.browser import needs_browser, open_browser, show
from tests.report.sample import asynchronous
with Dashboard("0") as dashboard:
    dashboard.lines += asynchronous()
    print(dashboard.url, flush=True)
    sys.stdin.read()
"""


def test_a_page_of_a_killed_run_says_so_and_keeps_its_content(browser: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    command = [sys.executable, "-c", KILLED]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            show(browser, run.stdout.readline().strip())
            wait = WebDriverWait(browser, 20)
            wait.until(lambda _: browser.execute_script("return events.readyState === EventSource.OPEN"))
        finally:
            run.kill()
        news = "return document.getElementById('news').textContent"
        wait.until(lambda _: "no connection" in browser.execute_script(news))
        assert len(browser.execute_script(PROBE)["curves"]) >= 8


def test_tooltips_show_the_values_under_the_pointer(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    file = tmp_path / "page.html"
    file.write_text(page(RunView(asynchronous(), "a run", None, 1e-3)), encoding="utf-8")
    show(browser, file.as_uri())
    tips = {}
    for figure in browser.find_elements(By.CSS_SELECTOR, "figure"):
        picture = figure.find_element(By.CSS_SELECTOR, "svg")
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", picture)
        ActionChains(browser).move_to_element(picture).perform()
        title = figure.find_element(By.CSS_SELECTOR, "figcaption").text
        tips[title] = browser.find_element(By.CSS_SELECTOR, ".tip").text.splitlines()
        hair = figure.find_element(By.CSS_SELECTOR, ".hair.on").rect
        box = picture.rect
        assert abs(hair["x"] - (box["x"] + box["width"] / 2)) < box["width"] / 5
    first = asynchronous()[int(tips["Bounds closing over time"][0].split()[0]) - 1]
    assert tips["Bounds closing over time"][1] == f"gap {first['gap']:.2e}"
    assert [words.split()[0] for words in tips["Bounds closing over passes"][1:]] == ["gap", "upper", "lower"]
    assert tips["Exploring and optimising"][1:] == ["optimising 60 %", "waiting for scans 20 %"]
    assert tips["Workers"][0].startswith("tcp://10.0.0.")
    assert tips["Staleness"] == ["1", "reports 75"]
    ActionChains(browser).move_to_element(browser.find_element(By.CSS_SELECTOR, "h1")).perform()
    assert not browser.find_element(By.CSS_SELECTOR, ".tip").is_displayed()


def test_a_screenshot_has_both_curves(browser: Any, tmp_path: Path) -> None:
    from matplotlib.image import imread

    (tmp_path / "page.html").write_text(page(RunView(OLD, "a run")), encoding="utf-8")
    show(browser, (tmp_path / "page.html").as_uri())
    shot = tmp_path / "shot.png"
    assert browser.save_screenshot(str(shot))
    pixels = np.round(imread(shot)[:, :, :3] * 255).astype(int)
    for colour in ((0xC2, 0x41, 0x0C), (0x0B, 0x62, 0xC4)):
        assert (np.abs(pixels - colour).sum(axis=2) < 12).sum() > 300
