"""`owner.binding: channelCode`: the person sends a code in the conversation that got the link."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from oauthbroker import Turn
from oauthbroker.audit import OwnerConfirmed
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.token_results import Ready, SessionOutcome
from oauthbroker.records.pending_code import MAX_TRIES, as_code, code_of, grouped
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from tests.kit.callback_pages import assert_error_page, assert_leads_to_connected
from tests.kit.running_broker import Harness, global_app, running, turn
from tests.story.binding_kit import (
    ALICE,
    MALLORY,
    another_code,
    came_back,
    code_on,
    confirming_app,
    confirming_harness,
    of_alice,
    of_mallory,
    relay_refused,
    settings_for,
)

WRONG = "2222-2222"


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    async with confirming_harness(identity_provider, test_clock, "channelCode") as harness:
        yield harness


async def code_page(harness: Harness, of: Turn | None = None, **more: str) -> Page:
    return await came_back(harness, await harness.ask_link(of=of or of_alice()), harness.browser(), **more)


async def test_the_code_said_in_the_conversation_connects(harness: Harness) -> None:
    asked, person = await harness.ask_link(of=of_alice()), harness.browser()
    page = await came_back(harness, asked, person)
    assert 0 == harness.idp.count("token")
    assert "Send this code in the conversation where you got the link" in page.text
    assert "Do not send it anywhere else" in page.text
    outcome = await harness.broker.relay_code(of_alice(), code_on(page))
    assert ("completed", asked.auth_session_id) == (outcome.status, outcome.auth_session_id)
    assert isinstance(await harness.ask(of=of_alice()), Ready)
    assert_leads_to_connected(await person.open(page.url))
    (entry,) = [entry for entry in harness.audit.entries if isinstance(entry, OwnerConfirmed)]
    assert ("mail", asked.auth_session_id, "channelCode") == (entry.app, entry.session, entry.how)
    assert code_on(page) not in harness.log.getvalue()
    assert Code.STATE_UNKNOWN is await relay_refused(harness, code_on(page)), "used"


async def test_only_the_browser_that_came_back_sees_the_code_and_sees_it_again(harness: Harness) -> None:
    page = await code_page(harness)
    assert code_on(page) == code_on(await harness.browsers[0].open(page.url))
    assert_error_page(await harness.browser().open(page.url), Code.STATE_UNKNOWN)
    assert code_on(page) not in page.url
    assert page.next_url is None, "nothing moves by itself"
    (again,) = page.document.links
    assert code_on(page) == code_on(await harness.browsers[0].follow(again))
    harness.clock.advance(60)
    assert "The code is no longer valid" in (await harness.browsers[0].open(page.url)).text
    assert_error_page(await harness.browser().open(page.url), Code.STATE_UNKNOWN)
    assert Code.STATE_UNKNOWN is await relay_refused(harness, code_on(page))
    assert 0 == harness.idp.count("token")


@pytest.mark.parametrize(
    "form", ["{}", " {} ", "{0:.4} {1}", "{2}", "{3}", "{0:.4}\u2013{1}", "{0:.4}\u00a0-\u00a0{1}"]
)
async def test_spaces_dashes_and_case_are_forgiven(harness: Harness, form: str) -> None:
    code = code_on(await code_page(harness))
    said = form.format(code, code[5:], code.replace("-", ""), code.lower())
    assert "completed" == (await harness.broker.relay_code(of_alice(), said)).status


@pytest.mark.parametrize("said", ["", "hello", "0000-0000", "ABCD-EFG", "ABCD-EFGHJ", "x" * 10_000, "ABCD\x00EFGH"])
async def test_what_cannot_be_a_code_is_no_try(harness: Harness, said: str) -> None:
    page = await code_page(harness)
    for _ in range(MAX_TRIES + 1):
        assert Code.STATE_UNKNOWN is await relay_refused(harness, said)
    assert "completed" == (await harness.broker.relay_code(of_alice(), code_on(page))).status


async def test_five_wrong_codes_end_it(harness: Harness) -> None:
    asked = await harness.ask_link(of=of_alice())
    page = await came_back(harness, asked, harness.browser())
    for _ in range(MAX_TRIES):
        assert (await harness.session(asked)).open
        assert Code.STATE_UNKNOWN is await relay_refused(harness, another_code(code_on(page)))
    session = await harness.session(asked)
    assert ("failed", Code.OWNER_BINDING_FAILED, None) == (session.status, session.failure, session.pending_code)
    assert Code.STATE_UNKNOWN is await relay_refused(harness, code_on(page))
    assert 0 == harness.idp.count("token")
    (event,) = await harness.events()
    assert ("auth.failed", "ownerBindingFailed") == (event["type"], event["payload"]["code"])


async def test_the_fifth_may_still_be_the_right_one(harness: Harness) -> None:
    page = await code_page(harness)
    for _ in range(MAX_TRIES - 1):
        await relay_refused(harness, another_code(code_on(page)))
    assert "completed" == (await harness.broker.relay_code(of_alice(), code_on(page))).status


async def test_a_hundred_guesses_at_once_count_as_five(harness: Harness) -> None:
    asked = await harness.ask_link(of=of_alice())
    page = await came_back(harness, asked, harness.browser())
    seen: list[int] = []
    for guess in asyncio.as_completed([relay_refused(harness, another_code(code_on(page))) for _ in range(100)]):
        assert await guess in {Code.STATE_UNKNOWN, Code.STORE_LOCKED}
        session = await harness.session(asked)
        seen.append(session.pending_code.tries if session.pending_code is not None else MAX_TRIES)
    assert MAX_TRIES == max(seen)
    assert "failed" == (await harness.session(asked)).status
    assert 0 == harness.idp.count("token")


@pytest.mark.case("14b")
@pytest.mark.parametrize(
    "of",
    [
        of_mallory(),
        turn(user=MALLORY, team=None),
        turn(user=ALICE, team=None, instance="another conversation"),
        turn(user=ALICE, team=None, agent="another"),
        turn(user=None, team=ALICE),
        replace(of_alice(), auth=None),
    ],
    ids=["an attacker", "the same conversation, another person", "another conversation", "another agent",
         "a team of that name", "nobody"],
)  # fmt: skip
async def test_the_right_code_from_another_user_or_place_is_unknown(harness: Harness, of: Turn) -> None:
    page = await code_page(harness)
    for _ in range(MAX_TRIES + 1):
        assert Code.STATE_UNKNOWN is await relay_refused(harness, code_on(page), of)
    assert "completed" == (await harness.broker.relay_code(of_alice(), code_on(page))).status, "nor does it cost a try"


@pytest.mark.case("14b")
async def test_a_victim_who_says_the_code_where_she_talks_connects_nothing_to_the_attacker(harness: Harness) -> None:
    """Mallory's link, opened by Alice, who agrees and then sends the code in a conversation of her own."""
    asked = await harness.ask_link(of=of_mallory())
    page = await came_back(harness, asked, harness.browser())
    assert Code.STATE_UNKNOWN is await relay_refused(harness, code_on(page), of_alice())
    assert (await harness.session(asked)).open
    harness.clock.advance(60)
    await harness.broker.wait(asked.auth_session_id, timeout=0)
    assert Code.STATE_UNKNOWN is await relay_refused(harness, code_on(page), of_mallory())
    assert 0 == harness.idp.count("token")


