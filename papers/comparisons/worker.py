"""The process that does the service's work: one request at a time from standard input, so that it can be killed.

Frames both ways: 4 bytes, the length (big-endian), then that many bytes. A job is a head in JSON, a line break, and the
request's body as it came from the network; a reply is a head, a line break, and the answer. The body is decoded here
only: whatever it holds, the server itself never looks into it.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, BinaryIO

from papers.comparisons import answers, plan
from papers.comparisons.models import Source, find
from papers.comparisons.sidebyside import as_lines, pair_and_name, tell
from shared import specs
from shared.errors import UserError
from shared.graph.cost import Assumptions
from shared.graph.measure import Model
from shared.record import Record
from shared.schema import checked

FORMS = {"json": "application/json", "html": "text/html", "markdown": "text/markdown", "csv": "text/csv"}
ANY_NAME = re.compile(r"(timm|wheel|graph):[\w.-]{1,100}", re.ASCII)  # no @, no path: nothing but a table is asked
EDGES = 8  # connections allowed for each node
ELSEWHERE = 0  # status of a job that a builder must do: it names a model that is built with torch
KEPT = 64  # measured models, each a few hundred KB
READY = b'{"status": 200}\n'


@dataclass(frozen=True)
class Limits:
    """What a request may ask for; the server adds size, time and parallel work."""

    nodes: int = 20_000
    memory_mb: int = 1024
    allow_hub: bool = False
    allow_files: bool = False
    builds: bool = False

    @property
    def takes(self) -> str:
        """The forms of a model's name, for errors."""
        forms = ["a built-in name", "graph:<name>", "timm:<name>", "wheel:<name>"]
        forms += ["owner/name on the hub"] * self.allow_hub + ["a path"] * self.allow_files
        return ", ".join(forms)


class Elsewhere(Exception):
    """A model has to be built, which this process does not do."""


class Refused(UserError):
    """A request of the wrong form; `status` is HTTP's."""

    def __init__(self, words: str, status: int = 422):
        super().__init__(words)
        self.status = status


@dataclass(frozen=True)
class Kept(Source):
    """A model that is built once and measured once for each size of its input; `builds`: whether this process may.

    A built-in model at its own input is built by none: it was counted before.
    """

    builds: bool = False

    def measure(self, *arguments: Any, **sizes: Any) -> Model:
        if self.graph is not None or self.spec.path is not None:
            return super().measure(*arguments, **sizes)
        return _measured(self, arguments, tuple(sizes.items()))

    def build(self, *arguments: Any) -> Model:
        if not self.builds:
            raise Elsewhere
        return super().build(*arguments)


@lru_cache(KEPT)
def _measured(source: Kept, arguments: tuple, sizes: tuple) -> Model:
    return Source.measure(source, *arguments, **dict(sizes))


def named(text: str, limits: Limits) -> Source:
    """The model of that name, where a stranger may ask for it. Raises Refused or Elsewhere."""
    allowed = text in specs.BUILTINS or ANY_NAME.fullmatch(text)
    if not allowed and limits.allow_hub:
        allowed = re.fullmatch(r"[\w.-]{1,100}/[\w.-]{1,100}(@[\w.-]{1,100})?", text, re.ASCII)
    if not allowed and not limits.allow_files:
        raise Refused(f"model {text[:100]!r}: this service takes {limits.takes}")
    source = find(text)
    if source.spec.path is not None and not limits.allow_files:
        raise Refused(f"model {text[:100]!r}: this service reads no files; send the graph itself")
    return Kept(source.spec, source.graph, limits.builds)


def counted(model: Any, limits: Limits, what: str) -> Any:
    """A model of a request, its graph no larger than the limits."""
    for key, most in (("components", limits.nodes), ("connections", EDGES * limits.nodes)):
        found = model.get(key) if isinstance(model, dict) else None
        if isinstance(found, list) and len(found) > most:
            raise Refused(f"{what}: {len(found):,} {key}; this service takes at most {most:,}")
    return model


