"""The wheel of this checkout, built once for all workers of a run, and environments that have everything but it.

They take the other packages from this Python by links, so that no test needs a network. `make dist` installs them anew, pinned
and hashed.
"""

from __future__ import annotations

import fcntl
import shutil
import site
import sys
from pathlib import Path

from release.building import Built, ran
from release.dist import built_twice

OURS = ("oauthbroker", "_oauthbroker", "__editable__", "_virtualenv", "distutils-precedence")


def built(shared: Path) -> Built:
    """Build as `make dist` does, in a folder that all workers of a run share."""
    work = shared / "packages"
    work.mkdir(exist_ok=True)
    with (work / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (work / "done").exists():
            built_twice(work)
            (work / "done").touch()
    [wheel], [sdist] = (sorted((work / "one" / "dist").glob(f"*{end}")) for end in (".whl", ".tar.gz"))
    return Built(wheel, sdist)


def bare_environment(place: Path) -> Path:
    """Make an environment that lacks only oauthbroker, with a pip that asks no index; return its `bin`."""
    ran(sys.executable, "-m", "venv", "--without-pip", place)
    [packages] = place.glob("lib/*/site-packages")
    for folder in map(Path, site.getsitepackages()):
        for entry in folder.iterdir():
            if not entry.name.startswith(OURS) and entry.suffix != ".pth" and entry.name != "__pycache__":
                (packages / entry.name).symlink_to(entry)
    programs = place / "bin"
    pip = programs / "pip"
    quick = "PIP_NO_INDEX=1 PIP_NO_COMPILE=1 PIP_DISABLE_PIP_VERSION_CHECK=1"  # an import compiles its module
    pip.write_text(f'#!/bin/sh\n{quick} exec {programs}/python -m pip -q "$@"\n')
    pip.chmod(0o700)
    return programs


def shared_folder(base: Path, worker: str) -> Path:
    """Return the folder that all workers of a run have in common."""
    return base if worker == "master" else base.parent


def dist_folder(built: Built, folder: Path) -> Path:
    """Copy the packages to `dist/`, as `make dist` leaves them."""
    (folder / "dist").mkdir()
    for package in (built.wheel, built.sdist):
        shutil.copy(package, folder / "dist")
    return folder / "dist"
