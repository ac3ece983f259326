"""What holds for the whole process is set by a script's start alone, and a block's settings are put back."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import warnings

import pytest
import torch
from checkpoints import FLOAT32, random_model, save

from shared import cli, models, process


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
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
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
    changed = []
    monkeypatch.setattr(process, "keep_freed_memory", lambda: changed.append("allocator"))
    monkeypatch.setattr(torch, "set_num_threads", lambda n: changed.append("threads"))
    monkeypatch.setattr(torch, "compile", lambda module, **options: module)
    before, filters = settings(), list(warnings.filters)
    encoder = models.load_encoder(save(random_model("vit"), tmp_path / "model"), FLOAT32, compile=True)
    encoder.encode([torch.zeros(64, 64, 3, dtype=torch.uint8)])
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
