"""docs/tutorials/agent-frameworks.md: the first three blocks of each framework's page are a program that waits and goes on.

The model is the scripted one of examples/frameworks. The mail service is the scripted provider: addresses are other ones.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from oauthbroker.testing import Canaries, Client, IdentityProvider
from tests.kit.cli import Desk, environment
from tests.kit.docs_shell import LINK, agree, blocks, program
from tests.kit.framework_agents import EXAMPLES, python_of
from tests.kit.shims import with_shims

pytestmark = pytest.mark.slow
PAGE = "docs/tutorials/agent-frameworks.md"
MODELS = {
    "pydantic-ai": "from pydantic_ai_agent import FunctionModel, scripted\n\nMODEL = FunctionModel(scripted)",
    "langgraph": "from langgraph_agent import ScriptedModel\n\nMODEL = ScriptedModel()",
    "openai-agents": "from openai_agents_agent import ScriptedModel, set_tracing_disabled\n\n"
    "set_tracing_disabled(True)\nMODEL = ScriptedModel()",
    "google-adk": 'from google_adk_agent import ScriptedModel\n\nMODEL = ScriptedModel(model="scripted")',
}


def agent_of(framework: str, idp: IdentityProvider) -> str:
    """Return the program of a page, with the scripted model in place of the line that names one."""
    code = "\n".join(blocks("python", page=f"docs/integrations/{framework}.md")[:3])
    code, count = re.subn(r"(?m)^MODEL = .*$", lambda _: MODELS[framework], code)
    assert 1 == count
    return code.replace("https://mail.example.com/inbox", idp.url("/api/messages"))


@pytest.mark.parametrize("framework", MODELS)
async def test_the_program_of_a_page_shows_a_link_and_goes_on_after_the_consent(
    tmp_path: Path, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any, framework: str
) -> None:
    python = python_of(framework)
    desk = Desk(tmp_path, canaries, monkeypatch, capsys)
    (tmp_path / "config" / "broker.yaml").unlink()
    canaries.excuse(*(tmp_path / f"{name}.sqlite{end}" for name in ("checkpoints", "sessions") for end in ("", "-wal", "-shm")))  # fmt: skip
    with IdentityProvider(canaries=canaries) as idp:
        uris = (f"{desk.base}/oauth/callback/mail",)
        idp.register(Client("mail-agent", redirect_uris=uris, auth_method="none"))
        broker, app, tool = yaml.safe_load_all(blocks("yaml", page=PAGE)[0])
        broker["spec"] |= {"listen": {"port": desk.port}, "weaken": ["plainHttpProvider"]}
        broker["spec"] |= {"store": {"root": "../store"}, "keys": {"file": "../keys/broker.kek"}}
        app["spec"] |= {"endpoints": {"issuer": idp.issuer}, "api": {"hosts": [idp.base_url], "methods": ["GET"]}}
        desk.write("mail", yaml.safe_dump_all([broker, app, tool]))
        (tmp_path / "agent.py").write_text(agent_of(framework, idp), "utf-8")
        once, run = blocks("sh", page=PAGE)[0].splitlines()
        run = run.replace("python", "exec python -u").replace("U234567", idp.account("alice").sub)
        env = environment(PATH=with_shims(tmp_path, python))
        env["PYTHONPATH"] += f":{EXAMPLES}"
        async with program("bash", "-euc", once, cwd=tmp_path, env=env) as shell:
            await shell.end()
        async with program("bash", "-euc", run, cwd=tmp_path, env=env) as agent:
            await agree(desk, idp, (await agent.says(LINK)).rstrip("',"), "alice")
            await agent.says("(Good morning, Alice)")
