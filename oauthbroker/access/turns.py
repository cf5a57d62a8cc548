"""Turns with tokens: what a runtime begins and ends, and what a tool in another process holds of it.

The token says nothing and is kept nowhere: the turn is kept, sealed, and a token is good while its turn is there.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from oauthbroker.apps import Bundle, OAuthApp, ToolAuth
from oauthbroker.audit import AuditWriter, TurnBegun, TurnEnded
from oauthbroker.clock import Clock, has_passed, random_text
from oauthbroker.errors import BrokerError, Code
from oauthbroker.known_tokens import KnownTokens
from oauthbroker.records.turn_record import TurnRecord
from oauthbroker.secret import Secret
from oauthbroker.shelf import Shelf
from oauthbroker.subject import is_subject
from oauthbroker.token_call import Caller
from oauthbroker.token_request import app_name
from oauthbroker.turn import Turn, TurnLike, checked_target, whole_turn
from oauthbroker.turn_token import LOCATOR, Caveat, TurnToken, is_tool, narrow

MAX_TOOLS = 200
SWEEP_SECONDS = 300.0
MOST_BUSY = 32  # their turns are kept beside the shelf's

Allowed = tuple[ToolAuth, ...]
Tools = Mapping[str, Sequence[ToolAuth] | None]


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn that was begun: its own token, un-narrowed, and one for each tool that was named."""

    turn_id: str
    token: Secret
    tool_tokens: dict[str, Secret]
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Guest:
    """Whoever holds a turn token. `declared` is what it may ask for, None for everything: the runtime's own view.
    `tool` is the one that the runtime named: who narrows a token further acts in that tool's name, never in another's.
    """

    turn_id: str
    turn: Turn
    tool: str | None
    declared: Allowed | None
    expires_at: datetime
    private_links: bool = False
    narrowed: bool = False
    turn_holds: Callable[[], Awaitable[None]] | None = field(default=None, repr=False, compare=False)
    caller: Caller = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        caller = Caller(
            self.turn, self.tool, self.declared, self.turn_id, self.private_links, self.narrowed, self.turn_holds
        )
        object.__setattr__(self, "caller", caller)  # one for all calls: it remembers what was judged

    def may_ask(self, app: str) -> bool:
        return self.declared is None or any(auth.app == app for auth in self.declared)


@dataclass(frozen=True, slots=True)
class _Known:
    """What a token came to, for as long as its turn is there and the configuration is the very same. Not the turn
    itself, which may be large: the shelf says how many of those are kept."""

    locator: str
    bundle: Bundle
    tool: str | None
    declared: Allowed | None
    expires_at: datetime
    narrowed: bool

    def guest(self, record: TurnRecord, holds: Callable[[], Awaitable[None]]) -> Guest:
        private = record.private_links
        return Guest(record.id, record.turn, self.tool, self.declared, self.expires_at, private, self.narrowed, holds)


