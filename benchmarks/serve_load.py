"""The comparison service under load: plans a second, how long they take, what mixed good and bad requests do to it.

    python benchmarks/serve_load.py                  30 s of plans at 100 a second, 10 minutes of mixed requests
    python benchmarks/serve_load.py --seconds 10 --minutes 1

It starts a service of its own on this machine, on a free port, and asks nothing else. Requests of the first part are
sent on a clock, whether or not earlier ones are answered, so that a slow answer cannot slow the asking down. In the
second part eight clients send graphs, comparisons, broken graphs, bombs and too large requests; an answer that does not
come, or has a status that was not to be expected, is lost. Memory: of the service and its processes, resident.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import harness

COLUMNS = ["", "measured", "aim"]
RATE, NODES, CLIENTS = 100, 100, 8
AIM_MS = 100  # 99 of 100 answers come sooner


def chain(nodes: int) -> dict[str, Any]:
    """A stack of layers of different widths, as no two repeat."""
    components: list[dict[str, Any]] = [{"id": "0", "type": "input", "inputShape": [1, 64, 16]}]
    for at in range(1, nodes):
        width = 16 + at // 2
        settings = (
            {"inFeatures": width - 1 + at % 2, "outFeatures": width} if at % 2 == 0 else {"dim": width - (at > 1)}
        )
        components.append({"id": str(at), "type": "linear" if at % 2 == 0 else "layerNorm", "params": settings})
    return {
        "id": "stack",
        "name": "stack",
        "components": components,
        "connections": [{"from": str(at), "to": str(at + 1)} for at in range(nodes - 1)],
    }


class Client:
    """One connection that is kept; opened again when the service closes it."""

    def __init__(self, host: str, port: int):
        self.host, self.port = host, port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: bytes) -> int:
        """The status of the answer, which is read to its end. Raises OSError or EOFError when there is none."""
        for again in (False, True):  # a kept connection may have been closed since the last answer
            fresh = self.writer is None
            try:
                return await self._post(path, body)
            except (OSError, EOFError):
                self.close()
                if fresh or again:
                    raise
        raise AssertionError

    async def _post(self, path: str, body: bytes) -> int:
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=1 << 22)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        await self.writer.drain()
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        await self.reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            self.close()
        return int(lines[0].split()[1])

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


async def steady(address: tuple[str, int], seconds: float) -> dict[str, Any]:
    """Plans on a clock: answered ones a second, and milliseconds from when each was due to the end of its answer."""
    body = json.dumps({"model": chain(NODES)}).encode()
    free: list[Client] = []
    took: list[float] = []
    lost: Counter[str] = Counter()

    async def one(due: float) -> None:
        client = free.pop() if free else Client(*address)
        try:
            status = await client.post("/api/v1/plan", body)
        except (OSError, EOFError) as error:
            lost[type(error).__name__] += 1
        else:
            took.append(1e3 * (time.perf_counter() - due))
            lost[str(status)] += status != 200
            free.append(client)

    for _ in range(20):  # the first ones warm it up
        await one(time.perf_counter())
    took.clear()
    start, tasks = time.perf_counter(), []
    for number in range(int(RATE * seconds)):
        due = start + number / RATE
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(due)))
    await asyncio.gather(*tasks)
    for client in free:
        client.close()
    ordered = sorted(took)
    return {
        "asked_a_second": RATE,
        "answered_a_second": len(took) / (time.perf_counter() - start),
        "p50_ms": statistics.median(ordered),
        "p99_ms": ordered[int(0.99 * len(ordered))],
        "longest_ms": ordered[-1],
        "lost": {key: count for key, count in lost.items() if count},
    }


def mixture() -> list[tuple[str, bytes, set[int]]]:
    """Path, body, and the statuses that may come back. 503 may always come: the service is busy."""
    good = json.dumps({"model": chain(NODES)}).encode()
    pair = json.dumps({"left": chain(40), "right": chain(60)}).encode()
    cycle = chain(5)
    cycle["connections"].append({"from": "4", "to": "1"})
    huge = {"model": {"components": [{"id": at, "type": "relu"} for at in range(30_000)]}}
    counts = chain(5)
    counts["components"][2]["params"]["outFeatures"] = 10**18
    return [
        *[("/api/v1/plan", good, {200})] * 6,
        *[("/api/v1/compare", pair, {200})] * 2,
        ("/api/v1/plan", b"{", {400}),
        ("/api/v1/plan", json.dumps({"model": cycle}).encode(), {422}),
        ("/api/v1/plan", b'{"model":' + b"[" * 200_000, {422}),
        ("/api/v1/plan", json.dumps(huge).encode(), {422}),
        ("/api/v1/plan", json.dumps({"model": counts}).encode(), {422}),
        ("/api/v1/plan", b" " * 9_000_000, {413}),
        ("/nowhere", good, {404}),
    ]


async def mixed(address: tuple[str, int], minutes: float, pid: int) -> dict[str, Any]:
    """Good and bad requests from several clients: answers by status, lost ones, memory over the time (MB)."""
    requests, statuses, lost = mixture(), Counter(), Counter()
    end = time.perf_counter() + 60 * minutes
    memory: list[float] = []

    async def client(offset: int) -> None:
        connection, at = Client(*address), offset
        while time.perf_counter() < end:
            path, body, expected = requests[at % len(requests)]
            at += 1
            try:
                status = await connection.post(path, body)
            except (OSError, EOFError) as error:
                lost[f"{type(error).__name__} after {len(body):,} bytes"] += 1
                connection.close()
                continue
            statuses[status] += 1
            if status not in expected | {503}:
                lost[f"{status} for one of {sorted(expected)}"] += 1
            await asyncio.sleep(0.02)
        connection.close()

    async def watch() -> None:
        while time.perf_counter() < end:
            await asyncio.sleep(min(10, 60 * minutes / 6))
            memory.append(resident(pid))

    await asyncio.gather(watch(), *(client(at * 2) for at in range(CLIENTS)))
    third = max(1, len(memory) // 3)
    found = {"minutes": minutes, "answers": dict(sorted(statuses.items())), "lost": dict(lost)}
    growth = {"first_third": statistics.mean(memory[:third]), "last_third": statistics.mean(memory[-third:])}
    return found | {"memory_mb": growth | {"most": max(memory)}}


def resident(pid: int) -> float:
    """MB of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    pages = [
        int(Path(f"/proc/{one}/statm").read_text(encoding="utf-8").split()[1])
        for one in [pid, *children]
        if Path(f"/proc/{one}").exists()
    ]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


