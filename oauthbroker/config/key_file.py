"""Where the file of the key that opens a store lies."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from oauthbroker.core.secret import Secret
from oauthbroker.model.settings import Settings

KEY_FILE_ENV: Final = "OAUTHBROKER_KEY_FILE"
CREDENTIALS_ENV: Final = "CREDENTIALS_DIRECTORY"


def with_keys(settings: Settings, env: Mapping[str, str]) -> Settings:
    """Return the settings with the place of the KEK: as written, else OAUTHBROKER_KEY_FILE, else in the user's data
    folder, one per store; with the folder of systemd's credentials, and with the credentials for the proxy."""
    settings = replace(settings, credentials=env.get(CREDENTIALS_ENV, ""))
    if (proxy := settings.outgoing_proxy) is not None and env.get(proxy.credentials_env):
        known = replace(proxy, credentials=Secret(env[proxy.credentials_env]))
        settings = replace(settings, outgoing_proxy=known)
    if settings.key_file:
        return settings
    if env.get(KEY_FILE_ENV):
        return replace(settings, key_file=str(Path(env[KEY_FILE_ENV]).absolute()))
    import platformdirs  # imported here: a program that names its key file needs none

    mark = hashlib.sha256(settings.store_root.encode()).hexdigest()[:12]
    return replace(settings, key_file=str(Path(platformdirs.user_data_dir("oauthbroker"), "keys", f"{mark}.kek")))
