"""Durable operations of a static credential: typed, replaced, refused by the API. The API is the provider's userinfo,
and a key is an access token of its own, so that it can be revoked there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.grants.import_lines import Incoming
from oauthbroker.injection.errors import InjectionError
from oauthbroker.model.apps import App, Client, IdentityRule, Owner
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.model.provider_habits import Habits, Revocation
from oauthbroker.model.static_credential import (
    CredentialField,
    Placement,
    StaticCredential,
    Verification,
    packed,
    unpacked,
)
from oauthbroker.model.token_results import AuthorizationRequired, Failed
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.provider.token_table import Agreement
from tests.kit.broker_process import Process
from tests.kit.running_broker import ALICE, register, turn, user_app

HERE = turn(ALICE, instance="thread")


def key_app(idp: IdentityProvider, **changes: Any) -> App:
    """Its key is a bearer token, and `/userinfo` tells whose."""
    port = int(idp.base_url.rpartition(":")[2])
    return replace(
        user_app(idp),
        flow="staticCredential",
        client=Client("", None, "none"),
        scopes=(),
        owner=Owner(user_identity=IdentityRule("userInfo", "idp:user:{sub}")),
        revocation=Revocation(kind="none", reach="none"),
        habits=Habits(),
        api=ApiAccess((ApiHost("127.0.0.1", port, "http"),), injected=True),
        credential=StaticCredential(
            fields=(CredentialField(name="apiKey", title="API key"),),
            placement=Placement(kind="headers", texts={"Authorization": "Bearer {apiKey}"}),
            verification=Verification(path="/userinfo"),
            **changes,
        ),
    )


def made_key(idp: IdentityProvider) -> str:
    client, table = register(idp, "mail"), idp._state.token_table
    agreement = Agreement(
        client_id=client.client_id, account=idp.account("alice"), scopes=("openid",), at=idp.clock.now()
    )
    return table.issue(replace(client, access_lifetime=10**9), agreement, ("openid",), refresh=False).access.text


def ticket_of(asked: Any) -> str:
    assert isinstance(asked, AuthorizationRequired), asked
    return asked.authorization_url.rsplit("/", 1)[-1]


async def wants_key(process: Process) -> Any:
    return await process.broker.oauth(HERE).missing_consent("mail")


async def before_key(process: Process, idp: IdentityProvider) -> Any:
    return ticket_of(await wants_key(process)), made_key(idp)


async def typed(process: Process, known: Any) -> None:
    ticket, key = known
    await process.parts.pages.service.enter(ticket, {}, "", {"apiKey": key}, None)


async def has_key(process: Process, known: Any) -> bool:
    await process.tend()
    grant = await process.grant("mail", ALICE)
    there = grant is not None and grant.token is not None and unpacked(grant.token.access_token) == {"apiKey": known[1]}
    return there and await wants_key(process) is None


async def with_key(process: Process, idp: IdentityProvider) -> Any:
    known = await before_key(process, idp)
    await typed(process, known)
    idp.revoke_all(register(idp, "mail").client_id)
    return [idp.url("/userinfo")]


async def used(process: Process, known: Any) -> Any:
    """The answer of the API, or what the caller gets in its place."""
    async with process.broker.oauth(HERE).client("mail") as client:
        try:
            return (await client.get(known[0])).status_code
        except InjectionError as error:
            return error.result


async def refused_by_api(process: Process, known: Any) -> None:
    result = await used(process, known)
    if isinstance(result, Failed):
        raise BrokerError(result.code)
    if result == 401:  # the report failed, and so the answer was passed on: the next request makes it again
        raise BrokerError(Code.STORE_UNAVAILABLE)
    assert "keyRejected" == result.reason, result


async def is_refused(process: Process, known: Any) -> bool:
    """A mark that is lost is made again by the next request."""
    await refused_by_api(process, known)
    grant = await process.grant("mail", ALICE)
    return grant is not None and grant.rejected


async def before_another(process: Process, idp: IdentityProvider) -> Any:
    await refused_by_api(process, await with_key(process, idp))
    return await before_key(process, idp)


async def before_import(_: Process, idp: IdentityProvider) -> Any:
    return "", made_key(idp), made_key(idp)


async def imported(process: Process, known: Any) -> None:
    """Both slots, checked before they are stored."""
    first, following = (packed({"apiKey": key}) for key in known[1:])
    line = Incoming(
        line=1,
        app="mail",
        subject=ALICE,
        refresh_token=None,
        access_token=first,
        next_credential=following,
        scopes=(),
        mark="the-line",
    )
    await process.broker.grants.importing.import_grant(line)


async def has_both(process: Process, known: Any) -> bool:
    grant = await process.grant("mail", ALICE)
    return await has_key(process, known) and grant is not None and grant.next_credential == packed({"apiKey": known[2]})
