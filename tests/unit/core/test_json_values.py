"""The values of a stranger's JSON are counted before they are parsed."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core import strict_json
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.json_values import MOST_VALUES, ValueCounter, has_few_values
from oauthbroker.core.strict_json import decode_json, decode_leniently, json_object

MIB = 1024 * 1024
TEXTS = st.text('ab"\\[{,: \n\r\u2222é', max_size=8)
DOCUMENTS = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)
BOMBS = {
    "lists": b"[" + b"[]," * 10 + b"]",
    "objects": b"{},",
    "depth": b"[",
    "numbers": b"0,",
    "texts": b'"",',
    "texts without commas": b'""',
    "members": b'"a":0,',
    "lines": b"\n",
    "carriage returns": b"\r",
    "events": b"data: {}\n\n",
    "quotes in a comment of a stream": b': "\n[],',
    "escapes outside of strings": b'\\"[],',
    "UTF-16": "[∢],".encode("utf-16-le"),
}


def values(data: Any) -> int:
    inner = list(data.values()) if isinstance(data, dict) else data if isinstance(data, list) else []
    return 1 + sum(map(values, inner))


@given(DOCUMENTS, st.booleans(), st.lists(st.integers(1, 9), max_size=12))
def test_no_document_has_more_values_than_are_counted_wherever_it_is_cut(
    data: Any, ascii_: bool, cuts: list[int]
) -> None:
    body = json.dumps(data, ensure_ascii=ascii_).encode()
    found = values(data)
    assert has_few_values(body, 2 * found + 4), "a value counts twice at most"
    counter, left, passed = ValueCounter(max(0, found - 2)), body, True
    for size in [*cuts, len(body)]:
        passed, left = counter.feed(left[:size]), left[size:]
    assert not passed or found < 2, "each value but the first counts"


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_is_parsed(name: str) -> None:
    body = BOMBS[name] * (MIB // len(BOMBS[name]))
    assert not has_few_values(body)
    counter = ValueCounter()
    passed = [counter.feed(body[at : at + 4096]) for at in range(0, len(body), 4096)]
    assert passed.index(False) < len(passed) // 2, "the rest is not waited for"
    assert not any(passed[passed.index(False) :])
    with (
        mock.patch.object(strict_json._DECODER, "decode", side_effect=AssertionError("it was parsed")),
        pytest.raises(BrokerError, match="valu") as refused,
    ):
        decode_json(body, Code.REQUEST_INVALID)
    assert f"not strict JSON: more than {MOST_VALUES} values" == refused.value.note
    with pytest.raises(ValueError, match="more than"):
        decode_leniently(body)


def test_a_long_text_with_json_in_it_is_one_value() -> None:
    body = json.dumps({"text": '{"a": [1, 2, 3]}\n\\' * 100_000}).encode()
    assert has_few_values(body, 2)
    counter = ValueCounter(2)
    assert all(counter.feed(body[at : at + 4095]) for at in range(0, len(body), 4095))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"a"', "[" * 100_000, b"\xff", b'{"a": 1}\n{}'])
def test_a_text_that_is_no_object_is_none(text: str | bytes) -> None:
    assert json_object(text) is None
    assert {"a": [1]} == json_object(b'{"a": [1]}')
