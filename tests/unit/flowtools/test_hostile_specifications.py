"""Hostile documents are refused with a reason, in bounded time, and no text of theirs becomes markup or a control code."""

from __future__ import annotations

import json
import time
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from oauthbroker.flowtools.drawing import draw
from oauthbroker.flowtools.judging import MOST_EXPRESSIONS, judge
from oauthbroker.flowtools.rules import findings
from oauthbroker.flowtools.source import MOST_BYTES, FlowRefused
from oauthbroker.flowtools.spec import is_public_url, load_tool
from tests.unit.flowtools.kit import chain, tool_of, written

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
    ("a.json", b"[" * 100_000, "deeper"),
    ("a.json", b'{"a":' * 5000, "deeper"),
    ("a.json", b'{"a": 1,\n "b": {"c": 1, "c": 2}}', "twice"),
    ("a.json", b'{"a": NaN}', "NaN"),
    ("a.json", b'{"a": "\\ud800"}', "surrogate"),
    ("a.json", b"[" + b"1," * 30_000 + b"1]", "20000 values"),
    ("a.json", b"\xff", "UTF-8"),
    ("a.json", b" " * (MOST_BYTES + 1), "bytes"),
    ("a.json", b'{"a" 1}', "line 1, column 6"),
    ("a.json", b"[]", "another type"),
    ("a.json", b'"x"', "another type"),
]


@pytest.mark.parametrize(("file", "raw", "reason"), BOMBS)
def test_a_document_that_is_built_to_hurt_is_refused_with_a_reason(file, raw, reason):
    begun = time.process_time()
    with pytest.raises(FlowRefused, match=reason) as refused:
        load_tool(raw, file)
    assert all(flaw.line >= 1 and flaw.column >= 1 for flaw in refused.value.flaws)
    assert time.process_time() - begun < 5  # of CPU time


def test_a_key_that_stands_twice_is_shown_where_it_stands():
    with pytest.raises(FlowRefused) as refused:
        load_tool(b'{"a": 1,\n "b": {"c": 1, "c": 2}}', "a.json")
    assert "a.json:2:16: the same key is written twice in one object, keep one" == str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
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
    ],
)
def test_a_url_with_a_trick_is_refused(url):
    data = written({"a": ("httpRequest", {"oauthAppRef": "OAuthApp/mail", "url": url})}, [])
    with pytest.raises(FlowRefused, match="not a URL that a flow may call"):
        load_tool(json.dumps(data).encode(), "tool.json")


def test_a_plain_url_of_a_public_host_is_taken():
    assert all(
        map(is_public_url, ["https://api.example.com", "https://api.example.com/", "https://a-b.example.co/v1/x_y"])
    )


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"url": "https://api.example.com/{id}"}, "does not fit the url"),
        ({"url": "https://api.example.com/v1", "path": {"id": "input.id"}}, "does not fit the url"),
        ({"url": "https://api.example.com/{id}/{id}", "path": {"id": "input.id"}}, "does not fit the url"),
        ({"url": "https://api.example.com/v1", "body": {"id": "input.id"}}, "not for this method"),
        ({"url": "https://api.example.com/v1", "oauthAppRef": None}, "of another type"),
    ],
)
def test_a_request_whose_parts_do_not_fit_is_refused(config, reason):
    data = written({"a": ("httpRequest", {"oauthAppRef": "OAuthApp/mail", **config})}, [])
    with pytest.raises(FlowRefused, match=reason):
        load_tool(json.dumps(data).encode(), "tool.json")


def test_a_request_names_an_app():
    with pytest.raises(FlowRefused, match=r"oauthAppRef: missing"):
        tool_of({"a": ("httpRequest", {"url": "https://api.example.com/v1"})}, [])


def test_a_graph_of_more_nodes_or_expressions_than_any_person_writes_is_refused():
    names = [f"n{at}" for at in range(201)]
    with pytest.raises(FlowRefused, match="maxProperties 200"):
        tool_of(dict.fromkeys(names, "transform"), chain(*names), "n0")
    fields: dict[str, Any] = {"entity": "A", "operation": "create", "fields": {f"f{at}": "1" for at in range(200)}}
    names = names[: MOST_EXPRESSIONS // 200 + 1]
    verdict = judge(tool_of(dict.fromkeys(names, ("write", fields)), chain(*names), "n0"))
    assert f"more than {MOST_EXPRESSIONS} expressions" in [flaw.what for flaw in verdict.flaws]


def test_the_greatest_flow_is_judged_in_seconds():
    names = [f"n{at}" for at in range(200)]
    nodes = {name: ("transform", {"expression": f"n{at - 1}.result" if at else "1"}) for at, name in enumerate(names)}
    tool = tool_of(nodes, chain(*names), "n0")
    begun = time.process_time()
    assert "yes" == judge(tool).deployable
    assert time.process_time() - begun < 30  # of CPU time; half a second on an idle machine


def test_a_schema_that_refers_to_itself_is_taken_and_one_that_refers_to_files_is_not():
    loop = {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"b": {"$ref": "#/$defs/a"}}}}}
    assert "yes" == judge(tool_of({"a": "transform"}, [], input=loop, idempotencyKey=None)).deployable
    for reference in ("file:///etc/passwd", "https://example.com/a.json", "#/$defs/none"):
        with pytest.raises(FlowRefused, match="not a usable JSON Schema"):
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
