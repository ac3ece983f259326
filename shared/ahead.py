"""Making items in a thread ahead of their use, and showing how far long work has come."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Iterator
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")


def ahead(items: Iterator[T], depth: int = 2) -> Iterator[T]:
    """`items`, made by a thread that is up to `depth` of them ahead."""
    ready: queue.Queue = queue.Queue(depth)
    stop = threading.Event()

    def put(message: tuple) -> bool:
        while not stop.is_set():
            try:
                ready.put(message, timeout=0.2)
                return True
            except queue.Full:
                continue
        return False

    def make() -> None:
        try:
            for item in items:
                if not put((item, None)):
                    return
            put((None, StopIteration()))
        except BaseException as error:  # whatever happens in the thread is the consumer's to raise
            put((None, error))

    thread = threading.Thread(target=make, name="images", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if isinstance(error, StopIteration):
                return
            if error:
                raise error
            yield item
    finally:
        stop.set()
        thread.join(timeout=5)  # an interpreter that exits under a running kernel crashes


class Progress:
    """A bar on a terminal; elsewhere one line with the expected time when it will take more than a minute."""

    def __init__(self, name: str, images: int, *, quiet: bool) -> None:
        self.name, self.left, self.quiet = name, images, quiet
        self.bar = tqdm(total=images, desc=name, unit=" images", disable=True if quiet else None, leave=False)
        self.start, self.computed, self.told = 0.0, 0, quiet

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def skip(self, images: int) -> None:
        self.left -= images
        self.bar.update(images)

    def done(self, images: int) -> None:
        self.left -= images
        self.bar.update(images)
        if not self.start:  # the first batch pays for loading and compiling: it is not timed
            self.start = time.perf_counter()
            return
        self.computed += images
        if not self.told and self.bar.disable:
            seconds = (time.perf_counter() - self.start) / self.computed * self.left
            if seconds > 60:
                print(f"{self.name}: {self.left} images to go, about {seconds / 60:.0f} min", file=sys.stderr)
        self.told = True
