"""A grant is replaced, ended or erased while a call refreshes it: the call gets the new grant's token, a link, or a word
that may be tried again, and never a sentence about the provider's answer (case 53)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.grants.import_lines import Incoming
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.protocol.refresh_call import Redeemer
from oauthbroker.protocol.refresh_messages import RefreshRefused
from oauthbroker.testing import IdentityProvider
from tests.kit.broker_process import Process, ask, complete, connected
from tests.kit.running_broker import ALICE, turn, user_app
from tests.story.revocation_kit import Start, grant_of

Meanwhile = Callable[[Process, IdentityProvider, Incoming], Awaitable[None]]


async def imported(process: Process, _idp: IdentityProvider, line: Incoming) -> None:
    assert "replaced" == await process.parts.importing.import_grant(line, replace=True)


async def imported_with_a_token(process: Process, idp: IdentityProvider, line: Incoming) -> None:
    whole = replace(line, access_token=Secret("imported-access"), expires_at=process.clock.now().replace(year=2099))
    await imported(process, idp, whole)


async def imported_twice(process: Process, idp: IdentityProvider, line: Incoming) -> None:
    await imported(process, idp, replace(line, refresh_token=Secret("another-refresh"), mark="another"))
    await imported(process, idp, line)


async def connected_again(process: Process, idp: IdentityProvider, _line: Incoming) -> None:
    asked = await ask(process, switch_account=True)
    assert isinstance(asked, AuthorizationRequired)
    assert 200 == await complete(process, idp, asked)


async def revoked(process: Process, _idp: IdentityProvider, _line: Incoming) -> None:
    assert await process.parts.revoke.write_tombstone(GrantKey("mail", ALICE)) is not None


async def revoked_and_imported(process: Process, idp: IdentityProvider, line: Incoming) -> None:
    await revoked(process, idp, line)
    await imported(process, idp, line)


NEW = (imported, imported_with_a_token, imported_twice, connected_again, revoked_and_imported)


@pytest.fixture
async def line(start: Start, identity_provider: IdentityProvider) -> Incoming:
    """A line with a refresh token of another consent of hers, as another system would hold it."""
    apart = start([user_app(identity_provider)])
    await connected(apart, identity_provider)
    grant = await grant_of(apart)
    assert grant.token is not None
    assert grant.token.refresh_token is not None
    versioned = await apart.parts.repository.grant(GrantKey("mail", ALICE))
    assert versioned is not None
    await apart.parts.revoke.write_tombstone(GrantKey("mail", ALICE))
    dead = await apart.parts.repository.grant(GrantKey("mail", ALICE))
    assert dead is not None
    async with apart.parts.repository.pair(GrantKey("mail", ALICE)):
        gone = dead.record.erased(apart.clock.now())
        await apart.parts.repository.save_grant(gone, expect=dead.generation)
    token = grant.token.refresh_token
    return Incoming(line=1, app="mail", subject=ALICE, refresh_token=token, scopes=("read",), mark="m")


REFUSALS = {
    "the refresh token is dead": RefreshRefused(Code.REAUTH_REQUIRED, spent=False),
    "the provider is down": RefreshRefused(Code.PROVIDER_UNREACHABLE, spent=True),
    "nonsense": RefreshRefused(Code.TOKEN_RESPONSE_INVALID, spent=True),
    "the client is refused": RefreshRefused(Code.APP_MISCONFIGURED, spent=False),
}


PAUSING = {"the provider is down", "nonsense", "the client is refused"}


@pytest.mark.sample(10)
@pytest.mark.case("53")
@pytest.mark.parametrize("answer", ["tokens", *REFUSALS])
@pytest.mark.parametrize("meanwhile", [*NEW, revoked], ids=lambda it: it.__name__)
async def test_a_call_gets_what_the_new_grant_has(
    start, identity_provider, line, monkeypatch, meanwhile: Meanwhile, answer: str
):
    process = start([user_app(identity_provider)])
    await connected(process, identity_provider)
    for clock in (process.clock, identity_provider.clock):
        clock.advance(3600)
    under_way, goes_on, first = asyncio.Event(), asyncio.Event(), [True]
    ask_provider = Redeemer._ask

    async def held_up(*args: Any) -> Any:
        if not first:
            return await ask_provider(*args)
        first.clear()
        came = await ask_provider(*args) if answer == "tokens" else None
        under_way.set()
        await goes_on.wait()
        if came is None:
            raise REFUSALS[answer]
        return came

    monkeypatch.setattr(Redeemer, "_ask", held_up)
    asking = asyncio.create_task(process.broker.oauth(turn()).get_access_token("mail", ["read"]))
    await under_way.wait()
    await meanwhile(process, identity_provider, line)
    goes_on.set()
    reported: Any = await asking
    if meanwhile is revoked:
        assert (AuthorizationRequired, "revoked") == (type(reported), reported.reason)
        return
    if isinstance(reported, Failed):
        assert (True, True) == (answer in PAUSING, reported.retryable), reported
        process.clock.advance(300)
        identity_provider.clock.advance(300)
        reported = await ask(process, scopes=["read"])
    assert isinstance(reported, Ready), reported
    newest = (await grant_of(process)).token
    assert newest is not None
    assert newest.access_token == reported.access_token
    if meanwhile is not imported_with_a_token:
        assert identity_provider.is_alive(reported.access_token)
