"""The JWT verifier of the public face for plug-ins: good and bad tokens, and the source of the keys."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from oauthbroker import BrokerError, Secret
from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.plugin_services.jwt_verifier import KEPT_SECONDS
from oauthbroker.plugins import JwtIssuer, JwtVerifier, PublicWeb
from oauthbroker.testing import TestClock
from tests.kit.connect_proxy import ConnectProxy
from tests.unit.flowtools.serving.jwt_kit import (
    AUDIENCE,
    ISSUER,
    by_secret,
    encoded,
    key,
    key_set,
    public_pem,
    token,
    unsigned,
)
from tests.unit.protocol.kit import Handler, RawServer, says


class Here:
    """One clock and one issuer."""

    def __init__(self, clock: TestClock, web: PublicWeb, **more: Any) -> None:
        keys = {} if "jwks_url" in more else {"jwks": key_set("rsa", "ec")}
        self.clock = clock
        self.verifier = JwtVerifier([JwtIssuer(ISSUER, AUDIENCE, **{**keys, **more})], web, clock)

    def claims(self, **more: Any) -> dict[str, Any]:
        now = self.clock.now().timestamp()
        made = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": 300, **more}
        times = {name: now + made[name] for name in ("exp", "nbf") if type(made.get(name)) is int}
        return {name: value for name, value in {**made, **times}.items() if value is not None}

    async def sub(self, text: str) -> Any:
        return (await self.verifier.claims(Secret(text)))["sub"]

    async def refusal(self, text: str) -> str:
        with pytest.raises(BrokerError) as caught:
            await self.verifier.claims(Secret(text))
        assert text not in str(caught.value) or not text
        return caught.value.code.value


@pytest.fixture
async def web() -> AsyncIterator[PublicWeb]:
    async with PublicWeb(allow_plain_http_loopback=True) as web:
        yield web


@pytest.fixture
def here(test_clock: TestClock, web: PublicWeb) -> Here:
    return Here(test_clock, web)


GOOD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "RS256": ({}, {}),
    "ES256": ({}, {"signed_by": "ec"}),
    "one of several audiences": ({"aud": ["other", AUDIENCE]}, {}),
    "no kid, and one key of the type": ({}, {"kid": None}),
    "expired within the leeway": ({"exp": -20}, {}),
    "valid from this moment on, the leeway included": ({"nbf": 30}, {}),
    "not yet valid within the leeway": ({"nbf": 20}, {}),
    "an unknown header": ({}, {"x": "y"}),
    "the whole name of its type": ({}, {"typ": "application/AT+jwt"}),
}


@pytest.mark.parametrize("case", GOOD)
async def test_a_good_token_gives_its_claims(here: Here, case: str) -> None:
    claims, how = GOOD[case]
    assert "ada" == await here.sub(token(here.claims(**claims), **how))


BAD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "another key of the same kid": ({}, {"signed_by": "rsa-other", "kid": "rsa"}),
    "an unknown kid": ({}, {"signed_by": "rsa-other"}),
    "a kid that is no text": ({}, {"kid": 7}),
    "another issuer": ({"iss": "https://login.other.example"}, {}),
    "no issuer": ({"iss": None}, {}),
    "an issuer that is no text": ({"iss": [ISSUER]}, {}),
    "another audience": ({"aud": "other"}, {}),
    "no audience": ({"aud": None}, {}),
    "expired at this moment, the leeway included": ({"exp": -30}, {}),
    "expired": ({"exp": -31}, {}),
    "no end": ({"exp": None}, {}),
    "an end that is a text": ({"exp": "9999999999"}, {}),
    "an end that is a truth": ({"exp": True}, {}),
    "not yet valid": ({"nbf": 31}, {}),
    "a begin beyond all times": ({"nbf": 10.0**300}, {}),
    "an algorithm that is not accepted": ({}, {"alg": "RS512"}),
    "a critical header": ({}, {"crit": ["x"], "x": "y"}),
    "a key of its own": ({}, {"jwk": {}}),
    "an ID token": ({"at_hash": "h"}, {}),
    "a token without a type": ({}, {"typ": None}),
    "a logout token": ({}, {"typ": "logout+jwt"}),
    "a type that is no text": ({}, {"typ": ["at+jwt"]}),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_token_that_is_not_good_is_refused(here: Here, case: str) -> None:
    claims, how = BAD[case]
    assert "unauthenticated" == await here.refusal(token(here.claims(**claims), **how))


async def test_no_signature_and_one_by_a_public_key_are_refused(here: Here) -> None:
    good = token(here.claims())
    forged = [
        unsigned(here.claims()),
        by_secret(here.claims(), public_pem()),
        good[:-6] + "AAAAAA",
        good + "A" * 70_000,
    ]
    forged += ["", "a.b.c", f"{encoded([])}.{encoded({})}.x", f"{encoded({'alg': 'RS256'})}.e30.e30", "é.é.é"]
    assert {"unauthenticated"} == {await here.refusal(each) for each in forged}


async def test_a_shared_secret_in_a_fetched_key_set_is_no_key(test_clock: TestClock, web: PublicWeb) -> None:
    served = {"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "s"}, *key_set("rsa")["keys"]]}
    async with RawServer(says(200, json.dumps(served).encode())) as server:
        here = Here(test_clock, web, jwks_url=f"{server.url}/keys")
        assert "ada" == await here.sub(token(here.claims()))
        assert "unauthenticated" == await here.refusal(by_secret(here.claims(), b"secret", "s"))


@pytest.mark.parametrize("how", [{"use": "enc"}, {"alg": "ES256"}], ids=["for encryption", "for another algorithm"])
async def test_a_key_for_another_purpose_verifies_nothing(test_clock: TestClock, web: PublicWeb, how: Any) -> None:
    here = Here(test_clock, web, jwks={"keys": [*key_set("rsa", **how)["keys"], *key_set("ec")["keys"]]})
    assert "unauthenticated" == await here.refusal(token(here.claims()))


WRONG: dict[str, dict[str, Any]] = {
    "no keys": {},
    "a set without a key": {"jwks": {"keys": []}},
    "a short RSA key": {"jwks": key_set("rsa-short")},
    "a private key": {"jwks": {"keys": [key("ec").as_dict(private=True)]}},
    "a shared secret": {"jwks": {"keys": [*key_set("rsa")["keys"], {"kty": "oct", "k": "c2VjcmV0"}]}},
    "two sources of keys": {"jwks": {}, "jwks_url": "https://x.example/keys"},
    "a shared secret's algorithm": {"jwks": key_set("rsa"), "algorithms": ["HS256"]},
    "no signature": {"jwks": key_set("rsa"), "algorithms": ["none"]},
    "no algorithm": {"jwks": key_set("rsa"), "algorithms": []},
    "a text for algorithms": {"jwks": key_set("rsa"), "algorithms": "RS256"},
}


@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")  # of the short key
@pytest.mark.parametrize("case", WRONG)
def test_an_issuer_that_would_verify_nothing_or_anything_is_refused(case: str) -> None:
    with pytest.raises(ValueError, match="issuer of JWTs"):
        JwtIssuer(ISSUER, AUDIENCE, **WRONG[case])


def keys(*names: str) -> Handler:
    return says(200, json.dumps(key_set(*names)).encode())


def newest_of(answers: list[Handler]) -> Handler:
    async def handle(*asked: Any) -> None:
        await answers[-1](*asked)

    return handle


async def test_keys_are_fetched_once_and_again_for_a_new_kid_at_most_once_a_minute(
    test_clock: TestClock, web: PublicWeb
) -> None:
    answers = [keys("rsa")]
    async with RawServer(newest_of(answers)) as server:
        here = Here(test_clock, web, jwks_url=f"{server.url}/keys")
        for _ in range(3):
            assert "ada" == await here.sub(token(here.claims()))
        assert 1 == len(server.requests)
        answers.append(keys("rsa", "ec"))
        assert "ada" == await here.sub(token(here.claims(), signed_by="ec"))
        for _ in range(3):
            assert "unauthenticated" == await here.refusal(token(here.claims(), signed_by="rsa-other"))
        assert 2 == len(server.requests)


async def test_a_key_that_its_issuer_removed_ends_with_the_fetched_set(test_clock: TestClock, web: PublicWeb) -> None:
    answers = [keys("rsa", "ec")]
    async with RawServer(newest_of(answers)) as server:
        here = Here(test_clock, web, jwks_url=f"{server.url}/keys")
        assert "ada" == await here.sub(token(here.claims()))
        answers.append(keys("ec"))
        test_clock.advance(KEPT_SECONDS + 1)
        assert "unauthenticated" == await here.refusal(token(here.claims()))


@pytest.mark.parametrize(
    "answer", [says(500, b""), says(200, b"{}"), says(200, b"[" * 100_000), says(200, b" " * 300_000)]
)
async def test_without_keys_the_issuer_is_unreachable_and_no_token_is_checked(
    test_clock: TestClock, web: PublicWeb, answer: Handler
) -> None:
    async with RawServer(answer) as server:
        here = Here(test_clock, web, jwks_url=f"{server.url}/keys")
        assert "providerUnreachable" == await here.refusal(token(here.claims()))


async def test_keys_that_the_companys_proxy_refuses_are_its_own_failure(test_clock: TestClock) -> None:
    async with ConnectProxy({}, credentials="corp:secret") as proxy:
        way = OutgoingProxy(host="127.0.0.1", port=proxy.port)
        async with PublicWeb(proxy=way) as web:
            here = Here(test_clock, web, jwks_url="https://93.184.216.34/keys")
            assert "outgoingProxyRefused" == await here.refusal(token(here.claims()))


async def test_a_token_with_an_unknown_kid_keeps_no_good_one_waiting(test_clock: TestClock, web: PublicWeb) -> None:
    asked, answers = asyncio.Event(), asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await answers.wait()
        await keys("rsa")(reader, writer)

    async with RawServer(slow) as server:
        here = Here(test_clock, web, jwks_url=f"{server.url}/keys")
        answers.set()
        await here.sub(token(here.claims()))
        answers.clear()
        asked.clear()
        stranger = asyncio.create_task(here.refusal(token(here.claims(), signed_by="rsa-other")))
        await asyncio.wait_for(asked.wait(), 30)
        try:
            assert "ada" == await asyncio.wait_for(here.sub(token(here.claims())), 30)
            assert not stranger.done()
        finally:
            answers.set()
        assert "unauthenticated" == await stranger


async def test_fetched_keys_serve_while_their_issuer_is_away(test_clock: TestClock, web: PublicWeb) -> None:
    answers = [keys("rsa")]
    async with RawServer(newest_of(answers)) as server:
        here = Here(test_clock, web, jwks_url=f"{server.url}/keys")
        await here.sub(token(here.claims()))
        answers.append(says(503, b""))
        test_clock.advance(KEPT_SECONDS - 1)
        assert "ada" == await here.sub(token(here.claims()))
        test_clock.advance(1)
        assert "providerUnreachable" == await here.refusal(token(here.claims()))
