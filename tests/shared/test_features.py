"""Extraction: the same numbers whatever happens on the way, and nothing computed twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import tiny_encoder
import torch
from PIL import Image
from tiny_encoder import BFLOAT16, FLOAT32, Network, identity
from torch import Tensor, nn

from shared import data, device, features
from shared.data import ImageSet, load_images
from shared.errors import UserError
from shared.features import Deferred, ahead, extract
from shared.transforms import Transform

WORKER = Path(tiny_encoder.__file__)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PAPERS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def noise() -> ImageSet:
    return tiny_encoder.noise()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty images of three sizes in two classes."""
    root = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for number in range(40):
        path = root / f"class {number % 2}" / f"{number:02d}.png"
        path.parent.mkdir(exist_ok=True)
        height, width = [(20, 20), (24, 18), (9, 31)][number % 3]
        Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)).save(path)
    return root


def shard_bytes(cache: Path) -> dict[str, bytes]:
    return {str(file.relative_to(cache)): file.read_bytes() for file in sorted(cache.rglob("*.safetensors"))}


def forbidden(*_: object) -> None:
    raise AssertionError("this must not be needed")


# ------------------------------------------------------------------------------------------------ the numbers


def test_features_are_the_encoders_own_in_the_sets_order(folder: Path) -> None:
    mixed = load_images(str(folder))
    encoder = tiny_encoder.encoder()
    one_by_one = torch.cat([encoder.encode(mixed.batch([i])) for i in range(len(mixed))]).numpy()
    np.testing.assert_allclose(extract(encoder, mixed, FLOAT32), one_by_one, atol=1e-5)
    order = np.random.default_rng(1).permutation(len(mixed))
    np.testing.assert_allclose(extract(encoder, mixed.subset(order), FLOAT32), one_by_one[order], atol=1e-5)


@pytest.mark.parametrize("batch_size", [3, 100, 1000])
def test_any_batch_size_gives_the_same_within_rounding(noise: ImageSet, batch_size: int) -> None:
    part = noise.subset(slice(0, 300))
    expected = extract(tiny_encoder.encoder(), part, FLOAT32)
    measured = extract(tiny_encoder.encoder(), part, FLOAT32, batch_size=batch_size)
    np.testing.assert_allclose(measured, expected, atol=1e-5)


def test_batches_never_cross_a_shard_and_are_of_one_size_on_a_cpu(noise: ImageSet) -> None:
    network = Network()
    extract(tiny_encoder.encoder(network), noise.subset(slice(0, 300)), FLOAT32)
    assert network.batches == [32] * 8 + [32, 12]


def test_an_empty_set_has_no_features(noise: ImageSet) -> None:
    assert extract(tiny_encoder.encoder(), noise.subset([]), FLOAT32).shape == (0, 6)


# ------------------------------------------------------------------------------------------------ the cache


