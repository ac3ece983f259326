from __future__ import annotations

import json

import pytest
from graphs import block, chain, random_graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import UserError
from shared.graph.kinds import KINDS
from shared.graph.measure import measure
from shared.graph.read import loads, parse, read


def edited(change) -> dict:
    data = block()
    change(data)
    return data


def connect(data: dict, start: str, end: str) -> None:
    data["connections"].append({"id": "extra", "from": start, "to": end})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: connect(d, "b1f", "b0a"), r"cycle: '(b0.)' -> 'b.*more' -> '\1'; remove"),
        (lambda d: connect(d, "b0a", "b0a"), r"cycle: 'b0a' -> 'b0a'"),
        (lambda d: connect(d, "b0a", "nowhere"), "'nowhere', which is no node"),
        (lambda d: d["components"].pop(3), "'b0b', which is no node"),
        (lambda d: d["components"].append(dict(d["components"][2])), "two nodes have the id 'b0a'"),
        (lambda d: d["components"][2].pop("type"), "node 'b0a': has no type"),
        (lambda d: d["components"][2].pop("id"), "component 3: has no id"),
        (lambda d: d["components"][0]["params"].update(shape=[1, -512]), "node 'n0': shape: .* got '\\[1, -512\\]'"),
        (lambda d: d["components"][0]["params"].update(shape=[]), "node 'n0': shape"),
        (lambda d: d["components"][0]["params"].update(shape=[1, 2.5]), "node 'n0': shape"),
        (lambda d: d["components"][2].update(params=[1]), "node 'b0a': params: expected an object"),
        (lambda d: d["components"].append("text"), "component 16: expected an object"),
        (lambda d: d["connections"].append({"from": "n0"}), "expected `from` and `to`"),
        (lambda d: d.update(components=[]), "no components"),
        (lambda d: d.update(components=None), "no graph file"),
    ],
)
def test_a_broken_graph_is_one_line_that_names_the_node(change, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        parse(edited(change), "file.json")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("file.json")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10_000_000,
        '{"components": ' * 200_000,
        "{",
        "nul",
        "[1, 2]",
        '{"components": [{"id": 1' + "0" * 5000 + "}]}",
    ],
)
def test_text_that_is_no_graph(text: str) -> None:
    with pytest.raises(UserError, match=r"^deep\.json: ") as caught:
        loads(text, "deep.json")
    assert len(str(caught.value)) < 200


def test_settings_nested_deeper_than_any_layer_has_them() -> None:
    nested: dict = {}
    for _ in range(300):
        nested = {"x": nested}
    data = chain(("linear", nested))
    with pytest.raises(UserError, match="node 'n1': params: nested"):
        parse(data, "f")


def test_files_that_cannot_be_read(tmp_path) -> None:
    for path, said in (
        (tmp_path, "is a folder"),
        (tmp_path / "none.json", "no such graph file"),
    ):
        with pytest.raises(UserError, match=said):
            read(path)
    binary = tmp_path / "b.json"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not readable"):
        read(binary)
    binary.write_bytes(b"\xef\xbb\xbf" + json.dumps(block()).encode())  # as some editors save it
    assert len(read(binary).nodes) == len(block()["components"])


def test_the_variants_of_public_files_are_read() -> None:
    data = {
        "components": [
            {"id": 7, "type": "rope", "params": None},
            {"id": "in", "type": "input", "inputShape": [1, 4], "params": {}},
            {"id": "out", "type": "output", "name": "Ausgabe\x1b[31m ä\n"},
            {"id": "note", "type": "stickyNote", "name": "hello"},
            {"id": "odd", "type": "flux\n\x1b[31m", "params": {"k\n": 1}},
        ],
        "realParamCount": 1.5e9,
        "connections": [{"from": "in", "to": "out", "fromPort": "bottom"}, {"from": 7, "to": "out"}],
    }
    graph = parse(data, "dir/some.json")
    assert graph.name == "some"
    assert graph.official_parameters == 1_500_000_000
    assert (graph.by_id["odd"].type, graph.by_id["odd"].settings) == (r"flux\n\x1b[31m", {r"k\n": 1})
    assert graph.by_id["in"].shape == (1, 4)
    assert graph.parents["out"] == ["in", "7"]
    assert graph.by_id["out"].name == r"Ausgabe\x1b[31m ä\n"


def test_without_connections_the_inputs_of_the_nodes_count() -> None:
    data = chain(("relu", {}))
    del data["connections"]
    data["components"][1]["inputs"], data["components"][2]["inputs"] = ["n0"], ["n1"]
    assert parse(data, "f").edges == (("n0", "n1"), ("n1", "n2"))


def test_order_is_breadth_first_along_the_connections() -> None:
    order = [node.id for node in parse(block(blocks=1), "f").order()]
    assert order == ["n0", "n1", "b0a", "b0b", "b0c", "b0d", "b0e", "b0f", "out"]


@settings(max_examples=40, deadline=None)
@given(random_graphs())
def test_every_parent_stands_before_its_child_and_the_file_order_is_free(data: dict) -> None:
    graph = parse(json.loads(json.dumps(data)), "f")
    order = [node.id for node in graph.order()]
    assert sorted(order) == sorted(node["id"] for node in data["components"])
    assert all(order.index(start) < order.index(end) for start, end in graph.edges)
    turned = parse(data | {"components": data["components"][::-1]}, "f")
    types = [node.type for node in turned.order()]
    assert types == [node.type for node in graph.order()]


AWKWARD = st.sampled_from(
    [None, True, -1, 0, 1, 7, 2.5, 1e30, 10**30, "", "x", [], [1], [0, -1], [[1]], {}, {"a": {}}, "same", [None]]
)
PARTS = st.dictionaries(
    st.sampled_from(["id", "type", "name", "params", "inputs", "from", "to", "inputShape"]), AWKWARD
)


@settings(max_examples=60, deadline=None)
@given(st.lists(PARTS | AWKWARD, max_size=3), st.lists(PARTS | AWKWARD, max_size=2) | st.none())
def test_any_json_is_a_graph_or_one_line(components: list, connections: list | None) -> None:
    try:
        parse({"components": components, "connections": connections}, "f")
    except UserError as error:
        assert "\n" not in str(error)


SETTINGS = st.dictionaries(
    st.sampled_from(["outFeatures", "numLayers", "groups", "axis", "tied", "shape", "hiddenSize"]), AWKWARD, max_size=3
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(KINDS)), SETTINGS, st.sampled_from([[8], [1, 8], [3, 8, 8], [1, 3, 8, 8]]))
def test_any_settings_are_measured_or_one_line(type: str, extra: dict, shape: list[int]) -> None:
    data = chain((type, extra), ("linear", {"outFeatures": 4}), shape=shape)
    try:
        model = measure(parse(data, "f"))
    except UserError as error:
        assert "\n" not in str(error)
        return
    assert len(model.layers) == len(data["components"])
    assert all((layer.parameters or 0) >= 0 and (layer.macs or 0) >= 0 for layer in model.layers)


def test_not_every_number_of_python_is_one_of_json() -> None:
    with pytest.raises(UserError, match="Infinity is no number of JSON"):
        loads('{"components": [{"id": 1, "type": "relu", "params": {"p": Infinity}}]}', "f")
