"""Every model type of transformers and every name of timm: does the comparison count what their libraries build?

    python benchmarks/architectures.py --library transformers        each type's default configuration: an hour or two
    python benchmarks/architectures.py --library timm                every name
    python benchmarks/architectures.py --library timm --part 2/4     a quarter of them
    python benchmarks/architectures.py --library transformers --only bert,llava
    python benchmarks/architectures.py --report                      architectures.json and architectures.md

For each model, in a process of its own with a limit of time and memory:

    parameters     the sum over our rows, against the sum over the parameters of the module that the library builds
    MACs           ours (a dry run on the meta device), against torch's FlopCounterMode on a forward pass that is not
                   ours: with fake tensors, or with real weights where those are few; the experts there one by one
    reason         why an operation count could not be given, or why the independent one could not

Results are kept a line a model in the results folder, so that a run that stops goes on where it was.
What this cannot show: that a default configuration is the one of a published checkpoint.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import harness

from shared import cli
from shared.paths import atomic_write

KEPT = Path(os.environ.get("PAPERS_RESULTS", harness.ROOT / "results")) / "architectures"
REAL = 400_000_000  # parameters up to which a real forward pass is run where fake tensors fail
EQUAL = 0.01


@dataclass
class Config:
    library: Literal["transformers", "timm"] = "transformers"
    """whose models"""
    part: str = "1/1"
    """which part of the names: 2/4 is the second quarter"""
    backwards: bool = False
    """from the last name on, beside a process that starts with the first"""
    only: str = ""
    """names, with commas between them"""
    seconds: int = 150
    """longest time of one model"""
    memory_mb: int = 4096
    """most memory of one model"""
    count_every: int = 1
    """every how many names the operations are counted too, by us and independently; the others have parameters alone"""
    again: bool = False
    """also those that are done already"""
    failed: bool = False
    """also those that gave no count of operations, or a wrong one"""
    report: bool = False
    """write architectures.json and architectures.md from what is done"""


def names(library: str) -> list[str]:
    if library == "timm":
        import timm

        return timm.list_models()
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return sorted(CONFIG_MAPPING)


def factory(library: str, name: str) -> Any:
    """What builds the module anew; raises what the library raises."""
    if library == "timm":
        import timm

        return lambda: timm.create_model(name, pretrained=False)
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[name]()
    kinds = [transformers.AutoModel]
    kinds += [getattr(transformers, one) for one in sorted(dir(transformers)) if one.startswith("AutoModelFor")]
    for kind in kinds:
        mapping = getattr(kind, "_model_mapping", None)
        if mapping is not None and type(config) in mapping:
            found = mapping[type(config)]
            found = found[0] if isinstance(found, tuple) else found
            return lambda: found(CONFIG_MAPPING[name]())
    raise LookupError("no AutoModel class has this type: its configuration is a part of others")


def work(library: str, name: str, count: bool) -> dict[str, Any]:
    """One model: our counts, then the library's; count: the operations too."""
    import torch

    from papers.comparisons import building
    from papers.comparisons.samples import Sizes, samples
    from shared.graph.trace import outline

    warnings.simplefilter("ignore")
    start = time.process_time()
    try:
        make = factory(library, name)
        with torch.device("meta"):
            first = make()
    except Exception as error:
        return {"built": False, "reason": f"{type(error).__name__}: {building.first_line(error)}"}
    real = sum(parameter.numel() for parameter in first.parameters())
    if not count:
        rows = outline(first, name, name, "not asked for")
        return {"built": True, "ran": False, "class": type(first).__name__, "parameters": rows.parameters, "real": real}
    del first
    with torch.device("meta"):
        if library == "timm":
            built = building.timm(name, sizes=Sizes())
        else:
            module = make()
            built = building.Built(module, samples(module, Sizes()))
    model = building.run(built, name, name)
    found = {
        "built": True,
        "ran": True,
        "class": built.name,
        "parameters": model.parameters,
        "real": real,
        "macs": None if model.not_run else model.macs,
        "macs_unknown": len(model.unknown("macs")),
        "rows": len(model.layers),
        "inputs": {layer.name: list(layer.output or ()) for layer in model.inputs},
        "reason": model.not_run,
        "decided": model.decided,
        "kept": None if model.not_run else model.total("kept"),
        "seconds": round(time.process_time() - start, 2),
    }
    if built.used is not None:
        found |= independent(make, built.used, real)
    return found


