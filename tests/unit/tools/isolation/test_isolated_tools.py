"""Isolated tools can do anything, and it stays in their process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.config.bundle.loading import load
from oauthbroker.config.bundle.resolving import resolve
from oauthbroker.tools.calling.context import ToolContext
from oauthbroker.tools.isolation.containment import (
    AS_USER,
    MIB,
    Access,
    CallLimits,
    Containment,
    detect_containment,
)
from oauthbroker.tools.isolation.process_tool import ProcessTool
from oauthbroker.tools.types.failures import ToolFailure
from tests.kit.agent_bundle import USER, given
from tests.kit.processes import running_here
from tests.unit.tools.contexts import context

ENTRY = Path(__file__).with_name("hostile_tool.py")
LIMITS = CallLimits(seconds=20, cpu_seconds=2, memory=512 * MIB, file_size=4 * MIB, open_files=64, output=MIB)
ROOT = os.geteuid() == 0
BROKER = """
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {name: broker}
spec: {store: {root: ../store}, keys: {file: ../keys/k, also: [{file: ../keys/also}]}}
"""
SANDBOX = detect_containment(user=USER)
STRONG = pytest.mark.skipif(not SANDBOX.bubblewrap, reason="needs bubblewrap that may make namespaces")
KINDS = [pytest.param(Containment(), id="supervisor"), pytest.param(SANDBOX, id="sandbox", marks=STRONG)]


def left_behind(marker: str = "left-behind") -> list[int]:
    """Return the processes that a tool left, by their command line. The kernel needs a moment to end a namespace."""
    for _ in range(1_500):
        if not (found := running_here(marker)):
            break
        time.sleep(0.02)
    return found


def test_the_interpreter_of_a_sandbox_lies_in_a_folder_that_it_shows():
    """A shell can start Python by a path with ".." in it, which a sandbox need not have."""
    python = Path(sys.executable)
    print_them = (
        "from oauthbroker.tools.isolation.places import INTERPRETER, PYTHON; print(INTERPRETER, *PYTHON, sep='\\n')"
    )
    command = [str(python.parents[1] / "lib" / ".." / "bin" / python.name), "-c", print_them]
    interpreter, *shown = map(Path, subprocess.check_output(command, text=True).splitlines())
    assert ".." not in interpreter.parts
    assert any(interpreter.is_relative_to(each) for each in shown)


@pytest.fixture(params=KINDS)
def tool(request):
    return ProcessTool(entry=ENTRY, containment=request.param, limits=LIMITS)


@pytest.fixture
def ctx(tmp_path):
    given(tmp_path)
    return context(workdir=tmp_path)


async def called(tool: ProcessTool, export: str, ctx: ToolContext, **args: Any) -> Any:
    return await tool.call(export, ctx, args)


async def test_a_handler_gets_context_and_arguments_and_returns_its_output(tool, ctx):
    known = {"agent": "planner", "workdir": str(ctx.workdir), "message": "hi", "logger": "tool"}
    assert known | {"args": {"x": "한글"}} == await called(tool, "echo", ctx, x="한글")
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
@pytest.mark.rule("002-2.7-3", "002-2.4-1", "002-15-4")
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
async def test_a_workdir_around_a_hidden_folder_is_refused(ctx):
    hiding = replace(SANDBOX, hidden=[ctx.workdir / "state"])
    with pytest.raises(ValueError, match="hidden"):
        await called(ProcessTool(entry=ENTRY, containment=hiding), "echo", ctx)


@STRONG
@pytest.mark.parametrize("hidden", [ENTRY, ENTRY.parent, ENTRY.parent.parent])
async def test_a_tool_below_a_hidden_folder_is_refused_and_a_hidden_entry_cannot_be_read(ctx, hidden):
    tool = ProcessTool(entry=ENTRY, containment=replace(SANDBOX, hidden=[hidden]), limits=LIMITS)
    with pytest.raises((ValueError, ToolFailure)):
        await called(tool, "echo", ctx)


SPY = """
from pathlib import Path

def look(ctx, args):
    found = {}
    for name in args["files"]:
        try:
            found[name] = Path(name).read_text()
        except OSError as refused:
            found[name] = ""
    return found

