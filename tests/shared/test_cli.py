"""Command line and configuration files: one line for a user's mistake, and the right exit code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from shared import cli
from shared.errors import UserError


@dataclass
class Config(cli.Common):
    """A toy."""

    shots: tuple[int, ...] = (1, 2)
    rate: float = 0.5
    mode: Literal["a", "b"] = "a"
    folder: Path | None = None
    names: dict[str, str] | None = None


def code(main, argv: list[str], capsys) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit:
        cli.run(main, Config, argv)
    captured = capsys.readouterr()
    return exit.value.code, captured.out, captured.err


def toml(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "c.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_defaults_then_file_then_command_line(tmp_path):
    path = toml(tmp_path, 'shots = [5]\nrate = 2\nfolder = "images"\n[names]\nx = "y"\n')
    config = cli.parse(Config, ["--config", str(path), "--rate", "3"])
    assert config == Config(config=path, shots=(5,), rate=3.0, folder=Path("images"), names={"x": "y"})
    assert cli.parse(Config, [f"--config={path}"]).rate == 2.0
    assert cli.parse(Config, ["--shots", "7", "8"]).shots == (7, 8)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("shotz = [1]", "unknown key 'shotz'; did you mean 'shots'?"),
        ("zzz = 1", "unknown key 'zzz'; known keys: results"),
        ("shots = 5", "shots: expected list, got 5"),
        ('shots = ["one"]', "shots/0: expected int, got 'one'"),
        ('mode = "c"', "mode: expected one of 'a', 'b', got 'c'"),
        ("rate = true", "rate: expected float, got True"),
        ("[names]\ny = 1", "names/y: expected str, got 1"),
        ("strict = 1", "strict: expected bool, got 1"),
        ('config = "x"', "unknown key 'config'"),
        ("rate = ", "not readable as TOML"),
        (b"rate = '\xff'", "not readable as TOML"),
        ("rate = " + "[" * 5000, "not readable as TOML"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(tmp_path, capsys, text, says):
    path = toml(tmp_path, text)
    exit_code, out, err = code(lambda config: pytest.fail("ran"), ["--config", str(path)], capsys)
    assert exit_code == 2 and out == ""
    assert err.startswith(f"error: {path}") and says in err and err.count("\n") == 1


def test_an_absent_file_is_named(capsys):
    exit_code, _, err = code(lambda config: None, ["--config", "configs/nowhere.toml"], capsys)
    assert exit_code == 2 and "configs/nowhere.toml: no such configuration file" in err


def test_exit_codes(capsys):
    class Result:
        differs = 2

    assert code(lambda config: None, [], capsys)[0] == 0
    assert code(lambda config: Result(), [], capsys)[0] == 0
    assert code(lambda config: Result(), ["--strict"], capsys)[0] == 1
    assert code(lambda config: 7, [], capsys)[0] == 7
    assert code(lambda config: None, ["--nonsense"], capsys)[0] == 2


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--shotz", "1"], "unknown argument --shotz; did you mean --shots?"),
        (["--mode", "c"], "argument --mode: invalid choice: 'c' (choose from 'a', 'b')"),
        (["--rate", "fast"], "argument --rate: invalid float value: 'fast'"),
        (["--shots", "1", "two"], "argument --shots: invalid int value: 'two'"),
        (["stray"], "unknown argument stray"),
    ],
)
def test_a_wrong_argument_is_one_line_that_names_it(capsys, argv, says):
    exit_code, out, err = code(lambda config: pytest.fail("ran"), argv, capsys)
    assert exit_code == 2 and out == "" and err.startswith("error: ") and says in err and err.count("\n") == 1


@dataclass
class Positional(Config):
    left: str = cli.positional()
    """what to look at"""
    loud: bool = True
    """100 % of it
    is said"""


def test_names_and_options_mix_and_a_switch_can_be_turned_off():
    config = cli.parse(Positional, ["--rate", "1", "x", "--no-loud", "--shots"])
    assert (config.left, config.rate, config.loud, config.shots) == ("x", 1.0, False, ())
    assert cli.parse(Positional, []).left == ""


def test_help_has_the_description_the_texts_below_the_fields_and_the_defaults(capsys):
    with pytest.raises(SystemExit) as exit:
        cli.parse(Positional, ["--help"], doc="Reaches 50 % of it.")
    out = " ".join(capsys.readouterr().out.split())
    assert exit.value.code == 0 and "[left] [options] Reaches 50 % of it." in out
    assert "left what to look at" in out and "--loud, --no-loud 100 % of it is said (default: on)" in out
    assert "--shots [INT ...] (default: 1 2)" in out and "--mode {a,b}" in out
    assert out.index("what:") < out.index("--config") < out.index("output:") < out.index("--results")
    assert "False)" not in out and "None)" not in out and "[what]" not in out
    assert "exit with code 1 when a verdict differs" in out  # of a class that it inherits from


@dataclass
class Grouped(cli.Common, cli.Images):
    size: int = 1
    """[machine] first"""
    speed: int = 2
    """goes with it"""
    name: str = "x"
    """[what] last in the source"""


def test_help_groups_options_by_their_marks_and_its_examples_name_the_script_as_it_was_started(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["some/where/it.py"])
    with pytest.raises(SystemExit):
        cli.parse(Grouped, ["--help"], doc="Of it.py.\n\n    python it.py --size 2      uses notit.py\n")
    out = capsys.readouterr().out
    assert "Of it.py." in out and "    python some/where/it.py --size 2      uses notit.py" in out
    order = ["what:", "--config", "--name", "data:", "--data-root", "machine:", "--size", "--speed", "output:"]
    assert [out.index(f"  {word}" if word[0] == "-" else f"\n{word}") for word in order] == sorted(
        out.index(f"  {word}" if word[0] == "-" else f"\n{word}") for word in order
    )


def test_a_users_mistake_is_one_line_without_a_traceback(capsys):
    def main(config):
        raise UserError("x.json: broken\n  over two lines")

    assert code(main, [], capsys) == (2, "", "error: x.json: broken over two lines\n")


def test_interrupted(capsys):
    def main(config):
        raise KeyboardInterrupt

    exit_code, _, err = code(main, [], capsys)
    assert exit_code == 130 and "interrupted" in err


def test_a_configuration_is_found_from_the_root_too(tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    (tmp_path / "configs").mkdir()
    toml(tmp_path / "configs", "rate = 7.0")
    monkeypatch.chdir("/")
    assert cli.parse(Config, ["--config", "configs/c.toml"]).rate == 7.0


def test_a_bug_is_one_line_too_and_all_of_it_where_it_is_asked_for(capsys, monkeypatch):
    def main(config):
        raise ZeroDivisionError("division\nby zero")

    exit_code, _, err = code(main, [], capsys)
    assert exit_code == 3 and err.count("\n") == 1
    assert err.startswith("error: ZeroDivisionError: division by zero (in test_cli.py:")
    monkeypatch.setenv("PAPERS_TRACEBACK", "1")
    assert "Traceback" in code(main, [], capsys)[2]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(28, "No space left on device", "/tmp/x"), "error: /tmp/x: No space left on device"),
        (PermissionError(13, "Permission denied", "/a\x1b[31m"), r"error: /a\x1b[31m: Permission denied"),
        (FileNotFoundError(2, "No such file or directory", "a", None, "b"), "error: a, b: No such file"),
        (ConnectionResetError(104, "Connection reset by peer"), "error: a file or connection: Connection reset"),
        (MemoryError(), "error: out of memory"),
        (UserError("a\x1b[2J\nb\u202ec"), r"error: a\x1b[2J b\u202ec"),
    ],
)
def test_what_the_system_refuses_is_one_line_with_code_2(error, says, capsys):
    def main(config):
        raise error

    exit_code, _, err = code(main, [], capsys)
    assert exit_code == 2 and err.count("\n") == 1 and err.startswith(says)
