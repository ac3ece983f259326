"""The service as its clients see it: the command line's answers, one-sentence errors, limits that hold, a page."""

from __future__ import annotations

import atexit
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from papers.comparisons.compare import main
from papers.comparisons.models import GRAPHS
from shared import cli
from shared.paths import ROOT

pytest.importorskip("fastapi", reason="the service's packages are not here (pip install 'paper-suite[serve]')")
JSON = {"Content-Type": "application/json"}
NASTY = '<script>alert(1)</script>"\x1b[31m'


def graph(name: str = "gpt2") -> dict:
    return json.loads((GRAPHS / f"{name}.json").read_text(encoding="utf-8"))


def chain(nodes: int, width: int = 8) -> dict:
    """Linear layers that all differ, so that two chains take the longest to align."""
    components = [{"id": "0", "type": "input", "inputShape": [width]}]
    components += [
        {"id": str(at), "type": "linear", "params": {"inFeatures": width, "outFeatures": width}}
        for at in range(1, nodes)
    ]
    return {
        "id": "chain",
        "components": components,
        "connections": [{"from": str(at), "to": str(at + 1)} for at in range(nodes - 1)],
    }


@dataclass
class Server:
    process: subprocess.Popen
    address: str
    log: Path

    def call(self, method: str, path: str, body: object = None, headers: dict | None = None) -> tuple[int, dict, bytes]:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection(self.address, timeout=90)
        connection.request(method, path, data, JSON if headers is None and data is not None else headers or {})
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read()
        connection.close()
        return found

    def post(self, job: str, body: object, query: str = "") -> tuple[int, str]:
        status, _, text = self.call("POST", f"/api/v1/{job}{query}", body)
        return status, text.decode()

    def error(self, job: str, body: object, query: str = "") -> tuple[int, str]:
        status, text = self.post(job, body, query)
        said = json.loads(text)
        assert list(said) == ["error"] and "\n" not in said["error"], said
        return status, said["error"]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def start(folder: Path, *options: object) -> Server:
    log = folder / "log"
    command = [sys.executable, "-m", "papers.comparisons.serve", "--port", "0", *map(str, options)]
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            encoding="utf-8",
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    atexit.register(process.kill)  # also where a test fails before it stops the service
    line = process.stdout.readline()
    assert line.startswith("http://"), log.read_text(encoding="utf-8")
    server = Server(process, line.removeprefix("http://").partition("/")[0], log)
    for _ in range(600):
        try:
            assert server.call("GET", "/healthz")[0] == 200
            return server
        except OSError:
            time.sleep(0.1)
    raise AssertionError(log.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = start(tmp_path_factory.mktemp("serve"), "--workers", 1, "--seconds", 30)
    yield one
    assert one.stop() == 0


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Little time, no place to wait."""
    options = ("--workers", 1, "--seconds", 1, "--waiting", 1, "--per-client", 3, "--max-mb", 30, "--max-nodes", 5000)
    one = start(tmp_path_factory.mktemp("tight"), *options)
    yield one
    assert one.stop() == 0


def printed(capsys, *arguments: str, stdin: bytes = b"", monkeypatch=None) -> str:
    if stdin:
        import io

        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    with pytest.raises(SystemExit):
        main(list(arguments))
    return capsys.readouterr().out


# the answers ----------------------------------------------------------------------------------------------------------

REQUESTS = [
    {"model": graph()},
    {"model": graph("t5-small"), "base": graph(), "policy": {"max_params": 1e6, "must_fit": ["T4"]}, "share": True},
    {"model": "graph:vit-b16", "base": "graph:bert-base"},
    {"model": graph("resnet-block"), "spec": {"quant": "int8", "serving": {"gpu": "a100"}}, "source": "cli"},
    graph("bert-base"),
    {"model": "bert-base", "gpus": ["RTX 4090", "96GB"]},
]


@pytest.mark.parametrize("at", range(len(REQUESTS)))
def test_a_plan_is_the_command_lines_byte_for_byte(server: Server, capsys, monkeypatch, at: int) -> None:
    body = json.dumps(REQUESTS[at]).encode()
    status, headers, text = server.call("POST", "/api/v1/plan", body)
    assert status == 200 and headers["content-type"] == "application/json; charset=utf-8"
    assert text.decode() == printed(capsys, "plan", "-", stdin=body, monkeypatch=monkeypatch)


def test_what_the_public_client_reads_is_there(server: Server) -> None:
    status, text = server.post("plan", REQUESTS[1])
    answer = json.loads(text)
    plan = answer["plan"]
    assert status == 200 and answer["text"] and answer["markdown"] and answer["url"] is None and answer["share_error"]
    assert plan["version"] == 1 and len(plan["model"]["fingerprint"]) == 8 and plan["diff"]["layers"] == 10
    assert plan["run"]["legal"] is True and len(plan["run"]["blockers"]) == 1 and plan["cost"]["train_usd"] > 0


@pytest.mark.parametrize("pair", [("graph:bert-base", "graph:vit-b16"), ("graph:gpt2", "graph:resnet-block")])
@pytest.mark.parametrize("form", ["json", "markdown", "csv"])
def test_a_comparison_is_the_command_lines(server: Server, capsys, tmp_path: Path, pair, form: str) -> None:
    status, text = server.post("compare", {"left": pair[0], "right": pair[1]}, f"?format={form}")
    assert status == 200
    assert text == printed(capsys, *pair, f"--{form}", "--results", str(tmp_path))


def test_a_comparison_as_a_page(server: Server) -> None:
    left = graph() | {"name": NASTY}
    left["components"][4]["name"] = NASTY
    status, text = server.post("compare", {"left": left, "right": graph("bert-base")}, "?format=html")
    assert status == 200 and "<script" not in text and "\x1b" not in text and "&lt;script&gt;alert(1)" in text
    assert server.post("compare", {"left": graph(), "right": graph()})[0] == 200


def test_options_of_a_comparison(server: Server) -> None:
    body = {"left": "graph:gpt2", "right": "graph:bert-base", "assumptions": {"batch": 3}}
    found = json.loads(server.post("compare", body)[1])["comparison"]
    assert found["assumptions"]["batch"] == 3 and found["sides"][0]["memory_bytes"]["batch"] == 3
    published = {"left": "graph:gpt2", "right": "graph:bert-base", "as_published": True}
    assert json.loads(server.post("compare", published)[1])["comparison"]["sides"][0]["parameters"] == 84_331_345


def test_a_real_model_by_name(server: Server) -> None:
    status, text = server.post("plan", {"model": "article-vit"})
    assert status == 200 and json.loads(text)["parameters"] == 1_205_898
    start = time.perf_counter()
    assert server.post("plan", {"model": "article-vit", "assumptions": {"batch": 2}})[0] == 200
    assert time.perf_counter() - start < 5, "built once"


def test_names_health_and_documents(server: Server) -> None:
    names = json.loads(server.call("GET", "/api/v1/models")[2])
    assert "vit-b16" in names["builtin"] and "graph:t5-small" in names["graphs"] and names["limits"]["nodes"] == 20_000
    assert json.loads(server.call("GET", "/healthz")[2])["status"] == "ok"
    api = json.loads(server.call("GET", "/openapi.json")[2])
    assert set(api["paths"]) == {"/api/v1/plan", "/api/v1/compare", "/api/v1/models", "/healthz"}
    asked = api["paths"]["/api/v1/plan"]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    types = api["components"]["schemas"]
    assert asked == "#/components/schemas/Request" and {"Plan", "Verdict", "Policy", "CompareRequest"} <= set(types)
    assert set(api["paths"]["/api/v1/plan"]["post"]["responses"]) >= {"200", "400", "413", "422", "429", "503"}
    docs = server.call("GET", "/docs")[2].decode()
    assert "POST /api/v1/plan" in docs and "max_memory_gb" in docs and "<script" not in docs


# errors and hostile inputs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "body", "status", "said"),
    [
        ("plan", b"{", 400, "request: not JSON"),
        ("plan", b"\xff", 400, "not JSON"),
        ("plan", b"", 400, "not JSON"),
        ("plan", b"[]", 400, "expected an object"),
        ("plan", b'{"model": NaN}', 400, "NaN is no number"),
        ("plan", b'{"model": ' + b"9" * 5000 + b"}", 400, "not JSON"),
        ("plan", b'{"model": ' + b"[" * 500_000, 422, "nested too deeply"),
        ("plan", b'{"a":' * 500_000, 422, "nested too deeply"),
        ("plan", {}, 422, "'model' is missing"),
        ("plan", {"model": {"components": []}}, 422, "no components"),
        ("plan", {"model": graph(), "policy": {"max_param": 1}}, 422, "did you mean 'max_params'?"),
        ("plan", {"model": "owner/name"}, 422, "this service takes a built-in name"),
        ("plan", {"model": "hf:owner/name"}, 422, "this service takes"),
        ("plan", {"model": "https://huggingface.co/owner/name"}, 422, "this service takes"),
        ("plan", {"model": "/etc/passwd"}, 422, "this service takes"),
        ("plan", {"model": "../x.json"}, 422, "this service takes"),
        ("plan", {"model": "graph:../gpt2"}, 422, "this service takes"),
        ("plan", {"model": "timm:resnet18@/etc/passwd"}, 422, "this service takes"),
        ("plan", {"model": "x.pth"}, 422, "this service takes"),
        ("plan", {"model": "graph:none"}, 422, "the pages' graphs are"),
        ("plan", {"model": graph(), "base": "/etc/passwd"}, 422, "this service takes"),
        ("compare", {"left": graph()}, 422, "'right' is missing"),
        ("compare", {"left": "x" * 10_000, "right": graph()}, 422, "this service takes"),
        ("compare", {"left": graph(), "right": graph(), "html": True}, 422, "unknown key 'html'"),
        (
            "compare",
            {"left": graph(), "right": {"components": [{"id": 1, "type": "relu"}] * 2}},
            422,
            "right graph: two",
        ),
    ],
)
def test_an_error_is_one_sentence_with_its_status(server: Server, job: str, body, status: int, said: str) -> None:
    found, words = server.error(job, body)
    assert (found, said in words) == (status, True), words
    assert len(words) < 800


def test_errors_of_the_request_itself(server: Server) -> None:
    assert server.error("compare", {"left": graph(), "right": graph()}, "?format=exe")[0] == 400
    assert server.error("plan", {"model": graph()}, "?format=csv")[0] == 400
    body = json.dumps({"model": graph()}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):  # what another site's form could send
        status, _, text = server.call("POST", "/api/v1/plan", body, {"Content-Type": kind})
        assert status == 400 and "application/json" in json.loads(text)["error"]
    assert server.call("GET", "/nowhere")[0] == 404 and server.call("GET", "/api/v1/plan")[0] == 405
    assert json.loads(server.call("GET", "/nowhere")[2])["error"]


def test_another_name_of_this_machine_is_refused(server: Server) -> None:
    port = server.address.partition(":")[2]
    for host, status in (("evil.example", 400), (f"evil.example:{port}", 400), (f"localhost:{port}", 200)):
        assert server.call("GET", "/healthz", headers={"Host": host})[0] == status


def test_a_request_of_60_mb_is_refused_and_does_no_harm(server: Server) -> None:
    for body in (b" " * 60_000_000, b"[" * 9_000_000):
        status, words = server.error("plan", body)
        assert status == 413 and "larger than 8 MB" in words
    assert server.post("plan", {"model": graph()})[0] == 200


def test_a_million_nodes_are_refused(tight: Server) -> None:
    many = b'{"model":{"components":[' + b",".join([b'{"id":1,"type":"a"}'] * 1_000_000) + b"]}}"
    status, words = tight.error("plan", many)
    assert status in (422, 503) and ("1,000,000 components" in words or "longer than 1 second" in words)
    few = {"components": [{"id": 1, "type": "a"}] * 5001}
    assert tight.error("plan", {"model": few}) == (422, "model: 5,001 components; this service takes at most 5,000")
    edges = {"components": [], "connections": [{}] * 40_001}
    assert "40,001 connections" in tight.error("compare", {"left": graph(), "right": edges})[1]


@pytest.mark.parametrize(
    "settings",
    [{"numLayers": 10**18}, {"numHeads": 10**18}, {"outFeatures": 10**18}, {"repeat": 10**18}, {"dim": 1e300}],
)
def test_a_graph_that_counts_to_10_18(server: Server, settings: dict) -> None:
    data = graph()
    for node in data["components"][1:]:
        node.setdefault("params", {}).update(settings)
    assert server.post("plan", {"model": data})[0] in (200, 422)


def test_work_that_takes_too_long_is_stopped_and_the_next_is_answered(tight: Server) -> None:
    before = json.loads(tight.call("GET", "/healthz")[2])["graphs"]["killed"]
    status, words = tight.error("compare", {"left": chain(5000), "right": chain(4990, 9)})
    assert status == 503 and "longer than 1 seconds and was stopped" in words
    assert json.loads(tight.call("GET", "/healthz")[2])["graphs"]["killed"] == before + 1
    answers = [tight.post("plan", {"model": graph()})[0] for _ in range(3)]
    assert 200 in answers


def test_more_work_than_may_wait_is_refused_at_once(tight: Server) -> None:
    slow = json.dumps({"left": chain(5000), "right": chain(4990, 9)}).encode()
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(tight.error("compare", slow)[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = Counter(found)
    assert set(counts) == {429, 503} and sum(counts.values()) == 8, counts


def test_a_request_that_never_ends_keeps_nobody_else_waiting(server: Server) -> None:
    host, _, port = server.address.partition(":")
    with socket.create_connection((host, int(port))) as half:
        half.sendall(
            b"POST /api/v1/plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99\r\n\r\n{"
        )
        assert server.post("plan", {"model": graph()})[0] == 200


def test_memory_is_limited(tmp_path: Path) -> None:
    server = start(tmp_path, "--workers", 1, "--memory-mb", 100, "--seconds", 60)
    many = b'{"model":{"components":[' + b",".join([b"{}"] * 2_500_000) + b"]}}"  # 7.5 MB that become 200
    assert server.error("plan", many) == (503, "the work needs more than the 100 MB that one request may take")
    assert server.post("plan", {"model": graph()})[0] == 200
    assert server.stop() == 0


def test_a_stop_answers_what_has_begun_and_leaves_no_process(tmp_path: Path) -> None:
    server = start(tmp_path, "--workers", 1, "--seconds", 30)
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    workers = children.read_text(encoding="utf-8").split() if children.exists() else []
    found: list[tuple[int, str]] = []
    body = {"left": chain(1500), "right": chain(1490, 9)}
    thread = threading.Thread(target=lambda: found.append(server.post("compare", body)))
    thread.start()
    time.sleep(0.3)
    assert server.stop() == 0
    thread.join()
    assert found[0][0] == 200 and json.loads(found[0][1])["comparison"]["title"]
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def test_every_request_is_a_line_of_json_in_the_log(server: Server) -> None:
    server.call("GET", "/%1b%5B31m%0Ax")
    # the line is written after the answer, and another test's may come after it
    mine: list[dict] = []
    until = time.monotonic() + 20
    while not mine and time.monotonic() < until:
        lines = [json.loads(line) for line in server.log.read_text(encoding="utf-8").splitlines()]
        mine = [line for line in lines if line["path"] == "/\x1b[31m\nx"]
    assert [line["status"] for line in mine] == [404]
    assert {"time", "client", "method", "path", "ms", "status", "in", "out"} == set(mine[0])
    assert "\x1b" not in server.log.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--max-mb", "0"), "--max-mb must be above 0"),
        (("--port", "99999"), "--port must be between"),
        (("--max-mb", "51"), "--max-mb must be at most 50"),
        (("--bind", "x"), "unknown argument --bind"),
        (("--host", "203.0.113.1"), "cannot listen there"),
    ],
)
def test_options_that_cannot_be_are_one_line(capsys, options, said: str) -> None:
    from papers.comparisons import serve

    with pytest.raises(SystemExit) as ended:
        cli.run(serve.main, serve.Config, ["--port", "0", *options])
    errors = capsys.readouterr().err
    assert ended.value.code == 2 and said in errors and errors.count("error: ") == 1 and "Traceback" not in errors


# the page -------------------------------------------------------------------------------------------------------------


def compared(page) -> str:
    page.click("button[type=submit]")
    page.wait_for_selector("#answer", state="visible", timeout=60_000)
    frame = page.frame_locator("#shown")
    frame.locator("h1").wait_for()
    return frame.locator("body").inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_two_models_are_compared_in_a_browser(server: Server, show, tmp_path: Path, width: int, scheme: str) -> None:
    page = show(f"http://{server.address}/", viewport={"width": width, "height": 800}, color_scheme=scheme)
    text = compared(page)
    assert "BERT Base vs ViT-B/16" in text and "one block of twelve" in text and "The real models" in text
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    frame = page.frames[1]
    assert frame.evaluate("document.documentElement.scrollWidth") <= width
    colour = {"dark": "rgb(231, 229, 224)", "light": "rgb(28, 29, 32)"}[scheme]
    assert page.evaluate("getComputedStyle(document.body).color") == colour
    assert frame.evaluate("getComputedStyle(document.body).color") == colour
    for form, begins in (
        ("json", "{"),
        ("csv", "row,status"),
        ("markdown", "> BERT Base"),
        ("html", "<!doctype html>"),
    ):
        with page.expect_download() as download:
            page.click(f"[data-format={form}]")
        assert Path(download.value.path()).read_text(encoding="utf-8").lower().startswith(begins.lower())
    assert page.errors == []
    assert {address.split("/")[2] for address in page.requests if address.startswith("http")} == {server.address}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_its_pages(server: Server, show, axe, scheme: str) -> None:
    for path in ("/", "/docs"):
        assert axe(show(f"http://{server.address}{path}", color_scheme=scheme)) == []


def test_a_pasted_graph_and_a_bad_one_in_a_browser(server: Server, show) -> None:
    from playwright.sync_api import expect

    page = show(f"http://{server.address}/")
    mine = graph() | {"name": "<b>Mine</b>"}
    page.fill("[name=left-graph]", json.dumps(mine))
    assert page.input_value("[name=left-name]") == ""
    assert "<b>Mine</b> vs ViT-B/16" in compared(page)
    for text, said in (
        ("{", "The first graph is not JSON"),
        ('{"components": []}', "the graph has no components"),
        ('{"components": [{"id": 1, "type": "add"}], "connections": [{"from": 1, "to": 2}]}', "which is no node"),
    ):
        page.fill("[name=left-graph]", text)
        page.click("button[type=submit]")
        page.wait_for_selector("#error", state="visible")
        expect(page.locator("#error")).to_contain_text(said)
        assert not page.is_visible("#answer")
    page.fill("[name=left-graph]", "")
    page.click("button[type=submit]")
    expect(page.locator("#error")).to_contain_text("Name the first model")
    page.set_input_files(
        "[name=left-file]",
        files=[{"name": "g.json", "mimeType": "application/json", "buffer": json.dumps(graph()).encode()}],
    )
    # the page's own policy forbids what wait_for_function evaluates
    expect(page.locator("[name=left-graph]")).to_have_value(re.compile(r".{100}", re.DOTALL))
    assert "GPT-2 vs ViT-B/16" in compared(page)
