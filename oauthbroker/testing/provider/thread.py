"""Runs the provider's server in a thread with a loop of its own."""

from __future__ import annotations

import asyncio
import threading

from oauthbroker.testing.provider.server import HttpServer


class ServerThread:
    """Serves between `start` and `stop`, independent of other threads."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="identity-provider", daemon=True)

    def start(self) -> None:
        """Return once the server listens."""
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """Return once every connection is closed and the thread has ended."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._server.start())
            self._ready.set()
            self._loop.run_forever()
            runner.run(self._server.stop())
