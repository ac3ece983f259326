"""Parquet files as the hub's own library writes them, read by ours (which does not import it)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shared.data import load_images

datasets = pytest.importorskip("datasets", reason="datasets is not installed")


def test_a_file_written_by_the_hubs_library_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    pixels = [rng.integers(0, 256, (8, 6, 3), dtype=np.uint8) for _ in range(7)]
    features = datasets.Features(
        {"img": datasets.Image(), "fine_label": datasets.ClassLabel(names=["aquarium_fish", "Tank"])}
    )
    rows = {"img": [Image.fromarray(p) for p in pixels], "fine_label": [0, 1, 0, 1, 1, 0, 0]}
    file = tmp_path / "owner/set/data/test-00000-of-00001.parquet"
    file.parent.mkdir(parents=True)
    datasets.Dataset.from_dict(rows, features=features).to_parquet(file)

    read = load_images("owner/set", "test", root=tmp_path)
    assert read.class_names == ["aquarium fish", "tank"]
    assert read.labels.tolist() == rows["fine_label"]
    np.testing.assert_array_equal(read.arrays(), np.stack(pixels))
