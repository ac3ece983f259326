"""`compare.py plan`: the answer is what the schema says, a policy is kept or not, and what is unknown keeps no rule."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from papers.comparisons import answers
from papers.comparisons.compare import main
from papers.comparisons.models import GRAPHS, find
from papers.comparisons.plan import answer, blocked
from papers.comparisons.sidebyside import as_lines
from shared.errors import UserError
from shared.text import folded

SCHEMA = json.loads((Path(answers.__file__).parent / "plan.schema.json").read_text(encoding="utf-8"))


def graph(file: str = "gpt2", **more) -> dict:
    return json.loads((GRAPHS / f"{file}.json").read_text(encoding="utf-8")) | more


def broken(at: int = 10, **settings) -> dict:
    data = graph()
    data["components"][at]["params"].update(settings or {"inFeatures": 512})
    return data


def unknown() -> dict:
    data = graph()
    data["components"][7]["type"] = "quantumLayer"
    return data


ANSWERS = {
    "plain": {"model": graph()},
    "broken": {"model": broken()},
    "unknown type": {"model": unknown()},
    "no input": {"model": {"id": "x", "components": [{"id": "a", "type": "relu"}], "connections": []}},
    "base": {"model": graph(), "base": graph("bert-base")},
    "by name": {"model": "graph:vit-b16", "base": "graph:t5-small", "assumptions": {"batch": 4}},
    "policy": {
        "model": graph(),
        "policy": {"max_params": 1, "must_fit": ["T4", "H100 80GB"], "require_types": ["mla"]},
    },
    "kept": {"model": graph(), "policy": {"max_params": 1e9, "forbid_types": ["lstm"]}},
    "serving": {
        "model": graph(),
        "spec": {"quant": "int4", "adapter": "lora", "serving": {"gpu": "t4", "genTokens": 9}},
    },
    "share": {"model": graph(), "share": True, "source": "cli", "more": 1},
}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_is_what_the_schema_says(name: str) -> None:
    text = as_lines(answer(ANSWERS[name], find))
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(text))
    msgspec.json.decode(text, type=answers.Plan)
    del (lacking := json.loads(text))["plan"]["run"]["legal"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(lacking, SCHEMA)


def test_the_committed_schema_is_made_of_the_types() -> None:
    assert answers.schema() == SCHEMA, (
        "python papers/comparisons/compare.py schema > papers/comparisons/plan.schema.json"
    )
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def verdict(**request) -> dict:
    return answer({"model": graph()} | request, find)["plan"]


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"max_params": 85_120_848}, "max_params: parameters: 85,120,849, more than 85,120,848"),
        ({"max_memory_gb": 13}, "max_memory_gb: training memory: 13.3 GB, more than 13.0 GB"),
        ({"max_layers": 9}, "max_layers: layers: 10, more than 9"),
        ({"max_cost_usd": 1.5}, "max_cost_usd: training cost: $1.85, more than $1.50"),
        ({"forbid_types": ["causalAttention"]}, "forbid_types: causalAttention: 1 layers, the first is attn"),
        ({"require_types": ["conv2d"]}, "require_types: conv2d: no layer has this type"),
    ],
)
def test_a_rule_that_is_not_kept_blocks(rules: dict, said: str) -> None:
    found = verdict(policy=rules)
    assert found["run"]["blockers"] == [said]
    assert found["policy"]["kept"] is False and found["policy"]["violations"][0]["rule"] == next(iter(rules))
    assert found["run"]["legal"] is True


def test_rules_that_are_kept_block_nothing() -> None:
    rules = {"max_params": 85_120_849, "max_memory_gb": 14, "must_fit": "t4", "max_layers": 10, "max_cost_usd": 2}
    rules |= {"forbid_types": ["conv2d"], "require_types": ["causalAttention", "linear"]}
    found = verdict(policy=rules)
    assert found["run"]["blockers"] == [] and found["policy"] == {"rules": rules, "kept": True, "violations": []}


def test_must_fit_depends_on_the_batch() -> None:
    blockers = [
        verdict(policy={"must_fit": ["T4", "a100 40gb"]}, assumptions={"batch": batch})["run"]["blockers"]
        for batch in (8, 64, 128)
    ]
    holds = "must_fit: {}: does not hold training at batch {}"
    assert blockers == [[], [holds.format("T4 16GB", 64)], [holds.format(g, 128) for g in ("T4 16GB", "A100 40GB")]]


@pytest.mark.parametrize(
    "rules", [{"max_params": 1e12}, {"max_memory_gb": 1e6}, {"max_cost_usd": 1e6}, {"must_fit": "h100"}]
)
def test_what_is_not_known_keeps_no_rule(rules: dict) -> None:
    found = answer({"model": unknown(), "policy": rules}, find)
    assert blocked(found) and "not known" in found["plan"]["run"]["blockers"][0]


def test_a_graph_that_cannot_run_is_not_legal() -> None:
    found = answer({"model": broken()}, find)
    assert found["plan"]["run"]["legal"] is False and blocked(found)
    assert found["plan"]["run"]["blockers"] == [
        "lm_head cannot take its input: it expects 512 features, gets 1 × 1024 × 768"
    ]
    assert (
        "cannot run" in found["plan"]["summary"]
        and "cannot take" in found["text"]
        and "cannot take" in found["markdown"]
    )
    assert not blocked(answer({"model": graph()}, find))


def test_the_fingerprint_is_of_what_is_computed() -> None:
    def fingerprint(data: dict) -> str:
        return answer({"model": data}, find)["plan"]["model"]["fingerprint"]

    first, renamed, wider, unbound = fingerprint(graph()), graph(name="other"), graph(), graph()
    renamed["components"][3]["name"] = "mine"
    wider["components"][4]["params"]["numHeads"] = 6
    unbound["connections"] = unbound["connections"][:-1]
    assert fingerprint(renamed) == first
    assert len({first, fingerprint(wider), fingerprint(unbound)}) == 3


def test_a_diff_says_old_and_new() -> None:
    found = verdict(base=graph("bert-base"))["diff"]
    assert found["parameters"] == 85_120_849 - 31_514_112 and found["layers"] == 1
    assert found["macs"] is None, "the inputs differ"
    assert "~ token_embed (Embedding): numEmbeddings 30522 -> 50257" in found["changes"]
    assert found["rows"] == {"added": 3, "removed": 2, "changed": 4, "same": 5}
    assert verdict(base=graph())["diff"]["macs"] == 0


def test_serving_counts_the_weights_type_and_says_what_it_leaves_out() -> None:
    found = verdict(
        spec={"quant": "int8", "adapter": "lora", "serving": {"gpu": "T4", "batchSize": 2, "promptTokens": 5}}
    )
    assert found["serving"]["weights_bytes"] == 85_120_849 and found["serving"]["fits"] is True
    assert found["serving"]["activations_bytes"] == 2 * 2 * 2 * 1024 * 50257
    said = " ".join(found["run"]["warnings"])
    assert "'lora' is not planned" in said
    assert found["serving"]["cache_bytes"] == 2 * 2 * 5 * 2 * 768, "batch, bytes, tokens, keys and values"
    bare = verdict(model=graph("vit-b16"), spec={"serving": {"genTokens": 9}})
    assert bare["serving"]["cache_bytes"] == 0 and "no cache of keys and values" in " ".join(bare["run"]["warnings"])


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({}, "request: 'model' is missing"),
        ({"model": 3}, "request: model: expected"),
        ({"model": {}}, "graph: expected an object with a list `components`"),
        ({"model": graph(), "policy": {"max_param": 3}}, "did you mean 'max_params'?"),
        ({"model": graph(), "policy": {"max_params": "many"}}, "policy/max_params: expected"),
        ({"model": graph(), "policy": {"max_params": -1}}, "policy/max_params"),
        ({"model": graph(), "policy": {"must_fit": "tpu"}}, "GPU 'tpu': expected a memory such as 24GB, or T4 16GB"),
        ({"model": graph(), "policy": {"must_fit": ""}}, "expected a memory such as 24GB"),
        ({"model": graph(), "spec": {"quant": "int3"}}, "spec/quant: expected one of 'fp32'"),
        ({"model": graph(), "spec": {"serving": {"batchSize": 0}}}, "spec/serving/batchSize"),
        ({"model": graph(), "assumptions": {"batch": 0}}, "batch must be above 0"),
        ({"model": graph(), "assumptions": {"btach": 1}}, "did you mean 'batch'?"),
        ({"model": graph(), "length": 5}, "--length is for models that take tokens"),
        ({"model": graph(), "base": "graph:none"}, "graph:none: the pages' graphs are"),
    ],
)
def test_a_bad_request_is_one_sentence(request_: dict, said: str) -> None:
    with pytest.raises(UserError) as error:
        answer(request_, find)
    assert said in str(error.value) and "\n" not in str(error.value)


# the command ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    def run(*arguments: object, stdin: bytes | str = b"") -> tuple[int, str, str]:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        output = capfd.readouterr()
        return ended.value.code or 0, output.out, output.err

    return run


def test_a_graph_or_a_request_from_standard_input_is_one_answer(run) -> None:
    rules = {"max_params": 1e6}
    _, out, _ = run("plan", "-", "--policy", json.dumps(rules), stdin=json.dumps(graph()))
    assert out == run("plan", "-", stdin=json.dumps({"model": graph(), "policy": rules}))[1]
    assert out == as_lines(answer({"model": graph(), "policy": rules}, find))


def test_the_gate_of_a_build(run, tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text('{"max_params": 1e8}', encoding="utf-8")
    gate = ("plan", "-", "--policy", rules, "--fail-on-block")
    assert run(*gate, stdin=json.dumps(graph()))[0] == 0
    code, out, _ = run(*gate, stdin=json.dumps(broken()))
    assert code == 2 and json.loads(out)["plan"]["run"]["legal"] is False
    rules.write_text('{"max_params": 8e7}', encoding="utf-8")
    assert run(*gate, stdin=json.dumps(graph()))[0] == 2
    assert run(*gate[:-1], stdin=json.dumps(graph()))[0] == 0


def test_every_form_of_a_plan(run, tmp_path: Path) -> None:
    path = GRAPHS / "t5-small.json"
    code, out, _ = run("plan", path, "--results", tmp_path, "--json")
    plan = json.loads(out)
    assert code == 0 and out == (tmp_path / "comparisons" / "plan-t5-small.json").read_text(encoding="utf-8")
    assert run("plan", path)[1] == out
    assert (
        run("plan", path, "--text")[1] == folded(plan["text"])
        and run("plan", path, "--markdown")[1] == plan["markdown"]
    )
    assert plan["text"].startswith("T5 Small: the published page describes one encoder block of six")
    rows = list(csv.DictReader(io.StringIO(run("plan", path, "--csv")[1])))
    assert sum(int(row["parameters"]) for row in rows) == plan["parameters"]
    assert len(rows) == len(plan["layer_list"])
    assert "choose one" in run("plan", path, "--csv", "--text")[2]


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (("plan", "-"), "{", "standard input: not JSON"),
        (("plan", "-"), "[1]", "expected an object, a graph or a request"),
        (("plan", "-"), b"\xff\xfe", "standard input: not JSON"),
        (("plan", "-"), '{"a":' * 100_000, "nested too deeply"),
        (("plan", "-"), '{"model": NaN}', "NaN is no number of JSON"),
        (("plan", "graph:gpt2", "--policy", "none.json"), "", "none.json: no such policy"),
        (("plan", "graph:gpt2", "--policy", "{]"), "", "--policy: not JSON"),
        (("plan", "graph:gpt2", "--policy", '{"max": 1}'), "", "unknown key 'max'"),
        (("plan", "graph:gpt2", "--base", "nope.json"), "", "nope.json: no such graph file"),
    ],
)
def test_mistakes_are_one_line(run, arguments, stdin, said) -> None:
    code, out, err = run(*arguments, stdin=stdin)
    assert code == 2 and out == "" and said in err and err.count("\n") == 1
