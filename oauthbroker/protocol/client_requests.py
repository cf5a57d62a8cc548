"""Send requests with client authentication, and try the app's next secret where the provider refuses the client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.model.apps import App, Client
from oauthbroker.model.settings import Limits
from oauthbroker.protocol.messages import Kind, ProviderRequest, ProviderResponse
from oauthbroker.protocol.network.transport import MOST_BYTES, Transport
from oauthbroker.protocol.token_fields import refusal_word

Build = Callable[[App], ProviderRequest]
Notice = Callable[[str, int, int], None]

# RFC 6749 section 5.2, or the profile's equivalent. Only after this word it is certain that the provider has not used
# the grant in the request.
_CLIENT_REFUSED = "invalid_client"


class Registrations(Protocol):
    """The clients that the broker has registered by itself."""

    async def answered(self, app: App, *, refused: bool) -> None:
        """Note whether the provider knows the app's client. Raises nothing."""
        ...


@dataclass(slots=True, kw_only=True)
class ClientRequests:
    """Sends requests with client authentication. One per broker; it keeps in memory which secret works.

    `on_changed(app, refused, works)` is called once whenever another secret works, with the positions in the app's
    list, counted from 1. It gets no secret. `registrations` learns how clients of MCP servers' apps are answered.
    """

    transport: Transport
    clock: Clock
    limits: Limits
    on_changed: Notice
    registrations: Registrations | None = None
    _works: dict[str, tuple[Client, int]] = field(default_factory=dict)

    async def ask(self, app: App, build: Build, *, kind: Kind = "other") -> ProviderResponse:
        """Send the request and return the endpoint's answer, with any status.

        `build` gets the app with the one secret to use. It is called once per attempt, so each client assertion is
        signed anew. `kind` goes into counters and spans. After an answer that refuses the client, the app's next secret
        is tried, each at most once and all within the deadline of one provider call: the provider has not used the code
        or refresh token. No other answer leads to another attempt.

        Raises what `build` raises and what `Transport.send` raises (`TransportFailed`, `appMisconfigured`).
        """
        deadline = self.clock.monotonic() + self.limits.provider_seconds
        first, count = self._first(app), max(1, len(app.client.secrets))
        answer = await self._send(app, build, first, deadline, kind)
        for at in ((first + step) % count for step in range(1, count)):
            if not refuses_client(app, answer) or self.clock.monotonic() >= deadline:
                break
            answer = await self._send(app, build, at, deadline, kind)
            if _knows_client(app, answer):
                self._remember(app, first, at)
        if self.registrations is not None and app.mcp is not None:
            refused = refuses_client(app, answer)
            if refused or _knows_client(app, answer):
                await self.registrations.answered(app, refused=refused)
        return answer

    async def _send(self, app: App, build: Build, at: int, deadline: float, kind: Kind) -> ProviderResponse:
        left = deadline - self.clock.monotonic()
        request = build(_with_secret(app, at)).for_app(app, kind)
        return await self.transport.send(request, seconds=left, max_bytes=MOST_BYTES)

    def _first(self, app: App) -> int:
        client, at = self._works.get(app.name, (app.client, 0))
        return at if client == app.client else 0

    def _remember(self, app: App, refused: int, works: int) -> None:
        if self._first(app) != works:
            self._works[app.name] = (app.client, works)
            self.on_changed(app.name, refused + 1, works + 1)


def refuses_client(app: App, answer: ProviderResponse) -> bool:
    """Tell whether the answer refuses our client, not the grant in the request.

    A 401 without an error word counts: RFC 6749 section 5.2 uses that status for this case only. So does the word of
    older servers made with MCP's SDK.
    """
    if answer.status not in {200, 400, 401, 403}:
        return False
    word = refusal_word(app, answer)
    if app.mcp is not None and word == "unauthorized_client":
        return answer.status == 401
    return word == _CLIENT_REFUSED if word else answer.status == 401


def _knows_client(app: App, answer: ProviderResponse) -> bool:
    """Tell whether the provider accepted the client. A 429 or 5xx leaves that open."""
    return answer.status < 500 and answer.status != 429 and not refuses_client(app, answer)


def _with_secret(app: App, at: int) -> App:
    if at == 0:
        return app
    return replace(app, client=replace(app.client, client_secret=app.client.secrets[at], later_secrets=()))
