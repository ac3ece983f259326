"""What a probe leaves: a row for each model and data set, kept over runs in one result; the table and the CSV."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from shared.paths import atomic_write
from shared.probe.scores import Measure
from shared.result import Figure, File, read_result

if TYPE_CHECKING:
    from shared.probe.__main__ import Config
    from shared.probe.images import Sets
    from shared.probe.probing import Found, Model, Taken
    from shared.record import Record

Row = dict[str, Any]


def slug(text: str) -> str:
    """For a file's name: letters of any script, digits, single dashes."""
    return re.sub(r"[^\w]+", "-", text.casefold()).strip("-_")[:60] or "x"


def key(row: Row) -> tuple[str, ...]:
    """Rows of one key are the same measurement: the later one replaces the earlier."""
    return tuple(str(row[name]) for name in ("data_spec", "split", "spec", "transform", "pool", "dtype", "task"))


@dataclass
class Earlier:
    """What the result of an earlier run of this name has: rows and figures."""

    rows: list[Row]
    figures: list[Figure]
    files: list[File]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Nothing where there is no such file. UserError where it is damaged: its rows would be lost."""
        if not path.exists():
            return cls([], [], [])
        result = read_result(path)
        return cls(list(result.results.get("rows", [])), result.figures, result.files)

    def that_stay(self, record: Record, replaced: Sequence[Row]) -> list[Figure]:
        """The figures of rows that stay: those whose names begin with no new row's. Their files are entered."""
        new = [f"{record.experiment}-{row['file']}-" for row in replaced]
        gone = (
            *(f"figures/{name}" for name in [f"{record.experiment}-models.", *new]),
            *new,
            f"{record.experiment}.csv",
        )

        def stays(one: Figure | File) -> bool:
            return not one.path.startswith(gone) and (record.directory / one.path).is_file()

        for file in filter(stays, self.files):
            record.file(record.directory / file.path, file.caption)
        return list(filter(stays, self.figures))


def make(model: Model, sets: Sets, taken: Taken, found: Found, config: Config) -> Row:
    """Everything that is kept of one model on one data set, as JSON."""
    identity, train = model.encoder.identity, sets.train.take(sets.keep)
    row = {
        "data": sets.title,
        "data_spec": sets.name,
        "split": f"{sets.train.split}/{sets.test.split}",
        "model": model.title,
        "spec": model.name,
        "stand_in": sets.stand_in,
        "options": f"{config.transform}, {identity.representation}, {model.choice.dtype_name}",
        "transform": identity.preprocessing,
        "pool": identity.representation,
        "dtype": model.choice.dtype_name,
        "task": sets.task,
        "names": sets.names,
        "train": len(train),
        "test": len(sets.test),
        "train_per_name": _counts(train.targets, sets),
        "test_per_name": _counts(sets.test.targets, sets),
        "protocols": found.protocols,
        "seconds": {"features": taken.seconds, "fit": found.seconds, "images_per_second": taken.rate},
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": identity.revision,
        "weights_sha256": identity.weights_sha256,
        "train_fingerprint": train.images.fingerprint,
        "test_fingerprint": sets.test.images.fingerprint,
    }
    # a name for files that another row has not, whatever the slugs leave of the names
    mark = hashlib.sha256("\0".join(key(row)).encode()).hexdigest()[:6]
    row["file"] = "-".join([slug(sets.title), slug(model.title), mark])
    row["of_images"] = len(sets.warnings)
    row["warnings"] = [*sets.warnings, *taken.notes, *warnings_of(row)]
    return row


def _counts(targets: np.ndarray, sets: Sets) -> list[int]:
    """How many images each class or label has; of numbers all."""
    if sets.task == "classes":
        return np.bincount(targets, minlength=len(sets.names)).tolist()
    return (targets > 0.5).sum(0).tolist() if sets.task == "labels" else [len(targets)] * len(sets.names)


def warnings_of(row: Row) -> list[str]:
    """What in a row's numbers a reader has to be careful with, a line each."""
    said, its = [], row["protocols"].get("all")
    if its and its["at_edge"]:
        end = "smallest" if its["lambda"] == its["lambdas"][0] else "largest"
        said.append(f"lambda {its['lambda']:.4g} is the {end} that was tried; try others: --lambdas")
    if its and its["measure"] != "R2" and (its["low"] < 1e-9 or its["high"] > 1 - 1e-9):
        end = "0" if its["low"] < 1e-9 else "100"
        said.append(f"the interval reaches {end} %: too few test images to say how far from it the truth is")
    few = row["protocols"].get("few-shot")
    if few:
        for k, count in few["short"].items():
            if count:
                said.append(
                    f"{k}-shot: {count} of {len(row['names'])} classes have fewer images, and give what they have"
                )
        if not few["chosen"]:
            said.append("few-shot: no class has images to spare for the choice of lambda, so it is fixed")
    if (its := row["protocols"].get("logistic")) and its["not_converged"]:
        said.append(f"logistic regression: {its['not_converged']} of the penalties had not converged")
    return said


