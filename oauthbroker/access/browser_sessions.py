"""Browser sessions: how people come to pages that are theirs alone, and how long they stay.

By a one-time link that the runtime hands to the person it knows, or as an operator who has proved to be one. From then
on a cookie of this browser speaks for the browser session. The store keeps hashes, so any worker of the store honours
both.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from oauthbroker.core.clock import Clock, random_text, url_safe
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code, check_argument
from oauthbroker.core.secret import Secret, digest_of
from oauthbroker.model.connect_links import unknown_link
from oauthbroker.model.identities import check_subject
from oauthbroker.records.browser_session import BrowserSession, Pages, subjects_of
from oauthbroker.repository.record_store import RecordStore
from oauthbroker.repository.repository import Conflict

LINK_SECONDS = 10 * 60
BROWSER_SESSION_SECONDS = 30 * 60
SWEEP_SECONDS = 300.0
MOST = 20_000  # at once, of all people; who mints links is trusted, and may still be in a loop
_TEXT = re.compile(r"([A-Za-z0-9_-]{22})([A-Za-z0-9_-]{43})")
_MODES = {"global", "user"}

Noted = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class NewBrowserSession:
    """A browser session that has begun, and the cookie to take along: `locator + 256 random bits`."""

    browser_session: BrowserSession
    cookie: Secret


@dataclass(slots=True, kw_only=True)
class BrowserSessions:
    """One per broker."""

    records: RecordStore[BrowserSession]
    clock: Clock
    _counted: int = 0
    _swept: float | None = None

    async def invite(self, subjects: Mapping[str, str], noted: Noted | None = None) -> tuple[Secret, datetime]:
        """Return a ticket for the connections of these subjects, and until when it can be used. `noted` hears the
        browser session's id before it is kept. Raises `requestInvalid`, `rateLimited`."""
        check_argument(isinstance(subjects, Mapping), "subjects", "a mapping of user or global to a subject")
        if not subjects or not subjects.keys() <= _MODES:
            raise BrokerError(Code.REQUEST_INVALID, note="subjects are global, user, or both")
        for mode, subject in subjects.items():
            check_subject(subject, f"subjects/{mode}")
        if self._counted >= MOST:
            raise BrokerError(Code.RATE_LIMITED, retry_after_seconds=60)
        now, secret = self.clock.now(), random_text(self.clock, 256)
        browser_session = BrowserSession(
            locator=random_text(self.clock, 128),
            pages="connections",
            created_at=now,
            expires_at=now + timedelta(seconds=LINK_SECONDS),
            subjects=subjects_of(subjects),
            ticket_hash=digest_of(secret),
        )
        if noted is not None:
            await noted(browser_session.id)
        await self.records.add(browser_session)
        self._counted += 1
        return Secret(browser_session.locator + secret), browser_session.expires_at

    async def invited(self, ticket: str) -> BrowserSession:
        """Return the subjects of a ticket. Changes nothing, because chat applications fetch links before people do.

        Raises `stateUnknown` for a ticket that cannot be used, without the reason.
        """
        browser_session, secret = await self._find(ticket)
        if browser_session is None or not browser_session.is_invited_by(secret, self.clock.now()):
            raise unknown_link(ticket)
        return browser_session

    async def open(self, ticket: str, noted: Noted | None = None) -> NewBrowserSession:
        """Use the ticket up: of several browsers that try, one comes in. `noted` gets the browser session's id first:
        if it raises, the ticket stays usable. Raises `stateUnknown`."""
        browser_session, secret = await self._find(ticket)
        cookie, now = random_text(self.clock, 256), self.clock.now()
        until = now + timedelta(seconds=BROWSER_SESSION_SECONDS)
        if noted is not None and browser_session is not None and browser_session.is_invited_by(secret, now):
            await noted(browser_session.id)

        def opened(there: BrowserSession) -> BrowserSession | None:
            return there.opened(cookie, until) if there.is_invited_by(secret, now) else None

        changed = await self.records.change(browser_session.locator, opened) if browser_session is not None else None
        if changed is None:
            raise unknown_link(ticket)
        return NewBrowserSession(changed, Secret(changed.locator + cookie))

    async def enter(
        self, operator: str, key: str, noted: Noted | None = None, *, proved_at: datetime | None = None
    ) -> NewBrowserSession:
        """Begin the browser session of an operator who was checked, by the API key of that id or the login of that
        digest (empty: a loopback peer). `noted` gets the browser session's id first: if it raises, there is no browser
        session."""
        locator = random_text(self.clock, 128)
        return await self._begun(locator, "admin", noted, operator=operator, key=key, proved_at=proved_at)

    async def enter_once(self, user: str, auth_session: str, noted: Noted) -> NewBrowserSession:
        """Begin the browser session of a user whom an authorization has just proven: one for each authorization. Raises
        `stateUsed` for another one."""
        locator = url_safe(self.records.mac("browser session of", auth_session)[:16])
        if await self.records.get(locator) is None and not await self.records.was_ended(locator):
            with suppress(Conflict):
                return await self._begun(locator, "connections", noted, subjects=subjects_of({"user": user}))
        raise BrokerError(Code.STATE_USED, note="this authorization has opened the connections before")

    async def _begun(self, locator: str, pages: Pages, noted: Noted | None, **whose: Any) -> NewBrowserSession:
        now, cookie = self.clock.now(), random_text(self.clock, 256)
        until, hashed = now + timedelta(seconds=BROWSER_SESSION_SECONDS), digest_of(cookie)
        begun = BrowserSession(
            locator=locator, pages=pages, created_at=now, expires_at=until, cookie_hash=hashed, **whose
        )
        if noted is not None:
            await noted(begun.id)
        await self.records.add(begun)
        return NewBrowserSession(begun, Secret(locator + cookie))

    async def admit(self, cookie: str | None, pages: Pages) -> BrowserSession | None:
        """Return the browser session of a cookie; None for an ended, unknown or foreign one."""
        browser_session, secret = await self._find(cookie or "")
        if (
            browser_session is None
            or browser_session.pages != pages
            or not browser_session.is_open_for(secret, self.clock.now())
        ):
            return None
        return browser_session

    @staticmethod
    def is_of(browser_session: BrowserSession, ticket: str) -> bool:
        """Return whether the ticket was the one that began this browser session, by its public part."""
        found = _TEXT.fullmatch(ticket)
        return found is not None and found[1] == browser_session.locator

    async def end(self, browser_session: BrowserSession) -> None:
        """End a browser session: its cookie is refused from now on, in every process."""
        await self.records.end(browser_session.locator)

    async def sweep(self) -> int:
        """Remove ended browser sessions, count the others, and return how many were removed. Reads the store every five
        minutes, and at each call while links are refused because there are too many."""
        monotonic = self.clock.monotonic()
        if self._swept is not None and monotonic - self._swept < SWEEP_SECONDS and self._counted < MOST:
            return 0
        self._swept, now = monotonic, self.clock.now()
        there = [browser_session async for browser_session in self.records.all()]
        over = [browser_session for browser_session in there if browser_session.is_past(now)]
        self._counted = len(there) - len(over)
        await self.records.remove_each(browser_session.locator for browser_session in over)
        return len(over)

    async def _find(self, text: str) -> tuple[BrowserSession | None, str]:
        found = _TEXT.fullmatch(text)
        return (None, "") if found is None else (await self.records.get(found[1]), found[2])
