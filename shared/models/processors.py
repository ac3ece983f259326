"""A preprocessor_config.json as a transform: every key is honoured, changes no pixel here, or is refused by name.

The suite decides how an image is resized (its transforms squash and crop are the same for all models); the file decides
the interpolation and the scale of the pixels, and for the transform "own" the sizes too.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite, isqrt
from typing import Any, NamedTuple

import msgspec

from shared import schema, transforms
from shared.errors import UserError
from shared.transforms import Transform

FILE = "preprocessor_config.json"
INSTEAD = "take squash or crop instead of own as the way in which images enter (--transform, or --ways)"
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
    crop_pct: float = 224 / 256
    enlarged: str = ""  # how the shortest side becomes larger than the file says: "levit", "crop_pct"
    normalise: bool = True
    bgr: bool = False  # blue first
    twice: bool = False  # divided by the deviations twice, which the key include_top asks for
    free: bool = False  # images keep their shape


# A further class is one more row; tests/shared/test_models_processors.py compares it with transformers' own.
PROCESSORS = {
    "ViT": Processor(224, 2, square=True),
    "DeiT": Processor(256, 3, square=True, crop=224),
    "Bit": Processor(224, 3, square=False, crop=224),
    "CLIP": Processor(224, 3, square=False, crop=224),
    "ConvNext": Processor(384, 3, square=False, convnext=True),
    "Beit": Processor(224, 3, square=True),
    "Siglip": Processor(224, 3, square=True),
    "Siglip2": Processor(256, 2, square=True, free=True),
    "DINOv3ViT": Processor(224, 2, square=True),
    "ChineseCLIP": Processor(224, 3, square=False, crop=224),
    "EfficientNet": Processor(346, 3, square=True, twice=True),
    "Levit": Processor(224, 3, square=False, crop=224, enlarged="levit"),
    "MobileNetV1": Processor(256, 2, square=False, crop=224),
    "MobileNetV2": Processor(256, 2, square=False, crop=224),
    "MobileViT": Processor(224, 3, square=False, crop=256, normalise=False, bgr=True),
    "PoolFormer": Processor(224, 3, square=False, crop=224, crop_pct=0.9, enlarged="crop_pct"),
    "Pvt": Processor(224, 3, square=True),
    "Segformer": Processor(512, 2, square=True),
}
# Keys that change no pixel: the images that come here are RGB, and of one size where they are stacked.
WITHOUT_EFFECT = {
    *("do_convert_rgb", "data_format", "input_data_format", "return_tensors", "device", "disable_grouping"),
    *("image_seq_length", "processor_class", "_valid_processor_keys", "_processor_class", "do_pad"),
    *("do_reduce_labels", "reduce_labels"),  # of segmentations
}
# Keys that only one class knows, and what marks that class in PROCESSORS.
OF_ONE_CLASS = {"include_top": "twice", "rescale_offset": "twice", "do_flip_channel_order": "bgr"}
OF_ONE_CLASS |= {"patch_size": "free", "max_num_patches": "free"}
UNSCALED = {"image_mean": 0.0, "image_std": 1.0}


# What counts for squash and crop too; sizes and cuts count for `own` only.
ALWAYS = {"image_mean", "image_std", "do_normalize", "do_rescale", "rescale_factor", "resample"}
ALWAYS |= {"image_processor_type", "feature_extractor_type"}
ALWAYS |= {"do_flip_channel_order", "rescale_offset", "include_top"}


class File(msgspec.Struct, forbid_unknown_fields=True):
    """The keys that are read. Sizes, means and deviations have several spellings and are read below."""

    image_mean: Any = None
    image_std: Any = None
    image_processor_type: str | None = None
    feature_extractor_type: str | None = None  # the older name
    do_resize: bool = True
    size: Any = None
    default_to_square: bool | None = None
    crop_pct: float | None = None
    resample: int | None = None
    do_center_crop: bool | None = None
    crop_size: Any = None
    do_rescale: bool = True
    rescale_factor: float = 1 / 255
    rescale_offset: bool = False
    do_normalize: bool | None = None
    include_top: bool | None = None
    do_flip_channel_order: bool | None = None
    patch_size: int | None = None
    max_num_patches: int | None = None
    pad_size: Any = None


def transform_of(name: str, spec: str, settings: dict, family: str, fixed: Sides | None) -> Transform:
    """The transform called `name` by a preprocessor_config.json (`settings`).

    family: the processor (see PROCESSORS) of models whose file names none. fixed: the one size that the model's
    position embeddings allow. UserError for what cannot be honoured.
    """
    where = f"{spec}: {FILE}"
    way_out = "such preprocessing is not done here; take the key out of a local copy if it does not matter"
    file = schema.checked(_used(settings), File, where, way_out)
    if file.pad_size is not None and settings.get("do_pad"):
        raise UserError(f"{where}: do_pad to pad_size {file.pad_size!r} is not done here; {way_out}")
    processor = _processor(file, where, family)
    for key, owns in OF_ONE_CLASS.items():
        if getattr(file, key) and not getattr(processor, owns):
            raise UserError(f"{where}: unknown key {key!r} for this class; {way_out}")
    resample = processor.resample if file.resample is None else file.resample
    interpolation = PILLOW.get(resample, str(resample))
    mean, std = _pixel_scale(file, processor, where)
    bgr = processor.bgr if file.do_flip_channel_order is None else file.do_flip_channel_order
    size = fixed or (transforms.SIZE, transforms.SIZE)
    try:
        own = _own(file, processor, where, interpolation, mean, std) if name == "own" else None
        own = own and replace(own, bgr=bgr)
        if own and fixed and own.size != fixed:
            raise UserError(f"its recipe makes {own.size} images, its position embeddings are for {fixed}")
        return transforms.named(name, size, interpolation, mean, std, own, bgr=bgr)
    except UserError as error:
        raise UserError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None


def keys_read(settings: dict, file: str = FILE) -> str:
    """Which keys of the file decide the pixels, in words, and which do not."""
    there = [key for key, value in settings.items() if value is not None]
    always = [key for key in there if key in ALWAYS]
    own = [key for key in there if key in File.__struct_fields__ and key not in ALWAYS]
    rest = [key for key in there if key not in File.__struct_fields__]
    parts = [", ".join(always) or "none", f"for `own` also {', '.join(own)}" * bool(own)]
    parts.append(f"without effect here: {', '.join(rest)}" * bool(rest))
    return f"keys read of {file}: {'; '.join(filter(None, parts))}"


def naflex_side(spec: str, settings: dict) -> int:
    """The side in pixels of a square image for a network that takes max_num_patches patches of any arrangement."""
    file = schema.checked(_used(settings), File, f"{spec}: {FILE}", "copy it from the model's repository")
    return (file.patch_size or 16) * isqrt(file.max_num_patches or 256)


def _used(settings: dict) -> dict:
    """The keys that say something: null and false switch nothing on, whatever the key is called."""
    known = set(File.__struct_fields__)
    return {k: v for k, v in settings.items() if v is not None and k not in WITHOUT_EFFECT and (v or k in known)}


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


def _pixel_scale(file: File, processor: Processor, where: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(mean, std) so that (x/255 - mean) / std is what the file's steps make of the grey level x."""
    # x * factor, then (x - mean) / std: with k = 255 * factor that is (x/255 - mean/k) / (std/k)
    k = 255 * file.rescale_factor if file.do_rescale else 255.0
    if not (isfinite(k) and k > 0):
        raise UserError(f"{where}: rescale_factor {file.rescale_factor}; expected a number above 0")
    if abs(k - 1) < 1e-9:
        k = 1.0
    # transformers' class for MobileViT has no step that normalises, whatever the file says
    normalise = processor.normalise and file.do_normalize is not False
    mean, std = (_three(getattr(file, key), key, where) if normalise else [of] * 3 for key, of in UNSCALED.items())
    if processor.twice and file.include_top is not False:
        std = [s * more for s, more in zip(std, _three(file.image_std, "image_std", where), strict=True)]
    # rescale_offset: 1 is taken from x * factor first, as if it were part of the mean
    if file.rescale_offset and file.do_rescale:
        mean = [m + 1 for m in mean]
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
    if processor.free:
        raise UserError(f"{where}: images keep their shape (max_num_patches), so that they have no one size; {INSTEAD}")
    crop_pct = processor.crop_pct if file.crop_pct is None else file.crop_pct
    if not 0 < crop_pct <= 1:
        raise UserError(f"{where}: crop_pct is {crop_pct}; expected a share above 0, up to 1")
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
        return Transform((edge, edge), shortest=None if edge >= 384 else int(edge / crop_pct), **given)
    if processor.enlarged == "levit" and edge:
        edge = int(256 / 224 * edge)
    if processor.enlarged == "crop_pct" and (edge or sides[0] == sides[1]):
        edge, sides = int((edge or sides[0]) / crop_pct), None
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
