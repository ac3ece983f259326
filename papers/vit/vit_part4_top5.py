"""Top-1 and top-5 over all 1,000 ImageNet classes on Imagenette, and what one such number hides.

    python vit_part4_top5.py                                               network; a GPU: minutes, a laptop: an hour
    python vit_part4_top5.py --config ../../configs/vit/top5-offline.toml  EfficientNet-Lite0 from its wheel: minutes
    python vit_part4_top5.py --models timm:resnet18.a1_in1k --gallery all  any ImageNet-1k classifier, contact sheets

Expected on the 160-pixel images: ViT-B/16 83.13 % and 96.66 %, ViT-L/16 84.92 % and 97.63 %, ResNet-50 79.36 % and
95.95 %. The article's command list speaks of four classifiers, its text and its log have three; the fourth here is
google/bit-50, for which nothing is printed. Writes results/vit/top5.{log,json} (or the name in the config).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from shared import cli
from shared.errors import UserError
from shared.record import Record

if TYPE_CHECKING:
    from papers.vit.top5_run import Classifier
    from shared.data import ImageSet


@dataclass
class Config(cli.Common):
    models: tuple[str, ...] = (
        "google/vit-base-patch16-224",
        "google/vit-large-patch16-224",
        "microsoft/resnet-50",
        "google/bit-50",
    )
    """classifiers: hub names or folders, timm:<name>, wheel:<name>"""
    data: str = "imagenette"
    """imagenette, or a folder whose sub-folders are wnids (n01440764)"""
    split: str = ""
    """default: validation of imagenette, all of a folder"""
    data_root: Path | None = None
    """mirror of the image sets (default: PAPERS_DATA)"""
    ways: tuple[Literal["own", "squash", "crop"], ...] = ("own", "squash", "crop")
    """how the images enter; the first one makes the headline"""
    gallery: Literal["eight", "all", "none"] = "eight"
    """eight: the drawn images with five guesses; all: also a contact sheet a class of what stayed wrong"""
    gallery_of: str = "google/vit-large-patch16-224"
    """whose images are drawn and shown; the first model where this one is not run"""
    seed: int = 3
    """of the draw"""
    stands_for: str = ""
    """the article's model that the first model stands in for: its lines become `not comparable`"""
    device: str = "auto"
    dtype: str = "auto"
    cache: bool = True
    """keep logits on disk for the next run"""
    experiment: str = "top5"
    """name of the log and the JSON in the results folder"""


def main(config: Config) -> Record | None:
    from papers.vit.top5_report import tell
    from shared.device import rank_and_world

    if rank_and_world()[0] != 0:  # under torchrun one process writes
        measure(config)
        return None
    with Record(
        "vit", config.experiment, config=config, results=config.results,
        question="How many top-1 errors on ImageNet classes have the label among the five best guesses, and what else "
        "does one accuracy hide?",
    ) as record:  # fmt: skip
        record.seed = config.seed
        tell(record, config, *measure(config))
    return record


def measure(config: Config) -> tuple[list[Classifier], list[ImageSet], list[str]]:
    """The classifiers with their scores, the image sets, and what the extraction had to say."""
    from papers.vit import top5_run
    from shared.data import load_images
    from shared.device import choose

    if not config.models or not config.ways:
        raise UserError("models and ways: at least one of each is needed; leave the option out for the defaults")
    imagenette = config.data in ("imagenette", "frgfm/imagenette")
    split = config.split or ("validation" if imagenette else "all")
    sets = [load_images(config.data, split, root=config.data_root)]
    if imagenette and split == "validation":
        sets.append(load_images(config.data, "ilsvrc_val", root=config.data_root))
    choice = choose(config.device, config.dtype)
    runner = top5_run.Runner(choice, cache=config.cache)
    found = [runner.open(spec, sets[0], config.ways[0]) for spec in config.models]
    total = sum(map(len, sets))
    top5_run.announce(
        f"{len(found)} classifier(s), {len(config.ways)} way(s) in, {total:,} images: up to "
        f"{len(found) * len(config.ways) * total:,} forward passes on {choice.name} in {choice.dtype_name}, "
        "less what is cached"
    )
    for classifier in found:
        runner.run(classifier, config.ways, sets)
    return found, sets, runner.notes


if __name__ == "__main__":
    cli.run(main, Config)
