"""Bad images, checkpoints, graphs, settings, results and published files: one line with code 2, or taken and said.

    python benchmarks/bad_inputs.py            what came of each, as JSON; robustness.py makes a page of it

The commands run in this process, because loading their libraries takes longer than the rest. An input that takes a
minute counts as a fault.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import ROOT

sys.path.insert(0, str(ROOT / "papers" / "vit"))

from papers.comparisons import compare
from papers.vit import vit_part4_fewshot as fewshot
from papers.vit import vit_part4_pictures as pictures
from papers.vit import vit_part4_scratch as scratch
from papers.vit import vit_part4_tables as tables
from shared import cli, process, published

SECONDS = 60
# what has one reading is taken, and said: the input's name, and what has to stand on the screen
TAKEN = {
    "a link to nothing": "ignored: 1 dangling link, e.g. cat/bad.png",
    "a pipe": "ignored: 1 not a regular file, e.g. cat/bad.png",
    "parquet: label -1": "2 classes: -1 20, 1 20",
    "parquet: label 2^62": "2 classes: 1 20, 4611686018427387904 20",
    "parquet: lists as labels": "2 classes: 1 20, 2 20",
}
SIZES = ["--test", "2", "--pool", "4", "--selection", "2", "--shots", "1", "--protocol", "article", "--draws", "1"]
Input = tuple[str, str, Callable[[Path], list[Any]]]  # kind, name, what makes it: [main, Config, arguments ...]
PNG = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR%b\x08\x02\x00\x00\x00%b\x00\x00\x00\x0cIDATx\x9cc\xf8\xcf\xc0\x00\x00"
    b"\x03\x01\x01\x00\xc9\xfe\x92\xef\x00\x00\x00\x00IEND\xaeB`\x82"
)


def write(path: Path, content: bytes | str | Any) -> Path:
    """`path` with the bytes or the text, or anything else as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(content, bytes | str):
        content = json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# images --------------------------------------------------------------------------------------------------------------


def image(size: int = 8, form: str = "PNG", number: int = 0) -> bytes:
    """A plain one, of another colour for each number."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (size, size), (number, 66, 102)).save(buffer, form)
    return buffer.getvalue()


def image_folder(folder: Path, spoil: Callable[[Path], object]) -> list[Any]:
    """Two classes of twelve images; `spoil` gets the path of one more."""
    for start, name in ((0, "cat"), (100, "dog")):
        for i in range(12):
            write(folder / "images" / name / f"{i:02d}.png", image(number=start + i))
    spoil(folder / "images" / "cat" / "bad")
    return [fewshot, "--models", model_folder(folder), "--data", str(folder / "images"), *SIZES]


def beside(suffix: str, content: bytes) -> Callable[[Path], object]:
    return lambda path: write(path.with_suffix(suffix), content)


def parquet(folder: Path, images: list, labels: Any, names: dict | None = None, spoil: int | None = None) -> list[Any]:
    """A mirror's data set of one file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"image": images, "label": labels} if labels is not None else {"image": images}
    content = io.BytesIO()
    pq.write_table(pa.table(names or columns), content)
    for split in ("train", "test"):
        write(folder / "mirror" / "me" / "set" / "data" / f"{split}-00000-of-00001.parquet", content.getvalue()[:spoil])
    return [
        fewshot,
        "--models",
        model_folder(folder),
        "--data",
        "me/set",
        "--data-root",
        str(folder / "mirror"),
        *SIZES,
    ]


def cells(count: int = 40) -> list[dict]:
    return [{"bytes": image(number=i), "path": f"{i}.png"} for i in range(count)]


