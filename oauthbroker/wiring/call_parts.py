"""The services that agents call: token calls, turns and events."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from oauthbroker.access.api_keys import ApiKeys
from oauthbroker.access.oauth_contexts import OAuthContexts
from oauthbroker.access.turns import Turns
from oauthbroker.core.secret import Secret
from oauthbroker.events.backends import queues_of
from oauthbroker.events.forwarding.agent_forwarder import ForwardingParts
from oauthbroker.events.forwarding.running import Forwarding
from oauthbroker.events.outbox_relay import Relay
from oauthbroker.events.port import Queues
from oauthbroker.events.waits import Events, Outcomes
from oauthbroker.injection.injector import Injector
from oauthbroker.model.outside_values import OutsideValue
from oauthbroker.protocol.network.api_transport import ApiLimits
from oauthbroker.records.turn_record import TurnRecord
from oauthbroker.records.use import GrantUse
from oauthbroker.tokens.call_decisions import CallDecisions
from oauthbroker.tokens.consent_requests import ConsentRequests
from oauthbroker.tokens.credential_rejections import CredentialRejections
from oauthbroker.tokens.grant_uses import Uses
from oauthbroker.tokens.manager import OAuthManager
from oauthbroker.tokens.team_credentials import TeamCredentials
from oauthbroker.tokens.team_values import TeamValues
from oauthbroker.tokens.token_call import Calls
from oauthbroker.tokens.token_issuer import TokenIssuer
from oauthbroker.wiring.flows import Flows
from oauthbroker.wiring.storage import api_keys


class CallParts(Flows):
    """The parts behind `ctx.oauth`, the turns and the queues of one broker."""

    @cached_property
    def manager(self) -> OAuthManager:
        return OAuthManager(
            calls=self.calls,
            repository=self.repository,
            consent_requests=ConsentRequests(
                opening=self.opening,
                authorization_urls=self.authorization_urls,
                metrics=self.metrics,
                settings=self.settings,
            ),
            mcp_clients=self.mcp_clients,
            late_facts=self.late_facts,
            rejections=CredentialRejections(
                repository=self.repository, checks=self.credential_checks, clock=self.clock
            ),
            team=TeamCredentials(repository=self.repository, values=self.team_values, clock=self.clock),
            decisions=CallDecisions(settings=self.settings, clock=self.clock),
            refresh=self.refresh,
            issuer=self.token_issuer,
            clock=self.clock,
            audit=self.audit,
            metrics=self.metrics,
            settings=self.settings,
            log=self.log,
        )

    @cached_property
    def team_values(self) -> TeamValues:
        def read(wanted: Iterable[OutsideValue]) -> dict[OutsideValue, Secret]:
            from oauthbroker.key_services.outside_values import OutsideValues  # needed by few

            return OutsideValues(self.settings.vault, self.settings.outgoing_proxy).read(wanted)

        return TeamValues(read=read, clock=self.clock, log=self.log)

    @cached_property
    def token_issuer(self) -> TokenIssuer:
        return TokenIssuer(
            calls=self.calls,
            repository=self.repository,
            background=self.background_refresh,
            clock=self.clock,
            audit=self.audit,
            metrics=self.metrics,
            uses=self.uses,
            scrubber=self.scrubber,
        )

    @cached_property
    def calls(self) -> Calls:
        return Calls(self.apps, self.limits.default_min_ttl_seconds)

    @cached_property
    def contexts(self) -> OAuthContexts:
        return OAuthContexts(manager=self.manager, config=self.config, injector=self.injector)

    @cached_property
    def injector(self) -> Injector:
        return Injector(self.api_transport, ApiLimits())

    @cached_property
    def turns(self) -> Turns:
        return Turns(
            records=self.repository.records("turns", TurnRecord.from_plaintext),
            config=self.config,
            clock=self.clock,
            audit=self.audit,
        )

    @cached_property
    def api_keys(self) -> ApiKeys:
        return api_keys(self.repository, self.clock, self.audit)

    @cached_property
    def queues(self) -> Queues:
        return queues_of(
            self.repository, clock=self.clock, limits=self.limits, metrics=self.metrics, notifier=self.changes
        )

    @cached_property
    def relay(self) -> Relay:
        return Relay(repository=self.repository, queues=self.queues, notifier=self.changes)

    @cached_property
    def events(self) -> Events:
        return Events(
            queues=self.queues,
            clock=self.clock,
            notifier=self.changes,
            life=self.life,
            config=self.config,
            log=self.log,
            opened_here=self.repository.opened_here,
        )

    @cached_property
    def forwarding(self) -> Forwarding:
        parts = ForwardingParts(
            queues=self.queues,
            repository=self.repository,
            clock=self.clock,
            limits=self.limits,
            metrics=self.metrics,
            notifier=self.changes,
            log=self.log,
        )
        return Forwarding(self.config, parts)

    @cached_property
    def outcomes(self) -> Outcomes:
        return Outcomes(repository=self.repository, clock=self.clock, notifier=self.changes, life=self.life)

    @cached_property
    def uses(self) -> Uses:
        return Uses(self.repository.records("uses", GrantUse.from_plaintext), self.clock)
