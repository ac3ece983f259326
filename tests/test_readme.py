"""What README says can be done: links lead somewhere, and every command is one."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
from collections import Counter
from dataclasses import fields

import pytest
from PIL import Image
from recorded import recorded_results

from shared import cli
from shared.check import summarise
from shared.paths import ROOT
from shared.record import Record
from shared.report import markdown, picture
from shared.report.collect import collect
from shared.report.glossary import WORDS
from shared.verdict import VERDICTS

README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCES = re.findall(r"^```sh\n(.*?)^```", README, re.M | re.S)
INLINE = [code for code in re.findall(r"`([^`\n]+)`", README) if re.match(r"(make|python|torchrun)( |$)", code)]
COMMANDS = sorted(
    {line for block in FENCES for line in block.splitlines() if line and not line.startswith("#")} | set(INLINE)
)
TARGETS = {
    line.split("|")[0]
    for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    if re.match(r"[\w-]+\|", line)
}


def test_links_lead_somewhere():
    for path in ("README.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / path).read_text(encoding="utf-8")):
            if target.startswith("#"):
                headings = [
                    re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)", README, re.M)
                ]
                assert target[1:] in headings, target
            elif not target.startswith("https://"):
                assert (ROOT / target.partition("#")[0]).exists(), target


def test_the_results_table_says_what_the_evidence_says():
    rows = re.findall(r"^\| [^|]+ \| ([^|]*) \|.*\]\((results/[^)]+\.json)\)", README, re.M)
    recorded = {path.relative_to(ROOT).as_posix() for path in recorded_results()}
    assert recorded <= {path for _, path in rows}, "a committed result has no row; README's table is to be renewed"
    for shown, path in rows:
        if path not in recorded:
            continue  # run again since: no longer what was committed
        found = Counter(verdict["verdict"] for verdict in Record.load(ROOT / path)["verdicts"])
        says = (
            ", ".join(f"{found[name]:,} {name}" for name in VERDICTS if found[name])
            or "no published number to compare with"
        )
        assert shown == says, path


def test_the_tables_in_markdown_are_those_of_the_evidence():
    """Only where every result is as it was committed: they are renewed with README's table."""
    if {path for path in (ROOT / "results").glob("*/*.json") if path.parent.name != "demo"} != set(recorded_results()):
        pytest.skip("results were run again since they were committed")
    contents = collect(ROOT / "results", ROOT / "results" / "report" / "index.html")
    for paper in contents.papers:
        written = (ROOT / "results" / paper.name / "report.md").read_text(encoding="utf-8")
        assert written == markdown.render(contents, paper), "python -m shared.report.readme renews it"


def test_the_picture_shows_the_counts_of_the_evidence():
    """Only where every result is as it was committed; its first screen is of one size wherever it is made."""
    if {path for path in (ROOT / "results").glob("*/*.json") if path.parent.name != "demo"} != set(recorded_results()):
        pytest.skip("results were run again since they were committed")
    with Image.open(ROOT / "docs" / "report.png") as image:
        assert image.size == picture.SIZE
        shown = image.info.get("Counts")
    assert shown == picture.counts_shown(summarise(ROOT / "results")), "make picture renews it"


def test_a_word_means_the_same_on_the_page():
    rows = dict(re.findall(r"^\| ([^|`\[]+) \| ([^|]+) \|$", README.partition("## Glossary")[2], re.M))
    common = WORDS.keys() & rows.keys()
    plain = {word: re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", rows[word]) for word in common}
    assert len(common) > 10
    for word in common - {"verdict"}:  # that one says where the words stand
        assert plain[word] == WORDS[word], word


def test_every_target_has_its_line_and_no_other_is_named():
    named = {command.split()[1] for command in COMMANDS if command.startswith("make ")}
    assert named <= TARGETS, named - TARGETS
    assert TARGETS - named <= {"setup", "clean"}, TARGETS - named


def expand(command: str) -> list[list[str]]:
    """The Python calls of a README command as argument lists, `make` targets by their recipes."""
    if not command.startswith("make"):
        return [shlex.split(command)]
    dry = subprocess.run(
        ["make", "-n", *shlex.split(command)[1:], "PY=python"], cwd=ROOT, capture_output=True, encoding="utf-8"
    )
    assert dry.returncode == 0, dry.stderr
    lines = dry.stdout.replace("\\\n", "").splitlines()
    return [shlex.split(line.partition(" > ")[0]) for line in lines if line.startswith("python ")]


def python_calls() -> list[list[str]]:
    """Every Python call behind README's commands, but for placeholders; `.ci/run` itself runs pytest and ruff."""
    calls = [call for command in COMMANDS if "<" not in command and "..." not in command for call in expand(command)]
    ours = [c for c in calls if "papers/toy" not in " ".join(c) and c[1:3] not in (["-m", "pytest"], ["-m", "ruff"])]
    return [list(call) for call in sorted(set(map(tuple, ours)))]


@pytest.mark.parametrize("call", python_calls(), ids=shlex.join)
def test_every_command_is_understood_by_its_script(call, monkeypatch):
    """The real script parses the real arguments, configuration file included; the work itself is tested elsewhere."""
    if call[0] == "torchrun":
        assert call[1] == "--nproc-per-node" and call[2].isdigit()
        call = ["python", *call[3:]]
    name = call[2] if call[1] == "-m" else call[1].removesuffix(".py").replace("/", ".")
    arguments = call[3:] if call[1] == "-m" else call[2:]
    if name in ("shared.report", "shared.probe"):
        name += ".__main__"
    parsed = []

    def understood(main, config_type, argv=None):
        if name.startswith(("papers.", "shared.")):
            groups = {name: group for name, (group, _) in cli._help_texts(config_type).items()}
            options = [option.name for option in fields(config_type) if not option.metadata.get("positional")]
            assert not [name for name in options if groups.get(name) not in cli.GROUPS], "--help has them in no group"
        parsed.append(cli.parse(config_type, arguments if argv is None else argv))
        raise SystemExit(0)

    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setattr(cli, "run", understood)
    module = importlib.import_module(name)
    if name == "benchmarks.run" and not arguments:  # lists what there is
        assert module.main([]) == 0
        return
    with pytest.raises(SystemExit) as end:
        if hasattr(module, "COMMANDS"):  # a script with sub-commands chooses among them by itself
            module.main(arguments)
        understood(module.main, module.Config)
    assert end.value.code == 0 and len(parsed) == 1
