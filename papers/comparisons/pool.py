"""Processes that work for the service and can be killed: each job has its time, and no more wait than may.

    pool = Pool(Limits(), processes=2, seconds=10, waiting=64)
    async with pool: status, kind, body = await pool.run(head, body)

A process that takes too long, or dies, is replaced; the job that it had is answered with an error, no other is lost.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
from contextlib import suppress
from typing import Any, Self

from papers.comparisons.worker import Limits, command, frame
from shared.paths import ROOT

START = 60.0  # seconds until a new process must be ready
LARGEST_ANSWER = 1 << 30


class Busy(Exception):
    """More work waits than may, or it waited too long."""


class TooLong(Exception):
    """The work took longer than allowed; its process is gone."""


class Died(Exception):
    """The process ended in the middle of the work."""


class Worker:
    """One process and the job that it has."""

    def __init__(self, process: asyncio.subprocess.Process):
        self.process = process

    @classmethod
    async def start(cls, limits: Limits) -> Worker:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        if not limits.allow_hub:
            environment |= {"HF_HUB_OFFLINE": "1"}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command(limits), stdin=pipe, stdout=pipe, env=environment, start_new_session=True
        )
        worker = cls(process)
        try:
            await asyncio.wait_for(worker.read(), START)
        except (TimeoutError, Died):
            await worker.kill()
            raise
        return worker

    async def read(self) -> bytes:
        try:
            size = struct.unpack(">I", await self.process.stdout.readexactly(4))[0]
            return await self.process.stdout.readexactly(min(size, LARGEST_ANSWER))
        except asyncio.IncompleteReadError:
            raise Died from None

    async def do(self, job: bytes) -> bytes:
        try:
            self.process.stdin.write(frame(job))
            await self.process.stdin.drain()
        except ConnectionError:
            raise Died from None
        return await self.read()

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


class Pool:
    """Up to `processes` workers, started when they are needed. seconds: of one job; waiting: jobs without a worker."""

    def __init__(self, limits: Limits, processes: int, seconds: float, waiting: int):
        self.limits, self.seconds, self.most_waiting = limits, seconds, waiting
        self.free = asyncio.Semaphore(processes)
        self.idle: list[Worker] = []
        self.busy: set[Worker] = set()
        self.waiting = 0
        self.killed = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in [*self.idle, *self.busy]:
            await worker.kill()

    async def warm(self) -> None:
        """Start one worker before the first request."""
        self.idle.append(await Worker.start(self.limits))

    async def run(self, head: dict[str, Any], body: bytes) -> tuple[int, str, bytes]:
        """Status, media type and body of the answer. Raises Busy, TooLong or Died."""
        await self._wait()
        worker = None
        try:
            worker = self.idle.pop() if self.idle else await Worker.start(self.limits)
            self.busy.add(worker)
            job = json.dumps(head).encode() + b"\n" + body
            answer = await asyncio.wait_for(worker.do(job), self.seconds)
        except BaseException as error:  # also a client that left: what the worker does then is of no use
            if worker:
                self.busy.discard(worker)
                self.killed += 1
                await worker.kill()
            raise (TooLong() if isinstance(error, TimeoutError) else error) from None
        else:
            self.busy.discard(worker)
            self.idle.append(worker)
        finally:
            self.free.release()
        first, _, text = answer.partition(b"\n")
        found = json.loads(first)
        return found["status"], found["type"], text

    async def _wait(self) -> None:
        if self.free.locked() and self.waiting >= self.most_waiting:
            raise Busy
        self.waiting += 1
        try:
            await asyncio.wait_for(self.free.acquire(), self.seconds)
        except TimeoutError:
            raise Busy from None
        finally:
            self.waiting -= 1
