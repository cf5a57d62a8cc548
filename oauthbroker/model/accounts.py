"""Which accounts of a subject a turn may use: listed by the runtime, never by a tool."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code

LONGEST = 128
MOST_ACCOUNTS = 100  # of one app in one turn
_MEMBERS = {"allowed", "default"}
_KINDS = ("OAuthApp", "CredentialApp")


@dataclass(frozen=True, slots=True)
class Accounts:
    """The accounts of one app. `default` is for a call that names none. `""` is the account of turns that list none."""

    allowed: tuple[str, ...] = ("",)
    default: str | None = None

    @classmethod
    def of(cls, listed: Mapping[str, Any], app: str) -> Accounts:
        """Parse what a turn lists for an app: `[name, ...]` or `{allowed: [name, ...], default?: name}`. An app that is
        not listed has its one account. Raises `accountsInvalid`."""
        names = [name for name in (*(f"{kind}/{app}" for kind in _KINDS), app) if name in listed]
        if not names:
            return cls()
        given = listed[names[0]]
        said: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {"allowed": given}
        allowed, default = said.get("allowed"), said.get("default")
        if len(names) > 1 or not said.keys() <= _MEMBERS or not isinstance(allowed, (list, tuple)):
            raise _refused()
        if len(allowed) > MOST_ACCOUNTS:
            raise _refused()
        if not all(name == "" or is_account(name) for name in allowed) or default not in {None, *allowed}:
            raise _refused()
        return cls(tuple(dict.fromkeys(allowed)), default)

    def chosen(self, named: str | None) -> str:
        """Return the account that a call gets. Raises `accountForbidden`, `accountRequired`."""
        account = self.default if named is None else named
        if account is None and len(self.allowed) > 1:
            raise BrokerError(Code.ACCOUNT_REQUIRED)
        if account is None:
            account = next(iter(self.allowed), None)
        if account is None or account not in self.allowed:
            raise BrokerError(Code.ACCOUNT_FORBIDDEN)
        return account


def check_accounts(listed: object) -> None:
    """Check the `accounts` of a turn's `auth`. Raises `accountsInvalid`."""
    if not isinstance(listed, Mapping) or not all(isinstance(name, str) and name for name in listed):
        raise _refused()
    for name in listed:
        Accounts.of({name: listed[name]}, name)


def check_apps_of_accounts(listed: Mapping[str, Any], apps: Container[str]) -> None:
    """Check that all apps are configured: a list under a misspelt name would be ignored. Raises `accountsInvalid`."""
    for name in listed:
        kind, _, app = name.partition("/")
        if (app if kind in _KINDS else name) not in apps:
            raise _refused("an app that is not configured", "unknown")


def is_account(text: object) -> bool:
    """Tell whether it can name an account: up to 128 printable characters, with no blank at either end."""
    return isinstance(text, str) and 0 < len(text) <= LONGEST and text.isprintable() and text == text.strip()


def _refused(note: str = "a list of another form", problem: str = "value") -> BrokerError:
    """Return the error, with the place of the accounts in a request of the API."""
    error = BrokerError(Code.ACCOUNTS_INVALID, note=note)
    error.errors = ({"pointer": "/turn/auth/accounts", "problem": problem},)
    return error
