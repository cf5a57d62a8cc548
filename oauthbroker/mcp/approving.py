"""The command `oauthbroker mcp approve`: show how tools have changed, and pin their new texts."""

from __future__ import annotations

import difflib
from pathlib import Path

import typer

from oauthbroker import BrokerError, Code, open_broker
from oauthbroker.mcp.audit_types import ToolApproved
from oauthbroker.plugins import ChangedText, PinnedTexts, harmless_text


async def approve(config: Path, server: str, tool: str, *, yes: bool) -> None:
    """Show the tools that wait, and pin those that the operator approves."""
    async with open_broker(config) as broker:
        if server and not any(server in plugin.of("McpServer") for plugin in broker.bundle.plugins.values()):
            raise BrokerError(Code.REQUEST_INVALID, note="the configuration has no McpServer of this name")
        pins = PinnedTexts(broker.plugin_state("mcp"))
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
