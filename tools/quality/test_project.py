"""What the repository promises about itself: pins with hashes and no addresses, links that lead somewhere."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PINS = sorted((ROOT / "requirements").glob("*.txt"))
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "bench/README.md", ROOT / "store/README.md"]


def packages(pins: Path) -> dict[str, list[str]]:
    """Every requirement of a pin file, with its hashes."""
    entries = re.split(r"\n(?=[a-z0-9])", pins.read_text("utf-8").replace("\\\n", " "))
    return {
        entry.split()[0]: re.findall(r"--hash=(sha256:[0-9a-f]{64})\b", entry) for entry in entries if "==" in entry
    }


@pytest.mark.parametrize("pins", PINS, ids=lambda pins: pins.name)
def test_every_pin_is_one_version_with_hashes(pins):
    found = packages(pins)
    assert found
    assert [] == [
        name for name, hashes in found.items() if not re.fullmatch(r"[a-z0-9-]+==[\w.!+]+", name) or not hashes
    ]


@pytest.mark.parametrize("pins", PINS, ids=lambda pins: pins.name)
def test_pins_name_no_address(pins):
    """Where packages come from is the machine's business."""
    assert not re.search(r"://|^\s*-(?!-hash)|index-url|find-links", pins.read_text("utf-8"), re.MULTILINE)


def test_every_dependency_is_pinned_at_or_above_its_floor():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pinned = dict(name.split("==") for name in packages(ROOT / "requirements/runtime.txt"))
    floors = dict(re.split(">=|,<", each.partition(";")[0])[:2] for each in project["dependencies"])
    assert [] == [name for name, floor in floors.items() if parts(pinned[name]) < parts(floor)]


def parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def test_locked_node_packages_name_no_address():
    locks = [path for path in ROOT.glob("tests/**/package-lock.json") if "node_modules" not in path.parts]
    for lock in locks:
        entries = json.loads(lock.read_text("utf-8"))["packages"]
        assert [] == [name for name, entry in entries.items() if "resolved" in entry]
        assert [] == [name for name, entry in entries.items() if name and "integrity" not in entry]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page):
    links = re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", page.read_text("utf-8"))
    assert [] == [link for link in links if not (page.parent / link).exists()]


def test_each_file_that_the_page_of_a_package_names_exists():
    """A page beside the code is not moved along with a file's name."""
    pages = [*ROOT.glob("oauthbroker/**/README.md")]
    assert len(pages) >= 5
    for page in pages:
        named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", page.read_text("utf-8"))
        below = [path.as_posix() for path in page.parent.rglob("*.py")]
        gone = [name for name in named if not any(path.endswith(f"/{name}") for path in below)]
        assert [] == [
            name for name in gone if not ((ROOT / "oauthbroker" / name).exists() or (ROOT / name).exists())
        ], page


def test_python_in_the_readme_is_python():
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert snippets
    for snippet in snippets:
        compile(snippet, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
