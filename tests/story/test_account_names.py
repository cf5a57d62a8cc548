"""What people call an account, from the provider's answer to every place that shows it; an unusual name is only text."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.cli.grants.commands import _row
from oauthbroker.model.apps import IdentityRule
from oauthbroker.model.token_results import Failed
from oauthbroker.protocol.account_names import LONGEST_NAME
from oauthbroker.testing import Account, Browser, IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, BASE, Harness, running, turn, user_app
from tests.story.hostile_web import HOSTILE_TEXTS
from tests.story.signed_in import connections_browser, operator_browser
from tests.unit.web.kit import Document

MARIA = "idp:user:maria-1"


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    app = user_app(identity_provider, scopes=("read", "profile"))
    rule = IdentityRule("userInfo", "idp:user:{sub}", name="name")
    named = replace(app, owner=replace(app.owner, user_identity=rule))
    async with running(identity_provider, [named], clock=test_clock) as harness:
        yield harness


async def connected_as(harness: Harness, name: str) -> Browser:
    harness.idp.add_account(Account("maria", sub="maria-1", name=name))
    person = harness.browser()
    page = await harness.connect(await harness.ask_link(of=turn(MARIA)), "maria", person)
    assert 200 == page.status, page.text
    return person


async def test_each_place_that_shows_an_account_shows_its_name_beside_the_id(harness: Harness) -> None:
    person = await connected_as(harness, "Maria Ferreira")
    assert (True, True) == ("Maria Ferreira" in person.page.text, MARIA in person.page.text)
    await person.submit()
    page = await person.follow()
    assert (True, True) == ("Maria Ferreira" in page.text, MARIA in page.text)
    (summary,) = [grant async for grant in harness.broker.grants.list(subject=MARIA)]
    assert ("Maria Ferreira", "Maria Ferreira") == (summary.accountName, summary.to_json()["accountName"])
    assert f"{MARIA} (Maria Ferreira)" == _row(summary)[2]
    event = await harness.event()
    assert event is not None
    assert "Maria Ferreira" == event["payload"]["accountName"]
    office = await operator_browser(harness)
    for path in ("grants?q=maria%20f", f"grants/{summary.grantId}", "audit?type=Connected"):
        assert "Maria Ferreira" in (await office.open(f"{BASE}/admin/{path}")).text, path
    said = [json.dumps(line.to_json()) for line in await harness.broker.audit_trail.tail(100)]
    assert not any("Maria" in each for each in said)


async def test_a_new_consent_brings_the_name_anew_and_a_refresh_keeps_it(harness: Harness) -> None:
    await connected_as(harness, "Maria")
    harness.clock.advance(7200)
    await harness.ask(of=turn(MARIA))
    grant = await harness.grant("mail", MARIA)
    assert grant is not None
    assert ("Maria", True) == (grant.account_name, grant.refresh_state.worked)
    await harness.broker.grants.revoke("mail", MARIA)
    await connected_as(harness, "Mary")
    grant = await harness.grant("mail", MARIA)
    assert grant is not None
    assert "Mary" == grant.account_name


@pytest.mark.case("88")
@pytest.mark.parametrize("name", [*HOSTILE_TEXTS[:8], "x" * 9000, "\u05de\u05e8\u05d9\u05d4"])
async def test_an_unusual_name_is_only_text(harness: Harness, name: str) -> None:
    await connected_as(harness, "plain")
    plain = [element.tag for element in Document((await at_connections(harness)).source).elements]
    await harness.broker.grants.revoke("mail", MARIA)
    await connected_as(harness, name)
    source = (await at_connections(harness)).source
    assert plain == [element.tag for element in Document(source).elements]
    assert not set("\u202e\u200b\u00ad\ufeff\0") & set(source)
    grant = await harness.grant("mail", MARIA)
    assert grant is not None
    assert len(grant.account_name) <= LONGEST_NAME
    assert grant.account_name.isprintable()
    assert bool(grant.account_name) == any(each.isprintable() and not each.isspace() for each in name)


async def at_connections(harness: Harness) -> Any:
    return (await connections_browser(harness, {"user": MARIA})).page


async def test_an_account_of_several_is_named_where_one_has_to_be_chosen(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    app = user_app(identity_provider, scopes=("read", "profile"))
    app = replace(app, several_accounts=True, owner=replace(app.owner, binding="localOperator"))
    of = turn()
    assert of.auth is not None
    of = replace(of, auth=replace(of.auth, accounts={"OAuthApp/mail": ["work", "home"]}))
    async with running(identity_provider, [app], clock=test_clock) as harness:
        await harness.connect(await harness.ask_link("mail@work", of=of))
        refused = await harness.ask(of=of)
        assert isinstance(refused, Failed)
        (work,) = [each for each in refused.accounts if each.account == "work"]
        assert ("alice", ALICE) == (work.to_json()["name"], work.identity)
