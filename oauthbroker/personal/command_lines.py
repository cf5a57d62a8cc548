"""How one of a person's connections is named on the command line, and the command that is to be typed for it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from oauthbroker.config import ConfigInvalidError
from oauthbroker.core import printed_commands
from oauthbroker.core.spelling import nearest

NO_ACCOUNT: Final = "--account is a name of up to 128 printable characters."


def named(app: str, account: str = "") -> str:
    """Return the words that name a connection: `github`, or `github --account work`."""
    return f"{app} --account {shlex.quote(account)}" if account else app


def command_for(verb: str, app: str, account: str = "") -> str:
    return f"oauthbroker {verb} {named(app, account)}"


def one_account(verb: str, ref: str) -> str:
    """Return what to type for `app@account`, the name of a connection in the API. Empty for another word."""
    app, mark, account = ref.partition("@")
    return f"{ref} is an account of {app}. Run: {command_for(verb, app, account)}" if mark and app else ""


def accounts_here(app: str, account: str, known: Iterable[str]) -> str:
    """Return which connection was meant by an account that is not connected, and those there are; empty if there are
    none."""
    there = sorted(known)
    meant = nearest(account, filter(None, there))
    lines = [f"Did you mean {named(app, meant)}?"] if meant else []
    return " ".join([*lines, f"Connected: {of_all(app, there)}."]) if there else ""


def of_all(app: str, accounts: Iterable[str]) -> str:
    """Return the words that name each of these connections."""
    return ", ".join(named(app, each) for each in accounts)


def logout_of(app: str, account: str, *, alone: bool) -> str:
    """Return the command that ends this connection and no other one. `alone`: the app has no other one."""
    return command_for("logout", app, account) if account or alone else f"oauthbroker logout {app} --account ''"


def with_config(refused: ConfigInvalidError, config: Path) -> ConfigInvalidError:
    """Return a refusal whose commands name this configuration; those that name one already stay."""
    return ConfigInvalidError(
        replace(it, hint=printed_commands.with_config(it.hint, str(config))) for it in refused.problems
    )
