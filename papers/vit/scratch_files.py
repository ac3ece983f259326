"""What a training run leaves to read: its curve and the note of the machine, checked. No torch, so reading is quick.

`<run>.json` is the curve: a function of the configuration alone, so an interrupted and an uninterrupted run write the
same bytes on the CPU. `<run>.machine.json` says when, how long and on what.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from papers.vit.scratch_recipe import VARIANTS, Recipe, Run
from shared import paths
from shared.errors import UserError
from shared.schema import read_json

SCHEMA = 1
RUN_FILE = re.compile(r"(ViT|ResNet)-\d+-seed\d+(-[\w-]+)?\.json")
TRAIN_ANEW = "delete it to train the run anew"


def curve_file(folder: Path, run: Run) -> Path:
    return folder / f"{run.name}.json"


def machine_file(folder: Path, run: Run) -> Path:
    return folder / f"{run.name}.machine.json"


def read_curve(path: Path) -> dict[str, Any]:
    """A run's curve, finished or not. UserError that names the file and what is wrong with it."""
    content = read_json(path, "curve", TRAIN_ANEW)
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise UserError(f"{path}: curve of schema {schema!r}, this version reads {SCHEMA}; {TRAIN_ANEW}")
    try:
        fault = _fault(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        fault = f"{type(error).__name__}: {error}"
    if fault:
        raise UserError(f"{path}: damaged curve ({fault}); {TRAIN_ANEW}")
    return content


def _fault(content: dict[str, Any]) -> str | None:
    """What cannot be in words; KeyError and the like for what is not there or of another kind."""
    who, losses = content["identity"], content["losses"]
    recipe = Recipe(**{key: who[key] for key in vars(Recipe())})
    if not all(isinstance(value, int | float) for value in vars(recipe).values()) or recipe.steps < 1:
        return "a recipe that is none"
    if who["variant"] not in VARIANTS or not isinstance(who["model"], str):
        return f"model {who['model']!r}, variant {who['variant']!r}"
    if not all(type(who[key]) is int for key in ("size", "seed")) or not isinstance(who["validation_sha256"], str):
        return "size, seed or validation_sha256 is of another kind"
    images = content["validation_images"]
    if images < 1 or content["held_out_images"] < 1:
        return "no images"
    steps = [v["step"] for v in content["validations"]]
    if not steps or steps != sorted(set(steps)) or not 0 < steps[0] <= steps[-1] <= len(losses):
        return "validations and losses do not fit"
    if not all(0 <= v["correct"] <= images for v in content["validations"]) or not all(x == x + 0 for x in losses):
        return "a number that is none"
    if content["complete"] and not steps[-1] == len(losses) == recipe.steps:
        return "called complete, but it ends before its last step"
    best = content["best"]
    if best["step"] not in steps or (content["complete"] and type(best["held_out_correct"]) is not int):
        return "its best is not among its validations"
    return None


def read_starts(path: Path) -> list[dict[str, Any]]:
    """Every start of a run, from its machine note; none if there is no note. UserError for a damaged one."""
    if not path.exists():
        return []
    way_out = "delete it: only the times of the run are lost"
    content = read_json(path, "note of the machine", way_out)
    wanted = {"seconds": int | float, "evaluation_seconds": int | float, "device": str, "threads": int}
    try:
        starts = content["starts"]
        whole = all(isinstance(start[key], kind) for start in starts for key, kind in wanted.items())
    except (KeyError, TypeError):
        whole = False
    if not whole:
        raise UserError(f"{path}: damaged note of the machine; {way_out}")
    return starts


def require_same(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise UserError naming the first key in which a run on disk differs from the one asked for."""
    for key in sorted(found.keys() | wanted.keys()):
        if found.get(key) != wanted.get(key):
            raise UserError(
                f"{path}: belongs to another run ({key} is {found.get(key)!r}, asked for {wanted.get(key)!r}); "
                "choose another --results folder or delete the file"
            )


def write_json(path: Path, content: dict[str, Any]) -> None:
    """One line a key: thousands of losses stay one line of a diff."""
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    paths.atomic_write(path, f"{{\n{lines}\n}}\n")
