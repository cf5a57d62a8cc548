"""The runtime's client: begin turns, give tokens to tools, lease events, confirm owners."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Self, TypedDict, Unpack

from oauthbroker.client import runtime_requests, tool_requests
from oauthbroker.client.address import KEY, LOCALE, TURN_TOKEN, URL, bearer, given, needed
from oauthbroker.client.operators import OperatorCalls
from oauthbroker.client.retries import Wire
from oauthbroker.client.tool import DEFAULT, OAuth, Options
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code, Locale, known_locale
from oauthbroker.core.secret import Secret
from oauthbroker.model.token_request import checked_wait
from oauthbroker.model.token_results import SessionOutcome
from oauthbroker.model.turn import TurnLike, whole_turn
from oauthbroker.model.turn_token import BegunTurn

POLL_SECONDS = (0.2, 0.5, 1.0, 2.0)  # between two polls of a session; the last one repeats


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Delivery(runtime_requests.Leased):
    """A leased event. Settle it with `ack` or `nack`; an unsettled event is delivered again when the lease ends."""

    _agent: str
    _runtime: Runtime

    async def ack(self) -> bool:
        """Acknowledge the event. False if the lease had ended and another consumer has the event now."""
        return await self._runtime._send(runtime_requests.settle(self._agent, self.id, self.lease, "ack"))  # noqa: SLF001

    async def nack(self) -> bool:
        """Return the event: it is delivered again after a back-off, a few times at most."""
        return await self._runtime._send(runtime_requests.settle(self._agent, self.id, self.lease, "nack"))  # noqa: SLF001


class TurnOptions(TypedDict, total=False):
    """The options of `Runtime.begin`."""

    tools: runtime_requests.Tools | Collection[str]
    ttl_seconds: int | None
    private_links: bool


class RunningTurn:
    """A turn that was begun. Its tokens end with it."""

    __slots__ = ("_begun", "_locale", "_oauth", "_wire")

    def __init__(self, wire: Wire, begun: BegunTurn, locale: Locale | None = None) -> None:
        self._wire = wire
        self._begun = begun
        self._locale = locale
        self._oauth = OAuth._on(wire, begun.token, locale or wire.locale)  # noqa: SLF001

    @property
    def turn_id(self) -> str:
        """Return the id of the turn, for `end_turn` and the log."""
        return self._begun.turn_id

    @property
    def expires_at(self) -> datetime:
        """Return when the turn and its tokens end by themselves, aware, UTC."""
        return self._begun.expires_at

    @property
    def token(self) -> Secret:
        """Return the turn's full token, for the runtime itself: it may use every app. Give it to no tool."""
        return self._begun.token

    def token_for(self, tool: str) -> Secret:
        """Return the token of the tool `Tool/name`, limited to the apps that it was given or declares. Raises
        `requestInvalid` for a tool that the turn was not begun with; `oauth().narrow(tool=...)` is for such a tool."""
        made = self._begun.tool_tokens.get(tool)
        if made is None:
            raise BrokerError(Code.REQUEST_INVALID, note=f"{tool!r:.300} is not among the turn's tools")
        return made

    def env_for(self, tool: str) -> dict[str, str]:
        """Return the environment variables that `OAuth.from_env` reads in the tool's process. The token is in clear."""
        locale = {LOCALE: self._locale} if self._locale is not None else {}
        return {URL: self._wire.url, TURN_TOKEN: self.token_for(tool).reveal(), **locale}

    def oauth(self, tool: str | None = None) -> OAuth:
        """Return `ctx.oauth` for a tool in this process; without `tool`, the runtime's own client for every app."""
        if tool is None:
            return self._oauth
        return OAuth._on(self._wire, self.token_for(tool), self._locale or self._wire.locale)  # noqa: SLF001

    async def pending(self, links: tool_requests.Links = "inline") -> dict[str, Any] | None:
        """Return the `auth.pending` block for `step.blocks`; None if nothing is pending for a user. Does not raise,
        as `OAuth.pending`."""
        return await self._oauth.pending(links)

    async def links(self) -> list[dict[str, Any]]:
        """Return the links of a turn whose blocks have none, to be delivered to each user alone. Raises BrokerError:
        without the link its user would keep waiting."""
        return await self._oauth._send(runtime_requests.links())  # noqa: SLF001

    async def relay_code(self, code: str | Secret) -> SessionOutcome:
        """Pass on the code that the user sent here (`channelCode`). Raises `stateUnknown`, `rateLimited`."""
        return await self._oauth.relay_code(code)

    def __repr__(self) -> str:
        return f"RunningTurn({self.turn_id})"


