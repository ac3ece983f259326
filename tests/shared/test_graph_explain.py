from __future__ import annotations

from pathlib import Path

import pytest
from graphs import block, chain

from shared.graph.convention import RIGHT, Convention
from shared.graph.disagree import disagreements
from shared.graph.explain import explain, omissions
from shared.graph.measure import measure
from shared.graph.read import parse, read


def official(data: dict, count: int) -> dict:
    return data | {"realParamCount": count}


def test_no_official_count_no_explanation() -> None:
    assert explain(measure(parse(block(), "f"))) is None


def test_a_count_within_two_percent_needs_none() -> None:
    model = measure(parse(official(block(), 1), "f"))
    for share, within in ((0.985, True), (1.015, True), (1.03, False)):
        found = explain(measure(parse(official(block(), round(model.parameters * share)), "f")))
        assert found is not None
        assert found.within is within


def test_a_gap_is_explained_only_by_rules_that_close_it() -> None:
    data = chain(
        ("embedding", {"vocabSize": 1000, "embeddingDim": 64, "maxSeqLen": 500}),
        ("multiHeadAttention", {"embedDim": 64, "numHeads": 4}),
        shape=[1, 16],
    )
    counted = measure(parse(data, "f")).parameters
    positions = explain(measure(parse(official(data, counted + 500 * 64), "f")))
    assert positions is not None
    assert [one.parameters for one in positions.omissions] == [500 * 64]
    both = explain(measure(parse(official(data, counted + 500 * 64 + 500**2), "f")))
    assert both is not None
    assert sorted(one.parameters for one in both.omissions) == [500 * 64, 500**2]
    nothing = explain(measure(parse(official(data, counted + 123_456_789), "f")))
    assert nothing is not None
    assert nothing.omissions == ()


def test_a_graph_with_positions_and_a_head_lacks_neither() -> None:
    data = chain(
        ("embedding", {"vocabSize": 1000, "embeddingDim": 64, "maxSeqLen": 500}),
        ("rope", {}),
        ("linear", {"outFeatures": 1000}),
        shape=[1, 16],
    )
    assert omissions(measure(parse(data, "f"))) == []


def test_public_graphs_meet_their_official_counts_or_say_what_they_lack(shared_folder: Path) -> None:
    """The 46 public graphs: all read, none has an unknown type, 10 of 15 counts are met and 5 are explained."""
    models = {path.stem: measure(read(path)) for path in sorted((shared_folder / "graphs" / "zoo").glob("*.json"))}
    assert len(models) == 46
    assert not any(model.unknown_types for model in models.values())
    assert not any(model.unknown("parameters") for model in models.values())
    assert all(model.passes_forward is not None for model in models.values())
    failing = {name: model.problems[0].problem for name, model in models.items() if model.problems}
    assert failing == {
        "dcn": "expects 10 features, gets 1 × 390",
        "gemma-4-12b": "cannot reshape 1 × 196 × 3840 (752,640 values) to 1 × 280 × 3840 (1,075,200)",
        "mamba-block": "expects 4,096 features, gets 1 × 1027 × 2048",
        "mmoe": "expects 16 features, gets 1 × 624",
        "ple": "expects 16 features, gets 1 × 624",
    }
    told = {name: found for name, model in models.items() if (found := explain(model))}
    assert len(told) == 15
    outside = {name: found for name, found in told.items() if not found.within}
    assert sorted(outside) == ["gpt-oss-120b", "gpt2-small", "kimi-k2.6", "llama-4-scout", "pythia-1.4b"]
    assert all(found.omissions and abs(found.left) < 0.002 for found in outside.values())


@pytest.mark.parametrize(
    ("rule", "layers", "shape", "what", "words"),
    [
        ({"learned_positions": False}, [("positionalEncoding", {"maxLen": 9, "embedDim": 8})], [1, 4, 8], "parameters",
         "learned positions are counted as 0"),
        ({"attention_products": 1}, [("multiHeadAttention", {"embedDim": 8, "numHeads": 2})], [1, 4, 8], "macs",
         "one of the two attention products"),
        ({"unbiased": frozenset({"causalAttention"})}, [("causalAttention", {"embedDim": 8, "numHeads": 2})], [1, 4, 8],
         "parameters", "the biases of this attention type are left out"),
        ({"declared_rows": True}, [("linear", {"outFeatures": 3})], [1, 8], "row", "its own settings alone"),
        ({"norm_macs": 2}, [("layerNorm", {})], [1, 8], "macs", "element-wise operations of a normalisation"),
        ({"tied": False}, [("embedding", {"vocabSize": 9, "embeddingDim": 8}),
                           ("linear", {"inFeatures": 8, "outFeatures": 9, "tied": True})], [1, 4],
         "parameters", "declares tied"),
    ],
)  # fmt: skip
def test_a_disagreement_names_the_rule_behind_it(rule, layers, shape, what, words) -> None:
    graph = parse(chain(*layers, shape=shape), "f")
    found = disagreements(graph, measure(graph, RIGHT), measure(graph, Convention(name="other", **rule)))
    assert [one.what for one in found] == [what]
    assert words in found[0].reasons[0]
    assert len(found[0].reasons) == 1


def test_equal_disagreements_stand_once() -> None:
    graph = parse(block(blocks=3), "f")
    found = disagreements(graph, measure(graph), measure(graph, Convention(norm_macs=2)))
    assert [(one.what, one.times) for one in found] == [("macs", 6)]
