"""A preprocessor_config.json as a transform: every key is honoured, changes no pixel here, or is refused by name.

The suite decides how an image is resized (its transforms squash and crop are the same for all models); the file decides
the interpolation and the scale of the pixels, and for the transform "own" the sizes too.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, NamedTuple

import msgspec

from shared import schema, transforms
from shared.errors import UserError
from shared.transforms import Transform

FILE = "preprocessor_config.json"
INSTEAD = "leave own out of the ways in which images enter (--ways squash)"
PILLOW = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
Sides = tuple[int, int]  # (height, width) in pixels
LARGEST = 16_384  # pixels of a side; a larger number is a mistake


class Processor(NamedTuple):
    """What transformers' class of this name does where the file says nothing. size, crop: pixels.

    square: an int for a size is both sides, else the shortest one. crop: cut from the centre, None: by default not.
    """

    size: int
    resample: int
    square: bool
    crop: int | None = None
    convnext: bool = False  # crop_pct below 384 pixels, squash from there


# A further class is one more row; tests/shared/test_models_processors.py compares it with transformers' own.
PROCESSORS = {
    "ViT": Processor(224, 2, square=True),
    "DeiT": Processor(256, 3, square=True, crop=224),
    "Bit": Processor(224, 3, square=False, crop=224),
    "CLIP": Processor(224, 3, square=False, crop=224),
    "ConvNext": Processor(384, 3, square=False, convnext=True),
}
# Keys that change no pixel: the images that come here are RGB, and of one size where they are stacked.
WITHOUT_EFFECT = {
    *("do_convert_rgb", "data_format", "input_data_format", "return_tensors", "device", "disable_grouping"),
    *("image_seq_length", "processor_class", "_valid_processor_keys", "_processor_class", "do_pad"),
}


# What counts for squash and crop too; sizes and cuts count for `own` only.
ALWAYS = {"image_mean", "image_std", "do_normalize", "do_rescale", "rescale_factor", "resample"}
ALWAYS |= {"image_processor_type", "feature_extractor_type"}


class File(msgspec.Struct, forbid_unknown_fields=True):
    """The keys that are read. Sizes, means and deviations have several spellings and are read below."""

    image_mean: Any = None
    image_std: Any = None
    image_processor_type: str | None = None
    feature_extractor_type: str | None = None  # the older name
    do_resize: bool = True
    size: Any = None
    default_to_square: bool | None = None
    crop_pct: float = 224 / 256
    resample: int | None = None
    do_center_crop: bool | None = None
    crop_size: Any = None
    do_rescale: bool = True
    rescale_factor: float = 1 / 255
    do_normalize: bool = True
    pad_size: Any = None


def transform_of(name: str, spec: str, settings: dict, family: str, fixed: Sides | None) -> Transform:
    """The transform called `name` by a preprocessor_config.json (`settings`).

    family: the processor (see PROCESSORS) of models whose file names none. fixed: the one size that the model's
    position embeddings allow. UserError for what cannot be honoured.
    """
    where = f"{spec}: {FILE}"
    # null and false switch nothing on, whatever the key is called
    known = set(File.__struct_fields__)
    used = {k: v for k, v in settings.items() if v is not None and k not in WITHOUT_EFFECT and (v or k in known)}
    way_out = "such preprocessing is not done here; take the key out of a local copy if it does not matter"
    file = schema.checked(used, File, where, way_out)
    if file.pad_size is not None and settings.get("do_pad"):
        raise UserError(f"{where}: do_pad to pad_size {file.pad_size!r} is not done here; {way_out}")
    processor = _processor(file, where, family)
    resample = processor.resample if file.resample is None else file.resample
    interpolation = PILLOW.get(resample, str(resample))
    mean, std = _pixel_scale(file, where)
    size = fixed or (transforms.SIZE, transforms.SIZE)
    try:
        own = _own(file, processor, where, interpolation, mean, std) if name == "own" else None
        if own and fixed and own.size != fixed:
            raise UserError(f"its recipe makes {own.size} images, its position embeddings are for {fixed}")
        return transforms.named(name, size, interpolation, mean, std, own)
    except UserError as error:
        raise UserError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None


def keys_read(settings: dict) -> str:
    """Which keys of the file decide the pixels, in words, and which do not."""
    there = [key for key, value in settings.items() if value is not None]
    always = [key for key in there if key in ALWAYS]
    own = [key for key in there if key in File.__struct_fields__ and key not in ALWAYS]
    rest = [key for key in there if key not in File.__struct_fields__]
    parts = [", ".join(always) or "none", f"for `own` also {', '.join(own)}" * bool(own)]
    parts.append(f"without effect here: {', '.join(rest)}" * bool(rest))
    return f"keys read of {FILE}: {'; '.join(filter(None, parts))}"


def _processor(file: File, where: str, family: str) -> Processor:
    key = "image_processor_type" if file.image_processor_type else "feature_extractor_type"
    written = getattr(file, key)
    name = written or family
    for ending in ("FeatureExtractor", "ImageProcessor", "ImageProcessorFast", "ImageProcessorPil"):
        name = name.removesuffix(ending)
    if name not in PROCESSORS:
        known = ", ".join(f"{name}ImageProcessor" for name in PROCESSORS)
        raise UserError(f"{where}: {key} {written!r} is not known; expected one of {known}")
    return PROCESSORS[name]


def _pixel_scale(file: File, where: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(mean, std) so that (x/255 - mean) / std is what the file's steps make of the grey level x."""
    # x * factor, then (x - mean) / std: with k = 255 * factor that is (x/255 - mean/k) / (std/k)
    k = 255 * file.rescale_factor if file.do_rescale else 255.0
    if not (isfinite(k) and k > 0):
        raise UserError(f"{where}: rescale_factor {file.rescale_factor}; expected a number above 0")
    if abs(k - 1) < 1e-9:
        k = 1.0
    if not file.do_normalize:
        return (0.0,) * 3, (1 / k,) * 3
    mean, std = (_three(getattr(file, key), key, where) for key in ("image_mean", "image_std"))
    return tuple(m / k for m in mean), tuple(s / k for s in std)


