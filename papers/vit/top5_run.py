"""From a classifier's name and an image set to scores, by the suite's one path for images, models and logits."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from papers.vit.top5_scoring import Counts, Scores, count, map_classes, origin, score
from shared import features, models
from shared.data import ImageSet
from shared.device import Choice
from shared.errors import UserError
from shared.shards import SHARD

CHUNK = 8 * SHARD  # images whose logits are in memory at once (8 MB); whole shards, so that all are found again
PRINTED_NAMES = {
    "google/vit-base-patch16-224": "ViT-B/16",
    "google/vit-large-patch16-224": "ViT-L/16",
    "microsoft/resnet-50": "ResNet-50",
    "google/bit-50": "BiT R50x1",
    "wheel:efficientnet-lite0": "EfficientNet-Lite0",
}


@dataclass(frozen=True)
class Way:
    """One classifier's scores on one image set, the images entering in one way."""

    way: str
    preprocessing: str
    images: ImageSet
    scores: Scores
    counts: Counts


@dataclass
class Classifier:
    """A classifier that has been run. `own` classes are the data set's, as indices of its label list."""

    spec: str
    name: str
    identity: models.Identity
    own: np.ndarray
    choice: Choice
    ways: list[Way] = field(default_factory=list)

    @property
    def headline(self) -> Way:
        """The first way on the first image set."""
        return self.ways[0]


class Runner:
    """Runs classifiers on image sets. `notes` collects what the extraction has to say."""

    def __init__(self, choice: Choice, *, cache: bool = True) -> None:
        self.choice = choice
        self.cache = cache
        self.notes: list[str] = []

    def open(self, spec: str, images: ImageSet, way: str) -> Classifier:
        """A classifier before it is run. UserError when it is not to be had or is not over ImageNet-1k's classes."""
        identity = models.describe(spec, transform=way, head=True)
        own = map_classes(spec, identity.label_wnids, images.name, images.class_ids)
        choice = models.computed_in(identity, self.choice)
        return Classifier(spec, PRINTED_NAMES.get(spec, identity.name), identity, own, choice)

    def run(self, classifier: Classifier, ways: Sequence[str], sets: Sequence[ImageSet]) -> None:
        """Fill `classifier.ways`: way by way, set by set. Ways with one preprocessing are computed once."""
        done: dict[tuple[str, int], Scores] = {}
        for way in ways:
            identity = models.describe(classifier.spec, transform=way, head=True)
            load = functools.partial(models.load_classifier, classifier.spec, classifier.choice, transform=way)
            source = features.Deferred(identity, load)  # the weights are read once for all sets, if at all
            for which, images in enumerate(sets):
                key = identity.preprocessing, which
                if key not in done:
                    done[key] = self._scores(classifier, source, images)
                classifier.ways.append(Way(way, identity.preprocessing, images, done[key], count(done[key])))

    def _scores(self, classifier: Classifier, source: features.Deferred, images: ImageSet) -> Scores:
        own = map_classes(classifier.spec, source.identity.label_wnids, images.name, images.class_ids)
        parts = []
        for start in range(0, len(images), CHUNK):
            part = images.subset(slice(start, start + CHUNK))
            logits = features.extract(source, part, classifier.choice, cache=self.cache, say=self.notes.append)
            parts.append(score(logits, own[part.labels], own))
        if not parts:
            raise UserError(f"data {images.name}: no image in split {images.split}; name another split")
        return Scores.join(parts)


def origin_groups(way: Way) -> list[tuple[str, Counts | None]]:
    """Counts of all images and of those from each part of ImageNet, told by file name."""
    origins = np.array([origin(name) for name in way.images.names])
    words = {
        "validation": "ImageNet validation, not seen",
        "training": "ImageNet training, seen",
        "unknown": "origin unknown",
    }
    groups: list[tuple[str, Counts | None]] = [("all", way.counts)]
    for key, what in words.items():
        mask = origins == key
        if mask.any():
            groups.append((what, count(way.scores.take(mask))))
        elif key != "unknown":
            groups.append((what, None))
    return groups


def announce(text: str) -> None:
    """A line for whoever waits, not for the log."""
    print(text, file=sys.stderr, flush=True)
