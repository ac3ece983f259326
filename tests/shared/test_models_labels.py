from __future__ import annotations

import random

import pytest

from shared.errors import UserError
from shared.models import labels


@pytest.fixture(scope="module")
def imagenet():
    return labels.imagenet()


def test_lists_are_timms(imagenet):
    from timm.data import ImageNetInfo

    info = ImageNetInfo("imagenet-1k")
    assert imagenet[0] == tuple(info.label_names())
    assert imagenet[1] == tuple(info.label_descriptions())
    assert imagenet[1].count("crane") == 2


def test_names_in_the_usual_order(imagenet):
    wnids, names = imagenet
    assert labels.match("m", names) == imagenet
    shortened = [name.split(",")[0].upper() for name in names]  # some hubs keep one synonym
    assert labels.match("m", shortened)[0] == wnids


def test_wnids_in_any_order(imagenet):
    order = random.Random(0).sample(range(1000), 1000)
    shuffled = [imagenet[0][i] for i in order]
    assert labels.match("m", shuffled) == (tuple(shuffled), tuple(imagenet[1][i] for i in order))
    assert labels.match("m", [f"{imagenet[0][i]} {imagenet[1][i]}" for i in order])[0] == tuple(shuffled)


def test_names_in_another_order_are_refused_where_two_classes_share_one(imagenet):
    """Only the two cranes are in doubt: "harp" is a class, though "harmonica" lists it as a synonym."""
    order = random.Random(0).sample(range(1000), 1000)
    with pytest.raises(UserError, match=r"'crane', fits 2 ImageNet-1k classes \(n02012849, n03126707\)"):
        labels.match("m", [imagenet[1][i] for i in order])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda n: n[:10], "has 10 classes"),
        (lambda n: [*n] * 21 + [*n][:841], "has 21,841 classes"),
        (lambda n: [f"LABEL_{i}" for i in range(1000)], "label 0, 'LABEL_0', is no ImageNet-1k class"),
        (lambda n: ["", *n[1:]], "label 0, '', is no ImageNet-1k class"),
        (lambda n: [n[1], *n[1:]], "2 of its labels are n01443537|fits"),
    ],
)
def test_lists_that_say_something_else(imagenet, change, words):
    with pytest.raises(UserError, match=words):
        labels.match("m", change(imagenet[1]))


def test_wnids_with_a_stranger_or_twice(imagenet):
    wnids = list(imagenet[0])
    with pytest.raises(UserError, match="'n99999999' is no ImageNet-1k class"):
        labels.match("m", ["n99999999", *wnids[1:]])
    with pytest.raises(UserError, match="2 of its labels are n01443537"):
        labels.match("m", [wnids[1], *wnids[1:]])
