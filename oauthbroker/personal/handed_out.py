"""What a program gets of a person's own connection: a token, or the values of a key that the person lets it have."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.local_turn import local_turn
from oauthbroker.model.static_credential import unpacked
from oauthbroker.model.token_results import Failed, Ready, TokenResult
from oauthbroker.personal.app_files import read_app
from oauthbroker.personal.connection import LocalConnection, LocalRefusedError, opened, ready, ready_of
from oauthbroker.personal.places import Places
from oauthbroker.personal.serve_socket import serve_client
from oauthbroker.tokens.issuance import Carrier
from oauthbroker.tokens.token_call import Caller

Variables = tuple[str, ...]
_TO_A_PROGRAM = Carrier("RUN", "environment")  # in the audit log, as the method and host of a request would be
_OF_NO_USE = frozenset(
    {Code.OAUTH_APP_NOT_FOUND, Code.BROKER_UNREACHABLE}
)  # an older configuration, or no longer there


def token_of(connection: LocalConnection, scopes: Sequence[str] | None, min_ttl: int | None) -> tuple[Ready, Variables]:
    """Return a token, and the variables in which programs look for it. A running `serve` is asked for it, and else the
    store is opened here. Raises LocalRefusedError, Refused."""
    found = None if connection.account else _of_serve(connection, scopes, min_ttl)
    if found is None:
        return asyncio.run(_of_store(connection, scopes, min_ttl))
    result, variables = found
    return ready_of(connection, result), variables


def key_values(connection: LocalConnection) -> dict[str, Secret]:
    """Return the values of a key by the variables of its app. Empty for an app with tokens. Raises LocalRefusedError,
    also for a key that the person does not let programs have."""
    places = Places.of_user()
    places.check()
    is_key = connection.app in places.names() and read_app(places, connection.app).get("kind") == "CredentialApp"
    return asyncio.run(_values(connection)) if is_key else {}


def _of_serve(
    connection: LocalConnection, scopes: Sequence[str] | None, min_ttl: int | None
) -> tuple[TokenResult, Variables] | None:
    """Return the answer of the `serve` over these places; None if it has none of use."""
    client = serve_client(Places.of_user())
    if client is None:
        return None
    with client:
        result = client.get_access_token(connection.app, scopes, min_ttl)
        if isinstance(result, Failed) and result.code in _OF_NO_USE:
            return None
        apps = client.apps() if isinstance(result, Ready) else []
        return result, next((app.environment for app in apps if app.name == connection.app), ())


async def _of_store(
    connection: LocalConnection, scopes: Sequence[str] | None, min_ttl: int | None
) -> tuple[Ready, Variables]:
    async with opened(connection) as found:
        return await ready(connection, found, scopes, min_ttl), found.app.environment


async def _values(connection: LocalConnection) -> dict[str, Secret]:
    async with opened(connection) as found:
        if not found.app.field_variables:
            raise LocalRefusedError(Code.REQUEST_INVALID, _how_to_allow(connection, found.app))
        caller = Caller(local_turn(connection.app, connection.account))
        result = await found.manager.get_access_token(caller, connection.ref, carrier=_TO_A_PROGRAM)
        values = unpacked(ready_of(connection, result).access_token)
        return {name: Secret(values[field]) for field, name in found.app.field_variables.items()}


def _how_to_allow(connection: LocalConnection, app: App) -> str:
    fields = app.credential.fields if app.credential is not None else ()
    example = ", ".join(f"{each.name}: {connection.app.upper()}_{each.name.upper()}" for each in fields)
    return (
        f"Programs do not get the key of {app.name}: use oauthbroker.local({app.name!r}).client(), which sends it to "
        f"the API alone. To let a program have it, write into spec of {Places.of_user().app_file(app.name)}: "
        f"environment: {{{example}}}"
    )
