"""Subsets, the stream of batches and the augmentation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as tv
from PIL import Image

from shared.data import load_images
from shared.errors import UserError
from shared.training import stream as data

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 60))


def test_subsets_are_balanced_and_nested() -> None:
    small, middle, all_of_them = (data.nested_subset(LABELS, n, seed=3) for n in (50, 200, 600))
    assert set(small) < set(middle) < set(all_of_them) == set(range(600))
    assert np.bincount(LABELS[small]).tolist() == [5] * 10
    assert np.bincount(LABELS[middle]).tolist() == [20] * 10
    assert not np.array_equal(small, data.nested_subset(LABELS, 50, seed=4))


def test_validation_and_held_out_share_nothing() -> None:
    validation, held_out = data.split_test(LABELS, 300)
    assert np.bincount(LABELS[validation]).tolist() == [30] * 10
    assert sorted([*validation, *held_out]) == list(range(600))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: data.nested_subset(LABELS, 55, 0), "size 55 does not divide into 10 classes"),
        (lambda: data.nested_subset(LABELS, 610, 0), "61 images per class are asked for, class 0 has 60"),
        (lambda: data.split_test(LABELS, 25), "--validation 25 does not divide"),
        (lambda: data.split_test(LABELS, 600), "leaves none of 600"),
    ],
)
def test_counts_that_do_not_fit(call, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()


@pytest.mark.parametrize(("size", "epochs"), [(1000, 320), (5000, 64), (50000, 6)])
def test_the_stream_drops_no_rest(size: int, epochs: int) -> None:
    stream = np.concatenate([data.batch_positions(size, step, 128, seed=0) for step in range(2500)])
    assert len(stream) == 320_000 and len(stream) // size == epochs
    for epoch in {0, 1, epochs - 1}:
        assert np.array_equal(np.sort(stream[epoch * size : (epoch + 1) * size]), np.arange(size))
    assert not np.array_equal(stream[:size], stream[size : 2 * size])


def test_a_batch_may_be_larger_than_the_data() -> None:
    positions = data.batch_positions(10, step=1, batch=32, seed=0)
    assert np.bincount(positions, minlength=10).sum() == 32
    assert np.array_equal(np.sort(positions[8:18]), np.arange(10))  # the epoch that starts at 40


def test_crop_and_flip_equal_torchvision() -> None:
    images = torch.randint(0, 256, (64, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    draws = data.draw_augmentation(step=7, batch=64, seed=0, pad=4)
    got = data.crop_flip(images, draws, 4)
    for i, image in enumerate(images):
        crop = tv.crop(tv.pad(image, [4]), int(draws.top[i]), int(draws.left[i]), 32, 32)
        assert torch.equal(got[i], tv.horizontal_flip(crop) if draws.flip[i] else crop)


def test_draws_cover_their_range_and_repeat() -> None:
    draws = [data.draw_augmentation(step, 128, 0, 4) for step in range(40)]
    for corners in (torch.cat([d.top for d in draws]), torch.cat([d.left for d in draws])):
        counts = corners.bincount(minlength=9)
        assert len(counts) == 9 and counts.min() > 450  # 569 expected, deviation 22
    assert 0.45 < torch.cat([d.flip for d in draws]).float().mean() < 0.55
    assert torch.equal(draws[3].top, data.draw_augmentation(3, 128, 0, 4).top)
    assert not torch.equal(draws[3].top, data.draw_augmentation(3, 128, 1, 4).top)


def test_channel_statistics() -> None:
    images = torch.randint(0, 256, (20, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images[:, 2] = 51
    mean, std = data.channel_statistics(images)
    unit = images.double().transpose(0, 1).flatten(1) / 255
    np.testing.assert_allclose(mean, unit.mean(1), atol=5.1e-5)
    np.testing.assert_allclose(std[:2], unit.std(1, correction=0)[:2], atol=5.1e-5)
    assert (mean[2], std[2]) == (0.2, 1.0)  # a constant channel is not divided by 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of coloured images of different sizes, 6 to train and 4 to test on each."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 6), ("test", 4)):
        for label, channel in (("blue things", 2), ("red things", 0)):
            (tmp_path / split / label).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 60, (20 + i, 30, 3), dtype=np.uint8)
                pixels[..., channel] += 150
                Image.fromarray(pixels).save(tmp_path / split / label / f"{i}.png")
    return tmp_path


def test_a_folder_of_images_of_any_size(folder: Path) -> None:
    source = load_images(str(folder))
    arrays = data.arrays_of(source, 16)
    assert arrays.images.shape == (12, 3, 16, 16) and arrays.images.dtype == torch.uint8
    assert arrays.labels.tolist() == [0] * 6 + [1] * 6 and source.class_names == ["blue things", "red things"]
    assert arrays.images[0, 2].min() > 100 > arrays.images[0, 0].max()


def test_an_image_of_the_right_size_keeps_its_pixels() -> None:
    source = load_images("digits")
    arrays = data.arrays_of(source, 8)
    assert np.array_equal(arrays.images[5].permute(1, 2, 0), source.image(5))


def test_prepare_normalises_all_sizes_alike() -> None:
    train, test = (data.arrays_of(load_images("digits", split), 8) for split in ("train", "test"))
    parts = [data.prepare(train, test, size=n, seed=0, validation=100, device=torch.device("cpu")) for n in (20, 200)]
    assert parts[0].mean == parts[1].mean and parts[0].fingerprints != parts[1].fingerprints
    assert [len(p.train) for p in parts] == [20, 200] and len(parts[0].held_out) == 400
