"""A file of weights: which tensors it holds, which of them are taken, and whether they fit a network.

A checkpoint is read as flat names: {"state_dict": {"a.b": tensor}} is `state_dict.a.b`. So weights in a wrapper, of a
network that was trained in parallel (`module.`) or as a part of another one (`backbone.`) differ from plain ones by a
prefix of known words, which is found and said. Nothing is left to chance: a tensor that is missing, left over, of
another shape, stored as whole numbers, or not finite is refused by name.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from shared.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

EMA = ("state_dict_ema", "model_ema", "ema_state_dict", "model_ema_state_dict", "ema_model", "ema", "teacher")
PLAIN = ("state_dict", "model_state_dict", "model", "module", "_orig_mod", "net", "network", "student", "base_model")
PLAIN += ("backbone", "base_encoder", "image_encoder", "encoder", "vision_model", "timm_model")
# Beside the weights in a checkpoint of a training run; never read.
TRAINING = ("optimizer", "optimizer_state_dict", "optimizer_states", "scheduler", "lr_scheduler", "scaler", "rng_state")
# Left over in a checkpoint, these change nothing: counters, tables that the network makes itself, and the heads and
# mask tokens of trainings (the last part of a name).
BUFFERS = ("num_batches_tracked", "position_ids", "relative_position_index", "relative_coords_table", "attn_mask")
BUFFERS += ("mask_token", "total_ops", "total_params")
BY_DEFINITION_WHOLE = ("U8", "I8", "I16", "I32", "I64", "BOOL", "uint8", "int8", "int16", "int32", "int64", "bool")
FEW_BITS = re.compile(r"(f8|float8|f6|f4|float4|i4|u4|int4|uint4)(_.*)?")
PACKED = re.compile(r"qweight|qzeros|g_idx|absmax|quant_map|weight_packed|weight[.:_]+q?data|SCB|weight_format")
OTHER_FORMATS = {".npz": "NumPy", ".npy": "NumPy", ".onnx": "ONNX", ".h5": "Keras", ".gguf": "GGUF", ".msgpack": "Flax"}


class Entry(NamedTuple):
    """A tensor as the file describes it."""

    dtype: str
    shape: tuple[int, ...]


class Chosen(NamedTuple):
    """The weights that are taken: those under `prefix`. notes: what a reader of the numbers has to know of it."""

    prefix: str
    notes: tuple[str, ...]


def entries(spec: str, files: Iterable[Path]) -> dict[str, Entry]:
    """Every tensor of a checkpoint by its flat name, without reading the numbers; torch only for torch's format."""
    found: dict[str, Entry] = {}
    for file in files:
        if file.suffix == ".safetensors":
            from safetensors import safe_open

            refuse_other_content(spec, file)
            try:
                with safe_open(file, framework="numpy") as tensors:
                    for key in tensors.keys():  # noqa: SIM118, not a dict
                        part = tensors.get_slice(key)
                        found[key] = Entry(part.get_dtype(), tuple(part.get_shape()))
            except Exception as error:  # SafetensorError, OSError, MemoryError: one meaning
                raise UserError(f"{spec}: {file.name} cannot be read ({_reason(error)}); copy it again") from None
        else:
            found |= {
                key: Entry(str(value.dtype).removeprefix("torch."), tuple(value.shape))
                for key, value in tensors_of(spec, file).items()
            }
    if not found:
        raise UserError(f"{spec}: {', '.join(file.name for file in files)} has no weights in it; copy it again")
    return found


def tensors_of(spec: str, file: Path) -> dict[str, Tensor]:
    """The tensors of one file by their flat names, on the CPU. A pickle is read with weights_only: no code runs."""
    return tensors_and_name(spec, file)[0]


def tensors_and_name(spec: str, file: Path) -> tuple[dict[str, Tensor], str]:
    """The same, and the architecture's name that a trainer has put beside the weights; "" where there is none."""
    import torch

    refuse_other_content(spec, file)
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(file), ""
        with torch.serialization.safe_globals([Namespace]):  # timm's trainer writes its options beside the weights
            try:
                whole = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
            except RuntimeError:  # torch's format from before 2020 cannot be mapped
                whole = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torn file, pickle with code, another format: many classes, one meaning
        raise UserError(f"{spec}: {file.name} cannot be read ({_refused(error)})") from None
    flat: dict[str, Tensor] = {}
    _flatten(whole, "", flat, depth=0)
    said = whole if isinstance(whole, Mapping) else {}
    name = said.get("arch") or getattr(said.get("args"), "model", "")
    return flat, name if isinstance(name, str) else ""


def _flatten(value: object, name: str, into: dict[str, Tensor], depth: int) -> None:
    from torch import Tensor

    if isinstance(value, Tensor):
        into[name] = value.detach()
    elif isinstance(value, Mapping) and depth < 5 and name not in TRAINING:
        for key, part in value.items():
            _flatten(part, f"{name}.{key}" if name else str(key), into, depth + 1)


def refuse_other_content(spec: str, file: Path) -> None:
    """UserError for what lies in a weight file's place: nothing, a pointer to it, a web page, another format."""
    try:
        with open(file, "rb") as opened:
            start = opened.read(64)
    except OSError as error:
        raise UserError(f"{spec}: {file.name} cannot be read ({error.strerror})") from None
    what = ""
    if not start:
        what = "is empty; copy it again"
    elif start.startswith(b"version https://git-lfs"):
        what = "is a Git LFS pointer, not the weights; run `git lfs pull` in its folder"
    elif start.lstrip()[:5].lower() in (b"<!doc", b"<html"):
        what = "is a web page, not the weights; download the file itself"
    elif file.suffix in OTHER_FORMATS:
        what = f"is in {OTHER_FORMATS[file.suffix]}'s format; expected .safetensors or torch's format"
    if what:
        raise UserError(f"{spec}: {file.name} {what}")


