"""Every way in which a record with tokens is replaced or deleted, by a broker that has its client, has another one, or
lacks the app: a token that waits to be revoked stays in a record, is sent to the provider, or its loss is audited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.audit import GrantRevoked, RefreshFailed, TokenRefreshed
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.grants.import_lines import Incoming
from oauthbroker.model.apps import App
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.records import Grant, RefreshState, Retired, Token
from oauthbroker.repository.repository import Repository
from oauthbroker.revocation.revoke import KEEP_TELLING
from oauthbroker.testing import IdentityProvider
from tests.kit.broker_process import Process, complete
from tests.kit.running_broker import ALICE, TEAM, turn, user_app
from tests.story.client_credentials_kit import MACHINE, machine_app, team_turn

OWN, WAITING = ("own-access", "own-refresh", "spare"), ("retired-access", "retired-refresh")
OTHERS = ("others-access", "others-refresh")  # of a client that no broker here has
REFRESHED = (TokenRefreshed, RefreshFailed)
"""What the audit log says of a living grant's own tokens when a refresh replaces them, or when the provider refuses them:
it is not told of those."""


@dataclass
class World:
    """A broker, and the pair that it works on."""

    process: Process
    idp: IdentityProvider
    app: str
    subject: str

    @property
    def entries(self) -> list[Any]:
        audit: Any = self.process.parts.audit
        found: list[Any] = audit.entries
        return found


async def by_login(w: World) -> None:
    asked = await w.process.broker.oauth(turn()).get_access_token(w.app, switch_account=True)
    if isinstance(asked, AuthorizationRequired):
        assert 200 == await complete(w.process, w.idp, asked)


async def by_import(w: World) -> None:
    line = Incoming(
        line=1, app=w.app, subject=w.subject, refresh_token=Secret("imported-refresh"), scopes=("read",), mark="m"
    )
    await w.process.parts.importing.import_grant(line, replace=True)


async def by_client_credentials(w: World) -> None:
    later(w, 7200)
    await w.process.broker.oauth(team_turn()).get_access_token(w.app)


async def by_refresh(w: World) -> None:
    later(w, 7200)
    fresh = {"access_token": "fresh-access", "refresh_token": "fresh-refresh", "token_type": "bearer"}
    w.idp.script.refresh.answer(200, {**fresh, "expires_in": 3600, "scope": "read"})
    await w.process.broker.oauth(turn()).get_access_token(w.app, ["read"])
    await w.process.parts.refresh.close()


async def by_refused_refresh(w: World) -> None:
    later(w, 7200)
    await w.process.broker.oauth(turn()).get_access_token(w.app, ["read"])
    await w.process.parts.refresh.close()


async def by_revocation(w: World) -> None:
    await w.process.broker.grants.revoke(w.app, w.subject)


async def by_revocation_of_all(w: World) -> None:
    await w.process.broker.grants.revoke_all()


async def by_revocation_that_fails(w: World) -> None:
    w.idp.script.revoke.answer(503, times=9)
    await w.process.broker.grants.revoke(w.app, w.subject)


async def by_revocation_that_is_refused(w: World) -> None:
    w.idp.script.revoke.answer(401, {"error": "invalid_client"}, times=9)
    await w.process.broker.grants.revoke(w.app, w.subject)


async def by_erasure(w: World) -> None:
    await w.process.broker.erase(w.subject)


async def by_the_background(w: World) -> None:
    await w.process.tend()
    await w.process.parts.background_refresh.repair()
    await w.process.parts.background_refresh.recover()


async def by_time(w: World) -> None:
    later(w, KEEP_TELLING.total_seconds() + 1)
    await by_the_background(w)


def later(w: World, seconds: float) -> None:
    w.process.clock.advance(seconds)
    w.idp.clock.set(w.process.clock.now())  # type: ignore[attr-defined]


PATHS: tuple[Callable[[World], Awaitable[None]], ...] = (
    by_login, by_import, by_client_credentials, by_refresh, by_refused_refresh, by_revocation, by_revocation_of_all,
    by_revocation_that_fails, by_revocation_that_is_refused, by_erasure, by_the_background, by_time,
)  # fmt: skip
GIVES_UP = {by_time}
FAILS = {by_revocation_that_fails, by_revocation_that_is_refused}


def planted(app: App, subject: str, registration: str, now: Any) -> Grant:
    """A living grant that has waiting tokens of its own client and of another one."""
    own = Token(
        access_token=Secret(OWN[0]),
        token_type="bearer",
        refresh_token=Secret(OWN[1]),
        expires_at=now + timedelta(hours=1),
        lifetime_seconds=3600,
    )
    others = Retired(now, (Secret(OTHERS[1]),), (Secret(OTHERS[0]),), registration="a third registration")
    return Grant(
        app=app.name,
        provider=app.provider,
        subject=subject,
        flow="client_credentials" if app.name == MACHINE else "authorization_code",
        scopes=app.scopes,
        token=own,
        created_at=now,
        updated_at=now,
        registration=registration,
        refresh_state=RefreshState(spare=Secret(OWN[2])),
        retired=Retired(now, (Secret(WAITING[1]),), (Secret(WAITING[0]),)),
        elsewhere=(others,),
    )


async def kept(process: Process) -> set[str]:
    """Every token in a record."""
    found = list[Secret | None]()
    async for versioned in Repository(process.store).grants():
        grant, token = versioned.record, versioned.record.token
        others = (*grant.elsewhere, *grant.replaced)
        found += [grant.refresh_state.spare, *((token.access_token, token.refresh_token) if token is not None else ())]
        found += [secret for each in (grant.retired, *others) if each is not None for secret in each.secrets]
    return {secret.reveal() for secret in found if secret is not None}


def reported(idp: IdentityProvider) -> set[str]:
    """Every token that the provider got."""
    sent = [request.form["token"] for request in idp.seen("revoke")]
    return {token.reveal() if isinstance(token, Secret) else token for token in sent}


@pytest.mark.sample(48)
@pytest.mark.case("53")
@pytest.mark.parametrize("reach", ["token", "grant"])
@pytest.mark.parametrize("broker", ["same registration", "other registration", "app unknown"])
@pytest.mark.parametrize("state", ["living", "pending"])
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
async def test_a_token_stays_or_is_told_or_its_loss_is_audited(start, identity_provider, path, state, broker, reach):
    made = machine_app if path is by_client_credentials else user_app
    app = replace(made(identity_provider), revocation=Revocation(reach=reach))
    process = start([] if broker == "app unknown" else [app])
    w = World(process, identity_provider, app.name, TEAM if app.name == MACHINE else ALICE)
    registration = "another registration" if broker == "other registration" else app.registration
    grant = planted(app, w.subject, registration, process.clock.now())
    await Repository(process.store).save_grant(grant if state == "living" else ended(grant, process), expect=0)
    try:
        await path(w)
    except BrokerError as error:
        assert error.code is Code.OAUTH_APP_NOT_FOUND  # noqa: PT017  (the import names an app)
    for _ in range(2):
        known = set[str]() if path in FAILS else reported(identity_provider)
        gone = {*OWN, *WAITING, *OTHERS} - await kept(process) - known
        check(w, gone, state, may_give_up=path in GIVES_UP or (reach == "grant" and broker == "same registration"))
        await process.parts.bulk_revocation.run_pass()


def ended(grant: Grant, process: Process) -> Grant:
    return grant.tombstoned(process.clock.now())


def check(w: World, gone: set[str], state: str, *, may_give_up: bool) -> None:
    """`gone` are in no record, and the provider was not told."""
    if state == "living" and gone & set(OWN):
        assert any(isinstance(entry, REFRESHED) for entry in w.entries) or given_up(w)
        gone -= set(OWN)
    assert may_give_up or not gone, gone
    assert given_up(w) or not gone, gone


def given_up(w: World) -> bool:
    words = {entry.provider for entry in w.entries if isinstance(entry, GrantRevoked)}
    return bool(words & {"none", "shared", "refused"})
