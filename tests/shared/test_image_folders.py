"""Class folders as people have them: spellings of splits, nested and hidden folders, links, zips, what is ignored."""

from __future__ import annotations

import os
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shared import folders
from shared.data import copies, load_images, load_test, load_two
from shared.errors import UserError
from shared.sources import ROLES, role


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PAPERS_CACHE", str(tmp_path / "cache"))


def png(seed: int) -> bytes:
    buffer = BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (4, 5, 3), np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def write(root: Path, *names: str) -> Path:
    """A file for each name, every one another image."""
    for name in names:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(hash(name) % 2**32) if file.suffix.lower() not in (".txt", ".heic") else b"text")
    return root


def two_by_two(*splits: str, above: str = "") -> list[str]:
    return [f"{above}{split}/{name}/{i}.png" for split in splits for name in ("cat", "dog") for i in range(2)]


# ------------------------------------------------------------------------------------------------ splits


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("train", "test"),
        ("Train", "Test"),
        ("TRAINING", "Testing"),
        ("train", "valid"),
        ("train", "val"),
        ("Training", "Validation"),
        ("train", "dev"),
        ("train", "Evaluation"),
        ("train_images", "test_images"),
        ("birds-train", "birds-test"),
        ("Trainset", "Testset"),
        ("trainset", "valset"),
    ],
)
def test_splits_are_found_in_the_hubs_spellings(tmp_path: Path, train: str, test: str) -> None:
    write(tmp_path / "x", *two_by_two(train, test))
    first, second = load_two(str(tmp_path / "x"))
    assert (first.split, second.split) == (train, test) and first.class_names == second.class_names == ["cat", "dog"]
    assert load_test(str(tmp_path / "x")).fingerprint == second.fingerprint != first.fingerprint


@pytest.mark.parametrize("folders", [("2019", "2020"), ("learn", "exam"), ("fold1", "fold2", "fold3")])
def test_folders_with_the_same_folders_inside_are_not_guessed_to_be_classes(tmp_path: Path, folders: tuple) -> None:
    name = str(write(tmp_path / "x", *two_by_two(*folders)))
    has = ", ".join(folders if folders[0] != "learn" else sorted(folders))
    for load in (load_two, load_test):
        with pytest.raises(UserError, match=f"It has {has}|it has {has}.*--split all reads every folder as a class"):
            load(name)
    first, second = load_two(name, train=folders[0], test=folders[1])
    assert (first.split, second.split) == folders[:2] and first.class_names == ["cat", "dog"]
    assert load_images(name, "all").class_names == sorted(folders)


def test_one_folder_inside_of_every_class_is_no_split(tmp_path: Path) -> None:
    write(tmp_path / "x", *(f"{c}/images/{i}.png" for c in ("cat", "dog") for i in range(2)))
    assert load_images(str(tmp_path / "x")).class_names == ["cat", "dog"]


def test_test_goes_before_validation_and_an_option_before_both(tmp_path: Path) -> None:
    name = str(write(tmp_path / "x", *two_by_two("train", "val", "Test")))
    assert load_two(name)[1].split == "Test" and load_two(name, test="validation")[1].split == "val"
    assert "splits found: Test, train, val" in load_two(name)[0].assumed()
    with pytest.raises(UserError, match="no split holdout; it has Test, train, val; name one of these: --split"):
        load_two(name, test="holdout")


def test_two_splits_of_one_meaning_are_not_guessed(tmp_path: Path) -> None:
    name = str(write(tmp_path / "x", *two_by_two("train", "val1", "val2")))
    with pytest.raises(UserError, match="validation may be any of val1, val2; name one"):
        load_two(name)
    assert load_two(name, test="val2")[1].split == "val2"


def test_splits_below_a_folder_around_all(tmp_path: Path) -> None:
    name = str(write(tmp_path / "x", *two_by_two("train", "test", above="archive/birds/")))
    first, second = load_two(name)
    assert len(first) == len(second) == 4 and "archive/birds/train" in first.source


