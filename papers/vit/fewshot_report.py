"""What the few-shot script says, keeps and judges, section by section, once everything is measured."""

from __future__ import annotations

from papers.vit import fewshot_breeds, fewshot_protocols
from papers.vit import fewshot_lines as lines
from papers.vit.fewshot_run import ARTICLE_DATA, ARTICLE_MODELS, Data, Model
from shared.device import Choice
from shared.published import Published
from shared.record import Record

AUTHORS = "big_vision"


def _shots(wanted: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(wanted))


def _say_notes(record: Record, models: list[Model], data: Data) -> None:
    """The star of a stand-in, explained under every table that has one."""
    for model in models:
        reason = model.encoder.identity.stand_in
        if reason:
            record.say(f"  * stand-in: {model.title.removesuffix(' *')} is {reason}")
    if data.stand_in:
        record.say(f"  stand-in images: {data.title}, {data.stand_in}")


def article_part(
    record: Record, models: list[Model], data: list[Data], shots: tuple[int, ...], authors: tuple[int, ...]
) -> None:
    """The article's tables (of the authors' protocol where only that one was run), and all counts kept."""
    for d in data:
        outcomes, columns = (d.article, _shots(shots)) if d.article else (d.big_vision, _shots(authors))
        rows = [(m.title, m.dim, outcomes[m.spec]) for m in models]
        title = d.title if d.article else f"{d.title}, {AUTHORS}'s protocol"
        table = lines.accuracy_table(title, d.split.classes, rows, columns)
        record.say("\n" + "\n".join(table))
        _say_notes(record, models, d)
        kept = record.results.setdefault("data", {})[d.title] = {
            "classes": d.split.classes,
            "class_names": d.split.test.class_names,
            "spec": d.spec,
            "rows": d.rows_as_text(),
            "left_out": d.split.left_out,
            "outcomes": {},
        }
        for m in models:
            kept["outcomes"][m.title.removesuffix(" *")] = {
                "spec": m.spec,
                "dim": m.dim,
                "stand_in": m.encoder.identity.stand_in,
                "article": d.article[m.spec].as_json() if d.article else None,
                AUTHORS: d.big_vision[m.spec].as_json() if d.big_vision else None,
            }


def breeds(record: Record, data: list[Data]) -> list[str] | None:
    """The article's line on class names that ImageNet-1k has too; None when Pets is not in the run."""
    for d in data:
        if d.spec == "pets":
            names = d.split.test.class_names
            same = fewshot_breeds.same_name(names)
            record.say("\n" + lines.breeds_line(same, len(names)))
            record.results["breeds"] = {"same_name": same, "longer_name": fewshot_breeds.longer_name(names)}
            return same
    return None


def origin(record: Record, models: list[Model], data: list[Data], notes: list[str], choice: Choice) -> None:
    """Images, models and device: what the numbers above came from."""
    record.section("images, models, device")
    for d in data:
        split = d.split
        parts = (
            f"{split.pool.size:,} pool + {split.selection.size:,} selection + {split.test_rows.size:,} test images "
            f"({split.pool.shape[1]} + {split.selection.shape[1]} + {split.test_rows.shape[1]} a class)"
        )
        further = len(d.used) - split.pool.size - split.selection.size
        if split.authors:
            parts += f", {further:,} further training images for {AUTHORS}"
        record.say(f"  {d.title}: {parts}, from {split.train.source}")
        if split.test.split not in ("test", "all"):
            record.say(f"    no test part: the test images are of its {split.test.split} part")
        if d.stand_in:
            record.say(f"    stand-in: {d.stand_in}")
        count = len(split.left_out)
        record.say(
            f"    left out by content: {count} training image{'s' if count != 1 else ''}"
            + (f": {'; '.join(split.left_out)}" if count else " (no exact duplicate of another one in use)")
        )
        for images, split_name in ((d.used, "train"), (d.test, "test")):
            record.use_data(
                d.title, split=split_name, source=images.source, images=len(images),
                fingerprint=images.fingerprint, stand_in=images.stand_in,
            )  # fmt: skip
    overlap = record.results.get("breeds")
    if overlap and overlap["longer_name"]:
        more = ", ".join(f"{breed} ({name})" for breed, name in overlap["longer_name"].items())
        record.say(f"  breeds that ImageNet-1k has under a longer name: {more}")
    for m in models:
        identity = m.encoder.identity
        record.say(f"  {m.title}: {m.spec} in {m.choice.dtype_name}, images by: {identity.preprocessing}")
        record.use_model(
            m.title.removesuffix(" *"), revision=identity.revision, weights_sha256=identity.weights_sha256,
            preprocessing=identity.preprocessing, stand_in=identity.stand_in,
        )  # fmt: skip
    dtypes = " and ".join(sorted({m.choice.dtype_name for m in models}))
    # a model's own reason continues the run's
    own = dict.fromkeys(m.choice.reason.removeprefix(choice.reason) for m in models)
    reason = choice.reason + "".join(own)
    record.use_device(choice.name, dtypes, reason)
    record.say(f"  computed on {choice.name} in {dtypes} ({reason})")
    for note in dict.fromkeys(notes):
        record.say(f"  {note}")
    record.results["notes"] = list(dict.fromkeys(notes))


