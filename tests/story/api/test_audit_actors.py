"""Whoever changes something over the API is in the audit log, before anything is changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest

from oauthbroker.audit import AuditEntry, CallMade, ConnectionsOpened, DeadLetterChanged, RequestWithdrawn, line_of
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.results import Ready
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit import planted_records
from tests.kit.running_broker import ALICE, House
from tests.story import binding_kit
from tests.story.api.kit import TOOLS, Answer, Caller, Callers, a_turn
from tests.story.binding_kit import came_back, code_on, handle_on, of_alice, parking

CONFIRM = "POST /v1/auth-sessions/confirm"
LETTER = "/v1/agents/{agent}/dead-letters/{eventId}"


async def ids(house: House) -> dict[str, str]:
    return {key.name: key.id for key in await house.broker.api_keys.list()}


def made(house: House) -> list[tuple[str, str, str | None]]:
    return [(it.route, it.caller, it.target) for it in house.audit.entries if isinstance(it, CallMade)]


def order(house: House) -> list[str]:
    return [type(entry).__name__ for entry in house.audit.entries]


@contextmanager
def full_disk(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No entry of the API is taken; the broker's own still are, so that nothing else can be what stops the act."""

    def write(log: AuditList, entry: AuditEntry, at: datetime) -> None:
        if isinstance(entry, CallMade):
            raise BrokerError(Code.STORE_UNAVAILABLE, note="the audit log cannot be written")
        log.lines.append((at, entry))

    with monkeypatch.context() as patch:
        patch.setattr(AuditList, "write", write)
        yield


async def test_a_turn_is_begun_and_ended_by_somebody(house: House, api: Callers) -> None:
    key, begun = (await ids(house))["runtime"], await api.begin()
    assert 204 == (await api.runtime.delete(f"/v1/turns/{begun['turnId']}")).status
    assert [
        ("POST /v1/turns", key, begun["turnId"]),
        ("DELETE /v1/turns/{turnId}", key, begun["turnId"]),
    ] == made(house)
    assert ["CallMade", "TurnBegun", "CallMade", "TurnEnded"] == order(house)[-4:]


async def test_a_grant_is_ended_by_an_operators_key(house: House, api: Callers) -> None:
    await house.connected()
    grant = await house.grant()
    assert grant is not None
    assert 200 == (await api.operator.delete(f"/v1/grants/{grant.id}")).status
    assert [("DELETE /v1/grants/{grantId}", (await ids(house))["operator"], grant.id)] == made(house)
    assert ["CallMade", "GrantEnded", "GrantRevoked"] == order(house)[-3:]
    [line] = await house.broker.audit_trail.tail(9, type="CallMade")
    name = house.broker.audit_trail.name("grant", grant.id)
    assert (name, name) == (line.grant, line.fields["target"]), "in the log by its keyed name alone"
    assert 404 == (await api.operator.delete(f"/v1/grants/sha256:{'0' * 64}")).status
    assert 1 == len(made(house)), "nothing was there to be ended"


async def test_a_request_is_taken_back_by_a_turn_or_a_key(house: House, api: Callers) -> None:
    begun = await api.begin()
    for caller, who in (
        (api.holding(begun["turnToken"]), begun["turnId"]),
        (api.runtime, (await ids(house))["runtime"]),
    ):
        session = (await house.ask_link()).auth_session_id
        stranger = await api.turn(user=binding_kit.MALLORY)
        assert {"cancelled": False} == (await stranger.delete(f"/v1/auth-sessions/{session}")).json()
        assert {"cancelled": True} == (await caller.delete(f"/v1/auth-sessions/{session}")).json()
        assert ("DELETE /v1/auth-sessions/{id}", who, session) == made(house)[-1]
        assert ["CallMade", "RequestWithdrawn"] == order(house)[-2:]
        assert RequestWithdrawn("mail", session) == house.audit.entries[-1]
    assert 2 == order(house).count("RequestWithdrawn")


@pytest.mark.parametrize("act", ["retry", "drop"])
async def test_a_dead_letter_is_settled_by_an_operators_key(house: House, api: Callers, act: str) -> None:
    letter, before = await planted_records.dead_letter(house), len(house.audit.entries)
    path = f"/v1/agents/planner/dead-letters/{letter.id}"
    retry = act == "retry"
    assert 204 == (await (api.operator.post(f"{path}/retry") if retry else api.operator.delete(path))).status
    method, route = ("POST", f"{LETTER}/retry") if retry else ("DELETE", LETTER)
    assert [
        CallMade(f"{method} {route}", (await ids(house))["operator"], letter.id),
        DeadLetterChanged("planner", letter.id, "retried" if retry else "dropped"),
    ] == house.audit.entries[before:]
    for unknown in (path, path.replace("planner", "nobody")):
        again = await (api.operator.post(f"{unknown}/retry") if retry else api.operator.delete(unknown))
        assert (404, "notFound") == (again.status, again.code)
    assert 2 == len(house.audit.entries[before:]), "nothing was there to be settled"


async def test_a_request_that_the_embedding_runtime_takes_back_is_in_the_log_too(house: House) -> None:
    session = (await house.ask_link()).auth_session_id
    assert await house.broker.cancel(session)
    assert not await house.broker.cancel(session)
    assert [RequestWithdrawn("mail", session)] == [it for it in house.audit.entries if isinstance(it, RequestWithdrawn)]


