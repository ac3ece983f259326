"""Which device and which precision to compute in, with the reason in words.

The precision policy: float16 on CUDA (features are checked for overflow and recomputed, see `shared.features`);
bfloat16 on a CPU whose matrix units take it (4x to 5x the float32 rate with AMX, 2x with AVX512-BF16; cosine to float32
at least 0.9998); float32 everywhere else, since without the units bfloat16 is 2x to 6x slower than float32. The choice
is by rule, not by timing, so it is the same in every run on one machine. Apple's MPS is used only after it has agreed
with the CPU on a few images.

Also the process's place in a `torchrun` job, since that decides which CUDA device is its own.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from shared.errors import UserError

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
DTYPES |= {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
# What oneDNN, which computes the matrix products, may be limited to (its variable ONEDNN_MAX_CPU_ISA, formerly
# DNNL_MAX_CPU_ISA), and the bfloat16 unit that the limit leaves. Other values limit nothing that matters here.
BELOW_BF16 = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI")
BELOW_AMX = ("AVX512_CORE_BF16", "AVX512_CORE_FP16", "AVX10_1_512")
# Float32 rounding through a few layers stays below 1e-5; a wrong kernel is off by far more than this.
MPS_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Choice:
    """A device, the precision to compute in, and why."""

    device: torch.device
    dtype: torch.dtype
    reason: str

    @property
    def name(self) -> str:
        return str(self.device)

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    def __str__(self) -> str:
        """What a run says of it in its first line."""
        return f"on {self.name} in {self.dtype_name} ({self.reason})"


def choose(device: str = "auto", dtype: str = "auto") -> Choice:
    """Resolve `--device` and `--dtype`.

    device: "auto", "cpu", "cuda", "cuda:1" or "mps". dtype: "auto" or a key of DTYPES.
    UserError for an unknown name, a device that is not there, or a precision that the device does not have.
    """
    where, why_device = _device(device)
    precision, why_dtype = _dtype(dtype, where)
    return Choice(where, precision, f"{why_device}; {why_dtype}")


def require_compiler(option: str) -> None:
    """Raise UserError naming `option` if PyTorch finds no C++ compiler, without which it compiles nothing for a CPU."""
    from torch._inductor import cpp_builder, exc

    try:
        cpp_builder.get_cpp_compiler()
    except (exc.InvalidCxxCompiler, RuntimeError):
        raise UserError(
            f"{option}: compiling needs a C++ compiler and none was found; install g++, name one in CXX, or do without"
        ) from None


def rank_and_world() -> tuple[int, int]:
    """(rank, number of processes) of this process under `torchrun`; (0, 1) outside it. Asks the environment only.

    UserError for half of a job: a process that took itself for the only one would do all the work, and write its
    result over the others'.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    given = {name: value for name in names if (value := os.environ.get(name, "").strip())}
    said = " ".join(f"{name}={value}" for name, value in given.items())
    way_out = "unset them or start with torchrun"
    if not given.keys() & {"RANK", "WORLD_SIZE"} or given == {"WORLD_SIZE": "1"}:
        return 0, 1
    for name in names[:2]:
        if name not in given:
            raise UserError(f"{said}: {name} is not set; {way_out}")
    if not all(value.isascii() and value.isdigit() for value in given.values()):
        raise UserError(f"{said}: expected whole numbers; {way_out}")
    rank, world = int(given["RANK"]), int(given["WORLD_SIZE"])
    if not rank < world:
        raise UserError(f"{said}: expected a rank below the number of processes, from 0 on; {way_out}")
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if world > 1 and missing:
        raise UserError(f"WORLD_SIZE is {world}, but {missing[0]} is not set: unset it or start with torchrun")
    return rank, world


def gloo_group() -> tuple[int, object | None]:
    """(number of processes, their group for small CPU tensors); (1, None) outside torchrun. Joins the job once."""
    if rank_and_world()[1] == 1:
        return 1, None
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo")
    if "gloo" in dist.get_backend():
        return dist.get_world_size(), None
    return dist.get_world_size(), _second_group()


@functools.cache
def _second_group() -> object:
    """gloo beside a job's own NCCL: made once, since each is a set of connections."""
    import torch.distributed as dist

    return dist.new_group(backend="gloo")


