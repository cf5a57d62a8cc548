"""What the tests of guides share: the blocks of a page as files and commands in a folder."""

from __future__ import annotations

import re
from pathlib import Path

from tests.kit.cli import environment
from tests.kit.docs_shell import blocks, program
from tests.kit.shims import with_shims


def of(page: str, language: str, title: str = "") -> list[str]:
    """Return the blocks of a page, or of one section, in one language."""
    return blocks(language, title, f"docs/{page}.md")


def put_programs(folder: Path, page: str, title: str = "", **changes: str) -> None:
    """Write programs under the names that they say themselves; `changes` are texts that a test replaces."""
    for block in of(page, "python", title):
        [name] = re.findall(r"^# (\w+\.py)\b", block, re.MULTILINE)
        (folder / name).write_text(changed(block, changes), "utf-8")


def changed(block: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        block = block.replace(old, new)
    return block


async def typed(folder: Path, commands: str, stdin: str = "", **env: str) -> str:
    """Commands as they are printed, typed into a shell; returns their output."""
    everything = environment(**{"PATH": with_shims(folder), **env})
    async with program("bash", "-euc", commands, cwd=folder, env=everything) as shell:
        await shell.type(stdin)
        return await shell.end()
