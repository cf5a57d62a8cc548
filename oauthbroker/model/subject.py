"""Whose token it is: read from the turn, never from the tool's word (specification 12.5.1, rule 1)."""

from __future__ import annotations

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.accounts import Accounts
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.identities import is_subject
from oauthbroker.model.turn import Turn


def resolve_subject(app: App, turn: Turn) -> str:
    """Return the subject that `app.subject_mode` picks in a whole turn, byte for byte as the runtime gave it.

    Raises `subjectUnavailable` when the turn has none; user mode never falls back to global.
    """
    subject = turn.auth.subjects.get(app.subject_mode) if turn.auth is not None else None
    if not isinstance(subject, str) or not is_subject(subject):
        raise BrokerError(Code.SUBJECT_UNAVAILABLE, mode=app.subject_mode)
    return subject


def resolve_key(app: App, turn: Turn, account: str | None = None) -> GrantKey:
    """Return the key of the grant that a call means: of the turn's subject, and of one of the accounts that the turn
    lists. None: the only one, or the default.

    Raises `subjectUnavailable`; `accountForbidden` for an account that is not listed, or of an app with one account;
    `accountRequired` where several are listed and none is the default.
    """
    subject, listed = resolve_subject(app, turn), turn.auth.accounts if turn.auth is not None else {}
    if not listed and not account:  # nearly every call
        return GrantKey(app.name, subject)
    chosen = Accounts.of(listed, app.name).chosen(account)
    if chosen and not app.has_accounts:
        raise BrokerError(Code.ACCOUNT_FORBIDDEN, note="the app has one account for each subject")
    return GrantKey(app.name, subject, chosen)


def allowed_accounts(app: App, turn: Turn) -> tuple[str, ...]:
    """Return the accounts of the app that the turn may use. Raises `accountsInvalid`."""
    return Accounts.of(turn.auth.accounts if turn.auth is not None else {}, app.name).allowed
