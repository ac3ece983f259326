"""What is asked first stands first: equal inputs where both can take them, else the difference of inputs."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from papers.comparisons import inputs
from papers.comparisons.compare import main
from papers.comparisons.comparison import compare
from papers.comparisons.models import find, page_graph
from papers.comparisons.text import as_csv, as_text
from shared.graph.measure import measure
from shared.graph.read import parse


@pytest.mark.parametrize(
    ("pair", "taken", "said"),
    [
        (("gpt2", "bert-base"), (1, 512), "Both are measured at 1 × 512; GPT-2's own input is 1 × 1024."),
        (
            ("timm:test_vit", "efficientnet-lite0"),
            (1, 3, 160, 160),
            "Both are measured at 1 × 3 × 160 × 160; EfficientNet-Lite0's own input is 1 × 3 × 224 × 224.",
        ),
        (("article-resnet", "article-vit"), (1, 3, 32, 32), ""),
    ],
)
def test_two_real_models_are_compared_at_equal_inputs(pair, taken, said) -> None:
    sources = [find(name) for name in pair]
    models, note = inputs.measured(sources)
    assert note == said
    assert [model.inputs[0].output for model in models] == [taken, taken]
    own, nothing = inputs.measured(sources, own=True)
    assert nothing == "" and [model.parameters for model in own] == [model.parameters for model in models]
    if said:
        assert as_text(compare(*models, built=True, inputs_note=note)).splitlines()[0] == said
        assert own[0].inputs[0].output != own[1].inputs[0].output


def test_where_none_can_take_the_others_input_the_difference_is_the_first_line() -> None:
    models, note = inputs.measured([find("article-vit"), find("vit-b16")])
    assert note == ""
    first = as_text(compare(*models, built=True)).splitlines()[0]
    sides = "ViT, 1.2M (article) takes 1 × 3 × 32 × 32, ViT-B/16 takes 1 × 3 × 224 × 224"
    assert first.startswith(f"The inputs differ: {sides}.")


@pytest.mark.parametrize("pair", [("bert-base", "vit-b16"), ("bert-base", "t5-small"), ("gpt2", "resnet-block")])
def test_graphs_of_different_inputs_say_so_first(pair) -> None:
    compared = compare(*(measure(page_graph(name)) for name in pair))
    assert as_text(compared).startswith("The inputs differ: ")
    assert "MACs" not in dict(compared.changes)
    same = compare(compared.models[0], compared.models[0])
    assert not same.inputs_differ and dict(same.changes)["MACs"].startswith("+0 (")


def test_what_a_person_asks_stands_before_the_layers() -> None:
    text = as_text(compare(*(measure(page_graph(name)) for name in ("gpt2", "bert-base"))))
    asked = ["Parameters  ", "MACs  ", "Weights  ", "Training memory", "T4 16GB, training", "T4 16GB, inference"]
    asked += ["Layer by layer"]
    places = [text.index(words) for words in asked]
    assert places == sorted(places)
    # a cell too wide for its column goes on in the next line
    assert re.search(r"fits at batch 32 in float32 \(up to .*\n +37\)", text) and "in float16" in text


def test_csv_has_every_row_and_no_formula() -> None:
    data = {
        "id": "x",
        "components": [
            {"id": "i", "type": "input", "inputShape": [4]},
            {"id": "a", "type": "linear", "name": "=cmd|'/c calc'!A0", "params": {"inFeatures": 4, "outFeatures": 2}},
            {"id": "b", "type": "mine", "name": 'a,"b"'},
        ],
        "connections": [{"from": "i", "to": "a"}, {"from": "a", "to": "b"}],
    }
    model = measure(parse(data, "f"))
    rows = list(csv.DictReader(io.StringIO(as_csv(compare(model, replace(model, source="g"))))))
    assert [row["left name"] for row in rows] == ["i", "'=cmd|'/c calc'!A0", 'a,"b"']
    assert rows[1]["right parameters"] == "10" and rows[1]["left macs"] == "8" and rows[1]["left output"] == "2"
    assert rows[2]["left parameters"] == ""


@pytest.mark.parametrize("pair", [("bert-base", "resnet-50"), ("article-vit", "vit-b16")])
def test_real_models_of_the_pages_end_with_the_pages_count(pair, tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit):
        main([*pair, "--results", str(tmp_path)])
    out = capsys.readouterr().out
    section = out.partition("== how the published comparison pages count ==")[2]
    assert "one block of twelve" in section and ("109,482,240" in section or "86,567,656" in section)
    assert out.index("Layer by layer") < out.index("== how the published")


def test_csv_and_the_others_print_one_form(tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["graph:gpt2", "graph:gpt2", "--csv", "--results", str(tmp_path)])
    assert capsys.readouterr().out.startswith("row,status,changed,left name")
    with pytest.raises(SystemExit) as ended:
        main(["graph:gpt2", "graph:gpt2", "--csv", "--json", "--results", str(tmp_path)])
    assert ended.value.code == 2 and "--json and --csv both print" in capsys.readouterr().err
