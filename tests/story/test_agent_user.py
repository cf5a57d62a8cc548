"""Agents and tools of a runtime that is root run as a user of their own, who gets nothing of the runtime."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker import open_broker
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.clock import SystemClock
from oauthbroker.model.settings import ApiSocket, SocketCaller
from oauthbroker.tools.calling.registry import RegistrationRefused
from oauthbroker.tools.isolation.containment import Containment, detect_containment
from oauthbroker.tools.isolation.places import agent_mounts, opened_folder, user_named
from oauthbroker.tools.orchestration.agent_user import agents_containment
from oauthbroker.tools.orchestration.agent_worker import parts_of
from oauthbroker.tools.orchestration.orchestrator import Orchestrator
from oauthbroker.tools.orchestration.plan import plans_from
from tests.kit.agent_bundle import AGENTS, FILES, USER, plan, written
from tests.kit.default_store import default_store
from tests.story.agent_world import AgentWorld, agent_world, turn_of

SANDBOX = detect_containment(user=USER)
ROOT = pytest.mark.skipif(USER is None, reason="root may choose a user id")
LOOKS = """\
import os
from pathlib import Path


def _got(work):
    try:
        return str(work())
    except OSError as error:
        return type(error).__name__


async def look(ctx, args):
    status = Path("/proc/self/status").read_text()
    return {
        "user": [*os.getresuid(), *os.getresgid(), *os.getgroups()],
        "privileges": "NoNewPrivs:\\t1" in status and "CapPrm:\\t0000000000000000" in status,
        "kill": _got(lambda: os.kill(args["process"], 0)),
        "files": {each: _got(Path(each).read_text) for each in args["files"]},
        "write": _got(lambda: (Path(os.getcwd()) / "own").write_text("x")),
    }


handlers = {"look": look}
"""
BUNDLE = {
    **FILES,
    "agents.yaml": AGENTS.replace("Tool/notes]", "Tool/notes, Tool/looks]", 1)
    + """\
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {name: looks}
spec: {entry: ./looks.py, exports: [{name: look}]}
""",
    "looks.py": LOOKS,
}


@pytest.fixture
def place() -> Iterator[Path]:
    """Yield a folder that every user may enter: only then a wall, and no mode of a folder, hides its files."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder).resolve()
        found.chmod(0o755)
        yield found


@pytest.fixture
async def world(place: Path) -> AsyncIterator[AgentWorld]:
    async with agent_world(place, files=BUNDLE) as running:
        yield running


@ROOT
async def test_an_agent_has_a_user_of_its_own_and_sees_neither_secrets_nor_other_workspaces(world):
    await world.called("notes__add", {"text": "of another user"}, turn_of("thread-2"))
    settings = world.broker.bundle.settings
    secrets = [world.workdir(instance="thread-2") / "notes", Path(settings.key_file), Path(settings.store_root, "a")]
    Path(settings.store_root).mkdir(parents=True)
    for each in secrets[1:]:
        each.parent.mkdir(exist_ok=True)
        each.write_text("secret")
        each.chmod(0o666)
    own = world.workdir() / "mine"
    await world.called("notes__add", {"text": "mine"})
    asked = {"process": os.getpid(), "files": [*map(str, secrets), str(own.with_name("notes"))]}
    found = await world.called("looks__look", asked)
    assert [USER] * 6 == found["user"]
    assert found["privileges"]
    assert "PermissionError" == found["kill"]
    assert "1" == found["write"]
    *refused, mine = found["files"].values()
    assert {"FileNotFoundError", "PermissionError", ""} >= set(refused), "a hidden file may be there, empty"
    assert mine.endswith("mine\n")


@ROOT
async def test_root_without_a_user_for_agents_is_refused(tmp_path):
    store = default_store(SystemClock())
    async with open_broker(written(tmp_path / "config"), env={}, store=store, audit=AuditList()) as broker:
        for user in (None, 0):
            with pytest.raises(ValueError, match="this runtime is root"):
                Orchestrator(broker, plans_from(broker), tmp_path / "workspaces", user=user)


def broker_with(*uids: int) -> Any:
    socket = ApiSocket("/run/api.sock", callers=tuple(SocketCaller(each, frozenset({"runtime"})) for each in uids))
    return SimpleNamespace(bundle=SimpleNamespace(settings=SimpleNamespace(api_socket=socket)))


def test_a_user_whom_the_brokers_socket_admits_without_a_token_is_refused():
    own = os.geteuid() if USER is None else USER
    with pytest.raises(ValueError, match=f"admits the user id {own}"):
        agents_containment(broker_with(own, 4711), USER)
    assert USER == agents_containment(broker_with(4711), USER).user


