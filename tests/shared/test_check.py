"""`check`: every published number has the verdict of its reference experiment, whenever results were made."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from recorded import recorded_results

from shared import check, cli
from shared.errors import UserError
from shared.paths import ROOT
from shared.published import KINDS, load
from shared.record import Record
from shared.report.collect import collect
from shared.report.readme import counts_table
from shared.verdict import DIFFERS, Measured

IDS = ("average/ResNet50 Adam", "average/ResNet50 SGD")
LABEL = "Imagenette/ViT-B/16/top-1"


def result(
    root: Path,
    name: str,
    measured: dict[str, float | None],
    started: str = "2026-01-01",
    stand_in: str | None = None,
    source: str = "table7",
) -> Path:
    published = load("vit", source)
    with Record("vit", name, results=root, quiet=True) as record:
        for id, value in measured.items():
            record.judge(published[id], value, stand_in=stand_in if value is not None else None)
    path = root / "vit" / f"{name}.json"
    change(path, lambda data: data["provenance"].update(started=started))
    return path


def change(path: Path, edit) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    data.pop("checksum", None)  # as in results of before
    edit(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def verdicts(root: Path, source: str = "vit/table7") -> dict[str, str]:
    summary = check.summarise(root)
    return {o.number.id: o.verdict.verdict for o in summary.outcomes if o.number.source == source}


def run(capsys, *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as exit:
        cli.run(check.main, check.Config, list(arguments))
    captured = capsys.readouterr()
    return exit.value.code, captured.out + captured.err


def test_without_results_everything_is_not_run(tmp_path):
    summary = check.summarise(tmp_path)
    assert set(summary.counts) == {"not run"} and not summary.problems and summary.counts.total() > 600
    assert all("no result of its reference experiment" in o.verdict.reason for o in summary.outcomes)


def test_the_reference_counts_in_any_order_of_times_and_others_stand_beside(tmp_path):
    times = ("2026-01-01T00:00:00+00:00", "2099", "")
    found = set()
    for order in itertools.permutations(times):
        root = tmp_path / "-".join(map(str, map(times.index, order)))
        for name, started, value in zip(("tables", "tables-bf16", "mine"), order, (89.33, 50.0, 60.0), strict=True):
            result(root, name, {IDS[0]: value}, started)
        outcome = next(o for o in check.summarise(root).outcomes if o.number.id == IDS[0])
        assert [name for name, _ in outcome.others] == ["vit/mine", "vit/tables-bf16"]
        assert {v.verdict for _, v in outcome.others} == {"differs"}
        found.add((outcome.result, outcome.verdict.verdict))
    assert found == {("vit/tables", "equal")}


def test_of_several_references_the_first_that_measured_counts(tmp_path):
    """top5 is the reference, top5-offline measures on a stand-in where there is nothing better."""

    def now() -> tuple[str, str]:
        outcome = next(o for o in check.summarise(tmp_path).outcomes if o.number.id == LABEL)
        return outcome.result, outcome.verdict.verdict

    result(tmp_path, "top5-offline", {LABEL: 70.0}, stand_in="another classifier", source="top5")
    assert now() == ("vit/top5-offline", "not comparable")
    result(tmp_path, "top5", {LABEL: None}, source="top5")
    assert now() == ("vit/top5-offline", "not comparable")
    (tmp_path / "vit" / "top5.json").unlink()
    result(tmp_path, "top5", {LABEL: 83.13}, source="top5")
    assert now() == ("vit/top5", "equal")
    result(tmp_path, "mine", {LABEL: 50.0}, source="top5")
    assert now() == ("vit/top5", "equal")


def test_what_cannot_be_evidence_is_refused_by_name(tmp_path):
    good = result(tmp_path, "tables", {IDS[0]: 89.33, IDS[1]: 88.0})
    text = good.read_text(encoding="utf-8")
    (tmp_path / "vit" / "torn.json").write_text(text[:100], encoding="utf-8")
    (tmp_path / "vit" / "copy.json").write_text(text, encoding="utf-8")
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "tables.json").write_text(text, encoding="utf-8")
    for name, old, new in (
        ("nan", '"difference": -0.79', '"difference": NaN'),
        ("inf", '"difference": -0.79', '"difference": -1e999'),
        ("kind", '"verdict": "differs"', '"verdict": "agrees"'),
    ):
        edited = json.dumps(json.loads(text) | {"experiment": name})
        edited = edited.replace(f'"difference": {json.loads(text)["verdicts"][1]["difference"]}', '"difference": -0.79')
        assert old in edited
        (tmp_path / "vit" / f"{name}.json").write_text(edited.replace(old, new), encoding="utf-8")
    problems = check.summarise(tmp_path).problems
    for named, says in (
        ("vit/torn.json", "damaged"),
        ("vit/copy.json", "holds the result of vit/tables"),
        ("toy/tables.json", "holds the result of vit/tables"),
        ("vit/nan.json", "NaN is not JSON"),
        ("vit/inf.json", "finite"),
        ("vit/kind.json", "does not follow"),
    ):
        assert any(named in p and says in p and "\n" not in p for p in problems), (named, problems)
    assert len(problems) == 6 and verdicts(tmp_path)[IDS[0]] == "equal"


def test_an_outdated_verdict_and_an_unknown_number_are_named(tmp_path):
    def edit(data: dict) -> None:
        data["verdicts"][0] |= {"published": "11.11", "measured": "11.11"}
        data["verdicts"][1]["id"] = "average/of another time"

    change(result(tmp_path, "tables", {IDS[0]: 89.33, IDS[1]: 88.79}), edit)
    problems = check.summarise(tmp_path).problems
    assert any("vit/tables: vit/table7" in p and "judged against '11.11'" in p for p in problems)
    assert any(
        "a verdict on a number that no published file has, as vit/table7 average/of another" in p for p in problems
    )
    assert verdicts(tmp_path)[IDS[0]] == "not run"


def test_problems_count_under_strict_and_a_folder_that_is_not_there_is_named(tmp_path, capsys):
    result(tmp_path, "tables", {IDS[0]: 89.33})
    (tmp_path / "vit" / "torn.json").write_text("{", encoding="utf-8")
    for folder, code, says in (
        (tmp_path, 1, "torn.json: damaged"),
        (tmp_path / "nowhere", 2, "nowhere: no such folder"),
    ):
        assert run(capsys, "--results", str(folder), "--strict")[0] == code
        assert says in run(capsys, "--results", str(folder))[1]


@pytest.mark.parametrize(("measured", "code"), [(89.33, 0), (50.0, 1)])
def test_strict_sets_the_exit_code_and_json_is_for_machines(tmp_path, capsys, measured, code):
    result(tmp_path, "tables", {IDS[0]: measured})
    result(tmp_path, "mine", {IDS[0]: 1.0})  # an experiment beside the reference never decides
    found, text = run(capsys, "--results", str(tmp_path), "--strict", "--json")
    assert found == code
    data = json.loads(text)
    assert data["summary"]["vit/table7"]["not run"] == 23
    row = next(row for row in data["verdicts"] if row["id"] == IDS[0])
    assert (row["kind"], row["result"], list(row["others"])) == ("arithmetic", "vit/tables", ["vit/mine"])
    found, out = run(capsys, "--results", str(tmp_path))
    assert found == 0 and ("what differs:" in out) == bool(code)
    assert "differs in an experiment listed beside:" in out


def test_counts_are_split_by_kind_and_say_what_share_of_a_work_was_reached(tmp_path):
    result(tmp_path, "tables", {IDS[0]: 89.33, IDS[1]: 50.0, "ImageNet/ResNet50 Adam": 77.54})
    summary = check.summarise(tmp_path)
    assert sum(summary.by_kind.values(), Counter()) == summary.counts and set(summary.by_kind) == set(KINDS)
    assert summary.by_kind["arithmetic"]["equal"] == 1 and summary.by_kind["measured"]["equal"] == 1
    paper = summary.coverage["vit", "the paper"]
    assert (paper["arithmetic"], paper["measured"], paper["cell"]) == (2, 1, 0) and paper["printed"] > 300
    assert summary.coverage["vit", "the article"]["measured"] == 0
    line = next(line for line in check.coverage_lines(summary) if line.startswith("vit, the paper"))
    assert "1 measured by an experiment (0 %)" in line


def test_contradictions_are_counted_where_a_reference_found_them(tmp_path):
    found = [{"where": "Table 1", "claim": "2 + 2 = 5", "arithmetic": "4"}]
    for name in ("tables", "mine"):
        with Record("vit", name, results=tmp_path, quiet=True) as record:
            record.contradictions(found)
    assert [(name, one.claim) for name, one in check.summarise(tmp_path).contradictions] == [
        ("vit/tables", "2 + 2 = 5")
    ]
    change(tmp_path / "vit" / "tables.json", lambda data: data["results"].update(contradictions=[{"claim": 3}]))
    assert "results/contradictions/0" in check.summarise(tmp_path).problems[0]


# one number ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "only"),
    [
        ("ResNet 50,000 step 500", "curve, 50,000 images/ResNet step 500"),
        ("resnet 50,000 step 500 curve", "curve, 50,000 images/ResNet step 500"),
        ("1,000 -> 50,000 vit", "1,000 -> 50,000 images/ViT gains"),
        ("+20.5", "50,000 images/ResNet - ViT"),
        ("77.54 table7", "ImageNet/ResNet50 Adam"),
    ],
)
def test_words_and_digits_find_a_number_and_not_its_neighbours(tmp_path, asked, only):
    found = [o.number.id for o in check.find(check.summarise(tmp_path), tuple(asked.split()))]
    assert only in found and len(found) <= 2 and all("1500" not in id and "2500" not in id for id in found)


def test_one_number_is_told_with_the_training_it_came_from(tmp_path, capsys):
    published = load("vit", "scratch")
    id = "curve, 50,000 images/ResNet step 500"
    folder = tmp_path / "vit" / "scratch"
    folder.mkdir(parents=True)
    file = folder / "ResNet-50000-seed0.json"
    file.write_text("{}", encoding="utf-8")
    with Record("vit", "scratch-curves", results=tmp_path, quiet=True) as record:
        name = record.use_run(file, 0, ["started 2026-11-30T12:27:22Z, on cpu (2 threads), commit abc"])
        record.judge(published[id], Measured(64.86, images=5000, reason="3 seeds here", runs=(name,)))
    asked = ["ResNet", "50,000", "step", "500", "curve", "--results", str(tmp_path)]
    code, text = run(capsys, *asked)
    text = " ".join(text.split())  # long lines are broken
    assert code == 0
    for says in (
        "55.0 %, in ViT, explained, Part 4",
        "papers/vit/published/scratch.json",
        "64.86 (measured by an experiment)",
        "vit/scratch-curves.log and .json",
        "verdict differs: 3 seeds here",
        "rounding 0.05 + binomial 1.96; difference +9.86",
        f"{file}, seed 0",
        "started 2026-11-30T12:27:22Z, on cpu (2 threads), commit abc",
        "commit ",
    ):
        assert says in text, (says, text)
    assert run(capsys, *asked, "--strict")[0] == 1
    file.write_text("{ }", encoding="utf-8")
    assert f"{file}: changed since" in " ".join(run(capsys, *asked)[1].split())
    file.unlink()
    assert f"{file}: not there any more" in " ".join(run(capsys, *asked)[1].split())


def test_many_numbers_are_listed_and_none_is_an_error(tmp_path, capsys):
    code, text = run(capsys, "ImageNet", "--results", str(tmp_path))
    assert code == 0 and "numbers have these words" in text
    code, text = run(capsys, "no such number", "--results", str(tmp_path))
    assert code == 2 and text.startswith("error: 'no such number'") and text.count("\n") == 1


# the recorded evidence -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the recorded results alone: a user's own runs beside them do not count here."""
    root = tmp_path_factory.mktemp("recorded")
    for path in recorded_results():
        (root / path.parent.name).mkdir(exist_ok=True)
        shutil.copy(path, root / path.parent.name)
    return root


