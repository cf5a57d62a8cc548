"""The way back from the provider (cases 1-13): which callbacks are refused, with which code, and the state they leave untouched."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from oauthbroker.audit import ConnectFailed
from oauthbroker.core.errors import Code
from oauthbroker.model.provider_habits import Habits
from oauthbroker.model.token_results import Ready
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from oauthbroker.testing.provider import FOREVER
from tests.kit.callback_pages import (
    CALLBACK,
    HOST,
    UNKNOWN_STATE,
    assert_already_connected,
    assert_error_page,
    assert_leads_to_connected,
    without_request_id,
)
from tests.kit.running_broker import BASE, Harness, running, tree, user_app
from tests.unit.web import kit


def fields_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


@pytest.mark.case("1")
@pytest.mark.parametrize("query", ["", "?", "?code=abc", "?code=abc&state=", "?state=short&code=abc", "?error=x"])
async def test_a_callback_without_a_state_touches_nothing(filed: Harness, tmp_path: Path, query: str) -> None:
    await filed.ask_link()
    before = tree(tmp_path)
    assert_error_page(await filed.browser().open(CALLBACK + query), Code.CALLBACK_MALFORMED)
    assert before == tree(tmp_path)
    assert 0 == filed.idp.count("token")


@pytest.mark.case("2", "3", "4")
async def test_unknown_made_up_used_expired_and_foreign_states_look_the_same_to_a_stranger(harness: Harness) -> None:
    """Only the request id differs: the answer does not reveal which sessions exist."""
    used, expired, foreign = [await harness.ask_link(scopes=[scope]) for scope in ("read", "write", "admin")]
    person = harness.browser()
    used_url = await harness.way_back(used, person)
    await person.follow(used_url)
    foreign_url = await harness.way_back(foreign, person)
    made_up = used.auth_session_id.removeprefix("as-") + "x" * 43
    answers = [
        await harness.browser().open(f"{CALLBACK}?{urlencode({'code': 'abc', 'state': state})}")
        for state in (UNKNOWN_STATE, made_up)
    ]
    answers.append(await harness.browser().open(used_url))
    answers.append(await harness.browser().open(foreign_url.replace("callback/mail", "callback/files")))
    expired_url = await harness.way_back(expired, person)
    harness.clock.advance(601)
    answers.append(await harness.browser().open(expired_url))
    assert_error_page(answers[0], Code.STATE_UNKNOWN)
    assert [without_request_id(answers[0])] * 5 == [without_request_id(page) for page in answers]
    assert 1 == harness.idp.count("token"), "only the first one, by its own browser"


@pytest.mark.case("2")
async def test_a_state_made_from_a_public_session_id_is_unknown_and_changes_nothing(
    filed: Harness, tmp_path: Path
) -> None:
    asked = await filed.ask_link()
    person = filed.browser()
    url = await filed.way_back(asked, person)
    before = tree(tmp_path)
    forged = asked.auth_session_id.removeprefix("as-") + "x" * 43
    page = await person.follow(url.replace(fields_of(url)["state"], forged))
    assert_error_page(page, Code.STATE_UNKNOWN)
    assert before == tree(tmp_path)
    assert 0 == filed.idp.count("token")
    assert_leads_to_connected(await person.follow(url))


@pytest.mark.case("3")
async def test_a_finished_callback_replayed_is_used_and_not_exchanged_again(harness: Harness) -> None:
    asked = await harness.ask_link()
    person = harness.browser()
    url = await harness.way_back(asked, person)
    assert_leads_to_connected(await person.follow(url))
    page = await person.follow(url)
    assert_already_connected(page)
    assert "Mail is connected" in page.text
    assert 1 == harness.idp.count("token")
    assert 1 == len(await harness.events())
    ready = await harness.ask()
    assert isinstance(ready, Ready)
    assert harness.idp.is_alive(ready.access_token), "a replayed code would have revoked it"


@pytest.mark.case("4")
@pytest.mark.parametrize("late", [600, 601, 86_400])
async def test_after_its_time_a_session_is_over_and_the_code_is_not_sent(harness: Harness, late: int) -> None:
    asked = await harness.ask_link()
    person = harness.browser()
    url = await harness.way_back(asked, person)
    harness.clock.advance(late)
    assert_error_page(await person.follow(url), Code.STATE_EXPIRED)
    assert 0 == harness.idp.count("token")
    session = await harness.session(asked)
    assert ("expired", None, None) == (session.status, session.ticket, session.attempt.verifier)
    assert "expired" == (await harness.broker.wait(asked.auth_session_id, 0)).status


@pytest.mark.case("5")
@pytest.mark.parametrize("cookie", [None, "wrong"])
async def test_a_valid_state_in_another_browser_ends_the_session_unexchanged(
    harness: Harness, cookie: str | None
) -> None:
    asked = await harness.ask_link()
    person, other = harness.browser(), harness.browser()
    url = await harness.way_back(asked, person)
    if cookie is not None:
        (name,) = [name for name in person.cookies if name.startswith("oab-")]
        other.cookies.set(name, "w" * 43, "127.0.0.1")
    assert_error_page(await other.open(url), Code.OWNER_BINDING_FAILED)
    assert 0 == harness.idp.count("token")
    session = await harness.session(asked)
    assert ("failed", Code.OWNER_BINDING_FAILED) == (session.status, session.failure)
    (event,) = await harness.events()
    assert ("auth.failed", "ownerBindingFailed") == (event["type"], event["payload"]["code"])
    failures = [entry for entry in harness.audit.entries if isinstance(entry, ConnectFailed)]
    assert [ConnectFailed(app="mail", session=session.id, code="ownerBindingFailed")] == failures
    assert_error_page(await person.follow(url), Code.STATE_USED)
    assert await harness.grant() is None


@pytest.mark.case("6")
async def test_a_state_on_another_apps_path_is_refused_and_stays_good_on_its_own(harness: Harness) -> None:
    mail, files = await harness.ask_link("mail"), await harness.ask_link("files")
    person = harness.browser()
    url = await harness.way_back(mail, person)
    await harness.to_provider(files, person)
    assert_error_page(await person.follow(url.replace("/mail?", "/files?")), Code.APP_MISMATCH)
    assert 0 == harness.idp.count("token")
    assert ["pending", "pending"] == [(await harness.session(asked)).status for asked in (mail, files)]
    assert [None, None] == [await harness.grant("mail"), await harness.grant("files")]
    assert_leads_to_connected(await person.follow(url))


@pytest.mark.case("7")
async def test_a_code_under_another_issuers_name_is_never_sent(harness: Harness, canaries: Canaries) -> None:
    with IdentityProvider(canaries=canaries) as evil:
        harness.idp.script.authorize.fields(iss=evil.issuer)
        asked = await harness.ask_link()
        assert_error_page(await harness.connect(asked), Code.ISSUER_MISMATCH)
        assert (0, []) == (harness.idp.count("token"), evil.requests)
    assert Code.ISSUER_MISMATCH is (await harness.session(asked)).failure
    (event,) = await harness.events()
    assert ("auth.failed", "issuerMismatch") == (event["type"], event["payload"]["code"])


@pytest.mark.case("7", "8")
@pytest.mark.parametrize(
    "iss, beside_a_code, code",
    [
        (None, False, Code.PROVIDER_DENIED),
        (None, True, Code.PROVIDER_DENIED),
        ("", False, Code.ISSUER_MISMATCH),
        ("https://evil.example", False, Code.ISSUER_MISMATCH),
        ("https://evil.example", True, Code.ISSUER_MISMATCH),
    ],
)
async def test_an_error_without_the_promised_issuer_is_the_persons_no_and_under_a_wrong_one_a_mismatch(
    identity_provider: IdentityProvider,
    test_clock: TestClock,
    iss: str | None,
    beside_a_code: bool,
    code: Code,
) -> None:
    """RFC 9207 promises `iss` on error responses too; some providers leave it out of those alone. There is no code to
    lose, and state and cookie are this browser's own."""
    app = user_app(identity_provider, habits=Habits(always_scopes=("openid",), issuer_promised=True))
    async with running(identity_provider, [app], clock=test_clock) as harness:
        authorize = harness.idp.script.authorize
        authorize.fields(error="access_denied") if beside_a_code else authorize.error()
        authorize.fields(iss=iss)
        asked = await harness.ask_link()
        assert_error_page(await harness.connect(asked), code)
        assert 0 == harness.idp.count("token")
        session = await harness.session(asked)
        assert ("failed", code) == (session.status, session.failure)
        (event,) = await harness.events()
        kind = "auth.denied" if code is Code.PROVIDER_DENIED else "auth.failed"
        assert (kind, code.value) == (event["type"], event["payload"]["code"])


