"""Two accounts, two tenants and two sites of one user, on each path of a consent, of its end and of the lists: a path of
one connection leaves the others as they were."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.diagnostics.forecast import AppFacts
from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.records import Grant
from oauthbroker.testing import Authority, IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, BOB, running, turn, user_app
from tests.story.accounts_kit import Connection, Stage, stage_of
from tests.story.api.kit import Callers
from tests.story.signed_in import ADMIN, CONNECTIONS, connections_browser, operator_browser, submit_form
from tests.story.sites_kit import ONE, TWO, lists
from tests.unit.diagnostics.kit import forecast

Way = Callable[[Stage, Connection], Awaitable[Any]]


@pytest.fixture
async def stage(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stage]:
    async with stage_of(identity_provider, test_clock, Authority(tmp_path), monkeypatch) as made:
        yield made


async def grant_of(stage: Stage, of: Connection) -> Grant:
    versioned = await stage.harness.repository.grant(GrantKey(of.app, stage.user, of.account))
    assert versioned is not None
    return versioned.record


async def grants(stage: Stage) -> dict[str, Grant]:
    return {each.ref: await grant_of(stage, each) for each in stage.all}


# --- consent


async def step_up(stage: Stage, of: Connection) -> None:
    """More scopes are asked for at the same place, and nothing that was known is lost."""
    before = await grant_of(stage, of)
    page = await stage.agree(of, await stage.ask(of, ("read", "write")))
    assert 200 == page.status, page.text
    after = await grant_of(stage, of)
    assert {"read", "write"} <= set(after.scopes)
    assert (before.params, before.chosen, before.identity) == (after.params, after.chosen, after.identity)
    assert dict(before.provider_data) == dict(after.provider_data)


async def switched(stage: Stage, of: Connection) -> None:
    """Another account of the provider's, because the runtime asked for a switch."""
    if of.site:
        lists(of.provider, ONE, TWO)
    page = await stage.agree(of, await stage.ask(of, switch_account=True), "mallory")
    assert 200 == page.status, page.text
    assert "U666666" in str((await grant_of(stage, of)).identity)


async def wrong_account_then_the_right_one(stage: Stage, of: Connection) -> None:
    """The first consent pinned the account. Another one is refused, and the next attempt is as good as the first."""
    before = await grant_of(stage, of)
    page = await stage.agree(of, await stage.ask(of, ("read", "write")), "mallory")
    assert Code.SUBJECT_MISMATCH.status == page.status
    assert before == await grant_of(stage, of)
    await step_up(stage, of)


CONSENTS = [step_up, switched, wrong_account_then_the_right_one]


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("path", CONSENTS)
async def test_a_consent_of_one_connection_leaves_the_others(stage: Stage, path: Way, place: int) -> None:
    for pair in stage.pairs.values():
        before = await grants(stage)
        await path(stage, pair[place])
        assert isinstance(await stage.ask(pair[place]), Ready)
        after = await grants(stage)
        assert {pair[place].ref} == {ref for ref, grant in before.items() if grant != after[ref]}


# --- the end of one


async def embedded(stage: Stage, of: Connection) -> None:
    assert await stage.harness.broker.revoke(of.app, subject=ALICE, account=of.account)


async def over_http(stage: Stage, of: Connection) -> None:
    operator = (await Callers.of(stage.harness)).operator
    assert 200 == (await operator.delete(f"/v1/grants/{(await grant_of(stage, of)).id}")).status


async def on_the_users_page(stage: Stage, of: Connection) -> None:
    grant, person = await grant_of(stage, of), await connections_browser(stage.harness, {"user": ALICE})
    page = await person.open(f"{CONNECTIONS}/{grant.id}/disconnect")
    assert of.account in page.text, "the question names the account"
    await submit_form(person, "/disconnect")


async def on_the_operators_page(stage: Stage, of: Connection) -> None:
    grant, operator = await grant_of(stage, of), await operator_browser(stage.harness)
    page = await operator.open(f"{ADMIN}/grants/{grant.id}/revoke")
    assert of.account in page.text, "the question names the account"
    await submit_form(operator, "/revoke")


ENDS = [embedded, over_http, on_the_users_page, on_the_operators_page]


@pytest.mark.parametrize("end", ENDS)
async def test_an_end_of_one_connection_leaves_the_others(stage: Stage, end: Way) -> None:
    for number, pair in enumerate(stage.pairs.values()):
        ended, kept = pair[number % 2], pair[1 - number % 2]
        before, token = await grants(stage), await stage.token(kept)
        await end(stage, ended)
        after = await grants(stage)
        assert {ended.ref} == {ref for ref, grant in before.items() if grant != after[ref]}
        assert isinstance(await stage.ask(ended), AuthorizationRequired)
        assert token == await stage.token(kept)
        assert await kept.owns(token)


async def test_an_erasure_takes_all_connections_of_the_subject_and_none_of_another(stage: Stage) -> None:
    others = replace(stage, user=BOB)
    for each in others.all:
        await others.connect(each)
    before = await grants(others)
    assert (await stage.harness.broker.erase(ALICE, patience=5)).done
    assert {BOB} == {grant.subject async for grant in stage.harness.broker.grants.list()}
    assert before == await grants(others)
    for each in stage.all:
        assert isinstance(await stage.ask(each), AuthorizationRequired)


