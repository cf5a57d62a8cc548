"""`oauthbroker logout`: end your own connections at a provider, and tell it."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from oauthbroker.cli.grants.grants_revoke import OUTCOME_TEXTS
from oauthbroker.cli.login.questions import one_account
from oauthbroker.cli.output.json_output import say
from oauthbroker.cli.output.options import AsJson
from oauthbroker.core.refused import Refused
from oauthbroker.core.spelling import nearest
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.local_turn import SUBJECT
from oauthbroker.personal.app_files import remove_app
from oauthbroker.personal.local_broker import open_local, open_local_vault
from oauthbroker.personal.logins import connections, end
from oauthbroker.personal.places import Places

app = typer.Typer(add_completion=False)
LEFT_TO_TELL = 3
ACCOUNT = typer.Option(help='One of several accounts, "" for the unnamed one; all of them without it.')


@app.command("logout")
def logout_command(
    provider: Annotated[str, typer.Argument(metavar="PROVIDER", help="The app, as `status` lists it.")],
    account: Annotated[str | None, ACCOUNT] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Remove the app and its secret, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """End your own connections at a provider: all accounts, or one.

    Says what the provider knows of it. Exit status 3: it ended here, and the provider has still to be told.
    """
    places = Places.of_user()
    places.check()
    if provider not in places.names():
        raise one_account("logout", provider, places) or _unknown(provider, places)
    if forget and account is not None:
        raise Refused("--forget removes the app of all accounts. Leave out --account, or --forget.")
    lines, left = asyncio.run(_end(places, provider, account))
    if forget:
        asyncio.run(_forget(places, provider))
        lines.append(f"{provider}: its app and its secret are removed here; the provider still lists the app")
    say("\n".join(lines), {"app": provider, "ended": lines, "forgotten": forget}, as_json=as_json)
    if left:
        raise typer.Exit(LEFT_TO_TELL)


def _unknown(provider: str, places: Places) -> Refused:
    meant = nearest(provider, places.names())
    hint = f"Did you mean {meant}? Run: oauthbroker logout {meant}" if meant else "Your apps: oauthbroker status"
    return Refused(f"There is no app {provider} here. {hint}")


async def _end(places: Places, name: str, account: str | None) -> tuple[list[str], bool]:
    """End the connections. Return what to say of each, and whether a provider has still to be told."""
    lines, left = list[str](), False
    async with open_local(places, only={name}) as running:
        pages = running.parts.apps[name].credential
        for view in [each.view async for each in connections(running, name)]:
            if account is not None and view.account != account:
                continue
            outcome = await end(running, GrantKey(name, SUBJECT, view.account)) or "done"
            text = OUTCOME_TEXTS[outcome]
            if pages is not None:
                where = ", ".join(pages.places) or "in the settings of the account"
                text = f"ended here; the key still works at the provider until it is ended there: {where}"
            lines.append(f"{view.key.connection}: {text}")
            left = left or outcome in {"later", "refused"}
    if not lines:
        which = name if account is None else f"{name}@{account}"
        lines.append(f"{which}: nothing is connected")
    return lines, left


async def _forget(places: Places, name: str) -> None:
    async with open_local(places, only={name}) as running:
        if running.parts.apps[name].mcp is not None:
            await running.broker.forget_client(name)
    async with open_local_vault(places) as vault:
        await vault.secrets.remove(name)
    remove_app(places, name)
