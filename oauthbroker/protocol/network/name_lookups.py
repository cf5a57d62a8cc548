"""Resolve names in threads of their own, so that a hanging name server delays only its own names.

The system's resolver blocks a thread, and no timeout frees it. The event loop's few threads do other work and are not
used. A host has one lookup at a time, which all callers share. An app has a few: a provider whose documents name host
after host takes no thread from another app.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from contextlib import suppress
from functools import partial

from oauthbroker.core.dataclasses import dataclass

MOST = 64  # lookups that run at once, abandoned ones included
MOST_FOR_ONE = 4  # of one app
LATE_SECONDS = 6.0  # a resolver tries its second name server after five
FAILURE_SECONDS = 3.0


class NoAddress(Exception):
    """The host has no address, or its lookup timed out. `note` says so."""

    def __init__(self, note: str = "its name has no address, or no name server says so in time") -> None:
        super().__init__(note)
        self.note = note


@dataclass(slots=True, eq=False, kw_only=True)
class _Lookup:
    """One lookup. `found` is empty for a failure. A lookup may be done while its thread still waits: then it is
    late."""

    host: str
    app: str
    found: asyncio.Future[list[str]]
    timer: asyncio.TimerHandle | None = None


class Lookups:
    """The lookups of one event loop. A failure is cached for a moment; a success is not."""

    def __init__(self) -> None:
        self._by_host: dict[str, _Lookup] = {}
        self._waiting: list[_Lookup] = []
        self._running: list[_Lookup] = []

    async def addresses(self, host: str, app: str = "") -> list[str]:
        """Return the addresses of a host, in the order of the system's resolver.

        Raises `NoAddress`, at once where the lookups of the host or the app hang. Without `app` the limit counts by
        host.
        """
        with suppress(ValueError):
            return [str(ipaddress.ip_address(host))]
        host, app = host.lower(), app or host.lower()
        lookup = self._by_host.get(host) or self._ask(host, app)
        if lookup.app != app and lookup in self._waiting and self._has_space(app):
            self._take_over(lookup, app)  # its app waits for other lookups, which may hang
        found = await asyncio.shield(lookup.found)
        if not found:
            raise NoAddress
        return list(found)

    def _ask(self, host: str, app: str) -> _Lookup:
        late = [each.app for each in self._running if each.found.done()]
        if len(late) >= MOST or late.count(app) >= MOST_FOR_ONE:
            raise NoAddress
        lookup = self._by_host[host] = _Lookup(host=host, app=app, found=asyncio.get_running_loop().create_future())
        self._waiting.append(lookup)
        self._take_over(lookup, app)
        return lookup

    def _take_over(self, lookup: _Lookup, app: str) -> None:
        lookup.app = app
        if lookup.timer is not None:
            lookup.timer.cancel()
        lookup.timer = asyncio.get_running_loop().call_later(LATE_SECONDS, self._give_up, lookup)
        self._start_waiting()

    def _has_space(self, app: str) -> bool:
        return len(self._running) < MOST and sum(each.app == app for each in self._running) < MOST_FOR_ONE

    def _start_waiting(self) -> None:
        loop = asyncio.get_running_loop()
        for lookup in list(self._waiting):
            if self._has_space(lookup.app):
                self._waiting.remove(lookup)
                self._running.append(lookup)
                _in_a_thread(lookup.host, loop, partial(self._answered, lookup))

    def _answered(self, lookup: _Lookup, found: list[str]) -> None:
        self._running.remove(lookup)
        if lookup.timer is not None:
            lookup.timer.cancel()
        if not lookup.found.done():
            lookup.found.set_result(found)
        if found:
            self._forget(lookup)
        else:
            asyncio.get_running_loop().call_later(FAILURE_SECONDS, self._forget, lookup)
        self._start_waiting()

    def _give_up(self, lookup: _Lookup) -> None:
        """Mark the lookup as late. Its thread goes on; until it ends, every caller is refused at once."""
        lookup.found.set_result([])
        if lookup in self._waiting:
            self._waiting.remove(lookup)
            self._forget(lookup)

    def _forget(self, lookup: _Lookup) -> None:
        self._by_host.pop(lookup.host, None)


def _in_a_thread(host: str, loop: asyncio.AbstractEventLoop, tell: partial[None]) -> None:
    """Run the lookup on a daemon thread, which does not delay the end of the process. The lookup fails if no thread
    can be started."""
    try:
        threading.Thread(target=_look_up, args=(host, loop, tell), daemon=True, name="lookup").start()
    except RuntimeError:
        loop.call_soon(tell, [])


def _look_up(host: str, loop: asyncio.AbstractEventLoop, tell: partial[None]) -> None:
    try:
        found = [str(address[0]) for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):  # a label that is empty or too long is not looked up
        found = []
    with suppress(RuntimeError):  # the loop has ended meanwhile
        loop.call_soon_threadsafe(tell, list(dict.fromkeys(found)))
