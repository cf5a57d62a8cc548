"""What goes wrong only at a second look: two people at once, an app that was changed, a provider that says no."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import Turn, TurnAuth
from oauthbroker.apps import Client, Habits, IdentityRule, OAuthApp, Owner
from oauthbroker.audit import GrantRevoked, TokenIssued
from oauthbroker.audit.file import AuditFile
from oauthbroker.binding import OwnerFacts, check_pin, judge_owner
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.finish import Finish
from oauthbroker.flows.revoke import ASK_AGAIN, KEEP_TELLING, Revoke
from oauthbroker.queues import Delivery, Queues
from oauthbroker.repository import KINDS, LEASES, Conflict
from oauthbroker.results import AuthorizationRequired, Failed, Ready
from oauthbroker.settings import Limits
from oauthbroker.store.memory import MemoryStore
from oauthbroker.subject import resolve_subject
from oauthbroker.testing import Canaries, IdentityProvider, TestClock, leave
from oauthbroker.testing.provider import FOREVER
from tests.audit_kit import KEYS, active
from tests.faults.broker_kit import Process
from tests.house import ALICE, House, file_store, running, turn, user_app
from tests.nouns import app_with
from tests.story.test_callback import assert_says
from tests.story.test_recovery import ask, comes_back, granted

AUDITED = TokenIssued("mail", "sha256:00", "planner", None)


@pytest.fixture
async def process(identity_provider: IdentityProvider) -> AsyncIterator[Process]:
    """A broker in memory whose relay and sweeper run when the test says so, at the provider's time."""
    store: Any = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=identity_provider.clock)
    clock: Any = identity_provider.clock
    process = Process.on(store, [user_app(identity_provider), user_app(identity_provider, "files")], clock)
    yield process
    await process.die()


def direct(app: OAuthApp) -> OAuthApp:
    return replace(app, redirect=replace(app.redirect, link="direct"))


async def links(house: House) -> list[str]:
    block = await house.broker.pending(turn())
    return [] if block is None else [item["authSessionId"] for item in block["items"]]


# asking again while somebody is on the way


@pytest.mark.parametrize("link", ["connect", "direct"])
async def test_asking_again_leaves_a_session_in_mid_exchange_alone(identity_provider, test_clock, link):
    app = user_app(identity_provider)
    async with running(identity_provider, [direct(app) if link == "direct" else app], clock=test_clock) as house:
        asked = await house.ask_link()
        person, hold = house.browser(), identity_provider.script.token.hang()
        if link == "direct":
            way_back = await identity_provider.agree(asked.authorization_url, "alice", browser=person)
        else:
            way_back = await house.way_back(asked, person)
        returning = asyncio.create_task(person.open(way_back))
        await hold.arrived()
        again = await house.ask_link()
        assert again.auth_session_id != asked.auth_session_id
        assert [again.auth_session_id] == await links(house), "a link that somebody is redeeming leads nowhere"
        hold.release()
        assert 303 == (await returning).status
        assert "completed" == (await house.session(asked)).status
        assert isinstance(await house.ask(), Ready)
        assert 0 == identity_provider.count("revoke")
        assert sorted(granted(asked, again)) == sorted(event["eventId"] for event in await house.events(count=2))
        assert [] == await links(house)


async def test_a_button_pressed_while_its_link_is_superseded_wins(house: House, monkeypatch: pytest.MonkeyPatch):
    """The browser comes between the reading of the waiting list and the end of the old session."""
    first = await house.ask_link()
    house.clock.advance(400)  # no longer fresh enough to be given out again
    lapse, person, urls = Finish.lapse_locked, house.browser(), list[str]()

    async def after_the_button(self: Finish, held: Any, **more: Any) -> bool:
        if not urls:
            urls.append(await house.to_provider(first, person))
        return await lapse(self, held, **more)

    monkeypatch.setattr(Finish, "lapse_locked", after_the_button)
    second = await house.ask_link()
    assert 1 == len(urls)
    assert second.auth_session_id != first.auth_session_id
    assert [first.auth_session_id, second.auth_session_id] == await links(house)
    back = await house.idp.agree(urls[0], "alice", browser=person)
    assert 303 == (await person.follow(back)).status
    assert "completed" == (await house.session(first)).status == (await house.session(second)).status


