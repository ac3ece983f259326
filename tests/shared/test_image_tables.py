"""Tables of images: which column is what, labels of every kind, splits and configurations as `datasets` means them."""

from __future__ import annotations

import csv
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shared import columns, parquet
from shared.data import copies, load_images, load_two
from shared.errors import UserError


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PAPERS_CACHE", str(tmp_path / "cache"))


def pixels(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (4, 5, 3), np.uint8)


def png(seed: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels(seed)).save(buffer, "PNG")
    return buffer.getvalue()


def images(count: int, first: int = 0, with_bytes: bool = True) -> pa.Array:
    rows = [{"bytes": png(first + i) if with_bytes else None, "path": f"{first + i}.png"} for i in range(count)]
    return pa.array(rows, pa.struct({"bytes": pa.binary(), "path": pa.string()}))


def write(file: Path, **columns: pa.Array | list) -> Path:
    """A parquet file; without `image` it gets one image per row."""
    count = len(next(iter(columns.values())))
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"image": images(count, 100 * len(file.stem)), **columns}), file)
    return file


# ------------------------------------------------------------------------------------------------ which column


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"label": [0, 1], "rating": [5, 6]}, "label"),
        ({"rating": [5, 6], "labels": [0, 1]}, "labels"),
        ({"species": ["wren", "tit"]}, "species"),
        ({"species": ["wren", "tit"], "score": [0.25, 0.5]}, "species"),
        ({"wild": [True, False]}, "wild"),
    ],
)
def test_the_label_is_found_where_there_is_no_choice(tmp_path: Path, given: dict, taken: str) -> None:
    found = load_images(str(write(tmp_path / "x.parquet", **given)))
    assert f"columns: image image, label {taken}" in found.assumed()


@pytest.mark.parametrize(
    "given",
    [
        {"rating": [1, 2], "species": ["wren", "tit"]},
        {"id": [1, 2], "rating": [1, 2]},
        {"path": ["a", "b"], "species": ["wren", "tit"]},
        {"wild": [True, False], "old": [True, False]},
    ],
)
def test_the_label_is_not_guessed(tmp_path: Path, given: dict) -> None:
    file = str(write(tmp_path / "x.parquet", **given))
    with pytest.raises(UserError, match=rf"x\.parquet: which column is the label\? There are {', '.join(given)}"):
        load_images(file)
    for name, values in given.items():
        assert load_images(file, label=name).class_names == sorted(str(v).lower() for v in values)
    with pytest.raises(UserError, match="no column color among image"):
        load_images(file, label="color")


def test_the_only_column_with_class_names_is_the_label(tmp_path: Path) -> None:
    cast = datasets.Features({"photo": datasets.Image(), "id": datasets.Value("int64"), "kind": datasets.ClassLabel(2)})
    rows = {"photo": [Image.fromarray(pixels(i)) for i in range(4)], "id": range(4), "kind": [0, 1, 0, 1]}
    datasets.Dataset.from_dict(rows, features=cast).to_parquet(tmp_path / "x.parquet")
    assert "columns: image photo, label kind" in load_images(str(tmp_path / "x.parquet")).assumed()


def test_the_image_column(tmp_path: Path) -> None:
    table = {"mask": images(2, 50), "image": images(2), "label": pa.array([0, 1])}
    pq.write_table(pa.table(table), tmp_path / "x.parquet")
    file = str(tmp_path / "x.parquet")
    np.testing.assert_array_equal(load_images(file).image(0), pixels(0))
    np.testing.assert_array_equal(load_images(file, image="mask").image(0), pixels(50))
    with pytest.raises(UserError, match="the column label is int64, not images"):
        load_images(file, image="label")
    pq.write_table(pa.table({"left": images(2), "right": images(2), "label": [0, 1]}), tmp_path / "y.parquet")
    with pytest.raises(UserError, match=r"several image columns \(left, right\).*--image"):
        load_images(str(tmp_path / "y.parquet"))
    pq.write_table(pa.table({"jpg": pa.array([png(0), png(1)]), "label": [0, 1]}), tmp_path / "z.parquet")
    np.testing.assert_array_equal(load_images(str(tmp_path / "z.parquet")).image(1), pixels(1))


