"""A store with a record of every kind, twice: one that is damaged, and its neighbour's. And the ways to damage it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oauthbroker.core.clock import LONG_AGO
from oauthbroker.core.secret import Secret
from oauthbroker.diagnostics.inspection import Inspection
from oauthbroker.grants.grant_pages import GrantFilter
from oauthbroker.model.settings import Limits
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.model.turn_token import BegunTurn
from oauthbroker.plugin_services.plugin_state import PluginState
from oauthbroker.records import AgentEvent, grant_id
from oauthbroker.records.registered_client import RegisteredClient
from oauthbroker.repository.repository import KINDS, Repository
from oauthbroker.repository.store_age import StoreAge
from oauthbroker.store.format.port import Key
from oauthbroker.testing import IdentityProvider, leave
from oauthbroker.testing.provider.types import Client
from oauthbroker.testing.stores import open_keyring
from oauthbroker.wiring.parts import Parts
from tests.kit.broker_process import Process, complete, visit_callback
from tests.kit.queues import index_of
from tests.kit.running_broker import ALICE, BASE, BOB, turn, user_app

APPS = ("mail", "files", "notes")
PEOPLE = {ALICE: ("alice", "planner"), BOB: ("bob", "writer")}
SECONDS = 700  # until BOB's short-lived records have ended: links, turns, sessions


@dataclass
class World:
    """ALICE's records are damaged. BOB's are sound, and some of these are due: for a relay, a sweeper, a provider."""

    process: Process
    idp: IdentityProvider
    data: Path
    keys: dict[str, tuple[Key, Key]] = field(default_factory=dict)  # by kind: ALICE's and BOB's
    asked: dict[str, AuthorizationRequired] = field(default_factory=dict)
    turns: dict[str, BegunTurn] = field(default_factory=dict)
    keyed: dict[str, Secret] = field(default_factory=dict)
    tickets: dict[str, Secret] = field(default_factory=dict)
    passed: list[Key] = field(default_factory=list)  # BOB's, whose time is over
    left_open: Any = None

    @property
    def broker(self) -> Any:
        return self.process.broker

    @property
    def parts(self) -> Parts:
        return self.process.parts

    def file(self, key: Key) -> Path:
        return self.data / key.kind / key.name

    @property
    def notes(self) -> PluginState:
        return PluginState(self.parts.repository.plugin_values, "notes")

    def advance(self, seconds: float) -> None:
        self.process.clock.advance(seconds)
        self.idp.clock.set(self.process.clock.now())  # type: ignore[attr-defined]

    async def ask(self, subject: str, app: str) -> Any:
        return await self.broker.oauth(turn(subject, agent=PEOPLE[subject][1], instance=app)).get_access_token(app)

    async def connect(self, subject: str, app: str) -> Any:
        asked = await self.ask(subject, app)
        if isinstance(asked, AuthorizationRequired):
            assert await complete(self.process, self.idp, asked, PEOPLE[subject][0]) == 200
        return asked


async def world(folder: Path, idp: IdentityProvider) -> World:
    """A broker that runs nothing by itself, and all that is written in its store."""
    for name in APPS:
        uris = (f"{BASE}/oauth/callback/{name}",)
        idp.register(Client(f"client-{name}", redirect_uris=uris, rotate_refresh=False))
    process = Process.start(
        folder / "store", open_keyring(folder), [user_app(idp, name) for name in APPS], idp.clock.now()
    )
    here = World(process, idp, folder / "store" / "data")
    await _long_ago(here)
    here.advance(SECONDS)
    await _now(here)
    store, session = process.store, {who: here.asked[who].auth_session_id[3:] for who in PEOPLE}
    events = {who: await _event_of(here, agent) for who, (_, agent) in PEOPLE.items()}

    def of(kind: str, part: Callable[[str], tuple[str, ...]]) -> None:
        here.keys[kind] = (store.key(kind, *part(ALICE)), store.key(kind, *part(BOB)))

    of("grants", lambda who: ("files", who))
    of("sessions", lambda who: (session[who],))
    of("waiting", lambda who: ("notes", who))
    of("events", lambda who: (events[who],))
    of("queues", lambda who: (PEOPLE[who][1],))
    of("secrets", lambda who: (who,))
    of("turns", lambda who: (here.turns[who].turn_id[5:],))
    of("apikeys", lambda who: (here.keyed[who].reveal().split(".")[1],))
    of("browsersessions", lambda who: (here.tickets[who].reveal()[:22],))
    of("uses", lambda who: (grant_id("files", who),))
    of("plugins", lambda who: ("notes", who))
    of("clients", lambda who: (who,))
    due, ended = (store.key("grants", "files", who).name for who in PEOPLE), _ended_turns(here)
    here.keys["due"] = _pair("due", due)
    here.keys["tombstones"] = _pair("tombstones", (store.key("turns", turn_id[5:]).name for turn_id in ended))
    return here


def _pair(kind: str, names: Iterator[str]) -> tuple[Key, Key]:
    hers, his = names
    return Key(kind, hers), Key(kind, his)


def _ended_turns(here: World) -> Iterator[str]:
    return (here.turns[f"ended {who}"].turn_id for who in PEOPLE)


async def _event_of(here: World, agent: str) -> str:
    return next((await index_of(Repository(here.process.store), agent)).waiting).id


async def _long_ago(here: World) -> None:
    broker = here.broker
    for who in PEOPLE:
        await here.connect(who, "mail")
    await here.parts.relay.once()
    store, late = here.process.store, turn(BOB, agent="writer", instance="late")
    passed = [await broker.turns.begin(turn(BOB), ttl_seconds=60) for _ in range(2)]
    ticket, _ = await here.parts.browser_sessions.invite({"user": BOB})
    assert await broker.turns.end(passed[1].turn_id)
    buried = store.key("turns", passed[1].turn_id[5:]).name
    here.passed = [
        store.key("turns", passed[0].turn_id[5:]),
        store.key("browsersessions", ticket.reveal()[:22]),
        Key("tombstones", buried),
        store.key("events", "evt-of-nobody"),
    ]
    here.left_open = await broker.oauth(late).get_access_token("notes")
    orphan = AgentEvent.about("as-x", "auth.granted", late.resume_target, {}, here.process.clock.now())
    await Repository(store).events.keep(replace(orphan, id="evt-of-nobody"))


async def _now(here: World) -> None:
    broker = here.broker
    for who in PEOPLE:
        here.asked[who] = await here.ask(who, "notes")
        here.turns[who] = await broker.turns.begin(turn(who))
        _, here.keyed[who] = await broker.api_keys.create(PEOPLE[who][0], ["runtime"])
        here.tickets[who], _ = await here.parts.browser_sessions.invite({"user": who})
        await broker.secrets.put(who, "value", Secret(here.idp.canaries.mint("client secret").reveal()))
        await here.connect(who, "files")
        await here.ask(who, "files")
        await here.parts.repository.clients.add(client_of(who))
        await _noted(here, who)
        await _ended_and_put_back(here, who)
    await here.parts.uses.write(everything=True)
    here.idp.script.revoke.answer(503)
    assert await broker.revoke("mail", subject=BOB)


def client_of(who: str) -> RegisteredClient:
    """A client at an MCP server, of an app that is named like a user."""
    return RegisteredClient(
        app=who,
        url="https://mcp.example",
        issuer="https://id.example",
        redirect_uri=f"{BASE}/x",
        looked_at=LONG_AGO,
        client_id="c",
    )


async def _noted(here: World, who: str) -> None:
    await here.notes.change(who, lambda _: [who], subjects=list)


async def _ended_and_put_back(here: World, who: str) -> None:
    """A turn that was ended, whose record came back with an older copy of the store."""
    begun = here.turns[f"ended {who}"] = await here.broker.turns.begin(turn(who))
    file = here.file(here.process.store.key("turns", begun.turn_id[5:]))
    copy = file.read_bytes()
    assert await here.broker.turns.end(begun.turn_id)
    file.write_bytes(copy)
    file.chmod(0o600)


# damage: to a file, or to its sealed text

Damage = Callable[[World, Key, Key], Awaitable[None]]


def _bytes(change: Callable[[bytes], bytes]) -> Damage:
    async def damage(here: World, key: Key, _: Key) -> None:
        path = here.file(key)
        path.write_bytes(change(path.read_bytes()))

    return damage


async def neighbours(here: World, key: Key, other: Key) -> None:
    shutil.copyfile(here.file(other), here.file(key))


async def another_kinds(here: World, key: Key, _: Key) -> None:
    kind = "grants" if key.kind != "grants" else "sessions"
    shutil.copyfile(here.file(here.keys[kind][1]), here.file(key))


async def newer(here: World, key: Key, _: Key) -> None:
    """As a later version of this program may write it."""
    store = here.process.store
    entry = await store.get(key)
    assert entry is not None
    body = entry.body.replace(b'"schema":1', b'"schema":2')
    assert body != entry.body
    await store.put(key, body, expect=entry.generation)


async def a_folder(here: World, key: Key, _: Key) -> None:
    here.file(key).unlink()
    here.file(key).mkdir(mode=0o700)


async def a_link(here: World, key: Key, other: Key) -> None:
    here.file(key).unlink()
    here.file(key).symlink_to(here.file(other))


FILES: dict[str, Damage] = {
    "empty": _bytes(lambda _: b""),
    "cut": _bytes(lambda whole: whole[: len(whole) // 2]),
    "a flipped bit": _bytes(lambda whole: whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:]),
    "a neighbour's bytes": neighbours,
    "another kind's bytes": another_kinds,
    "an unknown key": _bytes(lambda whole: whole[:5] + bytes(16) + whole[21:]),
}
PLANTED: dict[str, Damage] = {"a folder": a_folder, "a link": a_link}
DAMAGE = {**FILES, "a newer version": newer, **PLANTED}


async def damaged(here: World, kind: str, form: str) -> None:
    hers, his = here.keys[kind]
    await asyncio.sleep(0.03)  # until the store believes a file's times
    await DAMAGE[form](here, hers, his)


# all that a broker does


def operations(here: World) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Calls and background work on ALICE's records, in an order that reads each of them."""
    broker, parts, repository = here.broker, here.parts, Repository(here.process.store)
    tombstones = parts.repository.tombstones
    assert tombstones is not None
    session, ended = here.asked[ALICE].auth_session_id, here.turns[f"ended {ALICE}"]
    limits = Limits()
    age = StoreAge(store=here.process.store, store_id="", data=Path("nowhere"), clock=parts.clock)
    look = Inspection(
        repository=repository, age=age, keys=broker.api_keys, kinds=KINDS, clock=parts.clock, limits=limits
    )

    async def listed() -> list[Any]:
        return [*[it async for it in broker.grants.list()], *await broker.sessions.list()]

    async def looked() -> list[Any]:
        return [it async for it in look.grants()]

    async def visited() -> Any:
        arrival = await broker.connections.open(here.tickets[ALICE].reveal())
        return await broker.connections.overview(arrival.browser_session)

    async def refreshed() -> Any:
        here.advance(3600)
        return await here.ask(ALICE, "files")

    async def called_back() -> None:
        browser = here.process.browser()
        page = await leave(browser, here.asked[ALICE].authorization_url)
        if page.next_url is not None:
            await visit_callback(browser, await here.idp.agree(page.next_url, "alice", browser=browser))

    async def learnt() -> None:
        if await parts.repository.clients.get(ALICE) is None:
            await parts.repository.clients.replace(client_of(ALICE))

    async def noted() -> list[Any]:
        return [it async for it in here.notes.all()]

    return {
        "token call": lambda: here.ask(ALICE, "files"),
        "connect": lambda: here.ask(ALICE, "notes"),
        "pending": lambda: broker.pending(turn(ALICE, instance="notes")),
        "wait": lambda: broker.wait(session, timeout=0),
        "callback": called_back,
        "turn token": lambda: broker.turns.admit(here.turns[ALICE].token.reveal()),
        "an ended turn's token": lambda: broker.turns.admit(ended.token.reveal()),
        "turn begun": lambda: broker.turns.begin(turn(ALICE)),
        "API key": lambda: broker.api_keys.check(here.keyed[ALICE].reveal()),
        "API keys": broker.api_keys.list,
        "visit": visited,
        "secrets": broker.secrets.names,
        "secret": lambda: broker.secrets.put(ALICE, "value", here.idp.canaries.mint("client secret")),
        "lists": listed,
        "plug-in value": lambda: here.notes.change(ALICE, lambda there: there),
        "plug-in values": noted,
        "client at a server": learnt,
        "a page": lambda: broker.grants.page(GrantFilter(), 10),
        "queues": broker.dead_letters.states,
        "dead letters": broker.dead_letters.dead,
        "doctor's grants": looked,
        "doctor's sessions": look.sessions,
        "doctor's queues": look.depth,
        "doctor's due": look.repository.due,
        "doctor's secrets": look.repository.secrets.all,
        "relay": parts.relay.once,
        "consumer": here.process.drain,
        "tidying": parts.queues.tidy,
        "sweep": parts.sweep.once,
        "sweep of turns": broker.turns.sweep,
        "sweep of visits": here.parts.browser_sessions.sweep,
        "uses": lambda: here.parts.uses.write(everything=True),
        "sweep of tombstones": lambda: tombstones.sweep(parts.clock),
        "markers": parts.background_refresh.repair,
        "refreshes left open": parts.background_refresh.recover,
        "refresh": refreshed,
        "refreshes ahead": parts.background_refresh.ahead,
        "facts left open": parts.late_facts.run_pass,
        "turn ended": lambda: broker.turns.end(here.turns[ALICE].turn_id),
        "turn ended again": lambda: broker.turns.end(ended.turn_id),
        "API key removed": lambda: broker.api_keys.remove(f"key-{here.keyed[ALICE].reveal().split('.')[1]}"),
        "cancelled": lambda: broker.cancel(session),
        "revoked": lambda: broker.revoke("files", subject=ALICE),
        "revocations": parts.bulk_revocation.run_pass,
        "relay at the end": parts.relay.once,
        "erased": lambda: broker.erase(ALICE),
    }