async def test_a_link_that_somebody_followed_is_not_superseded(house: House):
    """Asking again must not cut off the person who is just signing in."""
    first, person = await house.ask_link(), house.browser()
    provider_url = await house.to_provider(first, person)
    house.clock.advance(400)
    second = await house.ask_link()
    assert [first.auth_session_id, second.auth_session_id] == await links(house)
    back = await house.idp.agree(provider_url, "alice", browser=person)
    assert 303 == (await person.follow(back)).status
    assert "completed" == (await house.session(second)).status


async def test_a_waiting_list_that_is_empty_leaves_nothing_behind(house: House):
    await house.connected()
    assert 0 == await house.store.count("waiting")
    asked = await house.ask_link("files")
    assert 1 == await house.store.count("waiting")
    assert await house.broker.cancel(asked.auth_session_id)
    assert 0 == await house.store.count("waiting")
    assert isinstance(await house.ask("files"), AuthorizationRequired)


async def test_a_link_that_nobody_followed_is_superseded(house: House):
    first = await house.ask_link()
    house.clock.advance(400)
    second = await house.ask_link()
    assert [second.auth_session_id] == await links(house)
    assert "expired" == (await house.session(first)).status


# two links, one grant


@pytest.mark.case("44")
async def test_of_two_links_that_were_open_together_the_second_takes_nothing_away(house: House):
    """Both were opened when there was no grant. The page says what the provider will be asked for."""
    one, other = turn(instance="one"), turn(instance="other")
    read, write = await house.ask_link(scopes=["read"], of=one), await house.ask_link(scopes=["write"], of=other)
    alice = house.browser()
    page = await alice.open(write.authorization_url)
    assert ["write"] == [name for name in ("read", "write") if name in page.text]
    await house.connect(read, browser=alice)
    assert ("read",) == (await granted_to(house)).scopes
    page = await alice.open(write.authorization_url)
    assert ["read", "write"] == [name for name in ("read", "write") if name in page.text]
    await house.connect(write, browser=alice)
    assert ["openid", "read", "write"] == last_asked_for(house)
    assert ("read", "write") == (await granted_to(house)).scopes
    for of, scope in ((one, "read"), (other, "write")):
        assert isinstance(await house.ask(scopes=[scope], of=of), Ready)


async def granted_to(house: House) -> Any:
    grant = await house.grant()
    assert grant is not None
    return grant


def last_asked_for(house: House) -> list[str]:
    scope = house.idp.seen("authorize")[-1].form["scope"]
    assert isinstance(scope, str)
    return sorted(scope.split())


@pytest.mark.parametrize("why", ["revoked", "another account"])
async def test_scopes_of_a_grant_that_is_no_longer_wanted_are_not_asked_for(house: House, why: str):
    other = turn(instance="other")
    if why == "revoked":
        write = await house.ask_link(scopes=["write"], of=other)
    else:
        write = await house.ask("mail", ["write"], other, switch_account=True)
    await house.connected(scopes=["read"])
    if why == "revoked":
        assert await house.broker.revoke("mail", subject=ALICE)
    await house.connect(write)
    assert ["openid", "write"] == last_asked_for(house)
    assert ("write",) == (await granted_to(house)).scopes


# revocations that are refused


@pytest.mark.rule("12.5.4")
async def test_a_refused_revocation_is_told_again_once_the_operator_mended_it(process, identity_provider):
    """401: most likely our own secret is wrong. The tokens must not be forgotten while they live over there."""
    assert 200 == await comes_back(process, identity_provider, await ask(process))
    identity_provider.script.revoke.answer(401, {"error": "invalid_client"})
    assert "refused" == await process.broker.grants.revoke("mail", ALICE)
    grant = await process.grant("mail", ALICE)
    assert grant is not None
    assert grant.token is not None
    assert (True, "pending", 1) == (grant.revoked, grant.revocation, identity_provider.living_tokens("client-mail"))
    assert isinstance(await ask(process), AuthorizationRequired), "it serves nobody meanwhile"
    await process.house.relay.once()
    assert 1 == await process.store.count("due")
    asked = identity_provider.count("revoke")
    await process.house.relay.revocations()
    assert asked == identity_provider.count("revoke"), "a refusal is not asked about again at every round"
    process.clock.advance(ASK_AGAIN.total_seconds())
    await process.house.relay.revocations()
    grant = await process.grant("mail", ALICE)
    assert grant is not None
    assert (None, "done", 0) == (grant.token, grant.revocation, identity_provider.living_tokens("client-mail"))
    assert ["failed", "done"] == told(process)


