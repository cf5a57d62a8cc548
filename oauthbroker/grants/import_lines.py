"""Grants of another system, one JSON object a line: read, and checked before anything is written. Pure.

All problems are reported at once, by line and in words of ours. No value is ever repeated.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO

from oauthbroker.access.turns import UnknownApp
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.strict_json import decode_object
from oauthbroker.grants.import_credentials import SLOTS, credential_problems, form_problems, slot_of
from oauthbroker.grants.import_owner import connect_params, owner_problems
from oauthbroker.grants.line_cutter import MOST_BYTES, lines_of
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey, grant_id
from oauthbroker.model.token_request import app_name, call_ref

MOST_LINES = 200_000
MOST_PROBLEMS = 500
MOST_SCOPES = 1000
SLACK = timedelta(minutes=5)
_ALONE = ": write the account alone, such as slack:user:T111:U1"
_TEXTS = (
    "app", "subject", "refreshToken", "accessToken", "expiresAt", "account", "connection", "grantedAt",
    "refreshTokenExpiresAt",
)  # fmt: skip
_OTHERS = ("connectParams", "scopes", *SLOTS, "unverified")
_NEEDED = frozenset({"app", "subject"})
_TOKEN = re.compile(r"[\x21-\x7e]{1,32768}")
_EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class LineProblem:
    """One thing to fix in the file."""

    line: int
    what: str

    def to_json(self) -> dict[str, Any]:
        return {"line": self.line, "what": self.what}


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """One line that may become a grant. `scopes` are the app's own words for them, in its order; `params` are the
    values of its connectParams. The access token of a CredentialApp is its packed credential; `unverified`: its author
    wants it stored without a check."""

    line: int
    app: str
    subject: str
    refresh_token: Secret | None = None
    access_token: Secret | None = None
    next_credential: Secret | None = None
    unverified: bool = False
    expires_at: datetime | None = None
    scopes: tuple[str, ...] = ()
    account: str | None = None
    granted_at: datetime | None = None
    refresh_expires_at: datetime | None = None
    mark: str = field(default="", repr=False)
    connection: str = ""
    params: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> GrantKey:
        return GrantKey(self.app, self.subject, self.connection)


@dataclass(slots=True)
class CheckedLines:
    """A whole file: the lines that may be written, and the problems to fix first."""

    incoming: list[Incoming] = field(default_factory=list)
    problems: list[LineProblem] = field(default_factory=list)


def validate(
    stream: BinaryIO,
    apps: Mapping[str, App],
    now: datetime,
    *,
    app: str | None = None,
    most_problems: int = MOST_PROBLEMS,
) -> CheckedLines:
    """Read the stream to its end, and check every line."""
    checked, checks = CheckedLines(), LineChecks(apps, now, app)
    for number, data in lines_of(stream):
        if len(checked.problems) >= most_problems:
            checked.problems.append(LineProblem(number, f"more than {most_problems} problems. Fix these first."))
            break
        found = checks.check(number, data)
        if isinstance(found, Incoming):
            checked.incoming.append(found)
        else:
            checked.problems += [LineProblem(number, what) for what in found]
    return checked


class LineChecks:
    """Checks the lines of one import. `app` is that of every line; a line may repeat it, or leave it out then.

    (1) one JSON object a line, with known fields only (2) an app that people connect, named as token calls name it
    (3) a subject as the app's owner rule spells them (4) scopes within the app's (5) tokens and times of a sane form
    (6) each grant once.
    """

    def __init__(self, apps: Mapping[str, App], now: datetime, app: str | None = None) -> None:
        self._apps, self._now, self._app = apps, now, app
        self._seen = dict[bytes, int]()  # digests: 200,000 subjects of a kilobyte would be a lot of memory

    def check(self, number: int, data: bytes) -> Incoming | list[str]:
        """Return the grant that the line may become, or its problems."""
        found = _read(number, data, self._apps, self._now, self._app)
        if not isinstance(found, Incoming):
            return found
        first = self._seen.setdefault(bytes.fromhex(grant_id(*found.key).removeprefix("sha256:")), number)
        return found if first == number else [f"the same app, subject and connection as line {first}. Keep one."]


def _read(number: int, data: bytes, apps: Mapping[str, App], now: datetime, of_app: str | None) -> Incoming | list[str]:
    if number > MOST_LINES:
        return [f"more than {MOST_LINES} lines. Cut the file into several."]
    if len(data) > MOST_BYTES:
        return [f"longer than {MOST_BYTES // 1024} KiB"]
    try:
        members = dict(decode_object(data, Code.REQUEST_INVALID))
    except BrokerError:
        return ["not one JSON object, in UTF-8, each name once"]
    ref = members.get("app")
    try:
        members |= {"app": app_name(members["app"])} if "app" in members else {}
    except BrokerError:
        return ["app names no OAuthApp or CredentialApp"]
    if of_app is not None and members.setdefault("app", of_app) != of_app:
        return [f"another app than {of_app}, which --app names"]
    problems = _problems_of_form(members)
    name = str(members.get("app"))
    app = apps.get(name)
    if problems or app is None:
        return problems or [UnknownApp(name, apps).message()]
    try:
        call_ref(app.name if ref is None else ref, apps=apps)
    except BrokerError:
        return [f"app has another kind than {app.name}, which is a {app.kind}"]
    return _incoming(number, members, app, now)


def _problems_of_form(members: Mapping[str, Any]) -> list[str]:
    problems = []
    if set(members) - {*_TEXTS, *_OTHERS}:
        problems.append(f"a field that is not known. Use {', '.join((*_TEXTS, *_OTHERS))}.")
    problems += [f"{name} is missing" for name in sorted(_NEEDED - set(members))]
    problems += form_problems(members)
    not_text = [name for name in _TEXTS if name in members and not isinstance(members[name], str)]
    problems += [f"{name} is not text{_ALONE if name == 'subject' else ''}" for name in not_text]
    scopes = members.get("scopes", [])
    if not (isinstance(scopes, list) and len(scopes) <= MOST_SCOPES and all(isinstance(it, str) for it in scopes)):
        problems.append("scopes is not a list of texts")
    params = members.get("connectParams", {})
    if not (isinstance(params, dict) and all(isinstance(it, str) for it in params.values())):
        problems.append("connectParams is not an object of texts")
    return problems


def _incoming(number: int, members: Mapping[str, Any], app: App, now: datetime) -> Incoming | list[str]:
    scopes, foreign = _scopes(app, members.get("scopes"))
    problems, moments = [*owner_problems(app, members), *credential_problems(app, members)], dict[str, datetime]()
    problems += _problems_of_tokens(members) if app.credential is None else ()
    for name in (name for name in ("expiresAt", "grantedAt", "refreshTokenExpiresAt") if name in members):
        try:
            moments[name] = _moment(members[name])
        except (ValueError, OverflowError):
            problems.append(f"{name} is not a time with its zone, like 2026-02-01T09:00:00Z")
    if foreign and app.credential is None:
        problems.append(f"{foreign} scopes that the app does not have, or that are named twice")
    if moments.get("grantedAt", now) > now + SLACK:
        problems.append("grantedAt is in the future")
    if "refreshToken" not in members and moments.get("expiresAt", now + SLACK) <= now:
        problems.append("the access token has ended, and there is no refreshToken. Leave the line out.")
    if problems:
        return problems
    refresh, access = members.get("refreshToken"), members.get("accessToken")
    return Incoming(
        line=number,
        app=app.name,
        subject=members["subject"],
        refresh_token=Secret(refresh) if refresh is not None else None,
        access_token=Secret(access) if access is not None else slot_of(members, "credential"),
        next_credential=slot_of(members, "next"),
        unverified=members.get("unverified", False),
        expires_at=moments.get("expiresAt"),
        scopes=scopes,
        account=members.get("account"),
        granted_at=moments.get("grantedAt"),
        refresh_expires_at=moments.get("refreshTokenExpiresAt"),
        mark=_mark(members),
        connection=members.get("connection", ""),
        params=connect_params(app, members),
    )


def _problems_of_tokens(members: Mapping[str, Any]) -> Iterator[str]:
    if members.keys().isdisjoint(("refreshToken", "accessToken")):
        yield "refreshToken and accessToken are missing. Give one of them, or both."
        return
    for name in ("refreshToken", "accessToken"):
        if name in members and not _TOKEN.fullmatch(members[name]):
            yield f"{name} is empty, too long, or not of visible ASCII"
    if "expiresAt" in members and "accessToken" not in members:
        yield "expiresAt without accessToken"
    if "refreshTokenExpiresAt" in members and "refreshToken" not in members:
        yield "refreshTokenExpiresAt without refreshToken"


def _scopes(app: App, said: list[str] | None) -> tuple[tuple[str, ...], int]:
    """Return (the app's own scopes, in its order; how many are not the app's). Without scopes, all of the app's."""
    if said is None:
        return app.scopes, 0
    ours = [app.habits.scope_aliases.get(scope, scope) for scope in said]
    wanted = [scope for scope in ours if scope in app.scope_set or scope not in app.habits.always_scopes]
    kept = tuple(scope for scope in app.scopes if scope in wanted)
    return kept, len(wanted) - len(kept)


def _moment(text: str) -> datetime:
    """Parse a time. Raises ValueError or OverflowError for another text, and for a time without a zone or long ago."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or moment.astimezone(UTC) < _EARLIEST:
        raise ValueError(text)
    return moment.astimezone(UTC)


def _mark(members: Mapping[str, Any]) -> str:
    """Return a digest of everything in the line, however it is written: the same line again is the same grant."""
    digest = hashlib.sha256()
    for name in sorted(members.keys() - {"unverified"}):  # the same line without it is checked then
        value = members[name]
        parts = value if isinstance(value, list) else [value]
        if isinstance(value, dict):
            parts = [text for pair in sorted(value.items()) for text in pair]
        for part in (name, *parts):
            data = part.encode()
            digest.update(len(data).to_bytes(8, "big") + data)
        digest.update(b"\xff")
    return digest.hexdigest()
