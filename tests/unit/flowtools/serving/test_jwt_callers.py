"""JWTs of configured issuers: good and bad ones, the caller that they name, and the source of the keys."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oauthbroker import BrokerError
from oauthbroker.flowtools.serving.callers import FlowCallers
from oauthbroker.flowtools.serving.kinds import FlowServiceSpec, IssuerSpec
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.plugins import PublicWeb
from oauthbroker.testing import TestClock
from tests.unit.flowtools.serving.jwt_kit import (
    AUDIENCE,
    ISSUER,
    key_set,
    token,
)
from tests.unit.protocol.kit import RawServer, says

pytestmark = pytest.mark.rule("000-trigger-jwt")


def spec(**more: Any) -> IssuerSpec:
    keys = {} if "jwksUrl" in more else {"jwks": key_set("rsa", "ec")}
    return IssuerSpec.model_validate({"issuer": ISSUER, "audience": AUDIENCE, **keys, **more})


class Here:
    """One clock and one issuer."""

    def __init__(self, clock: TestClock, web: PublicWeb, **more: Any) -> None:
        self.clock = clock
        self.callers = FlowCallers(FlowServiceSpec(issuers=[spec(**more)]), None, web, clock=clock)  # type: ignore[arg-type]

    def claims(self, **more: Any) -> dict[str, Any]:
        now = self.clock.now().timestamp()
        made = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": now + 300, "roles": ["staff"], **more}
        return {name: value for name, value in made.items() if value is not None}

    async def actor(self, text: str) -> Actor:
        return await self.callers.of_token(text)

    async def refusal(self, text: str) -> str:
        with pytest.raises(BrokerError) as caught:
            await self.callers.of_token(text)
        return caught.value.code.value


@pytest.fixture
def web() -> PublicWeb:
    return PublicWeb(allow_plain_http_loopback=True)


@pytest.fixture
def here(test_clock: TestClock, web: PublicWeb) -> Here:
    return Here(test_clock, web)


BAD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "another key": ({}, {"signed_by": "rsa-other", "kid": "rsa"}),
    "another issuer": ({"iss": "https://login.other.example"}, {}),
    "another audience": ({"aud": "other"}, {}),
    "an algorithm that is not configured": ({}, {"alg": "RS512"}),
    "an ID token": ({"nonce": "n", "at_hash": "h"}, {"typ": "JWT"}),
    "no subject": ({"sub": None}, {}),
    "a subject that could be another id": ({"sub": "service:nightly"}, {}),
    "a subject with a slot": ({"sub": "{tenant}"}, {}),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_token_that_is_not_good_is_refused_without_a_reason(here: Here, case: str) -> None:
    claims, how = BAD[case]
    assert "ada" == (await here.actor(token(here.claims()))).id
    assert "unauthenticated" == await here.refusal(token(here.claims(**claims), **how))


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


async def test_keys_are_fetched_from_the_configured_place(test_clock: TestClock, web: PublicWeb) -> None:
    async with web, RawServer(says(200, json.dumps(key_set("rsa")).encode())) as server:
        here = Here(test_clock, web, jwksUrl=f"http://127.0.0.1:{server.port}/keys")
        assert "ada" == (await here.actor(token(here.claims()))).id
