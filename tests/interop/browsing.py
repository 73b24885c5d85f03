"""A headless Chromium, driven by Playwright, and what tests ask of a page."""

from __future__ import annotations

import os
import shutil
import site
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
SHOTS = ROOT / "build" / "screenshots"  # of every run; git ignores it
PICTURES = os.environ.get("XDSPRISM_PICTURES", "")  # a folder: also put the pictures of the README there
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}
NAMES = ("chromium", "chromium-browser", "google-chrome")

# The longest task of a page, by its own clock; it starts before the scripts of the page do.
OBSERVE = """
window.longTasks = [];
new PerformanceObserver((list) => window.longTasks.push(...list.getEntries().map((each) => each.duration)))
  .observe({ type: "longtask", buffered: true });
"""


def executable() -> str:
    """The Chromium of the system."""
    found = os.environ.get("XDSPRISM_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise FileNotFoundError(
            "no Chromium: `make chromium` installs it on Debian; XDSPRISM_CHROMIUM names another one"
        )
    return found


def playwright() -> Any:
    """Playwright's entry, from an environment of its own: it brings a Node.js that no other test needs."""
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = ROOT / ".venv-browser" / "lib" / python / "site-packages"
    if not folder.is_dir():
        raise FileNotFoundError(f"no {folder}: `make venv-browser` installs Playwright")
    site.addsitedir(str(folder))
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 # it is there from here on

    return sync_playwright()


class Browser:
    """One Chromium. Each page has a session of its own."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser

    @contextmanager
    def page(self, address: str, view: str = "", *, faults: bool = False, **options: Any) -> Iterator[Any]:
        """A page of a dashboard. It must not complain in the console or ask another host, unless `faults`."""
        context = self._browser.new_context(**{"viewport": WIDE, "color_scheme": "light", **options})
        found: list[str] = []
        try:
            page = context.new_page()
            page.set_default_timeout(30_000)
            page.add_init_script(OBSERVE)
            page.on("console", lambda said: found.append(said.text) if said.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: found.append(str(error)))
            page.on("dialog", lambda dialog: (found.append(f"dialog: {dialog.message}"), dialog.dismiss()))
            page.on("request", lambda asked: found.append(asked.url) if urlsplit(asked.url).netloc != address else None)
            page.goto(f"http://{address}/#/{view}")
            yield page
            assert faults or not found, found
        finally:
            context.close()


@contextmanager
def chromium() -> Iterator[Browser]:
    with playwright() as driver:
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=executable(), args=root)
        try:
            yield Browser(browser)
        finally:
            browser.close()


def shot(page: Any, name: str, *, picture: bool = False) -> None:
    """Take a screenshot; `picture`: one that the README shows."""
    for folder in (SHOTS, *([Path(PICTURES)] if picture and PICTURES else [])):
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=folder / f"{name}.png")


def rows(page: Any, caption: str) -> list[list[str]]:
    """The texts of a table, all of the same moment; none if the table is not there."""
    lines = page.locator(f'table:has(caption:text-is("{caption}")) tbody tr')
    script = "lines => lines.map((line) => [...line.cells].map((cell) => cell.innerText.trim()))"
    found: list[list[str]] = lines.evaluate_all(script)
    return found


def overflow(page: Any) -> int:
    """By how many pixels the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def longest_task(page: Any) -> float:
    """Milliseconds for which the page did not react."""
    return float(page.evaluate("Math.max(0, ...window.longTasks)"))
