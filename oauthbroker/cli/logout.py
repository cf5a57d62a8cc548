"""`oauthbroker logout`: end your own connections at a provider, and tell it."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from oauthbroker.cli.grants.grants_revoke import LEFT_TO_TELL, OUTCOME_TEXTS
from oauthbroker.cli.login.questions import is_asking
from oauthbroker.cli.output.error_output import confirm
from oauthbroker.cli.output.json_output import say
from oauthbroker.cli.output.options import AsJson, Yes
from oauthbroker.core.refused import Refused
from oauthbroker.core.spelling import nearest
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.local_turn import SUBJECT
from oauthbroker.personal.app_files import remove_app
from oauthbroker.personal.command_lines import accounts_here, logout_of, named, of_all, one_account
from oauthbroker.personal.local_broker import app_of, open_local, open_local_vault
from oauthbroker.personal.logins import connections, end
from oauthbroker.personal.places import Places
from oauthbroker.personal.serve_socket import serve_process
from oauthbroker.records.grant_view import GrantView
from oauthbroker.revocation.pending_revocations import RevocationOutcome

app = typer.Typer(add_completion=False)
ACCOUNT = typer.Option(help='One of several accounts, "" for the unnamed one; all of them without it.')


@app.command("logout")
def logout_command(
    provider: Annotated[str, typer.Argument(metavar="PROVIDER", help="The app, as `status` lists it.")],
    account: Annotated[str | None, ACCOUNT] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Remove the app and its secret, too.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """End your own connections at a provider: all accounts, or one.

    Says what the provider knows of it. Exit status 3: it ended here, and the provider has still to be told. Type it
    again for that.
    """
    places = Places.of_user()
    places.check()
    if provider not in places.names():
        raise _unknown(provider, places)
    if forget and account is not None:
        raise Refused("--forget removes the app of all accounts. Leave out --account, or --forget.")
    lines, left = asyncio.run(_end(places, provider, account, keeps=not (forget and yes), yes=yes))
    if forget and left and not yes:
        lines.append(f"{provider}: its app stays: the report to the provider needs it; --yes forgets it nonetheless")
    elif forget:
        asyncio.run(_forget(places, provider))
        lines.append(f"{provider}: its app and its secret are removed here; the provider still lists the app")
    document = {"app": provider, "ended": lines, "forgotten": provider not in places.names()}
    say("\n".join(lines), document, as_json=as_json)
    if left:
        raise typer.Exit(LEFT_TO_TELL)


def _unknown(provider: str, places: Places) -> Refused:
    if (said := one_account("logout", provider)) and provider.partition("@")[0] in places.names():
        return Refused(said)
    meant = nearest(provider, places.names())
    hint = f"Did you mean {meant}? Run: oauthbroker logout {meant}" if meant else "Your apps: oauthbroker status"
    return Refused(f"There is no app {provider} here. {hint}")


async def _end(places: Places, name: str, account: str | None, *, keeps: bool, yes: bool) -> tuple[list[str], bool]:
    """End the connections. Return what to say of each, and whether a provider has still to be told. `keeps`: the app
    stays, so that it can be. Raises Refused as `_chosen`."""
    lines, left = list[str](), False
    async with open_local(places, only={name}) as running:
        app = app_of(running, places, name)
        found = [each.view async for each in connections(running, name)]
        chosen = _chosen(name, account, found, yes=yes)
        ended = await end(running, [GrantKey(name, SUBJECT, each) for each in chosen])
        serve = serve_process(places)
        for key, outcome in ended.items():
            again = logout_of(name, key.account, alone=len(found) == 1)
            tells = f"{serve}, tells it as soon as it can" if serve else f"tell it later: {again}"
            tells = tells if keeps else "end it there, in the settings of your account"
            text = _said(app, outcome, _why_later(app, found, key.account), tells)
            lines.append(f"{named(name, key.account)}: {text}")
            left = left or outcome in {"later", "refused"}
    if not lines:
        lines.append(f"{named(name, account or '')}: nothing is connected")
    return lines, left


def _chosen(name: str, account: str | None, found: list[GrantView], *, yes: bool) -> list[str]:
    """Return the accounts to end. Raises Refused for one that is not there, and for several without a confirmation."""
    accounts = sorted(view.account for view in found)
    if account is None:
        living = sorted(view.account for view in found if not view.revoked)
        if len(living) > 1 and not yes:
            if not is_asking():
                raise Refused(
                    f"{name} has {len(living)} connections: {of_all(name, living)}. None was ended. Add --yes to end "
                    f"all of them, or --account NAME ('' for the unnamed one)."
                )
            confirm(f"End {len(living)} connections: {of_all(name, living)}?", yes=False)
        return accounts
    if accounts and account not in accounts:
        who = named(name, account) if account else f"{name} --account ''"
        raise Refused(f"{who} is not connected. Nothing was ended. {accounts_here(name, account, accounts)}")
    return [each for each in accounts if each == account]


def _why_later(app: App, found: list[GrantView], account: str) -> str:
    """Return why a provider has still to be told: both causes, where the client depends on the connection."""
    silent, changed = f"{app.display_name} did not answer", "the app has another client now"
    if app.connect_params or (app.mcp is not None and not app.mcp.has_client):
        return f"{silent}, or {changed}"
    clients = {name for each in found if each.account == account for name in (each.registration, *each.clients_to_tell)}
    return silent if app.registration in clients else changed


def _said(app: App, outcome: RevocationOutcome, later: str, tells: str) -> str:
    """Return how a connection of an app ended. `later` and `tells` are said where the provider has still to be told."""
    if app.credential is not None:
        where = ", ".join(app.credential.places) or "in the settings of the account"
        return f"ended here; the key still works at the provider until it is ended there: {where}"
    match outcome:
        case "later":
            return f"ended here; {later}; {tells}"
        case "refused":
            return f"ended here; {app.display_name} refused; look there at the app's client and secret; {tells}"
        case "shared":
            return (
                f"ended here; {app.display_name} is told when your other connection there ends, because telling it now "
                "may end that one, too"
            )
    return OUTCOME_TEXTS[outcome]


async def _forget(places: Places, name: str) -> None:
    async with open_local(places, only={name}) as running:
        if app_of(running, places, name).mcp is not None:
            await running.broker.forget_client(name)
    async with open_local_vault(places) as vault:
        await vault.secrets.remove(name)
    remove_app(places, name)
