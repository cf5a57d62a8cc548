"""The sample plug-in in a running broker: a route for tools, a public document, background work, a finding."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

from oauthbroker import Broker, BrokerError, Code, Turn
from oauthbroker.plugins import (
    Background,
    PluginCall,
    PluginFinding,
    PluginResources,
    PluginRoute,
    RequestModel,
    RunningPlugin,
)
from sample_plugin.audit_types import NoteWritten

AGENT = "sample-rounds"
WAY = "/v1/sample/notebooks/{notebook}"


class NotebookPath(RequestModel):
    notebook: str


class Note(RequestModel):
    pages: int = 1


class Notes:
    """The notebooks, with their pages in the store."""

    def __init__(self, broker: Broker, resources: PluginResources) -> None:
        self._broker, self._resources = broker, resources
        self._has_begun = False

    async def follow(self, resources: PluginResources) -> None:
        self._resources = resources

    async def write(self, call: PluginCall) -> dict[str, Any]:
        name = call.path.notebook
        if name not in self._resources.of("Notebook"):
            raise BrokerError(Code.NOT_FOUND)
        self._broker.audit(NoteWritten(notebook=name, caller=call.caller, pages=call.body.pages))
        await self._broker.plugin_state("sample").change(name, lambda there: (there or 0) + call.body.pages)
        token = await call.oauth.get_access_token("OAuthApp/mail") if call.turn is not None else None
        return {"notebook": name, "tool": call.tool, "token": None if token is None else token.to_json()["status"]}

    async def document(self, call: PluginCall) -> dict[str, Any]:
        pages = {name: value async for name, value in self._broker.plugin_state("sample").all()}
        return {"notebooks": sorted(self._resources.of("Notebook")), "pages": pages}

    async def round(self) -> None:
        """Leave an event for an agent at the first round of a process."""
        if not self._has_begun:
            self._has_begun = True
            payload = {"notebooks": len(self._resources.of("Notebook"))}
            await self._broker.events.enqueue(AGENT, "sample.round", payload, turn=Turn(AGENT, "rounds"))

    def findings(self) -> Collection[PluginFinding]:
        if self._resources.of("Notebook"):
            return ()
        return [PluginFinding(code="noNotebook", text="There is no notebook.", hint="Add a Notebook to the bundle.")]


@asynccontextmanager
async def open_plugin(broker: Broker, resources: PluginResources) -> AsyncIterator[RunningPlugin]:
    notes = Notes(broker, resources)
    write = PluginRoute(
        method="POST", path=WAY, handler=notes.write, who=("turn", "runtime"), body=Note, parameters=NotebookPath
    )
    yield RunningPlugin(
        routes=[write, PluginRoute(method="GET", path="/.well-known/sample", handler=notes.document, who=())],
        background=[Background(name="rounds", seconds=60, work=notes.round)],
        findings=notes.findings,
        on_reload=notes.follow,
    )
