"""`oauthbroker tools run`: the agents of a configuration in a process beside the broker's."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oauthbroker import open_broker
from oauthbroker.cli import run
from oauthbroker.tools import Instances
from tests.kit.agent_bundle import AGENTS, EDITABLE, FILES, LISTS, NOTES, USER, plan, written
from tests.kit.cli import environment
from tests.kit.forms import is_long
from tests.story.agent_world import turn_of
from tests.unit.tools.changesets.repositories import bare_repository, git

pytestmark = pytest.mark.slow
AS_USER = [] if USER is None else ["--user", str(USER)]
THREADS = 6 if is_long() else 3
MAIL = """\
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {name: mail}
spec: {entry: ./mail.py, auth: {oauthAppRef: OAuthApp/mail}, exports: [{name: read}]}
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {name: contained}
spec:
  entry: ./tools/contained.py
  isolation: process
  auth: {oauthAppRef: OAuthApp/mail}
  exports: [{name: read}, {name: knock}]
---
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {name: mail}
spec:
  provider: github
  flow: authorizationCode
  subjectMode: user
  client: {clientId: {value: client}, clientSecret: {valueFrom: {env: MAIL_SECRET}}}
  scopes: [repo]
  redirect: {callbackPath: /oauth/callback/mail}
"""
READ = """\
async def read(ctx, args):
    return await ctx.oauth.get_access_token("OAuthApp/mail")


handlers = {"read": read}
"""
CONTAINED = (
    READ.partition("handlers")[0]
    + """\
async def knock(ctx, args):
    with open("/proc/self/mountinfo") as mounts:
        (listener,) = [each.split()[4] for each in mounts if "api.sock" in each]
    reader, writer = await asyncio.open_unix_connection(listener)
    writer.write(b"GET /v1/apps HTTP/1.1\\r\\nHost: broker.example\\r\\nConnection: close\\r\\n\\r\\n")
    return (await reader.readline()).decode()


