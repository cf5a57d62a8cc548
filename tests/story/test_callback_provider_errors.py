"""The provider says no (case 8), in front of a real server too: we say so, and repeat nothing of its words."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.token_results import Ready
from oauthbroker.testing import Canaries
from oauthbroker.web.gate.request_limits import REFUSAL_LIMIT, TARGET_LIMIT
from tests.kit.callback_pages import HOST, assert_error_page
from tests.kit.running_broker import Harness
from tests.story.http_server import cookie_header, served_over_http


def page_of_text(canary: str) -> str:
    """10 kB of a provider's HTML; the canary in it is what must never be seen again."""
    return f"<html><body><h1>Error</h1><script>alert('{canary}')</script>{'<p>no</p>' * 1100}"[:10_000] + canary


@pytest.mark.case("8")
@pytest.mark.parametrize("error", ["access_denied", "user_cancelled_login", "our_own_word", "x" * 100])
@pytest.mark.rule("12.5.6-3")
async def test_a_refusal_is_told_to_the_person_and_the_agent_in_our_words(
    harness: Harness, canaries: Canaries, error: str
) -> None:
    canary = canaries.mint("provider text").reveal()
    harness.idp.script.authorize.error(
        error, error_description=page_of_text(canary), error_uri=f"https://x.example/{canary}"
    )
    asked = await harness.ask_link()
    assert_error_page(await harness.connect(asked), Code.PROVIDER_DENIED)
    assert 0 == harness.idp.count("token")
    session = await harness.session(asked)
    assert ("failed", Code.PROVIDER_DENIED) == (session.status, session.failure)
    assert canary.encode() not in session.to_plaintext(), "not even sealed"
    (event,) = await harness.events()
    assert ("auth.denied", "providerDenied") == (event["type"], event["payload"]["code"])
    await harness.connected()


@pytest.mark.case("8")
async def test_saying_no_at_the_provider_is_such_a_refusal(harness: Harness) -> None:
    assert_error_page(await harness.connect(await harness.ask_link(), deny=True), Code.PROVIDER_DENIED)
    assert ["auth.denied"] == [event["type"] for event in await harness.events()]


@pytest.mark.case("8")
async def test_saying_no_on_our_own_page_is_such_a_refusal_without_a_provider(harness: Harness) -> None:
    asked = await harness.ask_link()
    person = harness.browser()
    await person.open(asked.authorization_url)
    page = await person.submit({"decision": "cancel"})
    assert 303 == page.status
    page = await person.follow()
    assert (200, True) == (page.status, "Nothing was connected" in page.text)
    assert ["auth.denied"] == [event["type"] for event in await harness.events()]
    assert 0 == harness.idp.count("authorize")
    assert_error_page(await person.open(asked.authorization_url), Code.STATE_UNKNOWN)


@pytest.mark.case("5", "8")
async def test_a_stranger_cannot_decline_for_a_user(harness: Harness) -> None:
    """Without the cookie any error is another browser's."""
    asked = await harness.ask_link()
    url = await harness.way_back(asked, harness.browser(), deny=True)
    assert_error_page(await harness.browser().open(url), Code.OWNER_BINDING_FAILED)


async def get(port: int, target: str, cookies: str) -> tuple[int, str]:
    """One request as it goes over the wire: (status, the whole answer)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET {target} HTTP/1.1\r\nHost: {HOST}\r\nAccept: application/json\r\nCookie: {cookies}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(60):
        answer = (await reader.read()).decode()
    writer.close()
    return int(answer.split(" ", 2)[1]), answer


@pytest.mark.case("8", "11")
async def test_the_server_lets_a_long_refusal_in_and_nothing_else_that_long(
    harness: Harness, canaries: Canaries
) -> None:
    canary = canaries.mint("provider text").reveal()
    asked = await harness.ask_link()
    person = harness.browser()
    given = dict(parse_qsl(urlsplit(await harness.way_back(asked, person)).query))
    refusal = urlencode({"error": "access_denied", "error_description": page_of_text(canary), "state": given["state"]})
    too_long = urlencode({"code": "c" * TARGET_LIMIT, "state": given["state"]})
    assert TARGET_LIMIT < len(refusal) < REFUSAL_LIMIT
    async with served_over_http(harness) as port:
        status, answer = await get(port, f"/oauth/callback/mail?{too_long}", cookie_header(person))
        assert (414, True) == (status, '"requestTooLarge"' in answer)
        status, answer = await get(port, f"/oauth/callback/mail?{refusal}", cookie_header(person))
        assert (403, True) == (status, '"providerDenied"' in answer)
        canaries.look(answer, "the answer over the wire")
        status, _ = await get(port, f"/oauth/callback/mail?{refusal}{'x' * 100_000}", cookie_header(person))
        assert status in {400, 414}
    (event,) = await harness.events()
    assert "auth.denied" == event["type"]


@pytest.mark.case("8")
async def test_after_a_refusal_the_grant_there_was_still_serves(harness: Harness) -> None:
    await harness.connected(scopes=["read"])
    await harness.events()
    asked = await harness.ask_link(scopes=["write"])
    assert_error_page(await harness.connect(asked, deny=True), Code.PROVIDER_DENIED)
    assert isinstance(await harness.ask(scopes=["read"]), Ready)
