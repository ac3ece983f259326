"""What training keeps of a sample: the comparison's count against the tensors that torch saves, on twelve networks.

    python benchmarks/activations.py                 a minute or two on a quiet core
    python benchmarks/activations.py --only vit-b16

Ours is a dry run without weights (`shared.graph.trace`). Torch's is a real forward pass in float32 on one sample, with
`torch.autograd.graph.saved_tensors_hooks`: each storage once, weights and buffers left out. Both in evaluation mode;
ours adds a byte a value for the mask of each dropout that training would have, so it may be larger, never smaller.
What this cannot show: training with other kernels (attention that keeps its scores, recomputation), or a GPU's own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import harness
import torch

from papers.comparisons.building import build
from papers.comparisons.models import BUILTINS
from shared import cli, specs
from shared.graph.trace import trace
from shared.paths import atomic_write
from shared.provenance import machine
from shared.record import aligned

NETWORKS = (
    "vit-b16", "bert-base", "gpt2", "t5-small", "resnet-50", "bit-r50x1", "efficientnet-lite0", "dinov2-s14",
    "timm:efficientnet_b0", "timm:convnext_tiny", "timm:swin_tiny_patch4_window7_224", "timm:mobilenetv3_large_100",
)  # fmt: skip


@dataclass
class Config:
    only: str = ""
    """names, with commas between them"""


def real(name: str) -> int:
    """Bytes that autograd keeps of one sample."""
    spec = specs.parse(name)
    how = BUILTINS[spec.name][1:] if spec.kind == "builtin" else None
    built = build(spec, how, None, None)
    inputs = next(iter(built.inputs))
    module = weighted(spec, how)
    held = {one.untyped_storage().data_ptr() for one in [*module.parameters(), *module.buffers()]}
    alive: list[Any] = []
    sizes: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in held:
            alive.append(storage)  # so that no other storage gets its address
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    given = {key: torch.rand(value.shape) if value.is_meta else value for key, value in inputs.items()}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        module(**given)
    return sum(sizes.values())


def weighted(spec: specs.Spec, how: tuple | None) -> torch.nn.Module:
    """The module with weights, all of them zero: what is kept does not depend on them."""
    module = build(spec, how, None, None).module.eval()
    with torch.no_grad():
        module.to_empty(device="cpu")
        for one in [*module.parameters(), *module.buffers()]:
            one.zero_()
    return module


def ours(name: str) -> int:
    spec = specs.parse(name)
    how = BUILTINS[spec.name][1:] if spec.kind == "builtin" else None
    built = build(spec, how, None, None)
    return 4 * trace(built.module, next(iter(built.inputs)), name, name).total("kept")


def main(config: Config) -> None:
    torch.set_num_threads(1)
    found = {}
    for name in config.only.split(",") if config.only else NETWORKS:
        found[name] = {"ours": ours(name), "torch": real(name)}
        one = found[name]
        print(f"{name}: {one['ours']:,} ours, {one['torch']:,} torch, {one['ours'] / one['torch']:.3f}", flush=True)
    if config.only:
        return
    ratios = [one["ours"] / one["torch"] for one in found.values()]
    summary = {"smallest": min(ratios), "largest": max(ratios), "networks": len(ratios)}
    result = {"machine": machine(), "torch": torch.__version__, "summary": summary, "networks": found}
    atomic_write(harness.HERE / "activations.json", json.dumps(result, indent=1) + "\n")
    rows = [
        [name, f"{one['ours']:,}", f"{one['torch']:,}", f"{one['ours'] / one['torch']:.3f}"]
        for name, one in found.items()
    ]
    lines = aligned(["network", "ours, bytes", "torch, bytes", "ratio"], rows, left=(0,))
    text = f"# What training keeps of a sample\n\n{(__doc__ or '').partition(chr(10) * 2)[2]}\n```\n"
    words = f"smallest ratio {min(ratios):.3f}, largest {max(ratios):.3f}"
    atomic_write(harness.HERE / "activations.md", text + "\n".join(lines) + f"\n```\n\n{words}\n")


if __name__ == "__main__":
    cli.run(main, Config)
