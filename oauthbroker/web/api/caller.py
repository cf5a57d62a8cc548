"""Who calls, and what may they: a turn token, an API key, or a user of this machine behind the Unix socket."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from starlette.requests import Request

from oauthbroker.api_keys import PREFIX as KEY_PREFIX
from oauthbroker.api_keys import ApiKeys
from oauthbroker.errors import BrokerError, Code
from oauthbroker.settings import Role, Settings
from oauthbroker.turn_token import PREFIX as TURN_PREFIX
from oauthbroker.turn_token import TurnToken
from oauthbroker.turns import Guest, Turns
from oauthbroker.web.headers import PEER

Who = Literal["runtime", "operator", "turn", "wholeTurn"]
"""`wholeTurn` is a turn token that nothing has narrowed, neither a tool nor apps nor a time: the runtime's own."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """Somebody with roles: the holder of an API key, or a user of this machine."""

    id: str
    name: str
    roles: frozenset[Role]


Caller = Runtime | Guest
_TURN, _KEY = f"{TURN_PREFIX}.", f"{KEY_PREFIX}."


class Doors(Protocol):
    """What a broker has to tell callers apart."""

    @property
    def turns(self) -> Turns: ...

    @property
    def api_keys(self) -> ApiKeys: ...


class Callers:
    """Tells callers apart. What is sent as a bearer counts, and nothing else then: a bad one is no caller at all."""

    def __init__(self, doors: Callable[[], Doors], settings: Settings) -> None:
        self._doors = doors
        known = settings.api_socket.callers if settings.api_socket is not None else ()
        self._users = {each.uid: Runtime(f"uid-{each.uid}", f"uid {each.uid}", each.roles) for each in known}

    async def who(self, request: Request) -> Caller:
        """Raises `unauthenticated` for everybody who is not known, all alike; `turnEnded` for a token of ours whose
        turn is over."""
        sent = _credentials(request)
        if not sent:
            return self._peer(request.scope.get("extensions") or {})
        text = _bearer(sent)
        if text.startswith(_TURN):
            return await self._doors().turns.admit(text)
        if text.startswith(_KEY):
            key = await self._doors().api_keys.check(text)
            return Runtime(key.id, key.name, key.roles)
        raise BrokerError(Code.UNAUTHENTICATED)

    def _peer(self, extensions: Mapping[str, Mapping[str, int]]) -> Runtime:
        """Whom the socket's own end names (SO_PEERCRED); the server puts it there, no header can."""
        found = self._users.get(extensions.get(PEER, {}).get("uid", -1))
        if found is None:
            raise BrokerError(Code.UNAUTHENTICATED)
        return found


def bearer(request: Request) -> str:
    """The one bearer token of a request (RFC 6750 section 2.1), or an empty text."""
    return _bearer(_credentials(request))


def _credentials(request: Request) -> list[bytes]:
    return [value for name, value in request.scope["headers"] if name == b"authorization"]


def _bearer(sent: list[bytes]) -> str:
    scheme, _, text = sent[0].decode("latin-1").partition(" ") if len(sent) == 1 else ("", "", "")
    return text if scheme.lower() == "bearer" else ""


def ended_turn(request: Request) -> str:
    """The turn of a token that `Callers.who` answered with `turnEnded`; its `id_of` while it was good."""
    return f"turn-{TurnToken.parse(bearer(request)).locator}"


def id_of(caller: Caller) -> str:
    """Whom the rate limits count: a key, a turn, or a user of this machine."""
    return caller.turn_id if isinstance(caller, Guest) else caller.id


def may(caller: Caller, allowed: Collection[Who]) -> bool:
    """Whether a call that is for these is for this caller."""
    if isinstance(caller, Guest):
        return "turn" in allowed or ("wholeTurn" in allowed and caller.caller.speaks_for_person)
    return not caller.roles.isdisjoint(allowed)
