"""What a module of transformers is given: one sample of each input, chosen by its own signature and configuration.

    for inputs in samples(module, Sizes(length=512)): ...     the most complete first; the first that runs is taken

Numbers with a point are on the meta device, whole numbers are real (`shared.graph.dryrun`). The text of a model with
images or sounds has as many places for them as its encoder gives.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

LENGTH = 512  # tokens, where a configuration names no longest sequence
SCANNED = 128  # the same of a state-space model
LONGEST = 2048  # tokens, where it names a longer one and nobody asks for it
DECODER_LENGTH = 128  # tokens of an encoder-decoder's second input
TEXT_LENGTH = 64  # tokens of a text beside an image or a sound
IMAGE = 224  # pixels, where a configuration names no size
SECOND = 16_000  # samples of a raw sound: one second
FRAMES = 8  # of a video, or of a list of images, where a configuration names no number
TOKEN = 5  # a token that is no padding and no place for an image

PARTS = (
    "text_config", "vision_config", "audio_config", "encoder", "decoder", "encoder_config", "decoder_config",
    "thinker_config", "backbone_config", "image_encoder", "question_encoder", "generator", "speech_encoder",
    "language_config", "llm_config", "vision_encoder", "audio_encoder", "text_encoder", "codec_config", "vq_config",
    "qformer_config", "video_config", "audio_encoder_config", "speech_config", "sub_configs",
)  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """What the user chose; None: the model's own."""

    length: int | None = None
    image: tuple[int, int] | None = None


def configs(config: Any, wanted: str = "") -> list[Any]:
    """The configuration and those inside it, the ones whose name has `wanted` first."""
    found, seen = [config], {id(config)}
    at = 0
    while at < len(found):
        inner = getattr(type(found[at]), "sub_configs", None) or {}
        names = sorted({*inner, *PARTS}, key=lambda name: (wanted not in name, name)) if wanted else [*inner, *PARTS]
        for name in names:
            part = getattr(found[at], name, None)
            if part is not None and hasattr(part, "to_dict") and id(part) not in seen:
                seen.add(id(part))
                found.insert(0, part) if wanted and wanted in name and at == 0 else found.append(part)
        at += 1
        if at > 40:
            break
    return found


def setting(config: Any, *names: str, of: str = "", default: Any = None) -> Any:
    """The first of these settings that the configuration, or one inside it, has."""
    for owner in configs(config, of):
        for name in names:
            value = getattr(owner, name, None)
            if value is not None:
                return value
    return default


def number(value: Any, default: int) -> int:
    if isinstance(value, list | tuple) and value:
        value = value[0]
    return int(value) if isinstance(value, int | float) and value > 0 else default


def longest(config: Any) -> int | None:
    """Positions that a configuration has; None where it names no longest sequence."""
    for owner in configs(config, "text"):
        for name in ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"):
            value = getattr(owner, name, None)
            if isinstance(value, int) and value > 0:
                return value
    return None


def pixels(config: Any, sizes: Sizes) -> tuple[int, int, int]:
    """Channels, height and width of an image."""
    channels = number(setting(config, "num_channels", "in_channels", "in_chans", "n_channels", of="vision"), 3)
    if sizes.image:
        return (channels, *sizes.image)
    size = setting(config, "image_size", "input_image_size", "img_size", "crop_size", of="vision", default=IMAGE)
    if isinstance(size, dict):
        size = [size.get("height", IMAGE), size.get("width", IMAGE)]
    if isinstance(size, list | tuple) and len(size) == 2:
        return channels, number(size[0], IMAGE), number(size[1], IMAGE)
    return (channels, *(number(size, IMAGE),) * 2)


def tokens(count: int, config: Any) -> torch.Tensor:
    """[1, count] token ids; the last one ends a text, where the configuration has such a token."""
    vocabulary = number(setting(config, "vocab_size", of="text"), 1000)
    ids = torch.full((1, count), min(TOKEN, vocabulary - 1), dtype=torch.long, device="cpu")
    end = setting(config, "eos_token_id", of="text")
    end = end[0] if isinstance(end, list) and end else end
    if isinstance(end, int) and 0 <= end < vocabulary:
        ids[0, -1] = end
    return ids


