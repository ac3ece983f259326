"""Image sets: hub-layout mirrors, folders, digits; fingerprints; what is missing is named."""

from __future__ import annotations

import hashlib
import json
import sys
import types
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from shared import data, sources
from shared.data import load_images, load_two
from shared.errors import UserError
from shared.sources import normal_name


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PAPERS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", fail)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", cached_nothing)


def cached_nothing(*_: object, **__: object) -> None:
    from huggingface_hub.errors import LocalEntryNotFoundError

    raise LocalEntryNotFoundError("not cached")


def forbidden(*_: object, **__: object) -> None:
    raise AssertionError("this must not be needed")


def image(seed: int, size: tuple[int, int] = (6, 5)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)


def png(pixels: np.ndarray) -> bytes:
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def write_parquet(
    file: Path,
    encoded: list[bytes | None],
    labels: dict[str, list],
    *,
    image: str = "image",
    names: dict[str, list[str]] | None = None,
    paths: list[str | None] | None = None,
    row_group: int = 4,
) -> None:
    """As the hub's `datasets` writes them."""
    paths = paths or [f"image-{i}.png" for i in range(len(encoded))]
    rows = [{"bytes": data, "path": path} for data, path in zip(encoded, paths, strict=True)]
    columns = {image: pa.array(rows, pa.struct({"bytes": pa.binary(), "path": pa.string()}))}
    columns |= {name: pa.array(values) for name, values in labels.items()}
    features = {name: {"names": values, "_type": "ClassLabel"} for name, values in (names or {}).items()}
    metadata = {"huggingface": json.dumps({"info": {"features": {image: {"_type": "Image"}, **features}}})}
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), file, row_group_size=row_group)


def write_pets(root: Path, count: int = 10, spelling: tuple[str, ...] = ("english_setter", "pug")) -> Path:
    file = root / "timm/oxford-iiit-pet/data/train-00000-of-00001.parquet"
    labels = {"label": [i % 2 for i in range(count)]}
    write_parquet(file, [png(image(i)) for i in range(count)], labels, names={"label": list(spelling)})
    return file


def write_folder(root: Path, counts: dict[str, int]) -> Path:
    for number, (name, count) in enumerate(counts.items()):
        (root / name).mkdir(parents=True)
        for i in range(count):
            (root / name / f"{i}.png").write_bytes(png(image(100 * number + i)))
    return root


# ------------------------------------------------------------------------------------------------ parquet mirrors


def test_rows_come_in_order_over_row_groups(tmp_path: Path) -> None:
    write_pets(tmp_path)
    pets = load_images("pets", root=tmp_path)
    assert (len(pets), pets.split, pets.class_names) == (10, "train", ["english setter", "pug"])
    assert pets.labels.dtype == np.int64 and pets.labels.tolist() == [0, 1] * 5
    assert pets.names[3] == "image-3.png"
    for i, j in [(0, 9), (9, 0), (4, 3)]:
        first, second = pets.batch([i, j])
        np.testing.assert_array_equal(first, image(i))
        np.testing.assert_array_equal(second, image(j))
    np.testing.assert_array_equal(pets.arrays(), np.stack([image(i) for i in range(10)]))
    assert pets.arrays().dtype == np.uint8


def test_the_mirror_comes_from_the_environment_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pets(tmp_path)
    monkeypatch.setenv("PAPERS_DATA", str(tmp_path))
    pets = load_images("timm/oxford-iiit-pet")
    assert len(pets) == 10 and str(tmp_path) in pets.source


def test_an_incomplete_copy_of_a_known_set_is_a_stand_in(tmp_path: Path) -> None:
    write_pets(tmp_path)
    assert load_images("pets", root=tmp_path).stand_in == "copy with 10 of 3,680 images"


@pytest.mark.parametrize(
    "spelling",
    [("english_setter", "pug"), ("English Setter", "Pug"), ("English  setter", "PUG"), (" English_Setter", "pug")],
)
def test_class_names_have_one_form(tmp_path: Path, spelling: tuple[str, str]) -> None:
    write_pets(tmp_path, spelling=spelling)
    pets = load_images("pets", root=tmp_path)
    assert pets.class_names == ["english setter", "pug"]
    assert pets.class_ids == list(spelling)


def test_hyphens_stay_in_class_names() -> None:
    assert normal_name("Black-and-tan_Coonhound") == "black-and-tan coonhound"


