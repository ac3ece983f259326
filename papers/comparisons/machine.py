"""Layers and models as JSON objects, with every count at full precision; null is unknown."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from shared.graph.cost import GPUS, Assumptions, fits, memory, train_cost
from shared.graph.measure import Layer, Model


def layer_json(layer: Layer | None) -> dict[str, Any] | None:
    if layer is None:
        return None
    return {
        "id": layer.id, "name": layer.name, "type": layer.type, "settings": layer.settings,
        "output": None if layer.output is None else list(layer.output), "parameters": layer.parameters,
        "row_parameters": layer.row, "macs": layer.macs, "problem": layer.problem or None, "notes": layer.notes,
    }  # fmt: skip


def model_json(model: Model, assumed: Assumptions) -> dict[str, Any]:
    """One model's totals, memory, fit and cost."""
    need, cost = memory(model, assumed), train_cost(model, assumed)
    return {
        "name": model.name,
        "source": model.source,
        "layers": len(model.body),
        "parameters": model.parameters,
        "parameters_unknown_in": [layer.id for layer in model.unknown("parameters")],
        "macs": model.macs,
        "macs_unknown_in": [layer.id for layer in model.unknown("macs")],
        "unknown_types": model.unknown_types,
        "inputs": [{"name": layer.name, "shape": layer.output} for layer in model.inputs],
        "outputs": [{"name": layer.name, "shape": layer.output} for layer in model.outputs],
        "forward_passes": model.passes_forward,
        "forward_problem": None if model.passes_forward else model.forward,
        "memory_bytes": {
            "batch": need.batch,
            "training": {
                "weights": need.weights, "gradients": need.gradients, "adam_states": need.adam,
                "activations": need.activations, "total": round(need.training),
            },
            "inference": {
                "weights": need.weights, "activations": need.inference - need.weights, "total": need.inference,
            },
            "activations_per_sample": need.per_sample,
            "lower_bound": not model.memory_known,
        },
        "gpus": {
            fit.gpu: {"memory_gb": GPUS[fit.gpu], "fits_batch": fit.fits, "largest_batch": fit.largest_batch,
                      "largest_inference_batch": fit.largest_inference_batch}
            for fit in fits(model, assumed)
        },
        "training": asdict(cost),
    }  # fmt: skip
