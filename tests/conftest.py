"""What all tests share: small helpers, and where the development machine's reference folder is (a clone has none)."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from shared.errors import UserError
from shared.paths import ROOT

# `make test` hands its own ARGS= to every make that a test starts
for name in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL"):
    os.environ.pop(name, None)


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """`../shared`: the article, published numbers, graphs and images that a user's clone does not have."""
    folder = ROOT.parent / "shared"
    if not (folder / "published").is_dir():
        pytest.skip("../shared is not beside this clone")
    return folder


@pytest.fixture(scope="session")
def data_mirror(shared_folder: Path) -> Path:
    """The mirror of real images (`PAPERS_DATA`)."""
    folder = shared_folder / "data"
    if not folder.is_dir():
        pytest.skip("../shared/data is not beside this clone")
    return folder


@pytest.fixture
def published_log():
    """The article's log of a script, as lines without the blank ones."""

    def read(name: str) -> list[str]:
        text = (ROOT / "tests" / "published" / f"{name}.txt").read_text(encoding="utf-8")
        return [line for line in text.split("\n") if line]

    return read


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test writes into the repository's results or reads the developer's mirror by accident."""
    monkeypatch.setenv("PAPERS_RESULTS", str(tmp_path_factory.mktemp("results")))
    monkeypatch.delenv("PAPERS_DATA", raising=False)
    monkeypatch.setattr("shared.process.set_up", lambda: None)  # a script sets up its process, not the tests'


@pytest.fixture(scope="module")
def one_thread():
    """One CPU thread: PyTorch's last bits depend on how many there are."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def show():
    """`show(path, fragment="", **options)`: a local page as the system's Chromium shows it, as a Playwright page.

    Its `errors` are what its console complained about, its `requests` the addresses that it asked for (a data: address
    is in the page). An address may stand as text in place of the path. options: `viewport`, `color_scheme`,
    `java_script_enabled` and others of a browser context.
    """
    from shared.report.picture import chromium

    with ExitStack() as stack:
        try:
            browser = stack.enter_context(chromium())
        except UserError as error:
            pytest.skip(str(error))

        def show(path: Path | str, fragment: str = "", **options):
            for context in browser.contexts:  # one page at a time
                context.close()
            page = browser.new_context(**options).new_page()
            page.errors, page.requests = [], []
            page.on("pageerror", lambda error: page.errors.append(str(error)))
            page.on("console", lambda m: page.errors.append(m.text) if m.type in ("error", "warning") else None)
            page.on("request", lambda r: None if r.url.startswith("data:") else page.requests.append(r.url))
            page.goto((path if isinstance(path, str) else Path(path).resolve().as_uri()) + fragment)
            return page

        yield show


@pytest.fixture(scope="session")
def axe():
    """`axe(page)`: what axe finds in a page that `show` gave, a line per rule with the first element that breaks it."""
    package = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python")
    checker = package.Axe()

    def found(page) -> list[str]:
        broken = [(rule, rule["nodes"]) for rule in checker.run(page).response["violations"]]
        return [f"{rule['id']}: {rule['help']}: {len(nodes)} x {nodes[0]['html'][:200]}" for rule, nodes in broken]

    return found
