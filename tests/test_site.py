"""The built site in a real browser: nothing is wider than the page, and the API page shows what is public."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import distdual
from tests.browser import needs_browser, open_browser, show
from tests.site import build_site

pytestmark = needs_browser

WIDE = """
const shown = each => each.getClientRects().length > 0, box = each => each.getBoundingClientRect();
const scrolls = each => { for (let up = each.parentElement; up; up = up.parentElement)
  if (["auto", "scroll"].includes(getComputedStyle(up).overflowX) && box(up).right <= innerWidth + 1) return true;
  return false; };
const parts = [...document.querySelectorAll("article :is(table, img, pre, h1, h2, p)")];
return {
  page: document.documentElement.scrollWidth,
  wide: parts.filter(each => shown(each) && box(each).right > innerWidth + 1 && !scrolls(each))
    .map(each => `${each.tagName} ${each.textContent.slice(0, 60)}`),
  pictures: [...document.querySelectorAll("article img")].map(each => [each.naturalWidth, box(each).width]),
};
"""
HEADINGS = """
return [...document.querySelectorAll("article .doc-heading")].filter(each => each.getClientRects().length > 0)
  .map(each => each.id);
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.mark.parametrize("width", [1300, 400])
def test_tables_scroll_and_pictures_fit_on_every_page(width: int, site: Path, browser: Any) -> None:
    pictures = 0
    for page in sorted(site.rglob("index.html")):
        show(browser, page.as_uri(), width)
        found = browser.execute_script(WIDE)
        assert found["page"] <= width, page
        assert found["wide"] == [], page
        for natural, drawn in found["pictures"]:
            assert natural > 0, f"{page}: a picture is missing"
            assert drawn <= width, page
            pictures += 1
    assert pictures >= 2


def test_the_api_page_shows_every_public_name_with_its_text(site: Path, browser: Any) -> None:
    show(browser, (site / "api" / "index.html").as_uri())
    shown = {name.rpartition(".")[2] for name in browser.execute_script(HEADINGS)}
    public = {name for name in distdual.__all__ if not name.startswith("__")}
    assert public <= shown
    text = " ".join(browser.execute_script("return document.querySelector('article').innerText").split())
    for name in ("train", "verify", "predict", "prepare_frame", "SVC"):
        first = " ".join((inspect.getdoc(getattr(distdual, name)) or "").split("\n\n")[0].split())
        assert first.replace("`", "")[:60] in text, name
    severe = [line["message"] for line in browser.get_log("browser") if line["level"] == "SEVERE"]
    assert [message for message in severe if "/search.js" not in message] == []  # only a served site has it
