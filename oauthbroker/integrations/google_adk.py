"""Google ADK: an auth provider asks for consent through `adk_request_credential`, and answers it when it is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_schemes import CustomAuthScheme
from google.adk.auth.auth_tool import AuthConfig
from google.adk.auth.base_auth_provider import BaseAuthProvider
from google.genai.types import Content, FunctionResponse, Part
from pydantic import Field

from oauthbroker import Broker, InjectionError, Turn
from oauthbroker.integrations.consent import consent_for
from oauthbroker.integrations.mcp_servers import OAuthMcp
from oauthbroker.integrations.resuming import (
    DeliversAnswer,
    PauseEnd,
    Reached,
    RunAnswer,
    Streams,
    TakesOther,
    kept,
    resume_kept,
    streamed,
)

_REQUEST = "adk_request_credential"


class OAuthBrokerScheme(CustomAuthScheme):
    """The auth scheme of a tool. `tool` names the resource `Tool/<tool>`."""

    type_: str = Field(default="oauthbroker", alias="type")
    tool: str


class ConsentRefused(Exception):
    """A tool does not run. The text is for the model."""


class OAuthProvider(BaseAuthProvider):
    """Asks for the consent that a tool needs. `turn_of` makes the turn from a context of ADK, whose user the host has
    authenticated. Register it with `CredentialManager.register_auth_provider`."""

    supported_auth_schemes = (OAuthBrokerScheme,)

    def __init__(self, broker: Broker, turn_of: Callable[[Any], Turn], *, private_links: bool = False) -> None:
        self.turn_of = turn_of
        self._broker, self._private_links = broker, private_links
        self.servers: dict[str, OAuthMcp] = {}  # by the tool of their scheme

    def needs(self, tool: str) -> AuthConfig:
        """Return the auth configuration of a tool. Tools of the same connections share one request to the user."""
        server, declared = self.servers.get(tool), self._broker.bundle.tools.get(f"Tool/{tool}", ())
        apps = sorted(each.app for each in declared) if server is None else [server.app]
        return AuthConfig(auth_scheme=OAuthBrokerScheme(tool=tool), credential_key=f"oauthbroker {' '.join(apps)}")

    async def get_auth_credential(self, auth_config: AuthConfig, context: Any) -> AuthCredential:
        """Return a credential without a token: the client of the broker adds it. With a link, it asks the user."""
        tool = auth_config.auth_scheme.tool
        turn, server = self.turn_of(context), self.servers.get(tool)
        if server is not None:
            missing = await server.missing(turn)
        else:
            missing = await consent_for(self._broker, turn, tool, private_links=self._private_links)
        if missing is None:
            return AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth())
        if isinstance(missing, str):
            raise ConsentRefused(missing)
        context.actions.skip_summarization = True  # ends ADK's turn: the model waits for the tool, too
        oauth2 = OAuth2Auth(auth_uri=missing.authorization_url, nonce=missing.auth_session_id)
        return AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=oauth2, message=missing.message)


async def say_refusal(*, error: Exception, **_call: Any) -> dict[str, Any] | None:
    """Tell the model why a tool does not run: the agent's `on_tool_error_callback`."""
    if isinstance(error, ConsentRefused):
        return {"error": str(error)}
    return {"error": error.for_model} if isinstance(error, InjectionError) else None


async def run_google_adk(
    broker: Broker, runner: Any, turn: Turn, text: str, *, user_id: str, session_id: str,
    stream: Streams = None, run_config: Any = None,
) -> RunAnswer:  # fmt: skip
    """Send a user's text to a session; `stream` gets the events. A run that pauses is kept for `resume_google_adk`."""
    place = {"user_id": user_id, "session_id": session_id}
    events = _events(runner, [Part(text=text)], place, run_config)
    reached = await _reached(streamed(events, turn, stream), place, {})
    return await kept(broker, turn, reached, question=[text, place])


def resume_google_adk(
    broker: Broker, name: str, runner: Any, *, deliver: DeliversAnswer, other: TakesOther = None,
    stream: Streams = None, run_config: Any = None,
) -> AbstractAsyncContextManager[None]:  # fmt: skip
    """Resume the runs of an agent, `name` in its turns, while the block runs. `deliver` gets each turn and answer, and
    `stream` the events meanwhile."""

    async def go_on(turn: Turn, state: Any, _end: PauseEnd) -> Reached:
        parts = [
            Part(function_response=FunctionResponse(id=state["calls"][key], name=_REQUEST, response=config))
            for key, config in state["configs"].items()
        ]
        events = _events(runner, parts, state["place"], run_config)
        return await _reached(streamed(events, turn, stream), state["place"], state["calls"])

    return resume_kept(broker, name, go_on, deliver=deliver, other=other)


def _events(runner: Any, parts: list[Part], place: dict[str, str], run_config: Any) -> Any:
    return runner.run_async(new_message=Content(role="user", parts=parts), run_config=run_config, **place)


async def _reached(events: AsyncIterator[Any], place: dict[str, str], calls: dict[str, str]) -> Reached:
    """Run on. `calls` are ADK's calls for credentials, by key: it makes no new call for a tool that asks again."""
    configs: dict[str, Any] = {}
    texts: list[str] = []
    async for event in events:
        new = [call for call in event.get_function_calls() if call.name == _REQUEST]
        calls = calls | {call.args["authConfig"]["credentialKey"]: call.id for call in new}
        again = event.actions.requested_auth_configs.values()
        configs |= {each.credential_key: each.model_dump(mode="json", by_alias=True) for each in again}
        if event.is_final_response() and event.content:
            texts += [part.text for part in event.content.parts if part.text]
    if not configs:
        return RunAnswer(output="".join(texts)), None
    credentials = [each["exchangedAuthCredential"] for each in configs.values()]
    pauses = [
        {"authorizationUrl": it["oauth2"]["authUri"], "message": it["message"], "sessionId": it["oauth2"]["nonce"]}
        for it in credentials
    ]
    return RunAnswer(pauses=pauses), {"calls": calls, "configs": configs, "place": place}
