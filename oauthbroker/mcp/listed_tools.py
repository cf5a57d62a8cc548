"""Which of a server's tools the gateway shows: those that models take, and whose texts are those of the first list.

A tool that changed may ask the model for more than the user agreed to. It is left out until an operator approves it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from typing import Final

from mcp_types import Tool

from oauthbroker import Broker
from oauthbroker.mcp.upstream_names import BETWEEN
from oauthbroker.plugins import PinnedTexts

CONNECT: Final = "oauthbroker_connect"  # a tool of ours, while the tools of a server cannot be listed
MOST_TOOLS: Final = 500  # of a server's list
MOST_TEXT: Final = 64 * 1024  # characters of a tool's texts and schemas
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # what the APIs of models take as the name of a function
_LOG: Final = logging.getLogger("oauthbroker.mcp")


class ListedTools:
    """The tools of all servers, as of their last lists."""

    def __init__(self, broker: Broker) -> None:
        self._pins = PinnedTexts(broker.plugin_state("mcp"))
        self._shown: dict[str, dict[str, bool]] = {}  # by server and tool
        self._told: dict[str, list[str]] = {}

    def shows(self, server: str, tool: str) -> bool | None:
        """Return whether a tool may be called; None if it was not listed yet."""
        return self._shown.get(server, {}).get(tool)

    async def of(self, server: str, tools: Sequence[Tool]) -> list[Tool]:
        """Return the tools of a list that are shown. A line of the log says why others are not."""
        fits, texts, left_out = dict[str, Tool](), dict[str, str](), list[str]()
        for tool in tools:
            text = text_of(tool)
            if not tool.name or not _NAME.fullmatch(f"{server}{BETWEEN}{tool.name}"):
                left_out.append("a name that models refuse")
            elif tool.name in fits or tool.name == CONNECT:
                left_out.append(f"{tool.name} stands twice")
            elif len(fits) >= MOST_TOOLS or len(text) > MOST_TEXT:
                left_out.append("too many, or too large")
            else:
                fits[tool.name], texts[tool.name] = tool, text
        pinned = await self._pins.compare(server, texts)
        left_out += [f"{name} has changed: run `oauthbroker mcp approve`" for name, same in pinned.items() if not same]
        self._shown[server] = dict.fromkeys((tool.name for tool in tools[:MOST_TOOLS]), False) | pinned
        self._tell(server, left_out)
        return [tool for name, tool in fits.items() if pinned[name]]

    def _tell(self, server: str, left_out: list[str]) -> None:
        """Write one line for each new reason of a server, however often its tools are listed."""
        if left_out and self._told.get(server) != left_out:
            text = "; ".join(sorted(set(left_out))[:20])
            _LOG.warning("%d tools of the MCP server %s are left out: %s", len(left_out), server, text)
        self._told[server] = left_out


def text_of(tool: Tool) -> str:
    """Return all that a model sees of a tool, a line for each member."""
    members = tool.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"meta", "icons"})
    return json.dumps(members, indent=1, sort_keys=True, ensure_ascii=False)
