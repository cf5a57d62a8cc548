"""The runtime's client for code without `await`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Self, Unpack

from oauthbroker.client import runtime_requests
from oauthbroker.client.address import KEY, URL, bearer, given, needed
from oauthbroker.client.runtime import Delivery, RunningTurn, Runtime, TurnOptions
from oauthbroker.client.sync import Sync, SyncClient, SyncOAuth, blocking_wire, collects, run, same, waits
from oauthbroker.client.tool import DEFAULT, Options
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.secret import Secret
from oauthbroker.model.token_results import SessionOutcome
from oauthbroker.model.turn import TurnLike


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class SyncDelivery(runtime_requests.Leased):
    """A leased event. Settle it with `ack` or `nack`; an unsettled event is delivered again when the lease ends."""

    _delivery: Delivery

    @classmethod
    def _of(cls, delivery: Delivery) -> Self:
        return cls(
            event=delivery.event,
            attempt=delivery.attempt,
            lease=delivery.lease,
            lease_expires_at=delivery.lease_expires_at,
            _delivery=delivery,
        )

    def ack(self) -> bool:
        """Call `Delivery.ack`."""
        return run(self._delivery.ack())

    def nack(self) -> bool:
        """Call `Delivery.nack`."""
        return run(self._delivery.nack())


class SyncRunningTurn(Sync[RunningTurn]):
    """A turn that was begun. Its tokens end with it."""

    __slots__ = ()

    @property
    def turn_id(self) -> str:
        """As `RunningTurn.turn_id`."""
        return self._async.turn_id

    @property
    def expires_at(self) -> datetime:
        """As `RunningTurn.expires_at`."""
        return self._async.expires_at

    @property
    def token(self) -> Secret:
        """As `RunningTurn.token`. Give it to no tool."""
        return self._async.token

    token_for = same(RunningTurn.token_for)
    env_for = same(RunningTurn.env_for)
    pending = waits(RunningTurn.pending)
    links = waits(RunningTurn.links)
    relay_code = waits(RunningTurn.relay_code)

    def oauth(self, tool: str | None = None) -> SyncOAuth:
        """Call `RunningTurn.oauth`."""
        return SyncOAuth._of(self._async.oauth(tool))  # noqa: SLF001


class SyncRuntime(SyncClient[Runtime]):
    """`Runtime` without `await`. `with` it, or `close()` it."""

    __slots__ = ()

    def __init__(self, url: str, key: str | Secret | None = None, options: Options = DEFAULT) -> None:
        self._async = Runtime._on(blocking_wire(url, options), None if key is None else bearer(key))  # noqa: SLF001

    @classmethod
    def from_env(cls, options: Options = DEFAULT, env: Mapping[str, str] | None = None) -> Self:
        """Call `Runtime.from_env`."""
        return cls(needed(URL, env), given(KEY, env), options)

    def begin(self, turn: TurnLike, **options: Unpack[TurnOptions]) -> SyncRunningTurn:
        """Call `Runtime.begin`: `end` it."""
        return SyncRunningTurn._of(run(self._async.begin(turn, **options)))  # noqa: SLF001

    def end(self, turn: SyncRunningTurn | str) -> None:
        """End a turn and its tokens. Idempotent."""
        run(self._async.end(turn if isinstance(turn, str) else turn.turn_id))

    @contextmanager
    def turn(self, turn: TurnLike, **options: Unpack[TurnOptions]) -> Iterator[SyncRunningTurn]:
        """Call `Runtime.turn`: `begin` and `end` around a block."""
        running = self.begin(turn, **options)
        try:
            yield running
        finally:
            run(self._async.end_if_reached(running.turn_id))

    def lease(self, agent: str, wait: float = 30) -> SyncDelivery | None:
        """Call `Runtime.lease`."""
        delivery = run(self._async.lease(agent, wait))
        return None if delivery is None else SyncDelivery._of(delivery)  # noqa: SLF001

    def events(self, agent: str, wait: float = 30) -> Iterator[SyncDelivery]:
        """Call `Runtime.events`: for ever."""
        while True:
            yield SyncDelivery._of(run(self._async.next_event(agent, wait)))  # noqa: SLF001

    def relay_code(self, turn: SyncRunningTurn, code: str | Secret) -> SessionOutcome:
        """Pass on the code (`channelCode`) that the user sent in the turn's conversation."""
        return turn.relay_code(code)

    session = waits(Runtime.session)
    wait = waits(Runtime.wait)
    cancel = waits(Runtime.cancel)
    confirm = waits(Runtime.confirm)
    connections_link = waits(Runtime.connections_link)
    apps = waits(Runtime.apps)
    grants = collects(Runtime.grants)
    import_grants = waits(Runtime.import_grants)
    revoke = waits(Runtime.revoke)
    grant_record = waits(Runtime.grant_record)
    sessions = collects(Runtime.sessions)
    session_record = waits(Runtime.session_record)
    queues = waits(Runtime.queues)
    dead_letters = waits(Runtime.dead_letters)
    retry_dead_letter = waits(Runtime.retry_dead_letter)
    drop_dead_letter = waits(Runtime.drop_dead_letter)
    erase = waits(Runtime.erase)
