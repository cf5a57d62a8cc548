"""docs/api.md by hand: its shell blocks, one after the other, in one shell, against a real server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.secret import Secret
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.testing import Browser, connect_through
from tests.kit.running_broker import global_app
from tests.story.api_server import Served, api_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="needs curl and jq"),
]
PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
LINE = {"app": "slack-bot", "subject": "idp:team:T222", "accessToken": "elsewhere", "refreshToken": "r"}
_OURS = {"slack:team:": "idp:team:", "slack:user:T111:": "idp:user:"}
_END = "---- the end of a block"


@pytest.fixture
def served() -> Iterator[Served]:
    tools = {"Tool/slack": (ToolAuth("slack-bot", ("chat:write",)),)}
    with api_server(
        lambda idp: [global_app(idp, "slack-bot", scopes=("chat:write", "channels:read"))], tools, furnish=False
    ) as served:
        yield served


class Shell:
    """One bash that is told block after block, so that its variables stay."""

    def __init__(self, served: Served) -> None:
        env = {
            **os.environ, "OAUTHBROKER_URL": served.url, "RUNTIME_KEY": served.runtime, "OPERATOR_KEY": served.operator,
            "no_proxy": "*",
        }  # fmt: skip
        self._bash = subprocess.Popen(
            ["bash", "-E", "-o", "pipefail"], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.run("trap 'echo FAILED' ERR")
        self.run(f"export-from-there() {{ printf '%s\\n' '{json.dumps(LINE)}' '{{}}'; }}")

    def run(self, block: str) -> str:
        """The output of a block. A command that fails unexpectedly fails the test."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        for ours in _OURS.items():
            block = block.replace(*ours)
        self._bash.stdin.write(f"{block}\necho; echo '{_END}'\n")
        self._bash.stdin.flush()
        said = "".join(iter(self._line, f"{_END}\n"))
        assert "FAILED" not in said, f"{block}\n{said}"
        return said

    def _line(self) -> str:
        assert self._bash.stdout is not None
        line = self._bash.stdout.readline()
        assert line, "the shell has ended"
        return line

    def value(self, name: str) -> str:
        return self.run(f'echo "${name}"').strip()

    def close(self) -> None:
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.close()
        self._bash.wait(60)
        self._bash.stdout.close()


def answers(said: str) -> list[dict[str, Any]]:
    """Every JSON object that was said."""
    found, decoder, place = list[dict[str, Any]](), json.JSONDecoder(), 0
    while (place := said.find("{", place)) >= 0:
        value, place = decoder.raw_decode(said, place)
        found.append(value)
    return found


def test_every_block_does_what_the_page_says(served: Served) -> None:
    shell, reported = Shell(served), list[str]()
    try:
        for block in BLOCKS:
            if "event=$(" in block:
                _agree(served, shell.value("asked"))
            reported.append(shell.run(block))
        _check(shell, reported)
    finally:
        shell.close()


def _agree(served: Served, asked: str) -> None:
    """A person opens the link that the token call gave."""
    assert served.idp is not None
    result = json.loads(asked)
    assert "authorization_required" == result["status"]
    page = asyncio.run(
        connect_through(Browser(canaries=served.canaries), served.idp, result["authorizationUrl"], "alice")
    )
    assert 200 == page.status


def _check(shell: Shell, reported: list[str]) -> None:
    """The words that the page puts beside its blocks."""
    said = dict(zip([block.splitlines()[0] for block in BLOCKS], reported, strict=True))

    def of(beginning: str) -> list[dict[str, Any]]:
        [found] = [text for line, text in said.items() if line.startswith(beginning)]
        return answers(found)

    assert [["chat:write"]] == [app["scopes"] for app in of("narrow=")[0]["apps"]]
    assert "authorization_required" == of("asked=")[0]["status"]
    assert "authorization_required" == of('api "$tool_token" POST /v1/tokens/rejected')[0]["status"]
    pending, state = of('api "$tool_token" GET /v1/turn/pending')
    assert ("auth.pending", "pending") == (pending["type"], state["status"])
    apart, links = of("api \"$tool_token\" GET '/v1/turn/pending?links=apart'")
    assert "authorizationUrl" not in apart["items"][0]
    assert pending["items"][0]["authorizationUrl"] in {link["authorizationUrl"] for link in links["links"]}
    assert [{"cancelled": True}] == of("never_mind=")
    assert "/connections/open/" in of('api "$RUNTIME_KEY" POST /v1/connections')[0]["url"]
    assert "auth.granted" == json.loads(shell.value("event"))["event"]["type"]
    assert any(text.strip() == "ready" for text in reported)
    assert any(text.startswith(":\n") for text in reported), "the stream"
    refused = of('api "$RUNTIME_KEY" POST /v1/auth-sessions/confirm')
    assert ["stateUnknown"] * 2 == [each["code"] for each in refused]
    [imported] = of("api_import()")
    assert (1, 1, 2) == (imported["imported"], imported["refused"], imported["problems"][0]["line"])
    record, ended, healthy, ready = of("grant=")
    assert ("<secret>", "slack-bot") == (record["token"]["accessToken"], record["oauthAppRef"]["name"])
    assert ("done", "ok", "ready") == (ended["provider"], healthy["status"], ready["status"])


def test_a_token_is_narrowed_by_hand_as_the_page_says(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(served)
    try:
        for block in BLOCKS[:2]:
            shell.run(block)
        token = shell.value("turn_token")
        [block] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
        monkeypatch.setenv("OAUTHBROKER_TURN_TOKEN", token)
        space: dict[str, Any] = {}
        exec(compile(block, "docs/api.md", "exec"), space)  # noqa: S102 - the page's code is under test
        handed_on = space["handed_on"]
        assert isinstance(handed_on, Secret)
        said = answers(shell.run(f"api {handed_on.reveal()} GET /v1/apps"))
        assert [("slack-bot", ["chat:write"])] == [(app["name"], app["scopes"]) for app in said[0]["apps"]]
    finally:
        shell.close()
