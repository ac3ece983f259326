"""What a training run is called and leaves to read: its curve, and the note of its starts.

`<run>.json` is the curve: a function of the configuration alone, so an interrupted and an uninterrupted run write the
same bytes on the CPU. `<run>.machine.json` says when, how long and on what. No torch here, so reading is quick.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import msgspec

from shared import paths
from shared.errors import UserError
from shared.schema import checked, read_json, sealed

TRAIN_ANEW = "delete it to train the run anew"

Variant = Literal["float32", "float32-compiled", "bf16", "bf16-compiled"]
VARIANTS: tuple[str, ...] = get_args(Variant)
Positive = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]


class RunFiles:
    """Where a run's files lie below its experiment's folder. A run has a `name`, a model, a seed and a variant."""

    name: str

    @property
    def subfolder(self) -> str:
        """Of the experiment's folder, where runs of one name would lie on each other without it."""
        return ""

    @property
    def title(self) -> str:
        """For a reader of progress."""
        return f"{self.name} {self.subfolder}".rstrip()

    def curve_file(self, experiment: Path) -> Path:
        return experiment / self.subfolder / f"{self.name}.json"

    def machine_file(self, experiment: Path) -> Path:
        return experiment / self.subfolder / f"{self.name}.machine.json"

    def checkpoint_file(self, experiment: Path) -> Path:
        return experiment / self.subfolder / "checkpoints" / f"{self.name}.ckpt"


@dataclass(frozen=True)
class Curve:
    """The curve of a run, finished (`complete`) or not. A paper's own kind adds what it scores.

    identity: all that the numbers depend on besides the machine: the fields of `PARTS` (run, recipe), the images.
    """

    PARTS: ClassVar[tuple[type, ...]] = ()
    LATER: ClassVar[frozenset[str]] = frozenset()  # fields of the parts that an identity may lack

    schema: Literal[1]
    identity: dict[str, str | int | float | list[int | float]]
    complete: bool

    @property
    def last_step(self) -> int:
        """The last update that is in the curve."""
        raise NotImplementedError

    @property
    def so_far(self) -> str:
        """The last score of an unfinished run, in words."""
        raise NotImplementedError

    @classmethod
    def read(cls, path: Path) -> Self:
        """The curve at `path`. UserError that names the file: absent, damaged, or its identity lacks run or recipe."""
        curve = read_json(path, "curve", TRAIN_ANEW, cls, seal=True)
        for kind in cls.PARTS:
            lacks = {f.name for f in fields(kind)} - curve.identity.keys() - cls.LATER
            if lacks:
                raise UserError(f"{path}: identity: {min(lacks)!r} is missing; {TRAIN_ANEW}")
            checked(curve.part(kind), kind, path, TRAIN_ANEW, at="identity")
        return curve

    @classmethod
    def of(cls, path: Path, identity: dict[str, Any]) -> Self | None:
        """The curve of the run with this identity; None if there is none, UserError if another run's lies there."""
        if not path.exists():
            return None
        curve = cls.read(path)
        require_same(path, curve.identity, identity)
        return curve

    def done(self, until: int | None = None) -> bool:
        """Whether nothing is left to train: the run is complete, or has come to the step `until`."""
        return self.complete or (until is not None and until <= self.last_step < self.steps)

    def part(self, kind: type) -> dict[str, Any]:
        """What the identity holds of the dataclass `kind`: the run, or its recipe."""
        return {f.name: self.identity[f.name] for f in fields(kind) if f.name in self.identity}

    @property
    def steps(self) -> int:
        """Updates that the run is to have in the end."""
        return self.identity["steps"]


@dataclass(frozen=True)
class Start:
    """One start of a run: what its speed and last bits depend on. Kept apart from the curve, which must not vary."""

    started: str
    from_step: Natural
    to_step: Natural
    seconds: float
    evaluation_seconds: float
    device: str
    threads: int
    torch: str
    processor: str = ""
    commit: str = ""

    @property
    def words(self) -> str:
        """In one line, for the provenance of what is made from the run."""
        where = f"{self.device} ({self.threads} thread{'s' * (self.threads > 1)}), torch {self.torch}"
        steps = f"steps {self.from_step:,} to {self.to_step:,} in {self.seconds / 60:.0f} minutes on {where}"
        return f"started {self.started}, {steps}, {self.processor or 'processor not noted'}, " + (
            f"commit {self.commit}" if self.commit else "commit not noted"
        )


@dataclass(frozen=True)
class MachineNote:
    """All starts of a run, the first one first."""

    schema: Literal[1]
    starts: list[Start]


def read_starts(path: Path) -> list[Start]:
    """Every start of a run, from its machine note; none if there is no note. UserError for a damaged one."""
    way_out = "delete it: only the times of the run are lost"
    return read_json(path, "note of the machine", way_out, MachineNote, seal=True).starts if path.exists() else []


def require_same(path: Path, on_disk: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise UserError naming the first key in which a run on disk differs from the one asked for."""
    for key in sorted(on_disk.keys() | wanted.keys()):
        if on_disk.get(key) != wanted.get(key):
            raise UserError(
                f"{path}: belongs to another run ({key} is {on_disk.get(key)!r}, asked for {wanted.get(key)!r}); "
                "choose another --results folder or delete the file"
            )


def write_json(path: Path, content: Curve | MachineNote) -> None:
    """One line a key, a checksum last: thousands of losses stay one line of a diff."""
    items = sealed(asdict(content)).items()
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in items)
    paths.atomic_write(path, f"{{\n{lines}\n}}\n")
