"""One model on one data set: features once, then every probe that was asked for.

On all training images: ridge regression in closed form (`shared.gram`), lambda chosen by leave-one-out or by a held-out
split. For few images a class: `shots`. Nearest neighbours and logistic regression: `others`. What is found goes into
one row, as JSON; what the drawings need is beside it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shared import features, gram, models
from shared.device import Choice
from shared.errors import UserError
from shared.features import Deferred
from shared.probe import copies, others, scores, shots
from shared.probe.head import FORMAT, About, Head
from shared.probe.images import HELD_OUT, Part, Sets, stratified
from shared.ridge import predict

if TYPE_CHECKING:
    import torch

    from shared.data import ImageSet
    from shared.models.encoder import Encoder
    from shared.probe.__main__ import Config

LAMBDAS = 19  # of the grid: half decades
NEAR_AUTO = 100_000  # images, up to which near copies are looked for unasked: all are decoded once more
CALIBRATED_ON = 20_000  # training images, at most, that fit the temperature


# The model and its features ------------------------------------------------------------------------------------------


@dataclass
class Model:
    """One encoder of the run; name: its spec. computed: images that went through the network: not out of the cache."""

    name: str
    title: str
    encoder: Deferred
    choice: Choice
    computed: int = 0


def open_model(
    spec: str, choice: Choice, *, transform: str, pool: str, compile: bool = False, revision: str | None = None
) -> Model:
    """The model `spec`, identified but not loaded. UserError where it cannot be."""
    settings = {"transform": transform, "pool": "" if pool == "own" else pool}
    deferred = features.deferred(spec, choice, revision=revision, compile=compile, **settings)
    identity = deferred.identity
    model = Model(identity.spec, identity.name, deferred, models.computed_in(identity, choice))
    model.encoder = Deferred(identity, lambda: _counting(deferred.encoder, model), compiled=compile)
    return model


def _counting(encoder: Encoder, model: Model) -> Encoder:
    """The encoder, which from now on counts its images: how many a second is said of those alone."""
    forward = encoder.forward

    def counted(x: torch.Tensor) -> torch.Tensor:
        y = forward(x)
        model.computed += len(x)
        return y

    encoder.forward = counted
    return encoder


@dataclass
class Taken:
    """features: by role, float32 [n, d]. seconds: how long it took. rate: images a second through the network, None
    where all came out of the cache. notes: what has to be said of them."""

    features: dict[str, np.ndarray]
    seconds: float
    rate: float | None
    notes: list[str]


def take_features(model: Model, sets: Sets, batch_size: int) -> Taken:
    """The features of all parts of a data set."""
    notes: list[str] = []
    model.computed, start = 0, time.perf_counter()
    taken = {
        role: features.extract(
            model.encoder, part.images, model.choice, batch_size=batch_size or "auto", say=notes.append
        )
        for role, part in sets.parts.items()
    }
    seconds = time.perf_counter() - start
    return Taken(taken, seconds, model.computed / seconds if model.computed else None, list(dict.fromkeys(notes)))


# What is in both parts -----------------------------------------------------------------------------------------------


def find_copies(sets: Sets, *, drop: bool, near: str) -> None:
    """Set `sets.keep`; what was found goes into the notes and warnings of `sets`."""
    train, test = sets.train.images, sets.test.images
    keep = np.ones(len(train), bool)
    pairs = copies.exact(train, test)
    if pairs:
        if drop:
            keep[[i for i, _ in pairs]] = False
        what = "left out" if drop else "used all the same (--duplicates keep)"
        other = sum(bool(np.any(sets.train.targets[i] != sets.test.targets[j])) for i, j in pairs)
        what += f"; another target there: {other} of them" * bool(other)
        sets.warnings.append(
            f"{_images(len(pairs))} with the very pixels of a test image, {what}: {_pairs(sets, pairs, '=')}"
        )
    again = copies.repeated(train)
    if again:
        sets.notes.append(f"{_images(len(again))} with the pixels of an earlier one, used all the same")
    two = [(i, j) for i, j in again if np.any(sets.train.targets[i] != sets.train.targets[j])]
    if two:
        named = ", ".join(f"{_name(train, i)} and {_name(train, j)}" for i, j in two[:3]) + ", ..." * (len(two) > 3)
        sets.warnings.append(f"{_images(len(two))} with the pixels of one that has another target: {named}")
    if near == "always" or (near == "auto" and len(train) + len(test) <= NEAR_AUTO):
        alike = [(i, j) for i, j in copies.near(copies.small(train), copies.small(test)) if keep[i] or not drop]
        alike = [pair for pair in alike if pair not in set(pairs)]
        if alike:
            sets.warnings.append(
                f"{_images(len(alike))} nearly like a test image, used (by a hash of shapes, which proves nothing): "
                f"{_pairs(sets, alike, '~')}"
            )
    if not keep.any() or (sets.task == "classes" and len(np.unique(sets.train.targets[keep])) < len(sets.names)):
        raise UserError(
            f"{sets.name}: without the copies of test images a class has no training image left; take the copies out "
            "of the test images, or keep them: --duplicates keep"
        )
    sets.keep = keep


def _images(count: int) -> str:
    return f"{count:,} training image{'s' * (count > 1)}"


def _pairs(sets: Sets, pairs: list[tuple[int, int]], sign: str) -> str:
    train, test = sets.train.images, sets.test.images
    named = [f"{_name(train, i)} {sign} {_name(test, j)}" for i, j in pairs[:3]]
    return ", ".join([*named, *["..."] * (len(pairs) > 3)])


def _name(images: ImageSet, index: int) -> str:
    """Split or class folder and file name; for an image in a table its row."""
    where = images.where(index)
    return "/".join(Path(where).parts[-3:]) if where.endswith(images.names[index]) else where


# The probes ----------------------------------------------------------------------------------------------------------


@dataclass
class Found:
    """protocols: what is kept, by protocol. seconds: of all fits. The others are of the ridge on all training images,
    None where it was not asked for: scores float64 [test, K], and the head; with classes predicted int64 [test],
    probabilities float64 [test, K].
    """

    protocols: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    head: Head | None = None
    scores: np.ndarray | None = None
    predicted: np.ndarray | None = None
    probabilities: np.ndarray | None = None


def probe(model: Model, sets: Sets, taken: Taken, config: Config) -> Found:
    """Every probe that was asked for, on features that were taken."""
    start = time.perf_counter()
    # all of them as they are: a mask would copy the features of a large set
    keep = slice(None) if sets.keep.all() else sets.keep
    rows, part = taken.features["train"][keep], sets.train.take(sets.keep)
    labels, queries, truth = part.targets, taken.features["test"], sets.test.targets
    needs = config.select == "split" or "logistic" in config.protocol
    aside = _aside(sets, part, rows, taken, config.seed) if needs else None
    found = Found()
    protocols = found.protocols
    if "all" in config.protocol:
        protocols["all"] = _all_images(found, model, sets, part, rows, queries, aside, config)
    if sets.task == "classes":
        classes = len(sets.names)
        if "few-shot" in config.protocol:
            draws = shots.draw(labels, config.shots, config.draws, config.seed)
            own = rows[draws.used]
            chosen = shots.with_chosen_lambda(draws, own, labels, queries, truth, str(model.choice.device))
            fixed = shots.with_fixed_lambda(draws, own, labels, queries, truth)
            protocols["few-shot"] = {"chosen": chosen and chosen.as_json(), "fixed": fixed.as_json()}
            protocols["few-shot"]["short"] = {str(k): count for k, count in draws.short.items()}
        if "knn" in config.protocol:
            near = others.nearest(rows, labels, queries, classes)
            protocols["knn"] = {str(k): _accuracy(predicted, truth, classes) for k, predicted in near.items()}
        if "logistic" in config.protocol:
            fit = others.logistic(rows, labels, aside.fitted, aside.rows, aside.targets, queries)
            protocols["logistic"] = _accuracy(fit.predicted, truth, classes)
            protocols["logistic"] |= {"c": fit.c, "losses": list(fit.losses.values()), "not_converged": fit.stopped}
    found.seconds = time.perf_counter() - start
    return found


def _accuracy(predicted: np.ndarray, truth: np.ndarray, classes: int) -> dict[str, Any]:
    measure = scores.accuracy(predicted, truth)
    return {**measure.as_json(), "balanced": scores.balanced_accuracy(predicted, truth, classes)}


@dataclass
class Aside:
    """A held-out split: fitted bool [n] of the training images; rows float32 [q, d] and targets that choose."""

    fitted: np.ndarray
    rows: np.ndarray
    targets: np.ndarray
    origin: str


def _aside(sets: Sets, part: Part, rows: np.ndarray, taken: Taken, seed: int) -> Aside:
    if sets.held_out:
        every = np.ones(len(part), bool)
        return Aside(every, taken.features["held out"], sets.held_out.targets, sets.held_out.split)
    groups = part.targets if sets.task == "classes" else np.zeros(len(part), int)
    chosen = stratified(groups, HELD_OUT, [seed, 1])
    return Aside(~chosen, rows[chosen], part.targets[chosen], f"{HELD_OUT:.0%} of the training images")


def _all_images(
    found: Found,
    model: Model,
    sets: Sets,
    part: Part,
    rows: np.ndarray,
    queries: np.ndarray,
    aside: Aside | None,
    config: Config,
) -> dict[str, Any]:
    """Ridge regression on all training images; fills in the arrays and the head, and returns what the row keeps."""
    classes, count = sets.task == "classes", len(sets.names)
    by = "correct" if classes else "squared_error"
    device = str(model.choice.device)
    path = _fit(rows, part.targets, count, device)
    try:
        lambdas = tuple(sorted(config.lambdas)) or path.lambdas(LAMBDAS)
    except ValueError as error:
        raise UserError(f"{model.title} on {sets.title}: {error}; it cannot tell them apart") from error
    # Lambda: by the fits without one image each, or by images that were not fitted; then all images are fitted with it.
    if config.select == "loo":
        outcome = path.leave_one_out(gram.blocks(rows, part.targets), lambdas)
        best = outcome.best(by)
        losses = 1 - outcome.correct / outcome.rows if classes else outcome.squared_error.sum(1) / outcome.rows
    else:
        fitted = path if aside.fitted.all() else _fit(rows[aside.fitted], part.targets[aside.fitted], count, device)
        losses = np.array([_loss(fitted, lambda_, aside, classes) for lambda_ in lambdas])
        best = int(np.flatnonzero(losses <= losses.min() * (1 + 1e-9)).max())  # of equally good ones the largest
    lambda_ = lambdas[best]
    weights, bias = (x.cpu().numpy() for x in path.weights(lambda_))
    identity = model.encoder.identity
    about = About(
        format=FORMAT,
        task=sets.task,
        names=sets.names,
        model=model.name,
        revision=identity.revision,
        weights_sha256=identity.weights_sha256,
        preprocessing=identity.preprocessing,
        transform=config.transform,
        pool=config.pool,
        dtype=model.choice.dtype_name,
        lambda_=lambda_,
        temperature=0.0,
        data=sets.name,
        train_images=len(part),
        train_fingerprint=part.images.fingerprint,
    )
    head = found.head = Head(weights, bias, about)
    found.scores = head.scores(queries)
    kept = {
        "lambda": lambda_,
        "select": "leave-one-out"
        if config.select == "loo"
        else f"{'accuracy' if classes else 'squared error'} on {aside.origin}",
        "lambdas": list(lambdas),
        "losses": losses.tolist(),
        "at_edge": len(lambdas) > 1 and best in (0, len(lambdas) - 1),
    }
    return kept | _test_scores(found, sets, path, part, rows, config.seed)


def _fit(rows: np.ndarray, targets: np.ndarray, count: int, device: str) -> gram.Path:
    sums = gram.Sums(rows.shape[1], count, device)
    for block, some in gram.blocks(rows, targets):
        sums.add(block, some)
    return sums.solve()


def _loss(path: gram.Path, lambda_: float, aside: Aside, classes: bool) -> float:
    weights, bias = (x.cpu().numpy() for x in path.weights(lambda_))
    values = aside.rows.astype(np.float64) @ weights + bias
    if classes:
        return float((_best(values) != aside.targets).mean())
    return float(((values - aside.targets) ** 2).sum(1).mean())


def _best(values: np.ndarray) -> np.ndarray:
    """int64 [n]: the class of the largest score; what only rounding tells apart goes to the lower class."""
    import torch

    return predict(torch.from_numpy(values))[0].numpy()


def _test_scores(found: Found, sets: Sets, path: gram.Path, part: Part, rows: np.ndarray, seed: int) -> dict[str, Any]:
    """What the test images say of the head; with classes the head also learns how sure it may be."""
    truth, head = sets.test.targets, found.head
    if sets.task == "labels":
        each = scores.average_precisions(found.scores, truth > 0.5)[0]
        measure = scores.mean_average_precision(found.scores, truth > 0.5, seed)
        return measure.as_json() | {"per_name": each.tolist()}
    if sets.task == "number":
        measure = scores.r2(found.scores, truth, seed)
        error = np.sqrt(((found.scores - truth) ** 2).mean(0))
        return measure.as_json() | {"rmse": error.tolist()}
    classes = len(sets.names)
    some = np.random.default_rng([seed, 2]).permutation(len(part))[:CALIBRATED_ON]
    without = path.left_out(rows[some], part.targets[some], [head.about.lambda_])[0].cpu().numpy()
    head.about.temperature = scores.fit_temperature(without, part.targets[some])
    found.predicted, found.probabilities = _best(found.scores), head.probabilities(found.scores)
    return _accuracy(found.predicted, truth, classes) | {
        "per_name": scores.recalls(found.predicted, truth, classes).tolist(),
        "ece": scores.reliability(found.probabilities, truth).ece,
        "temperature": head.about.temperature,
    }