def test_cifar_columns(tmp_path: Path) -> None:
    labels = {"fine_label": [1, 0, 1], "coarse_label": [0, 2, 1]}
    names = {"fine_label": ["aquarium_fish", "baby"], "coarse_label": ["fish", "people", "trees"]}
    file = tmp_path / "uoft-cs/cifar100/cifar100/test-00000-of-00001.parquet"
    write_parquet(file, [png(image(i)) for i in range(3)], labels, image="img", names=names)
    fine = load_images("cifar100", "test", root=tmp_path)
    assert fine.labels.tolist() == [1, 0, 1] and fine.class_names == ["aquarium fish", "baby"]
    coarse = load_images("cifar100", "test", root=tmp_path, label="coarse_label")
    assert coarse.labels.tolist() == [0, 2, 1] and coarse.class_names == ["fish", "people", "trees"]
    with pytest.raises(UserError, match="no column fruit among img, fine_label, coarse_label"):
        load_images("cifar100", "test", root=tmp_path, label="fruit")


def test_several_files_and_text_labels_of_another_repository(tmp_path: Path) -> None:
    folder = tmp_path / "me/birds/default"
    for part in range(2):
        encoded = [png(image(10 * part + i)) for i in range(3)]
        labels = {"species": ["wren", "tit", "wren"]}
        file = folder / f"train-{part:05d}-of-00002.parquet"
        write_parquet(file, encoded, labels, paths=[None] * 3, image="photo")
    birds = load_images("me/birds", root=tmp_path, label="species")
    assert birds.class_names == ["tit", "wren"] and birds.labels.tolist() == [1, 0, 1] * 2
    np.testing.assert_array_equal(birds.image(4), image(11))
    assert "train-00001-of-00002.parquet row 1" in birds.where(4)
    assert len(set(birds.names)) == 6


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    file = tmp_path / "me/birds/data/train-00000-of-00002.parquet"
    write_parquet(file, [png(image(0))], {"label": [0]})
    with pytest.raises(UserError, match=r"me/birds/data/train-00001-of-00002\.parquet: missing"):
        load_images("me/birds", root=tmp_path)


def test_a_missing_split_of_a_mirror_is_named(tmp_path: Path) -> None:
    write_pets(tmp_path)
    with pytest.raises(UserError, match=r"oxford-iiit-pet/data/test-00000-of-00001\.parquet: missing from the copy"):
        load_images("pets", "test", root=tmp_path)


def test_configurations_are_told_apart(tmp_path: Path) -> None:
    for name in ("small", "large"):
        write_parquet(tmp_path / f"me/birds/{name}/train.parquet", [png(image(len(name)))], {"label": [0]})
    with pytest.raises(UserError, match=r"several configurations .*large, small"):
        load_images("me/birds", root=tmp_path)
    np.testing.assert_array_equal(load_images("me/birds:small", root=tmp_path).image(0), image(5))


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    file = write_pets(tmp_path)
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(UserError, match=r"train-00000-of-00001\.parquet: not a readable parquet file"):
        load_images("pets", root=tmp_path)


def test_unreadable_rows_are_named(tmp_path: Path) -> None:
    whole = png(image(0, (40, 40)))
    file = tmp_path / "me/birds/train.parquet"
    write_parquet(file, [whole, whole[:900], None, whole], {"label": [0, 1, 0, 1]})
    birds = load_images("me/birds", root=tmp_path)
    with pytest.raises(UserError, match=r"train\.parquet row 1 \(image-1\.png\): not a readable image"):
        birds.batch([0, 1])
    with pytest.raises(UserError, match=r"row 2 \(image-2\.png\): no bytes"):
        birds.batch([2])
    np.testing.assert_array_equal(birds.image(3), image(0, (40, 40)))


def test_labels_outside_the_names_are_named(tmp_path: Path) -> None:
    file = tmp_path / "me/birds/train.parquet"
    write_parquet(file, [png(image(i)) for i in range(3)], {"label": [0, 2, 1]}, names={"label": ["tit", "wren"]})
    with pytest.raises(UserError, match=r"row 1 .*label 2, but the column label names 2 classes"):
        load_images("me/birds", root=tmp_path)


# ------------------------------------------------------------------------------------------------ not to be had


@pytest.mark.parametrize("name", ["cifar10", "pets", "me/birds"])
def test_without_mirror_and_network_one_line_says_what_to_set(unreachable: None, name: str) -> None:
    with pytest.raises(UserError, match=r"hub cannot be reached .*; set PAPERS_DATA or --data-root") as error:
        load_images(name)
    assert "\n" not in str(error.value)


