"""A process that dies between two commands of git leaves nothing that counts, and the next one goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from oauthbroker.tools.changesets import git
from tests.kit.forms import is_long
from tests.unit.tools.changesets.repositories import OWNER, Desk

EACH = 1 if is_long() else 3
"""The short form dies before each third command of a commit."""


def dies(desk: Desk, work: str, changeset: str, steps: int) -> bool:
    """Run the work in a process that dies after so many steps. Return False once it came to its end."""
    arguments = [str(desk.repository), str(desk.root), work, changeset, str(steps)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.tools.changesets.dying_worker", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode in {0, 9}, done.stderr
    assert done.stdout.strip() in {"", "ok"} or work == "open"
    return done.returncode == 9


@pytest.mark.slow
def test_a_crash_while_opening_leaves_no_changeset(tmp_path):
    desk, steps = Desk.made(tmp_path), 0
    while dies(desk, "open", "", steps):
        changesets = desk.again()
        assert ([], []) == (changesets.folders(OWNER), desk.worktrees())
        steps += 1
    assert steps >= 5
    assert 1 == len(desk.changesets.folders(OWNER))


@pytest.mark.slow
def test_a_crash_while_committing_leaves_the_old_or_the_new_revision_and_the_next_try_ends_it(tmp_path):
    steps, dead, seen = 0, True, set()
    while dead:
        desk = Desk.made(tmp_path / str(steps))
        opened = desk.changesets.open(OWNER)
        (opened.folder / "run.sh").write_text("new\n")
        dead = dies(desk, "commit", opened.id, steps)
        changesets = desk.again()
        committed = desk.text("run.sh") == "new"
        seen.add(committed)
        assert (changesets.newest().folder / "run.sh").read_text() == ("new\n" if committed else "#!/bin/sh\n")
        if changesets.folders(OWNER):
            assert desk.commit(opened.id).status == "ok"
        else:
            assert committed
        assert desk.text("run.sh") == "new"
        assert [] == desk.worktrees()
        steps += EACH
    assert (steps > 8, seen) == (True, {False, True})


def test_a_lock_that_another_process_keeps_is_reported_in_time_and_the_changeset_stays(tmp_path, monkeypatch):
    desk = Desk.made(tmp_path)
    opened = desk.changesets.open(OWNER)
    code = (
        "import fcntl, sys\nf = open(sys.argv[1], 'a')\nfcntl.flock(f, 2)\nprint('held', flush=True)\nsys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(desk.repository / "changesets.lock")]
    monkeypatch.setattr(git, "_LOCK_SECONDS", 0.1)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert "held\n" == holder.stdout.readline()
        with pytest.raises(git.Busy):
            desk.commit(opened.id)
        with pytest.raises(git.Busy):
            desk.changesets.newest()
    assert "ok" == desk.commit(opened.id).status


def test_a_lock_of_a_dead_process_does_not_hold(tmp_path):
    desk = Desk.made(tmp_path)
    held = [sys.executable, "-c", "import fcntl, os, sys\nf = open(sys.argv[1], 'a')\nfcntl.flock(f, 2)\nos._exit(9)"]
    subprocess.run([*held, str(desk.repository / "changesets.lock")], check=False, timeout=20)
    assert (desk.repository / "changesets.lock").exists()
    assert desk.changesets.open(OWNER).base == desk.tip()