class Samples:
    """Inputs of one module by their names."""

    def __init__(self, module: nn.Module, sizes: Sizes):
        self.module, self.config, self.sizes = module, module.config, sizes
        self.signature = inspect.signature(module.forward).parameters
        self.kind = getattr(self.config, "model_type", "")

    def empty(self, *shape: int) -> torch.Tensor:
        return torch.empty(
            shape, device="meta", dtype=self.module.dtype if self.module.dtype.is_floating_point else None
        )

    def length(self, beside: bool = False) -> int:
        """Tokens of the text; `beside`: next to an image or a sound."""
        if self.sizes.length:
            return self.sizes.length
        most = longest(self.config)
        if beside:
            return min(most or TEXT_LENGTH, TEXT_LENGTH)
        # a state space without its compiled kernel goes through the text a token at a time
        return min(most, LONGEST) if most else SCANNED if hasattr(self.config, "state_size") else LENGTH

    # inputs of one kind ---------------------------------------------------------------------------------------------

    def image(self) -> dict[str, Any]:
        """`pixel_values` as the model wants it: an image, its patches, tiles, or frames of a video."""
        config, takes = self.config, {*self.signature, *self.features("image")}
        channels, height, width = pixels(config, self.sizes)
        patch = number(setting(config, "patch_size", of="vision"), 16)
        if "image_grid_thw" in takes or "grid_thw" in takes or "image_grid_hw" in takes:
            merge = number(setting(config, "spatial_merge_size", "merge_size", of="vision"), 2)
            times = number(setting(config, "temporal_patch_size", of="vision"), 1)
            side = [max(merge, size // patch // merge * merge) for size in (height, width)]
            count, grid = side[0] * side[1], [1, *side]
            found = {"pixel_values": self.empty(count, channels * times * patch * patch)}
            key = next(key for key in ("image_grid_thw", "grid_thw", "image_grid_hw") if key in takes)
            found[key] = torch.tensor([grid[1:] if key.endswith("hw") and "thw" not in key else grid])
            return found
        if "spatial_shapes" in takes:
            side = int(number(setting(config, "num_patches", of="vision"), 256) ** 0.5)
            found = {"pixel_values": self.empty(1, side * side, channels * patch * patch)}
            found["spatial_shapes"] = torch.tensor([[side, side]])
            mask = "pixel_attention_mask" if "pixel_attention_mask" in takes else "attention_mask"
            return found | {mask: torch.ones(1, side * side, dtype=torch.long)}
        if "image_position_ids" in takes or "pixel_position_ids" in takes:
            side = max(3, height // patch // 3 * 3)
            places = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij"), -1)
            key = "image_position_ids" if "image_position_ids" in takes else "pixel_position_ids"
            return {"pixel_values": self.empty(1, side * side, channels * patch * patch), key: places.view(1, -1, 2)}
        found = {"pixel_values": self.empty(1, channels, height, width)}
        if "image_sizes" in takes:
            found["image_sizes"] = torch.tensor([[height, width]])
        return found

    def video(self, name: str) -> dict[str, Any]:
        channels, height, width = pixels(self.config, self.sizes)
        frames = number(setting(self.config, "num_frames", "frames_per_clip", of="vision"), FRAMES)
        return {name: self.empty(1, frames, channels, height, width)}

    def sound(self, name: str) -> dict[str, Any]:
        """A raw sound, or its spectrum."""
        config = self.config
        bins = setting(config, "num_mel_bins", "input_feat_per_channel", "feature_size", "n_mels", of="audio")
        bins = setting(config, "feature_projection_input_dim", of="audio") or bins
        bins = bins or setting(config, "input_dim", "hidden_size", of="audio")
        if name == "input_values":
            if hasattr(config, "num_mel_bins") and hasattr(config, "max_length"):  # a spectrum as an image
                return {name: self.empty(1, config.max_length, config.num_mel_bins)}
            channels = number(setting(config, "audio_channels", of="audio"), 1)
            codec = any(hasattr(config, one) for one in ("codebook_size", "upsampling_ratios", "encoder_hidden_size"))
            return {name: self.empty(1, channels, SECOND) if codec else self.empty(1, SECOND)}
        bins = number(bins, 80)
        positions = setting(config, "max_source_positions", of="audio")
        if self.kind == "clap" or hasattr(config, "spec_size") or setting(config, "spec_size", of="audio"):
            return {name: self.empty(1, 1, 1001, bins), "is_longer": torch.zeros(1, 1, dtype=torch.bool)}
        if positions and setting(config, "num_mel_bins", of="audio") and "speech_to_text" not in self.kind:
            return {name: self.empty(1, bins, 2 * positions)}
        return {name: self.empty(1, 1000, bins)}

    def series(self) -> dict[str, Any]:
        """The past of a time series, and what a model with a decoder asks of the future."""
        config = self.config
        context = number(setting(config, "context_length", "seq_length"), 64)
        channels = number(setting(config, "num_input_channels", "input_size"), 1)
        if not hasattr(config, "lags_sequence"):
            wide = (context, channels) if hasattr(config, "num_input_channels") else (context,)
            return {"past_values": self.empty(1, *wide)}
        lags = max(config.lags_sequence or [1])
        past, future = context + lags, number(setting(config, "prediction_length"), 24)
        more = number(setting(config, "num_time_features"), 0) if config.num_time_features else 0
        wide = () if channels == 1 else (channels,)
        return {
            "past_values": self.empty(1, past, *wide),
            "past_time_features": self.empty(1, past, more),
            "past_observed_mask": self.empty(1, past, *wide),
            "future_values": self.empty(1, future, *wide),
            "future_time_features": self.empty(1, future, more),
            "static_categorical_features": torch.zeros(1, config.num_static_categorical_features or 0).long(),
            "static_real_features": self.empty(1, config.num_static_real_features or 0),
        }

    def one(self, name: str) -> dict[str, Any]:
        """The input `name` and what belongs to it; {} where nothing is known of it."""
        config, length = self.config, self.length()
        if name in ("pixel_values", "pixel_values_images", "images", "image"):
            found = self.image()
            if name != "pixel_values":
                found[name] = found.pop("pixel_values")
            return found
        if name == "pixel_values_videos":
            return self.video(name)
        if name in ("input_features", "input_values", "audio_values", "spectrogram", "audio_mel"):
            return self.sound(name)
        if name == "past_values":
            return self.series()
        width = number(setting(config, "hidden_size", "d_model", "n_embd"), 64)
        if name in ("decoder_input_ids",):
            return {name: tokens(min(length, DECODER_LENGTH), config)}
        if name.endswith("input_ids") or name in ("input_ids", "codebook_idx"):
            return {name: tokens(length, config)}
        if name == "bbox":
            return {name: torch.zeros(1, length, 4, dtype=torch.long)}
        if name.endswith("attention_mask") or name == "padding_mask":
            return {name: torch.ones(1, length, dtype=torch.long)}
        if name in ("inputs_embeds", "hidden_states", "encoder_hidden_states"):
            return {name: self.empty(1, length, width)}
        if name == "flattened_patches":
            patches = number(setting(config, "seq_len", of="vision"), 4096)
            wide = number(setting(config, "patch_embed_hidden_size", of="vision"), 768)
            # two columns before the pixels hold the places
            return {name: self.empty(1, min(patches, 2048), wide + 2)}
        if name == "inputs":
            return {name: self.empty(1, length, number(setting(config, "d_model"), 768))}
        return {}

    def features(self, kind: str) -> list[str]:
        """What the method that encodes images (or sounds) takes."""
        method = getattr(self.module, f"get_{kind}_features", None)
        return list(inspect.signature(method).parameters) if method else []

    # whole sets -----------------------------------------------------------------------------------------------------

    def needed(self) -> list[str]:
        """The main inputs, and those without a default."""
        main = getattr(self.module, "main_input_name", "input_ids")
        names = list(main) if isinstance(main, list | tuple) else [main]
        for name, parameter in self.signature.items():
            plain = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            if plain and parameter.default is parameter.empty and name not in names:
                names.append(name)
        second = getattr(self.config, "is_encoder_decoder", False) and "decoder_input_ids" in self.signature
        return names + ["decoder_input_ids"] * (second and "decoder_input_ids" not in names)

    def whole(self, names: list[str]) -> dict[str, Any]:
        """Every input of `names`; only what the module takes."""
        found: dict[str, Any] = {}
        for name in names:
            found |= {key: value for key, value in self.one(name).items() if key not in found}
        loose = any(one.kind == one.VAR_KEYWORD for one in self.signature.values())
        return {key: value for key, value in found.items() if key in self.signature or loose}

    def together(self) -> Iterator[dict[str, Any]]:
        """Text with an image or a sound, each place of which has a token of its own."""
        ways = [("image", "pixel_values", ("image_token_id", "image_token_index"))]
        ways += [("audio", "input_features", ("audio_token_id", "audio_token_index"))]
        for kind, name, keys in ways:
            if "input_ids" not in self.signature or name not in self.signature:
                continue
            given = self.one(name)
            token = setting(self.config, *keys)
            text = tokens(self.length(beside=True), self.config)
            places = self.places(kind, given) if isinstance(token, int) else 0
            if not places and "image_sizes" in given and isinstance(token, int):
                places = self.places(kind, {key: value for key, value in given.items() if key != "image_sizes"})
            if places:
                text = torch.cat([torch.full((1, places), token), text], 1)
            found = {"input_ids": text} | given
            if places and "mm_token_type_ids" in self.signature:
                found["mm_token_type_ids"] = (text == token).long()
            if places and "token_type_ids" in self.signature:
                found["token_type_ids"] = (text == token).long()
            found = {key: value for key, value in found.items() if key in self.signature}
            yield found
            yield from self.tiles(found, kind, name, token)
            if "image_sizes" in found:
                yield {key: value for key, value in found.items() if key != "image_sizes"}

    def tiles(self, found: dict[str, Any], kind: str, name: str, token: Any) -> Iterator[dict[str, Any]]:
        """The same with an image that is one of a list, or one tile of one."""
        image = found.get("pixel_values")
        if image is None or image.ndim != 4:
            return
        if "aspect_ratio_ids" in self.signature:
            most = number(setting(self.config, "max_num_tiles", of="vision"), 4)
            tiles = {"pixel_values": self.empty(1, 1, most, *image.shape[1:])}
            tiles["aspect_ratio_ids"] = torch.ones(1, 1, dtype=torch.long)
            tiles["aspect_ratio_mask"] = torch.ones(1, 1, most, dtype=torch.long)
            tiles["cross_attention_mask"] = torch.ones(1, found["input_ids"].shape[1], 1, most, dtype=torch.long)
            yield found | tiles
            return
        for count in (1, 2, 3, 5):
            given = {key: value for key, value in found.items() if key not in ("input_ids", "token_type_ids")}
            given["pixel_values"] = self.empty(1, count, *image.shape[1:])
            places = self.places(kind, given) if isinstance(token, int) else 0
            if places:
                text = tokens(self.length(beside=True), self.config)
                yield given | {"input_ids": torch.cat([torch.full((1, places), token), text], 1)}

    def places(self, kind: str, given: dict[str, Any]) -> int:
        """How many tokens the encoder of images (or sounds) gives for one; 0 where it cannot be asked."""
        from shared.graph.dryrun import DryRun, Fused

        takes = self.features(kind)
        if not takes:
            return 0
        given = {key: value for key, value in given.items() if key in takes}
        width = number(setting(self.config, "hidden_size", "d_model", "n_embd", of="text"), 0)
        with suppress(Exception), torch.no_grad(), DryRun(), Fused():
            found = getattr(self.module, f"get_{kind}_features")(**given)
            found = getattr(found, "pooler_output", found)
            found = found if isinstance(found, list | tuple) else [found]
            return sum(one.numel() for one in found if isinstance(one, torch.Tensor)) // width if width else 0
        return 0


def samples(module: nn.Module, sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Sets of inputs to try, the most complete first."""
    made = Samples(module, sizes)
    yield from made.together()
    needed = made.needed()
    tried = [needed]
    if "input_ids" in made.signature and "pixel_values" in made.signature:
        tried.insert(0, list(dict.fromkeys(["input_ids", "pixel_values", *needed])))
    if "pixel_values" in needed and "pixel_values_videos" not in made.signature:
        tried.append([name for name in needed if name != "pixel_values"] + ["frames"])
    if "input_ids" in made.signature and needed != ["input_ids"]:
        decoder = ["decoder_input_ids"] if "decoder_input_ids" in made.signature else []
        tried.append(["input_ids", *decoder])
    for names in tried:
        if "frames" in names:
            found = made.whole([name for name in names if name != "frames"]) | made.video("pixel_values")
        else:
            found = made.whole(names)
        if found and all(name in found for name in names if name in needed and name != "pixel_values"):
            yield found
    with suppress(Exception):
        own = {key: value for key, value in module.dummy_inputs.items() if key in made.signature}
        if own:
            yield {key: value.cpu() if isinstance(value, torch.Tensor) else value for key, value in own.items()}
