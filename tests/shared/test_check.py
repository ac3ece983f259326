"""`check`: every published number gets the verdict of the newest result that measured it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared import check, cli
from shared.published import load
from shared.record import Record

IDS = ("average/ResNet50 Adam", "average/ResNet50 SGD")


def result(root: Path, name: str, started: str, measured: dict[str, float | None], stand_in: str | None = None) -> Path:
    published = load("vit", "table7")
    with Record("vit", name, results=root, quiet=True) as record:
        for id, value in measured.items():
            record.judge(published[id], value, stand_in=stand_in if value is not None else None)
    path = root / "vit" / f"{name}.json"
    data = json.loads(path.read_text())
    data["provenance"]["started"] = started
    path.write_text(json.dumps(data))
    return path


def verdicts(root: Path) -> dict[str, str]:
    every, _ = check.outcomes(root)
    return {o.number.id: o.verdict.verdict for o in every if o.number.source == "vit/table7"}


def test_without_results_everything_is_not_run(tmp_path):
    every, problems = check.outcomes(tmp_path)
    assert {o.verdict.verdict for o in every} == {"not run"} and not problems and len(every) > 600


def test_the_newest_measurement_counts_and_stand_ins_and_gaps_do_not_hide_it(tmp_path):
    result(tmp_path, "old", "2026-01-01", {IDS[0]: 89.33, IDS[1]: 88.79})
    result(tmp_path, "new", "2026-01-02", {IDS[0]: 50.0})
    result(tmp_path, "offline", "2026-01-03", {IDS[0]: 89.33, IDS[1]: 1.0}, stand_in="tiny")
    result(tmp_path, "gap", "2026-01-04", {IDS[0]: None, IDS[1]: None})
    names = verdicts(tmp_path)
    assert (names[IDS[0]], names[IDS[1]]) == ("differs", "equal")


def test_a_damaged_and_an_outdated_result_are_named(tmp_path):
    good = result(tmp_path, "good", "2026-01-01", {IDS[0]: 89.33})
    (tmp_path / "vit" / "torn.json").write_text(good.read_text()[:100])
    data = json.loads(good.read_text())
    data["verdicts"][0]["published"] = "11.11"
    good.write_text(json.dumps(data))
    _, problems = check.outcomes(tmp_path)
    assert any("torn.json: damaged" in p for p in problems)
    assert any("judged against '11.11'" in p for p in problems)
    assert verdicts(tmp_path)[IDS[0]] == "not run"


def test_problems_count_under_strict_and_a_folder_that_is_not_there_is_named(tmp_path, capsys):
    result(tmp_path, "one", "2026-01-01", {IDS[0]: 89.33})
    (tmp_path / "vit" / "torn.json").write_text("{")
    for folder, code, says in (
        (tmp_path, 1, "torn.json: damaged"),
        (tmp_path / "nowhere", 2, "nowhere: no such folder"),
    ):
        with pytest.raises(SystemExit) as exit:
            cli.run(check.main, check.Config, ["--results", str(folder), "--strict"])
        captured = capsys.readouterr()
        assert exit.value.code == code and says in captured.out + captured.err


def test_a_stand_in_counts_where_there_is_nothing_better(tmp_path):
    result(tmp_path, "offline", "2026-01-01", {IDS[0]: 1.0}, stand_in="tiny")
    result(tmp_path, "gap", "2026-01-02", {IDS[0]: None})
    assert verdicts(tmp_path)[IDS[0]] == "not comparable"


@pytest.mark.parametrize(("measured", "code"), [(89.33, 0), (50.0, 1)])
def test_strict_sets_the_exit_code_and_json_is_for_machines(tmp_path, capsys, measured, code):
    result(tmp_path, "one", "2026-01-01", {IDS[0]: measured})
    with pytest.raises(SystemExit) as exit:
        cli.run(check.main, check.Config, ["--results", str(tmp_path), "--strict", "--json"])
    assert exit.value.code == code
    data = json.loads(capsys.readouterr().out)
    assert data["summary"]["vit/table7"]["not run"] == 23
    with pytest.raises(SystemExit) as exit:
        cli.run(check.main, check.Config, ["--results", str(tmp_path)])
    assert exit.value.code == 0
    out = capsys.readouterr().out
    assert ("what differs:" in out) == bool(code)
