"""Several accounts of one user: the turn lists them, a call names one, and nothing of one reaches another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker import Turn
from oauthbroker.cli.sessions import row_of
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.grants.grant_pages import GrantFilter
from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_results import AccountName, AuthorizationRequired, Failed, Ready
from oauthbroker.records.specification_form import grant_record, session_record
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, BOB, Harness, running, turn, user_app

BOTH = ["work", "private"]


def listing(accounts: Any, user: str = ALICE, app: str = "OAuthApp/mail") -> Turn:
    """A turn that lists these accounts of the app."""
    base = turn(user=user)
    assert base.auth is not None
    return replace(base, auth=replace(base.auth, accounts={app: accounts}))


@pytest.fixture
async def several(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    """An app that lets a user connect several accounts. The unnamed one has to be the subject itself."""
    owner = Owner(binding="localOperator", user_identity=IdentityRule("idToken", "idp:user:{sub}"))
    apps = [user_app(identity_provider, owner=owner, several_accounts=True), user_app(identity_provider, "files")]
    async with running(identity_provider, apps, clock=test_clock) as harness:
        yield harness


async def connected(harness: Harness, account: str, person: str, of: Turn) -> Ready:
    asked = await harness.ask(of=of, account=account)
    assert isinstance(asked, AuthorizationRequired), asked
    page = await harness.connect(asked, person)
    assert 200 == page.status, page.text
    ready = await harness.ask(of=of, account=account)
    assert isinstance(ready, Ready), ready
    return ready


async def test_each_account_has_a_grant_of_its_own(several: Harness) -> None:
    of = listing(BOTH)
    work, private = await connected(several, "work", "alice", of), await connected(several, "private", "bob", of)
    assert work.access_token != private.access_token
    for account, identity in (("work", "idp:user:U234567"), ("private", "idp:user:U345678")):
        versioned = await several.repository.grant(GrantKey("mail", ALICE, account))
        assert versioned is not None
        assert identity == versioned.record.identity
    assert await several.grant("mail", ALICE) is None, "the unnamed account is another one"


async def test_an_account_may_be_written_behind_the_name(several: Harness) -> None:
    of = listing(BOTH)
    work = await connected(several, "work", "alice", of)
    again = await several.ask("OAuthApp/mail@work", of=of)
    assert isinstance(again, Ready)
    assert work.access_token == again.access_token


async def test_without_a_default_a_call_that_names_none_gets_the_labels(several: Harness) -> None:
    of = listing(BOTH)
    await connected(several, "work", "alice", of)
    refused = await several.ask(of=of)
    assert isinstance(refused, Failed)
    assert Code.ACCOUNT_REQUIRED is refused.code
    assert (AccountName("work", "", ALICE), AccountName("private")) == refused.accounts
    assert [{"account": "work", "identity": ALICE}, {"account": "private"}] == refused.to_json()["error"]["accounts"]
    assert refused == Failed.from_json(refused.to_json())


async def test_a_written_default_is_used(several: Harness) -> None:
    work = await connected(several, "work", "alice", listing(BOTH))
    ready = await several.ask(of=listing({"allowed": BOTH, "default": "work"}))
    assert isinstance(ready, Ready)
    assert work.access_token == ready.access_token


@pytest.mark.parametrize("listed", [["work"], ["work", "work"]])
async def test_the_only_one_listed_needs_no_name(several: Harness, listed: list[str]) -> None:
    work = await connected(several, "work", "alice", listing(BOTH))
    ready = await several.ask(of=listing(listed))
    assert isinstance(ready, Ready)
    assert work.access_token == ready.access_token


@pytest.mark.parametrize(
    "accounts, named",
    [
        (["work"], "private"),
        (["work"], ""),
        (["work"], "Work"),
        (["work"], "work "),
        (["work"], "w\u043erk"),
        ([], None),
        ([], "work"),
        (["", "work"], "private"),
    ],
)
async def test_a_call_may_name_only_what_the_turn_lists(several: Harness, accounts: list[str], named: str) -> None:
    await connected(several, "private", "bob", listing(["private"]))
    refused = await several.ask(of=listing(accounts), account=named)
    assert isinstance(refused, Failed)
    assert refused.code in {Code.ACCOUNT_FORBIDDEN, Code.REQUEST_INVALID}
    assert [] == await several.broker.sessions.list(status="pending")


async def test_a_turn_without_a_list_has_the_unnamed_account_alone(several: Harness) -> None:
    await connected(several, "work", "bob", listing(BOTH))
    assert isinstance(await several.ask(), AuthorizationRequired)
    refused = await several.ask(account="work")
    assert isinstance(refused, Failed)
    assert Code.ACCOUNT_FORBIDDEN is refused.code


async def test_an_app_with_one_account_has_no_others(several: Harness) -> None:
    refused = await several.ask("files", of=listing(["work"], app="OAuthApp/files"))
    assert isinstance(refused, Failed)
    assert Code.ACCOUNT_FORBIDDEN is refused.code


@pytest.mark.parametrize(
    "accounts",
    [
        "work", {"work": {}}, {"allowed": "work"}, {"allowed": ["work"], "default": "private"}, {"default": "work"},
        {"allowed": ["work"], "more": 1}, [7], [None], ["a" * 129], ["a\nb"], [" a"], [f"a{n}" for n in range(101)], 7,
    ],
)  # fmt: skip
async def test_a_list_of_another_form_is_refused(several: Harness, accounts: Any) -> None:
    refused = await several.ask(of=listing(accounts))
    assert isinstance(refused, Failed)
    assert (Code.ACCOUNTS_INVALID, True) == (refused.code, "turn.auth.accounts" in refused.message)
    said = {"agentName": "planner", "instanceKey": "1", "auth": {"accounts": {"mail": accounts}}}
    with pytest.raises(BrokerError, match="accountsInvalid"):
        await several.broker.turns.begin(said)


@pytest.mark.parametrize(
    "name",
    ["gmail", "OAuthApp/gmail", "OAuthApp/Mail", "Tool/mail", "OAuthApp/CredentialApp/mail", "CredentialApp/gmail"],
)
async def test_a_list_for_an_app_that_is_not_configured_is_refused(several: Harness, name: str) -> None:
    """Ignored, it would leave the app that it means with its unnamed account."""
    of = listing(["work"], app=name)
    refused = await several.ask(of=of)
    assert isinstance(refused, Failed)
    assert Code.ACCOUNTS_INVALID is refused.code
    with pytest.raises(BrokerError, match="accountsInvalid"):
        await several.broker.turns.begin(of)
    assert [] == await several.broker.sessions.list(status="pending")


async def test_the_unnamed_account_is_still_the_subject_itself(several: Harness) -> None:
    page = await several.connect(await several.ask_link(), "bob")
    assert 403 == page.status


async def test_an_account_stays_the_one_that_was_connected_first(several: Harness) -> None:
    of = listing(BOTH)
    await connected(several, "work", "alice", of)
    await several.broker.revoke("mail", subject=ALICE, account="private")
    more = await several.ask(scopes=["read", "write"], of=of, account="work")
    if isinstance(more, AuthorizationRequired):
        assert 403 == (await several.connect(more, "bob")).status


async def test_ending_one_account_leaves_the_others(several: Harness) -> None:
    of = listing(BOTH)
    await connected(several, "work", "alice", of)
    private = await connected(several, "private", "bob", of)
    assert await several.broker.revoke("mail", subject=ALICE, account="work")
    assert isinstance(await several.ask(of=of, account="work"), AuthorizationRequired)
    kept = await several.ask(of=of, account="private")
    assert isinstance(kept, Ready)
    assert private.access_token == kept.access_token
    assert 0 == several.idp.living_tokens("client-mail", "alice")
    assert 0 < several.idp.living_tokens("client-mail", "bob")


async def test_a_refresh_is_for_the_account_that_was_asked_for(several: Harness) -> None:
    of = listing(BOTH)
    work, private = await connected(several, "work", "alice", of), await connected(several, "private", "bob", of)
    several.clock.advance(3 * 3600)
    newer = await several.ask(of=of, account="work")
    assert isinstance(newer, Ready)
    assert newer.access_token not in (work.access_token, private.access_token)
    versioned = await several.repository.grant(GrantKey("mail", ALICE, "private"))
    assert versioned is not None
    assert versioned.record.token is not None
    assert private.access_token == versioned.record.token.access_token, "the other one was not touched"


async def test_events_and_blocks_say_which_account(several: Harness) -> None:
    of = listing(BOTH)
    asked = await several.ask(of=of, account="work")
    assert isinstance(asked, AuthorizationRequired)
    block = await several.broker.pending(of)
    assert block is not None
    assert ["work"] == [item["account"] for item in block["items"]]
    assert await several.broker.pending(listing(["private"])) is None, "a turn sees its own accounts"
    await several.connect(asked, "alice")
    [event] = await several.events()
    assert ("auth.granted", "work") == (event["type"], event["payload"]["account"])
    assert {"OAuthApp/mail": BOTH} == event["auth"]["accounts"]


async def test_an_erasure_takes_every_account_of_the_subject_and_none_of_another(several: Harness) -> None:
    of, others = listing(BOTH), listing(BOTH, user=BOB)
    await connected(several, "work", "alice", of)
    await connected(several, "private", "bob", of)
    kept = await connected(several, "work", "mallory", others)
    erased = await several.broker.erase(ALICE, patience=5)
    assert erased.done
    assert ["work"] == [grant.account async for grant in several.broker.grants.list()]
    ready = await several.ask(of=others, account="work")
    assert isinstance(ready, Ready)
    assert kept.access_token == ready.access_token


async def test_lists_name_the_account(several: Harness) -> None:
    await connected(several, "work", "alice", listing(BOTH))
    [grant] = [grant async for grant in several.broker.grants.list(subject=ALICE)]
    assert ("work", GrantKey("mail", ALICE, "work")) == (grant.account, grant.key)
    assert "work" == grant.to_json()["account"]
    for app, count in {"mail": 1, "mail@work": 1, "mail@private": 0, "mail@": 0}.items():
        assert count == len([grant async for grant in several.broker.grants.list(app=app)])
        assert count == len((await several.broker.grants.page(GrantFilter(app=app), 10))[0])
        assert count == len(await several.broker.sessions.list(app=app))
    [session] = await several.broker.sessions.list(app="mail@work")
    assert f"{ALICE} work" in row_of(session)
    assert "work" == session_record(session)["spec"]["account"]
    assert "account" not in session_record(replace(session, account=""))["spec"]
    record = await several.broker.grants.record(grant.grantId)
    assert record is not None
    assert "work" == grant_record(record)["spec"]["account"]


async def test_a_list_that_a_runtime_changes_counts_at_once(several: Harness) -> None:
    """The fast answer of a repeated call must not outlive the permission."""
    allowed = {"OAuthApp/mail": ["work", "private"]}
    of = listing(BOTH)
    assert of.auth is not None
    of = replace(of, auth=replace(of.auth, accounts=allowed))
    await connected(several, "work", "alice", of)
    context = several.broker.oauth(of)
    for _ in range(4):
        assert isinstance(await context.get_access_token("mail", account="work"), Ready)
    allowed["OAuthApp/mail"].remove("work")
    refused = await context.get_access_token("mail", account="work")
    assert isinstance(refused, Failed)
    assert Code.ACCOUNT_FORBIDDEN is refused.code


async def test_a_consent_answers_the_requests_for_its_own_account_alone(several: Harness) -> None:
    of = listing(BOTH)
    for account in BOTH:
        assert isinstance(await several.ask(of=of, account=account), AuthorizationRequired)
    await connected(several, "work", "alice", of)
    waiting = await several.broker.sessions.list(status="pending")
    assert ["private"] == [session.account for session in waiting]
    assert ["work"] == [event["payload"]["account"] for event in await several.events()]
