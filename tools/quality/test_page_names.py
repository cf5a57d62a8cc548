"""The code of pages about frameworks and MCP: each name is defined on the page, and each import exists."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import symtable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.config import load
from tests.kit.docs import ROOT, code_blocks

INTEGRATIONS = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs" / "integrations").glob("*.md"))
PROGRAMS = [
    *(ROOT / "examples" / "frameworks").glob("*_agent.py"),
    *(ROOT / "tests" / "kit" / "mcp_agents").glob("*.py"),
]
EXAMPLES = "".join(path.read_text("utf-8") for path in PROGRAMS)
ELSEWHERE = {"agents.mcp", "pydantic_ai.mcp"}  # the MCP clients of frameworks, in the environments of the frameworks


def undefined(code: str) -> set[str]:
    """Return the names that a module reads and does not define."""
    module = symtable.symtable(code, "a page", "exec")
    known = {each.get_name() for each in module.get_symbols() if each.is_assigned() or each.is_imported()}
    return {*_read(module)} - known - {*dir(builtins)}


def _read(table: symtable.SymbolTable) -> Iterator[str]:
    is_module = table.get_type() == "module"
    yield from (
        each.get_name() for each in table.get_symbols() if each.is_referenced() and (is_module or each.is_global())
    )
    for inner in table.get_children():
        yield from _read(inner)


def test_a_name_that_a_block_lacks_is_found() -> None:
    assert {"say", "turn"} == undefined("def f(a: int) -> None:\n    say(a, len(turn))\n")


@pytest.mark.parametrize("page", [*INTEGRATIONS, "docs/mcp.md"])
def test_the_code_of_a_page_defines_each_name_and_imports_what_exists(page: str) -> None:
    code = "".join(code_blocks(page))
    assert set() == undefined(code)
    imports = [each for each in ast.walk(ast.parse(code)) if isinstance(each, ast.ImportFrom)]
    assert imports
    for each in imports:
        root = str(each.module).partition(".")[0]
        if (
            importlib.util.find_spec(root) is None
            or each.module in ELSEWHERE
            or (page.endswith("adk.md") and root == "google")
        ):
            assert f"from {each.module} import " in EXAMPLES  # its environment runs the example
        elif not _is_other_adapter(page, each):
            exec(compile(ast.unparse(each), page, "exec"), {})  # noqa: S102 - the page's code is under test


def _is_other_adapter(page: str, said: ast.ImportFrom) -> bool:
    """Look whether an import needs a framework that is not installed here. Its names are public ones all the same."""
    if said.module != "oauthbroker.integrations" or page.endswith(("README.md", "pydantic-ai.md")):
        return False
    import oauthbroker.integrations

    assert {each.name for each in said.names} <= {*oauthbroker.integrations.__all__}
    return True


def test_the_resources_of_the_examples_load(tmp_path: Path) -> None:
    pages = ("docs/tutorials/agent-frameworks.md", "docs/integrations/README.md")
    blocks = [block for page in pages for block in code_blocks(page, "yaml")]
    (tmp_path / "broker.yaml").write_text("---\n".join(blocks), "utf-8")
    loaded: Any = load(tmp_path)
    assert ({"mail", "tickets"}, {"Tool/mail", "Tool/tickets"}) == ({*loaded.apps}, {*loaded.tools})
