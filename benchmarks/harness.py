"""What the benchmarks share: alternating rounds, ratios, the machine, result files, random encoders.

Importing it puts this checkout's code first, before an installed one. A ratio is taken within a round, because both of
its sides then met the same other work on the machine.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, TypeVar

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))
T = TypeVar("T")

from shared.paths import atomic_write  # noqa: E402
from shared.provenance import machine  # noqa: E402


def seconds(work: Callable[..., object], prepare: Callable[[], Any] | None = None) -> float:
    """How long `work(prepare())` takes, or `work()`; `prepare` is not timed."""
    prepared = () if prepare is None else (prepare(),)
    start = time.perf_counter()
    work(*prepared)
    return time.perf_counter() - start


def alternate(ways: Mapping[str, Callable[[], float]], rounds: int, *, quiet: bool = False) -> dict[str, list[float]]:
    """What each way measured in each round; every round does all ways, one after the other.

    One more round, before the first, does not count: kernels are chosen and memory is touched in it.
    """
    measured: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            measured[name].append(way())
        if number and not quiet:
            line = "  ".join(f"{name} {values[-1]:.4g}" for name, values in measured.items())
            print(f"round {number}: {line}", file=sys.stderr, flush=True)
    return {name: values[1:] for name, values in measured.items()}


def medians(measured: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in measured.items()}


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Round by round."""
    return [a / b for a, b in zip(above, below, strict=True)]


def show(value: Mapping[str, float], digits: int) -> str:
    """A `spread` as `median (smallest to largest)`."""
    return f"{value['median']:.{digits}f} ({value['min']:.{digits}f} to {value['max']:.{digits}f})"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines of a Markdown table."""
    lines = ["|" + "".join(f" {cell} |" if cell != "" else " |" for cell in row) for row in [columns, *rows]]
    return [lines[0], "|" + "---|" * len(columns), *lines[1:]]


def here() -> dict[str, Any]:
    """Where and when: goes into every result. `instructions` are those that matrix products are fast with."""
    names = {"amx_bf16": "AMX", "avx512f": "AVX512", "avx2": "AVX2"}
    try:
        flags = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("flags")[2].partition("\n")[0].split())
    except OSError:
        flags = set()
    processor = machine() | {"instructions": [name for flag, name in names.items() if flag in flags]}
    return {"machine": processor, "load": os.getloadavg()[0], "date": time.strftime("%Y-%m-%d %H:%M")}


def machine_line(of: Mapping[str, Any]) -> str:
    """`AMD EPYC 7282, 2 cores, AVX2`."""
    return ", ".join([of["processor"], f"{of['cores']} cores", *of.get("instructions", [])])


class Results(dict):
    """The numbers of one benchmark: `<name>.json` beside it, and `<name>.md` where `report` writes one from them."""

    def __init__(self, name: str, report: Callable[[dict], list[str]] | None = None, **empty: Any):
        self.file, self.report = HERE / f"{name}.json", report
        super().__init__(json.loads(self.file.read_bytes()) if self.file.exists() else empty)

    def write(self) -> None:
        atomic_write(self.file, json.dumps(self, indent=1) + "\n")
        if self.report:
            atomic_write(self.file.with_suffix(".md"), "\n".join(self.report(self)).rstrip() + "\n")


def process(*command: str, **environment: str) -> dict:
    """The JSON object that `python command` prints, run in a process of its own. SystemExit if it fails."""
    own = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    done = subprocess.run([sys.executable, *command], env=own, stdout=subprocess.PIPE, encoding="utf-8", timeout=900)
    if done.returncode:
        raise SystemExit(f"{Path(command[0]).name}: its process ended with code {done.returncode}, see above")
    return json.loads(done.stdout)


def apart(work: Callable[..., T], *arguments: object) -> T:
    """`work(*arguments)` in a new process, whose memory is its own. SystemExit if it dies."""
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return pool.submit(work, *arguments).result()
    except BrokenProcessPool:
        raise SystemExit(f"{work.__name__}{arguments}: its process died, see above") from None


# The article's seven encoders: transformers' model class, what differs from its defaults, number of features. The ViTs
# are Table 1 of the paper; the defaults of BiT and ResNet are R50x1 and ResNet-50.
SIZES = {"B": (768, 12, 12, 3072), "L": (1024, 24, 16, 4096), "H": (1280, 32, 16, 5120)}
PARTS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
ENCODERS: dict[str, tuple[str, dict[str, Any], int]] = {
    f"ViT-{size}/{patch}": ("ViT", dict(zip(PARTS, SIZES[size], strict=True)) | {"patch_size": patch}, SIZES[size][0])
    for size, patch in (("B", 32), ("B", 16), ("L", 32), ("L", 16), ("H", 14))
}
ENCODERS |= {"BiT R50x1": ("Bit", {"global_padding": "SAME"}, 2048), "ResNet-50": ("ResNet", {}, 2048)}
HALF = {"size": 224, "resample": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
PROCESSORS = {"ViT": HALF, "Bit": HALF, "ResNet": {"size": 224, "crop_pct": 0.875, "resample": 3, **IMAGENET}}


def random_checkpoint(name: str, folder: Path) -> str:
    """`folder` as the hub would hold the encoder `name` (float32), weights as transformers starts them; its path.

    The hub is out of reach where the benchmarks run; speed, memory and shapes do not depend on the weights.
    """
    import torch
    import transformers

    kind, settings, _ = ENCODERS[name]
    torch.manual_seed(0)
    transformers.AutoModel.from_config(getattr(transformers, f"{kind}Config")(**settings)).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSORS[kind]), encoding="utf-8")
    return str(folder)
