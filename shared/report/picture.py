"""README's picture, the first screen of the report on the recorded results: `make picture` (a few seconds).

python -m shared.report.picture     builds the page in a temporary folder and writes docs/report.png

Needs Chromium, and playwright to drive it (pip install playwright). The counts that the picture shows stand in the file
too, and a test holds them against the recorded results.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from shared import cli
from shared.check import Summary
from shared.errors import UserError
from shared.paths import ROOT, atomic_write
from shared.published import KINDS
from shared.record import count_line
from shared.report.page import build
from shared.text import say

SIZE = 1400, 1300  # pixels
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


@dataclass
class Config(cli.Common):
    output: Path = ROOT / "docs" / "report.png"
    """[output] the picture"""


@contextmanager
def chromium() -> Iterator[Any]:
    """The system's Chromium, headless, as a Playwright browser. UserError where one of the two is missing."""
    program = next((path for name in NAMES if (path := shutil.which(name))), None)
    if program is None:
        raise UserError("no Chromium here; install it, for instance with apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        raise UserError(
            "no playwright here; pip install playwright (it is among the packages for development)"
        ) from None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


def counts_shown(summary: Summary) -> str:
    """The counts that the first screen has, as text."""
    kinds = [f"{words}: {count_line(summary.by_kind[kind])}" for kind, words in KINDS.items()]
    return "; ".join([*kinds, f"contradictions: {len(summary.contradictions)}"])


def main(config: Config) -> None:
    results = Path(config.results or ROOT / "results")
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        path = Path(folder) / "index.html"
        contents = build(results, path)
        width, height = SIZE
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
        page.goto(path.as_uri())
        on_screen = "[...document.images].filter(i => i.getBoundingClientRect().top < innerHeight)"
        page.evaluate(f"Promise.all({on_screen}.map(i => i.decode()))")  # they are decoded late
        shot = page.screenshot()
    info = PngInfo()
    info.add_text("Counts", counts_shown(contents.summary))
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(shot)) as image:
        image.convert("RGB").save(buffer, "PNG", optimize=True, pnginfo=info)
    atomic_write(config.output, buffer.getvalue())
    say(f"{config.output}: {width} x {height} pixels, {len(buffer.getvalue()) / 1e3:.0f} kB")


if __name__ == "__main__":
    cli.run(main, Config)
