"""The clients for code without `await`: the async ones, run on one shared thread."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from oauthbroker.client import calls
from oauthbroker.client.runtime import Delivery, RunningTurn, Runtime
from oauthbroker.client.sync_thread import run
from oauthbroker.client.tool import DEFAULT, OAuth, Options
from oauthbroker.core.secret import Secret
from oauthbroker.model.results import SessionOutcome, TokenResult
from oauthbroker.model.token_request import AppRef
from oauthbroker.model.turn import TurnLike
from oauthbroker.model.turn_token import AllowedApps
from oauthbroker.records import AgentEvent
from oauthbroker.records.grant_summary import GrantSummary


class SyncOAuth:
    """`OAuth` without `await`. `with` it, or `close()` it."""

    __slots__ = ("_oauth",)

    def __init__(self, url: str, turn_token: str | Secret, options: Options = DEFAULT) -> None:
        self._oauth = OAuth(url, turn_token, options)

    @classmethod
    def from_env(cls, options: Options = DEFAULT, env: Mapping[str, str] | None = None) -> Self:
        """Create a client from OAUTHBROKER_URL and OAUTHBROKER_TURN_TOKEN. Raises ValueError, which names a missing
        variable."""
        return cls._of(OAuth.from_env(options, env))

    @classmethod
    def _of(cls, oauth: OAuth) -> Self:
        made = cls.__new__(cls)
        made._oauth = oauth  # noqa: SLF001
        return made

    def get_access_token(
        self,
        app: str | Mapping[str, str],
        scopes: Sequence[str] | None = None,
        min_ttl_seconds: int | None = None,
        *,
        switch_account: bool = False,
    ) -> TokenResult:
        """As `OAuth.get_access_token`: it always returns a result."""
        return run(self._oauth.get_access_token(app, scopes, min_ttl_seconds, switch_account=switch_account))

    def getAccessToken(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """As `OAuth.getAccessToken`: the specification's form, with the token in clear."""
        return run(self._oauth.getAccessToken(request))

    def report_rejected(
        self, app: str | Mapping[str, str], access_token: str | Secret, scopes: Sequence[str] | None = None
    ) -> TokenResult:
        """As `OAuth.report_rejected`."""
        return run(self._oauth.report_rejected(app, access_token, scopes))

    def pending(self, links: calls.Links = "inline") -> dict[str, Any] | None:
        """As `OAuth.pending`."""
        return run(self._oauth.pending(links))

    def relay_code(self, code: str | Secret) -> SessionOutcome:
        """As `OAuth.relay_code`."""
        return run(self._oauth.relay_code(code))

    def apps(self) -> list[calls.AppInfo]:
        """Return the apps that this token may use."""
        return run(self._oauth.apps())

    def narrow(
        self, *, tool: str | None = None, apps: AllowedApps | None = None, expires_at: datetime | None = None
    ) -> Self:
        """As `OAuth.narrow`: sends no request."""
        return self._of(self._oauth.narrow(tool=tool, apps=apps, expires_at=expires_at))

    @property
    def turn_token(self) -> Secret:
        """Return the token itself, to pass to another process: `reveal()` it there and nowhere else."""
        return self._oauth.turn_token

    def close(self) -> None:
        """Close the connections, which narrowed clients share."""
        run(self._oauth.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Sync{self._oauth!r}"


@dataclass(frozen=True, slots=True, repr=False)
class SyncDelivery:
    """A leased event. Settle it with `ack` or `nack`; an unsettled event is delivered again when the lease ends."""

    _delivery: Delivery

    @property
    def event(self) -> AgentEvent:
        return self._delivery.event

    @property
    def attempt(self) -> int:
        return self._delivery.attempt

    @property
    def lease_expires_at(self) -> datetime:
        return self._delivery.lease_expires_at

    @property
    def id(self) -> str:
        return self._delivery.id

    @property
    def type(self) -> str:
        return self._delivery.type

    def to_json(self) -> dict[str, Any]:
        return self._delivery.to_json()

    def ack(self) -> bool:
        """Acknowledge the event. False if the lease had ended and another consumer has the event now."""
        return run(self._delivery.ack())

    def nack(self) -> bool:
        """Return the event: it is delivered again after a back-off, a few times at most."""
        return run(self._delivery.nack())

    def __repr__(self) -> str:
        return f"Sync{self._delivery!r}"


class SyncRunningTurn:
    """A turn that was begun. Its tokens end with it."""

    __slots__ = ("_running",)

    def __init__(self, running: RunningTurn) -> None:
        self._running = running

    @property
    def turn_id(self) -> str:
        return self._running.turn_id

    @property
    def expires_at(self) -> datetime:
        return self._running.expires_at

    @property
    def token(self) -> Secret:
        """Return the turn's full token, for the runtime itself. Give it to no tool."""
        return self._running.token

    def token_for(self, tool: str) -> Secret:
        """Return the token of the tool `Tool/name`, limited to the apps that it was given or declares."""
        return self._running.token_for(tool)

    def env_for(self, tool: str) -> dict[str, str]:
        """Return the environment variables for the tool's process, which `OAuth.from_env` reads. The token is in
        clear."""
        return self._running.env_for(tool)

    def oauth(self, tool: str | None = None) -> SyncOAuth:
        """Return `ctx.oauth` for a tool in this process; without `tool`, the runtime's own client for every app."""
        return SyncOAuth._of(self._running.oauth(tool))  # noqa: SLF001

    def pending(self, links: calls.Links = "inline") -> dict[str, Any] | None:
        """As `RunningTurn.pending`."""
        return run(self._running.pending(links))

    def links(self) -> list[dict[str, Any]]:
        """Return the links of a turn whose blocks have none, to be delivered to each user alone."""
        return run(self._running.links())

    def relay_code(self, code: str | Secret) -> SessionOutcome:
        """Pass on the code that the user sent in the conversation (`channelCode`)."""
        return run(self._running.relay_code(code))

    def __repr__(self) -> str:
        return f"Sync{self._running!r}"


class SyncRuntime:
    """`Runtime` without `await`. `with` it, or `close()` it."""

    __slots__ = ("_runtime",)

    def __init__(self, url: str, key: str | Secret | None = None, options: Options = DEFAULT) -> None:
        self._runtime = Runtime(url, key, options)

    @classmethod
    def from_env(cls, options: Options = DEFAULT, env: Mapping[str, str] | None = None) -> Self:
        """Create a client from OAUTHBROKER_URL and OAUTHBROKER_API_KEY (not needed if the socket knows us). Raises
        ValueError."""
        made = cls.__new__(cls)
        made._runtime = Runtime.from_env(options, env)  # noqa: SLF001
        return made

    def begin(
        self,
        turn: TurnLike,
        *,
        tools: calls.Tools | Collection[str] = (),
        ttl_seconds: int | None = None,
        private_links: bool = False,
    ) -> SyncRunningTurn:
        """As `Runtime.begin`: `end` it."""
        begun = self._runtime.begin(turn, tools=tools, ttl_seconds=ttl_seconds, private_links=private_links)
        return SyncRunningTurn(run(begun))

    def end(self, turn: SyncRunningTurn | str) -> None:
        """End a turn and its tokens. Idempotent."""
        run(self._runtime.end(turn if isinstance(turn, str) else turn.turn_id))

    @contextmanager
    def turn(
        self,
        turn: TurnLike,
        *,
        tools: calls.Tools | Collection[str] = (),
        ttl_seconds: int | None = None,
        private_links: bool = False,
    ) -> Iterator[SyncRunningTurn]:
        """As `Runtime.turn`: `begin` and `end` around a block."""
        running = self.begin(turn, tools=tools, ttl_seconds=ttl_seconds, private_links=private_links)
        try:
            yield running
        finally:
            run(self._runtime.end_if_reached(running.turn_id))

    def lease(self, agent: str, wait: float = 30) -> SyncDelivery | None:
        """As `Runtime.lease`."""
        delivery = run(self._runtime.lease(agent, wait))
        return None if delivery is None else SyncDelivery(delivery)

    def events(self, agent: str, wait: float = 30) -> Iterator[SyncDelivery]:
        """As `Runtime.events`: for ever."""
        while True:
            yield SyncDelivery(run(self._runtime.next_event(agent, wait)))

    def session(self, auth_session_id: str) -> SessionOutcome:
        """Return the state of an authorization."""
        return run(self._runtime.session(auth_session_id))

    def wait(self, auth_session_id: str, timeout: float = 600) -> SessionOutcome:
        """As `Runtime.wait`."""
        return run(self._runtime.wait(auth_session_id, timeout))

    def cancel(self, auth_session_id: str) -> bool:
        """Cancel an authorization that the user declined in the conversation: the link becomes invalid, without an
        event."""
        return run(self._runtime.cancel(auth_session_id))

    def confirm(self, handle: str | Secret, subject: str) -> SessionOutcome:
        """As `Runtime.confirm`."""
        return run(self._runtime.confirm(handle, subject))

    def relay_code(self, turn: SyncRunningTurn, code: str | Secret) -> SessionOutcome:
        """Pass on the code (`channelCode`) that the user sent in the turn's conversation."""
        return turn.relay_code(code)

    def connections_link(self, subjects: Mapping[str, str]) -> tuple[str, datetime]:
        """As `Runtime.connections_link`."""
        return run(self._runtime.connections_link(subjects))

    def apps(self) -> list[calls.AppInfo]:
        """Return all apps."""
        return run(self._runtime.apps())

    def grants(
        self, *, app: AppRef | None = None, subject: str | None = None, state: str | None = None
    ) -> list[GrantSummary]:
        """As `Runtime.grants`, all of them at once."""

        async def every() -> list[GrantSummary]:
            return [grant async for grant in self._runtime.grants(app=app, subject=subject, state=state)]

        return run(every())

    def revoke(self, grant_id: str) -> str | None:
        """As `Runtime.revoke`."""
        return run(self._runtime.revoke(grant_id))

    def grant_record(self, grant_id: str) -> dict[str, Any] | None:
        """As `Runtime.grant_record`."""
        return run(self._runtime.grant_record(grant_id))

    def sessions(
        self, *, app: AppRef | None = None, subject: str | None = None, status: str | None = None
    ) -> list[dict[str, Any]]:
        """As `Runtime.sessions`, all at once."""

        async def every() -> list[dict[str, Any]]:
            return [session async for session in self._runtime.sessions(app=app, subject=subject, status=status)]

        return run(every())

    def session_record(self, auth_session_id: str) -> dict[str, Any] | None:
        """As `Runtime.session_record`."""
        return run(self._runtime.session_record(auth_session_id))

    def queues(self) -> list[dict[str, Any]]:
        """As `Runtime.queues`."""
        return run(self._runtime.queues())

    def dead_letters(self, agent: str) -> list[dict[str, Any]]:
        """As `Runtime.dead_letters`."""
        return run(self._runtime.dead_letters(agent))

    def retry_dead_letter(self, agent: str, event_id: str) -> bool:
        """As `Runtime.retry_dead_letter`."""
        return run(self._runtime.retry_dead_letter(agent, event_id))

    def drop_dead_letter(self, agent: str, event_id: str) -> bool:
        """As `Runtime.drop_dead_letter`."""
        return run(self._runtime.drop_dead_letter(agent, event_id))

    def erase(self, subject: str, *, dry_run: bool = False) -> dict[str, Any]:
        """As `Runtime.erase`."""
        return run(self._runtime.erase(subject, dry_run=dry_run))

    def close(self) -> None:
        """Close the connections, which turns and their clients share."""
        run(self._runtime.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Sync{self._runtime!r}"
