"""What `compare.py` may be given: a graph file, a built-in name, `graph:`, `hf:` or `timm:`. No torch until needed."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from papers.comparisons.pages import page_graph, page_names
from shared.errors import UserError
from shared.graph.convention import Convention
from shared.graph.measure import Model, check_exists, measure
from shared.graph.read import Graph, quoted, read

# the names of `builtins.BUILTINS`, which a graph comparison must not import (a test holds the two equal)
BUILTIN_NAMES = (
    "bert-base", "vit-b16", "vit-b32", "vit-l16", "vit-l32", "vit-h14", "gpt2", "t5-small", "resnet-50", "bit-r50x1",
    "dinov2-s14", "efficientnet-lite0", "article-vit", "article-resnet",
)  # fmt: skip


LONGEST_NAME = 100  # bytes of a side's part of a file name: two of them and an ending stay below 255


@dataclass(frozen=True)
class Source:
    """Something to compare: a graph, or a name of a real model that is built when it is measured."""

    spec: str
    graph: Graph | None = None

    def model(self, convention: Convention, length: int | None = None) -> Model:
        """Measured. `convention` is for graphs; a built module is counted as it is."""
        if self.graph is not None:
            model = measure(self.graph, convention)
            check_exists(model)
            return model
        from papers.comparisons import builtins

        kind, _, name = self.spec.partition(":")
        if kind == "hf" and name:
            return builtins.from_hub(name, length)
        if kind == "timm" and name:
            return builtins.from_timm(name)
        return builtins.builtin(self.spec)

    @property
    def short(self) -> str:
        """A name for files."""
        text = self.graph.id if self.graph is not None else self.spec.rstrip("/").rpartition("/")[2].replace(":", "-")
        plain = "".join(c if c.isalnum() or c in "._-" else "-" for c in text.lower()).strip(".-") or "model"
        return plain.encode()[:LONGEST_NAME].decode(errors="ignore")


def _there(check: Callable[[Path], bool], spec: str) -> bool:
    """False also for what can be no name of a file (too long)."""
    try:
        return check(Path(spec))
    except (OSError, ValueError):
        return False


def resolve(spec: str, *, pages: bool = False) -> Source:
    """Find out what `spec` names; `pages`: a plain name means the comparison pages' graph. Raises UserError."""
    if not spec:
        raise UserError("name two models: a graph file, a built-in name, hf:<repository or folder> or timm:<name>")
    kind, _, rest = spec.partition(":")
    if kind in ("hf", "timm"):
        if not rest:
            raise UserError(f"{spec}: nothing after the colon")
        if pages:
            raise UserError(f"{spec}: the pages' conventions count graphs; leave out --as-published for a real model")
        return Source(spec)
    if kind == "graph":
        if rest not in page_names():
            raise UserError(f"{spec}: the pages' graphs are {', '.join(page_names())}")
        return Source(spec, page_graph(rest))
    if _there(Path.is_file, spec) or spec.endswith(".json"):
        return Source(spec, read(spec))
    if pages and spec in page_names():
        return Source(spec, page_graph(spec))
    if spec in BUILTIN_NAMES and not pages:
        return Source(spec)
    if _there(Path.is_dir, spec):
        raise UserError(f"{spec}: is a folder; name a graph file, or hf:{spec} for a model folder")
    known = page_names() if pages else list(BUILTIN_NAMES)
    near = difflib.get_close_matches(spec, known, 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"built-in are {', '.join(known)}"
    raise UserError(f"{quoted(spec)}: no such file and no {'page graph' if pages else 'built-in model'}; {hint}")
