"""JWTs of configured issuers: good and bad ones, the caller that they name, and the source of the keys."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from oauthbroker import BrokerError
from oauthbroker.flowtools.serving.jwt_callers import AGAIN_SECONDS, KEPT_SECONDS, STALE_SECONDS, JwtCallers
from oauthbroker.flowtools.serving.kinds import IssuerSpec
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.plugins import PublicWeb
from oauthbroker.testing import TestClock
from tests.unit.flowtools.serving.jwt_kit import (
    AUDIENCE,
    ISSUER,
    by_secret,
    encoded,
    key_set,
    public_pem,
    token,
    unsigned,
)
from tests.unit.protocol.kit import Handler, RawServer, says

pytestmark = pytest.mark.rule("000-trigger-jwt")


def spec(**more: Any) -> IssuerSpec:
    keys = {} if "jwksUrl" in more else {"jwks": key_set("rsa", "ec")}
    return IssuerSpec.model_validate({"issuer": ISSUER, "audience": AUDIENCE, **keys, **more})


class Here:
    """One clock and one issuer."""

    def __init__(self, clock: TestClock, web: PublicWeb, **more: Any) -> None:
        self.clock = clock
        self.callers = JwtCallers([spec(**more)], web, clock)

    def claims(self, **more: Any) -> dict[str, Any]:
        now = self.clock.now().timestamp()
        made = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": now + 300, "roles": ["staff"], **more}
        return {name: value for name, value in made.items() if value is not None}

    async def actor(self, text: str) -> Actor:
        return await self.callers.actor(text)

    async def refusal(self, text: str) -> str:
        with pytest.raises(BrokerError) as caught:
            await self.callers.actor(text)
        return caught.value.code.value


@pytest.fixture
def web() -> PublicWeb:
    return PublicWeb(allow_plain_http_loopback=True)


@pytest.fixture
def here(test_clock: TestClock, web: PublicWeb) -> Here:
    return Here(test_clock, web)


GOOD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "RS256": ({}, {}),
    "ES256": ({}, {"signed_by": "ec"}),
    "one of several audiences": ({"aud": ["other", AUDIENCE]}, {}),
    "no kid, and one key of the type": ({}, {"kid": None}),
    "expired within the leeway": ({"exp": -20}, {}),
    "not yet valid within the leeway": ({"nbf": 20}, {}),
    "an unknown header": ({}, {"x": "y"}),
    "the whole name of its type": ({}, {"typ": "application/at+jwt"}),
    "its type in capital letters": ({}, {"typ": "AT+JWT"}),
}


@pytest.mark.parametrize("case", GOOD)
async def test_a_good_token_names_its_caller(here: Here, case: str) -> None:
    claims, how = GOOD[case]
    text = token(here.claims(**_from_now(here, claims)), **how)
    assert ("ada", {"staff"}) == ((actor := await here.actor(text)).id, set(actor.roles))


BAD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "another key of the same kid": ({}, {"signed_by": "rsa-other", "kid": "rsa"}),
    "an unknown kid": ({}, {"signed_by": "rsa-other"}),
    "another issuer": ({"iss": "https://login.other.example"}, {}),
    "no issuer": ({"iss": None}, {}),
    "an issuer that is no text": ({"iss": [ISSUER]}, {}),
    "another audience": ({"aud": "other"}, {}),
    "no audience": ({"aud": None}, {}),
    "expired": ({"exp": -31}, {}),
    "no end": ({"exp": None}, {}),
    "an end that is a text": ({"exp": "9999999999"}, {}),
    "an end that is a truth": ({"exp": True}, {}),
    "not yet valid": ({"nbf": 31}, {}),
    "a begin that is a text": ({"nbf": "0"}, {}),
    "a begin beyond all times": ({"nbf": 10**400}, {}),
    "no subject": ({"sub": None}, {}),
    "a subject that could be another id": ({"sub": "service:nightly"}, {}),
    "a subject with a slot": ({"sub": "{tenant}"}, {}),
    "an algorithm that is not configured": ({}, {"alg": "RS512"}),
    "a critical header": ({}, {"crit": ["x"], "x": "y"}),
    "an ID token": ({"nonce": "n", "at_hash": "h"}, {"typ": "JWT"}),
    "a token without a type": ({}, {"typ": None}),
    "a logout token": ({"events": {}, "sid": "s"}, {"typ": "logout+jwt"}),
    "a type that is no text": ({}, {"typ": ["at+jwt"]}),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_token_that_is_not_good_is_refused_without_a_reason(here: Here, case: str) -> None:
    claims, how = BAD[case]
    assert "unauthenticated" == await here.refusal(token(here.claims(**_from_now(here, claims)), **how))


@pytest.mark.parametrize("typ", ["JWT", "jwt", None])
async def test_an_issuer_whose_access_tokens_have_no_type_of_their_own_is_configured(
    test_clock: TestClock, web: PublicWeb, typ: str | None
) -> None:
    here = Here(test_clock, web, types=["JWT"])
    assert "ada" == (await here.actor(token(here.claims(), typ=typ))).id
    for mark in ("at_hash", "c_hash", "events"):
        assert "unauthenticated" == await here.refusal(token(here.claims(**{mark: {}}), typ=typ))
    for other in ("at+jwt", "logout+jwt", "secevent+jwt"):
        assert "unauthenticated" == await here.refusal(token(here.claims(), typ=other))


@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")
async def test_an_rsa_key_that_is_too_short_verifies_nothing(test_clock: TestClock, web: PublicWeb) -> None:
    here = Here(test_clock, web, jwks=key_set("rsa-short", "rsa"))
    assert "unauthenticated" == await here.refusal(token(here.claims(), signed_by="rsa-short"))
    assert "ada" == (await here.actor(token(here.claims()))).id


async def test_no_signature_and_one_by_the_public_key_are_refused(here: Here) -> None:
    good = token(here.claims())
    forged = [
        unsigned(here.claims()),
        by_secret(here.claims(), public_pem()),
        good[:-6] + "AAAAAA",
        good.replace(".", "..", 1),
    ]
    forged += [
        "",
        "a.b.c",
        good + "A" * 20_000,
        f"{encoded([])}.{encoded({})}.x",
        f"{encoded({'alg': 'RS256'})}.e30.e30",
    ]
    assert {"unauthenticated"} == {await here.refusal(each) for each in forged}


async def test_a_shared_secret_in_a_key_set_is_no_key(test_clock: TestClock, web: PublicWeb) -> None:
    here = Here(test_clock, web, jwks={"keys": [*key_set("rsa")["keys"], {"kty": "oct", "k": "c2VjcmV0", "kid": "s"}]})
    assert "ada" == (await here.actor(token(here.claims()))).id
    assert "unauthenticated" == await here.refusal(by_secret(here.claims(), b"secret", "s"))


@pytest.mark.parametrize("how", [{"use": "enc"}, {"alg": "ES256"}], ids=["for encryption", "for another algorithm"])
async def test_a_key_for_another_purpose_verifies_nothing(test_clock: TestClock, web: PublicWeb, how: Any) -> None:
    here = Here(test_clock, web, jwks=key_set("rsa", **how))
    assert "unauthenticated" == await here.refusal(token(here.claims()))


@pytest.mark.parametrize(
    ("path", "claims", "roles"),
    [
        ("roles", {"roles": ["a", "b", 3]}, {"a", "b"}),
        ("scope", {"scope": "a b"}, {"a", "b"}),
        ("realm_access.roles", {"realm_access": {"roles": ["a"]}}, {"a"}),
        ("realm_access.roles", {"realm_access.roles": ["admin"], "realm_access": {"roles": ["a"]}}, {"a"}),
        ("realm_access.roles", {"realm_access.roles": ["admin"]}, set()),
        ("https://shop.example/roles", {"https://shop.example/roles": ["a"]}, {"a"}),
        ("roles", {"roles": None}, set()),
        ("roles", {"roles": {"a": 1}}, set()),
    ],
)
async def test_roles_are_those_of_the_configured_claim(
    test_clock: TestClock, web: PublicWeb, path: str, claims: dict[str, Any], roles: set[str]
) -> None:
    here = Here(test_clock, web, roles=path)
    assert roles == (await here.actor(token(here.claims(**claims)))).roles


async def test_subjects_are_made_of_claims_and_one_whose_claim_is_missing_is_absent(
    test_clock: TestClock, web: PublicWeb
) -> None:
    subjects = {"user": "shop:user:{tenant}:{sub}", "global": "shop:team:{tenant}"}
    here = Here(test_clock, web, id="shop-{sub}", subjects=subjects)
    actor = await here.actor(token(here.claims(tenant="t1")))
    assert actor.turn is not None
    assert actor.turn.auth is not None
    assert ("shop-ada", {"user": "shop:user:t1:ada", "global": "shop:team:t1"}) == (actor.id, actor.turn.auth.subjects)
    assert (await here.actor(token(here.claims()))).turn is None
    assert (await here.actor(token(here.claims(tenant="t1:user")))).turn is None, "it would name another subject"


async def test_keys_are_fetched_once_kept_for_a_while_and_again_for_an_unknown_kid(
    test_clock: TestClock, web: PublicWeb
) -> None:
    answers: list[Any] = [key_set("rsa")]
    async with web, RawServer(served(answers)) as server:
        here = Here(test_clock, web, jwksUrl=f"http://127.0.0.1:{server.port}/keys")
        for _ in range(3):
            await here.actor(token(here.claims()))
        assert 1 == len(server.requests)
        answers[0] = key_set("rsa-new", "rsa")
        assert "unauthenticated" == await here.refusal(token(here.claims(), signed_by="rsa-new")), "asked just now"
        test_clock.advance(AGAIN_SECONDS + 1)
        assert "ada" == (await here.actor(token(here.claims(), signed_by="rsa-new"))).id
        for _ in range(20):
            assert "unauthenticated" == await here.refusal(token(here.claims(), signed_by="rsa-other"))
        assert 2 == len(server.requests), "unknown kids cost the issuer no request each"
        answers[0] = key_set("rsa-new")
        test_clock.advance(KEPT_SECONDS + 1)
        assert "unauthenticated" == await here.refusal(token(here.claims())), "a key that the issuer took back"


async def test_an_issuer_that_is_away_is_no_bad_token_and_its_keys_serve_for_a_while(
    test_clock: TestClock, web: PublicWeb
) -> None:
    answers: list[Any] = [None]
    async with web, RawServer(served(answers)) as server:
        here = Here(test_clock, web, jwksUrl=f"http://127.0.0.1:{server.port}/keys")
        assert "providerUnreachable" == await here.refusal(token(here.claims()))
        answers[0] = key_set("rsa")
        test_clock.advance(AGAIN_SECONDS + 1)
        await here.actor(token(here.claims()))
        answers[0] = None
        test_clock.advance(STALE_SECONDS - 1)
        await here.actor(token(here.claims()))
        test_clock.advance(AGAIN_SECONDS)
        assert "providerUnreachable" == await here.refusal(token(here.claims()))


async def test_a_token_with_an_unknown_kid_keeps_no_good_one_waiting(test_clock: TestClock, web: PublicWeb) -> None:
    asked, answers = asyncio.Event(), asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await answers.wait()
        await says(200, json.dumps(key_set("rsa")).encode())(reader, writer)

    async with web, RawServer(slow) as server:
        here = Here(test_clock, web, jwksUrl=f"http://127.0.0.1:{server.port}/keys")
        answers.set()
        await here.actor(token(here.claims()))
        answers.clear()
        asked.clear()
        test_clock.advance(AGAIN_SECONDS + 1)
        stranger = asyncio.create_task(here.refusal(token(here.claims(), signed_by="rsa-other")))
        await asyncio.wait_for(asked.wait(), 5)
        try:
            assert "ada" == (await asyncio.wait_for(here.actor(token(here.claims())), 2)).id
        finally:
            answers.set()
        assert "unauthenticated" == await stranger


def served(answers: list[Any]) -> Handler:
    """Answer with the key set that stands in the list now; 503 for None."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        keys = answers[0]
        await says(200 if keys else 503, json.dumps(keys or {}).encode())(reader, writer)

    return handle


def _from_now(here: Here, claims: dict[str, Any]) -> dict[str, Any]:
    """Claims whose times are counted from now."""
    now = here.clock.now().timestamp()
    return {n: now + v if n in {"exp", "nbf"} and type(v) is int and v < 10**9 else v for n, v in claims.items()}
