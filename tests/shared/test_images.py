"""Decoding: every kind of image file comes out as upright 8-bit RGB, or as an error that names it."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shared import data as image_sets
from shared.data import PixelStore, decode, digest, in_parallel
from shared.errors import UserError


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def gradient(height: int = 12, width: int = 20) -> np.ndarray:
    return (np.arange(height)[:, None] * 11 + np.arange(width)[None, :] * 5).astype(np.uint8)


def colours() -> np.ndarray:
    return np.stack([gradient(), gradient()[::-1], 255 - gradient()], axis=2)


def test_rgb_is_exact() -> None:
    np.testing.assert_array_equal(decode(encoded(Image.fromarray(colours())), "x"), colours())
    np.testing.assert_array_equal(decode(encoded(Image.fromarray(colours()), "WEBP", lossless=True), "x"), colours())


def test_grey_is_repeated() -> None:
    expected = np.repeat(gradient()[..., None], 3, axis=2)
    np.testing.assert_array_equal(decode(encoded(Image.fromarray(gradient())), "x"), expected)


def test_black_and_white() -> None:
    bits = gradient() > 100
    pixels = decode(encoded(Image.fromarray(bits)), "x")
    np.testing.assert_array_equal(pixels[..., 1], bits * np.uint8(255))


def test_palette() -> None:
    few = Image.fromarray(colours()).quantize(7)
    assert few.mode == "P"
    np.testing.assert_array_equal(decode(encoded(few), "x"), np.array(few.convert("RGB")))
    np.testing.assert_array_equal(decode(encoded(few, "GIF"), "x"), np.array(few.convert("RGB")))


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_pixels_lie_on_white(mode: str) -> None:
    alpha = np.zeros((12, 20), np.uint8)
    alpha[:, 10:] = 255
    alpha[0, 0] = 128
    image = Image.fromarray(colours()).convert("RGB" if mode == "RGBA" else "L")
    opaque = np.array(image.convert("RGB"))
    image.putalpha(Image.fromarray(alpha))
    assert image.mode == mode
    pixels = decode(encoded(image), "x")
    np.testing.assert_array_equal(pixels[:, 10:], opaque[:, 10:])
    assert (pixels[1:, :10] == 255).all()
    np.testing.assert_allclose(pixels[0, 0], (opaque[0, 0].astype(int) * 128 + 255 * 127) / 255, atol=1)


def test_a_transparent_palette_colour_lies_on_white() -> None:
    image = Image.fromarray((gradient() > 100).astype(np.uint8))
    image.putpalette([10, 20, 30, 200, 100, 50])
    pixels = decode(encoded(image, transparency=0), "x")
    assert {tuple(colour) for colour in pixels.reshape(-1, 3)} == {(255, 255, 255), (200, 100, 50)}


def test_sixteen_bits_are_scaled_and_not_clipped() -> None:
    deep = np.linspace(0, 65535, 240).astype(np.uint16).reshape(12, 20)
    pixels = decode(encoded(Image.fromarray(deep)), "x")
    np.testing.assert_array_equal(pixels[..., 0], np.rint(deep / 257).astype(np.uint8))
    np.testing.assert_array_equal(decode(encoded(Image.fromarray(deep), "TIFF"), "x"), pixels)


def sixteen_bit_rgb_png(pixels: np.ndarray) -> bytes:
    """Pillow cannot write one."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def test_sixteen_bit_colours_keep_their_upper_byte() -> None:
    pixels = decode(sixteen_bit_rgb_png(colours().astype(np.uint16) * 257), "x")
    np.testing.assert_array_equal(pixels, colours())


def test_cmyk() -> None:
    red_over_blue = np.zeros((16, 16, 3), np.uint8)
    red_over_blue[:8, :, 0] = red_over_blue[8:, :, 2] = 255
    data = encoded(Image.fromarray(red_over_blue).convert("CMYK"), "JPEG", quality=100)
    assert Image.open(BytesIO(data)).mode == "CMYK"
    np.testing.assert_allclose(decode(data, "x").astype(int), red_over_blue, atol=12)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_carried_out(orientation: int) -> None:
    upright = colours()
    # how a camera stores the image when its file says `orientation`
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[image_sets.ORIENTATION] = orientation
    data = encoded(Image.fromarray(np.ascontiguousarray(stored)), exif=exif)
    np.testing.assert_array_equal(decode(data, "x"), upright)


