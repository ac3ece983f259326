from __future__ import annotations

import copy
import time

import pytest
from graphs import block, chain, random_graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import UserError
from shared.graph.align import ADDED, CHANGED, REMOVED, SAME, align, align_types, changed_fields, counts
from shared.graph.convention import Convention
from shared.graph.fold import fold
from shared.graph.measure import Model, measure
from shared.graph.read import parse

UNEVEN = Convention(name="uneven", symmetric=False)
WORDS = st.lists(st.sampled_from(["layerNorm", "rmsNorm", "batchNorm", "linear", "add", "relu"]), max_size=12)


def model(data: dict) -> Model:
    return measure(parse(data, "f"))


def statuses(left: dict, right: dict) -> list[str]:
    return [row.status for row in align(model(left), model(right))]


def test_a_model_against_itself_is_all_same() -> None:
    assert set(statuses(block(), block())) == {SAME}


def test_renaming_the_nodes_changes_nothing() -> None:
    renamed = copy.deepcopy(block())
    for at, node in enumerate(renamed["components"]):
        node["name"] = f"other {at}"
    ids = {node["id"]: f"id {at}" for at, node in enumerate(renamed["components"])}
    for node in renamed["components"]:
        node["id"] = ids[node["id"]]
    for edge in renamed["connections"]:
        edge["from"], edge["to"] = ids[edge["from"]], ids[edge["to"]]
    assert set(statuses(block(), renamed)) == {SAME}


def test_one_layer_more_is_one_row_more() -> None:
    plain = [("linear", {"outFeatures": 8}), ("relu", {}), ("linear", {"outFeatures": 8})]
    longer = [*plain[:2], ("dropout", {"p": 0.1}), *plain[2:]]
    assert statuses(chain(*plain), chain(*longer)) == [SAME, SAME, SAME, ADDED, SAME, SAME]
    assert statuses(chain(*longer), chain(*plain)) == [SAME, SAME, SAME, REMOVED, SAME, SAME]


def test_two_normalisations_pair_as_changed_and_nothing_else_does() -> None:
    assert statuses(chain(("layerNorm", {})), chain(("rmsNorm", {}))) == [SAME, CHANGED, SAME]
    assert statuses(chain(("relu", {})), chain(("gelu", {}))) == [SAME, REMOVED, ADDED, SAME]


def test_a_removed_row_stands_before_an_added_one() -> None:
    assert align_types("aXb", "aYb") == [(0, 0), (1, None), (None, 1), (2, 2)]


def test_changed_fields_are_type_then_left_then_right() -> None:
    left = model(chain(("layerNorm", {"normalizedShape": 8, "a": 1, "b": 2}))).layers[1]
    right = model(chain(("rmsNorm", {"c": 3, "b": 2, "a": 2}))).layers[1]
    assert changed_fields(left, right) == ["type", "normalizedShape", "a", "c"]


def test_settings_are_compared_by_meaning_or_by_name() -> None:
    left = model(chain(("feedForward", {"embedDim": 8, "ffDim": 16}))).layers[1]
    right = model(chain(("feedForward", {"hiddenDim": 8, "ffDim": 16}))).layers[1]
    assert changed_fields(left, right) == []
    assert changed_fields(left, right, by_name=True) == ["embedDim", "hiddenDim"]
    left = model(chain(("linear", {"inDim": 8, "outDim": 4}))).layers[1]
    right = model(chain(("linear", {"inFeatures": 8, "outFeatures": 4}))).layers[1]
    assert changed_fields(left, right) == []


def test_two_keys_of_one_meaning_are_both_compared() -> None:
    left, right = (model(chain(("mla", {"headDim": 4, "vHeadDim": size}))).layers[1] for size in (2, 4))
    assert changed_fields(left, right) == ["vHeadDim"]


def test_equal_settings_with_unequal_parameters_are_changed() -> None:
    left, right = (model(chain(("linear", {"outFeatures": 4}), shape=[1, size])).layers[1] for size in (8, 16))
    assert changed_fields(left, right) == ["parameters"]
    assert changed_fields(left, right, by_name=True) == []


