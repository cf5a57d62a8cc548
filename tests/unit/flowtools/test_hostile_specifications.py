"""Hostile documents are refused with a reason, in bounded time, and no text of theirs becomes markup or a control code."""

from __future__ import annotations

import json
import time
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from oauthbroker.flowtools.risk.assessment import MOST_EXPRESSIONS, assess
from oauthbroker.flowtools.risk.drawing import draw
from oauthbroker.flowtools.risk.rules import findings
from oauthbroker.flowtools.running.effects import address
from oauthbroker.flowtools.specification.failures import FlowFailed
from oauthbroker.flowtools.specification.source import MOST_BYTES, FlowRefused
from oauthbroker.flowtools.specification.spec import is_public_url, load_tool
from tests.unit.flowtools.kit import chain, tool_of, written
from tests.unit.flowtools.run_kit import BEGIN, STAFF, world_in

ALIASES = "a: &a [x]\nb: [*a, *a]\n"
BOMBS: list[tuple[str, bytes, str]] = [
    ("a.yaml", ALIASES.encode(), "anchors"),
    ("a.yaml", b"a: &a {b: *a}\n", "anchors"),
    ("a.yaml", b"a: *b\n", "aliases"),
    ("a.yaml", b"a: !!python/object/apply:os.system [id]\n", "tags"),
    ("a.yaml", b"a: 1\na: 2\n", "twice"),
    ("a.yaml", b"{a: 1}: 2\n", "not text"),
    ("a.yaml", b"a: 1\n---\nb: 2\n", "second document"),
    ("a.yaml", b"[" * 5000, "deeper"),
    ("a.yaml", b"a: 'x", "well-formed"),
    ("a.yaml", b"", "empty"),
    ("a.yaml", b"a: \x00", "well-formed"),
    ("a.yaml", b"- x\n" * 30_000, "20000 values"),
    ("a.json", b"[" * 10_000, "deeper"),
    ("a.json", b"[" * 100_000, "20000 values"),
    ("a.json", b'{"a":' * 5000, "deeper"),
    ("a.json", b'{"a": 1,\n "b": {"c": 1, "c": 2}}', "twice"),
    ("a.json", b'{"a": NaN}', "NaN"),
    ("a.json", b'{"a": "\\ud800"}', "surrogate"),
    ("a.json", b"[" + b"1," * 30_000 + b"1]", "20000 values"),
    ("a.json", b"\xff", "UTF-8"),
    ("a.json", b" " * (MOST_BYTES + 1), "1024 kB"),
    ("a.json", b'{"a" 1}', "line 1, column 6"),
    ("a.json", b"[]", "another type"),
    ("a.json", b'"x"', "another type"),
]


@pytest.mark.rule("hostile")
@pytest.mark.parametrize(("file", "raw", "reason"), BOMBS)
def test_a_document_that_is_built_to_hurt_is_refused_with_a_reason(file, raw, reason):
    begun = time.process_time()
    with pytest.raises(FlowRefused, match=reason) as refused:
        load_tool(raw, file)
    assert all(problem.line >= 1 or "kB" in problem.what for problem in refused.value.problems)
    assert time.process_time() - begun < 5  # of CPU time


def test_a_key_that_stands_twice_is_shown_where_it_stands():
    with pytest.raises(FlowRefused) as refused:
        load_tool(b'{"a": 1,\n "b": {"c": 1, "c": 2}}', "a.json")
    assert "a.json:2:16 ?: The same key is written twice in one mapping. Keep one of them." == str(refused.value)


URLS = [
    "http://api.example.com/",
    "https://localhost/",
    "https://127.0.0.1/",
    "https://2130706433/",
    "https://0x7f.1/",
    "https://[::1]/",
    "https://169.254.169.254/latest",
    "https://metadata.internal/",
    "https://user@api.example.com/",
    "https://api.example.com@evil.example/",
    "https://api.example.com:8443/",
    "https://api.example.com\\@evil.example/",
    "https://api.example.com/../admin",
    "https://api.example.com/%2e%2e/admin",
    "https://api.example.com/a//b",
    "https://api.example.com/a?b=c",
    "https://api.example.com/#f",
    "https://{input.host}/",
    "https://api.example.com/${input.id}",
    "https://{host}/",
    "https://api.{zone}/",
    "https://api.example.com/a{id}",
    "https://api.example.com/{id}/../{id}",
    "https://api.example.com/{input.id}",
    "https://API.example.com/",
    "https://\u0430pi.example.com/",
    "https://api.example.com./",
    "https://api.example.com/a b",
    "https://api.example.com/\n",
    "//api.example.com/",
    "file:///etc/passwd",
    "https://",
    "https://[",
]
API = "https://api.example.com"


