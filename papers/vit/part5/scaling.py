"""Appendix D.5 and D.6 by counting: how cost grows with the image, and what axial attention costs."""

from __future__ import annotations

import math
from itertools import pairwise

from papers.vit.part5.architectures import counted
from papers.vit.part5.claims import Finding
from papers.vit.part5.compute import DIGITS
from shared.record import Record

SMALLEST, LARGEST = 64, 512  # pixels a side
RESNETS = {"ResNet50x1": 32, "ResNet152x2": 32}  # each halves the side five times
VITS = {"ViT-B/32": 32, "ViT-L/32": 32, "ViT-B/16": 16, "ViT-L/16": 16, "ViT-H/14": 14}
LIMIT = 4.0  # the exponent of the products of attention alone; all else has 2

Curve = list[tuple[int, int]]  # (pixels a side, multiply-adds), by rising size


def curves() -> dict[str, Curve]:
    """Every size between the two ends that divides into patches."""
    found = {}
    for name, step in (VITS | RESNETS).items():
        sizes = range(-(-SMALLEST // step) * step, LARGEST + 1, step)
        found[name] = [(size, counted(name, size).macs) for size in sizes]
    return found


def exponents(curve: Curve) -> list[tuple[float, float]]:
    """(geometric middle of two neighbouring sizes, exponent of the side between them)."""
    return [
        (round(math.sqrt(s0 * s1), DIGITS), round(math.log(c1 / c0) / math.log(s1 / s0), DIGITS))
        for (s0, c0), (s1, c1) in pairwise(curve)
    ]


def image_size(record: Record, found: dict[str, Curve]) -> Finding:
    """D.5-a: the exponents at both ends, and who has the largest."""
    record.section("Appendix D.5: how multiply-adds grow with the image's side")
    record.say(
        "  local exponent between neighbouring sizes that divide into patches: 2 where cost follows the pixels, 4 "
        "where attention's products decide"
    )
    cells, last = [], {}
    for name, curve in found.items():
        ends = exponents(curve)
        last[name] = ends[-1][1]
        (s0, c0), (s1, c1) = curve[0], curve[-1]
        cells.append([name, s0, f"{c0 / 1e9:.2f}", s1, f"{c1 / 1e9:.1f}", f"{ends[0][1]:.2f}", f"{last[name]:.2f}"])
    columns = ["model", "from, px", "multiply-adds", "to, px", "then", "exponent at first", "at the end"]
    record.say_table("Multiply-adds (10^9) against the image's side", columns, cells)
    record.results["image_size"] = {name: exponents(curve) for name, curve in found.items()}
    vits = {name: last[name] for name in VITS}
    begins = max(vits.values()) < (2 + LIMIT) / 2  # nearer to 2 than to 4 everywhere
    top = max(vits, key=vits.get)
    largest = list(VITS)[-1]
    numbers = ", ".join(f"{name} {value:.2f}" for name, value in vits.items())
    verdict = "holds" if begins else "does not hold: the fourth power is near"
    if top != largest:
        verdict += f' without "the largest models": {top} is ahead of {largest}'
    return Finding(verdict, f"exponents at the largest size, between 2 and 4: {numbers}")


def axial(record: Record) -> Finding:
    """D.6-a: the half that can be counted."""
    record.section("Appendix D.6: what axial attention costs")
    cells, ratios = [], []
    for name in ("ViT-B/32", "ViT-B/16"):
        plain, other = counted(name), counted(f"Axial-{name}")
        ratios.append(other.macs / plain.macs)
        millions = [f"{model.parameters / 1e6:.1f}" for model in (plain, other)]
        billions = [f"{model.macs / 1e9:.2f}" for model in (plain, other)]
        cells.append([name, *billions, f"{ratios[-1]:.2f}", *millions])
    columns = ["model", "10^9 multiply-adds", "axial, 10^9", "times", "parameters, million", "axial, million"]
    record.say_table("Axial attention, counted at 224 px", columns, cells)
    record.results["axial"] = ratios
    more = "the cost: " + " and ".join(f"{ratio:.2f} times" for ratio in ratios) + " the multiply-adds"
    word = "holds for the cost" if min(ratios) > 1 else "does not hold for the cost"
    return Finding(f"{word}, not measurable here for the accuracy", more)
