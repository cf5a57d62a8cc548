"""Ask for the consent that a tool of a framework needs, before the tool runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from oauthbroker import AuthorizationRequired, Broker, BrokerError, Code, Failed, InjectionError, Turn

Missing = AuthorizationRequired | str | None
_refused: ContextVar[Mapping[str, str]] = ContextVar("refused", default=MappingProxyType({}))
_resumed: ContextVar[frozenset[str]] = ContextVar("resumed", default=frozenset())


async def consent_for(broker: Broker, turn: Turn, tool: str, *, private_links: bool = False) -> Missing:
    """Ask for the consent that `Tool/<tool>` of the configuration needs in a turn. Return the first missing one, a
    sentence for the model if the tool cannot run, or None if it can. A tool without a resource needs no consent."""
    asks_as = f"Tool/{tool}"
    for declared in broker.bundle.tools.get(asks_as, ()):
        oauth = broker.oauth(turn, asks_as, private_links=private_links)
        if (missing := await app_consent(oauth, declared.app)) is not None:
            return missing
    return None


async def app_consent(oauth: Any, app: str, scopes: Sequence[str] | None = None) -> Missing:
    """Do the same for one app, or `app@account`. `oauth` is the context of a turn."""
    with suppress(BrokerError):  # the call below says why it names no connection
        if (sentence := _refused.get().get(oauth.connection(app))) is not None:
            return sentence
    result: AuthorizationRequired | Failed | None = await oauth.missing_consent(app, scopes)
    if isinstance(result, Failed) and result.code is Code.ACCOUNT_REQUIRED:
        return None  # the tool's own call names the account
    return result.message if isinstance(result, Failed) else result


async def lacked(broker: Broker, error: InjectionError) -> AuthorizationRequired | str:
    """Return what a call lacks whose token the provider refused, or whose request the broker refused. A link for a
    connection that the user has declined is cancelled."""
    if not isinstance(error.result, AuthorizationRequired):
        return error.for_model
    asked = error.result.auth_session_id
    sentence = _refused.get().get(await connection_of(broker, asked)) if _refused.get() else None
    if sentence is None:
        return error.result
    await broker.cancel(asked)
    return sentence


async def connection_of(broker: Broker, session_id: str) -> str:
    """Return the connection that a session is for: an app, or `app@account`. Empty for a session that is gone."""
    session = await broker.sessions.find(session_id)
    return "" if session is None else session.key.connection


def refuse(connection: str, sentence: str) -> None:
    """Answer requests for a connection with a sentence in this task, so that a model that calls again asks no user
    again."""
    _refused.set({**_refused.get(), connection: sentence})


def resumes(connections: Iterable[str]) -> None:
    """Remember in this task that a run goes on which has waited for these connections."""
    _resumed.set(_resumed.get().union(connections))


def is_resumed(connection: str) -> bool:
    """Return whether the run of this task has waited for a connection."""
    return connection in _resumed.get()
