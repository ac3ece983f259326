"""The report shows what the result files hold, whole or damaged, and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_results import NASTY, write_results

from shared.check import summarise
from shared.errors import UserError
from shared.paths import ROOT
from shared.published import Number
from shared.record import Record
from shared.report import markdown, page
from shared.report.collect import read_paper, slug, unique, words
from shared.report.page import bar, build, linked, number, with_addresses
from shared.report.page import markdown as as_html
from shared.result import read_result
from shared.verdict import VERDICTS

NUMERAL = re.compile(r"\d[\d.,]*\d|\d")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory):
    root = write_results(tmp_path_factory.mktemp("report"))
    contents = build(root, root / "report" / "index.html", note=f"a note {NASTY}", papers=root / "papers")
    return root, contents, (root / "report" / "index.html").read_text(encoding="utf-8")


class Parsed(HTMLParser):
    """Elements with their attributes and their own text; text by the class names that hold it."""

    VOID = ("meta", "link", "img", "input", "br", "rect")

    def __init__(self, html: str):
        super().__init__()
        self.open: list[tuple[str, dict]] = []
        self.elements: list[tuple[str, dict]] = []
        self.texts: list[tuple[str, list[tuple[str, dict]]]] = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            opened, _ = self.open.pop()
            assert opened == tag, f"<{opened}> is closed by </{tag}>"

    def handle_data(self, text):
        if text.strip() and not any(tag in ("style", "script") for tag, _ in self.open):
            self.texts.append((text, list(self.open)))


def test_every_experiment_has_a_card_and_a_section(built):
    root, contents, html = built
    parsed = Parsed(html)
    assert not parsed.open
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(ids) == len(set(ids)), "an anchor stands twice"
    files = sorted(path.relative_to(root).as_posix() for path in root.glob("*/*.json"))
    assert sorted(f"{e.paper}/{e.name}.json" for e in contents.experiments) == files
    for experiment in contents.experiments:
        assert experiment.anchor in ids
    targets = [a["href"][1:] for tag, a in parsed.elements if tag == "a" and a["href"].startswith("#")]
    assert set(targets) <= set(ids), set(targets) - set(ids)


def test_the_verdict_counts_are_those_of_the_files(built):
    root, contents, _ = built
    for experiment in contents.experiments:
        if not experiment.problem:
            data = Record.load(root / experiment.paper / f"{experiment.name}.json")
            assert experiment.counts == Counter(v["verdict"] for v in data["verdicts"])


def test_a_damaged_or_older_result_is_named_and_stops_nothing(built):
    root, contents, html = built
    problems = {e.name: e.problem for e in contents.experiments if e.problem}
    assert set(problems) == {"older", "cut", "list", "wrong"}
    assert "schema 0" in problems["older"] and "damaged" in problems["cut"] and "verdict" in problems["wrong"]
    assert all(problem.startswith("other/") and str(root) not in problem for problem in problems.values())
    assert html.count("run it again") + html.count("run the experiment") >= 2 * len(problems)


def test_a_missing_or_damaged_figure_says_so(built):
    _, _, html = built
    shown = re.findall(r"This figure cannot be shown \(figures/(\w+\.png)\)", html)
    assert shown == ["cut.png", "gone.png"] or shown == ["gone.png", "cut.png"]


def test_png_and_svg_of_one_drawing_are_one_figure(built):
    _, contents, html = built
    table1 = next(e for e in contents.experiments if e.name == "table1")
    assert [drawing.name for drawing in table1.drawings] == [
        "figures/answer.png",
        "figures/photos.png",
        "figures/gone.png",
    ]
    assert table1.drawings[0].formats == [("PNG", "../toy/figures/answer.png"), ("SVG", "../toy/figures/answer.svg")]
    assert html.count("data:image/svg+xml;base64,") == 1
    assert "data:image/png" not in html  # pixels are WebP


def test_text_from_data_is_escaped(built):
    _, _, html = built
    parsed = Parsed(html)
    assert [tag for tag, _ in parsed.elements].count("script") == 1
    assert all(a.get("src", "data:").startswith("data:") for tag, a in parsed.elements if tag == "img")
    assert not any(name.startswith("on") for _, attributes in parsed.elements for name in attributes)
    holders = {tag for text, open_ in parsed.texts if NASTY in text for tag, _ in open_}
    assert holders >= {"p", "th", "td", "dd", "figcaption"}


def test_nothing_outside_the_page_may_be_loaded(built):
    parsed = Parsed(built[2])
    policy = next(a["content"] for tag, a in parsed.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; img-src data:;") and "unsafe" not in policy
    assert all("style" not in attributes for _, attributes in parsed.elements)


def test_every_number_on_the_page_stands_in_a_result_file(built):
    """Counts are recounted above; all other numerals must be in the JSON, as text or rounded from a value there."""
    root, _, html = built
    texts, values = set(), set()

    def gather(item):
        if isinstance(item, dict):
            gather(list(item.keys()))
            gather(list(item.values()))
        elif isinstance(item, list):
            for each in item:
                gather(each)
        elif isinstance(item, float | int):
            values.add(float(item))
            texts.update(NUMERAL.findall(f"{item} {item:.4g}" if isinstance(item, float) else str(item)))
        elif isinstance(item, str):
            texts.update(NUMERAL.findall(item))

    for path in root.glob("*/*.json"):
        texts.update(NUMERAL.findall(path.stem))
        try:
            gather(json.loads(path.read_text(encoding="utf-8")))
            texts.update(NUMERAL.findall(" ".join(v.shown for v in read_result(path).verdicts)))
        except (ValueError, UserError):
            gather(path.read_text(encoding="utf-8"))
    foreign = []
    for text, open_ in Parsed(html).texts:
        tag, attributes = open_[-1]
        if tag == "data":
            value = float(attributes["value"])
            assert value in values
            shown = text.replace("−", "-").replace(",", "")
            decimals = len(shown.partition(".")[2])
            assert float(shown) == pytest.approx(value, abs=0.5001 * 10**-decimals)
        elif "count" not in attributes.get("class", "") and not any("problem" in a.get("class", "") for _, a in open_):
            foreign += [numeral for numeral in NUMERAL.findall(text) if numeral not in texts]
    assert not foreign


def test_what_differs_stands_first_and_open_all_else_is_folded(built):
    _, contents, _ = built
    table1 = next(e for e in contents.experiments if e.name == "table1")
    assert [(g.title, g.open) for g in table1.groups] == [
        ("What differs", True),
        ("Alpha", False),
        ("Beta", False),
        ("Gamma", False),
    ]
    assert [row.label for row in table1.groups[0].rows] == ["Table 1: alpha/three"]
    assert table1.groups[3].reason == "needs a network"
    every = [row.anchor for group in table1.groups for row in group.rows]
    assert len(every) == len(set(every)) == table1.counts.total()


def test_provenance_names_all_that_decided_a_number(built):
    _, contents, html = built
    lines = dict(next(e for e in contents.experiments if e.name == "table1").provenance)
    assert set(lines) >= {
        "command",
        "configuration",
        "seed",
        "images",
        "weights",
        "machine",
        "versions",
        "code",
        "started",
    }
    assert "ab" * 32 in lines["images"][0] and "cd" * 32 in lines["weights"][0] and lines["seed"] == ["3"]
    assert html.count("#toy-table1--provenance") >= 4  # once at the top, once a group


def test_the_page_is_the_same_bytes_again(built):
    root, _, html = built
    build(root, root / "report" / "again.html", note=f"a note {NASTY}", papers=root / "papers")
    assert (root / "report" / "again.html").read_text(encoding="utf-8") == html


def test_absent_experiments_are_named_from_the_papers_description(tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "paper.toml").write_text(
        'title = "A toy"\n[[experiments]]\nname = "table2"\ntitle = "Table two"\nrun = "make table2"\n'
        '[[experiments]]\nname = "small"\noptional = true\n',
        encoding="utf-8",
    )
    results = tmp_path / "results"
    results.mkdir()
    contents = build(results, tmp_path / "index.html", papers=tmp_path)
    assert [(paper.title_of(e.name), e.run) for paper, e in contents.absent] == [("Table two", "make table2")]
    assert "make table2" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_a_results_folder_or_description_that_is_not_there_or_wrong_is_one_line(tmp_path):
    with pytest.raises(UserError, match="no such results folder"):
        build(tmp_path / "none", tmp_path / "index.html")
    bad = tmp_path / "toy" / "paper.toml"
    bad.parent.mkdir()
    bad.write_text('[[experiments]]\ntitel = "typo"\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"paper\.toml.*titel"):
        read_paper(bad)


def whole(root: Path) -> Path:
    """A result in `root`/toy, to be damaged; another one beside it."""
    for name in ("good", "bad"):
        with Record("toy", name, results=root, quiet=True) as record:
            record.say("x")
            record.use_data("digits", split="test", source="embedded", images=5, fingerprint="ab" * 32)
            record.judge(Number("a", "53.9", "%", source="toy/t"), 53.9)
            record.table("T", ["k"], [["v"]])
    return root / "toy" / "bad.json"


@pytest.mark.parametrize("what", ["figures", "files"])
@pytest.mark.parametrize(
    "path",
    ["../../../etc/passwd", "//host/x", "/etc/passwd", "../good.json", "x/../../y", "a\0b", "n" * 5000, "d/" * 3000],
)
def test_a_figures_or_files_path_may_not_leave_the_results(what, path, tmp_path):
    bad = whole(tmp_path / "results")
    data = Record.load(bad)
    data[what] = [{"path": path, "caption": "c"}]
    bad.write_text(json.dumps(data), encoding="utf-8")
    contents = build(tmp_path / "results", tmp_path / "index.html", papers=tmp_path)
    problems = {e.name: e.problem for e in contents.experiments}
    html = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert problems["good"] == "" and "//host" not in html.replace("&#39;//host", "") and 'href="/' not in html
    if len(path) < 1000:
        assert "outside the results folder" in problems["bad"]


DEEP = "[" * 900 + "]" * 900


def with_difference(text: str, number: str) -> str:
    return re.sub(r'"difference": [^,]+', f'"difference": {number}', text)


DAMAGE = {
    "empty": lambda text: "",
    "no object": lambda text: "[]",
    "not UTF-8": lambda text: b"\xff\xfe",
    "an integer of 4,400 digits": lambda text: text.replace('"seed": null', f'"seed": {"9" * 4400}'),
    "an integer of 4,000 digits": lambda text: text.replace('"seed": null', f'"seed": {"9" * 4000}'),
    "a float beyond floats": lambda text: with_difference(text, "1e999"),
    "a huge integer for a float": lambda text: with_difference(text, "9" * 400),
    "nested deep": lambda text: text.replace('"results": {}', f'"results": {{"a": {DEEP}}}'),
    "nested deeper": lambda text: text.replace('"results": {}', f'"results": {{"a": {"[" * 100_000}}}'),
    "a configuration nested deep": lambda text: text.replace('"config": null', f'"config": {{"a": {DEEP}}}'),
    "NaN": lambda text: with_difference(text, "NaN"),
    "a text for a list": lambda text: re.sub(r'"verdicts": \[.*?\]', '"verdicts": "none"', text, flags=re.DOTALL),
    "a row too long": lambda text: text.replace('"v"', '"v", "w"'),
    "a cell that is an object": lambda text: text.replace('"v"', '{"a": [1]}'),
    "a huge cell": lambda text: text.replace('"v"', '"' + "v" * 1_000_000 + '"'),
    "control characters": lambda text: text.replace('"v"', r'"\u001b[2J\u0000\u202e"'),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_no_result_ends_the_page_of_all(name, tmp_path):
    bad = whole(tmp_path / "results")
    text = DAMAGE[name](bad.read_text(encoding="utf-8"))
    assert text != bad.read_text(encoding="utf-8")
    bad.write_bytes(text if isinstance(text, bytes) else text.encode())
    contents = build(tmp_path / "results", tmp_path / "index.html", papers=tmp_path)
    assert {e.name: bool(e.groups) for e in contents.experiments}["good"]
    problem = next(e.problem for e in contents.experiments if e.name == "bad")
    assert len(problem) < 2000 and str(tmp_path) not in problem
    assert "toy/bad.json" in problem or not problem
    summarise(tmp_path / "results")  # nor the check of all numbers


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes")
@pytest.mark.parametrize("kind", ["folder", "pipe", "link to nothing", "link to itself"])
def test_a_result_or_figure_that_is_no_file_ends_and_hangs_nothing(kind, tmp_path):
    make = {
        "folder": Path.mkdir,
        "pipe": os.mkfifo,
        "link to nothing": lambda path: path.symlink_to(path.with_name("nothing")),
        "link to itself": lambda path: path.symlink_to(path),
    }[kind]
    bad = whole(tmp_path / "results")
    data = Record.load(bad)
    make(bad.with_name("odd.json"))
    make(bad.with_name("odd.png"))
    data["figures"] = [{"path": "odd.png", "caption": ""}]
    bad.write_text(json.dumps(data), encoding="utf-8")
    contents = build(tmp_path / "results", tmp_path / "index.html", papers=tmp_path)
    problems = {e.name: e.problem for e in contents.experiments}
    assert "toy/odd.json" in problems["odd"] and problems["good"] == ""


@pytest.mark.parametrize(
    "text",
    [
        'titel = "typo"',
        "order = 1e999\n[",
        "order = " + "9" * 5000,
        "title = 5",
        "[groups]\na = 1",
        "a = " + "[" * 5000,
        '[[experiments]]\nname = ["x"]',
        "\0",
        b"\xff",
    ],
)
def test_a_papers_damaged_description_is_named_and_stops_nothing(text, tmp_path):
    whole(tmp_path / "results")
    for name, content in (("toy", text), ("sound", 'title = "Sound"\n[[experiments]]\nname = "t"')):
        (tmp_path / "papers" / name).mkdir(parents=True)
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / "papers" / name / "paper.toml").write_bytes(data)
    contents = build(tmp_path / "results", tmp_path / "index.html", papers=tmp_path / "papers")
    (problem,) = (paper.problem for paper in contents.papers if paper.problem)
    assert (
        problem in contents.problems
        and problem.startswith("toy/paper.toml: ")
        and problem in unescape((tmp_path / "index.html").read_text(encoding="utf-8"))
    )
    assert [e.name for e in contents.experiments] == ["bad", "good"] and len(contents.absent) == 1


def test_what_cannot_be_rendered_is_named_and_the_rest_is_shown(tmp_path, monkeypatch):
    """A guard behind the others: no content is known that gets so far."""
    whole(tmp_path / "results")
    real = page.cell

    def fails(value):
        if value == "v":
            raise ValueError("a cell that nobody thought of")
        return real(value)

    monkeypatch.setattr(page, "cell", fails)
    contents = build(tmp_path / "results", tmp_path / "index.html", papers=tmp_path)
    unread = [problem for problem in contents.problems if "cannot be shown (ValueError: a cell that" in problem]
    assert len(unread) == 2 and (tmp_path / "index.html").exists()


def test_command_line(built, tmp_path):
    root = tmp_path / "results"
    shutil.copytree(built[0] / "toy", root / "toy")
    run = [sys.executable, "-m", "shared.report", "--results", str(root)]
    done = subprocess.run(run, capture_output=True, encoding="utf-8", cwd=ROOT, timeout=60)
    assert done.returncode == 0 and done.stdout.rstrip().endswith(str((root / "report" / "index.html").resolve()))
    assert subprocess.run([*run, "--strict"], capture_output=True, cwd=ROOT, timeout=60).returncode == 1
    done = subprocess.run(
        [*run[:-1], str(tmp_path / "no")], capture_output=True, encoding="utf-8", cwd=ROOT, timeout=60
    )
    assert done.returncode == 2 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_a_single_difference_is_never_too_thin_to_see():
    parts = bar(Counter(equal=5000, differs=1))
    assert [name for name, _, _ in parts] == ["equal", "differs"]
    assert parts[1][2] > 1 and sum(width for _, _, width in parts) == pytest.approx(100, abs=0.01)
    assert bar(Counter()) == []
    assert {name for name, _, _ in bar(Counter(VERDICTS))} == set(VERDICTS)


@pytest.mark.parametrize(
    ("value", "published", "shown"),
    [(0.6789, "53.9", "+0.68"), (-1e-14, "53.9", "0"), (-250.0, "1,250.0", "−250.00"), (0.5, "fits", "+0.500")],
)
def test_differences_have_one_digit_more_than_the_publication(value, published, shown):
    assert number(value, published, sign=True) == shown


def test_names():
    assert [words(n) for n in ("table6", "fewshot-offline", "top5")] == ["Table 6", "Fewshot offline", "Top 5"]
    used: set[str] = set()
    assert [unique(slug(n), used) for n in ("A/b", "a b", "a-b-2", "…")] == ["a-b", "a-b-2", "a-b-2-2", "x"]
    assert Path(slug("../x")).name == slug("../x")


def test_sources_are_linked_where_they_are_named(tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "paper.toml").write_text(
        'title = "A toy"\n[[sources]]\nname = "the article"\ntitle = "All of it & more"\nurl = "https://a.org/x"\n'
        '[[sources]]\nname = "the note"\ntitle = "Kept here"\n'
        '[[sources]]\nname = "it"\ntitle = "x"\nurl = "javascript:1"\n',
        encoding="utf-8",
    )
    paper = read_paper(tmp_path / "toy" / "paper.toml")
    html = linked("Does the article hold, <b>the note</b> too? It says the article does; it.", paper)
    assert html.count("<a ") == 3 and "<b>" not in html and "javascript" not in html
    assert '<a href="https://a.org/x" title="All of it &amp; more" rel="noreferrer">the article</a>' in html
    assert '<a href="#paper-toy" title="Kept here"' in html
    html = with_addresses('https://a.org/b"<x> and arXiv:2010.11929, Table 1')
    assert 'href="https://arxiv.org/abs/2010.11929"' in html and "<x>" not in html and 'href="https://a.org/b"' in html


def test_findings_are_shown_as_text_with_tables_and_without_html():
    html = as_html(
        "# Found\n\n**so**\n\n| a | |\n|---|---|\n| 1 | 2 |\n\n<script>x</script>\n\n[x](javascript:1)", "Findings"
    )
    assert (
        "<h4>Found</h4>" in html and "<strong>so</strong>" in html and "<td>2</td>" in html and "<th></th>" not in html
    )
    assert "<script>" not in html and "href" not in html


def test_variants_stand_beside_the_reference_under_their_own_name(tmp_path):
    """Two experiments measure the published number; the reference's verdict counts, whichever was written last."""
    published_file = tmp_path / "papers" / "toy" / "published" / "table1.json"
    published_file.parent.mkdir(parents=True)
    published_file.write_text(
        '{"schema": 1, "paper": "toy", "experiment": "table1", "source": "arXiv:1234.56789", "unit": "%",'
        ' "numbers": {"one": {"printed": "50.0", "images": 1000}}}',
        encoding="utf-8",
    )
    from shared.published import read

    one = read(published_file)["one"]
    for name, value in (("table1", 50.4), ("variant", 61.0)):
        with Record("toy", name, results=tmp_path / "results", quiet=True, question="?") as record:
            record.judge(one, value)
    contents = build(tmp_path / "results", tmp_path / "results" / "i.html", papers=tmp_path / "papers")
    html = (tmp_path / "results" / "i.html").read_text(encoding="utf-8")
    reference, variant = contents.experiments
    assert contents.counts == Counter(agrees=1) and not reference.beside and variant.beside
    (row,) = reference.groups[0].rows
    assert [(name, v.verdict) for name, v in row.beside] == [("Variant", "differs")]
    assert "Variant: 61.00" in html and "are not counted" in html


