"""`oauthbroker flow check`, `flow graph` and `flow schema`."""

from __future__ import annotations

import json
import os
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from oauthbroker import BrokerError, ConfigInvalidError
from oauthbroker.flowtools.cli import commands
from oauthbroker.flowtools.specification.source import published_schema
from tests.unit.flowtools.kit import EXAMPLES, chain, example, written

POLICY = {"name": "p", "version": 1, "description": "", "type": "custom", "condition": "rows > 1", "action": "warn"}


def run(*words: object):
    return CliRunner().invoke(commands.app, [*map(str, words)])


@pytest.mark.rule("001-risk-2", "001-risk-3", "001-risk-4")
def test_check_tells_risk_findings_and_problems_and_fails_if_one_tool_cannot_be_deployed(tmp_path):
    one = tmp_path / "processPayment.json"
    one.write_bytes(example(one.name))
    result = run("check", one)
    assert 0 == result.exit_code
    assert "processPayment version 1: yellow, deployable with acknowledgement" in result.output
    assert (
        "path: validate-reservation -> check-status -> tx-start -> create-payment -> tx-end -> charge" in result.output
    )
    other = tmp_path / "createReservation.json"
    other.write_bytes(example(other.name))
    result = run("check", tmp_path)
    assert 1 == result.exit_code
    assert (
        f"{other}:35:15 flow.nodes.calcPrice.config.expression: The name vehicle.dailyRate is not bound here"
        in result.output
    )


def test_check_as_json_has_every_finding_and_problem():
    answer = json.loads(run("check", "--json", EXAMPLES / "processPayment.json").output)
    (tool,) = answer["tools"]
    assert ("yellow", "acknowledge", 64) == (tool["risk"], tool["deployable"], len(tool["digest"]))
    assert {"rule", "risk", "node", "path", "what", "hint"} == tool["findings"][0].keys()
    answer = json.loads(run("check", "--json", EXAMPLES / "createReservation.json").output)
    assert {"file", "line", "column", "path", "what", "hint", "code"} == answer["problems"][0].keys()


@pytest.mark.rule("001-version")
def test_check_names_both_files_of_one_version_and_the_own_problems_of_each(tmp_path):
    for name in "abc":
        tool = written({"a": ("transform", {"expression": f"{name}{name}.x"})}, [])
        (tmp_path / f"{name}.json").write_text(json.dumps(tool), "utf-8")
    (tmp_path / "copy.json").write_bytes((tmp_path / "a.json").read_bytes())
    result = run("check", tmp_path)
    assert 1 == result.exit_code
    for name in "bc":
        assert f"Two files here are tool 1: {tmp_path}/a.json and {tmp_path}/{name}.json." in result.output
    assert 2 == result.output.count("Two files")
    assert all(f"{name}.json:1:" in result.output and f"name {name}{name}.x" in result.output for name in "abc")


SERVED = """
apiVersion: agents.example.io/v1alpha1
kind: FlowService
metadata: {name: flows}
spec: {entities: [../entities]}
"""


