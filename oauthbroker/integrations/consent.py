"""Ask for the consent that a tool of a framework needs, before the tool runs."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType

from oauthbroker import AuthorizationRequired, Broker, Failed, Turn

_refused: ContextVar[Mapping[str, str]] = ContextVar("refused", default=MappingProxyType({}))


async def consent_for(
    broker: Broker, turn: Turn, tool: str, *, private_links: bool = False
) -> AuthorizationRequired | str | None:
    """Ask for the consent that `Tool/<tool>` of the configuration needs in a turn. Return the first missing one, a
    sentence for the model if the tool cannot run, or None if it can. A tool without a resource needs no consent."""
    asks_as = f"Tool/{tool}"
    for declared in broker.bundle.tools.get(asks_as, ()):
        if (sentence := _refused.get().get(declared.app)) is not None:
            return sentence
        oauth = broker.oauth(turn, asks_as, private_links=private_links)
        match await oauth.missing_consent(declared.app):
            case AuthorizationRequired() as result:
                return result
            case Failed() as failed:
                return failed.message
    return None


def refuse(app: str, sentence: str) -> None:
    """Answer requests for an app with a sentence in this task, so that a model that calls again asks no user again."""
    _refused.set({**_refused.get(), app: sentence})
