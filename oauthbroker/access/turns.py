"""Begin and end turns, and admit the holders of turn tokens in other processes.

A token carries a random locator and signed caveats, and is not stored. Its turn is stored sealed. The token is valid
while the turn exists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from oauthbroker.access.allowed_apps import configured, intersection, without_emptied
from oauthbroker.access.turn_token_cache import Allowed, Known, KnownTokens, TurnTokenHolder
from oauthbroker.audit import TurnBegun, TurnEnded
from oauthbroker.audit.port import AuditWriter
from oauthbroker.core.clock import Clock, has_passed, random_text
from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.errors import BrokerError, Code, check_argument
from oauthbroker.core.spelling import nearest, nearest_tool
from oauthbroker.model.accounts import check_apps_of_accounts
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.model.identities import check_subject
from oauthbroker.model.token_request import ScopeNotAllowed, WrongArgument, app_name
from oauthbroker.model.turn import Turn, TurnLike, checked_target, whole_turn
from oauthbroker.model.turn_token import (
    LOCATOR,
    BegunTurn,
    Caveat,
    NoToolName,
    TurnToken,
    is_tool,
    narrow,
    pointer_step,
)
from oauthbroker.records.turn_record import TurnRecord
from oauthbroker.repository.record_store import RecordStore
from oauthbroker.repository.repository import Entry

MAX_TOOLS = 200
MOST_NAMED = 16  # as the API names at most
SWEEP_SECONDS = 300.0

Tools = Mapping[str, Sequence[ToolAuth] | None]


class AdmittedTurn(NamedTuple):
    """The holder of a token that was admitted before, and the version of its turn that admitted it."""

    token_holder: TurnTokenHolder
    version: Entry


@dataclass(slots=True, kw_only=True)
class Turns:
    """Begins and ends turns, and admits holders of their tokens. All workers of a store see every turn and end."""

    records: RecordStore[TurnRecord]
    config: CurrentConfig
    clock: Clock
    audit: AuditWriter
    _swept: float = field(default=0.0)
    _known: KnownTokens = field(default_factory=KnownTokens, repr=False)

    async def begin(
        self,
        turn: TurnLike,
        *,
        tools: Tools | None = None,
        ttl_seconds: int | None = None,
        private_links: bool = False,
        noted: Callable[[str], Awaitable[None]] | None = None,
    ) -> BegunTurn:
        """Begin a turn. Return its token and one for each of `tools`, which maps a tool's name (as for `Broker.oauth`)
        to the apps and scopes that the tool may request, or to None for the bundle's declaration. The tokens end with
        the turn, and after `ttl_seconds` (default and maximum: limits.turnSeconds). `noted` gets its id first.

        Raises `requestInvalid` for an invalid turn and for a tool that is not declared, `accountsInvalid` for accounts
        of an unknown app or in another form, `oauthAppNotFound` and `scopeNotAllowed` for a tool with an unknown one.
        """
        kept, most = _checked_turn(turn), self.config.bundle.settings.limits.turn_seconds
        check_apps_of_accounts(kept.auth.accounts if kept.auth is not None else {}, self.config.bundle.apps)
        seconds = most if ttl_seconds is None else ttl_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int) or not 1 <= seconds <= most:
            raise WrongArgument("turnTtl", "ttlSeconds", most=str(most))
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
            await noted(record.id)
        self.audit.write(TurnBegun(turn=record.id, agent=kept.agent_name), now)
        await self.records.add(record)
        token = TurnToken.first(record.locator, self._root(record.locator)).to_text()
        tool_tokens = {tool: narrow(token, tool=tool) for tool in record.tools}
        return BegunTurn(turn_id=record.id, token=token, tool_tokens=tool_tokens, expires_at=record.expires_at)

    async def end(self, turn_id: str) -> bool:
        """End a turn: its tokens become invalid. False when it had ended. Raises `storeUnavailable` if the audit log
        takes no entry; the turn then goes on and can be ended again."""
        check_argument(isinstance(turn_id, str), "turn_id", "the id that `begin` returned")
        locator, now = turn_id.removeprefix("turn-"), self.clock.now()
        entry = TurnEnded(turn=f"turn-{locator}")
        if not LOCATOR.fullmatch(locator) or not await self.records.end(locator, lambda: self.audit.write(entry, now)):
            return False
        self._known.forget_turns([locator])
        return True

    async def admit(self, token: str) -> TurnTokenHolder:
        """Return the holder of a token. Raises `unauthenticated` for any token that this store did not sign, and
        `turnEnded` for its own token after the turn or token has ended."""
        check_argument(isinstance(token, str), "token", "the text of a turn token: a Secret has to be revealed")
        digest = token_digest(token.encode("utf-8", "surrogatepass"))
        known = self._known.get(digest)
        newest = None if known is None else await self.records.get(known.record.locator)
        if known is None or known.bundle is not self.config.bundle or newest is not known.record:
            self._known.forget(digest)
            known = await self._validated(token)
            self._known.keep(digest, known)
        if self._is_over(known.token_holder.expires_at, known.record):
            self._known.forget(digest)
            raise BrokerError(Code.TURN_ENDED)
        return known.token_holder

    def holder(self, digest: bytes) -> TurnTokenHolder | None:
        """Return the holder of a token that was admitted before, by its `token_digest`, if it is certain without a wait
        that it is valid. None otherwise: then `admit` checks the token."""
        known = self._known.get(digest)
        if known is None or self.records.fresh(known.record.locator) is not known.record:
            return None
        return None if self.admitted(digest) is None else known.token_holder

    def admitted(self, digest: bytes) -> AdmittedTurn | None:
        """Return the holder of a token that was admitted before, and the version of its turn. It is valid if the store
        has no newer version."""
        known = self._known.get(digest)
        if known is None or known.bundle is not self.config.bundle:
            return None
        version = self.records.version_of(known.record)
        if version is None or self._is_over(known.token_holder.expires_at, known.record):
            return None
        return AdmittedTurn(known.token_holder, version)

    async def _check_holds(self, locator: str, expires_at: datetime) -> None:
        record = await self.records.get(locator)
        if record is None or self._is_over(expires_at, record):
            raise BrokerError(Code.TURN_ENDED)

    def _is_over(self, expires_at: datetime, record: TurnRecord) -> bool:
        return has_passed(min(expires_at, record.expires_at), record.created_at, self.clock.now())

    async def _validated(self, token: str) -> Known:
        made = TurnToken.parse(token)
        if not made.signed_with(self._root(made.locator)):
            raise BrokerError(Code.UNAUTHENTICATED)
        record = await self.records.get(made.locator)
        if record is None:
            raise BrokerError(Code.TURN_ENDED)
        return Known(
            record=record,
            bundle=self.config.bundle,
            token_holder=self._token_holder(record, made),
            size=len(record.to_plaintext()),
        )

    async def sweep(self) -> int:
        """Delete expired turns and return how many. Runs at most once per SWEEP_SECONDS."""
        if self._swept and self.clock.monotonic() - self._swept < SWEEP_SECONDS:
            return 0
        self._swept = self.clock.monotonic()
        now = self.clock.now()
        ends = {it.locator: has_passed(it.expires_at, it.created_at, now) async for it in self.records.all()}
        over = [locator for locator, ended in ends.items() if ended]
        self._known.forget_turns([*over, *(self._known.turns() - ends.keys())])
        await self.records.remove_each(over)
        return len(over)

    def _root(self, locator: str) -> bytes:
        return self.records.mac("turn-token", locator)

    def _token_holder(self, record: TurnRecord, token: TurnToken) -> TurnTokenHolder:
        """Apply every caveat: a call is permitted if all of them permit it."""
        bundle, tool, allowed, until = self.config.bundle, None, None, record.expires_at
        for caveat in _read(token):
            if caveat.tool is not None:
                tool, allowed = tool or caveat.tool, intersection(allowed, self._of_tool(record, caveat.tool))
            if caveat.apps is not None:
                said = (ToolAuth(app, scopes) for app, scopes in caveat.apps.items())
                allowed = intersection(allowed, without_emptied(said, bundle.apps))
            if caveat.expires_at is not None:
                until = min(until, caveat.expires_at)
        return TurnTokenHolder(
            turn=record.turn,
            tool=tool,
            declared=None if allowed is None else configured(allowed, bundle.apps),
            turn_id=record.id,
            private_links=record.private_links,
            narrowed=bool(token.caveats),
            turn_holds=partial(self._check_holds, record.locator, until),
            expires_at=until,
        )

    def _of_tool(self, record: TurnRecord, tool: str) -> Allowed:
        """Return what the tool may request: the intersection of the runtime's list for the turn and the bundle's
        declaration."""
        bundle, said = self.config.bundle, record.tools.get(tool)
        declared = bundle.tools.get(tool)
        if said is None:
            return declared or ()
        return intersection(declared, without_emptied(said, bundle.apps))

    def _checked_tools(self, tools: Tools) -> dict[str, Allowed | None]:
        is_right = isinstance(tools, Mapping) and all(isinstance(it, Sequence | None) for it in tools.values())
        check_argument(is_right, "tools", "a mapping of each tool to a list of ToolAuth or None: {'Tool/mail': None}")
        if len(tools) > MAX_TOOLS:
            raise BrokerError(Code.REQUEST_INVALID, note="tools")
        for number, tool in enumerate(tools, 1):
            if not (isinstance(tool, str) and is_tool(tool)):
                raise NoToolName(number)
        declared = self.config.bundle.tools
        if unknown := [tool for tool, auths in tools.items() if auths is None and tool not in declared]:
            raise UndeclaredTools(unknown[:MOST_NAMED], declared)
        return {tool: None if auths is None else self._checked_auths(tool, auths) for tool, auths in tools.items()}

    def _checked_auths(self, tool: str, auths: Sequence[ToolAuth]) -> Allowed:
        checked: dict[str, ToolAuth] = {}
        for number, auth in enumerate(auths):
            try:
                each = self._checked_auth(auth)
                if each.app in checked:
                    raise WrongArgument("appTwice")
            except BrokerError as error:
                error.errors = ({"pointer": f"/tools/{pointer_step(tool)}/{number}", "problem": "value"},)
                raise
            checked[each.app] = each
        return tuple(checked.values())

    def _checked_auth(self, auth: ToolAuth) -> ToolAuth:
        apps, auth = self.config.bundle.apps, replace(auth, app=app_name(auth.app))
        if auth.app not in apps:
            raise UnknownApp(auth.app, apps)
        if auth.scopes is not None and not (has := apps[auth.app].scope_set).issuperset(auth.scopes):
            raise ScopeNotAllowed(auth.scopes, sorted(has))
        return auth


class UndeclaredTools(BrokerError):
    """`requestInvalid` that names the tools, and the nearest to the first: for a runtime, which may know them all."""

    def __init__(self, tools: Sequence[str], declared: Iterable[str]) -> None:
        names, near = ", ".join(tools), nearest_tool(tools[0], declared)
        super().__init__(Code.REQUEST_INVALID, note=f"the bundle declares no {names}", name=names, nearest=near)
        self.hint = "nearestTool" if near else "unknownTool"
        self.errors = tuple({"pointer": f"/tools/{pointer_step(tool)}", "problem": "value"} for tool in tools)


class UnknownApp(BrokerError):
    """`oauthAppNotFound` that names the app asked for and the nearest one: for a runtime, which may know all apps."""

    def __init__(self, name: str, apps: Iterable[str]) -> None:
        super().__init__(Code.OAUTH_APP_NOT_FOUND, name=name, nearest=nearest(name, apps))
        self.hint = "nearestApp" if self.words["nearest"] else "unknownApp"


def token_digest(token: bytes) -> bytes:
    """Return the digest by which an admitted token is remembered, so that no token is kept."""
    return hashlib.sha256(token).digest()


def _read(token: TurnToken) -> list[Caveat]:
    """Parse the caveats. An unknown caveat may be a restriction, so it invalidates the token; so does a tool name that
    could not stand in the audit log."""
    caveats: list[Caveat] | None = None
    with suppress(ValueError, OverflowError, RecursionError, OSError):
        caveats = [Caveat.from_text(text) for text in token.caveats]
    if caveats is None or not all(caveat.tool is None or is_tool(caveat.tool) for caveat in caveats):
        raise BrokerError(Code.UNAUTHENTICATED)
    return caveats


def _checked_turn(turn: TurnLike) -> Turn:
    """Return the turn as it is stored. Raises `requestInvalid`."""
    target = checked_target(whole_turn(turn).resume_target)
    subjects, actor = target.auth.subjects, target.auth.actor
    if not subjects.keys() <= {"global", "user"}:
        raise BrokerError(Code.REQUEST_INVALID, note="subjects")
    for mode, subject in subjects.items():
        check_subject(subject, f"turn/auth/subjects/{mode}")
    if not all(isinstance(each, str) for each in actor.values()):
        raise BrokerError(Code.REQUEST_INVALID, note="actor")
    return target.turn