handlers = {"look": look}
"""


@STRONG
@pytest.mark.parametrize("entry", ["spy.py", "tools/spy.py"])
@pytest.mark.parametrize("deep", [True, False])
async def test_what_a_bundle_calls_secret_hides_its_own_files_from_any_tool(tmp_path_factory, ctx, entry, deep):
    """`Bundle.secret_places` is all that a program passes on: no file but the code is shown."""
    folder = tmp_path_factory.mktemp("bundle") / "b"
    folder.parent.chmod(0o755)
    secrets = ["broker.yaml", ".env", ".git/config", "../.env", "../keys/k", "../keys/also", "../store/x"]
    secrets += ["apps/one.yml", "tools/two.yaml"] if deep else []
    for name in (*secrets, entry, "tools/data.txt"):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text({entry: SPY, "broker.yaml": BROKER}.get(name, "# shown"))
        place.chmod(0o644)
    bundle = resolve(load(folder if deep else folder / "broker.yaml"), {}, {})
    hiding = replace(SANDBOX, hidden=[Path(each) for each in bundle.secret_places])
    tool = ProcessTool(entry=folder / entry, containment=hiding, limits=LIMITS)
    files = [str(folder / each) for each in (*secrets, "tools/data.txt")]
    assert [files[-1]] == [name for name, text in (await called(tool, "look", ctx, files=files)).items() if text]
    assert not {*bundle.configuration, bundle.environment_file} & {*bundle.state_places}


async def test_a_workdir_that_a_link_leads_to_is_refused(tool, ctx, tmp_path_factory):
    """A tool may have replaced a folder of its own, in which another agent is then started."""
    other = tmp_path_factory.mktemp("other")
    link = ctx.workdir / "inside"
    link.symlink_to(other)
    for workdir in (link, link / "deeper"):
        with pytest.raises(NotADirectoryError):
            await called(tool, "echo", context(workdir=workdir))


def test_what_contains_is_told():
    reported = {
        Containment(user=user, bubblewrap=program).summary
        for user in (None, 1000)
        for program in ("", "/usr/bin/bwrap")
    }
    assert 4 == len(reported)


@pytest.mark.skipif(not ROOT, reason="root may choose a user id")
@pytest.mark.parametrize("user", [None, 0])
def test_root_without_a_user_for_its_tools_is_refused(user):
    with pytest.raises(ValueError, match="this runtime is root"):
        detect_containment(user=user)


async def test_an_entry_and_a_workdir_may_be_relative_paths(tool, ctx, monkeypatch):
    monkeypatch.chdir(ctx.workdir.parent)
    relative = replace(tool, entry=Path(os.path.relpath(ENTRY)))
    answer = await called(relative, "environment", context(workdir=Path(ctx.workdir.name)))
    assert [str(ctx.workdir)] * 2 == [answer["directory"], answer["workdir"]]


TRACES = """
import os
try:
    open(f"/proc/{os.getppid()}/mem", "rb")
except PermissionError:
    os._exit(7)
"""


def test_no_process_of_its_user_can_read_or_trace_a_supervisor():
    command = Containment().command([sys.executable, "-I", "-S", "-c", TRACES], LIMITS, {}, Access())
    ran = subprocess.run(SANDBOX.agent_command(command), capture_output=True, timeout=60, check=False)
    assert (7, b"") == (ran.returncode, ran.stderr)


@pytest.mark.skipif(not ROOT, reason="root may choose a user id")
def test_a_process_that_becomes_another_user_has_no_group_and_no_way_back():
    python = [sys.executable, "-I", "-S", str(AS_USER), "61234", "61235"]
    command = [*python, "/bin/grep", "-E", "^(Uid|Gid|Groups|NoNewPrivs|CapPrm)", "/proc/self/status"]
    ran = subprocess.run(command, capture_output=True, extra_groups=[5], timeout=60, check=True)
    facts = {
        name: set(reported.split())
        for name, _, reported in (each.partition(":") for each in ran.stdout.decode().splitlines())
    }
    own = {"Uid": {"61234"}, "Gid": {"61235"}, "Groups": set(), "NoNewPrivs": {"1"}, "CapPrm": {"0" * 16}}
    assert own == facts
    missing = subprocess.run([*python, "/missing"], capture_output=True, timeout=60, check=False)
    assert (126, b"user 61234 cannot run /missing: No such file or directory\n") == (missing.returncode, missing.stderr)