def request(**config: Any) -> dict[str, Any]:
    return written({"a": ("httpRequest", {"oauthAppRef": "OAuthApp/mail", **config})}, [])


def node(kind: str, **config: Any) -> dict[str, Any]:
    return written({"a": (kind, config)}, [])


def written_by(**config: Any) -> dict[str, Any]:
    return written(
        {"tx": "transaction", "w": ("write", {"entity": "Order", "operation": "update", **config})}, [("tx", "w")], "tx"
    )


def schema(part: dict[str, Any]) -> dict[str, Any]:
    return written({"a": "transform"}, [], idempotencyKey=None, input=part)


def referring(count: int, body: Any) -> dict[str, Any]:
    """A schema whose definitions each lead to the next one."""
    made = {f"a{at}": body({"$ref": f"#/$defs/a{at + 1}"}) for at in range(count)}
    return schema({"$ref": "#/$defs/a0", "$defs": {**made, f"a{count}": {"type": "object"}}})


def looped(body: Any) -> dict[str, Any]:
    return schema({"$ref": "#/$defs/a", "$defs": {"a": body({"$ref": "#/$defs/a"})}})


MULTIPLY, SCHEMA, UNKNOWN = "references multiply", "Not a usable JSON Schema", "is not known"
NOT_A_URL, NOT_A_NAME, NOT_THE_FORM = "Not a URL that a flow may call", "A name of another form", "Not in the form"
HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    **{f"the url {url!r}": (request(url=url), NOT_A_URL) for url in URLS},
    # Requests
    "a slot without a value": (request(url=f"{API}/{{id}}"), "Does not fit the url"),
    "a value without a slot": (request(url=f"{API}/v1", path={"id": "input.id"}), "Does not fit the url"),
    "a slot twice": (request(url=f"{API}/{{id}}/{{id}}", path={"id": "input.id"}), "Does not fit the url"),
    "a body of a GET": (request(url=f"{API}/v1", body={"id": "input.id"}), "Not for this method"),
    "no app": (request(url=f"{API}/v1", oauthAppRef=None), "Of another type"),
    "an app by a path": (request(url=f"{API}/v1", oauthAppRef="OAuthApp/../secrets"), NOT_THE_FORM),
    "another kind as app": (request(url=f"{API}/v1", oauthAppRef="Secret/key"), NOT_THE_FORM),
    "a header": (request(url=f"{API}/v1", headers={"Authorization": "'x'"}), "Unknown field"),
    "a method of its own": (request(url=f"{API}/v1", method="CONNECT"), "Unknown value"),
    "a query with a name of markup": (request(url=f"{API}/v1", query={"a&b=c": "'x'"}), NOT_A_NAME),
    # Triggers
    **{
        f"the path {path!r}": (written({"a": "transform"}, [], trigger={"type": "http", "path": path}), reason)
        for path, reason in {
            "/../admin": "a path without",
            "/a/./b": "a path without",
            "/a//b": NOT_THE_FORM,
            "/%2e%2e/x": NOT_THE_FORM,
            "/{id}": NOT_THE_FORM,
            "//evil.example/x": NOT_THE_FORM,
            "/a\n": NOT_THE_FORM,
        }.items()
    },
    "a secret by a path": (
        written({"a": "transform"}, [], trigger={"type": "webhook", "webhookSecret": "../../key"}),
        NOT_THE_FORM,
    ),
    "an agent by a path": (written({"a": "transform"}, [], trigger={"type": "queue", "agent": "a/b"}), NOT_THE_FORM),
    "a name that leaves the folder": (written({"a": "transform"}, [], name="../../etc/x"), NOT_THE_FORM),
    # SQL
    "raw SQL": (node("write", sql="DROP TABLE entity_order"), "a write by raw SQL"),
    "SQL beside an entity": (
        node("write", entity="Order", operation="create", sql="DROP TABLE x"),
        "a write by raw SQL",
    ),
    "SQL as entity": (node("read", entity='Order"; DROP TABLE x --', limit=1), NOT_THE_FORM),
    "SQL as composite": (node("read", composite="A' OR '1'='1", limit=1), NOT_THE_FORM),
    "SQL as the name of a filter": (written_by(filter={'id" OR 1=1 --': "'x'"}), NOT_A_NAME),
    "SQL as the name of a field": (written_by(filter={"id": "'x'"}, fields={"total = 0, note": "'x'"}), NOT_A_NAME),
    "SQL as limit": (written_by(filter={"id": "'x'"}, limit="1; DROP TABLE x"), "Of another type"),
    "a filter that is always true": (written_by(filter={}), "a write to all rows"),
    # Templates
    **{
        f"the template {text!r}": (node("transform", expression=text), reason)
        for text, reason in {
            "{{ 7 * 7 }}": "mismatched",
            "${input.id}": "token recognition",
            "{% import os %}": "extraneous",
            "#{7*7}": "token recognition",
            "`id`": "A text without its end",
            "__import__('os')": UNKNOWN,
            "input.id.getClass()": UNKNOWN,
            "input.__class__": "not bound",
            "env.HOME": "not bound",
            "open('/etc/passwd')": UNKNOWN,
        }.items()
    },
    # Expressions
    **{
        f"the bomb {name}": (node("transform", expression=text), reason)
        for name, (text, reason) in {
            "of depth": ("(" * 2000 + "1" + ")" * 2000, "Too deep, or too long"),
            "of lists": ("[" * 2000 + "]" * 2000, "Too deep, or too long"),
            "of operators": ("1" + "+1" * 2000, "recursion depth"),
            "of length": ("1" * 5000, "Too large or too long"),
            "of a list builder": ("[1].map(a, [1].map(b, a + b))", UNKNOWN),
            "of numbers": ("1e999", "A number of another form"),
            "of nothing": ("\x00", "(nul)"),
        }.items()
    },
    # Schemas
    "a schema of files": (schema({"$ref": "file:///etc/passwd"}), SCHEMA),
    "a schema of another host": (schema({"$ref": "https://example.com/a.json"}), SCHEMA),
    "a schema of nothing": (schema({"$ref": "#/$defs/none"}), SCHEMA),
    "a schema by another pointer": (schema({"properties": {"a": {"$ref": "#/properties/b"}, "b": {}}}), MULTIPLY),
    "a schema with a base": (schema({"$id": "https://example.com/", "type": "object"}), MULTIPLY),
    "a schema that doubles": (referring(40, lambda to: {"allOf": [to, to]}), MULTIPLY),
    "a schema that doubles by a member": (
        referring(40, lambda to: {"properties": {"allOf": to}, "additionalProperties": to}),
        MULTIPLY,
    ),
    "a schema that doubles by dependentSchemas": (
        referring(40, lambda to: {"dependentSchemas": {"enum": to, "const": to}}),
        MULTIPLY,
    ),
    "an output that doubles": (
        {**schema({}), "output": referring(40, lambda to: {"anyOf": [to, to]})["input"]},
        MULTIPLY,
    ),
    "a schema of too many definitions": (referring(300, lambda to: {"not": to}), MULTIPLY),
    "a schema that is only itself": (looped(lambda to: {"allOf": [to]}), MULTIPLY),
    "a schema twice in itself": (looped(lambda to: {"properties": {"b": {"anyOf": [to, {"not": to}]}}}), MULTIPLY),
    "a schema in a member and all members": (
        looped(lambda to: {"properties": {"b": to}, "patternProperties": {".": to}}),
        MULTIPLY,
    ),
    "a schema in a member and below it": (
        looped(lambda to: {"properties": {"b": {"allOf": [to, {"properties": {"b": to}}]}}}),
        MULTIPLY,
    ),
    "a regex that backtracks": (schema({"properties": {"a": {"pattern": "(?=a)b"}}}), SCHEMA),
    "a regex of a million states": (schema({"properties": {"a": {"pattern": "(x{1000}){1000}"}}}), SCHEMA),
    "a format that is not known": (schema({"properties": {"a": {"format": "shell"}}}), SCHEMA),
    # Graphs
    "a cycle": (written({"a": "transform", "b": "transform"}, [("a", "b"), ("b", "a")]), "runs in a cycle"),
    "a cycle of one node": (written({"a": "transform"}, [("a", "a")]), "runs in a cycle"),
    "two ids that expressions read as one": (
        written({"a": "transform", "x-y": "transform", "x_y": "transform"}, chain("a", "x-y", "x_y")),
        "An id twice",
    ),
    "an id with a slash, as a refund has": (written({"a": "transform", "a/refund": "transform"}, []), "cannot use"),
    "an id that is the input": (written({"input": "transform"}, [], "input"), "cannot use"),
}


