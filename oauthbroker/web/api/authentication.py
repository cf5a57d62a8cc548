"""Who calls, and what may they: a turn token, an API key, or a user of this machine behind a Unix socket."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from starlette.requests import Request

from oauthbroker.access.api_keys import PREFIX as KEY_PREFIX
from oauthbroker.access.api_keys import ApiKeys
from oauthbroker.access.turn_token_cache import TurnTokenHolder
from oauthbroker.access.turns import Turns
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.local_turn import local_turn
from oauthbroker.model.settings import Role, Settings, Who
from oauthbroker.model.turn_token import PREFIX as TURN_PREFIX
from oauthbroker.model.turn_token import TurnToken
from oauthbroker.plugins.running_plugin import Authenticates
from oauthbroker.web.gate.request_limits import LOCAL, PEER
from oauthbroker.web.middleware.access_log import note_known
from oauthbroker.web.middleware.exchange import only_value
from oauthbroker.web.middleware.rate_limits import RequestLimits


@dataclass(frozen=True, slots=True)
class RuntimeCaller:
    """A caller with roles: the holder of an API key, or a user of this machine."""

    id: str
    name: str
    roles: frozenset[Role]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCaller(TurnTokenHolder):
    """A command of the person whose own `serve` this is. Gets tokens of one fixed subject. It holds no
    turn token, and the rights of one are none of its own."""


LOCAL_CALLER: Final = LocalCaller(turn=local_turn(), turn_id="local", expires_at=datetime.max.replace(tzinfo=UTC))

Caller = RuntimeCaller | TurnTokenHolder
TURN_BEARER, _KEY = f"{TURN_PREFIX}.", f"{KEY_PREFIX}."


class Callers:
    """Authenticates callers. If a bearer token is sent, only the token counts."""

    def __init__(self, *, turns: Turns, api_keys: ApiKeys, settings: Settings) -> None:
        self._turns = turns
        self._api_keys = api_keys
        known = settings.api_socket.callers if settings.api_socket is not None else ()
        self._users = {each.uid: RuntimeCaller(f"uid-{each.uid}", f"uid {each.uid}", each.roles) for each in known}

    async def who(self, request: Request) -> Caller:
        """Raises `unauthenticated` for all unknown callers alike; `turnEnded` for a token of an ended turn."""
        sent = [value for name, value in request.scope["headers"] if name == b"authorization"]
        extensions = request.scope.get("extensions") or {}
        if LOCAL in extensions:
            return _person(sent, extensions)
        if not sent:
            return self._peer(extensions)
        text = bearer_of(sent[0]) if len(sent) == 1 else ""
        if text.startswith(TURN_BEARER):
            return await self._turns.admit(text)
        if text.startswith(_KEY):
            key = await self._api_keys.check(text)
            return RuntimeCaller(key.id, key.name, key.roles)
        raise BrokerError(Code.UNAUTHENTICATED)

    def _peer(self, extensions: Mapping[str, Mapping[str, int]]) -> RuntimeCaller:
        """Return the user at the socket's other end (SO_PEERCRED). The server sets it; no header can."""
        found = self._users.get(extensions.get(PEER, {}).get("uid", -1))
        if found is None:
            raise BrokerError(Code.UNAUTHENTICATED)
        return found


def _person(sent: list[bytes], extensions: Mapping[str, Mapping[str, int]]) -> LocalCaller:
    """Return the person whose own connections these are. The kernel says who is at the other end; where it cannot, only
    this user could enter the socket's folder. A key or a token adds nothing here, and is refused."""
    if sent or extensions.get(PEER, {}).get("uid", os.geteuid()) != os.geteuid():
        raise BrokerError(Code.UNAUTHENTICATED)
    return LOCAL_CALLER


def bearer(request: Request) -> str:
    """Return the one bearer token of a request (RFC 6750 section 2.1), or an empty text."""
    return bearer_of(only_value(request.scope["headers"], b"authorization") or b"")


def bearer_of(sent: bytes) -> str:
    """Return the bearer token of a value of Authorization; an empty text for another scheme."""
    scheme, _, text = sent.decode("latin-1").partition(" ")
    return text if scheme.lower() == "bearer" else ""


def ended_turn(request: Request) -> str:
    """Return the turn of a token that `Callers.who` answered with `turnEnded`; its `id_of` while it was good."""
    return f"turn-{TurnToken.parse(bearer(request)).locator}"


def id_of(caller: Caller) -> str:
    """Return the id that rate limits count: a key, a turn, or a user of this machine."""
    return caller.turn_id if isinstance(caller, TurnTokenHolder) else caller.id


def may(caller: Caller, allowed: Collection[Who]) -> bool:
    """Return whether this caller has one of the rights."""
    if isinstance(caller, LocalCaller):
        return "local" in allowed
    if isinstance(caller, TurnTokenHolder):
        return "turn" in allowed or ("wholeTurn" in allowed and caller.speaks_for_person)
    return not caller.roles.isdisjoint(allowed)


async def known(request: Request, callers: Callers, limits: RequestLimits) -> Caller:
    """Return the caller. Raises `unauthenticated` or `turnEnded`, and `rateLimited` for a caller, an address or an
    ended turn that calls too often."""
    try:
        caller = await callers.who(request)
    except BrokerError as error:
        stranger = error
    else:
        note_known(request.scope)
        limits.called(id_of(caller))
        return caller
    if stranger.code is Code.TURN_ENDED:  # we signed it: who holds it was known, and costs no neighbour anything
        limits.called(ended_turn(request))
    elif stranger.status == HTTPStatus.UNAUTHORIZED:
        limits.strange(address_of(request))
    raise stranger


async def known_to_plugin(request: Request, authenticate: Authenticates | None, limits: RequestLimits) -> None:
    """Count a call by the caller's id of the plug-in, or by the address of a stranger. Raises `rateLimited`, and what
    `authenticate` raises."""
    caller, refused = None, None
    try:
        caller = None if authenticate is None else await authenticate(request)
    except BrokerError as error:
        refused = error
    if caller is not None:
        note_known(request.scope)
        limits.called(caller)
    else:  # each refusal, also for an unknown path or a service that is away: it has cost the plug-in work
        limits.strange(address_of(request))
    if refused is not None:
        raise refused


def address_of(request: Request) -> str:
    return request.client.host if request.client is not None else "-"
