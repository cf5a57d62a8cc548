"""The lines of an import that hold a static credential: `credential`, and `next` for the second slot. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.owner_check import spelling
from oauthbroker.model.static_credential import packed

SLOTS = ("credential", "next")
_TOKENS = ("refreshToken", "accessToken", "refreshTokenExpiresAt", "scopes", "account")
_PROBLEMS = {
    "missing": "is missing",
    "unknown": "is no field of the app",
    "long": "is too long",
    "characters": "is not of printable ASCII",
    "colon": "has a colon, which no username of Basic has",
    "pattern": "does not have the form that the app's fields.{name}.pattern asks for",
}


def form_problems(members: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of the types of a line's slots."""
    for slot in SLOTS:
        values = members.get(slot, {})
        if not (isinstance(values, dict) and all(isinstance(each, str) for each in values.values())):
            yield f"{slot} is not an object of texts"
    if not isinstance(members.get("unverified", False), bool):
        yield "unverified is not true or false"


def credential_problems(app: App, members: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a line's slots for this app, by the names of fields, without a value."""
    given = [slot for slot in SLOTS if slot in members]
    if app.credential is None:
        yield from (f"{slot} is for a CredentialApp, and {app.name} is an OAuthApp" for slot in given)
        if "unverified" in members:
            yield "unverified is for a CredentialApp. Leave it out."
        return
    if not given:
        names = ", ".join(each.name for each in app.credential.fields)
        yield f"credential is missing. Give an object with {names}."
    for name in _TOKENS:
        if name in members:
            yield f"{name} is of no use for a CredentialApp. Leave it out."
    for slot in given:
        for name, problem in app.credential.problems(_trimmed(members[slot])).items():
            named = f"{slot}.{name}" if problem != "unknown" else f"a name in {slot}"
            yield f"{named} {_PROBLEMS[problem].format(name=name)}"


def is_of_team(app: App, subject: str) -> bool:
    """Tell whether it is a team, to whose credential the app's users fall back: no account of a user is spelt so."""
    rule, credential = app.owner.user_identity, app.credential
    is_shared = credential is not None and credential.team_fallback
    return is_shared and rule is not None and spelling(rule.template).fullmatch(subject) is None


def slot_of(members: Mapping[str, Any], slot: str) -> Secret | None:
    """Return the values of a slot as one secret text."""
    return packed(_trimmed(members[slot])) if slot in members else None


def _trimmed(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values without their outer blanks, as the page with the fields stores them."""
    return {name: value.strip() for name, value in values.items()}
