"""Imported tokens: the provider is asked whose they are. Other grants are marked, and never called verified."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker import AuthorizationRequired, BrokerError, Ready
from oauthbroker.audit import GrantImported
from oauthbroker.core.clock import to_iso
from oauthbroker.core.errors import Code
from oauthbroker.grants.import_lines import Incoming, LineChecks
from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.provider import FOREVER
from tests.kit.running_broker import ALICE, BASE, BOB, TEAM, Harness, global_app, running, turn, user_app
from tests.story.signed_in import connections_browser, operator_browser

BY_USERINFO = Owner(user_identity=IdentityRule("userInfo", "idp:user:{sub}"))
NAMES = {"alice": ALICE, "bob": BOB}


@dataclass
class World:
    """A broker, and the tokens that people gave to the same clients elsewhere."""

    harness: Harness

    async def tokens(self, app: str = "mail", account: str = "alice") -> dict[str, str]:
        """Tokens of an account for the app's client; the grant that brought them is gone."""
        subject, of = (TEAM if app == "team" else NAMES[account]), turn(user=NAMES[account])
        await self.harness.connected(app, account, of)
        repository = self.harness.repository
        async with repository.pair(GrantKey(app, subject)):
            versioned = await repository.grant(GrantKey(app, subject))
            assert versioned is not None
            token = versioned.record.token
            assert token is not None
            assert token.refresh_token is not None
            await repository.erase_grant(versioned)
        return {"accessToken": token.access_token.reveal(), "refreshToken": token.refresh_token.reveal()}

    def incoming(self, line: dict[str, str]) -> Incoming:
        found = LineChecks(self.harness.broker.bundle.apps, self.harness.clock.now()).check(
            1, json.dumps(line).encode()
        )
        assert isinstance(found, Incoming), found
        return found

    async def imported(self, line: dict[str, str], **more: Any) -> str:
        return await self.harness.broker.grants.importing.import_grant(self.incoming(line), **more)

    async def refused(self, line: dict[str, str]) -> Code:
        with pytest.raises(BrokerError) as caught:
            await self.imported(line)
        return caught.value.code

    async def unverified(self, app: str = "mail", subject: str = ALICE) -> bool:
        """As every list says it."""
        [found] = [each async for each in self.harness.broker.grants.list(app=app, subject=subject)]
        return found.unverified


