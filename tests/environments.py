"""The quick tests and the recorded arithmetic on other processors, locales, folders and users; a table at the end.

    python tests/environments.py                                all of them, one after the other
    python tests/environments.py --list                         what there is
    python tests/environments.py --only lowest aten-avx2        these
    python tests/environments.py --only lowest --computing      only the tests whose numbers a processor could change
    python tests/environments.py --only spaces --tests tests/shared    these tests

A processor is stood for by the variables with which PyTorch, oneDNN, MKL, OpenBLAS and NumPy leave instructions out.
"recorded" compares what the tables and the comparisons say there with results/: logs and pages byte for byte, JSON but
for its provenance. Exit code 1 if a test fails or a recorded file differs, or an environment cannot be made here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # this checkout's code, whatever is installed

from shared import cli  # noqa: E402
from shared.errors import UserError  # noqa: E402

NOBODY = 65534
UNKNOWN = 54321  # a user that passwd does not know, as containers have
# The tests that compute in floating point: the others read text, count in integers or start processes.
COMPUTING = [
    *(f"tests/shared/test_{name}.py" for name in ("device", "ridge", "transforms", "features", "reference_features")),
    *(f"tests/shared/test_models_{name}.py" for name in ("fast", "hf", "timm", "wheels")),
    *(f"tests/shared/test_{name}.py" for name in ("images", "data", "verdict", "graph_trace", "graph_align")),
    *(f"tests/papers/vit/test_{name}.py" for name in ("tables", "part5_compute", "fewshot", "top5")),
    "tests/shared/test_training_stream.py",
    *(f"tests/papers/vit/test_scratch_{name}.py" for name in ("trainer", "networks", "factors")),
    *(f"tests/papers/resnet/test_{name}.py" for name in ("architectures", "resnet_tables")),
    "tests/papers/comparisons/test_comparison_findings.py",
    "tests/test_evidence.py",
]
# Results that are arithmetic alone, run again by the commands that they record.
ARITHMETIC = (
    "vit/tables",
    "vit/part5-compute",
    "resnet/tables",
    "comparisons/builtins",
    "comparisons/resnet-block-vs-vit-b16",
)
OWN = ("provenance", "checksum")  # of a result: where and when it was made, and what covers that too
FOUND = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])  # beyond NumPy's least
NUMPY = {"NPY_DISABLE_CPU_FEATURES": " ".join(FOUND), "OPENBLAS_CORETYPE": "NEHALEM"}
LOWEST = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_CBWR": "COMPATIBLE",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "OMP_NUM_THREADS": "1",
    **NUMPY,
}


class Absent(Exception):
    """This machine cannot stand for the environment; the text says why."""


@dataclass(frozen=True)
class Environment:
    """variables: set for the run. place: "here", "papers/vit" (start there); in a copy "spaces" or "no git".

    home: "", "none" or "read-only". user: another one than root (its number), in a copy of its own.
    """

    about: str
    variables: Mapping[str, str] = field(default_factory=dict)
    place: str = "here"
    home: str = ""
    user: int | None = None


ENVIRONMENTS = {
    "plain": Environment("as it is here"),
    "aten-default": Environment("PyTorch's own kernels without AVX", {"ATEN_CPU_CAPABILITY": "default"}),
    "aten-avx2": Environment("PyTorch's own kernels with AVX2", {"ATEN_CPU_CAPABILITY": "avx2"}),
    "onednn-avx2": Environment("oneDNN with AVX2: no bfloat16 units", {"ONEDNN_MAX_CPU_ISA": "AVX2"}),
    "one-thread": Environment("one thread", {"OMP_NUM_THREADS": "1"}),
    "two-threads": Environment("two threads", {"OMP_NUM_THREADS": "2"}),
    "mkl-compatible": Environment("MKL's one code for all processors", {"MKL_CBWR": "COMPATIBLE"}),
    "mkl-avx2": Environment("MKL with AVX2", {"MKL_ENABLE_INSTRUCTIONS": "AVX2"}),
    "numpy-least": Environment("NumPy and its BLAS with SSE4.2", NUMPY),
    "lowest": Environment("all of these at their lowest, one thread", LOWEST),
    "c-locale": Environment("LC_ALL=C", {"LC_ALL": "C"}),
    "ascii": Environment(
        "LC_ALL=C, and Python does not help it", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ),
    "turkish": Environment("LC_ALL=tr_TR.UTF-8: i is no small I", {"LC_ALL": "tr_TR.UTF-8"}),
    "kathmandu": Environment("TZ=Asia/Kathmandu: 5:45 from UTC", {"TZ": "Asia/Kathmandu"}),
    "narrow": Environment("COLUMNS=40", {"COLUMNS": "40"}),
    "no-home": Environment("HOME unset", home="none"),
    "read-only-home": Environment("HOME that cannot be written, not root", home="read-only", user=NOBODY),
    "not-root": Environment("a user that is not root", user=NOBODY),
    "unknown-user": Environment("HOME unset, a user that passwd does not know", home="none", user=UNKNOWN),
    "spaces": Environment("a path with spaces", place="spaces"),
    "no-git": Environment("no git, and a copy without .git", place="no git"),
    "inside": Environment("started inside papers/vit", place="papers/vit"),
}


@dataclass
class Outcome:
    """One row of the table. recorded: how many recorded files came out the same, and those that did not."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    same: int = 0
    wrong: list[str] = field(default_factory=list)  # failed tests, then recorded files that differ, one line each
    absent: str = ""