def test_a_copy_in_the_hubs_cache_needs_no_network(
    unreachable: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    snapshot = tmp_path / "abc123"
    labels = {"label": [0, 1]}
    write_parquet(snapshot / "plain_text/test-00000-of-00001.parquet", [png(image(i)) for i in range(2)], labels)
    asked = []

    def snapshot_download(repository: str, **options: object) -> str:
        asked.append((repository, options["revision"], options["local_files_only"]))
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    cifar = load_images("cifar10", "test")
    assert asked == [("uoft-cs/cifar10", data.HUB_SETS["cifar10"].revision, True)]
    assert len(cifar) == 2 and cifar.source == "hub uoft-cs/cifar10 at abc123"


def test_a_wrong_revision_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import RevisionNotFoundError

    def fail(*_: object, **__: object) -> None:
        raise RevisionNotFoundError.__new__(RevisionNotFoundError)

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", fail)
    with pytest.raises(UserError, match="me/birds: the hub has no revision v9"):
        load_images("me/birds", revision="v9")


def test_imagenette_without_mirror_and_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no route")

    stand_in = types.SimpleNamespace(Imagenette=fail)  # importing the real one takes seconds
    monkeypatch.setitem(sys.modules, "torchvision", types.SimpleNamespace(datasets=stand_in))
    monkeypatch.setitem(sys.modules, "torchvision.datasets", stand_in)
    with pytest.raises(UserError, match=r"imagenette: cannot be downloaded \(no route\); set PAPERS_DATA"):
        load_images("imagenette", "val")


@pytest.mark.parametrize(
    ("name", "split", "message"),
    [
        ("cifar11", "train", "data set 'cifar11': expected cifar10"),
        ("a/b/c", "train", "data set 'a/b/c': no such folder or file"),
        ("../nope", "train", "data set '../nope': no such folder or file"),
        ("./nope", "train", "data set './nope': no such folder or file"),
        ("~/nope.zip", "train", "data set '~/nope.zip': no such folder or file"),
        ("/nope", "train", "data set '/nope': no such folder or file"),
        ("cifar10", "validation", "cifar10: no split validation; it has train, test"),
        ("digits", "val", "digits: no split val; it has train, test"),
    ],
)
def test_wrong_names_are_refused(name: str, split: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_images(name, split)


def test_a_data_root_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match="data root /no/such/place: no such folder"):
        load_images("cifar10", root=Path("/no/such/place"))


# ------------------------------------------------------------------------------------------------ torchvision


def test_imagenette_by_torchvision(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = cache / "imagenette/imagenette2-160"
    for part, files in {"train": ["ILSVRC2012_val_2", "n01_7"], "val": ["ILSVRC2012_val_1", "n01_3"]}.items():
        for number, wnid in enumerate(["n02102040", "n01440764"]):
            (home / part / wnid).mkdir(parents=True)
            for name in files:
                (home / part / wnid / f"{name}.JPEG").write_bytes(png(image(number)))
    counts = {"validation": 4, "ilsvrc_val": 4}
    monkeypatch.setattr(sources, "HUB_SETS", {"imagenette": sources.HubSet("frgfm/imagenette", "data", None, counts)})
    val = load_images("imagenette", "val")
    assert val.split == "validation" and val.stand_in is None
    assert val.class_ids == ["n01440764", "n02102040"] and val.class_names == ["tench", "english springer"]
    assert val.names == ["ILSVRC2012_val_1.JPEG", "n01_3.JPEG"] * 2 and val.labels.tolist() == [0, 0, 1, 1]
    unseen = load_images("imagenette", "ilsvrc_val")
    assert unseen.names == ["ILSVRC2012_val_1.JPEG", "ILSVRC2012_val_2.JPEG"] * 2
    (home / "val/n02102040/n01_3.JPEG").unlink()
    with pytest.raises(UserError, match=r"3 of 4 images of validation; delete the folder"):
        load_images("imagenette", "val")


# ------------------------------------------------------------------------------------------------ folders


def test_a_folder_with_one_subfolder_a_class(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "mine", {"wren": 2, "Blue_Tit": 3})
    (folder / ".hidden").mkdir()
    (folder / "wren" / "notes.txt").write_text("not an image", encoding="utf-8")
    birds = load_images(str(folder))
    assert (birds.split, birds.class_names, birds.class_ids) == ("all", ["blue tit", "wren"], ["Blue_Tit", "wren"])
    assert birds.labels.tolist() == [0, 0, 0, 1, 1] and birds.names == ["0.png", "1.png", "2.png", "0.png", "1.png"]
    np.testing.assert_array_equal(birds.image(4), image(1))
    with pytest.raises(UserError, match="no test/ in it"):
        load_images(str(folder), "test")


def test_a_folder_with_splits(tmp_path: Path) -> None:
    write_folder(tmp_path / "mine/train", {"a": 2, "b": 1})
    write_folder(tmp_path / "mine/test", {"a": 1, "b": 3})
    assert len(load_images(str(tmp_path / "mine"))) == 3
    assert load_images(str(tmp_path / "mine"), "test").labels.tolist() == [0, 1, 1, 1]
    with pytest.raises(UserError, match=r"no split val; it has test, train"):
        load_images(str(tmp_path / "mine"), "val")


def test_a_class_in_one_split_only_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path / "mine/train", {"a": 2, "b": 1, "c": 4})
    write_folder(tmp_path / "mine/test", {"a": 1, "b": 3})
    with pytest.raises(UserError, match=r"train has images of 3 classes and test of 2: 'c' only in train; give both"):
        load_two(str(tmp_path / "mine"))
    assert len(load_images(str(tmp_path / "mine"), "test")) == 4  # alone it is whole


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"a": 5}, "at least two classes are needed.* a: 5 images"),
        ({}, "at least two classes are needed.* no class folder"),
        ({"a": 5, "b": 0}, r"no images in b \(a: 5 images, b: 0 images\)"),
        ({"blue tit": 1, "Blue_Tit": 1}, "two class folders both read as 'blue tit'"),
    ],
)
def test_folders_that_make_no_data_set(tmp_path: Path, counts: dict[str, int], message: str) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(UserError, match=message):
        load_images(str(write_folder(tmp_path / "mine", counts)))


