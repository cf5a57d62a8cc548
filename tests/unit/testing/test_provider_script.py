"""The provider, dishonest: each misbehaviour reaches the wire as it was ordered, as often as it was ordered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.testing.provider.script import FOREVER, EndpointScript
from tests.unit.testing.conftest import RelyingParty, answered


async def test_misbehaviours_stand_in_line_and_end(party: RelyingParty):
    script = party.idp.script.jwks
    script.answer(500)
    script.answer(503, {"error": "busy"}, {"Retry-After": "7"}, times=2)
    statuses = [(await party.get("/jwks")).status_code for _ in range(4)]
    assert [500, 503, 503, 200] == statuses


async def test_forever_lasts_until_reset(party: RelyingParty):
    party.idp.script.jwks.answer(418, times=FOREVER)
    assert {418} == {(await party.get("/jwks")).status_code for _ in range(5)}
    party.idp.script.reset()
    assert 200 == (await party.get("/jwks")).status_code


def test_zero_times_is_a_mistake():
    with pytest.raises(ValueError, match="times is a positive number"):
        EndpointScript().answer(500, times=0)


async def test_an_answer_is_sent_as_given(party: RelyingParty):
    party.idp.script.token.answer(200, b"\xff{", {"Content-Type": "text/html", "X-Note": "one"})
    answer = await party.exchange("any")
    assert (b"\xff{", "text/html", "one") == (answer.content, answer.headers["content-type"], answer.headers["x-note"])
    party.idp.script.token.answer(200, [1, 2])
    answer = await party.exchange("any")
    assert ([1, 2], "application/json") == (answer.json(), answer.headers["content-type"])


async def test_a_replaced_answer_does_no_work_unless_told(party: RelyingParty):
    code = await party.code()
    party.idp.script.token.answer(500)
    party.idp.script.token.answer(500, after_work=True)
    assert [500, 500, 400] == [(await party.exchange(code)).status_code for _ in range(3)]  # the second burnt the code
    assert 3 == party.idp.count("authorization_code")


async def test_raw_bytes_reach_the_socket_unchanged(party: RelyingParty):
    party.idp.script.token.raw(b"SMTP 220 hello\r\n")
    with pytest.raises(httpx2.RemoteProtocolError):
        await party.exchange("any")
    party.idp.script.token.raw(b"HTTP/1.1 200 OK\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 2\r\n\r\n{}")
    answer = await party.exchange("any")
    assert (["1", "2"], {}) == (answer.headers.get_list("x-a"), answer.json())


@pytest.mark.parametrize("reset", [False, True])
async def test_closing_gives_no_answer(party: RelyingParty, reset: bool):
    party.idp.script.token.close_after_accept(reset=reset)
    with pytest.raises(httpx2.ReadError if reset else httpx2.RemoteProtocolError):
        await party.exchange("any")
    assert 1 == party.idp.count("token")


async def test_a_lost_answer_has_burnt_the_code(party: RelyingParty):
    code = await party.code()
    party.idp.script.token.close_after_accept(after_work=True)
    with pytest.raises(httpx2.RemoteProtocolError):
        await party.exchange(code)
    assert "invalid_grant" == (await party.exchange(code)).json()["error"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_leads_to_a_second_server(party: RelyingParty, status: int):
    async with IdentityProvider() as elsewhere:
        party.idp.script.token.redirect(elsewhere.url("/token"), status)
        answer = await party.exchange("any")
        assert (status, elsewhere.url("/token")) == (answer.status_code, answer.headers["location"])
        assert 0 == elsewhere.count("token")


async def test_a_hanging_request_can_be_released(party: RelyingParty):
    code = await party.code()
    hold = party.idp.script.token.hang()
    task = asyncio.create_task(party.exchange(code))
    await hold.arrived()
    await asyncio.sleep(0.02)
    assert not task.done()
    hold.release()
    assert 200 == (await task).status_code


async def test_a_provider_stops_while_requests_hang(party: RelyingParty):
    async with IdentityProvider() as other:
        hold = other.script.jwks.hang(times=FOREVER)
        task = asyncio.create_task(party.http.get(other.url("/jwks")))
        await hold.arrived()
    with pytest.raises(httpx2.TransportError):
        await task


async def test_waiting_for_what_never_comes_ends(idp: IdentityProvider):
    with pytest.raises(TimeoutError):
        await idp.wait_for("token", timeout=0.01)
    with pytest.raises(TimeoutError):
        await idp.script.token.hang().arrived(timeout=0.01)


async def test_a_drip_takes_its_time(party: RelyingParty):
    party.idp.script.jwks.drip(200, body=b"0123456789")
    started = time.monotonic()
    answer = await party.get("/jwks")
    assert b"0123456789" == answer.content
    assert time.monotonic() - started > 0.04

    party.idp.script.jwks.drip(2000, headers_too=True)
    assert "keys" in (await party.get("/jwks")).json()


async def test_a_delay_answers_late(party: RelyingParty):
    party.idp.script.jwks.delay(0.05)
    started = time.monotonic()
    assert 200 == (await party.get("/jwks")).status_code
    assert time.monotonic() - started > 0.04


@pytest.mark.parametrize("chunked", [True, False])
async def test_an_endless_body_has_no_end(party: RelyingParty, chunked: bool):
    party.idp.script.jwks.endless(chunked=chunked)
    read = 0
    async with party.http.stream("GET", party.idp.url("/jwks")) as answer:
        async for chunk in answer.aiter_raw():
            read += len(chunk)
            if read > 2_000_000:
                break
    assert read > 2_000_000
    assert 200 == (await party.get("/jwks")).status_code


async def test_a_gzip_bomb_is_small_on_the_wire_and_huge_inside(party: RelyingParty):
    party.idp.script.token.gzip_bomb(megabytes=8)
    answer = await party.exchange("any")
    assert int(answer.headers["content-length"]) < 20_000
    assert len(answer.content) > 8_000_000
    assert "boom" == answer.json()["access_token"]


async def test_alterations_change_honest_answers_only(party: RelyingParty):
    party.idp.script.token.alter(lambda found: {**found, "scope": "admin"}, times=2)
    party.idp.script.token.alter(lambda found: found.pop("refresh_token"))  # its own change, not its return value
    assert "invalid_grant" == (await party.exchange("unknown")).json()["error"]
    answer = await party.connect()
    assert "admin" == answer["scope"]


async def test_an_alteration_in_place_is_enough(party: RelyingParty):
    def lie(found: dict[str, Any]) -> None:
        found["expires_in"] = "soon"

    party.idp.script.token.alter(lie)
    first = await party.connect()
    second = (await party.refresh(first["refresh_token"])).json()
    assert ("soon", 3600) == (first["expires_in"], second["expires_in"])


async def test_userinfo_and_discovery_can_lie(party: RelyingParty):
    tokens = await party.connect()
    party.idp.script.userinfo.alter(lambda found: {**found, "sub": "U000"})
    party.idp.script.discovery.alter(lambda found: {**found, "issuer": "https://evil.example"})
    assert "U000" == (await party.get("/userinfo", tokens["access_token"])).json()["sub"]
    assert "https://evil.example" == (await party.get("/.well-known/openid-configuration")).json()["issuer"]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (lambda a: a.error("server_error", error_description="<b>no</b>"), {"error": "server_error", "code": None}),
        (lambda a: a.fields(error="access_denied"), {"error": "access_denied", "code": str}),
        (lambda a: a.fields(iss="https://evil.example"), {"iss": "https://evil.example", "code": str}),
        (lambda a: a.fields(iss=None), {"iss": None, "code": str}),
        (lambda a: a.fields(state="other"), {"state": "other", "code": str}),
        (lambda a: a.fields(state=None), {"state": None, "code": str}),
    ],
)
async def test_the_way_back_can_be_altered(party: RelyingParty, order: Callable[[Any], None], expected: dict[str, Any]):
    order(party.idp.script.authorize)
    found = answered(await party.idp.agree(party.authorization_url()))
    for name, value in expected.items():
        assert isinstance(found.get(name), str) if value is str else value == found.get(name)


async def test_a_list_repeats_a_parameter(party: RelyingParty):
    party.idp.script.authorize.fields(code=["one", "two"])
    callback = await party.idp.agree(party.authorization_url())
    assert 2 == callback.count("code=")


ID_TOKEN_LIES: dict[str, dict[str, Any]] = {
    "no algorithm": {"header": {"alg": "none"}},
    "signed with the client secret": {"header": {"alg": "HS256"}, "key": "secret"},
    "signed with the public key as a secret": {"header": {"alg": "HS256"}, "key": "public"},
    "signed with an unknown key": {"key": "strange"},
    "no signature": {"key": "cut"},
    "one bit wrong": {"key": "flipped"},
}


@pytest.mark.parametrize("lie", ID_TOKEN_LIES.values(), ids=ID_TOKEN_LIES)
@pytest.mark.parametrize("alg", ["RS256", "ES256"])
async def test_a_forged_signature_does_not_verify(party: RelyingParty, lie: dict[str, Any], alg: str):
    party.idp.change("bot", id_token_alg=alg)
    party.idp.script.token.alter_id_token(**lie)
    answer = await party.connect()
    keys = KeySet.import_key_set((await party.get("/jwks")).json())
    with pytest.raises((JoseError, ValueError)):
        jwt.decode(answer["id_token"], keys, algorithms=["RS256", "ES256"])


async def test_a_forgery_with_the_secret_has_its_claims(party: RelyingParty):
    party.idp.script.token.alter_id_token(header={"alg": "HS256"}, key="secret")
    answer = await party.connect()
    key = OctKey.import_key(party.idp.client("bot").reveal_secret())
    token = jwt.decode(answer["id_token"], key, algorithms=["HS256"])
    assert "U234567" == token.claims["sub"]


@pytest.mark.parametrize("alg", ["RS256", "ES256"])
async def test_altered_claims_are_signed_honestly(party: RelyingParty, alg: str):
    party.idp.change("bot", id_token_alg=alg)
    party.idp.script.token.alter_id_token(
        claims={"iss": "https://evil.example", "nonce": None, "aud": ["bot", "other"]}, header={"crit": ["unheard"]}
    )
    answer = await party.connect()
    header, body, signature = answer["id_token"].split(".")
    key = party.idp.keys.key(alg)
    claims = jwt.decode(_without_crit(header, body, signature, key, alg), key, algorithms=[alg]).claims
    assert ("https://evil.example", ["bot", "other"]) == (claims["iss"], claims["aud"])
    assert "nonce" not in claims


def _without_crit(header: str, body: str, signature: str, key: RSAKey | ECKey, alg: str) -> str:
    """joserfc rightly refuses an unknown `crit`, so sign the same claims again without it."""
    import base64
    import json

    with pytest.raises(JoseError):
        jwt.decode(f"{header}.{body}.{signature}", key, algorithms=[alg])
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    assert ["unheard"] == json.loads(base64.urlsafe_b64decode(header + "=="))["crit"]
    return jwt.encode({"alg": alg}, claims, key)


async def test_claims_can_be_altered_by_a_function(party: RelyingParty):
    party.idp.script.token.alter_id_token(claims=lambda found: {**found, "exp": found["iat"] - 1})
    answer = await party.connect()
    claims = jwt.decode(answer["id_token"], party.idp.keys.key("RS256"), algorithms=["RS256"]).claims
    assert claims["exp"] < claims["iat"]


async def test_rotated_keys_leave_the_jwks(party: RelyingParty):
    before = (await party.get("/jwks")).json()["keys"]
    party.idp.keys.rotate()
    after = (await party.get("/jwks")).json()["keys"]
    assert not {key["kid"] for key in before} & {key["kid"] for key in after}
    assert {"n", "e", "kid", "use", "alg", "kty"} >= set(after[0])  # never a private member


async def test_revocation_can_fail_and_kill_nothing(party: RelyingParty):
    tokens = await party.connect()
    party.idp.script.revoke.answer(503)
    assert 503 == (await party.post("/revoke", token=tokens["access_token"])).status_code
    assert party.idp.is_alive(tokens["access_token"])


async def test_an_unknown_path_is_counted_and_404(party: RelyingParty):
    assert 404 == (await party.get("/nowhere")).status_code
    assert 1 == party.idp.count("unknown")


async def test_a_script_that_fails_fails_the_test(clock: TestClock):
    def broken(found: dict[str, Any]) -> None:
        raise LookupError("the test's own mistake")

    with pytest.raises(LookupError, match="own mistake"):
        async with IdentityProvider(clock=clock) as idp:
            idp.script.discovery.alter(broken)
            page = await Browser().open(idp.url("/.well-known/openid-configuration"))
            assert 500 == page.status
