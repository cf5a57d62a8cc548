"""Whose grant an imported line is: its subject, account and connection, checked against the app's owner rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from oauthbroker.core.errors import BrokerError
from oauthbroker.grants.import_credentials import is_of_team
from oauthbroker.model.accounts import is_account
from oauthbroker.model.apps import App, IdentityRule
from oauthbroker.model.connect_params import texts_of, values_of
from oauthbroker.model.identities import is_subject
from oauthbroker.model.owner_check import knows_by_sub, spelling


def owner_problems(app: App, members: Mapping[str, Any]) -> Iterator[str]:
    subject, rule = members["subject"], _rule(app)
    is_compared = app.subject_mode == "global" or app.owner.binding == "providerIdentity"
    is_compared = is_compared and not is_of_team(app, subject)
    if app.flow == "clientCredentials":
        yield "the app asks for itself, and needs no user's grant. Leave the line out."
    elif not is_subject(subject) or not subject.isprintable():
        yield "subject is empty, too long or unprintable"
    elif rule is not None and is_compared and not spelling(rule.template).fullmatch(subject):
        yield f"subject is not spelt as the app's owner.identity.{app.subject_mode} spells them: {rule.template}"
    if problem := _connection_problem(app, members):
        yield problem
    account = members.get("account")
    if account is not None and not knows_by_sub(app):
        yield "account is of no use for this app, which knows its accounts by their subject. Leave it out."
    elif account is not None and not (0 < len(account) <= 512 and account.isprintable()):
        yield "account is empty, too long or unprintable"


def _connection_problem(app: App, members: Mapping[str, Any]) -> str:
    """Return the problem of the account that a line is for, empty without one."""
    connection, typed = members.get("connection", ""), members.get("connectParams", {})
    if app.connect_params:
        names = ", ".join(it.name for it in app.connect_params)
        if bool(connection) == bool(typed):
            return f"not one of connection and connectParams. Give one, with the value of {names}."
        try:
            found = texts_of(app.connect_params, connect_params(app, members))
        except BrokerError:
            found = None
        return "" if found is not None else f"no value of connectParams: {names}. Give one that the app takes."
    if typed:
        return "connectParams is of no use for this app, which has none. Leave it out."
    if connection and not app.several_accounts:
        return "connection is of no use for this app, which has one account for each subject. Leave it out."
    return "" if not connection or is_account(connection) else "connection is too long or unprintable"


def connect_params(app: App, members: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the parameters of a connection, which its name says, or a user typed. Raises `accountForbidden`."""
    typed: Mapping[str, str] = members.get("connectParams", {})
    return typed if typed or not app.connect_params else values_of(app.connect_params, members["connection"])


def _rule(app: App) -> IdentityRule | None:
    return app.owner.global_identity if app.subject_mode == "global" else app.owner.user_identity
