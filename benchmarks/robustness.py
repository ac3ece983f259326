"""Kills, two starts at once, a full disk, a read-only folder, bad inputs: what is left, and what is said.

    python benchmarks/robustness.py              all of it, 100 kills (half an hour)
    python benchmarks/robustness.py kills 20     20 kills; also: inputs, together, disk, folder

A part that fails ends with code 1; its line in robustness.md says what happened. The full disk is a tmpfs of a megabyte
and the read-only folder a bind mount, both in a mount namespace of their own (`unshare`); where that is not allowed,
the part says so. Everything happens in a temporary folder.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness import HERE, ROOT, Results, here, machine_line, table

from shared import cli
from shared.paths import TEMPORARY
from shared.record import TIME_FIELDS

SEED = 12
TIMES = {*TIME_FIELDS, "starts", "checksum", "log_sha256"}  # the keys of a result that hold times, or cover them
KILLS_A_ROUND = 4  # then the command runs to its end, is compared with an undisturbed one, and starts from nothing
ONE_LINE = re.compile(rb"error: [^\n]+\n")


# what the commands load while they run; a fork has it
LIBRARIES = ["transformers.models.vit.modeling_vit", "papers.vit.part4.probes", "papers.vit.part4.networks"]
LIBRARIES += ["papers.vit.part4.trainer", "shared.models.hf", "shared.features", "shared.plots", "sklearn.datasets"]


@dataclass
class Work:
    """A command, its share of the kills in %, and what makes the files that it needs."""

    name: str
    module: str
    arguments: list[str]
    share: int
    needs: Callable[[Path], None] = lambda folder: None


def model(folder: Path) -> None:
    """A small random ViT in hub layout."""
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.ViTConfig(**sizes, patch_size=16, image_size=64)
    transformers.AutoModel.from_config(config).save_pretrained(folder / "model")
    about = {"size": 64, "resample": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (folder / "model" / "preprocessor_config.json").write_text(json.dumps(about), encoding="utf-8")


def recorded(folder: Path) -> None:
    """The recorded results, for the page."""
    for paper in ("vit", "resnet"):
        shutil.copytree(ROOT / "results" / paper, folder / "results" / paper)


FEWSHOT = "--models model --precision-model model --data digits --dtype fp32 --test 5"
FEWSHOT = f"{FEWSHOT} --pool 6 --selection 2 --protocol article --shots 1 2 --draws 2 --lambdas 0.1 1".split()
SCRATCH = "--data digits --image-size 8 --pad 1 --sizes 50 --steps 20 --warmup 2"
SCRATCH = f"{SCRATCH} --batch 16 --validation 50 --every 4 --threads 1 --no-estimate".split()
WORK = [
    Work("extraction and few-shot", "papers.vit.vit_part4_fewshot", FEWSHOT, 20, model),
    Work("training", "papers.vit.vit_part4_scratch", SCRATCH, 20),
    Work("report", "shared.report.__main__", [], 30, recorded),
    Work("tables: log, JSON and figures", "papers.vit.vit_part4_tables", ["--figures"], 30),
]


def start(work: Work, folder: Path) -> multiprocessing.Process:
    """The command in `folder`, with results and cache there.

    It is forked from this process, which has the libraries loaded: half of a minute of a busy machine is saved a kill.
    """
    child = multiprocessing.get_context("fork").Process(target=_run, args=(work, folder))
    child.start()
    return child


def _run(work: Work, folder: Path) -> None:
    os.chdir(folder)
    for name in [name for name in os.environ if name.startswith("PAPERS_")]:
        del os.environ[name]
    os.environ |= {"PAPERS_RESULTS": str(folder / "results"), "PAPERS_CACHE": str(folder / "cache")}
    with open(os.devnull, "w", encoding="utf-8") as nothing, open(said_by(os.getpid()), "wb") as said:
        os.dup2(nothing.fileno(), 1)
        os.dup2(said.fileno(), 2)
    script = importlib.import_module(work.module)
    sys.argv = [work.module, *work.arguments]
    cli.run(script.main, script.Config)


def said_by(process: int) -> Path:
    return Path(tempfile.gettempdir()) / f"robustness-{process}.stderr"


def end(child: multiprocessing.Process) -> tuple[int, bytes]:
    """(exit code, what it said on stderr), when it ends."""
    child.join(timeout=900)
    path = said_by(child.pid)
    said = path.read_bytes() if path.exists() else b""
    path.unlink(missing_ok=True)
    return child.exitcode, said


def finish(work: Work, folder: Path) -> tuple[int, bytes]:
    return end(start(work, folder))


def prepared(work: Work, folder: Path) -> Path:
    folder.mkdir()
    work.needs(folder)
    return folder


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below `folder` by its path, as bytes, without the times that a run writes down."""
    files = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name, data = path.relative_to(folder).as_posix(), path.read_bytes()
        if name.endswith(".machine.json") or path.name == "lock" or "weights-sha256" in name:
            continue  # when and where; whose process; remembered by the time of a file's change
        if name.startswith("results/") and path.suffix == ".json":
            data = json.dumps(without_times(json.loads(data))).encode()
        if path.suffix == ".log":  # how long each run took, in how many starts
            data = re.sub(rb"\n== runs ==\n.*?(?=\n\n==|\Z)", b"", data, flags=re.DOTALL)
        files[name] = data
    return files