@settings(max_examples=60, deadline=None)
@given(WORDS, WORDS)
def test_any_two_lists_align_completely_in_order_and_at_least_cost(left: list[str], right: list[str]) -> None:
    for symmetric in (True, False):
        pairs = align_types(left, right, symmetric=symmetric)
        assert [i for i, _ in pairs if i is not None] == list(range(len(left)))
        assert [j for _, j in pairs if j is not None] == list(range(len(right)))
        assert cost(left, right, pairs) == cheapest(left, right)


def cost(left: list[str], right: list[str], pairs: list) -> int:
    return sum(1 if i is None or j is None else int(left[i] != right[j]) for i, j in pairs)


def cheapest(left: list[str], right: list[str]) -> int:
    """The least cost, by the textbook recursion."""
    table = {(0, j): j for j in range(len(right) + 1)} | {(i, 0): i for i in range(len(left) + 1)}
    for i in range(1, len(left) + 1):
        for j in range(1, len(right) + 1):
            a, b = left[i - 1], right[j - 1]
            pair = 0 if a == b else 1 if a.endswith("Norm") and b.endswith("Norm") else 99
            table[i, j] = min(table[i - 1, j - 1] + pair, table[i - 1, j] + 1, table[i, j - 1] + 1)
    return table[len(left), len(right)]


@settings(max_examples=60, deadline=None)
@given(WORDS, WORDS)
def test_swapping_the_sides_swaps_added_and_removed(left: list[str], right: list[str]) -> None:
    one, other = align_types(left, right), align_types(right, left)
    assert {(j, i) for i, j in other} == set(one)  # the same pairs, not only as many


def test_swapped_rows_stand_in_the_same_order_removed_first() -> None:
    assert align_types("bYa", "bXa") == [(0, 0), (1, None), (None, 1), (2, 2)]
    assert align_types(["add"], ["relu", "add", "add"]) == [(None, 0), (None, 1), (0, 2)]


@settings(max_examples=40, deadline=None)
@given(random_graphs(), random_graphs())
def test_counts_add_up_on_any_two_graphs(left: dict, right: dict) -> None:
    try:
        one, other = model(left), model(right)
    except Exception as error:
        assert type(error).__name__ == "UserError", error
        return
    for convention in (Convention(), UNEVEN):
        found = counts(align(one, other, convention))
        assert found[SAME] + found[CHANGED] + found[REMOVED] == len(one.layers)
        assert found[SAME] + found[CHANGED] + found[ADDED] == len(other.layers)
    assert set(statuses(left, left)) == {SAME}


@settings(max_examples=30, deadline=None)
@given(random_graphs(), st.randoms(use_true_random=False))
def test_the_file_order_of_the_nodes_changes_no_count(data: dict, random) -> None:
    shuffled = data | {"components": random.sample(data["components"], len(data["components"]))}
    try:
        one, other = model(data), model(shuffled)
    except Exception as error:
        assert type(error).__name__ == "UserError", error
        return
    assert (one.parameters, one.macs, len(one.body)) == (other.parameters, other.macs, len(other.body))
    assert counts(align(model(block()), one)) == counts(align(model(block()), other))


def test_models_too_long_to_align_are_refused() -> None:
    with pytest.raises(UserError, match="6,000 against 6,000 layers are too many"):
        align_types(["add"] * 6000, ["add"] * 6000)


def test_four_hundred_layers_a_side_are_aligned_in_half_a_second() -> None:
    left, right = model(block(blocks=67)), model(block(blocks=66, heads=4))
    assert min(len(left.layers), len(right.layers)) >= 398
    start = time.process_time()
    rows = align(left, right)
    assert time.process_time() - start < 0.5
    assert counts(rows)[ADDED] == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from("abc"), max_size=40))
def test_folds_unfold_to_the_same_list(items: list[str]) -> None:
    parts = fold(items, lambda item: item)
    assert [item for part in parts for item in list(part.items) * part.times] == items
    assert [part.start for part in parts[1:]] == [part.end for part in parts[:-1]]


def test_repeated_blocks_fold_into_one() -> None:
    parts = fold("xabcabcabcy", lambda item: item)
    assert [("".join(part.items), part.times) for part in parts] == [("x", 1), ("abc", 3), ("y", 1)]
    assert [part.times for part in fold("aab", lambda item: item)] == [1]
