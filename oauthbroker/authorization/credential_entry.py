"""Store the credential that a person has typed on the connect page: check its form, ask the provider, commit.

The provider is asked before anything is stored, so that a wrong one replaces nothing and the page can be tried again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from oauthbroker.audit import ConnectStarted
from oauthbroker.audit.port import AuditWriter
from oauthbroker.authorization.code_exchange import Exchange
from oauthbroker.authorization.connect import TRIES, Connect
from oauthbroker.authorization.finish import Finish
from oauthbroker.authorization.new_grant import Verified
from oauthbroker.core.clock import Clock, random_text
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.connect_links import OtherConfigError
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.model.owner_check import check_owner, check_pin
from oauthbroker.model.static_credential import packed
from oauthbroker.protocol.authorization_request import new_attempt
from oauthbroker.protocol.callback_checks import cookie_fits
from oauthbroker.protocol.credential_check import CredentialChecks, credential_response
from oauthbroker.records import AuthSession
from oauthbroker.repository.repository import Conflict, Repository, Versioned

CLAIM_SECONDS = 60.0  # for the two writes of a commit


class FieldsRefused(BrokerError):
    """`requestInvalid`, with the problem of each field: the page says so beside each."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__(Code.REQUEST_INVALID, note="the fields of a credential")
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialEntry:
    """The entry of a connect page with fields."""

    repository: Repository
    connect: Connect
    finish: Finish
    exchange: Exchange
    checks: CredentialChecks
    config: CurrentConfig
    clock: Clock
    audit: AuditWriter

    def knows_who(self, app: App, session: AuthSession, cookie: str | None) -> bool:
        """Tell whether this browser may type the credential: under `brokerLogin` only after the session's own subject
        has signed in with it."""
        if app.owner.confirmation != "brokerLogin":
            return True
        login, passed = self.config.bundle.login, session.login
        if login is None or passed is None:
            return False
        return passed.counts(login.digest(), self.clock.now()) and cookie_fits(session.attempt, cookie)

    async def store(
        self, app: App, ticket: str, said: Mapping[str, str], label: str, cookie: str | None
    ) -> tuple[AuthSession, Secret]:
        """Check and store a credential. Return the completed session, and the cookie by which this browser is told.
        `app` is at its connection; outer blanks of the typed values are dropped.

        Raises FieldsRefused; `stateUnknown`, also for a page that was sent too often; `ownerBindingFailed`; the errors
        of `CredentialChecks.owner_of` and `check_owner`. After each of them the link can be used again.
        """
        assert app.credential is not None  # noqa: S101  (the page's app is a CredentialApp)
        values = {name: text.strip() for name, text in said.items()}
        if problems := app.credential.problems(values):
            raise FieldsRefused(problems)
        versioned = await self._counted(app, ticket, label)
        if not self.knows_who(app, versioned.record, cookie):
            raise BrokerError(Code.OWNER_BINDING_FAILED, note="the subject has not logged in")
        return await self.exchange.see_through(self._store(app, versioned, packed(values)))

    async def _store(
        self, app: App, versioned: Versioned[AuthSession], credential: Secret
    ) -> tuple[AuthSession, Secret]:
        session, sent_at = versioned.record, self.clock.now()
        facts = await self.checks.owner_of(app, credential)
        is_known = app.owner.confirmation is not None  # `store` has looked
        owner = check_owner(app, session.subject, facts, confirmed=is_known, account=session.account)
        old = await self.repository.grant(session.key)
        if old is not None and old.record.registration == app.registration:  # while the link can still be used again
            check_pin(old.record.pinned, owner.account, switch_account=session.switch_account)
        verified = Verified(
            tokens=credential_response(app, credential),
            owner=owner,
            scopes=(),
            missing=(),
            unverified=app.credential is not None and app.credential.verification is None,
        )
        cookie = Secret(random_text(self.clock, 256))
        attempt = new_attempt(self.clock, session.locator, cookie=cookie)
        ready = versioned._replace(record=session.attempted(attempt))
        claimed = await self.finish.claim(ready, CLAIM_SECONDS)
        if claimed is None:
            raise BrokerError(Code.STATE_USED, note="the session has changed meanwhile")
        try:
            await self.finish.commit(app, claimed, verified, sent_at)
        except BrokerError as error:
            refused = error.with_traceback(None)  # its frames hold the credential
        else:
            return claimed.record, cookie
        await self.finish.release(claimed)
        raise refused

    async def _counted(self, app: App, ticket: str, label: str) -> Versioned[AuthSession]:
        """Return the open session with one more press of its button, written before the provider is asked."""
        for tried in range(TRIES):
            async with self.connect.turn(ticket, tried):
                versioned = await self.connect.session_of_ticket(ticket)
                session = versioned.record
                if session.claim is not None:
                    with suppress(Conflict):
                        await self.finish.recover(versioned)
                    continue
                if session.config_digest != app.config_digest:
                    raise OtherConfigError
                if session.worn_out:
                    raise BrokerError(Code.STATE_UNKNOWN, note="its button leads nowhere")
                if tried == 0:
                    self.audit.write(ConnectStarted(app=app.name, session=session.id), self.clock.now())
                counted = session.named(label, app.params).pressed()
                try:
                    return await self.repository.save_session(counted, expect=versioned.generation)
                except Conflict:
                    continue
        raise BrokerError(Code.STORE_LOCKED)
