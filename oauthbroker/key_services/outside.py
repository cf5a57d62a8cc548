"""Ask a service outside this machine, from any thread: its caller blocks until the answer is here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.model.provider_networks import ProviderNetworks
from oauthbroker.protocol.network.transport import Transport, TransportFailed

T = TypeVar("T")
SECONDS: Final = 10.0
MOST_BYTES: Final = 64 * 1024
_ANYWHERE: Final = ProviderNetworks(
    ("0.0.0.0/0", "::/0"), loopback=True
)  # the operator's own address, not a provider's


def asked(send: Callable[[Transport], Coroutine[Any, Any, T]], proxy: OutgoingProxy | None, service: str) -> T:
    """Return what `send` does over a transport of its own. Raises `outgoingProxyRefused` where the company's proxy
    refuses, and `keyUnknown` for any other failure, each with a note that names the service."""
    with ThreadPoolExecutor(1) as apart:  # the caller's thread may run an event loop
        return apart.submit(asyncio.run, _asked(send, proxy, service)).result()


async def _asked(send: Callable[[Transport], Coroutine[Any, Any, T]], proxy: OutgoingProxy | None, service: str) -> T:
    transport = Transport(plain_http_loopback=True, reach=_ANYWHERE, proxy=proxy)
    try:
        return await send(transport)
    except BrokerError as failure:
        code = failure.code if failure.code is Code.OUTGOING_PROXY_REFUSED else Code.KEY_UNKNOWN
        why = f"no answer: {failure.note}" if isinstance(failure, TransportFailed) else failure.note
        failed = BrokerError(code, note=f"{service}: {why}")
    finally:
        await transport.close()
    raise failed
