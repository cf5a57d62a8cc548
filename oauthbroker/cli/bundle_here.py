"""The bundle whose apps a command shows or copies: that of `--config`, or one person's own, made by `login`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from oauthbroker.cli.output.options import CONFIG
from oauthbroker.config.bundle.server_environment import server_environment
from oauthbroker.personal.places import Places
from oauthbroker.wiring.key_sources import environment_without_keys


def bundle_here(config: Path) -> tuple[Path, Mapping[str, str]]:
    """Return a bundle and the environment that it is read with. Where no `--config` is named and no `config` is here,
    it is the person's own. Raises Refused for a folder of theirs that another user could have written."""
    own = Places.of_user()
    if config != CONFIG or config.exists() or not own.names():
        return config, server_environment(config)
    own.check()
    return own.config, environment_without_keys()
