"""The popular entries of the largest public catalogue, from popular_entries.yaml: an app each, and the tests that play it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field

from oauthbroker.config import load
from oauthbroker.core.shipped_yaml import shipped_yaml
from oauthbroker.model.apps import App
from oauthbroker.providers.quirks import Data
from tests.kit.preset_plays import Play, plays
from tests.kit.running_broker import BASE

FILE = Path(__file__).with_suffix(".yaml")
HEAD = {"apiVersion": "agents.example.io/v1alpha1"}
CLIENT = {"clientId": "an-id", "clientSecret": {"valueFrom": {"env": "A_SECRET"}}}
MCP_STORY = ("tests/story/test_mcp_client.py", "test_a_client_of_the_sdk_calls_a_tool_with_the_users_token")
LEARNT_STORY = ("tests/story/test_popular_entries.py", "test_an_mcp_server_that_registers_clients_is_connected")


class Entry(Data):
    """One row of the table. `play` is the name of the preset's play; a CredentialApp's preset has one play."""

    entry: str
    kind: Literal["OAuthApp", "CredentialApp", ""] = ""
    spec: dict[str, Any] = Field(default_factory=dict)
    calls: str = ""
    play: str = ""
    mcp: bool = False
    note: str = ""

    @property
    def provider(self) -> str:
        return str(self.spec.get("provider", ""))

    @property
    def how(self) -> str:
        by = ", by [McpTransport](mcp.md#a-client-with-many-users)" if self.mcp else ""
        said = f"{self.kind}, `provider: {self.provider}`{by}" if self.kind else "not yet"
        return f"{said}: {self.note}" if self.note else said

    @property
    def resource(self) -> dict[str, Any]:
        """The whole app, with a client where it wants one."""
        own: dict[str, Any] = {}
        if self.kind == "OAuthApp":
            own = {"flow": "authorizationCode", **({} if "mcp" in self.spec else {"client": CLIENT})}
        return {**HEAD, "kind": self.kind, "metadata": {"name": self.entry}, "spec": {**own, **self.spec}}

    def oauth_play(self) -> Play:
        [found] = [it for it in plays() if (it.provider, it.name) == (self.provider, self.play)]
        return found

    def stories(self) -> Iterator[tuple[str, str]]:
        """The file and the function of each test that plays it."""
        if self.kind == "CredentialApp":
            function = "test_a_credential_is_checked_and_carried_as_the_documentation_says"
            yield "tests/story/test_credential_presets.py", f"{function}[{self.provider}]"
        elif self.play:
            function = "test_a_grant_lives_as_the_documentation_says"
            yield "tests/story/test_presets.py", f"{function}[{self.oauth_play()}]"
        if self.mcp:
            yield MCP_STORY if self.play else LEARNT_STORY


@cache
def entries() -> dict[str, Entry]:
    return {row["entry"]: Entry.model_validate(row) for row in shipped_yaml(FILE)}


def popular_rows() -> Iterator[tuple[str, ...]]:
    yield "entry", "how", "beside the preset", "a request", "played by"
    for it in entries().values():
        spec = {name: said for name, said in it.spec.items() if name not in {"provider", "owner"}}
        beside = yaml.safe_dump(spec, default_flow_style=True, width=1000, sort_keys=False).strip()
        played = [f"{Path(file).stem} ({name.partition('[')[2].rstrip(']') or name})" for file, name in it.stories()]
        yield it.entry, it.how, f"`{beside}`" if spec else "", f"`{it.calls}`" if it.calls else "", ", ".join(played)


def popular_apps(folder: Path) -> dict[str, App]:
    """Load the table's apps."""
    broker = {**HEAD, "kind": "Broker", "metadata": {"name": "broker"}, "spec": {"publicBaseUrl": BASE}}
    resources = [broker, *(it.resource for it in entries().values() if it.kind)]
    folder.joinpath("bundle.yaml").write_text(yaml.safe_dump_all(resources), "utf-8")
    return {name: draft.app for name, draft in load(folder).apps.items()}
