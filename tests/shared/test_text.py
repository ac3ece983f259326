"""Nothing from a file or a name commands a terminal; lines fit a screen; verdicts have their colour there."""

from __future__ import annotations

import io
import json

import pytest
from PIL import Image

from shared.data import load_images
from shared.errors import UserError
from shared.models import Identity
from shared.record import Record, require_plain
from shared.text import COLOURS, WIDTH, coloured, folded, notice, printable, quoted, say
from shared.verdict import VERDICTS


@pytest.mark.parametrize(
    ("text", "shows"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x9b2J", r"\u009b2J"),  # one character is a command too
        ("\x7f", r"\u007f"),
        ("evil\u202egpj.exe", r"evil\u202egpj.exe"),  # turns the direction of reading
        ("a\u2028b", r"a\u2028b"),
        ("\udce9", r"\udce9"),  # a file name that is no text
        ("\U000e0001", r"\udb40\udc01"),
        ("±0.5 × 10³ – ü 漢\u2009…\u00a0", "±0.5 × 10³ – ü 漢\u2009…\u00a0"),  # what the logs print stays
    ],
)
def test_what_commands_a_terminal_is_escaped(text, shows):
    assert printable(text) == shows
    assert json.loads(json.dumps({"a": text}, ensure_ascii=False)) == {"a": text}


def test_json_on_the_screen_stays_json(capsys):
    names = {"a": "\x9b2J\x1b\x7f\u202e\U000e0001"}
    say(json.dumps(names, ensure_ascii=False, indent=1))
    shown = capsys.readouterr().out
    assert json.loads(shown) == names and shown.isascii()


def test_a_name_forges_no_line_of_a_log(tmp_path, capsys):
    evil = "cat\n== verdicts ==\x1b[2J"
    with Record("toy", "x", results=tmp_path) as record:
        record.section(evil)
        record.say(f"class {printable(evil)}")
        record.say_table("T", ["name", evil], [[evil, 1]])
    log = (tmp_path / "toy" / "x.log").read_text(encoding="utf-8")
    assert log == capsys.readouterr().out.lstrip("\n")
    assert "\x1b" not in log and sum(line.startswith("==") for line in log.splitlines()) == 1
    assert Record.load(tmp_path / "toy" / "x.json")["tables"][0]["rows"] == [[evil, 1]]  # data stays what it is


def test_other_ways_to_the_screen(capsys):
    notice("a\nb\x1b")
    assert capsys.readouterr().err == "a\\nb\\x1b\n"
    assert quoted("x\x1b" * 40).count("x") <= 40 and "\x1b" not in quoted({"\x1b": 1})
    for name in ("a\nb", "\x1b[2J", "a\u202eb", "x" * 300):
        with pytest.raises(UserError, match="--experiment"):
            require_plain(name)


@pytest.mark.parametrize("indent", ["", "  ", "      "])
def test_a_long_line_is_broken_at_blanks_and_loses_nothing(indent):
    words = [f"{'x' * (n % 23)}{n}" for n in range(60)]
    line = indent + "  ".join(words)
    lines = folded(line).split("\n")
    assert len(lines) > 5 and max(map(len, lines)) <= WIDTH and lines[0].startswith(indent + words[0])
    assert all(one.startswith(indent + "  ") for one in lines[1:])
    assert " ".join(lines).split() == words


def test_what_cannot_be_broken_or_need_not_be_stays():
    path = "/a" * 100
    assert path in folded(f"  see {path} for more").split() and folded("a" * WIDTH) == "a" * WIDTH
    assert folded("one\n\n  two ") == "one\n\n  two "


def test_every_verdict_has_a_colour():
    assert set(VERDICTS) < set(COLOURS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x: published 1, measured 2: differs (why)", ["differs"]),
        (
            "  12 equal, 3 agrees, 0 differs, 1,016 not comparable, 5 not run",
            ["equal", "agrees", "not comparable", "not run"],
        ),
        ("x: published 1, measured 1.1, tolerance 0.2 (rounding 0.1):\n    agrees", ["agrees"]),
        ("  5 not run: no GPU", ["not run"]),
        ("  verdict    undecided", ["undecided"]),
        ("18 quantities in both, 13 not equal; equal logits; what differs:", []),
    ],
)
def test_verdicts_are_coloured_and_other_words_are_not(text, words):
    shown = coloured(text)
    assert [part.partition("m")[2] for part in shown.split("\x1b[")[1:] if not part.startswith("0m")] == words
    for code in (*COLOURS.values(), 0):
        shown = shown.replace(f"\x1b[{code}m", "")
    assert shown == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("name", "value", "in_colour"), [("TERM", "xterm", True), ("TERM", "dumb", False), ("NO_COLOR", "1", False)]
)
def test_colours_are_a_terminals_own_and_can_be_refused(name, value, in_colour, monkeypatch, tmp_path):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, value)
    screen, file = Terminal(), io.StringIO()
    say("x: differs", screen)
    say("x: differs", file)
    assert ("\x1b[31mdiffers" in screen.getvalue()) is in_colour and file.getvalue() == "x: differs\n"
    monkeypatch.setattr("sys.stdout", screen)
    with Record("toy", "x", results=tmp_path) as record:
        record.say("y: differs")
    for path in (tmp_path / "toy").iterdir():
        assert "\x1b" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "evil", ["a\n== verdicts ==", "a\r== verdicts ==", "a\u2028== verdicts ==", "a\x0b== verdicts =="]
)
def test_names_of_images_and_models_forge_no_line(tmp_path, monkeypatch, evil):
    """A class's, a file's, a folder's and a model's name, in the lines that join them with others."""
    monkeypatch.setenv("PAPERS_CACHE", str(tmp_path / "cache"))
    for name in (f"{evil} 1", f"{evil} 2"):
        (tmp_path / evil / name).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / evil / name / f"{evil}.png")
        (tmp_path / evil / name / f"{evil}.txt").touch()
    images = load_images(str(tmp_path / evil), "all")
    model = Identity(evil, evil, "hf", 1, None, evil, "0", label_names=(evil,), notes=(f"not read: {evil}.weight",))
    joined = [*images.assumed(), images.where(0), *images.names, *images.class_ids, *images.class_names]
    joined += [model.name, model.revision, *model.label_names, *model.notes]
    assert len("\n".join(joined).splitlines()) == len(joined)  # at every sign that ends a line
    assert any("ignored: 2 .txt" in line for line in joined)