@pytest.mark.rule("hostile")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_specification_is_refused_with_its_reason(name):
    document, reason = HOSTILE[name]
    begun = time.process_time()
    assert reason in refusal(document), refusal(document)
    assert time.process_time() - begun < 5  # of CPU time


def refusal(document: dict[str, Any]) -> str:
    """Return why a document is not deployable; empty if it is."""
    try:
        assessment = assess(load_tool(json.dumps(document).encode(), "tool.json"))
    except FlowRefused as refused:
        return str(refused)
    return "\n".join(
        [*map(str, assessment.problems), *(each.what for each in assessment.findings if each.risk == "red")]
    )


BOMBS_OF_RUNS: dict[str, list[str]] = {
    "lists in lists": ["['x', 'y']", *["[{0}, {0}]"] * 60],
    "maps in maps": ["{{'a': 'x'}}", *["{{'a': {0}, 'b': {0}}}"] * 60],
    "a list that grows": ["[1, 2, 3, 4]", *["{0} + {0}"] * 60],
    "texts in texts": ["'xxxxxxxx'", *["concat({0}, {0})"] * 60],
    "one long list": [f"[{','.join('1' * 500)}]", *[f"[{','.join(['{0}'] * 200)}]"] * 3],
}


@pytest.mark.rule("hostile", "000-dsl-4")
@pytest.mark.parametrize("name", BOMBS_OF_RUNS)
def test_values_that_double_from_node_to_node_end_the_run(tmp_path, name):
    texts = [text.format(f"t{at - 1}.result") for at, text in enumerate(BOMBS_OF_RUNS[name])]
    nodes = {f"t{at}": ("transform", {"expression": text}) for at, text in enumerate(texts)}
    world, begun = world_in(tmp_path), time.process_time()
    assert "expressionFailed" == world.runs.call(world.flow(nodes, chain(*nodes)), {"id": "a"}, STAFF).code
    assert time.process_time() - begun < 10  # of CPU time


