"""Where a person's apps, their store and its key lie: in the user's data folder, in folders of that user alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.refused import Refused

PORT: Final = 8420
_UNREADABLE: Final = "this user may not read it. Correct its mode, or set XDG_DATA_HOME to a folder of your own."
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Places:
    """The folders below `root`. The key is no part of it: it lies where that of every store lies without a place of its
    own, in a folder beside (docs/keys.md)."""

    root: Path

    @classmethod
    def of_user(cls) -> Places:
        """Return those of this user, by the rules of the system: below `XDG_DATA_HOME` on Linux, for example."""
        import platformdirs  # imported here: only these connections need it

        return cls(Path(platformdirs.user_data_dir("oauthbroker")) / "local")

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def keyring(self) -> Path:
        """There as soon as the store is made."""
        return self.store / "data" / "keyring"

    @property
    def socket(self) -> Path:
        """Where a `serve` over this store takes the calls of this user's commands."""
        return self.root / "serve.sock"

    @property
    def socket_lock(self) -> Path:
        """Held by the `serve` that listens there, so that a second one does not take its place."""
        return self.root / "serve.lock"

    def app_file(self, name: str) -> Path:
        return self.config / f"{name}.yaml"

    @property
    def broker_file(self) -> Path:
        return self.config / "_broker.yaml"  # no app can be called so

    def names(self) -> list[str]:
        """Return the names of the apps there are."""
        return sorted(path.stem for path in self._files() if path != self.broker_file)

    def prepare(self) -> None:
        """Make the missing folders, which only their user can enter, and check. Raises Refused as `check`."""
        for folder in (self.root.parent, self.root, self.config):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                why = error.strerror or "the folder cannot be made"
            else:
                continue
            raise Refused(f"Cannot make {folder}: {why}. Set XDG_DATA_HOME to a folder where you may write.")
        self.check()

    def check(self) -> None:
        """Refuse a folder or file that this user cannot read, or that another one could have written: its apps would
        decide where the tokens go."""
        for path in chain((self.root.parent, self.root, self.config), self._files()):  # its folders before a file
            if problem := _problem(path, folder=path.suffix != ".yaml"):
                raise Refused(f"{path} is not used: {problem}")

    def _files(self) -> Iterator[Path]:
        if self.config.is_dir():
            yield from self.config.glob("*.yaml")


def _problem(path: Path, *, folder: bool) -> str:
    """Return the problem of a path, and the way to mend it; empty for one that is missing or ours alone."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return ""
    except PermissionError:
        return _UNREADABLE
    is_right = stat.S_ISDIR(found.st_mode) if folder else stat.S_ISREG(found.st_mode)
    if not is_right:
        what = "a folder" if folder else "a plain file"
        return f"it is not {what} itself, but a link or another kind of file. Move it away, and look who made it."
    if found.st_uid != os.geteuid():
        return "it belongs to another user. Move it away, or set XDG_DATA_HOME to a folder of your own."
    if found.st_mode & _OTHERS_WRITE:
        return f"other users may write to it. Look through it, then run: chmod go-w {path}"
    if not os.access(path, os.R_OK | (os.X_OK if folder else 0)):
        return _UNREADABLE
    return ""