def test_the_counts_are_split_into_three_kinds_with_contradictions_apart(tmp_path):
    kinds = {"copied": "cell", "derived": "arithmetic", "run": "measured"}
    papers, results = tmp_path / "papers", tmp_path / "results"
    published_file = papers / "toy" / "published" / "table1.json"
    published_file.parent.mkdir(parents=True)
    numbers = {id: {"printed": "5", "kind": kind} for id, kind in kinds.items()}
    head = {"schema": 1, "paper": "toy", "experiment": "table1", "source": "s"}
    published_file.write_text(json.dumps(head | {"numbers": numbers}), encoding="utf-8")
    from shared.published import read

    with Record("toy", "table1", results=results, quiet=True, question="?") as record:
        record.judge_all(read(published_file), {"copied": 5, "derived": 5}, "too long")
        record.contradictions([{"where": "a page", "claim": "5 layers", "arithmetic": "6 are listed"}])
    contents = build(results, results / "i.html", papers=papers)
    html = (results / "i.html").read_text(encoding="utf-8")
    assert {kind: own.total() for kind, own in contents.experiments[0].by_kind.items()} == dict.fromkeys(
        kinds.values(), 1
    )
    assert "6 are listed" in html and "contradictions found in what was printed" in html
    assert "0 (0 %)" in html  # of the paper's numbers measured by an experiment


def test_the_tables_in_markdown_are_those_of_the_results(built):
    root, contents, _ = built
    toy = next(paper for paper in contents.papers if paper.name == "toy")
    text = markdown.render(contents, toy)
    assert text.index("What differs") < text.index("| two |")
    assert "two | 53.9 ± 2.6 | 54.88 ± 1.25 |" in text
    assert "| small | 61.23 |" in text and "<script>" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\\\)\\|", line)) for line in rows}
    assert widths and min(widths) >= 2
    written = markdown.write(contents, root)
    assert (root / "toy" / "report.md") in written and (root / "toy" / "report.md").read_text(encoding="utf-8") == text
