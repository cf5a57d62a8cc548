"""Which configuration a command line means: that of `--config`, or one person's own, made by `login`. The commands of a
refusal name it, so that the next command reads the same one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from oauthbroker.cli.output.commands_here import config_in
from oauthbroker.cli.output.options import CONFIG
from oauthbroker.config import ConfigInvalidError
from oauthbroker.config.bundle.server_environment import server_environment
from oauthbroker.personal.command_lines import with_config
from oauthbroker.personal.places import Places

BEGIN = "To connect an account of yours: `oauthbroker login PROVIDER`, such as github"


def bundle_here(config: Path) -> tuple[Path, Mapping[str, str]]:
    """Return the bundle whose apps a command shows or copies, and the environment that it is read with. Where no
    `--config` is named and no `config` is here, it is the person's own. Raises Refused for a folder of theirs that
    another user could have written."""
    own = Places.of_user()
    if config != CONFIG or config.exists() or not own.names():
        return config, server_environment(config)
    from oauthbroker.wiring.key_sources import environment_without_keys  # the rest of a broker, for this alone

    own.check()
    return own.config, environment_without_keys()


def naming_config(refused: ConfigInvalidError, arguments: Sequence[str]) -> ConfigInvalidError:
    """Return the refusal with commands that have the `--config` of this command line. Where there is no `config` here,
    it names the person's own bundle, or says how to begin."""
    if config := config_in(arguments):
        return with_config(refused, Path(config))
    own = Places.of_user()
    if CONFIG.exists():
        return refused
    hint = f"pass --config {own.config} for your own connections, or the folder with the YAML files"
    if not own.names():
        hint = f"{BEGIN}. For a server, pass --config with its folder; `oauthbroker init --server NAME` makes one"
    found = [replace(it, hint=hint) if it.file == str(CONFIG) else it for it in refused.problems]
    named = ConfigInvalidError(found)
    return with_config(named, own.config) if own.names() else named
