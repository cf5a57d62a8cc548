"""Hostile values and requests against each place of a static credential."""

from __future__ import annotations

import json
import weakref
from urllib.parse import parse_qsl, quote, unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.injection.token_masking import Maskers
from oauthbroker.model import static_credential
from oauthbroker.model.static_credential import (
    LONGEST,
    CredentialField,
    Placement,
    StaticCredential,
    basic_of,
    packed,
)
from oauthbroker.protocol.credential_placement import placed
from oauthbroker.protocol.network.api_request import ApiRequest
from tests.kit.forms import examples

FIELD = CredentialField(name="key", title="Key")
PLACES = {
    "headers": Placement(kind="headers", texts={"X-Api-Key": "{key}"}),
    "basic": Placement(kind="basic", texts={"username": "{key}", "password": ""}),
    "query": Placement(kind="query", texts={"api_key": "{key}"}),
    "path": Placement(kind="path", texts={"path": "/bot{key}"}),
    "segment": Placement(kind="path", texts={"path": "/{key}"}),
}
REFUSED = {
    "missing": [""],
    "characters": [
        "a\r\nX-Other: 1", "a\nb", "a\rb", "a\tb", "a\x00b", "a\x7fb", "a\x1b[31m", "a\x85b", "a\xa0b", "é" * 9, "a\u200bb",
        "a\u202eb", "a\u2028b", "a\ufeffb", "\ud800key", "\uff21" * 8, "a\u0301b", "🔑" * 4, "\u0131" * 9, "a\x0bb",
    ],
    "long": ["x" * (LONGEST + 1), "é" * (LONGEST + 1)],
}  # fmt: skip
HOSTILE = (
    "a/../b", "../../x", "..%2f..", "%2e%2e/x", "a?b=c", "a#b", "a&b=c", "a;b=c", "a=b", "//evil.example", "@evil.example",
    "http://evil.example/", "a\\..\\b", ":8080", "a b", "{key}", "{other}", "%(key)s", "$1", "\\g<0>", "a%00b", "a%0d%0ab",
    "'\"<script>", "..", ".", "...", "..;a", "~", "a+b", "x" * LONGEST,
)  # fmt: skip


def credential(place: str) -> StaticCredential:
    return StaticCredential(fields=(FIELD,), placement=PLACES[place])


def sent(place: str, value: str, path: str = "/data?q=1") -> ApiRequest:
    request = ApiRequest(method="GET", scheme="https", host="api.example.com", port=443, path=path, headers=[])
    return placed(credential(place).opened(packed({"key": value})), request)


def attempt(place: str, value: str) -> ApiRequest | None:
    """The request, None if it is `requestInvalid`."""
    try:
        return sent(place, value)
    except BrokerError as error:
        if error.code is not Code.REQUEST_INVALID:
            raise
    return None


@pytest.mark.parametrize("problem", REFUSED)
def test_a_value_that_no_request_can_carry_is_none(problem: str) -> None:
    for value in REFUSED[problem]:
        assert problem == FIELD.problem(value), ascii(value)


@pytest.mark.parametrize(
    "query", ["api_key=mine", "q=1&api_key", "api_key[]=mine", "api.key=mine", "%20api_key=mine", "api_key%00x=mine"]
)
def test_a_request_that_names_the_credentials_parameter_itself_is_refused(query: str) -> None:
    with pytest.raises(BrokerError) as refused:
        sent("query", "value", f"/data?{query}")
    assert Code.REQUEST_INVALID is refused.value.code


def test_a_username_of_basic_has_no_colon_which_would_begin_the_password() -> None:
    fields = tuple(CredentialField(name=each, title=each) for each in ("email", "token"))
    placement = Placement(kind="basic", texts={"username": "{email}/token", "password": "{token}"})
    credential = StaticCredential(fields=fields, placement=placement)
    assert {"email": "colon"} == credential.problems({"email": "ann:x", "token": "a:b"})
    assert {} == credential.problems({"email": "ann", "token": "a:b"})
    assert {"email": "missing"} == credential.problems({"token": "a:b"})


@pytest.mark.parametrize("place", PLACES)
def test_a_hostile_value_stays_in_its_place(place: str) -> None:
    for value in HOSTILE:
        assert "" == FIELD.problem(value), value
        request = attempt(place, value)
        if request is None:
            assert place in {"path", "segment"}, value
            continue
        assert ("api.example.com", 443) == (request.host, request.port)
        at, _, query = request.path.partition("?")
        headers = {name.decode(): text.decode() for name, text in request.headers}
        assert all("\r" not in text and "\n" not in text for text in [*headers.values(), request.path])
        if place == "headers":
            assert ({"X-Api-Key": value}, "/data?q=1") == (headers, request.path)
        elif place == "basic":
            assert {"Authorization": f"Basic {basic_of({'username': value, 'password': ''})}"} == headers
        elif place == "query":
            assert [("q", "1"), ("api_key", value)] == parse_qsl(query, keep_blank_values=True), value
        else:
            start = "/bot" if place == "path" else "/"
            first, slash, rest = at.removeprefix(start).partition("/")
            assert (value, "data", "q=1") == (unquote(first), rest, query), value
            assert slash


@pytest.mark.parametrize("value", ["..", ".", "..;a"])
def test_a_value_that_is_a_step_is_no_segment(value: str) -> None:
    with pytest.raises(BrokerError, match="requestInvalid"):
        sent("segment", value)


@given(st.data())
@settings(max_examples=examples(100), deadline=None)
def test_what_a_request_carries_is_masked_across_the_borders_of_pieces(data: st.DataObject) -> None:
    value = data.draw(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=40))
    for place in PLACES:
        request = attempt(place, value)
        if request is None:
            continue
        masker = Maskers(credential(place).parts(packed({"key": value})))
        carried = {
            "headers": value,
            "basic": basic_of({"username": value, "password": ""}),
            "query": quote(value, safe=""),
        }.get(place, request.path.partition("?")[0].removeprefix("/bot").removeprefix("/").partition("/")[0])
        text = json.dumps({"url": request.path}) + carried + f"<{value}>" + value[:5]
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
        pieces = [text[a:b].encode() for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        got = b"".join([*map(masker.feed, pieces), masker.end()]).decode()
        assert len(text) == len(got)
        assert value not in got
        assert carried not in got
        assert value.encode() not in masker.once(f"https://evil.example{request.path}".encode())


def test_an_opened_credential_is_kept_as_long_as_its_secret_and_not_for_another_app():
    mine, other, secret = credential("headers"), credential("query"), packed({"key": "k" * 20})
    opened = mine.opened(secret)
    assert mine.opened(secret) is opened
    assert other.opened(secret).credential is other
    known = weakref.ref(secret)
    kept = len(static_credential._opened)
    del secret
    assert known() is None
    assert len(static_credential._opened) == kept - 1
