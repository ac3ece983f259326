"""Everything that holds for the whole process, in one place: the allocator, libraries' talk, torch's threads.

`set_up()` is called once, when a script starts (`shared.cli.run` does it); a program of your own that wants the same
speed calls it too. What else is here lasts for one block and is put back. No constructor changes the process.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import platform
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

from shared import paths

T = TypeVar("T")
R = TypeVar("R")
KEPT = "what was finished is kept, the same command continues"
# what ends a script from outside, by the signal's name (Windows has not all of them)
STOPS = {"SIGINT": "interrupted", "SIGTERM": "told to end", "SIGHUP": "the terminal was closed"}
_taken: list[int] = []  # the signals that `end_on_signals` waits for
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's names for mallopt's parameters (malloc.h)


def set_up() -> None:
    """What a script sets for its whole run."""
    keep_freed_memory()
    end_on_signals()


def end_on_signals() -> None:
    """Ctrl-C, a kill and a closed terminal end the process at once with one line and the code 128 + signal.

    A KeyboardInterrupt would come anywhere in the main thread: a library's start loses it or turns it into another
    error, a wait for other processes delays it, and an exit under running kernels aborts. So a thread of its own waits
    for the signal, and ends the process without unwinding it. Nothing is lost by that: every file is whole at any time.
    """
    if sys.platform == "win32":  # no pipe for signals; KeyboardInterrupt has to do
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    for name in STOPS:
        number = getattr(signal, name)
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):  # nohup's and others' stay
            signal.signal(number, lambda *_: None)
            _taken.append(number)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    # a forked child has the pipe but no thread: what ends it must not end its parent
    os.register_at_fork(after_in_child=let_go_of_signals)
    threading.Thread(target=_end, args=(reading,), name="signals", daemon=True).start()


def let_go_of_signals() -> None:
    """Python's own handlers again: for a program that has an order in which to stop."""
    if _taken:
        signal.set_wakeup_fd(-1)
    while _taken:
        number = _taken.pop()
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _end(reading: int) -> None:
    words = {getattr(signal, name): word for name, word in STOPS.items()}
    while (number := os.read(reading, 1)[0]) not in words:  # other handlers' signals come here too
        pass
    paths.remove_temporaries()
    line = f"{words[number]}; {KEPT}\n"
    with suppress(OSError):  # by number: the buffers may be in use at this moment
        os.write(2, (b"\n" if os.isatty(2) else b"") + line.encode())
    os._exit(128 + number)


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