# ------------------------------------------------------------------------------------------------ kinds of labels


def classes(values: pa.Array, names: list[str] | None = None) -> tuple[list[int], list[str]]:
    labels, ids = columns.classes(pa.chunked_array([values]), "kind", "here", lambda row: f"row {row}", names)
    return labels.tolist(), ids


@pytest.mark.parametrize(
    ("values", "labels", "ids"),
    [
        (pa.array([1, 3, 2, 1]), [0, 2, 1, 0], ["1", "2", "3"]),
        (pa.array([10**12, 5, 2**62, None]), [1, 0, 2, -1], ["5", str(10**12), str(2**62)]),
        (pa.array([2**64 - 1, 7], pa.uint64()), [1, 0], ["7", str(2**64 - 1)]),
        (pa.array([-1, 0, 1, 0]), [-1, 0, 1, 0], ["0", "1"]),
        (pa.array([-1, 1, -1]), [0, 1, 0], ["-1", "1"]),
        (pa.array([-1, -1]), [-1, -1], []),
        (pa.array([True, False, None]), [1, 0, -1], ["false", "true"]),
        (pa.array([2.0, 1.0, None, float("nan")]), [1, 0, -1, -1], ["1", "2"]),
        (pa.array(["b", None, "a", " ", ""]), [1, -1, 0, -1, -1], ["a", "b"]),
        (pa.array(["b", "a"]).dictionary_encode(), [1, 0], ["a", "b"]),
        (pa.array(["b", "a"], pa.large_string()), [1, 0], ["a", "b"]),
        (pa.array([[2], [1], None]), [1, 0, -1], ["1", "2"]),
        (pa.array([None, None]), [-1, -1], []),
    ],
)
def test_labels_of_every_kind(values: pa.Array, labels: list[int], ids: list[str]) -> None:
    assert classes(values) == (labels, ids)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([[1, 2], [3]]), "holds lists, several labels per image"),
        (pa.array([0.5, 1.0]), r"numbers such as 0\.5, no classes"),
        (pa.array([{"a": 1}]), "is struct<a: int64>, no classes"),
        (pa.array([0], pa.timestamp("s")), r"is timestamp\[s\], no classes"),
    ],
)
def test_what_is_no_label_is_refused(values: pa.Array, message: str) -> None:
    with pytest.raises(UserError, match=f"here: the column kind .*{message}"):
        classes(values)


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=30))
def test_numbers_as_labels_name_themselves(values: list[int | None]) -> None:
    """Whatever the numbers are, each row's class is its number, and there are no other classes."""
    labels, ids = classes(pa.array(values, pa.int64()))
    present = [value for value in values if value is not None]
    hidden = -1 if -1 in present and (set(present) == {-1} or (min(present) == -1 and 0 in present)) else None
    for value, label in zip(values, labels, strict=True):
        assert (label == -1) if value is None or value == hidden else ids[label] == str(value)
    assert len(ids) == len(set(present) - {hidden})


def test_named_classes() -> None:
    assert classes(pa.array([1, None, -1, 0]), ["a", "b"]) == ([1, -1, -1, 0], ["a", "b"])
    with pytest.raises(UserError, match="row 1: label 2, but the column kind names 2 classes"):
        classes(pa.array([1, 2]), ["a", "b"])


def test_rows_without_a_label_are_left_out_and_told(tmp_path: Path) -> None:
    found = load_images(str(write(tmp_path / "x.parquet", label=["a", None, "b", "", "a"])))
    assert found.labels.tolist() == [0, 1, 0] and "ignored: 2 rows without a label" in found.assumed()
    assert found.names == ["100.png", "102.png", "104.png"] and "row 2" in found.where(1)
    np.testing.assert_array_equal(found.image(1), pixels(102))


def test_classes_that_differ_by_case_stay_apart(tmp_path: Path) -> None:
    assert load_images(str(write(tmp_path / "x.parquet", label=["Cat", "cat"]))).class_names == ["Cat", "cat"]


