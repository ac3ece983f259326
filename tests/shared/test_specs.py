"""The grammar of a model: every form, what people paste, and one line for what is none of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shared import specs
from shared.errors import UserError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A current folder with a model folder, a checkpoint, a graph file, and a folder that looks like a repository."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in ("mine", "us/local"):
        Path(folder).mkdir(parents=True)
    for file in ("w.pth", "g.json", "graph.txt"):
        Path(file).touch()


@pytest.mark.parametrize(
    ("text", "kind", "name", "revision", "path"),
    [
        ("google/vit-base-patch16-224-in21k", "hf", "google/vit-base-patch16-224-in21k", None, None),
        ("microsoft/resnet-50@v1.2", "hf", "microsoft/resnet-50", "v1.2", None),
        ("microsoft/resnet-50@refs/pr/3", "hf", "microsoft/resnet-50", "refs/pr/3", None),
        ("hf:google/vit", "hf", "google/vit", None, None),
        ("hf:google/vit@main", "hf", "google/vit", "main", None),
        ("mine", "hf", "mine", None, "mine"),
        ("hf:mine", "hf", "mine", None, "mine"),
        ("us/local", "hf", "us/local", None, "us/local"),
        ("timm:resnet18", "timm", "resnet18", None, None),
        ("timm:resnet18@w.pth", "timm", "resnet18", None, "w.pth"),
        (f"timm:resnet18@{COMMIT}", "timm", "resnet18", COMMIT, None),
        ("torchvision:resnet18@w.pth", "torchvision", "resnet18", None, "w.pth"),
        ("torchvision:resnet18.IMAGENET1K_V1@w.pth", "torchvision", "resnet18.IMAGENET1K_V1", None, "w.pth"),
        ("torchvision:resnet18", "torchvision", "resnet18", None, None),
        ("wheel:efficientnet-lite0", "wheel", "efficientnet-lite0", None, None),
        ("g.json", "graph", "g", None, "g.json"),
        ("not-there.json", "graph", "not-there", None, "not-there.json"),
        ("graph.txt", "graph", "graph", None, "graph.txt"),
        ("graph:bert-base", "page", "bert-base", None, None),
        ("vit-b16", "builtin", "vit-b16", None, None),
    ],
)
def test_every_form(text, kind, name, revision, path):
    spec = specs.parse(text)
    assert (spec.kind, spec.name, spec.revision) == (kind, name, revision)
    assert spec.path == (Path(path) if path else None)
    assert specs.parse(spec.text) == spec  # the short spelling means the same


@pytest.mark.parametrize(
    ("pasted", "text"),
    [
        ("hf-hub:timm/resnet18.a1_in1k", "timm:resnet18.a1_in1k"),
        ("hf_hub:timm/resnet18.a1_in1k", "timm:resnet18.a1_in1k"),
        ("timm/resnet18.a1_in1k", "timm:resnet18.a1_in1k"),
        ("timm:timm/resnet18.a1_in1k", "timm:resnet18.a1_in1k"),
        ("resnet18.a1_in1k", "timm:resnet18.a1_in1k"),
        ("vit_base_patch16_224.augreg2_in21k_ft_in1k", "timm:vit_base_patch16_224.augreg2_in21k_ft_in1k"),
        ("https://huggingface.co/timm/resnet18.a1_in1k", "timm:resnet18.a1_in1k"),
        ("https://huggingface.co/google/vit", "google/vit"),
        ("huggingface.co/google/vit/", "google/vit"),
        ("https://hf.co/google/vit?library=timm", "google/vit"),
        ("https://huggingface.co/google/vit/tree/main", "google/vit@main"),
        (f"https://huggingface.co/google/vit/blob/{COMMIT}/config.json", f"google/vit@{COMMIT}"),
        ("hf:google/vit", "google/vit"),
        ("hf-hub:google/vit", "google/vit"),
        (" google/vit\n", "google/vit"),
        ("~/mine", "~/mine"),
    ],
)
def test_what_people_paste(pasted, text):
    assert str(specs.parse(pasted)) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "an empty text names no model; expected owner/name on the hub"),
        ("hf:", "nothing after the colon"),
        ("timm:", "nothing after the colon"),
        ("a/b/c", "no such folder, and not a hub repository's name"),
        ("../nope", "no such folder, and not a hub repository's name"),
        ("./nope", "no such folder, and not a hub repository's name"),
        ("us/ti ny", "no such folder, and not a hub repository's name"),
        ("them/", "no such folder, and not a hub repository's name"),
        ("/no/such/folder", "no such folder"),
        ("resnet18", "did you mean .*timm:resnet18"),
        ("bert-bsae", "did you mean bert-base?"),
        ("qqq-zzz", "built-in are bert-base, vit-b16"),
        ("a" * 5000, "no such folder.*built-in"),
        ("w.pth", "a file of weights; say what network it is for: timm:<name>@w.pth"),
        ("not-there.safetensors", "a file of weights"),
        ("timm:resnet50@/no/such/file.pth", "no file /no/such/file.pth"),
        ("https://huggingface.co/datasets/uoft-cs/cifar10", "not a model's page"),
        ("https://huggingface.co/google", "not a model's page"),
        ("a\0b", "no such folder"),
    ],
)
def test_what_is_no_model(text, words):
    with pytest.raises(UserError, match=words) as error:
        specs.parse(text)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vit-b16", "without weights; name weights for it, e.g. google/vit-base-patch16-224-in21k"),
        ("gpt2", "without weights; this script needs an image model"),
        ("g.json", "a graph, which has no weights; expected owner/name"),
        ("graph:bert-base", "a graph, which has no weights"),
    ],
)
def test_a_model_without_weights_is_refused_where_they_are_needed(text, words):
    with pytest.raises(UserError, match=words):
        specs.parse_with_weights(text)


def test_the_weights_that_builtins_point_to_are_models_with_weights():
    assert all(specs.parse_with_weights(weights).text == weights for weights in specs.BUILTINS.values() if weights)


def test_reading_a_spec_imports_no_library():
    code = "import sys; from shared import specs; specs.parse('timm:x'); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    ).stdout.split()
    assert not {"torch", "timm", "transformers", "huggingface_hub", "numpy"} & set(loaded)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("mine", "mine/"),
        ("mine", "./mine"),
        ("mine", "~/mine"),
        ("mine", "linked"),
        ("timm:resnet18@w.pth", "timm:resnet18@./w.pth"),
        ("hf:google/vit", "google/vit"),
    ],
)
def test_two_spellings_of_one_model_are_one(one, other):
    Path("linked").symlink_to("mine")
    with pytest.raises(UserError, match="named twice, perhaps in two spellings"):
        specs.refuse_twice([one, "google/bit", other])
    specs.refuse_twice(
        ["mine", "mine#ema", "us/local", "google/vit@main", "google/vit", "timm:resnet18", "timm:resnet34"]
    )
