"""The commands of `oauthbroker mcp`."""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from pathlib import Path
from typing import Annotated, Final

import typer

from oauthbroker import BrokerError, Code, open_broker
from oauthbroker.mcp.audit_types import ToolApproved
from oauthbroker.mcp.spec import LOOPBACK
from oauthbroker.plugins import (
    ChangedText,
    McpServerFacts,
    PinnedTexts,
    UnfitExtra,
    check_extra,
    harmless_text,
    look_at_mcp_server,
)

SCHEMA_LINE: Final = "# yaml-language-server: $schema=../oauthbroker.schema.json\n"  # as in each file of a bundle
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")  # of a resource
BY_HAND: Final = "register-it-there"
_NOTES: Final = {
    "document": "The broker serves its client as a document, if publicBaseUrl is an https address.",
    "dynamic": "The broker registers its client there by itself.",
    "byHand": "Register a client there with the callback <publicBaseUrl>/oauth/callback/{name}, and write its id.",
}
app = typer.Typer(add_completion=False, help="MCP servers: add, approve, serve, forget.", callback=lambda: None)


@app.command("add")
def add(
    url: Annotated[str, typer.Argument(help="The address of the MCP server.")],
    name: Annotated[str, typer.Option(help="The name of the app; by default of the server's host.")] = "",
    network: Annotated[list[str] | None, typer.Option(help="A private network that may be asked.")] = None,
    config: Annotated[Path, typer.Option("--config", "-c", help="The bundle whose outgoingProxy is used.")] = Path(
        "config"
    ),
) -> None:
    """Ask an MCP server how users sign in, and print the OAuthApp to paste. Nothing is stored or registered."""
    if name and not _NAME.fullmatch(name):
        note = "--name begins with a letter or digit, and has letters, digits, '-', '_' and '.', at most 128"
        raise BrokerError(Code.REQUEST_INVALID, note=note)
    facts = asyncio.run(look_at_mcp_server(url, network or (), config))
    name = name or facts.app_name
    typer.echo(app_yaml(facts, name), nl=False)
    typer.echo(f"# {_NOTES[facts.registration].format(name=name)}", err=True)


def app_yaml(facts: McpServerFacts, name: str) -> str:
    """Return the resource. The server's texts are quoted as JSON, which is YAML too."""
    members = facts.app_members
    is_known = facts.registration != "byHand"
    lines = [
        "provider: mcp",
        "flow: authorizationCode",
        "subjectMode: user",
        *(f"{name}: {json.dumps(members[name])}" for name in ("mcp", "resource") if name in members),
        *([] if is_known else [f"client: {{clientId: {BY_HAND}, authMethod: none}}"]),
        f"scopes: {json.dumps(members['scopes'])}  # the ceiling: remove what no tool needs",
        "owner: {binding: brokerLogin}  # or runtimeConfirm, channelCode; localOperator: one person, one machine",
    ]
    head = f"apiVersion: agents.example.io/v1alpha1\nkind: OAuthApp\nmetadata: {{name: {json.dumps(name)}}}\nspec:\n"
    return SCHEMA_LINE + head + "".join(f"  {line}\n" for line in lines)


@app.command("serve")
def serve_tools(
    config: Annotated[Path, typer.Option("--config", help="A YAML file, or a folder.")] = Path("config"),
    http: Annotated[str, typer.Option(help="host:port on this machine's loopback. Without it: stdin and stdout.")] = "",
    subject: Annotated[str, typer.Option(help="The user, as the apps' owners spell them.")] = "local:user:me",
) -> None:
    """Serve the tools of all McpServer resources to one host, with the user's tokens."""
    _check_sdk()
    if not subject.strip():
        raise BrokerError(Code.REQUEST_INVALID, note="--subject is a user, such as local:user:me")
    from oauthbroker.mcp.serving import serve

    asyncio.run(serve(config, subject, _place(http) if http else None))


@app.command("approve")
def approve_tools(
    server: Annotated[str, typer.Argument(help="The name of an McpServer; all of them without it.")] = "",
    tool: Annotated[str, typer.Argument(help="A tool of it; all of them without it.")] = "",
    config: Annotated[Path, typer.Option("--config", help="A YAML file, or a folder.")] = Path("config"),
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Approve without a question.")] = False,
) -> None:
    """Show how tools of MCP servers have changed, and let the gateway show them again."""
    _check_sdk()
    asyncio.run(_approve(config, server, tool, yes=yes))


async def _approve(config: Path, server: str, tool: str, *, yes: bool) -> None:
    async with open_broker(config) as broker:
        if server and not any(server in plugin.of("McpServer") for plugin in broker.bundle.plugins.values()):
            raise BrokerError(Code.REQUEST_INVALID, note="the configuration has no McpServer of this name")
        pins = PinnedTexts(broker.plugin_state("mcp"))
        if tool and not await pins.has(server, tool):
            note = f"{server} has listed no tool of this name. Name one without the server's name before it"
            raise BrokerError(Code.REQUEST_INVALID, note=note)
        found = sorted([each async for each in pins.waiting() if _is_of(each, server, tool)], key=lambda it: it.place)
        last = "Nothing is approved." if found else "No tool waits for approval."
        for each in found:
            typer.echo("\n".join(difference(each)))
            if not (yes or typer.confirm(f"Approve {each.place}?", default=False)):
                continue
            its_server, _, its_tool = each.place.partition("/")
            broker.audit(ToolApproved(server=its_server, tool=its_tool))
            if await pins.approve(each):
                last = "The next list has the tools that are approved."
            else:
                typer.echo(f"{each.place} has changed meanwhile. Run the command again.")
        typer.echo(last)


def difference(changed: ChangedText) -> list[str]:
    """Return the lines that differ. The server's texts cannot steer a terminal."""
    lines = (changed.pinned.split("\n"), changed.now.split("\n"))
    names = (f"{changed.place} (pinned)", f"{changed.place} (now)")
    return [harmless_text(line) for line in difflib.unified_diff(*lines, *names, lineterm="")]


def _is_of(changed: ChangedText, server: str, tool: str) -> bool:
    its_server, _, its_tool = changed.place.partition("/")
    return server in {"", its_server} and tool in {"", its_tool}


def _check_sdk() -> None:
    try:
        check_extra("mcp")
    except UnfitExtra as error:
        raise BrokerError(Code.REQUEST_INVALID, note=str(error)) from None


@app.command("forget")
def forget(
    name: Annotated[str, typer.Argument(help="The OAuthApp.")],
    config: Annotated[Path, typer.Option("--config", help="A YAML file, or a folder.")] = Path("config"),
) -> None:
    """Forget the client that was registered at a server's authorization server. The next token call registers another
    one, and users consent anew."""

    async def forgotten() -> bool:
        async with open_broker(config) as broker:
            return await broker.forget_client(name)

    typer.echo("Forgotten." if asyncio.run(forgotten()) else f"No client of {name} is known.")


@app.command("pages", hidden=True)
def serve_pages(
    config: Annotated[Path, typer.Option("--config")], listener: Annotated[int, typer.Option("--listener")]
) -> None:
    """Serve the pages while links wait that `serve` gave to a host which has ended. `serve` starts this by itself."""
    check_extra("mcp")
    from oauthbroker.mcp.serving import serve_waiting

    asyncio.run(serve_waiting(config, listener))


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if host not in LOOPBACK or not port.isdecimal() or not 0 < int(port) < 65536:
        raise BrokerError(Code.REQUEST_INVALID, note="--http is an address of this machine, such as 127.0.0.1:8765")
    return host, int(port)
