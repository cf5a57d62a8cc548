"""How grants come, stay and go: authorization, refresh, revocation."""

from __future__ import annotations

from functools import cached_property

from oauthbroker.authorization.code_exchange import Exchange
from oauthbroker.authorization.connect import Connect
from oauthbroker.authorization.device_codes import DeviceCodes
from oauthbroker.authorization.device_polling import Polling
from oauthbroker.authorization.device_tokens import DeviceTokens
from oauthbroker.authorization.finish import Finish
from oauthbroker.authorization.late_facts import LateFacts
from oauthbroker.authorization.pending_codes import PendingCodes
from oauthbroker.authorization.session_opening import Opening
from oauthbroker.authorization.session_sweep import Sweep
from oauthbroker.authorization.waiting_sessions import WaitingSessions
from oauthbroker.protocol.credential_check import CredentialChecks
from oauthbroker.protocol.refresh_call import Redeemer
from oauthbroker.refresh.background import BackgroundRefresh
from oauthbroker.refresh.circuit import Circuits
from oauthbroker.refresh.client_credentials import ClientCredentials
from oauthbroker.refresh.clients import Clients
from oauthbroker.refresh.retry_store import RetryStore
from oauthbroker.refresh.transaction import RefreshTransaction
from oauthbroker.refresh.writeback import Writeback
from oauthbroker.repository.session_limits import OpenSessions
from oauthbroker.revocation.bulk import BulkRevocation
from oauthbroker.revocation.late_tokens import LateTokens
from oauthbroker.revocation.provider_requests import RevocationRequests
from oauthbroker.revocation.revoke import Revoke
from oauthbroker.revocation.shared_grants import SharedGrants
from oauthbroker.wiring.foundation import Foundation


class Flows(Foundation):
    """The flows of one broker, from the session that is opened to the grant that ends."""

    @cached_property
    def open_sessions(self) -> OpenSessions:
        return OpenSessions(self.limits)

    @cached_property
    def opening(self) -> Opening:
        return Opening(
            repository=self.repository,
            finish=self.finish,
            open_sessions=self.open_sessions,
            devices=self.device_codes,
            authorization_urls=self.authorization_urls,
            mcp_clients=self.mcp_clients,
            config=self.config,
            clock=self.clock,
            audit=self.audit,
            limits=self.limits,
            log=self.log,
        )

    @cached_property
    def device_codes(self) -> DeviceCodes:
        return DeviceCodes(
            asker=self.client_requests,
            check_url=self.transport.check_url,
            discovery=self.discovery,
            circuits=self.device_circuits,
            clock=self.clock,
            log=self.log,
            watch=self.polling.watch,
        )

    @cached_property
    def connect(self) -> Connect:
        return Connect(
            repository=self.repository,
            authorization_urls=self.authorization_urls,
            discovery=self.discovery,
            finish=self.finish,
            clock=self.clock,
            audit=self.audit,
        )

    @cached_property
    def credential_checks(self) -> CredentialChecks:
        return CredentialChecks(self.api_transport)

    @cached_property
    def pending_codes(self) -> PendingCodes:
        return PendingCodes(
            repository=self.repository,
            finish=self.finish,
            exchange=self.exchange,
            mcp_clients=self.mcp_clients,
            apps=self.apps,
            clock=self.clock,
        )

    @cached_property
    def polling(self) -> Polling:
        return Polling(
            repository=self.repository,
            tokens=DeviceTokens(asker=self.client_requests, discovery=self.discovery, clock=self.clock),
            finish=self.finish,
            apps=self.apps,
            clock=self.clock,
            limits=self.limits,
            log=self.log,
            expired_events=self.settings.expired_events,
        )

    @cached_property
    def exchange(self) -> Exchange:
        return Exchange(
            asker=self.client_requests,
            discovery=self.discovery,
            finish=self.finish,
            clock=self.clock,
            limits=self.limits,
        )

    @cached_property
    def finish(self) -> Finish:
        return Finish(
            repository=self.repository,
            waiting=WaitingSessions(self.repository, self.clock),
            owners=self.owners,
            facts=self.fact_reader,
            clock=self.clock,
            audit=self.audit,
            metrics=self.metrics,
            open_sessions=self.open_sessions,
            clients=self.clients,
            revoke=self.revoke,
            outbox=self.outbox,
            log=self.log,
        )

    @cached_property
    def late_facts(self) -> LateFacts:
        return LateFacts(repository=self.repository, reader=self.fact_reader, apps=self.apps, clock=self.clock)

    @cached_property
    def sweep(self) -> Sweep:
        return Sweep(
            repository=self.repository,
            finish=self.finish,
            clock=self.clock,
            limits=self.limits,
            expired_events=self.settings.expired_events,
            watch=self.polling.watch,
            unused=self.mcp_clients.recheck,
        )

    @cached_property
    def refresh(self) -> RefreshTransaction:
        return RefreshTransaction(
            repository=self.repository,
            discovery=self.discovery,
            redeemer=Redeemer(self.client_requests, self.owners, self.clock),
            fetch=self.client_credentials,
            writeback=self.writeback,
            circuits=self.refresh_circuits,
            clients=self.clients,
            clock=self.clock,
            limits=self.limits,
            log=self.log,
        )

    @cached_property
    def client_credentials(self) -> ClientCredentials:
        return ClientCredentials(
            repository=self.repository,
            asker=self.client_requests,
            discovery=self.discovery,
            late=LateTokens(self.revoke).revoke_tokens,
            clock=self.clock,
            audit=self.audit,
        )

    @cached_property
    def writeback(self) -> Writeback:
        return Writeback(
            repository=self.repository,
            retry_store=self.retry_store,
            drop=self.revoke.tokens,
            late=LateTokens(self.revoke).revoke_tokens,
            clock=self.clock,
            audit=self.audit,
            metrics=self.metrics,
            log=self.log,
        )

    @cached_property
    def retry_store(self) -> RetryStore:
        return RetryStore(back=self.repository.back, clock=self.clock, metrics=self.metrics, log=self.log)

    @cached_property
    def background_refresh(self) -> BackgroundRefresh:
        return BackgroundRefresh(repository=self.repository, refresh=self.refresh, apps=self.apps, clock=self.clock)

    @cached_property
    def revoke(self) -> Revoke:
        return Revoke(
            repository=self.repository,
            provider=RevocationRequests(self.client_requests, self.discovery, self.clock),
            clock=self.clock,
            certain=self.certain,
            audit=self.audit,
            limits=self.limits,
            shared_grants=self.shared_grants,
            circuits=self.revocation_circuits,
            outbox=self.outbox,
            log=self.log,
        )

    @cached_property
    def shared_grants(self) -> SharedGrants:
        return SharedGrants(self.repository, self.clock, self.apps if self.whole else None)

    @cached_property
    def bulk_revocation(self) -> BulkRevocation:
        return BulkRevocation(repository=self.repository, revoke=self.revoke, apps=self.apps, clock=self.clock)

    @cached_property
    def revocation_circuits(self) -> Circuits:
        return Circuits(self.clock)

    @cached_property
    def device_circuits(self) -> Circuits:
        return Circuits(self.clock)

    @cached_property
    def refresh_circuits(self) -> Circuits:
        return Circuits(self.clock, self.limits.provider_concurrency)

    @cached_property
    def clients(self) -> Clients:
        return Clients()

    @property
    def circuits(self) -> tuple[Circuits, ...]:
        return self.revocation_circuits, self.device_circuits, self.refresh_circuits

    def close_circuits(self, app: str) -> None:
        """Close the circuits of an app whose configuration has changed."""
        for each in self.circuits:
            each.reset(app)
