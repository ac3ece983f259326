"""The paper's statements in words (`papers/vit/claims.toml`), and what became of each: a verdict in words.

found = {"4.4-c": Finding(in_words({"ImageNet": True, "Pets": False}), "ImageNet +0.96, Pets 0.00")}
tell(record, "part5-compute", found)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from shared.paths import ROOT
from shared.published import RESTORE
from shared.record import Record
from shared.schema import read_toml

HOLDS, NOT_HERE = "holds", "not measurable here"
FILE = ROOT / "papers" / "vit" / "claims.toml"


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """id: the section and a letter. says: in our words. measure: how it is tested, or why it cannot be.
    judged_by: the experiment that does; "" for none."""

    id: str
    says: str
    measure: str
    judged_by: str

    @property
    def where(self) -> str:
        return self.id.rpartition("-")[0]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    claims: list[Claim]


@dataclass(frozen=True)
class Finding:
    """verdict: as `in_words` says it. numbers: what it rests on, in a line."""

    verdict: str
    numbers: str


def read_claims() -> dict[str, Claim]:
    """All claims by id, in the paper's order."""
    return {claim.id: claim for claim in read_toml(FILE, "file of claims", RESTORE, _File).claims}


def in_words(parts: Mapping[str, bool], place: str = "on the printed table") -> str:
    """`holds`; `holds without A, B` where most parts bear it out; else `does not hold <place>`, and what does."""
    broken = [name for name, holds in parts.items() if not holds]
    kept = [name for name, holds in parts.items() if holds]
    if not broken:
        return HOLDS
    if len(kept) > len(broken):
        return f"{HOLDS} without {', '.join(broken)}"
    return f"does not hold {place}" + (f", except for {', '.join(kept)}" if kept else "")


def tell(record: Record, experiment: str, found: Mapping[str, Finding]) -> None:
    """A table of the claims that `experiment` judges and of those that nothing here can; keeps them in the results.

    ValueError where `found` and the file do not name the same claims: one of the two was forgotten.
    """
    claims = read_claims()
    ours = {id for id, claim in claims.items() if claim.judged_by == experiment}
    if ours != set(found):
        raise ValueError(f"claims of {experiment} and findings differ: {sorted(ours ^ set(found))}")
    here = [(c, found[c.id]) for c in claims.values() if c.id in found]
    nowhere = [(c, Finding(NOT_HERE, "")) for c in claims.values() if not c.judged_by]
    rows = [[c.where, c.says, finding.verdict, finding.numbers, c.measure] for c, finding in here + nowhere]
    lines = []
    for where, says, verdict, numbers, measure in rows:
        lines += [f"  {where}: {says}", f"    {verdict}" + f": {numbers}" * bool(numbers), f"    measure: {measure}"]
    columns = ["section", "the paper says, in our words", "verdict", "what came out", "measure"]
    record.say_table("What the paper says in words", columns, rows, lines=lines)
    record.results["claims"] = [
        {"id": c.id, "says": c.says, "verdict": finding.verdict, "numbers": finding.numbers} for c, finding in here
    ]