async def test_a_link_to_the_connections_is_minted_by_a_key_and_known_again_when_it_is_used(
    house: House, api: Callers
) -> None:
    answer = await api.runtime.post("/v1/connections", {"subjects": {"user": ALICE}}, allow=["ticket"])
    ticket = answer.json()["url"].rpartition("/")[2]
    await house.broker.connections.open(ticket)
    opened = house.audit.entries[-1]
    assert isinstance(opened, ConnectionsOpened)
    assert [("POST /v1/connections", (await ids(house))["runtime"], opened.visit)] == made(house)
    text = "".join(line_of(entry, at) for at, entry in house.audit.lines)
    assert (False, False) == (ticket in text, ALICE in text)


async def test_a_handle_is_confirmed_by_a_key(identity_provider: IdentityProvider, test_clock: TestClock) -> None:
    async with parking(identity_provider, test_clock, "runtimeConfirm", tools=TOOLS) as house:
        api = await Callers.of(house)
        key, asked = (await ids(house))["runtime"], await house.ask_link(of=of_alice())
        handle = handle_on(await came_back(house, asked, house.browser()))
        body = {"handle": "none of ours", "subject": binding_kit.ALICE}
        assert 400 == (await api.runtime.post("/v1/auth-sessions/confirm", body)).status
        assert 200 == (await api.runtime.post("/v1/auth-sessions/confirm", {**body, "handle": handle})).status
        assert [(CONFIRM, key, None), (CONFIRM, key, asked.auth_session_id)] == made(house)
        assert ["CallMade", "OwnerConfirmed", "Connected"] == order(house)[-3:]


async def test_a_code_is_relayed_by_a_turn(identity_provider: IdentityProvider, test_clock: TestClock) -> None:
    async with parking(identity_provider, test_clock, "channelCode", tools=TOOLS) as house:
        api, asked = await Callers.of(house), await house.ask_link(of=of_alice())
        code = code_on(await came_back(house, asked, house.browser()))
        begun = await api.begin(user=binding_kit.ALICE, team=None)
        caller = api.holding(begun["turnToken"])
        assert 200 == (await caller.post("/v1/auth-sessions/confirm", {"channelCode": code})).status
        assert (CONFIRM, begun["turnId"], None) == made(house)[-1]
        assert ["CallMade", "OwnerConfirmed", "Connected"] == order(house)[-3:]
        assert code not in "".join(line_of(entry, at) for at, entry in house.audit.lines)


Act = Callable[[House, Callers, str], Awaitable[Answer]]
SUBJECT = {"subjects": {"user": ALICE}}
ACTS: dict[str, Act] = {
    "begin": lambda _, api, __: api.runtime.post("/v1/turns", a_turn()),
    "end a turn": lambda _, api, turn_id: api.runtime.delete(f"/v1/turns/{turn_id}"),
    "end a grant": lambda house, api, _: end_grant(house, api.operator),
    "take back": lambda house, api, _: take_back(house, api.runtime),
    "retry a dead letter": lambda house, api, _: settle(house, api.operator, "POST", "/retry"),
    "drop a dead letter": lambda house, api, _: settle(house, api.operator, "DELETE"),
    "mint a link": lambda _, api, __: api.runtime.post("/v1/connections", SUBJECT),
}


async def end_grant(house: House, caller: Caller) -> Answer:
    grant = await house.grant()
    assert grant is not None
    return await caller.delete(f"/v1/grants/{grant.id}")


async def settle(house: House, caller: Caller, method: str, what: str = "") -> Answer:
    [letter] = await house.broker.dead_letters.dead()
    return await caller.send(method, f"/v1/agents/planner/dead-letters/{letter.id}{what}")


async def take_back(house: House, caller: Caller) -> Answer:
    [held] = [each.record async for each in house.repository.sessions() if each.record.open]
    return await caller.delete(f"/v1/auth-sessions/{held.id}")


async def state_of(house: House) -> tuple[object, ...]:
    """What the acts change."""
    broker = house.broker
    turns = [record.id async for record in broker.turns.shelf.all()]
    visits = [visit.id async for visit in broker.connections.visits.shelf.all()]
    sessions = [each.record.id async for each in house.repository.sessions() if each.record.open]
    grants = [each.record.revoked async for each in house.repository.grants()]
    dead = [letter.id for letter in await house.broker.dead_letters.dead()]
    return turns, visits, sessions, grants, dead


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
async def test_where_it_cannot_be_written_down_nothing_happens(
    house: House, api: Callers, monkeypatch: pytest.MonkeyPatch, act: Act
) -> None:
    await planted_records.dead_letter(house)
    await house.connected()
    await house.ask_link("files")
    begun = await api.begin()
    before, written = await state_of(house), order(house)
    with full_disk(house, monkeypatch):
        refused = await act(house, api, begun["turnId"])
    assert (503, "storeUnavailable") == (refused.status, refused.code)
    assert (before, written) == (await state_of(house), order(house))
    assert isinstance(await house.ask(), Ready)


@pytest.mark.parametrize("said", ["handle", "code"])
async def test_where_it_cannot_be_written_down_nobody_vouches(
    identity_provider: IdentityProvider, test_clock: TestClock, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    kind = {"handle": "runtimeConfirm", "code": "channelCode"}[said]
    async with parking(identity_provider, test_clock, kind, tools=TOOLS) as house:
        api, asked = await Callers.of(house), await house.ask_link(of=of_alice())
        page = await came_back(house, asked, house.browser())
        caller, body = api.runtime, {"subject": binding_kit.ALICE}
        if said == "handle":
            body["handle"] = handle_on(page)
        else:
            caller, body = await api.turn(user=binding_kit.ALICE, team=None), {"channelCode": code_on(page)}
        with full_disk(house, monkeypatch):
            assert 503 == (await caller.post(CONFIRM.partition(" ")[2], body)).status
        assert 0 == house.idp.count("token")
        assert "completed" == (await caller.post(CONFIRM.partition(" ")[2], body)).json()["status"], (
            "and it may be tried again"
        )