def _refused(error: Exception) -> str:
    text = str(error)
    foreign = re.search(r"(?:GLOBAL|global) (\S+)", text)
    if "weights_only" in text or "Weights only" in text:
        what = f" ({foreign[1]})" if foreign else ""
        return f"it holds Python objects besides tensors{what}, which are never run; save its state_dict alone"
    return f"{_reason(error)}; copy it again"


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"


def choose(spec: str, names: Collection[str], own: Collection[str], wanted: str = "") -> Chosen:
    """Which weights are taken: those under the longest prefix of known words that the network's own names lack.

    own: the first parts of the network's own names. wanted: "model" or "ema" where a checkpoint may hold both; without
    it the EMA weights are taken, as timm does.
    """
    prefix, notes, taken = "", [], ""
    while True:
        here = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
        heads = dict.fromkeys(name.partition(".")[0] for name in here if "." in name)
        ema = next((word for word in EMA if word in heads and word not in own), "")
        plain = next((word for word in PLAIN if word in heads and word not in own), "")
        if not (ema or plain):
            break
        word = plain if not ema or (plain and wanted == "model") else ema
        if ema:
            taken = "ema" if word == ema else "model"
        if ema and plain:
            other = f"{spec.removesuffix(f'#{wanted}')}#{'model' if word == ema else 'ema'}"
            which = "the EMA weights" if word == ema else "the weights, not the EMA weights,"
            notes.append(
                f"the checkpoint holds {prefix}{plain} and {prefix}{ema}: {which} are taken ({other}: the other)"
            )
        beside = sorted({name.partition(".")[0] for name in here} - {word, ema, plain, *TRAINING})
        if beside:
            count = len(beside) - 3
            notes.append(f"beside {word}, not read: {', '.join(beside[:3])}" + (f" and {count} more" * (count > 0)))
        prefix += f"{word}."
    if wanted and (taken or "model") != wanted:
        has = "EMA weights only" if taken == "ema" else "no EMA weights (state_dict_ema, model_ema, teacher)"
        raise UserError(f"{spec}: the checkpoint has {has}; leave #{wanted} and --weights {wanted} out")
    if prefix:
        notes.insert(0, f"weights are read under the names {prefix}*")
    return Chosen(prefix, tuple(notes))


def left_over(spec: str, names: Iterable[str], heads: tuple[str, ...]) -> tuple[str, ...]:
    """Notes on tensors that the network has no place for. UserError unless all are heads or known buffers.

    heads: how the names of heads begin.
    """
    strangers = sorted(n for n in names if not n.startswith(heads) and n.rpartition(".")[2] not in BUFFERS)
    if strangers:
        why = "is it a checkpoint of another architecture, or of more layers?"
        raise UserError(f"{spec}: the network has no place for {shown(strangers)} of the checkpoint; {why}")
    told = sorted(n for n in names if n.rpartition(".")[2] not in BUFFERS)
    return (f"not read of the checkpoint: {shown(told)}",) if told else ()


def refuse_partial(spec: str, missing: Collection[str]) -> None:
    """UserError that names the weights which a checkpoint lacks and which would be random numbers."""
    if not missing:
        return
    needs_pooler = "; the pre-logits need the pooler: use a checkpoint that kept it, e.g. an -in21k one"
    needs_pooler += ", or the class token (pool cls)"
    names = shown(sorted(missing))
    hint = needs_pooler if "pooler" in names else ""
    raise UserError(f"{spec}: the checkpoint has no {names}, which would be random numbers{hint}")


def refuse_shape(spec: str, key: str, shape: Iterable[int], expected: Iterable[int]) -> None:
    """UserError that names a tensor and both shapes; with a word on channels where an image's are the difference."""
    shape, expected = list(shape), list(expected)
    hint = "is it a checkpoint of another architecture?"
    if len(shape) == len(expected) == 4 and shape[1] != expected[1] == 3:
        hint = f"it takes images of {shape[1]} channel{'s' * (shape[1] != 1)}, and only RGB images are known here"
    raise UserError(f"{spec}: {key} is {shape} in the checkpoint, expected {expected}; {hint}")


def refuse_whole_numbers(spec: str, found: Mapping[str, Entry]) -> None:
    """UserError for weights that are stored as whole numbers or in 8 bits: they mean nothing without their scales."""
    why = "quantised weights need their scales, which are not read"
    for key, (dtype, shape) in found.items():
        kind, last = dtype.lower(), key.rpartition(".")[2]
        if not shape or last in BUFFERS:
            continue
        few_bits = FEW_BITS.fullmatch(kind)
        # libraries of quantisation pack several numbers into one whole one, under names of their own
        packed = dtype in BY_DEFINITION_WHOLE and (last.endswith(("weight", "bias")) or PACKED.search(key))
        if few_bits or packed:
            raise UserError(f"{spec}: {key} is stored as {kind}; {why}: take the float checkpoint")


def refuse_not_finite(spec: str, state: Mapping[str, Tensor]) -> None:
    """UserError for numbers that make every feature NaN: not finite, or a variance below zero."""
    for key, value in state.items():
        if not value.is_floating_point():
            continue
        wrong = "NaN or infinite numbers" if not value.isfinite().all() else ""
        if not wrong and key.endswith("running_var") and (value < 0).any():
            wrong = "variances below 0"
        if wrong:
            raise UserError(f"{spec}: {key} of the checkpoint holds {wrong}; it is damaged, or its training diverged")


def shown(names: Collection[str]) -> str:
    """The first three names, and how many more there are."""
    names = list(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
