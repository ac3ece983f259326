"""Graph files: `{id, name, components: [{id, type, name, params, inputs, outputs}], connections: [{id, from, to}]}`.

Strict about structure (a cycle, a connection to nowhere, two nodes of one id, a node without a type), liberal about
what public files really hold: several inputs and outputs, sources that are no inputs, any file order, repeated names,
merges with one parent, extra keys everywhere.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from shared.errors import UserError
from shared.text import printable, quoted

LONGEST_NAME = 200  # characters of a name or a remark that are kept
LARGEST_FILE = 50_000_000  # bytes; the largest public graph has 0.2 MB
LARGEST_SIZE = 10**12  # of any axis or setting
DEEPEST = 8
STICKY = frozenset({"stickyNote", "sticky", "note", "comment"})


@dataclass(frozen=True)
class Node:
    """One component of the file. `settings` are the file's `params`.

    shape       an input's declared shape; of another layer the shape of its output that the file declares
    parameters  what the file says that a layer of unknown type has
    """

    id: str
    type: str
    name: str
    settings: dict[str, Any]
    shape: tuple[int, ...] | None = None
    remark: str = ""
    parameters: int | None = None


@dataclass(frozen=True)
class Graph:
    """A directed graph without cycles. `edges` keeps the file's order: a layer's first parent is its main input."""

    id: str
    name: str
    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str], ...]
    source: str
    official_parameters: int | None = None
    description: str = ""

    def __post_init__(self) -> None:
        self.order()  # a cycle is found when the graph is made, not in the middle of a count

    @cached_property
    def by_id(self) -> dict[str, Node]:
        return {node.id: node for node in self.nodes}

    @cached_property
    def parents(self) -> dict[str, list[str]]:
        """Each node's parents in the order of the connections."""
        found: dict[str, list[str]] = {node.id: [] for node in self.nodes}
        for start, end in self.edges:
            found[end].append(start)
        return found

    def order(self, file_order: bool = False) -> list[Node]:
        """Topological order: Kahn's algorithm, first in first out, successors in the order of the connections.

        Sources start in the order in which the connections name them, so that the file order of the nodes changes
        nothing; with `file_order` in the order of the file. Raises UserError that names a cycle.
        """
        waiting = {id: len(parents) for id, parents in self.parents.items()}
        sources = [node.id for node in self.nodes if not waiting[node.id]]
        if not file_order:
            named = {id: at for at, (id, _) in reversed(list(enumerate(self.edges)))}
            last = len(self.edges)
            sources.sort(key=lambda id: (named.get(id, last), self.by_id[id].type, id if id not in named else ""))
        children: dict[str, list[str]] = {node.id: [] for node in self.nodes}
        for start, end in self.edges:
            children[start].append(end)
        queue, ordered = deque(sources), []
        while queue:
            id = queue.popleft()
            ordered.append(self.by_id[id])
            for child in children[id]:
                waiting[child] -= 1
                if not waiting[child]:
                    queue.append(child)
        if len(ordered) < len(self.nodes):
            raise UserError(f"{self.source}: the graph has a cycle: {self._cycle()}; remove one connection")
        return ordered

    def _cycle(self) -> str:
        try:
            TopologicalSorter(self.parents).prepare()
        except CycleError as error:
            loop = error.args[1]  # the last is the first again
        shown = loop if len(loop) <= 7 else [*loop[:5], f"... {len(loop) - 6} more", loop[0]]
        return " -> ".join(map(quoted, shown))


def read(path: Path | str) -> Graph:
    """Read one graph file. Raises UserError naming the file and the node at fault."""
    path = Path(path)
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise UserError(f"{path}: {path.stat().st_size / 1e6:.0f} MB; a graph file has at most 50 MB")
        text = path.read_bytes().decode("utf-8-sig")
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; name a graph file, or hf:{path} for a model folder") from None
    except FileNotFoundError:
        raise UserError(f"{path}: no such graph file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not readable ({error})") from None
    return loads(text, str(path))


def loads(text: str, source: str) -> Graph:
    """A graph from JSON text; `source` names it in errors."""

    def no_number(text: str) -> None:
        raise ValueError(f"{text} is no number of JSON")

    try:
        return parse(json.loads(text, parse_constant=no_number), source)
    except RecursionError:
        raise UserError(f"{source}: nested too deeply to be a graph file") from None
    except ValueError as error:  # also a number of more digits than Python reads
        raise UserError(f"{source}: not JSON ({error})") from None


