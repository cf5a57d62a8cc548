"""Publish to a stream of NATS JetStream, through nats-py (the extra `nats`).

A client never reconnects by itself: a broken or stuck one is thrown away, and the next message makes a new one, whose
servers are looked up and checked anew. So a server's list of its neighbours is never followed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from oauthbroker.core.errors import ConfigCauseError
from oauthbroker.model.forwarders import Nats
from oauthbroker.model.provider_networks import ProviderNetworks
from oauthbroker.protocol.network.name_lookups import Lookups, NoAddress
from oauthbroker.protocol.network.tls_contexts import tls_context

if TYPE_CHECKING:
    from nats.aio.client import Client

INSTALL = 'NATS needs `pip install "oauthbroker[nats]"`'
CONNECT_SECONDS = 5.0  # for each server
_CLOSE_SECONDS = 1.0


class NatsFailed(Exception):
    """`note` says in fixed words what went wrong. `refused`: the message itself was, and another one may pass."""

    def __init__(self, note: str, *, refused: bool = False) -> None:
        super().__init__(note)
        self.note, self.refused = note, refused


class JetStream:
    """One client of one NATS system. Belongs to one event loop."""

    def __init__(self, nats: Nats, *, reach: ProviderNetworks, ca: str) -> None:
        self._nats, self._reach, self._ca, self._lookups = nats, reach, ca, Lookups()
        self._client: Client | None = None
        self._connecting = asyncio.Lock()

    async def publish(self, message_id: str, body: bytes, *, seconds: float) -> None:
        """Publish a message, and return once a stream has stored it, or had stored one with this id before. Raises
        `NatsFailed`; the message may have been stored then."""
        client = await self._connected()
        failed = NatsFailed("the exchange broke off")
        try:
            headers = {"Nats-Msg-Id": message_id}
            await client.jetstream().publish(self._nats.subject, body, timeout=seconds, headers=headers)
        except Exception as error:  # noqa: BLE001  (a library's text may hold anything)
            failed = _failure_of(error)
        except BaseException:
            await self._drop(client)
            raise
        else:
            return
        if not failed.refused:
            await self._drop(client)
        raise failed

    async def duplicate_seconds(self) -> float:
        """Return for how long the stream of the subject knows ids again. Raises `NatsFailed`."""
        client, failed = await self._connected(), NatsFailed("the exchange broke off")
        try:
            manager = client.jetstream(timeout=CONNECT_SECONDS)
            stream = await manager.stream_info(await manager.find_stream_name_by_subject(self._nats.subject))
            return float(stream.config.duplicate_window or 0)
        except Exception as error:  # noqa: BLE001  (as above)
            failed = _failure_of(error)
        raise failed

    async def close(self) -> None:
        if self._client is not None:
            await self._drop(self._client)

    async def _connected(self) -> Client:
        async with self._connecting:
            if self._client is None or not self._client.is_connected:
                self._client = None
                self._client = await self._dialed()
            return self._client

    async def _dialed(self) -> Client:
        """Connect to the first server that answers."""
        failed = NatsFailed("no server is configured")
        for server in self._nats.servers:
            try:
                return await self._dial(server)
            except NatsFailed as error:
                failed = error
        raise failed

    async def _dial(self, server: str) -> Client:
        parts = urlsplit(server)
        host, port = parts.hostname or "", parts.port or 4222
        try:
            found = await self._lookups.addresses(host)
        except NoAddress:
            found = []
        addresses = [each for each in found if self._reach.admits(each)]
        if not addresses:
            raise NatsFailed("its address is not public and not in `networks`" if found else "its name has no address")
        urls = [f"{parts.scheme}://{f'[{each}]' if ':' in each else each}:{port}" for each in addresses]
        client, tls, note = _client(), _Tls(self._ca) if parts.scheme == "tls" else None, ""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.connect(urls, **self._options(tls, host))
            if tls is not None:
                tls.check()
        except Exception as error:  # noqa: BLE001  (as above)
            note = _failure_of(error).note
        except BaseException:
            await self._drop(client)
            raise
        if note:
            await self._drop(client)
            raise NatsFailed(note)
        return client

    def _options(self, tls: _Tls | None, host: str) -> dict[str, Any]:
        options: dict[str, Any] = {
            "name": "oauthbroker",
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0,
            "connect_timeout": CONNECT_SECONDS,
            "error_cb": _ignore,
        }
        if tls is not None:
            options |= {"tls": tls.context, "tls_hostname": host}
        if self._nats.password is not None:
            password = self._nats.password

            def revealed() -> str:
                if tls is not None:
                    tls.check()
                return password.reveal()

            options |= {"user": self._nats.user, "password": revealed}
        return options

    async def _drop(self, client: Client) -> None:
        """Close a client. One that is stuck is left to itself."""
        if self._client is client:
            self._client = None
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await client.close()


class _Tls:
    """The TLS of one connection. nats-py goes on in the clear, password and all, if the server offers no TLS."""

    def __init__(self, ca: str) -> None:
        self.context = tls_context(ca)
        self._before = self._handshakes()

    def check(self) -> None:
        """Raise `NatsFailed` unless a handshake was made."""
        if self._handshakes() == self._before:
            raise NatsFailed("TLS: the server does not offer it")

    def _handshakes(self) -> int:
        return self.context.session_stats()["connect_good"]


def _client() -> Client:
    try:
        from nats.aio.client import Client
    except ImportError:
        raise ConfigCauseError(INSTALL) from None
    return Client()


def _failure_of(error: Exception) -> NatsFailed:
    """Return the failure in our words: a library's may hold addresses and subjects."""
    from nats import errors
    from nats.js.errors import APIError, NoStreamResponseError, NotFoundError

    if isinstance(error, NatsFailed):
        return error
    if isinstance(error, errors.MaxPayloadError):
        return NatsFailed("larger than the server takes", refused=True)
    if isinstance(error, NoStreamResponseError | NotFoundError):
        return NatsFailed("no stream takes the subject")
    if isinstance(error, APIError):
        return NatsFailed(f"the stream refuses it (error {error.err_code})")
    if isinstance(error, TimeoutError):
        return NatsFailed("no answer in time")
    if "Authorization" in str(error):
        return NatsFailed("the server refuses user or password")
    return NatsFailed(f"the exchange broke off ({type(error).__name__})")


async def _ignore(_: Exception) -> None:
    """nats-py would log the error, with addresses."""
