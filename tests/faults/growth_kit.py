"""A broker that leaves one of everything behind, time that passes, and a count of all that it keeps then."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from types import FunctionType, MethodType
from typing import Any

from oauthbroker import AuthorizationRequired, Ready
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Owner
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.connect_links import locator_of
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_results import TokenResult
from oauthbroker.plugin_services.plugin_state import PluginState
from oauthbroker.records.refresh_state import Intent
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.testing import Browser, IdentityProvider, TestClock, leave
from oauthbroker.testing.provider import FOREVER
from oauthbroker.testing.provider.types import Account
from oauthbroker.testing.stores import open_file_store
from oauthbroker.wiring.running import Running
from tests.kit.broker_process import visit_callback
from tests.kit.running_broker import BASE, TEAM, device_app, mcp_app, turn, user_app
from tests.kit.running_on import HasRunning, running_on
from tests.story.binding_kit import RUNTIME, settings_for

HOURS = (*[0.1] * 20, *[1.0] * 10, *[12.0] * 50)
"""How long it is from one round of the background to the next: at first they are close together."""


@dataclass
class Kept(HasRunning):
    """One broker on files, and a provider by the same clock: it dates its tokens."""

    idp: IdentityProvider
    clock: TestClock
    store: FileStore
    running: Running
    folder: Path
    bundle: Bundle

    @classmethod
    def begin(cls, idp: IdentityProvider, clock: TestClock, folder: Path) -> Kept:
        store = open_file_store(folder, clock=clock)
        bundle = Bundle(settings_for(), {app.name: app for app in apps_of(idp)})
        kept = cls(idp, clock, store, running_on(store, bundle, clock), folder, bundle)
        assert kept.broker.asgi.app is not None, "its parts are built for the first who reads it"
        return kept

    def browser(self) -> Browser:
        return Browser(apps={BASE: self.broker.asgi.app})

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def ask(self, app: str, number: int, **more: Any) -> TokenResult:
        return await self.broker.oauth(turn(person(number), TEAM, instance=f"thread {number}")).get_access_token(
            app, **more
        )

    async def connect(self, app: str, number: int) -> Ready:
        asked = await self.ask(app, number)
        assert isinstance(asked, AuthorizationRequired), asked
        browser = self.browser()
        page = await leave(browser, asked.authorization_url)
        assert page.next_url is not None
        await visit_callback(browser, await self.idp.agree(page.next_url, f"p{number}", browser=browser))
        ready = await self.ask(app, number)
        assert isinstance(ready, Ready), ready
        return ready

    async def tend(self) -> None:
        """One round of everything that the background does."""
        running, parts = self.running, self.parts
        await running._tend()
        await parts.queues.tidy()
        for work in (parts.bulk_revocation.run_pass, parts.background_refresh.recover, parts.background_refresh.ahead,
                     parts.background_refresh.repair, parts.polling.once, parts.relay.once):  # fmt: skip
            await running._try("", work)

    async def close(self) -> None:
        await self.running.close()
        await self.store.close()


def person(number: int) -> str:
    return f"idp:user:P{number}"


def apps_of(idp: IdentityProvider) -> list[App]:
    for number in range(20):
        idp.add_account(Account(f"p{number}", f"P{number}", "T111", number=2000 + number))
    apps = [
        user_app(idp),
        user_app(idp, "gone"),
        user_app(idp, "no"),
        device_app(idp),
        user_app(idp, "robot", flow="clientCredentials", subject_mode="global", owner=Owner()),
        user_app(idp, "asked", owner=Owner(binding="runtimeConfirm", confirm_url=RUNTIME)),
        user_app(idp, "said", owner=Owner(binding="channelCode")),
    ]
    for app in apps:
        idp.change(app.client.client_id, device_interval=5, device_lifetime=300)
    return [*apps, mcp_app(idp, "server")]


Act = Callable[[Kept], Awaitable[object]]
ACTS: list[Act] = []


def act(what: Act) -> Act:
    ACTS.append(what)
    return what


@act
async def a_link_that_nobody_opens(kept: Kept) -> None:
    await kept.ask("mail", 1)


@act
async def a_browser_at_the_provider(kept: Kept) -> None:
    asked = await kept.ask("mail", 2)
    assert isinstance(asked, AuthorizationRequired)
    await leave(kept.browser(), asked.authorization_url)


async def pending_code(kept: Kept, app: str, number: int) -> None:
    asked, browser = await kept.ask(app, number), kept.browser()
    assert isinstance(asked, AuthorizationRequired)
    page = await leave(browser, asked.authorization_url)
    assert page.next_url is not None
    page = await browser.follow(await kept.idp.agree(page.next_url, f"p{number}", browser=browser))
    while page.location is not None and page.location.startswith(BASE):
        page = await browser.follow()


@act
async def a_client_at_an_mcp_server(kept: Kept) -> None:
    await kept.ask("server", 1)


@act
async def a_pending_code(kept: Kept) -> None:
    await pending_code(kept, "asked", 3)


@act
async def a_pending_channel_code(kept: Kept) -> None:
    await pending_code(kept, "said", 4)


@act
async def a_device_code(kept: Kept) -> None:
    await kept.ask("tv", 5)
    kept.pass_time(6)
    await kept.parts.polling.once()


@act
async def a_device_code_without_an_answer(kept: Kept) -> None:
    await kept.ask("tv", 6)
    kept.idp.script.poll.refuse("temporarily_unavailable", 503, times=FOREVER)
    kept.pass_time(6)
    await kept.parts.polling.once()


@act
async def a_claim_of_a_dead_process(kept: Kept) -> None:
    asked = await kept.ask("mail", 7)
    assert isinstance(asked, AuthorizationRequired)
    versioned = await kept.parts.repository.session(locator_of(asked.auth_session_id))
    assert versioned is not None
    claimed = versioned.record.claimed("who died", kept.clock.now() + timedelta(seconds=60))
    await kept.parts.repository.save_session(claimed, expect=versioned.generation)


@act
async def a_session_that_has_ended(kept: Kept) -> None:
    asked = await kept.ask("mail", 8)
    assert isinstance(asked, AuthorizationRequired)
    await kept.broker.cancel(asked.auth_session_id)


@act
async def a_grant_in_use(kept: Kept) -> None:
    await kept.connect("mail", 9)


@act
async def an_intent_of_a_dead_process(kept: Kept) -> None:
    await kept.connect("mail", 10)
    versioned = await kept.parts.repository.grant(GrantKey("mail", person(10)))
    assert versioned is not None
    state = replace(versioned.record.refresh_state, intent=Intent("who died", kept.clock.now()))
    await kept.parts.repository.save_grant(replace(versioned.record, refresh_state=state), expect=versioned.generation)


@act
async def a_refused_revocation(kept: Kept) -> None:
    await kept.connect("no", 11)
    kept.idp.script.revoke.answer(401, {"error": "invalid_client"}, times=FOREVER)
    await kept.broker.grants.revoke("no", person(11))


@act
async def a_revocation_of_an_app_that_is_gone(kept: Kept) -> None:
    await kept.connect("gone", 12)
    without = {name: app for name, app in kept.bundle.apps.items() if name != "gone"}
    await kept.broker.reload(replace(kept.bundle, apps=without))
    await kept.broker.grants.revoke("gone", person(12))


@act
async def rejected_tokens(kept: Kept) -> None:
    ready: Any = await kept.connect("mail", 13)
    for _ in range(12):
        if not isinstance(ready, Ready):
            break
        ready = await kept.broker.oauth(turn(person(13), TEAM)).report_rejected("mail", ready.access_token)


@act
async def turns(kept: Kept) -> None:
    await kept.broker.turns.begin(turn())
    ended = await kept.broker.turns.begin(turn())
    await kept.broker.turns.admit(ended.token.reveal())
    await kept.broker.turns.end(ended.turn_id)


@act
async def api_keys(kept: Kept) -> None:
    await kept.broker.api_keys.create("a", ["operator"], lives_seconds=3600)
    await kept.broker.api_keys.create("b", ["operator"], lives_seconds=3600)
    await kept.broker.api_keys.rotate("b", overlap_seconds=60)
    key, _ = await kept.broker.api_keys.create("c", ["operator"], lives_seconds=3600)
    await kept.broker.api_keys.remove(key.id)


@act
async def browser_sessions(kept: Kept) -> None:
    sessions = kept.parts.browser_sessions
    await sessions.invite({"user": person(1)})
    ticket, _ = await sessions.invite({"user": person(1)})
    await sessions.open(ticket.reveal())
    await sessions.enter("an operator", "")
    ended = await sessions.enter("an operator", "")
    await sessions.end(ended.browser_session)


@act
async def events(kept: Kept) -> None:
    for number in range(4):
        await kept.broker.events.enqueue("writer", "tool.completed", {"step": number}, turn=turn(instance=f"{number}"))
    leased = await kept.broker.events.lease("writer")
    assert leased is not None
    other = await kept.broker.events.lease("writer")
    assert other is not None
    await other.nack()
    third = await kept.broker.events.lease("writer")
    assert third is not None
    await third.ack()


@act
async def a_secret(kept: Kept) -> None:
    await kept.broker.secrets.put("s", "k", Secret("a value of no account"))


@act
async def values_of_a_reservation(kept: Kept) -> None:
    state = PluginState(kept.parts.repository.plugin_values, "library")
    await state.change("count", lambda there: (there or 0) + 1)
    await state.change("loan", lambda _: 1)
    await state.change("loan", lambda _: None)


@act
async def failed_sign_ins(kept: Kept) -> None:
    browser = kept.browser()
    for path in ("/admin", "/connections", "/v1/turns", "/oauth/connect/nothing"):
        await browser.open(f"{BASE}{path}")


async def consume(kept: Kept) -> None:
    """A consumer that takes every event there is."""
    for agent in ("planner", "writer"):
        while (delivery := await kept.broker.events.lease(agent)) is not None:
            await delivery.ack()


def on_disk(kept: Kept) -> Counter[str]:
    """How many files lie in each folder of the store. Those of locks are drawn from a bounded set of names."""
    data = kept.folder / "store" / "data"
    found = (path.relative_to(data).parts for path in data.rglob("*") if path.is_file())
    return Counter(parts[0] for parts in found if len(parts) > 1 and parts[0] != "locks")


SIZED = (dict, list, set, deque, Bounded)


def in_memory(kept: Kept) -> Counter[str]:
    """The length of every collection that a part of the broker holds, by the class and member that hold it."""
    found, seen = Counter[str](), set[int]()
    waiting: list[tuple[str, object]] = [("", kept.running)]
    while waiting:
        place, each = waiting.pop()
        if id(each) in seen or isinstance(each, TestClock | AuditList | Bundle | type):
            continue
        seen.add(id(each))
        if isinstance(each, SIZED):
            found[place] += len(each)
            inner = [value for _, value in each.items()] if isinstance(each, Mapping | Bounded) else list(each)
            waiting += [(place, one) for one in inner]
        else:
            waiting += [(f"{type(each).__qualname__}.{name}", member) for name, member in members_of(each)]
    return found


def members_of(each: object) -> Iterator[tuple[str, object]]:
    """Yield what an object of ours, or one that may hold such an object, holds by name."""
    if isinstance(each, MethodType):
        yield "__self__", each.__self__
    elif isinstance(each, partial):
        yield from (("args", one) for one in (each.func, *each.args, *each.keywords.values()))
    elif isinstance(each, FunctionType):
        yield from (("closure", cell.cell_contents) for cell in each.__closure__ or ())
    elif type(each).__module__.partition(".")[0] in {"oauthbroker", "starlette"}:
        names = set(getattr(each, "__dict__", ()))
        for cls in type(each).__mro__:
            slots = cls.__dict__.get("__slots__", ())
            names.update([slots] if isinstance(slots, str) else slots)
        for name in sorted(names):
            with suppress(AttributeError):
                yield name, getattr(each, name)


async def everything(kept: Kept, dice: Random, steps: Mapping[int, timedelta]) -> None:
    """Every act, in an order of its own, with a round of the background now and then. `steps` of the clock come before
    the acts of these numbers, the last one after all acts."""
    acts = dice.sample(ACTS, len(ACTS))
    for number in range(len(acts) + 1):
        if dice.random() < 0.2:
            await kept.tend()
        kept.clock.set(kept.clock.now() + steps.get(number, timedelta()))
        if number < len(acts):
            await acts[number](kept)
            kept.pass_time(dice.uniform(0, 5))


async def four_weeks(kept: Kept) -> None:
    """Time passes, longer than anything is kept that ends by itself."""
    for hours in HOURS:
        kept.pass_time(hours * 3600)
        await kept.tend()
        await consume(kept)
