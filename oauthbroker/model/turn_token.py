"""The format of a turn token, and how its holder narrows it: without a key or a request.

`oabt.<locator>.<caveat>*.<signature>`, base64url without padding, dots between. The first signature is made with a
root that only the broker has; every caveat is signed with the signature before it, which is then dropped. So any holder
can add a caveat, and no holder can remove one (the construction of macaroons). The broker checks them: `Turns.admit`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.strict_json import decode_object
from oauthbroker.model.token_request import app_name, scopes_listed

PREFIX = "oabt"
START = b"oabt1."
MAX_CAVEATS = 16
MAX_LENGTH = 4096
LOCATOR = re.compile(r"[A-Za-z0-9_-]{22}")
TOOL = re.compile(r"[A-Za-z][A-Za-z0-9]*/[!-.0-9;-~]+(:[!-.0-9;-~]+)?")
LONGEST_TOOL = 256
_SIGNATURE = re.compile(r"[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]")  # 32 bytes leave two bits of the last character unused
_CAVEAT = re.compile(r"[A-Za-z0-9_-]{2,4000}")

AllowedApps = Mapping[str, Sequence[str] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunTurn:
    """A begun turn: its own token, not narrowed, and one for each named tool."""

    turn_id: str
    token: Secret
    tool_tokens: Mapping[str, Secret]
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Caveat:
    """One narrowing; exactly one of the three is set."""

    tool: str | None = None
    apps: Mapping[str, tuple[str, ...] | None] | None = None
    expires_at: datetime | None = None

    def to_text(self) -> str:
        if self.tool is not None:
            body: dict[str, Any] = {"tool": self.tool}
        elif self.apps is not None:
            body = {"apps": {app: None if scopes is None else list(scopes) for app, scopes in self.apps.items()}}
        else:
            assert self.expires_at is not None  # noqa: S101  (exactly one of the three)
            body = {"exp": int(self.expires_at.timestamp())}
        return _encoded(json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode())

    @classmethod
    def from_text(cls, text: str) -> Caveat:
        """Raises ValueError or `unauthenticated` for any other text: a caveat that is not understood must not be
        ignored."""
        body = decode_object(_decoded(text), Code.UNAUTHENTICATED)
        if len(body) != 1:
            raise ValueError("not a caveat")
        match next(iter(body.items())):
            case "tool", str(tool):
                return cls(tool=tool)
            case "exp", int(seconds) if not isinstance(seconds, bool):
                return cls(expires_at=datetime.fromtimestamp(seconds, UTC))
            case "apps", dict(apps):
                return cls(apps={app: _scopes(scopes) for app, scopes in apps.items()})
        raise ValueError("not a caveat")


@dataclass(frozen=True, slots=True, repr=False)
class TurnToken:
    """A token taken apart; nothing is believed before `signed_with` said so."""

    locator: str
    caveats: tuple[str, ...]
    signature: bytes

    @classmethod
    def parse(cls, text: str) -> TurnToken:
        """Raises `unauthenticated` for what cannot be a turn token."""
        prefix, *parts = text.split(".") if len(text) <= MAX_LENGTH else [""]
        if prefix == PREFIX and 2 <= len(parts) <= MAX_CAVEATS + 2 and LOCATOR.fullmatch(parts[0]):
            *caveats, signature = parts[1:]
            if _SIGNATURE.fullmatch(signature) and all(map(_CAVEAT.fullmatch, caveats)):
                return cls(parts[0], tuple(caveats), _decoded(signature))
        raise BrokerError(Code.UNAUTHENTICATED)

    @classmethod
    def first(cls, locator: str, root: bytes) -> TurnToken:
        """Return the un-narrowed token of a turn. `root` is 32 bytes that belong to this locator."""
        return cls(locator, (), _signed(root, START + locator.encode("ascii")))

    def with_caveat(self, caveat: Caveat) -> TurnToken:
        text = caveat.to_text()
        return TurnToken(self.locator, (*self.caveats, text), _signed(self.signature, text.encode("ascii")))

    def signed_with(self, root: bytes) -> bool:
        """Return whether this is a token of that root, narrowed or not. Constant time."""
        signature = _signed(root, START + self.locator.encode("ascii"))
        for caveat in self.caveats:
            signature = _signed(signature, caveat.encode("ascii"))
        return hmac.compare_digest(signature, self.signature)

    def to_text(self) -> Secret:
        return Secret(".".join((PREFIX, self.locator, *self.caveats, _encoded(self.signature))))


def narrow(
    token: Secret, *, tool: str | None = None, apps: AllowedApps | None = None, expires_at: datetime | None = None
) -> Secret:
    """Return a token that can do less: only for `tool`, only these apps (app -> scopes, None: all that are allowed so
    far), only until `expires_at` (whole seconds). The one it was made from is as good as before.

    Raises `unauthenticated` for other text, `requestInvalid` for a token that was narrowed too often, for an invalid
    reference to an app and for an app that is named twice. No broker admits a token for a tool whose name `is_tool`
    refuses.
    """
    made = TurnToken.parse(token.reveal())
    if tool is not None:
        made = made.with_caveat(Caveat(tool=tool))
    if apps is not None:
        said = {app_name(app): None if scopes is None else tuple(scopes_listed(scopes)) for app, scopes in apps.items()}
        if len(said) != len(apps):
            raise BrokerError(Code.REQUEST_INVALID, note="an app twice")
        made = made.with_caveat(Caveat(apps=said))
    if expires_at is not None:
        made = made.with_caveat(Caveat(expires_at=expires_at))
    text = made.to_text()
    if len(made.caveats) > MAX_CAVEATS or len(text.reveal()) > MAX_LENGTH:
        raise BrokerError(Code.REQUEST_INVALID, note="a turn token with too many caveats")
    return text


def is_tool(text: str) -> bool:
    """Return whether this is a tool's name as it may stand in a log: `Kind/name` or `Kind/name:export`, printable
    ASCII."""
    return len(text) <= LONGEST_TOOL and TOOL.fullmatch(text) is not None


class NoToolName(BrokerError):
    """`requestInvalid` for an entry of `tools` that is not named as a tool is. It says which one, never the name: that
    may be anything."""

    hint = "toolName"

    def __init__(self, number: int) -> None:
        super().__init__(Code.REQUEST_INVALID, note="tools", number=str(number))
        self.errors = ({"pointer": "/tools", "problem": "value"},)


def pointer_step(name: str) -> str:
    """Return a name as a step of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def _signed(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, hashlib.sha256)


def _encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def _decoded(text: str) -> bytes:
    """Raises ValueError, also for a spelling that `_encoded` would not have chosen."""
    try:
        value = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        value = b""
    if _encoded(value) != text:
        raise ValueError("not base64url")
    return value


def _scopes(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(scope, str) for scope in value):
        raise ValueError("not a list of scopes")
    return tuple(value)
