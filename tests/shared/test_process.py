"""What holds for the whole process is set by a script's start alone, and a block's settings are put back."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest
import torch
from checkpoints import FLOAT32, random_model, save

from shared import cli, models, process
from shared.paths import ROOT


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_memory_stays_in_the_process():
    """Ten arrays of 32 MB in turn: fresh pages are asked for once, not ten times."""
    code = """
import resource, torch
from shared import process
print(process.keep_freed_memory())
def faults():
    start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(8 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start
faults()
print(faults())
"""
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=60, check=True
    ).stdout
    took, count = out.split()
    if took == "False":
        pytest.skip("this allocator does not take the thresholds")
    assert int(count) < 1000  # 81,920 pages of 4 KiB without the thresholds


def test_a_script_sets_up_its_process_once(monkeypatch):
    calls = []
    monkeypatch.setattr(process, "set_up", lambda: calls.append(1))
    with pytest.raises(SystemExit):
        cli.run(lambda config: 0, cli.Common, [])
    assert calls == [1]


def settings() -> tuple:
    import torch._inductor.config as inductor
    import transformers

    bars = transformers.logging.is_progress_bar_enabled()
    return (
        torch.get_num_threads(),
        inductor.freezing,
        transformers.logging.get_verbosity(),
        bars,
        logging.root.manager.disable,
    )


def test_loading_a_model_leaves_the_process_as_it_was(tmp_path, monkeypatch):
    image = torch.zeros(64, 64, 3, dtype=torch.uint8)
    folder = save(random_model("vit"), tmp_path / "model")
    # libraries set filters of their own when they are imported, once: not what loading does
    models.load_encoder(folder, FLOAT32).encode([image])
    changed = []
    monkeypatch.setattr(process, "keep_freed_memory", lambda: changed.append("allocator"))
    monkeypatch.setattr(torch, "set_num_threads", lambda n: changed.append("threads"))
    monkeypatch.setattr(torch, "compile", lambda module, **options: module)
    before, filters = settings(), list(warnings.filters)
    models.load_encoder(folder, FLOAT32, compile=True).encode([image])
    assert settings() == before
    assert warnings.filters == filters
    assert changed == []


def test_a_compiled_network_is_frozen_in_its_own_calls_only(monkeypatch):
    import torch._inductor.config as inductor

    from shared.models import fast

    monkeypatch.setattr(torch, "compile", lambda module, **options: lambda x: inductor.freezing)
    run = fast.compiled(torch.nn.Identity())
    assert run(torch.zeros(1)) is True
    assert inductor.freezing is False


def test_quiet_blocks_silence_libraries_and_end(caplog):
    import transformers

    transformers.logging.enable_progress_bar()  # another test's library may have turned it off
    logger = logging.getLogger("transformers.test")
    with process.quiet():
        warnings.warn("not heard", stacklevel=1)  # an error under -W error, were it not silenced
        logger.warning("not heard")
        assert not transformers.logging.is_progress_bar_enabled()
    assert transformers.logging.is_progress_bar_enabled()
    logging.getLogger("another").warning("heard")
    assert [record.message for record in caplog.records] == ["heard"]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_each_item_is_computed_by_one_thread_and_torchs_number_stays(threads):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        assert process.each_on_one_thread(lambda _: torch.get_num_threads(), range(6)) == [1] * 6
        assert torch.get_num_threads() == threads
        later = []
        thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert later == [threads]  # threads that start later too
        assert process.each_on_one_thread(lambda x: x * x, range(20)) == [x * x for x in range(20)]
    finally:
        torch.set_num_threads(before)


STOPPABLE = """
import sys, time
from dataclasses import dataclass
from shared import cli, paths
@dataclass
class Config(cli.Common):
    how: str = ""
def main(config):
    with paths.temporary_folder(paths.Path("here")):
        print("ready", flush=True)
        if config.how == "swallowed":  # what a library's start or a callback does with a KeyboardInterrupt
            while True:
                try:
                    time.sleep(60)
                except BaseException:
                    pass
        if config.how == "native":  # no handler reaches a main thread that waits outside Python
            import ctypes
            ctypes.CDLL(None).sleep(60)
        if config.how == "threads":
            import torch
            from concurrent.futures import ThreadPoolExecutor
            square = torch.ones(400, 400)
            list(ThreadPoolExecutor(2).map(lambda _: [square @ square is None for _ in iter(int, 1)], "ab"))
        time.sleep(60)
cli.run(main, Config)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("how", ["", "swallowed", "native", "threads"])
@pytest.mark.parametrize(
    ("number", "says"),
    [
        (signal.SIGINT, "interrupted; what was finished is kept, the same command continues\n"),
        (signal.SIGTERM, "told to end; what was finished is kept, the same command continues\n"),
        (signal.SIGHUP, "the terminal was closed; what was finished is kept, the same command continues\n"),
    ],
)
def test_a_signal_ends_a_script_at_once_with_one_line(how, number, says, tmp_path):
    if how == "threads" and number != signal.SIGINT:
        pytest.skip("once is enough: it loads torch")
    command = [sys.executable, "-c", STOPPABLE, "--how", how]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # the tests themselves may run under nohup or a shell's &, which ignore the signal; a child inherits that
    pipes["preexec_fn"] = lambda: signal.signal(number, signal.SIG_DFL)
    with subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, **pipes) as process_:
        try:
            assert process_.stdout.readline() == b"ready\n" and list(tmp_path.iterdir())
            time.sleep(1.5 * (how == "threads"))
            process_.send_signal(number)
            _, said = process_.communicate(timeout=20)
        finally:
            process_.kill()  # leaving the block waits for it, so one that did not end would hang the suite
    assert (process_.returncode, said.decode()) == (128 + number, says)
    assert not list(tmp_path.iterdir())  # the temporary folder went with it


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_forked_child_may_be_ended_and_an_ignored_signal_stays_ignored():
    code = """
import os, signal, time
from shared import process
signal.signal(signal.SIGINT, signal.SIG_IGN)  # what nohup and a shell's & do
process.end_on_signals()
child = os.fork()
if child == 0:
    time.sleep(60)
time.sleep(0.2)
os.kill(child, signal.SIGTERM)
os.kill(os.getpid(), signal.SIGINT)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
time.sleep(0.2)
print("lives")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8", timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "lives\n", "")
