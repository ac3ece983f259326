"""What a person asks of one model: how large it is, how much work, which GPU holds it, what a training run costs."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from shared.graph.cost import Assumptions, Fit, dollars, fits, gigabytes, memory, rounded, short, train_cost
from shared.graph.language import language, training_bytes, weight_bytes
from shared.graph.measure import Layer, Model
from shared.graph.place import text

TYPES = {8: "float64", 4: "float32", 2: "float16", 1: "int8"}  # by bytes of a value


def needs(model: Model, assumed: Assumptions, gpus: list[Fit]) -> dict[str, str]:
    """The answers in words, what is asked first standing first. gpus: `fits(model, assumed)`."""
    need, batch = memory(model, assumed), f"at batch {assumed.batch:,}"
    types = _types(assumed.value_bytes)
    first = next(iter(types))
    sizes = ", ".join(f"{gigabytes(model.parameters * size)} in {name}" for name, size in types.items())
    cells = {"Parameters": _total(model, "parameters")}
    if model.built_as:
        cells["Built as"] = model.built_as
    cells |= {
        "MACs": _total(model, "macs"),
        "Input": shapes(model.inputs) if not model.not_run else "none: it was not run",
        "Weights": ("at least " if model.unknown("parameters") else "") + sizes,
        "Training memory": bounded(model, "memory", f"{gigabytes(need.training)} {batch} in {first}"),
        "Inference memory": bounded(model, "memory", f"{gigabytes(need.inference)} {batch} in {first}"),
    }
    chosen = {fit.gpu: fit.memory_gb for fit in gpus}
    lower = [fits(model, replace(assumed, value_bytes=size), chosen) for size in list(types.values())[1:]]
    for at, fit in enumerate(gpus):
        known = model.total_is("memory") != "not known"
        cells[f"{fit.gpu}, training"] = _fit(fit, f"{batch} in {first}") if known else bounded(model, "memory", "")
        batches = [fit.largest_inference_batch, *(other[at].largest_inference_batch for other in lower)]
        words = ", ".join(f"{_batch(most)} in {name}" for name, most in zip(types, batches, strict=True))
        standing = model.total_is("memory")
        cells[f"{fit.gpu}, inference"] = {
            "exact": f"batch up to {words}",
            "at least": f"unknown, at most batch up to {words}",
            "not known": "not known",
        }[standing]
    cost = dollars(train_cost(model, assumed).dollars)
    return cells | {
        "Est. train cost": bounded(model, "cost", cost),
        "Output": shapes(model.outputs),
        "Forward-passes": model.forward,
        "Layers": str(len(model.body)),
    }


def more(model: Model) -> dict[str, str]:
    """Further answers: weights in few bits, training by optimiser, and what is asked of language models."""
    at_least = "at least " if model.unknown("parameters") else ""
    stored = ", ".join(f"{gigabytes(size)} in {name}" for name, size in weight_bytes(model).items())
    cells = {"Weights, stored": at_least + stored}
    if model.stored and model.stored["bytes"]:
        how = ", ".join(filter(None, (model.stored["dtype"], model.stored["quantisation"])))
        cells["Weights, published"] = f"{at_least}{gigabytes(model.stored['bytes'])}, {how}"
    cells |= {
        f"To train by {name}": f"{at_least}{gigabytes(size)} before activations"
        for name, size in training_bytes(model).items()
    }
    asked = language(model)
    if asked is None:
        return cells
    if asked.active != asked.parameters:
        cells["Active parameters"] = f"{short(asked.active)} ({asked.active:,}) of a token"
    cells["Without embeddings"] = (
        f"{short(asked.parameters - asked.embedding)} ({asked.parameters - asked.embedding:,})"
    )
    for at, one in enumerate(asked.attention[:6]):
        cells["Attention" + f" {at + 1}" * (len(asked.attention) > 1)] = one.words
    if asked.caching and asked.length:
        token = sum(one.layers * one.cached for one in asked.caching)
        cache = asked.cache(asked.length)
        where = "; its attention is taken to be causal" if asked.assumed else ""
        cells["Cache of a token"] = f"{short(token)} numbers, {short(2 * token)}B in 16 bits{where}"
        size = gigabytes(2 * cache) if cache > 5e8 else f"{short(2 * cache)}B"
        cells["Cache of a sequence"] = f"{size} in 16 bits at {asked.length:,} tokens"
    return cells


def bounded(model: Model, what: str, words: str) -> str:
    """`words` of a total, as it stands to the truth."""
    standing = model.total_is(what)
    if standing == "not known":
        return "not known: it cannot run" if model.problems else "not known: it could not be run here"
    return f"at least {words}" if standing == "at least" else words


def shapes(layers: list[Layer]) -> str:
    return " and ".join(text(layer.output) for layer in layers) or "none"


def widest(model: Model) -> int:
    """Numbers in the two largest neighbouring outputs."""
    outputs = [prod(layer.output or (0,)) for layer in model.layers]
    return max((sum(outputs[at : at + 2]) for at in range(len(outputs))), default=0)


def _types(value_bytes: int) -> dict[str, int]:
    """Number types by their bytes: the assumed one, and half of it, which is what inference mostly runs in."""
    sizes = [value_bytes, value_bytes // 2] if value_bytes in (8, 4, 2) else [value_bytes]
    return {TYPES.get(size, f"{size} bytes per value"): size for size in sizes}


def _total(model: Model, count: str) -> str:
    unknown, total = model.unknown(count), model.total(count)
    standing = model.total_is(count)
    if standing == "not known":
        return bounded(model, count, "")
    if standing == "at least":
        return f"at least {short(total)} ({len(unknown)} {'layer' if len(unknown) == 1 else 'layers'} unknown)"
    return f"{short(total)} ({total:,})"


def _fit(fit: Fit, where: str) -> str:
    if fit.fits is None:
        return "unknown: a layer's memory is not known"
    words = f"{'fits' if fit.fits else 'does not fit'} {where}"
    if fit.largest_batch is None or (not fit.fits and not fit.largest_batch):
        return words
    return f"{words} (up to {rounded(fit.largest_batch):,})"


def _batch(most: int | None) -> str:
    return "any size" if most is None else f"{rounded(most):,}"