@pytest.mark.rule("hostile", "000-types-http")
@pytest.mark.parametrize(
    "value", ["", ".", "..", "a/b", "..%2fadmin", "a\\b", "a?b", "a#b", "a;b", "a\n", "a\u202eb", None, []]
)
def test_a_value_that_could_lead_elsewhere_is_no_segment_of_a_url(value):
    with pytest.raises(FlowFailed):
        address(f"{API}/v1/{{id}}", {"id": value})


@pytest.mark.rule("hostile")
def test_sql_in_a_value_is_data(tmp_path):
    world, text = world_in(tmp_path), "x'; DROP TABLE entity_log; --"
    nodes = {"tx": BEGIN, "w": ("write", {"entity": "Log", "operation": "create", "fields": {"text": "input.id"}})}
    assert None is world.runs.call(world.flow(nodes, chain(*nodes)), {"id": text}, STAFF).code
    find = world.flow({"r": ("read", {"entity": "Log", "filter": {"text": "input.id"}, "limit": 5})}, [])
    assert [1, 0] == [
        len(world.runs.call(find, {"id": each}, STAFF).output["result"]) for each in (text, "' OR '1'='1")
    ]
    assert [text] == world.texts()


@pytest.mark.parametrize(
    "body",
    [
        lambda to: {"properties": {"left": to, "right": to}},
        lambda to: {"properties": {"children": {"items": to}, "parent": {"anyOf": [{"type": "null"}, to]}}},
        lambda to: {"additionalProperties": to},
    ],
)
def test_a_recursive_schema_of_a_tree_is_taken(body):
    assert "" == refusal(looped(body))