def images() -> Iterator[Input]:
    def odd(path: Path, make: Callable[[Path], object]) -> None:
        make(path.with_suffix(".png"))

    def huge(path: Path) -> None:
        import struct
        import zlib

        head = struct.pack(">II", 100_000, 100_000)
        crc = struct.pack(">I", zlib.crc32(b"IHDR" + head + b"\x08\x02\x00\x00\x00"))
        write(path.with_suffix(".png"), PNG.replace(b"%b", head, 1).replace(b"%b", crc, 1))

    jpeg = image(64, "JPEG")
    spoils: dict[str, Callable[[Path], object]] = {
        "an empty file": beside(".png", b""),
        "a JPEG cut in half": beside(".jpg", jpeg[: len(jpeg) // 2]),
        "text called .jpg": beside(".jpg", b"hello"),
        "a web page called .png": beside(".png", b"<!doctype html><html>404</html>"),
        "EPS called .jpg": beside(".jpg", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n"),
        "PNG of 100,000 x 100,000": huge,
        "a link to nothing": lambda path: odd(path, lambda p: p.symlink_to(p.with_name("nothing"))),
        "a link to itself": lambda path: odd(path, lambda p: p.symlink_to(p)),
        "a pipe": lambda path: odd(path, os.mkfifo),
    }
    for name, spoil in spoils.items():
        yield "images", name, lambda folder, spoil=spoil: image_folder(folder, spoil)

    def without(*names: str) -> Callable[[Path], object]:
        return lambda path: [shutil.rmtree(path.parent.parent / name) for name in names]

    yield "images", "one class only", lambda f: image_folder(f, without("dog"))
    yield "images", "no class at all", lambda f: image_folder(f, without("cat", "dog"))
    half = [0, 1] * 20
    yield "images", "a parquet file cut short", lambda f: parquet(f, cells(), half, spoil=500)
    yield "images", "parquet: rows without bytes", lambda f: parquet(f, [{"bytes": None, "path": "x"}] * 40, half)
    yield "images", "parquet: bytes that are no image", lambda f: parquet(f, [{"bytes": b"x", "path": "x"}] * 40, half)
    yield "images", "parquet: label -1", lambda f: parquet(f, cells(), [-1, 1] * 20)
    yield "images", "parquet: label 2^62", lambda f: parquet(f, cells(), [2**62, 1] * 20)
    yield "images", "parquet: a label that is null", lambda f: parquet(f, cells(), [None, 1] * 20)
    yield "images", "parquet: texts and a null as labels", lambda f: parquet(f, cells(), [None, "a"] * 20)
    yield "images", "parquet: fractions as labels", lambda f: parquet(f, cells(), [0.5, 1.0] * 20)
    yield "images", "parquet: lists as labels", lambda f: parquet(f, cells(), [[1], [2]] * 20)
    yield "images", "parquet: no label column", lambda f: parquet(f, cells(), None)
    yield "images", "parquet: no image column", lambda f: parquet(f, [], None, names={"a": [1], "label": [1]})


# checkpoints ---------------------------------------------------------------------------------------------------------


def model_folder(folder: Path, change: Callable[[Path], object] = lambda path: None) -> str:
    """A small random ViT in hub layout, changed."""
    path = folder / "model"
    if not path.exists():
        from robustness import model

        model(folder)
    change(path)
    return str(path)


def with_settings(**changes: Any) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        own = json.loads((path / "config.json").read_text(encoding="utf-8"))
        write(path / "config.json", own | changes)

    return change


def with_weights(change: Callable[[dict], dict | None]) -> Callable[[Path], object]:
    def changed(path: Path) -> None:
        from safetensors.torch import load_file, save_file

        state = load_file(path / "model.safetensors")
        save_file(change(state) or state, path / "model.safetensors")

    return changed


def checkpoints() -> Iterator[Input]:
    def instead(name: str, content: Any) -> Callable[[Path], object]:
        return lambda path: write(path / name, content)

    def pickled(path: Path) -> None:
        import torch

        (path / "model.safetensors").unlink()
        torch.save({"a": Path("x")}, path / "pytorch_model.bin")  # a class that no weights need

    def indexed(content: Any) -> Callable[[Path], object]:
        def change(path: Path) -> None:
            (path / "model.safetensors").unlink()
            write(path / "model.safetensors.index.json", content)

        return change

    def cut(path: Path) -> None:
        os.truncate(path / "model.safetensors", 1000)

    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 346293852\n"
    deep = "[" * 100_000
    changes = {
        "config.json is no JSON": instead("config.json", b"{"),
        "config.json is a list": instead("config.json", []),
        "config.json nested 100,000 deep": instead("config.json", f'{{"a": {deep}'),
        "an architecture that is not known": with_settings(model_type="perceptron"),
        "model_type is a number": with_settings(model_type=7),
        "hidden_size -1": with_settings(hidden_size=-1),
        "hidden_size is a text": with_settings(hidden_size="wide"),
        "10,000,000 layers": with_settings(num_hidden_layers=10_000_000),
        "fewer layers than weights": with_settings(num_hidden_layers=1),
        "more layers than weights": with_settings(num_hidden_layers=3),
        "weights of another width": with_settings(hidden_size=64),
        "image_mean is a text": instead("preprocessor_config.json", {"image_mean": "grey"}),
        "weights cut short": cut,
        "a git-lfs pointer for weights": instead("model.safetensors", pointer),
        "weights that are NaN": with_weights(lambda state: {key: value * float("nan") for key, value in state.items()}),
        "a pickle with a class in it": pickled,
        "an index that leads out of the folder": indexed({"weight_map": {"a": "../../x.safetensors"}}),
        "an index of a shard that is not there": indexed({"weight_map": {"a": "x.safetensors"}}),
        "an index that is a list": indexed([]),
    }
    for name, change in changes.items():
        yield "checkpoints", name, lambda f, c=change: [fewshot, "--models", model_folder(f, c), "--data", "digits"]


# graphs, configurations, results, published files --------------------------------------------------------------------


def graphs() -> Iterator[Input]:
    def graph(**changes: Any) -> dict:
        nodes = [{"id": "a", "type": "input", "params": {}}, {"id": "b", "type": "linear", "params": {}}]
        return {"id": "g", "components": nodes, "connections": [{"from": "a", "to": "b"}]} | changes

    contents = {
        "no JSON": "graph",
        "a list": [],
        "no nodes": graph(components=[]),
        "two nodes of one id": graph(components=[{"id": "a", "type": "input"}] * 2),
        "a node without a type": graph(components=[{"id": "a"}]),
        "a connection to nowhere": graph(connections=[{"from": "a", "to": "z"}]),
        "a circle": graph(connections=[{"from": "a", "to": "b"}, {"from": "b", "to": "a"}]),
        "sizes of 10^30": graph(components=[{"id": "a", "type": "input", "params": {}, "inputShape": [10**30]}]),
        "nested 100,000 deep": '{"components": ' + "[" * 100_000,
        "NaN for a size": json.dumps(graph(components=[{"id": "a", "type": "input", "inputShape": [float("nan")]}])),
    }
    for name, content in contents.items():
        yield "graphs", name, lambda f, c=content: [compare, str(write(f / "g.json", c)), "graph:gpt2"]


def configurations() -> Iterator[Input]:
    contents = {
        "an unknown key": "shotz = [1]",
        "a text for a number": 'seed = "one"',
        "no TOML": "seed = ",
        "not UTF-8": b"seed = '\xff'",
        "nested 100,000 deep": "seed = " + "[" * 100_000,
        "an integer of 5,000 digits": "seed = " + "9" * 5000,
    }
    for name, content in contents.items():
        yield "configurations", name, lambda f, c=content: [fewshot, "--config", str(write(f / "c.toml", c))]
    yield "configurations", "a folder", lambda f: [fewshot, "--config", str(f)]
    yield "configurations", "a name of 5,000 letters", lambda f: [fewshot, "--config", "c" * 5000]


TINY = ["--data", "digits", "--image-size", "8", "--sizes", "20", "--steps", "2", "--warmup", "0", "--every", "1"]
TINY += ["--models", "ViT", "--validation", "50", "--batch", "8", "--no-estimate", "--threads", "1"]


def results() -> Iterator[Input]:
    def trained(folder: Path, name: str, content: bytes) -> list[Any]:
        write(folder / "results" / "vit" / "scratch" / name, content)
        return [scratch, *TINY]

    yield "results", "a curve that is no JSON", lambda f: trained(f, "ViT-20-seed0.json", b"{")
    yield "results", "a curve without its keys", lambda f: trained(f, "ViT-20-seed0.json", b'{"schema": 1}')
    changed = b'{"schema": 1, "checksum": "0"}'
    yield "results", "a curve whose bytes changed", lambda f: trained(f, "ViT-20-seed0.json", changed)
    yield "results", "a note whose bytes changed", lambda f: trained(f, "ViT-20-seed0.machine.json", changed)
    yield "results", "a damaged checkpoint", lambda f: trained(f, "checkpoints/ViT-20-seed0.ckpt", b"scratch1" * 99)
    yield "results", "a damaged note of the machine", lambda f: trained(f, "ViT-20-seed0.machine.json", b"[]")
    for name, content in {
        "a result that is no JSON": "{",
        "a result of another schema": {"schema": 99},
        "a result without its keys": {"schema": 1},
        "a result whose bytes changed": {"schema": 1, "checksum": "0"},
        "a result that is a list": [],
        "a result nested 100,000 deep": "[" * 100_000,
    }.items():
        path = Path("results") / "vit" / "fewshot.json"
        yield "results", name, lambda f, c=content, p=path: write(f / p, c) and [pictures]
    yield "results", "a file for the folder", lambda f: write(f / "results", "x") and [tables]


def published_files() -> Iterator[Input]:
    def changed(change: Callable[[dict], Any]) -> Callable[[Path], list[Any]]:
        def make(folder: Path) -> list[Any]:
            copy = folder / "papers" / "vit" / "published"
            shutil.copytree(ROOT / "papers" / "vit" / "published", copy)
            own = json.loads((copy / "table5.json").read_text(encoding="utf-8"))
            new = change(own)
            write(copy / "table5.json", own if new is None else new)
            published.ROOT = folder
            return [tables]

        return make

    def first(own: dict) -> list:
        return next(iter(own["rows"].values()))

    yield "published files", "no JSON", changed(lambda own: "{")
    yield "published files", "a list", changed(lambda own: [])
    yield "published files", "a row with a cell too few", changed(lambda own: first(own).pop() and None)
    yield "published files", "a number for a printed text", changed(lambda own: first(own).__setitem__(0, 5))
    yield "published files", "a deviation without a number", changed(lambda own: first(own).__setitem__(0, "9 ± x"))
    yield "published files", "an unknown key", changed(lambda own: own | {"colour": "red"})
    yield "published files", "a column twice", changed(lambda own: own | {"columns": own["columns"][:1] * 9})
    yield "published files", "another paper's", changed(lambda own: own | {"paper": "resnet"})


def tried(make: Callable[[Path], list[Any]], folder: Path) -> tuple[int | str, str]:
    """(exit code, what was said on stderr) of one input."""

    def too_long(*_: object) -> None:
        raise BaseExceptionGroup("no answer in a minute", [TimeoutError()])

    said = io.StringIO()
    published.ROOT = ROOT
    os.environ |= {"PAPERS_RESULTS": str(folder / "results"), "PAPERS_CACHE": str(folder / "cache")}
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    try:
        script, *arguments = make(folder)
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            if script is compare:
                compare.main([*arguments, "--results", str(folder / "results")])
            else:
                cli.run(script.main, script.Config, arguments)
        code: int | str = "it was taken"
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        code = f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return code, said.getvalue()


def main() -> None:
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    process.set_up = lambda: None  # this process is no script
    os.environ |= {"HF_HUB_OFFLINE": "1"}
    os.environ.pop("PAPERS_DATA", None)
    found = []
    for kinds in (images, checkpoints, graphs, configurations, results, published_files):
        for kind, name, make in kinds():
            with tempfile.TemporaryDirectory(prefix="bad-input-") as folder:
                code, said = tried(make, Path(folder))
                lines = [line for line in said.splitlines() if line.startswith("error: ")]
                fine = code == 2 and len(lines) == 1 and "Traceback" not in said
                says = " ".join([*lines, "" if code == 2 else f"[{code}]"]).replace(folder, "...").strip()
                if code == 0 and name in TAKEN:
                    fine, says = TAKEN[name] in said, f"taken: {TAKEN[name]}"
                found.append({"kind": kind, "name": name, "fine": fine, "says": says})
                print("." if fine else f"\n{kind}: {name}: {says or said[-500:]}", end="", file=sys.stderr, flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