def without_times(value: object) -> object:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*") if TEMPORARY.fullmatch(path.name)]


# kills ---------------------------------------------------------------------------------------------------------------


def kills(count: int) -> dict:
    """`count` kill -9, spread over WORK; see `kill_at_random`."""
    chance, report = random.Random(SEED), {}
    for work in WORK:
        own = max(1, round(count * work.share / 100))
        with tempfile.TemporaryDirectory(prefix="robustness-") as name:
            report[work.name] = kill_one(work, own, Path(name), chance)
        print(f"{work.name}: {report[work.name]}", file=sys.stderr, flush=True)
    return report


def kill_one(work: Work, count: int, folder: Path, chance: random.Random) -> dict:
    place = folder / "place"  # always the same path: it is part of what is written
    began = time.monotonic()
    code, said = finish(work, prepared(work, place))
    takes = time.monotonic() - began
    assert code == 0, said.decode()
    expected = snapshot(place)
    shutil.rmtree(place)
    done = {"kills": 0, "left behind": 0, "restarts": 0, "other bytes": 0, "leftovers after": 0}
    while done["kills"] < count:
        prepared(work, place)
        for _ in range(min(KILLS_A_ROUND, count - done["kills"])):
            done["kills"] += kill_at_random(start(work, place), place, takes, len(expected), chance)
            done["left behind"] += len(leftovers(place))
        code, said = finish(work, place)
        after = snapshot(place)
        wrong = sorted(key for key in expected.keys() | after.keys() if expected.get(key) != after.get(key))
        done["restarts"] += 1
        done["other bytes"] += code != 0 or bool(wrong)
        done["leftovers after"] += len(leftovers(place))
        if code or wrong:
            done.setdefault("faults", []).append(f"exit {code}: {wrong[:5]} {said.decode(errors='replace')[-300:]}")
        shutil.rmtree(place)
    return done | {"seconds undisturbed": round(takes, 1), "files compared": len(expected)}


def kill_at_random(
    child: multiprocessing.Process, folder: Path, takes: float, files: int, chance: random.Random
) -> bool:
    """Kill it at a random moment: of its time, or, every second time, of its writing. False: it was quicker.

    Most of a command's time is its start, in which nothing can go wrong; so half of the kills come right after the
    n-th new name in its folder, n at random.
    """
    moment, names = chance.uniform(0, takes), chance.randint(1, files) if chance.random() < 0.5 else None
    began, before = time.monotonic(), set(folder.rglob("*"))
    seen = set(before)
    while child.is_alive():
        with contextlib.suppress(OSError):  # a folder that went while it was read
            seen |= set(folder.rglob("*"))
        if len(seen - before) >= names if names else time.monotonic() - began >= moment:
            child.kill()
            break
        time.sleep(0.001 if names else 0.02)
    return end(child)[0] == -signal.SIGKILL


