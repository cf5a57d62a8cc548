"""The caller of each change over the API is in the audit log before anything is changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest

from oauthbroker.audit import AuditEntry, CallMade, ConnectionsOpened, DeadLetterChanged, RequestWithdrawn
from oauthbroker.audit.formatting import line_of
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.token_results import Ready
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit import planted_records
from tests.kit.running_broker import ALICE, Harness
from tests.story import binding_kit
from tests.story.api.kit import TOOLS, Answer, Caller, Callers, a_turn
from tests.story.binding_kit import came_back, code_on, confirming_harness, handle_on, of_alice

CONFIRM = "POST /v1/auth-sessions/confirm"
LETTER = "/v1/agents/{agent}/dead-letters/{eventId}"


async def ids(harness: Harness) -> dict[str, str]:
    return {key.name: key.id for key in await harness.broker.api_keys.list()}


def made(harness: Harness) -> list[tuple[str, str, str | None]]:
    return [(it.route, it.caller, it.target) for it in harness.audit.entries if isinstance(it, CallMade)]


def order(harness: Harness) -> list[str]:
    return [type(entry).__name__ for entry in harness.audit.entries]


@contextmanager
def full_disk(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No entry of the API is taken; the broker's own still are, so that nothing else can be what stops the act."""

    def write(log: AuditList, entry: AuditEntry, at: datetime) -> None:
        if isinstance(entry, CallMade):
            raise BrokerError(Code.STORE_UNAVAILABLE, note="the audit log cannot be written")
        log.lines.append((at, entry))

    with monkeypatch.context() as patch:
        patch.setattr(AuditList, "write", write)
        yield


async def test_the_caller_that_begins_or_ends_a_turn_is_audited(harness: Harness, api: Callers) -> None:
    key, begun = (await ids(harness))["runtime"], await api.begin()
    assert 204 == (await api.runtime.delete(f"/v1/turns/{begun['turnId']}")).status
    assert [
        ("POST /v1/turns", key, begun["turnId"]),
        ("DELETE /v1/turns/{turnId}", key, begun["turnId"]),
    ] == made(harness)
    assert ["CallMade", "TurnBegun", "CallMade", "TurnEnded"] == order(harness)[-4:]


async def test_a_grant_is_ended_by_an_operators_key(harness: Harness, api: Callers) -> None:
    await harness.connected()
    grant = await harness.grant()
    assert grant is not None
    assert 200 == (await api.operator.delete(f"/v1/grants/{grant.id}")).status
    assert [("DELETE /v1/grants/{grantId}", (await ids(harness))["operator"], grant.id)] == made(harness)
    assert ["CallMade", "GrantEnded", "GrantRevoked"] == order(harness)[-3:]
    [line] = await harness.broker.audit_trail.tail(9, type="CallMade")
    name = harness.broker.audit_trail.name("grant", grant.id)
    assert (name, name) == (line.grant, line.fields["target"]), "in the log by its keyed name alone"
    assert 404 == (await api.operator.delete(f"/v1/grants/sha256:{'0' * 64}")).status
    assert 1 == len(made(harness)), "nothing was there to be ended"


async def test_a_request_is_taken_back_by_a_turn_or_a_key(harness: Harness, api: Callers) -> None:
    begun = await api.begin()
    for caller, who in (
        (api.holding(begun["turnToken"]), begun["turnId"]),
        (api.runtime, (await ids(harness))["runtime"]),
    ):
        session = (await harness.ask_link()).auth_session_id
        stranger = await api.turn(user=binding_kit.MALLORY)
        assert {"cancelled": False} == (await stranger.delete(f"/v1/auth-sessions/{session}")).json()
        assert {"cancelled": True} == (await caller.delete(f"/v1/auth-sessions/{session}")).json()
        assert ("DELETE /v1/auth-sessions/{id}", who, session) == made(harness)[-1]
        assert ["CallMade", "RequestWithdrawn"] == order(harness)[-2:]
        assert RequestWithdrawn(app="mail", session=session) == harness.audit.entries[-1]
    assert 2 == order(harness).count("RequestWithdrawn")