# --- lists


async def test_each_list_has_all_connections_and_finds_each_alone(stage: Stage) -> None:
    operator = (await Callers.of(stage.harness)).operator
    every = {(each.app, each.account) for each in stage.all}
    for each in stage.all:
        answer = (await operator.get(f"/v1/grants?app={each.ref}")).json()["grants"]
        assert [(each.app, each.account)] == [(row["app"], row["account"]) for row in answer]
        found = [grant async for grant in stage.harness.broker.grants.list(app=each.ref, subject=ALICE)]
        assert [each.account] == [grant.account for grant in found]
    rows = (await operator.get("/v1/grants")).json()["grants"]
    assert every == {(row["app"], row["account"]) for row in rows}


async def test_the_pages_name_each_connection(stage: Stage) -> None:
    person, operator = await connections_browser(stage.harness, {"user": ALICE}), await operator_browser(stage.harness)
    for each in stage.all:
        assert each.account in person.page.text
        assert each.account in (await operator.open(f"{ADMIN}/grants?app={each.ref}")).text
        other = next(it for it in stage.pairs[each.app] if it != each)
        assert (await grant_of(stage, each)).id in operator.page.source
        assert (await grant_of(stage, other)).id not in operator.page.source
        assert each.account in (await operator.open(f"{ADMIN}/grants/{(await grant_of(stage, each)).id}")).text


async def test_a_request_that_waits_and_its_resumed_turn_name_the_connection(stage: Stage) -> None:
    for each in stage.all:
        asked = await stage.ask(each, ("read", "write"))
        assert isinstance(asked, AuthorizationRequired)
    block = await stage.harness.broker.pending(stage.turn())
    assert block is not None
    every = sorted((each.app, each.account) for each in stage.all)
    assert every == sorted((item["oauthAppRef"]["name"], item["account"]) for item in block["items"])
    for each in stage.all:
        sessions = await stage.harness.broker.sessions.list(app=each.ref, status="pending")
        assert [each.account] == [session.account for session in sessions]
        auth = sessions[0].resume.auth
        assert auth is not None
        assert {name: tuple(said["allowed"]) for name, said in auth.accounts.items()} == {
            f"OAuthApp/{app}": tuple(it.account for it in pair) for app, pair in stage.pairs.items()
        }


async def test_an_account_that_the_app_does_not_take_says_so(stage: Stage) -> None:
    base = stage.turn()
    assert base.auth is not None
    of = replace(base, auth=replace(base.auth, accounts={"OAuthApp/shop": ["nowhere"]}))
    refused = await stage.harness.ask("shop", of=of)
    assert isinstance(refused, Failed)
    assert Code.ACCOUNT_FORBIDDEN is refused.code
    assert "connectParams" in refused.message


async def test_the_forecast_tells_the_end_of_each_connection(stage: Stage) -> None:
    views = [view async for view in stage.harness.broker.grants.views()]
    apps = {app.name: AppFacts(scopes=(*app.scopes, "more")) for app in stage.apps}
    found = forecast(views, apps, stage.harness.clock.now()).outlooks
    assert {(each.app, each.account) for each in stage.all} == {(it.app, it.account) for it in found}
    assert {(it.app, it.account) for it in found} == {(it.to_json()["app"], it.to_json()["account"]) for it in found}


async def test_the_event_that_resumes_a_turn_names_the_connection(stage: Stage) -> None:
    await stage.harness.parts.relay.once()
    events = await stage.harness.events(count=len(stage.all))
    said = {(event["payload"]["oauthAppRef"]["name"], event["payload"]["account"]) for event in events}
    assert {(each.app, each.account) for each in stage.all} == said
    for event in events:
        assert {f"OAuthApp/{app}" for app in stage.pairs} == event["auth"]["accounts"].keys()


# --- one revocation that ends all of a client


async def test_an_end_spares_the_client_while_the_same_account_has_another_connection(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """One provider account under two names: revoking one at such a provider would end the other one, too."""
    for person, told in (("alice", 0), ("bob", 1)):
        owner = Owner(binding="localOperator", user_identity=IdentityRule("idToken", "idp:user:{sub}"))
        changes: dict[str, Any] = {"owner": owner, "several_accounts": True, "revocation": Revocation(reach="grant")}
        app = user_app(identity_provider, f"mail-{person}", **changes)
        async with running(identity_provider, [app], clock=test_clock) as harness:
            base = turn()
            assert base.auth is not None
            of = replace(base, auth=replace(base.auth, accounts={app.name: ["work", "private"]}))
            for account, who in (("work", "alice"), ("private", person)):
                asked = await harness.ask(app.name, of=of, account=account)
                assert 200 == (await harness.connect(asked, who)).status
            before = identity_provider.count("revoke")
            assert await harness.broker.revoke(app.name, subject=ALICE, account="work")
            assert isinstance(await harness.ask(app.name, of=of, account="work"), AuthorizationRequired)
            assert isinstance(await harness.ask(app.name, of=of, account="private"), Ready)
            assert told == min(1, identity_provider.count("revoke") - before)