# two at once ---------------------------------------------------------------------------------------------------------


def together() -> dict:
    """Two starts of each command at once, in one folder with one cache."""
    report = {}
    for work in WORK:
        with tempfile.TemporaryDirectory(prefix="robustness-") as name:
            place = Path(name) / "place"
            finish(work, prepared(work, place))
            expected = snapshot(place)
            shutil.rmtree(place)
            prepared(work, place)
            both = [start(work, place), start(work, place)]
            ended = [end(child) for child in both]
            codes = sorted(code for code, _ in ended)
            # a training folder is one start's alone; whatever else is written is written whole by each
            refused = all(b"another start" in said for code, said in ended if code)
            report[work.name] = {
                "exit codes": codes,
                "same bytes": snapshot(place) == expected,
                "as it should": snapshot(place) == expected and not leftovers(place) and codes[0] == 0 and refused,
            }
    return report


# a disk that is full, a folder that is read-only ---------------------------------------------------------------------


def in_namespace(script: str, *arguments: str) -> subprocess.CompletedProcess:
    """A shell script with mounts of its own, which end with it."""
    command = ["unshare", "--mount", "--map-root-user", "sh", "-ec", script, "sh", *arguments]
    if os.geteuid() == 0:
        command.remove("--map-root-user")
    return subprocess.run(command, capture_output=True, timeout=900, check=False)


def mounts() -> bool:
    """Whether this user may mount."""
    with tempfile.TemporaryDirectory() as name:
        return shutil.which("unshare") is not None and in_namespace('mount -t tmpfs none "$1"', name).returncode == 0


def refused(work: Work, mount: str, part: str, says: bytes) -> dict:
    """`work` where its folder `part` ("results" or "cache") is mounted by `mount`; then again without it.

    The earlier result must be untouched, what is said one line, and the same command must end with the usual bytes.
    """
    with tempfile.TemporaryDirectory(prefix="robustness-") as name:
        place = Path(name) / "place"
        finish(work, prepared(work, place))
        expected = snapshot(place)
        if part == "cache":
            shutil.rmtree(place / "cache")
        (place / part).mkdir(exist_ok=True)
        code = (
            "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import robustness as r\n"
            "work = next(w for w in r.WORK if w.name == sys.argv[2])\n"
            "code, said = r.finish(work, Path(sys.argv[3])); sys.stderr.buffer.write(said); sys.exit(code)"
        )
        arguments = (sys.executable, code, str(HERE), work.name, str(place))
        done = in_namespace(f'{mount}\nexec "$2" -c "$3" "$4" "$5" "$6"', str(place / part), *arguments)
        lines = [line for line in done.stderr.splitlines(keepends=True) if line.startswith((b"error", b"Traceback"))]
        told = len(lines) == 1 and ONE_LINE.fullmatch(lines[0]) is not None and says in lines[0]
        untouched = part == "cache" or snapshot(place) == expected
        code_again = finish(work, place)[0]
        again = code_again == 0 and snapshot(place) == expected and not leftovers(place)
        said = b"".join(lines).decode(errors="replace").strip().replace(str(place), "...")
        fine = done.returncode == 2 and told and untouched and again
        return {"exit code": done.returncode, "says": said, "same bytes afterwards": again, "as it should": fine}


FULL = 'mount -t tmpfs -o size=4k none "$1"'
READ_ONLY = 'mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"'


def disk() -> dict:
    """A disk with room for one small file."""
    if not mounts():
        return {"not tested": "this user may not mount"}
    return {
        f"{work.name}, {part}": refused(work, FULL, part, b"No space left")
        for work, part in [(WORK[0], "cache"), *((work, "results") for work in WORK)]
    }


