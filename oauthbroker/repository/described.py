"""Say which name and which tags a record's content gives it: for checks of a whole store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from oauthbroker.core.errors import BrokerError
from oauthbroker.records import AgentEvent, AuthSession, Grant, codec
from oauthbroker.records.api_key import ApiKey
from oauthbroker.records.browser_session import BrowserSession
from oauthbroker.records.plugin_value import PluginValue
from oauthbroker.records.registered_client import RegisteredClient
from oauthbroker.records.turn_record import TurnRecord
from oauthbroker.records.use import GrantUse
from oauthbroker.repository.grant_tags import people_of
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.migration.verifying import Expected

_Parts = tuple[str, ...]
_Tags = list[tuple[str, str]]


def _of_grant(body: bytes) -> tuple[_Parts, _Tags]:
    grant = Grant.from_plaintext(body)
    return grant.key.parts, [("app", grant.app), *(("who", each) for each in people_of(grant))]


def _of_value(body: bytes) -> tuple[_Parts, _Tags]:
    value = PluginValue.from_plaintext(body)
    return (value.plugin, value.key), [("plugin", value.plugin)]


def _of_waiting(body: bytes) -> tuple[_Parts, _Tags]:
    spec = codec.decode("WaitingList", body)["spec"]
    return (spec["app"], spec["subject"]), []


def _at(read: Callable[[bytes], Any], member: str = "locator") -> Callable[[bytes], tuple[_Parts, _Tags]]:
    return lambda body: ((getattr(read(body), member),), [])


_READ: Final[Mapping[str, Callable[[bytes], tuple[_Parts, _Tags]]]] = {
    "grants": _of_grant,
    "plugins": _of_value,
    "waiting": _of_waiting,
    "sessions": _at(AuthSession.from_plaintext),
    "events": _at(AgentEvent.from_plaintext, "id"),
    "turns": _at(TurnRecord.from_plaintext),
    "apikeys": _at(ApiKey.from_plaintext),
    "browsersessions": _at(BrowserSession.from_plaintext),
    "uses": _at(GrantUse.from_plaintext),
    "clients": _at(RegisteredClient.from_plaintext),
    "secrets": lambda body: ((codec.decode("Secret", body)["spec"]["name"],), []),
}


def described(ring: Keyring, kind: str, body: bytes) -> Expected | None:
    """Return what a body expects, None for a body that is no record of this schema. A kind that is filed under other
    names, or whose parts name one another, has no expected name."""
    if kind not in _READ:
        return Expected(None)
    try:
        parts, tags = _READ[kind](body)
    except (BrokerError, ValueError, LookupError, TypeError, AttributeError):
        return None
    values = frozenset((label, ring.tag(kind, label, value).value) for label, value in tags)
    return Expected(ring.name(kind, *parts), values)
