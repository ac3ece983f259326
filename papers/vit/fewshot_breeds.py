"""Which Pets breeds are ImageNet-1k classes under the same name: read from the synonyms that timm ships."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

from shared.errors import UserError

# ImageNet says "Persian cat" where Pets says "Persian"
KINDS = ("", " cat", " dog")


@functools.cache
def imagenet_names() -> frozenset[str]:
    """Every synonym of the 1,000 classes, lower case. Reads timm's text files; importing timm would take seconds."""
    found = importlib.util.find_spec("timm")
    folder = Path(found.submodule_search_locations[0]) / "data" / "_info" if found else Path("timm")
    try:
        classes = set((folder / "imagenet_synsets.txt").read_text(encoding="utf-8").split())
        lines = (folder / "imagenet_synset_to_lemma.txt").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"{error.filename}: timm's ImageNet class names are missing; reinstall timm") from None
    synonyms = dict(line.split("\t") for line in lines)
    return frozenset(name.strip().casefold() for wnid in classes for name in synonyms[wnid].split(","))


def same_name(breeds: list[str]) -> list[str]:
    """The breeds (in normal form) that are a synonym of an ImageNet-1k class, in their order."""
    return [breed for breed in breeds if any(breed + kind in imagenet_names() for kind in KINDS)]


def longer_name(breeds: list[str]) -> dict[str, str]:
    """Breeds without a class of the same name that stand inside one's name but for hyphens and blanks."""
    letters = {"".join(filter(str.isalpha, name)): name for name in sorted(imagenet_names())}
    rest = [breed for breed in breeds if breed not in same_name(breeds)]
    found = {}
    for breed in rest:
        short = "".join(filter(str.isalpha, breed))
        longer = [name for key, name in letters.items() if short in key]
        if longer:
            found[breed] = longer[0]
    return found