class Runtime(OperatorCalls):
    """The broker as a runtime in another process sees it. Use `async with`, or `aclose()` it. Raises BrokerError."""

    __slots__ = ()

    def __init__(self, url: str, key: str | Secret | None = None, options: Options = DEFAULT) -> None:
        """`key` is an API key of role `runtime` (`operator` for grants); None over a Unix socket that knows our user.
        Raises `configInvalid`, which is a ValueError too, for an invalid address or key."""
        self._wire = options.wire(url)
        self._bearer = None if key is None else bearer(key)
        self._locale = None

    @classmethod
    def from_env(cls, options: Options = DEFAULT, env: Mapping[str, str] | None = None) -> Self:
        """Create a client from OAUTHBROKER_URL and OAUTHBROKER_API_KEY (not needed if the socket knows us). Raises
        `configInvalid`, which names a missing variable."""
        return cls(needed(URL, env), given(KEY, env), options)

    async def begin(
        self,
        turn: TurnLike,
        *,
        tools: runtime_requests.Tools | Collection[str] = (),
        ttl_seconds: int | None = None,
        private_links: bool = False,
    ) -> RunningTurn:
        """Begin a turn; `end` it. `tools` get tokens of their own: names, or names with the auths they may request."""
        turn = whole_turn(turn)
        call = runtime_requests.begin_turn(turn, tools, ttl_seconds, private_links=private_links)
        return RunningTurn(self._wire, await self._send(call), known_locale(turn.locale))

    async def end(self, turn: RunningTurn | str) -> None:
        """End a turn and its tokens. Idempotent."""
        await self._send(runtime_requests.end_turn(turn if isinstance(turn, str) else turn.turn_id))

    async def end_if_reached(self, turn_id: str) -> None:
        """End a turn as `end` does. If the broker is unreachable, the turn expires later."""
        try:
            await self.end(turn_id)
        except BrokerError as error:
            if not error.retryable:
                raise

    @asynccontextmanager
    async def turn(self, turn: TurnLike, **options: Unpack[TurnOptions]) -> AsyncIterator[RunningTurn]:
        """`begin` and `end` a turn around a block. If the broker is unreachable at the end, the turn expires later."""
        running = await self.begin(turn, **options)
        try:
            yield running
        finally:
            await self.end_if_reached(running.turn_id)

    async def lease(self, agent: str, wait: float = 30) -> Delivery | None:
        """Lease the agent's next event, waiting at most `wait` seconds (60). Settle it with `.ack()` or `.nack()`."""
        seconds = round(min(checked_wait(wait), runtime_requests.LONGEST_WAIT))
        made = partial(Delivery, _agent=agent, _runtime=self)
        return await self._send(runtime_requests.lease(agent, seconds, made))

    async def events(self, agent: str, wait: float = 30) -> AsyncIterator[Delivery]:
        """Yield the agent's events forever, one at a time.

        Continues while the broker is unreachable, busy or restarting; raises errors that a retry cannot fix. The next
        event is leased after the previous one has been handled.
        """
        while True:
            yield await self.next_event(agent, wait)

    async def next_event(self, agent: str, wait: float = 30) -> Delivery:
        """Wait for the agent's next event without a limit, as in `events`."""
        while True:
            try:
                delivery = await self.lease(agent, max(checked_wait(wait), 1))
            except BrokerError as error:
                delivery, pause = None, self._pause_after(error)
                await self._wire.clock.sleep(pause)
            if delivery is not None:
                return delivery

    def _pause_after(self, error: BrokerError) -> float:
        """Return the seconds until a broker that is away, busy or restarting is asked again. Raises other errors."""
        if not error.retryable:
            raise error
        return error.retry_after_seconds or self._wire.clock.jitter(0.5, 1.5)

    async def session(self, auth_session_id: str) -> SessionOutcome:
        """Return the state of an authorization."""
        return await self._send(runtime_requests.session(auth_session_id))

    async def wait(self, auth_session_id: str, timeout: float = 600) -> SessionOutcome:
        """Wait until an authorization is `completed`, `failed` or `expired`; `pending` after `timeout` seconds.
        Continues while the broker is unreachable, busy or restarting, and raises its failure if that lasts so long."""
        clock, looks = self._wire.clock, 0
        deadline = clock.monotonic() + checked_wait(timeout)
        while True:
            pause = POLL_SECONDS[min(looks, len(POLL_SECONDS) - 1)]
            try:
                outcome = await self.session(auth_session_id)
                if outcome.status != "pending" or clock.monotonic() >= deadline:
                    return outcome
            except BrokerError as error:
                if clock.monotonic() >= deadline:
                    raise
                pause = self._pause_after(error)
            await clock.sleep(max(0.0, min(pause, deadline - clock.monotonic())))
            looks += 1

    async def cancel(self, auth_session_id: str) -> bool:
        """Cancel an authorization that the user declined in the conversation: the link becomes invalid, without an
        event. False if there was nothing to cancel."""
        return await self._send(runtime_requests.cancel(auth_session_id))

    async def confirm(self, handle: str | Secret, subject: str) -> SessionOutcome:
        """Confirm for `runtimeConfirm` the user who is logged in where the browser brought this handle. Raises
        `stateUnknown`, `ownerBindingFailed`."""
        return await self._send(
            runtime_requests.confirm(handle if isinstance(handle, Secret) else Secret(handle), subject)
        )

    async def relay_code(self, turn: RunningTurn, code: str | Secret) -> SessionOutcome:
        """Pass on the code (`channelCode`) that the user sent in the turn's conversation."""
        return await turn.relay_code(code)

    async def connections_link(self, subjects: Mapping[str, str]) -> tuple[str, datetime]:
        """Create a link that opens the connections page of these subjects once, and its expiry. Give it to that user
        alone."""
        return await self._send(runtime_requests.connections_link(subjects))
