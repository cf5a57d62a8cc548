"""A receiver of webhooks on 127.0.0.1, which verifies each signature with the package `standardwebhooks`."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal, Self

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.secret import Secret
from oauthbroker.testing.authority import Certificate
from oauthbroker.testing.provider import http
from oauthbroker.testing.provider.faults import Cut
from oauthbroker.testing.provider.http import Reply, Request
from oauthbroker.testing.provider.server import HttpServer

Answer = int | tuple[int, dict[str, str]] | Literal["hang", "drop"]
"""A status, a status with headers, no answer at all, or a connection that breaks once the request was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedWebhook:
    """One request. `verified` tells for each secret of the receiver whether it fits a signature."""

    id: str
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    verified: tuple[bool, ...]
    taken: bool

    @property
    def event(self) -> dict[str, Any]:
        """Return the parsed body. Raises ValueError if it is no JSON."""
        found: dict[str, Any] = json.loads(self.body)
        return found


class WebhookReceiver:
    """Answers 204 to a webhook that one of its secrets verifies, and 401 to others. `answers` come first, one for each
    request; `always` stands for all later ones. Use `async with`."""

    def __init__(self, *secrets: Secret, port: int = 0, certificate: Certificate | None = None) -> None:
        self.secrets: Sequence[Secret] = secrets
        self.received: list[ReceivedWebhook] = []
        self.answers: deque[Answer] = deque()
        self.always: Answer | None = None
        self.port = port
        self._certificate = certificate
        self._server: HttpServer | None = None
        self._came = asyncio.Condition()

    @property
    def url(self) -> str:
        """Return the URL to configure as the webhook's, once the receiver runs."""
        return f"{'https' if self._certificate is not None else 'http'}://127.0.0.1:{self.port}/events"

    @property
    def taken(self) -> list[str]:
        """Return the ids of the events that were taken, in their order."""
        return [each.id for each in self.received if each.taken]

    async def __aenter__(self) -> Self:
        self._server = HttpServer(self._take, self.port, self._certificate.context if self._certificate else None)
        self.port = self._server.port
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            await self._server.stop()

    async def until(self, count: int, *, seconds: float = 30.0) -> list[str]:
        """Wait until so many events were taken, repetitions included. Return their ids."""
        async with asyncio.timeout(seconds), self._came:
            await self._came.wait_for(lambda: len(self.taken) >= count)
        return self.taken

    async def until_asked(self, count: int, *, seconds: float = 30.0) -> None:
        """Wait until so many requests came."""
        async with asyncio.timeout(seconds), self._came:
            await self._came.wait_for(lambda: len(self.received) >= count)

    async def _take(self, request: Request) -> Reply:
        headers, body = dict(request.headers), request.body
        verified = tuple(_verifies(secret, body, headers) for secret in self.secrets)
        scripted = self.answers.popleft() if self.answers else self.always
        answer = scripted if scripted is not None else 204 if any(verified) else 401
        status, more = answer if isinstance(answer, tuple) else (answer, {})
        taken = isinstance(status, int) and 200 <= status <= 299
        found = ReceivedWebhook(
            id=headers.get("webhook-id", ""), headers=headers, body=body, verified=verified, taken=taken
        )
        async with self._came:
            self.received.append(found)
            self._came.notify_all()
        if status == "hang":
            await asyncio.Event().wait()
        return http.Answer(status, tuple(more.items())) if isinstance(status, int) else Cut()


def _verifies(secret: Secret, body: bytes, headers: dict[str, str]) -> bool:
    from standardwebhooks import Webhook, WebhookVerificationError

    try:
        Webhook(secret.reveal()).verify(body, headers)
    except WebhookVerificationError:
        return False
    return True