def folder() -> dict:
    """A folder that nobody may write, root neither."""
    if not mounts():
        return {"not tested": "this user may not mount"}
    return {
        f"{work.name}, {part}": refused(work, READ_ONLY, part, b"Read-only file system")
        for work, part in [(WORK[0], "cache"), *((work, "results") for work in WORK)]
    }


# bad inputs ----------------------------------------------------------------------------------------------------------


def inputs() -> list:
    """See bad_inputs.py: each in a process that it may not take down."""
    done = subprocess.run([sys.executable, str(HERE / "bad_inputs.py")], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


# the page ------------------------------------------------------------------------------------------------------------


def report(results: dict) -> list[str]:
    lines = [
        "# What kills, damage and a full disk leave",
        "",
        "`python benchmarks/robustness.py` writes this page.",
        "",
    ]
    for name, part in results.items():
        lines += [f"## {TITLES[name]}", "", f"{machine_line(part['here']['machine'])}, {part['here']['date']}.", ""]
        found = part["found"]
        if name == "inputs":
            kinds = dict.fromkeys(row["kind"] for row in found)
            of = {kind: [row["fine"] for row in found if row["kind"] == kind] for kind in kinds}
            of["all"] = [row["fine"] for row in found]
            counts = [[kind, len(fine), sum(fine)] for kind, fine in of.items()]
            lines += [*table(["inputs", "tried", "as it should"], counts), ""]
            lines += [*table(["input", "what is said"], [[row["name"], cell(row["says"])] for row in found]), ""]
        else:
            tested = {key: row for key, row in found.items() if isinstance(row, dict)}
            columns = list(dict.fromkeys(key for row in tested.values() for key in row))
            rows = [[key, *(cell(row.get(column, "")) for column in columns)] for key, row in tested.items()]
            if name == "kills" and rows:
                rows.append(["all", *(total_of(found, c) for c in columns)])
            lines += table(["", *columns], rows) if rows else [f"Not tested: {found['not tested']}."]
            lines.append("")
    return lines


def cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return str(value).replace("|", "\\|")


def total_of(found: dict, column: str) -> str:
    values = [row.get(column, 0) for row in found.values()]
    return str(sum(values)) if all(isinstance(value, int) for value in values) else ""


TITLES = {
    "kills": "Random kill -9",
    "together": "Two starts at once",
    "disk": "A full disk",
    "folder": "A read-only folder",
    "inputs": "Bad inputs",
}


PARTS = {"together": together, "disk": disk, "folder": folder, "inputs": inputs}


def is_fine(name: str, found: dict | list) -> bool:
    if name == "kills":
        return not any(row["other bytes"] or row["leftovers after"] for row in found.values())
    rows = found if isinstance(found, list) else [row for row in found.values() if isinstance(row, dict)]
    return all(row["fine" if name == "inputs" else "as it should"] for row in rows)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(TITLES)}, or a number of kills (100)")
    given = parser.parse_args(arguments).parts
    names = [a for a in given if a in TITLES] or list(TITLES)
    count = next((int(a) for a in given if a.isdigit()), 100)
    if rest := [a for a in given if a not in TITLES and not a.isdigit()]:
        print(f"error: {rest[0]}: expected one of {', '.join(TITLES)}, or a number of kills", file=sys.stderr)
        return 2
    os.environ["OMP_NUM_THREADS"] = "1"  # a fork has no other threads
    for module in [*LIBRARIES, *(work.module for work in WORK)]:
        importlib.import_module(module)
    results, fine = Results("robustness", report), True
    for name in names:
        where = here()
        found = kills(count) if name == "kills" else PARTS[name]()
        results[name] = {"here": where, "found": found}
        results.write()
        fine &= is_fine(name, found)
    print((HERE / "robustness.md").read_text(encoding="utf-8"))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
