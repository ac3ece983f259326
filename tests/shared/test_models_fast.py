"""Folding and standardising change no number beyond rounding, and notice where they would."""

from __future__ import annotations

import dataclasses

import pytest
import timm
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


class Dense(nn.Module):
    """The convolution's output also goes into a concatenation, as in DenseNet."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        y = self.conv(x)
        return torch.cat([y, self.norm(y)], 1).flatten(1)


class Pooled(Dense):
    """A shortcut pools the convolution's output, as in CoAtNet and MaxViT."""

    def forward(self, x):
        y = self.conv(x)
        return (nn.functional.avg_pool2d(y, 2) + nn.functional.avg_pool2d(self.norm(y), 2)).flatten(1)


class View(Dense):
    """Something reads the output through a view of it."""

    def forward(self, x):
        y = self.conv(x)
        rows = y.flatten(1)
        return self.norm(y).flatten(1) + rows


class TwoNorms(Dense):
    """Two branches normalise one output."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.BatchNorm2d(4)

    def forward(self, x):
        y = self.conv(x)
        return (self.norm(y) * self.other(y)).flatten(1)


class Shared(Dense):
    """One convolution and one norm, used twice."""

    def forward(self, x):
        return (self.norm(self.conv(x)) + self.norm(self.conv(x.flip(3)))).flatten(1)


@pytest.mark.parametrize("net", [lambda: Net(twice=True), Dense, Pooled, View, TwoNorms, Shared])
def test_a_norm_is_left_where_it_is_not_the_one_reader(net):
    torch.manual_seed(0)
    net = net().eval()
    for norm in net.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        before = net(x)
        assert fast.fold_batch_norms(net, (16, 16)) == 0
        assert net(x).equal(before)


def test_a_network_that_folding_changes_is_left_as_it_was(monkeypatch):
    """A variance of nearly zero: rounding alone is more than is allowed here."""
    torch.manual_seed(0)
    net = Net()
    x = torch.randn(2, 3, 16, 16)
    monkeypatch.setattr(fast, "FOLD_TOLERANCE", 0.0)
    with torch.no_grad():
        before = net(x)
        assert fast.fold_batch_norms(net, (16, 16)) == 0
        assert net(x).equal(before)
    assert isinstance(net.norm, nn.BatchNorm2d) and net.conv.bias is None


def narrow_maxxvits() -> list:
    """The different blocks of timm's CoAtNet and MaxViT architectures, in narrow networks with one block a stage."""
    from timm.models.maxxvit import model_cfgs

    different = {}
    for name, cfg in model_cfgs.items():
        stem = 32 if isinstance(cfg.stem_width, int) else (32, 32)
        small = dataclasses.replace(cfg, embed_dim=(32,) * 4, depths=(1,) * 4, stem_width=stem, head_hidden_size=None)
        different.setdefault(repr(small), pytest.param(small, id=name))
    return list(different.values())


@pytest.mark.parametrize("cfg", narrow_maxxvits())
def test_coatnet_and_maxvit_keep_their_answer(cfg):
    from timm.models.maxxvit import MaxxVit

    torch.manual_seed(0)
    net = MaxxVit(cfg, img_size=64, num_classes=0).eval()
    for norm in net.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
    norms = sum(isinstance(layer, nn.BatchNorm2d) for layer in net.modules())
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        before = net(x)
        folded = fast.fold_batch_norms(net, (64, 64))
        assert 0 < folded < norms or norms == 0  # some lead to a shortcut, most do not
        torch.testing.assert_close(net(x), before, rtol=1e-3, atol=1e-3 * float(before.abs().max()))


@pytest.mark.parametrize(("name", "folded"), [("densenet121", 59), ("repvgg_a0", 1), ("mobilenetv3_small_050", 1)])
def test_other_families(name, folded):
    """DenseNet joins outputs, RepVGG adds a norm of the input itself, MobileNet has activations in its norms."""
    torch.manual_seed(0)
    net = timm.create_model(name, num_classes=0).eval()
    for norm in net.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.normal_(std=0.1)
            norm.running_var.uniform_(0.5, 2)
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        before = net(x)
        assert fast.fold_batch_norms(net, (64, 64)) >= folded
        torch.testing.assert_close(net(x), before, rtol=1e-3, atol=1e-3 * float(before.abs().max()))


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
