"""The claims of a challenge: the text that is read as them, and the one parameter of a request that they change."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oauthbroker.core.claims_challenge import LONGEST_CLAIMS, claims_of, demanded_claims
from oauthbroker.core.secret import Secret
from oauthbroker.core.strict_json import MAX_DEPTH
from oauthbroker.protocol.authorization_request import authorization_params
from oauthbroker.records import Attempt
from tests.kit.claims import CLAIMS, challenge, encoded
from tests.kit.forms import examples
from tests.unit.protocol.kit import with_habits


@pytest.mark.parametrize(
    "claims",
    [
        {"id_token": {"sub": {"value": "U345678"}}},
        {**CLAIMS, "id_token": {"sub": {"value": "U345678"}}},
        {**CLAIMS, "userinfo": {}},
        {"access_token": {}},
        {"access_token": "all"},
        {},
        [CLAIMS],
        "text",
        {"access_token": {"x": "y" * 4096}},
    ],
)
def test_claims_that_choose_a_person_or_are_no_small_object_are_none(claims: Any) -> None:
    assert "" == claims_of(encoded(claims))


@pytest.mark.parametrize("letter", ["\u00e9", "\x7f", "\U0001f600"])
def test_claims_that_are_short_in_base64_and_long_in_a_url_are_none(letter: str) -> None:
    written = json.dumps({"access_token": {"x": letter * 700}}, ensure_ascii=False).encode()
    assert len(base64.b64encode(written)) <= LONGEST_CLAIMS
    assert "" == claims_of(base64.b64encode(written).decode())


@pytest.mark.parametrize(
    "text",
    ["", "%%%", "e30", "eyJhIjox", encoded()[:-5], "é", base64.b64encode(b'{"access_token":{"a":1,"a":2}}').decode()],
)
def test_text_that_is_no_such_base64_is_none(text: str) -> None:
    assert "" == claims_of(text)


@pytest.mark.parametrize(
    "status, header, found",
    [
        (401, challenge(encoded()), True),
        (401, challenge(encoded().rstrip("=")), True),
        (
            401,
            challenge(base64.urlsafe_b64encode(json.dumps({"access_token": {"a": "???>>>"}}).encode()).decode()),
            True,
        ),
        (403, challenge(encoded()), False),
        (401, challenge(encoded()).replace("insufficient_claims", "invalid_token"), False),
        (401, challenge(encoded()).replace("Bearer", "Basic"), False),
        (401, 'PoP realm="", nonce="ey==", ' + challenge(encoded()), True),
        (401, challenge(encoded()) + ', Basic realm="b"', True),
        (401, challenge(encoded()).replace('claims="', "claims=").rstrip('="'), True),
        (401, challenge(encoded()).replace('claims="', 'claims="\\'), True),
        (401, challenge(encoded()) + "\x00", False),
        (401, challenge(encoded({**CLAIMS, "id_token": {}})), False),
        (401, challenge("e" * 10_000_000), False),
        (401, challenge(encoded()) + f', claims="{encoded()}"', False),
    ],
)
def test_a_challenge_is_a_401_with_its_error(status: int, header: str, found: bool) -> None:
    assert found is bool(demanded_claims(status, [(b"WWW-Authenticate", header.encode())]))


def test_the_bound_counts_for_the_text_that_came_and_for_the_one_that_is_sent() -> None:
    padded = b'{"access_token":{"a":1' + b" " * (LONGEST_CLAIMS // 4 * 3 - 24) + b"}}"
    for more, found in ((b"", True), (b" ", False)):
        assert found is bool(claims_of(base64.b64encode(padded + more).decode()))
    letters = (LONGEST_CLAIMS - len('{"access_token":{"a":"b"}}')) // 6
    rest = LONGEST_CLAIMS - len('{"access_token":{"a":""}}') - 6 * letters
    for longer, found in ((0, True), (1, False)):
        said = {"access_token": {"a": "\u00e9" * letters + "b" * (rest + longer)}}
        text = json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()
        assert found is bool(claims_of(base64.b64encode(text).decode()))


def test_the_same_claims_in_another_order_are_the_same() -> None:
    one, two = {"a": {"x": 1, "y": 2}, "b": None}, {"b": None, "a": {"y": 2, "x": 1}}
    assert claims_of(encoded({"access_token": one})) == claims_of(encoded({"access_token": two}))


def test_a_challenge_in_a_header_of_its_own_is_found_beside_others() -> None:
    said = [b'Basic realm="a"', challenge(encoded()).encode(), b"Negotiate"]
    assert demanded_claims(401, [(b"www-authenticate", each) for each in said])


# what others than this reader would take

HOSTILE: dict[str, bytes] = {
    "deep": b'{"access_token":{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}}",
    "deeper than Python goes": b'{"access_token":' * 160 + b"1" + b"}" * 160,
    "only opened": b"[" * 3000,
    "a name twice": b'{"access_token":{"a":1},"access_token":{"b":1}}',
    "NaN": b'{"access_token":{"a":NaN}}',
    "a number that is no number": b'{"access_token":{"a":1e999}}',
    "a byte order mark": b'\xef\xbb\xbf{"access_token":{"a":null}}',
    "UTF-16": '{"access_token":{"a":null}}'.encode("utf-16"),
    "no UTF-8": b'{"access_token":{"a":"\xff"}}',
    "half a letter": b'{"access_token":{"a":"\\ud800"}}',
    "a line's end in a text": b'{"access_token":{"a":"b\r\nLocation: c"}}',
    "a zero byte in a text": b'{"access_token":{"a":"\x00"}}',
    "more behind it": b'{"access_token":{"a":null}}&prompt=none',
    "in other letters": b'{"Access_Token":{"a":null}}',
    "a parameter beside it": b'{"access_token":{"a":null},"prompt":"none"}',
}
TEXTS = {
    "a space": encoded()[:8] + " " + encoded()[8:],
    "a line's end": encoded() + "\n",
    "a zero byte": encoded() + "\x00",
    "digits of another script": "\u0664" * 8,
    "a sign in the middle": encoded()[:8] + "=" + encoded()[8:],
    "percent-encoded": encoded().replace("=", "%3D") + "%3D",
    "the JSON itself": json.dumps(CLAIMS),
    "ten million characters": "e" * 10_000_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_json_that_readers_take_in_different_ways_is_none(name: str) -> None:
    assert "" == claims_of(base64.b64encode(HOSTILE[name]).decode())


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_readers_take_in_different_ways_is_none(name: str) -> None:
    assert "" == claims_of(TEXTS[name])


ATTEMPT = Attempt(state=Secret("state-1"), challenge="challenge-1", verifier=None, nonce=None)
OWN = (
    "",
    '{"access_token":{"xms_cc":{"values":["cp1"]}}}',
    '{"id_token":{"sub":null},"access_token":7}',
    "[1]",
    "text",
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9), lambda each: st.lists(each, max_size=3)
)
ABOUT = st.dictionaries(st.text(max_size=9) | st.sampled_from(["xms_cc", "prompt", "scope", "sub"]), VALUES, max_size=4)


@settings(max_examples=examples(300))
@given(about=ABOUT, own=st.sampled_from(OWN))
@example(about={"xms_cc": None, "prompt": "none", "login_hint": "bob", "scope": "admin"}, own=OWN[1])
def test_claims_change_one_parameter_and_nothing_that_the_app_says_in_it(about: dict[str, Any], own: str) -> None:
    claims = claims_of(encoded({"access_token": about}))
    assert bool(claims) is bool(about)
    app = with_habits(authorize_params={"prompt": "consent", **({"claims": own} if own else {})})
    before, after = (authorization_params(each, ATTEMPT, ["read"]) for each in (app, app.asking_for(claims)))
    assert {**before, "claims": ""} == {**after, "claims": ""} if claims else before == after
    if claims:
        said, ours = json.loads(str(after["claims"])), json.loads(own) if own.startswith("{") else {}
        assert said.keys() == {*ours, "access_token"}
        kept = ours["access_token"] if isinstance(ours.get("access_token"), dict) else {}
        assert said == {**ours, "access_token": {**about, **kept}}
