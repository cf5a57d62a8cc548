"""A key that is removed, or a turn that ends, while a call is under way: nothing is done for it, nothing goes out."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from oauthbroker.repository.repository import KINDS
from oauthbroker.testing import IdentityProvider
from oauthbroker.web.api.call_table import OPERATIONS, Operation
from tests.kit.queues import until_queued
from tests.kit.running_broker import Harness
from tests.story.api.kit import BODIES, Caller, Callers, a_turn, admits, path_of

Withdraw = Callable[[], Awaitable[None]]
WITH_A_BODY = [
    (operation, kind)
    for operation in OPERATIONS
    for kind in ("runtime", "operator", "turn", "tool")
    if operation.bodies and operation.handler is not None and admits(operation, kind)
]


async def caller_of(harness: Harness, api: Callers, kind: str) -> tuple[Caller, Withdraw]:
    """A caller of that kind, and what takes its rights away, as another worker does it."""
    if kind in {"turn", "tool"}:
        begun = await api.begin()
        token = begun["turnToken"] if kind == "turn" else begun["toolTokens"]["Tool/mail"]

        async def end() -> None:
            assert await harness.broker.turns.end(begun["turnId"])

        return api.holding(token), end
    name = {"runtime": "runtime", "operator": "operator"}[kind]
    key = next(each for each in await harness.broker.api_keys.list() if each.name == name)

    async def remove() -> None:
        assert await harness.broker.api_keys.remove(key.id)

    return (api.runtime if kind == "runtime" else api.operator), remove


def body_of(operation: Operation, kind: str) -> bytes:
    bodies = BODIES[operation.id]
    mine = ("turn", "wholeTurn") if kind in {"turn", "tool"} else (kind,)
    found = next((bodies[who] for who in mine if who in bodies), next(iter(bodies.values())))
    return json.dumps(found).encode()


async def counts(harness: Harness) -> dict[str, int]:
    """Count the entries of each kind."""
    return {kind: await harness.store.count(kind) for kind in KINDS}


@pytest.mark.case("79")
@pytest.mark.parametrize(("operation", "kind"), WITH_A_BODY, ids=lambda each: getattr(each, "id", each))
async def test_a_caller_who_is_withdrawn_while_its_body_comes_is_refused_and_nothing_is_done(
    harness: Harness, api: Callers, operation: Operation, kind: str
) -> None:
    caller, withdraw = await caller_of(harness, api, kind)
    body, before = body_of(operation, kind), dict[str, int]()

    async def rest() -> bytes:
        await withdraw()
        before.update(await counts(harness))
        return body[1:]

    answer = await caller.send(operation.method, path_of(operation), body=[body[:1], rest])
    assert (401, "turnEnded" if kind in {"turn", "tool"} else "unauthenticated") == (answer.status, answer.code)
    assert before == await counts(harness)


@pytest.mark.case("79")
@pytest.mark.parametrize("kind", ["turns", "browsersessions"])
async def test_a_key_that_is_removed_while_the_store_writes_gets_no_token_and_no_link(
    harness: Harness, api: Callers, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    caller, withdraw = await caller_of(harness, api, "runtime")
    put = harness.store.put

    async def slow(key: Any, *args: Any, **more: Any) -> Any:
        done = await put(key, *args, **more)
        if key.kind == kind:
            await withdraw()
        return done

    monkeypatch.setattr(harness.store, "put", slow)
    path, body = {
        "turns": ("/v1/turns", a_turn()),
        "browsersessions": ("/v1/connections", {"subjects": {"user": "chat:user:T111:U234567"}}),
    }[kind]
    answer = await caller.post(path, body)
    assert (401, "unauthenticated") == (answer.status, answer.code)


@pytest.mark.case("79", "94")
async def test_a_key_that_is_removed_while_it_waits_for_an_event_gets_none(
    harness: Harness, api: Callers, identity_provider: IdentityProvider
) -> None:
    caller, withdraw = await caller_of(harness, api, "runtime")
    async with caller.open("GET", "/v1/agents/planner/events?wait=10") as waiting:
        await withdraw()
        await harness.connected("mail")
        await waiting.started.wait()
        assert 401 == waiting.status
    await until_queued(harness.parts.queues)
    delivery = await harness.broker.events.lease("planner")
    assert delivery is not None
    assert 1 == delivery.attempt, "it was given back"