@dataclass
class Place:
    """A checkout to run in: its root, the folder to start in, the variables, and what comes before the command."""

    root: Path
    start: Path
    variables: dict[str, str]
    scratch: Path
    prefix: list[str] = field(default_factory=list)
    python: str = sys.executable

    def run(self, *command: str | Path, **options: Any) -> subprocess.CompletedProcess:
        return subprocess.run([*self.prefix, self.python, *command], cwd=self.start, env=self.variables, **options)


@contextmanager
def made(environment: Environment) -> Iterator[Place]:
    """The place of an environment, which is gone afterwards. Absent if it cannot be made on this machine."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="environment-")))
        variables = os.environ | {"PAPERS_RESULTS": str(scratch / "results"), **environment.variables}
        variables.pop("PYTHONPATH", None)  # the checkout's own code is found by pyproject.toml, whatever is installed
        root = ROOT
        if environment.user or environment.place in ("spaces", "no git"):
            name = "a path with spaces" if environment.place == "spaces" else "copy"
            root = copy(scratch / name / "suite", git=environment.place != "no git")
        place = Place(root, root / environment.place if environment.place == "papers/vit" else root, variables, scratch)
        if environment.place == "no git":
            variables["PATH"] = path_without("git", scratch / "bin")
        if environment.variables.get("LC_ALL", "C") not in ("C", *locales()):
            variables["LOCPATH"] = made_locale(environment.variables["LC_ALL"], scratch / "locales")
        if environment.user:
            for name in ("home", "tmp", "cache"):
                (scratch / name).mkdir()
            variables |= {"HOME": str(scratch / "home"), "TMPDIR": str(scratch / "tmp")}
        if environment.home == "none":
            variables.pop("HOME", None)
            if environment.user:  # there is no home to ask for either: this is what the error line says
                variables["PAPERS_CACHE"] = str(scratch / "cache")
        if environment.user and os.geteuid() == 0:
            give_to(environment.user, place)
        elif environment.user == UNKNOWN:
            raise Absent("only root can start a program as a user that passwd does not know")
        if environment.home == "read-only":
            if os.geteuid() == 0:
                os.chown(scratch / "home", 0, 0)
            (scratch / "home").chmod(0o555)
        yield place


def copy(target: Path, *, git: bool) -> Path:
    """This checkout as it is now, changes included, at `target`; as a git clone or a plain folder of files."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True
    )
    if listed.returncode:
        raise Absent("this checkout is no git repository: its files are not known")
    target.parent.mkdir(parents=True)
    if git:
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, target], check=True)
    names = {name for name in os.fsdecode(listed.stdout).split("\0") if name}
    for name in names:
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
        else:
            (target / name).unlink(missing_ok=True)
    if (
        ROOT.parent / "shared" / "published"
    ).is_dir():  # what the tests find beside a checkout, they find beside a copy
        (target.parent / "shared").symlink_to(ROOT.parent / "shared")
    return target


