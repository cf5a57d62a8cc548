"""YAML and JSON of a plug-in's own format, by the public face for plug-ins."""

from __future__ import annotations

import json

import pytest

from oauthbroker import ConfigInvalidError
from oauthbroker.plugins import SourcePlace, read_json, read_yaml

FLOW = "name: lend\nsteps:\n  - {read: Book, limit: 10}\n  - send: 'yes'\n---\nkind: Policy\nname: second\n"


def test_documents_keep_the_line_and_column_of_each_value() -> None:
    first, second = read_yaml(FLOW, "flow.yaml")
    assert {"name": "lend", "steps": [{"read": "Book", "limit": 10}, {"send": "yes"}]} == first.data
    assert {"kind": "Policy", "name": "second"} == second.data
    assert SourcePlace("flow.yaml", 3, 25) == first.value_at(("steps", 0, "limit"))
    assert SourcePlace("flow.yaml", 4, 5) == first.key_at(("steps", 1, "send"))
    assert SourcePlace("flow.yaml", 7, 7) == second.value_at(("name",))
    assert "flow.yaml:2:1" == str(first.key_at(("steps",)))


REFUSED = {
    "an alias": ("a: &x 1\nb: *x\n", {1, 2}),
    "a tag": ("a: !!python/object:os.system {}\n", {1}),
    "the same key twice": ("kind: Flow\na: 1\na: 2\n", {3}),
    "a word with two meanings": ("a: 1\nb: yes\n", {2}),
    "a word with two meanings in a list": ("a:\n  - 1:20\n", {2}),
    "a key that is no text": ("1: a\n", {1}),
    "too deep": ("a: " + "[" * 40 + "]" * 40, {1}),
    "no YAML": ("a: [\n", {2}),
    "a document of another program": ("apiVersion: apps/v1\nkind: Deployment\na: yes\n", {3}),
    "too long": ("a: '" + "x" * 1024 * 1024 + "'\n", {0}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_readers_of_yaml_take_differently_is_refused_with_its_line(case: str) -> None:
    text, lines = REFUSED[case]
    with pytest.raises(ConfigInvalidError) as refused:
        read_yaml(text, "flow.yaml")
    assert {"flow.yaml"} == {each.file for each in refused.value.problems}
    assert lines == {each.line for each in refused.value.problems}


def test_a_problem_names_known_keys_only_because_a_value_may_stand_in_their_place() -> None:
    with pytest.raises(ConfigInvalidError) as refused:
        read_yaml("steps:\n  s3cret: yes\n", "flow.yaml", words=["steps"])
    (problem,) = refused.value.problems
    assert "steps.?" == problem.path
    assert "s3cret" not in str(problem)


@pytest.mark.parametrize(
    ("raw", "path", "place"),
    [
        (b'{"a": 1,\n\t"b": [1,\t{"c": 1.5E+3}]}', ("b", 1, "c"), (2, 17)),
        (b'{"\\ud83d\\ude00": "\\ud83d\\ude00",\r\n"b": 1}', ("b",), (2, 6)),
        ('{"\U0001f600": "\\/", "b":1}'.encode(), ("b",), (1, 17)),
        (b'{"a":1}', ("none",), (1, 1)),
        (b'{"a"\n:1}', ("a",), (1, 1)),  # no YAML
    ],
)
def test_json_has_the_place_of_each_value(raw: bytes, path: tuple[str | int, ...], place: tuple[int, int]) -> None:
    found = read_json(raw, "a.json")
    assert json.loads(raw) == found.data
    assert SourcePlace("a.json", *place) == found.value_at(path)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b'{"a": 1,\n "b": {"c": 1, "c": 2}}', "a.json:2:16 ?: The same key is written twice"),
        (b"[" * 40 + b"]" * 40, "Nested deeper than 32 levels"),
        (b'{"a": NaN}', "a.json:1:1: Not strict JSON: NaN"),
        (b'{"a"\n 1}', "a.json:2:2: Not strict JSON"),
        (b'{"a"\n:1, "a"\n:2}', "a.json:1:1: Not strict JSON: a name twice"),  # no YAML
        (b'{"s3cret": 1, "s3cret": 2}', "a.json:1:15: The same key"),
        (b"\xff", "no UTF-8"),
        (b"", "a.json:1:1: Not strict JSON"),
        (b" " * 2**21, "more than 1024 kB"),
    ],
)
def test_json_that_is_not_strict_is_refused_at_its_place(raw: bytes, said: str) -> None:
    with pytest.raises(ConfigInvalidError) as refused:
        read_json(raw, "a.json")
    assert said.lower() in str(refused.value).lower()
    assert "s3cret" not in str(refused.value)
