from __future__ import annotations

import pytest
from graphs import block, chain

from shared.errors import UserError
from shared.graph.convention import Convention
from shared.graph.cost import Assumptions, dollars, fits, gigabytes, gpu, memory, percent, rounded, short, train_cost
from shared.graph.kinds import label
from shared.graph.measure import measure
from shared.graph.read import parse

MODEL = measure(parse(chain(("linear", {"outFeatures": 10}), shape=[8]), "f"))  # 90 parameters, 80 products


def test_memory_is_stated_part_by_part() -> None:
    need = memory(MODEL, Assumptions(batch=4))
    assert (need.weights, need.gradients, need.adam) == (360, 360, 720)
    assert need.per_sample == 10 * 4
    assert need.activations == 160
    assert need.training == 360 + 360 + 720 + 160
    assert need.inference == 360 + 4 * (10 + 10) * 4
    assert memory(MODEL, Assumptions(), batch=1).activations == 40


def test_a_convention_may_leave_activations_out() -> None:
    model = measure(
        parse(chain(("linear", {"outFeatures": 10}), shape=[8]), "f"), Convention(activations_in_memory=False)
    )
    assert memory(model, Assumptions(factor=1.3)).training == pytest.approx(1440 * 1.3)


def test_attention_keeps_its_scores() -> None:
    settings = {"embedDim": 8, "numHeads": 2}
    model = measure(parse(chain(("multiHeadAttention", settings), shape=[1, 16, 8]), "f"))
    assert model.layers[1].kept == 4 * 16 * 8 + 2 * 2 * 16 * 16 + 16 * 8


def test_the_largest_batch_is_the_last_that_fits() -> None:
    model = measure(parse(block(width=512, heads=8, tokens=512, vocabulary=30_000, blocks=12), "f"))
    for fit in fits(model, Assumptions()):
        assert fit.largest_batch
        room = (int(fit.gpu.split()[1][:-2]) - 0.5) * 1e9
        assert memory(model, Assumptions(), fit.largest_batch).training <= room
        assert memory(model, Assumptions(), fit.largest_batch + 1).training > room
        assert fits(model, Assumptions(batch=fit.largest_batch))[
            [f.gpu for f in fits(model, Assumptions())].index(fit.gpu)
        ].fits


def test_the_largest_inference_batch_is_the_last_that_fits() -> None:
    fit = fits(MODEL, Assumptions())[0]
    assert fit.largest_inference_batch is not None
    assert memory(MODEL, Assumptions(), fit.largest_inference_batch).inference <= 15.5e9
    assert memory(MODEL, Assumptions(), fit.largest_inference_batch + 1).inference > 15.5e9


def test_a_model_too_large_for_a_card_has_batch_zero() -> None:
    model = measure(parse(chain(("linear", {"outFeatures": 1_000_000}), shape=[1_000_000]), "f"))
    assert [fit.fits for fit in fits(model, Assumptions())] == [False, False, False]
    assert [fit.largest_batch for fit in fits(model, Assumptions())] == [0, 0, 0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("T4", ("T4 16GB", 16)),
        ("a100", ("A100 40GB", 40)),
        ("A100 80GB", ("A100 80GB", 80)),
        ("L4", ("L4 24GB", 24)),
        ("l40s", ("L40S 48GB", 48)),
        ("NVIDIA GeForce RTX 4090", ("RTX 4090 24GB", 24)),
        ("24GB", ("24 GB", 24.0)),
        ("96", ("96 GB", 96.0)),
    ],
)
def test_a_gpu_by_name_or_memory(text: str, found: tuple[str, float]) -> None:
    assert gpu(text) == found


@pytest.mark.parametrize(
    ("text", "said"), [("V100", "could be V100 16GB, V100 32GB"), ("tpu", "a memory such as"), ("", "")]
)
def test_a_gpu_that_is_none_or_several(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        gpu(text)


def test_a_batch_is_rounded_downwards_to_two_digits() -> None:
    assert [rounded(n) for n in (0, 7, 99, 102, 257, 9_999, 25_232)] == [0, 7, 99, 100, 250, 9_900, 25_000]


def test_cost_follows_from_its_assumptions() -> None:
    assumed = Assumptions(
        price_hour=2, tflops=1e-6, utilisation=0.5, samples=100, epochs=3, batch=10, step_overhead_s=1, startup_s=7
    )
    cost = train_cost(MODEL, assumed)
    assert cost.steps == 30
    assert cost.compute_s == pytest.approx(6 * 10 * 80 / 5e5)
    assert cost.seconds == pytest.approx(7 + 30 * (1 + cost.compute_s))
    assert cost.dollars == pytest.approx(cost.seconds / 3600 * 2)
    slow = Assumptions(bandwidth_gb=1e-6, bandwidth_share=0.5, traffic_bytes=32)
    assert train_cost(MODEL, slow).traffic_s == pytest.approx(32 * 90 / 500)
    assert train_cost(MODEL, Assumptions(idle_floor=True)).compute_s > train_cost(MODEL, Assumptions()).compute_s


@pytest.mark.parametrize(
    "wrong",
    [{"price_hour": 0}, {"batch": -1}, {"utilisation": 1.5}, {"tflops": float("nan")}, {"samples": float("inf")},
     {"startup_s": -1}],
)  # fmt: skip
def test_assumptions_that_make_no_sense(wrong: dict) -> None:
    with pytest.raises(UserError, match=next(iter(wrong)).replace("_", "-")):
        Assumptions(**wrong)


def test_numbers_print_as_the_pages_print_them() -> None:
    assert [short(n) for n in (0, 640, 1536, 590_592, 1_049_600, 8_449_000, 31_120_896, 84_331_345)] == [
        "0", "640", "1.5K", "591K", "1.0M", "8.4M", "31M", "84M",
    ]  # fmt: skip
    assert [short(n) for n in (4.13e9, 2.5e12, 3e15, 5.4e19)] == ["4.1B", "2.5T", "3.0P", "54E"]
    assert [dollars(n) for n in (0.19677, 1.82304, 0.04505, 19255.02)] == ["$0.197", "$1.82", "$0.045", "$19,255.02"]
    assert percent(-0.7285) == "-72.9%"
    assert (gigabytes(1.754e9), gigabytes(17.43e9)) == ("1.75 GB", "17.4 GB")
    assert [label(type) for type in ("multiHeadAttention", "conv2d", "rmsNorm", "relu")] == [
        "Multi Head Attention", "Conv2d", "Rms Norm", "Relu",
    ]  # fmt: skip
