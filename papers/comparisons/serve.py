"""The comparison as an HTTP service, and a page to use it with.

    python -m papers.comparisons.serve                     http://127.0.0.1:8722/
    curl -s localhost:8722/api/v1/plan -H 'Content-Type: application/json' -d '{"model": "vit-b16"}'

    POST /api/v1/plan      a graph or a model's name, with a base, a policy, a spec: what `compare.py plan` prints
    POST /api/v1/compare   left and right: what `compare.py LEFT RIGHT --json` prints (?format=html, markdown, csv)
    GET  /api/v1/models    the names, the GPUs, the limits
    GET  /healthz          whether it works
    GET  /docs             this, with the schemas; /openapi.json for programs

Safe by default: this machine only, no download, no file, no code or weights from anywhere; size, nodes, depth, time,
memory and parallel work are limited, and the work runs in processes that are killed when they take too long.
An error is `{"error": one sentence}` with 400, 413, 422, 429 or 503. Each request
leaves one line of JSON on standard error.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

if not __package__:  # started as a file: the code of this checkout, not an installed one
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.comparisons import answers
from papers.comparisons.models import page_names
from papers.comparisons.plan import LARGEST_REQUEST
from papers.comparisons.pool import Busy, Died, Pool, TooLong
from papers.comparisons.worker import ELSEWHERE, FORMS, Limits
from shared import cli, process, specs
from shared.errors import UserError
from shared.graph.cost import GPUS, NAMED
from shared.text import notice, say

try:
    import uvicorn
    from fastapi import FastAPI, Request, Response
    from starlette.requests import ClientDisconnect
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError:
    sys.exit("error: the service needs FastAPI and uvicorn; pip install 'paper-suite[serve]'")

TEMPLATES = Path(__file__).parent / "templates"
ARRIVAL = 15.0  # seconds in which a request must have arrived
DRAINED = 100_000_000  # bytes of a request too large that are still read, so that its sender reads the answer
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


@dataclass
class Config:
    """Where it listens, what it allows, and how much."""

    host: str = "127.0.0.1"
    """[machine] address to listen on; another than this machine's own is reachable from outside"""
    port: int = 8722
    """port; 0 takes a free one and prints it"""
    workers: int = 0
    """processes that work on graphs (default: one per core)"""
    max_mb: float = 8.0
    """largest request, MB (10^6 bytes)"""
    max_nodes: int = 20_000
    """largest graph, nodes"""
    seconds: float = 10.0
    """longest work on graphs"""
    build_seconds: float = 60.0
    """longest work on models that have to be built, in a process of their own"""
    memory_mb: int = 1024
    """most memory of one process that works on graphs; one that builds models gets six times as much"""
    waiting: int = 64
    """requests that may wait for a process; one more is answered 503"""
    per_client: int = 48
    """requests of one address at once; one more is answered 429"""
    allow_host: tuple[str, ...] = ()
    """further names under which the service may be called (the Host header)"""
    allow_hub: bool = False
    """[data] read configurations of owner/name from the Hugging Face hub; weights and code are never read"""
    allow_files: bool = False
    """read graph files and model folders of this machine by their path"""

    def __post_init__(self) -> None:
        for name in ("max_mb", "max_nodes", "seconds", "build_seconds", "memory_mb", "waiting", "per_client"):
            if not 0 < getattr(self, name) <= 1e9:
                raise UserError(f"--{name.replace('_', '-')} must be above 0, got {getattr(self, name)}")
        if not 0 <= self.port < 65536 or self.workers < 0:
            raise UserError("--port must be between 0 and 65535, --workers not negative")
        if self.max_mb * 1e6 > LARGEST_REQUEST:
            raise UserError(f"--max-mb must be at most {LARGEST_REQUEST / 1e6:.0f}, got {self.max_mb}")

    def limits(self, **more: Any) -> Limits:
        allowed = {"allow_hub": self.allow_hub, "allow_files": self.allow_files}
        return Limits(**{"nodes": self.max_nodes, "memory_mb": self.memory_mb} | allowed | more)


class Problem(Exception):
    """An error as it is sent."""

    def __init__(self, status: int, words: str):
        super().__init__(words)
        self.status = status


