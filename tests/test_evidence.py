"""Every committed result holds together: log against JSON, verdicts against the rule and the published numbers.

No model, no image and no GPU is needed: the numbers are re-checked, not measured again.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from recorded import recorded_results

from shared.paths import ROOT
from shared.published import Number, load_all
from shared.record import Record, count_line
from shared.verdict import AGREES, DIFFERS, EQUAL, NOT_COMPARABLE, NOT_RUN

RESULTS = recorded_results()
PUBLISHED = {(number.source, number.id): number for file in load_all() for number in file.numbers.values()}
LARGEST_FIGURE = 1_000_000  # bytes

every_result = pytest.mark.parametrize("path", RESULTS, ids=lambda p: f"{p.parent.name}/{p.stem}")


def value(text: str) -> float | None:
    """A printed numeral as a float, None for other texts."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def one_line(text: str) -> str:
    """The words alone: a log's long lines are broken."""
    return " ".join(text.split())


@every_result
def test_the_log_says_what_the_json_holds(path: Path):
    data, log = Record.load(path), one_line(path.with_suffix(".log").read_text(encoding="utf-8"))
    assert (data["paper"], data["experiment"]) == (path.parent.name, path.stem)
    assert data["question"].endswith("?") and data.get("answer") and data["cannot_show"]
    assert one_line(f"What this cannot show: {data['cannot_show']}") in log
    if data["verdicts"]:
        assert count_line(v["verdict"] for v in data["verdicts"]) in log
    judged = [v for v in data["verdicts"] if v["verdict"] in (AGREES, DIFFERS, NOT_COMPARABLE)]
    missing = [v["id"] for v in judged if one_line(f"{v['id']}: published {v['published']}") not in log]
    assert not missing


@every_result
def test_every_verdict_follows_from_its_numbers(path: Path):
    for v in Record.load(path)["verdicts"]:
        number = PUBLISHED.get((v["source"], v["id"]))
        assert number is not None, f"{v['source']} {v['id']} is published nowhere"
        assert (v["published"], v["unit"], v["published_std"]) == (number.printed, number.unit, number.std), v["id"]
        check_rule(v, number)


def check_rule(v: dict, number: Number) -> None:
    if v["verdict"] == NOT_RUN:
        assert v["measured"] is None and v["reason"], v
        return
    if v["verdict"] == NOT_COMPARABLE:
        assert v["reason"], v
    else:
        assert (v["verdict"] == EQUAL) == (v["measured"] == v["published"]), v
    published, measured = value(v["published"]), value(v["measured"])
    if published is None or measured is None or v["difference"] is None:
        return
    half = 0.5 * 10.0 ** -len(v["measured"].partition(".")[2])
    assert math.isclose(measured - published, v["difference"], abs_tol=half * (1 + 1e-6) + 1e-9), v
    if v["tolerance"] is not None:
        assert math.isclose(v["tolerance"], sum(v["tolerance_terms"].values()), rel_tol=1e-9)
        inside = abs(v["difference"]) <= v["tolerance"] * (1 + 1e-9)
        assert v["verdict"] in ((AGREES, EQUAL) if inside else (DIFFERS, EQUAL)), v


@every_result
def test_where_it_came_from_is_complete(path: Path):
    origin = Record.load(path)["provenance"]
    assert origin["git"]["commit"] and origin["packages"]["numpy"] and origin["machine"]["processor"]
    for image_set in origin["data"]:
        assert re.fullmatch(r"[0-9a-f]{64}", image_set["fingerprint"]) and image_set["images"] > 0
    for model in origin["models"]:
        assert model["preprocessing"], model


@every_result
def test_its_figures_and_files_are_there_and_small(path: Path):
    data = Record.load(path)
    for entry in data.get("figures", []) + data.get("files", []):
        file = path.parent / entry["path"]
        assert file.is_file() and file.stat().st_size < LARGEST_FIGURE, file
        assert entry["caption"]


def test_there_is_evidence():
    assert list((ROOT / "results").glob("*/*.json")), "results/ holds no recorded run"
