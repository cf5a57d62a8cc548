"""The programs and files of examples/mcp are those that docs/mcp.md and a tutorial point at, and they work."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from oauthbroker.config import load
from tests.kit.cli import environment
from tests.kit.docs import ROOT, code_blocks

EXAMPLES = ROOT / "examples" / "mcp"
EDITOR = "docs/tutorials/mcp-servers-in-an-editor.md"


@pytest.mark.slow
def test_a_host_and_a_server_of_the_examples_tell_the_story() -> None:
    """Two links, one of each broker, and two answers, the second of them without a link."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / "mcp_demo.py", "--auto"],
        check=False, env=environment(), text=True, capture_output=True, timeout=180,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    assert ["host", "server", "answer", "answer"] == [line.split()[0] for line in done.stdout.splitlines()]
    links = re.findall(r"(http\S+)/connect/", done.stdout)
    assert 2 == len(set(links)) == len(links)
    assert 2 == done.stdout.count("Good morning, Alice.")


def test_the_editors_files_are_those_of_the_page() -> None:
    (block,) = (block for block in code_blocks(EDITOR, "yaml") if "kind: Broker" in block)
    config = EXAMPLES / "editor" / "config"
    assert dedent(block).strip() == (config / "work.yaml").read_text("utf-8").strip()
    assert {"tickets"} == load(config).apps.keys()
    (line,) = code_blocks(EDITOR, "json")
    assert dedent(line).strip() == (EXAMPLES / "editor" / "mcp.json").read_text("utf-8").strip()


@pytest.mark.parametrize("path", ["README.md", "docs/mcp.md"])
def test_a_reader_finds_the_examples(path: str) -> None:
    assert "examples/mcp/" in Path(ROOT / path).read_text("utf-8")
