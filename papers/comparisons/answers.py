"""What `compare.py plan --json` and `POST /api/v1/plan` take and answer, as types. `plan.schema.json` is made of them.

    python papers/comparisons/compare.py schema > papers/comparisons/plan.schema.json

The fields of `Request` and of `Verdict` are those that the public client of the pages' makers sends and reads; what
this suite adds stands beside them. null means unknown wherever a count or a shape may be null.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from shared.graph.cost import Assumptions, TrainCost

Least0 = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]


class Policy(Struct, forbid_unknown_fields=True):
    """Rules that a model must keep. A rule that cannot be checked, because something is unknown, is not kept."""

    max_params: Annotated[Least0 | None, Meta(description="largest number of parameters")] = None
    max_memory_gb: Annotated[Least0 | None, Meta(description="largest training memory, 10^9 bytes")] = None
    must_fit: Annotated[str | list[str] | None, Meta(description="GPUs that hold training at the assumed batch")] = None
    forbid_types: Annotated[list[str], Meta(description="layer types that must not be there")] = []
    require_types: Annotated[list[str], Meta(description="layer types that must be there")] = []
    max_layers: Annotated[Least0 | None, Meta(description="largest number of layers")] = None
    max_cost_usd: Annotated[Least0 | None, Meta(description="largest cost of the training run, dollars")] = None


class Serving(Struct, forbid_unknown_fields=True):
    gpu: Annotated[str | None, Meta(description="the GPU to serve on")] = None
    promptTokens: Count | None = None
    genTokens: Count | None = None
    batchSize: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class Deployment(Struct, forbid_unknown_fields=True):
    """How the model is to be trained and served."""

    adapter: Annotated[Any, Meta(description="an adapter's name; only full training is planned, which is said")] = None
    quant: Annotated[Literal["fp32", "fp16", "int8", "int4"] | None, Meta(description="type of the weights")] = None
    serving: Serving | None = None


class Request(Struct):
    """What `POST /api/v1/plan` takes."""

    model: Annotated[dict[str, Any] | str, Meta(description="a graph, or a model's name as `GET /api/v1/models` lists")]
    base: Annotated[dict[str, Any] | str | None, Meta(description="what `plan.diff` starts from")] = None
    policy: Policy | None = None
    spec: Deployment | None = None
    share: Annotated[Any, Meta(description="asks for an address of the answer; none is given")] = None
    source: Annotated[Any, Meta(description="what sends the request; not used")] = None
    gpus: Annotated[list[str], Meta(description="GPUs besides the usual three: names, or memories such as 24GB")] = []
    assumptions: Annotated[dict[str, Any] | None, Meta(description="of the training run, e.g. {'batch': 8}")] = None
    length: Annotated[int | None, Meta(description="tokens of a text model")] = None
    image_size: Annotated[list[int] | int | str | None, Meta(description="pixels, or height and width")] = None


class CompareRequest(Struct, forbid_unknown_fields=True):
    """What `POST /api/v1/compare` takes; the answer is that of `compare.py LEFT RIGHT --json`."""

    left: Annotated[dict[str, Any] | str, Meta(description="a graph, or a model's name")]
    right: Annotated[dict[str, Any] | str, Meta(description="what is compared with it")]
    assumptions: dict[str, Any] | None = None
    gpus: Annotated[list[str], Meta(description="GPUs besides the usual three: names, or memories such as 24GB")] = []
    as_published: Annotated[bool, Meta(description="count as the comparison pages do, whatever is wrong")] = False
    own_inputs: Annotated[bool, Meta(description="each of two real models at its own input")] = False
    length: Annotated[int | None, Meta(description="tokens of a text model")] = None
    image_size: Annotated[list[int] | int | str | None, Meta(description="pixels, or height and width")] = None


class Answer(Struct, forbid_unknown_fields=True, kw_only=True):
    """A part of the answer: nothing may be missing, and nothing else may be there."""


Standing = Annotated[
    Literal["exact", "at least", "not known"],
    Meta(description="of a total: `not known` says that nothing bounds it, whatever number stands there"),
]


class Violation(Answer):
    rule: str
    limit: Any
    found: Annotated[Any, Meta(description="null: unknown")]
    message: str


class PolicyResult(Answer):
    rules: dict[str, Any]
    kept: bool
    violations: list[Violation]


class Identity(Answer):
    name: str
    source: Annotated[str, Meta(description="how the model was named; `graph` for one that was sent")]
    fingerprint: Annotated[str, Meta(description="of types, settings, shapes and connections", pattern="^[0-9a-f]{8}$")]


class Run(Answer):
    legal: Annotated[bool, Meta(description="false: some layer cannot take its input")]
    blockers: Annotated[list[str], Meta(description="what stands against it: sentences")]
    warnings: Annotated[list[str], Meta(description="what is assumed or not known: sentences")]


class Cost(Answer):
    train_usd: float
    lower_bound: Annotated[bool, Meta(description="true: operations of some layer are not known")]
    total: Standing


class ServingPlan(Answer):
    quant: str
    bytes_per_parameter: float
    weights_bytes: float
    activations_bytes: Annotated[int, Meta(description="at the batch, two bytes per value (four under fp32)")]
    cache_bytes: Annotated[int, Meta(description="keys and values of the tokens asked for, of the batch")]
    batch: int
    gpu: str | None
    fits: Annotated[bool | None, Meta(description="weights and activations; null: no GPU named, or not known")]


class Diff(Answer):
    base: Identity
    parameters: int
    macs: Annotated[int | None, Meta(description="null: unknown on a side, or the inputs differ")]
    layers: int
    train_usd: float
    rows: Annotated[dict[str, int], Meta(description="how many are added, removed, changed, same")]
    changes: Annotated[list[str], Meta(description="+ added, - removed, ~ changed with old -> new; at most 200")]


class Verdict(Answer):
    """What the public client reads."""

    version: Literal[1]
    summary: str
    model: Identity
    run: Run
    cost: Cost
    serving: ServingPlan | None
    diff: Diff | None
    policy: PolicyResult | None
    history: Annotated[list[Any], Meta(description="empty: nothing is kept of earlier requests", max_length=0)]
    change: Annotated[str | None, Meta(description="`diff` in one sentence")]


class Layer(Answer):
    id: str
    name: str
    type: str
    settings: dict[str, Any]
    output: list[int] | None
    parameters: int | None
    row_parameters: int | None
    macs: int | None
    active_parameters: Annotated[int | None, Meta(description="that work on one token, where those are not all")]
    kept_numbers: Annotated[int | None, Meta(description="numbers kept for the backward pass")]
    problem: Annotated[str | None, Meta(description="why it cannot take its input")]
    notes: list[str]


class Port(Answer):
    name: str
    shape: list[int] | None


class Training(Answer):
    weights: int
    gradients: int
    adam_states: int
    activations: int
    total: int


class Inference(Answer):
    weights: int
    activations: int
    total: int


class Memory(Answer):
    batch: int
    training: Training
    inference: Inference
    activations_per_sample: int
    lower_bound: Annotated[bool, Meta(description="true: some layer's memory is not known")]


class Gpu(Answer):
    memory_gb: float
    fits_batch: Annotated[bool | None, Meta(description="training at the assumed batch; null: not known")]
    largest_batch: Annotated[int | None, Meta(description="null: any")]
    largest_inference_batch: Annotated[int | None, Meta(description="null: any")]


class Stored(Answer):
    dtype: str
    quantisation: str | None
    bytes: float | None


class Totals(Answer):
    """How each total stands to the truth."""

    parameters: Standing
    macs: Standing
    memory: Standing
    cost: Standing


class Attends(Answer):
    """Attention layers that are alike."""

    layers: int
    type: str
    causal: Annotated[bool | None, Meta(description="null: not said")]
    window: Annotated[int | None, Meta(description="tokens that a query sees; null: all")]
    cached: Annotated[int, Meta(description="numbers of one token in the cache of one layer")]


class Cache(Answer):
    """Keys and values of earlier tokens; bytes at two per number."""

    numbers_per_token: int
    bytes_per_token: int
    length: int | None
    numbers: int | None
    bytes: int | None
    causal_is_assumed: Annotated[bool, Meta(description="true: no layer says whether it is causal")]


class Language(Answer):
    active_parameters: Annotated[int, Meta(description="that work on one token: of the experts those it is sent to")]
    embedding_parameters: Annotated[int, Meta(description="of tokens and positions")]
    non_embedding_parameters: int
    attention: list[Attends]
    cache: Annotated[Cache | None, Meta(description="null: no layer is known to keep earlier tokens")]


class Plan(Answer):
    """One model's plan: counts at full precision, memory in bytes, then the card as text and the client's `plan`."""

    name: str
    source: str
    layers: int
    parameters: int
    parameters_unknown_in: list[str]
    macs: Annotated[int, Meta(description="multiply-accumulates of one forward pass at `inputs`")]
    macs_unknown_in: list[str]
    totals: Totals
    built_as: Annotated[str | None, Meta(description="the class of a module that was built")]
    not_run: Annotated[str | None, Meta(description="why a module was built but could not be run")]
    lacks: Annotated[str | None, Meta(description="what the class is known to lack of the model that was meant")]
    stored: Annotated[Stored | None, Meta(description="the published weights, where a configuration says")]
    unknown_types: dict[str, int]
    inputs: list[Port]
    outputs: list[Port]
    forward_passes: bool | None
    forward_problem: str | None
    memory_bytes: Memory
    gpus: dict[str, Gpu]
    training: TrainCost
    weights_bytes: Annotated[dict[str, float], Meta(description="by how they are stored; few bits only the matrices")]
    training_bytes: Annotated[
        dict[str, float], Meta(description="weights, gradients, optimiser state; no activations; by optimiser")
    ]
    language: Annotated[Language | None, Meta(description="null: the model looks up no tokens, or has no attention")]
    part_of: Annotated[str | None, Meta(description="a sentence, where the graph is known to be only part of a model")]
    assumptions: Assumptions
    layer_list: list[Layer]
    text: Annotated[str, Meta(description="the answer as a card of plain text")]
    markdown: str
    plan: Verdict
    url: None
    share_error: Annotated[str | None, Meta(description="why there is no address, where one was asked for")]


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the answer."""
    found = msgspec.json.schema(Plan)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "compare.py plan --json"} | found