def test_a_small_file_cannot_ask_for_much_memory(tmp_path: Path) -> None:
    count = 3_000_000
    empty = pa.nulls(count, pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    label = pa.array(np.zeros(count, np.int8))
    pq.write_table(pa.table({"image": empty, "label": label}), tmp_path / "x.parquet", compression="zstd")
    assert (tmp_path / "x.parquet").stat().st_size < 100_000
    with pytest.raises(UserError, match=r"x\.parquet: claims 3,000,000 rows in [\d,]+ bytes, which cannot be images"):
        load_images(str(tmp_path / "x.parquet"))


def test_a_row_with_a_path_only_takes_the_file_beside_it(tmp_path: Path) -> None:
    struct = images(2, with_bytes=False)
    pq.write_table(pa.table({"image": struct, "label": [0, 1]}), tmp_path / "x.parquet")
    found = load_images(str(tmp_path / "x.parquet"))
    with pytest.raises(
        UserError, match=r"row 0 \(0\.png\): no bytes in the row, and no file 0\.png in .*copy the images"
    ):
        found.image(0)
    (tmp_path / "0.png").write_bytes(png(0))
    np.testing.assert_array_equal(found.image(0), pixels(0))


def test_shards_of_different_integers_are_one_set(tmp_path: Path) -> None:
    write(tmp_path / "x/train-00000-of-00002.parquet", label=pa.array([0, 1], pa.int32()))
    write(tmp_path / "x/train-00001-of-00002.parquet", label=pa.array([1, 2], pa.int64()))
    assert load_images(str(tmp_path / "x")).labels.tolist() == [0, 1, 1, 2]


def test_a_git_lfs_pointer_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", encoding="utf-8"
    )
    with pytest.raises(UserError, match=r"git-lfs pointer, not the file: run `git lfs pull`"):
        load_images(str(tmp_path / "x.parquet"))


# ------------------------------------------------------------------------------------------------ files and splits


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("data/train-00000-of-00001-0123456789abcdef.parquet", "data/test-00000-of-00001-fedcba9876543210.parquet"),
        ("train/part-0.parquet", "test/part-0.parquet"),
        ("train/0000.parquet", "validation/0000.parquet"),
        ("train.parquet", "valid.parquet"),
        ("Train.parquet", "Test.parquet"),
        ("birds_train.parquet", "birds_val.parquet"),
    ],
)
def test_files_of_any_upload(tmp_path: Path, train: str, test: str) -> None:
    write(tmp_path / "me/birds" / train, label=["a", "b"])
    write(tmp_path / "me/birds" / test, label=["b", "a", "b"])
    first, second = load_two("me/birds", root=tmp_path)
    assert (len(first), len(second)) == (2, 3)
    assert [len(s) for s in load_two(str(tmp_path / "me/birds"))] == [2, 3]


def test_a_readme_says_configurations_splits_and_class_names(tmp_path: Path) -> None:
    root = tmp_path / "me/birds"
    write(root / "a/one.parquet", label=[0, 1])
    write(root / "a/two.parquet", label=[1, 0, 1])
    write(root / "b/one.parquet", label=[0, 1, 1, 0])
    (root / "README.md").write_text(
        "---\nconfigs:\n- config_name: small\n  data_files:\n  - split: train\n    path: a/one.parquet\n"
        "  - split: holdout\n    path: a/two.parquet\n- config_name: large\n  data_files: b/*.parquet\n"
        "dataset_info:\n- config_name: small\n  features:\n  - name: image\n    dtype: image\n  - name: label\n"
        "    dtype:\n      class_label:\n        names:\n          '0': tit\n          '1': wren\n"
        "- config_name: large\n  features:\n  - name: image\n    dtype: image\n  - name: label\n"
        "    dtype: int64\n---\n",
        encoding="utf-8",
    )
    with pytest.raises(UserError, match=r"me/birds.*small.*large"):
        load_images("me/birds", root=tmp_path)
    first, second = load_two("me/birds:small", test="holdout", root=tmp_path)
    assert (len(first), len(second)) == (2, 3) and first.class_names == ["tit", "wren"]
    assert "splits found: train, holdout" in first.assumed()
    with pytest.raises(UserError, match="which split is for testing"):
        load_two("me/birds:small", root=tmp_path)
    assert len(load_images("me/birds:large", root=tmp_path)) == 4


