"""What all tests share: small helpers, and where the development machine's reference folder is (a clone has none)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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
        text = (ROOT / "tests" / "published" / f"{name}.txt").read_text()
        return [line for line in text.split("\n") if line]

    return read


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test writes into the repository's results or reads the developer's mirror by accident."""
    monkeypatch.setenv("PAPERS_RESULTS", str(tmp_path_factory.mktemp("results")))
    monkeypatch.delenv("PAPERS_DATA", raising=False)


@pytest.fixture(scope="module")
def one_thread():
    """One CPU thread: PyTorch's last bits depend on how many there are."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
