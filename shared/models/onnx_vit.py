"""A ViT's weights out of an ONNX export that has lost the names of its matrices.

The exporter keeps the names of biases, norms and scales, and calls each transposed weight matrix `onnx::MatMul_1966`.
A bias is added to the product it belongs to, so the node that adds `...query.bias` leads to the query's matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.errors import UserError

if TYPE_CHECKING:
    import numpy as np

PREFIX = "backbone."


def weights(data: bytes, source: str) -> dict[str, np.ndarray]:
    """Every weight of the backbone under its name in transformers (before version 5), float32, as a state dict.

    Matrices come back as torch's Linear keeps them, [out, in]; position embeddings as [1, 1 + patches, dim]. Raises
    `UserError` where the graph is not what is expected: nothing is guessed.
    """
    try:
        import onnx
    except ImportError:
        raise UserError(
            f"{source}: reading it needs the package onnx; run pip install onnx (or the extra [offline])"
        ) from None
    graph = onnx.load_model_from_string(data).graph
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    maker = {output: node for node in graph.node for output in node.output}
    found = {name.removeprefix(PREFIX): value for name, value in tensors.items() if name.startswith(PREFIX)}

    for node in graph.node:
        bias = next((name for name in node.input if name.startswith(PREFIX) and name.endswith(".bias")), None)
        if node.op_type != "Add" or bias is None:
            continue
        other = next((name for name in node.input if name != bias), bias)
        product = maker.get(other)
        if product is None or product.op_type != "MatMul":
            continue  # a norm's bias
        matrix = tensors.get(product.input[1])
        if matrix is None or matrix.ndim != 2 or matrix.shape[1] != tensors[bias].shape[0]:
            raise UserError(
                f"{source}: no matrix that fits {bias}; expected the export of a ViT with plain linear layers"
            )
        found[bias.removeprefix(PREFIX).removesuffix("bias") + "weight"] = matrix.T
    found["embeddings.position_embeddings"] = _positions(graph, tensors, source)
    return found


def _positions(graph: object, tensors: dict[str, np.ndarray], source: str) -> np.ndarray:
    """The class token's part and the patches' part stand apart, since the export interpolates only the second."""
    import numpy as np

    patches = [tensors[n.input[0]] for n in graph.node if n.op_type == "Reshape" and n.input[0] in tensors]
    own = [tensors[n.input[0]] for n in graph.node if n.op_type == "Concat" and n.input[0] in tensors]
    if len(patches) != 1 or len(own) != 1 or patches[0].ndim != 3 or own[0].shape != (1, 1, patches[0].shape[2]):
        raise UserError(f"{source}: no position embeddings of the form [1, 1, dim] and [1, patches, dim]")
    return np.concatenate([own[0], patches[0]], axis=1)