@dataclass(slots=True)
class Turns:
    """Begins and ends turns, and admits whoever holds a token of one. Every worker of a store honours all of it."""

    shelf: Shelf[TurnRecord]
    bundle: Callable[[], Bundle]
    clock: Clock
    audit: AuditWriter
    _swept: float = field(default=0.0)
    _known: KnownTokens[_Known] = field(default_factory=KnownTokens, repr=False)
    _busy: OrderedDict[bytes, tuple[_Known, TurnRecord, Guest]] = field(default_factory=OrderedDict, repr=False)

    async def begin(
        self,
        turn: TurnLike,
        *,
        tools: Tools | None = None,
        ttl_seconds: int | None = None,
        private_links: bool = False,
        noted: Callable[[str], None] | None = None,
    ) -> Begun:
        """Tokens for a turn, and for each of `tools`: a name as `Broker.oauth` takes it -> what it may ask for, None
        for what the bundle declares. They end with the turn, and at the latest after `ttl_seconds`
        (limits.turnSeconds). `noted` hears the turn's id before it is kept.

        Raises `requestInvalid` for a turn that cannot be kept and for a tool that nobody declares, `oauthAppNotFound`
        and `scopeNotAllowed` for a tool that is given what there is not.
        """
        kept, most = _checked_turn(turn), self.bundle().settings.limits.turn_seconds
        seconds = most if ttl_seconds is None else ttl_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int) or not 1 <= seconds <= most:
            raise BrokerError(Code.REQUEST_INVALID, note="ttlSeconds")
        now = self.clock.now()
        record = TurnRecord(
            locator=random_text(self.clock, 128),
            turn=kept,
            created_at=now,
            expires_at=now + timedelta(seconds=seconds),
            tools=self._checked_tools(tools or {}),
            private_links=private_links,
        )
        if noted is not None:
            noted(record.id)
        self.audit.write(TurnBegun(record.id, kept.agent_name), now)
        await self.shelf.add(record)
        token = TurnToken.first(record.locator, self._root(record.locator)).to_text()
        tool_tokens = {tool: narrow(token, tool=tool) for tool in record.tools}
        return Begun(record.id, token, tool_tokens, record.expires_at)

    async def end(self, turn_id: str) -> bool:
        """From now on no token of the turn is any good. False when it was over. Raises `storeUnavailable` where the
        audit log takes no entry: the turn goes on then, and its end can be asked for again."""
        locator, now = turn_id.removeprefix("turn-"), self.clock.now()
        entry = TurnEnded(f"turn-{locator}")
        if not LOCATOR.fullmatch(locator) or not await self.shelf.end(
            locator, now, lambda: self.audit.write(entry, now)
        ):
            return False
        self._known.forget_turns([locator])
        self._busy.clear()  # few, and found again at once: nobody's tokens are looked through
        return True

    async def admit(self, token: str) -> Guest:
        """Who this is. Raises `unauthenticated` for whatever we did not sign, all alike, and `turnEnded` for our own
        token once its turn or its time is over."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._known.get(digest)
        record = await self.shelf.get(known.locator) if known is not None else None
        if known is None or record is None or known.bundle is not self.bundle():
            self._known.forget(digest)
            known, record = await self._judged(token)
        if self._is_over(known, record):
            self._known.forget(digest)
            raise BrokerError(Code.TURN_ENDED)
        self._known.keep(digest, known)
        return self._guest(digest, known, record)

    def _guest(self, digest: bytes, known: _Known, record: TurnRecord) -> Guest:
        """The same one as long as token, turn and configuration are the same, for those who called last."""
        busy = self._busy.pop(digest, None)
        if busy is None or busy[0] is not known or busy[1] is not record:
            busy = known, record, known.guest(record, partial(self._check_holds, known))
            if any(each.bundle is not known.bundle for each, _, _ in self._busy.values()):
                self._busy.clear()
        self._busy[digest] = busy
        if len(self._busy) > MOST_BUSY:
            self._busy.popitem(last=False)
        return busy[2]

    async def _check_holds(self, known: _Known) -> None:
        record = await self.shelf.get(known.locator)
        if record is None or self._is_over(known, record):
            raise BrokerError(Code.TURN_ENDED)

    def _is_over(self, known: _Known, record: TurnRecord) -> bool:
        return has_passed(min(known.expires_at, record.expires_at), record.created_at, self.clock.now())

    async def _judged(self, token: str) -> tuple[_Known, TurnRecord]:
        made = TurnToken.parse(token)
        if not made.signed_with(self._root(made.locator)):
            raise BrokerError(Code.UNAUTHENTICATED)
        record = await self.shelf.get(made.locator)
        if record is None:
            raise BrokerError(Code.TURN_ENDED)
        return self._known_as(record, made), record

    async def sweep(self) -> int:
        """Forgets turns whose time is over; how many. Looks once in a while, however often it is called."""
        if self._swept and self.clock.monotonic() - self._swept < SWEEP_SECONDS:
            return 0
        self._swept = self.clock.monotonic()
        self._busy.clear()
        now = self.clock.now()
        ends = {it.locator: has_passed(it.expires_at, it.created_at, now) async for it in self.shelf.all()}
        over = [locator for locator, ended in ends.items() if ended]
        self._known.forget_turns([*over, *(self._known.turns() - ends.keys())])
        await self.shelf.remove_each(over)
        return len(over)

    def _root(self, locator: str) -> bytes:
        return self.shelf.mac("turn-token", locator)

    def _known_as(self, record: TurnRecord, token: TurnToken) -> _Known:
        """Every caveat holds: what may be asked for is what all of them allow."""
        bundle, tool, allowed, until = self.bundle(), None, None, record.expires_at
        for caveat in _read(token):
            if caveat.tool is not None:
                tool, allowed = tool or caveat.tool, _both(allowed, self._of_tool(record, caveat.tool))
            if caveat.apps is not None:
                said = (ToolAuth(app, scopes) for app, scopes in caveat.apps.items())
                allowed = _both(allowed, _something(said, bundle.apps))
            if caveat.expires_at is not None:
                until = min(until, caveat.expires_at)
        if allowed is not None:
            allowed = _that_exist(allowed, bundle.apps)
        return _Known(record.locator, bundle, tool, allowed, until, bool(token.caveats))

    def _of_tool(self, record: TurnRecord, tool: str) -> Allowed:
        """What the runtime said when it began the turn and what the bundle declares, both when both speak."""
        bundle, said = self.bundle(), record.tools.get(tool)
        declared = bundle.tools.get(tool)
        if said is None:
            return declared or ()
        return _both(declared, _something(said, bundle.apps))

    def _checked_tools(self, tools: Tools) -> dict[str, Allowed | None]:
        if len(tools) > MAX_TOOLS or not all(isinstance(tool, str) and is_tool(tool) for tool in tools):
            raise BrokerError(Code.REQUEST_INVALID, note="tools")
        declared = self.bundle().tools
        if any(auths is None and tool not in declared for tool, auths in tools.items()):
            raise BrokerError(Code.REQUEST_INVALID, note="a tool that nobody declares")
        return {tool: None if auths is None else self._checked_auths(auths) for tool, auths in tools.items()}

    def _checked_auths(self, auths: Sequence[ToolAuth]) -> Allowed:
        apps = self.bundle().apps
        auths = [replace(auth, app=app_name(auth.app)) for auth in auths]
        for auth in auths:
            if auth.app not in apps:
                raise BrokerError(Code.OAUTH_APP_NOT_FOUND)
            if auth.scopes is not None and not apps[auth.app].scope_set.issuperset(auth.scopes):
                raise BrokerError(Code.SCOPE_NOT_ALLOWED)
        if len({auth.app for auth in auths}) != len(auths):
            raise BrokerError(Code.REQUEST_INVALID, note="an app twice for one tool")
        return tuple(auths)


def _read(token: TurnToken) -> list[Caveat]:
    """A caveat that we do not understand may be one that forbids: then nothing is allowed. Neither is it to a tool
    whose name could not stand in the audit log."""
    caveats: list[Caveat] | None = None
    with suppress(ValueError, OverflowError, RecursionError, OSError):
        caveats = [Caveat.from_text(text) for text in token.caveats]
    if caveats is None or not all(caveat.tool is None or is_tool(caveat.tool) for caveat in caveats):
        raise BrokerError(Code.UNAUTHENTICATED)
    return caveats


def _both(one: Allowed | None, other: Allowed) -> Allowed:
    """What both allow. None allows everything."""
    if one is None:
        return other
    second = {auth.app: auth.scopes for auth in other}
    return _left((auth, second[auth.app]) for auth in one if auth.app in second)


def _something(said: Iterable[ToolAuth], apps: Mapping[str, OAuthApp]) -> Allowed:
    """Without apps that were taken down to no scopes: `[]` means something only for an app that has none."""
    return tuple(auth for auth in said if auth.scopes != () or (auth.app in apps and not apps[auth.app].scopes))


def _that_exist(allowed: Allowed, apps: Mapping[str, OAuthApp]) -> Allowed:
    """Without apps and scopes that the configuration does not have (any more): a caveat is anybody's text."""
    there = (auth for auth in allowed if auth.app in apps)
    return _left((auth, apps[auth.app].scopes if auth.scopes else None) for auth in there)


def _left(pairs: Iterable[tuple[ToolAuth, tuple[str, ...] | None]]) -> Allowed:
    """What each app keeps of its scopes. Where nothing is left the app goes too: with an empty list it could still be
    asked for, and the answer would be the grant's whole token."""
    kept = [(auth.app, _fewer(auth.scopes, scopes), auth.scopes or scopes) for auth, scopes in pairs]
    return tuple(ToolAuth(app, scopes) for app, scopes, some in kept if scopes or not some)


def _fewer(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if one is None or other is None:
        return other if one is None else one
    return tuple(scope for scope in one if scope in other)


def _checked_turn(turn: TurnLike) -> Turn:
    """The turn as it is kept. Raises `requestInvalid`."""
    target = checked_target(whole_turn(turn).resume_target)
    subjects, actor = target.auth.subjects, target.auth.actor
    if not subjects.keys() <= {"global", "user"} or not all(
        isinstance(each, str) and is_subject(each) for each in subjects.values()
    ):
        raise BrokerError(Code.REQUEST_INVALID, note="subjects")
    if not all(isinstance(each, str) for each in actor.values()):
        raise BrokerError(Code.REQUEST_INVALID, note="actor")
    return target.turn