@ROOT
def test_a_user_that_cannot_run_python_is_refused_with_the_way_out(monkeypatch):
    monkeypatch.setattr("oauthbroker.tools.isolation.containment.shutil.which", lambda _name: None)
    monkeypatch.setattr("sys.executable", "/root/python")
    with pytest.raises(ValueError, match="install bubblewrap"):
        agents_containment(broker_with(), USER)


def test_a_user_is_named_by_name_or_id():
    assert (0, 4711) == (user_named("root"), user_named("4711"))
    for unknown in ("no-such-user", "", "-1", "1e3"):
        with pytest.raises(ValueError, match="no user"):
            user_named(unknown)


async def test_a_folder_that_an_agent_replaced_by_a_link_becomes_no_workdir_of_another(world, tmp_path):
    """`spawn` was asked with a folder, which is a link when the other agent starts."""
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o777)
    (world.workdir() / "sub").mkdir(parents=True)
    await world.called("others__spawn", {"target": "writer", "instanceKey": "helper", "cwd": "sub"})
    (world.workdir() / "sub").rmdir()
    (world.workdir() / "sub").symlink_to(secret)
    with pytest.raises(NotADirectoryError):
        opened_folder(world.workdir() / "sub")
    asked = {"target": "writer", "instanceKey": "helper", "input": plan(("notes__add", {"text": "x"})), "timeout": 3}
    assert "E_AGENT" not in json.dumps(await world.called("others__request", asked))  # in a folder of its own
    assert [] == list(secret.iterdir())


CONTAINED = {
    **BUNDLE,
    "agents.yaml": BUNDLE["agents.yaml"].replace("entry: ./looks.py", "entry: ./looks.py, isolation: process"),
}


@pytest.mark.parametrize("weaken", [False, True])
async def test_without_a_sandbox_isolated_tools_are_refused_unless_the_operator_says_so(tmp_path, monkeypatch, weaken):
    monkeypatch.setattr("oauthbroker.tools.isolation.containment.shutil.which", lambda _name: None)
    monkeypatch.setattr("oauthbroker.tools.orchestration.agent_user._runs_python", lambda _found: True)
    config = written(tmp_path / "config", files=CONTAINED)
    broker_file = config / "broker.yaml"
    loopback = broker_file.read_text().replace("https://broker.example", "http://127.0.0.1:8420")
    broker_file.write_text(loopback.replace("plugins:", "weaken: [toolIsolation]\n  plugins:") if weaken else loopback)
    store = default_store(SystemClock())
    async with open_broker(config, env={}, store=store, audit=AuditList()) as broker:
        plans = plans_from(broker)
        if weaken:
            assert Orchestrator(broker, plans, tmp_path / "workspaces", user=USER)
            return
        with pytest.raises(ValueError, match="needs a sandbox, and bubblewrap cannot make one here"):
            Orchestrator(broker, plans, tmp_path / "workspaces", user=USER)
        (agent, _other) = next(iter(plans.values())).agents.values()
        monkeypatch.setattr(
            "oauthbroker.tools.orchestration.agent_worker.detect_containment", lambda **_: Containment()
        )
        with pytest.raises(RegistrationRefused, match="needs a sandbox"):
            await parts_of({**agent, "extensions": []}, tmp_path, values=SimpleNamespace())


@pytest.mark.skipif(not SANDBOX.bubblewrap, reason="needs bubblewrap that may make namespaces")
async def test_an_isolated_tool_beside_the_configuration_sees_neither_it_nor_other_workspaces(tmp_path, monkeypatch):
    """All of it lies in the folder of the tool's entry, which the sandbox shows. The agent process sees all of it."""

    def all_shown(user: int, **given: Any) -> Any:
        return agent_mounts(user, **{**given, "hidden": []})

    monkeypatch.setattr("oauthbroker.tools.isolation.places.agent_mounts", all_shown)
    async with agent_world(tmp_path, files=CONTAINED, workspaces="config/workspaces") as world:
        await world.called("notes__add", {"text": "of another user"}, turn_of("thread-2"))
        others = world.workdir(instance="thread-2") / "notes"
        (tmp_path / "config" / ".env").write_text("secret")
        await world.called("notes__add", {"text": "mine"})
        files = [
            others,
            tmp_path / "config" / "agents.yaml",
            tmp_path / "config" / "looks.py",
            world.workdir() / "notes",
        ]
        found = await world.called("looks__look", {"process": os.getpid(), "files": [str(each) for each in files]})
    *hidden, entry, mine = found["files"].values()
    assert ["FileNotFoundError", "PermissionError"] == hidden
    assert LOOKS == entry
    assert mine.endswith("mine\n")
    assert "ProcessLookupError" == found["kill"]
