"""Operators and static credentials: lines of an import, the second slot, revocation, and what never shows a value."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.audit import GrantImported, GrantRevoked
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.grants.import_lines import CheckedLines, validate
from oauthbroker.model.apps import ANYONE, App, Owner
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.model.token_results import AuthorizationRequired, Failed
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import Harness, running, turn, user_app
from tests.story.api.kit import Callers
from tests.story.keys_kit import DEAD, GOOD, NEWER, OF_BOB, KeyApi, key_app, sent

NDJSON = "application/x-ndjson"
PAGE = "https://meter.example/keys"
WHO, TEAM = "idp:user:U234567", "idp:team:T1"
LINE: dict[str, Any] = {"app": "meter", "subject": WHO, "credential": {"apiKey": GOOD}}


def obtained(app: App) -> App:
    assert app.credential is not None
    fields = tuple(replace(each, obtain=PAGE) for each in app.credential.fields)
    return replace(app, credential=replace(app.credential, fields=fields))


@pytest.fixture
async def harness(api: KeyApi, test_clock: TestClock) -> AsyncIterator[Harness]:
    apps = [
        key_app(api),
        key_app(api, "blind", verification=None),
        key_app(api, "short", life_days=90),
        key_app(api, "shared", team_fallback=True),
        obtained(key_app(api, "obtained")),
        key_app(api, "team", subject_mode="global", owner=Owner(authorizers=ANYONE)),
    ]
    async with (
        IdentityProvider(clock=test_clock) as idp,
        running(idp, [*apps, user_app(idp)], clock=test_clock) as harness,
    ):
        yield harness


def read(harness: Harness, line: dict[str, Any]) -> CheckedLines:
    stream = io.BytesIO(json.dumps(line).encode())
    return validate(stream, harness.broker.bundle.apps, harness.clock.now())


async def taken(harness: Harness, more: dict[str, Any], **how: Any) -> str:
    """Import one line; its outcome, or the code of its refusal."""
    checked = read(harness, LINE | more)
    assert [] == checked.problems
    try:
        return await harness.broker.grants.importing.import_grant(checked.incoming[0], **how)
    except BrokerError as error:
        return error.code.value


NEXT: dict[str, Any] = {"app": "meter", "subject": WHO, "next": {"apiKey": NEWER}}


async def added(harness: Harness, line: dict[str, Any]) -> str:
    checked = read(harness, line)
    assert [] == checked.problems
    return await harness.broker.grants.importing.import_grant(checked.incoming[0])


async def test_an_imported_credential_is_checked_stored_and_injected(harness: Harness, api: KeyApi) -> None:
    assert "imported" == await taken(harness, {"credential": {"apiKey": f" {GOOD}\n"}})
    assert ["/me"] == [each.path for each in api.seen]
    assert 200 == (await sent(harness, api)).status_code
    assert "there" == await taken(harness, {"credential": {"apiKey": f" {GOOD}\n"}})
    assert "kept" == await taken(harness, {"credential": {"apiKey": NEWER}})
    assert "replaced" == await taken(harness, {"credential": {"apiKey": NEWER}}, replace=True)
    [grant] = [each.record async for each in harness.repository.grants()]
    assert ("static_credential", False) == (grant.flow, grant.unverified)


@pytest.mark.parametrize(
    ("line", "status", "outcome"),
    [
        ({"credential": {"apiKey": DEAD}}, 0, "credentialRefused"),
        ({"credential": {"apiKey": OF_BOB}}, 0, "subjectMismatch"),
        ({}, 503, "credentialUnchecked"),
        ({"next": {"apiKey": DEAD}}, 0, "credentialRefused"),
        ({"next": {"apiKey": OF_BOB}}, 0, "subjectMismatch"),
        ({"unverified": True}, 503, "imported"),
        ({"unverified": False}, 0, "imported"),
    ],
)
async def test_what_the_provider_says_decides_unless_the_author_says_unverified(
    harness: Harness, api: KeyApi, line: dict[str, Any], status: int, outcome: str
) -> None:
    api.status = status
    assert outcome == await taken(harness, line)
    grants = [each async for each in harness.repository.grants()]
    assert (outcome == "imported") == bool(grants)
    assert all(each.record.unverified == line.get("unverified", False) for each in grants)


async def test_an_unverified_line_is_checked_when_it_comes_again_without_the_word(
    harness: Harness, api: KeyApi
) -> None:
    assert "imported" == await taken(harness, {"unverified": True})
    assert [] == api.seen
    assert "there" == await taken(harness, {})
    [grant] = [each.record async for each in harness.repository.grants()]
    assert not grant.unverified


async def test_without_a_verify_request_it_stays_unverified(harness: Harness) -> None:
    assert "imported" == await taken(harness, {"app": "CredentialApp/blind", "credential": {"apiKey": DEAD}})
    [grant] = [each.record async for each in harness.repository.grants()]
    assert grant.unverified


async def test_a_teams_credential_comes_by_import_alone(harness: Harness, api: KeyApi) -> None:
    assert "imported" == await taken(harness, {"app": "team", "subject": TEAM})
    assert 200 == (await sent(harness, api, of=turn(team=TEAM), app="team")).status_code
    [grant] = [each.record async for each in harness.repository.grants()]
    assert not grant.unverified, "the provider took it, and the file says whose it is"


async def test_the_credential_of_a_team_whose_users_fall_back_to_it_is_imported(harness: Harness, api: KeyApi) -> None:
    """No account of a user is spelt as the team, so the account that the answer names is not compared with it."""
    line: dict[str, Any] = {"app": "shared", "subject": TEAM, "credential": {"apiKey": NEWER}}
    assert "imported" == await taken(harness, line)
    answer = await sent(harness, api, of=turn(team=TEAM), app="shared")
    assert (200, "team") == (answer.status_code, answer.headers.get("oauthbroker-credential"))
    [grant] = [each.record async for each in harness.repository.grants()]
    assert (False, None, None) == (grant.unverified, grant.authorized_by, grant.pinned)
    assert "credentialRefused" == await taken(harness, line | {"credential": {"apiKey": DEAD}}, replace=True)
    assert "subjectMismatch" == await taken(harness, {"app": "shared", "credential": {"apiKey": OF_BOB}})
    assert read(harness, LINE | {"subject": TEAM}).problems, "without the fallback it is a mistake"


async def test_a_next_credential_takes_over_without_a_pause(harness: Harness, api: KeyApi) -> None:
    await taken(harness, {})
    assert "replaced" == await added(harness, NEXT)
    assert "there" == await added(harness, NEXT)
    assert 200 == (await sent(harness, api)).status_code
    assert GOOD == api.seen[-1].headers["x-api-key"], "the first one goes on until it is refused"
    del api.keys[GOOD]
    assert 200 == (await sent(harness, api)).status_code
    assert NEWER == api.seen[-1].headers["x-api-key"]


async def test_a_next_credential_alone_is_the_first_and_ends_its_life_later(harness: Harness, api: KeyApi) -> None:
    line = NEXT | {"app": "short"}
    assert "imported" == await added(harness, line)
    assert 200 == (await sent(harness, api, app="short")).status_code
    harness.clock.advance(80 * 86400)
    assert "replaced" == await added(harness, line | {"next": {"apiKey": GOOD}})
    [grant] = [each.record async for each in harness.repository.grants()]
    assert grant.token is not None
    assert grant.ends is not None
    assert grant.ends.at == grant.token.expires_at, "the notice of the end waits for the later one"
    harness.clock.advance(80 * 86400)
    assert 200 == (await sent(harness, api, app="short")).status_code
    harness.clock.advance(20 * 86400)
    assert isinstance(await sent(harness, api, app="short"), AuthorizationRequired)


async def test_one_that_the_api_refused_is_not_alive_and_gives_way(harness: Harness, api: KeyApi) -> None:
    await taken(harness, {})
    del api.keys[GOOD]
    assert isinstance(await sent(harness, api), AuthorizationRequired)
    assert "there" == await taken(harness, {}), "the line of the refused one changes nothing"
    assert "replaced" == await taken(harness, {"credential": {"apiKey": NEWER}})
    assert 200 == (await sent(harness, api)).status_code


async def test_a_next_credential_does_not_revive_a_revoked_grant(harness: Harness) -> None:
    await taken(harness, {})
    assert "none" == await harness.broker.grants.revoke("meter", WHO)
    assert "revoked" == await added(harness, NEXT)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no credential": ({"credential": ...}, "credential is missing. Give an object with apiKey."),
    "a text": ({"credential": GOOD}, "credential is not an object of texts"),
    "a number": ({"credential": {"apiKey": 1}}, "credential is not an object of texts"),
    "no field": ({"credential": {}}, "credential.apiKey is missing"),
    "blank": ({"next": {"apiKey": " "}}, "next.apiKey is missing"),
    "another name": ({"credential": {"apiKey": GOOD, GOOD: GOOD}}, "a name in credential is no field of the app"),
    "a control": ({"credential": {"apiKey": "a\r\nb"}}, "credential.apiKey is not of printable ASCII"),
    "long": ({"credential": {"apiKey": "a" * 8193}}, "credential.apiKey is too long"),
    "a token": ({"accessToken": GOOD}, "accessToken is of no use for a CredentialApp. Leave it out."),
    "scopes": ({"scopes": []}, "scopes is of no use for a CredentialApp. Leave it out."),
    "other scopes": ({"scopes": ["read"]}, "scopes is of no use for a CredentialApp. Leave it out."),
    "another kind": ({"app": "OAuthApp/meter"}, "app has another kind than meter, which is a CredentialApp"),
    "a word": ({"unverified": "yes"}, "unverified is not true or false"),
    "of an OAuthApp": ({"app": "mail"}, "credential is for a CredentialApp, and mail is an OAuthApp"),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_line_with_a_mistake_is_told_by_field_and_never_by_value(
    api: KeyApi, identity_provider: IdentityProvider, case: str
) -> None:
    apps = {each.name: each for each in (key_app(api), user_app(identity_provider))}
    more, said = BAD[case]
    line = {name: value for name, value in (LINE | more).items() if value is not ...}
    checked = validate(io.BytesIO(json.dumps(line).encode()), apps, TestClock().now())
    assert said in [each.what for each in checked.problems]
    assert case != "other scopes" or 1 == len(checked.problems), "one mistake is one problem"
    assert GOOD not in repr(checked)


async def test_the_audit_names_slots_and_nothing_shows_a_value(harness: Harness) -> None:
    await taken(harness, {"next": {"apiKey": NEWER}})
    entries = [each for each in harness.audit.entries if isinstance(each, GrantImported)]
    assert ["credential next"] == [each.slots for each in entries]
    listed = [each async for each in harness.broker.grants.list()]
    assert all(key not in repr((harness.audit.entries, listed)) for key in (GOOD, NEWER))


async def test_the_api_imports_one_and_a_provider_that_is_away_stops_no_other_line(
    harness: Harness, api: KeyApi
) -> None:
    caller = (await Callers.of(harness)).operator
    lines = [LINE, LINE | {"app": "blind"}, LINE | {"app": "short", "credential": {}}]
    api.status = 503
    body = b"".join(json.dumps(each).encode() + b"\n" for each in lines)
    answer = await caller.send("POST", "/v1/grants", body=body, headers={"Idempotency-Key": "k"}, kind=NDJSON)
    assert 200 == answer.status, answer.text
    found = answer.json()
    counts = {name: found[name] for name in ("imported", "refused", "unverified")}
    assert {"imported": 1, "refused": 2, "unverified": 1} == counts
    assert {1: "credentialUnchecked", 3: None} == {it["line"]: it.get("code") for it in found["problems"]}
    assert GOOD not in answer.text


def revoked_entries(harness: Harness) -> list[str]:
    return [each.provider for each in harness.audit.entries if isinstance(each, GrantRevoked)]


@pytest.mark.parametrize("app", ["meter", "moved", "gone"])
async def test_a_revocation_sends_nothing_and_keeps_no_value(harness: Harness, api: KeyApi, app: str) -> None:
    """Also of an app that is gone or has moved: no other client could tell the provider either."""
    await taken(harness, {"next": {"apiKey": NEWER}})
    sent_before = len(api.seen)
    elsewhere = ApiAccess((ApiHost("127.0.0.1", 1, "http"),), injected=True)
    apps = {"meter": key_app(api), "moved": replace(key_app(api), api=elsewhere), "gone": None}
    assert "none" == await harness.running.parts.revoke.grant(apps[app], GrantKey("meter", WHO))
    [grant] = [each.record async for each in harness.repository.grants()]
    assert (True, None, None, "untold") == (grant.revoked, grant.token, grant.next_credential, grant.revocation)
    assert sent_before == len(api.seen)
    assert ["none"] == revoked_entries(harness)


async def test_ending_it_names_the_page_where_the_credential_still_works(harness: Harness, api: KeyApi) -> None:
    await taken(harness, {"app": "obtained"})
    [grant] = [each async for each in harness.broker.grants.list()]
    answer = await (await Callers.of(harness)).operator.send("DELETE", f"/v1/grants/{grant.grantId}")
    assert {"grantId": grant.grantId, "provider": "none", "endAt": [PAGE]} == answer.json()


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        ("OAuthApp/meter", Code.REQUEST_INVALID),
        ({"kind": "OAuthApp", "name": "meter"}, Code.REQUEST_INVALID),
        ("CredentialApp/mail", Code.REQUEST_INVALID),
        ({"kind": "CredentialApp", "name": "mail"}, Code.REQUEST_INVALID),
        ("CredentialApp/mail@work", Code.REQUEST_INVALID),
    ],
)
async def test_a_reference_of_the_other_kind_is_refused(harness: Harness, ref: Any, code: Code) -> None:
    context = harness.broker.oauth(turn())
    for result in (
        await context.get_access_token(ref),
        await context.missing_consent(ref),
        await context.report_rejected(ref, GOOD),
    ):
        assert isinstance(result, Failed)
        assert code is result.code
    assert "requestInvalid" == (await context.getAccessToken({"oauthAppRef": ref}))["error"]["code"]
    with pytest.raises(BrokerError) as refused:
        context.injected_calls(ref)
    assert code is refused.value.code
    assert isinstance(await harness.broker.oauth(turn()).get_access_token("mail"), AuthorizationRequired)
