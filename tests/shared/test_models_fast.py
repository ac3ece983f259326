"""Folding and standardising change no number beyond rounding, and notice where they would."""

from __future__ import annotations

import pytest
import torch
from checkpoints import random_model
from torch import nn

from shared.models import fast
from shared.models.fast import Answer


class Net(nn.Module):
    """norm -> conv -> norm -> relu: the first norm follows no convolution. twice: the convolution is also read raw."""

    def __init__(self, *, twice: bool = False) -> None:
        super().__init__()
        self.first = nn.BatchNorm2d(3)
        self.conv = nn.Conv2d(3, 4, 3, stride=2, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.twice = twice
        for norm in (self.first, self.norm):
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)
        self.eval()

    def forward(self, x):
        y = self.conv(self.first(x))
        z = self.norm(y).relu()
        return (z + y if self.twice else z).flatten(1)


def test_only_norms_after_convolutions_are_folded():
    torch.manual_seed(0)
    net = Net()
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        before = net(x)
        assert fast.fold_batch_norms(net, (16, 16)) == 1
        torch.testing.assert_close(net(x), before)
    assert isinstance(net.norm, nn.Identity)
    assert isinstance(net.first, nn.BatchNorm2d)


def test_a_convolution_that_is_read_twice_is_noticed():
    torch.manual_seed(0)
    with pytest.raises(RuntimeError, match="changed the network's answer"):
        fast.fold_batch_norms(Net(twice=True), (16, 16))


def test_resnet_loses_every_norm():
    model = Answer(random_model("resnet"), "pooler_output")
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        before = model(x)
        count = sum(isinstance(layer, nn.BatchNorm2d) for layer in model.modules())
        assert fast.fold_batch_norms(model, (64, 64)) == count > 5
        torch.testing.assert_close(model(x), before, rtol=1e-4, atol=1e-5)


def test_bits_weights_are_standardised_once():
    model = Answer(random_model("bit"), "pooler_output")
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        before = model(x)
        assert fast.standardise_weights(model) > 5
        torch.testing.assert_close(model(x), before, rtol=1e-4, atol=1e-5)
        assert fast.standardise_weights(model) == 0


def test_last_layer_for_the_class_token_alone():
    model = random_model("vit")
    tokens = torch.randn(3, 17, 32)
    with torch.no_grad():
        whole = model.layers[-1](tokens, None)
        first = fast.ClassTokenLayer(model.layers[-1])(tokens, None)
    assert first.shape == (3, 1, 32)
    torch.testing.assert_close(first[:, 0], whole[:, 0], rtol=1e-5, atol=1e-6)