def told(process: Process) -> list[str]:
    entries: Any = process.broker.audit
    return [entry.provider for entry in entries.entries if isinstance(entry, GrantRevoked)]


@pytest.mark.rule("12.5.4")
async def test_tokens_whose_revocation_is_refused_for_a_week_are_erased(process, identity_provider):
    assert timedelta(days=7) == KEEP_TELLING
    assert 200 == await comes_back(process, identity_provider, await ask(process))
    identity_provider.script.revoke.answer(401, {"error": "invalid_client"}, times=FOREVER)
    assert "refused" == await process.broker.grants.revoke("mail", ALICE)
    process.clock.advance(KEEP_TELLING.total_seconds() - 1)
    await process.house.relay.once()  # writes the tombstone anew without its event: the week does not begin again
    await process.house.relay.revocations()
    grant = await process.grant("mail", ALICE)
    assert grant is not None
    assert grant.token is not None
    process.clock.advance(ASK_AGAIN.total_seconds())
    await process.house.relay.revocations()
    grant = await process.grant("mail", ALICE)
    assert grant is not None
    assert (None, "refused") == (grant.token, grant.revocation)
    assert ["failed", "failed", "failed", "refused"] == told(process)


async def test_a_revocation_that_meets_another_process_does_not_end_the_round(process, identity_provider, monkeypatch):
    for app in ("mail", "files"):
        assert 200 == await comes_back(process, identity_provider, await ask(process, app))
    identity_provider.script.revoke.answer(503, times=2)
    for app in ("mail", "files"):
        assert await process.broker.revoke(app, subject=ALICE)
    resume, met = Revoke.resume, list[str]()

    async def once(self: Any, app: Any, seen: Any, **more: Any) -> Any:
        if not met:
            met.append(seen.record.app)
            raise Conflict
        return await resume(self, app, seen, **more)

    monkeypatch.setattr(Revoke, "resume", once)
    await process.house.relay.revocations()
    assert ["mail"] == met
    assert [1, 0] == [identity_provider.living_tokens(f"client-{app}") for app in ("mail", "files")]


async def test_a_silent_provider_holds_up_no_sessions_end(identity_provider: IdentityProvider, test_clock: TestClock):
    apps = [user_app(identity_provider), user_app(identity_provider, "files")]
    limits = Limits(sweep_seconds=0.02)
    async with running(identity_provider, apps, clock=test_clock, limits=limits) as house:
        await house.connected()
        identity_provider.script.revoke.answer(503)
        hold = identity_provider.script.revoke.hang(times=FOREVER)
        assert "later" == await house.broker.grants.revoke("mail", ALICE)
        await hold.arrived()  # from here on somebody waits for the provider
        asked = await house.ask_link("files")
        test_clock.advance(601)
        async with asyncio.timeout(3):
            while (await house.session(asked)).open:
                await asyncio.sleep(0.01)
        assert "expired" == (await house.session(asked)).status
        hold.release()


# apps that were changed


@asynccontextmanager
async def two_providers(clock: TestClock, canaries: Canaries) -> AsyncIterator[list[IdentityProvider]]:
    with (
        IdentityProvider(clock=clock, canaries=canaries) as one,
        IdentityProvider(clock=clock, canaries=canaries) as two,
    ):
        yield [one, two]


async def test_an_app_that_points_elsewhere_now_asks_again_and_the_old_tokens_stay_here(
    test_clock: TestClock, canaries: Canaries, tmp_path: Path
):
    """Neither are they handed out as if they were the new provider's, nor shown to it; nor is its account refused."""
    async with two_providers(test_clock, canaries) as (one, two):
        async with running(one, [user_app(one)], clock=test_clock, store=file_store(tmp_path, test_clock)) as house:
            old = await house.connected()
        async with running(two, [user_app(two)], clock=test_clock, store=file_store(tmp_path, test_clock)) as house:
            asked = await house.ask_link()
            assert "noGrant" == asked.reason
            assert 200 == (await house.connect(asked)).status
            new = await house.ask()
            assert isinstance(new, Ready)
            assert two.is_alive(new.access_token)
            grant = await house.grant()
            assert grant is not None
            assert grant.account is not None
            assert two.endpoints["issuer"] == grant.account[0]
            assert "done" == await house.broker.grants.revoke("mail", ALICE)
        assert [] == [seen for seen in two.requests if old.access_token.reveal() in repr(texts(seen.fields))]
        assert one.is_alive(old.access_token)


