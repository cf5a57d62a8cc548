"""Isolated tools can do anything, and it stays in their process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.tools.context import ToolContext
from oauthbroker.tools.failures import ToolFailure
from oauthbroker.tools.isolation.containment import MIB, CallLimits, Containment, detect_containment
from oauthbroker.tools.isolation.process_tool import ProcessTool
from tests.kit.processes import running_here
from tests.unit.tools.contexts import context

ENTRY = Path(__file__).with_name("hostile_tool.py")
LIMITS = CallLimits(seconds=20, cpu_seconds=2, memory=512 * MIB, file_size=4 * MIB, open_files=64, output=MIB)
BUBBLEWRAP = bool(detect_containment().bubblewrap)
ROOT = os.geteuid() == 0
STRONG = pytest.mark.skipif(not (BUBBLEWRAP and ROOT), reason="needs bubblewrap that may make namespaces, and root")
KINDS = [
    pytest.param(Containment(), id="supervisor"),
    pytest.param(detect_containment(hidden=[Path("/root")] if ROOT else []), id="bubblewrap", marks=STRONG),
]


def left_behind(marker: str = "left-behind") -> list[int]:
    """Return the processes that a tool left, by their command line. The kernel needs a moment to end a namespace."""
    for _ in range(1_500):
        if not (found := running_here(marker)):
            break
        time.sleep(0.02)
    return found


@pytest.fixture(params=KINDS)
def tool(request):
    return ProcessTool(entry=ENTRY, containment=request.param, limits=LIMITS)


@pytest.fixture
def ctx(tmp_path):
    return context(workdir=tmp_path)


async def called(tool: ProcessTool, export: str, ctx: ToolContext, **args: Any) -> Any:
    return await tool.call(export, ctx, args)


async def test_a_handler_gets_context_and_arguments_and_returns_its_output(tool, ctx):
    assert {"args": {"x": "한글"}, "agent": "planner", "workdir": str(ctx.workdir), "message": "hi"} == await called(
        tool, "echo", ctx, x="한글"
    )
    assert {"waited": 1, "oauth": False} == await called(tool, "waiting", ctx, x=1)


async def test_the_environment_is_not_the_agents(tool, ctx, monkeypatch):
    monkeypatch.setenv("OAUTHBROKER_STORE_KEY", "key")
    found = await called(tool, "environment", ctx)
    assert {"PATH", "LANG", "HOME"} >= set(found["names"]) - {"LC_CTYPE", "PWD"}
    assert found["directory"] == str(ctx.workdir)


async def test_no_descriptor_of_the_agent_is_inherited(tool, ctx):
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
    for each in held:
        os.set_inheritable(each, True)
    assert await called(tool, "descriptors", ctx) < 8
    for each in held:
        os.close(each)


FAILING = {
    "raises": ("ValueError", "a wrong value"),
    "exits": ("SystemExit", "3"),
    "ends": ("ToolProcessEnded", "status 5"),
    "kills_itself": ("ToolProcessEnded", "status 137"),
    "crashes": ("ToolProcessEnded", "status 139"),
    "eats_memory": ("MemoryError", ""),
    "eats_files": ("OSError", "Too many open files"),
    "fills_the_disk": ("OSError", "File too large"),
    "burns": ("ToolProcessEnded", "status 137"),
    "huge": ("OutputError", "262144"),
    "not_json": ("OutputError", "of the type 'object'"),
    "no_number": ("OutputError", "not finite"),
    "junk": ("ToolAnswerInvalid", "something else"),
    "deep": ("ToolAnswerInvalid", "something else"),
    "endless": ("ToolOutputTooLarge", "1048576"),
    "another_member": ("ToolAnswerInvalid", "something else"),
    "no_such_export": ("KeyError", "no_such_export"),
}


@pytest.mark.slow
@pytest.mark.rule("002-2.7-3")
@pytest.mark.parametrize("export", FAILING)
async def test_a_call_that_misbehaves_is_an_error_of_that_call(tool, ctx, export):
    name, message = FAILING[export]
    with pytest.raises(ToolFailure) as failed:
        await called(tool, export, ctx)
    assert name == failed.value.error.name
    assert message in str(failed.value)


@pytest.mark.slow
async def test_a_call_that_never_returns_is_ended_in_time(tool, ctx):
    hasty = replace(tool, limits=replace(LIMITS, seconds=1.5))
    with pytest.raises(ToolFailure, match=r"1\.5 seconds") as failed:
        await called(hasty, "never_returns", ctx)
    assert "ToolTimeout" == failed.value.error.name


async def test_nothing_that_a_tool_prints_reaches_the_agents_output(tool, ctx, capfd):
    assert "printed" == await called(tool, "prints", ctx, token="tok-printed")
    assert ("", "") == capfd.readouterr()


@pytest.mark.parametrize("export", ["leaves_a_thread", "leaves_a_child", "leaves_a_session", "forks_twice", "forks_on"])
async def test_no_process_of_a_call_outlives_it(tool, ctx, export):
    assert "answered" == await called(tool, export, ctx)
    assert [] == left_behind()


@pytest.mark.slow
async def test_a_cancelled_call_leaves_no_process(tool, ctx):
    call = asyncio.create_task(called(tool, "never_returns", ctx))
    await asyncio.sleep(1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [] == left_behind("isolation/worker.py")


RUNNER = """
import asyncio, sys
from pathlib import Path
from oauthbroker.tools.isolation.containment import Containment
from oauthbroker.tools.isolation.process_tool import ProcessTool
from tests.unit.tools.contexts import context

