"""Nothing from a file or a name commands a terminal."""

from __future__ import annotations

import json

import pytest

from shared.errors import UserError
from shared.record import Record, require_plain
from shared.text import notice, printable, quoted, say


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