def test_a_second_run_needs_neither_the_model_nor_a_image(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = extract(Deferred(identity(), tiny_encoder.encoder), load_images(str(folder)), FLOAT32)
    monkeypatch.setattr(data, "decode", forbidden)
    again = load_images(str(folder))
    assert again.fingerprint
    np.testing.assert_array_equal(extract(Deferred(identity(), forbidden), again, FLOAT32), first)


def test_an_encoder_is_loaded_once_for_all_sets(noise: ImageSet) -> None:
    loaded = []
    encoder = Deferred(identity(), lambda: loaded.append(1) or tiny_encoder.encoder())
    extract(encoder, noise.subset(slice(0, 20)), FLOAT32)
    extract(encoder, noise.subset(slice(20, 50)), FLOAT32)
    assert loaded == [1]


def test_whatever_changes_the_numbers_changes_the_key(noise: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    few = noise.subset(slice(0, 5))
    other_transform = Transform((16, 16), "bicubic", (0.5,) * 3, (0.25,) * 3)

    def files(encoder: Deferred, images: ImageSet = few, batch: int | str = "auto", choice=FLOAT32) -> set[str]:
        folder = features.ShardFolder("tiny", features.recipe(encoder, choice, batch))
        return {str(folder.file(images, 0))}

    plain = Deferred(identity(), forbidden)
    variants = [
        files(plain),
        files(Deferred(identity("1" * 64), forbidden)),
        files(Deferred(identity(transform=other_transform), forbidden)),
        files(Deferred(identity(), forbidden, compiled=True)),
        files(plain, choice=BFLOAT16),
        files(plain, batch=16),
        files(plain, few.subset([1, 0, 2, 3, 4])),
    ]
    for step in ("extract", "transform", "timm"):
        with monkeypatch.context() as raised:
            raised.setitem(features.FEATURES_VERSION, step, 2)
            variants.append(files(plain))
    with monkeypatch.context() as upgraded:
        upgraded.setattr(features, "version", lambda library: "99" if library == "timm" else "1")
        variants.append(files(plain))
    assert len(set.union(*variants)) == len(variants)
    monkeypatch.setitem(features.FEATURES_VERSION, "hf", 2)  # this model is timm's
    assert files(plain) == variants[0]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text"])
def test_a_damaged_shard_is_found_and_computed_again(noise: ImageSet, cache: Path, damage: str) -> None:
    part = noise.subset(slice(0, 600))
    expected = extract(tiny_encoder.encoder(), part, FLOAT32)
    whole = shard_bytes(cache)
    assert len(whole) == 3
    victim = cache / sorted(whole)[1]
    content = victim.read_bytes()
    flipped = content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]
    victim.write_bytes({"cut": content[:-100], "flipped": flipped, "empty": b"", "text": b"not a shard" * 50}[damage])
    said: list[str] = []
    network = Network()
    np.testing.assert_array_equal(extract(tiny_encoder.encoder(network), part, FLOAT32, say=said.append), expected)
    assert shard_bytes(cache) == whole
    assert sum(network.batches) in (256, 88)  # this shard only
    assert len(said) == 1 and victim.name in said[0] and "computed again" in said[0]


def test_without_the_cache_nothing_is_written(noise: ImageSet, cache: Path) -> None:
    few = noise.subset(slice(0, 40))
    uncached = extract(tiny_encoder.encoder(), few, FLOAT32, cache=False)
    assert not shard_bytes(cache)
    np.testing.assert_array_equal(extract(tiny_encoder.encoder(), few, FLOAT32), uncached)


# ------------------------------------------------------------------------------------------------ processes


def run_worker(
    cache: Path, result: Path, *arguments: str, launcher: tuple[str, ...] = (), **environment: str
) -> list[str]:
    command = [sys.executable, *launcher, str(WORKER), str(result), *arguments]
    variables = {**os.environ, "PAPERS_CACHE": str(cache), "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(command, env=variables, capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stderr.splitlines()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray, dict[str, bytes]]:
    """Features and shards of this process, to which nothing happens."""
    home = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAPERS_CACHE", str(home))
        return extract(tiny_encoder.encoder(), tiny_encoder.noise(1300), FLOAT32), shard_bytes(home)


def test_killed_at_any_point_it_continues_to_the_same_bytes(
    tmp_path: Path, undisturbed: tuple[np.ndarray, dict[str, bytes]]
) -> None:
    cache, result = tmp_path / "cache", tmp_path / "features.npy"
    variables = {**os.environ, "PAPERS_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(WORKER), str(result), "0.1"]
    process = subprocess.Popen(command, env=variables, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 100
    while len(shard_bytes(cache)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    left = shard_bytes(cache)
    assert 2 <= len(left) < 6 and not (tmp_path / "0-features.npy").exists()
    before = {file: (cache / file).stat().st_mtime_ns for file in left}
    run_worker(cache, result)
    assert shard_bytes(cache) == undisturbed[1]
    assert {file: (cache / file).stat().st_mtime_ns for file in left} == before  # continued, not begun again
    np.testing.assert_array_equal(np.load(tmp_path / "0-features.npy"), undisturbed[0])


def test_two_processes_give_the_bytes_of_one(tmp_path: Path, undisturbed: tuple[np.ndarray, dict[str, bytes]]) -> None:
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    run_worker(tmp_path / "cache", tmp_path / "features.npy", launcher=torchrun, TINY_OWN_CACHE="1")
    for rank in (0, 1):
        np.testing.assert_array_equal(np.load(tmp_path / f"{rank}-features.npy"), undisturbed[0])
        assert shard_bytes(tmp_path / f"cache-{rank}") == undisturbed[1]


# ------------------------------------------------------------------------------------------------ memory


class Greedy(Network):
    """Runs out of memory above `fits` images, in the words of the CPU's allocator."""

    def __init__(self, fits: int) -> None:
        super().__init__()
        self.fits = fits

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > self.fits:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: 9 bytes")
        return super().forward(x)


def test_out_of_memory_halves_the_batch_and_says_so(noise: ImageSet, capsys: pytest.CaptureFixture) -> None:
    part = noise.subset(slice(0, 100))
    network, said, later = Greedy(10), [], []
    measured = extract(tiny_encoder.encoder(network), part, FLOAT32, say=said.append)
    np.testing.assert_allclose(measured, extract(tiny_encoder.encoder(), part, FLOAT32, cache=False), atol=1e-5)
    assert max(network.batches) == 8
    assert [line.rpartition("with ")[2] for line in capsys.readouterr().err.splitlines()] == ["16", "8"]
    assert len(said) == 1 and "8 images a pass, since the memory was not enough for 32" in said[0]
    extract(Deferred(identity(), forbidden), part, FLOAT32, say=later.append)
    assert later == said  # whoever takes them from the cache is told too


def test_memory_for_not_even_one_image_is_the_users_to_know(noise: ImageSet) -> None:
    with pytest.raises(UserError, match="not even one image fits"):
        extract(tiny_encoder.encoder(Greedy(0)), noise.subset(slice(0, 9)), FLOAT32, say=lambda line: None)


def test_another_error_of_the_model_is_not_taken_for_a_lack_of_memory(noise: ImageSet) -> None:
    class Broken(Network):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="multiplied"):
        extract(tiny_encoder.encoder(Broken()), noise.subset(slice(0, 9)), FLOAT32)


def test_how_many_images_a_pass_is_a_rule_and_no_timing() -> None:
    gpu = device.Choice(torch.device("cuda", 0), torch.float16, "a card")
    assert features.images_a_pass(FLOAT32, "auto") == 32 and features.images_a_pass(gpu, "auto") == features.SHARD
    encoder = Deferred(identity(), forbidden)
    assert features.recipe(encoder, gpu, "auto") == features.recipe(encoder, gpu, features.SHARD)


# ------------------------------------------------------------------------------------------------ precision


class Overflowing(nn.Module):
    """Not finite below float32 for one image, and in every precision for `hopeless` ones."""

    def __init__(self, brightest: float, hopeless: bool = False) -> None:
        super().__init__()
        self.network = Network()
        self.brightest, self.hopeless = brightest, hopeless

    def forward(self, x: Tensor) -> Tensor:
        bad = (x.flatten(1).sum(1) >= self.brightest) & (self.hopeless or x.dtype is torch.bfloat16)
        return torch.where(bad[:, None], torch.inf, self.network(x))


def brightest(noise: ImageSet) -> float:
    return float(tiny_encoder.encoder(choice=BFLOAT16).prepare(noise.batch(slice(None))).flatten(1).sum(1).max())


def test_a_batch_that_is_not_finite_is_computed_in_float32_and_reported_every_time(noise: ImageSet) -> None:
    part = noise.subset(slice(0, 96))
    encoder = tiny_encoder.encoder(Overflowing(brightest(part)), BFLOAT16)
    said: list[str] = []
    measured = extract(encoder, part, BFLOAT16, say=said.append)
    assert np.isfinite(measured).all()
    exact = extract(tiny_encoder.encoder(), part, FLOAT32)
    same = np.isclose(measured, exact, atol=1e-6).all(1)
    assert same.sum() >= 32 and not same.all()  # one batch of three is float32's, the others are bfloat16's
    assert len(said) == 1 and "not finite in bfloat16" in said[0] and "computed in float32" in said[0]
    warm: list[str] = []
    extract(Deferred(identity(), forbidden), part, BFLOAT16, say=warm.append)
    assert warm == said


def test_features_that_stay_not_finite_are_refused_by_the_images_name(noise: ImageSet) -> None:
    part = noise.subset(slice(0, 40))
    encoder = tiny_encoder.encoder(Overflowing(brightest(part), hopeless=True), BFLOAT16)
    with pytest.raises(UserError, match=r"noise-00\d\d are not finite in any precision"):
        extract(encoder, part, BFLOAT16)


# ------------------------------------------------------------------------------------------------ errors on the way


def test_an_unreadable_image_is_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "good.png")
    buffer = BytesIO()
    Image.effect_noise((64, 64), 50).save(buffer, "JPEG")
    (tmp_path / "b" / "cut.jpg").write_bytes(buffer.getvalue()[:500])
    with pytest.raises(UserError, match=r"cut\.jpg: not a readable image"):
        extract(tiny_encoder.encoder(), load_images(str(tmp_path)), FLOAT32)


@pytest.mark.parametrize("batch_size", [0, -3, "many"])
def test_a_wrong_batch_size_is_refused(noise: ImageSet, batch_size: int | str) -> None:
    with pytest.raises(UserError, match="expected auto or a number"):
        extract(tiny_encoder.encoder(), noise, FLOAT32, batch_size=batch_size)


def test_reading_ahead_keeps_order_bounds_and_errors() -> None:
    made: list[int] = []

    def items():
        for number in range(20):
            made.append(number)
            yield number
        raise KeyError("at the end")

    taken = []
    with pytest.raises(KeyError, match="at the end"):
        for item in ahead(items()):
            taken.append(item)
            assert len(made) <= len(taken) + 3
            time.sleep(0.001)
    assert taken == list(range(20))


def test_the_yardstick_says_what_a_slow_cpu_will_take(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 1))
    monkeypatch.setattr(features.time, "perf_counter", lambda: next(clock) * 0.1)
    # 8 x 197 x 768 x 3072 of 17.6e12 multiply-adds in 0.1 s: 473 s
    assert features.yardstick(device.choose("cpu", "fp32")).endswith("as ViT-B/16 take about 8 min here")
    assert features.yardstick(device.Choice(torch.device("cuda", 0), torch.float16, "a card")) == ""
    for unit, dtype, offered in [(None, "fp32", True), (None, "bf16", False), ("AMX", "fp32", False)]:
        monkeypatch.setattr(features, "bf16_unit", lambda unit=unit: (unit, "said"))
        choice = device.choose("cpu", dtype)
        assert ("--compile" in features.yardstick(choice, may_compile=True)) is offered, (unit, dtype)
        assert "--compile" not in features.yardstick(choice)
