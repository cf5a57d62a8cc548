"""What `make` installs before tests run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("chosen", "all_of_them"),
    [
        ("", True),
        ("--long", True),
        ("--costs build/costs", True),
        ("-k callback", False),
        ("--durations=5 -k 'one or two'", False),
        ("--case 12", False),
        ("tests/story/test_callback.py", False),
    ],
)
def test_a_chosen_part_of_the_tests_installs_neither_node_packages_nor_peers(
    tmp_path: Path, chosen: str, all_of_them: bool
) -> None:
    (tmp_path / "npm").touch(mode=0o755)  # as on a machine that has it: nothing is run
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environment["PATH"] += f":{tmp_path}"
    absent = ["PEERS=.venv-absent", "TYPESCRIPT=absent"]
    done = subprocess.run(
        ["make", "-n", "test", f"ARGS={chosen}", *absent], cwd=ROOT, env=environment,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [all_of_them] * 2 == ["npm ci" in done.stdout, ".venv-absent" in done.stdout]
    assert "-m pytest" in done.stdout
