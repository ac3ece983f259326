"""ImageNet-1k's classes by index, and what a model's own label list says about its columns."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from shared.errors import UserError

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

    UserError with the reason for a list of another length, with labels that say nothing (LABEL_7), with an unknown
    class, or in another order with a name that two classes share.
    """
    wnids, names = imagenet()
    if len(labels) != len(wnids):
        why = "expected ImageNet-1k's 1,000 (a 21k head cannot be compared)"
        raise UserError(f"{spec}: has {len(labels):,} classes; {why}")
    by_wnid = dict(zip(wnids, names, strict=True))
    words = [label.split()[0].rstrip(",:") if label.split() else "" for label in labels]
    if sum(word in by_wnid for word in words) > len(wnids) // 2:
        return _checked(spec, labels, words, by_wnid)
    if all(_synonyms(label) & _synonyms(name) for label, name in zip(labels, names, strict=True)):
        return wnids, names
    whole, owners = defaultdict(set), defaultdict(set)  # the wnids of a whole name, of a synonym
    for wnid, name in by_wnid.items():
        whole[name.lower()].add(wnid)
        for synonym in _synonyms(name):
            owners[synonym].add(wnid)
    matched = []
    for i, label in enumerate(labels):
        # the whole name first: "harp" is a class, and a synonym of "harmonica" too
        shared = (owners.get(synonym, set()) for synonym in _synonyms(label) or {""})
        fits = whole.get(label.lower()) or set.intersection(*shared)
        if len(fits) != 1:
            which = (
                f"fits {len(fits)} ImageNet-1k classes ({', '.join(sorted(fits))})"
                if fits
                else "is no ImageNet-1k class"
            )
            raise UserError(f"{spec}: label {i}, {label!r}, {which}; write wnids into config.json's id2label to use it")
        matched.append(next(iter(fits)))
    return _checked(spec, labels, matched, by_wnid)


def _checked(spec: str, labels: Sequence[str], wnids: Sequence[str], by_wnid: dict[str, str]) -> Labels:
    for label, wnid in zip(labels, wnids, strict=True):
        if wnid not in by_wnid:
            raise UserError(f"{spec}: label {label!r} is no ImageNet-1k class; expected the 1,000 wnids or names")
    wnid, count = Counter(wnids).most_common(1)[0]
    if count > 1:
        raise UserError(f"{spec}: {count} of its labels are {wnid} ({by_wnid[wnid]}); expected every class once")
    return tuple(wnids), tuple(by_wnid[wnid] for wnid in wnids)


def _synonyms(name: str) -> set[str]:
    return {part.strip().lower() for part in name.split(",") if part.strip()}
