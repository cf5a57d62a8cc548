"""`dying_worker.py REPOSITORY ROOT WORK CHANGESET LEFT`: dies before the n-th command of git or step with files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oauthbroker.tools.changesets import changesets, git, revisions
from oauthbroker.tools.changesets.files import AllowedFiles


def dying(real: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    """Let so many calls of all these go on."""

    def called(*arguments: Any, **options: Any) -> Any:
        if left[0] == 0:
            os._exit(9)
        left[0] -= 1
        return real(*arguments, **options)

    return called


def main(repository: str, root: str, work: str, changeset: str, steps: str) -> None:
    opened, left = changesets.open_changesets(Path(repository), Path(root), lambda _: []), [int(steps)]
    for place, name in ((git.Git, "__call__"), (revisions, "write_folder"), (revisions.shutil, "rmtree")):  # type: ignore[attr-defined]
        setattr(place, name, dying(getattr(place, name), left))
    if work == "open":
        print(opened.open("planner/thread-1").id)
    else:
        print(opened.commit(changeset, "planner/thread-1", AllowedFiles(["**"], ["**"]), "why").status)


if __name__ == "__main__":
    main(*sys.argv[1:])
