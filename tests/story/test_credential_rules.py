"""Rules of a key that no page shows: the hosts it goes to, its signatures, logs, events and the audit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import quote

import pytest

from oauthbroker.core.errors import Locale
from oauthbroker.core.words import SENTENCES
from oauthbroker.injection.errors import InjectionError
from oauthbroker.model.static_credential import Placement
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import Harness, running, turn
from tests.story.keys_kit import DEAD, GOOD, NEWER, KeyApi, asked_for, key_app, sent, type_key, with_key

SIGNED = {"consumerKey": "{apiKey}", "consumerSecret": "s", "token": "t", "tokenSecret": "u"}
PLACES = {
    "meter": Placement(kind="headers", texts={"X-Api-Key": "{apiKey}"}),
    "asked": Placement(kind="query", texts={"key": "{apiKey}"}),
    "walked": Placement(kind="path", texts={"path": "/bot{apiKey}"}),
    "signed": Placement(kind="oauth1", texts=SIGNED),
}


@pytest.fixture
async def harness(api: KeyApi, test_clock: TestClock) -> AsyncIterator[Harness]:
    apps = [key_app(api, name, placement=placement, life_days=90) for name, placement in PLACES.items()]
    async with IdentityProvider(clock=test_clock) as idp, running(idp, apps, clock=test_clock) as harness:
        yield harness


@pytest.mark.case("153")
@pytest.mark.parametrize("app", PLACES)
@pytest.mark.parametrize(
    "place", ["http://localhost:{port}/data", "http://127.0.0.1:1/data", "https://127.0.0.1:{port}/"]
)
async def test_a_key_goes_to_its_apps_hosts_alone(harness: Harness, api: KeyApi, app: str, place: str) -> None:
    await with_key(harness, api, app=app)
    before = len(api.seen)
    async with harness.broker.oauth(turn()).client(app) as client:
        with pytest.raises(InjectionError) as refused:
            await client.get(place.format(port=api.port))
    assert GOOD not in str(refused.value) + repr(refused.value)
    assert before == len(api.seen)


@pytest.mark.parametrize("locale", ["en", "ko"])
async def test_a_link_for_a_key_says_to_enter_it_and_not_to_agree(
    harness: Harness, api: KeyApi, locale: Locale
) -> None:
    of, words = replace(turn(), locale=locale), SENTENCES[locale]
    for sentences, apart in ((words["keyInvitations"], False), (words["privateKeyInvitations"], True)):
        async with harness.broker.oauth(of, private_links=apart).client("meter") as client:
            with pytest.raises(InjectionError) as raised:
                await client.get(api.url("/data"))
        asked = raised.value.result
        assert isinstance(asked, AuthorizationRequired)
        block = await harness.broker.pending(of, "apart" if apart else "inline")
        assert block is not None
        assert {sentences["noGrant"].format(app="Meter")} == {asked.message, *(it["message"] for it in block["items"])}


@pytest.mark.case("156")
@pytest.mark.parametrize("app", PLACES)
async def test_a_key_in_an_address_is_in_no_log_exception_or_audit_entry(
    harness: Harness, api: KeyApi, app: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await with_key(harness, api, app=app)
    answer = await sent(harness, api, app=app)
    assert 200 == answer.status_code
    assert GOOD not in str(answer.request.url) + str(answer.url)
    assert GOOD not in repr(api.seen[-1].headers.get("referer", ""))
    del api.keys[GOOD]
    result = await sent(harness, api, app=app)
    assert isinstance(result, AuthorizationRequired)
    assert GOOD not in repr(result) + result.message
    said = harness.log.getvalue() + repr(harness.audit.lines) + repr(harness.broker.metrics.to_json())
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(("uvicorn", "asyncio"))]
    assert GOOD not in said + "\n".join(ours)
    assert quote(GOOD, safe="") not in said


@pytest.mark.case("158")
async def test_no_event_and_no_entry_of_the_audit_log_holds_a_value(harness: Harness, api: KeyApi) -> None:
    await type_key(harness, await asked_for(harness, api), DEAD)
    await with_key(harness, api)
    await sent(harness, api)
    events = [await harness.event()]
    del api.keys[GOOD]
    asked = await sent(harness, api)
    assert isinstance(asked, AuthorizationRequired)
    await type_key(harness, asked, NEWER)
    events.append(await harness.event())
    assert ["auth.granted", "auth.granted"] == [event["type"] for event in events if event]
    assert harness.audit.lines
    for value in (DEAD, GOOD, NEWER):
        assert value not in repr(events) + repr(harness.audit.lines)


@pytest.mark.case("159")
async def test_a_signature_covers_the_whole_request_and_replaces_the_callers_own(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api, app="signed")
    form = {"content-type": "application/x-www-form-urlencoded", "authorization": "OAuth mine"}
    signatures = set()
    for method, path, body in [("POST", "/data", b"a=1"), ("POST", "/data", b"a=2"), ("POST", "/data?b=1", b"a=1")]:
        await sent(harness, api, path, app="signed", method=method, content=body, headers=form)
        header = api.seen[-1].headers["authorization"]
        assert "mine" not in header
        parts = dict(part.strip().split("=", 1) for part in header.removeprefix("OAuth ").split(","))
        assert parts["oauth_consumer_key"] == f'"{GOOD}"'
        signatures.add(parts["oauth_signature"])
    assert 3 == len(signatures)
