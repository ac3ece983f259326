"""Logs fit 100 columns, but for the lines that have the article's own form: those stay letter by letter."""

from __future__ import annotations

import re
import shutil

import pytest
from recorded import recorded_results

from papers.comparisons import pages
from papers.resnet import resnet_tables
from papers.vit import vit_part4_scratch_curves, vit_part4_tables
from shared.paths import ROOT
from shared.text import WIDTH

# Recorded before lines were broken, and only computing would print it again.
EARLIER = {"vit/fewshot-offline"}


def form(line: str) -> str:
    """A line without its numbers: what an article's line and ours of other numbers have in common."""
    return " ".join(re.sub(r"[+-]?[\d,.]*\d", "0", line).split())


ARTICLE = {form(line) for path in (ROOT / "tests" / "published").glob("*.txt") for line in path.open(encoding="utf-8")}


OTHER_NAMES = re.compile(  # the article's lines of another classifier and of other images
    r"  .+ top-1 wrong on \d+ pictures, of which \d+ have the label in the top 5"
    r"|  .+, pictures whose top-1 is not the label but whose top-5 contains it \(.+\):"
    r"|    \S+ +label: .+ top-1: .+ label at rank \d+"
)


def too_wide(log: str) -> list[str]:
    wide = [line for line in log.splitlines() if len(line) > WIDTH]
    return [line for line in wide if form(line) not in ARTICLE and not OTHER_NAMES.fullmatch(line)]


@pytest.mark.parametrize("script", ["vit/tables", "resnet/tables", "vit/scratch-curves", "comparisons/pages"])
def test_the_logs_of_the_quick_scripts_fit(script, tmp_path, capsys):
    if script == "vit/tables":
        vit_part4_tables.main(vit_part4_tables.Config(results=tmp_path))
    elif script == "resnet/tables":
        resnet_tables.main(resnet_tables.Config(results=tmp_path))
    elif script == "comparisons/pages":
        pages.pages(pages.Pages(results=tmp_path))
    else:
        shutil.copytree(ROOT / "results" / "vit" / "scratch", tmp_path / "vit" / "scratch")
        config = vit_part4_scratch_curves.Config(results=tmp_path, figures=False)
        vit_part4_scratch_curves.main(config)
    logs = list(tmp_path.glob("*/*.log"))
    assert len(logs) == (4 if script == "comparisons/pages" else 1)
    assert not [line for log in logs for line in too_wide(log.read_text(encoding="utf-8"))]


def test_the_recorded_logs_fit():
    logs = {f"{path.parent.name}/{path.stem}": path.with_suffix(".log") for path in recorded_results()}
    wide = {name for name, path in logs.items() if too_wide(path.read_text(encoding="utf-8"))}
    assert wide == EARLIER & logs.keys()
