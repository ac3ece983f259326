"""Everything that holds for the whole process, in one place: the allocator, libraries' talk, torch's threads.

`set_up()` is called once, when a script starts (`shared.cli.run` does it); a program of your own that wants the same
speed calls it too. What else is here lasts for one block and is put back. No constructor changes the process.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import platform
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's names for mallopt's parameters (malloc.h)


def set_up() -> None:
    """What a script sets for its whole run."""
    keep_freed_memory()


def use_threads(count: int) -> None:
    """Let torch compute on so many threads, as a script's --threads says; 0 leaves it torch's choice."""
    if count:
        import torch

        torch.set_num_threads(count)


def keep_freed_memory(megabytes: int = 1024) -> bool:
    """Let glibc keep the freed memory of one batch for the next, instead of asking the kernel for zeroed pages again.

    Worth 1.3x to 1.5x in bf16 on a CPU. The number of arenas is left alone: limiting it makes attention slower. True
    if the allocator took it; elsewhere (musl, macOS, Windows) nothing happens.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    kept = megabytes << 20
    return bool(mallopt(M_MMAP_THRESHOLD, kept)) & bool(mallopt(M_TRIM_THRESHOLD, min(2 * kept, (1 << 31) - 1)))


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings, load reports or loading bars of transformers in this block: what they say is checked by the caller.

    The hub's own bars stay, since a download takes long.
    """
    disabled = logging.root.manager.disable
    talk = sys.modules.get("transformers") and sys.modules["transformers"].logging
    bars = talk and talk.is_progress_bar_enabled()
    with warnings.catch_warnings(action="ignore"):
        logging.disable(max(disabled, logging.WARNING))
        if bars:
            talk.disable_progress_bar()
        try:
            yield
        finally:
            logging.disable(disabled)
            if bars:
                talk.enable_progress_bar()


@functools.cache
def _single_threads(count: int) -> ThreadPoolExecutor:
    """`count` threads, in each of which torch computes on one thread.

    torch.set_num_threads holds for the thread that calls it, and also for threads that start later. So all of them
    start here, and then the number for later ones is put back.
    """
    import torch

    all_started = threading.Barrier(count + 1)

    def alone() -> None:
        torch.get_num_threads()  # a thread's first question copies the process's number: before it is set here
        torch.set_num_threads(1)
        all_started.wait()

    executor = ThreadPoolExecutor(count, thread_name_prefix="single", initializer=alone)
    for _ in range(count):
        executor.submit(int)
    all_started.wait()
    torch.set_num_threads(count)
    return executor


def each_on_one_thread(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """`function` of every item, in order, each computed by a single thread; as many at a time as torch has threads."""
    import torch

    return list(_single_threads(torch.get_num_threads()).map(function, items))
