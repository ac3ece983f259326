"""One model's plan: can it run, what does it need, does it keep a policy, and how does it differ from a base.

    answer = plan(source, assumed, Request(...))    a dictionary as `answers.Plan` describes it

`compare.py plan` prints it and `POST /api/v1/plan` sends it, byte for byte the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from papers.comparisons import answers
from papers.comparisons.comparison import Comparison, compare, layer_json, model_json, old_to_new
from papers.comparisons.models import Source
from papers.comparisons.needs import bounded, more, needs, shapes, widest
from papers.comparisons.sidebyside import check_sizes
from papers.comparisons.text import bullets, escape
from papers.comparisons.whole import part
from shared.errors import UserError
from shared.graph.align import ADDED, REMOVED, SAME
from shared.graph.cost import GPUS, Assumptions, dollars, fits, gigabytes, gpu, memory, short, train_cost
from shared.graph.kinds import label
from shared.graph.language import language, training_bytes, weight_bytes
from shared.graph.measure import Model
from shared.graph.read import parse, quoted
from shared.record import aligned
from shared.schema import checked
from shared.specs import Spec

BYTES = {"fp32": 4.0, "fp16": 2.0, "int8": 1.0, "int4": 0.5}  # of a weight
LARGEST_REQUEST = 50_000_000  # bytes
EXPECTED = "the request is described at /docs and in answers.py"
MOST_CHANGES, MOST_WARNINGS = 200, 40  # lines of an answer
NOT_SHARED = "this suite keeps and publishes nothing; the answer is all there is"


def plan(source: Source, assumed: Assumptions, request: answers.Request, base: Source | None = None) -> dict[str, Any]:
    """The answer. `request.model` and `request.base` have been found already: `source` and `base`."""
    image = check_sizes(request.length, request.image_size, [one for one in (source, base) if one])
    model = source.measure(length=request.length, image=image)
    known = part(source.graph, model)
    other = base and base.measure(length=request.length if base.takes_tokens else None, image=image)
    gpus = GPUS | dict(gpu(name) for name in request.gpus)
    policy = request.policy and check(model, request.policy, assumed)
    difference = other and diff(model, other, assumed)
    serving, remarks = served(model, request.spec, assumed)
    blockers = [f"{layer.name} cannot take its input: it {layer.problem}" for layer in model.problems]
    verdict = {
        "version": 1,
        "summary": summary(model, assumed),
        "model": identity(model),
        "run": {
            "legal": not model.problems,
            "blockers": blockers + [one["message"] for one in (policy or {}).get("violations", [])],
            "warnings": [*remarks, *warnings(model)],
        },
        "cost": {
            "train_usd": train_cost(model, assumed).dollars,
            "lower_bound": model.total_is("cost") == "at least",
            "total": model.total_is("cost"),
        },
        "serving": serving,
        "diff": difference,
        "policy": policy,
        "history": [],
        "change": difference and change(difference),
    }
    banner = known.banner if known else None
    verdict["run"]["warnings"][:0] = [banner] if banner else []
    title, rows, lists = card(model, assumed, verdict, banner, gpus)
    return model_json(model, assumed, gpus) | {
        "weights_bytes": weight_bytes(model),
        "training_bytes": training_bytes(model),
        "language": asked(model, request.length),
        "part_of": banner,
        "assumptions": asdict(assumed),
        "layer_list": [
            layer_json(layer) | {"kept_numbers": layer.kept, "active_parameters": layer.active}
            for layer in model.layers
        ],
        "text": as_text(title, rows, lists, banner),
        "markdown": as_markdown(title, rows, lists, banner),
        "plan": verdict,
        "url": None,
        "share_error": NOT_SHARED if request.share else None,
    }


def answer(data: Any, find: Callable[[str], Source], assumed: Assumptions | None = None) -> dict[str, Any]:
    """What a request, decoded from JSON, is answered; a bare graph is a request too.

    find: a name's model; `assumed`: where the request has none.
    """
    data = as_request(data)
    request = checked(data, answers.Request, "request", EXPECTED)
    if request.assumptions is not None:
        assumed = checked(request.assumptions, Assumptions, "request", EXPECTED, at="assumptions")
    base = None if request.base is None else source_of(request.base, find)
    found = plan(source_of(request.model, find), assumed or Assumptions(), request, base)
    unknown = sorted(set(data) - set(request.__struct_fields__))
    found["plan"]["run"]["warnings"] += [f"{quoted(key)} in the request means nothing here" for key in unknown[:20]]
    return found


def as_request(data: Any) -> Any:
    """A graph that was sent without a request around it gets one."""
    return {"model": data} if isinstance(data, dict) and "components" in data and "model" not in data else data


def source_of(model: Any, find: Callable[[str], Source], name: str = "graph") -> Source:
    """A model of a request: a graph that was sent, called `name` in errors, or a name."""
    if isinstance(model, str):
        return find(model)
    return Source(Spec(name, "graph", name), parse(model, name))


def decode(data: bytes, source: str) -> dict[str, Any]:
    """A JSON object of a request. Raises UserError in one line for anything else."""

    def no_number(text: str) -> None:
        raise ValueError(f"{text} is no number of JSON")

    if len(data) > LARGEST_REQUEST:
        raise UserError(f"{source}: more than {LARGEST_REQUEST / 1e6:.0f} MB; no graph is as large")
    try:
        found = json.loads(data, parse_constant=no_number)
    except RecursionError:
        raise UserError(f"{source}: nested too deeply to be a graph") from None
    except ValueError as error:  # also bytes that are no text, and a number of more digits than Python reads
        raise UserError(f"{source}: not JSON ({str(error)[:200]})") from None
    if not isinstance(found, dict):
        raise UserError(f"{source}: expected an object, a graph or a request, got {quoted(found)}")
    return found


def blocked(answer: dict[str, Any]) -> bool:
    """Whether something stands against the model, for `--fail-on-block`."""
    run = answer["plan"]["run"]
    return not run["legal"] or bool(run["blockers"])


def identity(model: Model) -> dict[str, str]:
    """Name, source, and 8 hex digits of what is computed: types, settings, shapes, connections; names play no part."""
    numbers = {layer.id: at for at, layer in enumerate(model.layers)}
    content = [
        [layer.type, layer.settings, layer.output, [numbers[parent] for parent in layer.parents if parent in numbers]]
        for layer in model.layers
    ]
    text = json.dumps(content, sort_keys=True, default=str)
    return {
        "name": model.name,
        "source": model.source,
        "fingerprint": hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:8],
    }


def summary(model: Model, assumed: Assumptions) -> str:
    """One sentence."""
    runs = {True: "can run", False: "cannot run", None: "is not known to run"}[model.passes_forward]
    parameters = f"{'at least ' if model.unknown('parameters') else ''}{short(model.parameters)} parameters"
    if model.total_is("macs") == "not known":
        return f"{model.name} {runs}: {parameters}; its operations, memory and cost are not known."
    macs = bounded(model, "macs", f"{short(model.macs)} multiply-accumulates")
    cost = bounded(model, "cost", dollars(train_cost(model, assumed).dollars))
    return f"{model.name} {runs}: {parameters}, {macs} at {shapes(model.inputs)}, {cost} to train as assumed."


def asked(model: Model, length: int | None) -> dict[str, Any] | None:
    """What is asked of a language model; null for any other. length: of the sequence in the cache."""
    found = language(model)
    if found is None:
        return None
    length = length or found.length
    token = sum(one.layers * one.cached for one in found.caching)
    cache = {
        "numbers_per_token": token,
        "bytes_per_token": 2 * token,
        "length": length,
        "numbers": found.cache(length) if length else None,
        "bytes": 2 * found.cache(length) if length else None,
        "causal_is_assumed": found.assumed,
    }
    return {
        "active_parameters": found.active,
        "embedding_parameters": found.embedding,
        "non_embedding_parameters": found.parameters - found.embedding,
        "attention": [asdict(one) for one in found.attention],
        "cache": cache if found.caching else None,
    }


def warnings(model: Model) -> list[str]:
    """What is assumed of single layers or not known, equal ones together."""
    found: dict[str, list[str]] = {}
    if model.lacks:
        found[model.lacks] = []
    for words, times in model.decided.items():
        found[f"in the run without weights {words} ({times:,} times), where the way hangs on values"] = []
    if model.passes_forward is None:
        found[f"it is not known whether it can run: {model.forward.partition(': ')[2]}"] = []
    for layer in model.layers:
        for note in layer.notes:
            found.setdefault(note, []).append(layer.name)
    lines = [
        f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}: {note}" if names else note
        for note, names in found.items()
    ]
    more = len(lines) - MOST_WARNINGS
    return lines if more <= 0 else [*lines[:MOST_WARNINGS], f"and {more} more remarks, at the layers in layer_list"]


# a policy -------------------------------------------------------------------------------------------------------------


def check(model: Model, policy: answers.Policy, assumed: Assumptions) -> dict[str, Any]:
    """Each rule that is not kept. What cannot be checked is not kept."""
    rules = {key: value for key in policy.__struct_fields__ if (value := getattr(policy, key)) not in (None, [])}
    violations = [
        {"rule": rule, "limit": limit, "found": found, "message": message}
        for rule, limit, found, message in _violations(model, policy, assumed)
    ]
    return {"rules": rules, "kept": not violations, "violations": violations}


def _violations(model: Model, policy: answers.Policy, assumed: Assumptions) -> Iterator[tuple[str, Any, Any, str]]:
    need = memory(model, assumed).training
    cost = train_cost(model, assumed).dollars
    limits: list[tuple[str, str, float, str, Callable[[float], str]]] = [
        ("max_params", "parameters", model.parameters, model.total_is("parameters"), lambda n: f"{n:,.0f}"),
        ("max_memory_gb", "training memory", need / 1e9, model.total_is("memory"), lambda gb: gigabytes(gb * 1e9)),
        ("max_layers", "layers", len(model.body), "exact", lambda n: f"{n:,.0f}"),
        ("max_cost_usd", "training cost", cost, model.total_is("cost"), dollars),
    ]
    for rule, what, found, standing, words in limits:
        limit = getattr(policy, rule)
        if limit is None:
            continue
        if standing == "not known":
            yield rule, limit, None, f"{rule}: {what}: not known, so {words(limit)} is not kept"
        elif found > limit:
            least = "at least " if standing == "at least" else ""
            yield rule, limit, found, f"{rule}: {what}: {least}{words(found)}, more than {words(limit)}"
        elif standing == "at least":
            message = f"{rule}: {what}: not known (at least {words(found)}), so {words(limit)} is not kept"
            yield rule, limit, None, message
    wanted = [policy.must_fit] if isinstance(policy.must_fit, str) else policy.must_fit or []
    for fit in fits(model, assumed, dict(gpu(name) for name in wanted)):
        if not fit.fits:
            words = "it is not known whether it holds" if fit.fits is None else "does not hold"
            where = f"training at batch {assumed.batch:,}"
            yield "must_fit", fit.gpu, fit.fits, f"must_fit: {fit.gpu}: {words} {where}"
    types = {layer.type for layer in model.layers}
    for name in policy.forbid_types:
        layers = [layer.name for layer in model.layers if layer.type == name]
        if layers:
            message = f"forbid_types: {name}: {len(layers)} layers, the first is {layers[0]}"
            yield "forbid_types", name, len(layers), message
    for name in policy.require_types:
        if name not in types:
            yield "require_types", name, 0, f"require_types: {name}: no layer has this type"


# serving and a base ---------------------------------------------------------------------------------------------------


def served(
    model: Model, spec: answers.Deployment | None, assumed: Assumptions
) -> tuple[dict[str, Any] | None, list[str]]:
    """Memory of serving under `spec`, and what of it is left out."""
    if spec is None:
        return None, []
    serving = spec.serving or answers.Serving()
    quant, batch = spec.quant or "fp32", serving.batchSize or 1
    weights = model.parameters * BYTES[quant]
    size = 4 if quant == "fp32" else 2
    activations = batch * widest(model) * size
    text, tokens = language(model), (serving.promptTokens or 0) + (serving.genTokens or 0)
    cache = batch * size * text.cache(tokens) if text and text.caching else 0
    name, room = gpu(serving.gpu) if serving.gpu else (None, 0.0)
    holds = None
    if name and model.total_is("memory") != "not known":
        holds = weights + activations + cache + assumed.reserved_gb * 1e9 <= room * 1e9
        holds = None if holds and model.total_is("memory") != "exact" else holds
    remarks = []
    if spec.adapter not in (None, "", "none", "full", False):
        words = "memory and cost are of full training; training_bytes has LoRA and QLoRA"
        remarks.append(f"spec.adapter {str(spec.adapter)[:40]!r} is not planned: {words}")
    if tokens and not cache:
        remarks.append("serving counts no cache of keys and values: no layer is known to keep earlier tokens")
    elif tokens and text and text.assumed:
        remarks.append("serving counts a cache of keys and values, taking the attention layers to be causal")
    found = {"quant": quant, "bytes_per_parameter": BYTES[quant], "weights_bytes": weights, "cache_bytes": cache}
    found |= {"activations_bytes": activations, "batch": batch, "gpu": name, "fits": holds}
    return found, remarks


def diff(model: Model, base: Model, assumed: Assumptions) -> dict[str, Any]:
    """From the base to the model."""
    compared = compare(base, model, assumed)
    unknown = any(one.total_is("macs") != "exact" for one in (model, base)) or not compared.same_input
    changes = list(_changes(compared))
    more = len(changes) - MOST_CHANGES
    return {
        "base": identity(base),
        "parameters": model.parameters - base.parameters,
        "macs": None if unknown else model.macs - base.macs,
        "layers": len(model.body) - len(base.body),
        "train_usd": train_cost(model, assumed).dollars - train_cost(base, assumed).dollars,
        "rows": {str(status): count for status, count in compared.counts.items()},
        "changes": changes if more <= 0 else [*changes[: MOST_CHANGES - 1], f"and {more + 1} more"],
    }


def _changes(compared: Comparison) -> Iterator[str]:
    for row in compared.rows:
        layer = row.right or row.left
        if row.status == SAME or layer is None:
            continue
        sign = {ADDED: "+", REMOVED: "-"}.get(row.status, "~")
        words = f"{sign} {layer.name} ({label(layer.type)})"
        if row.left and row.right:
            words += f": {', '.join(old_to_new(row, field) for field in row.changed)}"
        yield words


def change(found: dict[str, Any]) -> str:
    """A difference in one sentence."""
    rows = ", ".join(f"{count} {status}" for status, count in found["rows"].items())
    return (
        f"{found['parameters']:+,} parameters and {found['layers']:+,} layers against {found['base']['name']}: {rows}."
    )


# the card -------------------------------------------------------------------------------------------------------------


def card(
    model: Model,
    assumed: Assumptions,
    verdict: dict[str, Any],
    banner: str | None,
    gpus: Mapping[str, float] = GPUS,
) -> tuple[str, list[list[str]], dict[str, list[str]]]:
    """Title, rows and lists of the card, in the order in which they are asked for."""
    run = verdict["run"]
    cells = needs(model, assumed, fits(model, assumed, gpus)) | more(model)
    rows = [[key, value] for key, value in cells.items()]
    if verdict["serving"]:
        one = verdict["serving"]
        size = gigabytes(one["weights_bytes"] + one["activations_bytes"] + one["cache_bytes"])
        fit = {True: "fits", False: "does not fit", None: "not known whether it fits"}[one["fits"]]
        where = f", {one['gpu']}: {fit}" if one["gpu"] else ""
        rows.append(["Serving", f"{size} at batch {one['batch']:,} in {one['quant']}{where}"])
    lists = {"Blocked": run["blockers"]}
    if verdict["policy"] and verdict["policy"]["kept"]:
        lists["Policy"] = [f"kept: {', '.join(verdict['policy']['rules']) or 'no rule was given'}"]
    if verdict["diff"]:
        lists["Change"] = [verdict["change"], *verdict["diff"]["changes"]]
    known = [line for line in run["warnings"] if line != banner]
    return verdict["summary"], rows, lists | {"To know": known}


def as_text(title: str, rows: list[list[str]], lists: dict[str, list[str]], banner: str | None) -> str:
    """`banner` stands first: which part of its model is answered for."""
    lines = [*([banner, ""] if banner else []), title, "", *aligned(rows[0], rows[1:], left=(0, 1))]
    for name, some in lists.items():
        lines += ["", name, *bullets(some)] if some else []
    return "\n".join(lines) + "\n"


def as_markdown(title: str, rows: list[list[str]], lists: dict[str, list[str]], banner: str | None) -> str:
    first = [f"> {escape(banner)}", ""] if banner else []
    lines = [*first, f"**{escape(title)}**", "", "| | |", "|---|---|"]
    lines += [f"| {key} | {escape(value)} |" for key, value in rows]
    for name, some in lists.items():
        lines += ["", f"### {name}", "", *(f"- {escape(line)}" for line in some)] if some else []
    return "\n".join(lines) + "\n"
