"""A tool's request to a provider's API, through the broker."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx2
import pytest

from oauthbroker import AuthorizationRequiredError, RequestRefusedError, errors_for_model
from oauthbroker.client import ApiAnswer, AuthorizationRequired, BrokerError, Code, Failed, OAuth, Options, SyncOAuth
from oauthbroker.model.token_request import NotScopes
from oauthbroker.testing import TestClock
from tests.unit.client.kit import TURN_TOKEN, FakeBroker, fake_broker, says

URL = "https://api.acme.example/a%2Fb?c=d%20e"
REQUIRED = {
    "status": "authorization_required", "authSessionId": "as-1", "authorizationUrl": "https://broker.example/connect/x",
    "expiresAt": "2026-02-01T10:00:00Z", "message": "Please connect.", "reason": "noGrant",
}  # fmt: skip


def raw(status: int, body: bytes, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def fetch(fake: FakeBroker, *args: Any, **more: Any) -> Any:
    async with OAuth(fake.url, TURN_TOKEN) as oauth:
        return await oauth.fetch("OAuthApp/acme", *args, **more)


async def test_the_request_goes_to_the_broker_with_the_turn_token() -> None:
    said = raw(201, b"[1]", oauthbroker_status="forwarded", x_own="1")
    async with fake_broker(said) as fake:
        answer = await fetch(
            fake, "POST", URL, headers={"Authorization": "mine", "X-A": "2", "accept": "text/csv", "Content_Length": "9", "Transfer_Encoding": "x"},
            content=b"{}", scopes=["read", "write"],
        )  # fmt: skip
    assert isinstance(answer, ApiAnswer)
    assert (201, [1], "1") == (answer.status, answer.json(), answer.headers["x-own"])
    (asked,) = fake.asked
    assert ("POST", "/v1/proxy/acme/api.acme.example/a%2Fb?c=d%20e") == (asked.method, asked.path)
    assert f"Bearer {TURN_TOKEN}" == asked.headers["authorization"]
    assert not {"content_length", "transfer_encoding"} & asked.headers.keys(), "servers read _ as -"
    assert ("2", "text/csv", "read write") == tuple(
        asked.headers[name] for name in ("x-a", "accept", "oauthbroker-scopes")
    )


HEAD = {"oauthbroker_status": "authorization_required", "oauthbroker_session": "as-1", "oauthbroker_reason": "noGrant"}
ITEM = {name: text for name, text in REQUIRED.items() if name not in {"status", "reason"}}


async def test_head_which_has_no_body_finds_the_link_among_those_of_the_turn() -> None:
    block = says(200, {"type": "auth.pending", "items": [{**ITEM, "authSessionId": "as-2"}, ITEM]})
    asked = raw(403, b"", **HEAD)
    async with fake_broker(asked, block) as fake:
        result = await fetch(fake, "HEAD", URL)
        assert REQUIRED == result.to_json()
        assert ["HEAD", "GET"] == [each.method for each in fake.asked]
    async with fake_broker(asked, block) as fake, OAuth(fake.url, TURN_TOKEN) as oauth, oauth.client("acme") as client:
        with pytest.raises(AuthorizationRequiredError) as error:
            await client.head(URL)
        assert REQUIRED == error.value.result.to_json()
    async with fake_broker(asked, says(200, {"type": "auth.pending", "items": []})) as fake:
        gone = await fetch(fake, "HEAD", URL)
        assert Code.BROKER_ANSWER_INVALID is gone.code


async def test_head_is_told_the_code_of_a_refusal_in_a_header() -> None:
    async with fake_broker(raw(403, b"", oauthbroker_status="error", oauthbroker_code="apiHostForbidden")) as fake:
        result = await fetch(fake, "HEAD", URL)
        assert (Code.API_HOST_FORBIDDEN, False) == (result.code, result.retryable)
        async with OAuth(fake.url, TURN_TOKEN) as oauth, oauth.client("acme") as client:
            with pytest.raises(RequestRefusedError) as error:
                await client.head(URL)
            assert Code.API_HOST_FORBIDDEN is error.value.result.code


@pytest.mark.parametrize("status", [401, 429, 503])
async def test_a_refusal_of_the_provider_is_an_answer_and_no_reason_to_try_again(status: int) -> None:
    async with fake_broker(raw(status, b"no", oauthbroker_status="forwarded", retry_after="1")) as fake:
        answer = await fetch(fake, "GET", URL)
    assert (status, 1) == (answer.status, len(fake.asked))


async def test_a_person_who_is_needed_is_a_result() -> None:
    import json

    body = json.dumps(REQUIRED).encode()
    said = raw(403, body, content_type="application/json", oauthbroker_status="authorization_required")
    async with fake_broker(said) as fake:
        assert isinstance(await fetch(fake, "GET", URL), AuthorizationRequired)


@pytest.mark.parametrize(
    "said",
    [
        raw(200, b"{}", content_type="application/json"),
        raw(403, b"{}", content_type="application/json"),
        raw(404, b"", oauthbroker_status="error"),
    ],
)
async def test_an_answer_without_the_header_is_not_the_providers(said: bytes) -> None:
    async with fake_broker(said) as fake:
        failed = await fetch(fake, "GET", URL)
    assert isinstance(failed, Failed)
    assert "brokerAnswerInvalid" == failed.code


@pytest.mark.case("102", "104")
@pytest.mark.parametrize(
    ("method", "url", "headers"),
    [
        ("GET", "https://api.acme.example/../../../v1/turn/links", {}),
        ("GET", "https://api.acme.example/%2e%2e/x", {}),
        ("GET", "https://user@api.acme.example/", {}),
        ("GET", "https://api.acme.example\\@evil.example/", {}),
        ("GET", "ftp://api.acme.example/", {}),
        ("GET", "https://api.acme.example/ HTTP/1.1", {}),
        ("GET /", "https://api.acme.example/", {}),
        ("GET", "https://api.acme.example/", {"X-A": "1\r\nX-B: 2"}),
        ("GET", "https://api.acme.example/", {"X A": "1"}),
    ],
)
async def test_what_cannot_be_sent_as_it_stands_is_refused_here(method: str, url: str, headers: dict[str, str]) -> None:
    async with fake_broker(raw(200, b"", oauthbroker_status="forwarded")) as fake:
        failed = await fetch(fake, method, url, headers=headers)
    assert isinstance(failed, Failed)
    assert ("requestInvalid", []) == (failed.code, fake.asked)


@pytest.mark.parametrize(
    ("arguments", "pointer", "says"),
    [
        (("OAuthApp/acme", "https://a.example/me", "GET"), "/method", "Send it before the URL"),
        (("OAuthApp/acme", 3, URL), "/method", "Send it before the URL"),
        (("OAuthApp/acme", "GET", "/api/me"), "/url", "whole address. Send one such as https://"),
        (("OAuthApp/acme", "GET", "https://a.example/../x"), "/url", "without steps such as /../"),
        *((
            (app, "GET", URL), "/oauthAppRef", 'Send "OAuthApp/NAME"')
            for app in (None, 3, "OauthApp/acme", "OAuthApp/", {"name": "acme", "x": "1"})
        ),
    ],
)  # fmt: skip
async def test_a_wrong_argument_is_named_with_its_right_form(arguments: Any, pointer: str, says: str) -> None:
    async with OAuth("unix:/nowhere.sock", TURN_TOKEN) as oauth:
        failed = await oauth.fetch(*arguments)
    assert isinstance(failed, Failed)
    assert (Code.REQUEST_INVALID, pointer) == (failed.code, failed.errors[0]["pointer"])
    assert says in failed.message


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"X-B": "1", "X-A": 1}, "The value of the header X-A cannot be sent."),
        ({"X-A": "1\n"}, "The value of the header X-A cannot be sent."),
        ({"X-A": "é€"}, "The value of the header X-A cannot be sent."),
        ({"X-A": "\ud800"}, "The value of the header X-A cannot be sent."),
        ({1: "a"}, "A header has a name that cannot be sent."),
        ({"Bearer secret\n": "a"}, "A header has a name that cannot be sent."),
        ({"X-€": "a"}, "A header has a name that cannot be sent."),
    ],
)
async def test_a_header_that_cannot_be_sent_is_a_result_that_names_it(headers: Any, says: str) -> None:
    async with OAuth("unix:/nowhere.sock", TURN_TOKEN) as oauth:
        failed = await oauth.fetch("acme", "GET", URL, headers=headers)
    assert isinstance(failed, Failed)
    assert (True, False) == (says in failed.message, "secret" in failed.message)


async def test_a_header_of_latin_1_is_sent_as_it_is() -> None:
    async with fake_broker(raw(200, b"", oauthbroker_status="forwarded")) as fake:
        assert isinstance(await fetch(fake, "GET", URL, headers={"X-A": "é"}), ApiAnswer)
        with SyncOAuth(fake.url, TURN_TOKEN) as oauth:
            assert isinstance(await asyncio.to_thread(oauth.fetch, "acme", "GET", URL, headers={"X-A": "é"}), ApiAnswer)
    assert ["é", "é"] == [asked.headers["x-a"] for asked in fake.asked]


async def test_scopes_that_are_a_text_are_refused_by_every_call_of_a_client() -> None:
    scopes: Any = "chat:write"
    async with OAuth("unix:/nowhere.sock", TURN_TOKEN) as oauth:
        said = await oauth.getAccessToken({"oauthAppRef": "acme", "scopes": scopes})
        messages = [
            (await oauth.get_access_token("acme", scopes)).message,  # type: ignore[union-attr]
            (await oauth.report_rejected("acme", "at-1", scopes)).message,  # type: ignore[union-attr]
            (await oauth.fetch("acme", "GET", URL, scopes=scopes)).message,  # type: ignore[union-attr]
            said["error"]["message"],
        ]
        with pytest.raises(RequestRefusedError, match="requestInvalid: The scopes of a call are a list"):
            oauth.client("acme", scopes)
        with pytest.raises(BrokerError, match="requestInvalid: The scopes of a call are a list"):
            oauth.narrow(apps={"acme": scopes})
    assert {NotScopes().message()} == set(messages)


def test_the_sync_client_has_it_too() -> None:
    failed = SyncOAuth("unix:/nowhere.sock", TURN_TOKEN).fetch("acme", "GET", "https://a.example/../x")
    assert isinstance(failed, Failed)
    assert "requestInvalid" == failed.code


AWAY = "http://127.0.0.1:1"
UNREACHABLE = f"The token broker does not answer right now. Ask again later. ({AWAY})"


async def test_a_client_says_of_a_broker_that_is_away_what_a_token_call_says() -> None:
    async with OAuth(AWAY, TURN_TOKEN, Options(clock=TestClock())) as oauth, oauth.client("acme") as acme:
        with pytest.raises(RequestRefusedError, match=re.escape(f"brokerUnreachable: {UNREACHABLE}")) as refused:
            await acme.get(URL)
        assert (Code.BROKER_UNREACHABLE, True) == (refused.value.result.code, refused.value.result.retryable)
        assert UNREACHABLE == str(await errors_for_model(acme.get)(URL))


def test_the_sync_client_says_so_too() -> None:
    with SyncOAuth(AWAY, TURN_TOKEN, Options(clock=TestClock())) as oauth, oauth.client("acme") as acme:
        assert UNREACHABLE == str(errors_for_model(acme.get)(URL))


async def test_a_broker_that_hangs_is_named_by_the_librarys_own_exception() -> None:
    async def silence(_: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)

    async with (
        fake_broker(silence) as fake,
        OAuth(fake.url, TURN_TOKEN, Options(timeout=0.2)) as oauth,
        oauth.client("acme") as acme,
    ):
        with pytest.raises(httpx2.ReadTimeout, match=re.escape(fake.url)):
            await acme.get(URL, timeout=0.1)


@pytest.mark.parametrize("ref", ["CredentialApp/key", {"kind": "CredentialApp", "name": "key"}])
async def test_the_broker_is_told_the_kind_that_a_tool_names(ref: Any) -> None:
    """It then says that a key is for requests alone, as it does in its own process."""
    async with fake_broker(says(400, {"code": "requestInvalid"})) as fake, OAuth(fake.url, TURN_TOKEN) as oauth:
        await oauth.get_access_token(ref)
        await oauth.report_rejected(ref, "token")
        await oauth.getAccessToken({"oauthAppRef": ref})
    assert [{"kind": "CredentialApp", "name": "key"}] * 3 == [asked.body["oauthAppRef"] for asked in fake.asked]
