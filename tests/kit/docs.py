"""Read the pages of the documentation and their code blocks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def page_text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def code_blocks(name: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page_text(name), re.DOTALL)
