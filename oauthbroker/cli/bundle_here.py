"""Which bundle a command without `--config` reads: `config/` here, or else the person's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from oauthbroker.cli.output.options import CONFIG


def bundle_here(config: Path) -> Path:
    """Return the bundle. Raises Refused for a place of the person's own that another user could have written."""
    if config != CONFIG or config.exists():
        return config
    from oauthbroker.personal.places import Places

    places = Places.of_user()
    places.check()
    return places.config if places.names() else config


def environment_of(config: Path, bundle: Path) -> Mapping[str, str]:
    """Return the environment with which a bundle is read: a server's, but not for the person's own."""
    if bundle != config:
        from oauthbroker.wiring.key_sources import environment_without_keys

        return environment_without_keys()
    from oauthbroker.config.bundle.server_environment import server_environment

    return server_environment(config)