@pytest.fixture
async def world(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[World]:
    apps = [
        user_app(identity_provider, owner=BY_USERINFO),
        user_app(identity_provider, "files"),
        global_app(identity_provider),
    ]
    async with running(identity_provider, apps, clock=test_clock, background=False) as harness:
        yield World(harness)


def alone(tokens: dict[str, str], app: str = "mail", subject: str = ALICE, **more: str) -> dict[str, str]:
    return {"app": app, "subject": subject, "accessToken": tokens["accessToken"], **more}


def renewing(tokens: dict[str, str], app: str = "mail", subject: str = ALICE) -> dict[str, str]:
    return {"app": app, "subject": subject, "refreshToken": tokens["refreshToken"]}


async def test_an_access_token_alone_is_served_until_its_end_and_then_the_user_is_asked(world: World) -> None:
    harness, tokens = world.harness, await world.tokens()
    ends = harness.clock.now() + timedelta(minutes=30)
    assert "imported" == await world.imported(alone(tokens, expiresAt=to_iso(ends)))
    ready = await harness.ask()
    assert isinstance(ready, Ready)
    assert (tokens["accessToken"], ends) == (ready.access_token.reveal(), ready.expires_at)
    [listed] = [each async for each in harness.broker.grants.list()]
    assert (None, False, False) == (listed.needs, listed.refreshable, listed.unverified)
    harness.clock.advance(31 * 60)
    assert isinstance(await harness.ask(), AuthorizationRequired)
    assert 0 == harness.idp.count("refresh_token")


async def test_an_access_token_without_an_end_is_served_on(world: World) -> None:
    harness = world.harness
    await world.imported(alone(await world.tokens("files"), "files"))
    harness.clock.advance(400 * 86400)
    ready = await harness.ask("files")
    assert isinstance(ready, Ready)
    assert ready.expires_at is None


@pytest.mark.parametrize(
    "app, account, subject, code",
    [
        ("mail", "bob", ALICE, Code.SUBJECT_MISMATCH),
        ("mail", "alice", BOB, Code.SUBJECT_MISMATCH),
        ("team", "alice", "idp:team:T999", Code.SUBJECT_MISMATCH),
    ],
)
async def test_a_token_of_another_account_is_refused_and_nothing_is_written(
    world: World, app: str, account: str, subject: str, code: Code
) -> None:
    tokens = await world.tokens(app, account)
    for line in (alone(tokens, app, subject), renewing(tokens, app, subject) | alone(tokens, app, subject)):
        assert code is await world.refused(line)
    assert await world.harness.grant(app, subject) is None
    assert not [it for it in world.harness.audit.entries if isinstance(it, GrantImported)]


async def test_the_team_of_a_token_is_compared_and_who_agreed_is_noted(world: World) -> None:
    tokens = await world.tokens("team")
    assert "imported" == await world.imported(alone(tokens, "team", TEAM))
    grant = await world.harness.grant("team", TEAM)
    assert grant is not None
    assert (ALICE, False) == (grant.authorized_by, grant.unverified)


async def test_a_token_of_a_person_who_may_not_agree_for_the_team_is_refused(world: World) -> None:
    bobs = await world.tokens("mail", "bob")
    assert Code.SUBJECT_FORBIDDEN is await world.refused(alone(bobs, "team", TEAM))


async def test_a_dead_token_is_refused_alone_and_left_to_its_refresh_token_otherwise(world: World) -> None:
    tokens = await world.tokens()
    world.harness.idp.script.userinfo.answer(401, times=2)
    assert Code.REAUTH_REQUIRED is await world.refused(alone(tokens))
    assert "imported" == await world.imported(alone(tokens) | renewing(tokens))
    assert await world.unverified()
    assert isinstance(await world.harness.ask(), Ready), "the first use refreshes, and asks whose it is"
    assert not await world.unverified()


async def test_where_the_provider_cannot_be_asked_the_grant_is_marked(world: World) -> None:
    """The app reads accounts from ID tokens, which only an authorization or a refresh brings."""
    tokens = await world.tokens("files")
    asked = world.harness.idp.count("userinfo")
    await world.imported(alone(tokens, "files"))
    assert await world.unverified("files")
    assert asked == world.harness.idp.count("userinfo")


async def test_a_consent_verifies(world: World) -> None:
    await world.imported(
        alone(await world.tokens("files"), "files", expiresAt=to_iso(world.harness.clock.now() + timedelta(60)))
    )
    assert await world.unverified("files")
    result = await world.harness.ask("files", switch_account=True)
    assert isinstance(result, AuthorizationRequired)
    await world.harness.connect(result)
    assert not await world.unverified("files")


@pytest.mark.parametrize("app", ["mail", "files", "team"])
async def test_a_refresh_verifies(world: World, app: str) -> None:
    """By its ID token, or because userinfo is asked once."""
    subject = TEAM if app == "team" else ALICE
    await world.imported(renewing(await world.tokens(app), app, subject))
    assert await world.unverified(app, subject)
    assert isinstance(await world.harness.ask(app), Ready)
    assert not await world.unverified(app, subject)
    asked = world.harness.idp.count("userinfo")
    world.harness.clock.advance(24 * 3600)
    assert isinstance(await world.harness.ask(app), Ready)
    assert asked == world.harness.idp.count("userinfo"), "once is enough"


async def test_a_refresh_that_names_another_account_quarantines(world: World) -> None:
    await world.imported(renewing(await world.tokens("mail", "bob")))
    assert "error" == (await world.harness.ask()).status
    grant = await world.harness.grant()
    assert grant is not None
    assert "quarantined" == grant.refresh_state.ended
    assert isinstance(await world.harness.ask(), AuthorizationRequired)


async def test_a_provider_that_cannot_say_it_now_loses_no_refreshed_token(world: World) -> None:
    await world.imported(renewing(await world.tokens()))
    world.harness.idp.script.userinfo.answer(503, times=FOREVER)
    assert isinstance(await world.harness.ask(), Ready)
    assert await world.unverified(), "and never called verified"
    world.harness.idp.script.reset()
    world.harness.clock.advance(24 * 3600)
    assert isinstance(await world.harness.ask(), Ready)
    assert not await world.unverified()


@pytest.mark.parametrize("away", [503, 429, None])
async def test_a_provider_that_is_away_is_asked_again_by_the_same_line(world: World, away: int | None) -> None:
    line, idp = alone(await world.tokens()), world.harness.idp
    if away is None:
        idp.script.userinfo.close_after_accept(times=FOREVER)
    else:
        idp.script.userinfo.answer(away, times=FOREVER)
    assert ["imported", "there"] == [await world.imported(line), await world.imported(line)]
    assert await world.unverified()
    idp.script.reset()
    assert "there" == await world.imported(line)
    assert not await world.unverified()
    asked = idp.count("userinfo")
    assert "there" == await world.imported(line)
    assert asked == idp.count("userinfo"), "once is enough"


async def test_a_provider_that_comes_back_and_names_another_account_ends_its_use(world: World) -> None:
    line = alone(await world.tokens("mail", "bob"))
    world.harness.idp.script.userinfo.answer(503)
    assert "imported" == await world.imported(line)
    assert isinstance(await world.harness.ask(), Ready), "the author of the file has confirmed it so far"
    assert Code.SUBJECT_MISMATCH is await world.refused(line)
    assert isinstance(await world.harness.ask(), AuthorizationRequired)


async def test_pages_say_so_too(world: World) -> None:
    """Those of operators, and that of the user whose connection it is."""
    tokens = await world.tokens("files")
    await world.imported(alone(tokens, "files", expiresAt=to_iso(world.harness.clock.now() + timedelta(days=9))))
    operator = await operator_browser(world.harness)
    [grant] = [each async for each in world.harness.broker.grants.list()]
    assert "unverified" in (await operator.open(f"{BASE}/admin/grants")).text
    assert "has not named the account" in (await operator.open(f"{BASE}/admin/grants/{grant.grantId}")).text
    person = await connections_browser(world.harness, {"user": ALICE})
    assert "not confirmed by the service yet" in (await person.open(f"{BASE}/connections")).text


@pytest.mark.parametrize("binding", ["localOperator", "runtimeConfirm", "channelCode"])
async def test_a_subject_of_the_runtimes_own_is_imported_where_the_binding_confirms_it(
    identity_provider: IdentityProvider, test_clock: TestClock, binding: Any
) -> None:
    """With these bindings a subject need not be an account of the provider's, at a consent and at an import."""
    app = user_app(identity_provider, owner=replace(BY_USERINFO, binding=binding))
    async with running(
        identity_provider, [app, user_app(identity_provider, "files")], clock=test_clock, background=False
    ) as harness:
        world = World(harness)
        tokens = await world.tokens("files")
        identity_provider.script.userinfo.answer(200, {"sub": "U999"})
        assert "imported" == await world.imported(alone(tokens, subject="web:42"))
        [listed] = [each async for each in harness.broker.grants.list(app="mail")]
        assert ("web:42", "idp:user:U999", False) == (listed.subject, listed.authorizedBy, listed.unverified)
        versioned = await harness.repository.grant(GrantKey("mail", "web:42"))
        assert versioned is not None
        assert versioned.record.pinned is None, "the next consent pins it"
        identity_provider.script.userinfo.answer(200, {"sub": "U999"})
        assert Code.SUBJECT_MISMATCH is await world.refused(alone(tokens)), "an account of the provider's is compared"