@pytest.mark.parametrize("name", ["train", "Test", "val", "evaluation", "bullet-train"])
def test_a_class_may_be_called_as_a_split(tmp_path: Path, name: str) -> None:
    write(tmp_path / "x", f"{name}/1.png", "bus/1.png", "tram/1.png")
    assert load_images(str(tmp_path / "x")).class_ids == sorted(["bus", "tram", name])


def test_classes_that_are_all_called_as_splits_need_a_word(tmp_path: Path) -> None:
    name = str(write(tmp_path / "x", "train/1.png", "test/2.png"))
    with pytest.raises(UserError, match=r"test and train hold images and no class folders.*--split all"):
        load_images(name)
    assert load_images(name, "all").class_names == ["test", "train"]


def test_one_nested_folder_called_train_among_others_is_not_guessed(tmp_path: Path) -> None:
    name = str(write(tmp_path / "x", "train/freight/1.png", "bus/1.png", "tram/1.png"))
    with pytest.raises(UserError, match=r"is train a split or a class\? Beside it are bus, tram; --split all"):
        load_two(name)
    assert len(load_two(name, train="all")[0].class_names) == 3


def test_splits_inside_of_the_classes_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "x", *(f"{c}/{s}/1.png" for c in ("cat", "dog") for s in ("train", "test")))
    with pytest.raises(UserError, match=r"test and train lie inside of the class folders; .*test/cat/\.\.\."):
        load_images(str(tmp_path / "x"))


def test_a_test_split_without_class_folders_is_told(tmp_path: Path) -> None:
    name = str(write(tmp_path / "x", *two_by_two("train"), "test/1.png", "test/2.png"))
    first, second = load_two(name)
    assert first is second and any("2 in a split without class folders" in line for line in first.assumed())


WORDS = [word for words in ROLES.values() for word in words]


@given(st.sampled_from(WORDS), st.sampled_from("-._ 0"), st.text("bcx", min_size=1, max_size=4), st.booleans())
def test_a_splits_word_counts_whole_in_any_case(word: str, between: str, other: str, upper: bool) -> None:
    word = word.upper() if upper else word
    assert role(word) == role(f"{other}{between}{word}") == role(f"{word}{between}{other}") is not None
    assert role(f"x{word}x") is role(other) is None


# ------------------------------------------------------------------------------------------------ what is ignored


def test_what_is_no_image_is_counted_and_named(tmp_path: Path) -> None:
    root = write(tmp_path / "x", "cat/1.PNG", "cat/deep/2.Png", "dog/1.jpeg", "cat/.ipynb_checkpoints/1.png")
    write(root, "cat/a.heic", "cat/b.HEIC", "dog/notes.txt", "dog/nosuffix", "__MACOSX/cat/1.png", "cat/deep/.x.png")
    os.symlink("/nowhere/at/all.png", root / "dog/gone.png")
    os.symlink(root / "dog", root / "dog/again")
    os.mkfifo(root / "dog/pipe.png")
    images = load_images(str(root))
    assert images.labels.tolist() == [0, 0, 1] and images.names == ["1.PNG", "2.Png", "1.jpeg"]
    (line,) = images.notes
    for part in (
        "2 .heic (not an image suffix), e.g. cat/a.heic",
        "1 .txt (not an image suffix)",
        "1 without a suffix, e.g. dog/nosuffix",
        "3 hidden, e.g. __MACOSX",
        "1 dangling link, e.g. dog/gone.png",
        "1 link to a folder above it, e.g. dog/again",
        "1 not a regular file, e.g. dog/pipe.png",
    ):
        assert part in line


