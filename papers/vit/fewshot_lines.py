"""The few-shot log's lines: those of the article in its own format, then the suite's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from papers.vit.fewshot_protocols import Outcome
from shared import ridge

NAME = 24  # width of the article's first column; longer names widen it


def tiny_example() -> tuple[list[str], dict[str, str]]:
    """Section 1, and its matrices as printed, by the published file's ids."""
    x, labels, penalty = np.array([[1.0, 0.0], [2.0, 1.0], [0.0, 2.0], [1.0, 3.0]]), np.array([0, 0, 1, 1]), 1.0
    y, new = ridge.targets(labels, 2).numpy(), np.array([1.0, 2.0])
    w = ridge.weights(x, labels, 2, penalty).numpy()
    scores = ridge.Pool(x, labels, 2, new[None]).scores(range(4), [penalty])[0, 0]
    printed = {"X^T X": x.T @ x, "X^T Y": x.T @ y, "W": w, "scores": scores}
    text = {name: str(np.round(a, 6).tolist()) for name, a in printed.items()}
    regular = (x.T @ x + penalty * np.eye(2)).tolist()
    lines = [
        "== 1. the few-shot closed form on a tiny example: 4 images, 2 features, 2 classes, lambda = 1 ==",
        f"  X (one row per image) = {x.tolist()}   classes {labels.tolist()}",
        f"  Y (targets in {{-1, 1}}) = {y.tolist()}",
        f"  X^T X = {text['X^T X']}   + lambda I = {regular}",
        f"  X^T Y = {text['X^T Y']}",
        f"  W = (X^T X + I)^-1 X^T Y = {text['W']}",
        f"  new image x = [1, 2]: scores x W = {text['scores']} -> class {int(scores.argmax())}",
    ]
    return lines, {f"tiny example/{name}": value for name, value in text.items()}


def cell(outcome: Outcome, k: int) -> str:
    """`53.9 ± 2.6`; without a spread where there is a single draw."""
    std = outcome.std(k)
    return f"{outcome.mean(k):.1f}" + (f" ± {std:.1f}" if std is not None else "")


def width(names: Sequence[str]) -> int:
    return max(NAME, *(len(name) + 1 for name in names))


def accuracy_table(
    title: str, classes: int, rows: list[tuple[str, int, Outcome]], shots: Sequence[int], show: Callable = cell
) -> list[str]:
    """A data set's table: a row is (model's name, dim, outcome)."""
    w = width([name for name, _, _ in rows])
    lines = [f"-- {title} ({classes} classes, chance = {100 / classes:.1f}%) --"]
    lines += [f"  {'model':<{w}}{'dim':>6}{'lambda':>8}" + "".join(f"{f'{k}-shot':>14}" for k in shots)]
    for name, dim, outcome in rows:
        cells = "".join(f"{show(outcome, k):>14}" for k in shots)
        lines.append(f"  {name:<{w}}{dim:>6}{outcome.penalty:>8g}" + cells)
    return lines


def breeds_line(same: list[str], breeds: int) -> str:
    return f"  {len(same)} of {breeds} breeds have an ImageNet-1k class of the same name: {', '.join(same)}"


def precision_lines(model: str, data: str, dtype: str, device: str, cosines: Sequence[float]) -> list[str]:
    """Section 4; `device` is the type that `dtype` was computed on."""
    where = "the CPU" if device == "cpu" else "the GPU"
    title = (
        f"== 4. does {dtype} change the features? {model} on {len(cosines)} {data} test pictures, {dtype} on {where} "
        "against float32 on the CPU =="
    )
    if dtype == "float32" and device == "cpu":
        return [title, "  float32 on the CPU is this run's own precision: nothing to compare"]
    values = ", ".join(f"{c:.6f}" for c in cosines)
    return [title, f"  cosine similarity {dtype} vs float32, per picture: {values}"]


def cosines(low: np.ndarray, full: np.ndarray) -> list[float]:
    """Cosine per row, computed in float64."""
    a, b = low.astype(np.float64), full.astype(np.float64)
    return ((a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))).tolist()


def selection_table(rows: list[tuple[str, Outcome]], penalties: Sequence[float]) -> list[str]:
    """Every lambda's mean accuracy on the selection images; the chosen one in brackets."""
    w = width([name for name, _ in rows])
    lines = [f"  {'model':<{w}}" + "".join(f"{p:>9g}" for p in penalties)]
    for name, outcome in rows:
        cells = [f"[{outcome.selection[p]:.2f}]" if p == outcome.penalty else f"{outcome.selection[p]:.2f} "
                 for p in penalties]  # fmt: skip
        lines.append(f"  {name:<{w}}" + "".join(f"{c:>9}" for c in cells))
    return lines


def side_by_side(rows: list[tuple[str, Outcome, Outcome]], shots: Sequence[int]) -> list[list[str]]:
    """model, k, article, big_vision, difference: one row a model and k, as text."""
    result = []
    for name, article, authors in rows:
        for k in shots:
            difference = f"{authors.mean(k) - article.mean(k):+.1f}"
            result.append([name, str(k), cell(article, k), cell(authors, k), difference])
    return result


def error_cell(outcome: Outcome, k: int) -> str:
    """`2.6 / 1.6`: spread over the draws, standard error of the test set."""
    std = outcome.std(k)
    return f"{'-' if std is None else f'{std:.1f}'} / {outcome.binomial(k):.1f}"


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Text columns: the first to the left, the others to the right."""
    widths = [max(len(line[i]) for line in [columns, *rows]) for i in range(len(columns))]
    return [
        "  "
        + "  ".join(f"{c:<{n}}" if i == 0 else f"{c:>{n}}" for i, (c, n) in enumerate(zip(line, widths, strict=True)))
        for line in [columns, *rows]
    ]
