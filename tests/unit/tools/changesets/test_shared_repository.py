"""Several processes on one repository: each commit counts once, and none takes away what another one uses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.warm_python import WARM
from tests.unit.tools.changesets.repositories import EVERYTHING, OWNER, Desk, git

PROCESSES, COMMITS = 4, 5
CHILD = """
import sys
from pathlib import Path
from oauthbroker.tools import AllowedFiles, open_changesets

repository, root, name, commits = sys.argv[1:]
changesets = open_changesets(Path(repository), Path(root), lambda _: [])
print(changesets.newest().folder, flush=True)
sys.stdin.readline()
for number in range(int(commits)):
    opened = changesets.open(name)
    (opened.folder / "prompts" / f"{name}-{number}.md").write_text(name)
    (opened.folder / "prompts" / "shared.md").write_text("the same of all")
    done = changesets.commit(opened.id, name, AllowedFiles(["**"], ["**"]), f"{name} {number}")
    assert done.status == "ok", done
print(changesets.newest().folder, flush=True)
sys.stdin.readline()
"""


class Runtime:
    """A process with changesets open. It commits at `go`, and ends at `end`."""

    def __init__(self, desk: Desk, name: str, commits: int = 0) -> None:
        arguments = [str(desk.repository), str(desk.root), name, str(commits)]
        command = [sys.executable, "-c", WARM + CHILD, *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.opened = self.folder()

    def folder(self) -> Path:
        assert self.process.stdout is not None
        return Path(self.process.stdout.readline().strip())

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.communicate(timeout=60)
        assert 0 == self.process.returncode


@pytest.mark.slow
def test_commits_of_several_processes_at_once_all_count(tmp_path):
    desk = Desk.made(tmp_path)
    runtimes = [Runtime(desk, f"agent-{number}", COMMITS) for number in range(PROCESSES)]
    for each in runtimes:
        each.go()
    newest = {each.folder() for each in runtimes}
    for each in runtimes:
        each.end()
    written = {f"prompts/agent-{agent}-{number}.md" for agent in range(PROCESSES) for number in range(COMMITS)}
    assert written <= set(desk.files())
    assert 1 + PROCESSES * COMMITS == int(git(desk.repository, "rev-list", "--count", "main")), "one after another"
    assert ([], True) == (desk.worktrees(), desk.changesets.newest().folder in newest)


def test_a_process_that_starts_leaves_the_revision_that_another_one_uses(tmp_path):
    desk = Desk.made(tmp_path)
    first = Runtime(desk, "first")
    opened = desk.changesets.open(OWNER)
    (opened.folder / "prompts" / "new.md").write_text("new")
    assert "ok" == desk.commit(opened.id, EVERYTHING).status
    second = Runtime(desk, "second")
    assert second.opened != first.opened
    assert first.opened.is_dir()
    for each in (first, second):
        each.go()
        each.end()


def test_folders_of_older_revisions_are_removed_once_no_process_uses_them(tmp_path):
    desk = Desk.made(tmp_path)
    alone = Desk(desk.repository, tmp_path / "other" / "system", desk.changesets)
    for commits in (1, 0):
        runtime = Runtime(alone, "agent", commits)
        runtime.go()
        newest = runtime.folder()
        runtime.end()
    assert [newest] == [each for each in (alone.root / "revisions").iterdir() if each.is_dir()]
