"""The process of a trial: it loads all tools, extensions and models of a bundle, and tells the problems. The command
`oauthbroker tools check` does so in its own process. Arguments: the descriptor of a socket, and the folder. It writes
lines of JSON: `{loads}` names the part that is loaded next, `{problems}` comes last."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

from oauthbroker import BrokerError
from oauthbroker.plugins import PluginResource, PluginResources, read_resources
from oauthbroker.tools.bundle.loading import REFUSALS, Isolate, LibraryMissing, load_agent, load_model, register_tools
from oauthbroker.tools.calling.context import Json, ToolContext
from oauthbroker.tools.calling.registry import Registry
from oauthbroker.tools.changesets.tool import register_exports
from oauthbroker.tools.types.failures import ToolFailure

Note = Callable[[str], object]
_NO_KEY: Final = "no-key"  # a trial has no secrets


class LoadingProblems:
    """Loads the code of a bundle in this process, and lists why some cannot be loaded; in `missing`, the models whose
    library is not installed here. `begins` is told the name of each part before its code runs. `isolate` keeps the code
    of tools with `isolation: process` out of this process, which loads it, too, if it is as isolated as their calls."""

    def __init__(
        self, resources: PluginResources, folder: Path, *, begins: Note = lambda _: None, isolate: Isolate | None = None
    ) -> None:
        self.found, self.names, self.missing = list[str](), dict[str, None](), dict[str, None]()
        self._registry = Registry()
        self._folder, self._begins, self._isolate = folder, begins, isolate
        self._agents, self._models = resources.of("Agent").values(), resources.of("Model")
        self._extensions = resources.of("Extension")
        tools = {name: each.spec for name, each in resources.of("Tool").items()}
        in_process = {"isolation": None}  # this process is as isolated
        self._tools = tools if isolate else {name: it.model_copy(update=in_process) for name, it in tools.items()}

    async def look(self) -> list[str]:
        """Load each tool, and then each agent with its tools, extensions and model."""
        for name, spec in self._tools.items():
            with self._loading(f"Tool/{name}"):
                register_tools(self._registry, {name: spec}, self._folder, isolate=self._isolate)
        self.names |= dict.fromkeys(each.name for each in self._registry)
        for agent in () if self.found else self._agents:
            with self._loading(f"Agent/{agent.name}"):
                await self._load(agent)
        return self.found

    @contextmanager
    def _loading(self, name: str) -> Iterator[None]:
        self._begins(name)
        try:
            yield
        except REFUSALS as refused:
            self.found.append(f"{name}: {refused}")
        except Exception as error:  # noqa: BLE001  (code of the bundle; the text may hold secrets)
            self.found.append(f"{name}: {type(error).__name__}")

    async def _load(self, agent: PluginResource) -> None:
        spec, model = agent.spec, self._models[agent.spec.model_ref.name].spec
        key = None if model.api_key is None else _NO_KEY
        try:
            load_model(self._folder, provider=model.provider, name=model.name, api_key=key, params=model.params)
        except LibraryMissing as missing:
            self.missing[f"Model/{agent.spec.model_ref.name}: {missing}"] = None
        registry, _ = await load_agent(
            {ref.name: self._tools[ref.name] for ref in spec.tools},
            [(ref.name, (it := self._extensions[ref.name].spec).entry or "", it.config) for ref in spec.extensions],
            self._folder,
            values=_Values(),
            isolate=self._isolate,
        )
        self.names |= dict.fromkeys(each.name for each in registry if each.is_dynamic)
        if spec.changesets is not None:
            register_exports(registry, _refused, _refused, _refused)


class _Values:
    """The values of extensions during a trial."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    async def get(self, key: str) -> Any:
        return self._values.get(key)

    async def put(self, key: str, value: Any) -> None:
        self._values[key] = value


async def _refused(_ctx: ToolContext, _args: dict[str, Json]) -> Json:
    """Stand in for a tool of changesets, whose names a trial registers to find another tool that has taken one."""
    raise ToolFailure("A trial loads the tools of a bundle and calls none.")


def main() -> NoReturn:
    channel, folder = socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2])

    def tell(message: dict[str, Any]) -> None:
        channel.sendall(json.dumps(message).encode("ascii") + b"\n")

    try:
        problems = LoadingProblems(read_resources(folder, "tools"), folder, begins=lambda name: tell({"loads": name}))
        tell({"problems": asyncio.run(problems.look())})
    except BrokerError as refused:
        tell({"problems": [refused.message()]})
    os._exit(0)  # threads that the bundle left behind do not hold up the end


if __name__ == "__main__":
    main()