def test_hidden_labels_have_a_way_out(tmp_path: Path) -> None:
    root = tmp_path / "x"
    for split, labels in {"train": [0, 1], "validation": [1, 0], "test": [-1, -1]}.items():
        write(root / f"{split}.parquet", label=labels)
    with pytest.raises(UserError, match=r"no row of the split test has a label .*--test-split"):
        load_two(str(root))
    assert load_two(str(root), test="validation")[1].split == "validation"


def test_labels_in_another_order_are_matched_by_name(tmp_path: Path) -> None:
    for split, names in {"train": ["cat", "dog", "owl"], "test": ["owl", "cat", "dog"]}.items():
        features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=names)})
        rows = {"image": [Image.fromarray(pixels(i)) for i in range(3)], "label": ["cat", "dog", "owl"]}
        datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / f"{split}.parquet")
    first, second = load_two(str(tmp_path))
    assert first.class_names == second.class_names == ["cat", "dog", "owl"] and second.labels.tolist() == [0, 1, 2]
    assert any("in another order, and were matched by name" in line for line in second.assumed())
    assert copies(second, first).tolist() == [0, 1, 2]  # by content, whatever the order


def test_a_class_name_without_images_is_left_out(tmp_path: Path) -> None:
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["none", "a", "b"])})
    rows = {"image": [Image.fromarray(pixels(i)) for i in range(4)], "label": [1, 2, 1, 2]}
    for split in ("train", "test"):
        datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / f"{split}.parquet")
    first, _ = load_two(str(tmp_path))
    assert first.class_names == ["a", "b"] and first.labels.tolist() == [0, 1, 0, 1]
    assert "classes without an image, left out: none" in first.assumed()


# ------------------------------------------------------------------------------------------------ other formats


def as_saved(root: Path, parts: dict[str, datasets.Dataset]) -> None:
    datasets.DatasetDict(parts).save_to_disk(root)


