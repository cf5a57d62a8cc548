"""`oauthbroker keys new`: a key file, without a store and a configuration."""

from __future__ import annotations

import shutil
from pathlib import Path

from oauthbroker.store.keys.key_encryption_keys import FileKek
from tests.kit.cli import Desk


def test_a_new_key_file_is_made_without_a_configuration_and_never_overwritten(desk: Desk):
    """Rotating a key begins with it, on a machine whose store must not be opened."""
    shutil.rmtree("config")
    made = desk.type("keys", "new", "new.kek")
    assert (0, 0o600) == (made.code, Path("new.kek").stat().st_mode & 0o777), made
    before = Path("new.kek").read_bytes()
    assert FileKek.open(Path("new.kek").absolute()).id() in made.out
    again = desk.type("keys", "new", "new.kek")
    assert (2, True, before) == (
        again.code,
        "keyExists" in again.err and "new.kek" in again.err,
        Path("new.kek").read_bytes(),
    )
    assert not desk.key_file.exists()
    assert not Path("store").exists()
