"""The members of a token answer, one rule each (RFC 6749 section 5.1 and what providers make of it)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from oauthbroker.apps import OAuthApp
from oauthbroker.errors import BrokerError, Code
from oauthbroker.protocol.answers import is_json
from oauthbroker.protocol.messages import Answer
from oauthbroker.protocol.strict_json import decode_object
from oauthbroker.secret import Secret
from oauthbroker.turn import Json

YEAR_SECONDS = 365 * 24 * 3600
MAX_SCOPES = 1000
_TOKEN = re.compile(r"[\x21-\x7e]+")  # what a Bearer header can carry in one piece (RFC 6750 section 2.1)
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # scope-token, RFC 6749 section 3.3
_DIGITS = re.compile(r"[0-9]{1,20}")
_SECRET_NAME = re.compile(r"token(?!_type$)|secret|password|assertion|^code$", re.IGNORECASE)
FORM = "application/x-www-form-urlencoded"


def body_members(app: OAuthApp, answer: Answer, *, any_label: bool = False) -> dict[str, Json]:
    """The answer's members. JSON labelled as JSON, or a form where the app's profile says so; `any_label` lets
    the label differ, for reading errors. Raises `tokenResponseInvalid`."""
    form = app.habits.token_response_format == "form"
    if any_label:
        form = form and answer.media_type == FORM
    elif not (answer.media_type == FORM if form else is_json(answer)):
        raise _invalid("the answer is not labelled as what was agreed")
    return _form_members(answer.body) if form else decode_object(answer.body, Code.TOKEN_RESPONSE_INVALID)


def token_members(app: OAuthApp, members: Mapping[str, Json]) -> Mapping[str, Json]:
    """The object that holds the tokens: the answer itself, or what lies at the profile's `tokenPath`."""
    found: Any = members
    for step in app.habits.token_path:
        found = found.get(step) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        raise _invalid("nothing lies at the token path")
    return found


def optional_token(members: Mapping[str, Json], name: str) -> Secret | None:
    """A token of visible ASCII. Absent, null and "" are all "none"."""
    value = members.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise _invalid(f"the {name.replace('_', ' ')} is not a token")
    return Secret(value)


def text_of(members: Mapping[str, Json], name: str) -> str | None:
    value = members.get(name)
    if value is not None and not isinstance(value, str):
        raise _invalid(f"the {name.replace('_', ' ')} is not text")
    return value or None


def lifetime_of(app: OAuthApp, members: Mapping[str, Json]) -> int | None:
    """`expires_in` in whole seconds, 0..one year; the app's default when absent. Case 28.

    A number or a string of digits; nothing else, and no other member (`expires_at`) is looked at.
    """
    value = members.get("expires_in")
    if value is None:
        return app.habits.default_lifetime_seconds
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _invalid("expires_in is not a number of seconds")
    return int(min(max(value, 0), YEAR_SECONDS))


def scopes_of(app: OAuthApp, members: Mapping[str, Json]) -> tuple[str, ...] | None:
    """`scope` in the provider's order, each once; None when absent. Case 31.

    Text is split by the app's `scopeSeparator`; a JSON array of texts is taken as it is. Everything else is junk:
    characters outside RFC 6749 section 3.3 (quotes, look-alikes), or more than a thousand.
    """
    value = members.get("scope")
    if value is None:
        return None
    if isinstance(value, str):
        value = [part.strip(" ") for part in value.split(app.habits.scope_separator)]
        value = [part for part in value if part]
    if not isinstance(value, list) or len(value) > MAX_SCOPES:
        raise _invalid("scope is not a list of scopes")
    if not all(isinstance(scope, str) and _SCOPE.fullmatch(scope) for scope in value):
        raise _invalid("scope holds something that is not a scope")
    return tuple(dict.fromkeys(value))


def public_facts(value: Json) -> Json:
    """The same tree without every member whose name looks like a secret's, at any depth."""
    if isinstance(value, dict):
        return {name: public_facts(item) for name, item in value.items() if not _SECRET_NAME.search(name)}
    if isinstance(value, list):
        return [public_facts(item) for item in value]
    return value


def _form_members(body: bytes) -> dict[str, Json]:
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError:
        pairs = []
    members = dict(pairs)
    if not members or len(members) != len(pairs):
        raise _invalid("the answer is not a form")
    return members


def _invalid(note: str) -> BrokerError:
    return BrokerError(Code.TOKEN_RESPONSE_INVALID, note=note)
