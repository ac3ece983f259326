"""`compare.py` as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from papers.comparisons.compare import main
from shared.paths import ROOT
from shared.record import Record

SCRIPT = ROOT / "papers" / "comparisons" / "compare.py"
GRAPHS = ROOT / "papers" / "comparisons" / "graphs"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """Run a command line; gives (exit code, stdout, stderr)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        output = capsys.readouterr()
        return ended.value.code or 0, output.out, output.err

    return run


def written(tmp_path: Path, change, name: str = "edited.json") -> Path:
    data = json.loads((GRAPHS / "gpt2.json").read_text(encoding="utf-8"))
    change(data)
    path = tmp_path / name
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_a_published_pair_prints_its_report_and_is_judged(run, tmp_path: Path) -> None:
    code, out, _ = run("graph:bert-base", "graph:vit-b16", "--results", tmp_path, "--strict")
    assert code == 0
    assert "ViT-B/16 has 23M fewer parameters than BERT Base: 4 rows added, 2 removed, 4 changed." in out
    assert "31,514,112" in out and "31,120,896" in out
    assert "150 equal, 0 agrees, 0 differs" in out
    record = Record.load(tmp_path / "comparisons" / "bert-base-vs-vit-b16.json")
    assert len(record["verdicts"]) == 150
    assert record["results"]["contradictions"]
    assert (tmp_path / "comparisons" / "bert-base-vs-vit-b16.log").read_text(encoding="utf-8").strip() == out.strip()


def test_as_published_prints_the_page(run, tmp_path: Path) -> None:
    code, out, _ = run("bert-base", "vit-b16", "--as-published", "--markdown", "--results", tmp_path)
    assert code == 0
    assert "| Est. train cost | $0.197 | $0.105 |" in out
    assert "- Added 4, removed 2, changed 5, unchanged 4" in out


def test_json_has_every_row_and_nothing_else(run, tmp_path: Path) -> None:
    code, out, _ = run("graph:gpt2", "graph:gpt2", "--json", "--results", tmp_path)
    found = json.loads(out)["comparison"]
    assert code == 0
    assert [row["status"] for row in found["rows"]] == ["same"] * 12
    assert found["deltas"]["parameters"] == 0
    assert found["headline"].startswith("GPT-2 has as many parameters as GPT-2")


def test_repeated_blocks_are_folded_and_unfolded(run, tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "shared"))
    from graphs import block

    paths = []
    for blocks in (3, 5):
        path = tmp_path / f"b{blocks}.json"
        path.write_text(json.dumps(block(blocks=blocks)), encoding="utf-8")
        paths.append(path)
    out = run(*paths, "--results", tmp_path)[1]
    assert "× 2: rows 3 to 8 come 2 times, to row 14" in out
    assert "× 3: rows 15 to 20 come 3 times, to row 32" in out
    assert "comes" not in run(*paths, "--results", tmp_path, "--all-rows")[1]


def test_plan_is_one_json_object_with_its_assumptions(run) -> None:
    code, out, _ = run("plan", GRAPHS / "gpt2.json", "--batch", "8", "--price-hour", "2.5")
    found = json.loads(out)
    assert code == 0
    assert (found["parameters"], found["macs"], found["layers"]) == (85_120_849, 48_382_083_072, 10)
    assert found["assumptions"]["price_hour"] == 2.5
    training = found["memory_bytes"]["training"]
    assert training["weights"] == 4 * 85_120_849 == training["gradients"]
    assert training["adam_states"] == 2 * training["weights"]
    parts = ("weights", "gradients", "adam_states", "activations")
    assert training["total"] == sum(training[part] for part in parts)
    assert found["memory_bytes"]["batch"] == 8
    assert set(found["gpus"]) == {"T4 16GB", "A100 40GB", "H100 80GB"}
    assert found["training"]["dollars"] > 0
    assert len(found["layer_list"]) == 12


def test_plan_says_when_a_graph_does_not_pass_forward(run, tmp_path: Path) -> None:
    path = written(tmp_path, lambda d: d["components"][10]["params"].update(inFeatures=512), "x.json")
    found = json.loads(run("plan", path)[1])
    assert found["forward_passes"] is False
    assert found["forward_problem"] == "no: lm_head expects 512 features, gets 1 × 1024 × 768"
    assert found["macs_unknown_in"] == ["linear-1"]
    assert found["memory_bytes"]["lower_bound"] is False, "nothing bounds what cannot run"
    assert found["totals"] == {"parameters": "exact", "macs": "not known", "memory": "not known", "cost": "not known"}
    assert run("plan", path)[0] == 2
    compared = run(path, "graph:gpt2")[1]
    assert compared.count("not known") >= 6 and "at least 4" not in compared, "no part stands for the whole"


