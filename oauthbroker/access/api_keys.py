"""API keys: who may call over the network without being a tool in a turn. Shown once, kept as hashes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta

from oauthbroker.audit import ApiKeyChanged, AuditWriter
from oauthbroker.clock import Clock, random_text
from oauthbroker.errors import BrokerError, Code
from oauthbroker.records.api_key import ApiKey, hash_of, roles_of
from oauthbroker.secret import Secret
from oauthbroker.settings import Role
from oauthbroker.shelf import Shelf

PREFIX = "oabk"
MAX_SECONDS = 10 * 365 * 24 * 3600
_TEXT = re.compile(r"oabk\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class ApiKeys:
    """Makes, changes and checks keys; what one process changes, the others honour at once."""

    shelf: Shelf[ApiKey]
    clock: Clock
    audit: AuditWriter

    async def create(
        self, name: str, roles: Collection[Role], *, lives_seconds: int | None = None
    ) -> tuple[ApiKey, Secret]:
        """A new key of this name, and its text, which nobody can tell again. Raises `requestInvalid`."""
        if not _NAME.fullmatch(name) or not _is_known(roles):
            raise BrokerError(Code.REQUEST_INVALID, note="a key has a name of letters, digits, . _ - and known roles")
        now, secret = self.clock.now(), random_text(self.clock, 256)
        key = ApiKey(
            locator=random_text(self.clock, 128),
            name=name,
            roles=roles_of(roles),
            created_at=now,
            expires_at=None if lives_seconds is None else now + timedelta(seconds=_checked(lives_seconds)),
            secret_hash=hash_of(secret),
        )
        self.audit.write(ApiKeyChanged(key.id, name, "created"), now)
        await self.shelf.add(key)
        return key, Secret(f"{PREFIX}.{key.locator}.{secret}")

    async def rotate(
        self, name: str, *, overlap_seconds: int, lives_seconds: int | None = None
    ) -> tuple[ApiKey, Secret]:
        """A new key with the name and roles of those that are there; they end after `overlap_seconds`, unless they
        end sooner anyway. Without `lives_seconds` it lives as long as the longest of them was made for.
        Raises `requestInvalid` where there is none of that name."""
        now = self.clock.now()
        there = [key for key in await self.list() if key.name == name and key.alive_at(now)]
        if not there:
            raise BrokerError(Code.REQUEST_INVALID, note="no living key has that name")
        end = now + timedelta(seconds=_checked(overlap_seconds, least=0))
        roles = frozenset[Role]().union(*(key.roles for key in there))
        made = await self.create(name, roles, lives_seconds=lives_seconds or _lifetime(there))
        for key in there:
            if key.expires_at is None or key.expires_at > end:
                self.audit.write(ApiKeyChanged(key.id, name, "expiring"), now)
                await self.shelf.bury(key.locator, end)
                await self.shelf.change(key.locator, lambda old: old.ended(end))
        return made

    async def remove(self, key_id: str) -> bool:
        """False when there was none."""
        locator = key_id.removeprefix("key-")
        key, now = await self.shelf.get(locator), self.clock.now()
        if key is None:
            await self.shelf.end(locator, now)
            return False
        entry = ApiKeyChanged(key.id, key.name, "removed")
        return await self.shelf.end(locator, now, lambda: self.audit.write(entry, now))

    async def list(self) -> list[ApiKey]:
        """Expired ones too, until they are removed, and one that was put back after its end; oldest first."""
        found = [await self.shelf.get(key.locator) async for key in self.shelf.all()]
        return sorted((key for key in found if key is not None), key=lambda key: (key.name, key.created_at))

    async def check(self, text: str) -> ApiKey:
        """Raises `unauthenticated` for whatever is no living key, all alike."""
        found = _TEXT.fullmatch(text)
        key = await self.shelf.get(found[1]) if found else None
        if found is None or key is None or not key.matches(found[2]) or not key.alive_at(self.clock.now()):
            raise BrokerError(Code.UNAUTHENTICATED)
        return key


def _is_known(roles: Collection[str]) -> bool:
    try:
        return bool(roles_of(roles))
    except ValueError:
        return False


def _lifetime(keys: Iterable[ApiKey]) -> int | None:
    """The longest that one of them was made for; None for one without an end."""
    ends = [(key.created_at, key.expires_at) for key in keys]
    spans = [int((end - made).total_seconds()) for made, end in ends if end is not None]
    return max(1, *spans, 1) if len(spans) == len(ends) else None


def _checked(seconds: int, *, least: int = 1) -> int:
    if not least <= seconds <= MAX_SECONDS:
        raise BrokerError(Code.REQUEST_INVALID, note="seconds")
    return seconds