def parse(data: Any, source: str) -> Graph:
    """A graph from decoded JSON. See the module's docstring for what is checked."""
    if not isinstance(data, dict) or not isinstance(data.get("components"), list):
        raise UserError(f"{source}: expected an object with a list `components`; this is no graph file")
    nodes = tuple(_node(item, at, source) for at, item in enumerate(data["components"]))
    if not nodes:
        raise UserError(f"{source}: the graph has no components")
    seen = Counter(node.id for node in nodes)
    twice = next((id for id, times in seen.items() if times > 1), None)
    if twice is not None:
        raise UserError(f"{source}: two nodes have the id {quoted(twice)}; ids must be unique")
    edges = tuple(_edges(data, source))
    for start, end in edges:
        lost = next((id for id in (start, end) if id not in seen), None)
        if lost is not None:
            connection = f"the connection {quoted(start)} -> {quoted(end)}"
            raise UserError(f"{source}: {connection} names {quoted(lost)}, which is no node")
    name = data.get("name") or data.get("id") or Path(source).stem
    official = integer(data.get("realParamCount"))
    return Graph(
        id=_name(data.get("id") or Path(source).stem),
        name=_name(name),
        nodes=nodes,
        edges=edges,
        source=source,
        official_parameters=official if official and 0 < official <= LARGEST_SIZE**2 else None,
        description=_name(data.get("description") or ""),
    )


def _node(item: Any, at: int, source: str) -> Node:
    where = f"{source}: component {at + 1}"
    if not isinstance(item, dict):
        raise UserError(f"{where}: expected an object, got {quoted(item)}")
    id = item.get("id")
    if not _is_id(id):
        raise UserError(f"{where}: has no id")
    where = f"{source}: node {quoted(id)}"
    if not isinstance(item.get("type"), str) or not item["type"]:
        raise UserError(f"{where}: has no type")
    type_ = _name(item["type"])
    settings = item.get("params")
    if settings is not None and not isinstance(settings, dict):
        raise UserError(f"{where}: params: expected an object, got {quoted(settings)}")
    settings = {_name(key): value for key, value in (settings or {}).items()}
    if _deep(settings):
        raise UserError(f"{where}: params: nested more than {DEEPEST} levels; a layer's settings are flat")
    # the makers' own files give an input's shape as its output, or as a number of tokens
    shapes = {"shape": settings.get("shape"), "inputShape": item.get("inputShape")} if type_ == "input" else {}
    shapes |= {"outputShape": item.get("outputShape")}
    shapes |= {"seqLen": settings.get("seqLen"), "numFeatures": settings.get("numFeatures")} if type_ == "input" else {}
    given = next((key for key, value in shapes.items() if value is not None), None)
    shape = None
    if given and (type_ == "input" or _is_shape(shapes[given])):
        shape = sizes(shapes[given], f"{where}: {given}")
    count = integer(item.get("paramCount", settings.get("paramCount")))
    count = count if count is not None and 0 <= count <= LARGEST_SIZE**2 else None
    name, remark = _name(item.get("name") or id), _name(item.get("notes") or "")
    return Node(str(id), type_, name, settings, shape, remark, count)


def _is_shape(value: Any) -> bool:
    """What a layer's declared output must be to be believed; it is no part of the structure."""
    found = [integer(item) for item in value] if isinstance(value, list) else []
    return 0 < len(found) <= 8 and all(item is not None and 1 <= item <= LARGEST_SIZE for item in found)


def _deep(value: Any, levels: int = DEEPEST) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(levels == 1 or _deep(item, levels - 1) for item in inner)


def _is_id(value: Any) -> bool:
    return type(value) in (str, int) and value != ""


def _edges(data: dict, source: str) -> list[tuple[str, str]]:
    """The connections; where a file has none, what the nodes' `inputs` say."""
    connections = data.get("connections")
    if connections is None:
        edges = []
        for item in data["components"]:
            parents = item.get("inputs") or []
            if not isinstance(parents, list) or not all(map(_is_id, parents)):
                where = f"{source}: node {quoted(item['id'])}: inputs"
                raise UserError(f"{where}: expected a list of node ids, got {quoted(parents)}")
            edges += [(str(parent), str(item["id"])) for parent in parents]
        return edges
    if not isinstance(connections, list):
        raise UserError(f"{source}: connections: expected a list, got {quoted(connections)}")
    edges = []
    for at, item in enumerate(connections):
        ends = [item.get(key) for key in ("from", "to")] if isinstance(item, dict) else [None, None]
        if not all(map(_is_id, ends)):
            raise UserError(f"{source}: connection {at + 1}: expected `from` and `to`, got {quoted(item)}")
        edges.append((str(ends[0]), str(ends[1])))
    return edges


def sizes(value: Any, where: str) -> tuple[int, ...]:
    """A shape as a tuple of positive integers; a single number is a shape of one axis."""
    items: Sequence[Any] = value if isinstance(value, list) else [value]
    found = [integer(item) for item in items]
    if not found or len(found) > 8 or any(item is None or item < 1 for item in found):
        raise UserError(f"{where}: expected 1 to 8 positive whole numbers, got {quoted(value)}")
    if any(item > LARGEST_SIZE for item in found if item is not None):
        raise UserError(f"{where}: a size is at most 10^12, got {quoted(value)}")
    return tuple(item for item in found if item is not None)


def integer(value: Any) -> int | None:
    """A whole number, also one written 3.0; None for anything else."""
    if type(value) is int:
        return value
    return int(value) if type(value) is float and value.is_integer() else None


def _name(value: Any) -> str:
    """A name or a remark of the file as one line that is safe to print."""
    return printable(str(value)[:LONGEST_NAME])
