"""What a model needs: memory for training and inference, which GPUs hold it, and what a training run costs.

All of it is arithmetic on the measured model under `Assumptions`; every one of them can be printed and overridden.
Units: bytes, seconds, dollars; GB and TFLOPS are decimal (10^9 bytes, 10^12 operations per second).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import prod
from typing import Any

import msgspec

from shared.errors import UserError
from shared.graph.measure import Model

LARGEST, SMALLEST = 1e12, 1e-9  # of any assumption: everything that follows is still a finite number
MAY_BE_ZERO = ("step_overhead_s", "startup_s", "reserved_gb", "idle_floor")


def _assumed(default: Any, words: str) -> Any:
    """A field with the words that a help text and a report print."""
    return field(default=default, metadata={"help": words, "group": "protocol"})


@dataclass
class Assumptions:
    """What is assumed of the training run and its machine. The defaults are one NVIDIA A10G at 35 % of its peak."""

    price_hour: float = _assumed(1.10, "dollars per hour for one GPU")
    tflops: float = _assumed(70.0, "peak of the GPU, 10^12 operations per second")
    utilisation: float = _assumed(0.35, "share of the GPU's peak that training reaches (0.35: 35 %)")
    bandwidth_gb: float = _assumed(600.0, "memory bandwidth, 10^9 bytes per second")
    bandwidth_share: float = _assumed(0.8, "share of the memory bandwidth that training reaches")
    samples: int = _assumed(50_000, "training samples per epoch")
    epochs: int = _assumed(10, "epochs of training")
    batch: int = _assumed(32, "samples per step")
    step_overhead_s: float = _assumed(0.005, "further seconds per step, for everything but arithmetic and memory")
    startup_s: float = _assumed(60.0, "seconds before the first step of a training run")
    value_bytes: int = _assumed(4, "bytes per stored number: weight, gradient, each of Adam's two moments, activation")
    traffic_bytes: int = _assumed(
        32, "bytes that a step moves per parameter: Adam reads and writes four values of 4 bytes"
    )
    reserved_gb: float = _assumed(0.5, "GB of the GPU that are taken before a model is on it")
    factor: float = _assumed(1.0, "the training memory is multiplied by this, to be on the safe side")
    idle_floor: bool = _assumed(False, "count at least as many multiply-accumulates as the model has parameters")

    def __post_init__(self) -> None:
        for one in fields(Assumptions):  # a command's configuration has further fields
            value, name = getattr(self, one.name), one.name.replace("_", "-")
            if value > LARGEST:
                raise UserError(f"{name} must be at most 10^12, got {str(value)[:20]}")
            if not value >= 0:  # also what is no number
                raise UserError(f"{name} must not be negative, got {value}")
            if value < SMALLEST and one.name not in MAY_BE_ZERO:
                raise UserError(f"{name} must be above 0 (at least 10^-9), got {value}")
        if self.utilisation > 1 or self.bandwidth_share > 1:
            raise UserError("utilisation and bandwidth-share are shares: at most 1")


GPUS = {"T4 16GB": 16, "A100 40GB": 40, "H100 80GB": 80}  # decimal GB
# further ones that may be named; their makers' figures
NAMED = {
    "A10 24GB": 24, "A10G 24GB": 24, "A100 80GB": 80, "A40 48GB": 48, "A6000 48GB": 48, "B200 180GB": 180,
    "H100 NVL 94GB": 94, "H200 141GB": 141, "L4 24GB": 24, "L40S 48GB": 48, "MI210 64GB": 64, "MI250X 128GB": 128,
    "MI300X 192GB": 192, "P100 16GB": 16, "RTX 2080 Ti 11GB": 11, "RTX 3060 12GB": 12, "RTX 3080 10GB": 10,
    "RTX 3090 24GB": 24, "RTX 4060 8GB": 8, "RTX 4070 12GB": 12, "RTX 4080 16GB": 16, "RTX 4090 24GB": 24,
    "RTX 5080 16GB": 16, "RTX 5090 32GB": 32, "V100 16GB": 16, "V100 32GB": 32,
}  # fmt: skip


def gpu(text: str) -> tuple[str, float]:
    """Name and decimal GB of the GPU that `text` means: a name, the beginning of one (`T4`, `rtx4090`), or a memory
    (`24GB`). Raises UserError with the names."""

    def plain(name: str) -> str:
        return "".join(c for c in name.lower() if c.isalnum()).removeprefix("nvidia").removeprefix("geforce")

    known, wanted = GPUS | NAMED, plain(text)
    size = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:gb)?\s*", text, re.IGNORECASE | re.ASCII)
    if size and 0 < float(size[1]) <= 1e6:
        return f"{float(size[1]):g} GB", float(size[1])
    # the three that are always told go first (`a100` is the A100 40GB), a whole name before the beginning of one
    for names in (GPUS, known):
        whole = [name for name in names if plain(name.rpartition(" ")[0]) == wanted]
        found = [name for name in names if wanted and plain(name).startswith(wanted)]
        for some in (whole, found):
            if len(some) == 1:
                return some[0], known[some[0]]
    hint = f"could be {', '.join(found[:8])}" if found else f"expected a memory such as 24GB, or {', '.join(known)}"
    raise UserError(f"GPU {text[:60]!r}: {hint}")


@dataclass(frozen=True)
class Memory:
    """Bytes, by what they hold. `per_sample` is what one more sample in the batch keeps for its backward pass."""

    weights: int
    gradients: int
    adam: int
    activations: int
    per_sample: int
    training: float
    inference: int
    batch: int


def memory(model: Model, assumed: Assumptions, batch: int | None = None) -> Memory:
    """Memory at a batch size (default: the assumed one), one declared input a sample.

    Training holds weights, gradients, Adam's two moments and what every layer keeps, in full precision and without
    recomputation: of a graph each layer's output and the scores of attention, of a built model what autograd saves,
    with fused attention (`shared.graph.dryrun`; benchmarks/activations.md has its error). Inference holds the weights
    and the two largest neighbouring outputs. A convention may leave activations out.
    """
    batch = assumed.batch if batch is None else batch
    size = assumed.value_bytes
    weights = model.parameters * size
    kept = model.total("kept") if model.convention.activations_in_memory else 0
    outputs = [prod(layer.output or (0,)) for layer in model.layers if model.convention.activations_in_memory]
    widest = max((sum(outputs[i : i + 2]) for i in range(len(outputs))), default=0)
    return Memory(
        weights=weights,
        gradients=weights,
        adam=2 * weights,
        activations=batch * kept * size,
        per_sample=kept * size,
        training=(4 * weights + batch * kept * size) * assumed.factor,
        inference=weights + batch * widest * size,
        batch=batch,
    )


@dataclass(frozen=True)
class Fit:
    """Whether a GPU holds training at the assumed batch (None: not known, because some layer's memory is not), and the
    largest batches that it holds (None: any; an upper bound where some layer's memory is not known, and nothing at all
    where the model cannot run: `Model.total_is`)."""

    gpu: str
    memory_gb: float
    fits: bool | None
    largest_batch: int | None
    largest_inference_batch: int | None


def fits(model: Model, assumed: Assumptions, gpus: Mapping[str, float] = GPUS) -> list[Fit]:
    """One answer for each of `gpus` (decimal GB by name)."""
    found = []
    need = memory(model, assumed)
    for name, gigabytes in gpus.items():
        if model.total_is("memory") == "not known":
            found.append(Fit(name, gigabytes, None, None, None))
            continue
        free = (gigabytes - assumed.reserved_gb) * 1e9
        largest = _batch(free / assumed.factor - 4 * need.weights, need.per_sample)
        inference = _batch(free - need.weights, (need.inference - need.weights) // need.batch)
        holds = largest is None or largest >= assumed.batch
        found.append(Fit(name, gigabytes, None if holds and not model.memory_known else holds, largest, inference))
    return found


def _batch(room: float, per_sample: int) -> int | None:
    """The largest batch in `room` bytes; None where a sample takes nothing and the rest fits."""
    if room < 0:
        return 0
    return int(room // per_sample) if per_sample else None


class TrainCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A training run in seconds and dollars. A step takes as long as its arithmetic (`compute_s`) or as moving its
    numbers through memory (`traffic_s`), whichever is longer."""

    steps: int
    compute_s: float
    traffic_s: float
    step_s: float
    seconds: float
    dollars: float


def train_cost(model: Model, assumed: Assumptions) -> TrainCost:
    """Six operations a multiply-accumulate and sample (two forward, four backward), or moving the parameters and
    their optimiser state, whichever is longer; plus overheads."""
    operations = max(model.macs, model.parameters) if assumed.idle_floor else model.macs
    compute = 6 * assumed.batch * operations / (assumed.tflops * 1e12 * assumed.utilisation)
    traffic = assumed.traffic_bytes * model.parameters / (assumed.bandwidth_gb * 1e9 * assumed.bandwidth_share)
    step = assumed.step_overhead_s + max(compute, traffic)
    steps = -(-assumed.samples // assumed.batch) * assumed.epochs
    seconds = assumed.startup_s + steps * step
    return TrainCost(steps, compute, traffic, step, seconds, seconds / 3600 * assumed.price_hour)


# how numbers print ----------------------------------------------------------------------------------------------------


def short(count: float) -> str:
    """K, M, B, T, P, E with one decimal under 10 units and none above; under 1000 the number itself."""
    for unit, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(count) >= unit:
            return f"{count / unit:.1f}{letter}" if abs(count) / unit < 10 else f"{count / unit:.0f}{letter}"
    return f"{count:.0f}"


def rounded(count: int) -> int:
    """Downwards to two digits: a largest batch is no more exact than its model of memory."""
    unit = 10 ** max(0, len(str(count)) - 2)
    return count // unit * unit


def dollars(amount: float) -> str:
    """Three decimals under a dollar, two above."""
    return f"${amount:.3f}" if amount < 1 else f"${amount:,.2f}"


def gigabytes(count: float) -> str:
    """Decimal GB of a number of bytes."""
    size = count / 1e9
    return f"{size:.2f} GB" if size < 10 else f"{size:,.1f} GB"


def percent(change: float) -> str:
    return f"{change:+.1%}"
