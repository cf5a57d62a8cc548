"""Asking an endpoint that wants to know which client we are: one answer, with whichever of our secrets it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from oauthbroker.apps import Client, OAuthApp
from oauthbroker.clock import Clock
from oauthbroker.protocol.messages import Answer, Kind, Request
from oauthbroker.protocol.token_fields import refusal_word
from oauthbroker.protocol.transport import Transport
from oauthbroker.settings import Limits

Build = Callable[[OAuthApp], Request]
Notice = Callable[[str, int, int], None]

# RFC 6749 section 5.2, or what a profile says means the same. Nothing else: after this word, and only then, it is
# sure that the grant in the request was not looked at.
_CLIENT_REFUSED = "invalid_client"


@dataclass(slots=True)
class Asker:
    """Sends requests that carry the client's proof. One per broker: it remembers which secret works, in memory only.

    `on_changed(app, refused, works)` is told once whenever another secret turns out to be the one, as positions in
    the app's list that count from 1. Never a secret.
    """

    transport: Transport
    clock: Clock
    limits: Limits
    on_changed: Notice
    _works: dict[str, tuple[Client, int]] = field(default_factory=dict)

    async def ask(self, app: OAuthApp, build: Build, *, kind: Kind = "other", seconds: float | None = None) -> Answer:
        """The endpoint's answer, whatever its status.

        `build` gets the app with the one secret to use, and is called once per attempt: a client assertion is
        signed anew. `kind` goes into counters and spans. An answer that says in so many words that it does not know
        this client makes us try the app's next secret, each at most once and all within one deadline (`seconds`, by
        default that of a provider call): the code or refresh token in it was not touched. No other answer is ever
        asked for twice.

        Raises what `build` raises and what `Transport.send` raises (`TransportFailed`, `appMisconfigured`).
        """
        deadline = self.clock.monotonic() + (self.limits.provider_seconds if seconds is None else seconds)
        first, count = self._first(app), max(1, len(app.client.secrets))
        answer = await self._send(app, build, first, deadline, kind)
        for at in ((first + step) % count for step in range(1, count)):
            if not refuses_client(app, answer) or self.clock.monotonic() >= deadline:
                break
            answer = await self._send(app, build, at, deadline, kind)
            if _knows_client(app, answer):
                self._remember(app, first, at)
        return answer

    async def _send(self, app: OAuthApp, build: Build, at: int, deadline: float, kind: Kind) -> Answer:
        left = deadline - self.clock.monotonic()
        request = build(_with_secret(app, at)).for_app(app, kind)
        return await self.transport.send(request, seconds=left, max_bytes=self.limits.provider_bytes)

    def _first(self, app: OAuthApp) -> int:
        client, at = self._works.get(app.name, (app.client, 0))
        return at if client == app.client else 0

    def _remember(self, app: OAuthApp, refused: int, works: int) -> None:
        if self._first(app) != works:
            self._works[app.name] = (app.client, works)
            self.on_changed(app.name, refused + 1, works + 1)


def refuses_client(app: OAuthApp, answer: Answer) -> bool:
    """Whether the answer is about our client, and so not about what the request asked for.

    A 401 without an error word counts: RFC 6749 section 5.2 has that status for this alone.
    """
    if answer.status not in {200, 400, 401, 403}:
        return False
    word = refusal_word(app, answer)
    return word == _CLIENT_REFUSED if word else answer.status == 401


def _knows_client(app: OAuthApp, answer: Answer) -> bool:
    """A provider that is down or too busy has not said whether it knows us."""
    return answer.status < 500 and answer.status != 429 and not refuses_client(app, answer)


def _with_secret(app: OAuthApp, at: int) -> OAuthApp:
    if at == 0:
        return app
    return replace(app, client=replace(app.client, client_secret=app.client.secrets[at], later_secrets=()))