def _device(asked: str) -> tuple[torch.device, str]:
    kind, colon, number = asked.partition(":")
    cpu = torch.device("cpu")
    if kind not in ("auto", "cpu", "cuda", "mps") or (colon and not (kind == "cuda" and number.isdigit())):
        raise UserError(f"--device {asked}: expected auto, cpu, cuda, cuda:N or mps")
    if kind == "cpu":
        return cpu, "cpu: asked for"
    if kind == "cuda" or (kind == "auto" and torch.cuda.is_available()):
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        index = int(number) if number else _own_cuda_index() if count else 0
        if index >= count:
            raise UserError(f"--device {asked}: {count} CUDA devices are visible to torch; use --device cpu or auto")
        where = torch.device("cuda", index)
        why = "asked for" if kind == "cuda" else "a CUDA device is there"
        return where, f"{where}: {why} ({torch.cuda.get_device_name(where)})"
    if not torch.backends.mps.is_available():
        if kind == "mps":
            raise UserError("--device mps: torch sees no MPS device; use --device cpu or auto")
        return cpu, "cpu: no CUDA or MPS device"
    mps = torch.device("mps")
    error = disagreement(mps)
    if error <= MPS_TOLERANCE:
        asked_for = "asked for, " if kind == "mps" else ""
        return mps, f"mps: {asked_for}agrees with the CPU on four images (relative error {error:.1e})"
    if kind == "mps":
        raise UserError(f"--device mps: wrong on four images (relative error {error:.1e}); use --device cpu")
    return cpu, f"cpu: MPS is there but wrong on four images (relative error {error:.1e})"


def _own_cuda_index() -> int:
    return int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()


def _dtype(asked: str, device: torch.device) -> tuple[torch.dtype, str]:
    if asked != "auto":
        if asked not in DTYPES:
            raise UserError(f"--dtype {asked}: expected auto, {', '.join(DTYPES)}")
        dtype = DTYPES[asked]
        if device.type == "cuda" and dtype is torch.bfloat16 and not torch.cuda.is_bf16_supported():
            raise UserError(f"--dtype {asked}: {torch.cuda.get_device_name(device)} has no bfloat16; use --dtype fp16")
        why = f"{str(dtype).removeprefix('torch.')}: asked for"
        if device.type == "cpu" and dtype is not torch.float32:
            unit, reason = bf16_unit()
            if dtype is torch.float16 or not unit:
                why += f", slower than float32 here ({reason if not unit else 'the units are for bfloat16'})"
        return dtype, why
    if device.type == "cuda":
        return torch.float16, "float16: CUDA's fastest common precision, overflow is checked"
    if device.type == "cpu":
        unit, why = bf16_unit()
        return (torch.bfloat16, f"bfloat16: {why}") if unit else (torch.float32, f"float32: {why}")
    return torch.float32, f"float32: the precision checked on {device.type}"


def bf16_unit() -> tuple[str | None, str]:
    """The CPU's unit for bfloat16 products, "AMX" or "AVX512-BF16", or None if torch can use none; and why."""
    able = torch.cpu.get_capabilities()
    name = "ONEDNN_MAX_CPU_ISA" if "ONEDNN_MAX_CPU_ISA" in os.environ else "DNNL_MAX_CPU_ISA"
    limit = os.environ.get(name, "").upper()
    # The processor's flag is not enough: the operating system has to grant the tile registers.
    amx = able.get("amx_bf16") and torch.cpu._init_amx()
    if (amx or able.get("avx512_bf16")) and limit in BELOW_BF16:
        return None, f"{name}={limit} hides this CPU's bfloat16 units"
    if amx and limit not in BELOW_AMX:
        return "AMX", "this CPU has AMX"
    if able.get("avx512_bf16"):
        return "AVX512-BF16", "this CPU has AVX512-BF16"
    return None, "this CPU has neither AMX nor AVX512-BF16"


def disagreement(device: torch.device) -> float:
    """Largest difference between `device` and the CPU, in float32, relative to the CPU's largest value.

    Four fixed random images go through the operations that the encoders are made of: antialiased resize, patch
    convolution, layer norm, attention, GELU, strided convolution and pooling. A failure on the device is infinite.
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(4, 3, 40, 48, generator=generator)
    weights = [torch.randn(*shape, generator=generator) * 0.2 for shape in ((32, 3, 8, 8), (96, 32), (32, 32, 3, 3))]
    expected = _small_network(images, weights)
    try:
        measured = _small_network(images.to(device), [weight.to(device) for weight in weights]).cpu()
    except RuntimeError:  # NotImplementedError, a missing kernel, is one of these
        return float("inf")
    error = float((measured - expected).abs().max() / expected.abs().max())
    return error if error == error else float("inf")


def _small_network(images: Tensor, weights: list[Tensor]) -> Tensor:
    patch, attention, convolution = weights
    x = F.interpolate(images, size=(32, 32), mode="bilinear", antialias=True)
    tokens = F.layer_norm(F.conv2d(x, patch, stride=8).flatten(2).transpose(1, 2), (32,))
    q, k, v = (tokens @ attention.T).chunk(3, dim=-1)
    tokens = tokens + F.gelu(F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0])
    maps = F.conv2d(tokens.transpose(1, 2).reshape(-1, 32, 4, 4), convolution, stride=2, padding=1)
    return torch.cat([tokens.mean(1), maps.mean((2, 3))], dim=1)