def test_an_animation_gives_its_first_frame() -> None:
    frames = [Image.new("RGB", (6, 4), colour) for colour in ("red", "blue")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (decode(data, "x") == [255, 0, 0]).all()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "TIFF"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9])
def test_truncated_files_are_named(kind: str, share: float) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    data = encoded(noise, kind)
    with pytest.raises(UserError, match=r"pets/train\.parquet row 17 \(Bengal_3\.jpg\): not a readable image"):
        decode(data[: int(len(data) * share)], "pets/train.parquet row 17 (Bengal_3.jpg)")


@pytest.mark.parametrize("data", [b"", b"GIF89a", b"<html>404</html>", bytes(1000)])
def test_what_is_no_image_is_named(data: bytes) -> None:
    with pytest.raises(UserError, match="here: not a readable image"):
        decode(data, "here")


def test_samples_without_a_fixed_white_are_refused() -> None:
    with pytest.raises(UserError, match=r"here: 32-bit samples \(mode F\)"):
        decode(encoded(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF"), "here")


def test_digest_sees_shape_and_pixels() -> None:
    flat = np.zeros((2, 8, 3), np.uint8)
    other = flat.copy()
    other[1, 7, 2] = 1
    assert len({digest(flat), digest(flat.reshape(4, 4, 3)), digest(other)}) == 3
    assert digest(np.asfortranarray(other)) == digest(other)


def test_in_parallel_keeps_the_order() -> None:
    assert in_parallel(lambda x: x * x, range(50), small=False) == in_parallel(lambda x: x * x, range(50), small=True)


def test_the_store_gives_back_what_it_took_until_it_is_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PAPERS_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    taken = [rng.integers(0, 256, (5 + i, 7, 3), np.uint8) for i in range(6)]
    store = PixelStore(limit=sum(t.nbytes for t in taken[:4]))
    for row, pixels in enumerate(taken):
        store.put(row, pixels)
    for row in (3, 0, 2, 1):
        np.testing.assert_array_equal(store.get(row), taken[row])
        assert store.get(row).flags.writeable
    assert store.get(4) is None and store.get(5) is None and store.get(99) is None
    assert not list((tmp_path / "cache").iterdir())  # no name, so nothing stays behind


def test_a_store_without_a_place_to_write_keeps_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    monkeypatch.setenv("PAPERS_CACHE", str(tmp_path / "file"))
    store = PixelStore()
    store.put(0, np.zeros((2, 2, 3), np.uint8))
    assert store.get(0) is None


# ------------------------------------------------------------------------------------------------ what is not opened


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "an EPS drawing, which is not opened"),
        (b"%PDF-1.7\n", "a PDF, which is not opened"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git-lfs pointer, not the image: run `git lfs"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "HEIC, which this Pillow does not open"),
        (b'<?xml version="1.0"?><svg width="9">', "an SVG drawing"),
        (b"<!DOCTYPE html><title>404</title>", "a web page, saved in the image's place"),
        (b"", "0 bytes; an empty file"),
        (b"\1\2\3" * 40, "120 bytes; damaged, or none of JPEG, "),
    ],
)
def test_what_it_is_instead_is_said(data: bytes, message: str) -> None:
    with pytest.raises(UserError, match=f"here: not a readable image .*{message}") as error:
        decode(data, "here")
    assert "BytesIO" not in str(error.value)


@pytest.mark.parametrize("kind", ["EPS", "PDF"])
def test_no_other_program_is_started(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr(subprocess, "Popen", never)
    with pytest.raises(UserError, match="which is not opened"):
        decode(encoded(Image.fromarray(colours()), kind), "here")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP", "JPEG2000", "AVIF", "ICO", "TGA", "PPM"])
def test_the_usual_formats_are_opened(kind: str) -> None:
    if kind not in image_sets.formats():
        pytest.skip(f"this Pillow has no {kind}")
    assert decode(encoded(Image.fromarray(colours()), kind), "x").shape[2] == 3


def test_a_lack_of_memory_is_not_blamed_on_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Image.Image) -> None:
        raise MemoryError

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", full)
    with pytest.raises(UserError, match=r"here: not enough memory to decode it \(20x12 pixels\); end other programs"):
        decode(encoded(Image.fromarray(colours())), "here")


# ------------------------------------------------------------------------------------------------ large images


@pytest.mark.parametrize(
    ("size", "kind", "expected"),
    [
        ((400, 640), "JPEG", (100, 160)),
        ((400, 199), "JPEG", (400, 199)),  # a side shorter than twice REDUCED
        ((801, 803), "JPEG", (101, 101)),
        ((400, 640), "PNG", (400, 640)),
        ((199, 199), "JPEG", (199, 199)),
    ],
)
def test_a_large_jpeg_comes_at_a_reduced_scale(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], kind: str, expected: tuple[int, int]
) -> None:
    monkeypatch.setattr(image_sets, "REDUCED", 100)
    smooth = np.add.outer(np.linspace(0, 120, size[0]), np.linspace(0, 120, size[1])).astype(np.uint8)
    image = Image.fromarray(np.repeat(smooth[..., None], 3, axis=2))
    pixels = decode(encoded(image, kind), "x")
    assert pixels.shape == (*expected, 3)
    whole = np.asarray(image.resize(expected[::-1], Image.Resampling.BOX)).astype(int)
    assert np.abs(pixels - whole).mean() < 2


def test_a_reduced_jpeg_is_turned_upright(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_sets, "REDUCED", 10)
    exif = Image.Exif()
    exif[image_sets.ORIENTATION] = 6
    assert decode(encoded(Image.new("RGB", (80, 40)), "JPEG", exif=exif), "x").shape == (20, 10, 3)


def test_blocks_hold_little_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Small images come together, large ones one by one; in order, and the same as all at once."""
    monkeypatch.setenv("PAPERS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(image_sets, "BLOCK", 5000)
    rng, sizes = np.random.default_rng(0), [10, 10, 10, 60, 60, 10, 10, 20, 10]
    for number, size in enumerate(sizes):
        folder = tmp_path / "x" / ("a" if number < 5 else "b")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (size, size, 3), np.uint8)).save(folder / f"{number}.png")
    images = image_sets.load_images(str(tmp_path / "x"))
    blocks = list(images.blocks())
    assert all(sum(map(np.size, block)) - max(map(np.size, block)) <= 5000 for block in blocks)
    assert [image.shape[0] for block in blocks for image in block] == sizes and len(blocks) == 3
    again = images.batch(slice(None))
    assert all(np.array_equal(a, b) for a, b in zip((i for block in blocks for i in block), again, strict=True))
    assert [len(block) for block in images.blocks([8, 0, 1])] == [3]


def test_encoded_images_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are asked for: large files are not all in memory before the first is decoded."""
    from shared.sources import Source

    held: list[int] = []

    class Rows:
        identity = ""

        def where(self, row: int) -> str:
            return f"row {row}"

        def read(self, rows: np.ndarray) -> list[bytes]:
            held.append(sum(len(content) for content in [content] * len(rows)))
            return [content] * len(rows)

    content = encoded(Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)))
    monkeypatch.setattr(image_sets, "BLOCK", 8 * 4 * len(content))
    labels = np.zeros(100, np.int64)
    image_sets.ImageSet("x", Source("all", "here", Rows(), labels, ["a"], ["f"] * 100, ["a"])).digests(save=False)
    assert max(held) <= 8 * len(content) and sum(held) == 100 * len(content)


def test_the_store_leaves_the_disk_to_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import shutil
    from types import SimpleNamespace

    monkeypatch.setenv("PAPERS_CACHE", str(tmp_path / "cache"))
    store, free = PixelStore(), [PixelStore.ROOM + 1]
    monkeypatch.setattr(PixelStore, "STEP", 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free[0]))
    store.put(0, np.zeros((8, 8, 3), np.uint8))
    free[0] = PixelStore.ROOM - 1
    store.put(1, np.ones((8, 8, 3), np.uint8))
    assert store.get(0) is not None and store.get(1) is None and store.has(1)  # nobody waits for it
