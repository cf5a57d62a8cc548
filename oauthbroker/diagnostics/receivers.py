"""Whether the receivers of forwarded events answer. No event is sent, and nothing that is signed."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from oauthbroker.core.errors import BrokerError
from oauthbroker.diagnostics.findings import Finding
from oauthbroker.events.forwarding.agent_forwarder import SEND_SECONDS
from oauthbroker.events.forwarding.jetstream import INSTALL, JetStream, NatsFailed
from oauthbroker.model.forwarders import Forwarder, Nats
from oauthbroker.model.provider_networks import ProviderNetworks
from oauthbroker.model.settings import Settings
from oauthbroker.protocol.messages import ProviderRequest
from oauthbroker.protocol.network.transport import Transport, TransportFailed

_ADVICE = "Look at its address, its certificate, `networks` and the way out of this machine. Events wait meanwhile."


async def receivers(forwarders: Iterable[Forwarder], settings: Settings) -> list[Finding]:
    """Return a finding for each forwarder: a webhook gives some answer to a GET; a stream takes the subject, and knows
    ids again for longer than an event may take to be sent again."""
    return [await _receiver(forwarder, settings) for forwarder in forwarders]


async def _receiver(forwarder: Forwarder, settings: Settings) -> Finding:
    plain = "plainHttpProvider" in settings.weaken
    reach = ProviderNetworks(forwarder.networks, loopback=plain)
    if isinstance(forwarder.to, Nats):
        return await _stream(forwarder, forwarder.to, reach, settings)
    transport = Transport(plain_http_loopback=plain, reach=reach, proxy=settings.outgoing_proxy)
    request = ProviderRequest("GET", forwarder.to.url, ca=forwarder.ca)
    try:
        await transport.send(request, seconds=settings.limits.provider_seconds, max_bytes=64 * 1024)
    except BrokerError as error:
        if not (isinstance(error, TransportFailed) and error.sent):
            return Finding("forwarders", "failure", f"No answer: {error.note}.", hint=_ADVICE, about=forwarder.name)
    finally:
        await transport.close()
    return Finding("forwarders", "ok", "Its webhook's server answers.", about=forwarder.name)


async def _stream(forwarder: Forwarder, nats: Nats, reach: ProviderNetworks, settings: Settings) -> Finding:
    if find_spec("nats") is None:
        return Finding("forwarders", "failure", f"{INSTALL}.", hint="Run it.", about=forwarder.name)
    least = max(2 * settings.limits.queue_lease_seconds, 4 * SEND_SECONDS)  # the lease is extended during a send
    stream = JetStream(nats, reach=reach, ca=forwarder.ca)
    try:
        known = await stream.duplicate_seconds()
    except NatsFailed as failed:
        return Finding("forwarders", "failure", f"Not usable: {failed.note}.", hint=_ADVICE, about=forwarder.name)
    finally:
        await stream.close()
    if known < least:
        what = f"Its stream knows an id again for {known:g} s only."
        hint = f"Set its duplicate window to {least:g} s or more, or a repeated event is stored twice."
        return Finding("forwarders", "warning", what, hint=hint, about=forwarder.name)
    return Finding("forwarders", "ok", "Its stream takes the subject.", about=forwarder.name)
