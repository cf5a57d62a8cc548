"""A connection that answers known requests from their bytes, at once: without a parser, a scope or a task."""

from __future__ import annotations

import asyncio

from oauthbroker.serving.http1.connection import HttpConnection

HOLD_SECONDS = 0.05  # clients send the head and the body one after the other


class WarmConnection(HttpConnection):
    """An `HttpConnection` that asks `KnownHeads` first. Everything that is not known takes the general way."""

    _head = b""  # of the request under way
    _used_at = 0.0  # by the loop's time: when a request was answered at once
    _hold: asyncio.TimerHandle | None = None
    _asking: asyncio.Task[bytes | None] | None = None  # the store, for the answer to the request under way
    _closes = False  # once that is answered

    def _read(self) -> None:
        if self._is_free() and (self._answered_at_once() or self._is_asked() or self._is_held()):
            return
        self._stop_holding()
        super()._read()

    def _is_free(self) -> bool:
        """Tell whether a request may begin, and its answer be written, now."""
        busy = self._answering or self.flow.held or self.flow.write_paused or self.transport.is_closing()
        return self._slot == "whole" and self._over and not busy and not self._terms.draining

    def _answered_at_once(self) -> bool:
        answer = self._heads.answer(self._received, self.server_state.default_headers)
        if answer is None:
            return False
        self._received = b""
        self._send(answer)
        return True

    def _send(self, answer: bytes) -> None:
        self._seen = 0
        self._stop_holding()
        self._head_has_come()
        self.transport.write(answer)
        self._stay_open()

    @property
    def _answering(self) -> bool:
        return self._asking is not None or super()._answering

    def _is_asked(self) -> bool:
        """Ask the store for the answer to a known request. Bytes behind the request wait."""
        question = self._heads.question(self._received, self.server_state.default_headers)
        if question is None:
            return False
        self._stop_holding()
        self._head_has_come()
        self._used_at, length = self.loop.time(), len(self._received)
        self._asking = self.loop.create_task(question)
        self._asking.add_done_callback(lambda asking: self._was_asked(asking, length))
        return True

    def _was_asked(self, asking: asyncio.Task[bytes | None], length: int) -> None:
        """Write the answer to the request of this length, or let the general way answer it."""
        self._asking = None
        failed = asking.cancelled() or asking.exception() is not None
        if self.transport.is_closing():
            return
        answer = None if failed else asking.result()
        if answer is None:
            super()._read()
        else:
            self._received = self._received[length:]
            self._send(answer)
            if self._received:
                self._read()
        if self._closes:
            self.shutdown()

    def _stay_open(self) -> None:
        """Do what the base does after an answer, and leave the timer of an idle connection running: it looks itself
        when the connection was last used."""
        self.server_state.total_requests += 1
        self._used_at = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._close_when_idle_for(self.timeout_keep_alive)

    def _close_when_idle_for(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        left = self._used_at + self.timeout_keep_alive - self.loop.time()
        if left > 0 and not self.transport.is_closing():
            self._close_when_idle_for(left)
        else:
            super().timeout_keep_alive_handler()

    def _is_held(self) -> bool:
        """Wait a moment for the body of a known head. After it the general way begins, and with it its time limit."""
        if not self._heads.lacks_body(self._received):
            return False
        self._unset_keepalive_if_required()
        if self._hold is None:
            self._hold = self.loop.call_later(HOLD_SECONDS, self._hold_is_over)
        return True

    def _hold_is_over(self) -> None:
        self._hold = None
        super()._read()

    def _stop_holding(self) -> None:
        if self._hold is not None:
            self._hold.cancel()
            self._hold = None

    def _read_head(self) -> bool:
        received = self._received
        has_come = super()._read_head()
        self._head = received[: len(received) - len(self._received)] if has_come else b""
        return has_come

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.keep_alive:
            self._heads.learn(self._head, self.headers, check_host=self._uid is None)
        self._head = b""

    def shutdown(self) -> None:
        """Answer a request that has begun to come, as the general way does."""
        self._closes = self._asking is not None
        if self._closes:
            return
        if self._hold is not None:
            self._stop_holding()
            super()._read()
        super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_holding()
        if self._asking is not None:
            self._asking.cancel()
        super().connection_lost(exc)
