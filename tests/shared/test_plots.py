"""Figures as a paper takes them: three files of one drawing, told in words, with the script and the data named."""

from __future__ import annotations

import pytest
from PIL import Image

from shared import plots
from shared.record import Record


def drawn(letters: float = 9):
    figure, axes = plots.figure_and_axes(4, 3)
    plots.direct_errors(axes, [1, 10], [50.0, 60.0], [3.0, None], [4.0, 2.0], label="ours & more", color="#123456")
    axes.plot([1, 10], [51.0, 59.0], "o", label="theirs")
    axes.set_xlabel("images")
    axes.set_ylabel("accuracy, %")
    axes.annotate("here", (1, 50), fontsize=letters)
    axes.legend(fontsize=6)
    return figure, axes


def test_three_files_say_what_is_drawn_by_whom_and_from_what(tmp_path):
    with Record("toy", "one", results=tmp_path, quiet=True, question="?") as record:
        plots.publish(record, drawn()[0], "answer", "The answer <here>", data="Table 1")
    folder = tmp_path / "toy" / "figures"
    assert sorted(path.name for path in folder.iterdir()) == ["answer.pdf", "answer.png", "answer.svg"]
    (figure,) = Record.load(tmp_path / "toy" / "one.json")["figures"]
    assert figure["alt"].startswith("across images, up accuracy, %. ")
    assert "theirs: 51 at 1, 59 at 10" in figure["alt"] and "ours & more: 50 at 1, 60 at 10" in figure["alt"]
    assert figure["data"] == "test_plots.py, from Table 1"
    svg = (folder / "answer.svg").read_text(encoding="utf-8")
    assert '<svg role="img" ' in svg and "<title>The answer &lt;here&gt;</title>" in svg
    assert "theirs: 51 at 1, 59 at 10" in svg.split("<desc>")[1].split("</desc>")[0] and "&amp; more" in svg
    with Image.open(folder / "answer.png") as image:
        assert image.info["Title"] == "The answer <here>" and "from Table 1" in image.info["Description"]
        assert image.size == (1200, 900) and image.info["dpi"] == pytest.approx((300, 300), abs=0.1)
    assert (folder / "answer.pdf").read_bytes().startswith(b"%PDF")


def test_the_same_drawing_is_the_same_bytes(tmp_path):
    for name in "ab":
        plots.save(drawn()[0], tmp_path / f"{name}.png", "t", "o")
    for suffix in (".png", ".svg", ".pdf"):
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_letters_that_no_page_shows_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"small\.png: letters below 8 points: here"):
        plots.save(drawn(letters=7.5)[0], tmp_path / "small.png")
    assert not list(tmp_path.iterdir())


def test_a_raised_digit_is_a_small_letter_too(tmp_path):
    figure, axes = drawn()
    axes.set_xlabel("images, $10^3$")
    with pytest.raises(ValueError, match="letters below 8 points: images"):
        plots.save(figure, tmp_path / "raised.png")


def test_a_log_axis_has_plain_numbers(tmp_path):
    figure, axes = drawn()
    axes.plot([1, 10], [0.001, 60], label="far")
    axes.set_yscale("log")
    plots.save(figure, tmp_path / "log.png")
    assert {"0.001", "0.1", "10"} <= {label.get_text() for label in axes.get_yticklabels()}


def test_what_is_printed_stands_beside_what_is_measured_and_is_told_at_its_own_place():
    figure, axes = drawn()
    (line,) = axes.plot([1, 10], [50, 60], "o", label="beside", transform=plots.beside(axes, 7.2))
    at = [transform.transform((1, 50))[0] for transform in (axes.transData, line.get_transform())]
    assert at[1] - at[0] == pytest.approx(7.2 * figure.dpi / 72)
    assert "beside: 50 at 1, 60 at 10" in plots.in_words(figure)


@pytest.mark.parametrize(("limits", "cut"), [((40, 70), True), ((0, 70), False), ((-5, 5), False)])
def test_an_axis_that_does_not_begin_at_zero_is_marked(limits, cut):
    _, axes = drawn()
    axes.set_ylim(*limits)
    plots.mark_cut(axes)
    assert ("axis cut" in axes.get_ylabel()) is cut


def test_a_log_axis_is_not_called_cut():
    _, axes = drawn()
    axes.set_yscale("log")
    plots.mark_cut(axes)
    assert "cut" not in axes.get_ylabel()


def test_bars_and_long_series_are_told_by_their_ticks_and_ends():
    figure, axes = plots.figure_and_axes(4, 3)
    axes.bar([0, 1], [3, 4], label="bars")
    axes.set_xticks([0, 1], ["cats", "dogs\nand more"])
    assert "bars: 3 at cats, 4 at dogs and more" in plots.in_words(figure)
    figure, axes = plots.figure_and_axes(4, 3)
    axes.barh([0, 1], [3, 4], label="lying")
    axes.set_yticks([0, 1], ["cats", "dogs"])
    assert "lying: 3 at cats, 4 at dogs" in plots.in_words(figure)
    figure, axes = plots.figure_and_axes(4, 3)
    axes.plot(range(100), range(100), label="long")
    assert "long: 0 at 0 to 99 at 99" in plots.in_words(figure)


def test_a_log_axis_is_told_by_its_numbers():
    figure, (left, right) = plots.figure_and_axes(6, 3, 2, sharey="row")
    for axes in (left, right):
        axes.plot([1, 2500], [2.5, 0.0006], label="loss")
    left.set_yscale("log")
    assert plots.in_words(figure).count("loss: 2.5 at 1, 0.0006 at 2,500") == 2