def texts(fields: tuple[tuple[str, Any], ...]) -> list[str]:
    return [getattr(value, "reveal", lambda value=value: value)() for _, value in fields]


async def test_revoking_never_shows_a_provider_the_tokens_of_another_one(
    test_clock: TestClock, canaries: Canaries, tmp_path: Path
):
    async with two_providers(test_clock, canaries) as (one, two):
        async with running(one, [user_app(one)], clock=test_clock, store=file_store(tmp_path, test_clock)) as house:
            old = await house.connected()
        async with running(two, [user_app(two)], clock=test_clock, store=file_store(tmp_path, test_clock)) as house:
            assert "later" == await house.broker.grants.revoke("mail", ALICE)
            grant = await house.grant()
            assert grant is not None
            assert (True, True) == (grant.revoked, grant.to_be_told)
            assert isinstance(await house.ask(), AuthorizationRequired)
        assert [] == two.requests
        assert one.is_alive(old.access_token)


async def test_a_grant_of_another_registration_leaves_nothing_in_the_next_but_the_events_it_owed(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
):
    """The same provider and person, another client: the refresh token would be nobody's, the scopes not agreed to."""
    app, store = user_app(identity_provider), file_store(tmp_path, test_clock)
    async with running(identity_provider, [app], clock=test_clock, store=store, background=False) as house:
        old = await house.ask_link(scopes=["read"])
        assert 200 == (await house.connect(old)).status
    other = replace(user_app(identity_provider, "other", redirect=app.redirect), name="mail")
    identity_provider.change("client-other", redirect_uris=(app.redirect.uri,), issue_refresh=False)
    store = file_store(tmp_path, test_clock)
    async with running(identity_provider, [other], clock=test_clock, store=store, background=False) as house:
        new = await house.ask_link(scopes=["write"])
        assert "noGrant" == new.reason
        assert 200 == (await house.connect(new)).status
        assert ["openid", "write"] == last_asked_for(house)
        grant = await granted_to(house)
        assert (("write",), None) == (grant.scopes, grant.token.refresh_token)
        assert granted(old, new) == [event.id for event in grant.outbox]


async def test_an_app_whose_other_facts_change_keeps_its_grants(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
):
    app = user_app(identity_provider)
    async with running(identity_provider, [app], clock=test_clock, store=file_store(tmp_path, test_clock)) as house:
        before = await house.connected(scopes=["read"])
    changed = replace(app, title="Post", scopes=("read", "write"), redirect=replace(app.redirect, link="direct"))
    changed = replace(changed, client=Client(app.client.client_id, app.client.client_secret, "client_secret_post"))
    async with running(identity_provider, [changed], clock=test_clock, store=file_store(tmp_path, test_clock)) as house:
        after = await house.ask(scopes=["read"])
        assert isinstance(after, Ready)
        assert before.access_token.reveal() == after.access_token.reveal()


# whose account it is


@pytest.mark.case("40")
@pytest.mark.parametrize("binding", ["runtimeConfirm", "brokerLogin"])
async def test_a_binding_that_nothing_carries_out_vouches_for_nobody(identity_provider, test_clock, binding):
    """The loader refuses such an app; one that was built in code must fare no better."""
    app = user_app(identity_provider, owner=Owner(binding=binding))
    async with running(identity_provider, [app], clock=test_clock) as house:
        asked = await house.ask_link(of=turn(user="idp:user:ANYBODY"))
        assert_says(await leave(house.browser(), asked.authorization_url), Code.APP_MISCONFIGURED)
        assert 0 == house.idp.count("authorize")
        assert await house.grant(subject="idp:user:ANYBODY") is None
        assert 0 == await house.store.count("grants")


