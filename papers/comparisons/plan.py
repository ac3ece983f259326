"""One model's plan: can it run, what does it need, does it keep a policy, and how does it differ from a base.

    answer = plan(source, assumed, Request(...))    a dictionary as `answers.Plan` describes it

`compare.py plan` prints it and `POST /api/v1/plan` sends it, byte for byte the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from math import prod
from typing import Any

from papers.comparisons import answers
from papers.comparisons.comparison import Comparison, compare, layer_json, model_json
from papers.comparisons.models import Source
from papers.comparisons.needs import needs, shapes
from papers.comparisons.sidebyside import check_length
from papers.comparisons.text import bullets, escape
from papers.comparisons.whole import part
from shared.errors import UserError
from shared.graph.align import ADDED, REMOVED, SAME
from shared.graph.cost import GPUS, Assumptions, dollars, fits, gigabytes, memory, short, train_cost
from shared.graph.kinds import label
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
    check_length(request.length, [one for one in (source, base) if one])
    model = source.measure(length=request.length)
    known = part(source.graph, model)
    other = base and base.measure(length=request.length if base.takes_tokens else None)
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
        "cost": {"train_usd": train_cost(model, assumed).dollars, "lower_bound": bool(model.unknown("macs"))},
        "serving": serving,
        "diff": difference,
        "policy": policy,
        "history": [],
        "change": difference and change(difference),
    }
    banner = known.banner if known else None
    verdict["run"]["warnings"][:0] = [banner] if banner else []
    title, rows, lists = card(model, assumed, verdict, banner)
    return model_json(model, assumed) | {
        "part_of": banner,
        "assumptions": asdict(assumed),
        "layer_list": [layer_json(layer) | {"kept_numbers": layer.kept} for layer in model.layers],
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
    some = ["at least " if model.unknown(count) else "" for count in ("parameters", "macs")]
    counts = f"{some[0]}{short(model.parameters)} parameters, {some[1]}{short(model.macs)} multiply-accumulates"
    runs = {True: "can run", False: "cannot run", None: "is not known to run"}[model.passes_forward]
    cost = f"{some[1]}{dollars(train_cost(model, assumed).dollars)}"
    return f"{model.name} {runs}: {counts} at {shapes(model.inputs)}, {cost} to train as assumed."


def warnings(model: Model) -> list[str]:
    """What is assumed of single layers or not known, equal ones together."""
    found: dict[str, list[str]] = {}
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
    unknown = {count: bool(model.unknown(count)) for count in ("parameters", "macs")}
    limits = [
        ("max_params", "parameters", model.parameters, unknown["parameters"], lambda n: f"{n:,.0f}"),
        ("max_memory_gb", "training memory", need / 1e9, not model.memory_known, lambda gb: gigabytes(gb * 1e9)),
        ("max_layers", "layers", len(model.body), False, lambda n: f"{n:,.0f}"),
        ("max_cost_usd", "training cost", cost, unknown["macs"] or unknown["parameters"], dollars),
    ]
    for rule, what, found, partial, words in limits:
        limit = getattr(policy, rule)
        if limit is None:
            continue
        if found > limit:
            least = "at least " if partial else ""
            yield rule, limit, found, f"{rule}: {what}: {least}{words(found)}, more than {words(limit)}"
        elif partial:
            message = f"{rule}: {what}: not known (at least {words(found)}), so {words(limit)} is not kept"
            yield rule, limit, None, message
    wanted = [policy.must_fit] if isinstance(policy.must_fit, str) else policy.must_fit or []
    for fit in [one for name in wanted for one in fits(model, assumed) if one.gpu == gpu_name(name)]:
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


def gpu_name(text: str) -> str:
    """The GPU that `text` means: its name, or the beginning of one (`T4`, `a100`). Raises UserError with all names."""

    def plain(name: str) -> str:
        return "".join(c for c in name.lower() if c.isalnum())

    found = [name for name in GPUS if plain(text) and plain(name).startswith(plain(text))]
    if len(found) != 1:
        raise UserError(f"GPU {text[:60]!r}: expected one of {', '.join(GPUS)}")
    return found[0]


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
    outputs = [prod(layer.output or (0,)) for layer in model.layers]
    widest = max((sum(outputs[at : at + 2]) for at in range(len(outputs))), default=0)
    activations = batch * widest * (4 if quant == "fp32" else 2)
    gpu = gpu_name(serving.gpu) if serving.gpu else None
    holds = None
    if gpu:
        holds = weights + activations + assumed.reserved_gb * 1e9 <= GPUS[gpu] * 1e9
        holds = None if holds and not model.memory_known else holds
    remarks = []
    if spec.adapter not in (None, "", "none", "full", False):
        remarks.append(f"spec.adapter {str(spec.adapter)[:40]!r} is not planned: memory and cost are of full training")
    if serving.promptTokens or serving.genTokens:
        remarks.append("serving counts weights and activations at the declared input, no cache of keys and values")
    found = {"quant": quant, "bytes_per_parameter": BYTES[quant], "weights_bytes": weights}
    found |= {"activations_bytes": activations, "batch": batch, "gpu": gpu, "fits": holds}
    return found, remarks


def diff(model: Model, base: Model, assumed: Assumptions) -> dict[str, Any]:
    """From the base to the model."""
    compared = compare(base, model, assumed)
    unknown = any(one.unknown("macs") for one in (model, base)) or not compared.same_input
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
            words += f": {', '.join(_old_to_new(row, field) for field in row.changed)}"
        yield words


def _old_to_new(row: Any, field: str) -> str:
    if field == "type":
        return f"type {row.left.type} -> {row.right.type}"
    if field == "shape":
        return f"shape {shapes([row.left])} -> {shapes([row.right])}"
    old, new = (json.dumps(layer.settings.get(field), ensure_ascii=False)[:40] for layer in (row.left, row.right))
    return f"{field} {old} -> {new}"


def change(found: dict[str, Any]) -> str:
    """A difference in one sentence."""
    rows = ", ".join(f"{count} {status}" for status, count in found["rows"].items())
    return (
        f"{found['parameters']:+,} parameters and {found['layers']:+,} layers against {found['base']['name']}: {rows}."
    )


# the card -------------------------------------------------------------------------------------------------------------


def card(
    model: Model, assumed: Assumptions, verdict: dict[str, Any], banner: str | None
) -> tuple[str, list[list[str]], dict[str, list[str]]]:
    """Title, rows and lists of the card, in the order in which they are asked for."""
    run = verdict["run"]
    rows = [[key, value] for key, value in needs(model, assumed, fits(model, assumed)).items()]
    if verdict["serving"]:
        one = verdict["serving"]
        size = gigabytes(one["weights_bytes"] + one["activations_bytes"])
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
