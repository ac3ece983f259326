"""What the residual networks cost, by the description and by PyTorch's own counters on the built modules."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from papers.resnet.architectures import (
    Network,
    cifar,
    imagenet,
    multiply_adds,
    output_sizes,
    parameters,
    projections,
    vgg,
    weighted_layers,
)
from papers.resnet.networks import ResidualBlock, build, initialise
from shared.errors import UserError

NETWORKS = {
    **{f"imagenet-18-{option}": imagenet(18, option) for option in ("none", "A", "B", "C")},
    "imagenet-34": imagenet(34),
    **{f"imagenet-50-{option}": imagenet(50, option) for option in ("none", "A", "B", "C")},
    "imagenet-101-stride-3x3": imagenet(101, stride_in="3x3"),
    "vgg-16": vgg(16),
    "vgg-19": vgg(19),
    **{f"cifar-20-{option}": cifar(20, option) for option in ("none", "A", "B", "C")},
    "cifar-44": cifar(44),
}


def counted(module: nn.Module, size: int) -> tuple[int, int]:
    """(parameters, multiply-adds) by PyTorch itself; the module is on the meta device."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module.eval()(torch.empty(1, 3, size, size, device="meta"))
    return sum(p.numel() for p in module.parameters()), counter.get_total_flops() // 2


def on_meta(network: Network) -> nn.Module:
    with torch.device("meta"):
        return build(network)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_built_network_costs_what_its_description_says(name):
    network = NETWORKS[name]
    assert counted(on_meta(network), network.image_size) == (parameters(network), multiply_adds(network))


@pytest.mark.parametrize(
    ("name", "network"),
    [("resnet50", imagenet(50, stride_in="3x3")), ("resnet18", imagenet(18, "B")), ("vgg16", vgg(16))],
)
def test_torchvisions_networks_cost_the_same(name, network):
    import torchvision

    with torch.device("meta"):
        theirs = getattr(torchvision.models, name)()
    assert counted(theirs, 224) == (parameters(network), multiply_adds(network))


def test_depth_is_what_the_name_says():
    for network in (*NETWORKS.values(), cifar(110), cifar(1202), imagenet(152)):
        assert network.name.endswith(f"-{weighted_layers(network)}")


def test_projections_of_each_option():
    assert [projections(imagenet(34, option)) for option in ("none", "A", "B", "C")] == [0, 0, 3, 16]
    # a bottleneck widens in the first stage too
    assert [projections(imagenet(50, option)) for option in ("A", "B", "C")] == [0, 4, 16]
    assert [projections(cifar(56, option)) for option in ("A", "B", "C")] == [0, 2, 27]


def test_output_sizes_are_those_of_the_built_network():
    network = imagenet(18)
    with torch.device("meta"):
        module, x = build(network), torch.empty(1, 3, 224, 224)
    x = module.stem(x)
    for number, stage in enumerate(module.stages, start=1):
        x = stage(x)
        assert x.shape[2:] == (output_sizes(network)[number],) * 2


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: cifar(21), "depth is 6n . 2, for instance 20"),
        (lambda: cifar(2), "for instance 8"),
        (lambda: cifar(-4), "for instance 8"),
        (lambda: imagenet(20), "expected one of 18, 34, 50, 101, 152"),
        (lambda: vgg(13), "expected one of 16, 19"),
    ],
)
def test_a_depth_that_is_not_there_names_those_that_are(call, says):
    with pytest.raises(UserError, match=says):
        call()


def blocks(network: Network) -> list[ResidualBlock]:
    return [part for part in build(network).modules() if isinstance(part, ResidualBlock)]


def test_a_block_whose_residual_is_zero_passes_its_input_on():
    x = torch.rand(2, 16, 8, 8)
    same, grows = blocks(cifar(20))[0], blocks(cifar(20))[3]
    for block in (same, grows):
        nn.init.zeros_(block.residual[-1][1].weight)
    assert torch.equal(same(x), x)
    padded = grows(x)
    assert padded.shape == (2, 32, 4, 4)
    assert torch.equal(padded[:, :16], x[:, :, ::2, ::2]) and not padded[:, 16:].any()


def test_a_plain_block_does_not():
    block = blocks(cifar(20, "none"))[0]
    nn.init.zeros_(block.residual[-1][1].weight)
    assert not block(torch.rand(2, 16, 8, 8)).any()


def test_every_option_runs_forward_and_backward():
    images = torch.rand(2, 3, 32, 32)
    for option in ("none", "A", "B", "C"):
        network = build(cifar(8, option))
        logits = network(images)
        assert logits.shape == (2, 10)
        logits.sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_initialisation_is_hes_and_a_function_of_the_seed():
    first, again, other = (initialise(build(cifar(20)), seed) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.stem[0][0].weight, other.stem[0][0].weight)
    weight = first.stages[2][2].residual[2][0].weight  # 64 x 64 x 3 x 3
    # the standard deviation of 36,864 draws is known to 0.4 %; five times that
    assert weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)
    assert not first.head.bias.any()