def test_options_come_from_a_file_and_the_command_line_wins(run, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        f'left = "graph:gpt2"\nright = "graph:bert-base"\nbatch = 4\nresults = "{tmp_path}"\n', encoding="utf-8"
    )
    assert "at batch 4" in run("--config", path)[1]
    assert "at batch 6" in run("--config", path, "--batch", "6")[1]
    path.write_text("btach = 4\n", encoding="utf-8")
    code, _, err = run("--config", path)
    assert code == 2
    assert "did you mean 'batch'?" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name two models"),
        (("graph:gpt2",), "name two models"),
        (("bert-bsae", "vit-b16"), "did you mean bert-base?"),
        (("graph:nope", "vit-b16"), "the pages' graphs are bert-base, gpt2"),
        (("none.json", "vit-b16"), "none.json: no such graph file"),
        (("timm:", "vit-b16"), "nothing after the colon"),
        (("timm:resnet50", "vit-b16", "--as-published"), "leave out --as-published"),
        (("graph:gpt2", "graph:gpt2", "--markdown", "--json"), "choose one"),
        (("gpt2", "gpt2", "--as-published", "--batch", "3"), "pages' own assumptions"),
        (("graph:gpt2", "graph:gpt2", "--bacth", "3"), "did you mean --batch?"),
        (("graph:gpt2", "graph:gpt2", "--batch", "many"), "invalid int value"),
        (("graph:gpt2", "graph:gpt2", "--batch", "0"), "batch must be above 0"),
        (("graph:gpt2", "graph:gpt2", "--batch", "1" + "0" * 400), "batch must be at most 10^12, got 1000"),
        (("graph:gpt2", "graph:gpt2", "--price-hour", "inf"), "price-hour must be at most 10^12, got inf"),
        (("graph:gpt2", "graph:gpt2", "--tflops", "1e-320"), "tflops must be above 0"),
        (("graph:gpt2", "graph:gpt2", "--length", "5"), "--length is for models that take tokens"),
        (("plan", "hf:owner/name", "--length", "0"), "--length must be at least 1"),
        (("a" * 5000, "graph:gpt2"), "not a hub repository's name, a graph file or a built-in model"),
        (("plan",), "name two models"),
        (("zoo",), "name a folder"),
        (("timm:resnet18@none.pth", "vit-b16"), "no file none.pth"),
        (("wheel:none", "vit-b16"), "expected one of wheel:vit-s14-saliency, wheel:efficientnet-lite0"),
        ((str(GRAPHS), "vit-b16"), "graphs: has no config.json"),
        (("hf:/nowhere/at/all", "vit-b16"), "no such folder, and not a hub repository's name"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_two(run, arguments, said) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert said in err
    assert err.startswith("error: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["connections"].append({"from": "add-2", "to": "layerNorm-1"}), "the graph has a cycle"),
        (lambda d: d["components"].pop(4), "which is no node"),
        (lambda d: d["components"].append(d["components"][3]), "two nodes have the id"),
        (lambda d: d["components"][4]["params"].update(numHeads=7), "768 features do not divide into 7 heads"),
        (
            lambda d: d["components"][1].update(type="conv2d", params={"outChannels": 3, "kernelSize": 1}),
            "takes an image",
        ),
        (lambda d: d["components"][10]["params"].update(outFeatures=-1), "whole number of at least 1"),
        (lambda d: (d.pop("connections"), d["components"][3].update(inputs=5)), "inputs: expected a list of node ids"),
        (
            lambda d: d["components"][4].update(
                type="transformerBlock",
                params={"embedDim": 10**12, "numHeads": 1, "ffDim": 10**12, "numLayers": 10**12},
            ),
            "no model has that many",
        ),
    ],
)
def test_bad_graphs_are_one_line_and_exit_code_two(run, tmp_path: Path, change, said) -> None:
    code, _, err = run(written(tmp_path, change), "graph:bert-base")
    assert code == 2
    assert said in err and "edited.json" in err
    assert err.count("\n") == 1


