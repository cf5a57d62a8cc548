"""The pages' blocks as a reader would use them: found by section, typed into a shell, run as programs of their own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from oauthbroker.testing import Browser, connect_through
from tests.kit.cli import REPOSITORY, Desk

PATIENCE = 240.0
LINK = r"(http://127\.0\.0\.1\S+/connect/\S+)"
IN_PROCESSES = "docs/tutorials/tools-in-processes.md"


def section(title: str, page: str) -> str:
    """Return a section of a page, or the whole page without a title."""
    text = (REPOSITORY / page).read_text("utf-8")
    if not title:
        return text
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(language: str, title: str = "", page: str = IN_PROCESSES) -> list[str]:
    """Return the blocks in a language; "" is that of blocks without one, such as the output of a command."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", section(title, page), re.DOTALL | re.MULTILINE)
    return [block for said, block in found if said == language]


class Program:
    """A process whose words are read while it runs. They are swept, but for what the page has it print."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._in, self._out = process.stdin, process.stdout
        self.said = ""

    async def type(self, text: str) -> None:
        self._in.write(text.encode())
        await self._in.drain()

    async def says(self, pattern: str) -> str:
        """Waits until it has printed this; group 1."""
        async with asyncio.timeout(PATIENCE):
            while (found := re.search(pattern, self.said)) is None:
                more = await self._out.read(4096)
                assert more, self.said
                self.said += more.decode()
        return found[1]

    async def end(self) -> str:
        """Waits until it is done; everything it printed."""
        self._in.close()
        async with asyncio.timeout(PATIENCE):
            self.said += (await self._out.read()).decode()
            assert 0 == await self._process.wait(), self.said
        return self.said


@asynccontextmanager
async def program(*words: str, cwd: Path, env: Mapping[str, str]) -> AsyncIterator[Program]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *words, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    try:
        yield Program(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def agree(desk: Desk, idp: Any, link: str, account: str = "newcomer", *, deny: bool = False) -> None:
    """The person opens the link that was printed."""
    page = await connect_through(Browser(canaries=desk.canaries), idp, link, account, deny=deny)
    assert (403 if deny else 200) == page.status, page.text
