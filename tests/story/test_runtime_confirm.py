"""`owner.binding: runtimeConfirm`: the runtime's page says who is logged in, and only then the code is redeemed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from oauthbroker.audit import Connected, ConnectFailed, OwnerConfirmed
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.token_results import Ready, SessionOutcome
from oauthbroker.records.pending_code import PENDING_CODE_SECONDS
from oauthbroker.testing import IdentityProvider, TestClock, leave
from tests.kit.callback_pages import assert_error_page, assert_leads_to_connected
from tests.kit.running_broker import Harness, file_store, global_app, tree, turn
from tests.story.binding_kit import (
    ALICE,
    MALLORY,
    RUNTIME,
    came_back,
    confirming_app,
    confirming_harness,
    handle_on,
    of_alice,
    of_mallory,
)


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    async with confirming_harness(identity_provider, test_clock, "runtimeConfirm") as harness:
        yield harness


async def refused(harness: Harness, handle: str, subject: str = ALICE) -> Code:
    with pytest.raises(BrokerError) as caught:
        await harness.broker.confirm(handle, subject)
    return caught.value.code


async def test_the_code_is_redeemed_when_the_runtime_has_said_who_is_logged_in(harness: Harness) -> None:
    asked, person = await harness.ask_link(of=of_alice()), harness.browser()
    page = await came_back(harness, asked, person)
    handle = handle_on(page)
    assert 0 == harness.idp.count("token"), "pending: nothing is sent"
    assert SessionOutcome("pending") == await harness.broker.wait(asked.auth_session_id, timeout=0)
    outcome = await harness.broker.confirm(handle, ALICE)
    assert ("completed", asked.auth_session_id) == (outcome.status, outcome.auth_session_id)
    assert isinstance(await harness.ask(of=of_alice()), Ready)
    (event,) = await harness.events()
    assert ("auth.granted", ALICE) == (event["type"], event["payload"]["subject"])
    kinds = [type(entry) for entry in harness.audit.entries]
    assert kinds.index(OwnerConfirmed) < kinds.index(Connected)
    assert_leads_to_connected(await person.open(page.url))
    assert handle not in harness.log.getvalue()
    assert handle not in repr(harness.audit.lines)


async def test_the_browser_is_sent_to_the_runtimes_page_with_the_handle_alone_and_may_reload(harness: Harness) -> None:
    person = harness.browser()
    asked = await harness.ask_link(of=of_alice())
    page = await came_back(harness, asked, person)
    assert "code=" not in page.url
    assert "runtime.test" in page.text
    assert handle_on(page) == handle_on(await person.open(page.url)), "a reload shows the same"
    stranger = await harness.browser().open(page.url)
    assert_error_page(stranger, Code.STATE_UNKNOWN)


async def test_a_page_with_a_query_keeps_it(identity_provider: IdentityProvider, test_clock: TestClock) -> None:
    owner = Owner(binding="runtimeConfirm", confirm_url="https://runtime.test/oauth/confirm?app=mail")
    app = confirming_app(identity_provider, "runtimeConfirm", owner=owner)
    async with confirming_harness(identity_provider, test_clock, "runtimeConfirm", app=app) as harness:
        page = await came_back(harness, await harness.ask_link(of=of_alice()), harness.browser())
        assert page.next_url is not None
        assert page.next_url.startswith("https://runtime.test/oauth/confirm?app=mail&handle=")


async def test_without_a_confirmation_page_no_user_is_sent_off(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    app = confirming_app(identity_provider, "runtimeConfirm", owner=Owner(binding="runtimeConfirm"))
    async with confirming_harness(identity_provider, test_clock, "runtimeConfirm", app=app) as harness:
        page = await harness.browser().open((await harness.ask_link(of=of_alice())).authorization_url)
        assert 200 == page.status
        browser = harness.browsers[0]
        assert_error_page(await browser.submit(), Code.APP_MISCONFIGURED)


@pytest.mark.case("14b")
async def test_another_subject_is_the_end_before_the_code_was_sent_anywhere(harness: Harness) -> None:
    """Mallory's link, opened by Alice, who agrees: in her browser the runtime's page knows her."""
    asked, victim = await harness.ask_link(of=of_mallory()), harness.browser()
    handle = handle_on(page := await came_back(harness, asked, victim))
    assert Code.OWNER_BINDING_FAILED is await refused(harness, handle, ALICE)
    assert 0 == harness.idp.count("token")
    session = await harness.session(asked)
    assert ("failed", Code.OWNER_BINDING_FAILED, None) == (session.status, session.failure, session.pending_code)
    (event,) = await harness.events("minion")
    assert ("auth.failed", "ownerBindingFailed") == (event["type"], event["payload"]["code"])
    assert Code.STATE_UNKNOWN is await refused(harness, handle, MALLORY), "used up"
    assert [None, None] == [await harness.grant(subject=subject) for subject in (ALICE, MALLORY)]
    assert [] == [entry for entry in harness.audit.entries if isinstance(entry, OwnerConfirmed)]
    assert 1 == len([entry for entry in harness.audit.entries if isinstance(entry, ConnectFailed)])
    assert_error_page(await victim.open(page.url), Code.OWNER_BINDING_FAILED)


@pytest.mark.parametrize("subject", ["ACME:user:7", "acme:user:7 ", "acme:user:77", "", "\u00e9", MALLORY])
async def test_subjects_are_compared_byte_for_byte(harness: Harness, subject: str) -> None:
    asked = await harness.ask_link(of=of_alice())
    handle = handle_on(await came_back(harness, asked, harness.browser()))
    assert Code.OWNER_BINDING_FAILED is await refused(harness, handle, subject)


async def test_a_handle_is_good_once(harness: Harness) -> None:
    handle = handle_on(await came_back(harness, await harness.ask_link(of=of_alice()), harness.browser()))
    assert "completed" == (await harness.broker.confirm(handle, ALICE)).status
    assert Code.STATE_UNKNOWN is await refused(harness, handle)
    assert 1 == harness.idp.count("token")


@pytest.mark.case("12")
async def test_two_confirms_at_once_redeem_once(harness: Harness) -> None:
    handle = handle_on(await came_back(harness, await harness.ask_link(of=of_alice()), harness.browser()))
    answers = await asyncio.gather(*(harness.broker.confirm(handle, ALICE) for _ in range(20)), return_exceptions=True)
    completed = [each for each in answers if isinstance(each, SessionOutcome)]
    lost = [each for each in answers if isinstance(each, BrokerError)]
    assert [SessionOutcome("completed")] == completed
    assert [Code.STATE_UNKNOWN] * 19 == [each.code for each in lost]
    assert 1 == harness.idp.count("token")


@pytest.mark.case("12")
async def test_two_processes_that_hear_it_at_once_redeem_once(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    stores = [file_store(tmp_path, test_clock) for _ in range(2)]
    async with (
        confirming_harness(identity_provider, test_clock, "runtimeConfirm", store=stores[0]) as one,
        confirming_harness(identity_provider, test_clock, "runtimeConfirm", store=stores[1]) as other,
    ):
        handle = handle_on(await came_back(one, await one.ask_link(of=of_alice()), one.browser()))
        said = (harness.broker.confirm(handle, ALICE) for harness in (one, other) for _ in range(5))
        answers = await asyncio.gather(*said, return_exceptions=True)
        assert [SessionOutcome("completed")] == [each for each in answers if isinstance(each, SessionOutcome)]
        assert 1 == identity_provider.count("token")


async def test_a_right_and_a_wrong_word_at_once_have_one_winner(harness: Harness) -> None:
    handle = handle_on(await came_back(harness, await harness.ask_link(of=of_alice()), harness.browser()))
    said = (harness.broker.confirm(handle, subject) for subject in (MALLORY, ALICE))
    wrong, right = await asyncio.gather(*said, return_exceptions=True)
    assert isinstance(wrong, BrokerError)
    granted = await harness.grant(subject=ALICE) is not None
    assert granted is (right == SessionOutcome("completed")) is (wrong.code is Code.STATE_UNKNOWN)


async def test_the_callback_of_a_pending_code_is_used_up_and_so_is_the_link(harness: Harness) -> None:
    asked, person = await harness.ask_link(of=of_alice()), harness.browser()
    back = await harness.way_back(asked, person)
    page = await person.follow(back)
    assert page.location is not None
    assert "code=" not in page.location
    assert_error_page(await person.follow(back), Code.STATE_USED)
    assert_error_page(await harness.browser().open(back), Code.STATE_UNKNOWN)
    assert_error_page(await person.open(asked.authorization_url), Code.STATE_USED)
    assert_error_page(await harness.browser().open(asked.authorization_url), Code.STATE_UNKNOWN)
    assert await harness.broker.pending(of_alice()) is None
    again = await harness.ask_link(of=of_alice())
    assert again.auth_session_id != asked.auth_session_id
    await person.follow(page.location)
    assert "completed" == (await harness.broker.confirm(handle_on(person.page), ALICE)).status


async def test_after_sixty_seconds_the_code_is_never_redeemed(harness: Harness) -> None:
    asked, person = await harness.ask_link(of=of_alice()), harness.browser()
    page = await came_back(harness, asked, person)
    handle = handle_on(page)
    harness.clock.advance(60)
    assert_error_page(await harness.browser().open(page.url), Code.STATE_UNKNOWN)
    assert_error_page(await person.open(page.url), Code.STATE_EXPIRED)
    assert SessionOutcome("failed", Code.OWNER_BINDING_FAILED) == await harness.broker.wait(
        asked.auth_session_id, timeout=0
    )
    assert Code.STATE_UNKNOWN is await refused(harness, handle)
    assert 0 == harness.idp.count("token")
    session = await harness.session(asked)
    assert ("failed", Code.OWNER_BINDING_FAILED) == (session.status, session.failure)


async def test_the_cookie_lives_as_long_as_the_page_after_the_callback_needs_it_and_longer(harness: Harness) -> None:
    asked, person = await harness.ask_link(of=of_alice()), harness.browser()
    harness.clock.advance(590)
    page = await leave(person, asked.authorization_url)
    (cookie,) = [value for name, value in page.headers if name.lower() == "set-cookie" and "oab-" in value]
    (lives,) = re.findall(r"Max-Age=([0-9]+);", cookie)
    assert int(lives) >= 10 + PENDING_CODE_SECONDS


async def test_a_minute_is_a_minute_even_when_the_link_ends_before(harness: Harness) -> None:
    asked, person = await harness.ask_link(of=of_alice()), harness.browser()
    to_provider = await harness.to_provider(asked, person)
    harness.clock.advance(599)
    await person.follow(await harness.idp.agree(to_provider, "alice", browser=person))
    page = await person.follow()
    harness.clock.advance(30)
    assert SessionOutcome("pending") == await harness.broker.wait(asked.auth_session_id, timeout=0)
    assert SessionOutcome("completed") == await harness.broker.confirm(handle_on(page), ALICE)


async def test_the_sweeper_ends_unconfirmed_sessions(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    first, second = file_store(tmp_path, test_clock), file_store(tmp_path, test_clock)
    async with confirming_harness(
        identity_provider, test_clock, "runtimeConfirm", store=first, background=False
    ) as harness:
        asked = await harness.ask_link(of=of_alice())
        await came_back(harness, asked, harness.browser())
        test_clock.advance(61)
    async with confirming_harness(
        identity_provider, test_clock, "runtimeConfirm", store=second
    ) as harness:  # it sweeps at start
        session = await harness.session(asked)
        assert ("failed", Code.OWNER_BINDING_FAILED) == (session.status, session.failure)
        assert session.pending_code is None
        (event,) = await harness.events()
        assert "auth.failed" == event["type"]
        assert 0 == harness.idp.count("token")


@pytest.mark.parametrize(
    "handle", ["", "as-", "x" * 65, "{locator}" + "A" * 43, "{locator}", "as-{locator}", "{ticket}"]
)
async def test_a_malformed_handle_is_unknown_and_harms_nothing(harness: Harness, handle: str) -> None:
    asked, person = await harness.ask_link(of=of_alice()), harness.browser()
    page = await came_back(harness, asked, person)
    locator = asked.auth_session_id.removeprefix("as-")
    ticket = asked.authorization_url.rpartition("/")[2]
    assert Code.STATE_UNKNOWN is await refused(harness, handle.format(locator=locator, ticket=ticket))
    assert "completed" == (await harness.broker.confirm(handle_on(page), ALICE)).status


async def test_what_the_provider_says_is_compared_where_it_can_be(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """A subject in the spelling of the provider's accounts has to be that account, with any confirmation."""
    owner = Owner(
        binding="runtimeConfirm", confirm_url=RUNTIME, user_identity=IdentityRule("idToken", "idp:user:{sub}")
    )
    app = confirming_app(identity_provider, "runtimeConfirm", owner=owner)
    async with confirming_harness(identity_provider, test_clock, "runtimeConfirm", app=app) as harness:
        asked = await harness.ask_link(of=turn())
        handle = handle_on(await came_back(harness, asked, harness.browser(), "mallory"))
        outcome = await harness.broker.confirm(handle, turn().auth.subjects["user"])  # type: ignore[union-attr]
        assert SessionOutcome("failed", Code.SUBJECT_MISMATCH) == outcome
        await harness.events()
        asked = await harness.ask_link(of=of_alice())
        page = await came_back(harness, asked, harness.browser(), "mallory")
        assert SessionOutcome("completed") == await harness.broker.confirm(handle_on(page), ALICE)
        harness.clock.advance(3600)
        assert isinstance(await harness.ask(of=of_alice()), Ready), "nor does a refresh ask for more"