def test_a_failed_comparison_leaves_no_result(run, tmp_path: Path) -> None:
    run(written(tmp_path, lambda d: d["components"].clear()), "graph:bert-base", "--results", tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_an_unknown_type_is_reported_and_in_no_total(run, tmp_path: Path) -> None:
    path = written(tmp_path, lambda d: d["components"][7].update(type="quantumLayer"))
    out = " ".join(run(path, "graph:gpt2", "--results", tmp_path)[1].split())
    assert "at least" in out
    assert "quantumLayer × 1" in out
    assert "unknown type 'quantumLayer': counted as unknown" in out


def test_what_is_not_known_is_said_so_wherever_it_matters(run, tmp_path: Path) -> None:
    path = written(tmp_path, lambda d: d["components"][2].update(type="flux<b>\n\x1b[31m|", params={"k\n|<i>": 1}))
    code, out, _ = run(path, "graph:gpt2", "--markdown", "--results", tmp_path)
    assert code == 0 and "\x1b" not in out and "<b>" not in out and "<i>" not in out
    headline = next(line for line in out.splitlines() if line.startswith("**"))
    assert "has 85M parameters, " in headline and "at least " in headline and "fewer" not in headline
    assert "- Parameters: +" in out and "in the layers whose parameters are known" in out
    assert "| Training memory | at least " in out and "| Inference memory | at least " in out
    code, out, _ = run("plan", path)
    plan = json.loads(out)
    assert plan["memory_bytes"]["lower_bound"] is True
    assert {gpu["fits_batch"] for gpu in plan["gpus"].values()} == {None}


def test_undeclared_inputs_are_not_a_shape_that_both_declare(run, tmp_path: Path) -> None:
    def change(data: dict) -> None:
        gone = {node["id"] for node in data["components"] if node["type"] == "input"}
        data["components"] = [node for node in data["components"] if node["id"] not in gone]
        data["connections"] = [edge for edge in data["connections"] if edge["from"] not in gone]

    path = written(tmp_path, change)
    code, out, _ = run(path, path, "--results", tmp_path)
    assert code == 0
    assert "both declare" not in out and "Not every input declares a shape" in out


def test_options_may_stand_between_the_models(run, tmp_path: Path) -> None:
    code, out, _ = run("graph:gpt2", "--results", tmp_path, "--batch", "3", "graph:bert-base")
    assert code == 0 and "at batch 3" in out


def test_no_other_comparison_writes_over_a_pages_evidence(run, tmp_path: Path) -> None:
    edited = written(tmp_path, lambda d: d["components"][4]["params"].update(numHeads=1))
    assert run(edited, "graph:bert-base", "--results", tmp_path)[0] == 0
    assert [path.name for path in (tmp_path / "comparisons").glob("*.json")] == ["gpt2-edited-vs-bert-base.json"]


def test_long_names_give_short_file_names(run, tmp_path: Path) -> None:
    path = written(tmp_path, lambda d: d.update(id="\u6a21" * 300))
    assert run(path, path, "--results", tmp_path)[0] == 0
    (record,) = (tmp_path / "comparisons").glob("*.json")
    assert len(record.name.encode()) < 240


def test_pages_writes_a_record_a_page(run, tmp_path: Path) -> None:
    code, out, _ = run("pages", "--results", tmp_path, "--strict")
    assert code == 0
    assert out.count(" 0 differs") == 4
    found = [Record.load(path) for path in sorted((tmp_path / "comparisons").glob("*.json"))]
    assert sum(len(record["verdicts"]) for record in found) == 654


def test_a_zoo_is_a_table_and_a_broken_file_a_line(run, tmp_path: Path) -> None:
    for name in ("gpt2", "t5-small"):
        (tmp_path / f"{name}.json").write_text((GRAPHS / f"{name}.json").read_text(encoding="utf-8"), encoding="utf-8")
    written(tmp_path, lambda d: d.update(realParamCount=85_000_000), "official.json")
    written(tmp_path, lambda d: d.update(realParamCount=99_000_000), "far.json")
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    code, out, _ = run("zoo", tmp_path, "--results", tmp_path / "r")
    assert code == 0
    assert "broken.json: not read:" in out
    assert "1 of 2 official counts are met within 2%." in out
    assert "far: 85,120,849 against 99,000,000; no reason is known" in out
    assert Record.load(tmp_path / "r" / "comparisons" / "zoo.json")["results"]["files"]["broken"]["read"] is False


def test_graph_comparisons_import_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv[:1] = 'compare.py graph:bert-base graph:t5-small --html --results'.split()\n"
        "from papers.comparisons.compare import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'numpy', 'transformers'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, encoding="utf-8", timeout=120
    )
    assert done.stderr.strip().endswith("[]")
    assert "page: " in done.stdout


def test_the_script_runs_from_its_own_folder(tmp_path: Path) -> None:
    command = [sys.executable, "compare.py", "plan", "graph:resnet-block"]
    done = subprocess.run(command, cwd=SCRIPT.parent, capture_output=True, encoding="utf-8", timeout=120)
    assert json.loads(done.stdout)["parameters"] == 74_112
