"""How one of a person's connections is named on the command line, and the command that is to be typed for it."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Final

from oauthbroker.config import ConfigInvalidError

NO_ACCOUNT: Final = "--account is a name of up to 128 printable characters."
_READS_CONFIG: Final = re.compile(r"`oauthbroker (check|secrets set(?: (?!--config)[^` ]+)*)`")


def named(app: str, account: str = "") -> str:
    """Return the words that name a connection: `github`, or `github --account work`."""
    return f"{app} --account {shlex.quote(account)}" if account else app


def command_for(verb: str, app: str, account: str = "") -> str:
    return f"oauthbroker {verb} {named(app, account)}"


def one_account(verb: str, ref: str) -> str:
    """Return what to type for `app@account`, the name of a connection in the API. Empty for another word."""
    app, mark, account = ref.partition("@")
    return f"{ref} is an account of {app}. Run: {command_for(verb, app, account)}" if mark and app else ""


def logout_of(app: str, account: str, *, alone: bool) -> str:
    """Return the command that ends this connection and no other one. `alone`: the app has no other one."""
    return command_for("logout", app, account) if account or alone else f"oauthbroker logout {app} --account ''"


def with_config(refused: ConfigInvalidError, config: Path) -> ConfigInvalidError:
    """Return a refusal whose commands name this configuration; those that name one already stay."""
    folder = shlex.quote(str(config))

    def naming(found: re.Match[str]) -> str:
        return f"`oauthbroker {found[1]} {folder if found[1] == 'check' else f'--config {folder}'}`"

    return ConfigInvalidError(replace(it, hint=_READS_CONFIG.sub(naming, it.hint)) for it in refused.problems)