def path_without(program: str, folder: Path) -> str:
    """A PATH with every program that is on it now, but this one."""
    folder.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for file in Path(directory).glob("*"):
            if not file.name.startswith(program) and not (folder / file.name).is_symlink():
                (folder / file.name).symlink_to(file)
    return str(folder)


def locales() -> set[str]:
    """The system's, as `LC_ALL` spells them."""
    done = subprocess.run(["locale", "-a"], capture_output=True, encoding="utf-8")
    return {line.replace(".utf8", ".UTF-8") for line in done.stdout.split()}


def made_locale(name: str, folder: Path) -> str:
    """A locale that the system has only the source of, compiled for one run."""
    folder.mkdir()
    language, _, charset = name.partition(".")
    if shutil.which("localedef"):  # its code 1: made, with warnings
        subprocess.run(["localedef", "-i", language, "-f", charset, folder / name], capture_output=True)
    if not (folder / name).is_dir():
        raise Absent(f"no locale {name} and no source to make it of: apt-get install locales")
    return str(folder)


def give_to(user: int, place: Place) -> None:
    """Everything below the scratch folder goes to a user without rights, who runs the commands."""
    if not shutil.which("setpriv"):
        raise Absent("setpriv (util-linux) is not here; start as another user than root instead")
    os.chmod(place.scratch, 0o755)
    for folder, _, files in os.walk(place.scratch):
        for name in [folder, *(os.path.join(folder, file) for file in files)]:
            os.chown(name, user, user, follow_symlinks=False)
    place.prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    if not can_run(place):
        place.python = another_python(place)
    if not can_run(place):
        where = Path(sys.executable).resolve()
        raise Absent(
            f"a user that is not root can run neither {where} nor the system's Python with its packages; "
            "make the environment outside of root's home folder"
        )


def can_run(place: Place) -> bool:
    """Whether the place's user can run its interpreter with the packages; from a shell, as the tests start it."""
    command = [*place.prefix, "sh", "-c", '"$0" -c "import numpy, torch, pytest"', place.python]
    return subprocess.run(command, capture_output=True, cwd="/", env=place.variables).returncode == 0


def another_python(place: Place) -> str:
    """The system's Python of the same version, in an environment that sees this one's packages.

    A Python that lies in root's home folder cannot be run by others; its packages often can be read.
    """
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    system = shutil.which(name, path="/usr/local/bin:/usr/bin:/opt/homebrew/bin")
    home = place.scratch / "python"
    made = system and subprocess.run([system, "-m", "venv", "--without-pip", home], capture_output=True)
    if not made or made.returncode:
        return sys.executable
    packages = next(home.glob("lib*/python*/site-packages")) / "this.pth"
    seen = [str(place.root), *(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))]  # the suite, as installed
    packages.write_text("\n".join(seen) + "\n", encoding="utf-8")
    return str(home / "bin" / name)


def measure(environment: Environment, tests: list[str], record: bool) -> Outcome:
    """Run the tests, and the arithmetic if `record` says so."""
    started, outcome = time.monotonic(), Outcome()
    try:
        with made(environment) as place:
            report = place.scratch / "report"
            report.mkdir(mode=0o777)
            report.chmod(0o777)
            paths = [str(place.root / test) if (place.root / test).exists() else test for test in tests]
            place.run("-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report / 'tests.xml'}", *paths)
            read_report(report / "tests.xml", outcome)
            if record:
                compare_recorded(place, outcome)
    except Absent as reason:
        outcome.absent = str(reason)
    outcome.seconds = time.monotonic() - started
    return outcome


def read_report(file: Path, outcome: Outcome) -> None:
    if not file.exists():
        outcome.failed, outcome.wrong = 1, ["pytest wrote no report: see above"]
        return
    for case in ElementTree.parse(file).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            outcome.failed += 1
            outcome.wrong.append(f"failed: {case.get('classname')}::{case.get('name')}")
        elif case.find("skipped") is not None:
            outcome.skipped += 1
        else:
            outcome.passed += 1
    if not outcome.passed + outcome.failed:
        outcome.failed, outcome.wrong = 1, ["no test ran: see above"]


