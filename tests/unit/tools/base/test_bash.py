"""`bash__exec` and `bash__script`: output and exit status, within limits, and no process that stays."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from oauthbroker.tools.base.bash import LIMITS, CommandRunner, handlers
from oauthbroker.tools.isolation.containment import CallLimits
from oauthbroker.tools.types.failures import ToolFailure
from oauthbroker.tools.types.results import TRUNCATED
from tests.kit.processes import running_here
from tests.unit.tools.contexts import context
from tests.unit.tools.kit import performed


@pytest.fixture
def ctx(tmp_path):
    return context(workdir=tmp_path)


@pytest.mark.rule("002-14-2", "002-2.5-2", "002-8.1-4")
@pytest.mark.parametrize(
    ("command", "stdout", "code"),
    [
        ("echo hi", "hi\n", 0),
        ("echo out; echo err >&2; exit 3", "out\nerr\n", 3),
        ("kill -9 $$", "", 137),
        ("printf '\\377'", "\ufffd", 0),
        ("pwd; echo $HOME; echo $OAUTHBROKER_STORE_KEY", "{workdir}\n/nonexistent\n\n", 0),
        ("cat", "", 0),
    ],
)
async def test_a_command_answers_its_output_and_exit_status(ctx, monkeypatch, command, stdout, code):
    monkeypatch.setenv("OAUTHBROKER_STORE_KEY", "key")
    expected = {"stdout": stdout.format(workdir=ctx.workdir), "exitCode": code}
    assert expected == await handlers["exec"](ctx, {"command": command})


@pytest.mark.rule("002-14-2")
async def test_a_script_of_the_workdir_is_run(ctx):
    (ctx.workdir / "a b.sh").write_text("echo from $0\n")
    assert {"stdout": f"from {ctx.workdir}/a b.sh\n", "exitCode": 0} == await handlers["script"](
        ctx, {"path": "a b.sh"}
    )


@pytest.mark.parametrize("path", ["/etc/profile", "../x.sh", "missing.sh", "link.sh", "-c"])
async def test_a_script_elsewhere_is_refused(ctx, path):
    (ctx.workdir / "link.sh").symlink_to("/etc/profile")
    with pytest.raises(ToolFailure):
        await handlers["script"](ctx, {"path": path})


async def test_a_long_output_is_cut_and_the_command_ends_by_itself(ctx):
    answer = await handlers["exec"](ctx, {"command": "head -c 3000000 /dev/zero | tr '\\0' x; exit 4"})
    assert (4, "x" * LIMITS.output + TRUNCATED) == (answer["exitCode"], answer["stdout"])


@pytest.mark.rule("002-14-2", "002-10.2-1")
@pytest.mark.parametrize("kind", ["\\0", "\\377", "\\n"])
async def test_an_output_of_any_bytes_is_an_output_of_the_call(ctx, kind):
    async def handler(_ctx: object, _args: object) -> object:
        return await handlers["exec"](ctx, {"command": f"head -c 100001 /dev/zero | tr '\\0' '{kind}'; exit 3"})

    result = await performed(handler)
    assert ("ok", 3, True) == (result.status, result.output["exitCode"], result.output["stdout"].endswith(TRUNCATED))


async def test_a_command_that_writes_without_end_is_ended(ctx):
    with pytest.raises(ToolFailure, match="wrote more than"):
        await handlers["exec"](ctx, {"command": "yes endless-output-of-a-test"})
    assert not running_here("endless-output-of-a-test")


@pytest.mark.slow
async def test_a_command_that_does_not_end_is_ended_with_all_its_processes(ctx):
    shell = CommandRunner(replace(LIMITS, seconds=1.0))
    began = time.monotonic()
    with pytest.raises(ToolFailure, match="did not end in 1 seconds"):
        await shell.exec(ctx, {"command": "setsid sleep 98761 & trap '' TERM; sleep 98762"})
    assert time.monotonic() - began < 60
    assert not running_here("98761")
    assert not running_here("98762")


async def test_a_process_in_the_background_does_not_outlive_the_command(ctx):
    answer = await handlers["exec"](ctx, {"command": "setsid nohup sleep 98763 & echo started"})
    assert "started\n" == answer["stdout"]
    assert not running_here("98763")


@pytest.mark.parametrize("steps", range(1, 12))
async def test_a_call_that_is_cancelled_at_any_step_of_its_start_leaves_no_process(ctx, steps):
    """The command runs already while the loop, which is busy, has not heard of it."""
    call = asyncio.create_task(handlers["exec"](ctx, {"command": "touch begun; sleep 98764; true"}))
    for _ in range(steps):
        await asyncio.sleep(0)
    for _ in range(300):  # a call that is cancelled early begins nothing
        if (ctx.workdir / "begun").exists():
            break
        time.sleep(0.01)  # noqa: ASYNC251  (the busy loop)
    call.cancel()
    await asyncio.wait([call], timeout=30)
    assert call.cancelled(), "it waits for a process that it does not know"
    assert not running_here("98764")


async def test_limits_hold_in_the_shell(ctx):
    shell = CommandRunner(CallLimits(file_size=1000))
    answer = await shell.exec(ctx, {"command": "head -c 5000 /dev/zero > big; wc -c < big"})
    assert "1000" in answer["stdout"]


async def test_a_command_with_a_nul_character_is_refused(ctx):
    with pytest.raises(ToolFailure, match="NUL"):
        await handlers["exec"](ctx, {"command": "echo \0"})
