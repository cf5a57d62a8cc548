"""The request of `getAccessToken` (specification 12.5.1), as tools write it: here, and in the client."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from sys import float_info
from typing import Any, Protocol, TypeGuard

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.sentences import listed
from oauthbroker.model.accounts import is_account

REQUEST_FIELDS = frozenset({"oauthAppRef", "account", "scopes", "minTtlSeconds"})
MAX_TTL = 10 * 365 * 24 * 3600
REF_FIELDS = frozenset({"kind", "name", "apiVersion"})


_SCOPE = re.compile(r"[!#-\[\]-~]{1,200}")  # RFC 6749 section 3.3


class WrongArgument(BrokerError):
    """`requestInvalid` that says what one argument of a call has to be: `hint` is the sentence."""

    def __init__(self, hint: str, argument: str = "", problem: str = "value", *, most: str = "") -> None:
        super().__init__(Code.REQUEST_INVALID, note=argument, most=most)
        self.hint = hint
        self.errors = ({"pointer": f"/{argument}", "problem": problem},) if argument else ()


def checked_wait(seconds: object) -> float:
    """Return a number of seconds from 0. Raises `requestInvalid` for anything else."""
    if not is_seconds(seconds):
        raise WrongArgument("wait", "wait")
    return seconds


def is_seconds(seconds: object, *, most: float = float_info.max) -> TypeGuard[float]:
    """Tell whether this is a number from 0, and no infinite one."""
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds <= most


class NotScopes(WrongArgument):
    """`requestInvalid` for scopes that are no list."""

    def __init__(self) -> None:
        super().__init__("notScopes", "scopes", "type")


def scopes_listed(scopes: object) -> list[str]:
    """Return the scopes of a call. Raises `requestInvalid` unless they are a collection of texts."""
    if not isinstance(scopes, (list, tuple, set, frozenset)):
        raise NotScopes
    return list(scopes)


class ScopeNotAllowed(BrokerError):
    """`scopeNotAllowed` that names the scope that is too much, and those that the caller may request. Scopes are
    configuration, so a model may read them."""

    def __init__(self, wanted: Iterable[object], allowed: Iterable[str]) -> None:
        may = tuple(allowed)
        named = [scope if type(scope) is str and _SCOPE.fullmatch(scope) else "?" for scope in wanted]
        outside = next((scope for scope in named if scope not in may), "")
        super().__init__(Code.SCOPE_NOT_ALLOWED, scope=outside, allowed=listed(may))
        self.hint = ("scopesAllowed" if may else "noScopesAllowed") if outside else "scopeTwice"


class NeverHandedOut(BrokerError):
    """`requestInvalid` for a token call that names a CredentialApp, with the way to use it."""

    hint = "credential"

    def __init__(self) -> None:
        super().__init__(Code.REQUEST_INVALID, note="a static credential is injected, and never handed out")


class OtherKind(BrokerError):
    """`requestInvalid` for the name of an app with a kind that is not its own."""

    hint = "otherKind"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(Code.REQUEST_INVALID, note="oauthAppRef", kind=kind, name=name)
        self.errors = ({"pointer": "/oauthAppRef", "problem": "value"},)


def parse_request(
    request: Mapping[str, Any], apps: Mapping[str, Kinded] | None = None
) -> tuple[str, Sequence[str] | None, int | None]:
    """Return (reference, scopes, minTtlSeconds) of `{oauthAppRef, account?, scopes?, minTtlSeconds?}`.

    Raises `requestInvalid` for any other field: above all a tool cannot name a subject.
    """
    said = _members(request)
    if not said.keys() <= REQUEST_FIELDS or "oauthAppRef" not in said:
        raise BrokerError(Code.REQUEST_INVALID)
    scopes = said.get("scopes")
    if scopes is not None and not isinstance(scopes, (list, tuple)):
        raise NotScopes
    return call_ref(said["oauthAppRef"], said.get("account"), apps), scopes, said.get("minTtlSeconds")


class Kinded(Protocol):
    """An app, as far as a reference names its kind."""

    @property
    def kind(self) -> str: ...


APP_KINDS = frozenset({"OAuthApp", "CredentialApp"})
AppRef = str | Mapping[str, str]
"""`"OAuthApp/name"`, `"CredentialApp/name"`, `"name"` or `{kind, name}`. In a token call the text may end with
`@account`."""


def app_name(ref: AppRef) -> str:
    """Return the name in a reference. Raises `requestInvalid`, also for `name@account`: only a call names one."""
    name = call_ref(ref)
    if "@" in name:
        raise WrongArgument("appAlone", "oauthAppRef")
    return name


def call_ref(app: AppRef, account: str | None = None, apps: Mapping[str, Kinded] | None = None) -> str:
    """Return what a token call names: `name`, or `name@account`. Raises `requestInvalid`, also for two accounts, and
    for a kind that the one of `apps` has not."""
    if account is None and type(app) is str and app and "/" not in app:  # on the warm path of a token call
        return app
    kind, name, is_written = "OAuthApp", "", False
    if isinstance(app, str):
        text, at, said = _plain(app).partition("@")
        first, slash, rest = text.partition("/")
        kind, name, is_written = (first, rest, True) if slash else (kind, first, False)
        name = f"{name}{at}{said}" if name else ""
    elif isinstance(app, Mapping):
        members = _members(app)
        if members.keys() <= REF_FIELDS:
            kind, name = _plain(members.get("kind", kind)), _plain(members.get("name"))
            is_written = "kind" in members
    if kind not in APP_KINDS or not name:
        raise WrongArgument("appReference", "oauthAppRef")
    named = apps.get(split_ref(name)[0]) if apps is not None and is_written else None
    if named is not None and named.kind == "CredentialApp" != kind:  # clients write OAuthApp for a bare name
        raise NeverHandedOut
    if named is not None and named.kind != kind:
        raise OtherKind(named.kind, split_ref(name)[0])
    if account is None:
        return name
    if "@" in name or not (account == "" or is_account(account)):
        raise WrongArgument("account", "account")
    return f"{name}@{account}"


def kind_of(app: AppRef) -> str:
    """Return the kind that a reference names, OAuthApp if it names none. `call_ref` refuses one that does not exist."""
    if not isinstance(app, str):
        return app.get("kind", "OAuthApp")
    kind, slash, _ = app.partition("@")[0].partition("/")
    return kind if slash else "OAuthApp"


def split_ref(ref: str) -> tuple[str, str | None]:
    """Return the app's name in what a token call names, and the account if one is named."""
    name, at, account = ref.partition("@")
    return name, account if at else None


def is_named(ref: str | None, app: str, account: str) -> bool:
    """Tell whether `name`, for all accounts, or `name@account` means this connection. None and "" mean every one."""
    return not ref or ref in {app, f"{app}@{account}"}


def _plain(text: object) -> str:
    """Return the text itself, without a subclass's own code; empty for other types."""
    return str.__str__(text) if isinstance(text, str) else ""


def concealed(token: object) -> Secret:
    """Conceal a token that a tool sends back. Raises `requestInvalid` for other types."""
    if isinstance(token, Secret):
        return token
    if not isinstance(token, str):
        raise WrongArgument("notToken", "accessToken", "type")
    return Secret(token)


def _members(given: object) -> dict[Any, Any]:
    """Copy a mapping. Raises `requestInvalid` for other types, and for a mapping whose own code raises."""
    said = None
    with suppress(Exception):
        said = dict(given) if isinstance(given, Mapping) else None
    if said is None:
        raise BrokerError(Code.REQUEST_INVALID)
    return said