@pytest.mark.parametrize("words", [("--entity", "entities"), ("--config", "served"), ()])
def test_check_tells_of_a_misspelt_entity_once_and_of_nothing_that_it_leaves_unbound(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    for folder in ("entities", "served", "config"):
        (tmp_path / folder).mkdir()
    (tmp_path / "entities/order.json").write_text(json.dumps({"name": "Order", "fields": {"n": {"type": "number"}}}))
    for folder in ("served", "config"):
        (tmp_path / folder / "flows.yaml").write_text(SERVED)
    nodes = {
        "a": ("read", {"entity": "Ordr", "filter": {"id": "input.id"}}),
        "b": ("transform", {"expression": "order.n"}),
    }
    nodes["c"] = ("transform", {"expression": "order.n + 1.0"})
    (tmp_path / "tool.json").write_text(json.dumps(written(nodes, chain("a", "b", "c"))), "utf-8")
    found = json.loads(run("check", "--json", "tool.json", *words).output)
    assert [("no declared entity", ["Order"])] == [
        (each["what"].lower(), found["entities"]) for each in found["problems"]
    ]
    assert "nearest known name is Order" in found["problems"][0]["hint"]


@pytest.mark.parametrize(
    ("expression", "hints"),
    [("the-row.result", ["n"]), ("order.m + 1.0", ["n"]), ("order.n + the-row.version", []), ("the-row", [])],
)
def test_check_tells_of_a_member_that_no_row_of_the_entity_has(tmp_path, monkeypatch, expression, hints):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "order.json").write_text(json.dumps({"name": "Order", "fields": {"n": {"type": "number"}}}))
    nodes = {
        "the-row": ("read", {"entity": "Order", "filter": {"id": "input.id"}}),
        "b": ("transform", {"expression": expression}),
    }
    (tmp_path / "tool.json").write_text(json.dumps(written(nodes, chain("the-row", "b"), "the-row")), "utf-8")
    found = json.loads(run("check", "--json", "tool.json", "--entity", "order.json").output)["problems"]
    assert len(hints) == len(found), found
    assert all("row of Order, which has no such field" in each["what"] and "n" in each["hint"] for each in found)


def test_a_tool_with_a_problem_of_any_kind_is_told_as_not_deployable(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "order.json").write_text(json.dumps({"name": "Order", "fields": {"n": {"type": "number"}}}))
    tool = written({"a": "transform", "r": "read"}, chain("a", "r"))
    tool["flow"]["edges"][0]["dataMapping"] = {"x": "limit"}
    (tmp_path / "tool.json").write_text(json.dumps(tool), "utf-8")
    answer = json.loads(run("check", "--json", "tool.json", "--entity", "order.json").output)
    assert (1, ["no"]) == (len(answer["problems"]), [each["deployable"] for each in answer["tools"]])
    assert "tool version 1: green, not deployable" in run("check", "tool.json", "--entity", "order.json").output


def test_a_map_whose_names_are_no_texts_is_refused_by_its_cause(tmp_path):
    (tmp_path / "tool.json").write_text(json.dumps(written({"a": ("transform", {"expression": "{1: 2}"})}, [])))
    assert "A map with a name that is no text" in run("check", tmp_path / "tool.json").output


def test_new_writes_files_that_no_other_user_can_change(tmp_path):
    before = os.umask(0)
    try:
        assert 0 == run("new", tmp_path / "made").exit_code
    finally:
        os.umask(before)
    assert [] == [each for each in (tmp_path / "made").rglob("*") if each.is_file() and each.stat().st_mode & 0o022]


def test_check_says_that_entities_were_not_checked_where_none_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tool.json").write_text(json.dumps(written({"a": "read"}, [])), "utf-8")
    assert "entities: not checked; name them with --entity" in run("check", "tool.json").output
    assert json.loads(run("check", "--json", "tool.json").output)["entities"] is None
    assert isinstance(run("check", "tool.json", "--config", "absent").exception, BrokerError)


def test_check_refuses_a_configuration_here_whose_entities_cannot_be_read_and_passes_no_tool_unchecked(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tool.json").write_text(json.dumps(written({"a": "read"}, [])), "utf-8")
    (tmp_path / "config").mkdir()
    (tmp_path / "config/flows.yaml").write_text(SERVED)
    for words in ((), ("--config", "config")):
        refused = run("check", "tool.json", *words).exception
        assert isinstance(refused, ConfigInvalidError), words
        assert "entities" in str(refused), words


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"trigger": {"type": "htp"}}, "the nearest known name is http; use one of"),
        (
            {
                "flow": {
                    "startNode": "gett",
                    "nodes": {"get": {"type": "transform", "config": {"expression": "1"}}},
                    "edges": [],
                }
            },
            "known name is get",
        ),
        (
            {"flow": {"startNode": "a", "nodes": {"a": {"type": "paymnt"}}, "edges": []}},
            "known name is payment; use one of",
        ),
    ],
)
def test_check_names_the_nearest_known_word_of_a_misspelt_one(tmp_path, change, hint):
    (tmp_path / "tool.json").write_text(json.dumps(written({"a": "transform"}, []) | change), "utf-8")
    result = run("check", tmp_path / "tool.json").output.lower()
    assert hint in result
    assert 1 >= result.partition("use one of")[2].count("payment"), "each type of a node is listed once"


