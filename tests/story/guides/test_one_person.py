"""docs/tutorials/github.md, google.md and slack.md, as one person plays them at a terminal.

The real providers cannot be asked: the endpoints of the presets, and the addresses of the API in the programs, are those
of the scripted provider. So is the client id, and the port is a free one. The rest is as printed.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from oauthbroker.providers.preset import Preset
from oauthbroker.providers.preset_files import Presets
from oauthbroker.testing import Account, Canaries, Client, IdentityProvider
from tests.kit.cli import Desk, environment
from tests.kit.docs_shell import LINK, agree, blocks, program
from tests.kit.shims import with_shims
from tests.story.cli.login_kit import Person

PROMPT = re.compile(r"^  (Client ID|Client secret|Scopes)(?: [\[(].*[\])])?: ?(.*)$", re.MULTILINE)
OF_PROVIDER = ("authorizationUrl", "tokenUrl", "deviceAuthorizationUrl")


@pytest.fixture
def person(tmp_path: Path, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Person:
    return Person(tmp_path, canaries, monkeypatch, capsys)


@pytest.fixture
def idp(canaries: Canaries) -> Iterator[IdentityProvider]:
    """It goes by the real clock, as the programs do."""
    with IdentityProvider(canaries=canaries) as provider:
        yield provider


@dataclass(frozen=True)
class Guide:
    """A page about one provider, and what stands for that provider here."""

    name: str
    dialect: Any
    api: str
    path: str
    userinfo: str

    @property
    def page(self) -> str:
        return f"docs/tutorials/{self.name}.md"

    def at(self, idp: IdentityProvider, patch: pytest.MonkeyPatch) -> None:
        """Let the preset's endpoints be those of the scripted provider."""
        known, theirs = Presets.__getitem__, idp.endpoints

        def changed(presets: Presets[Any], name: str) -> Any:
            preset = known(presets, name)
            if name != self.name or not isinstance(preset, Preset):  # a key may have the same name
                return preset
            ours = {each: theirs[each] for each in OF_PROVIDER}
            ours |= {"userInfoUrl": idp.url(self.userinfo), "jwksUrl": theirs["jwksUrl"], "issuer": idp.issuer}
            ours["revokeUrl"] = idp.url("/applications/{client_id}/token" if self.name == "github" else "/revoke")
            changes = {
                "endpoints": type(preset.endpoints).model_validate(ours),
                "api_hosts": [idp.base_url],
                "auth_method": "client_secret_basic",
            }
            return preset.model_copy(update=changes)

        patch.setattr(Presets, "__getitem__", changed)


GUIDES = [
    Guide("github", "github", "https://api.github.com/user", "/user", "/user"),
    Guide("google", "oidc", "https://www.googleapis.com/calendar/v3/users/me/calendarList", "/userinfo", "/userinfo"),
]


def ran(code: str) -> str:
    """Run a program of the page in this process, whose presets are changed; its output."""
    said = StringIO()
    with redirect_stdout(said):
        exec(compile(code, "the page", "exec"), {})  # noqa: S102 - the page's code is under test
    return said.getvalue()


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
async def test_a_person_logs_in_as_printed_and_the_programs_of_the_page_work(
    person: Person, idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch, guide: Guide
) -> None:
    guide.at(idp, monkeypatch)
    client = idp.register(Client("me", redirect_uris=(person.callback(guide.name),), dialect=guide.dialect))
    transcript = blocks("", page=guide.page)[0]
    typed = {"Client ID": "me", "Client secret": client.reveal_secret()}
    answers = [typed.get(name, answer) for name, answer in PROMPT.findall(transcript)]
    command, *printed = transcript.splitlines()
    assert command.startswith("$ oauthbroker login ")
    done, _ = await person.log_in(idp, *command.split()[3:], answers=answers)
    assert 0 == done.code, done.err
    for line in printed:
        if "Its callback" in line or line.startswith("No app"):
            assert line.replace("8420", str(person.port)) in done.err
    [end] = [line for line in printed if line.startswith("Connected as")]
    assert end.partition(", ")[2] == done.out.strip().partition(", ")[2]
    for code in blocks("python", page=guide.page):
        assert guide.api in code
        assert await asyncio.to_thread(ran, code.replace(guide.api, idp.url(guide.path)))
    for line in "\n".join(blocks("sh", page=guide.page)).splitlines():
        assert 0 == (await asyncio.to_thread(person.type, *line.split()[1:])).code


@pytest.mark.slow
async def test_the_script_of_slack_asks_once(
    tmp_path: Path, idp: IdentityProvider, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The tunnel's address is that of this machine, and the configuration has the scripted provider's endpoints."""
    desk = Desk(tmp_path, canaries, monkeypatch, capsys)
    (tmp_path / "config" / "broker.yaml").unlink()
    idp.add_account(Account("ada", "U234567", "T111"))
    client = idp.register(Client("me", redirect_uris=(f"{desk.base}/oauth/callback/slack",), dialect="slack"))
    broker, app = yaml.safe_load_all(blocks("yaml", page="docs/tutorials/slack.md")[0])
    broker["spec"] |= {"publicBaseUrl": desk.base, "listen": {"port": desk.port}, "weaken": ["plainHttpProvider"]}
    broker["spec"] |= {"store": {"root": "../store"}, "keys": {"file": "../keys/broker.kek"}}
    urls = {name: idp.endpoints[name] for name in OF_PROVIDER[:2]}
    app["spec"]["endpoints"] = {**urls, "revokeUrl": idp.url("/api/auth.revoke"), "issuer": idp.issuer}
    desk.write("slack", yaml.safe_dump_all([broker, app]))
    [script] = blocks("python", page="docs/tutorials/one-script.md")
    for line in blocks("", page="docs/tutorials/slack.md"):
        [old] = re.findall(rf"^ *{re.escape(line.partition(' = ')[0])} = .*(?:token_of|Turn).*$", script, re.MULTILINE)
        script = script.replace(old.strip(), line.strip())
    (tmp_path / "script.py").write_text(script, "utf-8")
    secret = client.reveal_secret()
    env = environment(PATH=with_shims(tmp_path), SLACK_CLIENT_ID="me", SLACK_CLIENT_SECRET=secret)
    async with program("oauthbroker", "init", cwd=tmp_path, env=env) as once:
        await once.end()
    canaries.add(desk.key_file.read_text("ascii").strip(), "key")
    for asked in (True, False):
        async with program(sys.executable, "-u", "script.py", cwd=tmp_path, env=env) as running:
            if asked:
                await agree(desk, idp, await running.says(LINK), "ada")
            said = await running.end()
        assert "Ready: Secret(***)" in said.splitlines()
        assert asked is ("Open this link" in said)
