"""An age identity in a file, to open an archive of a store."""

from __future__ import annotations

import os

import pyrage

from tests.kit.cli import Desk


def identity_file(desk: Desk) -> tuple[str, str]:
    """Write an identity for its owner alone. Return its path and its recipient."""
    identity, path = pyrage.x25519.Identity.generate(), desk.folder / "keys" / "identity.txt"
    desk.canaries.add(str(identity), "identity")
    desk.canaries.excuse(path)
    path.parent.mkdir(exist_ok=True)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
        file.write(f"# made for this test\n{identity}\n")
    return str(path), str(identity.to_public())
