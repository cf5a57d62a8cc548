"""The plays of tests/presets/credentials/plays.yaml, their apps as the loader makes them, and the API that plays one."""

from __future__ import annotations

import base64
import functools
import json
import re
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from oauthbroker.config import load
from oauthbroker.core.shipped_yaml import shipped_yaml
from oauthbroker.model.apps import App
from oauthbroker.model.provider_api import ApiHost
from oauthbroker.providers.quirks import Data
from tests.kit.preset_demands import Call
from tests.kit.running_broker import BASE
from tests.unit.protocol.kit import RawServer, says

FILE = Path(__file__).parents[1] / "presets" / "credentials" / "plays.yaml"
CALL = "/v9/things?page=2"


class CredentialPlay(Data):
    """One preset's play, in the words of the file."""

    params: dict[str, str] = Field(default_factory=dict)
    verify: dict[str, str] | None = None
    typed: dict[str, str]
    check: str
    check_headers: dict[str, str] = Field(default_factory=dict)
    body: str = ""
    headers: dict[str, str] = Field(default_factory=dict)
    basic: str = ""
    signed: str = ""
    check_signed: str = ""
    host: str = ""
    call: str = CALL
    refused: int = 401
    answer: dict[str, Any] = Field(default_factory=dict)
    account: str = ""

    @property
    def basic_text(self) -> str:
        """What Basic carries, as it is sent."""
        return base64.b64encode(self.basic.encode()).decode()

    @property
    def carried(self) -> Mapping[str, str]:
        """The headers of every request, but for a signature."""
        return {**self.headers, **({"authorization": f"Basic {self.basic_text}"} if self.basic else {})}

    @property
    def checked_at(self) -> str:
        return self.check.partition(" ")[2].partition("/")[0]

    @property
    def called_at(self) -> str:
        """The host of the API, where the check goes to another one."""
        return self.host or self.checked_at

    @property
    def request(self) -> str:
        """The check as its request line has it."""
        method, _, address = self.check.partition(" ")
        return f"{method} /{address.partition('/')[2]}"


@functools.cache
def credential_plays() -> dict[str, CredentialPlay]:
    written = shipped_yaml(FILE)
    return {name: CredentialPlay.model_validate(play) for name, play in written.items()}


def loaded_apps(folder: Path) -> dict[str, App]:
    """An app for each play that writes nothing the preset knows. Where no check names an account, one person uses it on
    one machine."""
    head = {"apiVersion": "agents.example.io/v1alpha1"}
    bundle: list[Any] = [{**head, "kind": "Broker", "metadata": {"name": "broker"}, "spec": {"publicBaseUrl": BASE}}]
    for name, play in credential_plays().items():
        spec: dict[str, Any] = {"provider": name, "subjectMode": "user", "params": play.params}
        if not play.account:
            spec["owner"] = {"binding": "localOperator"}
        if play.verify is not None:
            spec["verify"] = play.verify
        bundle.append({**head, "kind": "CredentialApp", "metadata": {"name": name}, "spec": spec})
    folder.joinpath("bundle.yaml").write_text(yaml.safe_dump_all(bundle), "utf-8")
    return {name: draft.app for name, draft in load(folder).apps.items()}


@dataclass
class PlayedApi:
    """The API of one play. It takes the play's credential where the provider wants it, and repeats a tool's request."""

    play: CredentialPlay
    server: RawServer = field(init=False)
    seen: list[tuple[str, Call]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server = RawServer(self.handle)

    def moved(self, app: App) -> App:
        """Return the app with its first host here, and the host of its check."""
        host, credential = ApiHost("127.0.0.1", self.server.port, "http"), app.credential
        assert credential is not None
        if self.play.host:
            assert credential.verification is not None
            check = replace(credential.verification, host=f"http://{host.authority}")
            credential = replace(credential, verification=check)
        return replace(app, api=replace(app.api, hosts=(host,)), credential=credential)

    async def handle(self, reader: StreamReader, writer: StreamWriter) -> None:
        raw = self.server.requests[-1]
        call, line = Call.parsed(raw), raw.partition(b" HTTP/")[0].decode("ascii")
        self.seen.append((line, call))
        said = {self.play.request: self.play.answer, f"GET {self.play.call}": {"said": [line, call.headers]}}
        signed = self.play.check_signed if line == self.play.request else ""
        is_taken = self.takes(call, signed or self.play.signed) and line in said
        body = said[line] if is_taken else {"error": "not this one"}
        await says(200 if is_taken else self.play.refused, json.dumps(body).encode())(reader, writer)

    def takes(self, call: Call, signed: str) -> bool:
        """Return whether a request has the credential; that of a path or a query is in its line."""
        said = call.headers.get("authorization", "")
        return self.play.carried.items() <= call.headers.items() and (
            not signed or re.fullmatch(signed, said) is not None
        )
