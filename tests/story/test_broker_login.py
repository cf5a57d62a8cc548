"""`brokerLogin`: the user of the browser logs in at the company first, and only the subject continues."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from oauthbroker.audit import Connected, ConnectFailed, ConnectStarted, LoginRefused, OwnerConfirmed
from oauthbroker.core.errors import Code
from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.broker_login import BrokerLogin
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.testing import Canaries, IdentityProvider, TestClock, leave
from oauthbroker.testing.browser import Page
from oauthbroker.testing.provider.faults import Hold
from tests.kit.callback_pages import assert_already_connected, assert_error_page, assert_leads_to_connected
from tests.kit.running_broker import SUBS, Harness, file_store, global_app, running, to_the_end, tree, user_app
from tests.story.binding_kit import (
    at_the_login,
    broker_login,
    corp_turn,
    in_corp,
    login_app,
    login_callback,
    settings_for,
)

pytestmark = pytest.mark.case("14b", "15")
FORGED: dict[str, tuple[dict[str, Any], Code]] = {
    "another client's": ({"claims": {"aud": "client-mail"}}, Code.ID_TOKEN_INVALID),
    "another issuer's": ({"claims": {"iss": "https://evil.example"}}, Code.ID_TOKEN_INVALID),
    "another login's": ({"claims": {"nonce": "n" * 43}}, Code.ID_TOKEN_INVALID),
    "without a nonce": ({"claims": {"nonce": None}}, Code.ID_TOKEN_INVALID),
    "one that has ended": ({"claims": {"exp": 1}}, Code.ID_TOKEN_INVALID),
    "an old one": ({"claims": lambda claims: {**claims, "iat": claims["iat"] - 3600}}, Code.ID_TOKEN_INVALID),
    "unsigned": ({"header": {"alg": "none"}}, Code.ID_TOKEN_INVALID),
    "signed with the secret": ({"header": {"alg": "HS256"}}, Code.ID_TOKEN_INVALID),
    "signed by a stranger": ({"key": "strange"}, Code.ID_TOKEN_INVALID),
    "with a broken signature": ({"key": "flipped"}, Code.ID_TOKEN_INVALID),
    "another account": ({"claims": {"sub": SUBS["mallory"]}}, Code.SUBJECT_MISMATCH),
    "in other letters": ({"claims": {"sub": SUBS["alice"].lower()}}, Code.SUBJECT_MISMATCH),
    "two people in one": ({"claims": {"sub": f"x:{SUBS['alice']}"}}, Code.SUBJECT_UNVERIFIABLE),
    "nobody's": ({"claims": {"sub": ""}}, Code.ID_TOKEN_INVALID),
}


@pytest.fixture
def corp(test_clock: TestClock) -> Iterator[IdentityProvider]:
    with IdentityProvider(clock=test_clock) as provider:
        yield provider


@pytest.fixture
async def harness(
    identity_provider: IdentityProvider, corp: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> AsyncIterator[Harness]:
    store, apps = file_store(tmp_path, test_clock), [login_app(identity_provider)]
    more: dict[str, Any] = {"settings": settings_for(), "corp": corp, "login": broker_login(corp)}
    async with running(identity_provider, apps, clock=test_clock, store=store, background=False, **more) as harness:
        yield harness


async def assert_nothing_happened(harness: Harness, asked: AuthorizationRequired) -> None:
    """No browser went to the app's provider, and the link is as good as it was."""
    assert 0 == harness.idp.count("authorize") + harness.idp.count("token")
    session = await harness.session(asked)
    assert ("pending", None, None) == (session.status, session.claim, session.attempt.cookie)
    assert 0 == len([versioned async for versioned in harness.repository.grants()])


def assert_says_the_link_stays(page: Page, code: Code) -> None:
    assert (code.status, True) == (page.status, "The link is still valid: open it again" in page.text), page.text
    assert "new link" not in page.text


def refusals(harness: Harness) -> list[tuple[str, str]]:
    return [(entry.session, entry.code) for entry in harness.audit.entries if isinstance(entry, LoginRefused)]