def as_metadata_csv(root: Path, parts: dict[str, datasets.Dataset]) -> None:
    for split, part in parts.items():
        (root / split).mkdir(parents=True)
        rows = [("file_name", "label")]
        for i, row in enumerate(part):
            row["image"].save(root / split / f"{i}.png")
            rows.append((f"{i}.png", part.features["label"].int2str(row["label"])))
        with open(root / split / "metadata.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)


def as_metadata_jsonl(root: Path, parts: dict[str, datasets.Dataset]) -> None:
    as_metadata_csv(root, parts)
    for split in parts:
        with open(root / split / "metadata.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        datasets.Dataset.from_list(rows).to_json(root / split / "metadata.jsonl")
        (root / split / "metadata.csv").unlink()


def as_webdataset(root: Path, parts: dict[str, datasets.Dataset]) -> None:
    root.mkdir()
    for split, part in parts.items():
        with tarfile.open(root / f"{split}-000.tar", "w") as tar:
            for i, row in enumerate(part):
                buffer = io.BytesIO()
                row["image"].save(buffer, "PNG")
                name = part.features["label"].int2str(row["label"])
                for suffix, content in ((".png", buffer.getvalue()), (".txt", name.encode())):
                    info = tarfile.TarInfo(f"{i:03d}{suffix}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize("form", [as_saved, as_metadata_csv, as_metadata_jsonl, as_webdataset])
def test_other_formats_give_the_same_images(tmp_path: Path, form: Callable) -> None:
    parts = {}
    for split, count in {"train": 4, "test": 2}.items():
        features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
        rows = {
            "image": [Image.fromarray(pixels(10 * count + i)) for i in range(count)],
            "label": [0, 1] * (count // 2),
        }
        parts[split] = datasets.Dataset.from_dict(rows, features=features)
        (tmp_path / "parquet").mkdir(exist_ok=True)
        parts[split].to_parquet(tmp_path / "parquet" / f"{split}.parquet")
    form(tmp_path / "other", parts)
    expected, found = load_two(str(tmp_path / "parquet")), load_two(str(tmp_path / "other"))
    for one, other in zip(expected, found, strict=True):
        assert one.fingerprint == other.fingerprint and other.class_names == ["a", "b"]
        again = load_images(str(tmp_path / "other"), other.split)
        assert again.fingerprint == other.fingerprint  # from the remembered hashes


@pytest.mark.parametrize("content", [b"", b"file_name,label\n", b"not a table"])
def test_what_cannot_be_read_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(UserError, match=r"x\.csv") as error:
        load_images(str(tmp_path / "x.csv"))
    assert "\n" not in str(error.value)


def test_the_direct_way_gives_the_rows_of_datasets(tmp_path: Path) -> None:
    file = write(tmp_path / "train.parquet", label=["b", "a", "b"])
    direct = parquet.source([file], "train", "here").rows.read([2, 0])
    table = datasets.Dataset.from_parquet(str(file), cache_dir=str(tmp_path)).cast_column(
        "image", datasets.Image(decode=False)
    )
    assert direct == [table[row]["image"]["bytes"] for row in (2, 0)]


def test_the_hub_is_not_asked_for_what_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A revision and a configuration are read out of the name; the mirror needs neither network nor revision."""
    write(tmp_path / "me/birds/small/train.parquet", label=["a", "b"])
    write(tmp_path / "me/birds/large/train.parquet", label=["a", "b", "b"])
    assert len(load_images("me/birds@v2:small", root=tmp_path)) == 2
    assert len(load_images("me/birds:large", root=tmp_path)) == 3
    with pytest.raises(UserError, match=r"several configurations have a split train \(large, small\)"):
        load_images("me/birds", root=tmp_path)


# ------------------------------------------------------------------------------------------------ memory


def test_equal_images_and_texts_of_a_file_are_in_memory_once(tmp_path: Path) -> None:
    """A file of 2 MB that names one image, one path and two labels a thousand times: 2 GB in rows."""
    rows = 1000

    def named(*values: bytes | str) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array([i % len(values) for i in range(rows)]), list(values))

    image = pa.StructArray.from_arrays([named(png(1) + bytes(1 << 20)), named("x" * (1 << 20))], ["bytes", "path"])
    table = pa.table({"image": image, "label": named("0" * 1000, "1" * 1000)})
    pq.write_table(table, tmp_path / "x.parquet", dictionary_pagesize_limit=1 << 30, store_schema=False)
    del image, table
    before = pa.total_allocated_bytes()
    found = load_images(str(tmp_path / "x.parquet"))
    np.testing.assert_array_equal(found.image(rows - 1), pixels(1))
    assert pa.total_allocated_bytes() - before < 16 << 20
    assert len({id(name) for name in found.names}) == 1
    assert found.class_names == ["0" * 1000, "1" * 1000] and np.bincount(found.labels).tolist() == [500, 500]


def test_a_dictionarys_unused_and_missing_values_are_no_classes(tmp_path: Path) -> None:
    label = pa.DictionaryArray.from_arrays(pa.array([2, None, 0, 2]), ["wren", "unused", "tit"])
    found = load_images(str(write(tmp_path / "x.parquet", label=label)))
    assert found.class_names == ["tit", "wren"] and found.labels.tolist() == [0, 1, 0]


def test_a_file_that_becomes_far_larger_than_itself_is_refused(tmp_path: Path) -> None:
    bomb = pa.array([{"bytes": bytes(36 << 20), "path": "a.png"}] * 2, images(1).type)
    pq.write_table(
        pa.table({"image": bomb, "label": [0, 1]}), tmp_path / "x.parquet", compression="zstd", use_dictionary=False
    )
    with pytest.raises(UserError, match=r"x\.parquet: row group 0 becomes 75,\d+,\d+ bytes out of a file of"):
        load_images(str(tmp_path / "x.parquet"))


def test_files_that_are_taken_for_one_split_are_told(tmp_path: Path) -> None:
    for name in ("spring", "autumn"):
        write(tmp_path / "x" / f"{name}.parquet", label=[0, 1])
    assert "files of train: autumn.parquet, spring.parquet" in load_images(str(tmp_path / "x")).assumed()
    for name in ("trainset", "testset"):
        write(tmp_path / "y" / f"{name}.parquet", label=[0, 1])
    first, second = load_two(str(tmp_path / "y"))
    assert (first.split, second.split) == ("train", "test") and not any(
        "files of train" in line for line in first.assumed()
    )