handlers = {"read": read, "knock": knock}
"""
)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MAIL_SECRET", "secret")
    files = {
        **FILES,
        "agents.yaml": AGENTS.replace("Tool/notes]", "Tool/notes, Tool/mail, Tool/contained]", 1) + MAIL,
        "mail.py": READ,
    }
    config = written(tmp_path / "config", state=tmp_path / "state", files=files)
    (config / "tools").mkdir()
    (config / "tools" / "contained.py").write_text(f"import asyncio\n\n\n{CONTAINED}")
    assert 0 == run(["init", "--config", str(config)])
    return config


@asynccontextmanager
async def agents(
    *words: str, cwd: Path | None = None, ended: signal.Signals = signal.SIGTERM
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the command, and end it as an operator does, or as a crash does."""
    command = [sys.executable, "-m", "oauthbroker", "tools", "run", *AS_USER, *words]
    process = await asyncio.create_subprocess_exec(
        *command, env=environment() | {"MAIL_SECRET": "secret"}, cwd=cwd, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
        process.send_signal(ended)
        assert await asyncio.wait_for(process.wait(), 60) == (0 if ended is signal.SIGTERM else -ended)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def answers(config: Path, text: str, threads: Sequence[str] = ("thread-1",)) -> list[str]:
    """Queue a message for each thread, as the broker of another process does. Return the answers of their turns."""
    async with open_broker(config, env={"MAIL_SECRET": "secret"}, background=False) as broker:
        instances, turns = Instances(broker.plugin_state("tools")), [turn_of(each) for each in threads]
        queued = [await broker.events.enqueue(of.agent_name, "chat.message", {"input": text}, turn=of) for of in turns]
        async with asyncio.timeout(60):
            while None in (outcomes := [await instances.outcome(each) for each in queued]):
                await asyncio.sleep(0.1)
    return [str(each["answer"]) for each in outcomes if each is not None]


async def answer(config: Path, text: str) -> str:
    (reported,) = await answers(config, text)
    return reported


def repository_of(config: Path, folder: Path, files: Mapping[str, str]) -> list[str]:
    """Make a repository of the bundle with these files, and return the words that name it to the command."""
    kept = {each.name: each.read_text("utf-8") for each in config.iterdir() if each.is_file()}
    repository, root = bare_repository(folder / "git", {**kept, **files}), folder / "bundle" / "system"
    return ["--repository", str(repository), "--changesets", str(root), "--workspaces", str(folder / "agents")]


async def test_a_hangup_reloads_the_configuration_and_a_wrong_one_leaves_the_agents_as_they_are(config, tmp_path):
    agents_file = config / "agents.yaml"
    text = agents_file.read_text("utf-8")
    async with agents("--config", str(config), "--workspaces", str(tmp_path / "agents")) as process:
        assert "planner: hello" == await answer(config, "hello")
        agents_file.write_text("wrong: [", "utf-8")
        process.send_signal(signal.SIGHUP)
        await asyncio.sleep(1)
        agents_file.write_text(text.replace("systemPrompt: planner", "systemPrompt: changed"), "utf-8")
        assert "planner: hello" == await answer(config, "hello")
        process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(60):
            while "changed: hello" != await answer(config, "hello"):
                pass


async def test_a_hangup_leaves_a_runtime_with_a_repository_at_its_revision(config, tmp_path):
    async with agents(*repository_of(config, tmp_path, EDITABLE)) as process:
        assert "planner: hello" == await answer(config, "hello")
        process.send_signal(signal.SIGHUP)
        assert "planner: hello" == await answer(config, "hello")


async def test_agents_answer_in_a_process_of_their_own_and_a_signal_ends_it(config, tmp_path):
    """Its tools ask the command's own process for tokens."""
    async with agents("--config", str(config), "--workspaces", str(tmp_path / "agents")):
        assert "planner: hello" == await answer(config, "hello")
        assert ["E_AUTHORIZATION_REQUIRED"] == json.loads(await answer(config, plan(("mail__read", {}))))


async def test_an_isolated_tool_reaches_the_broker_with_its_turn_token_and_not_without(config, tmp_path):
    """It has no network but the socket of the command, which admits no user of the machine."""
    async with agents("--config", str(config), "--workspaces", str(tmp_path / "agents")):
        called = plan(("contained__read", {}), ("contained__knock", {}))
        required, knocked = json.loads(await answer(config, called))
        assert "E_AUTHORIZATION_REQUIRED" == required
        assert " 401 " in knocked


async def test_all_paths_of_the_command_may_be_relative(config, tmp_path):
    words = repository_of(config, tmp_path, EDITABLE)
    relative = [each.removeprefix(f"{tmp_path}/") for each in words]
    assert words != relative
    async with agents(*relative, cwd=tmp_path):
        (opened, noted) = json.loads(
            await answer(config, plan(("swarmBundle__openChangeset", {}), ("notes__add", {"text": "x"})))
        )
        write = ("file-system__write", {"path": f"{opened['workdir']}/agents.yaml", "content": LISTS})
        assert (["x"], True) == ([noted], json.loads(await answer(config, plan(write)))[0]["written"])
    assert list(tmp_path.glob("agents/planner/*/notes"))


async def test_a_relative_configuration_and_relative_workspaces_work_together(config, tmp_path):
    async with agents("--config", "config", "--workspaces", "agents", cwd=tmp_path):
        called = plan(("notes__add", {"text": "x"}), ("contained__read", {}))
        noted, required = json.loads(await answer(config, called))
        assert ("x", "E_AUTHORIZATION_REQUIRED") == (noted, required)
    assert list(tmp_path.glob("agents/planner/*/notes"))


@pytest.mark.skipif(USER is None, reason="root has to name a user")
def test_root_names_a_user_that_exists(config, tmp_path, capsys):
    words = ["tools", "run", "--workspaces", str(tmp_path / "agents"), "--config", str(config)]
    for more, reported in (
        ([], "name a user of their own"),
        (["--user", "no-such-user"], "there is no user 'no-such-user'"),
    ):
        assert 2 == run([*words, *more])
        assert reported in capsys.readouterr().err


async def test_agents_of_a_bundle_in_a_repository_have_its_newest_revision(config, tmp_path):
    committed = AGENTS.replace("systemPrompt: planner", "systemPrompt: committed")
    async with agents(*repository_of(config, tmp_path, {"agents.yaml": committed})):
        assert "committed: hello" == await answer(config, "hello")


@pytest.mark.rule("004-12.4-5")
async def test_a_commit_reaches_all_orchestrators_of_a_repository_and_each_turn_is_taken_once(config, tmp_path):
    words, threads = repository_of(config, tmp_path, EDITABLE), [f"thread-{number}" for number in range(THREADS)]
    async with agents(*words), agents(*words):
        assert ["planner: hello"] * THREADS == await answers(config, "hello", threads)
        (opened,) = json.loads(await answer(config, plan(("swarmBundle__openChangeset", {}))))
        changed = LISTS.replace("systemPrompt: planner", "systemPrompt: changed")
        write = ("file-system__write", {"path": f"{opened['workdir']}/agents.yaml", "content": changed})
        assert json.loads(await answer(config, plan(write)))[0]["written"]
        commit = plan(("swarmBundle__commitChangeset", {"changesetId": opened["changesetId"]}), prompt=True)
        assert (await answer(config, commit)).startswith("changed: ")
        assert ["changed: hello"] * THREADS == await answers(config, "hello", threads)
        noted = plan(("notes__add", {"text": "once"}))
        assert ['["once"]'] * THREADS == await answers(config, noted, threads)
    assert THREADS == sum(len(path.read_text().splitlines()) for path in tmp_path.glob("agents/planner/*/notes"))


async def test_a_restart_with_a_revision_that_does_not_start_runs_the_turns_with_the_one_before(config, tmp_path):
    """The folder of the one before is made anew by each start, and agents of another user read it."""
    words, work = repository_of(config, tmp_path, EDITABLE), tmp_path / "git" / "work"
    async with agents(*words):
        assert "planner: hello" == await answer(config, "hello")
    (work / "notes.py").write_text(NOTES + "if 'agents' in os.getcwd():\n    raise OSError('only in an agent')\n")
    git(work, "commit", "-qam", "broken")
    git(work, "push", "-q", str(tmp_path / "git" / "bundle.git"), "main")
    for ended in (signal.SIGKILL, signal.SIGTERM):
        async with agents(*words, ended=ended):
            assert ["planner: hello"] * 2 == await answers(config, "hello", ["thread-1", "thread-2"])


@pytest.mark.parametrize(
    ("more", "reported"),
    [
        (lambda tmp_path: ["--repository", str(tmp_path)], "belong together"),
        (lambda tmp_path: ["--repository", str(tmp_path), "--changesets", str(tmp_path / "a")], "git worktree ended"),
    ],
)
def test_a_repository_that_cannot_be_used_is_refused_with_a_sentence(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: Callable[[Path], list[str]], reported: str
) -> None:
    assert 2 == run(
        ["tools", "run", "--workspaces", str(tmp_path / "agents"), "--config", str(config), *more(tmp_path), *AS_USER]
    )
    assert reported in capsys.readouterr().err
