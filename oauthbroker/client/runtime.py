"""The runtime's side: begins turns, hands tokens to tools, takes events off the queue, confirms owners."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self, TypeVar

from oauthbroker.client import calls
from oauthbroker.client.address import bearer
from oauthbroker.client.call import Call
from oauthbroker.client.environment import KEY, LOCALE, TURN_TOKEN, URL, given, needed
from oauthbroker.client.oauth import DEFAULT, OAuth, Options
from oauthbroker.client.wire import OnWire, Wire
from oauthbroker.errors import BrokerError, Locale, known_locale
from oauthbroker.grant_summary import GrantSummary
from oauthbroker.records import AgentEvent
from oauthbroker.results import SessionOutcome
from oauthbroker.secret import Secret
from oauthbroker.token_request import AppRef
from oauthbroker.turn import TurnLike, whole_turn
from oauthbroker.turn_token import narrow

T = TypeVar("T")
POLL_SECONDS = (0.2, 0.5, 1.0, 2.0)  # between two looks at a session; the last one for ever


@dataclass(frozen=True, slots=True, repr=False)
class Delivery:
    """A leased event. Settle it with `ack` or `nack`; an unsettled one comes again when the lease ends."""

    event: AgentEvent
    attempt: int
    lease: Secret
    lease_expires_at: datetime
    _agent: str
    _runtime: Runtime

    @property
    def id(self) -> str:
        return self.event.id

    @property
    def type(self) -> str:
        return self.event.type

    def to_json(self) -> dict[str, Any]:
        return self.event.to_json()

    async def ack(self) -> bool:
        """Done. False when the lease had ended and somebody else has the event now."""
        return await self._runtime._send(calls.settle(self._agent, self.id, self.lease, "ack"))  # noqa: SLF001

    async def nack(self) -> bool:
        """Not done: it comes again after a back-off, a few times at most."""
        return await self._runtime._send(calls.settle(self._agent, self.id, self.lease, "nack"))  # noqa: SLF001

    def __repr__(self) -> str:
        return f"Delivery({self.type}, attempt={self.attempt})"


class RunningTurn:
    """A turn that was begun. Its tokens end with it."""

    __slots__ = ("_begun", "_locale", "_oauth", "_wire")

    def __init__(self, wire: Wire, begun: calls.BegunTurn, locale: Locale | None = None) -> None:
        self._wire = wire
        self._begun = begun
        self._locale = locale
        self._oauth = OAuth._on(wire, begun.token, locale or wire.locale)  # noqa: SLF001

    @property
    def turn_id(self) -> str:
        return self._begun.turn_id

    @property
    def expires_at(self) -> datetime:
        return self._begun.expires_at

    @property
    def token(self) -> Secret:
        """The un-narrowed one, for the runtime itself: it may ask for every app. No tool gets it."""
        return self._begun.token

    def token_for(self, tool: str) -> Secret:
        """What the tool `Tool/name` gets, and nothing else: good for what it was given or declares."""
        made = self._begun.tool_tokens.get(tool)
        return made if made is not None else narrow(self._begun.token, tool=tool)

    def env_for(self, tool: str) -> dict[str, str]:
        """The variables for the tool's process, from which `OAuth.from_env` makes its client. The token is in clear."""
        locale = {LOCALE: self._locale} if self._locale is not None else {}
        return {URL: self._wire.url, TURN_TOKEN: self.token_for(tool).reveal(), **locale}

    def oauth(self, tool: str | None = None) -> OAuth:
        """`ctx.oauth` of a tool that runs here; without `tool`, the runtime's own view of every app."""
        if tool is None:
            return self._oauth
        return OAuth._on(self._wire, self.token_for(tool), self._locale or self._wire.locale)  # noqa: SLF001

    async def pending(self, links: calls.Links = "inline") -> dict[str, Any] | None:
        """The `auth.pending` block for `step.blocks`, or None when nothing waits for a person. Raises nothing, as
        `OAuth.pending`."""
        return await self._oauth.pending(links)

    async def links(self) -> list[dict[str, Any]]:
        """The links of a turn whose blocks have none, to be delivered to their persons alone. Raises BrokerError: a
        link that is not sent leaves its person waiting."""
        return await self._oauth._send(calls.links())  # noqa: SLF001

    async def relay_code(self, code: str | Secret) -> SessionOutcome:
        """What the person sent back in the conversation (`channelCode`). Raises `stateUnknown`, `rateLimited`."""
        return await self._oauth.relay_code(code)

    def __repr__(self) -> str:
        return f"RunningTurn({self.turn_id})"


