"""The order of folders and files inside the large packages: each imports only what stands before it in its row.

The figures are the size of the drawing of a package: its boxes (folders, and files beside them), its floors (the longest way
down) and its arrows (imports between boxes). They are bounds: a drawing may become simpler.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.quality.architecture import PACKAGE, modules, names_used, nearest

# From the lowest to the highest; names in one group import none of each other.
ORDER: dict[str, tuple[str, ...]] = {
    "store": ("format posix task_gates", "keys memory", "file postgres", "migration"),
    "config": ("key_file problems", "reload written", "reading", "values", "checks plugins", "bundle", "check plugin_files"),
    "flowtools": ("specification", "entities risk", "deployment running", "as_tools serving", "cli"),
    "tools": (
        "types", "calling extensions models", "isolation turns", "base bundle", "changesets", "orchestration", "commands",
    ),
    "web": ("bounded_requests middleware words", "html", "gate", "api", "app pages"),
}  # fmt: skip
BOXES_FLOORS_ARROWS = {
    "store": (8, 4, 17),
    "config": (11, 7, 30),
    "flowtools": (8, 5, 21),
    "tools": (11, 7, 33),
    "web": (8, 6, 22),
}


def arrows_inside(folder: Path) -> dict[str, set[str]]:
    """Return each box of a package with the boxes that it imports."""
    files = modules(folder.parent)
    prefix = f"{folder.parent.name}.{folder.name}."

    def box(module: str) -> str:
        return module.removeprefix(prefix).partition(".")[0] if module.startswith(prefix) else ""

    found: dict[str, set[str]] = {box(module): set() for module in files if box(module)}
    for module, path in files.items():
        if here := box(module):
            targets = {nearest(name, files) for name in names_used(path, module)} - {None}
            found[here] |= {box(str(target)) for target in targets} - {here, ""}
    return found


def upward(arrows: dict[str, set[str]], order: tuple[str, ...]) -> list[str]:
    """Return the imports that do not go down, and the boxes without a place."""
    floor = {name: number for number, names in enumerate(order) for name in names.split()}
    lost = [f"{name} has no place" for name in sorted(arrows) if name not in floor]
    wrong = [
        f"{here} imports {there}"
        for here, below in sorted(arrows.items())
        for there in sorted(below)
        if here in floor and there in floor and floor[there] >= floor[here]
    ]
    return lost + wrong


@pytest.mark.parametrize("package", ORDER)
def test_no_folder_imports_one_that_stands_above_it(package: str) -> None:
    assert [] == upward(arrows_inside(PACKAGE / package), ORDER[package])


@pytest.mark.parametrize("package", BOXES_FLOORS_ARROWS)
def test_the_drawing_of_a_package_stays_as_simple_as_it_is(package: str) -> None:
    arrows = arrows_inside(PACKAGE / package)
    seen = (len(arrows), len(ORDER[package]), sum(map(len, arrows.values())))
    assert all(here <= bound for here, bound in zip(seen, BOXES_FLOORS_ARROWS[package], strict=True)), seen


def test_an_arrow_that_runs_up_and_a_file_without_a_place_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "oauthbroker" / "store"
    for name, text in {"seal": "from oauthbroker.store import memory", "memory": "x = 1", "new": "x = 1"}.items():
        folder.mkdir(parents=True, exist_ok=True)
        folder.joinpath(f"{name}.py").write_text(text, "utf-8")
    assert ["new has no place", "seal imports memory"] == upward(arrows_inside(folder), ("seal", "memory"))
