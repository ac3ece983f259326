"""A record is written whole or not at all, and says where every number came from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from shared.data import load_images
from shared.errors import UserError
from shared.provenance import git_state
from shared.published import Number, Published
from shared.record import TIME_FIELDS, Record, aligned
from shared.text import WIDTH
from shared.verdict import Measured, judge


@dataclass
class Config:
    shots: tuple[int, ...] = (1, 2)
    data: Path = Path("x")


def run(folder: Path, fail: bool = False) -> Path:
    with Record("toy", "run", config=Config(), question="Does it?", results=folder, quiet=True) as record:
        record.say("a line")
        record.seed = 3
        record.use_device("cpu", "float32", "asked for")
        record.use_data("d", split="test", source="embedded", images=2, fingerprint="f" * 64)
        record.use_model("m", revision="r", weights_sha256="w", preprocessing="none", stand_in="tiny")
        record.results["x"] = {"array": np.float64(0.5), 1: [float("nan"), (2, 3)]}
        record.judge(Number("n", "0.5", source="toy/run"), 0.5)
        record.judge(Number("m", "0.5", source="toy/run"), None, why_not_run="no GPU")
        record.print_verdicts()
        record.cannot_show("anything else.")
        if fail:
            raise RuntimeError("boom")
    return folder / "toy" / "run.json"


def test_log_and_json_hold_what_was_said(tmp_path):
    path = run(tmp_path)
    data = Record.load(path)
    log = path.with_suffix(".log").read_text(encoding="utf-8").split("\n")
    assert log[0] == "a line" and "What this cannot show: anything else." in log
    assert "  1 equal, 0 agrees, 0 differs, 0 not comparable, 1 not run" in log
    assert "  1 not run: no GPU" in log
    assert data["results"] == {"x": {"array": 0.5, "1": [None, [2, 3]]}}
    assert [v["verdict"] for v in data["verdicts"]] == ["equal", "not run"]
    assert data["verdicts"][0]["source"] == "toy/run"
    assert data["cannot_show"] == "anything else." and data["question"] == "Does it?"


def test_every_number_carries_its_origin(tmp_path):
    provenance = Record.load(run(tmp_path))["provenance"]
    assert provenance["config"] == {"shots": [1, 2], "data": "x"} and provenance["seed"] == 3
    assert (provenance["device"], provenance["dtype"], provenance["reason"]) == ("cpu", "float32", "asked for")
    assert provenance["data"][0]["fingerprint"] == "f" * 64
    assert provenance["models"][0]["stand_in"] == "tiny"
    assert {"torch", "numpy"} <= set(provenance["packages"])
    assert provenance["machine"]["cores"] >= 1 and provenance["python"].startswith("3.")
    assert {"commit", "dirty"} == set(provenance["git"])
    assert all(provenance[key] for key in TIME_FIELDS) and provenance["command"]


def test_two_runs_differ_only_in_time_fields(tmp_path):
    first, second = (Record.load(run(tmp_path / name)) for name in "ab")
    for data in (first, second):
        for key in TIME_FIELDS:
            del data["provenance"][key]
    assert first == second
    assert (tmp_path / "a/toy/run.log").read_bytes() == (tmp_path / "b/toy/run.log").read_bytes()


def test_a_failed_run_leaves_the_earlier_result(tmp_path):
    path = run(tmp_path)
    before = path.read_bytes(), path.with_suffix(".log").read_bytes()
    with pytest.raises(RuntimeError):
        run(tmp_path, fail=True)
    assert (path.read_bytes(), path.with_suffix(".log").read_bytes()) == before
    assert sorted(p.name for p in path.parent.iterdir()) == ["run.json", "run.log"]


def test_a_discarded_run_leaves_the_earlier_result(tmp_path):
    path = run(tmp_path)
    before = path.read_bytes()
    with Record("toy", "run", results=tmp_path, quiet=True) as record:
        record.say("stopped on purpose")
        record.discard()
    assert path.read_bytes() == before
    assert sorted(p.name for p in path.parent.iterdir()) == ["run.json", "run.log"]


def test_images_and_models_are_named_with_all_that_decides_a_number(tmp_path):
    images = load_images("digits")
    identity = SimpleNamespace(
        name="m", revision="r", weights_sha256="w", preprocessing="own", stand_in=None, transform_from=""
    )
    with Record("toy", "origin", results=tmp_path, quiet=True) as record:
        record.use_images(images)
        record.use_images(images, name="other", split="part", count=7)
        record.use_identity(identity)
        record.use_identity(identity, name="n", preprocessing="squash")
    origin = Record.load(tmp_path / "toy" / "origin.json")["provenance"]
    whole = {"name": images.name, "split": images.split, "source": images.source, "images": len(images)}
    whole |= {"fingerprint": images.fingerprint, "stand_in": images.stand_in, "assumed": images.assumed()}
    assert origin["data"] == [whole, whole | {"name": "other", "split": "part", "images": 7}]
    assert origin["models"] == [vars(identity), vars(identity) | {"name": "n", "preprocessing": "squash"}]


def test_an_unwritable_folder_is_found_before_the_work(tmp_path):
    (tmp_path / "toy").write_text("a file where the folder should be", encoding="utf-8")
    with pytest.raises(UserError, match="cannot be written"), Record("toy", "run", results=tmp_path, quiet=True):
        pytest.fail("the work had begun")


def test_a_full_disk_at_the_end_leaves_the_earlier_result(tmp_path, monkeypatch):
    path = run(tmp_path)
    before = path.read_bytes(), path.with_suffix(".log").read_bytes()
    real = os.fsync
    for fails in (1, 2):  # the log, then the JSON
        calls = []

        def full(fd, calls=calls, fails=fails):
            calls.append(fd)
            if len(calls) == fails:
                raise OSError(28, "No space left on device")
            real(fd)

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(UserError, match="No space left"):
            run(tmp_path)
        assert (path.read_bytes(), path.with_suffix(".log").read_bytes()) == before


def test_a_screen_that_fails_does_not_cost_the_result(tmp_path, monkeypatch, capsys):
    def gone(*args, **options):
        if options.get("file") is sys.stdout:
            raise BrokenPipeError

    monkeypatch.setattr("builtins.print", gone)
    run_loud(tmp_path)
    assert (tmp_path / "toy" / "loud.log").read_text(encoding="utf-8") == "first\nsecond ±\n"


def run_loud(folder: Path) -> None:
    with Record("toy", "loud", results=folder) as record:
        record.say("first")
        record.say("second ±")


@pytest.mark.parametrize("screen", ["| head -1", "> /dev/full", "2>/dev/null | true"])
def test_a_reader_that_leaves_and_a_full_screen_leave_the_whole_log(tmp_path, screen):
    code = (
        "from pathlib import Path; from shared.record import Record\n"
        f"with Record('toy', 'loud', results=Path({str(tmp_path)!r})) as r:\n"
        "    for i in range(3000): r.say(f'line {i} ±')\n"
    )
    (tmp_path / "run.py").write_text(code, encoding="utf-8")
    environment = os.environ | {"PYTHONIOENCODING": "utf-8"}
    command = f"set -o pipefail; {sys.executable} {tmp_path / 'run.py'} {screen} >/dev/null"
    if screen.startswith(">"):
        command = f"{sys.executable} {tmp_path / 'run.py'} {screen}"
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, encoding="utf-8")
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert len((tmp_path / "toy" / "loud.log").read_text(encoding="utf-8").splitlines()) == 3000


def test_runs_in_one_folder_do_not_trip_over_each_other(tmp_path):
    first, second = (Record("toy", "run", results=tmp_path, quiet=True) for _ in range(2))
    with first, second:
        pass
    assert Record.load(tmp_path / "toy" / "run.json")


VERDICT = judge(Number("n", "0.5", source="toy/run"), 0.5).as_json()


def damaged(**changes) -> str:
    good = {
        "schema": 1,
        "paper": "p",
        "experiment": "e",
        "provenance": {"started": "2026"},
        "results": {},
        "verdicts": [],
    }
    return json.dumps(good | changes)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "damaged"),
        ("{", "damaged"),
        ("[]", "schema None"),
        ('{"schema": 0}', "schema 0"),
        ('{"schema": 99}', "schema 99"),
        ('{"schema": 1, "paper": "p"}', "'experiment' is missing"),
        (damaged(provenance=[]), "provenance: expected object, got []"),
        (damaged(provenance={"started": 3}), "provenance/started: expected str, got 3"),
        (damaged(verdicts=None), "verdicts: expected list, got None"),
        (damaged(verdicts=[[]]), "verdicts/0: expected object, got []"),
        (damaged(verdicts=[VERDICT | {"verdict": "perfect"}]), "verdicts/0/verdict: expected one of 'equal', "),
        (damaged(verdicts=[VERDICT | {"id": [1]}]), "verdicts/0/id: expected str, got [1]"),
        (damaged(verdicts=[VERDICT | {"difference": "big"}]), "verdicts/0/difference: expected float | null"),
        (
            damaged(verdicts=[VERDICT | {"tolerance_terms": {"a": "b"}}]),
            "verdicts/0/tolerance_terms/a: expected float, got 'b'",
        ),
        (damaged(verdicts=[VERDICT | {"score": 1}]), "verdicts/0: unknown key 'score'"),
        (damaged(tables=[{"title": "T", "columns": ["a"], "rows": [[1, 2]]}]), "tables/0: table 'T': 1 columns, but"),
        ('{"schema": ' + "1" * 5000 + "}", "damaged"),
    ],
)
def test_damaged_and_foreign_results_are_refused_by_name(tmp_path, content, says):
    path = tmp_path / "old.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as error:
        Record.load(path)
    assert str(path) in str(error.value) and says in str(error.value)


def test_a_missing_result_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match="no such result; run the experiment"):
        Record.load(tmp_path / "x.json")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", folder, "-c", "user.name=n", "-c", "user.email=e@x", *arguments], check=True)


def test_a_dirty_checkout_says_so_but_results_do_not_count(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("x = 1\n", encoding="utf-8")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    state = git_state(tmp_path)
    assert len(state["commit"]) == 40 and state["dirty"] is False
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "new.json").write_text("{}", encoding="utf-8")
    assert git_state(tmp_path)["dirty"] is False
    (tmp_path / "code.py").write_text("x = 2\n", encoding="utf-8")
    assert git_state(tmp_path)["dirty"] is True


def test_an_untracked_file_is_dirt_and_a_hooks_pointers_are_not_followed(tmp_path, monkeypatch):
    for name in ("ours", "other"):
        (tmp_path / name).mkdir()
        git(tmp_path / name, "init", "-q")
        (tmp_path / name / "x").write_text(name, encoding="utf-8")
        git(tmp_path / name, "add", ".")
        git(tmp_path / name, "commit", "-qm", name)
    ours = git_state(tmp_path / "ours")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    assert git_state(tmp_path / "ours") == ours
    (tmp_path / "ours" / "new.py").touch()
    assert git_state(tmp_path / "ours") == ours | {"dirty": True}
    (tmp_path / "other" / "copy").mkdir()  # a copy inside somebody else's repository
    assert git_state(tmp_path / "other" / "copy") == {"commit": None, "dirty": None}


def test_outside_git_nothing_is_claimed(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state(tmp_path) == {"commit": None, "dirty": None}


def test_not_a_number_never_reaches_the_file(tmp_path):
    path = run(tmp_path)
    json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda name: pytest.fail(f"{name} in the JSON"))


def test_a_file_name_that_is_not_utf8_is_escaped(tmp_path, capsys):
    odd = os.fsdecode(b"caf\xe9.png")
    with Record("toy", "odd", results=tmp_path) as record:
        record.say(odd)
        record.results["name"] = odd
    assert capsys.readouterr().out == "caf\\udce9.png\n"
    assert (tmp_path / "toy" / "odd.log").read_text(encoding="utf-8") == "caf\\udce9.png\n"
    assert Record.load(tmp_path / "toy" / "odd.json")["results"]["name"] == odd


def test_a_table_is_said_and_kept_with_one_call(tmp_path):
    with Record("toy", "table", results=tmp_path, quiet=True) as record:
        record.say_table("T", ["model", "top-1", "why"], [["a", 1, "long reason"], ["bcd", None, "x"]], left=(0, 2))
        record.say_table("U", ["k"], [["1"]], lines=["the article's own line"])
    data = Record.load(tmp_path / "toy" / "table.json")
    assert (tmp_path / "toy" / "table.log").read_text(encoding="utf-8") == (
        "  model  top-1  why\n  a          1  long reason\n  bcd           x\nthe article's own line\n"
    )
    assert [t["rows"] for t in data["tables"]] == [[["a", 1, "long reason"], ["bcd", None, "x"]], [["1"]]]


def test_a_log_fits_its_columns_but_for_what_has_a_publications_form(tmp_path):
    long = " ".join(["word"] * 60)
    with Record("toy", "wide", results=tmp_path, quiet=True) as record:
        record.say(f"  {long}")
        record.section(long)
        record.answer(long)
        wide = [n for n, line in enumerate(record.lines) if len(line) > WIDTH]
        record.say(long, exact=True)
    assert not wide and record.lines[-1] == long


def test_a_reason_that_many_numbers_share_is_said_once(tmp_path):
    with Record("toy", "shared", results=tmp_path, quiet=True) as record:
        for id in "abc":
            record.judge(Number(id, "1.0", source="toy/t"), 2.0, stand_in="digits in place of photographs")
        record.print_verdicts()
    told = "\n".join(record.lines)
    assert told.count("digits in place of photographs") == 1
    assert "  3 not comparable: digits in place of photographs" in record.lines
    assert "    b: published 1.0, measured 2.00, difference +1.00" in record.lines


def test_a_wide_table_takes_more_lines_and_loses_nothing(tmp_path):
    names = ["model.encoder.layers.11.attention.outputProjection", "a short one"]
    columns = ["the layer's whole name", "output", "what it does, in words", "top-1 error", "parameters"]
    rows = [
        [name, "1 × 3 × 224 × 224", "it mixes " + "tokens " * n, "12.5", "1,234,567"] for n, name in enumerate(names, 9)
    ]
    lines = aligned(columns, rows, left=(0, 1, 2))
    assert max(map(len, lines)) <= WIDTH
    text = "".join("".join(lines).split())
    assert sum(line.count("1 × 3 × 224 × 224") for line in lines) == len(rows)
    assert text.count("tokens") == 19 and text.count("1,234,567") == 2
    first = [line[2:].split("  ")[0] for line in lines]  # a long name goes on below itself
    assert names[0] in "".join(part.strip() for part in first)
    narrow = aligned(["a", "b"], [["x", 1], [None, 22]])
    assert narrow == ["  a   b", "  x   1", "     22"]


def test_every_published_number_gets_one_verdict(tmp_path):
    numbers = {id: Number(id, "50.0", unit="%", source="toy/t", n=5) for id in ("a", "b", "c", "d")}
    published = Published("toy", "t", "somewhere", numbers)
    with Record("toy", "t", results=tmp_path, quiet=True) as record:
        measured = {
            "c": Measured(53.0, images=1000),
            "a": 50.0,
            "b": Measured(None, why_not_run="no GPU"),
            "beyond what is published": 1.0,
        }
        record.judge_all(published, measured, lambda number: f"{number.id} is for another day")
    assert [(v.id, v.verdict, v.reason) for v in record.verdicts] == [
        ("a", "equal", ""),
        ("b", "not run", "no GPU"),
        ("c", "agrees", ""),
        ("d", "not run", "d is for another day"),
    ]
    assert set(record.verdicts[2].tolerance_terms) == {"rounding", "binomial"}


# what a result may replace -------------------------------------------------------------------------------------------


def script(folder: Path, name: str, body: str) -> Path:
    """A script of its own file that opens the record `toy/run`."""
    path = folder / name
    path.write_text(
        "from pathlib import Path\nfrom shared import cli\nfrom shared.published import Number\n"
        "from shared.record import Record\nfrom dataclasses import dataclass\n\n"
        "@dataclass\nclass Config(cli.Common):\n    experiment: str = 'run'\n\n"
        "def main(config):\n"
        "    with Record('toy', config.experiment, config=config, results=config.results) as record:\n"
        f"        {body}\n\n"
        "cli.run(main, Config)\n",
        encoding="utf-8",
    )
    return path


def start(path: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(path), "--results", str(path.parent), *arguments], capture_output=True, encoding="utf-8"
    )


def test_a_result_names_its_script_and_another_scripts_is_never_replaced(tmp_path):
    judged = "record.judge(Number('n', '0.5', source='toy/run'), 0.5)"
    first, second = script(tmp_path, "first.py", judged), script(tmp_path, "second.py", judged)
    assert start(first).returncode == 0
    path = tmp_path / "toy" / "run.json"
    assert json.loads(path.read_text(encoding="utf-8"))["provenance"]["script"] == "first.py"
    before = path.read_bytes()
    done = start(second)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and path.read_bytes() == before
    assert f"{path}: was made by first.py, and this is second.py" in done.stderr and "--experiment" in done.stderr
    assert start(second, "--experiment", "other").returncode == 0
    assert start(first).returncode == 0  # its own it may replace
    # a result of before names no script, but its command does
    data = Record.load(path)
    del data["provenance"]["script"]
    path.write_text(json.dumps(data), encoding="utf-8")
    assert start(second).returncode == 2 and start(first).returncode == 0


@pytest.mark.parametrize(
    ("more", "less", "says"),
    [
        ({"n": 0.5, "m": 0.5}, {"n": 0.5, "m": None}, "1 measured number"),
        ({"n": 0.5, "m": 0.5}, {"n": None, "m": None}, "2 measured numbers"),
        ({"n": 0.5, "figure": True}, {"n": 0.5}, "1 figures"),
        ({"n": 0.5, "m": 0.5, "figure": True}, {"n": None, "m": 0.5}, "1 measured number and 1 figures"),
    ],
)
def test_evidence_with_more_parts_is_kept_and_the_smaller_run_goes_beside_it(tmp_path, capsys, more, less, says):
    def write(parts: dict) -> None:
        with Record("toy", "run", results=tmp_path) as record:
            for id in ("n", "m"):
                if id in parts:
                    record.judge(Number(id, "0.5", source="toy/run"), parts[id])
            if parts.get("figure"):
                record.figures_dir.mkdir(parents=True, exist_ok=True)
                record.figure(record.figures_dir / "a.png", "a figure")

    write(more)
    whole = tmp_path / "toy" / "run.json"
    before = whole.read_bytes(), whole.with_suffix(".log").read_bytes()
    write(less)
    assert (whole.read_bytes(), whole.with_suffix(".log").read_bytes()) == before
    part = Record.load(tmp_path / "toy" / "run-part.json")
    assert part["experiment"] == "run-part" and len(part["verdicts"]) == len([id for id in less if id != "figure"])
    said = f"{whole} is kept: it has {says} that this run has not"
    log = (tmp_path / "toy" / "run-part.log").read_text(encoding="utf-8")
    assert all(said in " ".join(text.split()) for text in (capsys.readouterr().out, log))
    write(more | {"n": 9.0})  # other numbers, no fewer: replaced
    assert json.loads(whole.read_text(encoding="utf-8"))["verdicts"][0]["verdict"] == "differs"


def test_differs_comes_first_and_equal_rows_on_request(tmp_path):
    for show in (False, True):
        with Record("toy", "run", config=SimpleNamespace(show_equal=show), results=tmp_path, quiet=True) as record:
            for id, value in (("a", 50.0), ("b", 51.0), ("c", 70.0), ("d", None)):
                record.judge(Number(id, "50.0", unit="%", images=1000, source="toy/run"), value, why_not_run="no GPU")
            record.print_verdicts()
        shown = [line for line in record.lines if line.startswith("  ") and ": published" in line]
        listed = [line.split(":")[0].strip() for line in shown]
        assert listed == ["c", "b", *["a"] * show] and "  1 not run: no GPU" in record.lines
