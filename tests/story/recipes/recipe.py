"""What the recipes' tests share: the page's blocks as files and commands in a folder."""

from __future__ import annotations

import re
from pathlib import Path

from tests.kit.cli import environment
from tests.kit.docs_shell import blocks, program, with_shims

PAGE = "docs/recipes.md"


def of(title: str, language: str) -> list[str]:
    """A section's blocks in one language."""
    return blocks(language, title, PAGE)


def put_programs(folder: Path, title: str, **changes: str) -> None:
    """A section's programs under the names that they say themselves; `changes` are texts that a test replaces."""
    for block in of(title, "python"):
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