tool = ProcessTool(entry=Path(sys.argv[1]), containment=Containment())
asyncio.run(tool.call("sleeps", context(workdir=Path(sys.argv[2])), {}))
"""


@pytest.mark.slow
def test_when_the_agents_process_is_killed_its_calls_end_with_it(tmp_path):
    command = [sys.executable, "-c", RUNNER, str(ENTRY), str(tmp_path)]
    agent = subprocess.Popen(command, env={"PYTHONPATH": str(Path.cwd())})
    for _ in range(1000):
        if running_here("left-behind"):
            break
        time.sleep(0.02)
    assert running_here("left-behind")
    agent.kill()
    agent.wait()
    assert [] == left_behind("left-behind")
    assert [] == left_behind("isolation/supervisor.py")


@STRONG
@pytest.mark.parametrize("user", [None, 65534])
async def test_in_bubblewrap_hidden_folders_and_other_processes_are_not_there(ctx, tmp_path_factory, user):
    hidden = tmp_path_factory.mktemp("state")
    (hidden / "key").write_text("only outside")
    ctx.workdir.chmod(0o777)
    folders = [Path("/root"), hidden] if user else [hidden]
    tool = ProcessTool(entry=ENTRY, containment=detect_containment(user=user, hidden=folders), limits=LIMITS)
    with pytest.raises(ToolFailure) as failed:
        await called(tool, "looks", ctx, path=str(hidden / "key"))
    assert "FileNotFoundError" == failed.value.error.name
    assert user in {None, (await called(tool, "environment", ctx))["user"]}
    assert "ProcessLookupError" == (await called(tool, "hunts", ctx, process=os.getpid()))[1] if user else True


@STRONG
async def test_in_bubblewrap_a_hidden_file_cannot_be_read_and_a_missing_one_is_passed_over(ctx):
    file = Path("/etc/passwd")  # a checkout may lie below /tmp, which a call never sees
    hidden = [file, file.with_name("missing"), Path(tempfile.gettempdir(), "missing")]
    open_to_all, hiding = (
        ProcessTool(entry=ENTRY, containment=detect_containment(hidden=each)) for each in ([], hidden)
    )
    assert await called(open_to_all, "looks", ctx, path=str(file))
    with pytest.raises(ToolFailure) as failed:
        await called(hiding, "looks", ctx, path=str(file))
    assert "PermissionError" == failed.value.error.name


@STRONG
async def test_a_user_id_of_its_own_cannot_end_its_supervisor(ctx):
    ctx.workdir.chmod(0o777)
    tool = ProcessTool(entry=ENTRY, containment=detect_containment(user=65534, hidden=[Path("/root")]), limits=LIMITS)
    assert "PermissionError" == (await called(tool, "hunts", ctx, process=1))[0]


async def test_a_workdir_around_a_hidden_folder_is_refused(ctx):
    hiding = Containment(bubblewrap="/usr/bin/bwrap", hidden=[ctx.workdir / "state"])
    with pytest.raises(ValueError, match="hidden"):
        await called(ProcessTool(entry=ENTRY, containment=hiding), "echo", ctx)


def test_what_contains_is_told():
    told = {
        Containment(user=user, bubblewrap=program).told for user in (None, 1000) for program in ("", "/usr/bin/bwrap")
    }
    assert 4 == len(told)


@pytest.mark.skipif(not ROOT, reason="root may choose a user id")
def test_a_user_id_that_is_none_of_its_own_is_refused():
    with pytest.raises(ValueError, match="user id"):
        detect_containment(user=0)
