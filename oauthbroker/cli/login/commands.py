"""`oauthbroker login`: connect your own account at a provider, without a server and without a configuration."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from oauthbroker.cli.login import questions
from oauthbroker.cli.login.consent import LoginWish, is_remote, log_in
from oauthbroker.cli.login.questions import Given, is_asking, note
from oauthbroker.cli.output.completion_words import preset_names
from oauthbroker.cli.output.json_output import say
from oauthbroker.cli.output.options import AsJson, Yes
from oauthbroker.cli.output.tables import shown
from oauthbroker.config import ConfigInvalidError
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.refused import Refused
from oauthbroker.core.secret import Secret
from oauthbroker.model.accounts import is_account
from oauthbroker.personal import app_files
from oauthbroker.personal.app_files import MCP, SECRET_KEY, Answers, AppChange
from oauthbroker.personal.command_lines import NO_ACCOUNT, with_config
from oauthbroker.personal.key_place import use_keychain
from oauthbroker.personal.local_broker import open_local_vault
from oauthbroker.personal.places import PORT, Places
from oauthbroker.providers import presets
from oauthbroker.providers.credentials import credential_presets
from oauthbroker.serving.listeners import listen
from oauthbroker.wiring.mcp_server_facts import McpServerFacts, look_at_mcp_server

app = typer.Typer(add_completion=False)
PROVIDER = typer.Argument(
    metavar="PROVIDER",
    help="A preset, such as github, an app of your own, or the address of an MCP server.",
    autocompletion=preset_names,
)

CALLBACK_PORT = typer.Option(
    min=1,
    max=65535,
    help="Where the provider sends the browser back to.",
    show_default=f"{PORT}, or that of the last login of any app",
)


@app.command("login")
def login_command(  # noqa: PLR0913, PLR0917  (options)
    provider: Annotated[str, PROVIDER],
    account: Annotated[str, typer.Option(help="A name for one of several accounts.")] = "",
    client_id: Annotated[str, typer.Option(help="The client id that the provider shows.")] = "",
    stdin: Annotated[
        bool, typer.Option("--stdin", help="Read the client secret, or the fields of a key, a line each, from stdin.")
    ] = False,
    scopes: Annotated[str | None, typer.Option(help='Scopes, such as "repo read:org".')] = None,
    param: Annotated[list[str] | None, typer.Option(help="A value of the preset, such as tenant=...")] = None,
    key: Annotated[bool, typer.Option("--key", help="A key, where the provider has OAuth, too.")] = False,
    device: Annotated[
        bool | None,
        typer.Option("--device/--no-device", help="Type a code on another device; for a new app over ssh by default."),
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the link alone.")] = False,
    port: Annotated[int | None, CALLBACK_PORT] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Connect your own account at a provider, without a server.

    Asks once for the missing values, and keeps them in your data folder: the app as YAML, secret and grant sealed.
    Each answer can be an option. Secrets are typed without echo, or read from stdin. For an app that is there already,
    the options change it: --stdin sets its client secret, --device its flow.
    """
    if account and not is_account(account):
        raise Refused(NO_ACCOUNT)
    places = Places.of_user()
    places.prepare()
    if said := use_keychain(places):
        note(said)
    given = Given(
        client_id=client_id.strip(),
        secrets=questions.read_secrets() if stdin else None,
        scopes=None if scopes is None else questions.words(scopes),
        params=dict(_param(each) for each in param or ()),
        device=device,
        remote=is_remote(),
        key=key,
        port=_port(places, port),
    )
    name, change = _app(places, provider, given)
    wanted = LoginWish(name, account, not (no_browser or given.remote), yes)
    try:
        ended = asyncio.run(log_in(places, wanted, given, change))
    except KeyboardInterrupt:
        raise typer.Abort from None
    document: dict[str, Any] = {"app": name, "identity": ended.view.identity, "scopes": list(ended.view.scopes)}
    say(shown(ended.text), document | ({"account": account} if account else {}), as_json=as_json)


def _port(places: Places, port: int | None) -> int:
    """Return the port of the callbacks. Raises Refused for a new one that cannot be listened on: it is not kept."""
    there = app_files.port_of(places)
    if port is not None and port != there:
        listen("127.0.0.1", port, f"--port; without it {there} is used").close()
    return port or there