def test_check_takes_policies_and_refuses_two_of_one_name(tmp_path):
    tool, one, other = (tmp_path / name for name in ("tool.json", "p.json", "q.yaml"))
    tool.write_text(json.dumps(written({"a": "transform"}, [], policies=["p"])), "utf-8")
    one.write_text(json.dumps(POLICY), "utf-8")
    other.write_text(json.dumps(POLICY), "utf-8")
    assert 1 == run("check", tool).exit_code
    assert 0 == run("check", tool, "--policy", one).exit_code
    result = run("check", tool, "--policy", one, "--policy", other)
    assert (1, True) == (result.exit_code, "The name of another policy" in result.output)


@pytest.mark.rule("000-trigger-webhook")
def test_check_refuses_two_webhooks_of_one_secret_unless_both_declare_it(tmp_path):
    def write(name: str, version: int, **trigger: object) -> None:
        given = {"type": "webhook", "webhookSecret": "shop", **trigger}
        document = written({"a": "transform"}, [], name=name, version=version, trigger=given)
        (tmp_path / f"{name}{version}.json").write_text(json.dumps(document), "utf-8")

    write("first", 1)
    write("second", 1)
    result = run("check", tmp_path)
    assert (1, True) == (result.exit_code, "trigger.webhookSecret: Also the secret of first" in result.output)
    write("second", 2, webhookSecret="other")
    assert 0 == run("check", tmp_path).exit_code, "the newest version of each tool counts"
    write("second", 3, sharedSecret=True)
    assert 1 == run("check", tmp_path).exit_code
    write("first", 2, sharedSecret=True)
    assert 0 == run("check", tmp_path).exit_code


@pytest.mark.parametrize("name", ["processPayment.json", "createReservation.json"])
def test_graph_draws_each_node_once_with_its_findings_in_colour(tmp_path, name):
    out = tmp_path / "flow.svg"
    assert 0 == run("graph", EXAMPLES / name, "--out", out).exit_code
    root = ET.parse(out).getroot()  # noqa: S314  (our own)
    groups = [each for each in root if each.tag.endswith("}g")]
    colours = [each.get("class") for each in groups]
    assert (["green"] * 5 + ["yellow"] if name.startswith("process") else ["green"] * 4) == colours
    assert out.read_text("utf-8") == run("graph", EXAMPLES / name).output


def test_graph_of_a_refused_tool_tells_why(tmp_path):
    file = tmp_path / "bad.json"
    file.write_text("{}", "utf-8")
    result = run("graph", file)
    assert (1, True) == (result.exit_code, "name: Missing. Write it" in result.output)


def test_schema_is_the_one_that_checks():
    assert published_schema() == json.loads(run("schema").output)


@pytest.mark.parametrize("words", [("check", "/nowhere.json"), ("graph", "/nowhere.json")])
def test_a_file_that_cannot_be_read_is_a_refusal(words):
    assert isinstance(run(*words).exception, BrokerError)


def test_a_folder_without_documents_and_a_place_that_cannot_be_written_are_refusals(tmp_path):
    assert isinstance(run("check", tmp_path).exception, BrokerError)
    drawn = run("graph", EXAMPLES / "processPayment.json", "--out", tmp_path / "none" / "a.svg")
    assert isinstance(drawn.exception, BrokerError)


