"""Where the file of the key that opens a store lies."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from oauthbroker.model.settings import Settings

KEY_FILE_ENV: Final = "OAUTHBROKER_KEY_FILE"


def with_key_file(settings: Settings, env: Mapping[str, str]) -> str:
    """Return where the KEK is: as written, else OAUTHBROKER_KEY_FILE, else in the user's data folder, one per store."""
    if settings.key_file:
        return settings.key_file
    if env.get(KEY_FILE_ENV):
        return str(Path(env[KEY_FILE_ENV]).absolute())
    import platformdirs  # imported here: a program that names its key file needs none

    mark = hashlib.sha256(settings.store_root.encode()).hexdigest()[:12]
    return str(Path(platformdirs.user_data_dir("oauthbroker"), "keys", f"{mark}.kek"))