def test_page_readme_and_check_count_the_same(recorded, capsys):
    summary = check.summarise(recorded)
    assert collect(recorded, recorded / "report" / "index.html").counts == summary.counts
    data = json.loads(run(capsys, "--results", str(recorded), "--json")[1])
    assert {row["verdict"] for row in data["verdicts"]} == set(summary.counts)
    assert sum((Counter(own) for own in data["kinds"].values()), Counter()) == summary.counts
    committed = {path.relative_to(ROOT / "results").as_posix() for path in (ROOT / "results").glob("*/*.json")}
    if {f"{path.parent.name}/{path.name}" for path in recorded_results()} == committed:
        assert counts_table(summary) in (ROOT / "README.md").read_text(encoding="utf-8"), "renew README's counts"


def test_every_recorded_difference_has_a_reason_and_every_reference_a_name(recorded):
    summary = check.summarise(recorded)
    assert not summary.problems
    assert all(o.verdict.reason for o in summary.outcomes if o.verdict.verdict == DIFFERS)
    assert not any(
        name in ("vit/scratch-bf16", "vit/scratch-bf16-curves") for name in {o.result for o in summary.outcomes}
    )
    trained = [o for o in summary.outcomes if o.result in ("vit/scratch-curves", "vit/scratch") and o.verdict.runs]
    assert len(trained) >= 35
    for outcome in trained:
        runs = {run.path for run in summary.results[outcome.result].provenance.runs}
        assert set(outcome.verdict.runs) <= runs
        assert all((ROOT / "results" / "vit" / path).is_file() for path in outcome.verdict.runs)