def report(found: dict) -> list[str]:
    """`serve_load.md`."""
    plans, load = found["plans"], found["mixed"]
    memory = load["memory_mb"]
    answers = ", ".join(f"{count:,} × {status}" for status, count in load["answers"].items())
    rows = [
        [f"plans of a {NODES}-node graph a second", f"{plans['answered_a_second']:.1f}", f"{RATE}"],
        ["p50, ms", f"{plans['p50_ms']:.1f}", ""],
        ["p99, ms", f"{plans['p99_ms']:.1f}", f"{AIM_MS}"],
        ["the longest, ms", f"{plans['longest_ms']:.1f}", ""],
        ["lost or refused", sum(plans["lost"].values()), "0"],
        [f"answers in {load['minutes']:g} minutes of mixed requests", answers, ""],
        ["lost", sum(load["lost"].values()), "0"],
        ["memory, first third, MB", f"{memory['first_third']:.0f}", ""],
        ["memory, last third, MB", f"{memory['last_third']:.0f}", "level"],
    ]
    where = f"{harness.machine_line(found['machine'])}; load {found['load']:.1f} before; {found['date']}"
    return ["# The service under load", "", where, "", *harness.table(COLUMNS, rows), ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30, help="of plans on a clock")
    parser.add_argument("--minutes", type=float, default=10, help="of mixed requests")
    parser.add_argument("--dry", action="store_true", help="print, write no result")
    options = parser.parse_args()
    if not (0 < options.seconds <= 600 and 0 < options.minutes <= 60):
        parser.error("--seconds is at most 600, --minutes at most 60")
    where = harness.here()
    command = [sys.executable, "-m", "papers.comparisons.serve", "--port", "0"]
    service = subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": str(harness.ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    )
    try:
        address = service.stdout.readline().removeprefix("http://").partition("/")[0].split(":")
        where_to = address[0], int(address[1])
        time.sleep(3)
        found = where | {"plans": asyncio.run(steady(where_to, options.seconds))}
        found |= {"mixed": asyncio.run(mixed(where_to, options.minutes, service.pid))}
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(60)
    print("\n".join(report(found)))
    if not options.dry:
        results = harness.Results("serve_load", report)
        results.clear()
        results.update(found)
        results.write()


if __name__ == "__main__":
    main()
