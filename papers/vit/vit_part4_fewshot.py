"""Few-shot linear accuracy of frozen models: the closed form by hand, then models x data sets x shots, judged.

    python vit_part4_fewshot.py                               the article's seven models: network; a GPU: minutes
    python vit_part4_fewshot.py --config configs/vit/fewshot-offline.toml  two models out of wheels: CPU, minutes
    python vit_part4_fewshot.py --config configs/vit/fewshot-demo.toml     embedded digits, one model: a minute
    python vit_part4_fewshot.py --models timm:resnet18.a1_in1k --data ~/images --experiment mine
    torchrun --nproc-per-node 8 vit_part4_fewshot.py                  several GPUs share the images

Expected on the article's data: ViT-L/16 64.0 ± 3.3 % at 1-shot CIFAR-100 and 84.3 ± 0.3 % at 10-shot; 74.6 ± 3.0 % and
86.9 ± 0.2 % on Pets. A second run takes its features from the cache. Writes results/vit/<experiment>.{log,json}.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shared import cli
from shared.errors import UserError
from shared.record import Record

QUESTION = "How well does a linear map in closed form name images from a frozen model, given 1 to 10 examples a class?"


@dataclass
class Config(cli.Common):
    models: tuple[str, ...] = (
        "google/vit-base-patch32-224-in21k",
        "google/vit-base-patch16-224-in21k",
        "google/vit-large-patch32-224-in21k",
        "google/vit-large-patch16-224-in21k",
        "google/vit-huge-patch14-224-in21k",
        "google/bit-50",
        "microsoft/resnet-50",
    )
    """encoders: hub names or folders, timm:<name>, wheel:<name>"""
    data: tuple[str, ...] = ("cifar100", "pets")
    """cifar100, pets, cifar10, imagenette, digits, <owner>/<name> on the hub, or a folder with a sub-folder a class"""
    data_root: Path | None = None
    """mirror of the image sets (default: PAPERS_DATA)"""
    protocol: Literal["article", "big_vision", "both"] = "both"
    """article: raw features, lambda chosen; big_vision: standardised, bias, lambda 2^10"""
    shots: tuple[int, ...] = (1, 2, 5, 10)
    """images a class, article's protocol"""
    draws: int = 5
    """random draws for each k, article's protocol"""
    lambdas: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4)
    """penalties to choose from, article's protocol"""
    seed: int = 0
    """chooses test, selection and pool images and the draws"""
    pool: int = 20
    """training images a class that draws are taken from"""
    selection: int = 5
    """other training images a class, to choose lambda"""
    test: int | None = None
    """test images a class (default: 10 for cifar100, 30 for pets, else up to 30)"""
    big_vision_shots: tuple[int, ...] = (1, 5, 10, 25)
    """images a class, big_vision's protocol"""
    big_vision_seeds: int = 3
    """seeds 0, 1, ... of big_vision's protocol"""
    precision_model: str = "google/vit-huge-patch14-224-in21k"
    """whose features are compared with float32 ones; the last model of the run where this one is not in it"""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps"""
    dtype: str = "auto"
    """auto, fp16, bf16 or fp32"""
    compile: bool = False
    """compile the models: minutes first, then faster"""
    experiment: str = "fewshot"
    """name of the log and the JSON"""


def main(config: Config) -> Record:
    check(config)
    from papers.vit import fewshot_lines as lines
    from papers.vit import fewshot_report as report
    from papers.vit import fewshot_run as run
    from papers.vit.fewshot_split import Sizes
    from shared import device, published

    rank, _ = device.rank_and_world()
    numbers = published.load("vit", "fewshot")
    with Record(
        "vit", config.experiment, config=config, question=QUESTION, results=config.results, quiet=rank > 0
    ) as record:
        record.seed = config.seed
        text, tiny = lines.tiny_example()
        record.say("\n".join(text))

        choice = device.choose(config.device, config.dtype)
        if config.compile and choice.device.type == "cpu":
            device.require_compiler("--compile")
        article = config.lambdas if config.protocol != "big_vision" else ()
        authors = config.big_vision_shots if config.protocol != "article" else ()
        sizes = Sizes(config.pool, config.selection, config.test)
        data = [
            run.open_data(name, config.data_root, sizes, config.shots, config.draws, config.seed, authors,
                          config.big_vision_seeds)
            for name in config.data
        ]  # fmt: skip
        models = [run.open_model(spec, choice, compile=config.compile) for spec in config.models]
        run.name_apart(models, data)
        if rank == 0:
            images = sum(len(d.used) + len(d.test) for d in data)
            print(f"features of {images:,} images with each of {len(models)} models, unless cached", file=sys.stderr)
        notes: list[str] = []
        wanted = {"article": article, "big_vision": authors} if rank == 0 else {"article": (), "big_vision": ()}
        for model in models:
            for d in data:
                run.measure(model, d, **wanted, notes=notes)
        precision = next((m for m in models if m.spec == config.precision_model), models[-1])
        cosines = run.precision(precision, data[0])
        if rank > 0:
            raise SystemExit(0)  # the first process prints and writes

        report.article_part(record, models, data, config.shots, authors)
        same = report.breeds(record, data)
        record.say()
        record.say(
            "\n".join(
                lines.precision_lines(precision.title, data[0].title, precision.choice.dtype_name,
                                      precision.choice.device.type, cosines)
            )
        )  # fmt: skip
        record.results["precision"] = {"model": precision.spec, "data": data[0].title,
                                       "dtype": precision.choice.dtype_name, "cosine": cosines}  # fmt: skip

        report.origin(record, models, data, notes, choice)
        report.article_details(record, models, data, config.shots, config.lambdas)
        report.both(record, models, data, config.shots, authors)
        report.judge(
            record, numbers, models, data, config.shots, tiny, same, (precision, cosines), not_the_articles(config)
        )
        record.print_verdicts()
        report.stand_ins(record, models, data, config.shots)
        record.cannot_show(
            "no JFT-300M and no fine-tuning; the test sets are small, and all draws of a data set are scored on the "
            "same test images, so the spread over draws leaves out the test set's own error, given beside it. The "
            "checkpoints are released ones, not the paper's runs."
        )
    return record


def not_the_articles(config: Config) -> str | None:
    """The options that make lambda, and so the accuracies, another quantity than the article's; None where none does.

    Fewer draws, another seed or test size measure the same quantity; the tolerance knows them.
    """
    options = ("shots", "lambdas", "pool", "selection")
    changed = [f"--{o}" for o in options if _set(getattr(config, o)) != _set(getattr(Config, o))]
    return f"not the article's protocol: {', '.join(changed)} differ from its values" if changed else None


def _set(value: int | tuple[float, ...]) -> int | set[float]:
    """The order of an option's values means nothing."""
    return set(value) if isinstance(value, tuple) else value