@pytest.mark.case("8")
async def test_a_no_is_a_no_while_the_providers_metadata_cannot_be_read(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """Whether `iss` was promised matters for a code alone."""
    app = user_app(identity_provider)
    app = replace(app, endpoints=replace(app.endpoints, jwks_url=""))  # read from the metadata, with the promise
    async with running(identity_provider, [app], clock=test_clock) as one:
        one.idp.script.authorize.error()
        asked, person = await one.ask_link(), one.browser()
        url = await one.way_back(asked, person)
        identity_provider.script.discovery.answer(503, times=FOREVER)
        async with running(identity_provider, [app], clock=test_clock, store=one.store) as another:
            person.serve(BASE, another.broker.asgi.app)
            assert_error_page(await person.follow(url), Code.PROVIDER_DENIED)


@pytest.mark.case("5", "7")
async def test_an_error_without_the_promised_issuer_in_another_browser_is_not_the_persons_no(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    app = user_app(identity_provider, habits=Habits(always_scopes=("openid",), issuer_promised=True))
    async with running(identity_provider, [app], clock=test_clock) as harness:
        harness.idp.script.authorize.error()
        harness.idp.script.authorize.fields(iss=None)
        asked, person = await harness.ask_link(), harness.browser()
        url = await harness.way_back(asked, person)
        assert_error_page(await harness.browser().open(url), Code.OWNER_BINDING_FAILED)


@pytest.mark.case("9")
async def test_an_error_beats_a_code_beside_it(harness: Harness) -> None:
    harness.idp.script.authorize.fields(error="access_denied")
    asked = await harness.ask_link()
    assert_error_page(await harness.connect(asked), Code.PROVIDER_DENIED)
    assert 1 == harness.idp.count("authorize")
    assert 0 == harness.idp.count("token")
    assert Code.PROVIDER_DENIED is (await harness.session(asked)).failure


@pytest.mark.case("10")
@pytest.mark.parametrize(
    "spoil",
    [
        "state={state}&state={state}&code={code}",
        "state={other}&state={state}&code={code}",
        "state={state}&code={code}&state={other}",
        "code={code}&state={state}&code={code}",
        "code=forged&state={state}&code={code}",
        "state={state}&code={code}&code=forged",
        "state={state}&code={code}&code=",
        "state={state}&code={code}&%63ode=forged",
        "state={state}&code={code}&iss=a&iss=b",
        "state={state}&error=a&error=b",
    ],
)
async def test_a_parameter_that_comes_twice_is_no_parameter(filed: Harness, tmp_path: Path, spoil: str) -> None:
    asked = await filed.ask_link()
    person = filed.browser()
    url = await filed.way_back(asked, person)
    given = {key: fields_of(url)[key] for key in ("state", "code")}
    before = tree(tmp_path)
    assert_error_page(
        await person.follow(f"{CALLBACK}?{spoil.format(**given, other=UNKNOWN_STATE)}"), Code.CALLBACK_MALFORMED
    )
    assert before == tree(tmp_path)
    assert 0 == filed.idp.count("token")
    assert_leads_to_connected(await person.follow(url))


@pytest.mark.case("11")
@pytest.mark.parametrize(
    "query, status",
    [
        (b"state=%s&code=abc&junk=" + b"x" * 100_000, 414),
        (b"state=%s&code=" + b"c" * 8200, 414),
        (b"state=%s&errors=x&code=" + b"c" * 8200, 414),
        (b"state=%s&error=x&error_description=" + b"c" * 100_000, 414),
        (b"state=%s&code=" + b"c" * 5000, 400),
        (b"state=%s&code=a%%00b", 400),
        (b"state=%s&code=a%%0d%%0aX-Evil:%%201", 400),
        (b"state=%s&code=a\r\nb", 400),
        (b"state=%s&code=%%ff%%fe", 400),
        (b"state=%s&code=\xff\xfe", 400),
        (b"state=%s&code=%%e2%%80%%ae", 400),
        (b"state=%s&error=" + b"e" * 200, 400),
        (b"state=%s&error=%%0a", 400),
        (b"state=%s0&code=abc", 400),
        (b"state=%%00%s&code=abc", 400),
    ],
)
async def test_oversized_and_unprintable_queries_end_before_the_store(
    filed: Harness, tmp_path: Path, query: bytes, status: int
) -> None:
    asked = await filed.ask_link()
    person = filed.browser()
    url = await filed.way_back(asked, person)
    raw = query.replace(b"%%", b"%").replace(b"%s", fields_of(url)["state"].encode(), 1)
    cookies = "; ".join(f"{name}={person.cookies[name].value}" for name in person.cookies)
    before = tree(tmp_path)
    answer = await kit.ask(
        filed.broker.asgi.app, "/oauth/callback/mail", query=raw, host=HOST, headers=[("cookie", cookies)]
    )
    assert status == answer.status
    assert "evil" not in str(answer.raw_headers).lower()
    assert before == tree(tmp_path)
    assert 0 == filed.idp.count("token")
    lines = [json.loads(line) for line in filed.log.getvalue().splitlines()]
    assert status == lines[-1]["status"], "one line for every request"
    assert_leads_to_connected(await person.follow(url))


@pytest.mark.case("13")
@pytest.mark.parametrize("method", ["POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "get"])
async def test_only_a_get_is_a_callback(filed: Harness, tmp_path: Path, method: str) -> None:
    asked = await filed.ask_link()
    person = filed.browser()
    url = await filed.way_back(asked, person)
    before = tree(tmp_path)
    cookies = "; ".join(f"{name}={person.cookies[name].value}" for name in person.cookies)
    query = urlsplit(url).query.encode()
    answer = await kit.ask(
        filed.broker.asgi.app,
        "/oauth/callback/mail",
        method=method,
        query=query,
        host=HOST,
        headers=[("cookie", cookies), ("content-type", "application/x-www-form-urlencoded")],
        chunks=[query],
    )
    assert 405 == answer.status
    assert before == tree(tmp_path)
    assert_leads_to_connected(await person.follow(url))


@pytest.mark.case("13")
@pytest.mark.parametrize(
    "headers",
    [
        {"sec-purpose": "prefetch"},
        {"sec-purpose": "prefetch;prerender"},
        {"purpose": "prefetch"},
        {"x-moz": "prefetch"},
    ],
)
async def test_a_browser_that_fetches_ahead_consumes_nothing(
    filed: Harness, tmp_path: Path, headers: dict[str, str]
) -> None:
    asked = await filed.ask_link()
    person = filed.browser()
    url = await filed.way_back(asked, person)
    before = tree(tmp_path)
    assert_error_page(await person.open(url, headers=headers), Code.CALLBACK_MALFORMED)
    assert before == tree(tmp_path)
    assert_leads_to_connected(await person.follow(url))


@pytest.mark.case("13")
async def test_a_form_post_from_the_provider_consumes_nothing(filed: Harness, tmp_path: Path) -> None:
    """`response_mode=form_post`, which we never ask for: a cross-site POST, so without the cookie."""
    asked = await filed.ask_link()
    person = filed.browser()
    url = await filed.way_back(asked, person)
    before = tree(tmp_path)
    page = await person.post(CALLBACK, parse_qsl(urlsplit(url).query), initiator=person.page)
    assert 405 == page.status
    assert before == tree(tmp_path)
    assert_leads_to_connected(await person.follow(url))
