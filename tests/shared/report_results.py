"""A small results folder with everything that the page has to show, for the tests of the report."""

from __future__ import annotations

import json
import re
from pathlib import Path

from PIL import Image

from shared.published import Number
from shared.record import Record

NASTY = '<script>alert("x")</script><img src=x onerror=alert(1)> & "quotes"'
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 20"><rect width="40" height="20" fill="#246"/></svg>'


def number(id: str, printed: str, source: str = "toy/table1", **options: object) -> Number:
    return Number(id, printed, "%", source=source, **options)


def unsealed(path: Path) -> str:
    """A result's text without its checksum, to be changed."""
    return re.sub(r',\n "checksum": "\w+"', "", path.read_text(encoding="utf-8"))


def write_published(root: Path) -> None:
    """The published file that the toy's verdicts are of, in `root`/papers."""
    verdicts = json.loads((root / "toy" / "table1.json").read_text(encoding="utf-8"))["verdicts"]
    keys = {"printed": "published", "unit": "unit", "std": "published_std"}
    numbers = {v["id"]: {key: v[name] for key, name in keys.items()} for v in verdicts}
    head = {"schema": 1, "paper": "toy", "experiment": "table1", "source": "a toy"}
    path = root / "papers" / "toy" / "published" / "table1.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(head | {"numbers": numbers}), encoding="utf-8")


def write_results(root: Path) -> Path:
    """Two papers; whole, empty, older, damaged and half-damaged results; text that wants to be HTML."""
    with Record("toy", "table1", results=root, quiet=True, question="Does it hold?", config={"draws": 5}) as record:
        record.say("the log")
        record.seed = 3
        record.use_data("digits", split="test", source="embedded", images=500, fingerprint="ab" * 32)
        record.use_model("small", revision="1", weights_sha256="cd" * 32, preprocessing="as is", stand_in="a stand-in")
        record.judge(number("alpha/one", "53.9", std="2.6", n=5, images=1000), 53.912345)
        record.judge(number("alpha/two", "53.9", std="2.6", n=10, images=1000), 54.87654, std=1.25, n=5)
        record.judge(number("alpha/three", "1,250.0"), 1000.0)
        record.judge(number("beta/one", "70.1"), 66.25, stand_in="another model")
        for i in range(60):
            record.judge(number(f"gamma/{i}", f"{i}.5"), None, why_not_run="needs a network")
        record.figures_dir.mkdir(parents=True)
        Image.new("RGB", (60, 30), "#246").save(record.figures_dir / "answer.png")
        (record.figures_dir / "answer.svg").write_text(SVG, encoding="utf-8")
        Image.new("RGB", (90, 30), "#642").save(record.figures_dir / "photos.png")
        record.figure(record.figures_dir / "answer.png", "The answer.")
        record.figure(record.figures_dir / "answer.svg", "The answer.")
        record.figure(record.figures_dir / "photos.png", "Photographs.", kind="gallery")
        record.figure(record.figures_dir / "gone.png", "A figure that was deleted.")
        record.table("By draw", ["model", "accuracy"], [["small", 61.23456], ["large", None]], group="draws")
        record.table("By seed", ["model", "accuracy"], [["small", "61.2 ± 0.4"]], group="draws")
        record.cannot_show("anything about the large model.")
    with Record("toy", "nasty", results=root, quiet=True, question=NASTY, config={NASTY: NASTY}) as record:
        record.use_model(NASTY, revision=None, weights_sha256=None, preprocessing=NASTY)
        record.judge(number(NASTY, NASTY, source="toy/nasty"), None, why_not_run=NASTY)
        record.judge(number("surrogate", "SURROGATE", source="toy/nasty"), None)
        record.figures_dir.mkdir(parents=True, exist_ok=True)
        (record.figures_dir / "cut.png").write_bytes((record.figures_dir / "answer.png").read_bytes()[:-40])
        record.figure(record.figures_dir / "cut.png", NASTY)
        record.table(NASTY, [NASTY], [[NASTY]], note=NASTY)
        record.cannot_show(NASTY)
    nasty = root / "toy" / "nasty.json"
    nasty.write_text(
        unsealed(nasty).replace("SURROGATE", "\\ud800"), encoding="utf-8"
    )  # legal in JSON, not in a text file
    write_published(root)
    other = root / "other"
    other.mkdir()
    (other / "older.json").write_text('{"schema": 0, "paper": "other"}', encoding="utf-8")
    (other / "cut.json").write_text((root / "toy" / "table1.json").read_text(encoding="utf-8")[:900], encoding="utf-8")
    (other / "list.json").write_text("[]", encoding="utf-8")
    wrong = unsealed(root / "toy" / "table1.json").replace('"verdict": "agrees"', '"verdict": "perhaps"')
    wrong = wrong.replace('"paper": "toy"', '"paper": "other"').replace(
        '"experiment": "table1"', '"experiment": "wrong"'
    )
    (other / "wrong.json").write_text(wrong, encoding="utf-8")
    return root