def compare_recorded(place: Place, outcome: Outcome) -> None:
    """Run the arithmetic of the recorded results again, in this place."""
    results = place.scratch / "recorded"
    results.mkdir(mode=0o777)
    results.chmod(0o777)
    place = replace(place, variables=place.variables | {"PAPERS_RESULTS": str(results)})
    for name in ARITHMETIC:
        provenance = json.loads((ROOT / "results" / f"{name}.json").read_bytes())["provenance"]
        script, *options = provenance["command"]
        (path,) = place.root.glob(f"papers/*/{Path(script).name}")
        place.run(path, *options, "--results", results, stdout=subprocess.DEVNULL)
    compare(results, outcome)


def compare(results: Path, outcome: Outcome) -> None:
    """Every log, page and JSON in `results` against the recorded one."""
    made_files = [p for p in sorted(results.glob("*/*")) if p.suffix in (".log", ".html", ".json")]
    for path in made_files:
        name = path.relative_to(results)
        if same(path, ROOT / "results" / name):
            outcome.same += 1
        else:
            outcome.wrong.append(f"differs: results/{name}")
    missing = {f"{name}.json" for name in ARITHMETIC} - {p.relative_to(results).as_posix() for p in made_files}
    outcome.wrong += [f"not made: results/{name}" for name in sorted(missing)]


def same(made: Path, recorded: Path) -> bool:
    """Equal bytes; of a result everything that the recorded one says, where it was made left out."""
    if not recorded.exists() or made.suffix != ".json":
        return recorded.exists() and made.read_bytes() == recorded.read_bytes()
    result = {key: value for key, value in json.loads(recorded.read_bytes()).items() if key not in OWN}
    return holds(json.loads(made.read_bytes()), result)


def holds(made: object, recorded: object) -> bool:
    """Whether all of `recorded` stands in `made`, which may have fields that are newer than the recording."""
    if isinstance(made, dict) and isinstance(recorded, dict):
        return all(key in made and holds(made[key], value) for key, value in recorded.items())
    if isinstance(made, list) and isinstance(recorded, list):
        return len(made) == len(recorded) and all(map(holds, made, recorded))
    return made == recorded


def table(outcomes: Mapping[str, Outcome]) -> list[str]:
    lines = [f"{'environment':<16}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}  recorded"]
    for name, o in outcomes.items():
        if o.absent:
            lines.append(f"{name:<16}{'absent: ' + o.absent}")
            continue
        bad = sum(not line.startswith(("failed", "pytest", "no test")) for line in o.wrong)
        recorded = f"{o.same} the same" + f", {bad} not" * bool(bad) if o.same or bad else "-"
        lines.append(f"{name:<16}{o.passed:>8}{o.failed:>8}{o.skipped:>9}{o.seconds:>9.0f}  {recorded}")
        lines += [f"    {line}" for line in o.wrong]
    return lines


@dataclass
class Config:
    only: tuple[str, ...] = ()
    """environments; all if none is named"""
    list: bool = False
    """name the environments and do nothing"""
    computing: bool = False
    """only the tests that compute in floating point"""
    tests: tuple[str, ...] = ()
    """files or folders of tests, in place of all"""
    recorded: bool = True
    """--no-recorded: leave the recorded results alone"""


def main(config: Config) -> int:
    unknown = [name for name in config.only if name not in ENVIRONMENTS]
    if unknown:
        raise UserError(f"{unknown[0]}: no such environment; there are {', '.join(ENVIRONMENTS)}")
    if config.list:
        print("\n".join(f"{name:<16}{environment.about}" for name, environment in ENVIRONMENTS.items()))
        return 0
    tests = [*config.tests] or (COMPUTING if config.computing else ["tests"])
    outcomes = {}
    for name in config.only or ENVIRONMENTS:
        print(f"== {name}: {ENVIRONMENTS[name].about}", flush=True)
        outcomes[name] = measure(ENVIRONMENTS[name], tests, config.recorded)
    print("\n".join(["", *table(outcomes)]))
    return int(any(o.failed or o.wrong or o.absent for o in outcomes.values()))


if __name__ == "__main__":
    cli.run(main, Config)