def test_links_to_folders_and_files_are_followed(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", "1.png", "2.png")
    root = write(tmp_path / "x", "cat/1.png")
    os.symlink(tmp_path / "elsewhere", root / "dog")
    os.symlink(tmp_path / "elsewhere/1.png", root / "cat/2.png")
    images = load_images(str(root))
    assert images.labels.tolist() == [0, 0, 1, 1]
    assert copies(images.subset([1]), images.subset([2, 3])).tolist() == [0]


def test_images_outside_of_the_classes_are_told(tmp_path: Path) -> None:
    images = load_images(str(write(tmp_path / "x", "cat/1.png", "dog/1.png", "cover.png")))
    assert len(images) == 2 and images.notes == ["ignored: 1 outside of the class folders, e.g. cover.png"]


def test_a_class_of_nothing_but_other_files_says_which(tmp_path: Path) -> None:
    write(tmp_path / "x", "cat/1.png", "dog/1.heic")
    with pytest.raises(UserError, match=r"no images in dog .*ignored: 1 \.heic"):
        load_images(str(tmp_path / "x"))


@pytest.mark.parametrize("suffix", [".eps", ".pdf", ".svg", ".psd"])
def test_documents_are_no_images(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / "x", "cat/1.png", "dog/1.png")
    (tmp_path / "x/dog/2").with_suffix(suffix).write_bytes(b"%!PS")
    assert len(load_images(str(tmp_path / "x"))) == 2


def test_a_file_too_large_for_an_image_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = load_images(str(write(tmp_path / "x", "cat/1.png", "dog/1.png")))
    monkeypatch.setattr(folders, "LARGEST", 10)
    with pytest.raises(UserError, match=r"cat/1\.png: \d+ bytes are no image"):
        images.image(0)


def test_a_file_that_vanishes_is_named(tmp_path: Path) -> None:
    images = load_images(str(write(tmp_path / "x", "cat/1.png", "dog/1.png")))
    (tmp_path / "x/dog/1.png").unlink()
    with pytest.raises(UserError, match=r"dog/1\.png: cannot be read \(No such file.*it was there at the start"):
        images.image(1)


# ------------------------------------------------------------------------------------------------ zips


def test_a_zip_reads_as_its_folder(tmp_path: Path) -> None:
    names = [*two_by_two("Train", "test", above="photos/"), "__MACOSX/photos/Train/cat/._1.png", "photos/notes.txt"]
    root = write(tmp_path / "x", *names)
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in names:
            archive.write(root / name, name)
    for of_zip, of_folder in zip(load_two(str(tmp_path / "x.zip")), load_two(str(root)), strict=True):
        assert of_zip.fingerprint == of_folder.fingerprint and of_zip.split == of_folder.split
    assert list(tmp_path.glob("*")) and "x.zip: photos/Train/cat/0.png" in of_zip.where(0).replace("test", "Train")


def test_a_damaged_zip_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"PK\3\4 nothing more")
    with pytest.raises(UserError, match=r"x\.zip: not a readable zip"):
        load_images(str(tmp_path / "x.zip"))
    with zipfile.ZipFile(tmp_path / "y.zip", "w") as archive:
        for name in ("cat/1.png", "dog/1.png"):
            archive.writestr(name, png(1))
    content = bytearray((tmp_path / "y.zip").read_bytes())
    content[60] ^= 255
    (tmp_path / "y.zip").write_bytes(content)
    with pytest.raises(UserError, match=r"y\.zip: cat/1\.png: cannot be read"):
        load_images(str(tmp_path / "y.zip")).image(0)


# ------------------------------------------------------------------------------------------------ one list of classes


def test_a_class_in_one_split_only_is_refused_by_name(tmp_path: Path) -> None:
    name = str(write(tmp_path / "x", *two_by_two("train", "test"), "train/owl/1.png"))
    with pytest.raises(UserError, match="'owl' only in train; give both the same classes"):
        load_two(name)


def test_spellings_of_a_class_are_one_across_splits(tmp_path: Path) -> None:
    name = str(
        write(tmp_path / "x", "train/Blue_Tit/1.png", "train/wren/1.png", "test/wren/1.png", "test/blue tit/1.png")
    )
    first, second = load_two(name)
    assert first.class_names == second.class_names == ["blue tit", "wren"]
