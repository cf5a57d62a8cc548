"""Grants over HTTP, for operators: what there is, page by page, and ending one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from oauthbroker.audit.formatting import line_of
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.records import grant_id
from oauthbroker.repository.repository import Repository
from oauthbroker.store.format.port import Entry
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit import planted_records
from tests.kit.running_broker import ALICE, BOB, TEAM, Harness, running, turn, user_app
from tests.story.api.kit import Callers, checked


async def three(harness: Harness) -> None:
    for app in ("mail", "files", "team"):
        await harness.connected(app, of=turn())


async def test_an_operator_sees_every_grant_and_no_token(harness: Harness, api: Callers) -> None:
    await three(harness)
    page = checked("GrantPage", (await api.operator.get("/v1/grants")).body)
    found = {(each["app"], each["subject"]) for each in page["grants"]}
    assert {("mail", ALICE), ("files", ALICE), ("team", TEAM)} == found
    assert "next" not in page
    again = (await api.operator.get("/v1/grants")).json()["grants"]
    assert [it["grantId"] for it in page["grants"]] == [it["grantId"] for it in again], "the store's order stays"


@pytest.mark.parametrize(
    "query, apps",
    [
        ("app=mail", {"mail"}),
        ("app=OAuthApp/mail", {"mail"}),
        ("app=OAuthApp%2Fmail&state=live", set()),
        (f"subject={ALICE}", {"mail", "files"}),
        ("state=live", {"files", "team"}),
        ("state=revoked", {"mail"}),
        ("app=mail&state=live", set()),
    ],
)
async def test_grants_are_chosen_by_app_subject_and_state(
    harness: Harness, api: Callers, query: str, apps: set[str]
) -> None:
    await three(harness)
    await harness.broker.revoke("mail", subject=ALICE) if "state" in query else None
    found = (await api.operator.get(f"/v1/grants?{query}")).json()["grants"]
    assert apps == {each["app"] for each in found}


@pytest.mark.parametrize("kind", ["grants", "auth-sessions"])
async def test_a_list_of_an_app_that_is_not_there_names_the_nearest_and_one_of_a_removed_app_does_not(
    harness: Harness, api: Callers, kind: str
) -> None:
    grant = await planted_records.grant(harness, "mail", ALICE)
    await Repository(harness.store).save_grant(replace(grant, app="removed"), expect=0)
    for app in ("mial", "OAuthApp/mial", "mial@work"):
        no = await api.operator.get(f"/v1/{kind}?app={app}")
        assert (404, "oauthAppNotFound") == (no.status, no.code)
        assert "No app is called mial. Did you mean mail?" == no.json()["detail"]
    for query in ("app=mail", "app=mail@work", "app=removed", "app=removed@work", f"subject={BOB}"):
        assert 200 == (await api.operator.get(f"/v1/{kind}?{query}")).status


async def test_what_a_removed_app_has_left_is_listed_and_ended_under_every_filter(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """`files` has a grant and `team` an authorization when both are removed."""
    both = [user_app(identity_provider, name) for name in ("mail", "files", "team")]
    async with running(identity_provider, both, clock=test_clock) as first:
        await planted_records.grant(first, "files", ALICE)
        asked = await first.ask("team")
        assert isinstance(asked, AuthorizationRequired)
        async with running(identity_provider, both[:1], clock=test_clock, store=first.store) as harness:
            operator = (await Callers.of(harness)).operator
            for app in ("files", "team"):
                for filters in ("", "@work", f"&subject={BOB}"):
                    for kind in ("grants", "auth-sessions"):
                        listed = await operator.get(f"/v1/{kind}?app={app}{filters}")
                        assert 200 == listed.status, (app, kind, filters, listed.json())
                assert 200 == (await operator.get(f"/v1/auth-sessions?app={app}&status=failed")).status
                assert 200 == (await operator.get(f"/v1/grants?app={app}&state=revoked")).status
            found = (await operator.get("/v1/auth-sessions?app=team")).json()["sessions"]
            assert [asked.auth_session_id] == [each["metadata"]["name"] for each in found]
            assert {"cancelled": True} == (await operator.delete(f"/v1/auth-sessions/{asked.auth_session_id}")).json()
            (grant,) = (await operator.get("/v1/grants?app=files")).json()["grants"]
            assert 200 == (await operator.delete(f"/v1/grants/{grant['grantId']}")).status
            assert 0 == (await harness.broker.grants.revoke_all(app="team")).ended


@pytest.mark.parametrize("app", ["mail@%20work", "mail@work%0A", f"OAuthApp/mail@{'x' * 129}"])
@pytest.mark.parametrize("kind", ["grants", "auth-sessions"])
async def test_an_account_that_no_app_can_have_is_no_filter(api: Callers, kind: str, app: str) -> None:
    no = await api.operator.get(f"/v1/{kind}?app={app}")
    assert (400, "requestInvalid", "/app") == (no.status, no.code, no.json()["errors"][0]["pointer"])
    assert 200 == (await api.operator.get(f"/v1/{kind}?app=mail@")).status, "the account without a name"


@pytest.mark.parametrize("app", ["Tool/mail", "OAuthApp/", "OAuthApp/a/b", ""])
async def test_what_names_no_app_is_no_filter(api: Callers, app: str) -> None:
    assert (400, "requestInvalid") == ((no := await api.operator.get(f"/v1/grants?app={app}")).status, no.code)


async def test_pages_follow_each_other_without_a_gap(harness: Harness, api: Callers) -> None:
    await three(harness)
    seen, after = list[str](), ""
    for _ in range(4):
        page = (await api.operator.get(f"/v1/grants?limit=1{after}")).json()
        seen += [each["app"] for each in page["grants"]]
        if "next" not in page:
            break
        after = f"&after={page['next']}"
    assert {"mail", "files", "team"} == set(seen)
    assert 3 == len(seen)


@dataclass
class Scans:
    """How often the store was read through for grants."""

    count: int = 0


@pytest.fixture
def scans(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Scans:
    found, scan = Scans(), harness.store.scan

    def counted(kind: str, **skip: Any) -> AsyncIterator[Entry]:
        found.count += kind == "grants"
        return scan(kind, **skip)

    monkeypatch.setattr(harness.store, "scan", counted)
    return found


async def test_the_pages_of_a_listing_read_no_more_than_their_rows(
    harness: Harness, api: Callers, scans: Scans
) -> None:
    for app in ("mail", "files", "team"):
        await harness.connected(app)
    seen, after = list[str](), ""
    for _ in range(3):
        page = (await api.operator.get(f"/v1/grants?limit=1{after}")).json()
        seen += [each["grantId"] for each in page["grants"]]
        after = f"&after={page.get('next')}"
    assert 3 == len(set(seen))
    assert "next" not in page
    assert 0 == scans.count
    assert (400, "requestInvalid") == ((no := await api.operator.get(f"/v1/grants?after={seen[1]}")).status, no.code)


async def test_ids_of_no_grant_are_looked_for_together(harness: Harness, api: Callers, scans: Scans) -> None:
    await harness.connected()
    unknown = [f"/v1/grants/sha256:{number:064x}" for number in range(30)]
    answers = await asyncio.gather(*(api.operator.delete(path) for path in unknown))
    assert {(404, "grantNotFound")} == {(each.status, each.code) for each in answers}
    assert scans.count <= 3
    before, begun = scans.count, harness.clock.monotonic()
    for path in unknown:
        await api.operator.delete(path)
    assert scans.count - before <= 1 + harness.clock.monotonic() - begun


async def test_many_grants_are_found_in_one_reading_and_each_is_ended_as_it_is_now(
    harness: Harness, api: Callers, scans: Scans
) -> None:
    for app in ("mail", "files"):
        await harness.connected(app)
    grants = {each["app"]: each["grantId"] for each in (await api.operator.get("/v1/grants")).json()["grants"]}
    assert await harness.broker.revoke("mail", subject=ALICE)
    before = scans.count
    assert [404, 200] == [(await api.operator.delete(f"/v1/grants/{grants[app]}")).status for app in ("mail", "files")]
    assert before == scans.count


async def test_a_grant_of_a_moment_ago_is_found_by_its_id(harness: Harness, api: Callers) -> None:
    assert [] == (await api.operator.get("/v1/grants")).json()["grants"]
    await harness.connected()
    assert 200 == (await api.operator.delete(f"/v1/grants/{grant_id('mail', ALICE)}")).status


async def test_a_grant_is_ended_once_here_and_at_its_provider(harness: Harness, api: Callers) -> None:
    ready = await harness.connected()
    [grant] = (await api.operator.get("/v1/grants")).json()["grants"]
    path = f"/v1/grants/{grant['grantId']}"
    assert {"grantId": grant["grantId"], "provider": "done"} == (await api.operator.delete(path)).json()
    assert not harness.idp.is_alive(ready.access_token.reveal())
    again = await api.operator.delete(path)
    unknown = await api.operator.delete(f"/v1/grants/sha256:{'0' * 64}")
    assert (404, "grantNotFound") == (again.status, again.code)
    assert again.body == unknown.body
    assert (400, "requestInvalid") == ((no := await api.operator.delete("/v1/grants/mail")).status, no.code)


async def test_an_operator_erases_a_person_once_the_provider_knows(harness: Harness, api: Callers) -> None:
    await three(harness)
    body = {"subject": ALICE}
    dry = await api.operator.post("/v1/subjects/erase", {**body, "dryRun": True})
    assert (200, False, 2) == (dry.status, dry.json()["erased"], dry.json()["grants"])
    harness.idp.script.revoke.answer(503)
    waits = checked("ErasedBody", (await api.operator.post("/v1/subjects/erase", body)).body)
    assert (False, 1) == (waits["erased"], waits["toTell"])
    harness.clock.advance(3600)
    done = checked("ErasedBody", (await api.operator.post("/v1/subjects/erase", body)).body)
    assert (True, 0, [grant_id("team", TEAM)]) == (done["erased"], done["toTell"], done["namedIn"])
    page = checked("GrantPage", (await api.operator.get("/v1/grants")).body)
    assert [TEAM] == [each["subject"] for each in page["grants"]]
    assert ALICE not in "".join(line_of(entry, at) for at, entry in harness.audit.lines)


@pytest.mark.parametrize("body", [{}, {"subject": ""}, {"subject": 5}, {"subject": ALICE, "app": "mail"}])
async def test_a_malformed_subject_erases_nothing(harness: Harness, api: Callers, body: dict[str, object]) -> None:
    await harness.connected()
    assert 400 == (await api.operator.post("/v1/subjects/erase", body)).status
    assert 403 == (await api.runtime.post("/v1/subjects/erase", {"subject": ALICE})).status
    assert await harness.grant() is not None
