"""Parse the members of a token answer, one rule each (RFC 6749 section 5.1 and providers' deviations)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import parse_qsl

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret, is_named_like_a_secret
from oauthbroker.core.strict_json import Json, decode_json
from oauthbroker.model.apps import App
from oauthbroker.model.provider_habits import NOT_BEARER, LifetimeForm, TokenMember
from oauthbroker.protocol.answer_checks import is_json, lookup, not_ok, said_by
from oauthbroker.protocol.messages import ProviderResponse

YEAR_SECONDS = 365 * 24 * 3600
MAX_SCOPES = 1000
MAX_TOKEN = 64 * 1024  # no header carries more
_TOKEN = re.compile(r"[\x21-\x7e]+")  # what a Bearer header can carry in one piece (RFC 6750 section 2.1)
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # scope-token, RFC 6749 section 3.3
_DIGITS = re.compile(r"[0-9]{1,20}")
_TOKENS: Final[tuple[TokenMember, ...]] = ("access_token", "refresh_token", "id_token")
_NOTHING: Final[tuple[Json, ...]] = (None, False, 0, "", [], {})
_FAR = 10**15  # the year 33658 in milliseconds; larger numbers overflow floats
FORM = "application/x-www-form-urlencoded"


def body_members(app: App, answer: ProviderResponse, *, any_label: bool = False) -> dict[str, Json]:
    """Return the answer's members: JSON labelled as JSON, or a form where the app's profile says so. `any_label`
    ignores the label, for reading errors. Raises `tokenResponseInvalid`."""
    form = app.habits.token_response_format == "form"
    if any_label:
        form = form and answer.media_type == FORM
    elif not (answer.media_type == FORM if form else is_json(answer)):
        raise _invalid("the answer has an unexpected media type")
    if form:
        return _form_members(answer.body)
    found = decode_json(answer.body, Code.TOKEN_RESPONSE_INVALID)
    if app.habits.token_response_format == "list":
        found = the_one(found)
    if not isinstance(found, dict):
        raise _invalid("the answer is not a JSON object")
    return found


def the_one(found: Json) -> Json:
    """Return the element of a list of one, and other values as they are."""
    return found[0] if isinstance(found, list) and len(found) == 1 else found


def token_members(app: App, members: Mapping[str, Json], *, refreshed: bool = False) -> Mapping[str, Json]:
    """Return the object that holds the tokens, under RFC 6749's names: the answer itself, or the object at the
    profile's `tokenPath` (`refreshTokenPath` where the answer to a refresh differs)."""
    found = _at_token_path(app, members, refreshed)
    return {**found, **{ours: found.get(theirs) for ours, theirs in app.habits.token_names.items()}}


def check_usable_as_bearer(app: App, members: Mapping[str, Json], *, refreshed: bool = False) -> None:
    """Raise `tokenResponseInvalid` where the answer itself calls the token bound to a key, or no access token. No
    profile overrules it: one that names another member for the type, or none, would hand such a token out as Bearer."""
    for stated in (members.get("token_type"), _at_token_path(app, members, refreshed).get("token_type")):
        if isinstance(stated, str) and stated.strip().lower() in NOT_BEARER:
            raise _invalid("a token type that was not asked for")


def _at_token_path(app: App, members: Mapping[str, Json], refreshed: bool) -> Mapping[str, Json]:  # noqa: FBT001
    habits = app.habits
    again = habits.refresh_token_path if refreshed else None
    found: Any = members
    for step in habits.token_path if again is None else again:
        if step == "0" and isinstance(found, list):
            found = the_one(found)
        else:
            found = found.get(step) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        raise _invalid("nothing lies at the token path")
    return found


def tells_error(app: App, members: Mapping[str, Json]) -> bool:
    """Tell whether an answer with any status is an error: `error` is present, `ok` is not true, one of the profile's
    `errorMembers` has a value, or one of its `okMembers` has another one than in a success."""
    ok = app.habits.ok_members
    said = said_by(ok) if ok else ()
    if ("error" in members and "error" not in said) or ("ok" not in said and members.get("ok", True) is not True):
        return True
    if any(lookup(dict(members), path) not in _NOTHING for path in app.habits.error_members):
        return True
    return bool(ok and not_ok(ok, members))


def error_word(app: App, members: Mapping[str, Json]) -> str:
    """Return RFC 6749's error word (section 5.2) where the profile maps to one, else the provider's own word.
    Compare it, never show it. Empty if there is none. The profile's `errorMembers` and `okMembers` come first."""
    for path in (*app.habits.error_members, *not_ok(app.habits.ok_members, members), "error"):
        value = lookup(dict(members), path)
        if isinstance(value, int) and value not in _NOTHING:
            value = str(value)
        if isinstance(value, str) and value:
            return app.habits.error_words.get(value, value)
    return ""