def of_user_info(idp: IdentityProvider) -> OAuthApp:
    """Whose account it is comes from userinfo, and an ID token only if somebody wants the scope `openid`."""
    owner = Owner(user_identity=IdentityRule("userInfo", "idp:user:{sub}"))
    return user_app(idp, scopes=("read", "openid"), owner=owner, habits=Habits())


@pytest.mark.case("41")
@pytest.mark.parametrize("first, then", [("read", "openid"), ("openid", "read")])
async def test_the_pinned_account_does_not_depend_on_the_scopes_of_one_login(
    identity_provider, test_clock, first, then
):
    async with running(identity_provider, [of_user_info(identity_provider)], clock=test_clock) as house:
        await house.connected(scopes=[first])
        pinned = (await granted_to(house)).account
        assert pinned is not None
        stepping = await house.ask_link(scopes=[then])
        assert_says(await house.connect(stepping, "bob"), Code.SUBJECT_MISMATCH)
        assert (first,) == (await granted_to(house)).scopes
        assert 200 == (await house.connect(await house.ask_link(scopes=[then]))).status
        grant = await granted_to(house)
        assert (("read", "openid"), pinned) == (grant.scopes, grant.account)


@pytest.mark.case("41")
def test_with_and_without_an_id_token_the_same_person_is_the_same_and_another_is_not():
    app = app_with(owner=Owner(user_identity=IdentityRule("userInfo", "{sub}")))
    plain = judge_owner(app, "1", OwnerFacts(user_identity="1")).account
    verified = judge_owner(app, "1", OwnerFacts(user_identity="1", account=("https://acme.example", "1"))).account
    other = judge_owner(app, "2", OwnerFacts(user_identity="2", account=("https://acme.example", "2"))).account
    for pinned, came in ((plain, verified), (verified, plain)):
        check_pin(pinned, came, switch_account=False)
    for pinned in (plain, verified):
        with pytest.raises(BrokerError) as told:
            check_pin(pinned, other, switch_account=False)
        assert Code.SUBJECT_MISMATCH is told.value.code


@pytest.mark.case("37")
@pytest.mark.parametrize("subjects", [None, 5, "idp:user:U234567", ["user"], ()], ids=repr)
async def test_a_turn_whose_subjects_are_no_mapping_has_no_subject(house: House, subjects: Any):
    of = Turn("planner", "1", "Swarm/default", {}, TurnAuth(subjects=subjects))
    with pytest.raises(BrokerError) as told:
        resolve_subject(house.broker.bundle.apps["mail"], of)
    assert (Code.SUBJECT_UNAVAILABLE, {"mode": "user"}) == (told.value.code, told.value.words)
    answer = await house.ask(of=of)
    assert isinstance(answer, Failed)
    assert Code.REQUEST_INVALID is answer.code
    assert await house.broker.pending(of) is None


# consumers, and the audit log's end


async def test_a_consumer_goes_on_after_it_met_another_process(house: House, monkeypatch: pytest.MonkeyPatch):
    lease, heard, met, done = Queues.lease, list[str](), list[str](), asyncio.Event()

    async def once(self: Queues, agent: str) -> Delivery | None:
        if not met:
            met.append(agent)
            raise Conflict
        return await lease(self, agent)

    async def hear(delivery: Delivery) -> None:
        heard.append(delivery.id)
        done.set()

    monkeypatch.setattr(Queues, "lease", once)
    async with house.broker.on_granted("planner", hear):
        asked = await house.ask_link()
        assert 200 == (await house.connect(asked)).status
        async with asyncio.timeout(5):
            await done.wait()
    assert ["planner"] == met
    assert granted(asked) == heard


def test_an_audit_log_that_was_closed_writes_nowhere(tmp_path: Path, test_clock: TestClock):
    """Not even into the file that got its number since."""
    log, victim = AuditFile(tmp_path, KEYS), tmp_path / "victim"
    log.write(AUDITED, test_clock.now())
    before = active(tmp_path).read_bytes()
    number = log._descriptor
    log.close()
    descriptor = os.open(victim, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        assert number == descriptor
        with pytest.raises(BrokerError) as told:
            log.write(AUDITED, test_clock.now())
        log.close()
        os.write(descriptor, b"its own")
    finally:
        os.close(descriptor)
    assert Code.STORE_UNAVAILABLE is told.value.code
    assert (before, b"its own") == (active(tmp_path).read_bytes(), victim.read_bytes())
