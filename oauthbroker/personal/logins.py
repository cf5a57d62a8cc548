"""Connect an app of this person, show the connections, and end one. Nothing here prints or asks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple

from oauthbroker.authorization.session_opening import Wish
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App
from oauthbroker.model.connect_links import connect_link
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.local_turn import AGENT, SUBJECT, local_turn
from oauthbroker.model.token_results import AuthorizationRequired, DevicePrompt, Failed, SessionOutcome, TokenResult
from oauthbroker.personal.command_lines import named
from oauthbroker.records.grant_view import GrantView
from oauthbroker.revocation.pending_revocations import RevocationOutcome
from oauthbroker.wiring.running import Running

CONSENT_SECONDS: Final = 900.0
State = Literal["works", "needs login", "key rejected", "ended here"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """A request that waits for the person: its link or, in the device code flow, the code to type."""

    session: str
    link: str
    device: DevicePrompt | None = None


class Connection(NamedTuple):
    """One connection as `status` shows it. `ended here`: its provider has still to be told."""

    view: GrantView
    state: State
    used_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalLogin:
    """The connection of one app in a running broker."""

    running: Running
    app: App
    account: str = ""

    @classmethod
    def of(cls, running: Running, name: str, account: str = "") -> LocalLogin:
        return cls(running=running, app=running.parts.apps[name], account=account)

    @property
    def key(self) -> GrantKey:
        return GrantKey(self.app.name, SUBJECT, self.account)

    @property
    def ref(self) -> str:
        return self.key.connection

    @property
    def named(self) -> str:
        return named(self.app.name, self.account)

    async def there(self) -> GrantView | None:
        """Return the connection that is there; None if there is none, or it has ended."""
        found = await self.running.parts.repository.grant(self.key)
        if found is None or found.record.revoked:
            return None
        return GrantView.of(found.record, self.app, self.running.parts.clock.now())

    async def ask(self, *, replace: bool) -> Consent | None:
        """Open a request. None if the connection works already, with all scopes of the app. `replace`: ask in any case,
        and another account may take its place. Raises BrokerError."""
        if self.app.credential is not None:
            works = (there := await self.there()) is not None and there.health != "again"
            return await self._ask_for_key(replace=replace) if replace or not works else None
        await self.running.parts.mcp_clients.recheck(self.app.name, until=self.running.parts.clock.now())
        oauth = self.running.broker.oauth(local_turn(self.app.name, self.account))
        result: TokenResult | None
        if replace:
            result = await oauth.get_access_token(self.ref, switch_account=True)
        else:
            result = await oauth.missing_consent(self.ref, self.app.scopes)
        if isinstance(result, Failed):
            raise result.as_error()
        if not isinstance(result, AuthorizationRequired):
            return None
        return Consent(session=result.auth_session_id, link=result.authorization_url, device=result.device_code)

    async def _ask_for_key(self, *, replace: bool) -> Consent:
        parts = self.running.parts
        target = local_turn(self.app.name, self.account).resume_target
        wish = Wish(key=self.key, scopes=(), resume=target, switch_account=replace)
        session = await parts.opening.open_session(self.app, wish, lambda _: True)
        if session is None:
            raise BrokerError(Code.STORE_LOCKED)
        return Consent(session=session.id, link=connect_link(parts.settings.public_base_url, session.ticket))

    async def wait(self, consent: Consent) -> SessionOutcome:
        """Wait until the person has agreed or declined. A request without an answer is withdrawn."""
        broker = self.running.broker
        try:
            return await broker.wait(consent.session, CONSENT_SECONDS)
        finally:
            await broker.cancel(consent.session)
            await self._take_events()

    async def enter(self, consent: Consent, values: Mapping[str, str]) -> None:
        """Check the typed values of a key at the provider, and store them. Raises as the connect page's entry does; the
        request can be used again then."""
        ticket = consent.link.rpartition("/")[2]
        await self.running.parts.pages.service.enter(ticket, {}, "", values, None)
        await self._take_events()

    async def _take_events(self) -> None:
        """Take what the connection sent to its agent, which is this command."""
        await self.running.hand_over()
        while (lease := await self.running.broker.events.lease(AGENT)) is not None:
            await lease.ack()


async def connections(running: Running, name: str) -> AsyncIterator[Connection]:
    """Yield the connections of an app, each with its last use, and those of which the provider has still to be told."""
    parts = running.parts
    async for view in parts.grants.views(name, SUBJECT):
        if not view.revoked or view.revocation_pending:
            used = await parts.uses.last(view.id)
            yield Connection(view, _state(view), used.at if used is not None else None)


async def end(running: Running, keys: Sequence[GrantKey]) -> Mapping[GrantKey, RevocationOutcome]:
    """End connections here, and tell the provider of them, also of those that ended before. All end before it is told
    of one: none keeps another one from being told. Raises BrokerError."""
    figures = await running.parts.grants.revoke_each(keys)
    for code in figures.failed.values():
        raise BrokerError(code)
    return figures.outcomes


def _state(view: GrantView) -> State:
    if view.revoked:
        return "ended here"
    if view.health != "again":
        return "works"
    return "key rejected" if view.slots else "needs login"


def known_as(view: GrantView) -> str:
    """Return the account as a person knows it; empty where the provider names none."""
    return view.label or view.account_name or view.identity or ""
