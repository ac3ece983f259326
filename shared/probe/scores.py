"""What is counted: accuracy and its interval, balanced accuracy, calibration, mean average precision, R2.

All functions take numpy arrays. Accuracies and shares are between 0 and 1; the tables print them in %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shared.verdict import wilson

BINS = 15  # of the reliability figure and the calibration error
RESAMPLES = 200  # of the test images, for the interval of a measure that is no count


@dataclass(frozen=True)
class Measure:
    """A value with its 95 % interval; both None where there is nothing to measure."""

    name: str
    value: float
    low: float
    high: float

    def as_json(self) -> dict:
        return {"measure": self.name, "value": self.value, "low": self.low, "high": self.high}

    def cell(self, percent: bool = True) -> str:
        """`81.4 [79.9, 82.8]`: in %, or as it is."""
        scale, digits = (100, 1) if percent else (1, 3)
        low, high = (f"{scale * v:.{digits}f}" for v in (self.low, self.high))
        return f"{scale * self.value:.{digits}f} [{low}, {high}]"


def accuracy(predicted: np.ndarray, labels: np.ndarray) -> Measure:
    """Share of int64 [n] that is right, with Wilson's interval: how far the size of the test set alone moves it."""
    right = int((predicted == labels).sum())
    return Measure("accuracy", right / len(labels), *wilson(right, len(labels)))


def recalls(predicted: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """float64 [classes]: the share of each class's images that is right; nan for a class without test images."""
    there = np.bincount(labels, minlength=classes)
    right = np.bincount(labels[predicted == labels], minlength=classes)
    return np.divide(right, there, out=np.full(classes, np.nan), where=there > 0)


def balanced_accuracy(predicted: np.ndarray, labels: np.ndarray, classes: int) -> float:
    """The mean of the classes' own accuracies: a large class counts no more than a small one."""
    return float(np.nanmean(recalls(predicted, labels, classes)))


def confusion(predicted: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """int64 [classes, classes]: images of the row's class that were taken for the column's."""
    return np.bincount(labels * classes + predicted, minlength=classes * classes).reshape(classes, classes)


# Probabilities -------------------------------------------------------------------------------------------------------


def softmax(scores: np.ndarray, temperature: float) -> np.ndarray:
    """float64 [n, K] probabilities of scores divided by the temperature."""
    scaled = scores / temperature
    scaled -= scaled.max(1, keepdims=True)
    np.exp(scaled, out=scaled)
    return scaled / scaled.sum(1, keepdims=True)


def fit_temperature(scores: np.ndarray, labels: np.ndarray) -> float:
    """The temperature at which the labels of images that were not fitted are likeliest (scores [n, K], labels [n])."""
    from scipy.optimize import minimize_scalar

    top = scores.max(1)
    margin, own = scores - top[:, None], scores[np.arange(len(labels)), labels] - top

    def surprise(log_temperature: float) -> float:
        t = np.exp(log_temperature)
        return float(np.log(np.exp(margin / t).sum(1)).mean() - own.mean() / t)

    scale = max(float(scores.std()), 1e-6)
    found = minimize_scalar(surprise, bounds=(np.log(1e-3 * scale), np.log(1e3 * scale)), method="bounded")
    return float(np.exp(found.x))


@dataclass(frozen=True)
class Reliability:
    """How sure the probe was and how often it was right, by bins of confidence; ece is the mean gap, weighted."""

    confidence: np.ndarray  # float64 [bins], mean of the largest probability; nan for an empty bin
    right: np.ndarray  # float64 [bins], share that is right
    images: np.ndarray  # int64 [bins]
    ece: float


def reliability(probabilities: np.ndarray, labels: np.ndarray) -> Reliability:
    """Of float64 [n, K] and int64 [n]; the expected calibration error with bins of equal width."""
    sure, right = probabilities.max(1), probabilities.argmax(1) == labels
    which = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    images = np.bincount(which, minlength=BINS)
    empty = np.full(BINS, np.nan)
    confidence = np.divide(np.bincount(which, sure, BINS), images, out=empty.copy(), where=images > 0)
    share = np.divide(np.bincount(which, right, BINS), images, out=empty.copy(), where=images > 0)
    ece = float(np.nansum(np.abs(confidence - share) * images) / len(labels))
    return Reliability(confidence, share, images, ece)


# Several labels an image, and numbers ---------------------------------------------------------------------------------


def average_precisions(scores: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """float64 [resamples, K]: each label's average precision; nan for one that no image has.

    scores float64 [n, K]; targets bool [n, K]; weights float64 [resamples, n], how often an image counts (default: each
    once). The mean, over the images that have the label, of the share of right ones among those ranked as high. Images
    of equal score stand on one place.
    """
    weights = np.ones((1, len(scores))) if weights is None else weights
    result = np.full((len(weights), scores.shape[1]), np.nan)
    for k in range(scores.shape[1]):
        order = np.argsort(-scores[:, k], kind="stable")
        ranked, w = scores[order, k], weights[:, order]
        has = w * targets[order, k]
        last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))  # the end of each group of equal scores
        found, seen = has.cumsum(1)[:, last], w.cumsum(1)[:, last]
        precision = np.divide(found, seen, out=np.zeros_like(found), where=seen > 0)
        gained = np.diff(found, axis=1, prepend=0)
        total = found[:, -1]
        result[:, k] = np.divide((precision * gained).sum(1), total, out=result[:, k].copy(), where=total > 0)
    return result


def mean_average_precision(scores: np.ndarray, targets: np.ndarray, seed: int) -> Measure:
    """mAP over the labels that a test image has, and its interval over resampled test images."""
    value = np.nanmean(average_precisions(scores, targets)[0])
    weights = _resampled(len(scores), seed)
    parts = [average_precisions(scores, targets, w[None])[0] for w in weights]
    with np.errstate(invalid="ignore"):
        again = [np.nanmean(part) for part in parts if not np.isnan(part).all()]
    return Measure("mAP", float(value), *_middle(again))


def r2(scores: np.ndarray, targets: np.ndarray, seed: int) -> Measure:
    """The share of the targets' variance that the scores explain, the mean over targets; below 0: worse than the mean.

    scores, targets: float64 [n, K]. The interval is over resampled test images.
    """
    weights = np.concatenate([np.ones((1, len(scores))), _resampled(len(scores), seed)])
    mean = (weights @ targets) / weights.sum(1, keepdims=True)
    spread = weights @ targets**2 - mean**2 * weights.sum(1, keepdims=True)
    error = weights @ (scores - targets) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(spread > 1e-12 * (1 + mean**2), 1 - error / spread, np.nan).mean(1)
    return Measure("R2", float(values[0]), *_middle(values[1:]))


def _resampled(n: int, seed: int) -> np.ndarray:
    """float64 [RESAMPLES, n]: how often each image is in a sample of n with replacement."""
    rng = np.random.default_rng([seed, n])
    return np.stack([np.bincount(rng.integers(0, n, n), minlength=n) for _ in range(RESAMPLES)]).astype(np.float64)


def _middle(values) -> tuple[float, float]:
    """The middle 95 %."""
    finite = np.asarray(values, np.float64)
    finite = finite[np.isfinite(finite)]
    low, high = np.percentile(finite, [2.5, 97.5]) if len(finite) else (np.nan, np.nan)
    return float(low), float(high)