class Service:
    """The pools, and how many requests each address has at the moment."""

    def __init__(self, config: Config):
        self.config = config
        processes = config.workers or os.cpu_count() or 1
        self.graphs = Pool(config.limits(), processes, config.seconds, config.waiting)
        more = config.limits(builds=True, memory_mb=6 * config.memory_mb)
        self.builders = Pool(more, 1, config.build_seconds, config.waiting)
        self.at_once: Counter[str] = Counter()

    async def answer(self, request: Request, job: str) -> Response:
        """One request, from its body to its answer."""
        client = request.client.host if request.client else ""
        if self.at_once[client] >= self.config.per_client:
            raise Problem(
                429, f"more than {self.config.per_client} requests at once from one address; wait for answers"
            )
        self.at_once[client] += 1
        try:
            body = await self._body(request)
            head = {"job": job, "form": request.query_params.get("format", "json")}
            status, kind, text = await self._work(head, body)
        finally:
            self.at_once[client] -= 1
            if not self.at_once[client]:
                del self.at_once[client]
        return Response(text, status, media_type=f"{kind}; charset=utf-8")

    async def _body(self, request: Request) -> bytes:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":  # which also keeps out other sites' forms in the user's own browser
            raise Problem(400, "send the request as Content-Type: application/json")
        most = int(self.config.max_mb * 1e6)
        try:
            async with asyncio.timeout(ARRIVAL):
                parts, size = [], 0
                async for part in request.stream():
                    size += len(part)
                    if size > DRAINED:
                        break
                    if size <= most:
                        parts.append(part)
        except ClientDisconnect:
            raise Problem(400, "the request broke off") from None
        except TimeoutError:
            raise Problem(400, f"the request did not arrive within {ARRIVAL:.0f} seconds") from None
        if size > most:
            raise Problem(413, f"the request is larger than {self.config.max_mb:g} MB")
        return b"".join(parts)

    async def _work(self, head: dict[str, Any], body: bytes) -> tuple[int, str, bytes]:
        for pool in (self.graphs, self.builders):
            try:
                answer = await pool.run(head, body)
            except Busy:
                raise Problem(503, "too much work is waiting; try again in a moment") from None
            except TooLong:
                raise Problem(503, f"the work took longer than {pool.seconds:g} seconds and was stopped") from None
            except Died:
                raise Problem(503, "the process that worked on it ended, for lack of memory perhaps") from None
            if answer[0] != ELSEWHERE:
                return answer
        raise Problem(500, "no process took the work")

    def names(self) -> dict[str, Any]:
        """`GET /api/v1/models`."""
        config = self.config
        return {
            "builtin": list(specs.BUILTINS),
            "graphs": [f"graph:{name}" for name in page_names()],
            "forms": config.limits().takes,
            "gpus": GPUS | NAMED,
            "limits": {
                "request_bytes": int(config.max_mb * 1e6),
                "nodes": config.max_nodes,
                "seconds": config.seconds,
                "build_seconds": config.build_seconds,
            },
        }


def error(status: int, words: str) -> Response:
    text = json.dumps({"error": words}, ensure_ascii=False) + "\n"
    headers = {"Retry-After": "1"} if status in (429, 503) else {}
    return Response(text.encode(errors="backslashreplace"), status, headers, "application/json; charset=utf-8")


def application(config: Config) -> FastAPI:
    """The app of one configuration; its processes live as long as it does."""
    service: Service

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        nonlocal service
        service = Service(config)
        async with service.graphs, service.builders:
            await service.graphs.warm()
            yield

    app = FastAPI(title="Model comparisons", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)

    @app.post("/api/v1/plan", openapi_extra=described(answers.Request, answers.Plan, ["json", "markdown"]))
    async def plan(request: Request) -> Response:
        """One model: counts, memory, GPUs, cost; a policy kept or not; a difference from a base."""
        return await service.answer(request, "plan")

    @app.post("/api/v1/compare", openapi_extra=described(answers.CompareRequest, dict[str, Any], list(FORMS)))
    async def compare(request: Request) -> Response:
        """Two models: what each one needs, then layer by layer, then how the published pages count."""
        return await service.answer(request, "compare")

    @app.get("/api/v1/models")
    async def models() -> dict[str, Any]:
        """The names that may stand in place of a graph, the GPUs, the limits."""
        return service.names()

    @app.get("/healthz")
    async def healthz() -> dict[str, Any]:
        """Whether it works, and what it is doing."""
        pools = {"graphs": service.graphs, "builders": service.builders}
        doing = {
            name: {"busy": len(one.busy), "waiting": one.waiting, "killed": one.killed} for name, one in pools.items()
        }
        return {"status": "ok", **doing}

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return file("serve.html", "text/html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        import jinja2

        template = jinja2.Environment(autoescape=True).from_string(
            (TEMPLATES / "docs.html").read_text(encoding="utf-8")
        )
        return Response(template.render(api=app.openapi(), about=__doc__), headers=policy(), media_type="text/html")

    @app.get("/serve.js", include_in_schema=False)
    async def script() -> Response:
        return file("serve.js", "text/javascript")

    @app.get("/serve.css", include_in_schema=False)
    async def style() -> Response:
        return file("serve.css", "text/css")

    @app.exception_handler(Problem)
    async def problem(_: Request, found: Problem) -> Response:
        return error(found.status, str(found))

    @app.exception_handler(Exception)
    async def fault(_: Request, found: Exception) -> Response:
        return error(500, "the service failed on this request; its log says where")

    @app.exception_handler(404)
    @app.exception_handler(405)
    async def nowhere(request: Request, found: Any) -> Response:
        return error(found.status_code, f"{request.method} {request.url.path[:100]}: /docs lists what there is")

    app.openapi = lambda schema=app.openapi: with_types(schema())  # type: ignore[method-assign]
    app.add_middleware(Log, hosts=allowed_hosts(config))
    return app


def file(name: str, kind: str) -> Response:
    return Response((TEMPLATES / name).read_bytes(), headers=policy(), media_type=kind)


def policy() -> dict[str, str]:
    return {"Content-Security-Policy": PAGE_POLICY}


TYPES = (answers.Request, answers.CompareRequest, answers.Plan)


def described(request: Any, answer: Any, forms: list[str]) -> dict[str, Any]:
    """The part of OpenAPI that FastAPI cannot know, because the body is read elsewhere."""

    def reference(type: Any) -> dict[str, Any]:
        known = type in TYPES
        return {"$ref": f"#/components/schemas/{type.__name__}"} if known else {"type": "object"}

    content = {FORMS[form]: {"schema": reference(answer) if form == "json" else {"type": "string"}} for form in forms}
    failed = {
        "content": {"application/json": {"schema": {"type": "object", "properties": {"error": {"type": "string"}}}}}
    }
    words = {400: "not JSON", 413: "too large", 422: "cannot be used", 429: "too many at once", 503: "busy, or stopped"}
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": reference(request)}}},
        "parameters": [{"name": "format", "in": "query", "schema": {"enum": forms, "default": "json"}}],
        "responses": {"200": {"description": "the answer", "content": content}}
        | {str(status): {"description": text} | failed for status, text in words.items()},
    }


