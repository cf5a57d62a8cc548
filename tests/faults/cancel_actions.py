"""What a runtime does in process: every coroutine of `Broker` and of its parts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

from oauthbroker import AuthorizationRequired, Ready, Turn
from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.events.port import EventLease
from oauthbroker.grants.grant_pages import GrantFilter
from oauthbroker.grants.import_lines import Incoming
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_results import TokenResult
from tests.faults.cancel_model import Pair
from tests.faults.cancel_table import action
from tests.faults.cancel_world import AGENTS, ERASED, TOOLS, NotNow, Side, World, drawn, login_of, person, turn_of
from tests.kit.running_broker import TEAM

ASKABLE = ("mail", "mail", "team", "tv", "robot", "asked", "said")
SHARED = frozenset({"team", "robot"})


def pair_of(app: str, turn: Turn) -> Pair:
    return app, turn.resume_target.auth.subjects["global" if app in SHARED else "user"]


def note(w: World, pair: Pair, result: TokenResult, dead: frozenset[int]) -> None:
    """What a runtime remembers of a token call."""
    if isinstance(result, AuthorizationRequired):
        w.links.append((pair[1], result))
        w.sessions.append(result.auth_session_id)
    if isinstance(result, Ready):
        token = w.idp._state.token_table.tokens[result.access_token.reveal()]
        w.tokens[pair] = result.access_token
        w.model.handed_out(pair, id(token.agreement), dead)
        if pair[0] != "robot" and token.agreement.account.login != login_of(pair[1]):
            w.model.problems.append(f"{pair} was handed a token of {token.agreement.account.login}")


@action("oauth.get_access_token", weight=12)
async def token(w: World, s: Side, d: Random) -> None:
    turn, app = turn_of(d), d.choice(ASKABLE)
    pair, tool = pair_of(app, turn), d.choice((None, None, "Tool/mail"))
    dead, least = w.model.dead_of(pair), d.choice((None, None, 60, 600))
    context = s.broker.oauth(turn, tool, private_links=d.random() < 0.1)
    switch = tool is None and d.random() < 0.05
    note(w, pair, await context.get_access_token(app, d.choice((None, ["read"])), least, switch_account=switch), dead)


@action("oauth.getAccessToken")
async def token_in_json(w: World, s: Side, d: Random) -> None:
    ref = {"kind": "OAuthApp", "name": d.choice(ASKABLE)}
    await s.broker.oauth(turn_of(d)).getAccessToken({"oauthAppRef": ref, "scopes": ["read"], "minTtlSeconds": 60})


@action("oauth.missing_consent")
async def missing_consent(w: World, s: Side, d: Random) -> None:
    await s.broker.oauth(turn_of(d)).missing_consent(d.choice(ASKABLE))


@action("oauth.first_scopes")
async def first_scopes(w: World, s: Side, d: Random) -> None:
    await s.broker.oauth(turn_of(d)).first_scopes(d.choice(ASKABLE))


@action("forget_client")
async def client_forgotten(w: World, s: Side, d: Random) -> None:
    await s.broker.forget_client(d.choice(ASKABLE))


@action("oauth.report_rejected")
async def rejected(w: World, s: Side, d: Random) -> None:
    turn, app = turn_of(d), d.choice(("mail", "team", "tv", "robot"))
    pair = pair_of(app, turn)
    dead, seen = w.model.dead_of(pair), w.tokens.get(pair, Secret("none-of-ours"))
    note(w, pair, await s.broker.oauth(turn).report_rejected(app, seen), dead)


@action("pending", "links")
async def waits(w: World, s: Side, d: Random) -> None:
    turn = turn_of(d)
    await s.broker.pending(turn, d.choice(("inline", "apart")))
    await s.broker.links(turn)


@action("wait")
async def outcome(w: World, s: Side, d: Random) -> None:
    if session := drawn(d, w.sessions):
        await s.broker.wait(session, timeout=d.choice((0, 0.5, 3)))


@action("cancel")
async def withdrawn(w: World, s: Side, d: Random) -> None:
    if session := drawn(d, w.sessions):
        await s.broker.cancel(session)


@action("confirm", "relay_code", allows=(Code.STATE_UNKNOWN, Code.OWNER_BINDING_FAILED), weight=4)
async def confirmed(w: World, s: Side, d: Random) -> None:
    if (proof := drawn(d, w.proofs)) is None:
        return
    text, subject, turn = proof
    if turn is None:
        await s.broker.confirm(text, subject if d.random() < 0.9 else person(0))
    else:
        await s.broker.relay_code(turn, text if d.random() < 0.8 else "2222-2222", apps=["said"])


@action("revoke", "grants.revoke", weight=4)
async def revoked(w: World, s: Side, d: Random) -> None:
    pair = pair_of(d.choice(ASKABLE), turn_of(d))
    known = w.model.known(pair)
    if d.random() < 0.5:
        await s.broker.revoke(pair[0], subject=pair[1])
    else:
        await s.broker.grants.revoke(*pair)
    w.model.revoked(pair, known)


@action("grants.revoke_all", "grants.revoke_each")
async def all_revoked(w: World, s: Side, d: Random) -> None:
    app, subject = d.choice((("mail", None), ("tv", None), (None, person(1)), (None, person(2))))
    before = {
        pair: w.model.known(pair) for pair in w.model.families if app in {None, pair[0]} and subject in {None, pair[1]}
    }
    if d.random() < 0.5:
        figures = await s.broker.grants.revoke_all(app=app, subject=subject)
    else:
        figures = await s.broker.grants.revoke_each([GrantKey(*pair) for pair in before])
    for pair, known in before.items():
        if GrantKey(*pair) not in figures.failed:
            w.model.revoked(pair, known)


@action(
    "grants.list", "grants.find", "grants.record", "grants.page", "grants.views", "grants.in_order", "grants.view",
    "grants.record_of", "grants.count", "grants.heads", "grants.summary", "grants.check_known", "grants.has_records_of",
)  # fmt: skip
async def looked_at(w: World, s: Side, d: Random) -> None:
    async for grant in s.broker.grants.list(app=d.choice((None, "mail"))):
        if d.random() < 0.3:
            await s.broker.grants.find(grant.grantId)
            await s.broker.grants.record(grant.grantId)
    await s.broker.grants.page(GrantFilter(), 5)
    async for _, view in s.broker.grants.in_order(GrantFilter(), 5):
        if view is not None:
            await s.broker.grants.view(key := GrantKey(view.app, view.subject, view.account))
            await s.broker.grants.record_of(key)
            await s.broker.grants.check_known(key.app)
            await s.broker.grants.has_records_of(key.app)
            await s.broker.grants.summary(key)
    await s.broker.grants.count()
    async for _ in s.broker.grants.views():
        pass
    async for _ in s.broker.grants.heads():
        pass


@action("grants.importing.import_grant", "grants.importing.is_unverified", "grants.importing.verify")
async def imported(w: World, s: Side, d: Random) -> None:
    number = d.randrange(50)
    line = Incoming(
        line=1,
        app="old",
        subject=person(d.randrange(3)),
        refresh_token=Secret(f"refresh-{number}"),
        mark=f"line-{number}",
    )
    await s.broker.grants.importing.import_grant(line, replace=d.random() < 0.3)
    await s.broker.grants.importing.is_unverified(line)
    if d.random() < 0.5:
        await s.broker.grants.importing.verify(line)


@action("erase", "erasure.find_records", "erasure.erase", weight=1)
async def erased(w: World, s: Side, d: Random) -> None:
    known = {pair: w.model.known(pair) for pair in w.model.families if pair[1] == ERASED}
    await s.broker.erasure.find_records(ERASED)
    await (s.broker.erase(ERASED) if d.random() < 0.5 else s.broker.erasure.erase(ERASED))
    for pair, families in known.items():
        w.model.revoked(pair, families)


@action("reload", weight=1)
async def reloaded(w: World, s: Side, d: Random) -> None:
    bundle = w.bundle()
    old = replace(bundle.apps["old"], title=d.choice(("Old", "Older")))
    await s.broker.reload(replace(bundle, apps={**bundle.apps, "old": old}))


@action("turns.begin", "turns.admit", weight=4, allows=(Code.TURN_ENDED,))
async def began(w: World, s: Side, d: Random) -> None:
    turn, app = turn_of(d), d.choice(("mail", "team", "robot"))
    begun = await s.broker.turns.begin(turn, tools=dict.fromkeys(TOOLS), ttl_seconds=d.choice((None, 30)))
    w.turns.append(begun)
    await called(w, s, d, begun, app)


@action("oauth_for", weight=4, allows=(Code.TURN_ENDED,))
async def called_by_a_tool(w: World, s: Side, d: Random) -> None:
    if begun := drawn(d, w.turns):
        await called(w, s, d, begun, d.choice(("mail", "team", "robot")))


async def called(w: World, s: Side, d: Random, begun: Any, app: str) -> None:
    token_holder = await s.broker.turns.admit(begun.token.reveal())
    pair = pair_of(app, token_holder.turn)
    dead = w.model.dead_of(pair)
    result = await s.broker.oauth_for(token_holder).get_access_token(app)
    note(w, pair, result, dead)
    if isinstance(result, Ready) and begun.turn_id in w.model.ended_turns:
        w.model.problems.append(f"a token left after the end of {begun.turn_id} was acknowledged")


@action("turns.end", "turns.sweep")
async def ended(w: World, s: Side, d: Random) -> None:
    if begun := drawn(d, w.turns):
        await s.broker.turns.end(begun.turn_id)
        w.model.ended_turns.add(begun.turn_id)
        await s.broker.turns.sweep()


@action("api_keys.create", "api_keys.rotate", "api_keys.list", "api_keys.sweep", allows=(Code.REQUEST_INVALID,))
async def keyed(w: World, s: Side, d: Random) -> None:
    name = f"key{d.randrange(3)}"
    w.keys.append(await s.broker.api_keys.create(name, ["operator"], lives_seconds=600))
    w.keys.append(await s.broker.api_keys.rotate(name, overlap_seconds=d.choice((0, 60))))
    await s.broker.api_keys.list()
    await s.broker.api_keys.sweep()


@action("api_keys.remove", "api_keys.check", allows=(Code.UNAUTHENTICATED,))
async def unkeyed(w: World, s: Side, d: Random) -> None:
    if made := drawn(d, w.keys):
        key, secret = made
        was_removed = key.id in w.model.removed_keys
        if d.random() < 0.5:
            await s.broker.api_keys.remove(key.id)
            w.model.removed_keys.add(key.id)
            return
        await s.broker.api_keys.check(secret.reveal())
        if was_removed:
            w.model.problems.append(f"{key.id} was let in after its removal was acknowledged")


# events


@action("events.lease", "delivery.ack", "delivery.nack", "delivery.give_back", "delivery.extend",
    "delivery.extended_during", weight=8)  # fmt: skip
async def consumed(w: World, s: Side, d: Random) -> None:
    delivery = await s.broker.events.lease(d.choice(AGENTS), wait=d.choice((0, 0, 1)))
    if delivery is None:
        return
    w.model.leased(delivery)
    if d.random() < 0.25:
        await delivery.extend()
    if d.random() < 0.25:
        await delivery.extended_during(asyncio.sleep(0), 60)
    if d.random() < 0.25:
        w.held.append(delivery)
    else:
        await settled(w, d, delivery)


@action("delivery.ack late", weight=3)
async def settled_late(w: World, s: Side, d: Random) -> None:
    if delivery := drawn(d, w.held):
        await settled(w, d, delivery)


async def settled(w: World, d: Random, delivery: EventLease) -> None:
    how = d.choice(("ack", "ack", "ack", "nack", "give_back"))
    if how == "ack":
        if await delivery.ack():
            w.model.settled(delivery.id, done=True)
    elif how == "nack":
        await delivery.nack()
    elif await delivery.give_back():
        w.model.given_back(delivery.id)


@action("events.settle", "events.unsettled", "events.settled", "events.dead")
async def settled_by_lease(w: World, s: Side, d: Random) -> None:
    if delivery := drawn(d, w.held):
        agent, done = delivery.event.target.agent_name, d.random() < 0.7
        await s.broker.events.unsettled(agent, [delivery.lease])
        if await s.broker.events.settle(agent, delivery.id, delivery.lease, done=done):
            w.model.settled(delivery.id, done=done)
        await s.broker.events.settled(agent, [delivery.lease])
        await s.broker.events.dead(agent)


@action("events.enqueue")
async def queued(w: World, s: Side, d: Random) -> None:
    turn = turn_of(d)
    event = await s.broker.events.enqueue(d.choice(AGENTS), "tool.completed", {"step": d.randrange(9)}, turn=turn)
    if not turn.resume_target.is_of(ERASED):
        w.model.queued.add(event)


@action("events.on_granted")
async def called_back(w: World, s: Side, d: Random) -> None:
    async def take(delivery: EventLease) -> None:
        w.model.leased(delivery)
        await asyncio.sleep(0)
        if d.random() < 0.3:
            raise NotNow

    async with s.broker.on_granted(d.choice(AGENTS), take):
        for _ in range(d.randrange(30)):
            await asyncio.sleep(0)


@action("dead_letters.states", "dead_letters.dead", "dead_letters.has", "dead_letters.retry", "dead_letters.drop")
async def dead_letters(w: World, s: Side, d: Random) -> None:
    letters = s.broker.dead_letters
    await letters.states()
    if letter := drawn(d, await letters.dead()):
        await letters.has(letter.agent, letter.id)
        if d.random() < 0.5:
            await letters.retry(letter.agent, letter.id)
        else:
            w.model.dropped.add(letter.id)
            await letters.drop(letter.agent, letter.id)


# the rest


@action("sessions.list", "sessions.find")
async def listed(w: World, s: Side, d: Random) -> None:
    await s.broker.sessions.list(app=d.choice((None, "mail")))
    if session := drawn(d, w.sessions):
        await s.broker.sessions.find(session)


@action("secrets.put", "secrets.remove", "secrets.names")
async def secrets(w: World, s: Side, d: Random) -> None:
    name = f"secret{d.randrange(2)}"
    await s.broker.secrets.put(name, d.choice(("a", "b")), Secret("a value of no account"))
    await s.broker.secrets.remove(name, d.choice((None, "a")))
    await s.broker.secrets.names()


@action("audit_trail.tail")
async def read_audit(w: World, s: Side, d: Random) -> None:
    await s.broker.audit_trail.tail(20, app="mail")


@action(
    "connections.link", "connections.open", "connections.overview", "connections.find", "connections.disconnect",
    "connections.reconnect",
    allows=(Code.GRANT_NOT_FOUND, Code.STATE_UNKNOWN, Code.REQUEST_INVALID, Code.RATE_LIMITED),
)  # fmt: skip
async def connections(w: World, s: Side, d: Random) -> None:
    who = person(d.randrange(4))
    url, _ = await s.broker.connections.link({"user": who, "global": TEAM})
    browser_session = (await s.broker.connections.open(url.rpartition("/")[2])).browser_session
    for service in await s.broker.connections.overview(browser_session):
        if service.connection is None:
            continue
        found = await s.broker.connections.find(browser_session, service.connection.grant.id)
        pair = (found.app.name, found.grant.subject)
        known = w.model.known(pair)
        if d.random() < 0.2:
            await s.broker.connections.disconnect(browser_session, found.grant.id)
            w.model.revoked(pair, known)
        elif d.random() < 0.3:
            await s.broker.connections.reconnect(browser_session, found.grant.id, switch=False)


@action("life.over", weight=1)
async def life(w: World, s: Side, d: Random) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(0.002):
            await s.broker.life.over()