def article_details(
    record: Record, models: list[Model], data: list[Data], shots: tuple[int, ...], penalties: tuple[float, ...]
) -> None:
    """Every lambda's score, and the spread over draws beside the test set's own error."""
    for d in data:
        if not d.article:
            continue
        outcomes = [(m.title, d.article[m.spec]) for m in models]
        record.section(f"{d.title}: mean accuracy on the selection images, by lambda (the chosen one in brackets)")
        record.say("\n".join(lines.selection_table(outcomes, sorted(penalties))))
        record.section(f"{d.title}: spread over draws / standard error of the {len(d.test):,} test images, in points")
        rows = [[name, *(lines.error_cell(o, k) for k in _shots(shots))] for name, o in outcomes]
        columns = ["model", *(f"{k}-shot" for k in _shots(shots))]
        record.say("\n".join(lines.aligned(columns, rows)))
        record.table(
            f"{d.title}: spread over draws / standard error of the test set", columns, rows,
            note="Points. All draws are scored on the same test images; the second number is not in the first.",
            group=f"errors {d.title}",
        )  # fmt: skip


def both(
    record: Record, models: list[Model], data: list[Data], shots: tuple[int, ...], authors: tuple[int, ...]
) -> None:
    """The authors' protocol, and both side by side at the shots that they share."""
    for d in data:
        if not d.big_vision:
            continue
        rows = [(m.title, m.dim, d.big_vision[m.spec]) for m in models]
        seeds = len(d.split.authors)
        if d.article:  # else it was the main table
            record.section(f"{d.title}: protocol {AUTHORS} (standardised, constant 100, {seeds} seeds, nested draws)")
            table = lines.accuracy_table(d.title, d.split.classes, rows, _shots(authors))
            record.say("\n".join(table))
            _say_notes(record, models, d)
        same = fewshot_protocols.coinciding(d.split, _shots(authors))
        for k in same:
            record.say(
                f"  at {k}-shot the {seeds} seeds draw the same images (a class has only {k} training images): "
                "one fit, not several; its ± 0.0 says nothing about spread"
            )
        for k in _shots(authors):
            share = fewshot_protocols.shared_by_seeds(d.split, k)
            if k not in same and share > 0.5:
                record.say(
                    f"  at {k}-shot any two seeds share {share:.0%} of their images or more (few training images a "
                    "class): the ± says little about spread"
                )
        d_kept = record.results["data"][d.title]
        d_kept["coinciding_shots"] = same
        common = [k for k in _shots(shots) if k in authors]
        if d.article and common:
            pairs = [(m.title, d.article[m.spec], d.big_vision[m.spec]) for m in models]
            rows_text = lines.side_by_side(pairs, common)
            columns = ["model", "k", "article", AUTHORS, "difference"]
            record.section(f"{d.title}: the two protocols side by side (same test images)")
            record.say("\n".join(lines.aligned(columns, rows_text)))
            record.table(f"{d.title}: the two protocols side by side", columns, rows_text, group="protocols")


def judge(
    record: Record, published: Published, models: list[Model], data: list[Data], shots: tuple[int, ...],
    tiny: dict[str, str], same: list[str] | None, precision: tuple[Model, list[float]], other: str | None,
) -> None:  # fmt: skip
    """One verdict for every published number. other: how this run's protocol is not the article's, or None."""
    by_model = {ARTICLE_MODELS[m.spec]: m for m in models if m.spec in ARTICLE_MODELS}
    by_data = {d.title: d for d in data if d.spec in ARTICLE_DATA}
    specs = {name: spec for spec, name in ARTICLE_MODELS.items()}
    for id, number in published.numbers.items():
        first, _, rest = id.partition("/")
        if id in tiny:
            record.judge(number, tiny[id])
        elif first == "breeds":
            measured = None if same is None else str(len(same)) if number.value is not None else ", ".join(same)
            record.judge(number, measured, why_not_run="Pets is not in this run")
        elif first == "float16":
            model, cosines = precision
            index = int(id.rsplit(" ", 1)[1]) - 1
            run = model.spec == specs["ViT-H/14"] and model.choice.dtype_name == "float16" and index < len(cosines)
            record.judge(number, cosines[index] if run else None,
                         why_not_run="ViT-H/14 in float16 is not in this run")  # fmt: skip
        else:
            name, _, column = rest.rpartition("/")
            d, m = by_data.get(first), by_model.get(name)
            outcome = d.article.get(m.spec) if d and m else None
            stand_in = (d.stand_in if d else None) or other
            k = None if column == "lambda" else int(column.removesuffix("-shot"))
            if outcome is None or (k is not None and k not in shots):
                what = f"{first}'s images are" if d is None else f"{k}-shot is"
                record.judge(number, None, why_not_run=f"{specs[name]} is not among this run's models" if m is None
                             else "the article's protocol was not run" if d and outcome is None
                             else f"{what} not in this run")  # fmt: skip
            elif k is None:
                record.judge(number, outcome.penalty, stand_in=stand_in)
            else:
                record.judge(number, outcome.mean(k), std=outcome.std(k), n=len(outcome.correct[k]),
                             images=outcome.images, stand_in=stand_in)  # fmt: skip


def stand_ins(record: Record, models: list[Model], data: list[Data], shots: tuple[int, ...]) -> None:
    """Cells that have no published counterpart: named, so that nobody takes them for a reproduction."""
    rows = [
        (d, m)
        for d in data
        for m in models
        if d.article and (m.spec not in ARTICLE_MODELS or d.spec not in ARTICLE_DATA)
    ]
    if not rows:
        return
    record.section("measured here without a published number")
    for d, m in rows:
        stand_in = m.encoder.identity.stand_in
        why = f"stand-in: {stand_in}" if stand_in else "not a model and data set of the article"
        cells = ", ".join(f"{k}-shot {lines.cell(d.article[m.spec], k)}" for k in _shots(shots))
        record.say(f"  {d.title}/{m.title.removesuffix(' *')}: {cells}: not comparable ({why})")
