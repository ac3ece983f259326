"""From model and data set names to outcomes: images chosen, features taken, both protocols computed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from papers.vit import fewshot_protocols as protocols
from papers.vit import fewshot_split as splits
from papers.vit.fewshot_lines import cosines
from shared import features, models
from shared.data import ImageSet
from shared.device import Choice
from shared.errors import UserError
from shared.features import Deferred

ARTICLE_MODELS = {
    "google/vit-base-patch32-224-in21k": "ViT-B/32",
    "google/vit-base-patch16-224-in21k": "ViT-B/16",
    "google/vit-large-patch32-224-in21k": "ViT-L/32",
    "google/vit-large-patch16-224-in21k": "ViT-L/16",
    "google/vit-huge-patch14-224-in21k": "ViT-H/14",
    "google/bit-50": "BiT R50x1",
    "microsoft/resnet-50": "ResNet-50 (ImageNet-1k)",
}
ARTICLE_DATA = {"cifar100": "CIFAR-100", "pets": "Oxford-IIIT Pets"}
HUB_NAMES = {"uoft-cs/cifar100": "cifar100", "timm/oxford-iiit-pet": "pets"}
PRECISION_IMAGES = 4


@dataclass
class Data:
    """One data set of the run."""

    spec: str
    title: str
    split: splits.Split
    draws: dict[int, np.ndarray]
    used: ImageSet  # the train images in use, in the order of `split.train_rows`
    test: ImageSet
    article: dict[str, protocols.Outcome] = field(default_factory=dict)  # by model spec
    big_vision: dict[str, protocols.Outcome] = field(default_factory=dict)

    @property
    def stand_in(self) -> str | None:
        return self.split.train.stand_in or self.split.test.stand_in

    def rows_as_text(self) -> dict:
        """Every row that was used, as one line of numbers a draw, class by class; rows of the named split."""

        def text(rows: np.ndarray) -> str:
            return " ".join(map(str, rows.ravel().tolist()))

        split = self.split
        classes = np.arange(split.classes)[:, None]
        return {
            "train_split": split.train.split,
            "test_split": split.test.split,
            "order": "class by class, as many a class each",
            "test": text(split.test_rows),
            "pool": text(split.pool),
            "selection": text(split.selection),
            "draws": {str(k): [text(split.pool[classes, columns]) for columns in d] for k, d in self.draws.items()},
            "big_vision": [text(rows) for rows in split.authors],
        }


@dataclass
class Model:
    """One encoder of the run."""

    spec: str
    encoder: Deferred
    choice: Choice  # where it is really computed
    name: str  # the article's for its models, else the model's own

    @property
    def title(self) -> str:
        """The name; a star marks a stand-in."""
        return self.name + (" *" if self.encoder.identity.stand_in else "")

    @property
    def dim(self) -> int:
        return self.encoder.identity.dim


def open_data(
    name: str, root: Path | None, sizes: splits.Sizes, shots: tuple[int, ...], draws: int, seed: int,
    authors_shots: tuple[int, ...], authors_seeds: int,
) -> Data:  # fmt: skip
    folder = splits.folder_of(name)
    name = str(folder) if folder else HUB_NAMES.get(name, name)
    train, test = splits.load(name, root)
    split = splits.make(
        train, test, sizes, seed=seed, authors_shots=max(authors_shots, default=0),
        authors_seeds=authors_seeds if authors_shots else 0,
    )  # fmt: skip
    used, tested = train.subset(split.train_rows), test.subset(split.test_rows.ravel())
    title = ARTICLE_DATA.get(name) or (folder.name if folder else name)
    return Data(name, title, split, splits.draws(split, shots, draws, seed=seed), used, tested)


def open_model(spec: str, choice: Choice, *, compile: bool) -> Model:
    encoder = features.deferred(spec, choice, compile=compile)
    name = ARTICLE_MODELS.get(spec, encoder.identity.name)
    return Model(spec, encoder, models.computed_in(encoder.identity, choice), name)


def name_apart(models: Sequence[Model], data: Sequence[Data]) -> None:
    """Results are kept by name: two models or data sets of one name go by their specs. UserError: one stands twice."""
    for items, attribute in ((models, "name"), (data, "title")):
        specs, names = (Counter(getattr(item, key) for item in items) for key in ("spec", attribute))
        twice = [spec for spec, count in specs.items() if count > 1]
        if twice:
            raise UserError(f"{twice[0]} is named twice, if in two spellings; name each model and data set once")
        for item in items:
            if names[getattr(item, attribute)] > 1:
                setattr(item, attribute, item.spec)


def measure(
    model: Model, data: Data, *, article: tuple[float, ...], big_vision: tuple[int, ...], notes: list[str]
) -> None:
    """Extract the features of one model on one data set and fill in the outcomes asked for."""

    def note(line: str) -> None:
        notes.append(line)
        print(line, file=sys.stderr)

    split = data.split
    train = features.extract(model.encoder, data.used, model.choice, say=note)
    test = features.extract(model.encoder, data.test, model.choice, say=note)
    position = np.empty(len(split.train), dtype=np.int64)
    position[split.train_rows] = np.arange(len(train))

    def of(rows: np.ndarray) -> np.ndarray:
        return train[position[rows.ravel()]]

    where = str(model.choice.device)
    if article:
        data.article[model.spec] = protocols.article(
            split, data.draws, of(split.pool), of(split.selection), test, article, where
        )
    if big_vision:
        seeds = [of(rows).reshape(*rows.shape, -1) for rows in split.authors]
        data.big_vision[model.spec] = protocols.big_vision(split, seeds, test, big_vision)


def precision(model: Model, data: Data) -> list[float]:
    """Cosine per image between this run's features and float32 ones from the CPU, first test images."""
    import torch

    few = data.test.subset(range(min(PRECISION_IMAGES, len(data.test))))
    cpu = Choice(torch.device("cpu"), torch.float32, "float32 on the CPU to compare with")
    low = features.extract(model.encoder, few, model.choice)
    full = features.extract(features.deferred(model.spec, cpu), few, cpu)
    return cosines(low, full)