def _three(value: Any, key: str, where: str) -> list[float]:
    if value is None:
        raise UserError(f"{where} has no {key}; add the three numbers it was trained with")
    values = value if isinstance(value, list) else [value] * 3
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool) and isfinite(v)]
    if len(numbers) != len(values) or len(values) != 3 or (key == "image_std" and min(numbers) <= 0):
        above = " above 0" if key == "image_std" else ""
        raise UserError(f"{where}: {key} is {value!r:.60}; expected three numbers{above}, for red, green and blue")
    return [float(number) for number in numbers]


def _own(file: File, processor: Processor, where: str, interpolation: str, mean: tuple, std: tuple) -> Transform:
    if not file.do_resize:
        raise UserError(f"{where}: do_resize is false, so that images enter in any size; {INSTEAD}")
    square = processor.square if file.default_to_square is None else file.default_to_square
    edge, sides = _size(processor.size if file.size is None else file.size, "size", where, square=square)
    given = {"interpolation": interpolation, "mean": mean, "std": std, "floor": True}
    crop = None
    if processor.crop is not None if file.do_center_crop is None else file.do_center_crop:
        given_crop = processor.crop if file.crop_size is None else file.crop_size
        _, crop = (None, None) if given_crop is None else _size(given_crop, "crop_size", where, square=True)
        if crop is None:
            raise UserError(f"{where}: do_center_crop with crop_size {file.crop_size!r:.60}; expected height and width")
    if processor.convnext:
        if edge is None or crop not in (None, (edge, edge)):
            what = f"do_center_crop: size {file.size!r:.60} with crop_size {file.crop_size!r:.60}"
            raise UserError(f"{where}: {what}; expected a shortest_edge and no further crop: {INSTEAD}")
        if not 0 < file.crop_pct <= 1:
            raise UserError(f"{where}: crop_pct is {file.crop_pct}; expected a share above 0, up to 1")
        return Transform((edge, edge), shortest=None if edge >= 384 else int(edge / file.crop_pct), **given)
    if crop and edge:
        return Transform(crop, shortest=edge, **given)
    if sides:
        return Transform(crop or sides, squashed=sides if crop and crop != sides else None, **given)
    raise UserError(f"{where}: size {file.size!r:.60} without do_center_crop gives no fixed image size; {INSTEAD}")


def _size(value: Any, key: str, where: str, *, square: bool) -> tuple[int | None, Sides | None]:
    """(the shortest side, None) or (None, (height, width)) of a size in any of its spellings."""
    named = value
    if isinstance(value, int) and not isinstance(value, bool):
        named = {"height": value, "width": value} if square else {"shortest_edge": value}
    elif isinstance(value, list) and len(value) == 2:
        named = {"height": value[0], "width": value[1]}
    if isinstance(named, dict):
        named = {side: n for side, n in named.items() if n is not None}
        right = all(isinstance(n, int) and not isinstance(n, bool) and 1 <= n <= LARGEST for n in named.values())
        if right and named.keys() == {"shortest_edge"}:
            return named["shortest_edge"], None
        if right and named.keys() == {"height", "width"}:
            return None, (named["height"], named["width"])
    expected = f"a whole number, shortest_edge, or height and width, from 1 to {LARGEST:,}"
    raise UserError(f"{where}: {key} is {value!r:.60}; expected {expected}; {INSTEAD}")