def independent(make: Any, inputs: dict[str, Any], parameters: int) -> dict[str, Any]:
    """torch's own counter on a forward pass with fake tensors, or with real ones."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    reasons = []
    for way in ("fake", "real"):
        if way == "real" and parameters > REAL:
            reasons.append(f"real: {parameters:,} parameters are too many")
            continue
        try:
            if way == "fake":
                with FakeTensorMode(allow_non_fake_inputs=True):
                    return {"independent": counted(make, inputs), "way": way}
            torch.manual_seed(0)
            return {"independent": counted(make, inputs), "way": way}
        except Exception as error:
            reasons.append(f"{way}: {(str(error).strip().splitlines() or [type(error).__name__])[0][:120]}")
    return {"independent": None, "way": "; ".join(reasons)}


def counted(make: Any, inputs: dict[str, Any]) -> int:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    module = make().eval().requires_grad_(False)
    with suppress(Exception):  # it has no experts, or only one way to run them
        module.set_experts_implementation("batched_mm")
    given = {
        key: torch.rand(value.shape, dtype=value.dtype)
        if isinstance(value, torch.Tensor) and value.is_meta
        else value.clone()
        if isinstance(value, torch.Tensor)
        else value
        for key, value in inputs.items()
    }
    # torch's counter has no formula for the fused attention of a processor
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        module(**given)
    return counter.get_total_flops() // 2


def apart(config: Config, name: str, count: bool) -> dict[str, Any]:
    """`work` in a process of its own, forked so that the libraries are imported once."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_DATA, (config.memory_mb << 20,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(config.seconds)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            found = work(config.library, name, count)
        except BaseException as error:
            found = {"built": None, "reason": f"{type(error).__name__}: {str(error)[:200]}"}
        with os.fdopen(writing, "w") as file:
            json.dump(found, file)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    _, status = os.waitpid(child, 0)
    if text:
        return json.loads(text)
    ended = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return {"built": None, "reason": f"stopped after {config.seconds} s" if ended == "SIGALRM" else f"ended: {ended}"}