def headline(row: Row) -> tuple[str, float, str]:
    """(measure, value, words) of the first protocol that was run; ("", -inf, "") for none."""
    protocols = row["protocols"]
    if its := protocols.get("all"):
        value = -np.inf if its["value"] is None else its["value"]
        cell = Measure(its["measure"], value, its["low"], its["high"]).cell(its["measure"] != "R2")
        words = {
            "accuracy": f"{cell} % of {row['test']:,} test images right",
            "mAP": f"mAP {cell} %",
            "R2": f"R2 {cell}",
        }
        return its["measure"], value, words[its["measure"]]
    if few := few_shot_cells(protocols.get("few-shot")):
        k, cell = list(few.items())[-1]
        return f"{k}-shot", float(cell.split()[0]) / 100, f"{cell} % right from {k} images a class"
    for k, its in [*protocols.get("knn", {}).items(), ("", protocols.get("logistic"))]:
        if its:
            name = f"{k} nearest neighbours" if k else "logistic regression"
            return name, its["value"], f"{100 * its['value']:.1f} % right by {name}"
    return "", -np.inf, ""


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """The old rows, those that were measured again in their new form, then the other new ones."""
    replaced = {key(row): row for row in new}
    every = [replaced.pop(key(row), row) for row in old] + list(replaced.values())
    specs: dict[str, set[str]] = {}
    for row in every:
        specs.setdefault(row["data"], set()).add(row["data_spec"])
    for row in every:
        if len(specs[row["data"]]) > 1:  # two folders of one name go by their paths
            row["data"] = row["data_spec"]
    return every


# As a table ----------------------------------------------------------------------------------------------------------

HEADS = {"accuracy": "accuracy [95 %]", "mAP": "mAP [95 %]", "R2": "R2 [95 %]"}


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str | None]]]:
    """(columns, cells) of rows of one data set and task; accuracies in %. A column that no row fills is left out."""
    every = [_cells(row) | {"model": name} for row, name in zip(rows, names_of(rows), strict=True)]
    names = list(dict.fromkeys(name for cells in every for name in cells))
    order = sorted(names, key=lambda name: (_place(name), names.index(name)))
    return order, [[cells.get(name) for name in order] for cells in every]


def names_of(rows: Sequence[Row]) -> list[str]:
    """The models' names, with the options where a model is there twice."""
    models = [row["model"] for row in rows]
    apart = [f" ({row['options']})" * (models.count(row["model"]) > 1) for row in rows]
    return [model + more for model, more in zip(models, apart, strict=True)]


OTHERS = ("-shot", "-NN", "logistic")


def is_another_probe(column: str) -> bool:
    """Whether it is of another probe than the ridge on all training images."""
    return column.endswith(OTHERS)


def _place(name: str) -> int:
    ends = ["model", "train", "test", "classes", "labels", "targets", "[95 %]", "balanced", *OTHERS]
    return next(i for i, end in enumerate([*ends, "seconds", "images/s"]) if name.endswith(end))


def _cells(row: Row) -> dict[str, str]:
    protocols = row["protocols"]
    cells = {
        "model": "",
        "train": f"{row['train']:,}",
        "test": f"{row['test']:,}",
    }
    cells[{"classes": "classes", "labels": "labels", "number": "targets"}[row["task"]]] = f"{len(row['names']):,}"
    if its := protocols.get("all"):
        measure = Measure(its["measure"], *(np.nan if its[k] is None else its[k] for k in ("value", "low", "high")))
        cells[HEADS[measure.name]] = measure.cell(measure.name != "R2")
        if "balanced" in its:
            cells["balanced"] = f"{100 * its['balanced']:.1f}"
    for k, cell in few_shot_cells(protocols.get("few-shot")).items():
        cells[f"{k}-shot"] = cell
    for k, its in protocols.get("knn", {}).items():
        cells[f"{k}-NN"] = f"{100 * its['value']:.1f}"
    if its := protocols.get("logistic"):
        cells["logistic"] = f"{100 * its['value']:.1f}"
    cells["seconds"] = f"{row['seconds']['features'] + row['seconds']['fit']:.1f}"
    rate = row["seconds"]["images_per_second"]
    cells["images/s"] = f"{rate:,.0f}" if rate and rate >= 10 else f"{rate:.1f}" if rate else "cached"
    return cells


