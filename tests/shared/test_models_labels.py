from __future__ import annotations

import random
from itertools import combinations

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
        (lambda n: [f"LABEL_{i}" for i in range(1000)], "label 0, 'LABEL_0', is no ImageNet-1k class"),
        (lambda n: ["", *n[1:]], "label 0, '', is no ImageNet-1k class"),
        (lambda n: [n[1], *n[1:]], "2 of its labels are n01443537|fits"),
    ],
)
def test_lists_that_say_something_else(imagenet, change, words):
    with pytest.raises(UserError, match=words):
        labels.match("m", change(imagenet[1]))


@pytest.mark.parametrize("count", [0, 10, 999, 1001, 21_841])
def test_a_list_of_another_length_is_the_models_own(imagenet, count):
    own = [f"class {i}" for i in range(count)]
    assert labels.match("m", own) == ((), tuple(own))


def sharing(names: tuple[str, ...]) -> list[tuple[int, int]]:
    """The pairs of classes with a synonym in common."""
    parts = [{part.strip().lower() for part in name.split(",")} for name in names]
    return [(i, j) for i, j in combinations(range(len(names)), 2) if parts[i] & parts[j]]


@pytest.mark.parametrize("form", ["whole names", "first names"])
def test_two_exchanged_columns_with_a_synonym_in_common_are_never_taken_for_the_usual_order(imagenet, form):
    """missile and projectile, the two maillots, ... The columns of two equal names cannot be told apart by anyone."""
    pairs = sharing(imagenet[1])
    assert {(657, 744), (638, 639)} <= set(pairs) and len(pairs) > 15
    names = [name if form == "whole names" else name.split(",")[0] for name in imagenet[1]]
    for i, j in pairs:
        exchanged = list(names)
        exchanged[i], exchanged[j] = names[j], names[i]
        if names[i] == names[j]:
            assert labels.match("m", exchanged)[0] == imagenet[0]
            continue
        with pytest.raises(UserError, match="'crane', fits 2 ImageNet-1k classes"):
            labels.match("m", exchanged)


def test_a_synonym_that_fits_two_classes_is_refused_where_they_could_change_places(imagenet):
    names = list(imagenet[1])
    names[54], names[66] = "sand viper", "Sand Viper"  # two words for one name: nothing to exchange
    assert labels.match("m", names) == imagenet
    names[286], names[287] = "catamount", "catamount, catamount"
    with pytest.raises(UserError, match="labels 286 and 287, 'catamount' and 'catamount, catamount', each fit both"):
        labels.match("m", names)


def test_names_of_a_data_set(imagenet):
    assert labels.places("English_springer") == labels.places("english springer") == {217}
    assert labels.places("crane") == {134, 517}
    assert labels.places("Cardigan") == {264} and labels.places("cardigan") == {474}
    assert labels.places("no such thing") == labels.places("") == labels.places(" , ") == set()


def test_wnids_with_a_stranger_or_twice(imagenet):
    wnids = list(imagenet[0])
    with pytest.raises(UserError, match="'n99999999' is no ImageNet-1k class"):
        labels.match("m", ["n99999999", *wnids[1:]])
    with pytest.raises(UserError, match="2 of its labels are n01443537"):
        labels.match("m", [wnids[1], *wnids[1:]])
