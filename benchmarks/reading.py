"""Images of a parquet file: read directly, or by way of `datasets`.

    PAPERS_DATA=<mirror> python benchmarks/reading.py            CIFAR-10's 50,000 training images: a minute

Each way in a process of its own, from the import to the last image's encoded bytes in blocks of 64 rows, as the suite
reads them. `datasets` writes its table into a cache folder first (`first`) and finds it there afterwards (`again`).
Every way has to give the same bytes. Results go to benchmarks/reading.json and reading.md.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import harness

from shared import cli

BLOCK = 64
WAYS = {"direct": "read directly", "first": "`datasets`, first time", "again": "`datasets`, again"}


@dataclass
class Config:
    rounds: int = 5
    way: str = ""
    """used by the benchmark itself: measure this one way and print it"""
    cache: str = ""
    """used by the benchmark itself: where `datasets` keeps its table"""


def direct() -> Callable[[range], list[bytes]]:
    from shared.sources import open_set

    rows = open_set("cifar10").load("train").rows
    return lambda block: rows.read(list(block))


def by_datasets(cache: str) -> Callable[[range], list[bytes]]:
    import datasets

    from shared import hub, parquet, paths
    from shared.sources import HUB_SETS

    known = HUB_SETS["cifar10"]
    place = hub.find(
        known.repository,
        lambda names, where: parquet.split_files(names, where, known.folder, "train"),
        kind="dataset",
        revision=known.revision,
        root=paths.data_root(),
    )
    datasets.disable_progress_bars()
    files = [str(file) for file in place.files]
    table = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=cache)
    rows = table.cast_column("img", datasets.Image(decode=False)).with_format("arrow")
    return lambda block: rows[block.start : block.stop].column("img").combine_chunks().field("bytes").to_pylist()


def one(config: Config) -> None:
    start = time.perf_counter()
    read = direct() if config.way == "direct" else by_datasets(config.cache)
    content, size = hashlib.sha256(), 0
    opened = time.perf_counter()
    blocks = [read(range(first, min(first + BLOCK, 50_000))) for first in range(0, 50_000, BLOCK)]
    done = time.perf_counter()
    for encoded in (image for block in blocks for image in block):
        content.update(encoded)
        size += len(encoded)
    written = sum(file.stat().st_size for file in Path(config.cache or "/nowhere").rglob("*.arrow"))
    times = {"seconds": done - start, "to open": opened - start}
    print(json.dumps(times | {"sha256": content.hexdigest(), "bytes": size, "written": written}))


def report(results: dict) -> list[str]:
    of, rows = results["machine"], []
    for way, words in WAYS.items():
        found = results["ways"][way]
        rows.append([words, *(harness.show(found[what], 2) for what in ("seconds", "to open")), found["written"]])
    return [
        "# Images of a parquet file: read directly, or by way of `datasets`",
        "",
        f"Measured by `python benchmarks/reading.py` on {harness.machine_line(of)}. CIFAR-10's 50,000 training",
        f"images as encoded bytes ({results['bytes'] / 1e6:.0f} MB), a process each; median (smallest to largest) of "
        f"{results['rounds']} interleaved rounds. Every way gives the same bytes.",
        "",
        *harness.table(["way", "seconds in all", "of these to open", "MB written to the disk"], rows),
    ]


def main(config: Config) -> None:
    if config.way:
        return one(config)
    results = harness.Results("reading", report)
    cache = tempfile.mkdtemp()
    found: dict[str, list[dict]] = {way: [] for way in WAYS}

    def measured(way: str) -> float:
        if way == "first":
            shutil.rmtree(cache)
        found[way].append(harness.process(__file__, "--way", way, *(["--cache", cache] if way != "direct" else [])))
        return found[way][-1]["seconds"]

    harness.alternate({way: lambda way=way: measured(way) for way in WAYS}, config.rounds)
    shutil.rmtree(cache, ignore_errors=True)
    if len({each["sha256"] for of_way in found.values() for each in of_way}) > 1:
        raise SystemExit("the ways give different bytes")
    ways = {
        way: {what: harness.spread([each[what] for each in of_way[1:]]) for what in ("seconds", "to open")}
        | {"written": round(of_way[-1]["written"] / 1e6)}
        for way, of_way in found.items()
    }
    results.update(harness.here() | {"rounds": config.rounds, "bytes": found["direct"][-1]["bytes"], "ways": ways})
    results.write()
    print("\n".join(report(results)))
    return None


if __name__ == "__main__":
    cli.run(main, Config)