async def test_of_two_that_wait_the_one_whose_code_was_said_goes_on(harness: Harness) -> None:
    first = await harness.ask_link(of=of_alice(), scopes=["read"])
    pages = [await came_back(harness, first, harness.browser())]
    second = await harness.ask_link(of=of_alice(), scopes=["write"])
    pages.append(await came_back(harness, second, harness.browser()))
    outcome = await harness.broker.relay_code(of_alice(), code_on(pages[1]))
    assert (second.auth_session_id, "completed") == (outcome.auth_session_id, outcome.status)
    assert "completed" == (await harness.session(first)).status, "the second link asked for its scopes, too"


async def test_a_turn_that_may_not_use_the_app_relays_nothing_for_it(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    apps = [confirming_app(identity_provider, "channelCode", name) for name in ("mail", "files")]
    async with running(identity_provider, apps, clock=test_clock, settings=settings_for()) as harness:
        asked = await harness.ask_link("mail", of=of_alice())
        page = await came_back(harness, asked, harness.browser())
        assert Code.STATE_UNKNOWN is await relay_refused(harness, code_on(page), apps=["files"])
        assert Code.STATE_UNKNOWN is await relay_refused(harness, code_on(page), apps=[])
        outcome = await harness.broker.relay_code(of_alice(), code_on(page), apps=["files", "mail"])
        assert SessionOutcome("completed") == outcome


async def test_right_codes_at_once_redeem_once(harness: Harness) -> None:
    code = code_on(await code_page(harness))
    answers = await asyncio.gather(
        *(harness.broker.relay_code(of_alice(), code) for _ in range(4)), return_exceptions=True
    )
    assert 1 == len([each for each in answers if isinstance(each, SessionOutcome)])
    assert 1 == harness.idp.count("token")


async def test_a_handle_is_no_code_and_a_code_is_no_handle(harness: Harness) -> None:
    asked = await harness.ask_link(of=of_alice())
    page = await came_back(harness, asked, harness.browser())
    locator = asked.auth_session_id.removeprefix("as-")
    for handle in (code_on(page), locator + code_on(page), locator + "A" * 43):
        with pytest.raises(BrokerError) as caught:
            await harness.broker.confirm(handle, ALICE)
        assert Code.STATE_UNKNOWN is caught.value.code
    assert "completed" == (await harness.broker.relay_code(of_alice(), code_on(page))).status


async def test_a_team_s_code_may_be_said_by_any_member_of_that_conversation(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    app = global_app(identity_provider)
    app = replace(app, owner=replace(app.owner, binding="channelCode"))
    async with confirming_harness(identity_provider, test_clock, "channelCode", app=app) as harness:
        page = await came_back(harness, await harness.ask_link("team"), harness.browser())
        assert SessionOutcome("completed") == await harness.broker.relay_code(turn(user="chat:somebody"), code_on(page))


def test_codes_are_forty_bits_of_letters_and_digits_that_cannot_be_mistaken() -> None:
    assert ("2222-2222", "ZZZZ-ZZZZ") == (grouped(code_of(bytes(5))), grouped(code_of(b"\xff" * 5)))
    one_bit = {code_of((1 << bit).to_bytes(5, "big")) for bit in range(40)}
    assert 40 == len(one_bit), "every bit counts"
    assert not set("01IOilo") & set("".join(one_bit | {code_of(bytes(range(9, 14)))}))
    assert all(as_code(grouped(code)) == code for code in one_bit)


@pytest.mark.parametrize("said", [None, 7, b"ABCDEFGH", "\u0130BCDEFGH", "\uff21BCDEFGH"])
def test_a_text_outside_that_alphabet_is_no_code(said: object) -> None:
    assert as_code(said) is None  # type: ignore[arg-type]