def decoded(body: bytes) -> dict[str, Any]:
    try:
        return plan.decode(body, "request")
    except UserError as error:
        raise Refused(str(error), 422 if "deeply" in str(error) else 400) from None


def do_plan(body: bytes, form: str, limits: Limits) -> tuple[str, str]:
    data = plan.as_request(decoded(body))
    for key in ("model", "base"):
        counted(data.get(key), limits, key)
    found = plan.answer(data, lambda text: named(text, limits))
    if form == "markdown":
        return found["markdown"], FORMS[form]
    if form != "json":
        raise Refused(f"format {form!r}: a plan is json or markdown", 400)
    return as_lines(found), FORMS["json"]


def do_compare(body: bytes, form: str, limits: Limits) -> tuple[str, str]:
    if form not in FORMS:
        raise Refused(f"format {form[:40]!r}: expected one of {', '.join(FORMS)}", 400)
    request = checked(decoded(body), answers.CompareRequest, "request", plan.EXPECTED)
    assumed = checked(request.assumptions or {}, Assumptions, "request", plan.EXPECTED, at="assumptions")
    sources = [
        plan.source_of(counted(model, limits, side), lambda text: named(text, limits), f"{side} graph")
        for side, model in (("left", request.left), ("right", request.right))
    ]
    record = Record("comparisons", pair_and_name(sources)[1], quiet=True)  # holds what is said; it is never written
    how = {name: getattr(request, name) for name in ("as_published", "own_inputs", "length", "image_size", "gpus")}
    told = tell(record, sources, assumed, **how)
    text = {"json": told.as_json, "html": told.html, "markdown": told.markdown, "csv": told.csv}[form]()
    return text, FORMS[form]


JOBS: dict[str, Callable[[bytes, str, Limits], tuple[str, str]]] = {"plan": do_plan, "compare": do_compare}


def reply(head: dict[str, Any], body: bytes, limits: Limits) -> tuple[int, str, str]:
    """Status, media type and text of the answer; every error is one sentence."""
    try:
        return 200, *reversed(JOBS[head["job"]](body, head["form"], limits))
    except Elsewhere:
        return ELSEWHERE, FORMS["json"], ""
    except UserError as error:
        status, words = getattr(error, "status", 422), " ".join(str(error).split())
    except MemoryError:
        status, words = 503, f"the work needs more than the {limits.memory_mb:,} MB that one request may take"
    except RecursionError:
        status, words = 422, "request: nested too deeply to be a graph"
    except Exception:  # a fault of ours: its place goes to the log, not to the network
        traceback.print_exc(file=sys.stderr)
        status, words = 500, "the service failed on this request; its log says where"
    return status, FORMS["json"], json.dumps({"error": words}, ensure_ascii=False) + "\n"


def frame(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def read_frame(file: BinaryIO) -> bytes | None:
    """None at the end: whoever sent jobs is gone."""
    head = file.read(4)
    if len(head) < 4:
        return None
    return file.read(struct.unpack(">I", head)[0])


def main(arguments: list[str]) -> None:
    limits = Limits(**json.loads(arguments[0]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server stops its workers itself, after their last answer
    resource.setrlimit(resource.RLIMIT_DATA, (limits.memory_mb << 20,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not come between the frames
    out.write(frame(READY))
    out.flush()
    while (job := read_frame(sys.stdin.buffer)) is not None:
        head, _, body = job.partition(b"\n")
        status, kind, text = reply(json.loads(head), body, limits)
        first = json.dumps({"status": status, "type": kind}).encode()
        out.write(frame(first + b"\n" + text.encode("utf-8", "backslashreplace")))
        out.flush()


def command(limits: Limits) -> list[str]:
    """What starts a worker. -P: nothing is imported from the folder in which the service was started."""
    code = "import sys; from papers.comparisons.worker import main; main(sys.argv[1:])"
    return [sys.executable, "-P", "-c", code, json.dumps(asdict(limits))]