def check(config: Config) -> None:
    """UserError for values that cannot mean anything, before torch is imported."""
    expected = {
        "--models": (config.models, "at least one model"),
        "--data": (config.data, "at least one data set"),
        "--shots": (config.shots and min(config.shots) >= 1, "whole numbers from 1"),
        "--draws": (config.draws >= 1, "at least 1"),
        "--lambdas": (config.lambdas and all(0 < x < float("inf") for x in config.lambdas), "numbers above 0"),
        "--pool": (config.pool >= 1, "at least 1"),
        "--selection": (config.selection >= 1, "at least 1"),
        "--test": (config.test is None or config.test >= 1, "at least 1"),
        "--seed": (config.seed >= 0, "0 or more"),
        "--big-vision-shots": (config.big_vision_shots and min(config.big_vision_shots) >= 1, "whole numbers from 1"),
        "--big-vision-seeds": (config.big_vision_seeds >= 1, "at least 1"),
    }
    for option, (holds, what) in expected.items():
        if not holds:
            value = getattr(config, option[2:].replace("-", "_"))
            raise UserError(f"{option} {value}: expected {what}")
    for option in ("models", "data", "shots", "lambdas", "big_vision_shots"):
        values = getattr(config, option)
        if len(set(values)) < len(values):
            raise UserError(f"--{option.replace('_', '-')} {values}: one value stands twice; name each once")
    if config.protocol != "big_vision" and max(config.shots) > config.pool:
        raise UserError(f"--shots {max(config.shots)}: the pool has {config.pool} images a class; raise --pool")


if __name__ == "__main__":
    cli.run(main, Config)