def done(library: str) -> dict[str, dict[str, Any]]:
    """The last result of each name; one with operations goes before one without."""
    found = {}
    for path in sorted(KEPT.glob(f"{library}*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            one["reason"] = re.sub(r"/\S*site-packages/", "", str(one.get("reason") or ""))
            name = one.pop("name")
            if not found.get(name, {}).get("ran") or one.get("ran"):
                found[name] = one
    return found


def right(one: dict[str, Any]) -> bool:
    """Whether the operations agree with the independent count."""
    macs, other = one.get("macs"), one.get("independent")
    return macs is not None and other is not None and abs(macs - other) <= EQUAL * max(other, 1)


def main(config: Config) -> None:
    if config.report:
        report()
        return
    import torch

    torch.set_num_threads(1)
    part, parts = map(int, config.part.split("/"))
    everything = names(config.library)
    numbers = {name: at for at, name in enumerate(everything)}
    chosen = config.only.split(",") if config.only else everything[part - 1 :: parts]
    KEPT.mkdir(parents=True, exist_ok=True)
    if config.library == "transformers":
        import transformers  # once, for all children

        _ = transformers.AutoModel
    __import__("papers.comparisons.building")
    for name in reversed(chosen) if config.backwards else chosen:
        old = done(config.library).get(name)  # another process may have done it
        count = bool(config.only) or numbers[name] % config.count_every == 0
        again = config.again or (config.failed and old and old.get("built") is not False and not right(old))
        if old and not again and (old.get("ran") or old.get("built") is False or not count):
            continue
        found = apart(config, name, count)
        with (KEPT / f"{config.library}-{part}-of-{parts}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"name": name, **found}) + "\n")
        sign = "=" if right(found) else "?"
        print(name, found.get("parameters"), found.get("real"), found.get("macs"), sign, found.get("independent"),
              found.get("reason") or found.get("way"), flush=True)  # fmt: skip


PART = "LookupError: no AutoModel class has this type"


def summary(library: str, found: dict[str, dict[str, Any]]) -> dict[str, int]:
    """The sums that a reader asks for; a name that was not tried yet is in none but `left`."""
    models = {name: one for name, one in found.items() if not str(one.get("reason")).startswith(PART)}
    built = [one for one in models.values() if one.get("built")]
    ran = [one for one in built if one.get("ran")]
    counted = [one for one in ran if one.get("macs") is not None]
    other = [one for one in counted if one.get("independent") is not None]
    return {
        "names": len(names(library)),
        "left": len(set(names(library)) - set(found)),
        "parts of other models": len(found) - len(models),
        "not built by the library": sum(one.get("built") is False for one in models.values()),
        "stopped by a limit or an error of ours": sum(one.get("built") is None for one in models.values()),
        "built": len(built),
        "parameters equal": sum(one["parameters"] == one["real"] for one in built),
        "run": len(ran),
        "operations counted": len(counted),
        "counted independently too": len(other),
        "within 1 %": sum(right(one) for one in other),
    }


def report() -> None:
    """architectures.json: a line a model; architectures.md: the sums, and every refusal with its reason."""
    import timm
    import torch
    import transformers

    libraries = {library: done(library) for library in ("transformers", "timm")}
    sums = {library: summary(library, found) for library, found in libraries.items()}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "timm": timm.__version__}
    lines = []
    for library, found in libraries.items():
        rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
        lines.append(f" {json.dumps(library)}: {{\n{rows}\n }}")
    head = json.dumps({"versions": versions, "summary": sums})[:-1]
    atomic_write(harness.HERE / "architectures.json", head + ",\n" + ",\n".join(lines) + "\n}\n")
    text = ["# Every architecture", "", (__doc__ or "").partition("\n\n")[2].strip("\n"), ""]
    text += ["| | " + " | ".join(f"{name} {versions[name]}" for name in libraries) + " |", "|---|---:|---:|"]
    text += [f"| {key} | " + " | ".join(f"{one[key]:,}" for one in sums.values()) + " |" for key in sums["timm"]]
    for title, chosen in (
        ("Not built by the library from its default configuration", lambda one: one.get("built") is False),
        ("Stopped by a limit of this script", lambda one: one.get("built") is None),
        ("Parameters that differ", lambda one: one.get("built") and one["parameters"] != one["real"]),
        ("Built, but not run", lambda one: one.get("built") and one.get("ran") and one.get("macs") is None),
        ("Operations that differ by more than 1 %", lambda one: one.get("independent") is not None and not right(one)),
        ("No independent count", lambda one: one.get("macs") is not None and one.get("independent") is None),
    ):
        some = [(library, name, one) for library, all in libraries.items() for name, one in all.items() if chosen(one)]
        some = [one for one in some if not str(one[2].get("reason")).startswith(PART)]
        text += ["", f"## {title}", ""] + [
            f"- {library} `{name}`: {why(one)}" for library, name, one in sorted(some, key=str)
        ]
        text += ["none"] * (not some)
    atomic_write(harness.HERE / "architectures.md", "\n".join(text) + "\n")


def why(one: dict[str, Any]) -> str:
    """A result in one line."""
    if one.get("reason"):
        return str(one["reason"])
    if one.get("independent") is not None:
        return f"{one['macs']:,} ours, {one['independent']:,} by torch's counter ({one['way']})"
    return str(one.get("way", ""))


if __name__ == "__main__":
    cli.run(main, Config)
