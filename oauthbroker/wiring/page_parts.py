"""What the pages for users stand on. They are made, and imported, when the first page is: many embedded brokers show
none."""

from __future__ import annotations

from functools import cached_property

from oauthbroker.authorization.broker_login import Logins
from oauthbroker.authorization.callback import Callback
from oauthbroker.authorization.choices import Choices
from oauthbroker.authorization.credential_entry import CredentialEntry
from oauthbroker.authorization.login_claims import LoginClaims
from oauthbroker.authorization.pages_service import PagesService
from oauthbroker.authorization.retry import RetryService
from oauthbroker.wiring.call_parts import CallParts


class PageParts:
    """What a user does in a browser: connect, come back, log in, choose, type a credential."""

    def __init__(self, parts: CallParts) -> None:
        self._parts = parts

    @cached_property
    def login_claims(self) -> LoginClaims:
        asker = self._parts.authorization_urls.asker
        return LoginClaims(
            discovery=self._parts.discovery, asker=asker, owners=self._parts.owners, clock=self._parts.clock
        )

    @cached_property
    def logins(self) -> Logins:
        return Logins(
            repository=self._parts.repository,
            discovery=self._parts.discovery,
            authorization_urls=self._parts.authorization_urls,
            claims=self.login_claims,
            finish=self._parts.finish,
            exchange=self._parts.exchange,
            config=self._parts.config,
            apps=self._parts.apps,
            clock=self._parts.clock,
        )

    @cached_property
    def callback(self) -> Callback:
        return Callback(
            repository=self._parts.repository,
            discovery=self._parts.discovery,
            finish=self._parts.finish,
            exchange=self._parts.exchange,
            config=self._parts.config,
            clock=self._parts.clock,
            log=self._parts.log,
        )

    @cached_property
    def choices(self) -> Choices:
        return Choices(self._parts.finish)

    @cached_property
    def credential_entry(self) -> CredentialEntry:
        return CredentialEntry(
            repository=self._parts.repository,
            connect=self._parts.connect,
            finish=self._parts.finish,
            exchange=self._parts.exchange,
            checks=self._parts.credential_checks,
            config=self._parts.config,
            clock=self._parts.clock,
            audit=self._parts.audit,
        )

    @cached_property
    def service(self) -> PagesService:
        return PagesService(
            apps=self._parts.apps,
            connect=self._parts.connect,
            choices=self.choices,
            callback=self.callback,
            logins=self.logins,
            pending_codes=self._parts.pending_codes,
            credential_entry=self.credential_entry,
            mcp_clients=self._parts.mcp_clients,
            discovery=self._parts.discovery,
            clock=self._parts.clock,
            config=self._parts.config,
        )

    @cached_property
    def retry(self) -> RetryService:
        return RetryService(
            apps=self._parts.apps, connect=self._parts.connect, opening=self._parts.opening, clock=self._parts.clock
        )