def test_images_of_several_sizes_make_no_array(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "mine", {"a": 1, "b": 1})
    (folder / "b" / "wide.png").write_bytes(png(image(7, (6, 9))))
    mine = load_images(str(folder))
    assert [p.shape for p in mine.batch(slice(None))] == [(6, 5, 3), (6, 5, 3), (6, 9, 3)]
    with pytest.raises(UserError, match=r"wide\.png: 9x6 pixels where the first image has 5x6"):
        mine.arrays()


# ------------------------------------------------------------------------------------------------ digits


def test_digits_need_nothing() -> None:
    train, test = load_images("digits"), load_images("digits", "test")
    assert (len(train), len(test)) == (1297, 500)
    assert train.arrays().shape == (1297, 8, 8, 3) and train.arrays().max() == 255
    assert np.bincount(train.labels).min() >= 125 and np.bincount(test.labels).min() >= 45
    assert train.stand_in
    assert not set(train.content_hashes()) & set(test.content_hashes())


# ------------------------------------------------------------------------------------------------ subsets, fingerprints


def test_a_subset_of_a_subset(tmp_path: Path) -> None:
    write_pets(tmp_path)
    pets = load_images("pets", root=tmp_path)
    part = pets.subset([7, 2, 9, 4]).subset([3, 1])
    assert part.names == ["image-4.png", "image-2.png"] and part.labels.tolist() == [0, 0]
    np.testing.assert_array_equal(part.image(0), image(4))
    assert "row 4" in part.where(0)
    assert len(pets.subset([])) == 0 and pets.subset([]).arrays().shape[0] == 0


def test_the_fingerprint_is_what_its_docstring_says(tmp_path: Path) -> None:
    write_pets(tmp_path, 3)
    expected = hashlib.sha256()
    for i in range(3):
        expected.update(hashlib.sha256(b"6x5\n" + image(i).tobytes()).digest() + (i % 2).to_bytes(8, "little"))
    assert load_images("pets", root=tmp_path).fingerprint == expected.hexdigest()


