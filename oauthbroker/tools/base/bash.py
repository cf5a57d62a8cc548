"""The tool `bash`: `exec` and `script` (specification 002, section 14, as in 4.1). A command runs with the rights of
its agent's process, which are limited by `isolation: process` only. Its environment has no value of the agent's, and no
process of it outlives the call."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from oauthbroker.tools.base.texts import confined, cut_to_output, decoded, needed, opened_file
from oauthbroker.tools.calling.context import Json, ToolContext
from oauthbroker.tools.isolation.containment import MIB, CallLimits, Containment
from oauthbroker.tools.types.failures import ToolCode, ToolFailure
from oauthbroker.tools.types.results import TRUNCATED

SHELL: Final = "/bin/sh"
LIMITS: Final = CallLimits(seconds=120, cpu_seconds=120, memory=4096 * MIB, open_files=1024, output=100_000)
_MOST_READ: Final = 64 * MIB


@dataclass(frozen=True, slots=True)
class CommandRunner:
    limits: CallLimits

    async def exec(self, ctx: ToolContext, given: dict[str, Json]) -> Json:
        """Run a command. Answer `{stdout, exitCode}`."""
        return await self._run(ctx, ["-c", needed(given, "command")])

    async def script(self, ctx: ToolContext, given: dict[str, Json]) -> Json:
        """Run a script below the workdir or an open changeset. Answer `{stdout, exitCode}`."""
        return await self._run(ctx, [await asyncio.to_thread(_script, ctx, needed(given, "path"))])

    async def _run(self, ctx: ToolContext, arguments: Sequence[str]) -> Json:
        if any("\0" in each for each in arguments):
            raise ToolFailure("A command has no NUL character.", name="CommandRefused")
        command = [SHELL, *arguments]
        try:
            async with (
                asyncio.timeout(self.limits.seconds),
                Containment().running(command, workdir=ctx.workdir, limits=self.limits, output=True) as process,
            ):
                answer = {"stdout": await self._output(process), "exitCode": await process.wait()}
                cut_to_output(answer, "stdout", TRUNCATED)
                return answer
        except TimeoutError:
            text = f"The command did not end in {self.limits.seconds:g} seconds."
            raise ToolFailure(text, name="Timeout", code=ToolCode.TIMEOUT) from None

    async def _output(self, process: Process) -> str:
        """Return the output, cut. The rest is dropped, so that the command can end; an endless one is ended."""
        if process.stdout is None:
            raise RuntimeError("the process was started without its output")
        kept, read = bytearray(), 0
        while piece := await process.stdout.read(64 * 1024):
            kept += piece[: self.limits.output + 1 - len(kept)]
            read += len(piece)
            if read > _MOST_READ:
                raise ToolFailure(f"The command wrote more than {_MOST_READ} bytes.", name="OutputTooLarge")
        is_cut = len(kept) > self.limits.output
        return decoded(bytes(kept[: self.limits.output]), is_cut=is_cut) + (TRUNCATED if is_cut else "")


def _script(ctx: ToolContext, path: str) -> str:
    """Return the path of a script, which is a regular file below a folder of the call."""
    place = confined(ctx, path)
    try:
        with opened_file(place):
            return str(place.path)
    except OSError:
        raise ToolFailure(f"There is no such script: {place.path}", name="FileNotFoundError") from None


_RUNNER: Final = CommandRunner(LIMITS)
handlers = {"exec": _RUNNER.exec, "script": _RUNNER.script}
