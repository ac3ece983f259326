"""README's picture is made by a command, and the command says what it lacks."""

from __future__ import annotations

import pytest
from PIL import Image
from report_results import write_results

from shared.errors import UserError
from shared.report import picture


def test_the_command_writes_the_first_screen_with_its_counts(tmp_path):
    try:
        with picture.chromium():
            pass
    except UserError as error:
        pytest.skip(str(error))
    results = write_results(tmp_path / "results")
    picture.main(picture.Config(results=results, output=tmp_path / "page.png"))
    with Image.open(tmp_path / "page.png") as image:
        assert (image.format, image.size) == ("PNG", picture.SIZE)
        assert "measured by an experiment: " in image.info["Counts"] and "contradictions: " in image.info["Counts"]
        assert len(image.getcolors(1 << 20)) > 50  # not an empty page


def test_without_a_browser_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UserError, match="no Chromium here; install it"):
        picture.main(picture.Config(results=tmp_path, output=tmp_path / "page.png"))
    assert not list(tmp_path.iterdir())
