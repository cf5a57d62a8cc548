"""A user's connections: seen, ended, moved to another account. Serves the pages of `/connections`.

Everything is looked up by the subjects of the browser session, so that no other person's data is ever at hand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime

from oauthbroker.access.browser_sessions import BrowserSessions, NewBrowserSession
from oauthbroker.audit import ConnectionsOpened, PageAction
from oauthbroker.audit.port import AuditWriter
from oauthbroker.authorization.session_opening import Opening, Wish
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.grants.grants import Grants
from oauthbroker.model.apps import App
from oauthbroker.model.connect_links import connect_link
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.grant_key import grant_id as grant_id_of
from oauthbroker.model.scope_ceiling import union_in_app_order
from oauthbroker.model.settings import Settings
from oauthbroker.model.token_results import Reason
from oauthbroker.model.turn_titles import agent_title
from oauthbroker.records import AuthSession, Grant
from oauthbroker.records.browser_session import BrowserSession
from oauthbroker.records.grant_view import GrantView
from oauthbroker.records.use import GrantUse
from oauthbroker.repository.repository import Repository
from oauthbroker.repository.versioned import readable
from oauthbroker.revocation.pending_revocations import RevocationOutcome
from oauthbroker.tokens.grant_uses import Uses

LINK_PATH = "/connections/open"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantConnection:
    """One grant on its person's pages, with what that person may do with it."""

    app: App
    grant: GrantView
    used: GrantUse | None
    can_switch: bool
    can_refresh: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRequest:
    """One authorization that waits for this person, and its link."""

    app: App
    agent: str
    scopes: tuple[str, ...]
    link: str
    expires_at: datetime
    agent_title: str | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """One app, with the connection or the waiting requests of one account."""

    app: App
    connection: GrantConnection | None
    requests: tuple[WaitingRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """`broker.connections`: `link` is for runtimes, the rest for the pages."""

    apps: Mapping[str, App]
    repository: Repository
    browser_sessions: BrowserSessions
    uses: Uses
    grants: Grants
    opening: Opening
    settings: Settings
    clock: Clock
    audit: AuditWriter

    async def link(
        self, subjects: Mapping[str, str], *, noted: Callable[[str], Awaitable[None]] | None = None
    ) -> tuple[str, datetime]:
        """Return a link that opens, once and within ten minutes, the connections page of these subjects (`global`,
        `user` or both), and when it expires. Its holder can end those connections: send it to that person alone.
        `noted` hears the id of the browser session that it is for, before there is one.

        Raises `requestInvalid`, `rateLimited`, store codes.
        """
        ticket, expires_at = await self.browser_sessions.invite(subjects, noted)
        return f"{self.settings.public_base_url.rstrip('/')}{LINK_PATH}/{ticket.reveal()}", expires_at

    async def open(self, ticket: str) -> NewBrowserSession:
        """Use the link up, and let this browser in. Raises `stateUnknown`."""
        return await self.browser_sessions.open(ticket, self._opened)

    async def enter_once(self, user: str, auth_session: str) -> NewBrowserSession:
        """Let in the browser that an authorization has just proven to be this user's. Raises `stateUsed`."""
        return await self.browser_sessions.enter_once(user, auth_session, self._opened)

    async def _opened(self, browser_session_id: str) -> None:
        self.audit.write(ConnectionsOpened(browser=browser_session_id), self.clock.now())

    async def overview(self, browser_session: BrowserSession) -> list[Service]:
        """Return the connections and waiting requests, app by app: first those that wait, then by their titles. An app
        whose records cannot be read is left out."""
        services, keys = list[Service](), await self._keys(browser_session)
        for app in sorted(self.apps.values(), key=lambda app: (app.display_name.casefold(), app.name)):
            subject = browser_session.subject(app.subject_mode)
            if subject is not None:
                services += await readable(self._services(app, subject, keys)) or []
        return sorted(services, key=lambda service: not service.requests)

    async def _services(self, app: App, subject: str, keys: Collection[GrantKey]) -> list[Service]:
        """Return an app's entries, one for each account with a connection or a waiting request."""
        requests: dict[str, list[WaitingRequest]] = defaultdict(list)
        for each in await self.repository.waiting(app.name, subject):
            if each.record.claim is None and not each.record.is_past(self.clock.now()):
                requests[each.record.account].append(self._request(app, each.record))
        services = list[Service]()
        for account in sorted({key.account for key in keys if key[:2] == (app.name, subject)} | requests.keys()):
            versioned = await self.repository.grant(GrantKey(app.name, subject, account))
            connected = versioned is not None and not versioned.record.revoked
            connection = await self._connection(app, versioned.record) if versioned is not None and connected else None
            if connection is not None or account in requests:
                services.append(Service(app, connection, tuple(requests[account])))
        return services

    async def find(self, browser_session: BrowserSession, grant_id: str) -> GrantConnection:
        """Return a connection of this browser session. Raises `grantNotFound`, also for one of another person."""
        grant = await self._own(browser_session, grant_id)
        return await self._connection(self.apps[grant.app], grant)

    async def disconnect(self, browser_session: BrowserSession, grant_id: str) -> RevocationOutcome | None:
        """End one of this browser session's own, here at once. None for one that has ended. Raises `grantNotFound`."""
        grant = await self._found(browser_session, grant_id)
        if grant.revoked:
            return None
        entry = PageAction(
            app=grant.app, browser=browser_session.id, operator=None, action="disconnect", target=grant.id
        )
        self.audit.write(entry, self.clock.now())
        return await self.grants.revoke(*grant.key)

    async def reconnect(self, browser_session: BrowserSession, grant_id: str, *, switch: bool) -> str:
        """Return a link to consent again, for the same account or (`switch`) for another one, on behalf of the agent
        that asked last. Raises `grantNotFound`, `requestInvalid` where no user can consent, `rateLimited`."""
        grant = await self._own(browser_session, grant_id)
        app = self.apps[grant.app]
        if grant.resume is None or not (_can_switch(app, grant) if switch else _can_refresh(app, grant)):
            raise BrokerError(Code.REQUEST_INVALID, note="no user can agree to this one")
        reason: Reason = "noGrant" if switch else "expired"
        wish = Wish(
            key=grant.key,
            scopes=union_in_app_order(app, grant.scopes) or app.scopes,
            resume=grant.resume,
            reason=reason,
            switch_account=switch,
            params=grant.params,
        )
        action = "switchAccount" if switch else "agreeAgain"
        entry = PageAction(app=app.name, browser=browser_session.id, operator=None, action=action, target=grant.id)
        self.audit.write(entry, self.clock.now())
        session = await self.opening.open_session(app, wish, lambda _: True)
        if session is None:
            raise BrokerError(Code.STORE_LOCKED)
        return connect_link(self.settings.public_base_url, session.ticket)

    async def _own(self, browser_session: BrowserSession, grant_id: str) -> Grant:
        grant = await self._found(browser_session, grant_id)
        if grant.revoked:
            raise BrokerError(Code.GRANT_NOT_FOUND)
        return grant

    async def _found(self, browser_session: BrowserSession, grant_id: str) -> Grant:
        """Return a grant of this browser session, also one that has ended. Raises `grantNotFound`."""
        for key in await self._keys(browser_session):
            versioned = await readable(self.repository.grant(key)) if grant_id == grant_id_of(*key) else None
            if versioned is not None:
                if versioned.record.revoked:
                    await self.repository.sync("grants")  # it may have ended a moment ago: the answer says so
                return versioned.record
        raise BrokerError(Code.GRANT_NOT_FOUND)

    async def _keys(self, browser_session: BrowserSession) -> list[GrantKey]:
        """Return the keys that grants of this browser session may have, in their order: of those found by their tag,
        and of each app's unnamed account."""
        keys = set[GrantKey]()
        for app in list(self.apps.values()):
            subject = browser_session.subject(app.subject_mode)
            keys |= {GrantKey(app.name, subject)} if subject is not None else set()
        for subject in {key.subject for key in keys}:
            async for versioned in self.repository.grants_with(subject):
                app_of = self.apps.get(versioned.record.app)
                if app_of is not None and versioned.record.subject == browser_session.subject(app_of.subject_mode):
                    keys.add(versioned.record.key)
        return sorted(keys)

    async def _connection(self, app: App, grant: Grant) -> GrantConnection:
        return GrantConnection(
            app=app,
            grant=GrantView.of(grant, app, self.clock.now()),
            used=await self.uses.last(grant.id),
            can_switch=_can_switch(app, grant),
            can_refresh=_can_refresh(app, grant),
        )

    def _request(self, app: App, session: AuthSession) -> WaitingRequest:
        return WaitingRequest(
            app=app,
            agent=session.resume.agent_name,
            scopes=session.scopes,
            link=connect_link(self.settings.public_base_url, session.ticket),
            expires_at=session.expires_at,
            agent_title=agent_title(session.resume),
        )


def _can_refresh(app: App, grant: Grant) -> bool:
    """Return whether there is a user to consent, and an agent that asked."""
    return grant.resume is not None and app.flow != "clientCredentials"


def _can_switch(app: App, grant: Grant) -> bool:
    """Return whether another account may be offered. Where the subject is the account, another account would be refused
    at the callback: nothing to offer."""
    is_the_account = app.subject_mode == "user" and app.owner.user_identity is not None
    return _can_refresh(app, grant) and (bool(grant.account) or not is_the_account)