def refusal_word(app: App, answer: ProviderResponse) -> str:
    """Return the `error_word_of` an answer with the status 200 or 4xx; empty for any other."""
    return error_word_of(app, answer) if answer.status == 200 or 400 <= answer.status < 500 else ""


def error_word_of(app: App, answer: ProviderResponse) -> str:
    """Return the error word of an answer with any status, read leniently: an error never yields tokens. Empty if there
    is none or the body cannot be read."""
    try:
        return error_word(app, body_members(app, answer, any_label=True))
    except Exception:  # noqa: BLE001 - an answer that breaks its reader says no word
        return ""


def optional_token(members: Mapping[str, Json], name: str) -> Secret | None:
    """Return a token of visible ASCII. None for an absent member, null and ""."""
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


def states_lifetime(app: App, members: Mapping[str, Json]) -> bool:
    """Tell whether the answer itself states when the token ends. The app's default is our assumption."""
    return members.get(app.habits.lifetime_field) is not None and app.habits.lifetime_form != "none"


def lifetime_of(app: App, members: Mapping[str, Json], date: datetime | None = None) -> int | None:
    """Return `expires_in` in whole seconds, 0..one year; the app's default when absent (case 28).

    Accepts a number or a string of digits. Other members are read only if the profile names one and its form: `iso` is
    ISO 8601 with a zone, `date` any usual date, in UTC where it names no zone. An expiry time is measured from the
    answer's own `date`, so both clocks may be off. The form `none` ignores the provider's figure, such as 0 for tokens
    that never expire.
    """
    value, form = members.get(app.habits.lifetime_field), app.habits.lifetime_form
    if not states_lifetime(app, members):
        return app.habits.default_lifetime_seconds
    seconds = _moment(value, form) if form in {"iso", "date"} else _number(value)
    if form in {"milliseconds", "epochMilliseconds"}:
        seconds /= 1000
    seconds *= {"minutes": 60, "hours": 3600}.get(form, 1)
    if form in {"epochSeconds", "epochMilliseconds", "iso", "date"}:
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


def _moment(value: Json, form: LifetimeForm) -> float:
    """Parse ISO 8601 with a zone: without one the time is ambiguous by up to 27 hours. The form `date` takes that as
    UTC, and the date of HTTP too (RFC 9110 section 5.6.7); a day alone is none."""
    moment: datetime | None = None
    readers = (datetime.fromisoformat, parsedate_to_datetime) if form == "date" else (datetime.fromisoformat,)
    for read in readers if isinstance(value, str) and ":" in value else ():
        with suppress(ValueError, TypeError, OverflowError):
            moment = moment or read(value)
    if moment is not None and form == "date":
        moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    if moment is None or moment.tzinfo is None:
        raise _invalid("the lifetime is not a time of day")
    return moment.timestamp()


def scopes_of(app: App, members: Mapping[str, Json]) -> tuple[str, ...] | None:
    """Return `scope` in the provider's order, each once; None when absent (case 31).

    A text is split by the app's separator for answers; a JSON array of texts is taken as it is. Everything else is
    invalid: characters outside RFC 6749 section 3.3 (quotes, look-alikes), or more than a thousand scopes.
    """
    value = members.get("scope")
    separator = app.habits.answer_scope_separator or app.habits.scope_separator
    if value is None:
        return None
    if isinstance(value, str):
        value = [scope for part in value.split(separator) if (scope := part.strip(" "))]
    if not isinstance(value, list) or len(value) > MAX_SCOPES:
        raise _invalid("scope is not a list of scopes")
    if not all(isinstance(scope, str) and _SCOPE.fullmatch(scope) for scope in value):
        raise _invalid("scope holds something that is not a scope")
    return tuple(dict.fromkeys(value))


def facts_of(app: App, members: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the answer without its tokens, also under the profile's names for them."""
    names = app.habits.token_names
    hidden = frozenset(names[member] for member in _TOKENS if member in names)
    facts: Mapping[str, Json] = public_facts(dict(members), hidden)
    return facts


def public_facts(value: Json, hidden: frozenset[str] = frozenset()) -> Json:
    """Return the tree without every member whose name is in `hidden` or looks like a secret's, at any depth."""
    if isinstance(value, dict):
        return {
            name: public_facts(item, hidden)
            for name, item in value.items()
            if not (name in hidden or is_named_like_a_secret(name))
        }
    if isinstance(value, list):
        return [public_facts(item, hidden) for item in value]
    return value


def _form_members(body: bytes) -> dict[str, Json]:
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError:
        pairs = []
    members = dict(pairs)
    if not members or len(members) != len(pairs) or body.startswith((b"{", b"[")):  # JSON with a `=` in a token
        raise _invalid("the answer is not a form")
    return members


def _invalid(note: str) -> BrokerError:
    return BrokerError(Code.TOKEN_RESPONSE_INVALID, note=note)
