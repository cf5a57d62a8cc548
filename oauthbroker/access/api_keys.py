"""Manage API keys, the bearer tokens of runtimes and operators. A key is shown once and stored as a hash."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import timedelta

from oauthbroker.audit import ApiKeyChanged
from oauthbroker.audit.port import AuditWriter
from oauthbroker.core.clock import LONG_AGO, Clock, random_text
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Pass
from oauthbroker.core.secret import Secret, digest_of
from oauthbroker.model.settings import Role
from oauthbroker.records.api_key import ApiKey, roles_of
from oauthbroker.repository.record_store import RecordStore

PREFIX = "oabk"
SWEEP_SECONDS = 300.0
MAX_SECONDS = 10 * 365 * 24 * 3600
_TEXT = re.compile(r"oabk\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")


@dataclass(slots=True, kw_only=True)
class ApiKeys:
    """Creates, rotates, removes and checks keys. All processes see a change at once."""

    records: RecordStore[ApiKey]
    clock: Clock
    audit: AuditWriter
    _swept: float | None = None

    async def create(
        self, name: str, roles: Collection[Role], *, lives_seconds: int | None = None
    ) -> tuple[ApiKey, Secret]:
        """Create a key with this name. Return it with its text, which cannot be shown again. Raises
        `requestInvalid`."""
        if not _NAME.fullmatch(name) or not _is_known(roles):
            raise BrokerError(Code.REQUEST_INVALID, note="a key has a name of letters, digits, . _ - and known roles")
        now, secret = self.clock.now(), random_text(self.clock, 256)
        key = ApiKey(
            locator=random_text(self.clock, 128),
            name=name,
            roles=roles_of(roles),
            created_at=now,
            expires_at=None if lives_seconds is None else now + timedelta(seconds=_checked(lives_seconds)),
            secret_hash=digest_of(secret),
        )
        self.audit.write(ApiKeyChanged(key=key.id, name=name, action="created"), now)
        await self.records.add(key)
        return key, Secret(f"{PREFIX}.{key.locator}.{secret}")

    async def rotate(
        self, name: str, *, overlap_seconds: int, lives_seconds: int | None = None
    ) -> tuple[ApiKey, Secret]:
        """Create a key with the name and roles of the existing ones, which end after `overlap_seconds` at the latest.
        Without `lives_seconds` it gets the longest lifetime of theirs. Raises `requestInvalid` for an unknown name."""
        now = self.clock.now()
        there = [key for key in await self.list() if key.name == name and key.alive_at(now)]
        if not there:
            raise BrokerError(Code.REQUEST_INVALID, note="no living key has that name")
        end = now + timedelta(seconds=_checked(overlap_seconds, least=0))
        roles = frozenset[Role]().union(*(key.roles for key in there))
        made = await self.create(name, roles, lives_seconds=lives_seconds or _lifetime(there))
        for key in there:
            if key.expires_at is None or key.expires_at > end:
                self.audit.write(ApiKeyChanged(key=key.id, name=name, action="expiring"), now)
                await self.records.write_tombstone(key.locator, end, now)
                await self.records.change(key.locator, lambda old: old.ended(end, now))
        return made

    async def remove(self, key_id: str) -> bool:
        """Remove a key. A damaged one is removed too; its name is unknown then. False if there is none of that id."""
        locator = key_id.removeprefix("key-")
        key, now = await self.records.get(locator), self.clock.now()
        entry = ApiKeyChanged(key=f"key-{locator}", name=key.name if key is not None else "", action="removed")
        return await self.records.end(locator, lambda: self.audit.write(entry, now))

    async def sweep(self) -> int:
        """End the keys whose overlap is over, and return how many. This is durable, because a clock that was set back
        would make them valid again. Runs at most once per SWEEP_SECONDS."""
        monotonic, now = self.clock.monotonic(), self.clock.now()
        if self._swept is not None and monotonic - self._swept < SWEEP_SECONDS:
            return 0
        self._swept = monotonic
        over = [key for key in await self.list() if key.is_rotated_out(now)]
        this_pass = Pass()
        for key in over:
            with this_pass.entry():
                await self.records.write_tombstone(key.locator, LONG_AGO, None)
                await self.records.change(key.locator, lambda old: old.ended(LONG_AGO, None))
        this_pass.over()
        return len(over)

    async def list(self) -> list[ApiKey]:
        """Return all keys by name, then age. Expired keys are included until removed, as are restored copies of ended
        ones."""
        found = [await self.records.get(key.locator) async for key in self.records.all()]
        return sorted((key for key in found if key is not None), key=lambda key: (key.name, key.created_at))

    async def check(self, text: str) -> ApiKey:
        """Return the valid key with this text. Raises `unauthenticated` for any other text, without a reason."""
        found = _TEXT.fullmatch(text)
        key = await self.records.get(found[1]) if found else None
        if found is None or key is None or not key.matches(found[2]) or not key.alive_at(self.clock.now()):
            raise BrokerError(Code.UNAUTHENTICATED)
        return key


def _is_known(roles: Collection[str]) -> bool:
    try:
        return bool(roles_of(roles))
    except ValueError:
        return False


def _lifetime(keys: Iterable[ApiKey]) -> int | None:
    """Return the longest lifetime of the keys in seconds; None if one does not expire."""
    ends = [(key.created_at, key.expires_at) for key in keys]
    spans = [int((end - made).total_seconds()) for made, end in ends if end is not None]
    return max(1, *spans, 1) if len(spans) == len(ends) else None


def _checked(seconds: int, *, least: int = 1) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not least <= seconds <= MAX_SECONDS:
        raise BrokerError(Code.REQUEST_INVALID, note="seconds")
    return seconds
