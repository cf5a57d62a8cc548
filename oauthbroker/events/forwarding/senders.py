"""Send one event to its receiver, once."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError
from oauthbroker.events.forwarding.jetstream import JetStream, NatsFailed
from oauthbroker.events.forwarding.sent_event import TAKEN, SentEvent
from oauthbroker.events.forwarding.webhook_messages import event_body, webhook_request, webhook_response
from oauthbroker.model.forwarders import Forwarder, Webhook
from oauthbroker.model.provider_networks import ProviderNetworks
from oauthbroker.model.settings import Settings
from oauthbroker.protocol.network.api_transport import ApiLimits, ApiResponse, ApiTransport
from oauthbroker.protocol.network.transport import Transport, TransportFailed
from oauthbroker.records import AgentEvent

MOST_ANSWER_BYTES = 64 * 1024  # that are read, so that the connection can be kept


class Sender(Protocol):
    """One receiver. Belongs to one event loop."""

    async def send(self, event: AgentEvent, *, seconds: float) -> SentEvent:
        """Send an event, for at most so many seconds. Raises nothing that the network can cause."""
        ...

    async def close(self) -> None: ...


class WebhookSender:
    """Sends to a webhook. Connects as to a provider: TLS, checked addresses, no redirects."""

    def __init__(self, webhook: Webhook, *, transport: Transport, ca: str, clock: Clock) -> None:
        self._webhook, self._ca, self._clock = webhook, ca, clock
        self._transport, self._requests = transport, ApiTransport(transport)

    async def send(self, event: AgentEvent, *, seconds: float) -> SentEvent:
        request = webhook_request(self._webhook, event, self._clock.now(), ca=self._ca)
        limits = ApiLimits(stall_seconds=seconds, seconds=seconds, answer_bytes=MOST_ANSWER_BYTES)
        try:
            response = await self._requests.send(request, limits)
        except TransportFailed as failed:
            return SentEvent(outcome="refused" if failed.sent else "away", why=failed.note)
        except BrokerError:  # `appMisconfigured`: where the name leads
            return SentEvent(outcome="away", why="its address is not public and not in `networks`")
        await _read(response)
        return webhook_response(response.status, response.headers, self._clock.now())

    async def close(self) -> None:
        await self._requests.close()
        await self._transport.close()


async def _read(response: ApiResponse) -> None:
    """Read the body and give the connection back. The status alone counts."""
    try:
        with suppress(TransportFailed):
            async for _ in response.chunks():
                pass
    finally:
        await response.aclose()


class NatsSender:
    """Publishes to a stream. Only a message that is too large is refused: all else says that the stream is away."""

    def __init__(self, stream: JetStream) -> None:
        self._stream = stream

    async def send(self, event: AgentEvent, *, seconds: float) -> SentEvent:
        try:
            await self._stream.publish(event.id, event_body(event), seconds=seconds)
        except NatsFailed as failed:
            return SentEvent(outcome="refused" if failed.refused else "away", why=failed.note)
        return TAKEN

    async def close(self) -> None:
        await self._stream.close()


def sender_of(forwarder: Forwarder, settings: Settings, clock: Clock) -> Sender:
    """Return the sender of a forwarder. NATS does not go through an HTTP proxy."""
    plain_http = "plainHttpProvider" in settings.weaken
    reach = ProviderNetworks(forwarder.networks, loopback=plain_http)
    if isinstance(forwarder.to, Webhook):
        transport = Transport(plain_http_loopback=plain_http, reach=reach, proxy=settings.outgoing_proxy)
        return WebhookSender(forwarder.to, transport=transport, ca=forwarder.ca, clock=clock)
    return NatsSender(JetStream(forwarder.to, reach=reach, ca=forwarder.ca))