def test_one_definition_may_be_used_many_times():
    many = {f"p{at}": {"$ref": "#/$defs/address"} for at in range(100)}
    assert "" == refusal(schema({"properties": many, "$defs": {"address": {"type": "object"}}}))


def test_a_plain_url_of_a_public_host_is_taken():
    assert all(
        map(is_public_url, ["https://api.example.com", "https://api.example.com/", "https://a-b.example.co/v1/x_y"])
    )


def test_a_request_names_an_app():
    with pytest.raises(FlowRefused, match=r"oauthAppRef: Missing"):
        tool_of({"a": ("httpRequest", {"url": "https://api.example.com/v1"})}, [])


def test_a_graph_of_more_nodes_or_expressions_than_any_person_writes_is_refused():
    names = [f"n{at}" for at in range(201)]
    with pytest.raises(FlowRefused, match="maxProperties 200"):
        tool_of(dict.fromkeys(names, "transform"), chain(*names), "n0")
    fields: dict[str, Any] = {"entity": "A", "operation": "create", "fields": {f"f{at}": "1" for at in range(200)}}
    names = names[: MOST_EXPRESSIONS // 200 + 1]
    assessment = assess(tool_of(dict.fromkeys(names, ("write", fields)), chain(*names), "n0"))
    assert f"more than {MOST_EXPRESSIONS} expressions" in [problem.what for problem in assessment.problems]


def test_the_greatest_flow_is_checked_in_seconds():
    names = [f"n{at}" for at in range(200)]
    nodes = {name: ("transform", {"expression": f"n{at - 1}.result" if at else "1"}) for at, name in enumerate(names)}
    tool = tool_of(nodes, chain(*names), "n0")
    begun = time.process_time()
    assert "yes" == assess(tool).deployable
    assert time.process_time() - begun < 30  # of CPU time; half a second on an idle machine


def test_a_schema_that_refers_to_itself_is_taken_and_one_that_refers_to_files_is_not():
    loop = {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"b": {"$ref": "#/$defs/a"}}}}}
    assert "yes" == assess(tool_of({"a": "transform"}, [], input=loop, idempotencyKey=None)).deployable
    for reference in ("file:///etc/passwd", "https://example.com/a.json", "#/$defs/none"):
        with pytest.raises(FlowRefused, match="Not a usable JSON Schema"):
            tool_of({"a": "transform"}, [], input={"$ref": reference})


def test_nothing_of_a_document_becomes_markup_or_a_control_code():
    evil = '</text><script>alert(1)</script>"'
    tool = tool_of({"a": "switch", "b": "transform"}, [("a", "b", evil)], description=evil)
    root = ET.fromstring(draw(tool, findings(tool)))  # noqa: S314  (our own)
    assert not [each for each in root.iter() if each.tag.endswith("script")]
    with pytest.raises(FlowRefused) as refused:
        tool_of({"a": "transform", "\x1b[31m": "transform"}, [])
    assert "\x1b" not in str(refused.value)


def test_no_value_of_a_document_is_shown():
    data = written({"a": "transform"}, [], name="secret-7c1", version="secret-7c1", trigger={"type": "secret-7c1"})
    with pytest.raises(FlowRefused) as refused:
        load_tool(json.dumps(data).encode(), "tool.json")
    assert "secret-7c1" not in str(refused.value)


@pytest.mark.rule("000-schema")
@pytest.mark.parametrize("file", ["tool.json", "tool.yaml"])
@pytest.mark.parametrize("value", ['"a\\u0000b"', '{"a\\u0000": 1}', "9" * 400])
def test_a_document_with_nul_or_a_number_beyond_a_double_is_refused_at_its_place(file, value):
    document = json.dumps(written({"a": "transform"}, [])).replace('"n": {', f'"x": {{"const": {value}}}, "n": {{')
    if file.endswith("yaml") and value.startswith("9"):
        return  # YAML reads it as a text
    with pytest.raises(FlowRefused, match=r"input\.properties\.x\.const: A value that no flow takes"):
        load_tool(document.encode(), file)
