"""Ask for the consent that a tool of a framework needs, before the tool runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from oauthbroker import AuthorizationRequired, Broker, Code, Failed, InjectionError, Turn

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
    """Do the same for one app. `oauth` is the context of a turn."""
    if (sentence := _refused.get().get(app)) is not None:
        return sentence
    result: AuthorizationRequired | Failed | None = await oauth.missing_consent(app, scopes)
    if isinstance(result, Failed) and result.code is Code.ACCOUNT_REQUIRED:
        return None  # the tool's own call names the account
    return result.message if isinstance(result, Failed) else result


def lacked(error: InjectionError) -> AuthorizationRequired | str:
    """Return what a call lacks whose token the provider refused, or whose request the broker refused."""
    return error.result if isinstance(error.result, AuthorizationRequired) else error.for_model


def refuse(app: str, sentence: str) -> None:
    """Answer requests for an app with a sentence in this task, so that a model that calls again asks no user again."""
    _refused.set({**_refused.get(), app: sentence})


def resumes(apps: Iterable[str]) -> None:
    """Remember in this task that a run goes on which has waited for these apps."""
    _resumed.set(_resumed.get().union(apps))


def is_resumed(app: str) -> bool:
    """Return whether the run of this task has waited for an app."""
    return app in _resumed.get()
