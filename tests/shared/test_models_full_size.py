"""The article's largest and its two convolutional encoders at full size (random weights): benchmarks/memory.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shared.paths import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ViT-H/14", "BiT R50x1", "ResNet-50"])
def test_shape_and_memory(name, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import memory

    report = memory.measure_encoder(name, "bfloat16", Path(tmp_path))
    assert report["shape"] == [4, report["dim"]]
    assert report["finite"]
    assert report["preprocessing"].startswith("squash to 224x224")
    if sys.platform == "linux":
        assert report["peak_rss_bytes"] < 8e9
