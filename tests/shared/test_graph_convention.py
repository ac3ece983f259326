"""What conventions change, and which rule is named as the reason."""

from __future__ import annotations

import pytest
from graphs import block, chain

from shared.graph.convention import RIGHT, Convention, Override
from shared.graph.kinds import of_family
from shared.graph.measure import disagreements, measure
from shared.graph.read import parse


def override(words: str, type: str, rows: bool = False, **formulas: object) -> dict:
    return {"overrides": (Override(words, frozenset({type}), formulas, rows),)}


POSITIONS = override("learned positions are counted as 0", "positionalEncoding", parameters=0)
PRODUCT = override("one product is left out", "multiHeadAttention", products=1)
BIASES = override("the biases of this attention type are left out", "causalAttention", bias=False)
NORMS = override("two operations per value", "layerNorm", macs="2 * prod(x)")


@pytest.mark.parametrize(
    ("rule", "layers", "shape", "what", "words"),
    [
        (POSITIONS, [("positionalEncoding", {"maxLen": 9, "embedDim": 8})], [1, 4, 8], "parameters",
         "learned positions are counted as 0"),
        (PRODUCT, [("multiHeadAttention", {"embedDim": 8, "numHeads": 2})], [1, 4, 8], "macs",
         "one product is left out"),
        (BIASES, [("causalAttention", {"embedDim": 8, "numHeads": 2})], [1, 4, 8],
         "parameters", "the biases of this attention type are left out"),
        ({"declared_rows": True}, [("linear", {"outFeatures": 3})], [1, 8], "row", "its own settings alone"),
        (NORMS, [("layerNorm", {})], [1, 8], "macs", "two operations per value"),
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
    found = disagreements(graph, measure(graph), measure(graph, Convention(**NORMS)))
    assert [(one.what, one.times) for one in found] == [("macs", 6)]


def test_an_override_of_rows_leaves_the_totals_alone() -> None:
    layers = [("conv2d", {"outChannels": 6, "kernelSize": 3})]
    graph = parse(chain(*layers, shape=[4, 9, 9]), "f")
    one = override("one channel", "conv2d", rows=True, channels="given('channels') or 1")
    layer = measure(graph, Convention(declared_rows=True, **one)).layers[1]
    assert (layer.row, layer.parameters) == (6 * 9 + 6, 6 * 4 * 9 + 6)


def test_a_family_is_what_its_rows_say() -> None:
    assert of_family("positions") == {"positionalEncoding", "learnedPositionalEmbedding", "rope", "alibi"}
    assert of_family("normalisation") == {"layerNorm", "rmsNorm", "batchNorm", "instanceNorm", "groupNorm"}
