"""ImageNet-1k's classes by index, and what a model's own label list says about its columns."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from shared.errors import UserError

WAY_OUT = "write wnids into config.json's id2label to use it"
Labels = tuple[tuple[str, ...], tuple[str, ...]]  # (wnids, names), one a column


@cache
def imagenet() -> Labels:
    """(wnids, names) of the 1,000 classes in the usual order (by wnid), from the lists that timm ships.

    A name holds all synonyms ("tench, Tinca tinca"). Two names occur twice (crane) or share a synonym (maillot), so a
    class is identified by its wnid.
    """
    # as files: importing timm takes longer than a warm run may
    folder = Path(find_spec("timm").origin).parent / "data" / "_info"
    wnids = (folder / "imagenet_synsets.txt").read_text(encoding="utf-8").split()
    lines = (folder / "imagenet_synset_to_lemma.txt").read_text(encoding="utf-8").splitlines()
    names = dict(line.split("\t", 1) for line in lines)
    return tuple(wnids), tuple(names[wnid] for wnid in wnids)


def match(spec: str, labels: Sequence[str]) -> Labels:
    """(wnid, name) of each output of a model whose label list is `labels`: wnids or names, in any order.

    A whole name decides ("missile" is a class, and a synonym of "projectile, missile"); a synonym only where one class
    has it. The usual order is taken where every label can stand in its place, and no two labels that differ could
    change places. UserError with the reason for labels that say nothing (LABEL_7), for an unknown class, and in
    another order for a name that two classes share.

    A list that is not ImageNet-1k's (a head of one's own, ImageNet-21k's) comes back as names without wnids.
    """
    wnids, names = imagenet()
    if len(labels) != len(wnids):
        return (), tuple(labels)
    by_wnid = dict(zip(wnids, names, strict=True))
    words = [label.split()[0].rstrip(",:") if label.split() else "" for label in labels]
    if sum(word in by_wnid for word in words) > len(wnids) // 2:
        return _checked(spec, labels, words, by_wnid)
    fits = [_fitting(label) for label in labels]
    if all(i in mine for i, mine in enumerate(fits)):
        for i, mine in enumerate(fits):
            for j in mine - {i}:
                if i in fits[j] and labels[i].lower() != labels[j].lower():
                    pair = f"labels {i} and {j}, {labels[i]!r} and {labels[j]!r}, each fit both classes"
                    raise UserError(f"{spec}: {pair}; {WAY_OUT}")
        return wnids, names
    for i, mine in enumerate(fits):
        if len(mine) != 1:
            which = "is no ImageNet-1k class"
            if mine:
                which = f"fits {len(mine)} ImageNet-1k classes ({', '.join(wnids[j] for j in sorted(mine))})"
            raise UserError(f"{spec}: label {i}, {labels[i]!r}, {which}; {WAY_OUT}")
    return _checked(spec, labels, [wnids[next(iter(mine))] for mine in fits], by_wnid)


def _fitting(label: str) -> set[int]:
    """The classes, by their place in the usual order, that a label can mean; in its own letters ("Cardigan") first."""
    for fold in (str, str.lower):
        whole, first, synonym = _index(fold)
        text = fold(label.strip())
        if text in whole:
            # "maillot" is a class, and what remains of "maillot, tank suit" where a list keeps the first name only
            return whole[text] | first.get(text, set())
        if text in first:
            return first[text]
        fits = set.intersection(*(synonym.get(part, set()) for part in _parts(text) or [""]))
        if fits:
            return fits
    return set()


@cache
def _index(fold: Callable[[str], str]) -> tuple[dict[str, set[int]], ...]:
    """The classes of a whole name, of a first name, of a synonym."""
    whole, first, synonym = defaultdict(set), defaultdict(set), defaultdict(set)
    for place, name in enumerate(map(fold, imagenet()[1])):
        parts = _parts(name)
        whole[name].add(place)
        first[parts[0]].add(place)
        for part in parts:
            synonym[part].add(place)
    return dict(whole), dict(first), dict(synonym)


def places(name: str) -> set[int]:
    """The ImageNet-1k classes, by their place in the usual order, that a class of a data set can mean by its name.

    Blanks may be written as underscores ("English_springer").
    """
    return _fitting(name) or _fitting(" ".join(name.replace("_", " ").split()))


def _checked(spec: str, labels: Sequence[str], wnids: Sequence[str], by_wnid: dict[str, str]) -> Labels:
    for label, wnid in zip(labels, wnids, strict=True):
        if wnid not in by_wnid:
            raise UserError(f"{spec}: label {label!r} is no ImageNet-1k class; expected the 1,000 wnids or names")
    wnid, count = Counter(wnids).most_common(1)[0]
    if count > 1:
        raise UserError(f"{spec}: {count} of its labels are {wnid} ({by_wnid[wnid]}); expected every class once")
    return tuple(wnids), tuple(by_wnid[wnid] for wnid in wnids)


def _parts(name: str) -> list[str]:
    return [part.strip() for part in name.split(",") if part.strip()]
