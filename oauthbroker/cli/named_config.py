"""Name the configuration in the commands of a refusal, so that the next command reads the same one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from oauthbroker.cli.output.commands_here import config_in
from oauthbroker.cli.output.options import CONFIG
from oauthbroker.config import ConfigInvalidError
from oauthbroker.personal.command_lines import with_config
from oauthbroker.personal.places import Places

BEGIN = "To connect an account of yours: `oauthbroker login PROVIDER`, such as github"


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