def test_a_result_that_is_no_result_is_a_problem_of_one_line(tmp_path):
    with pytest.raises(UserError, match="no such result"):
        check.read_result(tmp_path / "vit" / "none.json")


@pytest.mark.parametrize("victim", ["a number", "a word", "the log", "a training"])
def test_a_stored_file_that_changed_is_a_problem_and_no_evidence(tmp_path, victim):
    with Record("vit", "mine", results=tmp_path, quiet=True) as record:
        record.say("ResNet50: 89.33")
        (record.directory / "runs").mkdir()
        (record.directory / "runs" / "run.json").write_text("{}", encoding="utf-8")
        record.use_run(record.directory / "runs" / "run.json")
        record.judge(load("vit", "table7")[IDS[0]], 89.33)
        record.answer("It is right.")
    assert not check.summarise(tmp_path).problems
    path, old, new = {
        "a number": ("mine.json", b'"measured": "89', b'"measured": "98'),
        "a word": ("mine.json", b"It is right", b"It is wrong"),
        "the log": ("mine.log", b"89.33", b"98.33"),
        "a training": ("runs/run.json", b"{}", b"[]"),
    }[victim]
    before = (tmp_path / "vit" / path).read_bytes()
    (tmp_path / "vit" / path).write_bytes(before.replace(old, new))
    assert old in before
    (problem,) = check.summarise(tmp_path).problems
    assert path in problem and "was changed after" in problem and "\n" not in problem
