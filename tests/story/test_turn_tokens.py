"""Turn tokens against real grants: a token of Alice's turn never yields Bob's token, with any request, however it was
narrowed, embedded or over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.turn_token import BegunTurn, narrow
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, BASE, BOB, SCOPES, TEAM, Harness, global_app, running, turn, user_app

APPS = ("mail", "files", "team")
TOOLS = {
    "Tool/mail": (ToolAuth("mail", ("read",)),),
    "Tool/team": (ToolAuth("team"),),
    "Tool/all": tuple(ToolAuth(app) for app in APPS),
}
NOBODY = "idp:user:U999999"
PEOPLE = {"alice": ALICE, "bob": BOB, "nobody": NOBODY}

narrowings = st.lists(
    st.one_of(
        st.sampled_from([*TOOLS, "Tool/unknown"]).map(lambda tool: {"tool": tool}),
        st.dictionaries(
            st.sampled_from([*APPS, "unknown"]), st.none() | st.lists(st.sampled_from(SCOPES), unique=True)
        ).map(lambda apps: {"apps": apps}),
    ),
    max_size=4,
)
asks = st.fixed_dictionaries(
    {"oauthAppRef": st.sampled_from([*APPS, "unknown"]).map(lambda app: f"OAuthApp/{app}")},
    optional={
        "scopes": st.lists(st.sampled_from([*SCOPES, "root"]), unique=True, max_size=3),
        "minTtlSeconds": st.sampled_from([0, 60, 3600, 10**9]),
        "subject": st.sampled_from([ALICE, BOB]),
        "subjects": st.just({"user": BOB}),
    },
)


@dataclass
class World:
    harness: Harness
    turns: dict[str, BegunTurn]
    owners: dict[str, set[str]]  # access token -> the subjects whose turns may get it

    async def embedded(self, token: Secret, request: dict[str, Any]) -> dict[str, Any]:
        broker = self.harness.broker
        token_holder = await broker.turns.admit(token.reveal())
        return await broker.oauth_for(token_holder).getAccessToken(request)

    async def over_http(self, token: Secret, request: dict[str, Any]) -> dict[str, Any]:
        transport = httpx2.ASGITransport(app=self.harness.broker.asgi.app)
        async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
            bearer = {"authorization": f"Bearer {token.reveal()}"}
            answer = await client.post("/v1/tokens", json=request, headers=bearer)
        body: dict[str, Any] = answer.json()
        assert answer.status_code == 200 or (answer.status_code == 400 and body["code"] == "requestInvalid"), body
        return body


async def world_of(harness: Harness) -> World:
    """Alice and Bob are connected everywhere, the team by Alice; the third person has no grant."""
    owners: dict[str, set[str]] = {}
    for person in ("alice", "bob"):
        for app in ("mail", "files"):
            ready = await harness.connected(app, person, of=turn(user=PEOPLE[person]))
            owners[ready.access_token.reveal()] = {person}
    ready = await harness.connected("team", "alice", of=turn())
    owners[ready.access_token.reveal()] = {"alice", "bob", "nobody"}
    begun = {
        person: await harness.broker.turns.begin(
            turn(user=subject, agent=person, team=TEAM), tools=dict.fromkeys(TOOLS)
        )
        for person, subject in PEOPLE.items()
    }
    return World(harness, begun, owners)


@pytest.mark.slow
@pytest.mark.case("79", "81")
@pytest.mark.parametrize("listener", ["embedded", "over_http"])
async def test_a_token_of_alices_turn_never_yields_bobs_token(
    identity_provider: IdentityProvider, test_clock: TestClock, listener: str
) -> None:
    idp, seen = identity_provider, dict[str, int]()
    apps = [user_app(idp), user_app(idp, "files"), global_app(idp)]
    async with running(idp, apps, clock=test_clock, tools=TOOLS) as harness:
        world = await world_of(harness)
        ask: Callable[[Secret, dict[str, Any]], Awaitable[dict[str, Any]]] = getattr(world, listener)
        loop = asyncio.get_running_loop()

        async def holds(person: str, tool: str | None, steps: list[dict[str, Any]], request: dict[str, Any]) -> None:
            begun = world.turns[person]
            token = begun.token if tool is None else begun.tool_tokens[tool]
            for step in steps:
                token = narrow(token, **step)
            try:
                answer = await ask(token, request)
            except BrokerError as error:
                assert error.code is Code.UNAUTHENTICATED, error  # noqa: PT017
                return
            status = answer.get("status", 0)
            seen[str(status)] = seen.get(str(status), 0) + 1
            if {"subject", "subjects"} & request.keys():
                assert status != "ready"
            if status == "ready":
                assert person in world.owners[answer["accessToken"]]
                assert _allows(tool, steps, request)

        @settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(st.sampled_from(list(PEOPLE)), st.sampled_from([None, *TOOLS]), narrowings, asks)
        def law(person: str, tool: str | None, steps: list[dict[str, Any]], request: dict[str, Any]) -> None:
            asyncio.run_coroutine_threadsafe(holds(person, tool, steps, request), loop).result(30)

        await asyncio.to_thread(law)
    assert seen["ready"] > 5, "the law was tried on tokens too"
    assert seen["error"] > 5


def _allows(tool: str | None, steps: list[dict[str, Any]], request: dict[str, Any]) -> bool:
    """Said once more, in other words than the broker's: every narrowing names the app and the scopes asked
    for, and all of them leave a scope in common: no token is less than its grant."""
    app = request["oauthAppRef"].removeprefix("OAuthApp/")
    wanted, left = set(request.get("scopes", ())), set(SCOPES)
    tools = ([tool] if tool else []) + [step["tool"] for step in steps if "tool" in step]
    for each in tools:
        declared = {auth.app: auth.scopes for auth in TOOLS.get(each, ())}
        if app not in declared:
            return False
        left &= set(declared[app] or SCOPES)
    for apps in (step["apps"] for step in steps if "apps" in step):
        if app not in apps:
            return False
        left &= set(SCOPES if apps[app] is None else apps[app])
    return wanted <= left and bool(left)