def few_shot_cells(kept: dict[str, Any] | None, protocol: str = "") -> dict[str, str]:
    """k -> `53.9 ± 2.6`, of the protocol `chosen` where it could be run, or of the one that is named."""
    its = kept and (kept[protocol] if protocol else kept["chosen"] or kept["fixed"])
    if not its:
        return {}
    result = {}
    for k, correct in its["correct"].items():
        values = 100 * np.array(correct) / its["test_images"]
        result[k] = f"{values.mean():.1f}" + (f" ± {values.std(ddof=1):.1f}" if len(values) > 1 else "")
    return result


def details(row: Row) -> list[tuple[str, list[str], list[list[str]]]]:
    """(title, columns, cells) of a row's further tables: both few-shot protocols; the names one by one, worst first."""
    tables, few, its = [], row["protocols"].get("few-shot"), row["protocols"].get("all")
    if few:
        words = {"chosen": "raw features, lambda chosen", "fixed": "standardised, lambda 1,024"}
        shown = {words[name]: few_shot_cells(few, name) for name in words if few[name]}
        columns = ["few-shot protocol", *(f"{k}-shot" for k in next(iter(shown.values())))]
        tables.append(("few-shot, %, SD over draws", columns, [[name, *own.values()] for name, own in shown.items()]))
    if its and row["task"] != "number":
        what = "class" if row["task"] == "classes" else "label"
        measure = {"class": "accuracy, %", "label": "average precision, %"}[what]
        values = [np.nan if value is None else 100 * value for value in its["per_name"]]  # a result has no nan
        order = sorted(range(len(values)), key=lambda k: (np.isnan(values[k]), np.nan_to_num(values[k])))
        cells = [
            [row["names"][k], "-" if np.isnan(values[k]) else f"{values[k]:.1f}", f"{row['test_per_name'][k]:,}"]
            for k in order
        ]
        tables.append((f"{what} by {what}", [what, measure, "test images"], cells))
    return tables


# As a CSV ------------------------------------------------------------------------------------------------------------


def publish_csv(record: Record, rows: Sequence[Row]) -> None:
    """Write `<name>.csv` beside the JSON, and enter it there."""
    path = record.directory / f"{record.experiment}.csv"
    atomic_write(path, as_csv(rows))
    record.file(path, "all rows as CSV")


def as_csv(rows: Sequence[Row]) -> str:
    """A line a row, numbers at full precision, accuracies between 0 and 1."""
    flat = [_flat(row) for row in rows]
    columns = list(dict.fromkeys(name for one in flat for name in one))
    return write_csv(columns, [[one.get(name) for name in columns] for one in flat])


def write_csv(columns: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """A head and lines as text."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([columns, *lines])
    return out.getvalue()


def _flat(row: Row) -> dict[str, Any]:
    same = ("data", "split", "model", "spec", "transform", "pool", "dtype", "task", "train", "test")
    flat = {name: row[name] for name in same} | {"classes": len(row["names"])}
    protocols = row["protocols"]
    if its := protocols.get("all"):
        flat |= {its["measure"]: its["value"], "low": its["low"], "high": its["high"], "lambda": its["lambda"]}
        flat |= {name: its[name] for name in ("balanced", "ece") if name in its}
    for protocol in ("chosen", "fixed"):
        its = (protocols.get("few-shot") or {}).get(protocol)
        for k, correct in its["correct"].items() if its else ():
            values = np.array(correct) / its["test_images"]
            flat[f"{k}-shot {protocol}"] = float(values.mean())
            flat[f"{k}-shot {protocol} SD"] = float(values.std(ddof=1)) if len(values) > 1 else None
    for k, its in protocols.get("knn", {}).items():
        flat[f"{k}-NN"] = its["value"]
    if its := protocols.get("logistic"):
        flat |= {"logistic": its["value"], "logistic C": its["c"]}
    flat |= {f"seconds {name}": row["seconds"][name] for name in ("features", "fit")}
    flat |= {"images_per_second": row["seconds"]["images_per_second"], "started": row["started"]}
    flat |= {"weights_sha256": row["weights_sha256"], "train_fingerprint": row["train_fingerprint"]}
    return flat
