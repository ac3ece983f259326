"""Is `wheel:vit-s14-saliency` the network in the wheel? onnxruntime evaluates the wheel's own graph; ours must agree.

    pip install onnxruntime onnx          # for this check only
    python benchmarks/onnx_check.py       # 20 s; writes benchmarks/onnx_check.json and the tests' reference

Expected: the largest difference over all tokens of all images about 7e-5 (numbers up to 13), over class tokens 2e-5.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib.metadata import version

import harness
import numpy as np
import torch

from shared import cli, models, paths
from shared.data import load_images
from shared.device import Choice
from shared.models import wheels

REFERENCE = harness.ROOT / "tests" / "shared" / "vit_s14_saliency_reference.json"
TOKENS = "/backbone/layernorm/Add_1_output_0"  # the graph's name for the output of the backbone's last norm


def gradient() -> np.ndarray:
    """uint8 [224, 224, 3]: an image that needs no file, no resizing and no random generator."""
    y, x = np.mgrid[:224, :224]
    return np.stack([x, y, (x * y // 224 + 40 * ((x // 28 + y // 28) % 2)) % 256], axis=2).astype(np.uint8)


@dataclass
class Config:
    pass


def main(config: Config) -> None:
    import onnx
    import onnxruntime

    data = wheels._member(wheels.WHEELS["vit-s14-saliency"])
    graph = onnx.load_model_from_string(data)
    graph.graph.output.append(onnx.helper.make_tensor_value_info(TOKENS, onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])

    encoder = models.load_encoder("wheel:vit-s14-saliency", Choice(torch.device("cpu"), torch.float32, "check"))
    pets = load_images("pets", "test").subset(list(range(0, 1000, 67)))
    x = encoder.prepare([gradient(), *pets.batch(range(len(pets)))])
    theirs = torch.from_numpy(session.run([TOKENS], {"input_image": x.numpy()})[0])
    with torch.inference_mode():
        ours = encoder.module.model(pixel_values=x).last_hidden_state
    cosine = torch.cosine_similarity(ours[:, 0].double(), theirs[:, 0].double())
    result = {
        "images": len(x),
        "tokens": list(theirs.shape),
        "largest number": float(theirs.abs().max()),
        "largest difference, all tokens": float((ours - theirs).abs().max()),
        "largest difference, class tokens": float((ours[:, 0] - theirs[:, 0]).abs().max()),
        "smallest cosine, class tokens": float(cosine.min()),
        "images_fingerprint": pets.fingerprint,
        "versions": {name: version(name) for name in ("onnxruntime", "onnx", "torch", "transformers")},
    }
    print(json.dumps(result, indent=1))
    file = harness.Results("onnx_check")
    file |= result
    file.write()
    reference = {
        "what": "class token of wheel:vit-s14-saliency on the image gradient(), by onnxruntime on the wheel's graph",
        "onnx_sha256": hashlib.sha256(data).hexdigest(),
        "image_sha256": hashlib.sha256(gradient().tobytes()).hexdigest(),
        "class_token": [round(float(value), 6) for value in theirs[0, 0]],
    }
    paths.atomic_write(REFERENCE, json.dumps(reference) + "\n")


if __name__ == "__main__":
    cli.run(main, Config)
