"""The members of a token answer, one rule each (RFC 6749 section 5.1 and what providers make of it)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final
from urllib.parse import parse_qsl

from oauthbroker.apps import OAuthApp, TokenMember
from oauthbroker.errors import BrokerError, Code
from oauthbroker.protocol.answers import is_json, lookup
from oauthbroker.protocol.messages import Answer
from oauthbroker.secret import Secret, is_named_like_a_secret
from oauthbroker.strict_json import decode_leniently, decode_object
from oauthbroker.turn import Json

YEAR_SECONDS = 365 * 24 * 3600
MAX_SCOPES = 1000
MAX_TOKEN = 64 * 1024  # no header carries more
_TOKEN = re.compile(r"[\x21-\x7e]+")  # what a Bearer header can carry in one piece (RFC 6750 section 2.1)
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # scope-token, RFC 6749 section 3.3
_DIGITS = re.compile(r"[0-9]{1,20}")
_TOKENS: Final[tuple[TokenMember, ...]] = ("access_token", "refresh_token", "id_token")
_NOTHING: Final[tuple[Json, ...]] = (None, False, 0, "", [], {})
_FAR = 10**15  # of any form, both ways: the year 33658 in milliseconds. Beyond it, floats overflow
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


def salvaged_members(app: OAuthApp, answer: Answer) -> Mapping[str, Json]:
    """Return the members of an answer that is refused, with any label and any numbers: only to save a token from
    it. Any exception means that there are none."""
    if app.habits.token_response_format == "form":
        with suppress(BrokerError):
            return _form_members(answer.body)
    members: Mapping[str, Json] = decode_leniently(answer.body)
    return members


def token_members(app: OAuthApp, members: Mapping[str, Json], *, refreshed: bool = False) -> Mapping[str, Json]:
    """The object that holds the tokens, under RFC 6749's names: the answer itself, or what lies at the profile's
    `tokenPath` (`refreshTokenPath` where the answer to a refresh differs)."""
    habits = app.habits
    again = habits.refresh_token_path if refreshed else None
    found: Any = members
    for step in habits.token_path if again is None else again:
        found = found.get(step) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        raise _invalid("nothing lies at the token path")
    return {**found, **{ours: found.get(theirs) for ours, theirs in habits.token_names.items()}}


def tells_error(app: OAuthApp, members: Mapping[str, Json]) -> bool:
    """Whether an answer says "no", whatever its status: `error` is there, `ok` is not true, or one of the profile's
    `errorMembers` says something."""
    if "error" in members or members.get("ok", True) is not True:
        return True
    return any(lookup(dict(members), path) not in _NOTHING for path in app.habits.error_members)


def error_word(app: OAuthApp, members: Mapping[str, Json]) -> str:
    """The error as RFC 6749 section 5.2 spells it where the profile knows that, else the provider's own word: for
    comparing, never for showing. Empty if there is none. The profile's `errorMembers` are looked at first."""
    for path in (*app.habits.error_members, "error"):
        value = lookup(dict(members), path)
        if isinstance(value, int) and value not in _NOTHING:
            value = str(value)
        if isinstance(value, str) and value:
            return app.habits.error_words.get(value, value)
    return ""


def refusal_word(app: OAuthApp, answer: Answer) -> str:
    """The error's word of an answer that is no success, read leniently: nothing is accepted from it. Empty if there is
    none, or no way to read it."""
    try:
        return error_word(app, body_members(app, answer, any_label=True))
    except Exception:  # noqa: BLE001 - an answer that breaks its reader says no word
        return ""


def optional_token(members: Mapping[str, Json], name: str) -> Secret | None:
    """A token of visible ASCII. Absent, null and "" are all "none"."""
    value = members.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > MAX_TOKEN or not _TOKEN.fullmatch(value):
        raise _invalid(f"the {name.replace('_', ' ')} is not a token")
    return Secret(value)


def text_of(members: Mapping[str, Json], name: str) -> str | None:
    value = members.get(name)
    if value is not None and not isinstance(value, str):
        raise _invalid(f"the {name.replace('_', ' ')} is not text")
    return value or None


def lifetime_of(app: OAuthApp, members: Mapping[str, Json], date: datetime | None = None) -> int | None:
    """`expires_in` in whole seconds, 0..one year; the app's default when absent. Case 28.

    A number or a string of digits; no other member is looked at, unless the profile names one and its form. A time
    of day is counted from the answer's own `date`, so that neither clock has to be right. The form `none` is that of
    a provider whose figure means nothing, such as 0 for tokens that do not end.
    """
    value, form = members.get(app.habits.lifetime_field), app.habits.lifetime_form
    if value is None or form == "none":
        return app.habits.default_lifetime_seconds
    seconds = _moment(value) if form == "iso" else _number(value)
    if form in {"milliseconds", "epochMilliseconds"}:
        seconds /= 1000
    if form in {"epochSeconds", "epochMilliseconds", "iso"}:
        if date is None:
            raise _invalid("the lifetime ends at a time of day, and the answer has no date")
        seconds -= date.timestamp()
    return int(min(max(seconds, 0), YEAR_SECONDS))


def _number(value: Json) -> float:
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _invalid("the lifetime is not a number")
    return max(min(value, _FAR), -_FAR)


def _moment(value: Json) -> float:
    """ISO 8601 with its zone: without one it could mean any of 27 hours."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _invalid("the lifetime is not a time of day")
    return moment.timestamp()


def scopes_of(app: OAuthApp, members: Mapping[str, Json]) -> tuple[str, ...] | None:
    """`scope` in the provider's order, each once; None when absent. Case 31.

    Text is split by the app's separator for answers; a JSON array of texts is taken as it is. Everything else is junk:
    characters outside RFC 6749 section 3.3 (quotes, look-alikes), or more than a thousand.
    """
    value = members.get("scope")
    separator = app.habits.answer_scope_separator or app.habits.scope_separator
    if value is None:
        return None
    if isinstance(value, str):
        value = [part.strip(" ") for part in value.split(separator)]
        value = [part for part in value if part]
    if not isinstance(value, list) or len(value) > MAX_SCOPES:
        raise _invalid("scope is not a list of scopes")
    if not all(isinstance(scope, str) and _SCOPE.fullmatch(scope) for scope in value):
        raise _invalid("scope holds something that is not a scope")
    return tuple(dict.fromkeys(value))


def facts_of(app: OAuthApp, members: Mapping[str, Json]) -> Mapping[str, Json]:
    """The answer without its tokens, also where the profile calls them otherwise."""
    names = app.habits.token_names
    hidden = frozenset(names[member] for member in _TOKENS if member in names)
    return {name: public_facts(item, hidden) for name, item in members.items() if not _is_secret(name, hidden)}


def public_facts(value: Json, hidden: frozenset[str] = frozenset()) -> Json:
    """The same tree without every member whose name is `hidden` or looks like a secret's, at any depth."""
    if isinstance(value, dict):
        return {name: public_facts(item, hidden) for name, item in value.items() if not _is_secret(name, hidden)}
    if isinstance(value, list):
        return [public_facts(item, hidden) for item in value]
    return value


def _is_secret(name: str, hidden: frozenset[str]) -> bool:
    return name in hidden or is_named_like_a_secret(name)


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
