"""Type-check the Python of the pages, as a reader's editor does: mypy --strict, and pyright in its strict mode.

Each page becomes a folder of modules in build/pages: a block whose first line is `# name.py` is that module, and the
others are one module. Lines keep their numbers, so that `docs_clients/...py:81` is line 81 of docs/clients.md. pyright
reads `examples/` too, which mypy reads with the rest of the tree.

    .venv/bin/python -m tools.quality.page_types
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "pages"
PYRIGHT = ROOT / "tools" / "quality" / "node" / "node_modules" / ".bin" / "pyright"
BLOCK = re.compile(r"(?m)^```python\n(.*?)^```", re.DOTALL)
NAME = re.compile(r"# ([\w/]+\.py)\b")
EXAMPLES = ("team-assistant/bundle", "team-assistant", "frameworks", "mcp")
# What pyright says of a package that has no types, or that is in an environment of its own: mypy finds misspelt names,
# and functions without annotations.
UNTYPED = (
    "reportMissingImports",
    "reportMissingModuleSource",
    "reportMissingTypeStubs",
    "reportUnknownArgumentType",
    "reportUnknownLambdaType",
    "reportUnknownMemberType",
    "reportUnknownParameterType",
    "reportUnknownVariableType",
    "reportUntypedBaseClass",
    "reportUntypedFunctionDecorator",
)


def pages() -> list[Path]:
    """Return the pages for readers."""
    found = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "store" / "README.md"]
    return [*found, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]


def modules_of(page: Path) -> dict[str, str]:
    """Return the modules of a page, by their paths in its folder."""
    text, own = page.read_text("utf-8"), f"{folder_of(page)}.py"
    lines: dict[str, list[str]] = {}
    for block in BLOCK.finditer(text):
        named = NAME.match(block[1])
        module = lines.setdefault(named[1] if named else own, [])
        module += [""] * (text[: block.start(1)].count("\n") - len(module))
        module += block[1].splitlines()
    return {name: "\n".join(module) + "\n" for name, module in lines.items()}


def folder_of(page: Path) -> str:
    return re.sub(r"\W", "_", page.relative_to(ROOT).with_suffix("").as_posix())


def write(folder: Path) -> list[Path]:
    """Write the modules of all pages, and return the folders of pages. Unchanged files stay, for mypy's cache."""
    written: dict[Path, str] = {}
    for page in pages():
        written |= {folder / folder_of(page) / name: text for name, text in modules_of(page).items()}
    for stale in [path for path in folder.rglob("*.py") if path not in written]:
        stale.unlink()
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
    return sorted({folder / path.relative_to(folder).parts[0] for path in written})


def findings(folder: Path, checked: list[Path]) -> Iterator[str]:
    """Yield what the checkers print about the modules."""
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary", "--hide-error-context"]
    env = {**os.environ, "MYPYPATH": os.pathsep.join(map(str, checked))}
    mypy = subprocess.run(
        [sys.executable, "-m", "mypy", *config, str(folder)], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )  # fmt: skip
    yield from (mypy.stdout + mypy.stderr).splitlines()
    if PYRIGHT.exists():
        yield from _of_pyright(folder, checked)
    elif "CI" in os.environ:
        yield "pyright is missing: `make check` installs it where npm is"
    else:
        print("WITHOUT PYRIGHT: it needs Node and npm", file=sys.stderr)


def _of_pyright(folder: Path, checked: list[Path]) -> Iterator[str]:
    settings = folder / "pyrightconfig.json"
    settings.write_text(json.dumps(project(folder, checked)), "utf-8")
    command = [str(PYRIGHT), "--pythonpath", sys.executable, "-p", str(settings)]
    pyright = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    yield from (line.strip() for line in pyright.stdout.splitlines() if " - error: " in line or " - warning: " in line)
    if pyright.returncode not in {0, 1}:
        yield pyright.stdout + pyright.stderr


def project(folder: Path, checked: list[Path]) -> dict[str, Any]:
    """Return pyright's settings. Its paths are relative: pyright leaves out an absolute one in `include`, and goes on."""
    examples = [ROOT / "examples" / name for name in EXAMPLES] if folder == BUILT else []
    roots = {**dict.fromkeys(examples, examples), folder: checked}  # each has its own `chat.py`
    return {
        "include": [os.path.relpath(each, folder) for each in roots],
        "executionEnvironments": [
            {"root": os.path.relpath(root, folder), "extraPaths": [str(ROOT), *map(str, paths)]}
            for root, paths in roots.items()
        ],
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
        **dict.fromkeys(UNTYPED, False),
        "useLibraryCodeForTypes": False,  # a package without types is Any, as to mypy
    }


def main() -> None:
    found = [*findings(BUILT, write(BUILT))]
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