def asked_for(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


# the honest way


async def test_who_logs_in_as_the_subject_connects(harness: Harness) -> None:
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    page = await person.open(asked.authorization_url)
    assert f"You sign in at {urlsplit(in_corp(harness).issuer).netloc}" in page.text
    url = await login_callback(harness, asked, person)
    page = await person.follow(url)
    assert (303, f"{harness.origin}/next/{asked.auth_session_id}") == (page.status, page.location)
    page = await person.follow()
    assert page.next_url is not None
    assert page.next_url.startswith(harness.idp.url("/authorize?"))
    assert_leads_to_connected(await person.follow(await harness.idp.agree(page.next_url, "bob", browser=person)))
    assert isinstance(await harness.ask(of=corp_turn()), Ready)
    await harness.parts.relay.once()
    assert "auth.granted" == (await harness.events())[0]["type"]
    kinds = [type(entry) for entry in harness.audit.entries]
    assert kinds.index(ConnectStarted) < kinds.index(OwnerConfirmed) < kinds.index(Connected)
    (entry,) = [entry for entry in harness.audit.entries if isinstance(entry, OwnerConfirmed)]
    assert ("mail", asked.auth_session_id, "brokerLogin") == (entry.app, entry.session, entry.how)
    assert [] == refusals(harness)


async def test_the_login_is_asked_for_an_id_token_and_for_nothing_else(harness: Harness) -> None:
    url = await at_the_login(harness, await harness.ask_link(of=corp_turn()), harness.browser())
    said = asked_for(url)
    assert {"response_type", "client_id", "redirect_uri", "scope", "state", "nonce", "code_challenge",
            "code_challenge_method"} == said.keys()  # fmt: skip
    assert ("code", "broker", "openid", "S256") == (
        said["response_type"],
        said["client_id"],
        said["scope"],
        said["code_challenge_method"],
    )
    assert f"{harness.origin}/login/callback" == said["redirect_uri"]


async def test_what_the_login_gave_away_is_on_no_page_and_in_no_record(harness: Harness, canaries: Canaries) -> None:
    """The page after it leads to the app's provider with another state and nonce."""
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    before = asked_for(await at_the_login(harness, asked, person))
    callback = await harness.logged_in(asked, person)
    await to_the_end(person, callback)
    after = asked_for(str(person.page.next_url))
    for secret in (before["state"], before["nonce"], asked_for(callback)["code"]):
        assert secret not in person.page.source
        assert secret not in after.values()
    login = (await harness.session(asked)).login
    assert login is not None
    assert (None, None) == (login.attempt.verifier, login.attempt.nonce)
    assert "login" not in repr(harness.broker.metrics.to_json()).replace("broker:login", "").replace("/login/", "")
    await to_the_end(person, await harness.idp.agree(str(person.page.next_url), "alice", browser=person))
    assert (await harness.session(asked)).login is None


# the wrong person


async def test_a_victim_who_opens_the_attackers_link_logs_in_as_herself_and_gives_nothing_away(
    harness: Harness,
) -> None:
    asked, victim = await harness.ask_link(of=corp_turn("mallory")), harness.browser()
    page = await victim.follow(await login_callback(harness, asked, victim, "alice"))
    assert (403, None) == (page.status, page.location)
    assert "a different account than the one this link is for" in page.text
    assert urlsplit(in_corp(harness).issuer).netloc in page.text
    for name in (*SUBS, *SUBS.values(), "corp:user", "people.example"):
        whole = rf"(?i)(?<![\w-]){re.escape(name)}(?![\w-])"  # three letters may stand in a form's random token
        assert not re.search(whole, page.source), name
    assert [] == [cookie for cookie in page.headers if cookie[0].lower() == "set-cookie"]
    await assert_nothing_happened(harness, asked)
    assert [(asked.auth_session_id, "subjectMismatch")] == refusals(harness)
    assert_error_page(await victim.open(f"{harness.origin}/next/{asked.auth_session_id}"), Code.STATE_UNKNOWN)


async def test_the_link_stays_good_for_whom_it_is_for_and_the_login_then_asks_which_account(harness: Harness) -> None:
    asked, stranger, person = await harness.ask_link(of=corp_turn()), harness.browser(), harness.browser()
    await stranger.follow(await login_callback(harness, asked, stranger, "mallory"))
    for _ in range(2):
        url = await at_the_login(harness, asked, person)
        assert "login" == asked_for(url)["prompt"]
    page = await to_the_end(person, await harness.logged_in(asked, person))
    assert_leads_to_connected(await person.follow(await harness.idp.agree(str(page.next_url), browser=person)))
    assert isinstance(await harness.ask(of=corp_turn()), Ready)


async def test_a_machine_that_is_told_of_another_account_gets_the_code_and_no_page(harness: Harness) -> None:
    asked, person = await harness.ask_link(of=corp_turn("mallory")), harness.browser()
    url = await login_callback(harness, asked, person, "alice")
    page = await person.follow(url, headers={"accept": "application/json"})
    assert '"code":"subjectMismatch"' in page.source


async def test_a_page_in_korean(harness: Harness) -> None:
    asked, person = await harness.ask_link(of=corp_turn("mallory")), harness.browser()
    person.language = "ko"
    assert "먼저" in (await person.open(asked.authorization_url)).text
    page = await person.follow(await login_callback(harness, asked, person, "alice"))
    assert "다른 계정으로 로그인했습니다" in page.text


async def test_the_login_being_called_off_leaves_the_link_as_it_was(harness: Harness) -> None:
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    url = await at_the_login(harness, asked, person)
    back = await in_corp(harness).agree(url, "alice", browser=person, deny=True)
    assert_says_the_link_stays(await person.follow(back), Code.PROVIDER_DENIED)
    await assert_nothing_happened(harness, asked)
    assert [(asked.auth_session_id, "providerDenied")] == refusals(harness)
    assert_error_page(await person.follow(back), Code.STATE_USED)
    assert_says_connected_at_last(await harness.connect(asked, browser=person))


@pytest.mark.case("8")
@pytest.mark.parametrize(
    ("word", "code"),
    [("server_error", Code.PROVIDER_UNREACHABLE), ("unauthorized_client", Code.APP_MISCONFIGURED)],
)
async def test_an_error_of_the_login_uses_up_only_itself_and_has_its_own_code(
    harness: Harness, word: str, code: Code
) -> None:
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    in_corp(harness).script.authorize.error(word)
    back = await login_callback(harness, asked, person)
    assert_error_page(await person.follow(back), code)
    assert [(asked.auth_session_id, code.value)] == refusals(harness)
    assert_error_page(await person.follow(back), Code.STATE_USED)
    assert_says_connected_at_last(await harness.connect(asked, browser=person))


def assert_says_connected_at_last(page: Page) -> None:
    assert 200 == page.status
    assert "is connected" in page.text


# what comes back from the login


@pytest.mark.case("32")
@pytest.mark.parametrize("forged", FORGED)
async def test_an_id_token_of_another_subject_is_refused(harness: Harness, forged: str) -> None:
    change, code = FORGED[forged]
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    url = await login_callback(harness, asked, person)
    in_corp(harness).script.token.alter_id_token(**change)
    page = await person.follow(url)
    assert code is Code.SUBJECT_MISMATCH or page.status == 502
    await assert_nothing_happened(harness, asked)
    assert [(asked.auth_session_id, code.value)] == refusals(harness)
    assert_says_connected_at_last(await harness.connect(asked, browser=person))


@pytest.mark.parametrize(
    "spoil, code",
    [
        (lambda token: token.fields(id_token=None), Code.SUBJECT_UNVERIFIABLE),
        (lambda token: token.answer(400, {"error": "invalid_grant"}), Code.EXCHANGE_FAILED),
        (lambda token: token.answer(401, {"error": "invalid_client"}), Code.APP_MISCONFIGURED),
        (lambda token: token.answer(503), Code.PROVIDER_UNREACHABLE),
        (lambda token: token.answer(200, "<html>Sign in</html>", headers={"content-type": "text/html"}),
         Code.TOKEN_RESPONSE_INVALID),
    ],
)  # fmt: skip
async def test_a_wrong_answer_of_the_login_is_refused(harness: Harness, spoil: Any, code: Code) -> None:
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    url = await login_callback(harness, asked, person)
    spoil(in_corp(harness).script.token)
    (assert_says_the_link_stays if code is Code.EXCHANGE_FAILED else assert_error_page)(await person.follow(url), code)
    await assert_nothing_happened(harness, asked)
    assert_error_page(await person.follow(url), Code.STATE_USED)
    assert 1 == in_corp(harness).count("token")
    assert_says_connected_at_last(await harness.connect(asked, browser=person))


@pytest.mark.case("7")
@pytest.mark.parametrize("iss", ["https://evil.example", None])
async def test_an_answer_from_another_issuer_ends_the_session(harness: Harness, iss: str | None) -> None:
    """RFC 9207: the login's metadata promises `iss`."""
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    in_corp(harness).script.authorize.fields(iss=iss)
    page = await person.follow(await login_callback(harness, asked, person))
    assert_error_page(page, Code.ISSUER_MISMATCH)
    assert 0 == in_corp(harness).count("token")
    assert Code.ISSUER_MISMATCH is (await harness.session(asked)).failure


@pytest.mark.case("7", "8")
@pytest.mark.parametrize(
    "iss, code",
    [(None, Code.PROVIDER_DENIED), ("", Code.ISSUER_MISMATCH), ("https://evil.example", Code.ISSUER_MISMATCH)],
)
async def test_a_login_called_off_without_the_promised_issuer_is_a_no_and_under_a_wrong_one_is_not(
    harness: Harness, iss: str | None, code: Code
) -> None:
    """A person who says no to the login keeps the link, whether or not the login names itself on errors."""
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    in_corp(harness).script.authorize.error()
    in_corp(harness).script.authorize.fields(iss=iss)
    page = await person.follow(await login_callback(harness, asked, person))
    (assert_says_the_link_stays if code is Code.PROVIDER_DENIED else assert_error_page)(page, code)
    assert (code is Code.PROVIDER_DENIED) is (await harness.session(asked)).open


@pytest.mark.parametrize("code", [Code.PROVIDER_DENIED, Code.INTERACTION_NEEDED, Code.EXCHANGE_FAILED])
async def test_no_page_of_a_sign_in_that_ended_asks_for_a_new_link_while_the_old_one_is_valid(
    harness: Harness, code: Code
) -> None:
    asked, person, script = await harness.ask_link(of=corp_turn()), harness.browser(), in_corp(harness).script
    if code in {Code.PROVIDER_DENIED, Code.INTERACTION_NEEDED}:
        script.authorize.error("access_denied" if code is Code.PROVIDER_DENIED else "login_required")
    else:
        script.token.refuse("invalid_grant")
    assert_says_the_link_stays(await person.follow(await login_callback(harness, asked, person)), code)
    assert [(asked.auth_session_id, code.value)] == refusals(harness)
    assert_says_connected_at_last(await harness.connect(asked, browser=person))


@pytest.mark.parametrize(
    "auth_time, code", [(None, Code.ID_TOKEN_INVALID), (-4000, Code.ID_TOKEN_INVALID), (-100, None)]
)
async def test_who_wants_a_recent_login_looks_at_when_it_was(
    identity_provider: IdentityProvider, corp: IdentityProvider, test_clock: TestClock, auth_time: int | None,
    code: Code | None,
) -> None:  # fmt: skip
    more: dict[str, Any] = {"settings": settings_for(), "corp": corp}
    login = broker_login(corp, max_age_seconds=3600, prompt="select_account")
    async with running(
        identity_provider, [login_app(identity_provider)], clock=test_clock, login=login, **more
    ) as harness:
        asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
        said = asked_for(await at_the_login(harness, asked, person))
        assert ("3600", "select_account") == (said["max_age"], said["prompt"])
        url = await harness.logged_in(asked, person)
        at = None if auth_time is None else int(test_clock.now().timestamp()) + auth_time
        corp.script.token.alter_id_token(claims={"auth_time": at})
        page = await person.follow(url)
        assert (code is None) is (page.status == 303)
        assert [code.value for code in [code] if code is not None] == [said for _, said in refusals(harness)]


# other browsers, other sessions


async def test_the_logins_page_passed_on_is_refused_in_the_victims_browser(harness: Harness) -> None:
    """Mallory presses the button; the company does not even ask Alice."""
    asked, attacker, victim = await harness.ask_link(of=corp_turn("mallory")), harness.browser(), harness.browser()
    url = await at_the_login(harness, asked, attacker)
    in_corp(harness).auto_consent = "alice"
    page = await victim.open(url)
    assert page.location is not None
    assert_error_page(await victim.follow(), Code.OWNER_BINDING_FAILED)
    assert 0 == in_corp(harness).count("token")
    session = await harness.session(asked)
    assert ("failed", Code.OWNER_BINDING_FAILED, None) == (session.status, session.failure, session.login)
    (entry,) = [entry for entry in harness.audit.entries if isinstance(entry, ConnectFailed)]
    assert (asked.auth_session_id, "ownerBindingFailed") == (entry.session, entry.code)


async def test_a_login_in_one_browser_lets_no_other_browser_on(harness: Harness) -> None:
    """Not even the one that pressed the button, once it is another: the cookie is new after the login."""
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    name = f"oab-{asked.auth_session_id.removeprefix('as-')}"
    url = await login_callback(harness, asked, person)
    before = person.cookies[name].value
    await person.follow(url)
    after = person.cookies[name].value
    assert before != after
    page = await to_the_end(person, f"{harness.origin}/next/{asked.auth_session_id}")
    for value in ("", "x" * 43, before):
        other = harness.browser()
        if value:
            other.cookies.set(name, value, "127.0.0.1")
        assert_error_page(await other.open(f"{harness.origin}/next/{asked.auth_session_id}"), Code.STATE_UNKNOWN)
    callback = await harness.idp.agree(str(page.next_url), browser=person)
    other.cookies.set(name, before, "127.0.0.1")
    assert_error_page(await other.open(callback), Code.OWNER_BINDING_FAILED)
    assert 0 == harness.idp.count("token")


async def test_a_state_of_another_session_is_none(harness: Harness) -> None:
    """The victim's browser has both cookies, and its login is for her own session."""
    hers, his = await harness.ask_link(of=corp_turn()), await harness.ask_link(of=corp_turn("mallory"))
    victim = harness.browser()
    mine = await login_callback(harness, hers, victim)
    his_url = await at_the_login(harness, his, victim)
    code = asked_for(mine)["code"]
    mixed = mine.replace(asked_for(mine)["state"], asked_for(his_url)["state"])
    page = await victim.follow(mixed)
    assert code in mixed
    assert page.status >= 400, "the code is of another attempt: its verifier does not fit"
    await assert_nothing_happened(harness, his)
    page = await to_the_end(victim, mine)
    assert_leads_to_connected(await victim.follow(await harness.idp.agree(str(page.next_url), browser=victim)))


@pytest.mark.case("6")
async def test_states_of_login_and_provider_are_none_at_each_others_callback(harness: Harness) -> None:
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    login = await login_callback(harness, asked, person)
    assert_error_page(
        await person.follow(login.replace("/login/callback?", "/oauth/callback/mail?")), Code.STATE_UNKNOWN
    )
    page = await to_the_end(person, login)
    back = await harness.idp.agree(str(page.next_url), browser=person)
    assert_error_page(
        await person.follow(back.replace("/oauth/callback/mail?", "/login/callback?")), Code.STATE_UNKNOWN
    )
    assert 0 == harness.idp.count("token")
    assert_leads_to_connected(await person.follow(back))


@pytest.mark.case("3")
async def test_the_logins_callback_is_good_once(harness: Harness) -> None:
    asked, person, stranger = await harness.ask_link(of=corp_turn()), harness.browser(), harness.browser()
    url = await login_callback(harness, asked, person)
    name = f"oab-{asked.auth_session_id.removeprefix('as-')}"
    cookie = person.cookies[name].value
    page = await to_the_end(person, url)
    after = person.cookies[name].value
    assert_error_page(await stranger.open(url), Code.STATE_UNKNOWN)
    person.cookies.set(name, cookie, "127.0.0.1")
    assert_error_page(await person.open(url), Code.STATE_USED)
    person.cookies.set(name, after, "127.0.0.1")
    assert 1 == in_corp(harness).count("token")
    assert_leads_to_connected(await person.follow(await harness.idp.agree(str(page.next_url), browser=person)))
    assert_already_connected(await person.open(url))
    assert_error_page(await stranger.open(url), Code.STATE_UNKNOWN)


@pytest.mark.case("12")
async def test_sixty_callbacks_of_one_login_redeem_it_once(harness: Harness) -> None:
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    url = await login_callback(harness, asked, person)
    name = f"oab-{asked.auth_session_id.removeprefix('as-')}"
    crowd = [harness.browser() for _ in range(60)]
    for each in crowd:
        each.cookies.set(name, person.cookies[name].value, "127.0.0.1")
    pages = await asyncio.gather(*(each.open(url) for each in crowd))
    assert [303] == [page.status for page in pages if page.status not in {400, 409}]
    assert 1 == in_corp(harness).count("token")


async def test_in_two_tabs_the_last_one_that_started_wins(harness: Harness) -> None:
    """The first browser's answer, from the login or from the provider, belongs to no session by then."""
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    first = await login_callback(harness, asked, person)
    second = await login_callback(harness, asked, person)
    assert_error_page(await person.open(first), Code.STATE_UNKNOWN)
    page = await to_the_end(person, second)
    back = await harness.idp.agree(str(page.next_url), browser=person)
    third = await login_callback(harness, asked, person)
    assert_error_page(await person.open(back), Code.STATE_UNKNOWN)
    assert 0 == harness.idp.count("token")
    page = await to_the_end(person, third)
    assert_leads_to_connected(await person.follow(await harness.idp.agree(str(page.next_url), browser=person)))


@pytest.mark.case("17")
async def test_a_reload_or_a_preview_of_the_page_after_the_login_changes_nothing(
    harness: Harness, tmp_path: Path
) -> None:
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    page = await to_the_end(person, await login_callback(harness, asked, person))
    before = tree(tmp_path)
    for method in ("GET", "HEAD", "POST"):
        for browser in (harness.browser(), person):
            await browser.open(page.url, method=method)
    assert page.next_url == (await person.open(page.url)).next_url
    assert before == tree(tmp_path)
    assert_leads_to_connected(await person.follow(await harness.idp.agree(str(page.next_url), browser=person)))


@pytest.mark.parametrize("where", ["fetched ahead", "malformed"])
async def test_a_prefetched_or_malformed_callback_uses_nothing_up(harness: Harness, where: str) -> None:
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    url = await login_callback(harness, asked, person)
    if where == "malformed":
        page = await person.open(url + "&state=twice")
    else:
        page = await person.open(url, headers={"sec-purpose": "prefetch"})
    assert_error_page(page, Code.CALLBACK_MALFORMED)
    assert 0 == in_corp(harness).count("token")
    assert 200 == (await to_the_end(person, url)).status


# time, and what changes meanwhile


async def test_a_session_that_expired_at_the_login_is_refused(harness: Harness) -> None:
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    url = await login_callback(harness, asked, person)
    harness.clock.advance(600)
    page = await person.follow(url)
    assert page.status == 400
    assert 0 == in_corp(harness).count("token")
    assert 0 == harness.idp.count("authorize")


async def test_a_login_counts_as_long_as_its_session_and_no_longer(harness: Harness) -> None:
    """Ten minutes at the provider's page are no obstacle, because no code is waiting."""
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    url = await harness.to_provider(asked, person)
    harness.clock.advance(300)
    assert_leads_to_connected(await person.follow(await harness.idp.agree(url, browser=person)))
    late = await harness.ask_link(of=corp_turn("mallory"))
    back = await harness.way_back(late, person)
    harness.clock.advance(600)
    assert (await person.follow(back)).status == 400
    assert 1 == harness.idp.count("token")


async def test_without_a_login_in_the_session_the_providers_callback_fails_closed(harness: Harness) -> None:
    """The cookie and the state alone are not enough, for each way in which it left the record."""
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    back = await harness.way_back(asked, person)
    versioned = await harness.repository.session(asked.auth_session_id.removeprefix("as-"))
    assert versioned is not None
    await harness.repository.save_session(replace(versioned.record, login=None), expect=versioned.generation)
    assert_error_page(await person.follow(back), Code.OWNER_BINDING_FAILED)
    assert 0 == harness.idp.count("token")
    assert Code.OWNER_BINDING_FAILED is (await harness.session(asked)).failure


@pytest.mark.parametrize("when", ["at the login", "at the provider"])
@pytest.mark.parametrize("change", ["another login", "no login"])
async def test_a_login_that_is_configured_anew_meanwhile_does_not_count(
    harness: Harness, corp: IdentityProvider, when: str, change: str
) -> None:
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    login: BrokerLogin | None = None
    if change == "another login":
        app = broker_login(corp).app
        login = BrokerLogin(replace(app, owner=Owner(user_identity=IdentityRule("idToken", "corp:user:{team}"))))
    if when == "at the login":
        back = await login_callback(harness, asked, person)
    else:
        back = await harness.way_back(asked, person)
    before = in_corp(harness).count("token")
    bundle = harness.broker.bundle
    await harness.broker.reload(
        Bundle(bundle.settings, bundle.apps, bundle.tools, connectors=bundle.connectors, login=login)
    )
    page = await person.follow(back)
    assert page.status >= 400
    assert 0 == harness.idp.count("token")
    assert before == in_corp(harness).count("token")


async def test_a_crash_between_the_logins_callback_and_its_answer_costs_another_press_of_the_button(
    identity_provider: IdentityProvider, corp: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    """The login's result is used up with the first write, and half of it admits no browser."""
    store = file_store(tmp_path, test_clock)
    more: dict[str, Any] = {"settings": settings_for(), "corp": corp, "login": broker_login(corp)}
    apps = [login_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock, store=store, background=False, **more) as harness:
        asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
        url = await login_callback(harness, asked, person)
        hold: Hold = corp.script.token.hang()
        arriving = asyncio.create_task(person.open(url))
        await hold.arrived()
        session = await harness.session(asked)
        assert session.login is not None
        assert (True, None, None) == (session.login.used, session.login.until, session.attempt.cookie)
        body = tree(tmp_path)
        hold.release()
        await arriving
    for name, content in body.items():
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_bytes(content)
    again = file_store(tmp_path, test_clock)
    async with running(identity_provider, apps, clock=test_clock, store=again, **more) as harness:
        person = harness.browser()
        assert (await person.open(url)).status >= 400
        assert_error_page(await person.open(f"{harness.origin}/next/{asked.auth_session_id}"), Code.STATE_UNKNOWN)
        assert_says_connected_at_last(await harness.connect(asked, browser=person))


async def test_a_press_while_the_login_is_being_redeemed_discards_its_outcome(harness: Harness) -> None:
    asked, person, other = await harness.ask_link(of=corp_turn()), harness.browser(), harness.browser()
    url = await login_callback(harness, asked, person)
    hold = in_corp(harness).script.token.hang()
    arriving = asyncio.create_task(person.open(url))
    await hold.arrived()
    await at_the_login(harness, asked, other)
    hold.release()
    assert_error_page(await arriving, Code.STATE_USED)
    await assert_nothing_happened(harness, asked)
    page = await to_the_end(other, await harness.logged_in(asked, other))
    assert_leads_to_connected(await other.follow(await harness.idp.agree(str(page.next_url), browser=other)))


# who is asked for


async def test_the_requester_gets_nothing_while_the_stranger_is_at_the_provider(harness: Harness) -> None:
    """Alice has her link; Mallory knows its public parts, and the link itself."""
    asked, alice, mallory = await harness.ask_link(of=corp_turn()), harness.browser(), harness.browser()
    await harness.to_provider(asked, alice)
    assert_error_page(await mallory.open(f"{harness.origin}/next/{asked.auth_session_id}"), Code.STATE_UNKNOWN)
    page = await mallory.follow(await login_callback(harness, asked, mallory, "mallory"))
    assert 403 == page.status
    assert_error_page(await mallory.open(f"{harness.origin}/next/{asked.auth_session_id}"), Code.STATE_UNKNOWN)
    assert 0 == harness.idp.count("token")
    assert (await harness.session(asked)).open
    assert_says_connected_at_last(await harness.connect(asked, browser=alice))


async def test_where_the_provider_can_be_compared_it_is_compared_too(
    identity_provider: IdentityProvider, corp: IdentityProvider, test_clock: TestClock
) -> None:
    """Subjects in the provider's own spelling: the right person at the company, another account at the provider."""
    app = user_app(identity_provider)
    app = replace(app, owner=replace(app.owner, binding="brokerLogin"))
    login = broker_login(corp)
    login = replace(login, app=replace(login.app, owner=Owner(user_identity=IdentityRule("idToken", "idp:user:{sub}"))))
    more: dict[str, Any] = {"settings": settings_for(), "corp": corp, "login": login}
    async with running(identity_provider, [app], clock=test_clock, **more) as harness:
        assert_error_page(await harness.connect(await harness.ask_link(), "bob"), Code.SUBJECT_MISMATCH)
        assert 0 == len([versioned async for versioned in harness.repository.grants()])
        assert_says_connected_at_last(await harness.connect(await harness.ask_link(), "alice"))


async def test_a_team_cannot_log_in(
    identity_provider: IdentityProvider, corp: IdentityProvider, test_clock: TestClock
) -> None:
    """The loader refuses such an app; one that was built in code fares no better."""
    app = global_app(identity_provider)
    app = replace(app, owner=replace(app.owner, binding="brokerLogin"))
    async with running(
        identity_provider, [app], clock=test_clock, settings=settings_for(), login=broker_login(corp)
    ) as harness:
        asked = await harness.ask_link("team")
        assert_error_page(await leave(harness.browser(), asked.authorization_url), Code.APP_MISCONFIGURED)
        assert 0 == corp.count("authorize")


async def test_a_login_and_a_provider_that_take_pushed_requests_get_them(
    identity_provider: IdentityProvider, corp: IdentityProvider, test_clock: TestClock
) -> None:
    corp.par = "required"
    identity_provider.par = "required"
    app = login_app(identity_provider)
    app = replace(app, endpoints=replace(app.endpoints, pushed_authorization_url=identity_provider.url("/par")))
    more: dict[str, Any] = {"settings": settings_for(), "corp": corp, "login": broker_login(corp)}
    async with running(identity_provider, [app], clock=test_clock, **more) as harness:
        asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
        url = await at_the_login(harness, asked, person)
        assert {"client_id", "request_uri"} == asked_for(url).keys()
        page = await to_the_end(person, await harness.logged_in(asked, person))
        assert {"client_id", "request_uri"} == asked_for(str(page.next_url)).keys()
        assert_leads_to_connected(
            await person.follow(await identity_provider.agree(str(page.next_url), browser=person))
        )
        assert (1, 1) == (corp.count("par"), identity_provider.count("par"))


async def test_a_login_that_is_down_is_reported_before_a_browser_is_sent_there(
    harness: Harness, corp: IdentityProvider
) -> None:
    corp.script.discovery.answer(503, times=None)
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    assert_error_page(await person.open(asked.authorization_url), Code.PROVIDER_UNREACHABLE)
    await assert_nothing_happened(harness, asked)


async def test_who_is_at_the_login_keeps_the_link_when_the_agent_asks_again(harness: Harness) -> None:
    """Looking for a second factor takes its time; only a link without a user on the way is replaced."""
    asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
    address = await at_the_login(harness, asked, person)
    assert (await harness.session(asked)).under_way
    harness.clock.advance(301)
    again = await harness.ask_link(of=corp_turn())
    assert again.auth_session_id != asked.auth_session_id
    page = await to_the_end(person, await in_corp(harness).agree(address, "alice", browser=person))
    assert 200 == page.status, page.text
