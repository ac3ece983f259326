"""Device and precision: no GPU is needed, so the CUDA and MPS answers are simulated and say so by monkeypatching."""

from __future__ import annotations

import pytest
import torch

from shared import device
from shared.errors import UserError


def pretend(
    monkeypatch: pytest.MonkeyPatch, *, cuda: int = 0, mps: bool = False, cpu: dict[str, bool] | None = None
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda where: "Pretended GPU")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: cpu or {})
    monkeypatch.setattr(torch.cpu, "_init_amx", lambda: True)
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)


def test_cuda_is_taken_first_in_float16_on_the_processs_own_card(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, cuda=2, mps=True)
    monkeypatch.setenv("LOCAL_RANK", "1")
    choice = device.choose()
    assert (choice.name, choice.dtype_name) == ("cuda:1", "float16")
    assert "Pretended GPU" in choice.reason and "overflow" in choice.reason


@pytest.mark.parametrize(
    ("able", "dtype", "word"),
    [
        ({"amx_bf16": True, "avx512_bf16": True}, "bfloat16", "AMX"),
        ({"avx512_bf16": True}, "bfloat16", "AVX512-BF16"),
        ({"avx512_f": True}, "float32", "neither"),
    ],
)
def test_the_cpus_precision_follows_its_units(
    monkeypatch: pytest.MonkeyPatch, able: dict[str, bool], dtype: str, word: str
) -> None:
    pretend(monkeypatch, cpu=able)
    choice = device.choose()
    assert (choice.name, choice.dtype_name) == ("cpu", dtype)
    assert word in choice.reason


@pytest.mark.parametrize(
    ("variable", "limit", "dtype", "words"),
    [
        ("ONEDNN_MAX_CPU_ISA", "AVX2", "float32", "ONEDNN_MAX_CPU_ISA=AVX2 hides this CPU's bfloat16 units"),
        ("DNNL_MAX_CPU_ISA", "avx512_core", "float32", "DNNL_MAX_CPU_ISA=AVX512_CORE hides"),
        ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", "bfloat16", "this CPU has AVX512-BF16"),
        ("ONEDNN_MAX_CPU_ISA", "DEFAULT", "bfloat16", "this CPU has AMX"),
    ],
)
def test_units_that_onednn_may_not_use_do_not_count(
    monkeypatch: pytest.MonkeyPatch, variable: str, limit: str, dtype: str, words: str
) -> None:
    pretend(monkeypatch, cpu={"amx_bf16": True, "avx512_bf16": True})
    monkeypatch.setenv(variable, limit)
    choice = device.choose()
    assert choice.dtype_name == dtype and words in choice.reason


def test_amx_that_the_system_does_not_grant_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, cpu={"amx_bf16": True})
    monkeypatch.setattr(torch.cpu, "_init_amx", lambda: False)
    assert device.choose().dtype is torch.float32


def test_mps_is_trusted_only_when_it_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, mps=True)
    monkeypatch.setattr(device, "disagreement", lambda where: 2e-6)
    assert device.choose().name == "mps" and device.choose().dtype is torch.float32
    monkeypatch.setattr(device, "disagreement", lambda where: 0.5)
    assert device.choose().name == "cpu" and "wrong" in device.choose().reason
    with pytest.raises(UserError, match="--device cpu"):
        device.choose("mps")


def test_disagreement_sees_a_wrong_kernel_and_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device.disagreement(torch.device("cpu")) == 0
    true_network = device._small_network
    calls = []

    def wrong_on_the_device(images: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
        calls.append(1)
        return true_network(images, weights) * (1.01 if len(calls) == 2 else 1)

    monkeypatch.setattr(device, "_small_network", wrong_on_the_device)
    assert device.disagreement(torch.device("cpu")) == pytest.approx(0.01, rel=1e-3)
    monkeypatch.setattr(device, "_small_network", true_network)
    assert device.disagreement(torch.device("meta")) == float("inf")


@pytest.mark.parametrize(
    ("device_name", "dtype", "message"),
    [
        ("cuda:x", "auto", "expected auto, cpu, cuda"),
        ("gpu", "auto", "expected auto, cpu, cuda"),
        ("cuda", "auto", "0 CUDA devices"),
        ("cuda:3", "auto", "0 CUDA devices"),
        ("mps", "auto", "no MPS device"),
        ("cpu", "int8", "expected auto, float16"),
    ],
)
def test_what_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, device_name: str, dtype: str, message: str
) -> None:
    pretend(monkeypatch)
    with pytest.raises(UserError, match=message):
        device.choose(device_name, dtype)


def test_bfloat16_on_a_card_without_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, cuda=1)
    with pytest.raises(UserError, match="no bfloat16"):
        device.choose("cuda", "bf16")


def test_asked_for_is_said() -> None:
    choice = device.choose("cpu", "fp32")
    assert choice == device.Choice(torch.device("cpu"), torch.float32, "cpu: asked for; float32: asked for")


JOB = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
MASTER = {"MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


@pytest.mark.parametrize(
    ("environment", "answer"),
    [
        ({}, (0, 1)),
        ({"WORLD_SIZE": "1"}, (0, 1)),  # what some schedulers set for every process
        ({"RANK": "", "WORLD_SIZE": ""}, (0, 1)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, (0, 1)),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", **MASTER}, (1, 2)),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "1"},
            "MASTER_ADDR is not set: unset it or start with torchrun",
        ),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "x"}, "MASTER_PORT is not set"),
        ({"RANK": "1"}, "RANK=1: WORLD_SIZE is not set; unset them or start with torchrun"),
        ({"RANK": "0"}, "RANK=0: WORLD_SIZE is not set"),
        ({"WORLD_SIZE": "2", **MASTER}, "WORLD_SIZE=2: RANK is not set"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE=0: RANK is not set"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "expected a rank below the number of processes"),
        ({"RANK": "0", "WORLD_SIZE": "-1"}, "expected whole numbers"),
        ({"RANK": "-1", "WORLD_SIZE": "2", **MASTER}, "expected whole numbers"),
        ({"RANK": "2", "WORLD_SIZE": "2", **MASTER}, "RANK=2 WORLD_SIZE=2: expected a rank below"),
        ({"RANK": "one", "WORLD_SIZE": "2", **MASTER}, "expected whole numbers; unset them or start with torchrun"),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "x"}, "expected whole numbers"),
    ],
)
def test_rank_and_world(environment, answer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in JOB:
        monkeypatch.delenv(name, raising=False)
        if name in environment:
            monkeypatch.setenv(name, environment[name])
    if isinstance(answer, tuple):
        assert device.rank_and_world() == answer
        return
    with pytest.raises(UserError, match=answer):
        device.rank_and_world()