@pytest.mark.rule("000-trigger-3")
def test_check_refuses_two_tools_of_one_method_and_path(tmp_path):
    for name, version, method in (("one", 1, "POST"), ("two", 1, None), ("two", 2, "PUT"), ("three", 1, "PUT")):
        trigger = {"type": "http", "path": "/here", **({"method": method} if method else {})}
        tool = written({"a": "transform"}, [], name=name, version=version, trigger=trigger)
        (tmp_path / f"{name}{version}.json").write_text(json.dumps(tool), "utf-8")
    result = run("check", tmp_path)
    assert 1 == result.exit_code, "the newest versions serve one day"
    (line,) = [line for line in result.output.splitlines() if "has the method and path of" in line]
    assert "trigger.path: " in line
    assert {"two", "three"} == {word for word in ("one", "two", "three") if f"{word} " in line.partition("path: ")[2]}
    (tmp_path / "two2.json").unlink()
    assert "The tool two has the method and path of one version 1" in run("check", tmp_path).output


IDLE = "has no effect here"


@pytest.mark.rule("000-types-retry", "000-types-timeout")
@pytest.mark.parametrize(
    ("nodes", "idle"),
    [
        ({"a": "retry", "b": "timeout", "c": "email"}, []),
        ({"a": "timeout", "b": "retry", "c": "sms"}, []),
        ({"a": "retry", "b": "transform", "c": "email"}, ["a"]),
        ({"a": "timeout", "b": "read"}, ["a"]),
        ({"a": "retry", "b": "timeout", "c": "transform"}, ["a", "b"]),
        ({"a": "transform", "b": "retry"}, ["b"]),
    ],
)
def test_check_tells_of_retry_and_timeout_nodes_without_effect(tmp_path, nodes, idle):
    (tmp_path / "tool.json").write_text(json.dumps(written(nodes, chain(*nodes))), "utf-8")
    (tool,) = json.loads(run("check", "--json", tmp_path).output)["tools"]
    assert idle == [note.partition(":")[0] for note in tool["notes"] if IDLE in note]


READ = ("read", {"entity": "Order", "filter": {"id": "input.id"}})
LIST = ("read", {"entity": "Order", "filter": {"note": "input.id"}, "limit": 5})


@pytest.mark.rule("000-types-read")
@pytest.mark.parametrize(
    ("read", "expression", "count"),
    [
        (READ, "order.total > 1", 1),
        (READ, "a.total > 1", 1),
        (READ, "order != null && order.total > 1", 0),
        (READ, "a == null ? false : order.total > 1", 0),
        (READ, "input.id == 'x'", 0),
        (LIST, "order.all(e, e.total > 1)", 0),
        (("read", {**LIST[1], "limit": 1}), "order.total > 1", 1),
    ],
)
def test_check_tells_of_a_read_that_may_find_no_row(tmp_path, read, expression, count):
    nodes = {"a": read, "b": ("assert", {"expression": expression})}
    (tmp_path / "tool.json").write_text(json.dumps(written(nodes, chain(*nodes))), "utf-8")
    (tool,) = json.loads(run("check", "--json", tmp_path).output)["tools"]
    assert count == sum(note.startswith("a: it may find no row") for note in tool["notes"])
    assert "red" != tool["risk"]


@pytest.mark.rule("000-top-input")
@pytest.mark.parametrize("kind", [["string", "null"], ["object", "null"], []])
def test_check_takes_a_schema_whose_type_is_a_list(tmp_path, kind):
    schema = {"type": "object", "properties": {"a": {"type": kind, "properties": {"b": {"type": ["number"]}}}}}
    tool = written({"a": ("transform", {"expression": "input.a == null"})}, [], input=schema, idempotencyKey=None)
    (tmp_path / "tool.json").write_text(json.dumps(tool), "utf-8")
    result = run("check", tmp_path)
    assert (kind == []) == (result.exit_code == 1), result.output
