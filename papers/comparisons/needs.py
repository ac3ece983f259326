"""What a person asks of one model: how large it is, how much work, which GPU holds it, what a training run costs."""

from __future__ import annotations

from dataclasses import replace

from shared.graph.cost import Assumptions, Fit, dollars, fits, gigabytes, memory, short, train_cost
from shared.graph.measure import Layer, Model
from shared.graph.place import text

TYPES = {8: "float64", 4: "float32", 2: "float16", 1: "int8"}  # by bytes of a value


def needs(model: Model, assumed: Assumptions, gpus: list[Fit]) -> dict[str, str]:
    """The answers in words, what is asked first standing first. gpus: `fits(model, assumed)`."""
    need, batch = memory(model, assumed), f"at batch {assumed.batch:,}"
    types = _types(assumed.value_bytes)
    first = next(iter(types))
    at_least = "" if model.memory_known else "at least "
    sizes = ", ".join(f"{gigabytes(model.parameters * size)} in {name}" for name, size in types.items())
    cells = {
        "Parameters": _total(model, "parameters"),
        "MACs": _total(model, "macs"),
        "Input": shapes(model.inputs),
        "Weights": ("at least " if model.unknown("parameters") else "") + sizes,
        "Training memory": f"{at_least}{gigabytes(need.training)} {batch} in {first}",
        "Inference memory": f"{at_least}{gigabytes(need.inference)} {batch} in {first}",
    }
    lower = [fits(model, replace(assumed, value_bytes=size)) for size in list(types.values())[1:]]
    for at, fit in enumerate(gpus):
        cells[f"{fit.gpu}, training"] = _fit(fit, f"{batch} in {first}")
        batches = [fit.largest_inference_batch, *(other[at].largest_inference_batch for other in lower)]
        words = ", ".join(f"{_batch(most)} in {name}" for name, most in zip(types, batches, strict=True))
        cells[f"{fit.gpu}, inference"] = f"{'unknown, at most ' if at_least else ''}batch up to {words}"
    cost = dollars(train_cost(model, assumed).dollars)
    return cells | {
        "Est. train cost": ("at least " if model.unknown("macs") else "") + cost,
        "Output": shapes(model.outputs),
        "Forward-passes": model.forward,
        "Layers": str(len(model.body)),
    }


def shapes(layers: list[Layer]) -> str:
    return " and ".join(text(layer.output) for layer in layers) or "none"


def _types(value_bytes: int) -> dict[str, int]:
    """Number types by their bytes: the assumed one, and half of it, which is what inference mostly runs in."""
    sizes = [value_bytes, value_bytes // 2] if value_bytes in (8, 4, 2) else [value_bytes]
    return {TYPES.get(size, f"{size} bytes a value"): size for size in sizes}


def _total(model: Model, count: str) -> str:
    unknown, total = model.unknown(count), model.total(count)
    if unknown:
        return f"at least {short(total)} ({len(unknown)} {'layer' if len(unknown) == 1 else 'layers'} unknown)"
    return f"{short(total)} ({total:,})"


def _fit(fit: Fit, where: str) -> str:
    if fit.fits is None:
        return "unknown: a layer's memory is not known"
    words = f"{'fits' if fit.fits else 'does not fit'} {where}"
    if fit.largest_batch is None or (not fit.fits and not fit.largest_batch):
        return words
    return f"{words} (up to {fit.largest_batch:,})"


def _batch(most: int | None) -> str:
    return "any size" if most is None else f"{most:,}"
