"""The example agent of each framework with a key in place of a consent: it pauses, the user types the key, and it goes on."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from oauthbroker.testing import Browser, Canaries, IdentityProvider
from tests.kit.framework_agents import EXAMPLES, Agents, python_of
from tests.kit.running_broker import BASE
from tests.story.keys_kit import GOOD, OF_BOB, KeyApi

sys.path.append(str(EXAMPLES))
from surroundings import prepare

pytestmark = pytest.mark.slow
FRAMEWORKS = ["langgraph", "pydantic-ai", "openai-agents", "google-adk"]


def with_a_key(config: Path, api: KeyApi) -> None:
    """Let the app `mail` take a key of the API, at which Alice is known by her subject at the provider."""
    written = [*yaml.safe_load_all((config / "broker.yaml").read_text())]
    (app,) = [each for each in written if each["kind"] == "OAuthApp" and each["metadata"]["name"] == "mail"]
    (tool,) = [each for each in written if each["kind"] == "Tool" and each["metadata"]["name"] == "mail"]
    tool["spec"]["auth"]["oauthAppRef"] = "CredentialApp/mail"
    app |= {
        "kind": "CredentialApp",
        "spec": {
            "title": "Demo Mail",
            "subjectMode": "user",
            "fields": {"apiKey": {"title": "API key"}},
            "inject": {"headers": {"X-Api-Key": "{apiKey}"}},
            "api": {"hosts": [api.url("")], "methods": ["GET"]},
            "verify": {"path": "/me", "account": "demo:user:{id}"},
        },
    }
    (config / "broker.yaml").write_text(yaml.safe_dump_all(written))


@pytest.fixture(params=FRAMEWORKS)
async def agents(
    request: Any, api: KeyApi, tmp_path: Path, identity_provider: IdentityProvider, canaries: Canaries
) -> AsyncIterator[Agents]:
    python_of(request.param)
    canaries.excuse(*(tmp_path / f"checkpoints.sqlite{end}" for end in ("", "-wal", "-shm")))
    config, origin = prepare(tmp_path, identity_provider, BASE, lease_seconds=2), identity_provider.url("/api/messages")
    with_a_key(config, api)
    api.keys = {GOOD: identity_provider.account("alice").sub, OF_BOB: "another"}
    (config / "origin.json").write_text((config / "origin.json").read_text().replace(origin, api.url("/data")))
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("program.py", f"{request.param.replace('-', '_')}_agent.py"):
        (programs / name).write_text((EXAMPLES / name).read_text().replace('"OAuthApp/mail"', '"CredentialApp/mail"'))
    found = Agents(config, identity_provider, request.param, programs)
    yield found
    for process in found.running:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def type_key(agents: Agents, pause: dict[str, str], key: str) -> str:
    """Open the link in a new browser, and send the page with a key. Return the page that follows."""
    async with agents.broker() as broker:
        browser = Browser(apps={BASE: broker.asgi.app})
        await browser.open(pause["authorizationUrl"])
        form = browser.page.form("decision")
        page = await browser.submit({"decision": "continue", "credential.apiKey": key}, form=form)
        while page.location is not None:
            page = await browser.open(page.location)
        return page.text


async def test_a_run_pauses_for_a_key_and_goes_on_with_it_in_another_process(agents: Agents, api: KeyApi) -> None:
    await agents.start("Is there anything new in my mail ?")
    (pause,) = (await agents.line())["paused"]
    assert "Demo Mail" in pause["message"]
    await agents.kill()
    assert "another account" in await type_key(agents, pause, OF_BOB)
    assert "is connected" in await type_key(agents, pause, GOOD)
    assert [] == [each for each in api.seen if each.path == "/data"]
    await agents.start()
    answer = (await agents.line())["answer"]
    assert api.keys[GOOD] in answer, answer
    (called,) = [each for each in api.seen if each.path == "/data"]
    assert GOOD == called.headers["x-api-key"]
    await agents.kill()
    assert GOOD not in "".join(agents.said)
    kept = [path for path in agents.config.parent.rglob("*") if path.is_file()]
    assert [] == [path for path in kept if GOOD.encode() in path.read_bytes()]