@pytest.mark.parametrize("act", ["retry", "drop"])
async def test_a_dead_letter_is_settled_by_an_operators_key(harness: Harness, api: Callers, act: str) -> None:
    letter, before = await planted_records.dead_letter(harness), len(harness.audit.entries)
    path = f"/v1/agents/planner/dead-letters/{letter.id}"
    retry = act == "retry"
    assert 204 == (await (api.operator.post(f"{path}/retry") if retry else api.operator.delete(path))).status
    method, route = ("POST", f"{LETTER}/retry") if retry else ("DELETE", LETTER)
    assert [
        CallMade(route=f"{method} {route}", caller=(await ids(harness))["operator"], target=letter.id),
        DeadLetterChanged(agent="planner", event=letter.id, action="retried" if retry else "dropped"),
    ] == harness.audit.entries[before:]
    for unknown in (path, path.replace("planner", "nobody")):
        again = await (api.operator.post(f"{unknown}/retry") if retry else api.operator.delete(unknown))
        assert (404, "notFound") == (again.status, again.code)
    assert 2 == len(harness.audit.entries[before:]), "nothing was there to be settled"


async def test_a_request_that_the_embedding_runtime_takes_back_is_in_the_log_too(harness: Harness) -> None:
    session = (await harness.ask_link()).auth_session_id
    assert await harness.broker.cancel(session)
    assert not await harness.broker.cancel(session)
    assert [RequestWithdrawn(app="mail", session=session)] == [
        it for it in harness.audit.entries if isinstance(it, RequestWithdrawn)
    ]


async def test_a_link_to_the_connections_is_minted_by_a_key_and_known_again_when_it_is_used(
    harness: Harness, api: Callers
) -> None:
    answer = await api.runtime.post("/v1/connections", {"subjects": {"user": ALICE}}, allow=["ticket"])
    ticket = answer.json()["url"].rpartition("/")[2]
    await harness.broker.connections.open(ticket)
    opened = harness.audit.entries[-1]
    assert isinstance(opened, ConnectionsOpened)
    assert [("POST /v1/connections", (await ids(harness))["runtime"], opened.browser)] == made(harness)
    text = "".join(line_of(entry, at) for at, entry in harness.audit.lines)
    assert (False, False) == (ticket in text, ALICE in text)


async def test_a_handle_is_confirmed_by_a_key(identity_provider: IdentityProvider, test_clock: TestClock) -> None:
    async with confirming_harness(identity_provider, test_clock, "runtimeConfirm", tools=TOOLS) as harness:
        api = await Callers.of(harness)
        key, asked = (await ids(harness))["runtime"], await harness.ask_link(of=of_alice())
        handle = handle_on(await came_back(harness, asked, harness.browser()))
        body = {"handle": "none of ours", "subject": binding_kit.ALICE}
        assert 400 == (await api.runtime.post("/v1/auth-sessions/confirm", body)).status
        assert 200 == (await api.runtime.post("/v1/auth-sessions/confirm", {**body, "handle": handle})).status
        assert [(CONFIRM, key, None), (CONFIRM, key, asked.auth_session_id)] == made(harness)
        assert ["CallMade", "OwnerConfirmed", "Connected"] == order(harness)[-3:]


async def test_a_code_is_relayed_by_a_turn(identity_provider: IdentityProvider, test_clock: TestClock) -> None:
    async with confirming_harness(identity_provider, test_clock, "channelCode", tools=TOOLS) as harness:
        api, asked = await Callers.of(harness), await harness.ask_link(of=of_alice())
        code = code_on(await came_back(harness, asked, harness.browser()))
        begun = await api.begin(user=binding_kit.ALICE, team=None)
        caller = api.holding(begun["turnToken"])
        assert 200 == (await caller.post("/v1/auth-sessions/confirm", {"channelCode": code})).status
        assert (CONFIRM, begun["turnId"], None) == made(harness)[-1]
        assert ["CallMade", "OwnerConfirmed", "Connected"] == order(harness)[-3:]
        assert code not in "".join(line_of(entry, at) for at, entry in harness.audit.lines)


