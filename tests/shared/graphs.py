"""Small graphs for tests, as the data of a graph file."""

from __future__ import annotations

from hypothesis import strategies as st


def chain(*layers: tuple[str, dict], shape: list[int] | None = None, name: str = "chain") -> dict:
    """input -> layers -> output. Ids are n0, n1, ..."""
    parts = [("input", {"shape": shape or [1, 8]}), *layers, ("output", {})]
    return {
        "id": name,
        "name": name,
        "components": [
            {"id": f"n{at}", "type": type, "name": f"{type}_{at}", "params": settings}
            for at, (type, settings) in enumerate(parts)
        ],
        "connections": [{"id": f"c{at}", "from": f"n{at}", "to": f"n{at + 1}"} for at in range(len(parts) - 1)],
    }


def block(width: int = 8, heads: int = 2, tokens: int = 16, vocabulary: int = 11, blocks: int = 2) -> dict:
    """A pre-norm transformer with residual additions."""
    data = chain(("embedding", {"numEmbeddings": vocabulary, "embeddingDim": width}), shape=[1, tokens], name="block")
    components, edges = data["components"][:2], [("n0", "n1")]
    last = "n1"
    for at in range(blocks):
        ids = [f"b{at}{letter}" for letter in "abcdef"]
        for id, (type, settings) in zip(
            ids,
            [
                ("layerNorm", {"normalizedShape": width}),
                ("multiHeadAttention", {"embedDim": width, "numHeads": heads}),
                ("add", {}),
                ("layerNorm", {"normalizedShape": width}),
                ("feedForward", {"embedDim": width, "ffDim": 4 * width}),
                ("add", {}),
            ],
            strict=True,
        ):
            components.append({"id": id, "type": type, "name": id, "params": settings})
        a, b, c, d, e, f = ids
        edges += [(last, a), (a, b), (b, c), (last, c), (c, d), (d, e), (e, f), (c, f)]
        last = f
    components.append({"id": "out", "type": "output", "name": "out", "params": {}})
    edges.append((last, "out"))
    connections = [{"id": f"c{at}", "from": start, "to": end} for at, (start, end) in enumerate(edges)]
    return {"id": "block", "name": "block", "components": components, "connections": connections}


TYPES = (
    "linear", "relu", "layerNorm", "rmsNorm", "batchNorm", "add", "dropout", "multiHeadAttention", "conv2d",
    "embedding", "flatten", "concatenate", "somethingNew",
)  # fmt: skip
SETTINGS = st.dictionaries(
    st.sampled_from(
        ["inFeatures", "outFeatures", "embedDim", "numHeads", "normalizedShape", "outChannels", "kernelSize"]
    ),
    st.sampled_from([1, 2, 3, 4, 8]),
    max_size=4,
)


@st.composite
def random_graphs(draw: st.DrawFn, most: int = 10) -> dict:
    """Any directed graph without cycles: edges go from earlier to later nodes, the file order is shuffled."""
    count = draw(st.integers(1, most))
    nodes = [
        {"id": "n0", "type": "input", "name": "in", "params": {"shape": draw(st.sampled_from([[1, 8], [3, 8, 8]]))}}
    ]
    edges = []
    for at in range(1, count + 1):
        type = draw(st.sampled_from(TYPES))
        nodes.append({"id": f"n{at}", "type": type, "name": draw(st.text(max_size=5)), "params": draw(SETTINGS)})
        for parent in draw(st.lists(st.integers(0, at - 1), max_size=3, unique=True)):
            edges.append({"id": f"c{len(edges)}", "from": f"n{parent}", "to": f"n{at}"})
    return {"id": "random", "name": "random", "components": draw(st.permutations(nodes)), "connections": edges}