def test_the_fingerprint_sees_pixels_labels_and_order_but_not_the_container(tmp_path: Path) -> None:
    file = write_pets(tmp_path, 4)
    pets = load_images("pets", root=tmp_path)
    prints = [pets.fingerprint, pets.subset([1, 0, 2, 3]).fingerprint, pets.subset([0, 1, 2]).fingerprint]
    encoded = [png(image(i)) for i in range(4)]
    write_parquet(file, encoded, {"label": [0, 1, 0, 0]}, names={"label": ["english_setter", "pug"]})
    prints.append(load_images("pets", root=tmp_path).fingerprint)
    changed = image(3)
    changed[0, 0, 0] ^= 1
    write_parquet(
        file, [*encoded[:3], png(changed)], {"label": [0, 1, 0, 1]}, names={"label": ["english_setter", "pug"]}
    )
    prints.append(load_images("pets", root=tmp_path).fingerprint)
    assert len(set(prints)) == len(prints)
    webp = []
    for i in range(4):
        buffer = BytesIO()
        Image.fromarray(image(i)).save(buffer, "WEBP", lossless=True)
        webp.append(buffer.getvalue())
    write_parquet(file, webp, {"label": [0, 1, 0, 1]}, names={"label": ["English setter", "Pug"]}, row_group=2)
    assert load_images("pets", root=tmp_path).fingerprint == prints[0]


def test_a_fingerprint_known_from_an_earlier_run_needs_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pets(tmp_path)
    first = load_images("pets", root=tmp_path)
    some = first.subset([1, 2]).fingerprint
    monkeypatch.setattr(data, "decode", forbidden)
    assert load_images("pets", root=tmp_path).subset([1, 2]).fingerprint == some
    monkeypatch.undo()
    monkeypatch.setenv("PAPERS_CACHE", str(tmp_path / "cache"))
    whole = load_images("pets", root=tmp_path).fingerprint
    monkeypatch.setattr(data, "decode", forbidden)
    again = load_images("pets", root=tmp_path)
    assert again.fingerprint == whole and again.subset([1, 2]).content_hashes() == first.subset([1, 2]).content_hashes()


def test_a_damaged_hash_file_is_not_believed(tmp_path: Path, cache: Path) -> None:
    write_pets(tmp_path)
    expected = load_images("pets", root=tmp_path).fingerprint
    (file,) = (cache / "hashes").iterdir()
    content = bytearray(file.read_bytes())
    content[50] ^= 1
    file.write_bytes(content)
    assert load_images("pets", root=tmp_path).fingerprint == expected


def test_exact_duplicates_have_one_content_hash(tmp_path: Path) -> None:
    encoded = [png(image(i)) for i in (0, 1, 0)]
    write_parquet(tmp_path / "me/birds/train.parquet", encoded, {"label": [0, 1, 1]})
    hashes = load_images("me/birds", root=tmp_path).content_hashes()
    assert hashes[0] == hashes[2] != hashes[1]


def test_a_image_is_decoded_once_for_all_its_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pets(tmp_path)
    decoded: list[str] = []
    decode = data.decode

    def counted(content: bytes, where: str) -> np.ndarray:
        decoded.append(where)
        return decode(content, where)

    monkeypatch.setattr(data, "decode", counted)
    pets = load_images("pets", root=tmp_path)
    assert not decoded
    pets.subset([8, 3]).fetch()
    assert [where.split()[2] for where in decoded] == ["3", "8"]  # in the file's order
    for part in (pets, pets.subset([3, 1]), pets):
        part.fingerprint  # noqa: B018
        for i, pixels in enumerate(part.batch(slice(None))):
            pixels[:] = i  # a caller may write into what it was given
        part.arrays()
    assert len(decoded) == 10
    np.testing.assert_array_equal(pets.image(3), image(3))


# ------------------------------------------------------------------------------------------------ the real mirror


def test_the_real_mirror(data_mirror: Path) -> None:
    """The first hundreds of the real images, decoded to the published CIFAR-10 pixels, and the known duplicate."""
    cifar = load_images("cifar10", "test", root=data_mirror)
    assert len(cifar) == 10_000 and cifar.stand_in is None and np.bincount(cifar.labels).tolist() == [1000] * 10
    assert cifar.image(0).shape == (32, 32, 3) and cifar.class_names[int(cifar.labels[0])] == "cat"
    fine = load_images("cifar100", "test", root=data_mirror)
    hashes = fine.content_hashes()
    assert len(hashes) - len(set(hashes)) == 1
    nette = load_images("imagenette", "val", root=data_mirror)
    assert np.bincount(nette.labels).tolist() == [387, 395, 357, 386, 409, 394, 389, 419, 399, 390]
    assert sum(name.startswith("ILSVRC2012_val_") for name in nette.names) == 134
    assert nette.image(1000).shape == (224, 224, 3)
