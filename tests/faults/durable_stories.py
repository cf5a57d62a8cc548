"""Every durable operation as a story: its preparation, the operation, and whether it still holds on a disk.

`covers` names the functions that the operation runs through. test_durable_operations.py compares them with the whole
surface, so that an operation without a story fails a test.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.grants.import_lines import Incoming
from oauthbroker.model.apps import App, Owner
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.plugin_services.plugin_state import PluginState
from oauthbroker.testing import Browser, IdentityProvider, leave
from tests.faults import key_stories
from tests.faults.key_stories import key_app
from tests.kit.broker_process import Process, ask, complete, visit_callback
from tests.kit.meta_app import meta_app
from tests.kit.running_broker import ALICE, BASE, device_app, mcp_app, turn, user_app
from tests.kit.slack_apps import SECOND, bot_app
from tests.story.binding_kit import RUNTIME, code_on, handle_on

Prepare = Callable[[Process, IdentityProvider], Awaitable[Any]]
Do = Callable[[Process, Any], Awaitable[Any]]
HERE = turn(ALICE, instance="thread")  # as `ask` asks


@dataclass(frozen=True)
class Story:
    """`do` is tried until it raises nothing that may be tried again; `holds` tells whether its effect is there.

    `gives_up`: codes after which nothing was promised, because the attempt is used up. Every other final refusal
    counts as an acknowledgement: its caller takes the operation for done.
    """

    prepare: Prepare
    do: Do
    holds: Callable[[Process, Any], Awaitable[bool]]
    covers: tuple[str, ...]
    app: Callable[[IdentityProvider], App] = user_app
    gives_up: frozenset[Code] = frozenset()


# grants


async def connected(process: Process, idp: IdentityProvider) -> Any:
    asked = await ask(process)
    assert 200 == await complete(process, idp, asked)
    assert isinstance(await ask(process), Ready)
    return asked


async def is_revoked(process: Process, _: Any) -> bool:
    return isinstance(await ask(process), AuthorizationRequired)


async def revoked_in_bulk(process: Process, _: Any) -> None:
    figures = await process.broker.grants.revoke_all(subject=ALICE)
    for code in figures.failed.values():
        raise BrokerError(code)


async def on_the_page(process: Process, idp: IdentityProvider) -> Any:
    await connected(process, idp)
    ticket, _ = await process.parts.browser_sessions.invite({"user": ALICE})
    arrival = await process.parts.browser_sessions.open(ticket.reveal())
    (service,) = await process.broker.connections.overview(arrival.browser_session)
    assert service.connection is not None
    return arrival.browser_session, service.connection.grant.id


async def disconnected(process: Process, known: Any) -> None:
    await process.broker.connections.disconnect(*known)


async def agreed_again(process: Process, known: Any) -> None:
    await process.broker.connections.reconnect(*known, switch=False)


async def waits(process: Process, _: Any) -> bool:
    return bool(await process.broker.links(HERE))


async def refreshable(process: Process, idp: IdentityProvider) -> Any:
    await connected(process, idp)
    process.clock.advance(7200)
    clock: Any = idp.clock
    clock.set(process.clock.now())
    return []


async def refreshed(process: Process, seen: list[str]) -> None:
    ready = good(await ask(process))
    assert isinstance(ready, Ready)
    await process.parts.refresh.close()
    seen.append(ready.access_token.reveal())


def good(result: Any) -> Any:
    if isinstance(result, Failed):
        raise BrokerError(result.code)
    return result


async def rejected(process: Process, idp: IdentityProvider) -> Any:
    await connected(process, idp)
    ready = await ask(process)
    assert isinstance(ready, Ready)
    return [ready.access_token.reveal()]


async def replaced(process: Process, seen: list[str]) -> None:
    ready = good(await process.broker.oauth(HERE).report_rejected("mail", seen[0]))
    assert isinstance(ready, Ready)
    await process.parts.refresh.close()
    seen.insert(0, ready.access_token.reveal())


async def has_newest(process: Process, seen: list[str]) -> bool:
    grant = await process.grant("mail", ALICE)
    return grant is not None and grant.token is not None and grant.token.access_token.reveal() == seen[0]


def line(refresh: str) -> Incoming:
    return Incoming(line=1, app="mail", subject=ALICE, refresh_token=Secret(refresh), scopes=("read",), mark=refresh)


async def nothing(process: Process, _: IdentityProvider) -> Any:
    return []


async def is_imported(process: Process, _: Any) -> bool:
    grant = await process.grant("mail", ALICE)
    return grant is not None and not grant.revoked and grant.imported == "the-line"


REQUEST = [b'{"app":"mail","subject":"%b","refreshToken":"r"}\n' % ALICE.encode(), b"{\n"]


async def imported_by_request(process: Process, answers: list[Any]) -> None:
    """A finished request is answered again, without a second import."""

    async def pieces() -> AsyncIterator[bytes]:
        for each in REQUEST:
            yield each

    async def still() -> None:
        """The caller may still call."""

    answers.append(await process.broker.grants.import_requests.run("key-id", "key-1", pieces(), still))


async def is_imported_once(process: Process, answers: list[Any]) -> bool:
    grant = await process.grant("mail", ALICE)
    await imported_by_request(process, answers)
    again = await process.grant("mail", ALICE)
    counts = {each["imported"] + each["there"] for each in answers}
    return grant is not None and not grant.revoked and grant == again and counts == {1}


async def erased(process: Process, _: Any) -> None:
    if not (await process.broker.erase(ALICE)).done:
        raise BrokerError(Code.PROVIDER_UNREACHABLE)


async def nothing_left(process: Process, _: Any) -> bool:
    return (await process.broker.erasure.find_records(ALICE)).empty


async def ends_soon(process: Process, idp: IdentityProvider) -> Any:
    idp.script.token.fields(refresh_token_expires_in=10 * 86_400)
    await connected(process, idp)
    process.clock.advance(9.5 * 86_400)
    return []


async def told(process: Process, _: Any) -> None:
    await process.parts.expiring.run_pass()


async def is_told_once(process: Process, _: Any) -> bool:
    await process.parts.expiring.run_pass()
    await process.parts.relay.once()
    await process.drain()
    grant = await process.grant("mail", ALICE)
    notices = [each for each in process.heard.received if "auth.expiring" in each]
    return grant is not None and grant.ends is not None and bool(grant.ends.notice) and len(notices) == 1


async def with_first_token(process: Process, idp: IdentityProvider) -> Any:
    assert 200 == await complete(process, idp, await ask(process))
    return []


async def exchanged(process: Process, seen: list[str]) -> None:
    """Until it is done, the first token is answered, and nothing is promised."""
    ready = good(await ask(process))
    assert isinstance(ready, Ready)
    assert ready.expires_at is not None
    if ready.expires_at < process.clock.now() + timedelta(days=1):
        raise BrokerError(Code.REFRESH_IN_PROGRESS)
    await process.parts.refresh.close()
    seen.append(ready.access_token.reveal())


async def is_lasting(process: Process, seen: list[str]) -> bool:
    grant = await process.grant("mail", ALICE)
    return await has_newest(process, seen) and grant is not None and not grant.exchange_due


# authorizations


async def asked_for(process: Process, _: IdentityProvider) -> Any:
    return await ask(process)


async def asked_anew(process: Process, seen: list[Any]) -> None:
    asked = good(await ask(process))
    assert isinstance(asked, AuthorizationRequired)
    seen[:] = [asked]


async def asked_to_switch(process: Process, _: Any) -> None:
    good(await process.broker.oauth(HERE).get_access_token("mail", switch_account=True))


async def is_listed(process: Process, seen: list[Any]) -> bool:
    """Its link is good, and it is among those that wait."""
    session = await process.session(seen[0].auth_session_id)
    links = await process.broker.links(HERE)
    return session is not None and session.open and seen[0].auth_session_id in {it["authSessionId"] for it in links}


async def is_withdrawn(process: Process, asked: Any) -> bool:
    session = await process.session(asked.auth_session_id)
    return session is not None and not session.open


@dataclass
class Way:
    """A browser that is about to bring a code back; the answers it got since."""

    browser: Browser
    callback: str
    asked: Any
    reported: str = ""


async def agreed(process: Process, idp: IdentityProvider) -> Way:
    asked = await ask(process)
    browser = process.browser()
    page = await leave(browser, asked.authorization_url)
    assert page.next_url is not None
    return Way(browser, await idp.agree(page.next_url, "alice", browser=browser), asked)


async def comes_home(process: Process, way: Way) -> None:
    way.browser.serve(BASE, process.broker.asgi.app)
    status = await visit_callback(way.browser, way.callback)
    if status >= 400:
        raise BrokerError(Code.STORE_UNAVAILABLE if status >= 500 else Code.STATE_USED)


async def is_connected(process: Process, _: Any) -> bool:
    await process.tend()
    return isinstance(await ask(process), Ready)


async def both_come_home(process: Process, way: Way) -> None:
    await comes_home(process, way)
    way.reported = "both" if await process.grant(SECOND, ALICE) is not None else ""  # else its tokens were dropped


async def both_are_connected(process: Process, way: Way) -> bool:
    return await is_connected(process, way) and (not way.reported or await process.grant(SECOND, ALICE) is not None)


def confirmed_app(idp: IdentityProvider) -> App:
    return user_app(idp, owner=Owner(binding="runtimeConfirm", confirm_url=RUNTIME))


def coded_app(idp: IdentityProvider) -> App:
    return user_app(idp, owner=Owner(binding="channelCode"))


async def sent_on(process: Process, idp: IdentityProvider) -> Way:
    way = await agreed(process, idp)
    page = await way.browser.follow(way.callback)
    assert page.location is not None, page.text
    page = await way.browser.follow()
    way.reported = handle_on(page) if page.next_url is not None and page.next_url.startswith(RUNTIME) else code_on(page)
    return way


async def has_pending_code(process: Process, way: Way) -> bool:
    session = await process.session(way.asked.auth_session_id)
    return session is not None and session.pending_code is not None


async def confirmed(process: Process, way: Way) -> None:
    settled(await process.broker.confirm(way.reported, ALICE))


async def relayed_code(process: Process, way: Way) -> None:
    settled(await process.broker.relay_code(HERE, way.reported))


def settled(outcome: Any) -> None:
    if outcome.status != "completed":
        raise BrokerError(outcome.code)


async def link_of(process: Process, _: IdentityProvider) -> Any:
    asked = await ask(process)
    return asked, asked.authorization_url.rsplit("/", 1)[-1]


async def declined(process: Process, known: Any) -> None:
    await process.parts.pages.service.decline(known[1])


async def is_declined(process: Process, known: Any) -> bool:
    return await is_withdrawn(process, known[0])


# turns, keys, visits, secrets


async def begun_turn(process: Process, _: IdentityProvider) -> Any:
    return await process.broker.turns.begin(turn())


async def begins(process: Process, seen: list[Any]) -> None:
    seen[:] = [await process.broker.turns.begin(turn())]


async def goes_on(process: Process, seen: list[Any]) -> bool:
    return not await is_over(process, seen[0])


async def is_over(process: Process, begun: Any) -> bool:
    try:
        await process.broker.turns.admit(begun.token.reveal())
    except BrokerError as error:
        return error.code is Code.TURN_ENDED
    return False


async def made_key(process: Process, _: IdentityProvider) -> Any:
    return [await process.broker.api_keys.create("ci", ["operator"])]


async def makes_key(process: Process, seen: list[Any]) -> None:
    seen[:] = [await process.broker.api_keys.create("ci", ["operator"])]


async def rotates(process: Process, seen: list[Any]) -> None:
    seen.insert(0, await process.broker.api_keys.rotate("ci", overlap_seconds=0))


async def is_rotated(process: Process, seen: list[Any]) -> bool:
    return await is_key(process, seen) and not await is_key(process, seen[-1:])


async def is_key(process: Process, seen: list[Any]) -> bool:
    try:
        await process.broker.api_keys.check(seen[0][1].reveal())
    except BrokerError as error:
        assert error.code is Code.UNAUTHENTICATED  # noqa: PT017 - or it is a key
        return False
    return True


async def is_no_key(process: Process, seen: list[Any]) -> bool:
    return not await is_key(process, seen)


async def begun_browser_session(process: Process, _: IdentityProvider) -> Any:
    return await process.parts.browser_sessions.enter("ops", "")


async def enters(process: Process, seen: list[Any]) -> None:
    seen[:] = [await process.parts.browser_sessions.enter("ops", "")]


async def is_here(process: Process, seen: list[Any]) -> bool:
    return not await has_left(process, seen[0])


async def signs_out(process: Process, arrival: Any) -> None:
    """End a visit as the page does: a browser whose access has ended is told that its visit is over."""
    visit_callback = await process.parts.browser_sessions.admit(arrival.cookie.reveal(), "admin")
    if visit_callback is not None:
        await process.parts.browser_sessions.end(visit_callback)


async def has_left(process: Process, arrival: Any) -> bool:
    return await process.parts.browser_sessions.admit(arrival.cookie.reveal(), "admin") is None


async def invites(process: Process, seen: list[Any]) -> None:
    link, _ = await process.broker.connections.link({"user": ALICE})
    seen[:] = [link.rsplit("/", 1)[-1]]


async def is_invited(process: Process, seen: list[Any]) -> bool:
    return "connections" == (await process.parts.browser_sessions.invited(seen[0])).pages


async def invited(process: Process, _: IdentityProvider) -> Any:
    seen = list[Any]()
    await invites(process, seen)
    return seen


async def opens(process: Process, seen: list[Any]) -> None:
    await process.broker.connections.open(seen[0])


async def is_used_up(process: Process, seen: list[Any]) -> bool:
    try:
        await process.parts.browser_sessions.invited(seen[0])
    except BrokerError as error:
        return error.code is Code.STATE_UNKNOWN
    return False


async def with_secret(process: Process, _: IdentityProvider) -> None:
    await process.broker.secrets.put("crm", "token", Secret("x" * 8))


async def puts_secret(process: Process, _: Any) -> None:
    await process.broker.secrets.put("crm", "token", Secret("y" * 8))


async def has_new_secret(process: Process, _: Any) -> bool:
    found = await process.parts.repository.secrets.all()
    return found.get(("crm", "token")) == Secret("y" * 8)


async def without_secret(process: Process, _: Any) -> bool:
    return ("crm", "token") not in await process.parts.repository.secrets.all()


# clients at MCP servers


async def learns(process: Process, seen: list[str]) -> None:
    app = await process.parts.mcp_clients.complete(process.parts.apps["mail"], new_session=True)
    seen[:] = [app.registration]


async def learnt_client(process: Process, idp: IdentityProvider) -> None:
    await learns(process, await nothing(process, idp))


async def has_no_client(process: Process, _: Any) -> bool:
    return await process.parts.repository.clients.get("mail") is None


async def has_same_client(process: Process, seen: list[str]) -> bool:
    await process.parts.mcp_clients.sync()
    return seen == [process.parts.apps["mail"].registration]


# values of plug-ins


def library(process: Process) -> PluginState:
    return PluginState(process.parts.repository.plugin_values, "library")


async def keeps_value(process: Process, _: Any) -> None:
    await library(process).change("book", lambda _: "lent")


async def with_value(process: Process, _: IdentityProvider) -> None:
    await keeps_value(process, None)


async def removes_value(process: Process, _: Any) -> None:
    await library(process).remove("book")


async def values_are(process: Process, there: dict[str, str]) -> bool:
    state = library(process)
    return there == {key: value async for key, value in state.all()} and there.get("book") == await state.get("book")


# events


async def with_event(process: Process, idp: IdentityProvider) -> Any:
    return await connected(process, idp)


async def relayed(process: Process, _: Any) -> None:
    await process.parts.relay.once()


async def comes(process: Process, asked: Any) -> bool:
    process.clock.advance(3600)
    await process.tend()
    found = await process.broker.events.lease("planner")
    return found is not None and asked.auth_session_id in found.id


async def queued(process: Process, idp: IdentityProvider) -> Any:
    await connected(process, idp)
    await process.tend()
    return []


async def enqueues(process: Process, _: Any) -> None:
    await process.broker.events.enqueue("planner", "tool.completed", {"answer": 42}, turn=HERE, idempotency_key="1")


async def is_queued_once(process: Process, _: Any) -> bool:
    delivery = await process.broker.events.lease("planner")
    return (
        delivery is not None
        and delivery.type == "tool.completed"
        and await delivery.ack()
        and (await process.broker.events.lease("planner") is None)
    )


async def leases(process: Process, seen: list[Any]) -> None:
    delivery = await process.broker.events.lease("planner")
    if delivery is None:  # the attempt that failed has leased it all the same: it comes again when that lease ends
        raise BrokerError(Code.STORE_UNAVAILABLE)
    seen[:] = [delivery]


async def is_leased(process: Process, seen: list[Any]) -> bool:
    return bool(await process.broker.events.unsettled("planner", [seen[0].lease]))


async def leased(process: Process, idp: IdentityProvider) -> Any:
    await queued(process, idp)
    return await process.broker.events.lease("planner")


async def acknowledges(process: Process, delivery: Any) -> None:
    assert await process.broker.events.settle("planner", delivery.id, delivery.lease, done=True)


async def is_acknowledged(process: Process, _: Any) -> bool:
    process.clock.advance(3600)
    await process.tend()
    return await process.broker.events.lease("planner") is None


async def refuses(process: Process, delivery: Any) -> None:
    assert await process.broker.events.settle("planner", delivery.id, delivery.lease, done=False)


async def is_refused(process: Process, delivery: Any) -> bool:
    return bool(await process.broker.events.settled("planner", [delivery.lease]))


async def dead_letter(process: Process, idp: IdentityProvider) -> str:
    await queued(process, idp)
    while (delivery := await process.broker.events.lease("planner")) is not None:
        assert await delivery.nack()
        process.clock.advance(3600)
    (letter,) = await process.broker.dead_letters.dead("planner")
    return letter.id


async def tries_anew(process: Process, event_id: str) -> None:
    await process.broker.dead_letters.retry("planner", event_id)


async def waits_again(process: Process, event_id: str) -> bool:
    delivery = await process.broker.events.lease("planner")
    return delivery is not None and delivery.id == event_id


async def drops(process: Process, event_id: str) -> None:
    await process.broker.dead_letters.drop("planner", event_id)


async def is_dropped(process: Process, _: str) -> bool:
    await process.tend()
    return not await process.broker.dead_letters.dead() and 0 == await process.store.count("events")


USED_UP = frozenset({Code.STATE_UNKNOWN, Code.STATE_USED, Code.EXCHANGE_UNCERTAIN, Code.STORE_UNAVAILABLE})

STORIES = {
    "an erasure": Story(connected, erased, nothing_left, ("Broker.erase", "Erasure.erase")),
    "a revocation": Story(
        connected, lambda it, _: it.broker.revoke("mail", subject=ALICE), is_revoked, ("Broker.revoke", "Grants.revoke")
    ),
    "a revocation of many": Story(
        connected,
        revoked_in_bulk,
        is_revoked,
        ("Grants.revoke_all", "Grants.revoke_each", "BulkRevocation.revoke_grants"),
    ),
    "a client at an MCP server": Story(nothing, learns, has_same_client, ("McpClients.complete",), mcp_app),
    "a client that is forgotten": Story(
        learnt_client,
        lambda it, _: it.broker.forget_client("mail"),
        has_no_client,
        ("Broker.forget_client", "McpClients.forget"),
        mcp_app,
    ),
    "a disconnection": Story(on_the_page, disconnected, is_revoked, ("Connections.disconnect",)),
    "a refresh": Story(
        refreshable, refreshed, has_newest, ("OAuthContext.get_access_token", "RefreshTransaction.refresh")
    ),
    "a notice that a grant ends": Story(ends_soon, told, is_told_once, ("Expiring.run_pass",)),
    "an exchange of a first token": Story(
        with_first_token, exchanged, is_lasting, ("RefreshTransaction.refresh",), meta_app
    ),
    "a rejected token": Story(rejected, replaced, has_newest, ("OAuthContext.report_rejected",)),
    "an import": Story(
        nothing,
        lambda it, _: it.broker.grants.importing.import_grant(line("the-line")),
        is_imported,
        ("Importing.import_grant",),
    ),
    "an import over the API": Story(nothing, imported_by_request, is_imported_once, ("ImportRequests.run",)),
    "an import over a grant": Story(
        connected,
        lambda it, _: it.broker.grants.importing.import_grant(line("the-line"), replace=True),
        is_imported,
        ("Importing.import_grant",),
    ),
    "a value of a plug-in": Story(
        nothing, keeps_value, lambda it, _: values_are(it, {"book": "lent"}), ("PluginState.change",)
    ),
    "a removed value of a plug-in": Story(
        with_value, removes_value, lambda it, _: values_are(it, {}), ("PluginState.remove",)
    ),
    "a link": Story(nothing, asked_anew, is_listed, ("OAuthContext.get_access_token", "Opening.open_session")),
    "a device code": Story(
        nothing, asked_anew, is_listed, ("Opening.open_session",), app=lambda idp: device_app(idp, "mail")
    ),
    "a link to another account": Story(connected, asked_to_switch, waits, ("Opening.open_session",)),
    "a link to agree again": Story(on_the_page, agreed_again, waits, ("Connections.reconnect", "Opening.open_session")),
    "a connection": Story(agreed, comes_home, is_connected, ("PagesService.arrive",), gives_up=USED_UP),
    "a connection of two apps": Story(
        agreed, both_come_home, both_are_connected, ("PagesService.arrive",), app=bot_app, gives_up=USED_UP
    ),
    "a pending code": Story(
        agreed, comes_home, has_pending_code, ("PagesService.arrive",), app=confirmed_app, gives_up=USED_UP
    ),
    "a confirmation": Story(
        sent_on,
        confirmed,
        is_connected,
        ("Broker.confirm", "PendingCodes.confirm"),
        app=confirmed_app,
        gives_up=USED_UP,
    ),
    "a relayed code": Story(
        sent_on,
        relayed_code,
        is_connected,
        ("Broker.relay_code", "PendingCodes.relay"),
        app=coded_app,
        gives_up=USED_UP,
    ),
    "a credential that is typed": Story(
        key_stories.before_key,
        key_stories.typed,
        key_stories.has_key,
        ("PagesService.enter", "CredentialEntry.store"),
        key_app,
        gives_up=USED_UP,
    ),
    "a credential that replaces a refused one": Story(
        key_stories.before_another,
        key_stories.typed,
        key_stories.has_key,
        ("PagesService.enter", "CredentialEntry.store"),
        key_app,
        gives_up=USED_UP,
    ),
    "a credential that the API refuses": Story(
        key_stories.with_key,
        key_stories.refused_by_api,
        key_stories.is_refused,
        ("OAuthManager.report_rejected", "CredentialRejections.report"),
        key_app,
    ),
    "an import of a credential": Story(
        key_stories.before_import, key_stories.imported, key_stories.has_both, ("Importing.import_grant",), key_app
    ),
    "a refusal on our page": Story(link_of, declined, is_declined, ("PagesService.decline",)),
    "a withdrawal": Story(
        asked_for,
        lambda it, asked: it.broker.cancel(asked.auth_session_id),
        is_withdrawn,
        ("Broker.cancel", "Pending.cancel"),
    ),
    "a turn": Story(nothing, begins, goes_on, ("Turns.begin",)),
    "a turn's end": Story(begun_turn, lambda it, begun: it.broker.turns.end(begun.turn_id), is_over, ("Turns.end",)),
    "a key": Story(nothing, makes_key, is_key, ("ApiKeys.create",)),
    "a key's rotation": Story(made_key, rotates, is_rotated, ("ApiKeys.rotate",)),
    "a key's end": Story(
        made_key, lambda it, made: it.broker.api_keys.remove(made[0][0].id), is_no_key, ("ApiKeys.remove",)
    ),
    "a visit": Story(nothing, enters, is_here, ("BrowserSessions.enter",)),
    "a visit's end": Story(
        begun_browser_session,
        lambda it, arrival: it.parts.browser_sessions.end(arrival.browser_session),
        has_left,
        ("BrowserSessions.end",),
    ),
    "a sign-out": Story(begun_browser_session, signs_out, has_left, ("BrowserSessions.admit", "BrowserSessions.end")),
    "an invitation": Story(nothing, invites, is_invited, ("Connections.link", "BrowserSessions.invite")),
    "an invitation's use": Story(
        invited,
        opens,
        is_used_up,
        ("Connections.open", "BrowserSessions.open"),
        gives_up=frozenset({Code.STATE_UNKNOWN}),
    ),
    "a secret": Story(with_secret, puts_secret, has_new_secret, ("Secrets.put",)),
    "a secret's end": Story(
        with_secret, lambda it, _: it.broker.secrets.remove("crm", "token"), without_secret, ("Secrets.remove",)
    ),
    "a relay": Story(with_event, relayed, comes, ("Relay.once",)),
    "an event of another program": Story(nothing, enqueues, is_queued_once, ("Events.enqueue",)),
    "a lease": Story(queued, leases, is_leased, ("Events.lease",)),
    "an acknowledgement": Story(leased, acknowledges, is_acknowledged, ("Events.settle",)),
    "a negative acknowledgement": Story(leased, refuses, is_refused, ("Events.settle",)),
    "another try for a dead letter": Story(dead_letter, tries_anew, waits_again, ("DeadLetters.retry",)),
    "a dead letter's end": Story(dead_letter, drops, is_dropped, ("DeadLetters.drop",)),
}
