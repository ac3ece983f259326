"""What is fastest on a processor without bfloat16 units: precision, memory layout and compiling, by emulation.

    python benchmarks/processors.py                        12 minutes on two quiet cores
    python benchmarks/processors.py --rounds 1 --batch 4   a short look

Ways, for a ViT and a convolutional network, forward passes alone on random weights:

    float32, contiguous      the images channel after channel
    float32, channels last   the channel innermost
    float32, compiled        through torch.compile with frozen weights, in the better layout for the kind of network
    bfloat16                 in the better layout

A processor is a set of variables with which PyTorch and oneDNN leave instructions out; each has a process of its own.
What is left out costs nothing, so a row is marked as emulated: a real processor with AVX2 alone has other clocks and
caches, and only its ratios can be expected to be near. Results go to processors.json and processors.md.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import harness
from harness import medians, ratios, seconds, show, spread

from shared import cli

PROCESSORS = {
    "as it is": {},
    "AVX512 without bfloat16": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "ATEN_CPU_CAPABILITY": "avx512"},
    "AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
}
MODELS = {"ViT-B/16": "vit_base_patch16_224", "ResNet-50": "resnet50"}
REFERENCE = "float32, contiguous"


@dataclass
class Config:
    rounds: int = 3
    batch: int = 16
    """images a forward pass"""
    compile: bool = True
    """--no-compile: leave the compiled way out"""
    only: Literal["", "as it is", "AVX512 without bfloat16", "AVX2"] = ""
    """one processor; all if none is given"""
    here: bool = False
    """measure in this process and print JSON (what the command starts for each processor)"""


def measure(config: Config) -> dict:
    """images a second of every way, round by round, in this process."""
    import timm
    import torch

    from shared.device import choose
    from shared.models import fast

    found = {}
    for name, timm_name in MODELS.items():
        every = {}
        for way, dtype, layout in (
            (REFERENCE, torch.float32, torch.contiguous_format),
            ("float32, channels last", torch.float32, torch.channels_last),
            ("float32, compiled", torch.float32, None),
            ("bfloat16", torch.bfloat16, None),
        ):
            if way.endswith("compiled") and not config.compile:
                continue
            if layout is None:
                layout = torch.channels_last if name == "ResNet-50" else torch.contiguous_format
            model = timm.create_model(timm_name, num_classes=0).eval().requires_grad_(False)
            model = model.to(dtype=dtype, memory_format=layout)
            x = torch.randn(config.batch, 3, 224, 224).to(dtype=dtype, memory_format=layout)
            run = fast.compiled(model) if way.endswith("compiled") else model

            def rate(run=run, x=x) -> float:
                with torch.inference_mode():
                    return len(x) / seconds(lambda: run(x))

            every[way] = rate
        found[name] = harness.alternate(every, config.rounds, quiet=True)
    return {"chosen": choose("cpu").dtype_name, "images a second": found}


def main(config: Config) -> None:
    if config.here:
        print(json.dumps(measure(config)))
        return
    results = harness.Results("processors", report)
    own = [f"--rounds={config.rounds}", f"--batch={config.batch}", *["--no-compile"] * (not config.compile), "--here"]
    for name in [config.only] if config.only else PROCESSORS:
        print(f"{name}: {PROCESSORS[name] or 'nothing left out'}", file=sys.stderr, flush=True)
        measured = harness.process(str(Path(__file__)), *own, **PROCESSORS[name])
        settings = {key: value for key, value in asdict(config).items() if key in ("rounds", "batch")}
        results[name] = {"variables": PROCESSORS[name], **settings, **measured, **harness.here()}
        results.write()


def report(results: dict) -> list[str]:
    """benchmarks/processors.md"""
    lines = [
        "# Precision and memory layout on a processor without bfloat16 units",
        "",
        "Written by `python benchmarks/processors.py`; what the ways are: the script's docstring. Images a second,",
        "medians of interleaved rounds (smallest to largest); in brackets the ratio to `float32, contiguous` within a",
        "round.",
        "",
    ]
    for name, result in results.items():
        how = "emulated by " + ", ".join(f"{k}={v}" for k, v in result["variables"].items())
        machine = harness.machine_line(result["machine"])
        lines += [f"## {name}: {how if result['variables'] else 'nothing left out'}", ""]
        lines += [f"{machine}, load {result['load']:.1f}, batch {result['batch']}, {result['rounds']} rounds.", ""]
        rates = result["images a second"]
        ways = list(next(iter(rates.values())))
        rows = []
        for way in ways:
            cells = []
            for model in rates:
                ratio = spread(ratios(rates[model][way], rates[model][REFERENCE]))["median"]
                cells.append(f"{show(spread(rates[model][way]), 1)} [{ratio:.2f}x]")
            rows.append((way, *cells))
        lines += [*harness.table(["way", *rates], rows), ""]
        best = {model: max(medians(of), key=medians(of).get) for model, of in rates.items()}
        said = ", ".join(f"{way} for {model}" for model, way in best.items())
        lines += [f"Fastest: {said}. `device.choose()` takes {result['chosen']} there.", ""]
    return lines


if __name__ == "__main__":
    cli.run(main, Config)