class Runtime(OnWire):
    """The broker as a runtime in another process sees it. `async with` it, or `aclose()` it. Raises BrokerError."""

    __slots__ = ("_key",)

    def __init__(self, url: str, key: str | Secret | None = None, options: Options = DEFAULT) -> None:
        """`key` is an API key of role `runtime` (`operator` for grants); None over a Unix socket that knows our user.

        Raises ValueError for what is no address or no key.
        """
        self._wire = options.wire(url)
        self._key = None if key is None else bearer(key)

    @classmethod
    def from_env(cls, options: Options = DEFAULT, env: Mapping[str, str] | None = None) -> Self:
        """From OAUTHBROKER_URL and, unless the socket knows us, OAUTHBROKER_API_KEY. Raises ValueError."""
        return cls(needed(URL, env), given(KEY, env), options)

    async def begin(
        self,
        turn: TurnLike,
        *,
        tools: calls.Tools | Collection[str] = (),
        ttl_seconds: int | None = None,
        private_links: bool = False,
    ) -> RunningTurn:
        """Begins a turn; `end` it. `tools` get tokens of their own: names, or a mapping name -> what it may ask for."""
        turn = whole_turn(turn)
        call = calls.begin_turn(turn, tools, ttl_seconds, private_links=private_links)
        return RunningTurn(self._wire, await self._send(call), known_locale(turn.locale))

    async def end(self, turn: RunningTurn | str) -> None:
        """No token of the turn is any good from now on. Also when it had ended."""
        await self._send(calls.end_turn(turn if isinstance(turn, str) else turn.turn_id))

    async def end_if_reached(self, turn_id: str) -> None:
        """As `end`; a broker that cannot be told now lets the turn run out."""
        try:
            await self.end(turn_id)
        except BrokerError as error:
            if not error.retryable:
                raise

    @asynccontextmanager
    async def turn(
        self,
        turn: TurnLike,
        *,
        tools: calls.Tools | Collection[str] = (),
        ttl_seconds: int | None = None,
        private_links: bool = False,
    ) -> AsyncIterator[RunningTurn]:
        """`begin` and `end` around a block. A broker that cannot be told of the end lets the turn run out."""
        running = await self.begin(turn, tools=tools, ttl_seconds=ttl_seconds, private_links=private_links)
        try:
            yield running
        finally:
            await self.end_if_reached(running.turn_id)

    async def lease(self, agent: str, wait: float = 30) -> Delivery | None:
        """The agent's next event, for at most `wait` seconds (60) of waiting. Settle it with `.ack()` or `.nack()`."""
        seconds = max(0, min(round(wait), calls.LONGEST_WAIT))
        leased = await self._send(calls.lease(agent, seconds))
        if leased is None:
            return None
        return Delivery(leased.event, leased.attempt, leased.lease, leased.expires_at, agent, self)

    async def events(self, agent: str, wait: float = 30) -> AsyncIterator[Delivery]:
        """The agent's events, one at a time, for ever. It outlives a broker that is away, busy or restarts; what asking
        again cannot mend is raised. The next event is leased when the one before has been worked on."""
        while True:
            yield await self.next_event(agent, wait)

    async def next_event(self, agent: str, wait: float = 30) -> Delivery:
        """The agent's next event, however long that takes; as in `events`."""
        while True:
            try:
                delivery = await self.lease(agent, max(wait, 1))
            except BrokerError as error:
                if not error.retryable:
                    raise
                delivery, pause = None, error.retry_after_seconds or self._wire.clock.jitter(0.5, 1.5)
                await self._wire.clock.sleep(pause)
            if delivery is not None:
                return delivery

    async def session(self, auth_session_id: str) -> SessionOutcome:
        """How an authorization stands."""
        return await self._send(calls.session(auth_session_id))

    async def wait(self, auth_session_id: str, timeout: float = 600) -> SessionOutcome:
        """Waits until an authorization has ended: `completed`, `failed` or `expired`; `pending` after `timeout` s."""
        clock, looks = self._wire.clock, 0
        deadline = clock.monotonic() + timeout
        while True:
            outcome = await self.session(auth_session_id)
            left = deadline - clock.monotonic()
            if outcome.status != "pending" or left <= 0:
                return outcome
            await clock.sleep(min(left, POLL_SECONDS[min(looks, len(POLL_SECONDS) - 1)]))
            looks += 1

    async def cancel(self, auth_session_id: str) -> bool:
        """The person said no in the conversation: the link dies, no event. False when there was nothing to cancel."""
        return await self._send(calls.cancel(auth_session_id))

    async def confirm(self, handle: str | Secret, subject: str) -> SessionOutcome:
        """`runtimeConfirm`: who is logged in where the browser brought this handle. Raises `stateUnknown`,
        `ownerBindingFailed`."""
        return await self._send(calls.confirm(handle if isinstance(handle, Secret) else Secret(handle), subject))

    async def relay_code(self, turn: RunningTurn, code: str | Secret) -> SessionOutcome:
        """`channelCode`: what the person sent back in the turn's conversation."""
        return await turn.relay_code(code)

    async def connections_link(self, subjects: Mapping[str, str]) -> tuple[str, datetime]:
        """A link that opens the page of these subjects' connections once, and until when. For that person alone."""
        return await self._send(calls.connections_link(subjects))

    async def apps(self) -> list[calls.AppInfo]:
        """The apps there are."""
        return await self._send(calls.apps())

    async def grants(
        self, *, app: AppRef | None = None, subject: str | None = None, state: str | None = None
    ) -> AsyncIterator[GrantSummary]:
        """For operators: the grants there are, page by page. `app` in any form of a reference; `state`: `live` or
        `revoked`."""
        after: str | None = None
        while True:
            found, after = await self._send(calls.grants(app, subject, state, after))
            for grant in found:
                yield grant
            if after is None:
                return

    async def revoke(self, grant_id: str) -> str | None:
        """For operators: ends a grant here at once; what the provider knows by now: `done`, `refused`, `none`,
        `shared` or `later`. None when no grant of that id was alive."""
        return await self._send(calls.revoke(grant_id))

    async def grant_record(self, grant_id: str) -> dict[str, Any] | None:
        """For operators: the OAuthGrantRecord with its secrets masked; None where no grant has that id."""
        return await self._send(calls.grant_record(grant_id))

    async def sessions(
        self, *, app: AppRef | None = None, subject: str | None = None, status: str | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """For operators: AuthSessionRecords with their secrets masked, page by page."""
        after: str | None = None
        while True:
            found, after = await self._send(calls.sessions(app, subject, status, after))
            for session in found:
                yield session
            if after is None:
                return

    async def session_record(self, auth_session_id: str) -> dict[str, Any] | None:
        """For operators: the AuthSessionRecord with its secrets masked; None where none is kept."""
        return await self._send(calls.session_record(auth_session_id))

    async def queues(self) -> list[dict[str, Any]]:
        """For operators: the queue of each agent, and how deep it is."""
        return await self._send(calls.queues())

    async def dead_letters(self, agent: str) -> list[dict[str, Any]]:
        """For operators: events that no consumer could settle, the newest dead first."""
        return await self._send(calls.dead_letters(agent))

    async def retry_dead_letter(self, agent: str, event_id: str) -> bool:
        """For operators: gives a dead letter its attempts anew. False where none has that id."""
        return await self._send(calls.retry_dead_letter(agent, event_id))

    async def drop_dead_letter(self, agent: str, event_id: str) -> bool:
        """For operators: removes a dead letter for good. False where none has that id."""
        return await self._send(calls.drop_dead_letter(agent, event_id))

    async def erase(self, subject: str, *, dry_run: bool = False) -> dict[str, Any]:
        """For operators: revokes a subject's grants and removes all its records; how many of each kind. `erased` is
        false with `dry_run`, and while a provider (`toTell`) or a browser (`connecting`) has to be waited for."""
        return await self._send(calls.erase(subject, dry_run=dry_run))

    async def _send(self, call: Call[T]) -> T:
        return await self._wire.send(call, self._key)