def with_types(schema: dict[str, Any]) -> dict[str, Any]:
    _, types = msgspec.json.schema_components(TYPES, ref_template="#/components/schemas/{name}")
    schema.setdefault("components", {}).setdefault("schemas", {}).update(types)
    return schema


def allowed_hosts(config: Config) -> frozenset[str] | None:
    """Names that a browser may have called; None: any, where the service is open to other machines anyway.

    Without this check a web page could have its own name point to this machine and read the answers.
    """
    try:
        local = ipaddress.ip_address(config.host).is_loopback
    except ValueError:
        local = config.host == "localhost"
    names = {"localhost", "127.0.0.1", "[::1]", config.host, *config.allow_host}
    return frozenset(names) if local or config.allow_host else None


class Log:
    """Outermost: the host is checked, headers are added, and every request is one line of JSON on standard error."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None):
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        start, seen = time.perf_counter(), {"status": 499, "in": 0, "out": 0}

        async def counting() -> Message:
            message = await receive()
            seen["in"] += len(message.get("body", b""))
            return message

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
                message["headers"] = [
                    *message["headers"],
                    *((k.lower().encode(), v.encode()) for k, v in HEADERS.items()),
                ]
            seen["out"] += len(message.get("body", b""))
            await send(message)

        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        try:
            if self.hosts is not None and name not in self.hosts:
                words = f"this service is not called {name[:60]!r}; start it with --allow-host to allow that name"
                await error(400, words)(scope, counting, noting)
            else:
                await self.app(scope, counting, noting)
        finally:
            line = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "client": (scope.get("client") or [""])[0]}
            line |= {
                "method": scope["method"],
                "path": scope["path"][:200],
                "ms": round(1e3 * (time.perf_counter() - start), 1),
            }
            notice(json.dumps(line | seen))


def main(config: Config) -> None:
    """Listen until it is told to stop; requests that have begun are answered first."""
    options = uvicorn.Config(
        application(config),
        host=config.host,
        port=config.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # a client's own word for its address is not taken
        timeout_keep_alive=5,
        timeout_graceful_shutdown=int(config.seconds) + 5,
        limit_concurrency=4 * (config.waiting + config.per_client),
    )
    try:
        socket = options.bind_socket()
    except SystemExit:
        raise UserError(f"{config.host}:{config.port}: cannot listen there; name another --port or --host") from None
    host, port = socket.getsockname()[:2]
    if allowed_hosts(config) is None:
        notice(f"{host} is open to other machines, and this service asks nobody who they are")
    say(f"http://{host}:{port}/  (Ctrl-C stops)")
    process.let_go_of_signals()
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn stops in good order, then raises the signal once more
        signal.signal(number, lambda *_: None)
    uvicorn.Server(options).run([socket])


if __name__ == "__main__":
    cli.run(main, Config)