Act = Callable[[Harness, Callers, str], Awaitable[Answer]]
SUBJECT = {"subjects": {"user": ALICE}}
ACTS: dict[str, Act] = {
    "begin": lambda _, api, __: api.runtime.post("/v1/turns", a_turn()),
    "end a turn": lambda _, api, turn_id: api.runtime.delete(f"/v1/turns/{turn_id}"),
    "end a grant": lambda harness, api, _: end_grant(harness, api.operator),
    "take back": lambda harness, api, _: take_back(harness, api.runtime),
    "retry a dead letter": lambda harness, api, _: settle(harness, api.operator, "POST", "/retry"),
    "drop a dead letter": lambda harness, api, _: settle(harness, api.operator, "DELETE"),
    "mint a link": lambda _, api, __: api.runtime.post("/v1/connections", SUBJECT),
}


async def end_grant(harness: Harness, caller: Caller) -> Answer:
    grant = await harness.grant()
    assert grant is not None
    return await caller.delete(f"/v1/grants/{grant.id}")


async def settle(harness: Harness, caller: Caller, method: str, what: str = "") -> Answer:
    [letter] = await harness.broker.dead_letters.dead()
    return await caller.send(method, f"/v1/agents/planner/dead-letters/{letter.id}{what}")


async def take_back(harness: Harness, caller: Caller) -> Answer:
    [held] = [each.record async for each in harness.repository.sessions() if each.record.open]
    return await caller.delete(f"/v1/auth-sessions/{held.id}")


async def state_of(harness: Harness) -> tuple[object, ...]:
    """What the acts change."""
    broker = harness.broker
    turns = [record.id async for record in broker.turns.records.all()]
    browser_sessions = [
        browser_session.id async for browser_session in broker.connections.browser_sessions.records.all()
    ]
    sessions = [each.record.id async for each in harness.repository.sessions() if each.record.open]
    grants = [each.record.revoked async for each in harness.repository.grants()]
    dead = [letter.id for letter in await harness.broker.dead_letters.dead()]
    return turns, browser_sessions, sessions, grants, dead


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
async def test_where_it_cannot_be_written_down_nothing_happens(
    harness: Harness, api: Callers, monkeypatch: pytest.MonkeyPatch, act: Act
) -> None:
    await planted_records.dead_letter(harness)
    await harness.connected()
    await harness.ask_link("files")
    begun = await api.begin()
    before, written = await state_of(harness), order(harness)
    with full_disk(harness, monkeypatch):
        refused = await act(harness, api, begun["turnId"])
    assert (503, "storeUnavailable") == (refused.status, refused.code)
    assert (before, written) == (await state_of(harness), order(harness))
    assert isinstance(await harness.ask(), Ready)


@pytest.mark.parametrize("said", ["handle", "code"])
async def test_a_confirmation_that_cannot_be_audited_is_refused(
    identity_provider: IdentityProvider, test_clock: TestClock, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    kind = {"handle": "runtimeConfirm", "code": "channelCode"}[said]
    async with confirming_harness(identity_provider, test_clock, kind, tools=TOOLS) as harness:
        api, asked = await Callers.of(harness), await harness.ask_link(of=of_alice())
        page = await came_back(harness, asked, harness.browser())
        caller, body = api.runtime, {"subject": binding_kit.ALICE}
        if said == "handle":
            body["handle"] = handle_on(page)
        else:
            caller, body = await api.turn(user=binding_kit.ALICE, team=None), {"channelCode": code_on(page)}
        with full_disk(harness, monkeypatch):
            assert 503 == (await caller.post(CONFIRM.partition(" ")[2], body)).status
        assert 0 == harness.idp.count("token")
        assert "completed" == (await caller.post(CONFIRM.partition(" ")[2], body)).json()["status"], (
            "and it may be tried again"
        )