async def test_the_account_is_pinned_all_the_same(harness: Harness) -> None:
    handle = handle_on(await came_back(harness, await harness.ask_link(of=of_alice()), harness.browser()))
    await harness.broker.confirm(handle, ALICE)
    asked = await harness.ask(of=of_alice(), switch_account=False, scopes=["read", "write", "admin"])
    assert isinstance(asked, Ready)
    await harness.events()
    result = await harness.ask(of=of_alice(), switch_account=True)
    handle = handle_on(await came_back(harness, result, harness.browser(), "bob"))
    assert SessionOutcome("completed") == await harness.broker.confirm(handle, ALICE)


async def test_in_global_mode_team_and_authorizers_are_still_compared(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    app = global_app(identity_provider)
    app = replace(app, owner=replace(app.owner, binding="runtimeConfirm", confirm_url=RUNTIME))
    async with confirming_harness(identity_provider, test_clock, "runtimeConfirm", app=app) as harness:
        for account, outcome in (
            ("bob", SessionOutcome("failed", Code.SUBJECT_FORBIDDEN)),
            ("alice", SessionOutcome("completed")),
        ):
            asked = await harness.ask_link("team")
            handle = handle_on(await came_back(harness, asked, harness.browser(), account))
            assert outcome == await harness.broker.confirm(handle, "idp:team:T111")


async def test_a_changed_app_ends_its_pending_sessions(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with confirming_harness(identity_provider, test_clock, "runtimeConfirm") as harness:
        asked = await harness.ask_link(of=of_alice())
        handle = handle_on(await came_back(harness, asked, harness.browser()))
        app = harness.broker.bundle.apps["mail"]
        moved = replace(app, owner=replace(app.owner, confirm_url="https://runtime.test/elsewhere"))
        await harness.broker.reload(Bundle(harness.broker.bundle.settings, {"mail": moved}))
        assert Code.STATE_UNKNOWN is await refused(harness, handle)
        assert "expired" == (await harness.session(asked)).status
        assert 0 == harness.idp.count("token")


async def test_a_change_before_the_sweep_ends_it_too(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    first, second = file_store(tmp_path, test_clock), file_store(tmp_path, test_clock)
    async with confirming_harness(identity_provider, test_clock, "runtimeConfirm", store=first) as harness:
        asked = await harness.ask_link(of=of_alice())
        handle = handle_on(await came_back(harness, asked, harness.browser()))
    app = confirming_app(identity_provider, "runtimeConfirm", scopes=("read",))
    async with confirming_harness(identity_provider, test_clock, "runtimeConfirm", app=app, store=second) as harness:
        assert Code.STATE_UNKNOWN is await refused(harness, handle)
        assert "expired" == (await harness.session(asked)).status
        assert 0 == harness.idp.count("token")


async def test_a_pending_request_can_be_withdrawn(harness: Harness) -> None:
    asked = await harness.ask_link(of=of_alice())
    handle = handle_on(await came_back(harness, asked, harness.browser()))
    assert await harness.broker.cancel(asked.auth_session_id)
    assert Code.STATE_UNKNOWN is await refused(harness, handle)
    assert 0 == harness.idp.count("token")


async def test_a_failing_exchange_is_reported_to_the_runtime(harness: Harness) -> None:
    asked = await harness.ask_link(of=of_alice())
    handle = handle_on(await came_back(harness, asked, harness.browser()))
    harness.idp.change("client-mail", client_secret=Secret("nobody-told-the-broker-of-this-one"))
    assert SessionOutcome("failed", Code.APP_MISCONFIGURED) == await harness.broker.confirm(handle, ALICE)
    assert Code.STATE_UNKNOWN is await refused(harness, handle)


async def test_a_runtime_that_stops_waiting_stops_nothing(harness: Harness) -> None:
    asked = await harness.ask_link(of=of_alice())
    handle = handle_on(await came_back(harness, asked, harness.browser()))
    task = asyncio.create_task(harness.broker.confirm(handle, ALICE))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert SessionOutcome("completed") == await harness.broker.wait(asked.auth_session_id, timeout=60)


async def test_a_broker_that_was_started_anew_redeems_what_its_predecessor_kept(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    asked = handle = None
    async with confirming_harness(
        identity_provider, test_clock, "runtimeConfirm", store=file_store(tmp_path, test_clock), background=False
    ) as harness:
        asked = await harness.ask_link(of=of_alice())
        handle = handle_on(await came_back(harness, asked, harness.browser()))
        before = tree(tmp_path)
        assert handle.encode() not in b"".join(before.values())
    async with confirming_harness(
        identity_provider, test_clock, "runtimeConfirm", store=file_store(tmp_path, test_clock)
    ) as harness:
        assert SessionOutcome("completed") == await harness.broker.confirm(handle, ALICE)


async def test_a_code_flow_built_without_a_cookie_cannot_be_kept_pending(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """An app built in code may say `link: direct`, which the loader refuses: there is no browser to come back."""
    app = confirming_app(identity_provider, "runtimeConfirm")
    app = replace(app, redirect=replace(app.redirect, link="direct"))
    async with confirming_harness(identity_provider, test_clock, "runtimeConfirm", app=app) as harness:
        page = await harness.connect(await harness.ask_link(of=of_alice()))
        assert_error_page(page, Code.OWNER_BINDING_FAILED)
        assert 0 == harness.idp.count("token")