def _param(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark:
        raise Refused(f"{text} is no parameter. Write --param name=value.")
    return name, value


def _app(places: Places, provider: str, given: Given) -> tuple[str, AppChange | None]:
    """Return the name of the app to connect, made as the person says, or the change of one that works."""
    if "://" in provider:
        return _mcp_app(places, provider, given)
    old = provider in places.names()
    if old:
        proven, instead = asyncio.run(_is_proven(places, provider)), _instead(places, provider, given)
        if not instead:
            return provider, _change(places, provider, given, proven=proven)
        if proven or not app_files.is_of_answers(places, provider):
            raise Refused(f"{provider} {instead} instead, run: oauthbroker logout {provider} --forget")
    if provider not in {*presets(), *credential_presets()}:
        raise questions.unknown(provider, places)
    callback = questions.callback_of(provider, provider, given.port)
    answers = questions.new_app(provider, given, callback)
    if old and answers.secret is None:
        asyncio.run(_without_secret(places, provider))
    _write(places, provider, answers, given)
    return provider, None


def _instead(places: Places, name: str, given: Given) -> str:
    """Return what an app is that the person wants to be of the other kind; empty where they do not."""
    is_oauth = app_files.read_app(places, name)["kind"] == "OAuthApp"
    if is_oauth and given.key:
        return "is an OAuth app here. To use a key"
    return "" if is_oauth or given.key or not given.is_for_client else "has a key here. To use OAuth"


async def _is_proven(places: Places, name: str) -> bool:
    """Return whether the app has ever been connected: its client is right then."""
    async with open_local_vault(places) as vault:
        async for _ in vault.grants.views(name):
            return True
    return False


def _change(places: Places, name: str, given: Given, *, proven: bool) -> AppChange | None:
    """Return what the person changes of an app that works. One that never did is changed at once, and at a terminal
    its values are asked for again: there may be a wrong one among them."""
    resource = app_files.read_app(places, name)
    provider = resource["spec"].get("provider", "")
    preset, is_client = presets().get(provider), resource["kind"] == "OAuthApp"
    questions.check_params(name, preset if is_client else credential_presets().get(provider), given)
    if preset is not None and not resource["spec"].get("endpoints", {}).get("deviceAuthorizationUrl"):
        questions.device_wanted(preset, given)
    if not proven and is_asking():
        given = questions.asked_again(resource, given, questions.callback_of(name, provider, given.port))
    app_files.write_broker(places, host=app_files.host_for(provider), port=given.port)
    secret = _secret(given) if is_client else None
    if secret is None and not given.changes:
        return None
    change = AppChange(name, questions.changed(resource, given, has_secret=secret is not None), secret)
    app_files.check_app(places, change.resource)
    if proven:
        return change
    asyncio.run(_keep(places, change))
    return None


def _secret(given: Given) -> Secret | None:
    return Secret("".join(given.secrets)) if given.secrets else None


def _mcp_app(places: Places, url: str, given: Given) -> tuple[str, AppChange | None]:
    """Return the same of an MCP server, which says itself how users sign in."""
    app_files.write_broker(places, host=app_files.host_for(MCP), port=given.port)  # it says which networks may be asked
    try:
        facts = asyncio.run(look_at_mcp_server(url, (), places.config))
    except ConfigInvalidError as error:
        raise with_config(error, places.config) from None
    except BrokerError as error:
        refused = error
    else:
        return _app_of_server(places, url, facts, given)
    is_address = refused.code is not Code.APP_MISCONFIGURED or not refused.note  # else its sentence speaks of an app
    why = str(refused) if is_address else f"{refused.note}. Write it as https://HOST/PATH."
    raise Refused(f"{url} is no MCP server that can be used: {why}")


def _app_of_server(places: Places, url: str, facts: McpServerFacts, given: Given) -> tuple[str, AppChange | None]:
    name, number = facts.app_name, 1
    while name in places.names():
        if app_files.read_app(places, name)["spec"].get("mcp", {}).get("url") == facts.url:
            if asyncio.run(_is_proven(places, name)):
                return name, _change(places, name, given, proven=True)
            break  # it never worked, and is made anew
        number += 1
        name = f"{facts.app_name}-{number}"
    members = dict(facts.app_members)
    scopes = given.scopes if given.scopes is not None else tuple(members.pop("scopes"))
    members.pop("scopes", None)
    answers = Answers(provider=MCP, scopes=scopes, mcp=members, client_id=given.client_id, secret=_secret(given))
    if facts.registration == "byHand" and not given.client_id:
        callback = questions.callback_of(name, MCP, given.port)
        raise Refused(
            f"{facts.issuers[0]} registers no clients by itself. Register one there with the callback {callback}, then "
            f"run: oauthbroker login {url} --client-id ID"
        )
    _write(places, name, answers, given)
    return name, None


def _write(places: Places, name: str, answers: Answers, given: Given) -> None:
    """Write a new app, after its secret is sealed: an app without it would be of no use."""
    app_files.write_broker(places, host=app_files.host_for(answers.provider), port=given.port)
    resource = answers.resource(name)
    app_files.check_app(places, resource)
    asyncio.run(_keep(places, AppChange(name, resource, answers.secret)))
    if answers.secret is not None:
        note(f"  The secret is sealed in {places.store}")


async def _without_secret(places: Places, name: str) -> None:
    async with open_local_vault(places) as vault:
        await vault.secrets.remove(name, SECRET_KEY)


async def _keep(places: Places, change: AppChange) -> None:
    async with open_local_vault(places) as vault:
        await change.keep(places, vault.secrets)
