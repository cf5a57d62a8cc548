"""docs/agent-bundle.md: its files make two agents that answer as the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.kit.cli import command, environment
from tests.kit.docs import code_blocks

PAGE = "docs/agent-bundle.md"


def test_the_agents_of_the_page_answer_with_results_in_the_order_of_the_calls(tmp_path: Path):
    for text in [*code_blocks(PAGE, "yaml"), *code_blocks(PAGE)]:
        file = tmp_path / text.partition("\n")[0].removeprefix("# ")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
    home = str(tmp_path / "home")
    assert 0 == command("init", "--config", "config", cwd=tmp_path, HOME=home).code
    checked = command("tools", "check", "--config", "config", cwd=tmp_path, HOME=home)
    assert "agents__request\nagents__send\nnotes__add\nnotes__clear\n" == checked.out
    words, env = [sys.executable, "chat.py", "spring"], environment(HOME=home)
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert 0 == done.returncode, done.stderr[-2000:]
    poem = "'target': 'writer', 'instanceKey': None, 'response': 'A poem about spring.'"
    assert re.search(rf"{poem}.*'notes': 1.*'\d{{4}}-\d\d-\d\d', 'E_TOOL_NOT_IN_CATALOG'", done.stdout)
